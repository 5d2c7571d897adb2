"""How often a whole family of tests errs after Holm's correction, on simulated studies in which nothing is to be found.

    python benchmarks/families.py                          # every family, 2 to 10 seeds, seed spreads of 0 to 15 points
    python benchmarks/families.py --only answer --seeds 3  # some of them

A family is what tables star together: order controls, the answer against 50%, all pairs of methods (whose errors are
those of the intervals of ranks), and groups of captions. Written for each: the share of studies with any star, with
Holm's correction of the p-values of single tests, and with those of families, which tables print; and the power, the
share of true differences that are starred where one method is worse. All shares have the standard error of the
simulation. The same call gives the same figures.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from rewind.io.files import write_csv
from rewind.progress import Progress
from rewind.statistics.chance import against_chance
from rewind.statistics.inference import (
    Inference,
    difference_inference,
    family_adjusted,
    holm_adjusted,
    mean_inference,
    paired_inference,
)
from rewind.statistics.simulation import Design, cluster_totals, draw_ranks, metric_values
from rewind.statistics.variance import variance_components

LEVEL = 0.05
COLUMNS = ("family", "tests", "seeds", "seed_sd", "studies", "single", "error", "power")
DESIGN = Design(queries=240, cluster=1, r1=60)  # a study of the size of the demo
LOSS = {"order": 30.0, "answer": 15.0, "pairs of 10": 15.0, "pairs of 25": 15.0, "groups": 30.0}
"""Points by which one method differs where the power is measured."""

Family = list[Inference]
"""Tests of one shape: a study each."""


def order(design: Design, totals: np.ndarray) -> Family:
    """4 methods, each under 5 controls: the same runs, so that seeds are in pairs."""
    runs = totals.reshape(len(totals), 4, 6, *totals.shape[2:])
    return [
        paired_inference(variance_components(runs[:, m, 5] - runs[:, m, k], _sizes(totals)), 1 - LEVEL, 1)
        for m in range(4)
        for k in range(5)
    ]


def answer(design: Design, totals: np.ndarray) -> Family:
    """10 methods in Binary against the 50% of guessing."""
    return [_chance(totals[:, method]) for method in range(totals.shape[1])]


def pairs(design: Design, totals: np.ndarray, paired: bool = False) -> Family:
    """All pairs of methods, which ranks of methods rest on."""
    sizes = _sizes(totals)
    if paired:
        return [
            paired_inference(variance_components(totals[:, b] - totals[:, a], sizes), 1 - LEVEL, 1)
            for a, b in combinations(range(totals.shape[1]), 2)
        ]
    parts = [variance_components(totals[:, method], sizes) for method in range(totals.shape[1])]
    return [difference_inference(b, a, 1 - LEVEL, 1) for a, b in combinations(parts, 2)]


def groups(design: Design, totals: np.ndarray) -> Family:
    """4 methods in 10 groups of captions, against 50%."""
    return [_chance(part) for method in range(4) for part in np.split(totals[:, method], 10, axis=-1)]


FAMILIES = {
    "order": (order, {"methods": 24}),
    "answer": (answer, {"methods": 10, "r1": 50.0, "gallery": 2}),
    "pairs of 10": (pairs, {"methods": 10}),
    "pairs of 10, seeds in pairs": (lambda *given: pairs(*given, paired=True), {"methods": 10}),
    "pairs of 25, seeds in pairs": (lambda *given: pairs(*given, paired=True), {"methods": 25}),
    "groups": (groups, {"methods": 4, "r1": 50.0, "gallery": 2}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 3, 5, 10])
    parser.add_argument("--seed-sd", type=float, nargs="+", default=[0.0, 4.0, 10.0, 15.0], help="points of R@1")
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("results/families.csv"))
    given = parser.parse_args()
    cells = [(name, seeds, sd) for name in given.only for seeds in given.seeds for sd in given.seed_sd]
    progress, rows = Progress("families", len(cells), "cells"), []
    for cell in cells:
        rows.append(measure(*cell, studies=given.studies))
        write_csv(given.out, pd.DataFrame(rows, columns=list(COLUMNS)))
        progress.advance()
    print(table_text(pd.read_csv(given.out)))


def measure(name: str, seeds: int, seed_sd: float, studies: int) -> dict[str, object]:
    """A row of :data:`COLUMNS`."""
    tests, keys = FAMILIES[name]
    design = replace(DESIGN, seeds=seeds, seed_sd=seed_sd, **keys)
    rng = np.random.default_rng(zlib.crc32(f"{name} {seeds} {seed_sd}".encode()))
    stars = {"single": 0, "family": 0}
    size = 0
    for family in _studies(design, tests, studies, rng):
        size = len(family)
        stars["single"] += int((holm_adjusted(np.stack([t.p for t in family], axis=-1)) < LEVEL).any(axis=-1).sum())
        stars["family"] += int((_starred(family)).any(axis=0).sum())
    better = replace(design, difference=next(loss for key, loss in LOSS.items() if name.startswith(key)))
    found = [_starred(family)[-1] for family in _studies(better, tests, max(studies // 4, 1), rng)]
    return {
        **{"family": name, "tests": size, "seeds": seeds, "seed_sd": seed_sd, "studies": studies},
        **{"single": stars["single"] / studies, "error": stars["family"] / studies},
        "power": float(np.concatenate(found).mean()),
    }


def table_text(table: pd.DataFrame) -> str:
    """Markdown: a row for each family and number of seeds, a column for each spread of the seeds."""
    spreads = sorted(table["seed_sd"].unique())
    lines = [
        "| family | tests | seeds | " + " | ".join(f"sd {sd:g}" for sd in spreads) + " |",
        "| --- | --- | --- |" + " --- |" * len(spreads),
    ]
    for (family, tests, seeds), rows in table.groupby(["family", "tests", "seeds"], sort=False):
        cells = rows.set_index("seed_sd")
        fields = [
            f"{cells.loc[sd, 'single']:.3f} → {cells.loc[sd, 'error']:.3f}" if sd in cells.index else ""
            for sd in spreads
        ]
        lines.append(f"| {family} | {tests} | {seeds} | " + " | ".join(fields) + " |")
    return "\n".join(lines)


def power_text(table: pd.DataFrame) -> str:
    """The same for the power."""
    spreads = sorted(table["seed_sd"].unique())
    lines = [
        "| family | points | seeds | " + " | ".join(f"sd {sd:g}" for sd in spreads) + " |",
        "| --- | --- | --- |" + " --- |" * len(spreads),
    ]
    for (family, seeds), rows in table.groupby(["family", "seeds"], sort=False):
        cells = rows.set_index("seed_sd")["power"]
        points = next(loss for key, loss in LOSS.items() if str(family).startswith(key))
        fields = [f"{cells[sd]:.2f}" if sd in cells.index else "" for sd in spreads]
        lines.append(f"| {family} | {points:g} | {seeds} | " + " | ".join(fields) + " |")
    return "\n".join(lines)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print (``python tools/publish families``)."""
    worst = table[table["seeds"] > 2]["error"].max()
    return {"errors": table_text(table), "power": power_text(table), "worst": f"{worst:.3f}"}


def _studies(design: Design, tests: object, studies: int, rng: np.random.Generator) -> Iterator[Family]:
    batch = max(1, 3_000_000 // (design.methods * int(design.seeds) * design.queries))
    for start in range(0, studies, batch):
        ranks = draw_ranks(design, min(batch, studies - start), rng)
        yield tests(design, cluster_totals(design, metric_values(ranks, "R@1")).astype(float))


def _starred(family: Family) -> np.ndarray:
    """(tests, studies) whether a test is significant in its family."""
    # What is not significant alone is not in a family: its p-value there need not be computed.
    shown = [replace(test, statistic=np.where(test.p < LEVEL, test.statistic, np.nan)) for test in family]
    return family_adjusted(shown) < LEVEL


def _chance(totals: np.ndarray) -> Inference:
    percent = variance_components(100 * totals, _sizes(totals))
    return against_chance(mean_inference(percent, 1 - LEVEL, least=0, most=100), totals.shape[-1])


def _sizes(totals: np.ndarray) -> np.ndarray:
    return np.ones(totals.shape[-1], dtype=int)


if __name__ == "__main__":
    main()
