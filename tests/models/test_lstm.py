"""LSTM layers in reduced precision on CPUs that have no such LSTM; the CPU is made to lack it in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from checkout import ROOT
from rewind.models.lstm import Lstm, lstm_runs_in

LACKING = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
STEPS = f"""
import torch
from torch import nn
from rewind.models.clip4clip import build
from rewind.models.miniclip import TEXT_TOWERS
from rewind.losses.infonce import infonce
from rewind.config import Backbone, Method, Text
from rewind.training.grad_cache import exact_step

torch.manual_seed(0)
tiny = Backbone(architecture={str(ROOT / "config/models/tiny.json")!r})
captions = ["a red ring", "a blue star now", "a ring"]
model = build(Method(head="seqLSTM"), tiny, Text(tokenizer="words", max_words=8), captions)
text = model.backbone.prepare_text(captions)
pixels = torch.randint(0, 256, (3, 2, 3, 32, 32), dtype=torch.uint8)
batch = {{"text": text, "pixels": pixels, "mask": torch.ones(3, 2), "items": torch.arange(3)}}
for precision in ("fp32", "bf16", "fp16"):
    loss = exact_step(model, infonce, batch, 2, precision=precision).value
    gradient = model.head.lstm_visual.weight_hh_l0.grad
    print(precision, loss, bool(torch.isfinite(gradient).all() and gradient.any()))
words = TEXT_TOWERS["lstm"](9, dropout=0.0)
for dtype in (torch.bfloat16, torch.float16):
    with torch.autocast("cpu", dtype):
        words(torch.tensor([[4, 5, 0], [6, 0, 0]])).float().sum().backward()
    print("words", bool(words.lstm.weight_hh_l1.grad.any()))
try:
    with torch.autocast("cpu", torch.bfloat16):
        nn.LSTM(4, 4, batch_first=True)(torch.zeros(1, 2, 4))
    print("plain computes")
except RuntimeError:
    print("plain fails")
"""


@pytest.mark.slow
def test_lstm_layers_train_where_the_cpu_has_none_in_reduced_precision() -> None:
    done = subprocess.run([sys.executable, "-c", STEPS], env=os.environ | LACKING, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if "plain computes" in lines:
        pytest.skip("this build of torch has an LSTM in bfloat16 for every CPU")
    said = [line for line in lines if line.startswith("training.precision")]
    assert said[0].endswith("no LSTM in bfloat16: LSTM layers use float32.") and len(said) == 2
    losses = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(("fp", "bf"))}
    assert losses["bf16"] != losses["fp32"] == pytest.approx(losses["bf16"], rel=0.1)
    assert losses["fp16"] == pytest.approx(losses["fp32"], rel=0.1)
    assert [line.split()[-1] for line in lines if line.startswith(("fp", "bf", "words"))] == ["True"] * 5


def test_trying_draws_nothing_and_names_are_those_of_torch() -> None:
    lstm_runs_in.cache_clear()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with torch.inference_mode():
        lstm_runs_in("cpu", torch.bfloat16)
    assert torch.equal(torch.get_rng_state(), before)
    assert Lstm(3, 4).state_dict().keys() == torch.nn.LSTM(3, 4).state_dict().keys()
