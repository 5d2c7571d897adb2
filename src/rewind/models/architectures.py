"""open_clip's architectures and weight families: which ones are computed here exactly as open_clip does.

Architectures are read by name or from a JSON file, without building a network. Text is encoded here and not by
open_clip, so every key of ``text_cfg`` is either one that the tower's own modules carry out, or must have the one
value that :meth:`rewind.models.clip.ClipTowers.encode_text` and CLIP's tokenizer stand for. Frames go through
open_clip's own visual tower, whose keys therefore count, as long as it gives one vector per frame; they are
normalised with CLIP's mean and standard deviation.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.config import Backbone as BackboneKeys
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, require_regular_file
from rewind.optional_packages import open_clip_folder
from rewind.video.frames import CLIP_MEAN, CLIP_STD

# ---- Architectures by name or JSON file ----------------------------------------------------------------------------

ArchitectureConfig = dict[str, Any]
_BLOCKS = {
    "width", "layers", "mlp_ratio", "ls_init_value", "act_kwargs", "norm_kwargs", "block_type", "qk_norm",
    "scale_heads", "scale_attn_inner", "scale_attn", "scale_fc",
}  # fmt: skip
# Of each part of a configuration: keys with any value, which the modules take into account, and keys that may only
# have certain values. All other keys are refused.
_SUPPORTED_KEYS: dict[str, set[str]] = {
    "": {"embed_dim", "vision_cfg", "text_cfg", "quick_gelu", "init_logit_scale"},
    "text_cfg": _BLOCKS | {"context_length", "vocab_size", "heads"},
    "vision_cfg": _BLOCKS
    | {
        "head_width", "patch_size", "image_size", "patch_dropout", "attn_pooler_queries", "attn_pooler_heads",
        "no_ln_pre", "pos_embed_type", "final_ln_after_pool", "timm_model_name", "timm_pool", "timm_proj",
        "timm_proj_bias", "timm_drop", "timm_drop_path",
    },
}  # fmt: skip
_ALLOWED_VALUES: dict[str, dict[str, tuple[Any, ...]]] = {
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


def architecture_names() -> list[str]:
    """Names of open_clip's architectures, including those that :func:`load_architecture` refuses."""
    return sorted(_files())


def load_architecture(name: str) -> ArchitectureConfig:
    """Arguments for open_clip's ``CLIP``, by name or from a JSON file in its format (``open_clip_config.json`` too).

    Raises:
        RewindError: if there is no such architecture, or it is not one that is computed here exactly as open_clip does,
            naming the keys that are the reason.

    >>> load_architecture("ViT-B-32-quickgelu")["embed_dim"]
    512
    """
    config = read_architecture(name)
    preprocessing: Mapping[str, Any] = {}
    if isinstance(config.get("model_cfg"), dict):  # as on open_clip's hub, with what frames need next to it
        preprocessing, config = config.get("preprocess_cfg") or {}, config["model_cfg"]
    parts = {"embed_dim": int, "vision_cfg": dict, "text_cfg": dict}
    missing = [key for key, kind in parts.items() if not isinstance(config.get(key), kind)]
    if missing:
        raise RewindError(
            f"backbone.architecture: {name}: not in open_clip's format: {missing[0]} is missing or of the wrong type."
        )
    if unsupported := [*unsupported_keys(config)]:
        raise RewindError(
            f"backbone.architecture: {name}: only plain CLIP models can be used here; it has {', '.join(unsupported)}, "
            "which would not be computed as open_clip does: choose an architecture without it, such as "
            "ViT-B-32-quickgelu."
        )
    if reason := normalisation_mismatch(preprocessing):
        raise RewindError(f"backbone.architecture: {name}: preprocess_cfg: {reason}.")
    return {key: config[key] for key in config if key in _SUPPORTED_KEYS[""]}


def read_architecture(name: str) -> ArchitectureConfig:
    """A configuration as it is in its file."""
    if not name.endswith(".json"):
        files = _files()
        if name not in files:
            near = difflib.get_close_matches(name.replace("/", "-"), files, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "see open_clip.list_models(), or name a JSON file."
            raise RewindError(f"backbone.architecture: open_clip knows no {name!r}; {hint}")
        return json.loads(files[name].read_text())
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


def unsupported_keys(config: Mapping[str, Any]) -> Iterator[str]:
    """``key: value`` of everything in a configuration that is not computed here as open_clip would."""
    for part, carried_out in _SUPPORTED_KEYS.items():
        keys = config[part] if part else config
        for key, value in keys.items():
            if key not in carried_out and value not in _ALLOWED_VALUES[part].get(key, ()):
                shown = "" if isinstance(value, dict) else f": {value}"
                yield f"{part}.{key}{shown}" if part else f"{key}{shown}"
    size = config["vision_cfg"].get("image_size", 224)
    if isinstance(size, list) and len(set(size)) > 1:
        yield f"vision_cfg.image_size: {size} (frames are square)"


def normalisation_mismatch(preprocessing: Mapping[str, Any]) -> str | None:
    """How ``mean`` or ``std`` of open_clip's ``preprocess_cfg`` differs from CLIP's, a message; None if neither does.

    >>> normalisation_mismatch({"mean": (0.5, 0.5, 0.5)})
    "frames are normalised with CLIP's mean, but these weights need mean (0.5, 0.5, 0.5): choose others"
    """
    for key, ours in _PREPROCESSING.items():
        theirs = preprocessing.get(key) or ours
        if any(abs(a - b) > 1e-4 for a, b in zip(theirs, ours, strict=True)):
            shown = ", ".join(f"{value:g}" for value in theirs)
            return f"frames are normalised with CLIP's {key}, but these weights need {key} ({shown}): choose others"
    return None


def hub_config_beside(weights: Path, name: str) -> ArchitectureConfig | None:
    """open_clip's hub configuration next to a weights file; None without one, or if it is of another architecture."""
    file = weights.with_name("open_clip_config.json")
    require_regular_file(file, missing_ok=True)
    if not file.is_file():
        return None
    config, ours = read_architecture(str(file)), load_architecture(name)
    theirs = config.get("model_cfg") or {}
    same = all(theirs.get(key) == ours.get(key) for key in ("embed_dim", "vision_cfg", "text_cfg"))
    return config if same else None


def _files() -> dict[str, Path]:
    return {path.stem: path for path in (open_clip_folder() / "model_configs").glob("*.json")}


# ---- Weight families: OpenAI's weights need QuickGELU, open_clip's own mostly GELU ---------------------------------
# No tensor shows the activation, and the wrong one is a silent loss of accuracy. So the family decides, and if neither
# the file nor the study states which it is, nothing is loaded.

OPENAI_CONSTANTS = ("input_resolution", "context_length", "vocab_size")  # numbers among the tensors of OpenAI's files
QUICKGELU_SUFFIX = "-quickgelu"


def weights_family(state: Collection[str]) -> str | None:
    """``openai`` if the names in a file show it, else None: no name shows that a file is open_clip's.

    >>> weights_family(["visual.proj", "context_length"])
    'openai'
    """
    return "openai" if is_clip4clip(state) or any(name in state for name in OPENAI_CONSTANTS) else None


def is_clip4clip(state: Collection[str]) -> bool:
    """Whether these are the names of a CLIP4Clip checkpoint, whose training began from OpenAI's weights."""
    return any(name.startswith("clip.visual.") for name in state)


def check_family(shown: str | None, keys: BackboneKeys, quick_gelu: bool, source: str, ours: bool = False) -> None:
    """Refuse weights whose activation is not the architecture's, or is not known although either would load.

    Args:
        shown: the family that the weights themselves show.
        quick_gelu: whether the architecture has QuickGELU.
        ours: whether it is a checkpoint of a run here, whose study named the same architecture.
    """
    if shown and keys.family and shown != keys.family:
        raise RewindError(
            f"backbone.family: {keys.family}, but {source} shows that the weights are {shown}'s; remove the key."
        )
    family, other = shown or keys.family, _other_activation(keys.architecture, quick_gelu)
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


def _other_activation(architecture: str, quick_gelu: bool) -> str | None:
    """open_clip's name of the same architecture with the other activation."""
    other = architecture.removesuffix(QUICKGELU_SUFFIX) if quick_gelu else architecture + QUICKGELU_SUFFIX
    return other if other != architecture and other in architecture_names() else None
