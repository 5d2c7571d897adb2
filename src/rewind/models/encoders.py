"""Frozen networks that turn captions and pictures into vectors, for data sets of vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models import towers
from rewind.models.retriever import find, masked_mean
from rewind.study import Backbone, Text
from rewind.study.embeddings import Encoder

TextEncoder = Callable[[list[str]], Tensor]
"""Captions → (n, D)."""
ImageEncoder = Callable[[Tensor, Tensor], Tensor]
"""Frames uint8 RGB (n, T, 3, S, S) and their mask (n, T) → (n, D), the mean over the frames."""

CLIP_WORDS = 77  # tokens that CLIP's text tower reads
_CAPTIONS_AT_ONCE = 64


def text_encoder(keys: Encoder, device: torch.device) -> TextEncoder:
    """The encoder of captions that a data set names.

    Raises:
        RewindError: if there is no such encoder, or it lacks its package or weights.
    """
    if keys.name == "minilm":
        sentences = towers.freeze(towers.load_sentence_encoder()).to(device)
        return lambda captions: _in_pieces(sentences, captions)
    if keys.name == "clip":
        clip = _clip(keys, "text").to(device)
        return lambda captions: _in_pieces(lambda some: clip.encode_text(clip.prepare_text(some).to(device)), captions)
    return _own(keys, "text", "minilm")(keys, device)


def image_encoder(keys: Encoder, device: torch.device) -> ImageEncoder:
    """The encoder of images, or of the frames of clips, that a data set names.

    Raises:
        RewindError: if there is no such encoder, or it lacks its package or weights.
    """
    if keys.name == "efficientnet_lite0":
        network = towers.freeze(towers.load_frame_encoder()).to(device)

        def encode(pixels: Tensor, mask: Tensor) -> Tensor:
            features = network(pixels.flatten(0, 1).to(device)).unflatten(0, mask.shape)
            return masked_mean(features, mask.to(device))

        return encode
    if keys.name == "clip":
        clip = _clip(keys, "image").to(device)

        def encode_frames(pixels: Tensor, mask: Tensor) -> Tensor:
            with _keys_of("image"):
                return masked_mean(clip.clip_features(pixels.to(device), mask.to(device)), mask.to(device))

        return encode_frames
    return _own(keys, "image", "efficientnet_lite0")(keys, device)


def _in_pieces(encode: TextEncoder, captions: list[str]) -> Tensor:
    pieces = range(0, len(captions), _CAPTIONS_AT_ONCE)
    return torch.cat([encode(captions[at : at + _CAPTIONS_AT_ONCE]) for at in pieces])


def _clip(keys: Encoder, side: str) -> torch.nn.Module:
    if keys.weights is None:
        raise RewindError(
            f"source.made_from.{side}.weights: clip needs a local weights file; with random weights the vectors "
            "mean nothing."
        )
    given = keys.model_dump(include={"architecture", "weights", "family", "allow_torchscript"})
    make = find("clip", "rewind.models", f"source.made_from.{side}.name").build
    with _keys_of(side):
        return make(Backbone(kind="clip", **given), Text(tokenizer="clip", max_words=CLIP_WORDS), []).eval()


@contextlib.contextmanager
def _keys_of(side: str) -> Iterator[None]:
    """What a backbone refuses, under the keys that a data set has for it."""
    try:
        yield
    except RewindError as error:
        said = str(error).replace("backbone.", f"source.made_from.{side}.")
        raise RewindError(said.replace("frames.size", "source.made_from.size")) from error


def _own(keys: Encoder, side: str, packaged: str) -> Callable[[Encoder, torch.device], Callable[..., Any]]:
    where = f"source.made_from.{side}.name"
    if "." not in keys.name:
        raise RewindError(f"{where}: no encoder {keys.name!r}; available: {packaged}, clip, or a dotted path.")
    return find(keys.name, "rewind.models", where)
