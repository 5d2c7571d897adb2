"""Tables that ask more of test captions than one right clip: several right answers, foils, pairs of clips.

They come from the module of the data set's format, if it has the functions of :data:`READERS`, each of the block
``source`` and the folder of source files that the workflow made, or from the files that the keys ``answers`` and
``foils`` name.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.dataset import Dataset
from rewind.data.annotations import Annotations, dataset_format, read_annotations
from rewind.data.fire import read_fire
from rewind.data.tokenizers import plain_text, same_text_labels
from rewind.errors import RewindError
from rewind.io.files import write_csv
from rewind.io.schema import FILLED, ID, OF_OTHER_CLIPS, OPTIONAL, RowChecks, Schema, tell_left_out
from rewind.io.strict import CsvRow, read_user_csv

ALL_ITEMS, JUDGED_ITEMS = "all", "judged"
"""Galleries of right answers: all clips, or those that the rows of a caption name."""
ANSWER_COLUMNS = ("setting", "caption_id", "item_id", "right", "gallery")
FOIL_COLUMNS = ("foil_id", "caption_id", "caption", "kind")
_ANSWER_FILE = Schema({"caption_id": ID, "item_id": ID, "setting": OPTIONAL, "right": OPTIONAL})
_FOIL_FILE = Schema({"caption_id": ID, "foil": FILLED, "kind": OPTIONAL})
_GRADE = re.compile(r"[0-9]{1,3}")
GRADES = "write 0 for a wrong pair, and 1 or a higher grade, to 999, for a right one"
SAME_TEXT = "same_text"
"""In the place of a file of answers: clips with a caption of the same text are right for it."""
_ALL = "all"  # the setting of a file that names none
READERS = {
    "answers": "read_answers",
    "foils": "read_foils",
    "caption_pairs": "read_pairs",
    "proficiency": "read_proficiency",
}
"""Table → the function of a format's module that reads it. They are not hooks of ``read``: no stage that reads
annotations depends on them."""


def has_answers(dataset: Dataset) -> bool:
    """Whether captions may have several right clips."""
    return dataset.answers is not None or _reader(dataset, "answers") is not None


def has_foils(dataset: Dataset) -> bool:
    """Whether there are captions that are not true of a clip."""
    return dataset.foils is not None or _reader(dataset, "foils") is not None


def has_caption_pairs(dataset: Dataset) -> bool:
    """Whether the format names pairs of clips that are not twins."""
    return _reader(dataset, "caption_pairs") is not None


def question_files(dataset: Dataset) -> list[str]:
    """The files that the data set's keys name."""
    return [path for path in (getattr(dataset, key) for key in QUESTION_TABLES) if path and path != SAME_TEXT]


def make_answers(dataset: Dataset, result: str, sources: Path) -> None:
    """Write the right answers of test captions, columns :data:`ANSWER_COLUMNS`.

    Raises:
        RewindError: naming file and row of an unknown id, a value of ``right`` that is no grade, a pair that is listed
            twice, or a caption without a right item, or in a judged gallery without a wrong one.
    """
    table = answer_table(dataset, read_annotations(dataset, str(sources)) if dataset.answers else None, str(sources))
    right = table["right"] > 0
    print(f"{dataset.name}: {right.sum():,} right answers of {table.loc[right, 'caption_id'].nunique():,} captions")
    if dataset.answers and not right.all():
        searched = "the clips of their own rows" if dataset.answers_gallery == JUDGED_ITEMS else "all clips"
        count = int((~right).sum())
        print(f"{dataset.name}: {count:,} pairs are judged wrong; captions search {searched} (answers_gallery)")
    write_csv(result, table[list(ANSWER_COLUMNS)])


def make_foils(dataset: Dataset, foils: str, caption_pairs: str, proficiency: str, sources: Path) -> None:
    """Write foils (:data:`FOIL_COLUMNS`), pairs of captions and questions of proficiency, each as far as there are any.

    Raises:
        RewindError: naming file and row of an unknown caption, or a foil that is empty, given twice, or its caption.
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

    Only those of a file (key ``answers``) are compared with the annotations.
    """
    if dataset.answers is None or annotations is None:
        return _read_own(dataset, "answers", sources)
    if dataset.answers == SAME_TEXT:
        return _answers_of_same_text(annotations)
    read = _answers_of_fire if dataset.answers.endswith(".json") else _answers_in_file
    return read(dataset, annotations)


def foil_table(dataset: Dataset, annotations: Annotations | None) -> pd.DataFrame:
    """Foils of a data set that has some, with :data:`FOIL_COLUMNS`.

    A caption's foil *n*, from 0 in the order of the file, has the id ``<caption_id>~<n>``. Only those of a file (key
    ``foils``) are compared with the annotations.
    """
    if dataset.foils is not None and annotations is not None:
        return _foils_in_file(dataset, annotations)
    return _read_own(dataset, "foils")


QUESTION_TABLES = {"answers": answer_table, "foils": foil_table}
"""Key of a data set that names a CSV file → what reads it."""


def caption_pair_count(dataset: Dataset) -> int:
    """Number of pairs of clips that are not twins."""
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
    reader = _reader(dataset, name)
    assert reader is not None  # callers request no other
    return reader(dataset.source, sources)


def _answers_in_file(dataset: Dataset, annotations: Annotations) -> pd.DataFrame:
    path, gallery = Path(dataset.answers or ""), dataset.answers_gallery
    known = {"caption_id": _test_ids(annotations.captions, "caption_id")}
    known["item_id"] = _test_ids(annotations.items, "item_id")
    rows: list[tuple[str, str, str, int, str]] = []
    listed: dict[tuple[str, str, str], tuple[int, int]] = {}
    judged: dict[tuple[str, str], dict[bool, int]] = {}  # setting and caption → is it right → its first row
    for row in _rows_of_test_captions(path, _ANSWER_FILE, known, dataset, "answers"):
        caption, item = row.cells["caption_id"], row.cells["item_id"]
        setting, grade = row.cells.get("setting") or _ALL, row.cells.get("right") or "1"
        if not _GRADE.fullmatch(grade):
            raise RewindError(f"{path}: row {row.number}: `right` is {grade!r}; {GRADES}.")
        right = int(grade)
        first, number = listed.setdefault((setting, caption, item), (right, row.number))
        if number != row.number:
            said = f"of grade {right}, but in row {number} of {first}" if first != right else f"in row {number} too"
            raise RewindError(
                f"{path}: row {row.number}: caption {caption!r} with item {item!r} is {said}; keep one row."
            )
        judged.setdefault((setting, caption), {}).setdefault(right > 0, row.number)
        rows.append((setting, caption, item, right, gallery))
    needed = (True, False) if gallery == JUDGED_ITEMS else (True,)
    incomplete = {asked: found for asked, found in judged.items() if not found.keys() >= set(needed)}
    if incomplete and dataset.only is not None:  # their other rows are of clips that `only` leaves out
        tell_left_out(path, {"captions without a right or a wrong clip of `only`": len(incomplete)})
        rows = [row for row in rows if row[:2] not in incomplete]
    for (setting, caption), found in incomplete.items() if dataset.only is None else ():
        where = f"{path}: row {min(found.values())}: caption {caption!r}"
        if True not in found:
            raise RewindError(f"{where} has no right item in setting {setting!r}; add one, or delete its rows there.")
        raise RewindError(
            f"{where} has no wrong item in setting {setting!r}: with `answers_gallery: judged` nothing could be found "
            "before its right ones; add some, delete its rows, or set the key to all."
        )
    return pd.DataFrame(rows, columns=list(ANSWER_COLUMNS))


def _answers_of_fire(dataset: Dataset, annotations: Annotations) -> pd.DataFrame:
    pairs = read_fire(Path(dataset.answers or ""), annotations)
    if dataset.answers_gallery == JUDGED_ITEMS:  # without a wrong one, all that a caption searches would be right
        pairs = pairs[pairs["caption_id"].isin(pairs.loc[pairs["right"] == 0, "caption_id"])]
    return pairs.assign(setting=_ALL, gallery=dataset.answers_gallery)


def _answers_of_same_text(annotations: Annotations) -> pd.DataFrame:
    """Right for a caption is every test clip that has a caption with its text, up to case and white space."""
    captions = annotations.captions[annotations.captions["split"] == "test"]
    texts = captions.assign(text=same_text_labels(captions["caption"].tolist()))
    pairs = texts[["caption_id", "text"]].merge(texts[["video_id", "text"]].drop_duplicates(), on="text")
    pairs = pairs.rename(columns={"video_id": "item_id"})[["caption_id", "item_id"]]
    return pairs.assign(setting=_ALL, right=1, gallery=ALL_ITEMS)


def _foils_in_file(dataset: Dataset, annotations: Annotations) -> pd.DataFrame:
    path = Path(dataset.foils or "")
    captions = annotations.captions[annotations.captions["split"] == "test"]
    text_of = dict(zip(captions["caption_id"], captions["caption"], strict=True))
    rows: list[tuple[str, str, str, str]] = []
    counts, listed = dict.fromkeys(text_of, 0), dict[tuple[str, str, str], int]()
    for row in _rows_of_test_captions(path, _FOIL_FILE, {"caption_id": text_of}, dataset, "foils"):
        caption_id, foil = row.cells["caption_id"], " ".join(row.cells["foil"].split())
        kind = row.cells.get("kind") or _ALL
        first = listed.setdefault((caption_id, plain_text(foil), kind), row.number)
        if fault := foil_fault(foil, text_of[caption_id], first if first != row.number else None):
            raise RewindError(f"{path}: row {row.number}: {fault}.")
        rows.append((f"{caption_id}~{counts[caption_id]}", caption_id, foil, kind))
        counts[caption_id] += 1
    return pd.DataFrame(rows, columns=list(FOIL_COLUMNS))


def foil_fault(foil: str, caption: str, first_row: int | None = None) -> str:
    """Why a text cannot be a foil of a caption, or not a second time; empty where nothing is wrong.

    >>> foil_fault("A door opens", "a door opens")
    "the foil 'A door opens' has the words of its caption, so that no model can tell them apart; write another"
    """
    if plain_text(foil) == plain_text(caption):
        return f"the foil {foil!r} has the words of its caption, so that no model can tell them apart; write another"
    return f"the foil {foil!r} of this caption is in row {first_row} already; keep one" if first_row else ""


def _rows_of_test_captions(
    path: Path, schema: Schema, known: dict[str, Any], dataset: Dataset, key: str
) -> Sequence[CsvRow]:
    """The rows of a file whose ids are all of the test split; with ``only``, a file may name others too."""
    checks = RowChecks(schema, known, "the test split", None if dataset.only is None else [])
    rows = list(read_user_csv(path, schema, f"(`{key}`)", checks))
    tell_left_out(path, {OF_OTHER_CLIPS: len(checks.left_out or ())})
    if not rows and not checks.left_out:
        raise RewindError(f"{path}: no rows below the header; write some, or remove the key `{key}`.")
    return rows


def _test_ids(table: pd.DataFrame, column: str) -> set[str]:
    return set(table.loc[table["split"] == "test", column])
