"""Accuracy beyond blind baselines: better than the best is better than each, and what ties everything is not tested."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rank_rows import ranks
from rewind.analyses.blind import blind_table
from rewind.statistics.pairs import RandomFactors, compare_pair
from rewind.statistics.variance import Clusters

QUERIES = 60


def runs(**shares: float | None) -> dict:
    """Method → two seeds of ranks in Binary, with this share of hits; None: every query ties."""
    made = {}
    for number, (method, share) in enumerate(shares.items()):
        seeds = {}
        for seed in (0, 1):
            rng = np.random.default_rng([number, seed])
            miss = np.zeros(QUERIES, int) if share is None else (rng.random(QUERIES) > share).astype(int)
            seeds[seed] = ranks(miss, setting="binary", ties=int(share is None)).assign(gallery=2)
        made[method] = seeds
    return made


def test_the_p_value_is_the_largest_of_those_against_each_baseline():
    made = runs(good=0.95, words=0.6, clips=0.75)
    table = blind_table(made, ["words", "clips"], ["good"], 0.95, RandomFactors()).iloc[0]
    first = made["good"][0].sort_values("query_id")
    clusters = Clusters.of(first["cluster_id"].to_numpy())
    totals = {
        method: clusters.totals(np.stack([100.0 * (t.sort_values("query_id")["higher"] == 0) for t in seeds.values()]))
        for method, seeds in made.items()
    }
    p = [
        float(compare_pair(totals, ("good", name), clusters.sizes, 0.95, RandomFactors(), 100.0)[0].p)
        for name in ("words", "clips")
    ]
    assert table["p"] == pytest.approx(max(p)) and table["best"] == "clips" and table["family"] == 1
    assert table["difference"] == pytest.approx(table["estimate"] - table["blind"])


def test_a_method_below_a_baseline_is_not_beyond_it_however_large_the_difference():
    table = blind_table(runs(bad=0.2, clips=0.9), ["clips"], ["bad"], 0.95, RandomFactors()).iloc[0]
    assert table["difference"] < 0 and table["p"] == 1


def test_a_further_baseline_never_helps():
    made = runs(good=0.9, words=0.5, clips=0.6, both=0.8)
    few = blind_table(made, ["words"], ["good"], 0.95, RandomFactors()).iloc[0]
    more = blind_table(made, ["words", "clips", "both"], ["good"], 0.95, RandomFactors()).iloc[0]
    assert more["p"] >= few["p"] and more["difference"] < few["difference"]


def test_methods_that_tie_every_query_are_shown_and_not_tested():
    made = runs(good=0.9, other=0.6, meanP=None, words=0.5)
    table = blind_table(made, ["words"], ["good", "other", "meanP"], 0.95, RandomFactors()).set_index("method")
    assert table["family"].tolist() == [2, 2, 2] and np.isnan(table.loc["meanP", ["p", "p_holm"]].astype(float)).all()
    assert table.loc["meanP", "estimate"] == 50 and table.loc["good", "p_holm"] >= table.loc["good", "p"]


def test_other_settings_and_missing_baselines_leave_no_rows():
    made = {method: {s: t.assign(setting="hard") for s, t in seeds.items()} for method, seeds in runs(a=0.5).items()}
    hard = {m: {s: pd.concat([t, made["a"][s]]) for s, t in seeds.items()} for m, seeds in runs(a=0.9, w=0.5).items()}
    assert set(blind_table(hard, ["w"], ["a"], 0.95, RandomFactors())["setting"]) == {"binary"}
    assert blind_table(hard, [], ["a"], 0.95, RandomFactors()).empty
