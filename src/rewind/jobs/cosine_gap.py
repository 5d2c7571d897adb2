"""Cosines of runs, cosine gaps with intervals and tests, and what is drawn and said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.evaluation import cosine_gap as evaluation
from rewind.evaluation.cosine_gap import EDGES, INDEPENDENT, PAIRED, Gap, cosine_matrices
from rewind.evaluation.ranking import RECALLS, rank_table, scores
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_csv, write_npz
from rewind.jobs.given import Given
from rewind.jobs.metrics import Run
from rewind.jobs.model_data import data_folder
from rewind.jobs.unpack import by_run, pairs_of
from rewind.statistics.cosine_gaps import compare_gaps
from rewind.statistics.pairs import Random
from rewind.study.report import Statistics

SPLITS = ("valid", "test")
RUNS = ("method", "seed", "split", "scoring", "captions", "items", "gap", "positive", "negative", *RECALLS)
COUNTS = ("method", "seed", "split", "scoring", "low", "high", "positives", "negatives")


def cosines(given: Given) -> None:
    """Rule ``cosines``."""
    compute_cosines(data_folder(given), given.input.model, given.output[0])


def cosine_gap(given: Given) -> None:
    """Rule ``cosine_gap``."""
    params, output = given.params, given.output
    compute_cosine_gap(
        Path(given.input.item_table).parent,
        params.dataset,
        by_run(given, given.input.cosines),
        pairs_of(given),
        Statistics(**params.settings),
        Random.of(params.random),
        output.table,
        output.intervals,
        output.pairs,
        output.counts,
    )


def compute_cosines(data: DataFolder, model: str, result: str) -> None:
    """Write ``<split>_<scoring>`` float32 (captions, items), ``<split>_query_ids`` and ``<split>_item_ids``.

    Items without a caption take no part. A method that compares no vectors has ids alone.
    """
    retriever = trained_retriever(data, model)
    data.check_tower(retriever)
    arrays = {}
    for name in SPLITS:
        items, captions, _ = load_split(data.folder, data.dataset, name)
        items = items[items["item_id"].isin(captions["video_id"])].reset_index(drop=True)
        split = data.prepare(items, captions, retriever)
        place = pd.Series(np.arange(len(items)), index=items["item_id"])
        own = place[captions["video_id"]].to_numpy()
        keys = data.spec.evaluation
        found = cosine_matrices(retriever, split.text, split.inputs, own, keys, device(), split.workers)
        arrays |= {f"{name}_{scoring}": matrix for scoring, matrix in found.items()}
        arrays[f"{name}_query_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays[f"{name}_item_ids"] = items["item_id"].to_numpy(dtype=str)
    write_npz(result, **arrays)


def compute_cosine_gap(
    folder: Path,
    dataset: str,
    files: dict[Run, str],
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: Random,
    table: str,
    intervals: str,
    differences: str,
    counts: str,
) -> None:
    """Write the gap of every run, intervals of every method, differences of every declared pair, and counts of cosines.

    R@k stands beside each gap: captions search all items of the split by the same cosines.
    """
    rows, bins, found, clusters = [], [], {}, {}
    for split in SPLITS:
        items, captions, _ = load_split(folder, dataset, split)
        items, captions = items.set_index("item_id", drop=False), captions.set_index("caption_id", drop=False)
        for run, path, scoring, matrix, queries, gallery in _matrices(files, split):
            these, those = captions.loc[queries], items.loc[gallery]
            own, mine = _clusters(these, those)
            clusters[split] = mine[own], mine
            gap = evaluation.cosine_gap(matrix, own, mine, f"{path}: {split}, {scoring}")
            found.setdefault((split, scoring), {}).setdefault(run[0], []).append(gap)
            place = {"method": run[0], "seed": run[1], "split": split, "scoring": scoring}
            rows.append(place | _row(gap, matrix, these, those, path))
            bins.append(_counted(gap, place))
    intervals_table, pairs_table = compare_gaps(found, clusters, pairs, keys.confidence, random)
    write_csv(table, pd.DataFrame(rows, columns=list(RUNS)))
    write_csv(intervals, intervals_table)
    write_csv(differences, pairs_table)
    write_csv(counts, pd.concat(bins) if bins else pd.DataFrame(columns=list(COUNTS)))


def _matrices(files: dict[Run, str], split: str) -> Iterator[tuple[Any, ...]]:
    """Every run's matrices of a split, with its query and item ids; one at a time in memory."""
    for scoring in (INDEPENDENT, PAIRED):
        for run, path in files.items():
            with np.load(path, allow_pickle=False) as archive:
                if f"{split}_{scoring}" in archive.files:
                    names = (f"{split}_{scoring}", f"{split}_query_ids", f"{split}_item_ids")
                    yield run, path, scoring, *(archive[name] for name in names)


def _clusters(captions: pd.DataFrame, items: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Row of each caption's item, and cluster of each item counted from 0."""
    place = pd.Series(np.arange(len(items)), index=items["item_id"])
    return place[captions["video_id"]].to_numpy(), pd.factorize(items["cluster_id"])[0]


def _row(gap: Gap, matrix: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, path: str) -> dict[str, Any]:
    ranks = rank_table(matrix, captions, items, ["test"], ["text_to_item"], path)
    found = scores(ranks)
    means = {"gap": gap.gap, "positive": gap.positive.mean(), "negative": gap.negative.mean()}
    return {"captions": len(captions), "items": len(items)} | means | {name: found[name] for name in RECALLS}


def _counted(gap: Gap, place: dict[str, Any]) -> pd.DataFrame:
    table = pd.DataFrame({"low": EDGES[:-1], "high": EDGES[1:], "positives": gap.counts[0], "negatives": gap.counts[1]})
    table = table[(table["positives"] > 0) | (table["negatives"] > 0)].round({"low": 2, "high": 2})
    return table.assign(**place)[list(COUNTS)]
