"""A finished study, as its user has it: what ran is in its identity, what changed is said, what is accepted stays."""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from mini_study import Workflow
from rewind import optional_packages
from rewind.encoders.tiny import write_transformers
from rewind.workflow.stages import ZERO_SHOT_VALIDATION
from rewind.workflow.staleness.no_effect import GUARDS, NON_SEMANTIC, is_ignored

STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 2, size: 32}
text: {tokenizer: words, max_words: 16}
training: {epochs: 1, lr: 1.0e-3, freeze: [visual], batch: {size: 4}}
methods:
  seqTransf: {head: seqTransf, head_layers: 1, head_start: random}
  seqLSTM: {head: seqLSTM, training: {freeze: []}}
  chance: {model: chance}
seeds: [0]
sanity: null
statistics: {resamples: 100}
figures: {examples: 2}
"""
TABLES = "results/tiny/tables"


class Ran(Workflow):
    """A checkout whose jobs write down what they ran."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "config/studies/tiny.yaml").write_text(STUDY)
        clips = "{train: 6, valid: 3, test: 4}"
        (folder / "config/config.yaml").write_text(
            f"studies: [tiny]\noverrides:\n  datasets.shapes.source.clips: {clips}\n"
        )
        self.ran = folder / "ran"
        self.ran.mkdir()

    def noted(self) -> dict[str, str]:
        paths = f"{self.folder / 'src'}:{ROOT / 'tests/support/ran'}"
        return self.env | {
            "PYTHONPATH": paths,
            "REWIND_RAN": str(self.ran),
            "REWIND_NEVER": ",".join(NON_SEMANTIC | GUARDS),
        }

    def functions(self) -> dict[str, set[str]]:
        """Stage → functions that its jobs ran."""
        ran: dict[str, set[str]] = {}
        for path in self.ran.iterdir():
            ran.setdefault(path.name.split(".")[0], set()).update(json.loads(path.read_text()))
        return ran

    def rewind(self, *arguments: str, ok: bool = True) -> str:
        command = [sys.executable, "-m", "rewind", *arguments]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True)
        assert (done.returncode == 0) == ok, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    workflow = Ran(tmp_path_factory.mktemp("checkout"))
    before, workflow.env = workflow.env, workflow.noted()
    workflow.run(TABLES)
    workflow.env = before
    return workflow


@pytest.fixture
def study(finished: Ran, tmp_path: Path) -> Ran:
    """A finished checkout that a test may edit."""
    return finished.copy(tmp_path / "copy")


def edit_head(study: Ran, old: str, new: str) -> None:
    """What SeqTransf computes last."""
    end = "no norm follows the last block.\n        return {}\n"
    study.edit("src/rewind/models/heads/clip4clip.py", end.format(old), end.format(new))


def uncovered(workflow: Ran) -> dict[str, list[str]]:
    """Stage → functions that its jobs ran, of which an edit would make nothing stale."""
    kept = [json.loads(p.read_text()) for p in (workflow.folder / ".snakemake/rewind/identity").glob("*.json")]
    missing = {}
    for stage, functions in workflow.functions().items():
        covered = {part for one in kept if one["stage"] == stage for part in one["parts"]}
        assert covered and functions, stage
        found = sorted(one for one in functions if not _covered(one, covered))
        if found:
            missing[stage] = found
    return missing


@pytest.mark.workflow
def test_what_a_stage_ran_is_in_its_identity(finished):
    wanted = {"sources", "inventory", "video_shard", "captions", "train", "features", "similarity", "untrained_run"}
    assert wanted | {"metrics", "statistics", "tables"} <= finished.functions().keys()
    assert uncovered(finished) == {}


NAMED_STUDY = """
dataset: shapes
backbone: {kind: encoder, encoder: transformers, name: models/tiny}
frames: {max_frames: 2, size: 32, fit: stretch}
training: {epochs: 1, lr: 1.0e-3, batch: {size: 4}}
methods:
  frozen: {head: seqTransf, head_layers: 1, head_start: random, training: {freeze: [text, visual]}}
  adapters: {head: meanP, training: {lora: {rank: 2}}}
  zero_shot: {model: zero_shot, seeds: [0]}
seeds: [0]
sanity: null
statistics: {resamples: 100}
figures: {examples: 2}
"""


@pytest.mark.workflow
@pytest.mark.skipif(not optional_packages.is_installed("peft"), reason="peft is not installed")
def test_a_model_by_name_is_in_the_identity_of_what_it_was_part_of(tmp_path):
    workflow = Ran(tmp_path)
    (tmp_path / "config/studies/tiny.yaml").write_text(NAMED_STUDY)
    write_transformers(tmp_path / "models/tiny", "siglip")
    before, workflow.env = workflow.env, workflow.noted()
    workflow.run(TABLES)
    assert uncovered(workflow) == {}
    text = "".join(path.read_text() for path in (tmp_path / TABLES).glob("*.md"))
    assert "No test caption is longer than the 128 tokens that the text tower reads" in text
    workflow.env = before
    assert workflow.stale(TABLES) == {}
    workflow.edit("config/studies/tiny.yaml", "rank: 2", "rank: 4")
    stale = workflow.stale(TABLES)
    assert stale["train"] == stale["similarity"] == 1 and "features" not in stale
    write_transformers(tmp_path / "models/tiny", "siglip", seed=1)
    stale = workflow.stale(TABLES)
    assert (stale["train"], stale["features"], stale["similarity"]) == (3, 1, 3)


@functools.cache
def _validators() -> frozenset[str]:
    """Functions that only check keys: what they let pass are values, which rules compare."""
    found = set()
    for path in (ROOT / "src/rewind/config").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            for part in node.body if isinstance(node, ast.ClassDef) else []:
                marks = [ast.unparse(mark) for mark in getattr(part, "decorator_list", [])]
                if any(mark.startswith(("field_validator", "model_validator")) for mark in marks):
                    found.add(f"rewind.config.{path.stem}:{node.name}.{part.name}")
    return frozenset(found)


def _covered(function: str, parts: set[str]) -> bool:
    module, _, name = function.partition(":")
    unit = name.split(".")[0]
    if is_ignored(f"{module}:{unit}") or function in _validators():
        return True
    if module.startswith("rewind.tables.templates."):
        return True  # compiled by Jinja: their text is the rule's parameter `templates`
    if function in ZERO_SHOT_VALIDATION or name.startswith("<"):
        return True  # asked and had nothing to do, in a study without images; written out when a module is imported
    return f"{module}:{unit}" in parts or any(part.startswith(f"{module}:{unit}[") for part in parts)


@pytest.mark.workflow
def test_what_changed_is_said_by_its_name(study):
    assert study.rewind("why", TABLES).strip() == "nothing is stale"
    for path in ("src/rewind/config/report.py", "src/rewind/data/formats/cifar10.py", "src/rewind/errors.py"):
        study.edit(path)
    study.edit("src/rewind/progress.py", "every: float = 5.0", "every: float = 2.0")
    assert study.rewind("why", TABLES).strip() == "nothing is stale", "no stage computes with these"
    edit_head(study, "x + frames", "x")
    study.edit("config/studies/tiny.yaml", "training: {freeze: []}", "training: {freeze: [], lr: 2.0e-3}")
    (study.folder / "results/tiny/statistics/gaps.csv").unlink()
    lines = study.rewind("why", TABLES).splitlines()
    assert "train tiny/seqTransf/seed0: models/heads/clip4clip.py changed (SeqTransf.forward)" in lines
    assert "train tiny/seqLSTM/seed0: method.training.lr: 0.001 → 0.002" in lines
    assert any(line.startswith("statistics tiny: results/tiny/statistics/gaps.csv is missing") for line in lines)
    assert lines[0].startswith("results/tiny/statistics/gaps.csv: written before, but missing now")
    assert lines[-1].startswith("and what is computed from these: ") and len(lines) == 5
    assert "snakemake -n refuses" in study.rewind("why", "results/tiny/nothing.csv", ok=False)


@pytest.mark.workflow
def test_an_accepted_edit_runs_nothing_and_is_said_below_tables(study):
    model = study.folder / "results/tiny/runs/seqTransf/seed0/model.safetensors"
    before = model.read_bytes()
    assert "nothing to accept" in study.rewind("accept", TABLES, ok=False)
    edit_head(study, "x + frames", "frames + x")
    assert study.stale(TABLES)["train"] == 1
    said = study.rewind("accept", TABLES)
    assert "train tiny/seqTransf/seed0: models/heads/clip4clip.py changed (SeqTransf.forward)" in said
    assert "results/tiny/accepted.json: 2 accepted\nThat these edits change no result is the claim of " in said
    assert study.stale(TABLES) == {"tables": 1}, "which say it"
    study.run(TABLES)
    assert study.stale(TABLES) == {} and model.read_bytes() == before
    table = (study.folder / TABLES / "notes.md").read_text()
    assert "as changing no number, after results were computed: " in table
    assert "models/heads/clip4clip.py changed (SeqTransf.forward) (stages: train, similarity)" in table
    kept = json.loads((study.folder / "results/tiny/accepted.json").read_text())
    assert {entry["job"] for entry in kept} == {"method=seqTransf, seed=0, study=tiny"}
    assert all(entry["who"] and entry["when"] and entry["recorded"] != entry["accepted"] for entry in kept)
    edit_head(study, "frames + x", "2 * x")
    assert study.stale(TABLES)["train"] == 1, "what was accepted was that edit"
    study.edit("config/studies/tiny.yaml", "head_layers: 1", "head_layers: 2")
    assert "nothing to accept" in study.rewind("accept", TABLES, ok=False), "a key is no edit of code"
