"""Negation: the two files, which items and captions they give, and R@5 of either kind against a plain loop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from messages import refusal
from rewind.config import Dataset, load_dataset, load_study
from rewind.data.annotations import read_annotations
from rewind.data.dummy import SplitSizes
from rewind.data.formats.negation import make_dummy_data
from rewind.data.groups import dataset_has_groups, read_groups
from rewind.evaluation.ranking import rank_table
from rewind.video.sources import annotation_files, build_inventory, videos_folder

HEAD = ["id", "value", "nuance", "source", "modality"]
PHOTOS, CLIPS = ("neg-coco", "image"), ("neg-msrvtt", "video")
STANDARD = ["A photo of a dog.", "A photo of a cat."]
NEGATED = ["A photo without a hat. ", "A dog, and no cat. # noqa"]


def rows(part: str, kind: str, items=("7", "12")) -> list[tuple[str, ...]]:
    """As in the authors' file: a text's id is its caption."""
    found = [(name, name, "negation", part, kind) for name in items]
    found += [(text, text, "negation", part, "text-standard") for text in STANDARD]
    return found + [(text, text, "negation", part, "text-negation") for text in NEGATED]


LABELS = {STANDARD[0]: [7], STANDARD[1]: [12], NEGATED[0]: [7, 12], NEGATED[1]: [7], "7": [], "12": []}


def dataset(folder: Path, table=None, labels=None, part=PHOTOS) -> Dataset:
    other = [("900", "900", "time", "cia-ssv2", "video"), *rows(*(CLIPS if part == PHOTOS else PHOTOS))]
    given = [*other[:1], *(rows(*part) if table is None else table), *(("x" + r[0], *r[1:]) for r in other[1:])]
    pd.DataFrame(given, columns=HEAD).to_csv(folder / "inputs.csv", index=False)
    (folder / "labels.json").write_text(json.dumps(LABELS if labels is None else labels))
    source = {"format": "negation", "part": part[0], "videos": str(folder / "files")}
    source |= {"inputs": str(folder / "inputs.csv"), "labels": str(folder / "labels.json")}
    return Dataset(name="neg", source=source)


@pytest.mark.parametrize("part", [PHOTOS, CLIPS])
def test_texts_are_captions_of_all_their_items_in_two_groups(tmp_path, part):
    data = dataset(tmp_path, part=part)
    found = read_annotations(data, "")
    assert data.items == ("images" if part == PHOTOS else "videos") and dataset_has_groups(data)
    assert found.items["item_id"].tolist() == ["7", "12"] and set(found.items["split"]) == {"test"}
    pairs = list(zip(found.captions["video_id"], found.captions["caption"], found.captions["group"], strict=True))
    assert pairs == [
        ("7", "A photo of a dog.", "standard"),
        ("7", "A photo without a hat.", "negation"),
        ("7", "A dog, and no cat.", "negation"),
        ("12", "A photo of a cat.", "standard"),
        ("12", "A photo without a hat.", "negation"),
    ]
    notes = found.notes["splits"]["test"]
    assert (notes["texts_of_several_items"], notes["stray_ends_removed"], notes["rows_repeated"]) == (1, 1, 0)
    assert read_groups(data, found)["group"].value_counts().to_dict() == {"negation": 3, "standard": 2}


def test_recall_of_a_kind_is_that_of_a_plain_loop(tmp_path):
    """R@k of the authors: the share of a kind's texts of which a right item is among the first k of all items."""
    rng, items = np.random.default_rng(0), [str(number) for number in range(40)]
    table, labels = [(name, name, "negation", "neg-coco", "image") for name in items], {}
    for number, name in enumerate(items):
        for kind in ("standard", "negation"):
            text = f"{kind} caption {number}"
            table.append((text, text, "negation", "neg-coco", f"text-{kind}"))
            labels[text] = [name]
    data = dataset(tmp_path, table, labels)
    found = read_annotations(data, "")
    scores = rng.normal(size=(len(found.captions), len(items)))
    expected = {}
    for kind in ("standard", "negation"):
        hits = []
        for query, caption in enumerate(found.captions["caption"]):
            if caption.startswith(kind):
                first = [items[place] for place in np.argsort(-scores[query])[:5]]
                hits.append(bool(set(first) & set(labels[caption])))
        expected[kind] = np.mean(hits)
    ranks = rank_table(scores, found.captions, found.items, ["test"], ["text_to_item"])
    groups = read_groups(data, found).set_index("caption_id")["group"]
    got = (ranks.set_index("query_id")["rank"] <= 5).groupby(groups).mean()
    assert got.to_dict() == expected


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda table, labels: table.append(("p", "q", "negation", "neg-coco", "video")), "inputs.csv: row 9"),
        (lambda table, labels: table.append(("p", "../q", "negation", "neg-coco", "image")), "inputs.csv: row 9"),
        (lambda table, labels: table.append(("7", "8", "negation", "neg-coco", "image")), "inputs.csv: row 9"),
        (lambda table, labels: table.append(("p", "", "negation", "neg-coco", "text-standard")), "inputs.csv: row 9"),
        (lambda table, labels: labels.pop(STANDARD[0]), "inputs.csv: row 5"),
        (lambda table, labels: labels.update({STANDARD[0]: ["8"]}), "labels.json"),
        (lambda table, labels: labels.update({STANDARD[0]: [True]}), "labels.json"),
        (lambda table, labels: labels.update({STANDARD[0]: [""]}), "labels.json"),
        (lambda table, labels: table.clear(), "inputs.csv"),
        (lambda table, labels: table.__setitem__(slice(2, None), []), "inputs.csv"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(tmp_path, change, place):
    table, labels = rows(*PHOTOS), dict(LABELS)
    change(table, labels)
    data = dataset(tmp_path, table, labels)
    with refusal(place):
        read_annotations(data, "")


def test_labels_that_are_no_object_are_refused(tmp_path):
    data = dataset(tmp_path)
    (tmp_path / "labels.json").write_text("[]")
    with refusal("labels.json"):
        read_annotations(data, "")


@pytest.mark.parametrize("name", ["neg_coco", "neg_msrvtt"])
def test_a_rehearsal_has_files_of_the_kind(tmp_path, name):
    data = load_dataset(name)
    files = make_dummy_data(data, tmp_path, SplitSizes(0, 0, 3))
    made = data.model_copy(update={"source": data.source.model_copy(update=files)})
    found = read_annotations(made, "")
    assert len(found.items) == 3 and set(found.captions["group"]) == {"standard", "negation"}
    assert (build_inventory(made, found, videos_folder(made))["bytes"] > 0).all()
    assert len(annotation_files(made)) == 2


def test_the_study_prints_r_at_5_by_kind():
    study = load_study("negation")
    assert study.primary_metric_by_setting() == {"test": "R@5"} and study.evaluation.settings == ["test"]
