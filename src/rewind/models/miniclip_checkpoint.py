"""Read MiniCLIP's checkpoints (SoroushRaeisian/miniclip @85ae038), checked name by name.

Such a file, ``best_model_{lstm,transformer}.pth``, holds the whole model, including the image network's batch-norm
statistics, which drift from ImageNet's in training. It does not hold the words that its token ids stand for: upstream
derives them again from ``captions.json``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from rewind.errors import RewindError
from rewind.io.files import read_json, reading_user_file, require_regular_file

if TYPE_CHECKING:
    from torch import Tensor

State: TypeAlias = "dict[str, Tensor]"
# Upstream's image network is the list of torchvision's children without the last; here they keep their names.
_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
_PARTS = {"img_enc.projection.": "projection.", "txt_enc.": "text."}
_NETWORK = "img_enc.backbone."
_COUNTS = "num_batches_tracked"


def is_miniclip(state: State) -> bool:
    return any(name.startswith(_NETWORK) for name in state)


def text_tower_kind(state: State) -> str:
    """The text tower of a checkpoint: ``lstm`` or ``transformer``."""
    return "transformer" if "txt_enc.cls_token" in state else "lstm"


def from_miniclip(state: State, where: str) -> State:
    """A checkpoint's tensors by the names of ``MiniclipTowers``; names of other networks than ResNet-18 are refused."""
    return {_ours(name, where): value for name, value in state.items()}


def _ours(name: str, where: str) -> str:
    if name == "logit_scale":
        return name
    if name.startswith(_NETWORK):
        child, _, rest = name.removeprefix(_NETWORK).partition(".")
        if child in _CHILDREN:
            return f"image.network.{_CHILDREN[child]}.{rest}"
    for theirs, ours in _PARTS.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    raise RewindError(f"{where}: not MiniCLIP's model with ResNet-18: it has a tensor {name!r}.")


def load_miniclip(towers: Any, state: State, where: str) -> None:
    """Fill :class:`~rewind.models.miniclip.MiniclipTowers` from tensors in upstream's names; all must fit."""
    renamed, own = from_miniclip(state, where), towers.state_dict()
    own.pop("vocabulary")  # not in upstream's files
    sizes = [len(part["text.embedding.weight"]) for part in (own, renamed) if "text.embedding.weight" in part]
    if len(set(sizes)) == 2:
        raise RewindError(
            f"{where}: it has {sizes[1]:,} token ids, and the words given result in {sizes[0]:,}. Token ids follow "
            "from the captions that it was trained with: name them, upstream's data/captions.json, in text.vocabulary."
        )
    for name in [*own, *(name for name in renamed if name not in own)]:
        shapes = [tuple(part[name].shape) if name in part else "absent" for part in (own, renamed)]
        if shapes[0] != shapes[1] and not name.endswith(_COUNTS):
            raise RewindError(f"{where}: {name!r} is {shapes[1]} there and {shapes[0]} here; it does not fit.")
    towers.load_state_dict(renamed, strict=False)  # not strict for `vocabulary` and the batch counters


def read_vocabulary_captions(path: str) -> list[str]:
    """The captions from whose words a vocabulary is built, in the file's order.

    The file is MiniCLIP's ``captions.json``, a list of objects with ``caption``, or text with one caption per line.
    """
    file = Path(path)
    require_regular_file(file, missing_ok=True)
    if not file.is_file():
        raise RewindError(f"text.vocabulary: {path}: no such file; put it there or correct the key.")
    if file.suffix.lower() != ".json":
        with reading_user_file(file, "text"):
            try:
                return [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
            except UnicodeDecodeError as error:
                raise RewindError(f"text.vocabulary: {path} is not UTF-8 text ({error.reason}).") from None
    rows = read_json(file)
    for number, row in enumerate(rows if isinstance(rows, list) else [rows], start=1):
        if not isinstance(row, dict) or not isinstance(row.get("caption"), str):
            shown = json.dumps(row, ensure_ascii=False)[:80]
            raise RewindError(f"text.vocabulary: {path}, entry {number}: not an object with a text `caption`: {shown}.")
    return [row["caption"] for row in rows]
