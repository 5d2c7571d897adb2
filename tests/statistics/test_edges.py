"""Where little varies or nothing does: intervals and tests at 0% and 100%, for few seeds, for models that are fixed."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from rewind.ranking_metrics import median_rank_with_ties
from rewind.statistics.bounds import wilson_interval, zero_variance_p_value
from rewind.statistics.calibration import calibrate
from rewind.statistics.inference import difference_inference, mean_inference, paired_inference
from rewind.statistics.pairs import minimum_detectable_effect
from rewind.statistics.simulation import Design
from rewind.statistics.variance import Clusters, variance_components


def found(values, cluster_ids=None, fixed=False):
    values = np.asarray(values, dtype=float)
    clusters = Clusters.of(np.arange(values.shape[-1]) if cluster_ids is None else cluster_ids)
    return variance_components(clusters.totals(values), clusters.sizes, fixed)


@pytest.mark.parametrize("clusters", [2, 11, 240])
def test_all_right_and_all_wrong_have_clopper_and_pearsons_bounds(clusters):
    for hits, share in ((clusters, 1.0), (0, 0.0)):
        want = stats.binomtest(hits, clusters).proportion_ci(method="exact")
        got = mean_inference(
            found(np.full((3, 2 * clusters), share), np.arange(2 * clusters) // 2), 0.95, least=0, most=1
        )
        assert (got.low, got.high) == pytest.approx((want.low, want.high), abs=1e-12)


def test_wilsons_interval_of_independent_hits():
    hits = np.repeat([1.0, 0.0], [37, 3])
    want = stats.binomtest(37, 40).proportion_ci(method="wilson")
    got = wilson_interval(np.array(37 / 40), hits.var() / 40, stats.norm.ppf(0.975))
    assert got == pytest.approx((want.low, want.high))
    low, high = wilson_interval(np.array([0.5, 0.0, 1.0]), np.full(3, 1e-4), 2.0)
    assert (low <= [0.5, 0, 1]).all() and (high >= [0.5, 0, 1]).all()


def test_identical_methods_are_not_known_to_be_identical():
    hits = np.tile(np.random.default_rng(0).integers(0, 2, 40), (3, 1))
    got = difference_inference(found(hits), found(hits), 0.95, reach=1)
    assert got.estimate == 0 and got.p == 1
    assert (got.low, got.high) == pytest.approx((-got.high, 1 - 0.025 ** (1 / 40)))


def test_all_against_none_is_the_sign_test_over_clusters():
    got = difference_inference(found(np.ones((2, 6))), found(np.zeros((2, 6))), 0.95, reach=1)
    assert got.p == pytest.approx(stats.binomtest(6, 6).pvalue) and got.high == 1 and 0 < got.low < 1
    few = difference_inference(found(np.ones((2, 4))), found(np.zeros((2, 4))), 0.95, reach=1)
    assert few.p == pytest.approx(0.125) and few.low < 0, "four clusters decide nothing"


def test_p_and_interval_agree_where_nothing_varies():
    for size, clusters in product((0.05, 0.3, 1.0), (3, 12, 100)):
        p = float(zero_variance_p_value(np.array(size), np.array(1.0), clusters))
        level = min(1 - p, 1 - 1e-12)
        apart = difference_inference(
            found(np.full((2, clusters), size)), found(np.zeros((2, clusters))), level, reach=1
        )
        assert 0 < p <= 1 and (p in (1, pytest.approx(0, abs=1e-9)) or apart.low == pytest.approx(0, abs=1e-9))


def test_two_seeds_that_hit_different_queries_prove_nothing():
    """2 of 11 against 1 of 11, in both seeds other ones: seeds agree exactly, and the query part comes out negative."""
    a, b = np.zeros((2, 11)), np.zeros((2, 11))
    a[0, :2], a[1, 2:4], b[0, 4], b[1, 5] = 1, 1, 1, 1
    got = difference_inference(found(a), found(b), 0.95, reach=1)
    assert got.estimate == pytest.approx(1 / 11) and got.p > 0.05 and got.low < 0 < got.high
    alone = mean_inference(found(a), 0.95, least=0, most=1)
    assert alone.low < 2 / 11 - 0.05 and alone.high > 2 / 11 + 0.05


def test_no_interval_goes_beyond_what_can_be():
    rng = np.random.default_rng(3)
    for _ in range(50):
        a, b = (rng.random((2, 4)) < p for p in (0.9, 0.1))
        apart, alone = (
            difference_inference(found(a), found(b), 0.95, reach=1),
            mean_inference(found(a), 0.95, least=0, most=1),
        )
        assert -1 <= apart.low < apart.high <= 1 and 0 <= alone.low < alone.high <= 1
        assert apart.p > 0


def test_fixed_models_are_compared_over_clusters_of_queries():
    rng = np.random.default_rng(1)
    ids = np.arange(60) // 2
    a, b, trained = rng.random((1, 60)), rng.random((1, 60)) + 0.1, rng.random((3, 60)) + 0.2
    got = difference_inference(found(a, ids, True), found(b, ids, True), 0.95)
    want = stats.ttest_rel(a.reshape(30, 2).mean(1), b.reshape(30, 2).mean(1))
    assert got.p == pytest.approx(want.pvalue)
    assert (got.low, got.high) == pytest.approx(tuple(want.confidence_interval(0.95)))
    mixed = difference_inference(found(trained, ids), found(b, ids, True), 0.95)
    both = difference_inference(found(trained, ids), found(b, ids), 0.95)
    assert np.isfinite(mixed.p) and np.isnan(both.p), "one run of a method that could be trained again claims nothing"
    assert mixed.variance >= found(trained, ids).seed, "the trained one's seeds stay random"


def test_paired_seeds_are_those_of_the_differences():
    rng = np.random.default_rng(2)
    common = rng.normal(size=(4, 1))  # one pre-training per seed
    a, b = (rng.random((4, 50)) + common for _ in range(2))
    apart = paired_inference(found(a - b), 0.95)
    independent = difference_inference(found(a), found(b), 0.95)
    assert apart.estimate == pytest.approx(independent.estimate) and apart.variance < independent.variance / 10


def test_unequal_seeds_keep_the_degrees_of_freedom_of_the_few():
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=(2, 30)) + np.array([[0.0], [3.0]]), rng.normal(size=(10, 30))
    got = difference_inference(found(few), found(many), 0.95)
    assert got.df < 1.2, "nearly all of the error is between two seeds"


@pytest.mark.parametrize(
    "higher, ties", [([0, 1, 2], [1, 1, 0]), ([0, 0, 3, 4], [2, 1, 0, 1]), ([5], [0]), ([0, 2], [3, 0])]
)
def test_the_median_is_that_of_all_orders_of_ties(higher, ties):
    pooled = [
        1 + h + place
        for orders in product(*(permutations(range(t + 1)) for t in ties))
        for h, (place, *_) in zip(higher, orders, strict=True)
    ]
    assert median_rank_with_ties(np.array(higher), np.array(ties)) == np.median(pooled)


def test_without_ties_the_median_is_the_usual_one():
    rng = np.random.default_rng(0)
    for count in (1, 2, 7, 40):
        ranks = rng.integers(1, 30, count)
        assert median_rank_with_ties(ranks - 1, np.zeros(count, int)) == np.median(ranks)


def test_what_a_comparison_could_have_seen():
    """Of differences that large four in five are found: a t test on simulated means."""
    rng, df = np.random.default_rng(0), 4
    size = float(minimum_detectable_effect(0.25, df, 0.05))
    t = (size + 0.5 * rng.standard_normal(200_000)) / (0.5 * np.sqrt(rng.chisquare(df, 200_000) / df))
    assert (np.abs(t) > stats.t.ppf(0.975, df)).mean() == pytest.approx(0.8, abs=0.004)
    assert np.isnan(minimum_detectable_effect(np.array([0.0, np.nan]), 4, 0.05)).all()


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_near_the_ceiling_intervals_cover_as_promised(seeds):
    design = Design(seeds=seeds, queries=240, cluster=1, r1=98, seed_sd=0)
    got = calibrate(design, 3000, seed=3, metrics=("R@1",)).set_index("measure")["rate"]
    assert 0.934 <= got["coverage"] <= 0.972 and got["type I"] <= 0.06
