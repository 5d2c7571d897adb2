"""FIRE's judgements as right answers: captions by their texts, a caption's own clip, what is left out and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from messages import expect_message, refusal
from rewind.config import Dataset
from rewind.data.questions import make_answers

CLIPS = "item_id,caption\nvideo1,A man sings\nvideo2,a dog runs\nvideo3,a dog runs\nvideo4,it rains\nvideo5,a car\n"
JUDGED = [
    ("a man sings", "video1", "relevant"),
    ("a man sings", "video2", "relevant"),
    ("a man sings", "video3", "irrelevant"),
    ("a dog runs", "video2", "irrelevant"),  # of both captions with this text, and of one its own clip
    ("it rains", "video4", "irrelevant"),  # nothing else is right: the caption has no answer
    ("it rains", "video1", "irrelevant"),
    ("a man sings", "video4", "relevant"),
    ("a man sings", "video4", "irrelevant"),  # judged both ways
    ("a man sings", "video77", "relevant"),  # clips and texts of the training split
    ("nobody says so", "video1", "relevant"),
]


def answers(folder: Path, entries: Any, gallery: str = "all") -> pd.DataFrame:
    (folder / "clips.csv").write_text(CLIPS)
    (folder / "fire.json").write_text(json.dumps(entries))
    source = {"format": "table", "table": str(folder / "clips.csv"), "videos": str(folder)}
    keys = {"name": "mine", "source": source, "reverse": False, "answers": str(folder / "fire.json")}
    make_answers(Dataset.model_validate(keys | {"answers_gallery": gallery}), str(folder / "out.csv"), folder)
    return pd.read_csv(folder / "out.csv")


def entries_of(rows: list[tuple[str, str, str]]) -> dict[str, Any]:
    names = ("query", "video_id", "label")
    more = {"annotator_ids": [1], "models": ["CLIP4CLIP"], "dataset": "msrvtt"}
    return {"annotations": [dict(zip(names, row, strict=True)) | more for row in rows], "disagreements": [{}]}


def test_judgements_are_of_captions_with_their_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = answers(tmp_path, entries_of(JUDGED))
    found = {(row.caption_id, row.item_id): row.right for row in table.itertuples()}
    assert found == {
        ("video1#0", "video1"): 1,
        ("video1#0", "video2"): 1,
        ("video1#0", "video3"): 0,
        ("video3#0", "video2"): 0,
        ("video3#0", "video3"): 1,  # its own clip, which nobody judged
    }
    said = capsys.readouterr()
    assert "3 right answers of 2 captions" in said.out
    expect_message(said.err)


def test_among_judged_clips_only_captions_with_a_wrong_one_are_asked(tmp_path: Path) -> None:
    table = answers(tmp_path, entries_of([*JUDGED, ("a car", "video5", "relevant")]), "judged")
    assert set(table["caption_id"]) == {"video1#0", "video3#0"} and set(table["gallery"]) == {"judged"}


@pytest.mark.parametrize(
    ("entries", "place"),
    [
        ([], ""),
        ({"judgements": []}, ": annotations"),
        ({"annotations": {}}, ": annotations"),
        (entries_of([("a man sings", "video1", "maybe")]), ": annotations[0]"),
        (entries_of([("a man sings", "video9", "relevant")]), ""),
        ({"annotations": [{"query": ["a"], "video_id": "video1", "label": "relevant"}]}, ": annotations[0]"),
        ({"annotations": [{"query": "a man sings", "video_id": "video1"}]}, ": annotations[0]"),
    ],
    ids=["a list", "another key", "an object", "another label", "another data set", "a list as text", "no label"],
)
def test_what_is_no_file_of_fire_is_refused(tmp_path: Path, entries: Any, place: str) -> None:
    with refusal(f"fire.json{place}"):
        answers(tmp_path, entries)
