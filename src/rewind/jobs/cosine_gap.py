"""Cosine gaps of runs (mean cosine of matching pairs minus that of others), with intervals, tests and histograms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.report import Statistics
from rewind.data.captions import load_split
from rewind.evaluation import cosine_gap as evaluation
from rewind.evaluation.cosine_gap import COSINE_BIN_EDGES, INDEPENDENT, PAIR_CONDITIONED, CosineGap, cosine_matrices
from rewind.evaluation.ranking import RECALL_CUTOFFS, rank_table, validation_scores
from rewind.io.files import write_csv, write_npz
from rewind.jobs.inputs import build_run_data, files_by_run, job_pairs
from rewind.jobs.metrics import RunKey
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.statistics.cosine_gaps import compare_gaps
from rewind.statistics.pairs import RandomFactors
from rewind.workflow.job import Job

GAP_SPLITS = ("valid", "test")
RUN_COLUMNS = (
    "method",
    "seed",
    "split",
    "scoring",
    "captions",
    "items",
    "gap",
    "positive",
    "negative",
    *RECALL_CUTOFFS,
)
COUNT_COLUMNS = ("method", "seed", "split", "scoring", "low", "high", "positives", "negatives")


def cosines(job: Job) -> None:
    """Rule ``cosines``."""
    compute_cosines(build_run_data(job), job.input.model, job.output[0])


def cosine_gap(job: Job) -> None:
    """Rule ``cosine_gap``."""
    params, output = job.params, job.output
    compute_cosine_gap(
        Path(job.input.item_table).parent,
        params.dataset,
        files_by_run(job, job.input.cosines),
        job_pairs(job),
        Statistics(**params.settings),
        RandomFactors.of(params.random),
        output.table,
        output.intervals,
        output.pairs,
        output.counts,
    )


def compute_cosines(data: RunData, model: str, result: str) -> None:
    """Write an npz: ``<split>_<scoring>`` float32 (captions, items), ``<split>_query_ids`` and ``<split>_item_ids``.

    Items without a caption are left out. A method that compares no vectors gets ids alone.
    """
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    arrays: dict[str, np.ndarray] = {}
    for split_name in GAP_SPLITS:
        items, captions, _ = load_split(data.folder, data.dataset, split_name)
        items = items[items["item_id"].isin(captions["video_id"])].reset_index(drop=True)
        split = data.prepare(items, captions, retriever)
        row = pd.Series(np.arange(len(items)), index=items["item_id"])
        item_of_caption = row[captions["video_id"]].to_numpy()
        keys = data.spec.evaluation
        matrices = cosine_matrices(
            retriever, split.text, split.inputs, item_of_caption, keys, job_device(), split.workers
        )
        arrays |= {f"{split_name}_{scoring}": matrix for scoring, matrix in matrices.items()}
        arrays[f"{split_name}_query_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays[f"{split_name}_item_ids"] = items["item_id"].to_numpy(dtype=str)
    write_npz(result, **arrays)


def compute_cosine_gap(
    folder: Path,
    dataset: str,
    files: dict[RunKey, str],
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: RandomFactors,
    table: str,
    intervals: str,
    pair_table: str,
    counts: str,
) -> None:
    """Write the gap of every run, intervals of every method, differences of every declared pair, and counts of cosines.

    Each row of a run also has R@k: captions search all items of the split by the same cosines.

    Args:
        folder, dataset: the data set's results folder and name.
        files: the run's npz of :func:`compute_cosines`, by method and seed.
        pairs: methods that are compared.
        keys: ``statistics`` of the study.
        random: over which factors (seeds, clips) intervals generalise.
        table, intervals, pair_table, counts: CSV files that are written.
    """
    run_rows, histograms = [], []
    gaps: dict[tuple[str, str], dict[str, list[CosineGap]]] = {}  # (split, scoring) → method → a gap for each seed
    clusters = {}
    for split in GAP_SPLITS:
        items, captions, _ = load_split(folder, dataset, split)
        items, captions = items.set_index("item_id", drop=False), captions.set_index("caption_id", drop=False)
        for run, path, scoring, matrix, queries, gallery in _read_matrices(files, split):
            split_captions, split_items = captions.loc[queries], items.loc[gallery]
            item_of_caption, cluster_of_item = _item_clusters(split_captions, split_items)
            clusters[split] = cluster_of_item[item_of_caption], cluster_of_item
            gap = evaluation.measure_cosine_gap(matrix, item_of_caption, cluster_of_item, f"{path}: {split}, {scoring}")
            gaps.setdefault((split, scoring), {}).setdefault(run[0], []).append(gap)
            run_columns = {"method": run[0], "seed": run[1], "split": split, "scoring": scoring}
            run_rows.append(run_columns | _gap_row(gap, matrix, split_captions, split_items, path))
            histograms.append(_cosine_histogram(gap, run_columns))
    intervals_table, pairs_table = compare_gaps(gaps, clusters, pairs, keys.confidence, random)
    write_csv(table, pd.DataFrame(run_rows, columns=list(RUN_COLUMNS)))
    write_csv(intervals, intervals_table)
    write_csv(pair_table, pairs_table)
    write_csv(counts, pd.concat(histograms) if histograms else pd.DataFrame(columns=list(COUNT_COLUMNS)))


def _read_matrices(files: dict[RunKey, str], split: str) -> Iterator[tuple[Any, ...]]:
    """Every run's matrices of a split, with its query and item ids; one at a time in memory."""
    for scoring in (INDEPENDENT, PAIR_CONDITIONED):
        for run, path in files.items():
            with np.load(path, allow_pickle=False) as archive:
                if f"{split}_{scoring}" in archive.files:
                    names = (f"{split}_{scoring}", f"{split}_query_ids", f"{split}_item_ids")
                    yield run, path, scoring, *(archive[name] for name in names)


def _item_clusters(captions: pd.DataFrame, items: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Row of each caption's item, and cluster of each item counted from 0."""
    row = pd.Series(np.arange(len(items)), index=items["item_id"])
    return row[captions["video_id"]].to_numpy(), pd.factorize(items["cluster_id"])[0]


def _gap_row(
    gap: CosineGap, matrix: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, path: str
) -> dict[str, Any]:
    ranks = rank_table(matrix, captions, items, ["test"], ["text_to_item"], path)
    scores = validation_scores(ranks)
    means = {"gap": gap.gap, "positive": gap.positive.mean(), "negative": gap.negative.mean()}
    return {"captions": len(captions), "items": len(items)} | means | {name: scores[name] for name in RECALL_CUTOFFS}


def _cosine_histogram(gap: CosineGap, run_columns: dict[str, Any]) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "low": COSINE_BIN_EDGES[:-1],
            "high": COSINE_BIN_EDGES[1:],
            "positives": gap.counts[0],
            "negatives": gap.counts[1],
        }
    )
    table = table[(table["positives"] > 0) | (table["negatives"] > 0)].round({"low": 2, "high": 2})
    return table.assign(**run_columns)[list(COUNT_COLUMNS)]
