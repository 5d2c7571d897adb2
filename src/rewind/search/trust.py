"""What results that somebody else made may ask of this machine: nothing, unless the user trusts them.

``run.json`` names modules, classes and weights, and ``items.csv`` names files. In results of one's own these are one's
own; in a folder that was fetched from elsewhere they are anything. So a search runs only code of Rewind, and shows only
files below ``results/data``, until it is told ``--trust``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.study import RunSpec
from rewind.study.embeddings import Encoder, MadeFrom
from rewind.video.clip_checks import TRUST as FLAG

_LOADERS = ("mteb",)  # encoders whose options may name code to run


def refuse_code(spec: RunSpec, where: Path) -> None:
    """Refuse to load what a run's keys name besides Rewind's own models.

    Args:
        spec: the keys of a run.
        where: ``run.json``.

    Raises:
        RewindError: naming the first key that would run code.
    """
    for key, name in _code_of(spec):
        raise _refusal(f"{where}: spec.{key}: {name!r}")


def refuse_encoders(made: MadeFrom, where: Path) -> None:
    """The same for what made the vectors of a data set, which also encodes queries.

    Raises:
        RewindError: naming the key.
    """
    for side, keys in made.sides.items():
        for key, name in _code_of_encoder(keys):
            raise _refusal(f"{where}: source.made_from.{side}.{key}: {name!r}")


def check_record(record: Any, folder: Path, where: Path) -> None:
    """Refuse a record whose parts are not what a training run writes, or which is that of another run.

    Raises:
        RewindError: naming the key.
    """
    kinds: Mapping[str, tuple[type, str]] = {
        "spec": (dict, "a block of keys"),
        "max_frames": (int, "a whole number"),
        "data": (dict, "files and their checksums"),
    }
    for key, (kind, what) in kinds.items():
        if key in record and (not isinstance(record[key], kind) or isinstance(record[key], bool)):
            raise RewindError(f"{where}: {key}: {what} is expected; this is not the record of a training run.")
    if not 0 <= record.get("max_frames", 0) <= 100_000:
        raise RewindError(f"{where}: max_frames: {record['max_frames']} frames cannot be; train the run again.")
    for path in map(Path, record.get("data", {})):
        if path.name.endswith(".csv") and (path.is_absolute() or ".." in path.parts):
            raise RewindError(f"{where}: data: {path}: a path within the workflow's folder is expected.")
    real = folder.resolve()
    if real.parent.parent.name != "runs" or not isinstance(record.get("run"), str):
        return  # kept elsewhere, under a name of the user's own
    if record["run"] != (name := f"{real.parent.name}/{real.name}"):
        raise RewindError(
            f"{where}: run: this is the record of {record['run']!r}, but it lies in the folder of {name!r}; put the "
            "files of one run together, or train it again."
        )


def _code_of(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """Keys that name modules of somebody's own, or a program archive."""
    names = {"method.model": spec.method.model, "method.head": spec.method.head, "backbone.kind": spec.backbone.kind}
    yield from ((key, name) for key, name in names.items() if "." in (name or ""))
    if spec.backbone.allow_torchscript and spec.backbone.weights:
        yield "backbone.weights", spec.backbone.weights


def _code_of_encoder(keys: Encoder) -> Iterator[tuple[str, str]]:
    if keys.encoder is None and "." in keys.name:
        yield "name", keys.name
    if keys.encoder is not None and ("." in keys.encoder or keys.encoder in _LOADERS):
        yield "encoder", keys.encoder
    if keys.encoder is None and keys.allow_torchscript and keys.weights:
        yield "weights", keys.weights


def _refusal(what: str) -> RewindError:
    return RewindError(
        f"{what} would run code that is not Rewind's. If these results are yours, or you trust who made them, start "
        f"again with {FLAG} (in Python: trust=True)."
    )
