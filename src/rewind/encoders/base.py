"""The interface of all encoders, how a study's key `encoder` finds one, and access to models on the Hugging Face hub.

An encoder maps captions and clips to vectors: (n, D), or a list of n arrays (L, D) for models with several vectors per
input. A pair encoder has no vectors and scores a caption together with a clip. ``check_encoder`` refuses what is known
to fail before the first job and fetches nothing; ``build_encoder`` loads the model inside a job.

``huggingface_hub`` is imported inside functions: it is not a dependency of Rewind itself, and a study without such
models needs none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeGuard, TypeVar

import numpy as np
import torch

from rewind import optional_packages
from rewind.config.encoders import Encoding
from rewind.errors import RewindError
from rewind.io.files import reraise_system_error
from rewind.registry import ENCODERS

# ---- Encoders: interface and lookup --------------------------------------------------------------------------------

EncoderOutput = np.ndarray | list[np.ndarray]
"""One vector for each input (n, D), or, of models that compare many vectors, a list of n arrays (L, D)."""


class Encoder:
    """A model by name, made by ``build(encoding)`` of a module of :mod:`rewind.encoders` or of a user's own.

    A subclass, or any object with these methods, implements ``encode_texts`` and ``encode_clips``. One whose model
    reads files with its own sampler (``frames: model``) also has ``encode_files(list[Path]) -> EncoderOutput``. One
    whose model scores a caption and a clip together is a :class:`PairEncoder`.

    >>> class MeanColour(Encoder):
    ...     def encode_texts(self, texts):
    ...         return np.ones((len(texts), 3), np.float32)
    ...     def encode_clips(self, clips):
    ...         return np.stack([clip.mean(axis=(0, 1, 2), dtype=np.float32) for clip in clips])
    >>> MeanColour().encode_clips([np.zeros((8, 4, 4, 3), np.uint8)]).shape
    (1, 3)
    """

    notes: tuple[str, ...] | list[str] = ()  # what a reader of the tables must know about its vectors, whole clauses
    # What else the run's record keeps: the commit of a model on the hub, its preprocessing, its context.
    facts: dict[str, Any] = {}  # noqa: RUF012 - never changed in place
    packages: tuple[str, ...] = ()  # distributions whose versions the record keeps
    composes = False  # whether it reads a picture and a text together, by `encode_composed`

    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        """Vectors of captions, in their order."""
        raise NotImplementedError

    def cut(self, texts: list[str]) -> int | None:
        """How many captions exceed the model's context, so that it sees only their beginnings; None: unknown."""
        return None

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        """Vectors of clips, each uint8 RGB (T, H, W, 3) at the size of the prepared clip, in their order.

        A clip and its twin come in one call: the twin shows the same pictures in opposite order.
        """
        raise NotImplementedError

    def encode_composed(self, texts: list[str], pictures: list[np.ndarray]) -> EncoderOutput:
        """Vectors of queries that are a picture, uint8 RGB (H, W, 3), and a text that says what is to be different.

        Only models with ``composes`` are asked; of others a query is a mean (:mod:`rewind.encoders.composed`).
        """
        raise NotImplementedError


class PairEncoder(Encoder):
    """A model that scores a caption and a clip together and has no vectors for either: it implements only ``score``.

    Any encoder with ``pairs = True`` is one.

    >>> class WordCount(PairEncoder):
    ...     def score(self, texts, clips):
    ...         return np.array([[len(text.split()) for _ in clips] for text in texts], np.float32)
    >>> WordCount().score(["a dog"], [np.zeros((1, 4, 4, 3), np.uint8)])
    array([[2.]], dtype=float32)
    """

    pairs = True

    def score(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        """Scores (n_texts, n_clips) of every caption with every clip; higher is nearer.

        A pair's score must not depend on the other pairs of the call. All captions of a test split are passed at once,
        clips as to :meth:`encode_clips`.
        """
        raise NotImplementedError

    def score_each(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        """Scores (n_texts, n_clips, P) by each of P ways to ask, whose mean is :meth:`score`; one for most models."""
        return np.asarray(self.score(texts, clips))[..., None]


def scores_pairs(encoder: Encoder) -> TypeGuard[PairEncoder]:
    """Whether the model scores pairs; encoders of the user's own that compute vectors may lack the attribute."""
    return getattr(encoder, "pairs", False)


class FileEncoder(Protocol):
    """What an encoder with ``frames: model`` also has: its model reads files with a sampler of its own."""

    def encode_files(self, paths: list[Path]) -> EncoderOutput:
        """Vectors of clips, in their order; a clip and its twin come in one call."""
        ...


def find_encoder(name: str) -> Any:
    """What makes an encoder, called with an :class:`Encoding`; it may have ``check(encoding)``.

    Outside of the package it is a class that is constructed with the encoding, a function, or a module (or class) with
    ``build(encoding)``.
    """
    encoder = ENCODERS.find(name)
    if not callable(encoder) and not hasattr(encoder, "build"):
        raise RewindError(f"encoder: {name} has no `build(encoding)`, which builds the encoder.")
    return encoder


def build_encoder(encoding: Encoding) -> Encoder:
    """The encoder of a method's vectors, with its weights loaded.

    Raises:
        RewindError: for what its module refuses, or ``frames: model`` if the model has no sampler of its own.
    """
    make = find_encoder(encoding.encoder)
    encoder: Encoder = getattr(make, "build", make)(encoding)
    if encoding.frames == "model" and not hasattr(encoder, "encode_files"):
        raise RewindError(
            f"frames: model: {encoding.encoder} gives {encoding.name} frames that Rewind chose; set frames: rewind."
        )
    return encoder


@contextlib.contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Around an encoder's work, which is kept in shards: a lack of GPU memory names the key to lower."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RewindError("batch_size: GPU memory ran out; lower it. Finished shards are kept.") from error


def check_encoder(encoding: Encoding) -> None:
    """Refuse, before the first job, what is known to fail."""
    encoder = find_encoder(encoding.encoder)
    if hasattr(encoder, "check"):
        encoder.check(encoding)


def local_model_folder(encoding: Encoding) -> Path | None:
    """The local folder that ``name`` is; None where it is a name of the hub.

    Raises:
        RewindError: for what looks like a path but does not exist, or is a file.
    """
    path = encoding.local()
    # Names of the hub are "owner/name": one slash.
    looks_local = encoding.name.startswith(("/", "./", "../", "~", "local-dir:")) or encoding.name.count("/") > 1
    if path is None and looks_local and not encoding.name.startswith("hf-hub:"):
        raise RewindError(
            f"name: {encoding.name}: no such folder. Put the model's files there (configuration, weights, tokenizer), "
            "or correct the key."
        )
    if path is not None and path.is_file():
        raise RewindError(f"name: {encoding.name}: a file, but the folder of a model is needed; name its folder.")
    return path


# ---- Hugging Face hub: required packages, local cache and loading of models ----------------------------------------

T = TypeVar("T")


def require_package(name: str) -> None:
    """Refuse a library that is not installed, without importing it."""
    if not optional_packages.is_installed(name):
        extra = name.replace("_", "-")
        raise RewindError(
            f"encoder: the package {extra} is not installed: `pip install 'rewind-bench[{extra}]'`, or `pip install "
            "'rewind-bench[models]'` for all that encoders use."
        )


def is_hub_offline() -> bool:
    """Whether the hub's client was told not to use the network."""
    return any(
        os.environ.get(name, "").upper() in ("1", "ON", "YES", "TRUE")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def is_any_file_cached(repository: str, names: Iterable[str], revision: str | None = None) -> bool:
    """Whether one of these files of a repository is in the hub's cache."""
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(repository, name, revision=revision), str) for name in names)


def cached_file_path(repository: str, name: str, revision: str | None = None) -> str | None:
    """Path of a repository's file in the hub's cache; None if it is not there."""
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(repository, name, revision=revision)
    return path if isinstance(path, str) else None  # a file known not to exist is an object of another type


def hub_cache_folder() -> str:
    """The folder in which the hub's client caches files."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return HF_HUB_CACHE


def require_cached_repository(encoding: Encoding, repository: str, names: list[str], remedy: str) -> None:
    """Refuse a repository (``owner/name``) if nothing can be fetched and none of the files ``names`` is cached."""
    if is_hub_offline() and not is_any_file_cached(repository, names, encoding.revision):
        raise RewindError(
            f"name: {encoding.name}: HF_HUB_OFFLINE is set, and {repository}/{names[0]} is not in "
            f"{hub_cache_folder()}: fetch it there once with a network (`hf download {repository}`), or {remedy}."
        )


def load_pretrained(encoding: Encoding, load: Callable[[], T], remedy: str) -> T:
    """What ``load`` returns; a failure of network, disk or files, or a missing package, becomes one sentence.

    ``load`` passes ``trust_remote_code=False``: by default transformers asks at a terminal whether code that comes with
    a model is to be run.
    """
    try:
        return load()
    except RewindError:
        raise
    except Exception as error:  # what is raised depends on the library and on the hub's client
        reraise_system_error(error, encoding.name)
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if "trust_remote_code" in str(error):
            raise RewindError(
                f"name: {encoding.name}: its class is code that comes with the model, which Rewind does not run: load "
                "it in an encoder of your own (docs/encoders.md), or bring its vectors (docs/bring-your-model.md)."
            ) from None
        remedy = "Install it first." if isinstance(error, ImportError) else remedy
        raise RewindError(f"name: {encoding.name}: cannot be loaded ({reason}). {remedy}") from error


@contextlib.contextmanager
def collect_missing_weights() -> Iterator[set[str]]:
    """Inside the block, collect the names of weights that models of transformers need but their files lack.

    The library draws these at random and reports it only in its log; a caller that loads through another library, such
    as sentence-transformers, has no way to ask. So ``PreTrainedModel.from_pretrained`` is replaced meanwhile.
    """
    model_class = optional_packages.transformers().PreTrainedModel
    load, missing = vars(model_class)["from_pretrained"], set[str]()

    def load_and_record(cls: Any, /, *arguments: Any, output_loading_info: bool = False, **keys: Any) -> Any:
        model, info = load.__func__(cls, *arguments, output_loading_info=True, **keys)
        missing.update(info["missing_keys"])
        return (model, info) if output_loading_info else model

    model_class.from_pretrained = classmethod(load_and_record)
    try:
        yield missing
    finally:
        model_class.from_pretrained = load
