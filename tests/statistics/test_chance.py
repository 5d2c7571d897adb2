"""Accuracy against chance: the test is that of the interval, keeps its level, and leaves out who ties every clip."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rank_rows import ranks
from rewind.config.report import Statistics
from rewind.statistics.chance import ALL_TIED, CHANCE_COLUMNS, MIN_TESTED_CLUSTERS, against_chance
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.inference import mean_inference
from rewind.statistics.pairs import ALL_RANDOM, RandomFactors
from rewind.statistics.simulation import Design, cluster_totals, draw_ranks
from rewind.statistics.variance import Clusters, variance_components

KEYS = Statistics(resamples=100)


def accuracy(values, ids=None, fixed=False, confidence=0.95):
    """The accuracy of one method, values in percent (S, Q), and its p-value."""
    values = np.asarray(values, dtype=float)
    clusters = Clusters.of(np.arange(values.shape[-1]) if ids is None else ids)
    components = variance_components(clusters.totals(values), clusters.sizes, fixed)
    result = mean_inference(components, confidence, least=0, most=100)
    return result, against_chance(result, len(clusters.sizes)).p


def binary(right, ties=0):
    """A rank table of Binary: ``right`` of each query, in clusters of their own; ``ties`` of each query or of all."""
    right = np.asarray(right, dtype=int)
    return ranks(1 - right, clusters=[f"c{i:04}" for i in range(len(right))], setting="binary", ties=ties)


def chance_table(runs, compared=None, random=ALL_RANDOM):
    found = compare_methods(runs, [], KEYS, random, list(runs) if compared is None else compared)
    return found.chance.set_index("method")


# ---- The p-value ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hits", [12, 24, 25, 38])
def test_one_fixed_model_is_the_one_sample_t_test_with_the_error_under_chance(hits):
    """V·¼/(p(1 − p)) instead of V, which is small near 0 and 100% (docs/statistics.md)."""
    right = 100.0 * np.repeat([1, 0], [hits, 50 - hits])
    want = stats.ttest_1samp(right, 50)
    share = hits / 50
    assert accuracy(right[None], fixed=True)[1] == pytest.approx(
        2 * stats.t.sf(abs(want.statistic) * np.sqrt(4 * share * (1 - share)), 49)
    )


def test_many_queries_are_the_chi_squared_test_of_two_choices():
    for hits in (5000, 5090, 5150):
        right = 100.0 * np.repeat([1, 0], [hits, 10_000 - hits])
        assert accuracy(right[None], fixed=True)[1] == pytest.approx(
            stats.chisquare([hits, 10_000 - hits]).pvalue, rel=5e-3
        )


def test_alike_queries_leave_the_t_test_over_seeds():
    """Every query is worth its seed's accuracy, so that seeds are all of the variance."""
    seeds = np.array([58.0, 63.0, 71.0, 60.0])
    share = seeds.mean() / 100
    want = stats.ttest_1samp(seeds, 50)
    result, p = accuracy(np.repeat(seeds[:, None], 40, axis=1))
    assert result.df == pytest.approx(3)
    assert p == pytest.approx(2 * stats.t.sf(want.statistic * np.sqrt(4 * share * (1 - share)), 3))


def test_all_right_and_all_wrong_are_the_sign_test_over_clusters():
    for value in (0.0, 100.0):
        assert accuracy(np.full((3, 24), value), np.arange(24) // 2)[1] == pytest.approx(stats.binomtest(12, 12).pvalue)
    assert accuracy(np.full((3, 24), 50.0))[1] == 1


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99]), st.floats(0.2, 0.8))
def test_p_is_below_the_level_where_the_interval_excludes_chance(seed, seeds, confidence, share):
    rng = np.random.default_rng(seed)
    right = 100.0 * (rng.random((seeds, 40)) + 0.4 * rng.random(40) < share + 0.2 + 0.1 * rng.random((seeds, 1)))
    result, p = accuracy(right, np.sort(rng.integers(0, 15, 40)), confidence=confidence)
    assert bool(p < 1 - confidence) == bool(result.low > 50 or result.high < 50)


def rate_of_false_calls(clusters, seeds, seed_sd):
    """Share of 4,000 studies of a method at chance in which it is called; its standard error is 0.0035 at most."""
    design = Design(seeds=seeds, queries=2 * clusters, seed_sd=seed_sd, r1=50, methods=1)
    right = 100.0 * (draw_ranks(design, 4000, np.random.default_rng(1))[:, 0] <= 1)
    totals = cluster_totals(design, right)
    components = variance_components(totals, np.full(clusters, 2))
    p = against_chance(mean_inference(components, 0.95, least=0, most=100), clusters).p
    return (p < 0.05).mean()


@pytest.mark.parametrize(("clusters", "least"), [(MIN_TESTED_CLUSTERS, 0), (120, 0.03)])
@pytest.mark.parametrize(("seeds", "seed_sd"), [(2, 0), (2, 4), (3, 0), (3, 4), (3, 15), (5, 4), (5, 15)])
def test_the_level_is_kept(clusters, least, seeds, seed_sd):
    """Seeds differ by nothing, or by up to 15 points, as the demo's most uneven method."""
    assert least <= rate_of_false_calls(clusters, seeds, seed_sd) <= 0.065


def test_two_seeds_that_differ_much_err_as_often_as_the_documentation_says():
    assert 0.065 <= rate_of_false_calls(120, 2, 15) <= 0.11


def test_holm_keeps_the_family():
    """Of four methods at chance in one study, any is called in at most 5% of studies."""
    design = Design(seeds=3, queries=80, cluster=1, seed_sd=2, r1=50, methods=4)
    called = []
    for right in draw_ranks(design, 400, np.random.default_rng(3)) <= 1:
        runs = {f"m{m}": {s: binary(right[m, s]) for s in range(3)} for m in range(4)}
        called.append((chance_table(runs)["p_holm"] < 0.05).any())
    assert np.mean(called) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 400)


# ---- The table -----------------------------------------------------------------------------------------------------


def some_runs(methods, seeds=3, queries=60, share=0.7, start=0):
    rng = np.random.default_rng(start)
    return {m: {s: binary(rng.random(queries) < share) for s in range(seeds)} for m in methods}


def test_estimates_and_intervals_are_those_of_intervals_csv():
    runs = some_runs("ab")
    found = compare_methods(runs, [], KEYS, ALL_RANDOM, ["a", "b"])
    assert tuple(found.chance.columns) == CHANCE_COLUMNS
    want = found.intervals[found.intervals["metric"] == "R@1"].reset_index(drop=True)
    shared = ["method", "setting", "direction", "metric", "seeds", "queries", "clusters", "estimate", "low", "high"]
    assert found.chance[[*shared, "procedure"]].equals(want[[*shared, "procedure"]])
    assert (found.chance["chance"] == 50).all()


def test_who_ties_every_clip_is_not_tested_and_does_not_count():
    """It comes from the ranks: a name says nothing, and a single query that is told apart is tested."""
    tied = {s: binary(np.ones(60), ties=1) for s in range(3)}
    once = dict(tied) | {2: binary(np.ones(60), ties=[0] + 59 * [1])}
    table = chance_table(some_runs(["meanP", "seqLSTM"]) | {"order-blind": tied, "once": once})
    assert table["tied"].to_dict() == pytest.approx(
        {"meanP": 0, "seqLSTM": 0, "order-blind": ALL_TIED, "once": 100 * 179 / 180}
    )
    assert table["tied"]["order-blind"] == ALL_TIED and table["estimate"]["order-blind"] == 50
    assert table[["p", "p_holm"]].isna().loc["order-blind"].all() and table["family"]["order-blind"] == 0
    assert (table["family"].drop("order-blind") == 3).all() and table["p"]["once"] > 0.3


def test_holm_runs_over_the_compared_methods():
    runs = {m: dict.fromkeys(range(3), binary(np.arange(60) < n)) for m, n in (("a", 54), ("b", 38), ("bow", 54))}
    runs["chance"] = {0: binary(np.ones(60), ties=1)}
    table = chance_table(runs, ["a", "b"], RandomFactors(frozenset({"chance"}), frozenset({"chance"})))
    p = table["p"]
    assert p["a"] < p["b"] and table["p_holm"].to_dict() == pytest.approx(
        {"a": 2 * p["a"], "b": p["b"], "bow": np.nan, "chance": np.nan}, nan_ok=True
    )
    assert table["family"].to_dict() == {"a": 2, "b": 2, "bow": 0, "chance": 0} and np.isnan(p["bow"])
    assert table["low"]["chance"] == table["high"]["chance"] == 50


def test_one_seed_has_no_p_and_counts_and_a_fixed_model_has_one():
    runs = some_runs("a") | some_runs(["one", "fixed"], seeds=1)
    table = chance_table(runs, random=RandomFactors(frozenset({"fixed"})))
    assert table["p_holm"].isna().to_dict() == {"a": False, "one": True, "fixed": False}
    assert (table["family"] == 3).all() and table["procedure"]["one"] == "queries only, this checkpoint"


def test_few_clusters_are_not_tested():
    table = chance_table(some_runs("a", queries=MIN_TESTED_CLUSTERS - 1, share=1.0))
    assert table["p"].isna().all() and (table["family"] == 0).all()
    assert chance_table(some_runs("a", queries=MIN_TESTED_CLUSTERS, share=1.0))["p"]["a"] == pytest.approx(2 / 2**10)


def test_other_settings_are_not_tested():
    assert compare_methods({"a": {s: ranks(np.arange(20) % 2) for s in range(2)}}, [], KEYS).chance.empty
