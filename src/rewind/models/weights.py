"""CLIP weights from files and from open_clip's hub: read safely, recognised, checked, loaded in float32.

A checkpoint does not say which activation it was trained with, and the wrong one is a silent loss of accuracy. So the
family of the weights decides: OpenAI's need QuickGELU, open_clip's own GELU.
"""

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

import rewind.compat  # noqa: F401 - before open_clip
from rewind.errors import RewindError
from rewind.models.patches import KERNEL, fit_patches
from rewind.study import Backbone as BackboneKeys

PLAIN_KEYS = ("embed_dim", "vision_cfg", "text_cfg", "quick_gelu")  # of an architecture that is CLIP and no more
_CONSTANTS = ("input_resolution", "context_length", "vocab_size")  # numbers that OpenAI's files carry among the tensors
_OURS = "backbone.clip."
_QUICK = "-quickgelu"
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
        The whole state that was read, heads included.

    Raises:
        RewindError: if the weights cannot be read, belong to the other family, or do not fit; the first tensor that
            differs is named, and an architecture that fits where open_clip has one.
    """
    if FORM_ALONE.get():
        if keys.pretrained:
            _check_tag(keys, quick_gelu)
        return {}
    if keys.weights:
        source = f"backbone.weights: {keys.weights}"
        state = read_state(keys.weights, keys.allow_torchscript)
        _check_family(family_of(state), keys, quick_gelu, source, ours=_is_ours(state))
    else:
        source = f"backbone.pretrained: {keys.pretrained}"
        state = _from_hub(keys, quick_gelu)
    towers = fit_patches(_towers(state), set(model.state_dict()), source)
    _fill(model, towers, keys.architecture, quick_gelu, source)
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

    Safetensors, plain state dicts and open_clip's training checkpoints are read without running code from the file.

    Raises:
        RewindError: if the file is missing, damaged, something else, or a program archive that was not allowed.
    """
    path = Path(path)
    if not path.is_file():
        raise RewindError(f"backbone.weights: {path}: no such file; put the weights there or correct the key.")
    if path.suffix == ".safetensors":
        state = _read_safetensors(path)
    elif _is_torchscript(path):
        state = _read_torchscript(path, allow_torchscript)
    else:
        state = _read_pickle(path)
    return {name: value.float() if value.is_floating_point() else value for name, value in state.items()}


def family_of(state: State) -> str | None:
    """``openai`` where a file's names show it, else None: nothing marks a file as open_clip's."""
    shown = any(name in state for name in _CONSTANTS) or is_clip4clip(state)
    return "openai" if shown else None


def is_clip4clip(state: State) -> bool:
    """Whether these are the names of a CLIP4Clip checkpoint."""
    return any(name.startswith("clip.visual.") for name in state)


def _is_ours(state: State) -> bool:
    return any(name.startswith(_OURS) for name in state)


def _read_safetensors(path: Path) -> State:
    try:
        return _unprefixed(load_file(path))
    except SafetensorError as error:
        raise RewindError(f"backbone.weights: {path} is damaged or no safetensors file ({error}).") from error


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _read_torchscript(path: Path, allowed: bool) -> State:
    if not allowed:
        raise RewindError(
            f"backbone.weights: {path} is a program archive (TorchScript), as OpenAI publishes its weights. Opening it "
            "loads a program, so it takes your word: set backbone.allow_torchscript: true if you trust the file."
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
    state = state.get("state_dict", state) if isinstance(state, Mapping) else state
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
    return {name: value for name, value in state.items() if name not in _CONSTANTS}


def _check_family(shown: str | None, keys: BackboneKeys, quick_gelu: bool, source: str, ours: bool = False) -> None:
    if shown and keys.family and shown != keys.family:
        raise RewindError(f"backbone.family: {keys.family}, but {source} shows that it is {shown}'s; remove the key.")
    family, other = shown or keys.family, _sibling(keys.architecture, quick_gelu)
    if family is None:
        # A name that ends in -quickgelu was chosen knowingly; the plain one is what a user takes without knowing.
        if not ours and not quick_gelu and other:
            raise RewindError(
                f"{source} does not show whose weights it holds, and {keys.architecture} also exists as {other}. "
                f"For weights trained with QuickGELU (OpenAI's, MetaCLIP's, DFN's) set backbone.architecture: {other}; "
                "for others set backbone.family: open_clip."
            )
        return
    if (family == "openai") == quick_gelu:
        return
    right = f"backbone.architecture: {other}" if other else f"quick_gelu: {str(not quick_gelu).lower()} in its file"
    needed, has = ("QuickGELU", "GELU") if family == "openai" else ("GELU", "QuickGELU")
    raise RewindError(f"{source}: these weights need {needed}, but {keys.architecture} computes {has}; set {right}.")


def _sibling(architecture: str, quick_gelu: bool) -> str | None:
    """open_clip's name of the same architecture with the other activation."""
    from open_clip import list_models

    other = architecture.removesuffix(_QUICK) if quick_gelu else architecture + _QUICK
    return other if other != architecture and other in list_models() else None


def _check_tag(keys: BackboneKeys, quick_gelu: bool) -> None:
    import open_clip

    name, tag = keys.architecture, keys.pretrained
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        known = (
            f"its tags: {', '.join(tags)}" if tags else "it has none; name an architecture of open_clip's, or a file"
        )
        raise RewindError(f"backbone.pretrained: open_clip knows no weights {tag!r} of {name}; {known}.")
    quick = open_clip.get_pretrained_cfg(name, tag).get("quick_gelu", False)
    _check_family("openai" if quick else "open_clip", keys, quick_gelu, f"backbone.pretrained: {tag}")


def _from_hub(keys: BackboneKeys, quick_gelu: bool) -> State:
    import open_clip

    _check_tag(keys, quick_gelu)
    name, tag = keys.architecture, keys.pretrained
    try:
        return open_clip.create_model(name, pretrained=tag, precision="fp32").state_dict()
    except Exception as error:  # network, proxy, disk: what is raised depends on the hub's client
        raise RewindError(
            f"backbone.pretrained: {name}, {tag}: the weights could not be fetched ({_line(error)}). Without a "
            "network, bring them as a file and set backbone.weights instead; docs/rtime.md shows how."
        ) from error


def _fill(model: nn.Module, state: State, architecture: str, quick_gelu: bool, source: str) -> None:
    own = model.state_dict()
    wrong = _differences(own, state)
    if wrong:
        raise RewindError(
            f"{source} does not fit {architecture}: {_describe(wrong, own, state)}{_hint(state, quick_gelu)}"
        )
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    if broken:
        raise RewindError(f"{source}: {broken!r} holds values that are not numbers: the file is damaged.")
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
    from open_clip import get_model_config, list_models
    from open_clip.model import CLIP

    found: list[str] = []
    for name in list_models():
        config = get_model_config(name)
        if not _may_fit(config, state, quick_gelu):
            continue
        with torch.device("meta"):  # shapes alone
            own = CLIP(**config).state_dict()
        if not _differences(own, state):
            found.append(name)
    return found[:_CANDIDATES]


def _may_fit(config: dict[str, Any], state: State, quick_gelu: bool) -> bool:
    """A quick look at widths, so that few models are built."""
    text = config["text_cfg"]
    if set(config) - set(PLAIN_KEYS) or "hf_model_name" in text or config.get("quick_gelu", False) != quick_gelu:
        return False
    wanted = {
        "text_projection": (text.get("width", 512), config["embed_dim"]),
        "token_embedding.weight": (text.get("vocab_size", 49408), text.get("width", 512)),
        "positional_embedding": (text.get("context_length", 77), text.get("width", 512)),
    }
    return all(name in state and tuple(state[name].shape) == shape for name, shape in wanted.items())


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
