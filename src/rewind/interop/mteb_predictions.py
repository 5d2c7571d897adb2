"""Scores that MTEB kept of a retrieval task (``prediction_folder=``) as a matrix or a TREC run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rewind.datasets.id_lists import id_fault
from rewind.datasets.trec_lines import LARGEST_SCORE, is_score
from rewind.errors import RewindError
from rewind.evaluation.trec import escape
from rewind.files import write_npz, write_text
from rewind.reading.objects import read_json

ENDING = "_predictions.json"
REVERSE = "V2T"  # a task so called asks items for captions
RUNS = (".trec", ".txt", ".run")
SHOWN = 40  # characters of a score in a message

Scores = Mapping[str, Mapping[str, float]]


def import_predictions(path: Path, out: Path) -> str:
    """Write the scores in ``<task>_predictions.json`` as a matrix (``.npz``) or a TREC run (any of ``RUNS``).

    The rows of either are captions and the columns items, whichever of them the task asked. A matrix needs the score of
    every pair. MTEB keeps the best 1000 documents of a query, and the best 4000 in tasks that Rewind exported; a task
    with candidates (Binary) never has all pairs. A run may lack pairs.

    Returns:
        A sentence about what was written.

    Raises:
        RewindError: for a file of another kind, several splits, a query without documents, an id that no data set can
            have, scores that are not numbers of single precision, a matrix that would have holes, or an ``out`` of
            another kind.
    """
    if out.suffix not in (".npz", *RUNS):
        raise RewindError(f"{out}: give it the ending .npz for a matrix, or {', '.join(RUNS)} for a TREC run.")
    found = _scores(path)
    if path.name.removesuffix(ENDING).endswith(REVERSE):
        found = _turned(found)
    for name in dict.fromkeys([*found, *(item for row in found.values() for item in row)]):
        if fault := id_fault(name):
            raise RewindError(f"{path}: {fault}.")
    items = list(dict.fromkeys(item for row in found.values() for item in row))
    pairs = sum(map(len, found.values()))
    said = f"{out}: {pairs:,} scores of {len(found):,} captions and {len(items):,} items"
    if out.suffix != ".npz":
        write_text(out, _run(found, path.name.removesuffix(ENDING)))
        return f"{said}, as a TREC run"
    if pairs < len(found) * len(items):
        raise RewindError(
            f"{path}: has {pairs:,} of {len(found) * len(items):,} pairs, because MTEB kept only the best documents "
            f"of a query; write a TREC run instead: {out.with_suffix(RUNS[0])}."
        )
    scores = np.array([[row[item] for item in items] for row in found.values()], np.float32)
    write_npz(out, similarity=scores, query_ids=np.array(list(found), dtype=str), item_ids=np.array(items, dtype=str))
    return said


def _scores(path: Path) -> Scores:
    content: Any = read_json(path, infinite=True)
    subsets = {name: part for name, part in content.items() if name != "mteb_model_meta"} if _table(content) else {}
    splits = [split for part in subsets.values() if _table(part) for split in part.values()]
    if not splits or not all(_table(split) and all(map(_table, split.values())) for split in splits):
        raise RewindError(
            f"{path}: not the predictions of a retrieval task; `mteb.evaluate(…, prediction_folder=FOLDER)` writes "
            f"FOLDER/<task>{ENDING}."
        )
    if not splits[0]:
        raise RewindError(f"{path}: there are no queries; evaluate the task again.")
    if len(splits) > 1:
        raise RewindError(f"{path}: holds {len(splits)} subsets or splits; give the predictions of one.")
    for query, row in splits[0].items():
        if not row:
            raise RewindError(f"{path}: the query {query!r} has no documents; evaluate the task again.")
        for document, score in row.items():
            if not is_score(score):
                shown = str(score) if len(str(score)) <= SHOWN else f"{str(score)[:SHOWN]}…"
                raise RewindError(
                    f"{path}: the score of {query!r} and {document!r} is {shown}, not a number up to {LARGEST_SCORE:g}."
                )
    return splits[0]


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _turned(found: Scores) -> dict[str, dict[str, float]]:
    """By caption; Binary asks an item once for each of its captions, as ``<item>/<caption>``."""
    turned: dict[str, dict[str, float]] = {}
    for query, row in found.items():
        for caption, score in row.items():
            turned.setdefault(caption, {})[query.split("/", 1)[0]] = score
    return turned


def _run(found: Scores, tag: str) -> str:
    lines = []
    for query, row in found.items():
        # trec_eval orders equal scores by id, descending.
        best = sorted(row.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
        lines += [
            f"{escape(query)} Q0 {escape(item)} {rank} {float(np.float32(score))!r} {tag}"
            for rank, (item, score) in enumerate(best, 1)
        ]
    return "\n".join(lines) + "\n"
