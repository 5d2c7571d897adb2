"""A miniature study in a checkout of its own, from clips to tables in a minute or two."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

from checkout import ROOT
from undeclared import environment, jobs, undeclared

# Rules that make a data set.
DATA = {"sources", "inventory", "video_shard", "videos", "captions"}
MINI = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 4, size: 32, keep_in_memory: true}
text: {tokenizer: words, max_words: 24}
pretraining:
  training: {epochs: 2, freeze: [], batch: {size: 16}}
training:
  epochs: 2
  lr: 1.0e-3
  backbone_lr_multiplier: 1.0
  freeze: [visual]
  batch: {size: 16, captions: one, twins_together: true}
methods:
  meanP: {head: meanP}
  seqLSTM: {head: seqLSTM}
  clip_only: {model: clip_only}
  chance: {model: chance, seeds: [0]}
seeds: [0, 1]
sanity: {clips: 4, min_r1: 0.2, training: {epochs: 30, batch: {size: 4}, evaluate_every: 10}}
sweep: {max_frames: [3, 4], method: seqLSTM, training: {epochs: 1}}
statistics: {resamples: 200}
evaluation: {order: [reversed, single], probes: [pairs, direction]}
figures: {examples: 2, method: seqLSTM}
"""


class Workflow:
    """A checkout of its own, with the library taken from its own ``src``.

    Whatever a test runs in it, no job may look at a file that its rule does not declare.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("workflow", "config", "profiles", "src", "Snakefile"):
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copy2
            copy(source, folder / name)  # bytecode too: with the time of its source it holds until that is edited
        (folder / "config/studies/mini.yaml").write_text(MINI)
        (folder / "config/config.yaml").write_text(
            "studies: [mini]\noverrides:\n  datasets.shapes.source.clips: {train: 12, valid: 4, test: 6}\n"
        )
        self.env = self.watched()

    def watched(self) -> dict[str, str]:
        """The environment in which the checkout's own library runs, and jobs write down what they look at."""
        paths = {"PYTHONPATH": str(self.folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        return environment(os.environ | paths, self.opened)

    @property
    def opened(self) -> Path:
        return self.folder / "opened"

    def copy(self, folder: Path) -> Self:
        """The same in another folder, for a test that edits it; what jobs looked at before is not told of there."""
        twin = object.__new__(type(self))
        # Keeps modification times.
        shutil.copytree(self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(self.opened.name))
        twin.folder = folder
        twin.env = twin.watched()
        return twin

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments]

    def run(self, *arguments: str, ok: bool = True) -> str:
        done = subprocess.run(self.command(*arguments), cwd=self.folder, env=self.env, capture_output=True, text=True)
        text = done.stdout + done.stderr
        assert (done.returncode == 0) == ok, text[-6000:]
        assert not (found := undeclared(jobs(self.opened))), f"looked at, but not declared: {found}"
        return text

    def stale(self, *arguments: str) -> dict[str, int]:
        """Rule → number of jobs that a run would start."""
        text = self.run("-n", *arguments)
        block = re.search(r"^job +count\n-+ +-+\n(.*?)^total", text, re.M | re.S)
        jobs = dict(line.split() for line in block[1].strip().splitlines()) if block else {}
        jobs.pop("all", None)
        return {name: int(count) for name, count in jobs.items()}

    def edit(self, path: str, old: str = "", new: str = "\n# an edit\n") -> None:
        """Replace what stands once in a file; without ``old`` a comment is added."""
        text = (self.folder / path).read_text()
        assert not old or text.count(old) == 1, (path, old)
        (self.folder / path).write_text(text.replace(old, new) if old else text + new)
