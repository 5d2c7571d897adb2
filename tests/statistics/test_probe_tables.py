"""Intervals of what probes measure: those of metrics for the same values, and none for what is no estimate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from messages import refusal
from rank_rows import ranks
from rewind.analyses.probes import FOLDS_FACTOR, probe_tables, read_probe_values
from rewind.config.evaluation import BY_CHANCE, VALUE_COLUMNS
from rewind.config.report import Statistics
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors


def values(of: np.ndarray, metric: str = "group", ids=None) -> pd.DataFrame:
    names = [f"q{n:04}" for n in range(len(of))] if ids is None else ids
    clusters = [f"c{n // 2:04}" for n in range(len(of))]
    table = pd.DataFrame({"metric": metric, "query_id": names, "cluster_id": clusters, "value": of})
    return table.assign(probe="pairs", part="", direction="")[list(VALUE_COLUMNS)]


def hits(seed: int, share: float = 0.6) -> np.ndarray:
    return (np.random.default_rng(seed).random(80) < share).astype(float)


def test_intervals_and_tests_are_those_of_a_metric_with_the_same_values():
    made = {m: {s: hits(10 * k + s, 0.5 + 0.2 * k) for s in (0, 1, 2)} for k, m in enumerate(("a", "b"))}
    probed = {m: {s: values(100 * v) for s, v in seeds.items()} for m, seeds in made.items()}
    intervals, pairs = probe_tables(probed, [("a", "b")], 0.95, RandomFactors())
    ranked = {m: {s: ranks(1 - v.astype(int)) for s, v in seeds.items()} for m, seeds in made.items()}
    expected = compare_methods(ranked, [("a", "b")], Statistics(resamples=100))
    theirs = expected.intervals[expected.intervals["metric"] == "R@1"].set_index("method")
    for row in intervals.itertuples():
        for name in ("estimate", "low", "high", "df", "std"):
            assert getattr(row, name) == pytest.approx(theirs.loc[row.method, name])
    pair = expected.pairs[expected.pairs["metric"] == "R@1"].iloc[0]
    for name in ("difference", "low", "high", "p", "p_holm"):
        assert pairs.iloc[0][name] == pytest.approx(pair[name])


def test_the_order_of_queries_does_not_matter():
    shuffled = {s: values(100 * hits(s)).sample(frac=1, random_state=s) for s in (0, 1)}
    sorted_ = {s: values(100 * hits(s)) for s in (0, 1)}
    first, _ = probe_tables({"a": shuffled}, [], 0.95, RandomFactors())
    second, _ = probe_tables({"a": sorted_}, [], 0.95, RandomFactors())
    pd.testing.assert_frame_equal(first, second)


def test_a_measure_of_whole_runs_has_a_spread_over_seeds_and_no_interval():
    runs = {"a": {s: values(np.array([v]), "gap", [""]) for s, v in enumerate((0.1, 0.2, 0.3))}}
    intervals, pairs = probe_tables(runs, [("a", "a")], 0.95, RandomFactors())
    row = intervals.iloc[0]
    assert row["estimate"] == pytest.approx(0.2) and row["std"] == pytest.approx(0.1) and np.isnan(row["low"])
    assert pairs.empty


@pytest.mark.parametrize(("value", "constant"), [(25.0, 1), (50.0, 1), (0.0, 0), (100.0, 0)])
def test_what_ties_everywhere_is_no_estimate(value, constant):
    runs = {"a": {s: values(np.full(40, value)) for s in (0, 1)}}
    assert probe_tables(runs, [], 0.95, RandomFactors())[0]["constant"].tolist() == [constant]


def test_a_method_may_lack_a_probe_and_pairs_with_it_are_left_out():
    runs = {
        "a": {0: values(hits(0)), 1: values(hits(1))},
        "b": {0: values(hits(2), "other"), 1: values(hits(3), "other")},
    }
    intervals, pairs = probe_tables(runs, [("a", "b")], 0.95, RandomFactors())
    assert set(zip(intervals["method"], intervals["metric"], strict=True)) == {("a", "group"), ("b", "other")}
    assert pairs.empty


def test_runs_with_other_queries_are_refused():
    runs = {"a": {0: values(hits(0)), 1: values(hits(1), ids=[f"x{n}" for n in range(80)])}}
    with refusal():
        probe_tables(runs, [], 0.95, RandomFactors())


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "seed0.parquet"
    values(hits(0)).to_parquet(path)
    assert list(read_probe_values([("a", 0)], [str(path)])["a"][0]) == list(VALUE_COLUMNS)
    values(hits(0)).drop(columns="value").to_parquet(path)
    with refusal("seed0.parquet"):
        read_probe_values([("a", 0)], [str(path)])


def direction(of: np.ndarray, chance: np.ndarray) -> pd.DataFrame:
    draws = values(chance, f"frames in a row{BY_CHANCE}", [str(draw) for draw in range(len(chance))])
    return pd.concat([values(of, "frames in a row"), draws.assign(cluster_id="")]).assign(probe="direction")


def test_a_direction_is_tested_by_permutations_of_all_seeds_at_once():
    chance = np.arange(99.0)[:, None] + np.array([0.0, 1.0])  # of two seeds: 0.5 to 98.5 on average
    runs = {
        name: {
            seed: direction(np.full(40, value) + np.r_[np.ones(20), -np.ones(20)], chance[:, seed]) for seed in (0, 1)
        }
        for name, value in (("a", 98.0), ("b", 50.0))
    }
    intervals, _ = probe_tables(runs, [], 0.95, RandomFactors())
    assert list(intervals["metric"]) == ["frames in a row"] * 2, "draws are no measure"
    assert intervals["p"].tolist() == [(1 + 1) / 100, (1 + 49) / 100]
    assert intervals["p_holm"].tolist() == [0.04, 0.5]


def test_intervals_of_cross_validated_values_are_wider():
    of = 100 * hits(0)
    plain, _ = probe_tables({"a": {0: values(of)}}, [], 0.95, RandomFactors(fixed=frozenset("a")))
    folds, _ = probe_tables(
        {"a": {0: values(of).assign(probe="direction")}}, [], 0.95, RandomFactors(fixed=frozenset("a"))
    )
    wide, narrow = (table.iloc[0]["high"] - table.iloc[0]["low"] for table in (folds, plain))
    assert folds.iloc[0]["estimate"] == plain.iloc[0]["estimate"]
    assert wide / narrow == pytest.approx(FOLDS_FACTOR, rel=0.05)  # Wilson's, which is a little narrower
