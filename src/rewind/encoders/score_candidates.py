"""Scores of chosen pairs by a model by name that scores a caption and a clip together: what re-ranking asks for.

Scoring all pairs of a test split takes captions × clips calls of such a model; the first results of a cheaper method
are a small part of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.encoders import Encoding
from rewind.distributed import World
from rewind.encoders import shards
from rewind.encoders.base import Encoder, PairEncoder, build_encoder, explain_out_of_memory, scores_pairs
from rewind.encoders.frames import batched, count_mirrored_clips, mirror_notes, read_families_ahead
from rewind.encoders.shards import EncodedShard
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.progress import Progress
from rewind.video.store_frames import ClipGroup, group_twins

FAMILIES_PER_SHARD = 64
"""Clips with their twins that a killed job scores again at most."""


@dataclass(frozen=True)
class PairScorer:
    """A model by name, and how its job works."""

    keys: Encoding
    state: Path  # folder of finished shards, which a job that was killed goes on from
    code: str  # hash of the stage's code
    threads: int = 1  # that read clips ahead


@dataclass(frozen=True)
class _Wanted:
    """Pairs in the order in which they are scored: by clip, then by text."""

    texts: list[str]  # different captions
    pairs: np.ndarray  # int (p,), ascending: column of the clip × number of texts + number of the text
    column: dict[str, int]  # of each clip, by its id

    def places(self, item: str) -> slice:
        """Where the pairs of a clip are."""
        first = self.column[item] * len(self.texts)
        return slice(*np.searchsorted(self.pairs, [first, first + len(self.texts)]))

    def of(self, item: str) -> np.ndarray:
        """Numbers of the texts that are scored with a clip."""
        return self.pairs[self.places(item)] - self.column[item] * len(self.texts)


def score_candidates(
    scorer: PairScorer,
    folder: Path,
    items: pd.DataFrame,
    captions: list[str],
    rows: np.ndarray,
    columns: np.ndarray,
    world: World,
) -> tuple[np.ndarray, list[str]]:
    """Score pairs of captions and clips. Processes share the clips; equal captions of a clip are scored once.

    Shards that an earlier, killed call finished are kept if they depend on the same keys, code, files and pairs.

    Args:
        folder: of the data set's prepared files.
        items: rows with ``item_id``, ``path``, ``reversed`` and ``status``.
        rows, columns: int (p,), the pairs: numbers of captions and of items.

    Returns:
        float32 (p, P), by each of P ways to ask, and what readers of a table must know about the clips that were read.
    """
    texts = list(dict.fromkeys(captions))
    number = {text: n for n, text in enumerate(texts)}
    text_of_caption = np.array([number[caption] for caption in captions])
    # One number for each pair. Sorted, those of a clip are consecutive, and binary search finds them.
    keys = columns * len(texts) + text_of_caption[rows]
    ids = items["item_id"].tolist()
    wanted = _Wanted(texts, np.unique(keys), {item: n for n, item in enumerate(ids)})
    groups = [group for group in group_twins(items, folder) if any(len(wanted.of(clip.item_id)) for clip in group)]
    shards_of_all, facts = _score_in_shards(scorer, groups, wanted, world), {"twins": 0, "mirrored": 0}
    ways = shards_of_all[0].vectors.shape[1] if shards_of_all else 1
    scores = np.full((len(wanted.pairs), ways), np.nan, np.float32)
    for shard in shards_of_all:
        at = 0
        for item in shard.ids:
            places = wanted.places(item)
            count = places.stop - places.start
            scores[places] = shard.vectors[at : at + count]
            at += count
        for name in facts:
            facts[name] += shard.facts[name]
    return scores[np.searchsorted(wanted.pairs, keys)], mirror_notes(**facts)


def _score_in_shards(scorer: PairScorer, groups: list[ClipGroup], wanted: _Wanted, world: World) -> list[EncodedShard]:
    """All shards, of which this process makes its part."""
    parts = list(batched(groups, FAMILIES_PER_SHARD))
    paths = [scorer.state / f"pairs-{n:05}.npz" for n in range(len(parts))]
    files = stable_hash([shards.file_identity(path) for path in scorer.keys.files()])
    signatures = [_signature(scorer, files, part, wanted) for part in parts]
    own = range(world.rank, len(parts), world.size)
    unfinished = [n for n in own if shards.read_shard(paths[n], signatures[n]) is None]
    if len(unfinished) < len(own):
        print(f"pairs: {len(own) - len(unfinished)} of {len(own)} shards are finished already")
    if unfinished:
        encoder = build_encoder(scorer.keys)
        print(f"{scorer.keys.encoder}: {scorer.keys.name} is loaded")
        pairs = sum(len(wanted.of(clip.item_id)) for n in unfinished for group in parts[n] for clip in group)
        progress = Progress("rerank", pairs, "pairs")
        for n in unfinished:
            shards.write_shard(paths[n], _score_shard(scorer, encoder, parts[n], wanted, progress), signatures[n])
    world.any(False)  # a barrier: all shards exist
    return shards.read_finished(paths, signatures)


def _signature(scorer: PairScorer, files: str, part: list[ClipGroup], wanted: _Wanted) -> str:
    """Everything that a shard's scores depend on."""
    clips = [clip for group in part for clip in group]
    identities = [(clip.item_id, clip.reversed, shards.file_identity(clip.path)) for clip in clips]
    asked = [[wanted.texts[n] for n in wanted.of(clip.item_id)] for clip in clips]
    return stable_hash(scorer.keys.content(), scorer.code, [files, identities, asked])


def _score_shard(
    scorer: PairScorer, encoder: Encoder, groups: list[ClipGroup], wanted: _Wanted, progress: Progress
) -> EncodedShard:
    if not scores_pairs(encoder):
        raise RewindError(f"name: {scorer.keys.name}: has vectors now, but scored pairs before; encode again.")
    began, scores, mirrored = time.monotonic(), [], 0
    for group, clips in zip(groups, read_families_ahead(groups, scorer.keys, scorer.threads), strict=True):
        asked = [wanted.of(clip.item_id) for clip in group]
        together = np.unique(np.concatenate(asked))  # of a clip and its twin, whose first results are nearly the same
        with explain_out_of_memory():
            found = _score(encoder, [wanted.texts[n] for n in together], clips)
        if found.shape[:2] != (len(together), len(clips)) or found.ndim != 3:
            raise RewindError(
                f"{scorer.keys.name}: gave scores of shape {found.shape[:2]} for {len(together)} captions and "
                f"{len(clips)} clips; it must give one for each pair."
            )
        for clip, numbers, column in zip(group, asked, np.moveaxis(found, 1, 0), strict=True):
            values = column[np.searchsorted(together, numbers)]
            if not np.isfinite(values).all():
                text = wanted.texts[numbers[np.argmin(np.isfinite(values).all(axis=1))]]
                raise RewindError(
                    f"{scorer.keys.name}: the score of {text!r} and {clip.item_id!r} is not finite; look for broken "
                    "weights, or set precision: fp32."
                )
            scores.append(values)
        mirrored += count_mirrored_clips(clips)
        progress.advance(sum(map(len, asked)))
    ids = [clip.item_id for group in groups for clip in group]
    facts: dict[str, Any] = {"twins": sum(len(group) - 1 for group in groups), "mirrored": mirrored}
    return EncodedShard(ids, np.concatenate(scores), None, facts | {"seconds": time.monotonic() - began})


def _score(encoder: PairEncoder, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
    if hasattr(encoder, "score_each"):
        return np.asarray(encoder.score_each(texts, clips), np.float32)
    return np.asarray(encoder.score(texts, clips), np.float32)[..., None]  # of the user's own
