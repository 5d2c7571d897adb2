"""Options of ``model: vectors`` with an ``encoder``: a model by name, which embeds captions and clips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from rewind.config.base import ConfigModel, config_field, required_field
from rewind.hashing import stable_hash

SCORING_OPTIONS = ("score", "captions", "items", "inverse_temperature")
"""Options of ``model: vectors`` that do not affect how its vectors are computed."""

LOCAL_PREFIX = "local-dir:"  # open_clip's prefix for a model in a local folder


QueryParts = Literal["both", "text", "frame"]


class EncoderOptions(ConfigModel, affects="run"):
    """A model by name, its frames and its numbers, as a study gives them."""

    encoder: str = required_field(
        "What loads the model: `open_clip`, `sentence_transformers`, `transformers` (CLIP, SigLIP, X-CLIP and the "
        "like), `video_llm` (a language model that is asked about clips), `mteb` (its registry of models), or the "
        "dotted path of a module of your own.",
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
        32,
        "Captions, frames or clips that the model is given at once; changing it recomputes no vectors.",
        ge=1,
        affects="nothing",
    )
    precision: Literal["fp32", "fp16", "bf16"] = config_field("fp32", "Numbers that the model computes with.")
    query: QueryParts = config_field(
        "both",
        "Of data whose queries show a clip (`format: composed`), what the model gets of a query: `both` its frame and "
        "its text, or, as a baseline, only one.",
        legacy_default="both",
    )
    encoder_options: dict[str, Any] = config_field(
        {},
        "Further options of the encoder. Of a method with `rerank`, an option may have a value for each seed, "
        "`prompts: {0: […], 1: […]}`: intervals then cover the choice among them.",
    )


class Encoding(EncoderOptions):
    """A model by name, its frames and its numbers: what vectors of a data set's test split depend on.

    Attributes:
        scored_pairs: of a model that scores a caption and a clip together: which pairs are scored here. A method with
            ``rerank`` has ``candidates``, which its own job scores when they are known.

    >>> encoding = Encoding(encoder="open_clip", name="ViT-B-32", encoder_options={"pretrained": "openai"})
    >>> encoding.title()
    'open_clip ViT-B-32 (openai)'
    >>> encoding.folder().startswith("open_clip.ViT-B-32.")
    True
    """

    scored_pairs: Literal["all", "candidates"] = config_field("all", "Which pairs are scored.", legacy_default="all")

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
        return self.fingerprint("run")

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
                else sorted(p for p in model.rglob("*") if p.is_file() and not is_hidden(p.relative_to(model)))
            )
        paths += [Path(value) for value in self.encoder_options.values() if isinstance(value, str) and _is_file(value)]
        return [str(path) for path in dict.fromkeys(paths)]


def seeds_of_options(options: Mapping[str, Any]) -> dict[str, list[int]]:
    """Options of an encoder that have a value for each seed, and the seeds, sorted.

    >>> seeds_of_options({"prompts": {1: ["Is it {caption}?"], 0: ["{caption}?"]}, "processor": {"size": 64}})
    {'prompts': [0, 1]}
    """
    return {
        name: sorted(value)
        for name, value in options.items()
        if isinstance(value, Mapping) and value and all(type(seed) is int for seed in value)
    }


def is_hidden(path: Path) -> bool:
    """Whether a file, or a folder that it is in, has a name that begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def _is_file(value: str) -> bool:
    # Options may hold any text, and paths that are too long or have a NUL would raise.
    return len(value) < 4096 and "\0" not in value and Path(value).is_file()
