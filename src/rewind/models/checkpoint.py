"""Save and load the file of a trained model (safetensors), and hash weights."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.hashing import Sha256
from rewind.io.files import atomic_write, reading_user_file
from rewind.models.backbone import Backbone
from rewind.models.retriever import Retriever


def save_model(path: str | Path, model: nn.Module, metadata: dict[str, str]) -> None:
    """Write a model's state dict as safetensors, atomically; the same weights and metadata give the same bytes.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "model.safetensors"
    >>> save_model(path, nn.Linear(3, 2), {"method": "example"})
    >>> sorted(load_file(path))
    ['bias', 'weight']
    """
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic_write(path) as target:
        # One entry that holds all metadata: the library writes several entries in no fixed order.
        save_file(state, target, metadata={"rewind": json.dumps(metadata, sort_keys=True)})


def weights_hash(model: nn.Module) -> str:
    """SHA-256 of a model's state dict, names and bytes, 16 hex digits: the same if two models are so bit by bit."""
    return _hash(sorted(model.state_dict().items()))


def visual_hash(backbone: Backbone) -> str:
    """Hash, as :func:`weights_hash`, of the parameters of a visual tower, without names; empty if it has none."""
    parameters = backbone.visual_parameters()
    return _hash((str(number), value) for number, value in enumerate(parameters)) if parameters else ""


def _hash(tensors: Iterable[tuple[str, Tensor]]) -> str:
    digest = Sha256()
    for name, value in tensors:
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.short()


def load_model(path: str | Path, model: Retriever) -> None:
    """Load a file written by :func:`save_model`; every key must fit, and the model's own ``check_state`` agree."""
    with reading_user_file(path, "model file", "copy it again, or train the run again"):
        state = load_file(path)
        with safe_open(path, "pt") as file:
            run = json.loads((file.metadata() or {}).get("rewind", "{}")).get("method", "unknown")
    model.check_state(state, str(path))
    own = model.state_dict()
    wrong = sorted(own.keys() ^ state.keys()) + [n for n in own if n in state and own[n].shape != state[n].shape]
    if wrong:
        raise RewindError(
            f"{path}: not a checkpoint of this method: {len(wrong)} tensors differ, first {wrong[0]!r}; it was written "
            f"by the run {run}. Name the intended run, or train it again."
        )
    model.load_state_dict(state)
