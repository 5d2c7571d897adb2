"""Captions and pictures of a data set of vectors: by the networks that are built in, or by a model by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from rewind.encoders.clips import grouped, read_ahead
from rewind.encoders.interface import Vectors, build
from rewind.errors import RewindError
from rewind.models import encoders
from rewind.progress import track
from rewind.study.embeddings import MadeFrom
from rewind.study.encoding import Encoding, encoding_of_side
from rewind.video.store import Clip


def text_encoder(keys: MadeFrom, device: torch.device) -> Callable[[list[str]], Tensor]:
    """Captions → (n, D), by the encoder that ``source.made_from.text`` names.

    Raises:
        RewindError: if there is no such encoder, or it lacks its package or weights.
    """
    encoding = encoding_of_side(keys, "text")
    if encoding is None:
        return encoders.text_encoder(keys.text, device)
    model, size = build(encoding), encoding.batch_size

    def encode(captions: list[str]) -> Tensor:
        parts = range(0, len(captions), size)
        return torch.from_numpy(
            np.concatenate([_plain(model.encode_texts(captions[n : n + size]), encoding) for n in parts])
        )

    return encode


def image_vectors(encoding: Encoding, clips: Iterable[Clip], count: int, threads: int) -> np.ndarray:
    """Vectors (n, D) of clips or images, at their prepared size: the model prepares its own input.

    Args:
        encoding: the model by name.
        clips: each once, without twins.
        count: of ``clips``.
        threads: that read ahead.

    Raises:
        RewindError: for what the encoder refuses, a file that cannot be read, or several vectors a clip.
    """
    model = build(encoding)
    single = ([clip] for clip in track(clips, "vectors", count, "images"))
    groups = grouped(read_ahead(single, encoding, threads), encoding.batch_size)
    return np.concatenate([_plain(model.encode_clips([one for (one,) in group]), encoding) for group in groups])


def _plain(found: Vectors, encoding: Encoding) -> np.ndarray:
    if isinstance(found, list) or found.ndim != 2:
        raise RewindError(
            f"source.made_from: {encoding.name} makes several vectors for an input, but a map needs one: choose a "
            "model that pools."
        )
    return np.asarray(found, dtype=np.float32)
