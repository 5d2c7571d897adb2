"""The features of a gallery: made from clips or cached features, kept in an index file until they are stale."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.errors import RewindError
from rewind.feeding.encode import encode_all, tower_features
from rewind.feeding.inputs import Inputs
from rewind.files import atomic, digest, reading_user_file
from rewind.identity.marks import Identity, total
from rewind.identity.stages import instead
from rewind.models.retriever import Backbone, Features, Retriever
from rewind.progress import Progress
from rewind.provenance import file_hash
from rewind.search.run import FinishedRun
from rewind.video.packed import identity

FEATURE = "feature:"  # what names of feature arrays begin with in an index
Mark = dict[str, str]


@torch.inference_mode()
def encode_items(
    retriever: Retriever, inputs: Inputs, size: int, device: torch.device, workers: int, towers: Backbone | None = None
) -> Features:
    """Features of all items, in batches of ``size``, on ``device``.

    Args:
        retriever: the model.
        inputs: the items.
        size: items of a batch.
        device: where they are encoded.
        workers: decoding processes.
        towers: make frame features for a baseline that reads nothing else.
    """

    def encode(batch: Features) -> Features:
        return retriever.encode_items(tower_features(towers, batch) if towers is not None else batch)

    progress = Progress("gallery", len(inputs), "items")
    copied = getattr(inputs, "copies", False)  # what is only copied is there at once
    return encode_all(encode, inputs, size, device, workers=workers, done=None if copied else progress.advance)


def mark_of(run: FinishedRun, items: pd.DataFrame, cache: Path | None) -> Mark:
    """What the features of ``items`` follow from, by name: the model, the data, the keys, and the code."""
    method = run.spec.method
    modules = [_module(method.model), _module(run.spec.backbone.kind), *[method.head] * ("." in method.head)]
    chosen = instead(None if "." in method.model else [method.head])
    rows = items[["item_id", "path", "reversed"]].to_numpy().tolist()
    return {
        "model": file_hash(run.model),
        "data": digest(rows, file_hash(cache) if cache else _clips(run.data, items)),
        "keys": _keys(run),
        "code": total("gallery", Identity().parts("gallery", modules, chosen)),
    }


def indexed(
    path: Path, items: pd.DataFrame, mark: Mark, make: Callable[[], Features], say: Callable[..., Any]
) -> Features:
    """The features in an index file, or made and written there where it is stale, broken or absent.

    Args:
        path: the index, an ``.npz``.
        items: the gallery; its order is that of the rows.
        mark: what the features follow from (:func:`mark_of`).
        make: makes them.
        say: takes a sentence about what was done.
    """
    found, why = _read(path, mark, len(items))
    if found is not None:
        say(f"index {path}: {len(items):,} items")
        return found
    features = make()
    _write(path, mark, items["item_id"].tolist(), features)
    say(f"index {path}: {why}{len(items):,} items written")
    return features


def _keys(run: FinishedRun) -> str:
    spec = run.spec.signature()
    chosen = {key: spec[key] for key in ("frames", "text")}
    chosen |= {key: spec["method"][key] for key in ("model", "head", "head_layers", "head_start", "options")}
    weights = [run.spec.backbone.weights, run.spec.method.options.get("weights")]  # where no checkpoint holds them
    # By name and content: where the files lie is no matter.
    found = {"architecture": Path(run.spec.backbone.architecture).name, "weights": None}
    hashes = [file_hash(path) for path in weights if path and Path(path).is_file()]
    return digest(chosen, spec["backbone"] | found, hashes, run.max_frames)


def _read(path: Path, mark: Mark, count: int) -> tuple[Features | None, str]:
    """The features, or why they cannot be used."""
    if not path.exists():
        return None, ""
    try:
        with reading_user_file(path, "index"), np.load(path, allow_pickle=False) as archive:
            old = json.loads(str(archive["mark"]))
            stale = [name for name in mark if old.get(name) != mark[name]]
            if stale:
                return None, f"was stale (changed: {', '.join(stale)}); made again, "
            names = [name for name in archive.files if name.startswith(FEATURE)]
            found = {name.removeprefix(FEATURE): torch.from_numpy(archive[name]) for name in names}
    except RewindError:
        return None, "could not be read; made again, "
    whole = bool(found) and all(len(value) == count for value in found.values())
    return (found, "") if whole else (None, "could not be read; made again, ")


def _write(path: Path, mark: Mark, item_ids: list[str], features: Features) -> None:
    arrays: dict[str, Any] = {FEATURE + name: value.cpu().numpy() for name, value in features.items()}
    with atomic(path) as draft:
        np.savez(draft, mark=np.array(json.dumps(mark, sort_keys=True)), item_ids=np.array(item_ids), **arrays)


def _clips(data: Path, items: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What tells whether clips are still the same: reading them all would take as long as encoding them."""
    found = []
    for path in items["path"]:
        try:
            found.append(identity(data / path))
        except OSError:
            found.append(())
    return found


def _module(name: str) -> str:
    return name if "." in name else f"rewind.models.{name}"
