"""A working folder with a study all of the user's own: head, loss, metric and format, from the pages of docs/."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from checkout import ROOT
from drawn_clips import make
from rewind.cli.main import main

BLOCK = re.compile(r"`(mylab/\w+\.py)`(?:, next to\s+the `Snakefile`)?:\n\n```python\n(.*?)```", re.DOTALL)
PAGES = ("add-a-method.md", "add-a-dataset.md", "add-a-metric.md")
COLOURS = ("red", "blue", "green", "black", "white")
SPLITS = {"train": 8, "valid": 3, "test": 4}
DATASET = """
title: My clips
source:
  format: mylab.clips
  options: {list: data/mylab/clips.jsonl, videos: data/mylab/videos}
video: {fps: 6, short_side: 32}
"""
STUDY = """
title: Heads of my own
dataset: mylab
backbone: {architecture: config/models/tiny.json}
frames: {max_frames: 3, size: 32, keep_in_memory: true}
text: {tokenizer: words, max_words: 12}
training: {epochs: 1, lr: 1.0e-3, batch: {size: 8, captions: one, twins_together: true}}
methods:
  attention:
    {head: mylab.heads.AttentionPool, label: Attention pool, training: {objective: mylab.margin.hardest_margin}}
  meanP: {head: meanP}
seeds: [0, 1]
sanity: null
metrics: [mylab.metrics.RBP]
statistics: {resamples: 200, primary: RBP}
tables: {columns: [R@1, RBP interval]}
figures: {examples: 2}
"""


def make_own_study(folder: Path, name: str = "own") -> Path:
    """The folder, as `rewind new` makes it, with modules, clips, a data set and a study that is not the default one."""
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["new", str(folder)]) == 0
    for page in PAGES:
        for path, code in BLOCK.findall((ROOT / "docs" / page).read_text()):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(code)
    videos = folder / "data/mylab/videos"
    videos.mkdir(parents=True)
    rows = []
    for split, count in SPLITS.items():
        for number in range(count):
            clip = make(videos / f"{split}{number}.mp4", "-crf", str(15 + len(rows)), size="48x32", seconds=0.8)
            text = f"a {COLOURS[number % 5]} thing {['opens', 'closes'][number % 2]} in scene {split} {number}"
            rows.append({"id": clip.stem, "file": clip.name, "split": split, "text": text, "backwards": f"not {text}"})
    (videos.parent / "clips.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (folder / "config/datasets/mylab.yaml").write_text(DATASET)
    (folder / f"config/studies/{name}.yaml").write_text(STUDY)
    return folder


def call(folder: Path, *words: str, code: int = 0, **variables: str) -> str:
    """What a command prints, in a process of its own without a path to the folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **variables}
    for name in ("REWIND_COMMAND", "REWIND_CONFIG", "REWIND_MODULES"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == code, f"{words}: {done.returncode}\n{(done.stdout + done.stderr)[-5000:]}"
    return done.stdout + done.stderr
