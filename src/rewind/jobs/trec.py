"""The runs of a study as TREC files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation.scored_pairs import not_scored, reason
from rewind.evaluation.settings import among_originals
from rewind.evaluation.trec import DEPTH, qrels, run, task
from rewind.files import atomic, reading_user_file, require_regular_file
from rewind.jobs.given import Given
from rewind.jobs.metrics import Run, not_evaluated
from rewind.jobs.unpack import by_run


def trec(given: Given) -> None:
    """Rule ``trec``."""
    params, folder = given.params, Path(given.input.item_table).parent
    similarity = by_run(given, given.input.similarity)
    export(folder, params.dataset, params.settings, params.directions, similarity, Path(given.output.files))


def export(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: dict[Run, str],
    target: Path,
    depth: int = DEPTH,
) -> list[Path]:
    """Write ``qrels_<setting>_<direction>.txt`` and ``run_<method>_seed<k>_<setting>_<direction>.txt``.

    Args:
        folder: the data set's folder.
        dataset: its name.
        settings, directions: which files there are.
        similarity: method and seed → its matrix.
        target: folder of the files.
        depth: documents per query, see :func:`rewind.evaluation.trec.run`.

    Raises:
        RewindError: from :func:`rewind.evaluation.trec.task`; for a matrix whose captions or items are not in the test
            split; or where runs were asked different queries.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    written: list[Path] = []
    judged: dict[str, pa.Table] = {}
    for (method, seed), path in similarity.items():
        scores, rows, columns = _read(path, captions, items)
        queries, gallery = rows["caption_id"].to_numpy(), columns["item_id"].to_numpy()
        whole = len(gallery) >= len(items)
        lacking = {} if whole else not_evaluated(queries, gallery, captions, items, settings, path)
        there = [setting for setting in settings if setting not in lacking]
        silent = not_scored(scores, rows, columns, there, directions)
        for setting in there:
            for direction in (way for way in directions if not reason(silent, setting, way)):
                alike = among_originals(setting) if lacking else setting
                asked, name = task(scores, rows, columns, alike, direction, path), f"{setting}_{direction}"
                right = qrels(asked)
                if name not in judged:
                    judged[name] = right
                    written.append(write(target / f"qrels_{name}.txt", [right]))
                elif not right.equals(judged[name]):
                    raise RewindError(
                        f"{path}: its queries or their answers differ from those of {next(iter(similarity.values()))} "
                        f"({setting}, {direction}); evaluate both again."
                    )
                tag = f"{method}_seed{seed}"
                written.append(write(target / f"run_{tag}_{name}.txt", run(asked, tag, depth)))
    return written


def _read(path: str, captions: pd.DataFrame, items: pd.DataFrame) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """The matrix, and the captions and items of its rows and columns."""
    require_regular_file(path, missing_ok=True)
    if not Path(path).is_file():
        raise RewindError(f"{path}: no such file; evaluate this run first.")
    with reading_user_file(path, "npz", "evaluate this run again"), np.load(path, allow_pickle=False) as archive:
        scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
    found = []
    for table, column, names in ((captions, "caption_id", queries), (items, "item_id", gallery)):
        strange = np.setdiff1d(names, table[column].to_numpy(dtype=str))
        if len(strange):
            kind = column.removesuffix("_id")
            raise RewindError(
                f"{path}: the {kind} {str(strange[0])!r} is not in the test split; evaluate this run again."
            )
        found.append(table.set_index(column, drop=False).loc[names])
    return scores, *found


def write(path: Path, tables: Iterable[pa.Table]) -> Path:
    """Write tables of equal columns below each other, atomically: blanks between columns, no heading."""
    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    tables = iter(tables)
    first = next(tables)
    with atomic(path) as draft, csv.CSVWriter(draft, first.schema, write_options=options) as writer:
        writer.write(first)
        for table in tables:
            writer.write(table)
    return path
