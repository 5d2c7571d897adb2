"""Intervals and tests over seeds and queries: their parts, their degrees of freedom, the median."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from rewind.statistics.inference import difference_inference, holm_adjusted, mean_inference, median_rank_interval
from rewind.statistics.variance import Clusters, stack_components, variance_components


def found(values, cluster_ids):
    clusters = Clusters.of(cluster_ids)
    return variance_components(clusters.totals(np.asarray(values, dtype=float)), clusters.sizes)


def reference(tables, cluster_ids, confidence=0.95):
    """The written procedure, a query at a time; one table (S, Q) or two."""
    names = sorted(set(cluster_ids))
    c, sign = len(names), (1, -1)
    estimate, residual, seed_parts, dfs, overlap = 0.0, np.zeros(c), [], [], 0.0
    for table, s in zip(tables, sign, strict=False):
        seeds, queries = len(table), len(table[0])
        means = [sum(row) / queries for row in table]
        r = [
            [c / queries * sum(row[q] - mean for q in range(queries) if cluster_ids[q] == name) for name in names]
            for row, mean in zip(table, means, strict=True)
        ]
        averaged = [sum(row[k] for row in r) / seeds for k in range(c)]
        y = sum(means) / seeds
        estimate += s * y
        residual += s * np.array(averaged)
        seed_parts.append(sum((m - y) ** 2 for m in means) / (seeds * (seeds - 1)))
        dfs.append(seeds - 1)
        squares = sum((row[k] - averaged[k]) ** 2 for row in r for k in range(c))
        overlap += squares / (seeds * (seeds - 1) * c * (c - 1))
    raw = sum(residual**2) / (c * (c - 1))
    seed = sum(seed_parts)
    variance = seed + raw - overlap if raw - overlap > raw / 10 else max(seed, raw)
    w = seed / variance
    f = 1.0
    if seed > 0 and len(set(dfs)) == 1:
        f = seed**2 / sum(a * a / d for a, d in zip(seed_parts, dfs, strict=True))
    elif seed > 0 and min(dfs) > 1:
        f = seed / sum(a / d for a, d in zip(seed_parts, dfs, strict=True))
    k = max(1, 2 - 2 / f)
    df = 1 / (w**k / f + (1 - w) ** k / (c - 1))
    half = stats.t.ppf((1 + confidence) / 2, df) * variance**0.5
    return estimate, estimate - half, estimate + half, 2 * stats.t.sf(abs(estimate) / variance**0.5, df), df, w


def test_parts_by_hand():
    # Seeds score 3/4 and 2/4; cluster residuals are ∓1/4 and ∓1/2, on average ∓3/8.
    got = found([[1, 0, 1, 1], [0, 0, 1, 1]], ["a", "a", "b", "b"])
    assert got.mean == 0.625 and got.seed_df == 1
    assert got.seed == pytest.approx(1 / 64)  # (1/8² + 1/8²) / (2 · 1)
    assert got.residuals == pytest.approx([-0.375, 0.375])
    assert got.overlap == pytest.approx(1 / 64)  # 4 · (1/8)² / (2 · 1 · 2 · 1)
    result = mean_inference(got, 0.95)
    assert result.variance == pytest.approx(1 / 64 + 9 / 64 - 1 / 64) and result.seed_share == pytest.approx(1 / 9)
    assert result.df == pytest.approx(1) and result.high - result.estimate == pytest.approx(12.7062 * 0.375, rel=1e-4)


def test_clusters_of_different_size_weigh_by_their_queries():
    got = found([[1, 1, 1, 0], [1, 1, 1, 0]], ["a", "a", "a", "b"])
    # C/Q = 1/2 of (3 − 3 · ¾) and (0 − ¾): the big cluster's deviation is as large as the small one's.
    assert got.residuals == pytest.approx([0.375, -0.375]) and got.mean == 0.75 and got.seed == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 5), st.integers(2, 5), st.booleans())
def test_intervals_follow_the_written_procedure(seed, first, second, equal):
    rng = np.random.default_rng(seed)
    ids = [f"c{i}" for i in (np.arange(24) // 2 if equal else np.sort(rng.integers(0, 9, 24)))]
    a, b = (rng.random((n, 24)) + rng.random(24) + 0.3 * rng.random((n, 1)) for n in (first, second))
    for got, want in (
        (mean_inference(found(a, ids), 0.9), reference([a], ids, 0.9)),
        (difference_inference(found(a, ids), found(b, ids), 0.9), reference([a, b], ids, 0.9)),
    ):
        np.testing.assert_allclose(
            [got.estimate, got.low, got.high, got.p, got.df, got.seed_share], want, rtol=1e-7, atol=1e-12
        )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_the_order_of_queries_and_seeds_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    values, ids = rng.random((3, 30)), rng.integers(0, 10, 30)
    queries, seeds = rng.permutation(30), rng.permutation(3)
    one_way, other = (
        mean_inference(found(values, ids), 0.95),
        mean_inference(found(values[seeds][:, queries], ids[queries]), 0.95),
    )
    np.testing.assert_allclose(list(vars(one_way).values()), list(vars(other).values()), rtol=1e-9)


def test_one_seed_speaks_of_queries_only():
    values, ids = np.random.default_rng(0).random((1, 40)), np.arange(40) // 2
    result = mean_inference(found(values, ids), 0.95)
    sums = values[0].reshape(20, 2).mean(1)
    assert result.df == pytest.approx(19) and np.isnan(result.p) and np.isnan(result.seed_share)
    assert result.high - result.low == pytest.approx(np.diff(stats.t.interval(0.95, 19, scale=stats.sem(sums)))[0])
    other = np.random.default_rng(1).random((3, 40))
    mixed = difference_inference(found(values, ids), found(other, ids), 0.95)
    assert np.isnan(mixed.p) and mixed.df == pytest.approx(19), "one run alone forbids a claim about methods"


def test_two_seeds_have_wide_intervals():
    values = np.random.default_rng(0).random((2, 400)) + np.array([[0.0], [0.2]])
    result = mean_inference(found(values, np.arange(400)), 0.95)
    assert 1 <= result.df < 1.2, "one degree of freedom between two seeds, and seeds are nearly all of the error"
    assert result.high - result.estimate > 10 * result.variance**0.5


def test_a_single_cluster_has_no_interval():
    result = mean_inference(found(np.random.default_rng(0).random((3, 5)), np.zeros(5)), 0.95)
    assert np.isfinite(result.estimate) and np.isnan(result.low) and np.isnan(result.high)


def test_halls_correction_inverts_his_cubic():
    rng = np.random.default_rng(4)
    values = np.exp(2 * rng.standard_normal(60)) + rng.random((3, 60))
    got = found(values, np.arange(60))
    plain, hall = mean_inference(got, 0.95), mean_inference(got, 0.95, skewed=True)
    error, t = plain.variance**0.5, stats.t.ppf(0.975, plain.df)
    g = (got.residuals**3).sum() / (60 * 59 * 58) / plain.variance**1.5
    for u, want in (((plain.estimate - hall.low) / error, t), ((plain.estimate - hall.high) / error, -t)):
        assert u + g * u**2 / 3 + g**2 * u**3 / 27 + g / 6 == pytest.approx(want)
    assert g > 0.2 and hall.high - plain.high > 0 and hall.low > plain.low, "a long right tail moves both ends right"
    assert hall.p == plain.p
    flat = found(np.tile([[1.0, 2, 3], [1.5, 2.5, 3.5]], 20), np.arange(60))
    assert mean_inference(flat, 0.95, skewed=True).high == pytest.approx(mean_inference(flat, 0.95).high), (
        "no skew, no correction"
    )


def test_unequal_clusters_are_covered_as_often_as_promised():
    rng = np.random.default_rng(6)
    sizes = rng.integers(1, 7, 60)
    ids = np.repeat(np.arange(60), sizes)
    queries = np.repeat(rng.standard_normal((4000, 1, 60)), sizes, axis=-1)
    queries = queries + rng.standard_normal((4000, 1, len(ids)))
    retrained = 0.7 * rng.standard_normal((4000, 3, len(ids)), dtype=np.float32)
    values = queries + retrained + 0.15 * rng.standard_normal((4000, 3, 1))
    result = mean_inference(found(values, ids), 0.95)
    assert 0.94 <= ((result.low <= 0) & (result.high >= 0)).mean() <= 0.97


def test_median_by_hand():
    clusters = Clusters.of(np.arange(4))
    assert median_rank_interval(np.array([[0, 0, 1, 1]]), np.zeros((1, 4), int), clusters, 0.95)[0] == 1.5, "as ever"
    assert median_rank_interval(np.array([[0, 1, 1, 3]]), np.zeros((1, 4), int), clusters, 0.95)[0] == 2
    many = Clusters.of(np.arange(40))
    tied = median_rank_interval(np.zeros((2, 40), int), np.full((2, 40), 2), many, 0.95)
    assert tied == (2, 2, 2), "a query tied with two others is first, second or third equally often"


def test_the_medians_interval_inverts_those_of_recall():
    rng = np.random.default_rng(0)
    higher, ties = rng.geometric(0.01, (3, 200)), rng.integers(0, 2, (3, 200))
    clusters = Clusters.of(np.arange(200) // 2)
    estimate, low, high = median_rank_interval(higher, ties, clusters, 0.95)
    ends = {}
    for r in range(1, 400):
        hits = np.clip((r - higher) / (ties + 1), 0, 1)
        share = mean_inference(variance_components(clusters.totals(hits), clusters.sizes), 0.95, least=0, most=1)
        for name, value in (("estimate", share.estimate), ("low", share.high), ("high", share.low)):
            if value >= 0.5:
                ends.setdefault(name, r)
    assert (estimate, low, high) == (ends["estimate"], ends["low"], ends["high"]) and low < estimate < high


def test_holm_by_hand():
    assert holm_adjusted(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm_adjusted(np.array([0.5, 0.9])).tolist() == pytest.approx([1.0, 1.0])
    table = holm_adjusted(np.array([[0.01, np.nan, 0.03], [0.2, 0.01, 0.2]]))
    assert table[0].tolist() == pytest.approx([0.03, np.nan, 0.06], nan_ok=True), "NaN is in the family, untested"
    assert table[1].tolist() == pytest.approx([0.4, 0.03, 0.4])


def test_methods_and_metrics_at_once_equal_one_at_a_time():
    rng = np.random.default_rng(0)
    tables, ids = [rng.random((2, s, 30)) for s in (3, 5)], np.arange(30) // 3
    together = mean_inference(stack_components([found(t, ids) for t in tables]), 0.95)
    for m, table in enumerate(tables):
        for k in range(2):
            alone = mean_inference(found(table[k], ids), 0.95)
            assert alone.low == pytest.approx(together.low[m, k]) and alone.df == pytest.approx(together.df[m, k])
