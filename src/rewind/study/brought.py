"""Methods that bring their vectors or their scores: what files they name, for which seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import model_validator

from rewind.study.keys import Keys, key, read_options, required

if TYPE_CHECKING:
    from rewind.study.model import Method

BROUGHT = ("vectors", "scores")
"""Models that are files: nothing is trained or encoded, and no study's towers are looked through."""

PAIRS = 2**22
"""Pairs that such a model scores at once: a product or a look-up, so tens of megabytes."""

Files = str | dict[int, str]
"""A file, or one for each seed."""


class VectorOptions(Keys):
    """Options of ``model: vectors``."""

    captions: Files = required("Vectors of captions, by caption id: .npz, .parquet, .safetensors, or .npy with ids.")
    items: Files = required("Vectors of items, by item id; twins included.")
    score: Literal["cosine", "dot", "maxsim"] = key(
        "cosine",
        "How two vectors are compared; `maxsim` (late interaction) adds up, over the vectors of a caption, the largest "
        "dot product with a vector of the item.",
    )

    @model_validator(mode="after")
    def _same_seeds(self) -> VectorOptions:
        _together(captions=self.captions, items=self.items)
        return self


class ScoreOptions(Keys):
    """Options of ``model: scores``."""

    file: Files = required("An npz with similarity, query_ids and item_ids, or a TREC run.")


OPTIONS: Mapping[str, type[Keys]] = {"vectors": VectorOptions, "scores": ScoreOptions}
FILES = {"vectors": ("captions", "items"), "scores": ("file",)}
"""Options that are files, by model."""


def options(method: Method) -> Any:
    """The checked options of a method that brings files: :class:`VectorOptions` or :class:`ScoreOptions`.

    Raises:
        RewindError: with the path of the first that is wrong.
    """
    return read_options(OPTIONS[method.model], own(method.options), "methods.*.options", f"model: {method.model}")


def own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the files, without those of the encoder that makes them (:mod:`rewind.study.encoding`)."""
    made = "encoder" in given
    return {name: value for name, value in given.items() if not made or name in VectorOptions.model_fields}


def read_back(model: str, given: Any) -> Any:
    """Options whose seeds are numbers: JSON, in which rules hand keys to jobs, writes them as text."""
    if not isinstance(given, Mapping):
        return given

    def number(seed: Any) -> Any:
        return int(seed) if isinstance(seed, str) and seed.isdecimal() else seed

    return {
        name: {number(seed): path for seed, path in value.items()}
        if name in FILES[model] and isinstance(value, Mapping)
        else value
        for name, value in given.items()
    }


def seeds(model: str, given: Any) -> list[int]:
    """Seeds that options have files for, in order; ``[0]`` where one file stands for the one model that there is."""
    found = [given.get(name) for name in FILES[model]] if isinstance(given, Mapping) else []
    by_seed = [set(files) for files in found if isinstance(files, Mapping)]
    numbers = sorted({seed for files in by_seed for seed in files if isinstance(seed, int)})
    return numbers or [0]


def of_seed(method: Method, seed: int | str | None) -> Method:
    """The method with the files of one seed; of another model, or without a seed, as it is."""
    if method.model not in BROUGHT or seed is None:
        return method
    chosen = {
        name: value[int(seed)] if name in FILES[method.model] and isinstance(value, Mapping) else value
        for name, value in own(method.options).items()
    }
    return method.model_copy(update={"options": chosen})


def files(method: Method, seed: int | str | None = None) -> list[str]:
    """Files that a run of the method reads, or those of all its runs; of another model none."""
    if method.model not in BROUGHT:
        return []
    named = [of_seed(method, seed).options.get(name) for name in FILES[method.model]]
    every = [path for one in named for path in (one.values() if isinstance(one, Mapping) else [one])]
    found = [str(path) for path in every if path]
    return list(dict.fromkeys([*found, *(str(ids_beside(path)) for path in found if path.endswith(".npy"))]))


def ids_beside(path: str | Path) -> Path:
    """The file of the ids of a ``.npy``, which has vectors alone: ``.json`` of its name if it is there, or ``.txt``."""
    listed = Path(path).with_suffix(".json")
    return listed if listed.is_file() else Path(path).with_suffix(".txt")


def _together(**named: Files) -> None:
    """Refuse files for other seeds than those of the first option; one file serves every seed."""
    by_seed = {name: set(files) for name, files in named.items() if isinstance(files, Mapping)}
    for name, numbers in by_seed.items():
        first, wanted = next(iter(by_seed.items()))
        if numbers != wanted:
            odd = min(numbers ^ wanted)
            lacking = name if odd in wanted else first
            raise ValueError(f"{lacking} names no file for seed {odd}: name one for each seed, or one for all")
