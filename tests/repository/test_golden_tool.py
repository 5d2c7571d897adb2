"""The tool that freezes what Rewind does before code moves: what it leaves out, and that it sees what it should."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from checkout import ROOT
from messages import expect_message

TOOL = ROOT / "tools/golden"


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    """The program as a module; its own modules lie beside it."""
    sys.path.insert(0, str(TOOL))
    try:
        spec = importlib.util.spec_from_file_location("golden_tool", TOOL / "__main__.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(TOOL))


def write(folder: Path, weight: float = 1.0, code: str = "a", seconds: float = 3.0) -> dict[str, Path]:
    """A file of each kind."""
    folder.mkdir()
    save_file({"w": torch.tensor([weight, 2.0])}, folder / "model.safetensors", {"code": code})
    np.savez(folder / "scores.npz", similarity=np.array([[weight, 0.5]]), ids=np.array(["x"]))
    pd.DataFrame({"epoch": [1], "loss": [weight], "seconds": [seconds]}).to_csv(folder / "history.csv", index=False)
    pd.DataFrame({"rank": [weight]}).to_parquet(folder / "ranks.parquet")
    (folder / "run.json").write_text(json.dumps({"best": {"R@1": weight, "seconds": seconds}, "code": code}))
    (folder / "table.md").write_text(f"| {weight} |\ncommit {code * 40}, 2026-01-0{seconds:.0f}\n")
    return {path.name: path for path in sorted(folder.iterdir())}


def test_time_and_code_are_left_out_and_numbers_are_not(tool, tmp_path):
    one = write(tmp_path / "one")
    other = write(tmp_path / "other", code="b", seconds=5.0)
    changed = write(tmp_path / "changed", weight=1.0000001)
    for name, path in one.items():
        assert tool.parts(path) == tool.parts(other[name]), name
        assert tool.parts(path) != tool.parts(changed[name]), name


@pytest.mark.parametrize("path", ["demo/logs/train/a.log", "demo/.seals/metrics.csv.json", "demo/figures/pairs.png"])
def test_what_no_two_runs_share_is_left_out_by_name(tool, path):
    import contents

    assert contents.left_out(path)
    assert not contents.left_out("demo/metrics.csv")


def test_every_kind_of_difference_is_listed(tool, tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    job = {"rule": "train", "wildcards": {"seed": "0"}, "output": {"model": ["m"]}, "params": {"lr": 1e-3}}
    for folder, lr, files in ((before, 1e-3, {"a.csv": {"x": "1"}}), (after, 1e-4, {"b.csv": {"x": "1"}})):
        for part in ("plans", "results", "help"):
            (folder / part).mkdir(parents=True)
        tool._write(folder / "plans/demo.json", [job | {"params": {"lr": lr}}])
        tool._write(folder / "results/demo.json", files)
        (folder / "help/rewind.txt").write_text(f"learning rate {lr}\n")
    found = tool.compare(before, after, ["plans", "results", "help"], ["demo"])
    assert [line.split("\n")[0] for line in found] == [
        'plans/demo.json: train seed=0: params: {"lr": 0.001} -> {"lr": 0.0001}',
        "results/demo.json: a.csv: is gone",
        "results/demo.json: a.csv x: is gone",
        "results/demo.json: b.csv: is new",
        "results/demo.json: b.csv x: is new",
        "help/rewind.txt: ",
    ]
    assert "-learning rate 0.001" in found[-1] and "+learning rate 0.0001" in found[-1]
    assert tool.compare(before, before, ["plans", "results", "help"], ["demo"]) == []


def test_a_part_that_was_never_recorded_is_no_equality(tool, tmp_path):
    (tmp_path / "help").mkdir()
    (said,) = tool.compare(tmp_path, tmp_path, ["plans"], ["demo"])
    expect_message(said)


@pytest.mark.slow
def test_the_plan_of_the_demo_names_files_and_parameters_and_no_code(tool, tmp_path):
    tool.record(tmp_path, ["plans"], ["demo"])
    jobs = json.loads((tmp_path / "plans/demo.json").read_text())
    meanp = {"study": "demo", "method": "meanP", "seed": "0"}
    train = next(job for job in jobs if job["rule"] == "train" and job["wildcards"] == meanp)
    assert train["output"]["model"] == ["results/demo/runs/meanP/seed0/model.safetensors"]
    assert train["params"]["spec"] and "code" not in train["params"]
    assert any(path.startswith("ancient(") for path in train["input"]["described"])
