"""open_clip's architectures by name or file: read without building a network, refused where we would compute another.

Text is encoded here and not by open_clip, so every key of ``text_cfg`` is either one that the tower's own modules carry
out, or must have the one value that :meth:`rewind.models.clip.Clip.encode_text` and CLIP's tokenizer stand for. Frames
go through open_clip's own visual tower, whose keys therefore count, as long as it gives one vector per frame; they are
normalised with CLIP's mean and deviation.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.compat import open_clip_folder
from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file
from rewind.video.frames import CLIP_MEAN, CLIP_STD

Config = dict[str, Any]
_BLOCKS = {
    "width", "layers", "mlp_ratio", "ls_init_value", "act_kwargs", "norm_kwargs", "block_type", "qk_norm",
    "scale_heads", "scale_attn_inner", "scale_attn", "scale_fc",
}  # fmt: skip
# Of each part of a configuration: keys that are carried out, and keys that may have some values alone.
_CARRIED_OUT: dict[str, set[str]] = {
    "": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "init_logit_scale"},
    "text_cfg": _BLOCKS | {"context_length", "vocab_size", "heads"},
    "vision_cfg": _BLOCKS
    | {
        "head_width", "patch_size", "image_size", "patch_dropout", "attn_pooler_queries", "attn_pooler_heads",
        "no_ln_pre", "pos_embed_type", "final_ln_after_pool", "timm_model_name", "timm_pool", "timm_proj",
        "timm_proj_bias", "timm_drop", "timm_drop_path",
    },
}  # fmt: skip
_ONE_VALUE: dict[str, dict[str, tuple[Any, ...]]] = {
    "": {"init_logit_bias": (None,), "nonscalar_logit_scale": (False,), "custom_text": (False,)},
    "text_cfg": {
        "hf_tokenizer_name": (None,), "tokenizer_mode": (None,), "tokenizer_kwargs": (None,), "hf_model_name": (None,),
        "hf_model_pretrained": (True, False), "hf_proj_type": ("mlp",), "hf_pooler_type": ("mean_pooler",),
        "embed_cls": (False,), "pad_id": (0,), "eos_id": (2,), "no_causal_mask": (False,),
        "final_ln_after_pool": (False,), "pool_type": ("argmax",), "proj_bias": (False,), "proj_type": ("linear",),
        "output_tokens": (False,), "scaled_cosine_attn": (False,),
    },
    "vision_cfg": {
        "pool_type": ("tok", "avg"), "attentional_pool": (False, True), "output_tokens": (False,),
        "timm_model_pretrained": (False,), "scaled_cosine_attn": (False,),
    },
}  # fmt: skip
_PREPROCESSING = {"mean": CLIP_MEAN, "std": CLIP_STD}


def names() -> list[str]:
    """Names of open_clip's architectures, refused ones included."""
    return sorted(_files())


def architecture(name: str) -> Config:
    """Constructor arguments of open_clip's CLIP, by model name or from a JSON file; no network is built.

    Args:
        name: one of open_clip's names, or a JSON file in its format (its ``open_clip_config.json`` too).

    Raises:
        RewindError: if there is no such architecture, or it is not one that is computed here exactly as open_clip does;
            the keys that are the reason are named.
    """
    config = read(name)
    preprocessing = {}
    if isinstance(config.get("model_cfg"), dict):  # as on open_clip's hub, with what frames need beside it
        preprocessing, config = config.get("preprocess_cfg") or {}, config["model_cfg"]
    parts = {"embed_dim": int, "vision_cfg": dict, "text_cfg": dict}
    missing = [key for key, kind in parts.items() if not isinstance(config.get(key), kind)]
    if missing:
        raise RewindError(
            f"backbone.architecture: {name}: not in open_clip's format: {missing[0]} is missing or of the wrong type."
        )
    if found := [*refused(config)]:
        raise RewindError(
            f"backbone.architecture: {name}: only plain CLIP models can be used here; it has {', '.join(found)}, which "
            "would not be computed as open_clip does: choose an architecture without it, such as ViT-B-32-quickgelu."
        )
    if reason := other_pixels(preprocessing):
        raise RewindError(f"backbone.architecture: {name}: preprocess_cfg: {reason}.")
    return {key: config[key] for key in config if key in _CARRIED_OUT[""]}


def read(name: str) -> Config:
    """A configuration as it stands in its file.

    Raises:
        RewindError: if there is no such architecture, or the file holds none.
    """
    if not name.endswith(".json"):
        known = _files()
        if name not in known:
            near = difflib.get_close_matches(name.replace("/", "-"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see open_clip.list_models(), or name a JSON file."
            raise RewindError(f"backbone.architecture: open_clip knows no {name!r}; {hint}")
        return json.loads(known[name].read_text())
    path = Path(name)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.architecture: {name}: no such file.")
    with reading_user_file(path, "JSON file"):
        try:
            config = json.loads(path.read_text())
        except ValueError as error:
            raise RewindError(f"backbone.architecture: {name}: not valid JSON ({error}).") from None
    if not isinstance(config, dict):
        raise RewindError(
            f"backbone.architecture: {name}: a JSON object with embed_dim, vision_cfg, text_cfg is needed."
        )
    return config


def refused(config: Mapping[str, Any]) -> Iterator[str]:
    """``key: value`` of everything in a configuration that is not computed here as open_clip would."""
    for part, carried_out in _CARRIED_OUT.items():
        keys = config[part] if part else config
        for key, value in keys.items():
            if key not in carried_out and value not in _ONE_VALUE[part].get(key, ()):
                shown = "" if isinstance(value, dict) else f": {value}"
                yield f"{part}.{key}{shown}" if part else f"{key}{shown}"
    size = config["vision_cfg"].get("image_size", 224)
    if isinstance(size, list) and len(set(size)) > 1:
        yield f"vision_cfg.image_size: {size} (frames are square)"


def other_pixels(preprocessing: Mapping[str, Any]) -> str | None:
    """Why frames normalised as CLIP's are none that weights were trained on, by open_clip's ``preprocess_cfg``."""
    for key, ours in _PREPROCESSING.items():
        theirs = preprocessing.get(key) or ours
        if any(abs(a - b) > 1e-4 for a, b in zip(theirs, ours, strict=True)):
            shown = ", ".join(f"{value:g}" for value in theirs)
            return f"frames are normalised with CLIP's {key}, but these weights need {key} ({shown}): choose others"
    return None


def published_beside(weights: Path, name: str) -> Config | None:
    """What open_clip's hub says beside a weights file of this architecture (``open_clip_config.json``), if anything.

    A file that tells of another architecture is of other weights in the same folder.
    """
    file = weights.with_name("open_clip_config.json")
    require_regular_file(file, missing_ok=True)
    if not file.is_file():
        return None
    found, ours = read(str(file)), architecture(name)
    theirs = found.get("model_cfg") or {}
    same = all(theirs.get(key) == ours.get(key) for key in ("embed_dim", "vision_cfg", "text_cfg"))
    return found if same else None


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (open_clip_folder() / "model_configs").glob("*.json")}
