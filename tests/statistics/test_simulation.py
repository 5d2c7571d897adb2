"""Simulated studies at the edges: fixed models, unlike seeds, shared pre-training, R@1 near 100%."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from messages import refusal
from rewind.statistics.calibration import TABLE_METRICS, _measure_hits, calibrate
from rewind.statistics.simulation import (
    PRETRAINED_ONCE,
    SIMULATED_METRICS,
    Design,
    draw_ranks,
    metric_values,
    true_means,
)


def rates(design, replicates, **options):
    table = calibrate(design, replicates, **options)
    return table.set_index(["metric", "measure"])


def run_means(design, studies, seed=0):
    """(R, M, S) R@1 of runs in points."""
    return 100 * (draw_ranks(design, studies, np.random.default_rng(seed)) <= 1).mean(axis=3)


@pytest.mark.parametrize(
    "design",
    [
        Design(seeds=(2, 5, 5), seed_sd=(4.0, 1.0, 0.0)),
        Design(seed_sd=1, pretraining_sd=3, pretraining_alike=0.5),
        Design(seed_sd=0, pretraining_sd=3, pretraining=PRETRAINED_ONCE),
        Design(seeds=2, queries=240, seed_sd=0.5, r1=97),
    ],
)
def test_the_truth_is_the_mean_of_many_studies(design):
    ranks = draw_ranks(design, 2000 if design.pretraining == PRETRAINED_ONCE else 400, np.random.default_rng(0))
    for metric in SIMULATED_METRICS:
        means = metric_values(ranks, metric).mean(axis=(2, 3), dtype=float)
        far = np.abs(means.mean(axis=0) - true_means(design, metric)) / stats.sem(means, axis=0)
        assert far.max() < 4, f"{metric}: {far.max():.1f} standard errors from the truth"
        np.testing.assert_allclose(true_means(design, metric), true_means(design, metric)[0], rtol=1e-12)


def test_methods_spread_as_each_is_asked():
    design = Design(seeds=6, queries=4000, seed_sd=(4.0, 1.0, 0.0), disagreement=0)
    found = run_means(design, 150).var(axis=2, ddof=1).mean(axis=0) ** 0.5
    assert found == pytest.approx([4, 1, 0], abs=0.25)


@pytest.mark.parametrize("r1", [3.0, 40.0, 97.0, 99.0])
def test_seeds_never_disagree_more_often_than_they_can(r1):
    """Twice the misses would be wanted of two seeds that answer 97% if the 10% of R@1 = 40% held there."""
    design = Design(seeds=2, queries=4000, seed_sd=0, r1=r1)
    hits = draw_ranks(design, 60, np.random.default_rng(1)) <= 1
    p = r1 / 100
    assert design.disagreeing == pytest.approx(10 * p * (1 - p) / 0.24)
    assert 100 * (hits[:, :, 0] != hits[:, :, 1]).mean() == pytest.approx(design.disagreeing, rel=0.05)
    assert design.shared > 0.8, "seeds of one method know the same queries at every R@1"


def test_pre_training_of_each_seed_moves_all_methods_together():
    design = Design(seeds=3, queries=4000, seed_sd=0, pretraining_sd=4, disagreement=0)
    runs = run_means(design, 300)
    within = runs - runs.mean(axis=2, keepdims=True)
    assert np.corrcoef(within[:, 0].ravel(), within[:, 1].ravel())[0, 1] > 0.95
    assert runs.var(axis=2, ddof=1).mean() ** 0.5 == pytest.approx(4, abs=0.3)
    apart = run_means(replace(design, pretraining_alike=0.0), 300)
    apart -= apart.mean(axis=2, keepdims=True)
    assert abs(np.corrcoef(apart[:, 0].ravel(), apart[:, 1].ravel())[0, 1]) < 0.2


def test_one_pre_training_is_in_no_spread_and_in_no_interval():
    design = Design(seeds=3, queries=1000, seed_sd=0, pretraining_sd=4, pretraining=PRETRAINED_ONCE)
    usual = replace(design, pretraining_sd=0)
    spreads = [run_means(each, 300).var(axis=2, ddof=1).mean() ** 0.5 for each in (design, usual)]
    assert spreads[0] == pytest.approx(spreads[1], rel=0.1)
    got = rates(design, 400, metrics=("R@1",))["rate"]
    assert got["R@1", "coverage"] < 0.85, "4 points that no seed redraws are outside the intervals"
    assert got["R@1", "type I"] < 0.08, "what moves all methods alike does not make them differ"


def test_fixed_models_are_tested_over_queries():
    got = rates(Design(seeds=1, queries=400, seed_sd=0), 4000, metrics=("R@1",))
    assert got.loc[("R@1", "coverage"), "rate"] == pytest.approx(0.95, abs=0.01)
    assert got.loc[("R@1", "type I"), "rate"] == pytest.approx(0.05, abs=0.01)
    found = rates(Design(seeds=1, queries=400, seed_sd=0, difference=8), 400, metrics=("R@1",))["rate"]
    assert found["R@1", "power"] > 0.5


def test_a_letter_anywhere_counts_every_column_of_a_table():
    design = Design(queries=240, methods=4)
    got = rates(design, 500, metrics=TABLE_METRICS)["rate"]
    single = [got[metric, "family-wise"] for metric in TABLE_METRICS]
    assert max(single) < got["any", "letter anywhere"] <= sum(single)
    assert "any" not in rates(design, 20, metrics=TABLE_METRICS[:3]).index.get_level_values(0)
    assert "any" not in rates(replace(design, difference=8), 20, metrics=TABLE_METRICS).index.get_level_values(0)


def test_a_worse_method_is_kept_where_its_difference_is_not_found():
    two = rates(Design(methods=2, difference=6, queries=300), 400, metrics=("R@1",))["rate"]
    assert two["R@1", "kept"] == pytest.approx(1 - two["R@1", "power"]), "one pair: Holm changes nothing"
    four = rates(Design(methods=4, difference=6, queries=300), 400, metrics=("R@1",))["rate"]
    assert four["R@1", "kept"] > 1 - four["R@1", "power"], "six pairs ask for more"


def test_points_and_exact_zeros_are_counted():
    found = {
        "called": np.array([[True], [False]]),
        "after Holm": np.array([[True], [False]]),
        "ends": (np.array([[0.2, 1.0], [0.1, 0.1]]), np.array([[0.4, 1.0], [0.2, 0.3]])),
        "estimate": np.array([[-0.5], [0.1]]),
        "apart": (np.array([[-0.5], [0.0]]), np.array([[-0.5], [0.2]])),
        "p": np.array([[0.0], [0.2]]),
    }
    got = {
        name: float(hits.mean())
        for name, hits in _measure_hits(found, np.array([0.3, 0.3]), np.array([[0, 1]]))
        if hits.size
    }
    assert got == {
        **{"coverage": 0.5, "type I": 0.5, "zero width": 0.25, "zero width, difference": 0.5},
        **{"p = 0": 0.5, "family-wise": 0.5},
    }


def test_the_error_of_a_rate_is_that_of_independent_studies():
    got = rates(Design(queries=200), 500, metrics=("R@1",)).loc[("R@1", "family-wise")]
    assert got["error"] == pytest.approx(np.sqrt(got["rate"] * (1 - got["rate"]) / 500))
    pairs = rates(Design(queries=200), 500, metrics=("R@1",)).loc[("R@1", "type I")]
    fewest = np.sqrt(pairs["rate"] * (1 - pairs["rate"]) / pairs["trials"])
    assert fewest < pairs["error"] < np.sqrt(3) * fewest, "three pairs of a study are neither one nor independent"


@pytest.mark.parametrize(
    "design",
    [
        Design(seeds=1),
        Design(seeds=(1, 3, 3), seed_sd=0),
        Design(seeds=0),
        Design(seeds=(3, 3)),
        Design(seed_sd=(1.0, 2.0)),
        Design(pretraining="twice"),
    ],
)
def test_what_cannot_be_simulated_is_refused(design):
    with refusal("simulation"):
        calibrate(design, 2)
