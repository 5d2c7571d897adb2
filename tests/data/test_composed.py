"""Composed retrieval: the authors' files, which clips are searched or only shown, and R@1 of a plain loop."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from messages import invalid, refusal
from rewind.config import Dataset, load_dataset, load_study
from rewind.config.checks import study_dataset_faults
from rewind.data.annotations import SHOWN_SPLIT, read_annotations, reading_sentences
from rewind.data.captions import load_split, read_queries, write_captions
from rewind.data.dummy import SplitSizes
from rewind.data.formats.composed import make_dummy_data
from rewind.data.splits import shared_clusters, shared_sources
from rewind.evaluation.ranking import rank_table
from rewind.io.files import read_json
from rewind.video.sources import build_inventory, videos_folder

HEAD = ["id", "value", "nuance", "source", "modality"]


def clip(name: str) -> tuple[str, ...]:
    return (name, name, "multimodal", "covr-webvid", "video")


def query(name: str, text: str) -> tuple[str, ...]:
    value = repr({"video": name, "text": text})
    return (f"{name}|{text}", value, "multimodal", "covr-webvid", "video-text")


DARK, KIWI, SAME = "make it a darker", "Change to kiwi ", "make it a darker"
ROWS = [query("0/7", DARK), clip("1/8"), query("1/8", KIWI), clip("2/9"), query("2/5", SAME), clip("3/6")]
LABELS = {f"0/7|{DARK}": ["1/8"], f"1/8|{KIWI.strip()}": ["2/9", "3/6"], f"2/5|{SAME}": ["2/9"], "1/8": []}


def dataset(folder: Path, table=None, labels=None, **more) -> Dataset:
    other = [("900", "900", "time", "cia-ssv2", "video"), ("A dog.", "A dog.", "negation", "neg-coco", "text-standard")]
    pd.DataFrame([*other, *(ROWS if table is None else table)], columns=HEAD).to_csv(folder / "inputs.csv", index=False)
    (folder / "labels.json").write_text(json.dumps(LABELS if labels is None else labels))
    source = {"format": "composed", "videos": str(folder / "videos")}
    source |= {"inputs": str(folder / "inputs.csv"), "labels": str(folder / "labels.json")}
    return Dataset(name="covr", source=source, **more)


def name(found, source: str) -> str:
    return found.items["item_id"][found.items["source"] == source].item()


def test_a_query_is_a_clip_and_a_text_and_a_caption_of_every_right_clip(tmp_path):
    found = read_annotations(dataset(tmp_path), "")
    ids = {source: name(found, source) for source in ("1/8", "2/9", "3/6", "0/7", "2/5")}
    assert found.items["source"].tolist() == list(ids)
    assert found.items["split"].tolist() == ["test"] * 3 + [SHOWN_SPLIT] * 2
    rows = found.captions[["video_id", "shown_id", "query_text"]].to_numpy().tolist()
    assert rows == [
        [ids["1/8"], ids["0/7"], DARK],
        [ids["2/9"], ids["1/8"], KIWI.strip()],  # a clip of the gallery is shown as that item
        [ids["2/9"], ids["2/5"], SAME],
        [ids["3/6"], ids["1/8"], KIWI.strip()],
    ]
    assert found.captions["caption"].tolist() == [f"{shown} | {text}" for _, shown, text in rows]
    notes = found.notes["splits"]["test"]
    assert [notes[key] for key in ("queries", "queries_of_gallery_clips", "queries_of_several_items")] == [3, 1, 1]
    assert "1 of 3 show a clip that is searched too" in " ".join(reading_sentences(found.notes))
    assert notes["duplicates"]["between_items"] == 1, "equal texts about different clips are different queries"


def test_a_part_keeps_the_clips_that_its_queries_show(tmp_path):
    whole = read_annotations(dataset(tmp_path), "")
    (tmp_path / "only.txt").write_text(name(whole, "2/9") + "\n")
    found = read_annotations(dataset(tmp_path, only=str(tmp_path / "only.txt")), "")
    assert found.items["source"].tolist() == ["1/8", "2/9", "2/5"] and len(found.captions) == 2


def test_what_queries_show_overlaps_with_no_split(tmp_path):
    items = pd.DataFrame({"item_id": ["a", "b"], "split": ["test", SHOWN_SPLIT], "cluster_id": "c", "reversed": 0})
    assert shared_clusters(items) == []
    (tmp_path / "a.mp4").write_bytes(b"clip")
    both = {"source": str(tmp_path / "a.mp4"), "reversed_source": ""}
    assert shared_sources(items.assign(**both)) == {}
    assert len(shared_sources(items.assign(**both, split=["test", "train"]))) == 1


def test_a_query_whose_clip_cannot_be_shown_is_left_out(tmp_path):
    found = read_annotations(dataset(tmp_path), "")
    originals = found.items["item_id"].tolist()
    gone = name(found, "0/7")
    report = pd.DataFrame({"item_id": originals, "status": ["missing" if one == gone else "ok" for one in originals]})
    content = write_captions(found, report.assign(reason=""), tmp_path, "covr")
    split = load_split(tmp_path, "covr", "test")
    assert split.left_out == {"items": 0, "captions": 1} and gone not in set(split.captions["shown_id"])
    counts = read_json(tmp_path / "captions/report.json")["splits"]["test"]
    assert counts == content["splits"]["test"] and (counts["captions"], counts["captions_usable"]) == (4, 3)
    shown = [one.clip.name for one in read_queries(tmp_path, split.captions)]
    assert shown == [f"{name(found, source)}.mp4" for source in ("1/8", "2/5", "1/8")]


@pytest.mark.parametrize("text", ["NA", "=1+1", "007", "'quoted'", 'a "b", c', "žluť"])
def test_texts_of_queries_come_back_as_they_are(tmp_path, text):
    found = read_annotations(dataset(tmp_path, [query("0/7", text), clip("1/8")], {f"0/7|{text}": ["1/8"]}), "")
    report = pd.DataFrame({"item_id": found.items["item_id"], "status": "ok", "reason": ""})
    write_captions(found, report, tmp_path, "covr")
    assert [one.text for one in read_queries(tmp_path, load_split(tmp_path, "covr", "test").captions)] == [text]


def plain_recall(folder: Path, score) -> float:
    """R@1 of evals/compute_metrics.py (bpiyush/TARA@5c6f2b3): a query is right if any of its clips is the first."""
    table = pd.read_csv(folder / "inputs.csv", dtype=str)
    table = table[table["source"] == "covr-webvid"]
    labels = json.loads((folder / "labels.json").read_text())
    gallery = table["id"][table["modality"] == "video"].tolist()
    hits = []
    for row in table[table["modality"] == "video-text"].itertuples():
        value = ast.literal_eval(row.value)
        scores = [score(value["video"], value["text"], item) for item in gallery]
        hits.append(gallery[int(np.argmax(scores))] in labels[row.id])
    return float(np.mean(hits))


def test_recall_is_that_of_a_plain_loop_over_the_authors_files(tmp_path):
    rng, items = np.random.default_rng(0), [f"{number}/x" for number in range(30)]
    table, labels = [clip(item) for item in items], {}
    for number in range(60):
        shown = f"{rng.integers(30)}/x" if number % 2 else f"other/{number}"
        table.append(query(shown, f"text {number % 7}, {number}"))
        labels[table[-1][0]] = [items[number % 30]]
    data = dataset(tmp_path, table, labels)
    found = read_annotations(data, "")
    drawn: dict[tuple[str, str, str], float] = {}

    def score(shown: str, text: str, item: str) -> float:
        return drawn.setdefault((shown, text, item), rng.normal() + 2 * (item in labels[f"{shown}|{text}"]))

    expected = plain_recall(tmp_path, score)
    source = found.items.set_index("item_id")["source"]
    gallery = found.items[found.items["split"] == "test"]
    rows = zip(found.captions["shown_id"], found.captions["query_text"], strict=True)
    scores = np.array([[score(source[shown], text, item) for item in gallery["source"]] for shown, text in rows])
    ranks = rank_table(scores, found.captions, gallery, ["test"], ["text_to_item"])
    assert (ranks["rank"] <= 1).mean() == expected and 0.3 < expected < 0.9


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda table, labels: table.append(("p", "{'video': '0/7'", *query("a", "b")[2:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", "{'video': '0/7'}", *query("a", "b")[2:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", "__import__('os')", *query("a", "b")[2:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", "[" * 9999, *query("a", "b")[2:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", *query("../a", "b")[1:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", *query("a", " ")[1:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", *query("a", "b")[1:])), "inputs.csv: row 10"),
        (lambda table, labels: table.append(("p", "/etc/passwd", *clip("a")[2:])), "inputs.csv: row 10"),
        (lambda table, labels: labels.update({f"0/7|{DARK}": ["0/7"]}), "labels.json"),
        (lambda table, labels: table.__setitem__(slice(None), [clip("1/8")]), "inputs.csv"),
        (lambda table, labels: table.__setitem__(slice(None), [query("0/7", DARK)]), "inputs.csv"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path, change, place):
    table, labels = list(ROWS), LABELS | {"p": ["1/8"]}
    change(table, labels)
    if place.endswith("row 10") and table[-1][1:] == query("a", "b")[1:]:
        del labels["p"]  # a query without a right clip
    data = dataset(tmp_path, table, labels)
    with refusal(place):
        read_annotations(data, "")


def test_methods_that_read_a_text_alone_are_refused():
    study, data = load_study("composed"), load_dataset("covr_webvid")
    assert study_dataset_faults(study, data) == []
    vectors = study.methods["clip_b32"]
    for change in (
        {"model": "bow", "options": {}},
        {"options": {"encoder": "video_llm", "name": "any/model"}},
        {"rerank": {"first": "chance"}},
    ):
        method = type(vectors).model_validate(vectors.model_dump() | change)
        (fault,) = study_dataset_faults(study.model_copy(update={"methods": {"mine": method}}), data)
        assert fault.startswith("methods.mine.model: queries of config/datasets/covr_webvid.yaml")
    (fault,) = study_dataset_faults(study.model_copy(update={"dataset": "neg_msrvtt"}), load_dataset("neg_msrvtt"))[:1]
    assert fault.startswith("methods.clip_b32_text.options.query")
    assert data.why_no_twins and not load_dataset("neg_msrvtt").composed
    with invalid("groups"):
        Dataset.model_validate(data.model_dump() | {"groups": "time_sensitivity"})


def test_a_rehearsal_has_files_of_the_kind(tmp_path):
    data = load_dataset("covr_webvid")
    files = make_dummy_data(data, tmp_path, SplitSizes(0, 0, 3))
    made = data.model_copy(update={"source": data.source.model_copy(update=files)})
    found = read_annotations(made, "")
    assert found.items["split"].value_counts().to_dict() == {"test": 3, SHOWN_SPLIT: 3} and len(found.captions) == 6
    assert (build_inventory(made, found, videos_folder(made))["bytes"] > 0).all()
