"""Whose weights a file holds, and so which activation they need: OpenAI's QuickGELU, open_clip's own mostly GELU.

No tensor shows the activation, and the wrong one is a silent loss of accuracy. So the family decides, and where neither
the file nor the study says it, nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Collection

from rewind.errors import RewindError
from rewind.models.architectures import names
from rewind.study import Backbone as BackboneKeys

CONSTANTS = ("input_resolution", "context_length", "vocab_size")  # numbers that OpenAI's files carry among the tensors
QUICK = "-quickgelu"


def family_of(state: Collection[str]) -> str | None:
    """``openai`` where a file's names show it, else None: nothing marks a file as open_clip's."""
    return "openai" if is_clip4clip(state) or any(name in state for name in CONSTANTS) else None


def is_clip4clip(state: Collection[str]) -> bool:
    """Whether these are the names of a CLIP4Clip checkpoint, which began from OpenAI's weights."""
    return any(name.startswith("clip.visual.") for name in state)


def check_family(shown: str | None, keys: BackboneKeys, quick_gelu: bool, source: str, ours: bool = False) -> None:
    """Refuse weights whose activation is not the architecture's, or is not known where either would load.

    Args:
        shown: the family that the weights themselves show.
        keys: ``family`` and ``architecture``.
        quick_gelu: whether the architecture has QuickGELU.
        source: names the weights in messages.
        ours: whether it is a checkpoint of a run here, whose architecture the study names as the run's did.

    Raises:
        RewindError: with the keys to set.
    """
    if shown and keys.family and shown != keys.family:
        raise RewindError(
            f"backbone.family: {keys.family}, but {source} shows that the weights are {shown}'s; remove the key."
        )
    family, other = shown or keys.family, _sibling(keys.architecture, quick_gelu)
    if family is None:
        if other and not ours:
            quick, plain = (keys.architecture, other) if quick_gelu else (other, keys.architecture)
            raise RewindError(
                f"{source} does not show where its weights come from, and both {quick} and {plain} would load it, one "
                "of them with the wrong activation. For weights trained with QuickGELU (OpenAI's, MetaCLIP's, DFN's) "
                f"set backbone.family: openai and backbone.architecture: {quick}; for others set backbone.family: "
                f"open_clip and backbone.architecture: {plain}."
            )
        return
    if (family == "openai") == quick_gelu:
        return
    right = f"backbone.architecture: {other}" if other else f"quick_gelu: {str(not quick_gelu).lower()} in its file"
    needed, has = ("QuickGELU", "GELU") if family == "openai" else ("GELU", "QuickGELU")
    raise RewindError(f"{source}: these weights need {needed}, but {keys.architecture} computes {has}; set {right}.")


def _sibling(architecture: str, quick_gelu: bool) -> str | None:
    """open_clip's name of the same architecture with the other activation."""
    other = architecture.removesuffix(QUICK) if quick_gelu else architecture + QUICK
    return other if other != architecture and other in names() else None
