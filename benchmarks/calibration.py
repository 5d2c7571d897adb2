"""How often the statistics' intervals cover and its tests err, on simulated studies whose truth is known.

    python benchmarks/calibration.py                                  # 81 cells, and the other procedures on a slice
    python benchmarks/calibration.py --jobs 2 --out results/calibration.csv
    python benchmarks/calibration.py --seeds 3 --clusters 2 --queries 1000 --seed-sd 0 1 4

A cell is a number of seeds, a cluster size, a number of queries and a spread of the seeds; our procedure is measured
in all of them, the others (query bootstrap, Multi-Bootstrap, Fisher's randomisation and Student's t as ranx runs
them) with 1,000 queries in clusters of 2, where power is measured too. Every finished cell is saved, and a second
call goes on from there. The same call gives the same figures.
"""

from __future__ import annotations

import argparse
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from pathlib import Path

import pandas as pd

from rewind.files import read_csv, write_csv
from rewind.progress import Progress
from rewind.statistics.calibration import OURS, RIVALS, calibrate
from rewind.statistics.simulation import METRICS, Design

SLICE = (1000, 2)  # queries and cluster size where the other procedures and power are measured
CELL = ["seeds", "cluster", "queries", "seed_sd", "difference", "disagreement", "r1"]
COLUMNS = [*CELL, "replicates", "procedure", "metric", "measure", "rate", "trials", "seconds"]


def main() -> None:
    """Measure what is not there yet, save it, print it."""
    given = arguments()
    table = read_csv(given.out) if given.out.is_file() else pd.DataFrame(columns=COLUMNS)
    done = {tuple(row) for row in table[[*CELL, "replicates"]].drop_duplicates().itertuples(index=False)}
    cells = [cell for cell in grid(given) if (*cell, given.replicates) not in done]
    progress = Progress("calibration", len(cells), "cells")
    with ProcessPoolExecutor(given.jobs) as pool:
        for job in as_completed([pool.submit(measure, cell, given.replicates) for cell in cells]):
            table = pd.concat([table, job.result()], ignore_index=True) if len(table) else job.result()
            write_csv(given.out, table.sort_values([*CELL, "replicates"], kind="stable"))
            progress.advance()
    chosen = table[table["replicates"] == given.replicates]
    print(whole_grid(chosen), *beside_others(chosen), sep="\n\n")
    print(f"\n{chosen.drop_duplicates(CELL)['seconds'].sum():.0f} s of one core; all figures: {given.out}")


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/calibration.csv"), help="figures, saved per cell")
    parser.add_argument("--replicates", type=int, default=2000, help="simulated studies per cell")
    parser.add_argument("--jobs", type=int, default=1, help="cells measured at once")
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 2, 5], help="queries per cluster")
    parser.add_argument("--queries", type=int, nargs="+", default=[200, 1000, 2000])
    parser.add_argument("--seed-sd", type=float, nargs="+", default=[0.0, 1.0, 4.0], help="points of R@1")
    parser.add_argument("--difference", type=float, nargs="+", default=[2.0, 4.0], help="of the slice's power, points")
    parser.add_argument("--disagreement", type=float, default=10.0, help="percent of R@1 outcomes, between two seeds")
    parser.add_argument("--r1", type=float, default=40.0, help="R@1 of all methods in percent")
    return parser.parse_args()


def grid(given: argparse.Namespace) -> list[tuple]:
    """Cells as values of ``CELL``."""
    cells = []
    for seeds, cluster, queries, seed_sd in product(given.seeds, given.clusters, given.queries, given.seed_sd):
        differences = [0.0, *given.difference] if (queries, cluster) == SLICE else [0.0]
        cells += [(seeds, cluster, queries, seed_sd, points, given.disagreement, given.r1) for points in differences]
    return cells


def measure(cell: tuple, replicates: int) -> pd.DataFrame:
    """All figures of a cell."""
    design = Design(**dict(zip(CELL, cell, strict=True)))
    others = (design.queries, design.cluster) == SLICE
    start = time.perf_counter()
    found = calibrate(
        design,
        replicates,
        seed=zlib.crc32(repr(cell).encode()),
        metrics=("R@1",) if design.difference else METRICS,
        procedures=(OURS, *RIVALS) if others else (OURS,),
    )
    found = found.assign(**dict(zip(CELL, cell, strict=True)), replicates=replicates)
    return found.assign(seconds=time.perf_counter() - start)[COLUMNS]


def whole_grid(table: pd.DataFrame) -> str:
    """Our procedure over all cells without a difference: mean [least, greatest] per number of seeds."""
    rows = table[(table["procedure"] == OURS) & (table["difference"] == 0)]
    rows = rows.assign(rate=rows["rate"].where(rows["measure"] != "coverage", 1 - rows["rate"]))
    names = {"type I": "type I of a difference", "coverage": "one method not covered", "family-wise": "any, after Holm"}
    lines = []
    for measure_name, title in names.items():
        for metrics in (("R@1", "R@10", "MRR"), ("MnR",)):
            chosen = rows[(rows["measure"] == measure_name) & rows["metric"].isin(metrics)].groupby("seeds")["rate"]
            cells = [f"{r.mean():.3f} [{r.min():.3f}, {r.max():.3f}]" for _, r in chosen]
            lines.append([f"{title}: {', '.join(metrics)}", *cells])
    return markdown(["nominal .05", *(f"{n} seeds" for n in sorted(rows["seeds"].unique()))], lines)


def beside_others(table: pd.DataFrame) -> list[str]:
    """All procedures on the slice, per number of seeds; the figures of a field are those of the seeds' spreads."""
    rows = table[(table["queries"] == SLICE[0]) & (table["cluster"] == SLICE[1])]
    if rows.empty:
        return []
    spreads, seeds = sorted(rows["seed_sd"].unique()), sorted(rows["seeds"].unique())
    plain, shifted = rows[rows["difference"] == 0], rows[rows["difference"] != 0]
    parts = [
        ("Type I error of a difference, mean over metrics", plain[plain["measure"] == "type I"]),
        (
            "One method not covered: R@1, R@10, MRR",
            plain[(plain["measure"] == "coverage") & (plain["metric"] != "MnR")].assign(rate=lambda t: 1 - t["rate"]),
        ),
        *(
            (f"Power, R@1, a true difference of {points:g} points", shifted[shifted["difference"] == points])
            for points in sorted(shifted["difference"].unique())
        ),
    ]
    text = []
    for title, part in parts:
        part = part[part["measure"] == "power"] if title.startswith("Power") else part
        rates = part.groupby(["procedure", "seeds", "seed_sd"])["rate"].mean()
        lines = [
            [name, *(" ".join(f"{rates[name, n, sd]:.3f}" for sd in spreads if (name, n, sd) in rates) for n in seeds)]
            for name in (OURS, *RIVALS)
            if name in part["procedure"].to_numpy()
        ]
        note = f"{title}; seed sd {', '.join(f'{sd:g}' for sd in spreads)} points"
        text.append(f"{note}\n\n{markdown(['procedure', *(f'{n} seeds' for n in seeds)], lines)}")
    return text


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    main()
