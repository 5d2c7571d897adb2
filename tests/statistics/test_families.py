"""Tests that are starred together: their p-values hold in the tail, where Holm's correction looks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import families
from rewind.statistics.bounds import behrens_fisher_p_value, behrens_fisher_quantile
from rewind.statistics.inference import (
    MAX_FAMILY_OF_TWO_SEEDS,
    difference_inference,
    family_adjusted,
    family_p_value,
    paired_inference,
)
from rewind.statistics.pairs import _detectable_differences, minimum_detectable_effect, needed_samples
from rewind.statistics.variance import variance_components


def difference(seed, seeds=3, clusters=60, paired=False, spread=0.1):
    """A difference of two methods that are equal in truth, with seeds that differ."""
    rng = np.random.default_rng(seed)
    rates = (0.5 + spread * rng.standard_normal((2, seeds, 1))).clip(0, 1)
    hits = (rng.random((2, seeds, clusters)) < rates).astype(float)
    sizes = np.ones(clusters, dtype=int)
    if paired:
        return paired_inference(variance_components(hits[0] - hits[1], sizes), 0.95, 1.0)
    return difference_inference(*(variance_components(each, sizes) for each in hits), 0.95, 1.0)


# ---- Behrens' and Fisher's p-value ---------------------------------------------------------------------------------


@pytest.mark.parametrize("df", [1, 2, 3.3, 4, 9, 40])
@pytest.mark.parametrize("t", [0.5, 2.0, 8.0, 30.0])
def test_with_one_part_it_is_students_t(df, t):
    for share, alone in ((1.0, df), (0.0, 9)):
        if (p := 2 * stats.t.sf(t, alone)) > 1e-9:
            assert behrens_fisher_p_value(*np.array([[t], [share], [df]]), 9) == pytest.approx(p, rel=2e-3)


@pytest.mark.parametrize(("share", "df", "t"), [(0.5, 2, 4.0), (0.1, 2, 6.0), (0.8, 4, 5.0), (0.3, 1, 20.0)])
def test_with_two_parts_it_is_the_convolution_of_two_t_distributions(share, df, t):
    a, b = np.sqrt(share), np.sqrt(1 - share)

    def tails(x):
        outside = stats.t.sf((t - a * x) / b, 119) + stats.t.cdf((-t - a * x) / b, 119)
        return stats.t.pdf(x, df) * outside

    want = sum(
        integrate.quad(tails, low, high, limit=200, points=[t / a] if low < t / a < high else None)[0]
        for low, high in ((0, 2 * t / a), (2 * t / a, 1000 * t / a))
    )
    want = 2 * (want + stats.t.sf(1000 * t / a, df))  # the integrand is even in x together with both tails
    got = behrens_fisher_p_value(np.array([t]), np.array([share]), np.array([float(df)]), 119)
    assert got == pytest.approx(want, rel=5e-3)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1), st.sampled_from([1.0, 2.0, 3.7, 4.0, 18.0]), st.sampled_from([0.05, 0.01, 0.001]))
def test_the_quantile_is_its_inverse(share, df, level):
    at = behrens_fisher_quantile(level, np.array([share]), np.array([df]), 59)
    assert behrens_fisher_p_value(at, np.array([share]), np.array([df]), 59) == pytest.approx(level, rel=1e-2)


# ---- In a family ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paired", [False, True])
def test_a_single_test_keeps_its_p_value_and_a_family_never_makes_it_smaller(paired):
    found = [difference(seed, paired=paired) for seed in range(30)]
    assert family_adjusted(found[:1]).tolist() == [found[0].p]
    for result in found:
        assert family_p_value(result, 1) == result.p
        assert family_p_value(result, 20) >= result.p


def test_where_three_seeds_agree_by_chance_a_family_is_not_misled():
    """Their share seems to be 2%: the test of a single pair has 37 degrees of freedom then, whatever the truth is."""
    single = difference(0, paired=True)
    agreeing = dataclasses.replace(
        single, seed_share=np.array(0.02), statistic=np.array(6.0), p=np.array(2 * stats.t.sf(6.0, 37))
    )
    assert agreeing.p < 1e-6
    assert family_p_value(agreeing, 20) == pytest.approx(2 * stats.t.sf(6 / np.sqrt(0.02), 2), rel=0.2)


def test_two_seeds_are_not_starred_in_a_large_family():
    two = [difference(seed, seeds=2) for seed in range(MAX_FAMILY_OF_TWO_SEEDS + 1)]
    assert np.isfinite(family_adjusted(two[:-1])).all()
    assert np.isnan(family_adjusted(two)).all()
    mixed = family_adjusted([two[0], *(difference(seed) for seed in range(5))])
    assert np.isnan(mixed[0]) and np.isfinite(mixed[1:]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "seeds", "seed_sd"),
    [
        ("order", 3, 10.0),
        ("answer", 3, 15.0),
        ("pairs of 10, seeds in pairs", 3, 10.0),
    ],
)
def test_families_keep_their_level_where_single_p_values_do_not(name, seeds, seed_sd):
    """The worst cells of benchmarks/families.py; 1,000 studies have a standard error of 0.007 at 0.05."""
    row = families.measure(name, seeds, seed_sd, studies=1000)
    assert row["error"] <= 0.06
    assert row["single"] > row["error"] + 0.02


# ---- What would decide ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_seeds_that_are_needed_detect_what_was_seen(seed):
    result = difference(seed, clusters=400, spread=0.05)
    seeds, queries = needed_samples(result, 3, 400, 0.95, family=1)
    part = float(result.variance * result.seed_share)
    for needed, variance, df in (
        (float(seeds), part * 3 / float(seeds) + float(result.variance) - part, 400.0),
        (float(queries), part + (float(result.variance) - part) * 400 / float(queries), 1e6),
    ):
        if np.isfinite(needed):
            # With more degrees of freedom than there are, at most the difference that was seen is detectable.
            assert minimum_detectable_effect(variance, df, 0.05) <= abs(float(result.estimate)) * (1 + 1e-9)


@pytest.mark.parametrize(("seeds", "family"), [(3, 1), (3, 6), (5, 45), (2, 3)])
def test_what_is_needed_agrees_with_what_is_detectable(seeds, family):
    """In a family, the tests that tables print; once they asked for a plain t, and for too few seeds."""
    rng = np.random.default_rng(seeds + family)
    runs = [(rng.random((8, seeds, 300)) < p + rng.normal(0, 0.03, (8, seeds, 1))) * 100.0 for p in (0.5, 0.62)]
    both = [variance_components(each, np.ones(300, int)) for each in runs]
    result = difference_inference(*both, 0.95, np.full(8, 100.0))
    detectable = _detectable_differences([result] * family, np.ones((family, 8), bool), 0.95)[0]
    needed, queries = needed_samples(result, seeds, 300, 0.95, family)
    enough = np.abs(result.estimate) >= detectable
    assert ((needed == seeds) == enough).all() and ((queries == 300) == enough).all() and np.isfinite(needed).any()


def test_two_seeds_are_never_enough_in_a_large_family():
    runs = [(np.random.default_rng(i).random((1, 2, 300)) < p) * 100.0 for i, p in enumerate((0.2, 0.8))]
    result = difference_inference(
        *(variance_components(each, np.ones(300, int)) for each in runs), 0.95, np.full(1, 100.0)
    )
    seeds, queries = needed_samples(result, 2, 300, 0.95, family=10)
    assert seeds >= 3 and np.isnan(queries)


def test_of_fixed_models_no_number_of_seeds_is_given():
    hits = np.random.default_rng(0).random((2, 1, 50)) < 0.5
    fixed = [variance_components(each.astype(float), np.ones(50, dtype=int), fixed=True) for each in hits]
    seeds, _ = needed_samples(difference_inference(*fixed, 0.95, 1.0), 1, 50, 0.95, family=3)
    assert np.isnan(seeds)
