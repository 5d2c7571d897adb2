"""Tables that ask more of test captions than one right clip: several right answers, foils, pairs of clips.

They come from the module of the data set's format, if it has the functions of :data:`READERS`, each of the block
``source`` and the folder of source files that the workflow made, or from the CSV files that the keys ``answers`` and
``foils`` name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.dataset import Dataset
from rewind.data.annotations import Annotations, dataset_format, read_annotations
from rewind.errors import RewindError
from rewind.io.files import write_csv
from rewind.io.strict import CsvColumns, read_user_csv

ANSWER_COLUMNS = ("setting", "caption_id", "item_id", "right")
FOIL_COLUMNS = ("foil_id", "caption_id", "caption", "kind")
_ANSWER_FILE = CsvColumns(("caption_id", "item_id"), ("setting", "right"), ids=("caption_id", "item_id"))
_FOIL_FILE = CsvColumns(("caption_id", "foil"), ("kind",), ids=("caption_id",))
_ALL = "all"  # the setting of a file that names none
READERS = {
    "answers": "read_answers",
    "foils": "read_foils",
    "caption_pairs": "read_pairs",
    "proficiency": "read_proficiency",
}
"""Table → the function of a format's module that reads it. They are no hooks of ``read``: no stage that reads
annotations depends on them."""


def has_answers(dataset: Dataset) -> bool:
    """Whether captions may have several right clips."""
    return dataset.answers is not None or _reader(dataset, "answers") is not None


def has_foils(dataset: Dataset) -> bool:
    """Whether there are captions that are not true of a clip."""
    return dataset.foils is not None or _reader(dataset, "foils") is not None


def has_caption_pairs(dataset: Dataset) -> bool:
    """Whether the format names pairs of clips that are no twins."""
    return _reader(dataset, "caption_pairs") is not None


def question_files(dataset: Dataset) -> list[str]:
    """The CSV files that the data set's keys name."""
    return [path for path in (getattr(dataset, key) for key in QUESTION_TABLES) if path]


def make_answers(dataset: Dataset, result: str, sources: Path) -> None:
    """Write the right answers of test captions, columns :data:`ANSWER_COLUMNS`.

    Args:
        dataset: its keys.
        result: CSV file.
        sources: see :func:`rewind.data.annotations.read_annotations`.

    Raises:
        RewindError: naming file and row of an unknown id, or of a value of ``right`` other than 0 and 1.
    """
    table = answer_table(dataset, read_annotations(dataset, str(sources)) if dataset.answers else None, str(sources))
    right = table["right"] == 1
    print(f"{dataset.name}: {right.sum():,} right answers of {table.loc[right, 'caption_id'].nunique():,} captions")
    write_csv(result, table[list(ANSWER_COLUMNS)])


def make_foils(dataset: Dataset, foils: str, caption_pairs: str, proficiency: str, sources: Path) -> None:
    """Write foils (:data:`FOIL_COLUMNS`), pairs of captions and questions of proficiency, each as far as there are any.

    Args:
        dataset: its keys.
        foils, caption_pairs, proficiency: CSV files.
        sources: see :func:`rewind.data.annotations.read_annotations`.

    Raises:
        RewindError: naming file and row of an unknown caption, or an empty foil.
    """
    table = foil_table(dataset, read_annotations(dataset, str(sources)) if dataset.foils else None)
    print(f"{dataset.name}: {len(table):,} foils of {table['kind'].nunique():,} kinds")
    write_csv(foils, table[list(FOIL_COLUMNS)])
    others = {
        "caption_pairs": (caption_pairs, ("pair_id", "first", "second", "kind")),
        "proficiency": (proficiency, ("caption_id", "proficiency_id")),
    }
    for name, (path, columns) in others.items():
        reader = _reader(dataset, name)
        write_csv(path, reader(dataset.source, str(sources)) if reader else pd.DataFrame(columns=list(columns)))


def answer_table(dataset: Dataset, annotations: Annotations | None, sources: str = "") -> pd.DataFrame:
    """Right answers of a data set that has some, with :data:`ANSWER_COLUMNS`.

    Args:
        dataset: its keys.
        annotations: its items and captions; only those of a file of its key ``answers`` are compared with them.
        sources: see :func:`rewind.data.annotations.read_annotations`.

    Raises:
        RewindError: as :func:`make_answers`.
    """
    if dataset.answers is not None and annotations is not None:
        return _answers_in_file(Path(dataset.answers), annotations, dataset.only is None)
    return _read_own(dataset, "answers", sources)


def foil_table(dataset: Dataset, annotations: Annotations | None) -> pd.DataFrame:
    """Foils of a data set that has some, with :data:`FOIL_COLUMNS`.

    A caption's foil *n*, from 0 in the order of the file, has the id ``<caption_id>~<n>``.

    Args:
        dataset: its keys.
        annotations: its items and captions; only those of a file of its key ``foils`` are compared with them.

    Raises:
        RewindError: as :func:`make_foils`.
    """
    if dataset.foils is not None and annotations is not None:
        return _foils_in_file(Path(dataset.foils), annotations, dataset.only is None)
    return _read_own(dataset, "foils")


QUESTION_TABLES = {"answers": answer_table, "foils": foil_table}
"""Key of a data set that names a CSV file → what reads it."""


def caption_pair_count(dataset: Dataset) -> int:
    """Number of pairs of clips that are no twins."""
    return len(_read_own(dataset, "caption_pairs")) if has_caption_pairs(dataset) else 0


def reader_names(dataset: Dataset, tables: Iterable[str]) -> list[str]:
    """``module:function`` of the readers of tables, as far as the format has them."""
    readers = [_reader(dataset, name) for name in tables]
    return [f"{reader.__module__}:{reader.__name__}" for reader in readers if reader]


def _reader(dataset: Dataset, name: str) -> Callable[[Any, str], pd.DataFrame] | None:
    if dataset.vectors or "." in dataset.source.format:
        return None  # a format of the user's own would have to be imported while the workflow is read
    return getattr(importlib.import_module(dataset_format(dataset).__module__), READERS[name], None)


def _read_own(dataset: Dataset, name: str, sources: str = "") -> pd.DataFrame:
    """A table that the data set's format has."""
    reader = _reader(dataset, name)
    assert reader is not None  # callers ask for no other
    return reader(dataset.source, sources)


def _answers_in_file(path: Path, annotations: Annotations, complete: bool) -> pd.DataFrame:
    known = {"caption_id": _test_ids(annotations.captions, "caption_id")}
    known["item_id"] = _test_ids(annotations.items, "item_id")
    rows = []
    for row in read_user_csv(path, _ANSWER_FILE, "(`answers`)"):
        where = f"{path}: row {row.number}"
        if not _is_known(row.cells, known, where, complete):
            continue
        right = row.cells.get("right", "1").strip()
        if right not in ("0", "1"):
            raise RewindError(f"{where}: right is {right!r}; write 1 for a right clip, and 0 for one that is not.")
        setting = row.cells.get("setting", _ALL).strip() or _ALL
        rows.append((setting, row.cells["caption_id"], row.cells["item_id"], int(right)))
    return pd.DataFrame(rows, columns=list(ANSWER_COLUMNS))


def _foils_in_file(path: Path, annotations: Annotations, complete: bool) -> pd.DataFrame:
    known = {"caption_id": _test_ids(annotations.captions, "caption_id")}
    rows, counts = [], dict.fromkeys(known["caption_id"], 0)
    for row in read_user_csv(path, _FOIL_FILE, "(`foils`)"):
        where = f"{path}: row {row.number}"
        if not _is_known(row.cells, known, where, complete):
            continue
        caption_id, foil = row.cells["caption_id"], " ".join(row.cells["foil"].split())
        if not foil:
            raise RewindError(f"{where}: `foil` is empty; write a caption that is not true, or delete the row.")
        kind = row.cells.get("kind", "").strip() or _ALL
        rows.append((f"{caption_id}~{counts[caption_id]}", caption_id, foil, kind))
        counts[caption_id] += 1
    return pd.DataFrame(rows, columns=list(FOIL_COLUMNS))


def _test_ids(table: pd.DataFrame, column: str) -> set[str]:
    return set(table.loc[table["split"] == "test", column])


def _is_known(cells: dict[str, str], known: dict[str, set[str]], where: str, complete: bool) -> bool:
    """Whether the ids of a row are of the test split; with ``only``, a file may name others too."""
    for column, ids in known.items():
        if cells[column] not in ids:
            if not complete:
                return False
            raise RewindError(
                f"{where}: the {column} {cells[column]!r} is not in the test split; correct it or delete the row."
            )
    return True
