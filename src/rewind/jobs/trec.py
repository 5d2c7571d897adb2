"""Qrels and runs of a study as TREC files, for other evaluation tools."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from rewind.data.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation.ranking import setting_without_twins, unscored_reason, unscored_settings
from rewind.evaluation.trec import RUN_DEPTH, make_retrieval_task, qrels_table, run_tables
from rewind.io.files import atomic_write, reading_user_file, require_regular_file
from rewind.jobs.inputs import files_by_run
from rewind.jobs.metrics import RunKey, not_evaluated
from rewind.workflow.job import Job


def trec(job: Job) -> None:
    """Rule ``trec``."""
    params, folder = job.params, Path(job.input.item_table).parent
    similarity = files_by_run(job, job.input.similarity)
    export_trec(folder, params.dataset, params.settings, params.directions, similarity, Path(job.output.files))


def export_trec(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: dict[RunKey, str],
    target: Path,
    depth: int = RUN_DEPTH,
) -> list[Path]:
    """Write ``qrels_<setting>_<direction>.txt`` and ``run_<method>_seed<k>_<setting>_<direction>.txt``.

    Args:
        folder: the data set's folder.
        dataset: its name.
        settings, directions: which files there are.
        similarity: method and seed → its matrix.
        target: folder of the files.
        depth: documents per query, see :func:`rewind.evaluation.trec.run_tables`.

    Returns:
        The files, in the order in which they were written.

    Raises:
        RewindError: from :func:`rewind.evaluation.trec.make_retrieval_task`; for a matrix whose captions or items are
            not in the test split; or where runs have different queries.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    written: list[Path] = []
    qrels: dict[str, pa.Table] = {}
    for (method, seed), path in similarity.items():
        scores, rows, columns = _read_similarity(path, captions, items)
        queries, gallery = rows["caption_id"].to_numpy(), columns["item_id"].to_numpy()
        is_complete = len(gallery) >= len(items)
        reasons = {} if is_complete else not_evaluated(queries, gallery, captions, items, settings, path)
        evaluated = [setting for setting in settings if setting not in reasons]
        unscored = unscored_settings(scores, rows, columns, evaluated, directions)
        for setting in evaluated:
            for direction in (way for way in directions if not unscored_reason(unscored, setting, way)):
                task_setting = setting_without_twins(setting) if reasons else setting
                task, name = (
                    make_retrieval_task(scores, rows, columns, task_setting, direction, path),
                    f"{setting}_{direction}",
                )
                relevance = qrels_table(task)
                if name not in qrels:
                    qrels[name] = relevance
                    written.append(write_trec_tables(target / f"qrels_{name}.txt", [relevance]))
                elif not relevance.equals(qrels[name]):
                    raise RewindError(
                        f"{path}: its queries or their answers differ from those of {next(iter(similarity.values()))} "
                        f"({setting}, {direction}); evaluate both again."
                    )
                tag = f"{method}_seed{seed}"
                written.append(write_trec_tables(target / f"run_{tag}_{name}.txt", run_tables(task, tag, depth)))
    return written


def _read_similarity(
    path: str, captions: pd.DataFrame, items: pd.DataFrame
) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
    """The matrix, and the captions and items of its rows and columns."""
    require_regular_file(path, missing_ok=True)
    if not Path(path).is_file():
        raise RewindError(f"{path}: no such file; evaluate this run first.")
    with reading_user_file(path, "npz", "evaluate this run again"), np.load(path, allow_pickle=False) as archive:
        scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
    selected = []
    for table, column, names in ((captions, "caption_id", queries), (items, "item_id", gallery)):
        unknown = np.setdiff1d(names, table[column].to_numpy(dtype=str))
        if len(unknown):
            kind = column.removesuffix("_id")
            raise RewindError(
                f"{path}: the {kind} {str(unknown[0])!r} is not in the test split; evaluate this run again."
            )
        selected.append(table.set_index(column, drop=False).loc[names])
    return scores, *selected


def write_trec_tables(path: Path, tables: Iterable[pa.Table]) -> Path:
    """Write tables of equal columns one after the other, atomically: columns separated by a blank, no header."""
    options = csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    tables = iter(tables)
    head = next(tables)
    with atomic_write(path) as temporary, csv.CSVWriter(temporary, head.schema, write_options=options) as writer:
        writer.write(head)
        for table in tables:
            writer.write(table)
    return path
