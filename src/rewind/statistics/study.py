"""Intervals, tests and gaps between methods from rank tables; the same by group of captions."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rewind.config.report import Statistics, Verdict
from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.io.files import read_csv, write_csv
from rewind.statistics.comparisons import compare_methods, gap_shrinkage
from rewind.statistics.groups import results_by_group
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import read_not_evaluated, read_ranks

# ---- Groups of test captions, and results in each group ------------------------------------------------------------


def compute_group_results(
    runs: list[RunKey],
    ranks: str,
    folder: Path,
    dataset: str,
    groups_file: str,
    deciding: dict[str, str],
    confidence: float,
    random: RandomFactors,
    compared: list[str],
    result: str,
) -> None:
    """Write ``statistics/groups.csv``: a row per method, setting, direction and group."""
    group_of_query = group_of_queries(
        read_csv(groups_file, text=("caption_id", "group")), load_split(folder, dataset, "test").captions
    )
    tables, not_evaluated = read_ranks(runs, ranks), read_not_evaluated(runs, ranks)
    write_csv(result, results_by_group(tables, group_of_query, deciding, confidence, random, compared, not_evaluated))


def group_of_queries(group_table: pd.DataFrame, captions: pd.DataFrame) -> dict[str, str]:
    """Query → group: of a caption its own, of an item that of its captions, where all of them have the same.

    >>> captions = pd.DataFrame({"caption_id": ["c1", "c2", "c3"], "video_id": ["a", "b", "b"]})
    >>> group_of_queries(pd.DataFrame({"caption_id": ["c1", "c2", "c3"], "group": ["x", "x", "y"]}), captions)
    {'c1': 'x', 'c2': 'x', 'c3': 'y', 'a': 'x'}
    """
    group_of_caption = dict(zip(group_table["caption_id"], group_table["group"], strict=True))
    groups_by_item = captions.assign(group=captions["caption_id"].map(group_of_caption)).groupby(
        "video_id", sort=False
    )["group"]
    group_of_item = groups_by_item.agg(lambda own: own.iloc[0] if own.notna().all() and own.nunique() == 1 else "")
    return group_of_caption | {item: group for item, group in group_of_item.items() if group}


# ---- Intervals and tests; the verdict's control --------------------------------------------------------------------
# The control compares gaps between methods with those between their counterparts: how much smaller are they there?


def compute_statistics(
    runs: list[RunKey],
    ranks: str,
    pairs: list[tuple[str, str]],
    keys: Statistics,
    random: RandomFactors,
    intervals: str,
    differences: str,
    gaps: str,
    places: str,
    chance: str,
    compared: list[str],
) -> None:
    """Write intervals, comparisons of declared pairs, gaps between Origin and Hard, ranks, and tests against chance."""
    results = compare_methods(read_ranks(runs, ranks), pairs, keys, random, compared, read_not_evaluated(runs, ranks))
    write_csv(intervals, results.intervals)
    write_csv(differences, results.pairs)
    write_csv(gaps, results.gaps)
    write_csv(places, results.ranks)
    write_csv(chance, results.chance)


def compute_control(
    runs: list[RunKey], ranks: str, keys: Verdict, setting: str, confidence: float, result: str
) -> None:
    """Write ``statistics/control.csv``; ``runs`` are those of the verdict's methods and of their counterparts."""
    tables = read_ranks(runs, ranks)
    write_csv(result, gap_shrinkage(tables, keys.baseline, keys.methods, keys.control, setting, confidence))
