"""Deterministic runs: the same bits from process to process, without filling memory that is about to be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from checkout import ROOT

RUN = f"""
import hashlib, sys
import numpy as np, torch
from rewind.models.clip4clip import build
from rewind.config import Backbone, Method, Text, Training
from rewind.training.checkpoint import StateFile
from rewind.loading.frame_source import CachedFrames
from rewind.training.loop import TrainingData, train_model
from rewind.torch_setup import seed_everything

wanted, state = sys.argv[1] == "True", sys.argv[2]
captions = [f"a {{colour}} {{shape}}" for colour in ("red", "blue") for shape in ("ring", "star", "box", "disc")]
rows, seen = np.arange(8), []

class Watched(CachedFrames):
    def batch(self, which):
        fills = torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory
        seen.append(("fills" if fills else "leaves", torch.are_deterministic_algorithms_enabled()))
        return super().batch(which)

seed_everything(3, wanted)
tiny = Backbone(architecture={str(ROOT / "config/models/tiny.json")!r})
method = Method(head="tightTransf", head_layers=2, head_start="random")
model = build(method, tiny, Text(tokenizer="words", max_words=8), captions)
frames = np.random.default_rng(0).normal(size=(8, 3, 96)).astype(np.float32)
inputs = Watched(frames, np.ones((8, 3), np.uint8))
data = TrainingData(inputs, model.backbone.prepare_text(captions), rows, rows, captions, captions)
keys = Training(epochs=3, lr=1e-3, freeze=["visual"], batch={{"size": 4}}, deterministic=wanted, micro_batch=2)
train_model(model, data, keys, 3, torch.device("cpu"), lambda m: {{"valid_sum": 1.0}}, StateFile(state, "x"), "run")
whole = hashlib.sha256(b"".join(v.numpy().tobytes() for v in model.state_dict().values())).hexdigest()
print(sorted(set(seen)), whole)
"""


def run(folder: Path, wanted: bool) -> tuple[str, str]:
    """What batches saw, and a hash of the trained weights, of a run in a process of its own."""
    state = str(folder / "state.pt")
    done = subprocess.run([sys.executable, "-c", RUN, str(wanted), state], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen, whole = done.stdout.strip().rsplit(" ", 1)
    return seen, whole


@pytest.mark.slow
def test_a_deterministic_run_fills_nothing_and_repeats_its_bits(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    seen, bits = run(tmp_path / "a", True)
    assert seen == "[('leaves', True)]"
    assert run(tmp_path / "b", True) == (seen, bits)


ELSEWHERE = """
import os, sys, torch
from rewind.torch_setup import set_deterministic
set_deterministic(int(sys.argv[1]))
torch.manual_seed(0)
found = set()
for rows in (1, 2, 3, 5, 9):
    values, weight = torch.randn(rows, 64), torch.randn(64, 64)
    results = set()
    for shift in range(16):  # numbers before the first: rows begin at any multiple of 4 bytes
        at, by = (torch.zeros(len(x.flatten()) + shift)[shift:].view(x.shape).copy_(x) for x in (values, weight))
        results.add(torch.nn.functional.linear(at, by).numpy().tobytes())
    found.add(len(results))
print(os.environ.get("MKL_CBWR"), *found)
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("own", [None, "COMPATIBLE"])
def test_products_round_the_same_wherever_their_numbers_are(threads: int, own: str | None) -> None:
    """Only where MKL rounds by alignment could it fail; there a job says so before its first product."""
    env = {name: value for name, value in os.environ.items() if name != "MKL_CBWR"} | ({"MKL_CBWR": own} if own else {})
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, str(threads)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    chosen, *results = done.stdout.split()
    assert results == ["1"]
    if torch.backends.mkl.is_available():
        assert chosen in ([own] if own else ["AVX512,STRICT", "AVX2,STRICT"])
