"""Options of ``model: vectors`` with an ``encoder``: a model by name, which embeds captions and clips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rewind.config.base import ConfigModel, config_field, read_options, required_field
from rewind.config.dataset import MadeFrom
from rewind.config.study import Method, Study
from rewind.errors import RewindError
from rewind.hashing import stable_hash

VECTORS_MODEL = "vectors"
"""``model`` of a method that scores vectors."""

SCORING_OPTIONS = ("score", "captions", "items")
"""Options of such a method that do not affect how its vectors are made."""

LOCAL_PREFIX = "local-dir:"  # open_clip's prefix for a model in a local folder


class Encoding(ConfigModel):
    """A model by name, its frames and its numbers: what vectors of a data set's test split depend on.

    >>> encoding = Encoding(encoder="open_clip", name="ViT-B-32", encoder_options={"pretrained": "openai"})
    >>> encoding.title()
    'open_clip ViT-B-32 (openai)'
    >>> encoding.folder().startswith("open_clip.ViT-B-32.")
    True
    """

    encoder: str = required_field(
        "What loads the model: `open_clip`, `sentence_transformers`, `transformers` (CLIP, SigLIP, X-CLIP and the "
        "like), `mteb` (its registry of models), or the dotted path of a module of your own.",
        min_length=1,
    )
    name: str = required_field(
        "The model, as its encoder calls it: an architecture, a name on the hub, or a local folder.", min_length=1
    )
    revision: str | None = config_field(
        None, "Revision of a model on the hub (a commit, a tag or a branch).", min_length=1
    )
    frames: Literal["rewind", "model"] = config_field(
        "rewind",
        "Who chooses frames: `rewind` (as for all other methods, symmetric in time, so that a twin shows the same "
        "pictures in opposite order) or `model` (its own sampler reads the file; the tables say so).",
    )
    max_frames: int | None = config_field(
        None, "Largest number of frames per clip; the study's `frames.max_frames` if empty.", ge=1, le=512
    )
    sampling: Literal["uniform", "ends", "head", "tail", "stride"] | None = config_field(
        None, "Which frames of a longer clip are used; the study's `frames.sampling` if empty."
    )
    rate: float | None = config_field(
        None, "Frames per second that are read before `sampling`; the study's `frames.rate` if empty.", ge=0.01, le=1000
    )
    batch_size: int = config_field(
        32, "Captions, frames or clips that the model is given at once; no vectors are made anew for it.", ge=1
    )
    precision: Literal["fp32", "fp16", "bf16"] = config_field("fp32", "Numbers that the model computes with.")
    encoder_options: dict[str, Any] = config_field({}, "Further options of the encoder.")

    def folder(self) -> str:
        """Name of the folder of the vectors: readable, with a hash of everything that they depend on."""
        last = re.split(r"[/\\]", self.name.rstrip("/\\"))[-1]
        slug = re.sub(r"[^A-Za-z0-9_\-]+", "-", last).strip("-")[:80] or "model"
        encoder = re.sub(r"[^A-Za-z0-9_\-]+", "-", self.encoder)
        return f"{encoder}.{slug}.{stable_hash(self.content())[:8]}"

    def title(self) -> str:
        """The model, for people: the encoder, the name, and what else identifies the weights."""
        more = [str(value) for value in (self.encoder_options.get("pretrained"), self.revision) if value]
        return " ".join([self.encoder, self.name, *(f"({value})" for value in more)])

    def content(self) -> dict[str, Any]:
        """All keys that the vectors depend on, as plain values."""
        return self.fingerprint(exclude={"batch_size"})

    def local(self) -> Path | None:
        """The local folder or file that ``name`` is; None if there is none."""
        path = Path(self.name.removeprefix(LOCAL_PREFIX))
        return path if path.exists() else None

    def files(self) -> list[str]:
        """Local files that the vectors are made with: all in a local folder, and those that options name."""
        paths: list[Path] = []
        model = self.local()
        if model is not None:
            paths += (
                [model]
                if model.is_file()
                else sorted(p for p in model.rglob("*") if p.is_file() and not _is_hidden(p.relative_to(model)))
            )
        paths += [Path(value) for value in self.encoder_options.values() if isinstance(value, str) and _is_file(value)]
        return [str(path) for path in dict.fromkeys(paths)]


def encoding_of(method: Method, study: Study) -> Encoding | None:
    """How the vectors of a method are made; None if it names no encoder.

    Keys of frames that are left out get the study's values.

    Raises:
        RewindError: naming the option that is unknown or has a wrong value, for noise, or for files beside an encoder.
    """
    if method.model != VECTORS_MODEL or "encoder" not in method.options:
        return None
    where = f"methods.{_method_name(method, study)}"
    options = {name: value for name, value in method.options.items() if name not in SCORING_OPTIONS}
    if method.noise or study.frames.noise:
        raise RewindError(f"{where}.noise: an encoder reads clips; noise is there for models that are trained here.")
    encoding = read_options(Encoding, options, f"{where}.options", f"{VECTORS_MODEL} with an encoder")
    defaults = {name: getattr(study.frames, name) for name in ("max_frames", "sampling", "rate")}
    encoding = encoding.model_copy(
        update={name: value for name, value in defaults.items() if getattr(encoding, name) is None}
    )
    for name, path in vector_files(encoding, study.dataset).items():
        # The same paths are allowed: `with_encoded_files` has put them there when a study is read again.
        if method.options.get(name, path) != path:
            raise RewindError(
                f"{where}.options.{name}: there is an encoder, which makes the vectors; keep one of both."
            )
    return encoding


def encoding_of_side(made_from: MadeFrom, side: str) -> Encoding | None:
    """The model by name that makes the vectors of one side of a dataset; None for a built-in network.

    Args:
        made_from: ``source.made_from`` of the dataset.
        side: ``text`` or ``image``.
    """
    encoder = made_from.sides[side]
    if encoder.encoder is None:
        return None
    same = {name: getattr(encoder, name) for name in ("encoder", "name", "revision", "precision", "encoder_options")}
    return Encoding(**same, max_frames=made_from.frames, sampling="uniform")


def vector_files(encoding: Encoding, dataset: str) -> dict[str, str]:
    """The files that rule ``encode_vectors`` makes, by the option of ``model: vectors`` that names them."""
    folder = f"results/data/{dataset}/vectors/{encoding.folder()}"
    return {name: f"{folder}/{name}.npz" for name in ("captions", "items")}


def with_encoded_files(study: Study) -> Study:
    """The study with the encoders' files in their methods' options: later stages read them like a user's own files.

    Raises:
        RewindError: as :func:`encoding_of`.
    """
    methods = {
        name: study.methods[name].model_copy(
            update={"options": study.methods[name].options | vector_files(encoding, study.dataset)}
        )
        for name, encoding in encodings_of(study).items()
    }
    return study.model_copy(update={"methods": study.methods | methods}) if methods else study


def encodings_of(study: Study) -> dict[str, Encoding]:
    """Method → its encoding, for methods that name an encoder.

    Raises:
        RewindError: as :func:`encoding_of`.
    """
    encodings: Mapping[str, Encoding | None] = {
        name: encoding_of(method, study) for name, method in study.methods.items()
    }
    return {name: encoding for name, encoding in encodings.items() if encoding is not None}


def _method_name(method: Method, study: Study) -> str:
    return next((name for name, candidate in study.methods.items() if candidate is method), "*")


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _is_file(value: str) -> bool:
    # Options may hold any text, and paths that are too long or have a NUL would raise.
    return len(value) < 4096 and "\0" not in value and Path(value).is_file()
