"""The cosine gap: the original's number, what is no negative, intervals that cover, tests, files of the workflow."""

from __future__ import annotations

import numpy as np
import pytest

from golden_numbers import agree, load
from messages import refusal
from rewind.evaluation.cosine_gap import COSINE_BIN_EDGES, measure_cosine_gap
from rewind.statistics.cosine_gaps import compare_gaps, gap_totals

GOLDEN = load("hnac.npz")


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@pytest.mark.golden
def test_it_is_the_originals_gap() -> None:
    video, text = (unit(GOLDEN[f"in/gap/{side}"].astype(float)) for side in ("video", "text"))
    one = np.arange(len(video))
    for matrix in (text @ video.T, video @ text.T):  # which side asks makes no difference
        agree("HNAC, cosine gap", "gap", measure_cosine_gap(matrix, one, one).gap, GOLDEN["ref64/gap"], rtol=1e-9)
    agree(
        "HNAC, cosine gap",
        "gap",
        np.float32(measure_cosine_gap(text @ video.T, one, one).gap),
        GOLDEN["out/gap"],
        atol=1e-6,
    )


def test_the_own_item_its_twin_and_its_other_captions_are_no_negatives() -> None:
    # Items a, its twin a_rev (one cluster) and b; a has two captions.
    cosines = np.array([[0.9, 0.8, 0.1], [0.7, 0.6, -0.1], [0.5, 0.6, 0.2], [0.3, 0.1, 0.4]])
    found = measure_cosine_gap(cosines, np.array([0, 0, 1, 2]), np.array([0, 0, 1]))
    assert found.positive.tolist() == [0.9, 0.7, 0.6, 0.4]
    assert found.negative == pytest.approx([0.1, -0.1, 0.2, 0.2])
    assert found.gap == pytest.approx(0.65 - 0.1)
    assert found.counts.sum(axis=1).tolist() == [4, 5], "4 pairs, and 3 + 2 with items of another cluster"
    assert found.counts[1][np.searchsorted(COSINE_BIN_EDGES, 0.2, "right") - 1] == 1


def test_a_value_that_is_no_cosine_or_a_lone_cluster_is_refused() -> None:
    one = np.arange(2)
    for value in (np.nan, 1.5):
        with refusal("seed0.npz"):
            measure_cosine_gap(np.array([[0.1, value], [0.2, 0.3]]), one, one, "seed0.npz")
    with refusal():
        measure_cosine_gap(np.eye(2), one, np.zeros(2))


def test_what_clusters_add_sums_to_the_gap() -> None:
    rng = np.random.default_rng(0)
    own = np.array([0, 0, 1, 2, 3, 4])  # items 0 and 1 are one cluster, and item 0 has two captions
    cluster = np.array([0, 0, 1, 2, 3])
    found = measure_cosine_gap(rng.uniform(-1, 1, (6, 5)), own, cluster)
    totals = gap_totals(found, cluster[own], cluster, 4)
    means = totals.sum(axis=1) / len(own)
    assert means == pytest.approx([found.gap, found.positive.mean(), found.negative.mean()])
    assert found.influence.sum() == pytest.approx(0, abs=1e-12)


def test_what_captions_and_clips_bring_by_themselves_leaves_no_error() -> None:
    """Cosines a_i + b_j have a gap of 0 whatever the items are: the interval must be (nearly) a point."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 0.1, (2, 200))
    interval, _ = compared({"m": [a[:, None] + b[None, :]]})
    row = interval.loc["m", "gap"]
    spread = row["high"] - row["low"]
    positive = interval.loc["m", "positive"]
    assert abs(row["estimate"]) < 1e-12 and spread < 0.05 * (positive["high"] - positive["low"])


def compared(
    matrices: dict[str, list[np.ndarray]], pairs: list[tuple[str, str]] | None = None, confidence: float = 0.95
):
    one = np.arange(len(next(iter(matrices.values()))[0]))
    found = {method: [measure_cosine_gap(matrix, one, one) for matrix in seeds] for method, seeds in matrices.items()}
    intervals, differences = compare_gaps(
        {("test", "independent"): found}, {"test": (one, one)}, pairs or [], confidence
    )
    return intervals.set_index(["method", "quantity"]), differences


def drawn(rng: np.random.Generator, n: int, closeness: float, seeds: int, seed_spread: float) -> list[np.ndarray]:
    """Runs of one method on one draw of items: items differ in how well they are told, and seeds in closeness."""
    base, told = rng.normal(size=(n, 6)) + 0.5, rng.gamma(2, 0.5, (n, 1))
    runs = []
    for _ in range(seeds):
        near = max(0.0, closeness + rng.normal(0, seed_spread))
        text = near * told * base + rng.normal(size=(n, 6))
        runs.append(unit(text) @ unit(base + 0.3 * rng.normal(size=(n, 6))).T)
    return runs


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "spread"), [(1, 0.0), (3, 0.3)])
def test_intervals_cover_over_items_and_seeds(seeds: int, spread: float) -> None:
    rng = np.random.default_rng(7)
    truth = np.mean(
        [compared({"m": drawn(rng, 300, 1.0, 1, spread)})[0].loc[("m", "gap"), "estimate"] for _ in range(150)]
    )
    inside = []
    for _ in range(200):
        row = compared({"m": drawn(rng, 40, 1.0, seeds, spread)})[0].loc["m", "gap"]
        inside.append(row["low"] <= truth <= row["high"])
    assert 0.89 <= np.mean(inside) <= 0.99


def test_chance_has_no_gap_and_a_better_method_wins() -> None:
    rng = np.random.default_rng(3)
    matrices = {name: drawn(rng, 60, closeness, 3, 0.0) for name, closeness in (("none", 0.0), ("near", 2.0))}
    intervals, pairs = compared(matrices, [("near", "none")])
    none, near = intervals.loc["none", "gap"], intervals.loc["near", "gap"]
    assert none["low"] < 0 < none["high"] and near["low"] > 0.1 and near["seeds"] == 3
    row = pairs.iloc[0]
    assert row["difference"] == pytest.approx(near["estimate"] - none["estimate"])
    assert row["p_holm"] < 1e-3 and row["family"] == 1 and row["low"] > 0


def test_holm_runs_over_the_pairs_that_a_scoring_has() -> None:
    rng = np.random.default_rng(4)
    matrices = {name: drawn(rng, 40, 1.0, 2, 0.0) for name in "abc"}
    pairs = compared(matrices, [("a", "b"), ("a", "c"), ("a", "gone")])[1]
    assert pairs["family"].tolist() == [2, 2]
    assert (pairs["p_holm"] >= pairs["p"]).all() and pairs["p_holm"].max() <= 1
