"""Jobs of the workflow in processes of their own: they are given what Snakemake gives them, paths as text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from checkout import ROOT
from rewind.config import RunSpec

SCRIPT = """
import json, os, signal, sys
from rewind.workflow.job import run_script
from rewind.job_values import Job
from rewind.training.checkpoint import StateFile

saves, save = [], StateFile.save

def save_and_die(self, state):
    save(self, state)
    saves.append(state)
    if len(saves) == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

if int(sys.argv[2]):
    StateFile.save = save_and_die
run_script(Job.read(json.loads(sys.argv[1])))
"""


def job(
    rule: str, spec: RunSpec, data: str, inputs: dict[str, Any], outputs: dict[str, str], **more: Any
) -> dict[str, Any]:
    """What Snakemake would give a job of a data set ``results/data/<name>``.

    Args:
        rule: its name.
        spec: the keys of the run.
        data: name of the data set.
        inputs, outputs: files by name, besides captions and the table of items.
        more: parameters; ``wildcards`` are none.
    """
    folder = f"results/data/{data}"
    inputs = {
        "item_table": f"{folder}/items.csv",
        **{split: f"{folder}/captions/{data}_{split}.csv" for split in ("train", "valid", "test")},
        **inputs,
    }
    wildcards = more.pop("wildcards", {})
    execution = {"keys": spec.left_out("run")}
    params = {"spec": spec.fingerprint(), "execution": execution, "dataset": data, "code": "code", **more}
    parts = {"input": inputs, "output": outputs, "params": params}
    named = {name: {"values": list(part.values()), "names": part} for name, part in parts.items()}
    log = f"results/logs/{rule}.log"
    return {"rule": rule, **named, "wildcards": wildcards, "threads": 1, "resources": {}, "log": log}


def run_job(root: Path, content: dict[str, Any], dies_after: int = 0) -> subprocess.CompletedProcess[str]:
    """Do it in a process of its own in ``root``, which kills itself right after so many saves of a run's state."""
    for path in content["output"]["values"]:
        (root / path).parent.mkdir(parents=True, exist_ok=True)  # as Snakemake does
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(content), str(dies_after)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
    )
