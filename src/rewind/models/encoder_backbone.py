"""A model by name as towers that can be trained (``backbone.kind: encoder``): SigLIP, Perception Encoder, X-CLIP, …

The encoder that loads the model (:mod:`rewind.encoders`) also builds its towers, by its hook ``backbone``. What
``training.freeze`` and ``training.lora`` leave as it was is not in a run's file: it is read from the model again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rewind.config import Backbone as BackboneKeys
from rewind.config import Frames, Training
from rewind.config import Text as TextKeys
from rewind.errors import RewindError
from rewind.models.backbone import Backbone, clip_vectors_at_frames
from rewind.registry import BACKBONES, ENCODERS
from rewind.video.frames import resampled_indices

# ---- How a model wants its pictures, found out by trying ------------------------------------------------------------

PROBE_SIDE = 64  # pixels of the pictures that a model's own preprocessing is tried with
EDGE_SHARE = 0.1  # of a wide picture: what a centre crop cuts away and a stretch keeps


@dataclass(frozen=True)
class PixelInput:
    """How frames become a model's input: ``pixels · scale + shift`` of each colour, at ``size``."""

    size: int
    fit: str  # how a picture becomes square, as the key ``frames.fit``
    scale: tuple[float, ...]  # of red, green and blue, for pixels from 0 to 255
    shift: tuple[float, ...]


def probe_pixel_input(preprocess: Callable[[np.ndarray], Tensor], name: str) -> PixelInput:
    """How a model's own preprocessing computes its input, from its output for flat pictures and for a wide one.

    ``preprocess``: a picture uint8 RGB (H, W, 3) → the model's input (3, S, S). One that does more than resize, crop
    and normalise, which frames here would lack, is refused; ``name`` is the model's, for messages.

    >>> def halves(picture):
    ...     return torch.from_numpy(picture[:32, :32].astype(np.float32) / 255).permute(2, 0, 1)
    >>> probe_pixel_input(halves, "example").size
    32
    """
    # Black and white give shift and scale; grey shows whether the map is linear, red whether colours stay apart.
    flat = [np.full((PROBE_SIDE, PROBE_SIDE, 3), value, np.uint8) for value in (0, 255, 51)]
    red = np.zeros((PROBE_SIDE, PROBE_SIDE, 3), np.uint8)
    red[..., 0] = 255
    with torch.device("cpu"):
        black, white, grey, pure_red = (preprocess(picture).float() for picture in (*flat, red))
        if black.ndim != 3 or black.shape[0] != 3 or black.shape[1] != black.shape[2]:
            raise RewindError(
                f"name: {name}: its input is of shape {tuple(black.shape)}, where square pictures (3, S, S) are "
                "needed: choose a model of one fixed size, or use it with model: vectors."
            )
        shift, scale = black.mean((1, 2)), (white - black).mean((1, 2)) / 255
        expected = ((grey, shift + 51 * scale), (pure_red, shift + torch.tensor([255.0, 0.0, 0.0]) * scale))
        if any(not torch.allclose(made, value[:, None, None].expand_as(made), atol=1e-2) for made, value in expected):
            raise RewindError(
                f"name: {name}: its preprocessing does more than resize, crop and normalise a picture, which frames of "
                "a backbone do not go through: use it with model: vectors."
            )
        fit = _probed_fit(preprocess, black, white)
    if fit is None:
        raise RewindError(
            f"name: {name}: its preprocessing puts a border around pictures that are not square, which frames.fit does "
            "not know: use it with model: vectors."
        )
    return PixelInput(black.shape[-1], fit, tuple(scale.tolist()), tuple(shift.tolist()))


def _probed_fit(preprocess: Callable[[np.ndarray], Tensor], black: Tensor, white: Tensor) -> str | None:
    """``crop`` or ``stretch``; None for a border."""
    wide = np.full((PROBE_SIDE, 2 * PROBE_SIDE, 3), 255, np.uint8)
    bright = (white - black).abs().sum() / 2
    # A white picture stays white, stretched or cropped, unless something is put around it.
    if (preprocess(wide).float() - white).abs().sum() > bright / 10:
        return None
    # White only at the left edge: a centre crop of a picture twice as wide as high cuts a quarter away there.
    wide[:, int(2 * PROBE_SIDE * EDGE_SHARE) :] = 0
    made = preprocess(wide).float()
    return "stretch" if (made - black).abs().sum() > bright * EDGE_SHARE / 2 else "crop"


# ---- The backbone ---------------------------------------------------------------------------------------------------

CAPTIONS_AT_ONCE = 64  # whose vectors are computed for a cache
ASSUMED_WIDTH = 512  # of vectors of a model that is not on this machine


class EncoderBackbone(Backbone):
    """Towers of a model by name; an encoder of the user's own writes a subclass of it, or of ``Backbone``.

    A subclass writes :meth:`tokenise`, :meth:`text_vectors`, and :meth:`picture_vectors` or :meth:`video_vectors`, and
    calls :meth:`find_towers` when its model is there. With ``max_words`` and :meth:`token_counts` tables show how many
    captions are cut.
    """

    caches_text = True
    joint_frames = False  # whether a clip's frames are encoded together, into one vector
    frame_count: int | None = None  # how many frames of a clip the model sees, if it is fixed
    trims_padding = False  # whether padding of all captions of a batch is cut off: where the model masks padding
    scale: Tensor
    shift: Tensor

    def __init__(self, model: nn.Module, pixels: PixelInput, name: str) -> None:
        super().__init__()
        self.model: Any = model
        self.pixels, self.name = pixels, name
        self.register_buffer("scale", torch.tensor(pixels.scale).view(3, 1, 1), persistent=False)
        self.register_buffer("shift", torch.tensor(pixels.shift).view(3, 1, 1), persistent=False)
        self._towers: dict[str, list[nn.Parameter]] = {}
        self.register_state_dict_post_hook(_leave_out_frozen)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_fill_in_frozen)  # type: ignore[no-untyped-call]

    # What an encoder writes

    def tokenise(self, captions: list[str]) -> tuple[Tensor, Tensor]:
        """Token ids int64 (n, L), L the same for every call, and 1 on real tokens (n, L)."""
        raise NotImplementedError

    def text_vectors(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Vectors (n, width) of captions, not normalised, with gradients."""
        raise NotImplementedError

    def picture_vectors(self, pixels: Tensor) -> Tensor:
        """Vectors (n, width) of pictures, the model's input (n, 3, S, S), not normalised."""
        raise NotImplementedError

    def video_vectors(self, pixels: Tensor) -> Tensor:
        """Vectors (n, width) of clips, the model's input (n, T, 3, S, S), if it has ``joint_frames``."""
        raise NotImplementedError

    def find_towers(self) -> None:
        """Find out the width, and which parameters belong to which tower: those that its vectors depend on."""
        frames = torch.zeros(1, self.frame_count or 1, 3, self.pixels.size, self.pixels.size)
        with torch.inference_mode(False), torch.enable_grad():
            self.model.requires_grad_(True)
            visual = self.video_vectors(frames) if self.joint_frames else self.picture_vectors(frames[:, 0])
            self._towers["visual"] = self._reached(visual)
            if visual.is_meta:  # building masks of captions needs numbers; nothing is computed, so the rest will do
                seen = {id(parameter) for parameter in self._towers["visual"]}
                self._towers["text"] = [p for p in self.model.parameters() if id(p) not in seen and p.ndim]
            else:
                self._towers["text"] = self._reached(self.text_vectors(*self.tokenise(["a"])))
        self.width = self.feature_width = visual.shape[-1]
        own = {id(parameter) for tower in self._towers.values() for parameter in tower}
        for parameter in self.model.parameters():  # for example a scale, which the loss's own replaces
            parameter.requires_grad_(id(parameter) in own)

    def _reached(self, output: Tensor) -> list[nn.Parameter]:
        """The model's parameters from which a tensor was computed."""
        reached, seen, todo = set(), set(), [output.grad_fn]
        while todo:
            node = todo.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            reached.add(id(getattr(node, "variable", None)))  # of the nodes that add to a parameter's gradient
            todo += [inner for inner, _ in node.next_functions]
        return [parameter for parameter in self.model.parameters() if id(parameter) in reached]

    # What Rewind calls

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Token ids and mask by the model's own tokenizer, int64 (n, 2, L); ``text`` of the study is not used."""
        return torch.stack(self.tokenise(captions), dim=1)

    def encode_text(self, prepared: Tensor) -> Tensor:
        """(n, 2, L) → (n, width), not normalised; cached vectors (n, width) stay as they are."""
        if prepared.is_floating_point():
            return prepared
        tokens, mask = prepared.unbind(dim=1)
        if self.trims_padding:
            real = mask.any(dim=0)
            tokens, mask = tokens[:, real], mask[:, real]
        return self.text_vectors(tokens, mask)

    @torch.no_grad()
    def cached_text(self, captions: list[str]) -> Tensor:
        """Vectors (n, width) of captions, for runs whose text tower is frozen."""
        device = self.logit_scale.device
        parts = self.prepare_text(captions).split(CAPTIONS_AT_ONCE)
        return torch.cat([self.encode_text(part.to(device)).float().cpu() for part in parts])

    def frame_features(self, pixels: Tensor) -> Tensor:
        if self.joint_frames:
            return self._video_features(pixels[:, None])
        return self.picture_vectors(self._normalised(pixels))

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        if not self.joint_frames:
            return super().clip_features(pixels, mask)
        return clip_vectors_at_frames(self._video_features, pixels, mask, self.width)

    @property
    def sees_single_frames(self) -> bool:
        return not self.joint_frames

    def _video_features(self, pixels: Tensor) -> Tensor:
        if self.frame_count is not None and pixels.shape[1] != self.frame_count:
            pixels = pixels[:, resampled_indices(pixels.shape[1], self.frame_count)]
        return self.video_vectors(self._normalised(pixels))

    def _normalised(self, pixels: Tensor) -> Tensor:
        return pixels.to(self.scale.dtype) * self.scale + self.shift

    def check_frames(self, frames: Frames) -> None:
        if frames.size != self.pixels.size:
            raise RewindError(
                f"frames.size: {frames.size}, but {self.name} reads pictures of {self.pixels.size} × "
                f"{self.pixels.size} pixels; set size: {self.pixels.size}."
            )
        if frames.fit != self.pixels.fit:
            raise RewindError(
                f"frames.fit: {frames.fit}, but {self.name} was trained with pictures made square by "
                f"{self.pixels.fit}; set fit: {self.pixels.fit}."
            )
        if self.frame_count is not None and frames.max_frames != self.frame_count:
            raise RewindError(
                f"frames.max_frames: {frames.max_frames}, but {self.name} sees exactly {self.frame_count} frames of a "
                f"clip; set max_frames: {self.frame_count}."
            )

    def visual_parameters(self) -> list[nn.Parameter]:
        return self._towers["visual"]

    def text_parameters(self) -> list[nn.Parameter]:
        return self._towers["text"]

    def tune(self, keys: Training) -> None:
        """Adapters, and frozen towers: from here on their weights are in no run's file."""
        super().tune(keys)
        for tower in keys.freeze:
            for parameter in self._towers[tower]:
                parameter.requires_grad_(False)

    def train(self, mode: bool = True) -> EncoderBackbone:
        """Set the mode; what is frozen stays in eval mode, without dropout and with the statistics of its norms."""
        super().train(mode)
        for part in self.model.modules():
            parameters = list(part.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                part.eval()
        return self

    def freeze_layers(self, count: int) -> None:
        raise RewindError(
            "training.freeze_layers: blocks of a model by name are not known; freeze whole towers with "
            "training.freeze, or train adapters with training.lora."
        )


class UnknownTowers(Backbone):
    """In place of towers that are not on this machine yet, while the workflow is read: only the kind is known.

    >>> UnknownTowers().text_parameters()
    []
    """

    width = feature_width = ASSUMED_WIDTH

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(0.0))

    def visual_parameters(self) -> list[nn.Parameter]:
        return []

    def text_parameters(self) -> list[nn.Parameter]:
        return []

    def checkpoint_towers(self) -> None:
        """Whether they can is not known."""

    def tune(self, keys: Training) -> None:
        """Whether they can have adapters is not known."""


def _frozen(backbone: nn.Module) -> dict[str, nn.Parameter]:
    return {name: value for name, value in backbone.named_parameters() if not value.requires_grad}


def _leave_out_frozen(backbone: nn.Module, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name in _frozen(backbone):
        state.pop(prefix + name, None)


def _fill_in_frozen(backbone: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    # A strict load then finds every name; a frozen weight is filled with what it holds.
    for name, value in _frozen(backbone).items():
        state.setdefault(prefix + name, value.detach())


@BACKBONES.register("encoder")
def build(keys: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Backbone:
    """The towers of the model that ``backbone.name`` names; it has its own tokenizer, so ``text`` is not used."""
    encoding = keys.encoding()
    if encoding is None:
        raise RewindError(f"backbone.kind: {keys.kind}: a model by name needs kind: encoder.")
    make = getattr(ENCODERS.find(encoding.encoder, "backbone.encoder"), "backbone", None)
    if make is None:
        raise RewindError(
            f"backbone.encoder: {encoding.encoder} computes vectors, but has no towers that could be trained (no "
            "`backbone(encoding)`): choose open_clip or transformers, or use it with model: vectors."
        )
    with _under_backbone():
        towers: Backbone = make(encoding)
    return towers


@contextlib.contextmanager
def _under_backbone() -> Iterator[None]:
    """What an encoder refuses, under the path that its keys have in the block of a backbone."""
    try:
        yield
    except RewindError as error:
        raise RewindError(f"backbone.{error}") from error
