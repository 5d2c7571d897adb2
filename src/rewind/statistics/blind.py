"""Accuracy in Binary beyond baselines that see too little to answer it (:mod:`rewind.models.blind`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.chance import ALL_TIED, tied_percent
from rewind.statistics.inference import Inference, family_p_value, holm_adjusted
from rewind.statistics.pairs import RandomFactors, compare_pair

BLIND_COLUMNS = (
    *("method", "best", "setting", "direction", "metric", "estimate", "blind", "difference", "low", "low_of", "high"),
    *("p", "p_of", "p_holm", "family", "procedure", "clusters", "df"),
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
        accuracy there, ``blind`` its accuracy, and ``difference`` what the method has more. The interval is that of
        what it has more than the truly best of them, over all baselines, as the test is; ``low_of`` and ``p_of`` are
        the baselines that decide its lower end and p. Methods that tie every query in every run are not tested.
    """
    rows = []
    for block in rank_blocks(_in_binary(runs), left_out):
        baselines = [name for name in blind if name in block.higher]
        methods = [name for name in compared if name in block.higher and baselines]
        # What ties every query in every run cannot know, as in the test against chance: it is no member of the family.
        family = [name for name in methods if tied_percent(block, name) < ALL_TIED]
        found = {name: _beyond(block, name, baselines, confidence, random, len(family)) for name in methods}
        adjusted = dict(zip(family, holm_adjusted(np.array([found[name][1] for name in family])), strict=True))
        for name, (row, _) in found.items():
            p = {"p_holm": adjusted[name]} if name in adjusted else {"p": np.nan, "p_holm": np.nan}
            rows.append(row | p | {"family": len(family)})
    return pd.DataFrame(rows, columns=list(BLIND_COLUMNS))


def _in_binary(runs: RunRanks) -> RunRanks:
    binary = {m: {s: table[table["setting"] == "binary"] for s, table in seeds.items()} for m, seeds in runs.items()}
    return {method: seeds for method, seeds in binary.items() if all(len(table) for table in seeds.values())}


def _beyond(
    block: RankBlock,
    method: str,
    baselines: Sequence[str],
    confidence: float,
    random: RandomFactors,
    family: int,
) -> tuple[dict[str, object], float]:
    """A method's row, and its p-value as one of a family of tests."""
    totals = {name: block.totals(name, (ACCURACY_METRIC,))[0] for name in (method, *baselines)}
    estimates = {name: float(total.mean(axis=0).sum() / len(block.queries)) for name, total in totals.items()}

    def compare(baseline: str, confidence: float) -> tuple[Inference, str]:
        return compare_pair(totals, (method, baseline), block.clusters.sizes, confidence, random, 100.0)

    results = {name: compare(name, confidence)[0] for name in baselines}
    # What the method has more than the *best* baseline is the smallest of its differences, so the interval of that is
    # from the smallest lower end to the smallest upper end. The lower end holds at α, since it must err for the one
    # baseline that is truly best; any of B upper ends may be the smallest, so each has the level α/B.
    lowest = min(baselines, key=lambda name: float(results[name].low))
    high = min(float(compare(name, 1 - (1 - confidence) / len(baselines))[0].high) for name in baselines)
    # Two-sided p-values, as everywhere; a method that is not above a baseline is not shown to be.
    p, family_p = (
        {name: float(value(result)) if result.estimate > 0 else 1.0 for name, result in results.items()}
        for value in (lambda result: result.p, lambda result: family_p_value(result, family))
    )
    closest = max(baselines, key=lambda name: np.nan_to_num(p[name], nan=np.inf))
    _, procedure = compare(closest, confidence)
    best = max(baselines, key=estimates.__getitem__)
    return {
        "method": method,
        "best": best,
        "setting": block.setting,
        "direction": block.direction,
        "metric": ACCURACY_METRIC,
        "estimate": estimates[method],
        "blind": estimates[best],
        "difference": float(results[best].estimate),
        "low": float(results[lowest].low),
        "low_of": lowest,
        "high": high,
        "p": p[closest],  # NaN where one of them is: a trained method with one seed cannot claim anything
        "p_of": closest,
        "procedure": procedure,
        "clusters": len(block.clusters.sizes),
        "df": float(results[closest].df),
    }, float(np.max([*family_p.values()]))
