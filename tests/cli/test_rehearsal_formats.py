"""Stand-ins of every source format are read by its own reader, and a part of the user's files is read alone."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from messages import refusal
from rewind.cli.rehearse.shrink import shrink_dataset
from rewind.cli.rehearse.weights import RehearsedTowers
from rewind.config import Dataset
from rewind.config.dataset import Source
from rewind.data.annotations import read_annotations, select_originals
from rewind.data.dummy import SplitSizes, find_dummy_data
from rewind.data.formats.embeddings import copy_first_items
from rewind.video.dataset import make_sources
from rewind.video.sources import build_inventory, sources_folder, videos_folder
from rewind.workflow.config import check_sources

SIZES = SplitSizes(8, 2, 3)
FIELD = ("msrvtt", "msvd", "didemo", "activitynet", "lsmdc", "vatex", "youcook2")
SOURCES = {
    "rtime": {"annotations": {"train": "a", "valid": "b", "test": "c"}, "videos": "d"},
    "table": {"table": "a", "videos": "b"},
    "table of images": {"table": "a", "videos": "b", "items": "images"},
    "internvid": {"captions": "a", "videos": "b"},
    "photos": {"captions": "a", "images": "b"},
    "flickr8k": {"captions": "a", "images": "b", "split_file": "c"},
    "flickr8k without a split file": {"captions": "a", "images": "b"},
    **{name: {"folder": "a", "videos": "b"} for name in FIELD},
    "stamps": {},
    "emoji": {},
    "embeddings": {"train": "a", "captions": "b", "test": "c"},
    "shapes": {},
}


def small(name: str, folder: Path) -> Dataset:
    given = {"format": name.split()[0]} | SOURCES[name]
    source = TypeAdapter(Source).validate_python(given).model_dump(mode="json")
    reverse = source["format"] in ("rtime", "table", "shapes") and source.get("items") != "images"
    real = Dataset(name="few", source=source, reverse=reverse)
    keys = find_dummy_data(source["format"])(real, folder, SIZES)
    return Dataset(name="few", source=source | keys, reverse=reverse)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_stand_ins_are_read_as_the_real_files_are(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dataset = small(name, tmp_path / "raw")
    check_sources(dataset)
    if dataset.made_here:
        make_sources(dataset, "", str(sources_folder("few") / "ready.json"))
    found = read_annotations(dataset, str(sources_folder("few")))
    originals = found.items[found.items["reversed"] == 0]
    counts = originals["split"].value_counts()
    assert set(counts.index) == {"train", "valid", "test"} and counts["train"] >= SIZES.train - 2
    assert set(found.captions["video_id"]) == set(found.items["item_id"]), "every item has a caption"
    twins = (found.items["reversed"] == 1).sum()
    assert (twins > 0) == dataset.reverse
    if not dataset.vectors:
        rows = build_inventory(dataset, found, videos_folder(dataset))
        assert (rows["source"] != "").all(), "every item has its file"


def test_a_part_of_a_data_set_keeps_twins_and_captions(tmp_path):
    dataset = small("rtime", tmp_path / "raw")
    whole = read_annotations(dataset, "")
    twins = set(whole.items["item_id"][whole.items["reversed"] == 1].str.removesuffix("_rev"))
    first = next(item for item in whole.items["item_id"] if item in twins)
    (tmp_path / "only.txt").write_text(f"{first}\n\n{first}\n")
    few = read_annotations(dataset.model_copy(update={"only": str(tmp_path / "only.txt")}), "")
    assert few.items["item_id"].tolist() == [first, f"{first}_rev"]
    assert few.captions.equals(
        whole.captions[whole.captions["video_id"].isin(few.items["item_id"])].reset_index(drop=True)
    )
    assert few.notes["only"]["originals"] == 1 and few.notes["only"]["of"] == 13


@pytest.mark.slow
@pytest.mark.parametrize(("content", "place"), [("", "only.txt"), ("nobody\n", "only: only.txt"), (None, "only.txt")])
def test_a_part_that_names_no_item_is_refused(tmp_path, content, place):
    dataset = small("internvid", tmp_path / "raw")
    path = tmp_path / "only.txt"
    if content is not None:
        path.write_text(content)
    with refusal(place):
        select_originals(read_annotations(dataset, ""), str(path))


def test_a_part_of_the_users_vectors_has_their_values(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    real = small("embeddings", tmp_path / "raw")
    keys = copy_first_items(real, tmp_path / "part", SplitSizes(3, 1, 1))
    with np.load(keys["train"]) as few, np.load(real.source.train) as whole:
        rows = [whole["images/names"].tolist().index(name) for name in few["images/names"].tolist()]
        assert len(rows) == 5 and np.array_equal(few["images/embeddings"], whole["images/embeddings"][rows])
        texts = whole["captions/text"].tolist()
        rows = [texts.index(text) for text in few["captions/text"].tolist()]
        assert len(rows) == 25 and np.array_equal(few["captions/embeddings"], whole["captions/embeddings"][rows])


OWN_FORMAT = """
import pandas as pd
from rewind.data.annotations import SPLITS, AnnotationBuilder
from rewind.data.dummy import draw_clip, make_dummy_items
from rewind.registry import FORMATS

def make(dataset, folder, sizes):
    rows = []
    for item in make_dummy_items(sizes, 1):
        draw_clip(item, folder / f"{item.name}.mp4", side=32)
        rows.append((item.name, item.split, str(folder / f"{item.name}.mp4")))
    pd.DataFrame(rows, columns=["id", "split", "file"]).to_csv(folder / "list.csv", index=False)
    return {"options": {"list": str(folder / "list.csv")}}
"""
OWN_READER = """
def read(dataset, sources):
    builder = AnnotationBuilder()
    for row in pd.read_csv(dataset.source.options["list"]).itertuples():
        builder.describe(builder.original(row.id, row.file, row.split, row.id, "list.csv"), ["It moves."], row.split)
    return builder.annotations({split: {} for split in SPLITS})
"""
FORMER = "def stand_in(source, folder, sizes):\n    assert source['options'] == {'list': 'not/here.csv'}\n    "
FORMER += "return make(None, folder, sizes)\n"


@pytest.mark.parametrize(
    ("name", "declared", "warned"),
    [
        ("in_module", f"make_dummy_data = make\n{OWN_READER}", False),
        ("on_reader", f'@FORMATS.register("own", make_dummy_data=make)\n{OWN_READER.strip()}\n', False),
        ("former_name", FORMER + OWN_READER, True),
    ],
)
def test_a_format_of_the_users_own_has_dummy_data(name, declared, warned, tmp_path, monkeypatch):
    dataset = own_dataset(f"own_{name}", OWN_FORMAT + declared, tmp_path, monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keys, note = shrink(dataset, tmp_path)
    assert any("rename `stand_in" in str(each.message) for each in caught) == warned
    found = read_annotations(Dataset.model_validate({"name": "few"} | keys), "")
    assert found.items["split"].value_counts().to_dict() == SIZES.counts() and "dummy data" in note
    rows = build_inventory(Dataset.model_validate({"name": "few"} | keys), found, Path())
    assert (rows["source"] != "").all(), "every item has its file"


def test_a_format_without_dummy_data_says_what_to_write(tmp_path, monkeypatch):
    dataset = own_dataset("own_none", OWN_FORMAT + OWN_READER, tmp_path, monkeypatch)
    with refusal("config/datasets/few.yaml: source.format"):
        shrink(dataset, tmp_path)


def own_dataset(package: str, code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A data set in a format of the user's own, whose file is not there."""
    (folder / package).mkdir()
    (folder / package / "clips.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(folder)
    return Dataset(name="few", source={"format": f"{package}.clips", "options": {"list": "not/here.csv"}})


def shrink(dataset: Dataset, folder: Path) -> tuple[dict, str]:
    return shrink_dataset(dataset, folder, folder / "raw", SIZES, RehearsedTowers(folder, False))
