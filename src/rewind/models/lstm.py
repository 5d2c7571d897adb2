"""An LSTM that runs under autocast on every machine: in float32 where reduced precision is not supported."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn


class Lstm(nn.LSTM):
    """``nn.LSTM`` that leaves autocast on a CPU without instructions for the reduced precision.

    oneDNN has no LSTM in bfloat16 for CPUs without such instructions, and none in float16 for most, and raises an
    error. All other layers used here fall back by themselves.

    >>> Lstm(8, 16, batch_first=True)(torch.zeros(2, 5, 8))[0].shape
    torch.Size([2, 5, 16])
    """

    weight_ih_l0: Tensor

    def forward(self, input: Any, hx: Any = None) -> Any:
        weight = self.weight_ih_l0
        device = weight.device.type
        if not torch.is_autocast_enabled(device) or lstm_runs_in(device, torch.get_autocast_dtype(device)):
            return super().forward(input, hx)
        with torch.autocast(device, enabled=False):
            return super().forward(input.to(weight.dtype), hx)


@functools.cache
def lstm_runs_in(device: str, dtype: torch.dtype) -> bool:
    """Whether an LSTM runs on a device in a reduced precision; tried once on a CPU, and printed if it does not."""
    if device != "cpu":
        return True
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, dtype):
        # Constructed without numbers, because a trial must draw none from the generator that weights are drawn from.
        lstm = nn.LSTM(8, 8, batch_first=True, device="meta").to_empty(device=device)
        for weight in lstm.parameters():
            nn.init.zeros_(weight)
        try:
            lstm(torch.zeros(2, 3, 8))[0].float().sum().backward()  # the error may come from either pass
        except RuntimeError:
            name = str(dtype).removeprefix("torch.")
            print(f"training.precision: this CPU has no LSTM in {name}: LSTM layers use float32.")
            return False
    return True
