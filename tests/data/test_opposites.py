"""Opposites of captions: files by caption and by word, proposals, and the command that writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkout import ROOT
from messages import refusal
from rewind.cli.main import main
from rewind.config import load_dataset
from rewind.data.opposites import OPPOSITE_VERBS, OppositeWords, propose_opposites, read_opposites, read_word_pairs
from rewind.io.files import read_csv
from rewind.workflow.queries import known_annotations

CAPTIONS = {"a#0": "A man opens the door.", "a#1": "He  OPENS it", "b#0": "a dog runs", "c#0": "a cup falls on a box"}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "opposites.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_words_are_replaced_at_once_and_as_whole_words() -> None:
    words = OppositeWords.of([("opens", "closes"), ("picks up", "puts down"), ("up", "down"), ("in", "out")])
    rewritten = {
        "It opens and closes.": "It closes and opens.",
        "Opens the box": "Closes the box",
        "she picks up a cup in a room": "she puts down a cup out a room",
        "she puts  down a cup": "she puts  up a cup",  # other white space: not the listed words
        "reopens the inn": None,
        "a cup is up-ended": "a cup is down-ended",
    }
    for caption, wanted in rewritten.items():
        assert words.rewrite(caption) == wanted
    assert OppositeWords.of([]).rewrite("it opens") is None


def test_opposites_by_caption_leave_out_what_is_no_opposite(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "caption_id,opposite,note\na#0,A man  closes the door.,x\na#0,it shuts,\na#1,he opens it,same\nz#0,no,\n",
    )
    assert read_opposites(path, CAPTIONS) == {"a#0": ["A man closes the door.", "it shuts"]}


def test_opposites_by_word_are_those_that_are_confirmed(tmp_path: Path) -> None:
    path = written(tmp_path, "word,opposite,confirmed\nopens,closes,Yes\nfalls,rises,no\non,off,\n")
    assert read_word_pairs(path) == [("opens", "closes")]
    assert read_opposites(path, CAPTIONS) == {"a#0": ["A man closes the door."], "a#1": ["He  Closes it"]}


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("word,opposite\nopens,closes\n", "opposites.csv: row 1"),
        ("caption_id,text\na#0,x\n", "opposites.csv: row 1"),
        ("word,opposite,confirmed\nopens,closes,maybe\n", "opposites.csv: row 2"),
        ("word,opposite,confirmed\nopens,,yes\n", "opposites.csv: row 2"),
        ("word,opposite,confirmed\nopens,opens,yes\n", "opposites.csv: row 2"),
        ("word,opposite,confirmed\nopens,closes,yes\nshuts,opens,yes\n", "opposites.csv: row 3"),
        ("word,opposite,confirmed\nopens,closes,\n", "opposites.csv"),
        ("word,opposite,confirmed\nzips,unzips,yes\n", "opposites.csv"),
        ("caption_id,opposite\na#0, \n", "opposites.csv: row 2"),
        ("caption_id,opposite\nz#0,x\n", "opposites.csv"),
        ("", "opposites.csv"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: str, place: str) -> None:
    with refusal(place):
        read_opposites(written(tmp_path, content), CAPTIONS)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with refusal("no.csv"):
        read_opposites(tmp_path / "no.csv", CAPTIONS)


def test_captions_of_twins_that_differ_in_one_place_come_before_the_known_pairs() -> None:
    captions = ["the lid goes up", "the lid goes down", "a man opens it", "the jar is sealed"]
    twins = [("the lid goes up", "the lid goes down"), ("a jar is sealed", "a jar is unsealed")] * 2
    twins += [("a b c d e f", "u v w x y z"), ("it opens", "it opens"), ("it opens", "it opens wide")]
    found = {(one.word, one.opposite): one for one in propose_opposites(captions, twins)}
    assert list(found) == [("down", "up"), ("sealed", "unsealed"), ("opens", "closes")]
    assert found["down", "up"].captions == 2 and found["sealed", "unsealed"].example == "the jar is sealed"


def test_forms_of_verbs_are_english() -> None:
    captions = ["stopping emptied fills unties", "left tying catches zipped", "rose freezing unplugged departing"]
    pairs = {word for one in propose_opposites(captions) for word in (one.word, one.opposite)}
    assert {"starting", "filled", "empties", "ties", "entered", "untying", "throws", "unzipped", "fell", "sank",
            "melting", "plugged", "arriving"} <= pairs  # fmt: skip
    assert len(OPPOSITE_VERBS) == len({frozenset(pair) for pair in OPPOSITE_VERBS})


def test_the_command_proposes_and_keeps_what_a_person_decided(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)
    assert main(["opposites", "shapes", "--out", "words.csv"]) == 0
    table = read_csv("words.csv", text=("confirmed",))
    assert (table["confirmed"] == "").all() and "0 decided" in capsys.readouterr().out
    assert ("anticlockwise", "clockwise") in set(zip(table["word"], table["opposite"], strict=True))
    with refusal("words.csv"):
        read_word_pairs("words.csv")
    table.loc[table["word"] == "grows", "confirmed"] = "yes"
    table = table[table["word"] != "fills"]
    extra = table.iloc[[0]].assign(word="mine", opposite="yours", confirmed="no", captions="", example="")
    table = type(table)(table.to_dict("records") + extra.to_dict("records"))
    table.to_csv("words.csv", index=False)
    main(["opposites", "shapes", "--out", "words.csv"])
    again = read_csv("words.csv", text=("confirmed",))
    decided = again[again["confirmed"] != ""][["word", "opposite", "confirmed"]].to_numpy().tolist()
    assert decided == [["grows", "shrinks", "yes"], ["mine", "yours", "no"]] and "fills" in set(again["word"])
    Path("other.csv").write_text("item_id,caption\n")
    assert main(["opposites", "shapes", "--out", "other.csv"]) == 1
    assert Path("other.csv").read_text() == "item_id,caption\n"


def test_the_packaged_table_has_confirmed_pairs_of_the_drawn_captions() -> None:
    annotations = known_annotations(load_dataset("shapes", ROOT / "config/datasets"), ROOT / "results")
    captions = annotations.captions[annotations.captions["split"] == "train"].set_index("caption_id")["caption"]
    found = read_opposites(ROOT / "config/opposites/shapes.csv", captions.to_dict())
    assert len(found) > len(captions) / 2
