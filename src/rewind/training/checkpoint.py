"""Training state that survives any kill, and the finished model's file."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from rewind.errors import RewindError
from rewind.files import atomic
from rewind.models.retriever import Retriever


class StateFile:
    """The undeclared file from which a killed run resumes.

    It carries the fingerprint of the code, the configuration and the data that wrote it. State of another fingerprint
    is never mixed in: it is set aside (``<name>.other.pt``), the run says so and begins anew.
    """

    def __init__(self, path: str | Path, fingerprint: str) -> None:
        self.path, self.fingerprint = Path(path), fingerprint

    def load(self) -> dict[str, Any] | None:
        """The saved state, or None if there is none of this fingerprint."""
        if not self.path.exists():
            return None
        try:
            saved = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # any unreadable file means the same thing here
            print(f"{self.path}: this training state cannot be read ({error}); {self._set_aside()}")
            return None
        if saved["fingerprint"] != self.fingerprint:
            print(f"{self.path}: this training state is of other code, configuration or data; {self._set_aside()}")
            return None
        return saved["state"]

    def _set_aside(self) -> str:
        kept = self.path.with_suffix(".other.pt")
        with contextlib.suppress(FileNotFoundError):  # another process of this run did it
            self.path.replace(kept)
        return f"it is kept as {kept.name}, and training starts anew."

    def save(self, state: dict[str, Any]) -> None:
        """Replace the saved state, atomically."""
        with atomic(self.path) as draft:
            torch.save({"fingerprint": self.fingerprint, "state": state}, draft)

    def remove(self) -> None:
        """Forget the state of a finished run."""
        self.path.unlink(missing_ok=True)


def save_model(path: str | Path, model: nn.Module, metadata: dict[str, str]) -> None:
    """Write a model's state dict as safetensors, atomically; the same weights and metadata give the same bytes."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic(path) as draft:
        # One entry: the format keeps several in no fixed order.
        save_file(state, draft, metadata={"rewind": json.dumps(metadata, sort_keys=True)})


def load_model(path: str | Path, model: Retriever) -> None:
    """Load a file written by :func:`save_model`; every key must fit.

    Raises:
        RewindError: naming the first key or shape that differs, or what the model's own ``check_state`` refuses.
    """
    state = load_file(path)
    with safe_open(path, "pt") as file:
        made = json.loads((file.metadata() or {}).get("rewind", "{}")).get("method", "unknown")
    model.check_state(state, str(path))
    own = model.state_dict()
    wrong = sorted(own.keys() ^ state.keys()) + [n for n in own if n in state and own[n].shape != state[n].shape]
    if wrong:
        raise RewindError(
            f"{path}: not a checkpoint of this method: {len(wrong)} tensors differ, first {wrong[0]!r}; it was made by "
            f"the run {made}. Name the run of the method and study that you mean, or train it again."
        )
    model.load_state_dict(state)
