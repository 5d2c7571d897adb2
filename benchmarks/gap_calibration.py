"""How often intervals and tests of cosine gaps err, on simulated studies whose truth is known.

    python benchmarks/gap_calibration.py [--studies 2000] [--items 5 20 40 200] [--seeds 1 3] [--seed-sd 0 0.3]
        [--out results/gap_calibration.csv]

Items are Gaussian vectors around a common mean; a caption is its item's vector, times how well this item is told
(gamma) and times the closeness of the run (normal over seeds), plus noise. Two methods with the same closeness see the
same items. Printed: how often the interval of one method's gap holds the truth, how often the difference of both is
called significant, and what the first would be if each caption's mean over its negatives were taken for independent
values (as if items played no part as candidates of others).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from rewind.evaluation.cosine_gap import CosineGap, measure_cosine_gap
from rewind.io.files import write_csv
from rewind.statistics.cosine_gaps import compare_gaps
from rewind.statistics.inference import mean_inference
from rewind.statistics.variance import variance_components

WIDTH, COMMON, NOISE, CONFIDENCE = 6, 0.5, 0.3, 0.95


def runs(rng: np.random.Generator, base: np.ndarray, told: np.ndarray, seeds: int, spread: float) -> list[CosineGap]:
    """Gaps of one method's seeds on the given items."""
    every = np.arange(len(base))
    found = []
    for _ in range(seeds):
        near = max(0.0, 1 + rng.normal(0, spread)) * told
        text = near * base + rng.normal(size=base.shape)
        video = base + NOISE * rng.normal(size=base.shape)
        found.append(measure_cosine_gap(_unit(text) @ _unit(video).T, every, every))
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
        alone = mean_inference(
            variance_components(np.stack([gap.positive - gap.negative for gap in found["a"]]), np.ones(count, int)),
            CONFIDENCE,
        )
        rows_inside += alone.low <= truth <= alone.high
    return inside / studies, false / studies, rows_inside / studies


def _unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print of the figures (``python tools/publish gap_calibration``): name → a table in Markdown."""
    heads = ["items", "seeds", "spread of seeds", "covers", "false difference", "covers, if items were no candidates"]
    rows = [
        [f"{row.items:.0f}", f"{row.seeds:.0f}", f"{row.seed_sd:g}", *map(_share, (row.covers, row.false, row.alone))]
        for row in table.sort_values(["seeds", "seed_sd", "items"], ascending=[False, True, True]).itertuples(
            index=False
        )
    ]
    return {"grid": "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows))}


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.3f}".removeprefix("0")


def main() -> None:
    """Measure every cell, save it, print all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/gap_calibration.csv"), help="figures")
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--items", type=int, nargs="+", default=[5, 20, 40, 200])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--seed-sd", type=float, nargs="+", default=[0.0, 0.3])
    keys = parser.parse_args()
    found = []
    for spread in keys.seed_sd:
        rng = np.random.default_rng(0)
        truth = np.mean([runs(rng, *items(rng, 400), 1, spread)[0].gap for _ in range(400)])
        for seeds in keys.seeds:
            for count in keys.items:
                covers, false, alone = cell(keys.studies, count, seeds, spread, float(truth))
                place = {"items": count, "seeds": seeds, "seed_sd": spread, "studies": keys.studies}
                # A single seed has no test.
                shares = {"covers": covers, "false": false if seeds > 1 else np.nan, "alone": alone}
                found.append(place | shares)
                write_csv(keys.out, pd.DataFrame(found))
    print(published(pd.DataFrame(found))["grid"], f"all figures: {keys.out}", sep="\n\n")


if __name__ == "__main__":
    main()
