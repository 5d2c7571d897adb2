"""Vectors in shards: what a killed job goes on from, and the files that they become."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rewind.encoders.interface import Vectors
from rewind.errors import RewindError
from rewind.files import atomic


@dataclass
class Made:
    """Vectors of one shard.

    Attributes:
        ids: of what they are vectors.
        vectors: (n, D), or (n, L, D) with zeros behind each one's length.
        lengths: (n,) of models with many vectors; None of those with one.
        facts: what belongs to the shard: seconds, notes, counts.
    """

    ids: list[str]
    vectors: np.ndarray
    lengths: np.ndarray | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def packed(ids: Sequence[str], vectors: Vectors, what: str) -> Made:
    """What an encoder gave, checked: float32, one row for each id.

    Args:
        ids: of captions or items.
        vectors: the encoder's.
        what: names the encoder in messages.

    Raises:
        RewindError: for a wrong number of vectors, or one that is zero or not finite.
    """
    if len(vectors) != len(ids):
        raise RewindError(f"{what}: gave {len(vectors)} vectors for {len(ids)} inputs; it must give one for each.")
    if isinstance(vectors, list):
        return _ragged(ids, [np.asarray(one, np.float32) for one in vectors], what)
    rows = np.asarray(vectors, np.float32)
    if rows.ndim != 2:
        raise RewindError(f"{what}: gave vectors of shape {rows.shape}; (n, D) is needed, or a list of n (L, D).")
    _check(ids, np.linalg.norm(rows, axis=1), what)
    return Made(list(ids), rows)


def scored(ids: Sequence[str], texts: Sequence[str], scores: Sequence[np.ndarray], what: str) -> Made:
    """What a model that scores pairs gave, checked: of each item a row of its scores with all captions.

    Args:
        ids: of items.
        texts: captions.
        scores: (n, n_texts) of consecutive items.
        what: names the encoder in messages.

    Raises:
        RewindError: for a wrong number of scores, or one that is not finite.
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
    return Made(list(ids), np.asarray(rows, np.float32))


def joined(parts: Sequence[Made]) -> Made:
    """Several shards as one; lengths are filled up to the longest."""
    ids = [one for part in parts for one in part.ids]
    if parts[0].lengths is None:
        return Made(ids, np.concatenate([part.vectors for part in parts]))
    longest = max(part.vectors.shape[1] for part in parts)
    filled = [np.pad(p.vectors, ((0, 0), (0, longest - p.vectors.shape[1]), (0, 0))) for p in parts]
    return Made(ids, np.concatenate(filled), np.concatenate([part.lengths for part in parts]))


def taken(made: Made, ids: Sequence[str], rows: Sequence[int]) -> Made:
    """The vectors at ``rows`` under other ids."""
    lengths = None if made.lengths is None else made.lengths[list(rows)]
    return Made(list(ids), made.vectors[list(rows)], lengths)


def write(path: Path, made: Made, **more: str) -> None:
    """Write vectors as an npz of ``ids``, ``vectors`` and, of models with many vectors, ``lengths``; atomically."""
    arrays = {"ids": np.array(made.ids, dtype=str), "vectors": made.vectors}
    if made.lengths is not None:
        arrays["lengths"] = made.lengths
    with atomic(path) as draft:
        np.savez(draft, **arrays, **{name: np.array(value) for name, value in more.items()})


def write_shard(path: Path, made: Made, signature: str) -> None:
    """Write a finished shard with the fingerprint of all that it depends on."""
    write(path, made, signature=signature, facts=json.dumps(made.facts))


def read_shard(path: Path, signature: str) -> Made | None:
    """A shard of an earlier call, if it is whole and of this fingerprint."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if str(archive["signature"]) != signature:
                return None
            lengths = archive["lengths"] if "lengths" in archive.files else None
            facts = json.loads(str(archive["facts"]))
            return Made(archive["ids"].tolist(), archive["vectors"], lengths, facts)
    except (OSError, ValueError, KeyError, EOFError):
        return None
    except Exception as error:  # a broken zip has a type of its own
        if type(error).__name__ != "BadZipFile":
            raise
        return None


def _ragged(ids: Sequence[str], vectors: list[np.ndarray], what: str) -> Made:
    shapes = {one.shape[1:] for one in vectors}
    if len(shapes) != 1 or any(one.ndim != 2 or not len(one) for one in vectors):
        raise RewindError(f"{what}: gave lists of vectors of shapes {sorted(shapes)}; each must be (L, D) of one D.")
    _check(ids, np.array([np.linalg.norm(one) for one in vectors]), what)
    lengths = np.array([len(one) for one in vectors])
    filled = np.zeros((len(vectors), lengths.max(), *shapes.pop()), np.float32)
    for row, one in zip(filled, vectors, strict=True):
        row[: len(one)] = one
    return Made(list(ids), filled, lengths)


def _check(ids: Sequence[str], lengths: np.ndarray, what: str) -> None:
    bad = ~(np.isfinite(lengths) & (lengths > 0))
    if bad.any():
        raise RewindError(
            f"{what}: the vector of {ids[int(bad.argmax())]!r} is zero or not finite; look for broken weights, or set "
            "precision: fp32."
        )
