"""Less memory and faster steps, with the same model: recomputed activations, compiled towers."""

from __future__ import annotations

import torch

from rewind.errors import RewindError
from rewind.models.retriever import Retriever, offers
from rewind.study import Training

_PROGRAMS = 32  # compiled from one block at most


_PARTS = {"gradient_checkpointing": "checkpoint_towers", "compile": "compile_towers"}


def check_speed(retriever: Retriever, keys: Training) -> None:
    """Refuse a retriever whose backbone lacks what the keys ask of it.

    Raises:
        RewindError: naming the key.
    """
    for key, method in _PARTS.items():
        if not getattr(keys, key):
            continue
        if retriever.backbone is None:
            raise RewindError(f"training.{key}: this method has no backbone with {method}(); remove the key.")
        if not offers(apply := getattr(retriever.backbone, method)):
            apply()  # says that it cannot


def speed_up(retriever: Retriever, keys: Training) -> None:
    """Apply ``training.gradient_checkpointing`` and ``training.compile`` to the backbone, in place.

    Call it once the retriever is on its device. Parameters, their names and the state dict stay as they are; a compiled
    tower computes the same up to rounding.

    Raises:
        RewindError: if the retriever has no backbone that can, or if torch.compile does not work on this machine.
    """
    check_speed(retriever, keys)
    for key, method in _PARTS.items():
        if not getattr(keys, key):
            continue
        if key == "compile":
            _try_to_compile(next(retriever.parameters()).device)
            # Two towers, each with and without gradient, under autocast and not, of one row and of more: the default of
            # 8 programs is just too few, and beyond it torch quietly stops compiling.
            torch._dynamo.config.cache_size_limit = max(_PROGRAMS, torch._dynamo.config.cache_size_limit)
        getattr(retriever.backbone, method)()


def _try_to_compile(device: torch.device) -> None:
    """Fail now and in a sentence, not in the first step with a page of the compiler's."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(2, device=device))
    except Exception as error:  # whatever the tool chain raises
        needed = "Triton" if device.type == "cuda" else "a C++ compiler and Python's headers"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RewindError(
            f"training.compile: torch.compile does not work here ({reason}); it needs {needed} on a {device.type} "
            "device. Install these, or remove the key."
        ) from error
