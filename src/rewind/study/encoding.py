"""Options of ``model: vectors`` with an ``encoder``: a model by name, which turns captions and clips into vectors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rewind.errors import RewindError
from rewind.files import digest
from rewind.study.embeddings import MadeFrom
from rewind.study.keys import Keys, key, read_options, required
from rewind.study.model import Method, Study

MODEL = "vectors"
"""The model of a method that scores vectors."""

SCORING = ("score", "captions", "items")
"""Its options that say nothing of how vectors come about."""

LOCAL = "local-dir:"


class Encoding(Keys):
    """A model by name, its frames and its numbers: what vectors of a data set's test split depend on."""

    encoder: str = required(
        "What loads the model: `open_clip`, `sentence_transformers`, `transformers` (CLIP, SigLIP, X-CLIP and the "
        "like), `mteb` (its registry of models), or the dotted path of a module of your own.",
        min_length=1,
    )
    name: str = required(
        "The model, as its encoder calls it: an architecture, a name on the hub, or a local folder.", min_length=1
    )
    revision: str | None = key(None, "Revision of a model on the hub (a commit, a tag or a branch).", min_length=1)
    frames: Literal["rewind", "model"] = key(
        "rewind",
        "Who chooses frames: `rewind` (as for all other methods, symmetric in time, so that a twin shows the same "
        "pictures in opposite order) or `model` (its own sampler reads the file; the tables say so).",
    )
    max_frames: int | None = key(
        None, "Largest number of frames per clip; the study's `frames.max_frames` if empty.", ge=1, le=512
    )
    sampling: Literal["uniform", "ends", "head", "tail", "stride"] | None = key(
        None, "Which frames of a longer clip are used; the study's `frames.sampling` if empty."
    )
    rate: float | None = key(
        None, "Frames per second that are read before `sampling`; the study's `frames.rate` if empty.", ge=0.01, le=1000
    )
    batch_size: int = key(
        32, "Captions, frames or clips that the model is given at once; no vectors are made anew for it.", ge=1
    )
    precision: Literal["fp32", "fp16", "bf16"] = key("fp32", "Numbers that the model computes with.")
    encoder_options: dict[str, Any] = key({}, "Further options of the encoder.")

    def folder(self) -> str:
        """Name of the folder of the vectors, readable and different for whatever they depend on."""
        last = re.split(r"[/\\]", self.name.rstrip("/\\"))[-1]
        slug = re.sub(r"[^A-Za-z0-9_\-]+", "-", last).strip("-")[:80] or "model"
        encoder = re.sub(r"[^A-Za-z0-9_\-]+", "-", self.encoder)
        return f"{encoder}.{slug}.{digest(self.content())[:8]}"

    def title(self) -> str:
        """The model, for people: the encoder, the name and what else says which weights these are."""
        more = [str(value) for value in (self.encoder_options.get("pretrained"), self.revision) if value]
        return " ".join([self.encoder, self.name, *(f"({value})" for value in more)])

    def content(self) -> dict[str, Any]:
        """All that the vectors depend on, as plain values."""
        return self.signature(exclude={"batch_size"})

    def local(self) -> Path | None:
        """The folder or file that ``name`` is, if it is one here."""
        path = Path(self.name.removeprefix(LOCAL))
        return path if path.exists() else None

    def files(self) -> list[str]:
        """Local files that the vectors are made with: of a local folder all, and those that options name."""
        found: list[Path] = []
        own = self.local()
        if own is not None:
            found += (
                [own]
                if own.is_file()
                else sorted(p for p in own.rglob("*") if p.is_file() and not _hidden(p.relative_to(own)))
            )
        found += [Path(value) for value in self.encoder_options.values() if isinstance(value, str) and _is_file(value)]
        return [str(path) for path in dict.fromkeys(found)]


def encoding_of(method: Method, study: Study) -> Encoding | None:
    """How the vectors of a method are made; None where it names no encoder.

    Keys that are left out get the study's values.

    Raises:
        RewindError: naming the option that is unknown or has a wrong value.
    """
    if method.model != MODEL or "encoder" not in method.options:
        return None
    where = f"methods.{_name(method, study)}"
    given = {name: value for name, value in method.options.items() if name not in SCORING}
    if method.noise or study.frames.noise:
        raise RewindError(f"{where}.noise: an encoder reads clips; noise is there for models that are trained here.")
    keys = read_options(Encoding, given, f"{where}.options", f"{MODEL} with an encoder")
    default = {name: getattr(study.frames, name) for name in ("max_frames", "sampling", "rate")}
    keys = keys.model_copy(update={name: value for name, value in default.items() if getattr(keys, name) is None})
    for name, path in vector_files(keys, study.dataset).items():
        if method.options.get(name, path) != path:
            raise RewindError(
                f"{where}.options.{name}: there is an encoder, which makes the vectors; keep one of both."
            )
    return keys


def encoding_of_side(keys: MadeFrom, side: str) -> Encoding | None:
    """The model by name that makes the vectors of one side of a data set; None where the network is built in.

    Args:
        keys: ``source.made_from``.
        side: ``text`` or ``image``.
    """
    chosen = keys.sides[side]
    if chosen.encoder is None:
        return None
    same = {name: getattr(chosen, name) for name in ("encoder", "name", "revision", "precision", "encoder_options")}
    return Encoding(**same, max_frames=keys.frames, sampling="uniform")


def vector_files(keys: Encoding, dataset: str) -> dict[str, str]:
    """The files that rule ``encode_vectors`` makes, by their option."""
    folder = f"results/data/{dataset}/vectors/{keys.folder()}"
    return {name: f"{folder}/{name}.npz" for name in ("captions", "items")}


def with_vectors(study: Study) -> Study:
    """The study with the files of every encoder in its method's options: to all that follows they are files.

    Raises:
        RewindError: as :func:`encoding_of`.
    """
    found = encodings_of(study)
    made = {
        name: study.methods[name].model_copy(
            update={"options": study.methods[name].options | vector_files(keys, study.dataset)}
        )
        for name, keys in found.items()
    }
    return study.model_copy(update={"methods": study.methods | made}) if made else study


def encodings_of(study: Study) -> dict[str, Encoding]:
    """Method → its encoding, of those that name an encoder.

    Raises:
        RewindError: as :func:`encoding_of`.
    """
    found: Mapping[str, Encoding | None] = {name: encoding_of(method, study) for name, method in study.methods.items()}
    return {name: keys for name, keys in found.items() if keys is not None}


def _name(method: Method, study: Study) -> str:
    return next((name for name, one in study.methods.items() if one is method), "*")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_file(value: str) -> bool:
    return len(value) < 4096 and "\0" not in value and Path(value).is_file()
