"""Read, check and write CLIP4Clip's checkpoints (``pytorch_model.bin.N`` of ArrowLuo/CLIP4Clip @508ffa3).

Such a file is a plain state dict: CLIP's towers under ``clip.`` with OpenAI's names, and the head's tensors next to
them. Upstream ignores missing and unexpected names; here they are refused.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.io.files import atomic_write
from rewind.models.architectures import is_clip4clip
from rewind.models.heads import head_class
from rewind.models.patches import TEMPORAL_KERNEL
from rewind.models.weights import read_state

State = dict[str, Tensor]
TOWERS_PREFIX = "backbone.clip."
# Upstream's prefix of each head's tensors and ours. Ours are searched in this order, so plain ``head.`` comes last.
_NAMES: dict[str, dict[str, str]] = {
    "meanP": {},
    "seqLSTM": {"lstm_visual.": "head.lstm_visual."},
    "seqTransf": {
        "frame_position_embeddings.": "head.frame_position_embeddings.",
        "transformerClip.": "head.transformerClip.",
    },
    "tightTransf": {
        "cross.embeddings.position_embeddings.": "head.position_embeddings.",
        "cross.transformer.": "head.transformer.",
        "similarity_dense.": "head.similarity_dense.",
        "cross.pooler.": "head.",
    },
}
CLIP4CLIP_HEADS = tuple(_NAMES)
"""The heads that the format can hold."""
# Prefixes by which each head is recognised.
_HEAD_MARKERS: dict[str, str | tuple[str, ...]] = {
    "seqLSTM": "lstm_visual.",
    "seqTransf": "transformerClip.",
    "tightTransf": ("cross.", "similarity_dense."),
}
_UNUSED_POSITIONS = "frame_position_embeddings.weight"  # upstream's seqLSTM has this table and never reads it
_BLOCK = [
    f"{layer}.{kind}"
    for layer in ("attn.out_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
    for kind in ("weight", "bias")
] + ["attn.in_proj_weight", "attn.in_proj_bias"]
_TEXT = ("positional_embedding", "text_projection", "logit_scale", "token_embedding.weight")
_TEXT_NORM = ("ln_final.weight", "ln_final.bias")
_VISUAL = ("class_embedding", "positional_embedding", "proj", "conv1.weight")
_VISUAL_NORMS = ("ln_pre.weight", "ln_pre.bias", "ln_post.weight", "ln_post.bias")
_HEAD_WIDTH = 64  # of every attention head upstream: it computes their number as width // 64


def read_clip4clip(path: str | Path) -> tuple[str, State]:
    """The head's name and the state dict of :class:`~rewind.models.clip4clip.Clip4Clip` in a checkpoint, in float32.

    seqLSTM's files have a table of frame positions that is never used; it is left out, with a message. Missing and
    unexpected tensors are refused by name.
    """
    return from_clip4clip(read_state(path), str(path))


def from_clip4clip(state: State, where: str) -> tuple[str, State]:
    """As :func:`read_clip4clip`, for tensors that were already read from the file ``where``."""
    if not is_clip4clip(state):
        raise RewindError(f"{where}: not a CLIP4Clip checkpoint: no tensor's name begins with clip.visual.")
    head = _head_of(state, where)
    state = dict(state)
    if head == "seqLSTM" and state.pop(_UNUSED_POSITIONS, None) is not None:
        print(f"{where}: {_UNUSED_POSITIONS} is left out: CLIP4Clip's seqLSTM never uses it.")
    _check_names(state, head, where)
    renamed = {"clip.": TOWERS_PREFIX} | _NAMES[head]
    # Upstream leaves most of CLIP in float16 and the rest in float32, so its files mix both.
    return head, {_rename(name, renamed): value.float() for name, value in state.items()}


def write_clip4clip(retriever: nn.Module, path: str | Path) -> None:
    """Write a retriever with CLIP towers and one of the four heads as CLIP4Clip would, in float32, atomically."""
    heads = [name for name in CLIP4CLIP_HEADS if type(getattr(retriever, "head", None)) is head_class(name)]
    towers = getattr(getattr(retriever, "backbone", None), "clip", None)
    if not heads or towers is None:
        raise RewindError(
            f"{path}: CLIP4Clip's format holds CLIP towers under {', '.join(CLIP4CLIP_HEADS)}, and no other models."
        )
    check_clip4clip_towers(towers, str(path))
    write_clip4clip_state(retriever.state_dict(), heads[0], path)


def write_clip4clip_state(own: State, head: str, path: str | Path) -> None:
    """Write the state dict of a :class:`~rewind.models.clip4clip.Clip4Clip` under CLIP4Clip's names, atomically."""
    names = {ours: theirs for theirs, ours in ({"clip.": TOWERS_PREFIX} | _NAMES[head]).items()}
    state = {_rename(name, names): value.detach().cpu().float().contiguous() for name, value in own.items()}
    if head == "seqLSTM":  # upstream's files have this table, though seqLSTM never uses it
        rows, width = len(state["clip.positional_embedding"]), state["clip.text_projection"].shape[1]
        state[_UNUSED_POSITIONS] = torch.zeros(rows, width)
    _check_names(
        {name: value for name, value in state.items() if head != "seqLSTM" or name != _UNUSED_POSITIONS},
        head,
        str(path),
    )
    # Given a path instead of a stream, torch would write the name of the temporary file into the file.
    with atomic_write(path) as target, target.open("wb") as stream:
        torch.save(state, stream)


def check_clip4clip_towers(towers: nn.Module, where: str) -> None:
    """Refuse towers that CLIP4Clip would silently compute differently: without QuickGELU or heads of width 64."""
    stacks: list[Any] = [getattr(part, "transformer", None) for part in (towers.visual, towers)]
    if not all(hasattr(stack, "resblocks") for stack in stacks):
        raise RewindError(f"{where}: CLIP4Clip's files can only be read and written for vision transformers.")
    for block in (block for stack in stacks for block in stack.resblocks):
        if type(block.mlp.gelu).__name__ != "QuickGELU":
            raise RewindError(f"{where}: CLIP4Clip uses QuickGELU, but these towers use GELU.")
        if block.attn.embed_dim != block.attn.num_heads * _HEAD_WIDTH:
            raise RewindError(
                f"{where}: CLIP4Clip has attention heads of width {_HEAD_WIDTH}, but these towers "
                f"have {block.attn.num_heads} heads for width {block.attn.embed_dim}."
            )


def clip4clip_head(state: State, where: str) -> tuple[str, State]:
    """Name and state dict of the head in a CLIP4Clip checkpoint's tensors, all names checked."""
    head, ours = from_clip4clip(state, where)
    return head, {n.removeprefix("head."): value for n, value in ours.items() if n.startswith("head.")}


def _head_of(state: State, where: str) -> str:
    heads = [head for head, markers in _HEAD_MARKERS.items() if any(name.startswith(markers) for name in state)]
    if len(heads) > 1:
        raise RewindError(f"{where}: tensors of several heads ({', '.join(heads)}) in one file.")
    if not heads and _UNUSED_POSITIONS in state:
        raise RewindError(
            f"{where}: it has {_UNUSED_POSITIONS}, but no tensor of seqLSTM or seqTransf: the file is incomplete."
        )
    return heads[0] if heads else "meanP"  # which has no parameters, and so no marker


def _check_names(state: State, head: str, where: str) -> None:
    expected = _tower_names(state) | _head_names(state, head)
    missing, unexpected = sorted(expected - state.keys()), sorted(state.keys() - expected)
    parts = [f"{what} {_shown(names)}" for what, names in (("missing", missing), ("unexpected", unexpected)) if names]
    if parts:
        raise RewindError(f"{where}: not a complete CLIP4Clip checkpoint with head {head}: {'; '.join(parts)}.")


def _tower_names(state: State) -> set[str]:
    """Names that CLIP's towers must have, with as many blocks as the file has."""
    text = [*_TEXT, *_TEXT_NORM, *_blocks(state, "clip.", "transformer.")]
    visual = [*_VISUAL, *_VISUAL_NORMS, *_blocks(state, "clip.visual.", "transformer.")]
    names = {f"clip.{name}" for name in text} | {f"clip.visual.{name}" for name in visual}
    kernel = f"clip.{TEMPORAL_KERNEL}"  # of linear_patch 3d
    return names | {kernel} if kernel in state and state[kernel].ndim == 5 else names


def _head_names(state: State, head: str) -> set[str]:
    theirs = {ours: name for name, ours in _NAMES[head].items()}
    # A file has one head, so at most one of the two stacks is there; the other counts no blocks.
    layers = max(
        1, *(len(_blocks(state, prefix, "")) // len(_BLOCK) for prefix in ("transformerClip.", "cross.transformer."))
    )
    with torch.device("meta"):  # only names are needed
        module = head_class(head)(_HEAD_WIDTH, layers=layers, positions=1)
    return {_rename(f"head.{name}", theirs) for name in module.state_dict()}


def _blocks(state: State, prefix: str, stack: str) -> list[str]:
    """Names, without ``prefix``, of the transformer blocks up to the last one in the file."""
    number = re.compile(re.escape(f"{prefix}{stack}") + r"resblocks\.(\d+)\.")
    numbers = [int(match[1]) for name in state if (match := number.match(name))]
    # All numbers up to the largest, so that a block that the file lacks in the middle is reported.
    return [f"{stack}resblocks.{n}.{part}" for n in range(max(numbers, default=-1) + 1) for part in _BLOCK]


def _rename(name: str, prefixes: dict[str, str]) -> str:
    for old, new in prefixes.items():
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name


def _shown(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
