"""What turns captions and clips into vectors: the one interface of all encoders, and how one is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rewind.errors import RewindError
from rewind.models.retriever import find
from rewind.study.encoding import Encoding

Vectors = np.ndarray | list[np.ndarray]
"""One vector for each input (n, D), or, of models that compare many vectors, a list of n arrays (L, D)."""


class Encoder:
    """A model by name. A module of :mod:`rewind.encoders`, or one of the user's own, makes it: ``build(encoding)``.

    A subclass, or any object with these names, writes ``encode_texts`` and ``encode_clips``. One whose model reads
    files by a sampler of its own (``frames: model``) also has ``encode_files(list[Path]) -> Vectors``. One whose model
    scores a caption and a clip together is a :class:`PairEncoder`.

    Attributes:
        notes: what a reader of the tables must know of its vectors, whole clauses.
        facts: what the record keeps besides: the commit of a model on the hub, its preprocessing, its context.
        packages: names of distributions whose versions the record keeps.
    """

    notes: tuple[str, ...] | list[str] = ()
    facts: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    packages: tuple[str, ...] = ()

    def encode_texts(self, texts: list[str]) -> Vectors:
        """Vectors of captions, in their order."""
        raise NotImplementedError

    def cut(self, texts: list[str]) -> int | None:
        """How many captions are longer than the model's context, so that it sees their beginnings; None: unknown."""
        return None

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        """Vectors of clips, in their order.

        Args:
            clips: each uint8 RGB (T, H, W, 3), at the size of the prepared clip. A clip and its twin come together: the
                twin shows the same pictures in opposite order.
        """
        raise NotImplementedError


class PairEncoder(Encoder):
    """A model that scores a caption and a clip together, so that no vectors stand for them: it writes ``score`` alone.

    Any encoder with ``pairs = True`` is one.
    """

    pairs = True

    def score(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        """Scores (n_texts, n_clips) of every caption with every clip; higher is nearer.

        A pair's score must not depend on what else is given. All captions of a test split are given at once, clips as
        to :meth:`encode_clips`.
        """
        raise NotImplementedError


def maker(encoder: str) -> Any:
    """The module of an encoder, which has ``build(encoding) -> Encoder`` and may have ``check(encoding)``.

    Raises:
        RewindError: if there is none, or it makes nothing.
    """
    found = find(encoder, "rewind.encoders", "encoder")
    if getattr(found, "build", build) is build:  # nothing, or this module, which only hands on
        raise RewindError(f"encoder: {encoder} has no `build(encoding)`, which makes the encoder.")
    return found


def build(encoding: Encoding) -> Encoder:
    """The encoder of a method's vectors.

    Raises:
        RewindError: for what its module refuses, or frames by the model's own sampler where it has none.
    """
    made = maker(encoding.encoder).build(encoding)
    if encoding.frames == "model" and not hasattr(made, "encode_files"):
        raise RewindError(
            f"frames: model: {encoding.encoder} gives {encoding.name} frames that Rewind chose; set frames: rewind."
        )
    return made


def check(encoding: Encoding) -> None:
    """Refuse, before the first job, what is known to fail.

    Raises:
        RewindError: naming the key, the package or the file, and what to do.
    """
    found = maker(encoding.encoder)
    if hasattr(found, "check"):
        found.check(encoding)


def local_folder(encoding: Encoding) -> Path | None:
    """The local folder that ``name`` is; None where it is a name of the hub.

    Raises:
        RewindError: for what looks like a path but is not there, or is no folder.
    """
    path = encoding.local()
    looks = encoding.name.startswith(("/", "./", "../", "~", "local-dir:")) or encoding.name.count("/") > 1
    if path is None and looks and not encoding.name.startswith("hf-hub:"):
        raise RewindError(
            f"name: {encoding.name}: no such folder. Put the model's files there (configuration, weights, tokenizer), "
            "or correct the key."
        )
    if path is not None and path.is_file():
        raise RewindError(f"name: {encoding.name}: a file, but the folder of a model is needed; name its folder.")
    return path
