"""Vectors of a data set's test split, or scores of its pairs, made once by a model that a study names."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind.datasets.captions import load_split
from rewind.distributed import World, joined
from rewind.encoders import shards
from rewind.encoders.clips import grouped, mirrored, read_ahead
from rewind.encoders.frames import batches
from rewind.encoders.interface import Encoder, Vectors, build
from rewind.encoders.shards import Made
from rewind.errors import RewindError
from rewind.files import digest, write_json, write_npz
from rewind.jobs.frames import Family, families
from rewind.jobs.given import Given
from rewind.jobs.launch import on_all_gpus
from rewind.progress import Progress
from rewind.provenance import environment, hardware
from rewind.study.encoding import Encoding
from rewind.video.packed import identity

TEXTS, CLIPS = 2048, 64  # captions, and clips with their twins, in a shard: what a killed job loses at most


def encode_vectors(given: Given) -> None:
    """Rule ``encode_vectors``."""
    keys = Encoding(**given.params.encoding, batch_size=given.resources["batch_size"])
    folder, data = Path(given.output.record).parent, Path(given.input.item_table).parent
    arguments = (keys, data, given.params.dataset, folder, given.params.code, given.threads)
    on_all_gpus(make_vectors, *arguments, log=given.log)


def make_vectors(keys: Encoding, data: Path, dataset: str, folder: Path, code: str, threads: int = 1) -> None:
    """Encode every test caption and every usable test item.

    Writes ``captions.npz``, ``items.npz`` and ``record.json`` into ``folder``. Of a model that scores pairs there are
    no vectors: ``captions.npz`` then holds the scores, ``similarity`` (captions, items) with ``query_ids`` and
    ``item_ids``, as a file of ``model: scores`` does, and ``items.npz`` the ids of items. Shards that an earlier,
    killed call finished are kept if they depend on the same keys, code and files. Started by ``torchrun``, processes
    share them.

    Args:
        keys: the model and its frames.
        data: results folder of the data set.
        dataset: its name.
        folder: where the files go.
        code: fingerprint of the code.
        threads: that read clips ahead.

    Raises:
        RewindError: for what the encoder refuses, a clip that cannot be read, or vectors that cannot be compared.
    """
    split = load_split(data, dataset, "test")
    texts = list(dict.fromkeys(split.captions["caption"]))  # the same words have the same vector
    work = _Work(keys, folder / ".state", code, threads)
    with joined() as world:
        work.run(texts, families(split.items, data), world)
        world.any(False)  # all ranks have written
        if world.rank == 0:
            _finish(work, split, texts, folder, world)


class _Work:
    """The shards of a data set: which there are, which are done, and doing the others."""

    def __init__(self, keys: Encoding, state: Path, code: str, threads: int) -> None:
        self.keys, self.state, self.code, self.threads = keys, state, code, threads
        self.parts: dict[str, list[Path]] = {"captions": [], "items": []}
        self.signatures: dict[Path, str] = {}
        self.texts: list[str] = []
        self._encoder: Encoder | None = None

    def run(self, texts: list[str], clips: list[Family], world: World) -> None:
        """Make the shards of this rank that are not there."""
        self.texts = texts
        text_shards, clip_shards = list(batches(texts, TEXTS)), list(batches(clips, CLIPS))
        files = digest([_file(path) for path in self.keys.files()])
        for n, some in enumerate(text_shards):
            self._add("captions", n, [files, some])
        for n, some in enumerate(clip_shards):
            self._add(
                "items",
                n,
                [files, [(clip.item_id, clip.reversed, _file(clip.path)) for family in some for clip in family]],
            )
        self._make("captions", text_shards, self._texts, world)
        self._make("items", clip_shards, self._clips, world)

    def _make(self, kind: str, parts: list[Any], make: Callable[[Any, Progress], Made], world: World) -> None:
        """Make what this rank has to make of one kind."""
        mine = range(world.rank, len(parts), world.size)
        left = [n for n in mine if not self._done(kind, n)]
        if len(left) < len(mine):
            print(f"{kind}: {len(mine) - len(left)} of {len(mine)} shards are finished already")
        if not left:
            return
        _ = self.encoder  # loaded before the clock starts
        inputs = sum(len(one) if kind == "items" else 1 for n in left for one in parts[n])
        progress = Progress("vectors", inputs, "clips" if kind == "items" else "captions")
        for n in left:
            path = self.parts[kind][n]
            shards.write_shard(path, make(parts[n], progress), self.signatures[path])

    def all(self, kind: str) -> list[Made]:
        """All shards of a kind, from their files."""
        found = [(path, shards.read_shard(path, self.signatures[path])) for path in self.parts[kind]]
        for path, made in found:
            if made is None:
                raise RewindError(f"{path}: this shard vanished while the job was at work; run again.")
        return [made for _, made in found if made is not None]

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            self._encoder = build(self.keys)
            print(f"{self.keys.encoder}: {self.keys.name} is loaded")
        return self._encoder

    def _add(self, kind: str, n: int, depends: Any) -> None:
        path = self.state / f"{kind}-{n:05}.npz"
        self.parts[kind].append(path)
        self.signatures[path] = digest(self.keys.content(), self.code, depends)

    def _done(self, kind: str, n: int) -> bool:
        path = self.parts[kind][n]
        made = shards.read_shard(path, self.signatures[path])
        # Scores of pairs are of the captions that there were.
        return made is not None and made.facts.get("scored", "") in ("", digest(self.texts))

    def _texts(self, texts: list[str], progress: Progress) -> Made:
        encoder, began, found = self.encoder, time.monotonic(), []
        if _pairs(encoder):
            progress.advance(len(texts))
            made = Made([_short(text) for text in texts], np.zeros((len(texts), 0), np.float32))
        else:
            for some in batches(texts, self.keys.batch_size):
                with _memory():
                    found.append(encoder.encode_texts(some))
                progress.advance(len(some))
            made = shards.packed([_short(text) for text in texts], _whole(found), f"{self.keys.name}, captions")
        count = getattr(encoder, "cut", None)  # an encoder of the user's own need not have it
        made.facts = self._facts(began) | {"texts": len(texts), "cut": count(texts) if count else None}
        return made

    def _clips(self, clips: list[Family], progress: Progress) -> Made:
        encoder, began, found = self.encoder, time.monotonic(), []
        mirrors = 0
        for some in grouped(read_ahead(clips, self.keys, self.threads), self.keys.batch_size):
            given = [value for family in some for value in family]
            with _memory():
                if self.keys.frames == "model":
                    found.append(encoder.encode_files(given))
                else:
                    found.append(self._scores(given) if _pairs(encoder) else encoder.encode_clips(given))
                    mirrors += sum(map(mirrored, some))
            progress.advance(len(given))
        ids = [clip.item_id for family in clips for clip in family]
        what = f"{self.keys.name}, items"
        pairs = _pairs(encoder)
        made = shards.scored(ids, self.texts, found, what) if pairs else shards.packed(ids, _whole(found), what)
        made.facts = self._facts(began) | {"twins": sum(len(f) - 1 for f in clips), "mirrored": mirrors}
        made.facts["scored"] = digest(self.texts) if pairs else ""
        return made

    def _scores(self, clips: list[np.ndarray]) -> np.ndarray:
        """Scores (n_clips, n_texts) of clips with all captions."""
        return np.asarray(self.encoder.score(self.texts, clips), np.float32).T

    def _facts(self, began: float) -> dict[str, Any]:
        return {
            "seconds": time.monotonic() - began,
            "notes": list(self.encoder.notes),
            "encoder": dict(self.encoder.facts),
            "packages": list(self.encoder.packages),
        }


def _pairs(encoder: Encoder) -> bool:
    """Whether the model scores pairs; an encoder of the user's own need not say that it does not."""
    return getattr(encoder, "pairs", False)


def _whole(found: list[Vectors]) -> Vectors:
    if isinstance(found[0], list):
        return [one for part in found for one in part]
    return np.concatenate(found)


@contextlib.contextmanager
def _memory() -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RewindError("batch_size: GPU memory ran out; lower it. Finished shards are kept.") from error


def _finish(work: _Work, split: Any, texts: list[str], folder: Path, world: World) -> None:
    """Join the shards into the files of the rule; the state is removed last."""
    captions, items = work.all("captions"), work.all("items")
    row = {caption: n for n, caption in enumerate(texts)}
    rows = [row[caption] for caption in split.captions["caption"]]
    if items[0].facts.get("scored"):
        _finish_scores(work, shards.joined(items), split, rows, folder)
    else:
        _finish_vectors(work, captions, items, split, rows, folder)
    write_json(folder / "record.json", _record(work.keys, captions, items, split, world))
    shutil.rmtree(work.state, ignore_errors=True)


def _finish_scores(work: _Work, clips: Made, split: Any, rows: list[int], folder: Path) -> None:
    items = split.items["item_id"].to_numpy(dtype=str)
    place = {item: n for n, item in enumerate(clips.ids)}
    scores = clips.vectors[[place[item] for item in items]].T[rows]
    queries = split.captions["caption_id"].to_numpy(dtype=str)
    write_npz(folder / "captions.npz", similarity=np.ascontiguousarray(scores), query_ids=queries, item_ids=items)
    write_npz(folder / "items.npz", ids=items)


def _finish_vectors(
    work: _Work, captions: list[Made], items: list[Made], split: Any, rows: list[int], folder: Path
) -> None:
    text, clips = shards.joined(captions), shards.joined(items)
    if text.vectors.shape[-1] != clips.vectors.shape[-1] or (text.lengths is None) != (clips.lengths is None):
        raise RewindError(
            f"{work.keys.name}: vectors of captions have shape {text.vectors.shape[1:]}, those of items "
            f"{clips.vectors.shape[1:]}; they cannot be compared."
        )
    place = {item: n for n, item in enumerate(clips.ids)}
    shards.write(folder / "captions.npz", shards.taken(text, split.captions["caption_id"].tolist(), rows))
    ids = split.items["item_id"].tolist()
    shards.write(folder / "items.npz", shards.taken(clips, ids, [place[item] for item in ids]))


def _record(keys: Encoding, captions: list[Made], items: list[Made], split: Any, world: World) -> dict[str, Any]:
    pairs = bool(items[0].facts.get("scored"))
    twins, mirrored = (sum(made.facts[name] for made in items) for name in ("twins", "mirrored"))
    notes = [f"{'scores' if pairs else 'vectors'} of {keys.title()}", *items[0].facts["notes"]]
    lost = None if any(made.facts["cut"] is None for made in captions) else sum(made.facts["cut"] for made in captions)
    if lost:
        different = sum(made.facts["texts"] for made in captions)
        notes.append(f"{lost:,} of {different:,} different captions are longer than the model's context, and cut")
    if keys.precision != "fp32":
        notes.append(f"computed in {keys.precision}")
    if keys.frames == "model":
        notes.append("frames are chosen by the model's own sampler")
    elif mirrored < twins:
        notes.append(f"{twins - mirrored} of {twins} twins do not show exactly their originals' pictures in reverse")
    return {
        **keys.model_dump(mode="json"),
        "notes": notes,
        "facts": items[0].facts["encoder"],
        "captions": len(split.captions),
        "items": len(split.items),
        "captions_cut": lost,
        "left_out": split.left_out,
        "twins": twins,
        "mirrored": mirrored if keys.frames == "rewind" else None,
        "width": None if pairs else items[0].vectors.shape[-1],
        "pairs": pairs,
        "seconds": {
            "captions": round(sum(made.facts["seconds"] for made in captions), 3),
            "items": round(sum(made.facts["seconds"] for made in items), 3),
        },
        "processes": world.size,
        "packages": {name: version for name in items[0].facts["packages"] if (version := _version(name))},
        "hardware": hardware(),
        "environment": environment(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _short(text: str) -> str:
    """A caption as a message names it."""
    return text if len(text) < 60 else text[:57] + "…"


def _file(path: str) -> tuple[Any, ...]:
    try:
        return identity(path)
    except OSError as error:
        raise RewindError(
            f"{path}: cannot be read ({error.strerror}); put it back, or prepare the data again."
        ) from error
