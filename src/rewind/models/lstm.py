"""An LSTM for every machine: where it cannot be computed in reduced precision, in float32."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn


class Lstm(nn.LSTM):
    """``nn.LSTM``, which under autocast steps out of it on a CPU that lacks the instructions.

    oneDNN has no LSTM in bfloat16 for CPUs without such instructions, and none in float16 for most, and raises an
    error; every other layer of ours falls back by itself.
    """

    def forward(self, input: Any, hx: Any = None) -> Any:
        """As ``nn.LSTM``; in float32 where the reduced precision cannot be had."""
        weight = self.weight_ih_l0
        device = weight.device.type
        if not torch.is_autocast_enabled(device) or computable(device, torch.get_autocast_dtype(device)):
            return super().forward(input, hx)
        with torch.autocast(device, enabled=False):
            return super().forward(input.to(weight.dtype), hx)


@functools.cache
def computable(device: str, dtype: torch.dtype) -> bool:
    """Whether an LSTM runs on a device in a reduced precision; tried once on CPUs, which say so where it does not."""
    if device != "cpu":
        return True
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, dtype):
        tried = nn.LSTM(8, 8, batch_first=True, device="meta").to_empty(device=device)  # draws no random number
        for weight in tried.parameters():
            nn.init.zeros_(weight)
        try:
            tried(torch.zeros(2, 3, 8))[0].float().sum().backward()
        except RuntimeError:
            name = str(dtype).removeprefix("torch.")
            print(f"training.precision: this CPU has no LSTM in {name}: LSTM layers use float32.")
            return False
    return True
