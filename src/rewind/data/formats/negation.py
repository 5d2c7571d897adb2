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

from pathlib import Path
from typing import Any

from rewind.config.dataset import Dataset, NegationSource
from rewind.data.annotations import SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, draw_picture, make_dummy_items
from rewind.data.formats.cia import CLIP, read_part_labels, read_rows, safe_id, write_files
from rewind.io.schema import FILLED
from rewind.registry import DUMMY_DATA, FORMATS

GROUPS = {"text-standard": "standard", "text-negation": "negation"}
"""Modality of a text → the group of its captions."""

_STRAY_END = "# noqa"  # of some values: a mark for a linter, which is no part of a caption


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
    modality = "image" if source.items == "images" else "video"
    kinds = {modality: CLIP, **dict.fromkeys(GROUPS, FILLED)}
    rows, repeated = read_rows(source.inputs, [source.part], kinds, dataset.how_to_get)
    labels = read_part_labels(source, rows, modality, dataset.how_to_get)
    captions: dict[str, list[tuple[str, str]]] = {name: [] for name, row in rows.items() if row.modality == modality}
    for name, right in labels.items():
        for item in right:
            captions[item].append((rows[name].value.removesuffix(_STRAY_END).rstrip(), GROUPS[rows[name].modality]))
    builder = AnnotationBuilder()
    for name, texts in captions.items():
        row = rows[name]
        added = builder.original(safe_id(name), row.value, "test", safe_id(name), row.where)
        builder.describe(added, [words for words, _ in texts], "test", [group for _, group in texts])
    files = {"file": str(source.inputs), "labels": str(source.labels)}
    notes = {
        "rows_repeated": repeated,
        "stray_ends_removed": sum(rows[name].value.endswith(_STRAY_END) for name in labels),
        "texts_of_several_items": sum(len(right) > 1 for right in labels.values()),
    }
    return builder.annotations({split: files | (notes if split == "test" else {}) for split in SPLITS})


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
    files = write_files(folder, [(name, value, "negation", source.part, kind) for name, value, kind in rows], labels)
    return files | {"videos": str(folder / "files")}
