"""How often the statistics' intervals cover and its tests err, on simulated studies whose truth is known.

    python benchmarks/calibration.py                                  # 81 cells, and the other procedures on a slice
    python benchmarks/calibration.py --grid edges --jobs 2            # two seeds, few clusters, ceilings, ...
    python benchmarks/calibration.py --seeds 3 --clusters 2 --queries 1000 --seed-sd 0 1 4

A cell of the main grid is a number of seeds, a cluster size, a number of queries and a spread of the seeds; our
procedure is measured in all of them, the others (query bootstrap, Multi-Bootstrap, Fisher's randomisation and Student's
t as ranx runs them) with 1,000 queries in clusters of 2, where power is measured too. The grid of edges asks where the
formulas may break: two seeds, fixed models, few clusters, R@1 near 100%, methods with unlike seeds, a pre-training that
runs share, mean ranks, and tables of four methods. Every finished cell is saved, and a second call goes on from there.
The same call gives the same figures. At the end stand the cells that miss the bands, by name.
"""

from __future__ import annotations

import argparse
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import pandas as pd

import calibration_tables as tables
from calibration_cells import KEYS, Cell, edges, main_grid
from reference_tests import REFERENCE_TESTS, calibrate
from rewind.errors import RewindError
from rewind.io.files import write_csv
from rewind.progress import Progress
from rewind.statistics.calibration import OUR_TEST
from rewind.tables.table import slug

COLUMNS = [
    *("group", "cell", *KEYS, "replicates"),
    *("procedure", "metric", "measure", "rate", "error", "trials", "seconds"),
]


def main() -> None:
    """Measure what is not there yet, save it, print it."""
    given = arguments()
    try:
        table = tables.stored(given.out) if given.out.is_file() else pd.DataFrame(columns=COLUMNS)
    except RewindError as error:
        raise SystemExit(str(error)) from error
    cells = chosen_cells(given)
    done = set(zip(table["group"], table["cell"], table["replicates"], strict=True))
    wanted = [cell for cell in cells if (cell.group, cell.name, given.replicates) not in done]
    progress = Progress("calibration", len(wanted), "cells")
    with ProcessPoolExecutor(given.jobs) as pool:
        for job in as_completed([pool.submit(measure, cell, given.replicates) for cell in wanted]):
            table = pd.concat([table, job.result()], ignore_index=True) if len(table) else job.result()
            write_csv(given.out, table)
            progress.advance()
    if wanted:  # in the order of the grid, whichever job was first
        order = {(cell.group, cell.name): place for place, cell in enumerate(cells)}
        places = [order.get(key, len(order)) for key in zip(table["group"], table["cell"], strict=True)]
        table = table.iloc[pd.Series(places).argsort(kind="stable")]
        write_csv(given.out, table)
    names = {(cell.group, cell.name) for cell in cells}
    mine = [key in names for key in zip(table["group"], table["cell"], strict=True)]
    print(told(tables.stored(given.out)[mine], given))


def told(table: pd.DataFrame, given: argparse.Namespace) -> str:
    """What the figures say, as Markdown."""
    table = table[table["replicates"] == given.replicates]
    is_main = given.grid == "main"
    text = [tables.whole_grid(table), *tables.beside_others(table)] if is_main else tables.edges(table)
    seconds = table.drop_duplicates(["group", "cell"])["seconds"].sum()
    return "\n\n".join([*text, tables.outside(table), f"{seconds:.0f} s of one core; all figures: {given.out}"])


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--grid", choices=("main", "edges"), default="main", help="which designs")
    parser.add_argument(
        "--out", type=Path, help="figures, saved per cell; results/calibration.csv or calibration_edges.csv"
    )
    parser.add_argument("--replicates", type=int, default=2000, help="simulated studies per cell")
    parser.add_argument("--jobs", type=int, default=1, help="cells measured at once")
    parser.add_argument("--only", nargs="+", help="groups of the grid of edges")
    main_only = parser.add_argument_group("the main grid")
    main_only.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10])
    main_only.add_argument("--clusters", type=int, nargs="+", default=[1, 2, 5], help="queries per cluster")
    main_only.add_argument("--queries", type=int, nargs="+", default=[200, 1000, 2000])
    main_only.add_argument("--seed-sd", type=float, nargs="+", default=[0.0, 1.0, 4.0], help="points of R@1")
    main_only.add_argument("--difference", type=float, nargs="+", default=[2.0, 4.0], help="of the power, points")
    main_only.add_argument(
        "--disagreement", type=float, default=10.0, help="percent of R@1 outcomes, between two seeds at R@1 = 40%%"
    )
    main_only.add_argument("--r1", type=float, default=40.0, help="R@1 of all methods in percent")
    given = parser.parse_args()
    given.out = given.out or Path("results") / {"main": "calibration.csv", "edges": "calibration_edges.csv"}[given.grid]
    return given


def chosen_cells(given: argparse.Namespace) -> list[Cell]:
    """The cells of the grid that is asked for."""
    if given.grid == "main":
        values = (given.seeds, given.clusters, given.queries, given.seed_sd, given.difference)
        return main_grid(*values, disagreement=given.disagreement, r1=given.r1)
    cells = edges()
    groups = list(dict.fromkeys(cell.group for cell in cells))
    odd = sorted(set(given.only or ()) - set(groups))
    if odd:
        raise SystemExit(f"--only {odd[0]}: there are {', '.join(groups)}.")
    return [cell for cell in cells if not given.only or cell.group in given.only]


def measure(cell: Cell, replicates: int) -> pd.DataFrame:
    """All figures of a cell."""
    start = time.perf_counter()
    found = calibrate(
        cell.design,
        replicates,
        seed=zlib.crc32(cell.name.encode()),
        metrics=cell.metrics,
        procedures=cell.procedures,
    )
    found = found.assign(group=cell.group, cell=cell.name, replicates=replicates, **cell.row())
    return found.assign(seconds=time.perf_counter() - start)[COLUMNS]


def slim(table: pd.DataFrame) -> pd.DataFrame:
    """The figures that documents read of, to the digits that a simulation of this size knows."""
    chosen = table[table["replicates"] == table["replicates"].max()]
    wanted = chosen["measure"].isin(("type I", "coverage", "family-wise"))
    wanted |= (chosen["measure"] == "power") & (chosen["group"] == "power")
    return tables.slim(chosen[wanted])


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print of the figures (``python tools/publish calibration``): name → a table, or some words."""
    table = tables.as_text(table)
    found = {"grid": tables.whole_grid(table)}
    for text in tables.beside_others(table):
        title, body = text.split("\n\n", 1)
        found[slug(title.split(";")[0])] = body
    return found | {slug("type I", name): tables.range_of_errors(table, name) for name in (OUR_TEST, *REFERENCE_TESTS)}


if __name__ == "__main__":
    main()
