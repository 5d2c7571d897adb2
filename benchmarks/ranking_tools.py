"""Our metrics beside those that ranx and ir_measures compute from the exported TREC files.

    pip install --constraint envs/constraints.txt ranx
    python benchmarks/ranking_tools.py results/demo          # a finished study, after `snakemake results/demo/trec`

Every run is read by both tools. Without ties all three agree to the last digits. Tools put ties in an order of their
own, so a tied run must lie between our optimistic and our pessimistic value. The table shows the largest difference
over the runs of a setting, and by how much a tool leaves those bounds. A tool that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from rewind.io.files import read_csv

CUTOFFS = (1, 5, 10)
NAMES = (*(f"R@{k}" for k in CUTOFFS), "MRR")


def with_ranx(qrels: Path, run: Path) -> dict[str, float]:
    """Hit rates and MRR by ranx."""
    from ranx import Qrels, Run, evaluate

    measures = [*(f"hit_rate@{k}" for k in CUTOFFS), "mrr"]
    judged, found = Qrels.from_file(str(qrels), kind="trec"), Run.from_file(str(run), kind="trec")
    values = evaluate(judged, found, measures, make_comparable=False)
    return dict(zip(NAMES, (float(values[name]) for name in measures), strict=True))


def with_ir_measures(qrels: Path, run: Path) -> dict[str, float]:
    """Success@k and RR by ir_measures, which asks trec_eval."""
    import ir_measures

    measures = [ir_measures.parse_measure(name) for name in (*(f"Success@{k}" for k in CUTOFFS), "RR")]
    judged, found = ir_measures.read_trec_qrels(str(qrels)), ir_measures.read_trec_run(str(run))
    values = ir_measures.calc_aggregate(measures, judged, found)
    return dict(zip(NAMES, (values[measure] for measure in measures), strict=True))


TOOLS: dict[str, Callable[[Path, Path], dict[str, float]]] = {"ranx": with_ranx, "ir_measures": with_ir_measures}


def compare(study: Path, tools: list[str]) -> pd.DataFrame:
    """One row per run, tool and metric: ours, theirs, and our bounds under ties (MRR has none)."""
    metrics = read_csv(study / "metrics.csv")
    rows = []
    for row in metrics.to_dict("records"):
        place = f"{row['setting']}_{row['direction']}"
        run = study / "trec" / f"run_{row['method']}_seed{row['seed']}_{place}.txt"
        for tool in tools:
            theirs = TOOLS[tool](study / "trec" / f"qrels_{place}.txt", run)
            for name, value in theirs.items():
                scale = 1 if name == "MRR" else 100
                bounds = [row.get(f"{name}_{end}", float("nan")) for end in ("pessimistic", "optimistic")]
                key = {k: row[k] for k in ("method", "seed", "setting", "direction")} | {"tool": tool, "metric": name}
                rows.append(key | {"ours": row[name], "theirs": scale * value, "low": bounds[0], "high": bounds[1]})
    return pd.DataFrame(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split(r"\n\n", __doc__)[0])
    parser.add_argument("study", type=Path, help="folder of a finished study")
    study = parser.parse_args().study
    tools = [name for name in TOOLS if importlib.util.find_spec(name)]
    if not tools or not (study / "trec").is_dir():
        raise SystemExit(f"needs ranx or ir-measures installed, and {study}/trec (snakemake {study}/trec)")
    began = time.perf_counter()
    table = compare(study, tools)
    table["tied"] = table["high"] > table["low"]
    table["difference"] = (table["ours"] - table["theirs"]).abs()
    outside = pd.concat([table["low"] - table["theirs"], table["theirs"] - table["high"]], axis=1).max(axis=1)
    table["outside"] = outside.clip(lower=0).where(outside > 1e-9, 0)
    ties = table.groupby(["method", "seed", "setting", "direction"])["tied"].transform("any")
    table["runs"] = ties.map({True: "with ties", False: "without ties"})
    shown = table.groupby(["tool", "runs", "metric"], sort=False)[["difference", "outside"]].max()
    print(shown.assign(runs_compared=table.groupby(["tool", "runs", "metric"], sort=False).size()).to_string())
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
