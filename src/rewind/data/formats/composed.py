"""Composed retrieval: a query is a clip and a text that says what is to be different in it; which clip is meant?

The same two files as those of chiral actions (:mod:`rewind.data.formats.cia`), of which the rows of one other
``source`` are read: ``covr-webvid`` (Ventura et al., *CoVR*, arXiv 2308.14746, as Bagad and Zisserman, *TARA*, arXiv
2512.13511, list it). Rows of the modality ``video`` are the gallery. A row ``video-text`` is a query: its value is
``{'video': …, 'text': …}``, written as Python writes a dictionary, and its right clips are in the file of labels.

A query is a caption of its right clip, in the test split like everything here. The columns :data:`QUERY_COLUMNS` say
what it shows and what it asks; the caption itself has both, so that equal texts about different clips are different
queries. Clips that only queries show are of the split :data:`SHOWN_SPLIT`: they are prepared, and not searched. As in
the authors' evaluation (evals/compute_metrics.py, bpiyush/TARA@5c6f2b3) a query's own clip stays in the gallery, if it
is there; CoVR's code leaves it out.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.config.dataset import ComposedSource, Dataset
from rewind.data.annotations import QUERY_COLUMNS, SHOWN_SPLIT, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, make_dummy_items
from rewind.data.formats.cia import CLIP, Row, plain_text, read_part_labels, read_rows, safe_id, write_files
from rewind.errors import RewindError
from rewind.io.schema import FILLED, TEXT, cell_fault
from rewind.registry import DUMMY_DATA, FORMATS


class _Query(NamedTuple):
    clip: str  # its file
    text: str


@FORMATS.register("composed")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.inputs`` and ``source.labels``; ``sources`` is not used.

    Raises:
        RewindError: naming file and row or id, for an empty cell, an unknown modality, an id that two rows use for
            different things, a path that leaves the folder, or a value of a query that is no such dictionary; for a
            query that no clip answers, or labels with an unknown clip; if the part has no clips or no queries.
    """
    source: ComposedSource = dataset.source
    kinds = {"video": CLIP, "video-text": TEXT}
    rows, repeated = read_rows(source.inputs, [source.part], kinds, dataset.how_to_get)
    labels = read_part_labels(source, rows, "video", dataset.how_to_get)
    queries = {name: _read_query(rows[name]) for name in labels}
    asked: dict[str, list[_Query]] = {name: [] for name, row in rows.items() if row.modality == "video"}
    for name, right in labels.items():
        for clip in right:
            asked[clip].append(queries[name])
    item_of = {rows[name].value: safe_id(name) for name in asked}  # file → item; ids need not be names of files
    gallery = set(item_of)
    shown = {query.clip: rows[name].where for name, query in queries.items() if query.clip not in gallery}
    item_of |= {clip: safe_id(clip) for clip in shown}
    builder = AnnotationBuilder()
    for name, own in asked.items():
        item = builder.original(safe_id(name), rows[name].value, "test", safe_id(name), rows[name].where)
        builder.describe(item, [f"{item_of[query.clip]} | {query.text}" for query in own], "test")
    for clip, where in shown.items():
        builder.original(item_of[clip], clip, SHOWN_SPLIT, item_of[clip], where)
    files = {"file": str(source.inputs), "labels": str(source.labels)}
    notes = {
        "rows_repeated": repeated,
        "queries": len(queries),
        "queries_of_gallery_clips": sum(query.clip in gallery for query in queries.values()),
        "queries_of_several_items": sum(len(right) > 1 for right in labels.values()),
    }
    found = builder.annotations({split: files | (notes if split == "test" else {}) for split in SPLITS})
    parts = [(item_of[query.clip], query.text) for own in asked.values() for query in own]
    captions = found.captions.join(pd.DataFrame(parts, columns=list(QUERY_COLUMNS)))
    return Annotations(found.items, captions, found.notes)


def _read_query(row: Row) -> _Query:
    try:
        value = ast.literal_eval(row.value)  # numbers, texts, lists and dictionaries alone: nothing is called
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    parts = value if isinstance(value, dict) else {}
    clip, text = parts.get("video"), parts.get("text")
    if not isinstance(clip, str) or not isinstance(text, str):
        raise RewindError(
            f"{row.where}: 'value' must be a dictionary with texts 'video' and 'text', as Python writes it; correct it."
        )
    query = _Query(plain_text(clip), plain_text(text))
    cells = (("video", query.clip, CLIP), ("text", query.text, FILLED))
    if fault := next(filter(None, (cell_fault(*cell) for cell in cells)), ""):
        raise RewindError(f"{row.where}: {fault}.")
    return query


# ---- Dummy data ------------------------------------------------------------------------------------------------------


@DUMMY_DATA.register("composed")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Two queries for each clip of the gallery, one that shows a clip beside it and one that shows another of it."""
    source: ComposedSource = dataset.source
    count = max(2, sizes.test)
    clips = make_dummy_items(SplitSizes(0, 0, 2 * count), 2)
    for clip in clips:
        draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
    gallery, others = clips[:count], clips[count:]
    rows = [(clip.name, clip.name, "video") for clip in gallery]
    labels: dict[str, list[str]] = {}
    for number, clip in enumerate(gallery):
        shown = (others[number], gallery[number - 1])
        for seen, words in zip(shown, clip.entry.captions(False), strict=True):
            rows.append((name := f"{seen.name}|{words}", repr({"video": seen.name, "text": words}), "video-text"))
            labels[name] = [clip.name]
    files = write_files(folder, [(name, value, "multimodal", source.part, kind) for name, value, kind in rows], labels)
    return files | {"videos": str(folder / "videos")}
