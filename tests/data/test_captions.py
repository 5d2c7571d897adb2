"""Items and captions joined with what became of the videos."""

import json

import pandas as pd

from messages import expect_message, refusal
from rewind.data.annotations import AnnotationBuilder
from rewind.data.captions import load_split, write_captions
from rewind.io.files import read_csv

SPLIT_OF = {"1": "train", "2": "train", "3": "valid", "4": "test", "5": "test", "06": "test"}


def annotations(without_twin=()):
    rows = AnnotationBuilder()
    for item, split in SPLIT_OF.items():
        name = rows.original(item, item, split, item, "here")
        rows.describe(name, [f"{item} opens, slowly", "NA"] if split == "train" else [f"{item} opens"], split)
        if item not in without_twin:
            rows.describe(rows.twin(name, name, split, name), [f"{item} closes"], split)
    return rows.annotations({split: {} for split in ("train", "valid", "test")})


def report(**changes):
    rows = [{"item_id": item, "status": "ok", "reason": "", "frames": 12, "twin": "made"} for item in SPLIT_OF]
    for row in rows:
        row |= changes.get(f"_{row['item_id']}", {})
    return pd.DataFrame(rows)


BROKEN = {"status": "failed", "reason": "empty file"}


def test_the_tables_hold_what_is_promised(tmp_path):
    content = write_captions(annotations(), report(), tmp_path, "d")
    items = read_csv(tmp_path / "items.csv")
    assert list(items) == ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    assert items.iloc[-1].tolist() == ["06_rev", "videos/06_rev.mp4", "test", "06", 1, "ok"]
    train = read_csv(tmp_path / "captions" / "d_train.csv")
    assert list(train) == ["video_id", "caption", "caption_id"]
    assert train.iloc[0].tolist() == ["1", "1 opens, slowly", "1#0"]
    assert read_csv(tmp_path / "captions" / "d_test.csv")["video_id"].tolist() == [
        "4", "4_rev", "5", "5_rev", "06", "06_rev",
    ]  # fmt: skip
    assert read_csv(tmp_path / "captions" / "d_test_origin.csv")["video_id"].tolist() == ["4", "5", "06"]
    assert content == json.loads((tmp_path / "captions" / "report.json").read_text())
    assert content["splits"]["train"] == {
        "originals": 2,
        "originals_usable": 2,
        "twins": 2,
        "twins_usable": 2,
        "captions": 6,
        "captions_usable": 6,
        "unusable": 0,
        "unusable_shown": [],
    }


def test_an_unusable_clip_stays_in_the_files_and_leaves_the_loaded_split(tmp_path):
    content = write_captions(annotations(), report(_5=BROKEN), tmp_path, "d")
    items = read_csv(tmp_path / "items.csv").set_index("item_id")
    assert items.loc[["5", "5_rev"], "status"].tolist() == ["failed", "failed"]
    assert "5 opens" in read_csv(tmp_path / "captions" / "d_test.csv")["caption"].tolist()
    test = content["splits"]["test"]
    assert [test[k] for k in ("originals_usable", "twins_usable", "captions_usable", "unusable")] == [
        2,
        2,
        4,
        2,
    ]
    assert test["unusable_shown"][0] == {"item_id": "5", **BROKEN}

    kept = load_split(tmp_path, "d", "test")
    assert kept.items["item_id"].tolist() == ["4", "4_rev", "06", "06_rev"]
    assert kept.captions["video_id"].tolist() == ["4", "4_rev", "06", "06_rev"]
    assert kept.left_out == {"items": 2, "captions": 2}
    assert kept.items.index.tolist() == kept.captions.index.tolist() == [0, 1, 2, 3]
    origin = load_split(tmp_path, "d", "test_origin")
    assert origin.items["item_id"].tolist() == origin.captions["video_id"].tolist() == ["4", "06"]
    assert origin.left_out == {"items": 1, "captions": 1}
    assert load_split(tmp_path, "d", "train").captions["caption"].tolist()[1] == "NA"


def test_a_clip_that_the_report_forgot_is_missing(tmp_path):
    content = write_captions(annotations(), report().query("item_id != '3'"), tmp_path, "d")
    shown = content["splits"]["valid"]["unusable_shown"]
    assert [(one["item_id"], one["status"]) for one in shown] == [("3", "missing"), ("3_rev", "missing")]
    assert shown[0]["reason"] == shown[1]["reason"]
    expect_message(shown[0]["reason"])
    assert load_split(tmp_path, "d", "valid").items.empty


def test_a_twin_that_was_never_made_is_missing_alone(tmp_path):
    write_captions(annotations(), report(_4={"twin": "none"}), tmp_path, "d")
    items = read_csv(tmp_path / "items.csv").set_index("item_id")
    assert items.loc[["4", "4_rev"], "status"].tolist() == ["ok", "missing"]
    # A clip that has no reverse caption has no twin to miss.
    content = write_captions(annotations(without_twin=("4",)), report(_4={"twin": "none"}), tmp_path, "d")
    assert content["splits"]["test"]["unusable"] == 0 and content["splits"]["test"]["twins"] == 2


def test_at_most_fifty_missing_clips_are_listed(tmp_path):
    rows = AnnotationBuilder()
    for number in range(60):
        rows.describe(rows.original(f"c{number}", "", "test", "c", "here"), ["x"], "test")
    empty = pd.DataFrame({"item_id": [], "status": [], "reason": []}, dtype=str)
    content = write_captions(rows.annotations({"test": {}}), empty, tmp_path, "d")
    assert content["splits"]["test"]["unusable"] == 60
    assert len(content["splits"]["test"]["unusable_shown"]) == 50
    assert content["splits"]["train"]["originals"] == 0 and load_split(tmp_path, "d", "train").captions.empty


def test_a_report_of_other_clips_is_refused(tmp_path):
    with refusal():
        write_captions(annotations(), pd.concat([report(), report().head(1)]), tmp_path, "d")
    with refusal():
        write_captions(annotations(), report().replace({"item_id": {"3": "99"}}), tmp_path, "d")


def test_captions_of_strangers_are_refused(tmp_path):
    write_captions(annotations(), report(), tmp_path, "d")
    path = tmp_path / "captions" / "d_test.csv"
    path.write_text(path.read_text() + "77,x,77#0\n")
    with refusal("captions/d_test.csv: row 8"):
        load_split(tmp_path, "d", "test")
    with refusal("captions/d_dev.csv"):
        load_split(tmp_path, "d", "dev")


def test_the_same_input_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_captions(annotations(), report(_5=BROKEN), tmp_path / name, "d")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*") if path.is_file())
    assert len(files) == 6
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)
