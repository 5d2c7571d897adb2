"""A tiny run as a process of its own, which ends itself with SIGKILL after so many saves of its state.

python tests/support/killed_run.py STATE MODEL [SAVES]
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import torch

from rewind.training import loop
from rewind.training.checkpoint import StateFile
from training_runs import data, keys, retriever


class KilledFile(StateFile):
    """Kills its process right after its ``saves``-th save, if that number is given."""

    def __init__(self, path: str, fingerprint: str, saves: int = 0) -> None:
        super().__init__(path, fingerprint)
        self.left = saves

    def save(self, state: dict[str, Any]) -> None:
        super().save(state)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main(state: str, model: str, saves: int = 0) -> None:
    torch.set_num_threads(1)
    chosen = retriever("seqTransf")

    def validate(current):
        return {"valid_sum": float(current.backbone.clip.ln_final.weight.detach().double().sum())}

    training = keys(save_every_steps=1, batch={"size": 2})
    file = KilledFile(state, "x", saves)
    loop.train_model(chosen, data(chosen), training, 0, torch.device("cpu"), validate, file, "test")
    torch.save(chosen.state_dict(), model)
    file.remove()


if __name__ == "__main__":
    main(*sys.argv[1:3], *map(int, sys.argv[3:]))
