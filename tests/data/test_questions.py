"""Tables that ask more than one right clip: those of a format, those of a file of the user's, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from messages import expect_message, invalid, refusal
from rewind.config import Dataset
from rewind.config.dataset import ShapesSource
from rewind.data.formats.shapes import read_foils
from rewind.data.questions import (
    has_answers,
    has_caption_pairs,
    has_foils,
    make_answers,
    make_foils,
    question_files,
    reader_names,
)
from rewind.data.scenes import EVENTS, compose_splits, describe_scene

CLIPS = "item_id,caption,reverse_caption\n" + "".join(f"v{n},a door opens {n},a door closes {n}\n" for n in range(3))


def dataset(folder: Path, keys: dict[str, str] | None = None, /, **files: str) -> Dataset:
    (folder / "clips.csv").write_text(CLIPS)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    named = {name: str(folder / f"{name}.csv") for name in files}
    source = {"format": "table", "table": str(folder / "clips.csv"), "videos": str(folder)}
    return Dataset.model_validate({"name": "mine", "source": source, "reverse": True} | named | (keys or {}))


def answers(folder: Path, text: str, **keys: str) -> pd.DataFrame:
    made = dataset(folder, keys, answers=text)
    assert has_answers(made)
    make_answers(made, str(folder / "out.csv"), folder)
    return pd.read_csv(folder / "out.csv")


def test_pairs_alone_are_right_answers_of_one_open_setting(tmp_path):
    table = answers(tmp_path, "caption_id,item_id\nv0#0,v0\nv0#0,v1\nv1#0,v1\n")
    pairs = [("v0#0", "v0"), ("v0#0", "v1"), ("v1#0", "v1")]
    assert table.values.tolist() == [["all", *pair, 1, "all"] for pair in pairs]


def test_clips_with_a_caption_of_the_same_text_may_be_right(tmp_path):
    made = dataset(tmp_path, {"answers": "same_text"})
    rows = ["item_id,caption,reverse_caption", "v0,A door  opens,it closes", "v1,a door opens,x", "v2,it closes,y"]
    (tmp_path / "clips.csv").write_text("\n".join(rows))
    assert has_answers(made) and question_files(made) == []
    make_answers(made, str(tmp_path / "out.csv"), tmp_path)
    table = pd.read_csv(tmp_path / "out.csv")
    found = table.groupby("caption_id")["item_id"].agg(sorted).to_dict()
    assert found["v0#0"] == found["v1#0"] == ["v0", "v1"]
    assert found["v0_rev#0"] == found["v2#0"] == ["v0_rev", "v2"] and found["v1_rev#0"] == ["v1_rev"]
    assert (table["right"] == 1).all() and set(table["gallery"]) == {"all"}
    with invalid("answers_gallery"):
        dataset(tmp_path, {"answers": "same_text", "answers_gallery": "judged"})


def test_right_answers_may_have_grades(tmp_path):
    table = answers(tmp_path, "caption_id,item_id,right\nv0#0,v0,3\nv0#0,v1,1\nv1#0,v1,\nv1#0,v0,0\n")
    assert table["right"].tolist() == [3, 1, 1, 0]


JUDGED = "setting,caption_id,item_id,right\npairs,v0#0,v0,1\npairs,v0#0,v0_rev,0\n"


def test_a_key_says_that_rows_name_all_candidates(tmp_path, capsys):
    assert set(answers(tmp_path, JUDGED)["gallery"]) == {"all"}
    assert "1 pairs are judged wrong; captions search all clips" in capsys.readouterr().out
    table = answers(tmp_path, JUDGED, answers_gallery="judged")
    assert table["right"].tolist() == [1, 0] and set(table["setting"]) == {"pairs"}
    assert set(table["gallery"]) == {"judged"}
    with refusal("answers.csv: row 2"):
        answers(tmp_path, "caption_id,item_id\nv0#0,v0\n", answers_gallery="judged")
    with invalid("answers_gallery"):
        dataset(tmp_path, {"answers_gallery": "judged"})


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("caption_id,item_id\nv9#0,v0\n", 2),
        ("caption_id,item_id\nv0#0,v0\nv0#0,v7\n", 3),
        ("caption_id,item_id,right\nv0#0,v0,yes\n", 2),
        ("caption_id,item_id,right\nv0#0,v0,1\nv0#0,v1,1000\n", 3),
        ("caption_id,item_id,right\nv0#0,v0,1\nv1#0,v1,1\nv0#0,v0,0\n", 4),
        ("caption_id,item_id\nv0#0,v0\nv0#0,v0\n", 3),
        ("caption_id,item_id,right\nv0#0,v0,1\nv1#0,v0,0\n", 3),
        ("caption_id,item_id\nV0#0,v0\n", 2),
        ("caption_id,item_id\nv0#0,v0.mp4\n", 2),
        ("caption_id,item_id\nv0#0,\n", 2),
    ],
    ids=[
        "unknown caption",
        "unknown clip",
        "right",
        "too high",
        "right and wrong",
        "twice",
        "none right",
        "case",
        "file",
        "empty",
    ],
)
def test_rows_of_answers_that_say_nothing_are_refused(tmp_path, text, row):
    with refusal(f"answers.csv: row {row}"):
        answers(tmp_path, text)


def test_foils_of_a_file_get_ids_after_their_captions(tmp_path):
    text = "caption_id,foil,kind\nv0#0,a door  closes 0,verb\nv0#0,a window opens 0,\nv1_rev#0,it opens,verb\n"
    made = dataset(tmp_path, foils=text)
    paths = [str(tmp_path / f"{name}.out.csv") for name in ("foils", "pairs", "proficiency")]
    make_foils(made, *paths, tmp_path)
    table = pd.read_csv(paths[0])
    assert table["foil_id"].tolist() == ["v0#0~0", "v0#0~1", "v1_rev#0~0"]
    assert table["caption"].tolist()[0] == "a door closes 0" and table["kind"].tolist() == ["verb", "all", "verb"]
    assert all(pd.read_csv(path).empty for path in paths[1:])


def test_files_with_a_header_alone_and_foils_that_cannot_be_meant_are_refused(tmp_path):
    with refusal("answers.csv"):
        answers(tmp_path, "caption_id,item_id\n")
    for text, place in (
        ("caption_id,foil\n", "foils.csv"),
        ("caption_id,foil\nv0#0,A door  opens 0\n", "foils.csv: row 2"),
        ("caption_id,foil\nv0#0,no door\nv1#0,no door\nv0#0,No door\n", "foils.csv: row 4"),
    ):
        with refusal(place):
            make_foils(dataset(tmp_path, foils=text), *["x"] * 3, tmp_path)


def test_of_a_part_of_a_data_set_rows_are_left_out_and_counted(tmp_path, capsys):
    (tmp_path / "part.txt").write_text("v0\n")
    text = "caption_id,item_id,right\nv0#0,v0,1\nv1#0,v1,1\nv0#0,v2,0\nv0_rev#0,v1,1\nv0_rev#0,v0,0\n"
    table = answers(tmp_path, text, only=str(tmp_path / "part.txt"))
    assert table["caption_id"].tolist() == ["v0#0"], "of the twin's caption the right clip is not there"
    expect_message(capsys.readouterr().err.replace(f"{tmp_path}/", ""))


def test_a_foil_without_words_or_of_an_unknown_caption_is_refused(tmp_path):
    for text, row in (("caption_id,foil\nv0#0, \n", 2), ("caption_id,foil\nv0#0,x\nnone,x\n", 3)):
        with refusal(f"foils.csv: row {row}"):
            make_foils(dataset(tmp_path, foils=text), *["x"] * 3, tmp_path)


def test_formats_name_what_they_have():
    def has(source: dict) -> tuple[bool, bool, bool]:
        made = Dataset.model_validate({"name": "d", "source": source})
        return has_answers(made), has_foils(made), has_caption_pairs(made)

    cia = {"format": "cia", "inputs": "i.csv", "labels": "l.json", "videos": "v"}
    foils = {"format": "foils", "benchmark": "vinoground", "file": "f.csv", "videos": "v"}
    assert has(cia) == (True, False, False) and has(foils) == (False, True, True)
    assert has({"format": "shapes"}) == (False, True, False)
    shapes = Dataset.model_validate({"name": "d", "source": {"format": "shapes"}})
    assert reader_names(shapes, ["foils", "answers"]) == ["rewind.data.formats.shapes:read_foils"]


def test_foils_of_shapes_change_one_thing_and_are_true_of_no_clip():
    source = ShapesSource(format="shapes", clips={"train": 40, "test": 60})
    foils = read_foils(source)
    entries = compose_splits({"train": 40, "test": 60}, source.paraphrases, source.seed)["test"]
    true = {
        f"test{number:04}{'_rev' * back}#0": (entry, back) for number, entry in enumerate(entries) for back in (0, 1)
    }
    assert set(foils["caption_id"]) == set(true) and (foils.groupby("kind").size() == 120).all()
    for row in foils.itertuples():
        entry, back = true[row.caption_id]
        every = {describe_scene(entry.scene, wording, bool(back)) for wording in entry.wordings}
        assert row.caption not in every
        if row.kind == "direction":
            assert row.caption == describe_scene(entry.scene, entry.wordings[0], not back)
        elif row.kind != "event":
            phrases = EVENTS[entry.scene.event]
            assert sum(ch == " " for ch in row.caption) >= 3 and phrases, "the same sentence with another word"
