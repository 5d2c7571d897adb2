"""Bootstrap, Holm, comparisons."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rewind.errors import RewindError
from rewind.statistics.bootstrap import Resamples, percentile_interval, two_sided_p
from rewind.statistics.comparisons import compare, holm
from rewind.study.model import Statistics

KEYS = Statistics(resamples=2000)


def ranks(higher, clusters=None, setting="test"):
    higher = np.asarray(higher)
    n = len(higher)
    return pd.DataFrame(
        {
            "query_id": [f"q{i:04}" for i in range(n)],
            "setting": setting,
            "direction": "text_to_item",
            "higher": higher,
            "ties": 0,
            "rank": 1.0 + higher,
            "cluster_id": [f"c{i // 2:04}" for i in range(n)] if clusters is None else clusters,
            "gallery": n,
        }
    )


def test_resampled_means_equal_a_plain_loop():
    rng = np.random.default_rng(0)
    clusters = np.array(["a", "a", "b", "c", "c", "c"])
    values = rng.normal(size=(2, 6))
    draws = Resamples.draw(clusters, 50, seed=1)
    names = ["a", "b", "c"]
    for b, found in enumerate(draws.means(values)):
        rows = [
            i
            for name, w in zip(names, draws.weights[b], strict=True)
            for i in np.flatnonzero(clusters == name).tolist() * int(w)
        ]
        np.testing.assert_allclose(found, values[:, rows].mean(axis=1), rtol=1e-5)


def test_resampled_medians_equal_a_plain_loop():
    rng = np.random.default_rng(2)
    clusters = np.arange(15) // 3
    table = rng.integers(1, 9, (2, 15)).astype(float)
    draws = Resamples.draw(clusters, 40, seed=1)
    for b, found in enumerate(draws.medians(table)):
        rows = [i for c in range(5) for i in np.flatnonzero(clusters == c).tolist() * int(draws.weights[b, c])]
        pooled = np.sort(table[:, rows].ravel())
        assert found == pooled[int(np.ceil(len(pooled) / 2)) - 1]


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        cluster_effect = rng.normal(size=100)
        values = np.repeat(cluster_effect, 2) + rng.normal(size=200)
        low, high = percentile_interval(Resamples.draw(np.arange(200) // 2, 500, trial).means(values[None])[:, 0], 0.95)
        hits += low <= 0 <= high
    assert 0.90 <= hits / 300 <= 0.985
    # Drawing queries and not clusters would take them for independent and cover far less.


def test_identical_methods_differ_by_nothing():
    table = ranks(np.random.default_rng(0).integers(0, 5, 60))
    _, pairs = compare({"a": {0: table}, "b": {0: table}}, [("a", "b")], KEYS)
    assert (pairs["difference"] == 0).all() and (pairs["p"] == 1).all() and (pairs["p_holm"] == 1).all()


def test_p_is_never_zero_and_a_clear_winner_is_found():
    good, bad = ranks(np.zeros(80, int)), ranks(np.full(80, 30))
    _, pairs = compare({"good": {0: good}, "bad": {0: bad}}, [("good", "bad")], KEYS)
    row = pairs.set_index("metric").loc["R@1"]
    assert row["difference"] == 100 and 0 < row["p"] < 0.01
    assert two_sided_p(np.ones((99, 1)))[0] == pytest.approx(2 / 100)


def test_intervals_hold_the_mean_over_seeds():
    rng = np.random.default_rng(3)
    runs = {"a": {s: ranks(rng.integers(0, 12, 100)) for s in range(3)}}
    intervals, _ = compare(runs, [], KEYS)
    per_seed = [100 * (t["higher"] < 1).mean() for t in runs["a"].values()]
    row = intervals.set_index("metric").loc["R@1"]
    assert row["estimate"] == pytest.approx(np.mean(per_seed)) and row["std"] == pytest.approx(np.std(per_seed, ddof=1))
    assert row["low"] < row["estimate"] < row["high"] and row["clusters"] == 50 and row["seeds"] == 3
    assert set(intervals["metric"]) == {"R@1", "R@5", "R@10", "MdR", "MnR", "MRR"}


def test_holm_by_hand():
    assert holm(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])
    assert holm(np.array([0.5, 0.9])).tolist() == pytest.approx([1.0, 1.0])


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    runs = {m: {s: ranks(np.random.default_rng(s).integers(0, 9, 40)) for s in range(2)} for m in "ab"}
    first, second = (compare(runs, [("a", "b")], KEYS) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.to_csv() == other.to_csv()


def test_runs_with_other_queries_are_refused():
    with pytest.raises(RewindError, match="a/seed0 and b/seed0 have different queries, first 'q0007'"):
        compare({"a": {0: ranks(np.zeros(8, int))}, "b": {0: ranks(np.zeros(7, int))}}, [("a", "b")], KEYS)
