"""Random weights in the layout of the published files, and towers of fewer layers to put them into."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from rewind.errors import RewindError
from rewind.files import atomic, write_json
from rewind.models import clip, viclip
from rewind.models.image_towers import load_tower
from rewind.rehearsal import work
from rewind.study import Backbone, Text

Keys = dict[str, Any]
Short = tuple[Keys, float, int]  # sizes, share of the visual layers that is left, parameters that are not
DEEP_WORK = 1e9  # FLOPs of a frame above which towers are made shallow


class Towers:
    """What became of the towers that a study or data set names.

    Args:
        folder: where stand-ins are written.
        full: keep the depth of towers whose weights are not there.
        least: fewest layers that the visual and the text tower must keep (heads start from text blocks, and some
            layers are frozen).

    Attributes:
        notes: a sentence for each stand-in and each tower made shallow.
        shares: by architecture as rehearsed, the share of its visual layers that is left.
        missing: likewise, parameters that were left out.
    """

    def __init__(self, folder: Path, full: bool, least: tuple[int, int] = (1, 1)) -> None:
        self.folder, self.full, self.least = folder, full, least
        self.notes: list[str] = []
        self.shares: dict[str, float] = {}
        self.missing: dict[str, int] = {}

    def rehearsed(self, keys: Keys, where: str, size: int) -> Keys:
        """A block of keys like a study's ``backbone``, with stand-ins for weights that are not there.

        Args:
            keys: the block.
            where: its path in the file.
            size: side of the frames that it sees, in pixels.

        Raises:
            RewindError: for weights of a model of the user's own, which no stand-in is known for.
        """
        given, tag = keys.get("weights"), keys.get("pretrained")
        if given and Path(given).is_file():
            return keys
        kind = keys.get("kind") or "clip"
        keys = keys | {"architecture": keys.get("architecture") or Backbone().architecture}
        found = self._shallow(keys, kind, where, size)
        if not given and not tag:
            return found
        if kind not in LAYOUTS:
            raise RewindError(
                f"{where}.weights: {given}: no such file, and kind: {kind} has no stand-in for it. Put the file there."
            )
        path = self.folder / (Path(given).name if given else f"{tag}.safetensors")
        path.parent.mkdir(parents=True, exist_ok=True)
        LAYOUTS[kind](found, path)
        said = f"{where}.weights: {given}: not there" if given else f"{where}.pretrained: {tag}: not downloaded"
        self.notes.append(f"{said}; random weights are used instead")
        # OpenAI's files show whose they are; of others the study says it.
        family = {"family": "open_clip"} if kind == "clip" and not _quick(found) else {}
        return found | {"weights": str(path), "pretrained": None, "allow_torchscript": False} | family

    def _shallow(self, keys: Keys, kind: str, where: str, size: int) -> Keys:
        name, shorten = keys["architecture"], SHORTENED.get(kind)
        if self.full or shorten is None or (work.per_item(keys, 1, size) or 0) < DEEP_WORK:
            return keys
        config, share, missing = shorten(name, *self.least)
        if share == 1:
            return keys
        path = self.folder / "architectures" / f"{Path(name).stem}-shallow.json"
        write_json(path, config)
        self.notes.append(f"{where}.architecture: {name} keeps {share:.0%} of its visual layers (--full keeps all)")
        self.shares[str(path)], self.missing[str(path)] = share, missing
        return keys | {"architecture": str(path)}


def _short_clip(name: str, visual: int, text: int) -> Short:
    config = json.loads(json.dumps(clip.architecture(name)))
    before = config["vision_cfg"].get("layers", 12)
    missing = 0
    for tower, least, width in (("vision_cfg", visual, 768), ("text_cfg", text, 512)):
        depth = config[tower].get("layers", 12)
        config[tower]["layers"] = min(depth, least) if isinstance(depth, int) else [1] * len(depth)
        if isinstance(depth, int):
            missing += (depth - config[tower]["layers"]) * _block(config[tower].get("width", width))
    after = config["vision_cfg"]["layers"]
    return config, after / before if isinstance(before, int) else len(before) / sum(before), missing


def _short_viclip(name: str, visual: int, text: int) -> Short:
    config = viclip.architecture(name).model_dump()
    before, missing = config["vision"]["layers"], 0
    for tower, least in (("vision", visual), ("text", text)):
        depth = config[tower]["layers"]
        config[tower]["layers"] = min(depth, least)
        missing += (depth - config[tower]["layers"]) * _block(config[tower]["width"])
    return config, config["vision"]["layers"] / before, missing


def _block(width: int) -> int:
    """Parameters of a transformer's block: attention 4 w², the rest 8 w², biases left out."""
    return 12 * width**2


SHORTENED: Mapping[str, Callable[[str, int, int], Short]] = {"clip": _short_clip, "viclip": _short_viclip}


def _clip(keys: Keys, path: Path) -> None:
    """open_clip's names in half precision; with QuickGELU also the constants that OpenAI's files carry."""
    chosen = {name: keys[name] for name in ("architecture", "patch") if name in keys}
    model = clip.build(Backbone(kind="clip", **chosen), Text(tokenizer="clip", max_words=4), []).clip
    state = {name: value.half() for name, value in model.state_dict().items()}
    if _quick(keys):
        sizes = (224, model.positional_embedding.shape[0], len(model.token_embedding.weight))
        names = ("input_resolution", "context_length", "vocab_size")
        state |= {name: torch.tensor(size) for name, size in zip(names, sizes, strict=True)}
    _save(state, path)


def _quick(keys: Keys) -> bool:
    return bool(clip.architecture(keys["architecture"]).get("quick_gelu", False))


def _viclip(keys: Keys, path: Path) -> None:
    """Upstream's ``.pth``: a mapping with ``model``, the temperature as ``temp``."""
    chosen = {"architecture": keys["architecture"]}
    built = viclip.build(Backbone(kind="viclip", **chosen), Text(tokenizer="clip", max_words=4), [])
    state = {name: value for name, value in built.state_dict().items() if name != "logit_scale"}
    state["temp"] = (-built.logit_scale.detach()).exp()
    with atomic(path) as draft:
        torch.save({"model": state}, draft)


def _resnet18(keys: Keys, path: Path) -> None:
    """torchvision's names, its classifier included."""
    state = dict(load_tower("resnet18").network.state_dict())
    _save(state | {"fc.weight": torch.randn(1000, 512) * 0.01, "fc.bias": torch.zeros(1000)}, path)


LAYOUTS: Mapping[str, Callable[[Keys, Path], None]] = {"clip": _clip, "viclip": _viclip, "miniclip_towers": _resnet18}


def _save(state: Mapping[str, Tensor], path: Path) -> None:
    tensors = {name: value.contiguous() for name, value in state.items()}
    with atomic(path) as draft:
        if path.suffix == ".safetensors":
            save_file(tensors, draft)
        else:
            torch.save(tensors, draft)
