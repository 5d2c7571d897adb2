"""The one interface that training, evaluation and search need."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError

Features = dict[str, Tensor]
"""Whatever a head needs, every tensor batched on dim 0, so that features of several batches can be concatenated."""


class Retriever(nn.Module):
    """Scores every caption against every item."""

    def encode_text(self, batch: Features) -> Features:
        """Features of a batch of captions (``batch['text']`` as made by ``prepare_text``)."""
        raise NotImplementedError

    def encode_items(self, batch: Features) -> Features:
        """Features of a batch of items.

        ``batch`` holds ``mask`` [n, T] (1 on real frames, which come first) and either ``pixels`` uint8
        [n, T, 3, S, S] or cached ``frames`` float [n, T, F].
        """
        raise NotImplementedError

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Logits of all pairs, (n_text, n_items)."""
        raise NotImplementedError

    def start_epoch(self, epoch: int) -> None:
        """Called before the first step of every epoch, counted from 0, and before a run goes on in the middle of one.

        For what is trained from some epoch on: what this sets must follow from the epoch alone. A parameter that is
        frozen at first must be in the optimiser from the start, which takes its groups from a method
        ``parameter_groups(keys: Training) -> list[dict]`` (``params``, ``lr``, ``weight_decay``) where there is one.

        What starts from the training split (a map fitted in closed form) offers ``prepare(data)``, called once with a
        :class:`rewind.feeding.training_data.TrainingData` before the first step, and again before a run is resumed.

        A retriever that scores by the cosine of two vectors also offers ``vectors(text, items)``: unit vectors (n, D)
        and (m, D) whose dot products times ``exp(logit_scale)`` are its ``similarity``. Some losses need them.
        """


class Backbone(nn.Module):
    """A text tower and a frame tower under a shared width.

    What can be cached when a tower is frozen is a step of its own: ``prepare_text`` before ``encode_text``,
    ``clip_features`` before ``encode_frames``.
    """

    width: int
    feature_width: int
    text_width: int | None = None  # of prepared text, where that is a feature vector and not token ids
    caches_text: bool = False  # whether prepared text is worth keeping beside frame features
    logit_scale: nn.Parameter

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Tensor of one row per caption (token ids, or features of a frozen sentence encoder)."""
        raise NotImplementedError

    def encode_text(self, prepared: Tensor) -> Tensor:
        """(n, width), not normalised."""
        raise NotImplementedError

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB frames (n, 3, S, S), each by itself → (n, feature_width)."""
        raise NotImplementedError

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """Features of the frames of clips; padded frames are not encoded.

        A tower whose frames see their neighbours overrides this.

        Args:
            pixels: uint8 RGB (n, T, 3, S, S).
            mask: (n, T), 1 on real frames, which come first.

        Returns:
            (n, T, feature_width), zero on padding.
        """
        real = mask.bool()
        return scatter(self.frame_features(pixels[real]), real)

    def encode_frames(self, features: Tensor) -> Tensor:
        """(n, feature_width) → (n, width), not normalised."""
        return features

    def visual_parameters(self) -> list[nn.Parameter]:
        """Parameters behind ``frame_features``."""
        raise NotImplementedError

    def text_parameters(self) -> list[nn.Parameter]:
        """Parameters of the text tower."""
        raise NotImplementedError

    def checkpoint_towers(self) -> None:
        """From now on keep no activations inside the towers' blocks; compute them again on the way back.

        Raises:
            RewindError: if the towers cannot.
        """
        raise RewindError(
            "training.gradient_checkpointing: this backbone has no blocks whose activations could be computed again; "
            "remove the key."
        )

    def compile_towers(self) -> None:
        """From now on run the towers through torch.compile, in place: names in the state dict stay.

        Raises:
            RewindError: if the towers cannot.
        """
        raise RewindError("training.compile: this backbone has no towers that can be compiled; remove the key.")


def concatenate(parts: list[Features]) -> Features:
    """Join features of consecutive batches along dim 0."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def scatter(features: Tensor, real: Tensor) -> Tensor:
    """Features of real frames (r, F) at their places in clips: bool (n, T) with r places → (n, T, F), else zero."""
    full = features.new_zeros(*real.shape, features.shape[-1])
    full[real] = features
    return full


def masked_mean(frames: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Mean over real frames: (n, T, F) and mask (n, T) → (n, F), summed and given as ``dtype``; without any, zero."""
    weights = mask.to(frames.device, dtype).unsqueeze(-1)
    return (frames.to(dtype) * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def single(value: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def find(name: str, package: str, key: str) -> Any:
    """A built-in of ``package`` by its short name, or a module or an attribute of one by dotted path.

    Raises:
        RewindError: naming the configuration ``key`` if there is no such thing.
    """
    module, _, attribute = name.rpartition(".")
    try:
        if not module:
            return importlib.import_module(f"{package}.{name}")
        if importlib.util.find_spec(module) and hasattr(parent := importlib.import_module(module), attribute):
            return getattr(parent, attribute)
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        where = ""
        if module:
            where = " Modules of your own are looked for in the folders of PYTHONPATH and among installed packages:"
            where += " start with `PYTHONPATH=<folder> snakemake …`."
        raise RewindError(f"{key}: cannot find {name!r} ({error}).{where}") from error
