"""CLIP as Hugging Face's transformers stores it (``CLIPModel``): open_clip's names, and what the folder says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file
from rewind.models.architectures import other_pixels

State = dict[str, Tensor]
_TOWERS = {"text_model.": "", "vision_model.": "visual."}
_NAMES = {
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",  # spelt so there
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
    "logit_scale": "logit_scale",
}
_TURNED = {"text_projection.weight": "text_projection", "visual_projection.weight": "visual.proj"}
_BLOCK = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
    "self_attn.out_proj": "attn.out_proj",
}
_DEFAULTS = {  # of transformers, whose newer versions write only what differs
    "text": {"hidden_act": "quick_gelu", "num_attention_heads": 8, "layer_norm_eps": 1e-5},
    "vision": {"hidden_act": "quick_gelu", "num_attention_heads": 12, "layer_norm_eps": 1e-5},
}
_FAMILIES = {"quick_gelu": "openai", "gelu": "open_clip"}


def is_huggingface(names: Iterable[str]) -> bool:
    """Whether these are the names of such a file."""
    return any(name.startswith(tuple(_TOWERS)) for name in names)


def from_huggingface(state: Mapping[str, Tensor], where: str) -> State:
    """The same tensors under open_clip's names, queries, keys and values joined, projections turned.

    Raises:
        RewindError: if names are not CLIP's, or a block lacks one.
    """
    found: State = {}
    joined: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        if name.endswith("embeddings.position_ids"):  # a constant that older versions stored
            continue
        if name in _NAMES:
            found[_NAMES[name]] = value.reshape(()) if name == "logit_scale" else value
        elif name in _TURNED:
            found[_TURNED[name]] = value.T.contiguous()
        else:
            block, part, kind = _in_block(name, where)
            if part in _BLOCK:
                found[f"{block}{_BLOCK[part]}.{kind}"] = value
            else:
                joined.setdefault(f"{block}attn.in_proj_{kind}", {})[part] = value
    for name, parts in joined.items():
        if len(parts) != 3:
            raise RewindError(f"{where}: {name} lacks one of query, key and value: the file is incomplete.")
        found[name] = torch.cat([parts[f"self_attn.{which}_proj"] for which in "qkv"])
    return found


def _in_block(name: str, where: str) -> tuple[str, str, str]:
    """open_clip's prefix of a block, the part's name within it, and weight or bias."""
    tower = next((prefix for prefix in _TOWERS if name.startswith(f"{prefix}encoder.layers.")), None)
    number, _, rest = name.removeprefix(f"{tower}encoder.layers.").partition(".")
    part, _, kind = rest.rpartition(".")
    known = {*_BLOCK, *(f"self_attn.{which}_proj" for which in "qkv")}
    if tower is None or not number.isdecimal() or part not in known or kind not in ("weight", "bias"):
        raise RewindError(
            f"{where}: it is in Hugging Face's layout, but {name!r} is not a tensor of its CLIPModel: in that layout "
            "only CLIP itself can be read."
        )
    return f"{_TOWERS[tower]}transformer.resblocks.{number}.", part, kind


def family_beside(path: Path) -> str | None:
    """The family that ``config.json`` in the file's folder shows by its activation; None without one.

    Raises:
        RewindError: if its towers differ, or have neither QuickGELU nor GELU.
    """
    config = _beside(path, "config.json")
    if config is None:
        return None
    found = {_keys(config, tower)["hidden_act"] for tower in _DEFAULTS}
    if len(found) > 1 or not found <= _FAMILIES.keys():
        shown = " and ".join(sorted(map(str, found)))
        raise RewindError(f"{path.with_name('config.json')}: hidden_act: {shown}, but here it is quick_gelu or gelu.")
    return _FAMILIES[found.pop()]


def check_beside(path: Path, model: nn.Module) -> None:
    """Refuse weights whose folder says what no shape shows: other attention heads, norms or frames than ``model`` has.

    Raises:
        RewindError: naming the file and the key.
    """
    if (config := _beside(path, "config.json")) is not None:
        for tower, part in (("text", model), ("vision", model.visual)):
            stack, theirs = getattr(part, "transformer", None), _keys(config, tower)
            if hasattr(stack, "resblocks"):
                block = stack.resblocks[0]
                ours = {"num_attention_heads": block.attn.num_heads, "layer_norm_eps": block.ln_1.eps}
                for key, value in ours.items():
                    if theirs[key] != value:
                        raise RewindError(
                            f"{path.with_name('config.json')}: {tower}_config.{key}: {theirs[key]}, but "
                            f"backbone.architecture has {value}: choose another."
                        )
    frames = _beside(path, "preprocessor_config.json") or {}
    if reason := other_pixels({"mean": frames.get("image_mean"), "std": frames.get("image_std")}):
        raise RewindError(f"{path.with_name('preprocessor_config.json')}: {reason}.")


def _keys(config: Mapping[str, Any], tower: str) -> dict[str, Any]:
    """A tower's keys; ``text_config_dict`` is an older name, which wins there too."""
    return _DEFAULTS[tower] | (config.get(f"{tower}_config") or {}) | (config.get(f"{tower}_config_dict") or {})


def _beside(path: Path, name: str) -> dict[str, Any] | None:
    """A JSON file of the folder of ``path``, where there is one."""
    file = path.with_name(name)
    require_regular_file(file, missing_ok=True)
    if not file.is_file():
        return None
    with reading_user_file(file, "JSON file"):
        try:
            found = json.loads(file.read_text())
        except ValueError as error:
            raise RewindError(f"{file}: not valid JSON ({error}).") from None
    return found if isinstance(found, dict) else None
