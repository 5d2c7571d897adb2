"""Flickr8k's text formats, its split by image, and images that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from checkout import ROOT
from messages import refusal
from rewind.config import Dataset, load_dataset
from rewind.data.annotations import Annotations
from rewind.data.captions import load_split
from rewind.data.formats import flickr8k
from rewind.io.files import read_csv, read_json
from rewind.video.dataset import join_reports, make_captions, make_inventory, make_shard
from rewind.workflow.config import check_sources

NAMES = [f"{n:03d}_ab.jpg" for n in range(20)]
TEXTS = ["A dog runs .", "Two dogs , one ball", 'A sign says "Go"', "Ein weißer Hund", "A dog leaps over a log"]
PAIRS = [(name, text) for name in NAMES for text in TEXTS]


def dataset(folder: Path, captions: str = "captions.tsv", **keys) -> Dataset:
    source = {"format": "flickr8k", "captions": str(folder / captions), "images": str(folder / "Images")} | keys
    return Dataset.model_validate({"name": "mine", "reverse": False, "max_missing": 0.01, "source": source})


def read(folder: Path, text: str, captions: str = "captions.tsv", **keys) -> Annotations:
    (folder / captions).write_text(text, encoding="utf-8")
    return flickr8k.read(dataset(folder, captions, **keys), "")


def tabs(pairs=PAIRS) -> str:
    return "".join(f"{name}\t{text}\n" for name, text in pairs)


def karpathy(folder: Path, splits: dict[str, str]) -> str:
    path = folder / "dataset_flickr8k.json"
    images = [{"filename": name, "split": split, "imgid": n} for n, (name, split) in enumerate(splits.items())]
    path.write_text(json.dumps({"images": images, "dataset": "flickr8k"}))
    return str(path)


FORMATS = {
    "tab": tabs(),
    "tab with heading": "image_path\tcaption\n" + tabs(),
    "byte order mark, blank rows, Windows": "\ufeff" + tabs().replace("\n", "\r\n\r\n"),
    "numbered": "".join(f"{name}#{n}\t{text}\n" for name in NAMES for n, text in enumerate(TEXTS)),
    "with the folder's name": tabs([(f"Images/{name}", text) for name, text in PAIRS]),
    "CSV": "image,caption\n" + "".join('{},"{}"\n'.format(name, text.replace('"', '""')) for name, text in PAIRS),
    "CSV without quotes": "image,caption\n" + "".join(f"{name},{text}\n" for name, text in PAIRS),
}


@pytest.mark.parametrize("text", FORMATS.values(), ids=FORMATS)
def test_every_text_format_gives_the_same_rows(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert found.items["source"].tolist() == NAMES and found.captions["caption"].tolist() == TEXTS * 20
    assert found.items["item_id"].tolist()[:2] == ["000_ab", "001_ab"]
    assert found.items["split"].value_counts().to_dict() == {"train": 14, "test": 3, "valid": 3}
    split = found.items.set_index("item_id")["split"]
    assert (found.captions["split"] == found.captions["video_id"].map(split)).all(), "all captions of an image together"
    assert found.notes["splits"]["train"]["seed"] == 42 and found.notes["images_without_5_captions"] == 0


def test_karpathys_split_is_taken_and_what_it_lacks_is_counted(tmp_path: Path) -> None:
    parts = ["train"] * 10 + ["restval"] * 2 + ["val"] * 3 + ["test"] * 4
    path = karpathy(tmp_path, dict(zip(NAMES, parts, strict=False)) | {"elsewhere.jpg": "test"})
    foldered = tabs([(f"Images/{name}", text) for name, text in PAIRS])
    found = read(tmp_path, foldered, split_file=path, max_without_split=0.05)
    assert found.items["split"].tolist() == ["train"] * 12 + ["valid"] * 3 + ["test"] * 4
    assert found.notes["images_not_in_split_file_shown"] == [NAMES[-1]]
    (tmp_path / "Images/Images").mkdir(parents=True)
    below = read(tmp_path, foldered, split_file=path, max_without_split=0.05)
    assert below.items["source"].tolist()[0] == f"Images/{NAMES[0]}", "such a folder is there"
    assert found.notes["images_in_split_file_alone_shown"] == ["elsewhere.jpg"]
    assert found.notes["splits"]["test"]["split_file"] == path
    with refusal("dataset_flickr8k.json"):
        read(tmp_path, foldered, split_file=path)


def test_split_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    def refused(content: object, place: str = "split.json") -> None:
        (tmp_path / "split.json").write_text(json.dumps(content))
        with refusal(place):
            read(tmp_path, tabs(), split_file=str(tmp_path / "split.json"))

    refused([1])
    refused({"annotations": []})
    refused({"images": [{"filename": "a.jpg", "split": "dev"}]}, "split.json: images[0]")
    twice = [{"filename": "a.jpg", "split": split} for split in ("train", "test")]
    refused({"images": twice}, "split.json: images[1]")
    refused({"images": [{"filename": "a.jpg", "split": "train"}]})
    refused({"images": [{"filename": name, "split": "train"} for name in NAMES]})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "captions.tsv"),
        ("image,caption\n", "captions.tsv"),
        ("000_ab.jpg;A dog , a ball\n", "captions.tsv: row 1"),
        ("image|caption\n000_ab.jpg|A dog\n", "captions.tsv: row 1"),
        ("A dog\t\n", "captions.tsv"),
        (tabs() + "003_ab.jpg\n", "captions.tsv"),
        (tabs() + "003_ab.jpg,A dog\n", "captions.tsv"),
        ("image,caption\na.jpg,x\nb.jpg\n", "captions.tsv"),
        (tabs() + "../a.jpg\tA dog\n", "captions.tsv"),
        (tabs() + "000_ab.png\tA dog\n", "captions.tsv"),
        ('image,caption\na.jpg,"A "dog" runs"\n', "captions.tsv: row 2"),
        (tabs(PAIRS[:20]), "config/datasets/mine.yaml: source"),
    ],
    ids=[
        *("empty", "header alone", "semicolons", "bars", "empty caption", "no caption", "comma instead of a tab"),
        *("no comma", "outside", "one id", "quotes", "empty split"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, place: str) -> None:
    with refusal(place):
        read(tmp_path, text)


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    with refusal("captions.tsv"):
        flickr8k.read(dataset(tmp_path), "")
    (tmp_path / "captions.tsv").write_bytes(b"a.jpg\t\xff\xfe\x00")
    with refusal("captions.tsv"):
        flickr8k.read(dataset(tmp_path), "")


def test_an_image_with_fewer_captions_is_used_and_counted(tmp_path: Path) -> None:
    found = read(tmp_path, tabs(PAIRS[:-2]))
    assert found.notes["images_without_5_captions_shown"] == [NAMES[-1]] and len(found.captions) == 98


@settings(max_examples=25)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), min_size=1, max_size=8
    )
)
def test_any_caption_survives_both_formats(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder, texts = tmp_path_factory.mktemp("any"), [" ".join(f"x {text} x".split()) for text in texts]
    pairs = [(name, text) for name in NAMES for text in texts]
    csv_text = "image,caption\n" + "".join('{},"{}"\n'.format(n, t.replace('"', '""')) for n, t in pairs)
    ours, theirs = read(folder, tabs(pairs)), read(folder, csv_text, "captions.txt")
    assert ours.captions.equals(theirs.captions) and len(ours.captions) == len(pairs)


def test_one_in_a_hundred_unreadable_images_passes_and_more_do_not(tmp_path: Path) -> None:
    names = [f"{n:03d}.jpg" for n in range(100)]
    (tmp_path / "Images").mkdir()
    for n, name in enumerate(names):
        Image.new("RGB", (24, 20 + n), (2 * n, 90, 30)).save(tmp_path / "Images" / name)
    (tmp_path / "Images/007.jpg").write_bytes(b"\xff\xd8 torn")
    (tmp_path / "captions.tsv").write_text("".join(f"{name}\tThing {name} {k}\n" for name in names for k in range(5)))
    keys = dataset(tmp_path)
    check_sources(keys)
    folder = tmp_path / "results/data/mine"
    inventory, shard, report = (
        str(folder / "videos" / name) for name in ("inventory.csv", "shards/0.csv", "report.csv")
    )

    def normalise() -> None:
        make_inventory(keys, inventory)
        make_shard(inventory, 0, keys.image, "code", 1, shard)
        join_reports([shard], keys.max_missing, "", keys.items, report)

    normalise()
    bad = read_csv(report).query("status != 'ok'")
    assert bad["item_id"].tolist() == ["007"] and bad["reason"].str.contains("cannot be decoded").all()
    make_captions(keys, report, str(folder / "items.csv"))
    usable = [load_split(folder, "mine", split) for split in ("train", "valid", "test")]
    assert sum(len(part.items) for part in usable) == 99 and sum(len(part.captions) for part in usable) == 495
    assert read_json(folder / "captions/report.json")["annotations"]["images_without_5_captions"] == 0
    (tmp_path / "Images/008.jpg").unlink()
    with refusal():
        normalise()


def test_the_dataset_file_is_valid_and_says_how_to_get_the_data() -> None:
    keys = load_dataset("flickr8k", ROOT / "config" / "datasets")
    assert keys.items == "images" and keys.media is keys.image and not keys.made_here
    with refusal("config/datasets/flickr8k.yaml"):
        check_sources(keys)
