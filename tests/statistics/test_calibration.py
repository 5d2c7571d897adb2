"""Simulated studies: the truth is what it is said to be, our errors are as promised, the others' are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import reference_tests
from messages import refusal
from reference_tests import REFERENCE_TESTS, calibrate
from rewind.statistics.calibration import OUR_TEST
from rewind.statistics.simulation import (
    SIMULATED_METRICS,
    Design,
    cluster_totals,
    draw_ranks,
    metric_values,
    true_means,
)


def rates(design, replicates, **options):
    table = calibrate(design, replicates, **options)
    return table.set_index(["procedure", "metric", "measure"])["rate"]


@pytest.mark.parametrize("design", [Design(seed_sd=0), Design(seed_sd=4, cluster=5), Design(r1=60, difference=5)])
def test_the_truth_is_the_mean_of_many_studies(design):
    ranks = draw_ranks(design, 400, np.random.default_rng(0))
    assert ranks.min() == 1 and ranks.max() <= design.gallery and (ranks == np.round(ranks)).all()
    for metric in SIMULATED_METRICS:
        means = metric_values(ranks, metric).mean(axis=(2, 3), dtype=float)
        far = np.abs(means.mean(axis=0) - true_means(design, metric)) / stats.sem(means, axis=0)
        assert far.max() < 4, f"{metric}: {far.max():.1f} standard errors from the truth"
    assert true_means(design, "R@1")[0] == pytest.approx(design.r1 / 100)
    assert true_means(design, "R@1")[-1] - true_means(design, "R@1")[0] == pytest.approx(design.difference / 100)


def test_seeds_disagree_and_spread_as_asked():
    same = draw_ranks(Design(seed_sd=0, disagreement=24), 200, np.random.default_rng(1)) <= 1
    assert (same[:, :, 0] != same[:, :, 1]).mean() == pytest.approx(0.24, abs=0.005)
    spread = draw_ranks(Design(seeds=10, queries=2000, seed_sd=4, disagreement=0), 100, np.random.default_rng(1)) <= 1
    assert 100 * spread.mean(axis=3).var(axis=2, ddof=1).mean() ** 0.5 == pytest.approx(4, abs=0.3)


def test_clusters_succeed_together():
    design = Design(cluster=5, seed_sd=0)
    hits = (draw_ranks(design, 100, np.random.default_rng(2))[:, 0, 0] <= 1).astype(float)
    sums = cluster_totals(design, hits)
    assert sums.shape == (100, 200) and sums.sum() == hits.sum()
    assert sums.var() > 2 * 5 * hits.var(), "independent queries would give 5 times the variance of one"


@pytest.mark.parametrize("seed_sd", [0, 4])
def test_our_errors_are_as_promised(seed_sd):
    """Wide enough for chance (8,000 studies), too narrow for a wrong df or for counting the interaction twice."""
    got = rates(Design(queries=200, seed_sd=seed_sd), 8000, seed=1, metrics=("R@1",))[OUR_TEST, "R@1"]
    assert 0.033 <= got["type I"] <= 0.050
    assert 0.945 <= got["coverage"] <= 0.970
    assert 0.01 <= got["family-wise"] <= 0.05


def test_queries_alone_are_not_enough():
    design = Design(queries=200, seed_sd=4)
    got = rates(design, 600, seed=1, metrics=("R@1",), procedures=(OUR_TEST, *REFERENCE_TESTS), resamples=400)
    for procedure in ("query bootstrap", "Fisher", "Student"):
        assert got[procedure, "R@1", "type I"] > 0.12
    assert got["Multi-Bootstrap", "R@1", "type I"] > 0.07 > 0.06 > got[OUR_TEST, "R@1", "type I"]
    assert got["query bootstrap", "R@1", "coverage"] < 0.90 < got[OUR_TEST, "R@1", "coverage"]


def test_with_alike_seeds_and_independent_queries_all_agree():
    design = Design(queries=200, cluster=1, seed_sd=0, disagreement=0)
    got = rates(design, 1500, seed=2, metrics=("R@1",), procedures=("query bootstrap", "Fisher", "Student"))
    for procedure in ("query bootstrap", "Fisher", "Student"):
        assert 0.03 <= got[procedure, "R@1", "type I"] <= 0.075


def test_a_difference_is_found_more_often_with_more_seeds():
    design = Design(queries=600, seed_sd=1, difference=5)
    few, many = (rates(replace(design, seeds=n), 400, metrics=("R@1",))[OUR_TEST, "R@1", "power"] for n in (3, 10))
    assert 0.4 < few < 0.8 < many


def test_the_reference_tests_are_what_they_are_called():
    rng = np.random.default_rng(3)
    differences = rng.standard_normal((4, 3, 50)) + 0.25
    signs = rng.choice([-1.0, 1.0], size=(4000, 50)).astype(np.float32)
    t = stats.ttest_1samp(differences, 0, axis=-1).pvalue
    for level in (0.01, 0.05, 0.2):
        assert (reference_tests.paired_t_test(differences, level) == (t <= level)).all()
        clear = np.abs(t - level) > 0.3 * level
        assert (reference_tests.fisher_randomisation_test(differences, signs, level) == (t <= level))[clear].all()
    assert not reference_tests.paired_t_test(np.zeros((1, 1, 9)), 0.05).any()
    totals = rng.random((2, 2, 1, 30))
    weights = rng.multinomial(30, np.full(30, 1 / 30), size=300).astype(np.float32)
    plain = reference_tests.query_bootstrap(totals, np.array([[0, 1]]), weights, 30, 0.1)
    multi = reference_tests.multi_bootstrap(totals, np.array([[0, 1]]), weights, 30, 0.1, rng)
    for one, other in zip(plain[1], multi[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)  # with one seed there is nothing else to draw


def test_the_same_seed_gives_the_same_figures():
    first, again, other = (
        calibrate(Design(queries=60), 50, seed, procedures=(OUR_TEST, *REFERENCE_TESTS)) for seed in (0, 0, 1)
    )
    assert first.equals(again) and not first.equals(other)


@pytest.mark.parametrize(
    ("design", "options", "place"),
    [
        (Design(queries=101), {}, "simulation"),
        (Design(methods=1), {}, "simulation"),
        (Design(r1=99, difference=2), {}, "simulation"),
        (Design(), {"metrics": ("MdR",)}, "simulation"),
        (Design(), {"procedures": ("sign test",)}, "simulation"),
    ],
)
def test_what_cannot_be_simulated_is_refused(design, options, place):
    with refusal(place):
        calibrate(design, 2, **options)
