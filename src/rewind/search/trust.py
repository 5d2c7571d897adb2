"""Protection against results that somebody else computed: no foreign code and no outside files without ``--trust``.

``run.json`` names modules, classes and weights, and ``items.csv`` names files. In your own results these are your own;
in a folder that was downloaded they can be anything. So a search runs only Rewind's code and shows only files below
``results/data`` unless it is started with ``--trust``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rewind.config import RunSpec
from rewind.config.dataset import EncoderConfig, MadeFrom
from rewind.errors import RewindError
from rewind.video.shards import TRUST_OPTION

_CODE_LOADING_ENCODERS = ("mteb",)  # encoders whose options may name code to run


def refuse_code(spec: RunSpec, where: Path) -> None:
    """Refuse a run whose configuration names code that is not Rewind's, naming the first key that would run any.

    ``where``, its ``run.json``, is for the message.
    """
    for key, name in _code_keys(spec):
        raise _refusal(f"{where}: spec.{key}: {name!r}")


def refuse_encoders(made: MadeFrom, where: Path) -> None:
    """Refuse a dataset whose embeddings were computed by code that is not Rewind's: it would also encode queries."""
    for side, encoder in made.sides.items():
        for key, name in _encoder_code_keys(encoder):
            raise _refusal(f"{where}: source.made_from.{side}.{key}: {name!r}")


def check_record(record: Any, folder: Path, where: Path) -> None:
    """Refuse a record that is not as a training run writes it, or that belongs to another run.

    ``record`` is the content of ``run.json``, a JSON object; ``where`` is that file, for messages.
    """
    expected_types: Mapping[str, tuple[type, str]] = {
        "spec": (dict, "a block of keys"),
        "max_frames": (int, "a whole number"),
        "data": (dict, "files and their checksums"),
    }
    for key, (kind, description) in expected_types.items():
        if key in record and (not isinstance(record[key], kind) or isinstance(record[key], bool)):
            raise RewindError(f"{where}: {key}: {description} is expected; this is not the record of a training run.")
    if not 0 <= record.get("max_frames", 0) <= 100_000:
        raise RewindError(
            f"{where}: max_frames: {record['max_frames']} is not a possible number of frames; train the run again."
        )
    for path in map(Path, record.get("data", {})):
        if path.name.endswith(".csv") and (path.is_absolute() or ".." in path.parts):
            raise RewindError(f"{where}: data: {path}: a path within the workflow's folder is expected.")
    real = folder.resolve()
    if real.parent.parent.name != "runs" or not isinstance(record.get("run"), str):
        return  # the user keeps it elsewhere, under another name
    if record["run"] != (name := f"{real.parent.name}/{real.name}"):
        raise RewindError(
            f"{where}: run: this is the record of {record['run']!r}, but it is in the folder of {name!r}; put the "
            "files of one run together, or train it again."
        )


def _code_keys(spec: RunSpec) -> Iterator[tuple[str, str]]:
    """(key, value) of keys that name modules outside Rewind, or a TorchScript archive, which is a program."""
    names = {"method.model": spec.method.model, "method.head": spec.method.head, "backbone.kind": spec.backbone.kind}
    yield from ((key, name) for key, name in names.items() if "." in (name or ""))
    encoder = spec.backbone.encoder or ""
    if "." in encoder or encoder in _CODE_LOADING_ENCODERS:
        yield "backbone.encoder", encoder
    if spec.backbone.allow_torchscript and spec.backbone.weights:
        yield "backbone.weights", spec.backbone.weights


def _encoder_code_keys(encoder: EncoderConfig) -> Iterator[tuple[str, str]]:
    if encoder.encoder is None and "." in encoder.name:
        yield "name", encoder.name
    if encoder.encoder is not None and ("." in encoder.encoder or encoder.encoder in _CODE_LOADING_ENCODERS):
        yield "encoder", encoder.encoder
    if encoder.encoder is None and encoder.allow_torchscript and encoder.weights:
        yield "weights", encoder.weights


def _refusal(subject: str) -> RewindError:
    return RewindError(
        f"{subject} would run code that is not Rewind's. If these results are yours, or you trust who made them, start "
        f"again with {TRUST_OPTION} (in Python: trust=True)."
    )
