"""How often intervals and tests of cosine gaps err, on simulated studies whose truth is known.

    python benchmarks/gap_calibration.py [--studies 2000] [--items 5 20 40 200] [--seeds 1 3] [--seed-sd 0 0.3]

Items are Gaussian vectors around a common mean; a caption is its item's vector, times how well this item is told
(gamma) and times the closeness of the run (normal over seeds), plus noise. Two methods with the same closeness see the
same items. Printed: how often the interval of one method's gap holds the truth, how often the difference of both is
called significant, and what the first would be if each caption's mean over its negatives were taken for independent
values (as if items played no part as candidates of others).
"""

from __future__ import annotations

import argparse

import numpy as np

from rewind.evaluation.cosine_gap import Gap, cosine_gap
from rewind.statistics.cosine_gaps import compare_gaps
from rewind.statistics.inference import one
from rewind.statistics.parts import parts

WIDTH, COMMON, NOISE, CONFIDENCE = 6, 0.5, 0.3, 0.95


def runs(rng: np.random.Generator, base: np.ndarray, told: np.ndarray, seeds: int, spread: float) -> list[Gap]:
    """Gaps of one method's seeds on the given items."""
    every = np.arange(len(base))
    found = []
    for _ in range(seeds):
        near = max(0.0, 1 + rng.normal(0, spread)) * told
        text = near * base + rng.normal(size=base.shape)
        video = base + NOISE * rng.normal(size=base.shape)
        found.append(cosine_gap(_unit(text) @ _unit(video).T, every, every))
    return found


def items(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of items, and how well each is told."""
    return rng.normal(size=(count, WIDTH)) + COMMON, rng.gamma(2, 0.5, (count, 1))


def cell(studies: int, count: int, seeds: int, spread: float, truth: float) -> tuple[float, float, float]:
    """Shares of studies: truth inside, false difference, truth inside the interval that sees rows alone."""
    rng = np.random.default_rng([count, seeds, int(100 * spread)])
    every, inside, false, rows_inside = np.arange(count), 0, 0, 0
    for _ in range(studies):
        drawn = items(rng, count)
        found = {name: runs(rng, *drawn, seeds, spread) for name in ("a", "b")}
        intervals, pairs = compare_gaps(
            {("test", "independent"): found}, {"test": (every, every)}, [("a", "b")], CONFIDENCE
        )
        row = intervals[(intervals["method"] == "a") & (intervals["quantity"] == "gap")].iloc[0]
        inside += row["low"] <= truth <= row["high"]
        false += bool(pairs["p"].iloc[0] < 1 - CONFIDENCE)
        alone = one(
            parts(np.stack([gap.positive - gap.negative for gap in found["a"]]), np.ones(count, int)), CONFIDENCE
        )
        rows_inside += alone.low <= truth <= alone.high
    return inside / studies, false / studies, rows_inside / studies


def _unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def main() -> None:
    """Print a row per cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--items", type=int, nargs="+", default=[5, 20, 40, 200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seed-sd", type=float, nargs="+", default=[0.0, 0.3])
    keys = parser.parse_args()
    print("items  seeds  seed sd   covers  false difference  covers, rows alone")
    for spread in keys.seed_sd:
        rng = np.random.default_rng(0)
        truth = np.mean([runs(rng, *items(rng, 400), 1, spread)[0].gap for _ in range(400)])
        for seeds in keys.seeds:
            for count in keys.items:
                covers, false, rows = cell(keys.studies, count, seeds, spread, float(truth))
                shown = f"{false:.3f}" if seeds > 1 else "  –  "
                print(f"{count:5}  {seeds:5}  {spread:7.1f}   {covers:.3f}   {shown:>15}  {rows:18.3f}", flush=True)


if __name__ == "__main__":
    main()
