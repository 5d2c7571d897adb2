"""Negation (Bagad and Zisserman, *TARA*, arXiv 2512.13511): images or clips with captions that say what is not there.

The same two files as those of chiral actions (:mod:`rewind.data.formats.cia`), of which the rows of one other
``source`` are read: ``neg-coco`` (images) or ``neg-msrvtt`` (clips). Texts have the modality ``text-standard`` or
``text-negation``, and these are the groups of captions: their results are R@k of each kind over the gallery of all
items, as the authors print R@5 of either (evals/compute_metrics.py, bpiyush/TARA@5c6f2b3). There a text counts as found
if any of its right items is; here it is a caption of each of them, and ``answers: same_text`` counts any.

Ids of texts are the captions themselves, some with white space at an end in one file and not in the other: it does not
count.

Everything is of the test split. An item's ``value`` is its file, without a suffix and relative to the folder.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rewind.config.dataset import Dataset, NegationSource
from rewind.data.annotations import SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, draw_picture, make_dummy_items
from rewind.data.formats.cia import CIA_COLUMNS, label_ids, read_labels, safe_id
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import FILLED, Column, cell_fault, unknown_name
from rewind.io.strict import read_user_csv
from rewind.registry import DUMMY_DATA, FORMATS

GROUPS = {"text-standard": "standard", "text-negation": "negation"}
"""Modality of a text → the group of its captions."""

_STRAY_END = "# noqa"  # of some values: a mark for a linter, which is no part of a caption


class _Item(NamedTuple):
    where: str  # file and row
    path: str


class _Text(NamedTuple):
    where: str
    words: str
    group: str


def has_groups(dataset: Dataset) -> bool:
    """They are what the format is for."""
    return True


@FORMATS.register("negation", has_groups=has_groups)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.inputs`` and ``source.labels``; ``sources`` is not used.

    Raises:
        RewindError: naming file and row or id, for an empty cell, an unknown modality, an id that two rows use for
            different things, or a path that leaves the folder; for a text that no item has, or labels with an unknown
            item; if there is no row of the part.
    """
    source: NegationSource = dataset.source
    items, texts, notes = _read_rows(source, dataset.how_to_get)
    labels = {_plain(name): value for name, value in read_labels(source.labels, dataset.how_to_get).items()}
    captions: dict[str, list[_Text]] = {name: [] for name in items}
    several = 0
    for name, text in texts.items():
        own = _items_of(name, text, labels, items, source)
        several += len(own) > 1
        for right in own:
            captions[right].append(text)
    builder = AnnotationBuilder()
    for name, item in items.items():
        added = builder.original(safe_id(name), item.path, "test", safe_id(name), item.where)
        own_texts = captions[name]
        builder.describe(added, [text.words for text in own_texts], "test", [text.group for text in own_texts])
    files = {"file": str(source.inputs), "labels": str(source.labels)}
    notes = notes | {"texts_of_several_items": several}
    return builder.annotations({split: files | (notes if split == "test" else {}) for split in SPLITS})


def _read_rows(source: NegationSource, how_to_get: str) -> tuple[dict[str, _Item], dict[str, _Text], dict[str, int]]:
    """Items and texts of the part by id, and what was left out."""
    modality = "image" if source.items == "images" else "video"
    choices = Column(filled=True, choices=(*GROUPS, modality))
    found: dict[str, tuple[str, str, str]] = {}  # id → file and row, value and modality
    repeated = ends = 0
    for number, cells in read_user_csv(source.inputs, CIA_COLUMNS, f"(`source.inputs`). {how_to_get}"):
        if cells["source"] != source.part:
            continue
        where, name, value = f"{source.inputs}: row {number}", _plain(cells["id"]), _plain(cells["value"])
        if cells["modality"] in GROUPS and value.endswith(_STRAY_END):
            value, ends = value.removesuffix(_STRAY_END).rstrip(), ends + 1
        kind = FILLED if cells["modality"] in GROUPS else Column(filled=True, within="`source.videos`")
        checked = (("id", name, FILLED), ("modality", cells["modality"], choices), ("value", value, kind))
        if fault := next(filter(None, (cell_fault(*cell) for cell in checked)), ""):
            raise RewindError(f"{where}: {fault}.")
        first = found.setdefault(name, (where, value, cells["modality"]))
        if first[1:] != (value, cells["modality"]):
            raise RewindError(f"{where}: the id {name!r} means something else in {first[0]}; rename one.")
        repeated += first[0] != where
    items = {name: _Item(where, value) for name, (where, value, kind) in found.items() if kind == modality}
    texts = {name: _Text(where, value, GROUPS[kind]) for name, (where, value, kind) in found.items() if kind in GROUPS}
    if not items or not texts:
        what = f"{modality} of the source {source.part!r}" if texts else f"text of the source {source.part!r}"
        raise RewindError(
            f"{source.inputs}: no row is a {what}; name the authors' file nuanced_retrieval_inputs, or another "
            "`source.part`."
        )
    return items, texts, {"rows_repeated": repeated, "stray_ends_removed": ends}


def _items_of(
    name: str, text: _Text, labels: Mapping[str, Any], items: Mapping[str, _Item], source: NegationSource
) -> list[str]:
    """The items that a text is right for, each once."""
    ids = [_plain(item) for item in label_ids(labels, name, source.labels)]
    if unknown := [item for item in ids if item not in items]:
        said = unknown_name("the item", unknown[0], items, str(source.inputs), "id")
        raise RewindError(f"{source.labels}: entry {name!r}: {said}.")
    if not ids:
        raise RewindError(f"{text.where}: the text {name!r} has no item in {source.labels}; delete the row.")
    return list(dict.fromkeys(ids))


def _plain(text: str) -> str:
    return " ".join(text.split())


# ---- Dummy data ------------------------------------------------------------------------------------------------------


@DUMMY_DATA.register("negation")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two texts of either kind for each item; all are of the test split, as in the authors' files."""
    source: NegationSource = dataset.source
    is_video = source.items == "videos"
    draw, suffix, modality = (draw_clip, "mp4", "video") if is_video else (draw_picture, "png", "image")
    rows: list[tuple[str, str, str]] = []
    labels: dict[str, list[str]] = {}
    for item in make_dummy_items(SplitSizes(0, 0, max(2, sizes.test)), 2):
        draw(item, folder / "files" / f"{item.name}.{suffix}")
        rows.append((item.name, item.name, modality))
        for number, words in enumerate(item.entry.captions(False)):
            for kind, text in (("text-standard", words), ("text-negation", f"{words}, and nothing else")):
                rows.append((name := f"{item.name}-{kind}-{number}", text, kind))
                labels[name] = [item.name]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "inputs.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(CIA_COLUMNS.needed)
        writer.writerows((name, value, "negation", source.part, kind) for name, value, kind in rows)
    write_json(folder / "labels.json", labels)
    return {name: str(folder / f"{name}.{end}") for name, end in (("inputs", "csv"), ("labels", "json"))} | {
        "videos": str(folder / "files")
    }
