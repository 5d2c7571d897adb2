"""Chiral actions: the two files, which items and captions they give, and the right answers of each setting."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from messages import invalid, refusal
from rewind.config import CiaSource, Dataset, load_dataset
from rewind.data.annotations import read_annotations
from rewind.data.captions import load_split, write_captions
from rewind.data.dummy import SplitSizes
from rewind.data.formats.cia import make_dummy_data, read_answers
from rewind.evaluation.answers import answer_values
from rewind.evaluation.ranking import rank_table
from rewind.video.sources import annotation_files, build_inventory, videos_folder

HEAD = "id,value,nuance,source,modality"
ROWS = [
    ("900", "900", "time", "cia-ssv2", "video"),
    ("aa11_1.0", "Folding [something]", "time", "cia-ssv2", "text"),
    ("aa11_0.0", "Unfolding [something]", "time", "cia-ssv2", "text"),
    ("12", "12", "time", "cia-ssv2", "video"),
    ("A photo without a hat. ", "A photo without a hat. ", "negation", "neg-coco", "text-negation"),
    ("31", "31", "time", "cia-ssv2", "video"),
    ("bb22_1.0", "Closing [something]", "time", "cia-ssv2", "text"),
    ("44", "44", "time", "cia-ssv2", "video"),
    ("bb22_0.0", "Opening [something]", "time", "cia-ssv2", "text"),
    ("5", "5", "time", "cia-ssv2", "video"),
    ("cc33_0.0", "Opening [something]", "time", "cia-ssv2", "text"),
    ("61", "61", "time", "cia-ssv2", "video"),
]
CLIPS = {"aa11_1.0": [900, 12], "aa11_0.0": [31], "bb22_1.0": [44], "bb22_0.0": [5], "cc33_0.0": [61]}
EPIC = [
    ("dd44_1.0", "open drawer", "time", "cia-epic", "text"),
    ("dd44_0.0", "close drawer", "time", "cia-epic", "text"),
    ("P01/videos/P01_2_6.7_8.2", "P01/videos/P01_2_6.7_8.2", "time", "cia-epic", "video"),
    ("P01/videos/P01_2_6.7_8.9", "P01/videos/P01_2_6.7_8.9", "time", "cia-epic", "video"),
    ("AB1_1.7_8.6", "AB1_1.7_8.6", "time", "cia-epic", "video"),
]
EPIC_CLIPS = {"dd44_1.0": ["P01/videos/P01_2_6.7_8.9", "P01/videos/P01_2_6.7_8.2"], "dd44_0.0": ["AB1_1.7_8.6"]}


def labels_of(clips: dict[str, list]) -> dict[str, list]:
    """Both directions, as in the authors' file."""
    return clips | {str(clip): [text] for text, own in clips.items() for clip in own}


def written(folder: Path, rows=ROWS, labels=None, **keys) -> CiaSource:
    table = pd.DataFrame(rows, columns=HEAD.split(","))
    table.to_csv(folder / "inputs.csv", index=False)
    (folder / "labels.json").write_text(json.dumps(labels_of(CLIPS) if labels is None else labels), encoding="utf-8")
    files = {"inputs": str(folder / "inputs.csv"), "labels": str(folder / "labels.json")}
    return CiaSource(format="cia", videos=str(folder / "clips"), **files, **keys)


def read(folder: Path, *args, **keys):
    return read_annotations(Dataset(name="chiral", source=written(folder, *args, **keys).model_dump()), "")


def rows_of(answers: pd.DataFrame, setting: str) -> dict[str, list[tuple[str, int]]]:
    part = answers[answers["setting"] == setting]
    return {text: list(zip(rows["item_id"], rows["right"], strict=True)) for text, rows in part.groupby("caption_id")}


def test_a_text_is_a_caption_of_its_first_clip_and_every_clip_an_item_of_its_triplet(tmp_path):
    found = read(tmp_path)
    assert found.captions.set_index("caption_id")["video_id"].to_dict() == {
        "aa11_1.0": "12",
        "aa11_0.0": "31",
        "bb22_1.0": "44",
        "bb22_0.0": "5",
        "cc33_0.0": "61",
    }, "by the text of the id: 12 is before 900"
    assert found.captions["caption"].tolist()[0] == "Folding [something]"
    clusters = found.items.set_index("item_id")["cluster_id"].to_dict()
    assert clusters == {"12": "aa11", "900": "aa11", "31": "aa11", "44": "bb22", "5": "bb22", "61": "cc33"}
    assert (found.items["split"] == "test").all() and (found.items["reversed"] == 0).all()
    note = found.notes["splits"]["test"]
    assert note["sources"] == {"cia-ssv2": {"texts": 5, "clips": 6}}
    assert note["texts_without_opposite"] == 1 and note["texts_without_opposite_shown"] == ["cc33_0.0"]
    assert note["duplicates"]["between_items"] == 1, "two triplets are about opening"


def test_the_first_items_have_captions_so_that_a_part_of_the_set_can_be_used(tmp_path):
    found = read(tmp_path)
    assert found.items["item_id"].tolist() == ["12", "31", "44", "5", "61", "900"]


def test_the_answers_are_the_authors_settings(tmp_path):
    answers = read_answers(written(tmp_path))
    assert answers.columns.tolist() == ["setting", "caption_id", "item_id", "right", "gallery"]
    assert answers["setting"].unique().tolist() == ["chiral", "static", "all"]
    chiral = rows_of(answers, "chiral")
    assert chiral["aa11_1.0"] == [("12", 1), ("900", 1), ("31", 0)]
    assert chiral["aa11_0.0"] == [("31", 1), ("12", 0), ("900", 0)]
    assert "cc33_0.0" not in chiral, "its opposite is missing"
    static = rows_of(answers, "static")
    assert static["aa11_1.0"] == [("12", 1), ("900", 1), ("44", 0)]
    assert static["bb22_0.0"] == [("5", 1), ("31", 0), ("61", 0)]
    assert set(static) == set(CLIPS)
    every = answers[answers["setting"] == "all"]
    galleries = answers.groupby("setting")["gallery"].unique().map(list).to_dict()
    assert galleries == {"chiral": ["judged"], "static": ["judged"], "all": ["all"]}
    assert (every["right"] == 1).all() and every["item_id"].tolist() == ["12", "900", "31", "44", "5", "61"]


def test_a_text_without_distractors_is_in_no_closed_setting(tmp_path):
    """Its rows alone would be right ones only, and the setting then open to all clips."""
    rows = [row for row in ROWS if row[0] in ("900", "12", "31", "aa11_1.0", "aa11_0.0")]
    source = written(tmp_path, rows, labels_of({name: CLIPS[name] for name in ("aa11_1.0", "aa11_0.0")}))
    assert read_answers(source)["setting"].unique().tolist() == ["chiral", "all"]


def test_texts_are_told_from_those_of_their_own_source(tmp_path):
    source = written(tmp_path, ROWS + EPIC, labels_of(CLIPS | EPIC_CLIPS))
    answers = read_answers(source)
    ssv2 = set(read_answers(source.model_copy(update={"sources": ["cia-ssv2"]}))["item_id"])
    texts = answers["caption_id"].str.startswith("dd44")
    assert set(answers["item_id"][~texts]) == ssv2 == {"12", "900", "31", "44", "5", "61"}
    assert not set(answers["item_id"][texts]) & ssv2
    assert answers["setting"][texts].unique().tolist() == ["chiral", "all"], "static needs another triplet"
    assert (answers["gallery"] == "judged").all(), "in every setting clips of the other source are no candidates"
    every = rows_of(answers, "all")
    assert every["bb22_0.0"] == [("5", 1), ("12", 0), ("900", 0), ("31", 0), ("44", 0), ("61", 0)]
    assert every["dd44_0.0"][0] == ("AB1_1.7_8.6", 1) and len(every["dd44_0.0"]) == 3


def test_names_with_folders_and_seconds_become_different_safe_ids(tmp_path):
    """Without care ``AB1_1.7_8.6`` and ``AB1_1.7_8.9`` lose what looks like a suffix, and are one."""
    rows = [*EPIC, ("AB1_1.7_8.9", "AB1_1.7_8.9", "time", "cia-epic", "video")]
    clips = EPIC_CLIPS | {"dd44_0.0": ["AB1_1.7_8.6", "AB1_1.7_8.9"]}
    for path in ("P01/videos/P01_2_6.7_8.2.MP4", "P01/videos/P01_2_6.7_8.9.mp4", "AB1_1.7_8.6.mp4", "AB1_1.7_8.9.webm"):
        (tmp_path / "clips" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "clips" / path).write_text(path)
    source = written(tmp_path, rows, labels_of(clips))
    dataset = Dataset(name="chiral", source=source.model_dump())
    found = read_annotations(dataset, "")
    assert {"AB1_1.7_8.6", "AB1_1.7_8.9"} < set(found.items["item_id"]) and found.items["item_id"].is_unique
    assert not found.items["item_id"].str.contains("/").any()
    files = build_inventory(dataset, found, videos_folder(dataset))
    names = dict(zip(found.items["item_id"], found.items["source"], strict=True))
    assert all(
        Path(path).with_suffix("").as_posix().endswith(names[item])
        for item, path in files[["item_id", "source"]].to_numpy()
    )
    assert set(read_answers(source)["item_id"]) == set(found.items["item_id"])


def test_clips_without_a_caption_stay_in_the_gallery_and_are_queries_of_the_answers(tmp_path):
    source = written(tmp_path)
    annotations = read_annotations(Dataset(name="chiral", source=source.model_dump()), "")
    report = pd.DataFrame({"item_id": annotations.items["item_id"], "status": "ok", "reason": ""})
    write_captions(annotations, report, tmp_path, "chiral")
    split = load_split(tmp_path, "chiral", "test")
    items, captions = split.items.astype({"item_id": str}), split.captions.astype({"video_id": str})
    assert set(items["item_id"]) == {"12", "900", "31", "44", "5", "61"} and split.left_out == {
        "items": 0,
        "captions": 0,
    }
    scores = np.random.default_rng(0).random((5, 6)).astype(np.float32)
    ranks = rank_table(scores, captions, items, ["test"], ["text_to_item", "item_to_text"])
    assert (ranks["gallery"][ranks["direction"] == "text_to_item"] == 6).all()
    assert "900" not in set(ranks["query_id"]), "of its caption the table of pairs knows nothing"
    values = answer_values(scores, captions, items, read_answers(source), ["text_to_item", "item_to_text"])
    assert set(values["query_id"][values["direction"] == "item_to_text"]) == set(items["item_id"])
    clusters = values.drop_duplicates("query_id").set_index("query_id")["cluster_id"]
    assert clusters[["aa11_1.0", "aa11_0.0", "12", "900", "31"]].eq("aa11").all()


def authors_values(scores: pd.DataFrame, setting: str) -> tuple[dict[str, float], dict[str, float]]:
    """AP of texts, and R@1 of clips, with the galleries as the paper describes them; without ties."""
    distractors = {
        "chiral": lambda text: [t for t in CLIPS if t != text and t[:4] == text[:4]],
        "static": lambda text: [t for t in CLIPS if t[:4] != text[:4] and t[4:] == text[4:]],
        "all": lambda text: [t for t in CLIPS if t != text],
    }[setting]
    precisions, found = {}, {}
    for text, own in CLIPS.items():
        if not (others := distractors(text)):
            continue
        gallery = [str(clip) for name in (text, *others) for clip in CLIPS[name]]
        order = scores.loc[text, gallery].sort_values(ascending=False).index
        right = np.array([int(clip) in own for clip in order])
        precisions[text] = (np.cumsum(right) / np.arange(1, len(right) + 1))[right].mean()
        found |= {str(clip): float(scores.loc[[text, *others], str(clip)].idxmax() == text) for clip in own}
    return precisions, found


@pytest.mark.parametrize("setting", ["chiral", "static", "all"])
@pytest.mark.parametrize("seed", range(5))
def test_values_without_ties_are_those_of_the_authors_galleries(tmp_path, setting, seed):
    source = written(tmp_path)
    found = read_annotations(Dataset(name="chiral", source=source.model_dump()), "")
    values = np.random.default_rng(seed).permutation(30).reshape(5, 6).astype(np.float32)
    scores = pd.DataFrame(values, found.captions["caption_id"].tolist(), found.items["item_id"].tolist())
    ways = ["text_to_item", "item_to_text"]
    table = answer_values(values, found.captions, found.items, read_answers(source), ways)
    ours = table[table["setting"] == setting].set_index(["direction", "metric", "query_id"])["value"].sort_index() / 100
    precisions, hits = authors_values(scores, setting)
    assert ours["text_to_item", "AP"].to_dict() == pytest.approx(precisions)
    assert ours["item_to_text", "R@1"].to_dict() == pytest.approx(hits)


def test_texts_of_the_same_words_tie_and_none_of_them_is_favoured(tmp_path):
    """Two texts say "Opening [something]": a clip finds its own first with probability ½ where no other is above."""
    source = written(tmp_path)
    found = read_annotations(Dataset(name="chiral", source=source.model_dump()), "")
    scores = np.repeat(found.captions["caption"].eq("Opening [something]").to_numpy(np.float32)[:, None], 6, axis=1)
    values = answer_values(scores, found.captions, found.items, read_answers(source), ["item_to_text"])
    first = values[(values["setting"] == "static") & (values["metric"] == "R@1")].set_index("query_id")["value"]
    assert first["5"] == 50 and first["61"] == 50 and first["31"] == 0


def changed(rows=ROWS, **labels):
    """The rows, and the labels with some entries replaced."""
    return rows, {**labels_of(CLIPS), **labels}


FAULTS = {
    "an unknown clip": (changed(**{"aa11_0.0": [31, 77]}), "labels.json: entry 'aa11_0.0'"),
    "a text in a text": (changed(**{"aa11_0.0": [31, "bb22_0.0"]}), "labels.json: entry 'aa11_0.0'"),
    "a clip with two texts": (changed(**{"aa11_0.0": [31, 12]}), "labels.json: entry 'aa11_0.0'"),
    "a clip that lists two": (changed(**{"12": ["aa11_1.0", "bb22_1.0"]}), "labels.json: entry '12'"),
    "a clip that lists another": (changed(**{"12": ["bb22_1.0"]}), "labels.json: entry '12'"),
    "a clip that nothing lists": (changed(**{"aa11_1.0": [900]}), "labels.json: entry '12'"),
    "a text without clips": (changed(**{"cc33_0.0": []}), "inputs.csv: row 12"),
    "a label that is no id": (changed(**{"cc33_0.0": [[61]]}), "labels.json: entry 'cc33_0.0'"),
    "labels that are a list": ((ROWS, [1]), "labels.json"),
    "a text's id": (([*ROWS, ("x_2.0", "A", "time", "cia-ssv2", "text")], None), "inputs.csv: row 14"),
    "an unknown modality": (([*ROWS, ("x", "x", "time", "cia-ssv2", "image")], None), "inputs.csv: row 14"),
    "an empty value": (([*ROWS, ("x_1.0", "", "time", "cia-ssv2", "text")], None), "inputs.csv: row 14"),
    "a path outside": (([*ROWS, ("x", "../x", "time", "cia-ssv2", "video")], None), "inputs.csv: row 14"),
    "an id for two": (([*ROWS, ("12", "13", "time", "cia-ssv2", "video")], None), "inputs.csv: row 14"),
    "a clip of another source": (
        (ROWS + EPIC, labels_of({**CLIPS, **EPIC_CLIPS, "cc33_0.0": [61, "AB1_1.7_8.6"]})),
        "labels.json: entry 'cc33_0.0'",
    ),
    "no row of a source": ((ROWS[4:5], None), "inputs.csv"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_files_that_cannot_be_used_are_told(tmp_path, name):
    (rows, labels), place = FAULTS[name]
    source = written(tmp_path, rows, labels)
    with refusal(place):
        read_answers(source)


def test_a_source_that_the_file_lacks_is_told(tmp_path):
    with refusal("inputs.csv"):
        read_answers(written(tmp_path, sources=["cia-epic"]))
    with invalid("sources"):
        written(tmp_path, sources=["cia-epic", "cia-epic"])


def test_a_repeated_row_is_counted_and_changes_nothing(tmp_path):
    once, twice = read(tmp_path), read(tmp_path, [*ROWS, ROWS[1], ROWS[3]])
    assert twice.items.equals(once.items) and twice.captions.equals(once.captions)
    assert twice.notes["splits"]["test"]["rows_repeated"] == 2


def test_the_file_in_config_names_both_files():
    dataset = load_dataset("cia")
    assert annotation_files(dataset) == [dataset.source.inputs, dataset.source.labels]
    assert dataset.why_no_twins


@pytest.mark.parametrize("count", [1, 12])
def test_dummy_data_have_all_settings(tmp_path, count):
    source = written(tmp_path)
    keys = make_dummy_data(
        Dataset(name="chiral", source=source.model_dump()), tmp_path / "raw", SplitSizes(8, 2, count)
    )
    dummy = CiaSource(**{**source.model_dump(), **keys})
    answers = read_answers(dummy)
    assert answers["setting"].unique().tolist() == ["chiral", "static", "all"]
    assert all((Path(keys["videos"]) / f"{item}.mp4").is_file() for item in answers["item_id"].unique())


def test_rows_of_another_nuance_are_not_read(tmp_path: Path) -> None:
    """A clip that no text lists would be refused."""
    alone = read(tmp_path).items
    more = read(tmp_path, [*ROWS, ("77", "77", "negation", "cia-ssv2", "video")]).items
    assert more.equals(alone)
