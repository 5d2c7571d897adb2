"""The study that ``benchmarks/sigkill.py`` kills: nearly every stage of the workflow, on 22 clips."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
MOMENTS = ROOT / "benchmarks" / "moments"
NAME = "killed"
TARGETS = ["all", f"results/{NAME}/trec"]
STUDY = """
title: Killed again and again
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 3, size: 32, store: true, keep_in_memory: true}
text: {tokenizer: words, max_words: 24}
pretraining:
  training: {epochs: 2, freeze: [], batch: {size: 8}}
training:
  epochs: 3
  lr: 1.0e-3
  backbone_lr_multiplier: 1.0
  freeze: [visual]
  batch: {size: 8, captions: one, twins_together: true}
  save_every_steps: 1
methods:
  meanP: {head: meanP}
  seqLSTM: {head: seqLSTM}
  seqTransf: {head: seqTransf, head_layers: 1, head_start: random, seeds: [0]}
  tightTransf: {head: tightTransf, head_layers: 1, head_start: random, seeds: [0]}
  topical:
    head: meanP
    training: {batch: {twins_together: false, sampler: topical, sampler_options: {clusters: 2}}}
    seeds: [0]
  chance: {model: chance, seeds: [0]}
seeds: [0, 1]
sanity: {clips: 4, min_r1: 0.2, training: {epochs: 30, batch: {size: 4}, evaluate_every: 10}}
sweep: {max_frames: [2, 3], method: seqLSTM, training: {epochs: 1}}
evaluation: {cosine_gap: true}
statistics: {resamples: 200, pairs: [[seqLSTM, meanP]]}
figures: {examples: 2, method: seqLSTM}
"""
CONFIG = f"""
studies: [{NAME}]
overrides:
  datasets.shapes.source.clips: {{train: 12, valid: 4, test: 6}}
  datasets.shapes.video.shards: 2
"""


class Checkout:
    """A clone of this checkout's last commit, with the study in place of the demo.

    Attributes:
        folder: the clone.
        moments: where its jobs say which moments they pass, and read where they are to wait.
        temporary: where its processes put what they need for a moment.
    """

    def __init__(self, parent: Path) -> None:
        self.folder, self.moments, self.temporary = (parent / name for name in ("clone", "moments", "tmp"))

    @classmethod
    def new(cls, parent: Path) -> Checkout:
        """A clone that nothing was done in yet."""
        checkout = cls(parent)
        for folder in (checkout.moments, checkout.temporary):
            folder.mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(checkout.folder)], check=True)
        (checkout.folder / f"config/studies/{NAME}.yaml").write_text(STUDY, encoding="utf-8")
        (checkout.folder / "config/config.yaml").write_text(CONFIG, encoding="utf-8")
        return checkout

    def commit(self) -> str:
        asked = ["git", "-C", str(self.folder), "rev-parse", "HEAD"]
        return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def environment(self, watched: bool = True) -> dict[str, str]:
        """Of the clone's processes; ``watched``: their jobs say which moments they pass."""
        library = str(self.folder / "src")
        found = os.environ | {"PYTHONPATH": library, "TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        if watched:
            found |= {"PYTHONPATH": f"{MOMENTS}{os.pathsep}{library}", "MOMENTS": str(self.moments)}
        return found

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "all", *arguments]

    def unlock(self) -> None:
        """What `make` does before it starts Snakemake."""
        unlock = [sys.executable, "workflow/unlock.py"]
        quiet = {"check": True, "stdout": subprocess.DEVNULL}
        subprocess.run(unlock, cwd=self.folder, env=self.environment(watched=False), **quiet)

    def stale(self) -> list[str]:
        """What Snakemake would still do, without any look at moments: nothing, after a run."""
        asked = self.command("--dry-run", *TARGETS)
        done = subprocess.run(
            asked, cwd=self.folder, env=self.environment(watched=False), capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        return [] if done.returncode == 0 and "Nothing to be done" in said else said.splitlines()[-40:]


def at_work(temporary: Path, patience: float = 5) -> list[str]:
    """Processes that keep temporary files in this folder, once the killed ones had time to go; they are ended."""
    deadline = time.monotonic() + patience
    while (found := [process for process in psutil.process_iter() if _has(process, temporary)]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.1)
    said = []
    for process in found:
        with contextlib.suppress(psutil.Error):
            said.append(f"{process.pid}: {' '.join(process.cmdline())}")
            process.kill()
    return said


def _has(process: psutil.Process, temporary: Path) -> bool:
    try:
        return process.environ().get("TMPDIR") == str(temporary) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):  # it ended meanwhile, or belongs to somebody else
        return False
