"""Accuracy in Binary beyond baselines that see too little to answer it (:mod:`rewind.models.blind`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.chance import ALL_TIED, tied_percent
from rewind.statistics.inference import holm_adjusted
from rewind.statistics.pairs import RandomFactors, compare_pair

BLIND_COLUMNS = (
    *("method", "best", "setting", "direction", "metric", "estimate", "blind", "difference", "low", "high"),
    *("p", "p_holm", "family", "procedure", "clusters", "df"),
)


def blind_table(
    runs: RunRanks,
    blind: Sequence[str],
    compared: Sequence[str],
    confidence: float,
    random: RandomFactors,
    left_out: NotEvaluated | None = None,
) -> pd.DataFrame:
    """Whether each method is more accurate than every blind baseline.

    A method beats the best of several baselines if and only if it beats each of them, so its p-value is the largest of
    those against each (an intersection-union test: Berger, 1982). Nothing has to be chosen on the test split, and
    baselines that are added can only make it harder. Holm's correction runs over the methods.

    Args:
        runs: rank tables of all runs; settings other than Binary are ignored.
        blind: names of the baselines.
        compared: names of the methods that are tested.
        confidence: of the intervals, which are not adjusted.
        random: which factors are random.
        left_out: where methods were deliberately not evaluated.

    Returns:
        Columns :data:`BLIND_COLUMNS`, one row per method and direction. ``best`` is the baseline with the highest
        accuracy there, ``blind`` its accuracy, and ``difference`` what the method has more, with its interval. Methods
        that tie every query in every run are not tested.
    """
    rows = []
    for block in rank_blocks(_in_binary(runs), left_out):
        baselines = [name for name in blind if name in block.higher]
        methods = [name for name in compared if name in block.higher]
        found = [_beyond(block, method, baselines, confidence, random) for method in methods if baselines]
        # What ties every query in every run cannot know, as in the test against chance: it is no member of the family.
        is_tested = [tied_percent(block, str(row["method"])) < ALL_TIED for row in found]
        adjusted = iter(
            holm_adjusted(np.array([row["p"] for row, tested in zip(found, is_tested, strict=True) if tested]))
        )
        for row, tested in zip(found, is_tested, strict=True):
            p = {"p_holm": next(adjusted)} if tested else {"p": np.nan, "p_holm": np.nan}
            rows.append(row | p | {"family": sum(is_tested)})
    return pd.DataFrame(rows, columns=list(BLIND_COLUMNS))


def _in_binary(runs: RunRanks) -> RunRanks:
    binary = {m: {s: table[table["setting"] == "binary"] for s, table in seeds.items()} for m, seeds in runs.items()}
    return {method: seeds for method, seeds in binary.items() if all(len(table) for table in seeds.values())}


def _beyond(
    block: RankBlock, method: str, baselines: Sequence[str], confidence: float, random: RandomFactors
) -> dict[str, object]:
    totals = {name: block.totals(name, (ACCURACY_METRIC,))[0] for name in (method, *baselines)}
    estimates = {name: float(total.mean(axis=0).sum() / len(block.queries)) for name, total in totals.items()}
    best = max(baselines, key=estimates.__getitem__)
    results = {
        name: compare_pair(totals, (method, name), block.clusters.sizes, confidence, random, 100.0)
        for name in baselines
    }
    # Two-sided p-values, as everywhere; a method that is not above a baseline is not shown to be.
    p = [float(result.p) if result.estimate > 0 else 1.0 for result, _ in results.values()]
    result, procedure = results[best]
    return {
        "method": method,
        "best": best,
        "setting": block.setting,
        "direction": block.direction,
        "metric": ACCURACY_METRIC,
        "estimate": estimates[method],
        "blind": estimates[best],
        "difference": float(result.estimate),
        "low": float(result.low),
        "high": float(result.high),
        "p": float(np.max(p)),  # NaN where one of them is: a trained method with one seed cannot claim anything
        "procedure": procedure,
        "clusters": len(block.clusters.sizes),
        "df": float(result.df),
    }
