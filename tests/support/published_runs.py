"""A checkout with made-up results of its own studies, as a finished workflow leaves them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd

from checkout import ROOT
from rewind.analyses.efficiency import EFFICIENCY_COLUMNS as COSTS
from rewind.analyses.probes import PROBE_TABLES
from rewind.config import Study
from rewind.workflow.config import load_config
from table_numbers import chance, gaps, intervals, metrics, pairs
from verdict_numbers import ratios

PNG = b"\x89PNG\r\n\x1a\n"


def make_checkout(folder: Path) -> Path:
    """Documents, configuration and benchmarks of this checkout, without what is published in it."""
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("published"))
    for name in ("config", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", folder)
    return folder


def publish(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    """The real program in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")} | variables
    command = [sys.executable, str(ROOT / "tools/publish"), *arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)


def make_results(folder: Path, name: str, weak: tuple[str, ...] = (), shift: float = 0.0, **machine) -> Path:
    """Results of a study of the checkout: later methods are better by four points, significantly.

    Args:
        folder: the checkout.
        name: of the study.
        weak: methods of which no pair is significant.
        shift: added to every number.
        machine: what ``run.json`` says of the hardware besides.

    Returns:
        ``results/<name>``.
    """
    study = load_config({"studies": [name]})[0][name]
    results = folder / "results" / name
    values = {m: [20 + shift + 4 * at + s / 4 for s in range(_seeds(study, m))] for at, m in enumerate(study.methods)}
    tests = {pair: 0.2 if set(pair) & set(weak) else 0.001 for pair in study.pairs()}
    against_chance = {method: 0.2 if method in weak else 0.001 for method in study.compared_methods()}
    parts = {"metrics": [], "intervals": [], "pairs": [], "gaps": [], "chance": []}
    for setting in study.evaluation.settings:
        table = metrics(values, setting)
        found = {"intervals": intervals(table), "pairs": pairs(table, tests)}
        found |= {"gaps": gaps(table)} if setting == "hard" else {}
        found |= {"chance": chance(table, against_chance)} if setting == "binary" else {}
        for part, rows in found.items():
            parts[part].append(rows[rows["direction"].isin(study.evaluation.directions)])
        table = table[table["direction"].isin(study.evaluation.directions)]
        seeds = [
            (study.methods[m].seeds or study.seeds)[s] for m, s in zip(table["method"], table["seed"], strict=True)
        ]
        parts["metrics"].append(table.assign(seed=seeds, P75=table["MnR"]))
    for part, tables in parts.items():
        file = results / ("metrics.csv" if part == "metrics" else f"statistics/{part}.csv")
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = ["method", "direction", "metric", "queries", "gap"]
        (pd.concat(tables) if tables else pd.DataFrame(columns=columns)).to_csv(file, index=False)
    _extras(study, results)
    for method, seed in study.runs():
        _write(results / f"runs/{method}/seed{seed}/run.json", json.dumps(record(study, method, seed, **machine)))
    for picture in ("intervals", "examples", "twin_examples"):
        (results / "figures").mkdir(exist_ok=True)
        (results / f"figures/{picture}.png").write_bytes(PNG + f"{name} {picture} {shift}".encode())
    return results


def record(study: Study, method: str, seed: int, **machine) -> dict:
    """What ``run.json`` says, as far as it is published."""
    hardware = {"devices": ["CPU"], "gpus": 0, "cores": 2, "instructions": "AVX2", "onednn_max": None}
    return {
        "spec": study.run_spec(method, seed=seed).fingerprint(),
        "hardware": hardware | machine,
        "date": "2026-03-02",
        "processor": "A Processor",
        "instance": None,
        "git": {"commit": "0123456789abcdef", "dirty": False},
        "python": "3.11",
        "packages": {"torch": "2.4"},
        "ffmpeg": "7",
        "driver": None,
    }


def _seeds(study: Study, method: str) -> int:
    return len(study.methods[method].seeds or study.seeds)


def _extras(study: Study, results: Path) -> None:
    """Files that only some studies have."""
    verdict = study.tables.verdict
    if verdict:
        rows = [
            {"method": m, **ratios(1.2)} | {"baseline": verdict.baseline, "rounds": 3, "batch": 8, "device": "CPU"}
            for m in verdict.methods
        ]
        _write(results / "step_time.csv", pd.DataFrame(rows).to_csv(index=False))
        ends = {"setting": "test", "shrinkage": 1.0, "low": 0.5, "high": 1.5}
        ways = study.evaluation.directions
        rows = [
            {"method": m, "direction": way, "metric": metric, "baseline": "a", "control": "b", "control_baseline": "c"}
            | ends
            for m in verdict.methods
            for way in ways
            for metric in ("R@1", "R@5")
        ]
        _write(results / "statistics/control.csv", pd.DataFrame(rows).to_csv(index=False))
    if study.evaluation.order:
        row = {"setting": study.order_setting(), "direction": "text_to_item", "metric": "R@1", "family": 9}
        row |= {"estimate": 20.0, "controlled": 15.0, "loss": 5.0, "low": 2.0, "high": 8.0, "p": 0.01, "p_holm": 0.03}
        rows = [
            row | {"method": m, "control": c, "identical": 0}
            for m in study.order_methods()
            for c in study.evaluation.order
        ]
        _write(results / "statistics/order.csv", pd.DataFrame(rows).to_csv(index=False))
    if study.blind_methods():
        row = {"best": study.blind_methods()[0], "setting": "binary", "metric": "R@1", "family": 3, "blind": 51.0}
        row |= {"estimate": 80.0, "difference": 29.0, "low": 20.0, "high": 38.0, "p": 0.01, "p_holm": 0.03}
        rows = [
            row | {"method": m, "direction": way}
            for way in study.evaluation.directions
            for m in study.compared_methods()
        ]
        _write(results / "statistics/blind.csv", pd.DataFrame(rows).to_csv(index=False))
    if study.evaluation.probes:
        row = {"seeds": 3, "estimate": 60.0, "std": 1.0, "low": 50.0, "high": 70.0, "direction": "", "constant": 0}
        rows = [
            row | {"method": m, "probe": probe, "part": "verbs" if probe == "foils" else "", "metric": metric}
            for m in study.probed_methods()
            for probe in study.probes_of(m)
            for metric in PROBE_TABLES[probe].headings or ("accuracy", "pairwise")
        ]
        _write(results / "statistics/probes.csv", pd.DataFrame(rows).to_csv(index=False))
    if study.evaluation.cosine_gap:
        _cosine_gaps(study, results)
    if study.backbone.kind == "embeddings":
        row = {"parameters": 492_800, "mb": 1.9, "device": "CPU", "threads": 1, "batch": 1, "gallery": 76}
        row |= {"forward_ms": 0.054, "search_ms": 0.059, "rounds": 50}
        rows = [row | {"method": name, "label": m.label or name} for name, m in study.methods.items()]
        _write(results / "efficiency/efficiency.csv", pd.DataFrame(rows)[list(COSTS)].to_csv(index=False))


def _cosine_gaps(study: Study, results: Path) -> None:
    runs, ends = [], []
    for method in study.with_towers():
        for scoring in ("independent", "pair_conditioned") if "cross" in method else ("independent",):
            for split in ("test", "valid"):
                place = {"method": method, "split": split, "scoring": scoring}
                runs.append(place | {"seed": 0, "gap": 0.5, "R@1": 22.8, "R@5": 50.0, "R@10": 70.0})
                for quantity in ("gap", "positive", "negative"):
                    ends.append(
                        place | {"quantity": quantity, "estimate": 0.883, "std": 0.01, "low": 0.86, "high": 0.9}
                    )
    rows = [
        {"first": a, "second": b, "split": split, "scoring": "independent", "difference": -0.003}
        | {"low": -0.01, "high": 0.004, "p": 0.37, "p_holm": 0.74}
        for a, b in study.pairs()
        for split in ("test", "valid")
    ]
    _write(results / "cosine_gap.csv", pd.DataFrame(runs).to_csv(index=False))
    _write(results / "statistics/cosine_gap.csv", pd.DataFrame(ends).to_csv(index=False))
    _write(results / "statistics/cosine_gap_pairs.csv", pd.DataFrame(rows).to_csv(index=False))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
