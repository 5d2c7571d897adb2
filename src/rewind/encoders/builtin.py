"""Encoders for data sets of embeddings (`source.made_from`): built-in frozen networks, or a model chosen by name.

Built in are MiniLM and CLIP for captions, EfficientNet-Lite0 and CLIP for images or frames. Results are (n, D); a model
with several vectors per input is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewind.config import Backbone, Text
from rewind.config.dataset import EncoderConfig, MadeFrom
from rewind.config.encoders import Encoding
from rewind.encoders.base import EncoderOutput, build_encoder
from rewind.encoders.frames import batched, group_families, read_families_ahead
from rewind.errors import RewindError
from rewind.models import towers
from rewind.models.backbone import Backbone as BackboneTowers
from rewind.models.registry import build_backbone
from rewind.models.retriever import masked_mean
from rewind.progress import track
from rewind.registry import import_path
from rewind.video.frame_store import ClipToStore

# ---- Built-in frozen networks, and functions of the user's own -----------------------------------------------------

TextEncoder = Callable[[list[str]], Tensor]
"""Captions → (n, D)."""
ImageEncoder = Callable[[Tensor, Tensor], Tensor]
"""Frames uint8 RGB (n, T, 3, S, S) and their mask (n, T) → (n, D), the mean over the frames."""

CLIP_CONTEXT_LENGTH = 77  # tokens that CLIP's text tower reads
_CAPTION_BATCH = 64


def builtin_text_encoder(keys: EncoderConfig, device: torch.device) -> TextEncoder:
    """The encoder of captions that a data set names."""
    if keys.name == "minilm":
        sentences = towers.freeze_as_buffers(towers.load_sentence_encoder()).to(device)
        return lambda captions: _encode_in_batches(sentences, captions)
    if keys.name == "clip":
        clip = _clip_backbone(keys, "text").to(device)
        return lambda captions: _encode_in_batches(
            lambda batch: clip.encode_text(clip.prepare_text(batch).to(device)), captions
        )
    return _user_encoder(keys, "text", "minilm")(keys, device)


def builtin_image_encoder(keys: EncoderConfig, device: torch.device) -> ImageEncoder:
    """The encoder of images, or of the frames of clips, that a data set names."""
    if keys.name == "efficientnet_lite0":
        network = towers.freeze_as_buffers(towers.load_frame_encoder()).to(device)

        def encode_by_network(pixels: Tensor, mask: Tensor) -> Tensor:
            features = network(pixels.flatten(0, 1).to(device)).unflatten(0, mask.shape)
            return masked_mean(features, mask.to(device))

        return encode_by_network
    if keys.name == "clip":
        clip = _clip_backbone(keys, "image").to(device)

        def encode_by_clip(pixels: Tensor, mask: Tensor) -> Tensor:
            with _translate_key_names("image"):
                return masked_mean(clip.clip_features(pixels.to(device), mask.to(device)), mask.to(device))

        return encode_by_clip
    return _user_encoder(keys, "image", "efficientnet_lite0")(keys, device)


def _encode_in_batches(encode: TextEncoder, captions: list[str]) -> Tensor:
    return torch.cat([encode(batch) for batch in batched(captions, _CAPTION_BATCH)])


def _clip_backbone(keys: EncoderConfig, side: str) -> BackboneTowers:
    if keys.weights is None:
        raise RewindError(
            f"source.made_from.{side}.weights: clip needs a local weights file; with random weights the vectors "
            "mean nothing."
        )
    backbone = Backbone(
        kind="clip", **keys.model_dump(include={"architecture", "weights", "family", "allow_torchscript"})
    )
    with _translate_key_names(side):
        return build_backbone(backbone, Text(tokenizer="clip", max_words=CLIP_CONTEXT_LENGTH), []).eval()


@contextlib.contextmanager
def _translate_key_names(side: str) -> Iterator[None]:
    """What a backbone refuses, under the names that a data set's configuration has for its keys."""
    try:
        yield
    except RewindError as error:
        message = str(error).replace("backbone.", f"source.made_from.{side}.")
        raise RewindError(message.replace("frames.size", "source.made_from.size")) from error


def _user_encoder(
    keys: EncoderConfig, side: str, packaged: str
) -> Callable[[EncoderConfig, torch.device], Callable[..., Any]]:
    key = f"source.made_from.{side}.name"
    if "." not in keys.name:
        raise RewindError(f"{key}: no encoder {keys.name!r}; available: {packaged}, clip, or a dotted path.")
    return import_path(keys.name, key)


# ---- One side of a data set, captions or images, by a built-in network or a model by name --------------------------


def text_encoder(keys: MadeFrom, device: torch.device) -> Callable[[list[str]], Tensor]:
    """Captions → (n, D), by the encoder that ``source.made_from.text`` names."""
    encoding = keys.encoding("text")
    if encoding is None:
        return builtin_text_encoder(keys.text, device)
    model, size = build_encoder(encoding), encoding.batch_size

    def encode(captions: list[str]) -> Tensor:
        batches = batched(captions, size)
        vectors = [_require_single_vectors(model.encode_texts(batch), encoding) for batch in batches]
        return torch.from_numpy(np.concatenate(vectors))

    return encode


def encode_images(encoding: Encoding, clips: Iterable[ClipToStore], count: int, threads: int) -> np.ndarray:
    """Vectors (n, D) of clips or images, at their prepared size: the model prepares its own input.

    Each of ``clips`` comes once, without its twin; ``count`` is their number, for the progress bar.
    """
    model = build_encoder(encoding)
    families = ([clip] for clip in track(clips, "vectors", count, "images"))  # each of one clip: there are no twins
    groups = group_families(read_families_ahead(families, encoding, threads), encoding.batch_size)
    return np.concatenate(
        [_require_single_vectors(model.encode_clips([clip for (clip,) in group]), encoding) for group in groups]
    )


def _require_single_vectors(vectors: EncoderOutput, encoding: Encoding) -> np.ndarray:
    if isinstance(vectors, list) or vectors.ndim != 2:
        raise RewindError(
            f"source.made_from: {encoding.name} computes several vectors for an input, but a map needs one: choose a "
            "model that pools."
        )
    return np.asarray(vectors, dtype=np.float32)
