"""Vectors of a data set's test split, or scores of its pairs, computed once by an encoder that a study names.

Work is done in shards, which processes share and a killed job keeps.
"""

from __future__ import annotations

import functools
import shutil
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np

from rewind.config.encoders import Encoding
from rewind.data.captions import Query, load_split, read_queries
from rewind.data.score_matrix import write_scores
from rewind.distributed import World, join_process_group
from rewind.encoders import shards
from rewind.encoders.base import (
    Encoder,
    EncoderOutput,
    FileEncoder,
    PairEncoder,
    build_encoder,
    explain_out_of_memory,
    scores_pairs,
)
from rewind.encoders.composed import encode_queries, query_note
from rewind.encoders.frames import batched, count_mirrored_clips, group_families, mirror_notes, read_families_ahead
from rewind.encoders.shards import EncodedShard
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import read_csv, reading_user_file, write_json, write_npz
from rewind.progress import Progress
from rewind.provenance import environment, hardware
from rewind.video.store_frames import ClipGroup, group_twins

# A killed job loses one unfinished shard at most. Clips count together with their twins.
CAPTIONS_PER_SHARD, CLIPS_PER_SHARD = 2048, 64


def make_test_vectors(keys: Encoding, data: Path, dataset: str, folder: Path, code: str, threads: int = 1) -> None:
    """Encode every test caption and every usable test item.

    Writes ``captions.npz``, ``items.npz`` and ``record.json`` into ``folder``. A model that scores pairs has no
    vectors: ``captions.npz`` then holds the scores, ``similarity`` (captions, items) with ``query_ids`` and
    ``item_ids``, as a file of ``model: scores`` does, and ``items.npz`` the ids of items. With ``scored_pairs:
    candidates`` such a model scores nothing here (:mod:`rewind.encoders.score_candidates` does): ``captions.npz`` has
    only the ids, ``query_ids`` and ``item_ids``. Shards that an earlier, killed call finished are kept if they depend
    on the same keys, code and files. Started by ``torchrun``, processes share the shards.
    """
    split = load_split(data, dataset, "test")
    texts = list(dict.fromkeys(split.captions["caption"]))  # equal captions are encoded once
    queries = dict(zip(split.captions["caption"], read_queries(data, split.captions), strict=False))
    work = _ShardedEncoding(keys, folder / ".state", code, threads, queries)
    with join_process_group() as world:
        work.run(texts, group_twins(split.items, data), world)
        world.any(False)  # a barrier: rank 0 joins the shards when all ranks have written theirs
        if world.rank == 0:
            _join_shards(work, split, texts, folder, world)


def make_foil_vectors(keys: Encoding, captions: Path, foils: Path, result: Path) -> None:
    """Write the vectors of test captions together with those of captions that are not true of a clip.

    Args:
        captions: what :func:`make_test_vectors` wrote. If the model scores pairs, it has no vectors and no foils are
            scored: the file is copied.
        foils: CSV with the columns foil_id and caption.
        result: npz like ``captions``, with the ids of foils too.
    """
    with reading_user_file(captions, "npz", "encode again"), np.load(captions, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if "vectors" not in arrays:
        write_npz(result, **arrays)
        return
    encoder, table = build_encoder(keys), read_csv(foils, text=("foil_id", "caption"))
    texts = list(dict.fromkeys(table["caption"]))
    progress, outputs = Progress("vectors", len(texts), "foils"), []
    for batch in batched(texts, keys.batch_size):
        with explain_out_of_memory():
            outputs.append(encoder.encode_texts(batch))
        progress.advance(len(batch))
    encoded = shards.make_vector_shard([_shorten(text) for text in texts], _concatenate(outputs), f"{keys.name}, foils")
    row = {text: number for number, text in enumerate(texts)}
    of_foils = shards.select_rows(encoded, table["foil_id"].tolist(), [row[text] for text in table["caption"]])
    of_captions = EncodedShard(arrays["ids"].tolist(), arrays["vectors"], arrays.get("lengths"))
    shards.write_vector_file(result, shards.join_shards([of_captions, of_foils]))


class _ShardedEncoding:
    """The shards of a data set: lists them, finds the finished ones, and encodes the others."""

    def __init__(self, keys: Encoding, state: Path, code: str, threads: int, queries: Mapping[str, Query]) -> None:
        self.keys, self.state, self.code, self.threads = keys, state, code, threads
        self.queries = queries  # caption → what it shows and asks; empty where captions are texts alone
        self.parts: dict[str, list[Path]] = {"captions": [], "items": []}
        self.signatures: dict[Path, str] = {}
        self.texts: list[str] = []
        self._encoder: Encoder | None = None

    def run(self, texts: list[str], clips: list[ClipGroup], world: World) -> None:
        """Encode the shards of this rank that are not finished."""
        self.texts = texts
        text_shards, clip_shards = list(batched(texts, CAPTIONS_PER_SHARD)), list(batched(clips, CLIPS_PER_SHARD))
        files = stable_hash([shards.file_identity(path) for path in self.keys.files()])
        for n, shard in enumerate(text_shards):
            shown = [shards.file_identity(str(self.queries[text].clip)) for text in shard if self.queries]
            self._add("captions", n, [files, shard, *shown])
        for n, families in enumerate(clip_shards):
            clips_of_shard = [clip for family in families for clip in family]
            identities = [(clip.item_id, clip.reversed, shards.file_identity(clip.path)) for clip in clips_of_shard]
            self._add("items", n, [files, identities])
        self._make("captions", text_shards, self._texts, world)
        if self.scores_later:
            self.parts["items"] = []
        else:
            self._make("items", clip_shards, self._clips, world)

    def _make(self, kind: str, parts: list[Any], make: Callable[[Any, Progress], EncodedShard], world: World) -> None:
        """Encode this rank's shards of one kind, ``captions`` or ``items``."""
        own_shards = range(world.rank, len(parts), world.size)
        unfinished = [n for n in own_shards if not self._done(kind, n)]
        if len(unfinished) < len(own_shards):
            print(f"{kind}: {len(own_shards) - len(unfinished)} of {len(own_shards)} shards are finished already")
        if not unfinished:
            return
        _ = self.encoder  # loaded before the clock starts
        inputs = sum(len(group) if kind == "items" else 1 for n in unfinished for group in parts[n])
        progress = Progress("vectors", inputs, "clips" if kind == "items" else "captions")
        for n in unfinished:
            path = self.parts[kind][n]
            shards.write_shard(path, make(parts[n], progress), self.signatures[path])

    def all(self, kind: str) -> list[EncodedShard]:
        """All shards of a kind, from their files."""
        return shards.read_finished(self.parts[kind], [self.signatures[path] for path in self.parts[kind]])

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = build_encoder(self.keys)
            print(f"{self.keys.encoder}: {self.keys.name} is loaded")
        return self._encoder

    @functools.cached_property
    def scores_later(self) -> bool:
        """Whether the model scores pairs, which are not known yet; its own way of reading files has no pairs."""
        choose = self.keys.scored_pairs == "candidates" and self.keys.frames == "rewind"
        return choose and scores_pairs(self.encoder)

    def _add(self, kind: str, n: int, depends: Any) -> None:
        path = self.state / f"{kind}-{n:05}.npz"
        self.parts[kind].append(path)
        self.signatures[path] = stable_hash(self.keys.content(), self.code, depends)

    def _done(self, kind: str, n: int) -> bool:
        path = self.parts[kind][n]
        shard = shards.read_shard(path, self.signatures[path])
        # Shards of pair scores hold one score for each caption, so they are valid only for the same captions.
        return shard is not None and shard.facts.get("scored", "") in ("", stable_hash(self.texts))

    def _texts(self, texts: list[str], progress: Progress) -> EncodedShard:
        encoder, began, outputs = self.encoder, time.monotonic(), []
        if scores_pairs(encoder) and self.queries:
            raise RewindError(
                f"name: {self.keys.name}: scores a caption and a clip together, and queries of this data set show a "
                "clip themselves; take a model of vectors."
            )
        if scores_pairs(encoder):
            progress.advance(len(texts))
            # Captions are read together with clips; rows without numbers stand for their vectors.
            shard = EncodedShard([_shorten(text) for text in texts], np.zeros((len(texts), 0), np.float32))
        else:
            for batch in batched(texts, self.keys.batch_size):
                with explain_out_of_memory():
                    outputs.append(self._encode_captions(encoder, batch))
                progress.advance(len(batch))
            shard = shards.make_vector_shard(
                [_shorten(text) for text in texts], _concatenate(outputs), f"{self.keys.name}, captions"
            )
        count = getattr(encoder, "cut", None)  # encoders of the user's own may lack this method
        said = [self.queries[text].text for text in texts] if self.queries else texts
        shard.facts = self._facts(began) | {"texts": len(texts), "cut": count(said) if count else None}
        return shard

    def _encode_captions(self, encoder: Encoder, texts: list[str]) -> EncoderOutput:
        if not self.queries:
            return encoder.encode_texts(texts)
        return encode_queries(encoder, [self.queries[text] for text in texts], self.keys.query)

    def _clips(self, clips: list[ClipGroup], progress: Progress) -> EncodedShard:
        encoder, began, mirrors = self.encoder, time.monotonic(), 0
        outputs: list[Any] = []  # vectors, or scores of pairs
        for families in group_families(read_families_ahead(clips, self.keys, self.threads), self.keys.batch_size):
            inputs = [value for family in families for value in family]
            with explain_out_of_memory():
                if self.keys.frames == "model":
                    outputs.append(cast(FileEncoder, encoder).encode_files(inputs))  # build_encoder found the method
                else:
                    outputs.append(
                        self._scores(encoder, inputs) if scores_pairs(encoder) else encoder.encode_clips(inputs)
                    )
                    mirrors += sum(map(count_mirrored_clips, families))
            progress.advance(len(inputs))
        ids = [clip.item_id for family in clips for clip in family]
        title = f"{self.keys.name}, items"
        pairs = scores_pairs(encoder)
        shard = (
            shards.make_score_shard(ids, self.texts, outputs, title)
            if pairs
            else shards.make_vector_shard(ids, _concatenate(outputs), title)
        )
        shard.facts = self._facts(began) | {"twins": sum(len(f) - 1 for f in clips), "mirrored": mirrors}
        shard.facts["scored"] = stable_hash(self.texts) if pairs else ""
        return shard

    def _scores(self, encoder: PairEncoder, clips: list[np.ndarray]) -> np.ndarray:
        """Scores (n_clips, n_texts) of clips with all captions."""
        return np.asarray(encoder.score(self.texts, clips), np.float32).T

    def _facts(self, began: float) -> dict[str, Any]:
        return {
            "seconds": time.monotonic() - began,
            "notes": [*self.encoder.notes, *([query_note(self.encoder, self.keys)] if self.queries else [])],
            "encoder": dict(self.encoder.facts),
            "packages": list(self.encoder.packages),
        }


def _concatenate(outputs: list[EncoderOutput]) -> EncoderOutput:
    if isinstance(outputs[0], list):
        return [vectors for output in outputs for vectors in output]
    return np.concatenate(outputs)


def _join_shards(encoding: _ShardedEncoding, split: Any, texts: list[str], folder: Path, world: World) -> None:
    """Join the shards into the outputs of the rule; the shards are removed last, so that a killed job can go on."""
    captions, items = encoding.all("captions"), encoding.all("items")
    row = {caption: n for n, caption in enumerate(texts)}
    rows = [row[caption] for caption in split.captions["caption"]]
    if encoding.scores_later:
        queries, gallery = (split.captions["caption_id"], split.items["item_id"])
        write_npz(folder / "captions.npz", query_ids=queries.to_numpy(dtype=str), item_ids=gallery.to_numpy(dtype=str))
        write_npz(folder / "items.npz", ids=gallery.to_numpy(dtype=str))
    elif items[0].facts.get("scored"):
        _write_scores(encoding, shards.join_shards(items), split, rows, folder)
    else:
        _write_vectors(encoding, captions, items, split, rows, folder)
    write_json(folder / "record.json", _encoding_record(encoding.keys, captions, items, split, world))
    shutil.rmtree(encoding.state, ignore_errors=True)


def _write_scores(encoding: _ShardedEncoding, clips: EncodedShard, split: Any, rows: list[int], folder: Path) -> None:
    items = split.items["item_id"].to_numpy(dtype=str)
    row_of_item = {item: n for n, item in enumerate(clips.ids)}
    scores = clips.vectors[[row_of_item[item] for item in items]].T[rows]
    queries = split.captions["caption_id"].to_numpy(dtype=str)
    write_scores(folder / "captions.npz", np.ascontiguousarray(scores), queries, items)
    write_npz(folder / "items.npz", ids=items)


def _write_vectors(
    encoding: _ShardedEncoding,
    captions: list[EncodedShard],
    items: list[EncodedShard],
    split: Any,
    rows: list[int],
    folder: Path,
) -> None:
    text, clips = shards.join_shards(captions), shards.join_shards(items)
    if text.vectors.shape[-1] != clips.vectors.shape[-1] or (text.lengths is None) != (clips.lengths is None):
        raise RewindError(
            f"{encoding.keys.name}: vectors of captions have shape {text.vectors.shape[1:]}, those of items "
            f"{clips.vectors.shape[1:]}; they cannot be compared."
        )
    row_of_item = {item: n for n, item in enumerate(clips.ids)}
    shards.write_vector_file(
        folder / "captions.npz", shards.select_rows(text, split.captions["caption_id"].tolist(), rows)
    )
    ids = split.items["item_id"].tolist()
    shards.write_vector_file(folder / "items.npz", shards.select_rows(clips, ids, [row_of_item[item] for item in ids]))


def _encoding_record(
    keys: Encoding, captions: list[EncodedShard], items: list[EncodedShard], split: Any, world: World
) -> dict[str, Any]:
    pairs = not items or bool(items[0].facts.get("scored"))
    facts = (items or captions)[0].facts
    twins, mirrored = (sum(shard.facts[name] for shard in items) for name in ("twins", "mirrored"))
    notes = [f"{'scores' if pairs else 'vectors'} of {keys.title()}", *facts["notes"]]
    cut = (
        None if any(shard.facts["cut"] is None for shard in captions) else sum(shard.facts["cut"] for shard in captions)
    )
    if cut:
        different = sum(shard.facts["texts"] for shard in captions)
        notes.append(f"{cut:,} of {different:,} different captions are longer than the model's context, and cut")
    if keys.precision != "fp32":
        notes.append(f"computed in {keys.precision}")
    if keys.frames == "model":
        notes.append("frames are chosen by the model's own sampler")
    else:
        notes += mirror_notes(twins, mirrored)
    return {
        **keys.model_dump(mode="json"),
        "notes": notes,
        "facts": facts["encoder"],
        "captions": len(split.captions),
        "items": len(split.items),
        "captions_cut": cut,
        "left_out": split.left_out,
        "twins": twins,
        "mirrored": mirrored if items and keys.frames == "rewind" else None,
        "width": None if pairs else items[0].vectors.shape[-1],
        "pairs": pairs,
        "seconds": {
            "captions": round(sum(shard.facts["seconds"] for shard in captions), 3),
            "items": round(sum(shard.facts["seconds"] for shard in items), 3),
        },
        "processes": world.size,
        "packages": {name: version for name in facts["packages"] if (version := _package_version(name))},
        "hardware": hardware(),
        "environment": environment(),
    }


def _package_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _shorten(text: str) -> str:
    """A caption, cut for a message."""
    return text if len(text) < 60 else text[:57] + "…"
