"""The workflow as a part of another one, in a folder of its own: `module`, `use rule`, rules of the user's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from messages import refusal
from rewind.config.load import resolve_config_paths
from rewind.workflow.config import custom_rules

SNAKEFILE = f"""
configfile: "mine.yaml"


module rewind:
    snakefile: "{ROOT}/Snakefile"
    config: config


use rule * from rewind"""
ALL = """ as {0}*


rule all:
    default_target: True
    input: rules.{0}all.input
"""
STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {size: 32}
text: {tokenizer: words, max_words: 24}
methods: {meanP: {head: meanP}}
"""
RULE = """
rule line_count:
    input: rules.sweep.output.best
    output: "results/{study}/lines.txt"
    shell: "wc -l < {input} > {output}"
"""


def project(folder: Path, prefix: str, config: str) -> Path:
    """A folder with a workflow that takes all rules of this one, and no other file of it."""
    (folder / "Snakefile").write_text(SNAKEFILE + (ALL.format(prefix) if prefix else "\n"))
    (folder / "mine.yaml").write_text(config)
    return folder


def snakemake(folder: Path, *arguments: str, ok: bool = True) -> str:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, text[-4000:]
    return text


@pytest.mark.workflow
@pytest.mark.parametrize("prefix", ["", "rewind_"])
def test_the_demo_from_another_folder(tmp_path, prefix):
    said = snakemake(project(tmp_path, prefix, "studies: [demo]\n"), "-n", "--quiet", "rules")
    counts = dict(re.findall(r"^(\w+) +(\d+)$", said, re.M))
    assert counts[f"{prefix}train"] == counts[f"{prefix}similarity"] == "20", said
    assert counts[f"{prefix}untrained_run"] == "1", said
    assert counts[f"{prefix}video_shard"] == counts[f"{prefix}page"] == "1"


@pytest.mark.workflow
def test_a_study_rules_and_results_of_ones_own(tmp_path):
    folder = project(tmp_path, "rewind_", "studies: [mine]\ncustom_rules: [more.smk]\n")
    (folder / "config/studies").mkdir(parents=True)
    (folder / "config/studies/mine.yaml").write_text(STUDY)
    (folder / "more.smk").write_text(RULE)
    snakemake(folder, "results/mine/lines.txt")
    assert (folder / "results/mine/lines.txt").read_text().strip() == "4"
    assert "finished in" in (folder / "results/mine/logs/sweep.log").read_text(), (
        "the job of the rule without its prefix"
    )
    assert snakemake(folder, "-n", "results/mine/lines.txt").rstrip().splitlines()[-1].startswith("Nothing to be done")
    said = snakemake(folder, "-n", "--config", "custom_rules=[other.smk]", ok=False)
    assert f"custom_rules: other.smk: no such file in {folder}" in said


def test_paths_below_config_are_ones_own_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {"backbone": {"architecture": "config/models/tiny.json", "weights": "data/w.pt"}, "list": ["config/none"]}
    found = resolve_config_paths(keys, ROOT)
    assert found["backbone"] == {"architecture": str(ROOT / "config/models/tiny.json"), "weights": "data/w.pt"}
    assert found["list"] == ["config/none"] and resolve_config_paths(keys, None) == keys
    (tmp_path / "config/models").mkdir(parents=True)
    (tmp_path / "config/models/tiny.json").write_text("{}")
    assert resolve_config_paths(keys, ROOT) == keys


def test_custom_rules_are_a_list_of_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.smk").write_text("")
    assert (
        custom_rules({"custom_rules": ["a.smk"]})
        == custom_rules({"custom_rules": "a.smk"})
        == [str(tmp_path / "a.smk")]
    )
    assert custom_rules({"custom_rules": None}) == custom_rules({}) == []
    with refusal("config/config.yaml: custom_rules"):
        custom_rules({"custom_rules": {"a": 1}})
