"""Load CLIP weights in float32, from files or from open_clip's hub: read safely, recognised and checked.

``load_weights`` is the entry point. Files may be safetensors, plain state dicts, open_clip's or MiniCLIP's training
checkpoints, CLIP4Clip's checkpoints, OpenAI's TorchScript archives (if allowed), or Hugging Face's ``CLIPModel``.
"""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rewind.config import Backbone as BackboneKeys
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, require_intact_archive, require_regular_file, reraise_system_error
from rewind.models.architectures import (
    OPENAI_CONSTANTS,
    architecture_names,
    check_family,
    hub_config_beside,
    is_clip4clip,
    normalisation_mismatch,
    read_architecture,
    unsupported_keys,
    weights_family,
)
from rewind.models.patches import TEMPORAL_KERNEL, adapt_patch_weights
from rewind.optional_packages import open_clip
from rewind.packaged import docs_page

State = dict[str, Tensor]
SHAPES_ONLY = ContextVar("form_alone", default=False)
"""Whether models are built to check only names and shapes, see :func:`shapes_only`."""
_OURS = "backbone.clip."  # prefix of the towers in checkpoints of runs here
_MAX_CANDIDATES = 3  # architectures named at most

# ---- Read a file, recognise it, and fill the towers ----------------------------------------------------------------


def load_weights(model: nn.Module, keys: BackboneKeys, quick_gelu: bool) -> State:
    """Fill an open_clip CLIP with the weights that the study names; every tensor must fit.

    ``quick_gelu``: whether the towers were built with it. Returns all tensors that were read, heads included; Hugging
    Face's under open_clip's names.

    Raises:
        RewindError: if the weights cannot be read, belong to the other family, or do not fit; the first tensor that
            differs is named, and an architecture that fits where open_clip has one.
    """
    if SHAPES_ONLY.get():
        if keys.pretrained:
            check_pretrained_tag(keys, quick_gelu)
        return {}
    if keys.pretrained:
        source = f"backbone.pretrained: {keys.pretrained}"
        state = fetch_pretrained(keys, quick_gelu)
        towers = adapt_patch_weights(state, set(model.state_dict()), source)
        _check_fit(model, towers, keys.architecture, quick_gelu, source)
        _fill(model, towers, source)
        return state
    source, path = f"backbone.weights: {keys.weights}", Path(str(keys.weights))
    state = read_state(path, keys.allow_torchscript)
    shown, from_hub = weights_family(state), is_huggingface(state)
    if from_hub:
        state, shown = from_huggingface(state, source), config_family_beside(path)
    elif (published := hub_config_beside(path, keys.architecture)) and not _is_ours(state):
        if reason := normalisation_mismatch(published.get("preprocess_cfg") or {}):
            raise RewindError(f"{path.with_name('open_clip_config.json')}: {reason}.")
        shown = shown or ("openai" if published["model_cfg"].get("quick_gelu", False) else "open_clip")
    # Names and shapes are checked first: their message suggests an architecture, which is more than a family does.
    towers = adapt_patch_weights(_towers(state), set(model.state_dict()), source)
    family = shown or keys.family
    _check_fit(model, towers, keys.architecture, quick_gelu if family is None else family == "openai", source)
    note = " (Hugging Face's layout, without its config.json beside it)" if from_hub and not shown else ""
    check_family(shown, keys, quick_gelu, source + note, ours=_is_ours(state))
    if from_hub:
        check_config_beside(path, model)
    _fill(model, towers, source)
    return state


@contextlib.contextmanager
def shapes_only() -> Iterator[None]:
    """In this block models are built of meta tensors and no weights are read, to check a study's keys.

    >>> with shapes_only():
    ...     print(nn.Linear(3, 2).weight.device)
    meta
    """
    before = SHAPES_ONLY.set(True)
    try:
        with _NoValues(), torch.device("meta"):
            yield
    finally:
        SHAPES_ONLY.reset(before)


class _NoValues(TorchFunctionMode):
    """Leaves out what only sets values, where tensors have none.

    Nothing is computed on the device "meta", but for the shape of a result torch asks definitions in Python, whose
    first use imports its compiler, sympy and more: 861 modules, a second and more, when a workflow is read anew.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensor = args[0] if args else kwargs.get("tensor")
        if func in (torch.rand, torch.randn) and kwargs.get("device") == torch.device("meta"):
            return torch.empty(*args, **{name: value for name, value in kwargs.items() if name != "generator"})
        if isinstance(tensor, Tensor) and tensor.is_meta:
            if func in _INITIALISERS:
                return tensor
            is_scaled = func is Tensor.mul and isinstance(args[-1], int | float) and tensor.is_floating_point()
            if is_scaled and not tensor.requires_grad:
                return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        return func(*args, **kwargs)


_INITIALISERS = {getattr(nn.init, name) for name in dir(nn.init) if name.endswith("_") and name[0] != "_"} | {
    getattr(Tensor, f"{name}_") for name in ("normal", "uniform", "fill", "zero", "triu", "tril", "mul", "div", "add")
}


def read_state(path: str | Path, allow_torchscript: bool = False) -> State:
    """Tensors of a weights file by name, floating-point ones as float32.

    Safetensors, plain state dicts and training checkpoints of open_clip and MiniCLIP are read without running code from
    the file; a TorchScript archive is refused without permission.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "weights.pt"
    >>> torch.save({"module.weight": torch.zeros(2, 3, dtype=torch.float16)}, path)
    >>> {name: value.dtype for name, value in read_state(path).items()}
    {'weight': torch.float32}
    """
    path = Path(path)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.weights: {path}: no such file; put the weights there or correct the key.")
    require_intact_archive(path)
    with reading_user_file(path, "weights file", "download it again, or save the model's state_dict() again"):
        if path.suffix == ".safetensors":
            state = _read_safetensors(path)
        elif _is_torchscript(path):
            state = _read_torchscript(path, allow_torchscript)
        else:
            state = _read_pickle(path)
    return {name: value.float() if value.is_floating_point() else value for name, value in state.items()}


def _is_ours(state: State) -> bool:
    return any(name.startswith(_OURS) for name in state)


def _read_safetensors(path: Path) -> State:
    try:
        return _unprefixed(load_file(path))
    except SafetensorError as error:
        raise RewindError(f"backbone.weights: {path} is damaged or not a safetensors file ({error}).") from error


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        # By this member torch.load, too, tells TorchScript from what torch.save wrote.
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _read_torchscript(path: Path, allowed: bool) -> State:
    if not allowed:
        raise RewindError(
            f"backbone.weights: {path} is a program archive (TorchScript), as OpenAI publishes its weights. Opening it "
            "loads a program, so you have to allow it: set backbone.allow_torchscript: true if you trust the file."
        )
    try:
        return dict(torch.jit.load(path, map_location="cpu").state_dict())
    except RuntimeError as error:
        raise RewindError(f"backbone.weights: {path}: the archive cannot be read ({_first_line(error)}).") from error


def _read_pickle(path: Path) -> State:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign file fails with any type of error
        raise RewindError(
            f"backbone.weights: {path} is not a plain state dict ({type(error).__name__}): it is damaged, or holds "
            "more than tensors and plain values. Save the model's state_dict() alone, best as safetensors."
        ) from error
    for block in ("state_dict", "model_state_dict"):  # of training checkpoints
        state = state.get(block, state) if isinstance(state, Mapping) else state
    odd = next((n for n, v in state.items() if not isinstance(v, Tensor)), None) if isinstance(state, Mapping) else "?"
    if odd is not None or not state:
        what = f"a {type(state).__name__}" if odd == "?" else f"{odd!r} is no tensor" if odd else "it is empty"
        raise RewindError(f"backbone.weights: {path} is not a state dict: {what}. Save the model's state_dict() alone.")
    return _unprefixed(state)


def _unprefixed(state: Mapping[str, Tensor]) -> State:
    """Without the prefixes that DataParallel and torch.compile add."""
    return {re.sub(r"^(module\.|_orig_mod\.)+", "", name): value for name, value in state.items()}


def _towers(state: State) -> State:
    """The towers' tensors under open_clip's names, without heads and OpenAI's constants."""
    for prefix, present in ((_OURS, _is_ours(state)), ("clip.", is_clip4clip(state))):
        if present:
            return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return {name: value for name, value in state.items() if name not in OPENAI_CONSTANTS}


def _check_fit(model: nn.Module, state: State, architecture: str, quick_gelu: bool, source: str) -> None:
    own = model.state_dict()
    if differing := _differences(own, state):
        description, hint = _describe(differing, own, state), _hint(state, quick_gelu)
        raise RewindError(f"{source} does not fit {architecture}: {description}{hint}")


def _fill(model: nn.Module, state: State, source: str) -> None:
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    if broken:
        raise RewindError(f"{source}: {broken!r} contains values that are not numbers: the file is damaged.")
    model.load_state_dict(state)


def _differences(own: Mapping[str, Tensor], state: State) -> list[str]:
    differing = [name for name in own if name not in state or own[name].shape != state[name].shape]
    return differing + [name for name in state if name not in own]


def _describe(differing: list[str], own: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """How many tensors differ, and the first with both shapes."""
    name = differing[0]
    shapes = [str(tuple(d[name].shape)) if name in d else "absent" for d in (own, state)]
    many = f"{len(differing)} tensors differ" if len(differing) > 1 else "1 tensor differs"
    return f"{many}, first {name!r} (model {shapes[0]}, file {shapes[1]})."


def _hint(state: State, quick_gelu: bool) -> str:
    # Without patches over time, which no architecture has; a ResNet's convolution of the same name has four axes.
    flat = {name: value for name, value in state.items() if name != TEMPORAL_KERNEL or value.ndim == 4}
    names = fitting_architectures(flat, quick_gelu)
    return f" The file fits {' or '.join(names)}: set backbone.architecture." if names else ""


def fitting_architectures(state: State, quick_gelu: bool) -> list[str]:
    """open_clip's plain CLIP models of one activation that these tensors fit by name and shape, at most three."""
    names: list[str] = []
    for name in architecture_names():
        config = read_architecture(name)
        if not _may_fit(config, state, quick_gelu):
            continue
        with torch.device("meta"):  # only shapes are needed
            own = open_clip("model").CLIP(**config).state_dict()
        if not _differences(own, state):
            names.append(name)
    return names[:_MAX_CANDIDATES]


def _may_fit(config: dict[str, Any], state: State, quick_gelu: bool) -> bool:
    """A quick comparison of widths, so that few models are built."""
    text = config.get("text_cfg", {})
    if not text or any(unsupported_keys(config)) or config.get("quick_gelu", False) != quick_gelu:
        return False
    shapes = {
        "text_projection": (text.get("width", 512), config["embed_dim"]),
        "token_embedding.weight": (text.get("vocab_size", 49408), text.get("width", 512)),
        "positional_embedding": (text.get("context_length", 77), text.get("width", 512)),
    }
    return all(name in state and tuple(state[name].shape) == shape for name, shape in shapes.items())


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


# ---- Weights that open_clip publishes under a tag: checked before anything is downloaded ---------------------------


def check_pretrained_tag(keys: BackboneKeys, quick_gelu: bool) -> None:
    """Refuse an unknown tag, and weights of another activation or normalisation than here; nothing is downloaded."""
    name, tag = keys.architecture, keys.pretrained
    tags = open_clip().list_pretrained_tags_by_model(name)
    if tag not in tags:
        advice = (
            f"its tags: {', '.join(tags)}" if tags else "it has none; name an architecture of open_clip's, or a file"
        )
        raise RewindError(f"backbone.pretrained: open_clip knows no weights {tag!r} of {name}; {advice}.")
    published = open_clip().get_pretrained_cfg(name, tag)
    family = "openai" if published.get("quick_gelu", False) else "open_clip"
    check_family(family, keys, quick_gelu, f"backbone.pretrained: {tag}")
    if reason := normalisation_mismatch(published):
        raise RewindError(f"backbone.pretrained: {tag} of {name}: {reason}.")


def fetch_pretrained(keys: BackboneKeys, quick_gelu: bool) -> dict[str, Tensor]:
    """Tensors of the weights that ``keys.pretrained`` names; what :func:`check_pretrained_tag` refuses is refused."""
    check_pretrained_tag(keys, quick_gelu)
    name, tag = keys.architecture, keys.pretrained
    if open_clip().get_pretrained_cfg(name, tag).get("resize_mode") == "squash":
        print(f"backbone.pretrained: {tag} was trained on whole frames resized to squares; set frames.fit: stretch.")
    try:
        return open_clip().create_model(name, pretrained=tag, precision="fp32").state_dict()
    except Exception as error:  # network, proxy, disk: the type depends on the hub's client
        reraise_system_error(error, f"{name}, {tag}")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RewindError(
            f"backbone.pretrained: {name}, {tag}: the weights could not be downloaded ({reason}). Without a "
            f"network, copy them here as a file and set backbone.weights instead; {docs_page('rtime.md')} shows how."
        ) from error


# ---- Hugging Face's CLIPModel: its tensors under open_clip's names, and what its folder states about them ----------

_TOWERS = {"text_model.": "", "vision_model.": "visual."}
_TENSOR_NAMES = {
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
_TRANSPOSED_NAMES = {"text_projection.weight": "text_projection", "visual_projection.weight": "visual.proj"}
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
    """Whether these are the names of a Hugging Face CLIPModel."""
    return any(name.startswith(tuple(_TOWERS)) for name in names)


def from_huggingface(state: Mapping[str, Tensor], where: str) -> State:
    """The same tensors under open_clip's names; queries, keys and values concatenated, projections transposed."""
    tensors: State = {}
    attention: dict[str, dict[str, Tensor]] = {}
    for name, value in state.items():
        if name.endswith("embeddings.position_ids"):  # a constant that older versions stored
            continue
        if name in _TENSOR_NAMES:
            tensors[_TENSOR_NAMES[name]] = value.reshape(()) if name == "logit_scale" else value
        elif name in _TRANSPOSED_NAMES:
            # A linear layer there, which multiplies by the transpose; a plain matrix in open_clip.
            tensors[_TRANSPOSED_NAMES[name]] = value.T.contiguous()
        else:
            block, part, kind = _in_block(name, where)
            if part in _BLOCK:
                tensors[f"{block}{_BLOCK[part]}.{kind}"] = value
            else:
                attention.setdefault(f"{block}attn.in_proj_{kind}", {})[part] = value
    for name, parts in attention.items():
        if len(parts) != 3:
            raise RewindError(f"{where}: {name} lacks one of query, key and value: the file is incomplete.")
        tensors[name] = torch.cat([parts[f"self_attn.{which}_proj"] for which in "qkv"])
    return tensors


def _in_block(name: str, where: str) -> tuple[str, str, str]:
    """open_clip's prefix of a block, the part's name within it, and weight or bias."""
    tower = next((prefix for prefix in _TOWERS if name.startswith(f"{prefix}encoder.layers.")), None)
    number, _, rest = name.removeprefix(f"{tower}encoder.layers.").partition(".")
    part, _, kind = rest.rpartition(".")
    parts = {*_BLOCK, *(f"self_attn.{which}_proj" for which in "qkv")}
    if tower is None or not number.isdecimal() or part not in parts or kind not in ("weight", "bias"):
        raise RewindError(
            f"{where}: it is in Hugging Face's layout, but {name!r} is not a tensor of its CLIPModel: in that layout "
            "only CLIP itself can be read."
        )
    return f"{_TOWERS[tower]}transformer.resblocks.{number}.", part, kind


def config_family_beside(path: Path) -> str | None:
    """The family that ``config.json`` in the file's folder shows by its towers' one activation; None without one."""
    config = _json_beside(path, "config.json")
    if config is None:
        return None
    activations = {_tower_config(config, tower)["hidden_act"] for tower in _DEFAULTS}
    if len(activations) > 1 or not activations <= _FAMILIES.keys():
        shown = " and ".join(sorted(map(str, activations)))
        raise RewindError(f"{path.with_name('config.json')}: hidden_act: {shown}, but here it is quick_gelu or gelu.")
    return _FAMILIES[activations.pop()]


def check_config_beside(path: Path, model: nn.Module) -> None:
    """Refuse weights by what their folder states and no shape shows: other attention heads, norms or normalisation."""
    if (config := _json_beside(path, "config.json")) is not None:
        for tower, part in (("text", model), ("vision", model.visual)):
            stack: Any = getattr(part, "transformer", None)
            theirs = _tower_config(config, tower)
            if hasattr(stack, "resblocks"):
                block = stack.resblocks[0]
                ours = {"num_attention_heads": block.attn.num_heads, "layer_norm_eps": block.ln_1.eps}
                for key, value in ours.items():
                    if theirs[key] != value:
                        raise RewindError(
                            f"{path.with_name('config.json')}: {tower}_config.{key}: {theirs[key]}, but "
                            f"backbone.architecture has {value}: choose another."
                        )
    frames = _json_beside(path, "preprocessor_config.json") or {}
    if reason := normalisation_mismatch({"mean": frames.get("image_mean"), "std": frames.get("image_std")}):
        raise RewindError(f"{path.with_name('preprocessor_config.json')}: {reason}.")


def _tower_config(config: Mapping[str, Any], tower: str) -> dict[str, Any]:
    """A tower's keys; ``text_config_dict`` is an older name, which takes precedence in transformers too."""
    return _DEFAULTS[tower] | (config.get(f"{tower}_config") or {}) | (config.get(f"{tower}_config_dict") or {})


def _json_beside(path: Path, name: str) -> dict[str, Any] | None:
    """A JSON file in the folder of ``path``, as a mapping; None if there is none."""
    file = path.with_name(name)
    require_regular_file(file, missing_ok=True)
    if not file.is_file():
        return None
    with reading_user_file(file, "JSON file"):
        try:
            content = json.loads(file.read_text())
        except ValueError as error:
            raise RewindError(f"{file}: not valid JSON ({error}).") from None
    return content if isinstance(content, dict) else None
