"""Shards of encoded vectors or scores: checking, writing, joining, and resuming a job that was killed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rewind.encoders.base import EncoderOutput
from rewind.errors import RewindError
from rewind.io.files import atomic_write
from rewind.video.shards import clip_identity


@dataclass
class EncodedShard:
    """Vectors of captions or items of one shard, by their ids."""

    ids: list[str]
    vectors: np.ndarray  # (n, D), or (n, L, D) with zeros behind each row's length
    lengths: np.ndarray | None = None  # (n,) for models with several vectors per input; None for others
    facts: dict[str, Any] = field(default_factory=dict)  # what the record keeps about it: seconds, notes, counts


def file_identity(path: str) -> tuple[Any, ...]:
    """What tells a file, or a clip inside a shard of clips, from another one at its place."""
    try:
        return clip_identity(path)
    except OSError as error:
        raise RewindError(
            f"{path}: cannot be read ({error.strerror}); put it back, or prepare the data again."
        ) from error


def make_vector_shard(ids: Sequence[str], vectors: EncoderOutput, what: str) -> EncodedShard:
    """An encoder's output as float32, checked: for each id one row, finite and not zero; ``what`` leads messages.

    >>> shard = make_vector_shard(["a", "b"], [np.ones((1, 4)), np.ones((3, 4))], "encoder: mine")
    >>> shard.vectors.shape, shard.lengths.tolist()
    ((2, 3, 4), [1, 3])
    """
    if len(vectors) != len(ids):
        raise RewindError(f"{what}: gave {len(vectors)} vectors for {len(ids)} inputs; it must give one for each.")
    if isinstance(vectors, list):
        return _pad_multi_vectors(ids, [np.asarray(rows, np.float32) for rows in vectors], what)
    rows = np.asarray(vectors, np.float32)
    if rows.ndim != 2:
        raise RewindError(f"{what}: gave vectors of shape {rows.shape}; (n, D) is needed, or a list of n (L, D).")
    _check_norms(ids, np.linalg.norm(rows, axis=1), what)
    return EncodedShard(list(ids), rows)


def make_score_shard(ids: Sequence[str], texts: Sequence[str], scores: Sequence[np.ndarray], what: str) -> EncodedShard:
    """The output of a model that scores pairs, checked: for each item a row of its scores with all captions.

    ``scores`` are arrays (n, n_texts) of consecutive items; ``what`` leads messages.
    """
    rows = np.concatenate(scores) if all(part.shape[1:] == (len(texts),) for part in scores) else scores[0]
    if rows.shape != (len(ids), len(texts)):
        raise RewindError(
            f"{what}: gave scores of shape {rows.shape[::-1]} for {len(texts)} captions and {len(ids)} items; it must "
            "give one for each pair."
        )
    if not np.isfinite(rows).all():
        item, text = np.argwhere(~np.isfinite(rows))[0]
        raise RewindError(
            f"{what}: the score of {texts[text]!r} and {ids[item]!r} is not finite; look for broken weights, or set "
            "precision: fp32."
        )
    return EncodedShard(list(ids), np.asarray(rows, np.float32))


def join_shards(parts: Sequence[EncodedShard]) -> EncodedShard:
    """Several shards as one; shorter lists of vectors are padded to the longest."""
    ids = [name for part in parts for name in part.ids]
    if parts[0].lengths is None:
        return EncodedShard(ids, np.concatenate([part.vectors for part in parts]))
    longest = max(part.vectors.shape[1] for part in parts)
    padded = [np.pad(p.vectors, ((0, 0), (0, longest - p.vectors.shape[1]), (0, 0))) for p in parts]
    return EncodedShard(ids, np.concatenate(padded), np.concatenate([part.lengths for part in parts]))


def select_rows(shard: EncodedShard, ids: Sequence[str], rows: Sequence[int]) -> EncodedShard:
    """The vectors at ``rows`` under other ids."""
    lengths = None if shard.lengths is None else shard.lengths[list(rows)]
    return EncodedShard(list(ids), shard.vectors[list(rows)], lengths)


def write_vector_file(path: Path, shard: EncodedShard, **more: str) -> None:
    """Write vectors atomically as an npz of ``ids``, ``vectors`` and, if there are several per input, ``lengths``."""
    arrays: dict[str, Any] = {"ids": np.array(shard.ids, dtype=str), "vectors": shard.vectors}
    if shard.lengths is not None:
        arrays["lengths"] = shard.lengths
    with atomic_write(path) as draft:
        np.savez(draft, **arrays | {name: np.array(value) for name, value in more.items()})


def write_shard(path: Path, shard: EncodedShard, signature: str) -> None:
    """Write a finished shard with the fingerprint of all that it depends on."""
    write_vector_file(path, shard, signature=signature, facts=json.dumps(shard.facts))


def read_shard(path: Path, signature: str) -> EncodedShard | None:
    """The shard that an earlier call wrote, or None if the file is damaged or has another fingerprint."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if str(archive["signature"]) != signature:
                return None
            lengths = archive["lengths"] if "lengths" in archive.files else None
            facts = json.loads(str(archive["facts"]))
            return EncodedShard(archive["ids"].tolist(), archive["vectors"], lengths, facts)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # a job killed while writing leaves no file; whatever damaged this one, encoding again repairs it


def read_finished(paths: Sequence[Path], signatures: Sequence[str]) -> list[EncodedShard]:
    """All shards of a job, which were there a moment ago."""
    found = []
    for path, signature in zip(paths, signatures, strict=True):
        shard = read_shard(path, signature)
        if shard is None:
            raise RewindError(f"{path}: this shard vanished while the job was at work; run again.")
        found.append(shard)
    return found


def _pad_multi_vectors(ids: Sequence[str], vectors: list[np.ndarray], what: str) -> EncodedShard:
    shapes = {rows.shape[1:] for rows in vectors}
    if len(shapes) != 1 or any(rows.ndim != 2 or not len(rows) for rows in vectors):
        raise RewindError(f"{what}: gave lists of vectors of shapes {sorted(shapes)}; each must be (L, D) of one D.")
    # The norm over all vectors of an input: single zero vectors among them are allowed.
    _check_norms(ids, np.array([np.linalg.norm(rows) for rows in vectors]), what)
    lengths = np.array([len(rows) for rows in vectors])
    padded = np.zeros((len(vectors), lengths.max(), *shapes.pop()), np.float32)
    for target, rows in zip(padded, vectors, strict=True):
        target[: len(rows)] = rows
    return EncodedShard(list(ids), padded, lengths)


def _check_norms(ids: Sequence[str], norms: np.ndarray, what: str) -> None:
    bad = ~(np.isfinite(norms) & (norms > 0))
    if bad.any():
        raise RewindError(
            f"{what}: the vector of {ids[int(bad.argmax())]!r} is zero or not finite; look for broken weights, or set "
            "precision: fp32."
        )
