"""What every job asks of a scheduler: GPUs only where something is computed on them, a day only where it trains.

Read off a dry-run under the profiles for clusters, without the plugin that hands jobs in.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from checkout import ROOT

pytestmark = pytest.mark.slow

STUDIES = "studies=[demo, cosine_gap_demo, sanw_stamps, translator_stamps]"
OVER = "overrides={studies.cosine_gap_demo.resources: {gpus: 4, require_gpu: true}, studies.demo.resources.gpus: 4}"
CHOSEN = ("gpu", "_gpus", "runtime", "mem_mb")


def checkout(folder: Path, profile: str) -> Path:
    """A copy of the workflow, with a profile that keeps nothing but what is asked for."""
    for name in ("workflow", "config", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "Snakefile", folder)
    path = folder / "profiles" / profile / "config.yaml"
    kept = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump({name: kept[name] for name in kept if name.startswith(("default-r", "set-"))}))
    return path.parent


def asked(folder: Path, profile: str) -> dict[tuple[str, str, str], dict[str, int]]:
    """(rule, study, method) → resources of its jobs."""
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "8", "--workflow-profile"]
    command += [str(checkout(folder, profile)), "--config", STUDIES, OVER, "--"]
    targets = ["all", "results/translator_stamps/efficiency"]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([*command, *targets], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    found = {}
    for block in re.split(r"\n(?=\[)", done.stdout + done.stderr):
        rule, wildcards = re.search(r"\nrule (\w+):", block), re.search(r"\n    wildcards: (.*)", block)
        if rule is None or wildcards is None:
            continue
        given = dict(part.split("=", 1) for part in wildcards[1].split(", "))
        resources = dict(part.split("=", 1) for part in re.search(r"\n    resources: (.*)", block)[1].split(", "))
        place = (rule[1], given.get("study") or given.get("dataset", ""), given.get("method", ""))
        found[place] = {name: int(resources[name]) for name in CHOSEN if name in resources}
    return found


@pytest.fixture(scope="module", params=["slurm", "aws-batch"])
def jobs(request, tmp_path_factory):
    return request.param, asked(tmp_path_factory.mktemp("checkout"), request.param)


def test_chance_and_closed_forms_ask_for_no_gpu_and_no_day(jobs):
    closed = [("sanw_stamps", "ridge"), ("translator_stamps", "ridge"), ("translator_stamps", "geometry")]
    for study, method in closed:
        for rule in ("train", "similarity"):
            found = jobs[1][rule, study, method]
            assert (found["gpu"], found["runtime"]) == (0, 60), (rule, study, method)
    for study, method in (("demo", "chance"), ("sanw_stamps", "chance"), ("cosine_gap_demo", "random")):
        found = jobs[1]["untrained_run", study, method]
        assert found["gpu"] == 0 and found.get("runtime") == (60 if jobs[0] == "slurm" else None)
    assert jobs[1]["cosines", "cosine_gap_demo", "random"]["gpu"] == 0


def test_a_backbone_before_training_learns_nothing_but_encodes(jobs):
    found = {rule: jobs[1][rule, "cosine_gap_demo", "zero_shot"] for rule in ("train", "similarity", "cosines")}
    assert [found[rule]["gpu"] for rule in found] == [0, 4, 1]
    assert [found[rule]["runtime"] for rule in found] == [60, 720, 720]


def test_training_asks_for_its_gpus_and_a_day(jobs):
    profile, found = jobs
    for rule, method in (("train", "seqTransf"), ("pretrain", ""), ("sweep_trial", "")):
        asked = found[rule, "demo", method]
        assert asked["gpu"] == 4 and asked["mem_mb"] == (2000 if profile == "slurm" else 32768), rule
        if profile == "slurm" or rule == "train":
            assert asked["runtime"] == 1440, rule
    if profile == "slurm":
        assert found["frames", "demo", ""] == {"runtime": 720, "mem_mb": 2000}


def test_a_job_of_one_process_asks_for_one_gpu(jobs):
    assert jobs[1]["features", "demo", ""]["gpu"] == jobs[1]["export_vectors", "demo", "seqTransf"]["gpu"] == 1
    assert jobs[1]["step_time", "sanw_stamps", ""]["gpu"] == jobs[1]["efficiency", "translator_stamps", ""]["gpu"] == 1


def test_packaged_networks_make_vectors_on_a_cpu(jobs):
    assert jobs[1]["encode_dataset", "stamps_vectors", ""]["gpu"] == 0


def test_every_rule_that_may_use_a_gpu_is_looked_at_here(jobs):
    """A new one must be listed, so that what it asks is thought about."""
    known = {"train", "pretrain", "sweep_trial", "sanity", "features", "similarity", "export_vectors"}
    known |= {"cosines", "order_controls", "encode_dataset", "efficiency", "step_time", "untrained_run"}
    known |= {"blind_run"}
    assert {rule for (rule, _, _), found in jobs[1].items() if "gpu" in found} == known
    text = "".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    assert len(re.findall(r"^        gpu=", text, re.M)) == len(
        known | {"zero_shot", "submission", "encode_vectors", "encode_foil_texts", "probes", "rerank"}
    )
