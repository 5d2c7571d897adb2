"""Data sets of the field: their files, CLIP4Clip's pairs and orders, published counts, and what is refused by name."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from checkout import ROOT
from field_files import SIZES, write_field_files
from golden_numbers import load_json
from messages import expect_message, invalid, refusal
from rewind.config import Dataset, MsrvttSource, load_dataset, load_study
from rewind.config.checks import study_dataset_faults
from rewind.data.annotations import Annotations, read_annotations
from rewind.data.formats.published import Published, safe_id
from rewind.data.splits import shared_clusters
from rewind.video.sources import build_inventory, videos_folder

HOLDS_OUT = {"activitynet": {"valid_clips": 6}, "youcook2": {"valid_clips": 6}}
ALL = {"counts": "any"}
TRAINING_FILES = {
    "msrvtt": "MSRVTT_train.9k.csv",
    "msvd": "train_list.txt",
    "didemo": "train_list.txt",
    "activitynet": "train_ids.json",
    "lsmdc": "LSMDC16_annos_training.csv",
    "vatex": "trn_names.npy",
    "youcook2": "youcookii_annotations_trainval.json",
}
FORMATS = tuple(TRAINING_FILES)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The files of the format that a test is about, in ``tmp_path``."""
    write_field_files(request.param, tmp_path)
    return tmp_path


def about(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("made", names, indirect=True, ids=names)


def dataset(name: str, folder: Path, reverse: bool = False, clips: bool = True, **keys: object) -> Dataset:
    source = {"format": name, "folder": str(folder), "videos": str(folder / "videos")}
    return Dataset(name=name, reverse=reverse, clips=clips, source=source | HOLDS_OUT.get(name, {}) | keys)


def read(name: str, folder: Path, **keys: object) -> Annotations:
    return read_annotations(dataset(name, folder, **(ALL | keys)), "")


def pairs(found: Annotations, *splits: str) -> list[tuple[str, str]]:
    """The file's name and the caption of every pair, in order."""
    files = {row.item_id: row.source.rpartition("/")[2] for row in found.items.itertuples()}
    rows = found.captions[found.captions["split"].isin(splits)]
    return [(files[video], text) for video, text in zip(rows["video_id"], rows["caption"], strict=True)]


def digest(found: list[tuple[str, str]]) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def edit(path: Path, change) -> None:
    """Change the content of a JSON file."""
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content) or content))


# ---- Beside CLIP4Clip's loaders --------------------------------------------------------------------------------------

LOADERS = load_json("clip4clip/loaders.json")


@pytest.mark.parametrize("name", LOADERS)
def test_pairs_and_the_order_of_queries_are_those_of_clip4clips_loaders(name: str, tmp_path: Path) -> None:
    write_field_files(name, tmp_path)
    for part, theirs in LOADERS[name].items():
        found = read(name, tmp_path, **({"train": part[-2:]} if part.startswith("train") and name == "msrvtt" else {}))
        if part.startswith("train") and name in ("msrvtt", "activitynet"):
            # Validation is held out of what they train on, and it is not what they test on.
            ours = pairs(found, "train", "valid")
            assert digest(sorted(ours)) == theirs["sorted"]
            assert not set(pairs(found, "valid")) & set(pairs(found, "test"))
        else:
            ours = pairs(found, {"val": "test" if name == "activitynet" else "valid"}.get(part, part))
            assert digest(ours) == theirs["in_order"], part
        assert (len({clip for clip, _ in ours}), len(ours)) == (theirs["clips"], theirs["pairs"])


@pytest.mark.parametrize("name", FORMATS)
def test_every_clip_is_found_where_the_field_has_it(name: str, tmp_path: Path) -> None:
    for clip in write_field_files(name, tmp_path):
        (tmp_path / "videos" / clip).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "videos" / clip).touch()
    keys = dataset(name, tmp_path, **ALL)
    found = read_annotations(keys, "")
    inventory = build_inventory(keys, found, videos_folder(keys))
    assert len(inventory) and (inventory["source"] != "").all()
    assert not shared_clusters(found.items)
    assert set(found.captions["video_id"]) == set(found.items["item_id"])


# ---- Published counts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMATS)
def test_other_numbers_than_the_published_ones_are_refused_or_noted(name: str, tmp_path: Path) -> None:
    write_field_files(name, tmp_path)
    with refusal(TRAINING_FILES[name]):
        read(name, tmp_path, counts="published")
    notes = read(name, tmp_path).notes["splits"]
    assert notes["test"]["as_published"] is False
    listed, published = notes["test"]["listed"], notes["test"]["published"]
    assert listed["clips"] == SIZES["test"] and published["clips"] > 600


@pytest.mark.parametrize(
    ("name", "constant", "published"),
    [
        ("msrvtt", "PUBLISHED_TEST", {"1k-A": Published(9, 9)}),
        ("msvd", "PUBLISHED_CLIPS", {"train": Published(40), "valid": Published(6), "test": Published(9)}),
        ("didemo", "PUBLISHED_CLIPS", {"train": Published(40, 40), "valid": Published(6, 6), "test": Published(9, 9)}),
        ("activitynet", "PUBLISHED_CLIPS", {"train": Published(46, 46), "test": Published(9, 9)}),
        ("lsmdc", "PUBLISHED_ROWS", {"train": Published(40, 42), "valid": Published(None, 6), "test": Published(9, 9)}),
        ("vatex", "PUBLISHED_CLIPS", {"train": Published(40), "valid": Published(6), "test": Published(9, 90)}),
        ("youcook2", "PUBLISHED_TEST", {"mil-nce": Published(9, 9)}),
    ],
)
def test_files_with_the_published_numbers_are_read(
    name: str, constant: str, published: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module(f"rewind.data.formats.{name}")
    monkeypatch.setattr(module, constant, published)
    if name == "msrvtt":
        monkeypatch.setattr(module, "PUBLISHED_TRAIN", {"9k": Published(55, 1100)})
        monkeypatch.setattr(module, "PUBLISHED_VALID", Published(6, 120))
    if name == "youcook2":
        monkeypatch.setattr(module, "PUBLISHED_TRAIN", Published(46, 46))
    write_field_files(name, tmp_path)
    notes = read(name, tmp_path, counts="published").notes["splits"]
    assert all(note.get("as_published", True) for note in notes.values()) and notes["test"]["as_published"]


@pytest.mark.parametrize("name", FORMATS)
def test_the_shipped_file_reads_its_own_format_and_asks_for_published_numbers(name: str) -> None:
    shipped = load_dataset(name, ROOT / "config/datasets")
    assert shipped.source.format == name and shipped.source.counts == "published" and not shipped.reverse
    assert len(shipped.source.files()) == len(set(shipped.source.files())) >= 2 and shipped.how_to_get


# ---- Ids, captions, twins --------------------------------------------------------------------------------------------


@about("msvd")
def test_ids_that_can_be_no_file_names_get_a_hash_and_without_clips_stay_as_they_are(made: Path) -> None:
    listed = (made / "test_list.txt").read_text().split()
    assert listed[0].startswith("-")
    with_clips, without = read("msvd", made), read("msvd", made, clips=False)
    ids = [found.items["item_id"][found.items["split"] == "test"].tolist() for found in (with_clips, without)]
    assert ids[1] == listed and ids[0] == [safe_id(name) for name in listed]
    assert ids[0][0] != listed[0] and with_clips.notes["ids_changed"] >= 3 and without.notes["ids_changed"] == 0
    assert with_clips.notes["ids_changed_shown"][listed[0]] == ids[0][0]
    assert with_clips.items["source"].tolist() == without.items["item_id"].tolist()


@about("didemo")
def test_ids_of_didemo_keep_the_suffix_and_descriptions_are_one_paragraph(made: Path) -> None:
    listed = (made / "val_list.txt").read_text().split()
    found = read("didemo", made, clips=False)
    assert set(found.items["item_id"][found.items["split"] == "valid"]) == set(listed)
    entries = json.loads((made / "val_data.json").read_text())
    paragraph = " ".join(entry["description"] for entry in entries if entry["video"] == listed[0])
    assert (listed[0], paragraph) in pairs(found, "valid")
    note = found.notes["splits"]["valid"]
    assert note["described_and_not_listed"] == 2 and note["listed_without_caption"] == 0
    (made / "val_list.txt").write_text("\n".join([*listed, listed[0], "nobody.mp4"]))
    note = read("didemo", made).notes["splits"]["valid"]
    assert note["listed_twice"] == 1 and note["listed_without_caption_shown"] == ["nobody.mp4"]


@pytest.mark.parametrize("name", FORMATS)
def test_only_clips_that_are_evaluated_have_twins_if_any_and_those_no_captions(name: str, tmp_path: Path) -> None:
    write_field_files(name, tmp_path)
    items = read(name, tmp_path, reverse=True).items
    twins = items[items["reversed"] == 1]
    assert set(twins["split"]) == {"valid", "test"}
    assert len(twins) == (items["split"][items["reversed"] == 0] != "train").sum()
    assert not set(twins["item_id"]) & set(read(name, tmp_path, reverse=True).captions["video_id"])
    assert dataset(name, tmp_path, reverse=True).why_no_twins == ""
    assert (read(name, tmp_path).items["reversed"] == 0).all()


def test_what_needs_captions_of_twins_is_refused_before_anything_runs() -> None:
    study = load_study(
        "msvd",
        ROOT / "config/studies",
        overrides={
            "evaluation.settings": ["origin", "hard", "binary"],
            "evaluation.probes": ["pairs"],
            "training.batch.twins_together": True,
        },
    )
    twins = load_dataset("msvd", ROOT / "config/datasets").model_copy(update={"reverse": True})
    expect_message("\n".join(study_dataset_faults(study, twins)))
    asked = load_study("msvd", ROOT / "config/studies", overrides={"evaluation.settings": ["origin", "hard"]})
    assert study_dataset_faults(asked, twins) == []
    assert len(study_dataset_faults(asked, load_dataset("msvd", ROOT / "config/datasets"))) == 2


@about("vatex")
def test_empty_captions_are_left_out_and_counted_and_their_clip_stays_in_the_gallery(made: Path) -> None:
    first = np.load(made / "tst_names.npy")[0].item()
    edit(made / "ref_captions.json", lambda content: content.update({first: [" ", ""]}))
    found = read("vatex", made)
    assert found.notes["splits"]["test"]["empty_captions"] == 2
    assert first in found.items["source"].tolist() and first not in [clip for clip, _ in pairs(found, "test")]


@about("vatex")
def test_a_clip_outside_of_its_folder_is_refused(made: Path) -> None:
    np.save(made / "tst_names.npy", np.array(["../secret"]))
    edit(made / "ref_captions.json", lambda content: content.update({"../secret": ["A clip."]}))
    with refusal("tst_names.npy: '../secret'"):
        read("vatex", made)


# ---- One data set after the other ------------------------------------------------------------------------------------


@about("msrvtt")
def test_official_validation_clips_are_not_trained_on(made: Path) -> None:
    official = {
        clip["video_id"]: clip["split"] for clip in json.loads((made / "MSRVTT_data.json").read_text())["videos"]
    }
    for train, count in (("9k", 49), ("7k", 40), ("full", 40)):
        found = read("msrvtt", made, train=train)
        splits = found.items.set_index("item_id")["split"]
        assert {official[clip] for clip in splits.index[splits == "valid"]} == {"validate"}
        assert splits.value_counts().to_dict() == {"train": count, "test": 9, "valid": 6}
        note = found.notes["splits"]["train"]
        assert note["held_out_for_validation"] == (0 if train == "full" else 6) and note["list"] == train
    urls = {clip["video_id"]: clip["url"] for clip in json.loads((made / "MSRVTT_data.json").read_text())["videos"]}
    trained = {urls[clip] for clip in splits.index[splits == "train"]}
    shared = sum(urls[clip] in trained for clip in splits.index[splits == "test"])
    assert found.notes["splits"]["test"]["clips_of_videos_with_training_clips"] == shared > 0


@about("msrvtt")
def test_the_full_test_split_has_twenty_captions_a_clip(made: Path) -> None:
    found = read("msrvtt", made, train="full", test="full")
    assert found.notes["splits"]["test"]["captions_per_item"] == {"20": 18}
    with invalid("source.train"):
        MsrvttSource(format="msrvtt", folder="f", videos="v", test="full")


@about("msrvtt")
@pytest.mark.parametrize("fault", ["split", "twice", "sentence", "list", "shape", "caption", "comma"])
def test_faults_of_msrvtts_files_are_named(made: Path, fault: str) -> None:
    data, train, test = made / "MSRVTT_data.json", made / "MSRVTT_train.9k.csv", made / "MSRVTT_JSFUSION_test.csv"
    if fault == "split":
        edit(data, lambda content: content["videos"][3].update(split="dev"))
    elif fault == "twice":
        edit(data, lambda content: content["videos"].append(content["videos"][0]))
    elif fault == "sentence":
        edit(data, lambda content: content["sentences"][4].update(video_id="video77777"))
    elif fault == "caption":
        edit(data, lambda content: content["sentences"][4].update(caption=7))
    elif fault == "shape":
        edit(data, lambda content: {"videos": {}, "sentences": []})
    elif fault == "list":
        train.write_text("video_id\nvideo1\nvideo77777\n")
    else:
        test.write_text(test.read_text().replace(",", ";"))
    places = {
        "split": "MSRVTT_data.json: videos[3]",
        "twice": "MSRVTT_data.json: videos[64]",
        "shape": "MSRVTT_data.json: videos",
        "list": "MSRVTT_train.9k.csv: row 3",
        "comma": "MSRVTT_JSFUSION_test.csv: row 1",
    }
    with refusal(places.get(fault, "MSRVTT_data.json: sentences[4]")):
        read("msrvtt", made)


class Touch:
    """A pickle of it writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@about("msvd")
@pytest.mark.parametrize("fault", ["code", "array", "list", "text", "number", "long", "lost"])
def test_a_pickle_of_anything_but_lists_of_words_is_refused_and_nothing_in_it_runs(made: Path, fault: str) -> None:
    path, first = made / "raw-captions.pkl", (made / "train_list.txt").read_text().split()[0]
    captions = pickle.loads(path.read_bytes())
    words = captions[first]
    captions |= {
        "code": {"other": Touch(made / "written")},
        "array": {"other": np.zeros(2)},
        "text": {first: "a dog runs"},
        "number": {first: [["a", 2]]},
        "long": {first: [words[0]] * 10_001},
    }.get(fault, {})
    if fault == "lost":
        del captions[first]
    path.write_bytes(pickle.dumps([captions] if fault == "list" else captions))
    place = "train_list.txt" if fault == "lost" else "raw-captions.pkl"
    place += f": {first!r}" if fault in ("text", "number", "long") else ""
    with refusal(place, varying=r"pathlib\.\w+(\.\w+)*|numpy\.[\w.]+"):
        read("msvd", made)
    assert not (made / "written").exists()


@about("activitynet")
def test_videos_of_activitynet_have_a_prefix_in_the_lists_and_may_have_one_as_files(made: Path) -> None:
    ids = json.loads((made / "val_ids.json").read_text())
    for prefixed, files in ((False, [name.removeprefix("v_") for name in ids]), (True, ids)):
        items = read("activitynet", made, prefixed_files=prefixed).items
        test = items[items["split"] == "test"]
        assert test["item_id"].tolist() == ids and test["source"].tolist() == files
    edit(made / "val_ids.json", lambda content: [*content, content[0], "v_nobody"])
    note = read("activitynet", made).notes["splits"]["test"]
    assert note["listed_twice"] == 1 and note["listed_without_caption_shown"] == ["v_nobody"]
    edit(made / "val_ids.json", lambda content: [*content, "nobody"])
    with refusal("val_ids.json"):
        read("activitynet", made)


@about("activitynet")
def test_what_is_held_out_depends_on_no_order_and_must_leave_something(made: Path) -> None:
    def held_out() -> set[str]:
        items = read("activitynet", made).items
        return set(items["item_id"][items["split"] == "valid"])

    first = held_out()
    edit(made / "train_ids.json", lambda content: content[::-1])
    assert held_out() == first and len(first) == 6
    edit(made / "train_ids.json", lambda content: [name for name in content if name not in sorted(first)[:1]])
    assert len(held_out() & first) == 5, "where one is missing, one more is held out"
    with refusal("train.json: source.valid_clips"):
        read("activitynet", made, valid_clips=45)


@about("lsmdc")
def test_clips_of_a_film_may_be_a_cluster_and_have_a_folder(made: Path) -> None:
    items = read("lsmdc", made).items
    assert items["cluster_id"].tolist() == items["source"].tolist() == items["item_id"].tolist()
    (made / "videos/1020_Made_Film").mkdir(parents=True)
    items = read("lsmdc", made, cluster="film").items
    assert items["cluster_id"].nunique() == 9
    assert set(items["source"][items["cluster_id"] == "1020_Made_Film"].str.partition("/")[0]) == {"1020_Made_Film"}
    assert (items["source"].str.contains("/") == (items["cluster_id"] == "1020_Made_Film")).all()
    note = read("lsmdc", made).notes["splits"]["train"]
    assert note["captions_per_item"] == {"1": 38, "2": 2} and note["films"] == 3


@about("lsmdc")
@pytest.mark.parametrize("row", ["a clip", "\t".join("abcdefg"), "\t1\t2\t3\t4\tA sentence."])
def test_rows_of_other_cells_are_refused(made: Path, row: str) -> None:
    path = made / "LSMDC16_annos_val.csv"
    path.write_text(f"{path.read_text()}\n{row}\n")
    with refusal("LSMDC16_annos_val.csv: row 8"):
        read("lsmdc", made)


@about("vatex")
def test_captions_of_vatex_come_in_either_form_and_names_in_any_array_of_text(made: Path) -> None:
    expected = pairs(read("vatex", made), "train", "valid", "test")
    captions = json.loads((made / "ref_captions.json").read_text())
    rows = [{"videoID": name, "enCap": texts, "chCap": ["一只狗"]} for name, texts in captions.items()]
    (made / "a.json").write_text(json.dumps(rows[:20]))
    (made / "b.json").write_text(json.dumps(rows[20:]))
    for kind in (object, "S40"):
        for name in ("trn", "val", "tst"):
            path = made / f"{name}_names.npy"
            np.save(path, np.array([str(safe) for safe in np.load(path, allow_pickle=False).astype(str)], dtype=kind))
            if kind is object:
                assert read("vatex", made, captions=["a.json", "b.json"])
                np.save(path, np.load(path, allow_pickle=True).astype(str))
    assert pairs(read("vatex", made, captions=["a.json", "b.json"]), "train", "valid", "test") == expected
    (made / "b.json").write_text(json.dumps([*rows[20:], rows[0] | {"enCap": ["Another one."]}]))
    with refusal("b.json"):
        read("vatex", made, captions=["a.json", "b.json"])
    with refusal("trn_names.npy"):
        read("vatex", made, captions=["a.json"])


@about("vatex")
@pytest.mark.parametrize("value", [np.zeros(3), np.array([["a", "b"]]), np.array([{"a": 1}, None], dtype=object)])
def test_names_that_are_no_texts_are_refused(made: Path, value: np.ndarray) -> None:
    np.save(made / "trn_names.npy", value)
    with refusal("trn_names.npy"):
        read("vatex", made)


@about("youcook2")
def test_segments_are_clips_of_their_video_and_one_that_is_annotated_twice_is_two(made: Path) -> None:
    found = read("youcook2", made)
    test = found.items[found.items["split"] == "test"]
    rows = pd.read_csv(made / "validation_youcook.csv")
    assert test["cluster_id"].tolist() == rows["video_id"].tolist()
    assert [text for _, text in pairs(found, "test")] == rows["text"].tolist()
    assert test["source"].tolist()[:3] == [f"{rows['video_id'][0]}_{n}" for n in range(3)]
    assert pairs(read("youcook2", made, test="all"), "test") == pairs(found, "test")
    valid = found.items[found.items["split"] == "valid"]
    assert len(valid) >= 6 and not set(valid["cluster_id"]) & set(
        found.items["cluster_id"][found.items["split"] == "train"]
    )
    # A reworded sentence finds its segment, and times that no annotation has are noted.
    content = (made / "validation_youcook.csv").read_text().splitlines()
    with (made / "validation_youcook.csv").open("w", newline="") as stream:
        cells = list(csv.reader(content))
        csv.writer(stream).writerows([cells[0], [*cells[1][:3], "reworded", cells[1][4]], ["9", "8.5", *cells[2][2:]]])
    found = read("youcook2", made)
    video = cells[1][4]
    assert pairs(found, "test") == [(f"{video}_0", "reworded"), (f"{video}_8.5-9", cells[2][3])]
    assert found.notes["splits"]["test"]["segments_not_annotated_shown"] == [f"{video}_8.5-9"]


@about("youcook2")
@pytest.mark.parametrize("fault", ["segment", "id", "subset", "database", "times"])
def test_faults_of_youcook2s_files_are_named(made: Path, fault: str) -> None:
    data, test = made / "youcookii_annotations_trainval.json", made / "validation_youcook.csv"

    def spoil(content: dict) -> dict | None:
        entry = next(iter(content["database"].values()))
        if fault == "database":
            return {"database": []}
        if fault == "subset":
            del entry["subset"]
        else:
            entry["annotations"][0][fault] = None
        return None

    if fault == "times":
        test.write_text("end,start,task,text,video_id\nlate,early,1,Stir.,v\n")
    else:
        edit(data, spoil)
    first = next(iter(json.loads(data.read_text())["database"]), "")
    places = {
        "times": "validation_youcook.csv: row 2",
        "database": f"{data.name}: database",
        "subset": f"{data.name}: {first!r}",
    }
    with refusal(places.get(fault, f"{data.name}: {first!r}: annotations[0]")):
        read("youcook2", made)


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path) -> None:
    keys = dataset("msvd", tmp_path).model_copy(update={"how_to_get": "Ask its owner."})
    with refusal("raw-captions.pkl"):
        read_annotations(keys, "")
