"""CLIP weights from files and from open_clip's hub: read safely, recognised, checked, loaded in float32."""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rewind.compat import open_clip
from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file, require_whole_archive
from rewind.models.architectures import names, other_pixels, published_beside, read, refused
from rewind.models.families import CONSTANTS, check_family, family_of, is_clip4clip
from rewind.models.hub import check_tag, fetch
from rewind.models.huggingface import check_beside, family_beside, from_huggingface, is_huggingface
from rewind.models.patches import KERNEL, fit_patches
from rewind.study import Backbone as BackboneKeys

_OURS = "backbone.clip."
_CANDIDATES = 3  # architectures named at most
State = dict[str, Tensor]
FORM_ALONE = ContextVar("form_alone", default=False)


def load_weights(model: nn.Module, keys: BackboneKeys, quick_gelu: bool) -> State:
    """Fill an open_clip CLIP with the weights that the study names; every tensor must fit.

    Args:
        model: the towers.
        keys: ``weights`` (a file) or ``pretrained`` (a tag of open_clip's hub), and what goes with them.
        quick_gelu: whether the towers were built with QuickGELU.

    Returns:
        The whole state that was read, heads included, under open_clip's names where they were Hugging Face's.

    Raises:
        RewindError: if the weights cannot be read, belong to the other family, or do not fit; the first tensor that
            differs is named, and an architecture that fits where open_clip has one.
    """
    if FORM_ALONE.get():
        if keys.pretrained:
            check_tag(keys, quick_gelu)
        return {}
    if keys.pretrained:
        source = f"backbone.pretrained: {keys.pretrained}"
        state = fetch(keys, quick_gelu)
        towers = fit_patches(state, set(model.state_dict()), source)
        _check_fit(model, towers, keys.architecture, quick_gelu, source)
        _fill(model, towers, source)
        return state
    source, path = f"backbone.weights: {keys.weights}", Path(str(keys.weights))
    state = read_state(path, keys.allow_torchscript)
    shown, foreign = family_of(state), is_huggingface(state)
    if foreign:
        state, shown = from_huggingface(state, source), family_beside(path)
    elif (published := published_beside(path, keys.architecture)) and not _is_ours(state):
        if reason := other_pixels(published.get("preprocess_cfg") or {}):
            raise RewindError(f"{path.with_name('open_clip_config.json')}: {reason}.")
        shown = shown or ("openai" if published["model_cfg"].get("quick_gelu", False) else "open_clip")
    towers = fit_patches(_towers(state), set(model.state_dict()), source)
    family = shown or keys.family
    _check_fit(model, towers, keys.architecture, quick_gelu if family is None else family == "openai", source)
    alone = " (Hugging Face's layout, without its config.json beside it)" if foreign and not shown else ""
    check_family(shown, keys, quick_gelu, source + alone, ours=_is_ours(state))
    if foreign:
        check_beside(path, model)
    _fill(model, towers, source)
    return state


@contextlib.contextmanager
def form_alone() -> Iterator[None]:
    """In the block models are made of meta tensors and no weights are read: a study's keys are tried."""
    before = FORM_ALONE.set(True)
    try:
        with torch.device("meta"):
            yield
    finally:
        FORM_ALONE.reset(before)


def read_state(path: str | Path, allow_torchscript: bool = False) -> State:
    """Tensors of a weights file by name, floating-point ones as float32.

    Safetensors, plain state dicts and training checkpoints of open_clip and MiniCLIP are read without running code from
    the file.

    Raises:
        RewindError: if the file is missing, damaged, something else, or a program archive that was not allowed.
    """
    path = Path(path)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.weights: {path}: no such file; put the weights there or correct the key.")
    require_whole_archive(path)
    with reading_user_file(path, "weights file", "get it again, or save the model's state_dict() anew"):
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
        raise RewindError(f"backbone.weights: {path}: the archive cannot be read ({_line(error)}).") from error


def _read_pickle(path: Path) -> State:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or foreign file fails in as many ways as there are formats
        raise RewindError(
            f"backbone.weights: {path} is no plain state dict ({type(error).__name__}): it is damaged, or holds more "
            "than tensors and plain values. Save the model's state_dict() alone, best as safetensors."
        ) from error
    for block in ("state_dict", "model_state_dict"):  # of training checkpoints
        state = state.get(block, state) if isinstance(state, Mapping) else state
    odd = next((n for n, v in state.items() if not isinstance(v, Tensor)), None) if isinstance(state, Mapping) else "?"
    if odd is not None or not state:
        what = f"a {type(state).__name__}" if odd == "?" else f"{odd!r} is no tensor" if odd else "it is empty"
        raise RewindError(f"backbone.weights: {path} is no state dict: {what}. Save the model's state_dict() alone.")
    return _unprefixed(state)


def _unprefixed(state: Mapping[str, Tensor]) -> State:
    """Without the prefixes that parallel and compiled wrappers leave."""
    return {re.sub(r"^(module\.|_orig_mod\.)+", "", name): value for name, value in state.items()}


def _towers(state: State) -> State:
    """The towers' tensors under open_clip's names; heads and OpenAI's constants are left behind."""
    for prefix, found in ((_OURS, _is_ours(state)), ("clip.", is_clip4clip(state))):
        if found:
            return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
    return {name: value for name, value in state.items() if name not in CONSTANTS}


def _check_fit(model: nn.Module, state: State, architecture: str, quick_gelu: bool, source: str) -> None:
    own = model.state_dict()
    if wrong := _differences(own, state):
        what, hint = _describe(wrong, own, state), _hint(state, quick_gelu)
        raise RewindError(f"{source} does not fit {architecture}: {what}{hint}")


def _fill(model: nn.Module, state: State, source: str) -> None:
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    if broken:
        raise RewindError(f"{source}: {broken!r} contains values that are not numbers: the file is damaged.")
    model.load_state_dict(state)


def _differences(own: Mapping[str, Tensor], state: State) -> list[str]:
    differing = [name for name in own if name not in state or own[name].shape != state[name].shape]
    return differing + [name for name in state if name not in own]


def _describe(wrong: list[str], own: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """How many tensors differ, and the first with both shapes."""
    name = wrong[0]
    shapes = [str(tuple(d[name].shape)) if name in d else "absent" for d in (own, state)]
    many = f"{len(wrong)} tensors differ" if len(wrong) > 1 else "1 tensor differs"
    return f"{many}, first {name!r} (model {shapes[0]}, file {shapes[1]})."


def _hint(state: State, quick_gelu: bool) -> str:
    flat = {name: value for name, value in state.items() if name != KERNEL or value.ndim == 4}
    names = fitting_architectures(flat, quick_gelu)
    return f" The file fits {' or '.join(names)}: set backbone.architecture." if names else ""


def fitting_architectures(state: State, quick_gelu: bool) -> list[str]:
    """open_clip's plain CLIP models of one activation that these tensors fit by name and shape, at most three."""
    found: list[str] = []
    for name in names():
        config = read(name)
        if not _may_fit(config, state, quick_gelu):
            continue
        with torch.device("meta"):  # shapes alone
            own = open_clip("model").CLIP(**config).state_dict()
        if not _differences(own, state):
            found.append(name)
    return found[:_CANDIDATES]


def _may_fit(config: dict[str, Any], state: State, quick_gelu: bool) -> bool:
    """A quick look at widths, so that few models are built."""
    text = config.get("text_cfg", {})
    if not text or any(refused(config)) or config.get("quick_gelu", False) != quick_gelu:
        return False
    wanted = {
        "text_projection": (text.get("width", 512), config["embed_dim"]),
        "token_embedding.weight": (text.get("vocab_size", 49408), text.get("width", 512)),
        "positional_embedding": (text.get("context_length", 77), text.get("width", 512)),
    }
    return all(name in state and tuple(state[name].shape) == shape for name, shape in wanted.items())


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
