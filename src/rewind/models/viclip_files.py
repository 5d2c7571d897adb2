"""ViCLIP's weights from files: upstream's ``.pth`` (a mapping with ``model``), or a checkpoint of a run here."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file, require_whole_archive
from rewind.models.viclip_towers import SIZES, resized

_OURS = "backbone."
_PARTS = ("vision_encoder.", "text_encoder.")
_CONV = "vision_encoder.conv1.weight"
_TIMES = "vision_encoder.temporal_positional_embedding"
State = dict[str, Tensor]


def load_viclip(model: nn.Module, path: str | Path, architecture: str) -> None:
    """Fill ``model`` (``vision_encoder``, ``text_encoder``, ``logit_scale``); every tensor of the towers must fit.

    Upstream's ``temp`` becomes ``logit_scale = -log(temp)``; temporal positions of another number of frames are
    interpolated. No code of the file is run.

    Raises:
        RewindError: if the file is missing, damaged, no ViCLIP, of another size (which is named), or holds values that
            are no numbers.
    """
    state = towers(read(path), path)
    own = {name: value for name, value in model.state_dict().items() if name.startswith((*_PARTS, "logit_scale"))}
    if (found := size_of(state)) and found != architecture and _other_size(own, state):
        raise RewindError(
            f"backbone.weights: {path}: this file has size {found[-1].upper()}: set backbone.architecture: {found} "
            f"(it is {architecture}), or name weights of that size."
        )
    if _TIMES in state and state[_TIMES].ndim == 3:
        state[_TIMES] = resized(state[_TIMES], own[_TIMES].shape[1])
    _check(own, state, path)
    model.load_state_dict(state, strict=False)  # what is not of the towers, such as pixel means, is no weight


def read(path: str | Path) -> State:
    """Tensors of a file by name, as float32.

    Raises:
        RewindError: if it is missing, damaged, or holds more than tensors and plain values.
    """
    path = Path(path)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.weights: {path}: no such file; put the weights there or correct the key.")
    require_whole_archive(path)
    with reading_user_file(path, "weights file"):
        try:
            if path.suffix == ".safetensors":
                state = load_file(path)
            else:
                state = torch.load(path, map_location="cpu", weights_only=True)
        except SafetensorError as error:
            raise RewindError(f"backbone.weights: {path} is damaged or not a safetensors file ({error}).") from error
        except Exception as error:  # a damaged or foreign file fails in as many ways as there are formats
            raise RewindError(
                f"backbone.weights: {path} cannot be read safely ({type(error).__name__}): it is damaged, or holds "
                "more than tensors and plain values. Save {'model': state_dict} alone."
            ) from error
    state = state.get("model", state) if isinstance(state, Mapping) else {}
    tensors = {name: value.float() for name, value in state.items() if isinstance(value, Tensor)}
    return tensors if len(tensors) == len(state) else {}


def towers(state: State, path: str | Path) -> State:
    """The towers' tensors and ``logit_scale``, under upstream's names.

    Raises:
        RewindError: for anything that is no ViCLIP.
    """
    if any(name.startswith(_OURS) for name in state):
        state = {name.removeprefix(_OURS): value for name, value in state.items() if name.startswith(_OURS)}
    if _CONV not in state:
        raise RewindError(
            f"backbone.weights: {path} is not a ViCLIP: it has no tensor {_CONV!r}. `ViClip-InternVid-10M-FLT.pth`, or "
            "a model that a study here trained with `backbone.kind: viclip`, is needed."
        )
    if "temp" in state:
        if not float(state["temp"]) > 0:
            raise RewindError(
                f"backbone.weights: {path}: its temperature `temp` is {float(state['temp'])}, not above 0."
            )
        state = {name: value for name, value in state.items() if name != "temp"} | {
            "logit_scale": -state["temp"].log().reshape(())
        }
    return dict(state)


def size_of(state: State) -> str | None:
    """``viclip-b`` or ``viclip-l`` where width and patch of the vision tower are theirs."""
    width, patch = state[_CONV].shape[0], state[_CONV].shape[-1]
    return next((n for n, a in SIZES.items() if (a.vision.width, a.vision.patch) == (width, patch)), None)


def _other_size(own: State, state: State) -> bool:
    return own[_CONV].shape != state[_CONV].shape


def _check(own: State, state: State, path: str | Path) -> None:
    wrong = [name for name in own if name not in state or own[name].shape != state[name].shape]
    wrong += [name for name in state if name not in own]
    if wrong:
        name = wrong[0]
        shapes = [str(tuple(d[name].shape)) if name in d else "absent" for d in (own, state)]
        hint = " Set text.tokenizer: clip." if name == "text_encoder.token_embedding.weight" else ""
        raise RewindError(
            f"backbone.weights: {path} does not fit backbone.architecture: {len(wrong)} tensors differ, first {name!r} "
            f"(model {shapes[0]}, file {shapes[1]}).{hint}"
        )
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    if broken:
        raise RewindError(f"backbone.weights: {path}: {broken!r} contains values that are not numbers: it is damaged.")
