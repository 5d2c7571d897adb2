"""The calibration as it is run: named grids, resumed where it stopped, cells outside the bands by name."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import pytest

from checkout import ROOT


@pytest.fixture
def tools(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import calibration_cells
    import calibration_tables

    return calibration_cells, calibration_tables


def measured(out, *arguments):
    command = [sys.executable, "benchmarks/calibration.py", "--out", out, "--replicates", "40", *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_broken_off_calibration_goes_on_and_gives_the_same_figures(tmp_path, tools):
    out, edges = tmp_path / "edges.csv", ("--grid", "edges", "--only", "unequal seeds", "two seeds")
    text = measured(out, *edges, "--jobs", "2")
    table = pd.read_csv(out)
    whole = table.drop(columns="seconds")
    assert (
        "type I outside [0.033, 0.060]" in text and "2+10+10 seeds, 500 clusters of 2, R@1 40%, seed sd 4+1+1" in text
    )
    kept = table[table["cell"] != table["cell"].iloc[0]]
    kept.assign(rate=kept["rate"].where(kept["measure"] != "p = 0", 0.25)).to_csv(out, index=False)
    measured(out, *edges)
    again = pd.read_csv(out).drop(columns="seconds")
    assert (again.loc[again["measure"] == "p = 0", "rate"] == 0.25).sum() == (kept["measure"] == "p = 0").sum(), (
        "what was there is not measured again"
    )
    same = again["measure"] != "p = 0"
    pd.testing.assert_frame_equal(again[same], whole[same], check_exact=False, rtol=1e-12)


def test_the_main_grid_prints_its_tables_and_another_file_is_refused(tmp_path):
    out = tmp_path / "main.csv"
    options = ("--seeds", "3", "--clusters", "2", "--queries", "60", "--seed-sd", "0", "1")
    text = measured(out, *options)
    assert "| nominal 0.05 | 3 seeds |" in text and "interval misses the true value: R@1, R@10, MRR" in text
    out.write_text("seeds,cluster\n3,2\n")
    command = [sys.executable, "benchmarks/calibration.py", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1 and "choose another --out" in done.stderr and "Traceback" not in done.stderr


def test_stored_figures_are_laid_out_by_their_design(tools):
    _, tables = tools
    row = {"group": "few clusters", "procedure": tables.OUR_TEST, "measure": "type I", "metric": "R@1", "seed_sd": "0"}
    sizes = [(3, 5, "3", 0.01), (3, 5, "10", 0.02), (20, 1, "3", 0.03), (100, 1, "3", 0.04), (100, 1, "3", 0.06)]
    rows = [row | {"queries": q * c, "cluster": c, "seeds": s, "rate": r} for q, c, s, r in sizes]
    text = tables.crossed(pd.DataFrame(rows), "few clusters", "type I", "R@1", ("cluster", "clusters"), ("seeds",))
    assert text.splitlines()[2:] == [
        "| cluster | clusters | 3 seeds | 10 seeds |",
        "| --- | --- | --- | --- |",
        "| 1 | 20 | 0.030 |  |",
        "| 1 | 100 | 0.050 |  |",
        "| 5 | 3 | 0.010 | 0.020 |",
    ]


def test_unlike_cells_have_unlike_names(tools):
    cells, _ = tools
    names = [cell.name for cell in cells.edges()]
    designs = {repr(cell.design) for cell in cells.edges()}
    assert len(set(names)) == len(designs), "a name stands for one design: by it figures are found again"
    assert len({(cell.group, cell.name) for cell in cells.edges()}) == len(names), "no cell twice in a group"
    main = cells.main_grid([3, 5], [1, 2], [200, 1000], [0.0, 1.0], [2.0], r1=40.0)
    assert len({(cell.group, cell.name) for cell in main}) == len(main)


def test_only_what_is_surely_outside_is_listed(tools):
    _, tables = tools
    shown = [("type I", 0.075, 0.005), ("type I", 0.069, 0.005), ("coverage", 0.90, 0.01), ("coverage", 0.985, 0.01)]
    shown += [("type I", 0.010, 0.002), ("coverage", 0.999, 0.001)]
    rows = [
        {
            "group": "g",
            "cell": f"cell {at}",
            "metric": "R@1",
            "procedure": tables.OUR_TEST,
            "measure": m,
            "rate": r,
            "error": e,
        }
        for at, (m, r, e) in enumerate(shown)
    ]
    text = tables.outside(pd.DataFrame(rows))
    listed = {at: f"cell {at} " in text for at in range(len(shown))}
    assert listed == {0: True, 1: False, 2: True, 3: False, 4: True, 5: True}
    assert text.count("liberal |") == 2 and text.count("conservative |") == 2
    assert "2 of 3 figures" in text
