"""What every configuration model shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewind.errors import RewindError

K = TypeVar("K", bound="Keys")

NAME = r"^[A-Za-z0-9_\-]+$"
"""Names of files and folders that we make: no path, no dot (``<method>.seed<k>``), nothing that Snakemake reads."""

DRAFT = "draft"
"""In a validation's context: what keys decide together is not looked at, single keys are."""

SEEDS = {"ge": 0, "le": 2**32 - 1}
"""Bounds of a seed: what NumPy, scikit-learn and torch all take."""


class Keys(BaseModel):
    """A block of a YAML file: unknown keys, infinity and NaN are refused, values cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def key(default: Any, description: str, **bounds: Any) -> Any:
    """A key with its default, its meaning for ``config/README.md``, and its bounds."""
    return Field(default, description=description, **bounds)


def required(description: str, **bounds: Any) -> Any:
    """A key that the file must give."""
    return Field(..., description=description, **bounds)


def read_options(model: type[K], given: Mapping[str, Any], where: str, owner: str) -> K:
    """The free options of something that a study names (a loss, a sampler), checked by its own model.

    Args:
        model: the options that ``owner`` has.
        given: what the study says.
        where: path of the options in the study.
        owner: named in messages.

    Raises:
        RewindError: with the path of the first option that is unknown or has a wrong value.
    """
    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        fault = error.errors()[0]
    path = ".".join([where, *map(str, fault["loc"])])
    if fault["type"] == "extra_forbidden":
        names = [field.alias or name for name, field in model.model_fields.items()]
        known = f"its options are {', '.join(names)}" if names else "it has no options"
        raise RewindError(f"{path}: {owner} has no such option; {known}.")
    message = str(fault["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(fault.get("input"), dict) else f" (given: {fault.get('input')!r})"
    raise RewindError(f"{path}: {message}{shown}.")


def once(values: list[Any]) -> list[Any]:
    """The values as they are; one that is there twice is refused.

    Raises:
        ValueError: naming it.
    """
    for place, value in enumerate(values):
        if value in values[:place]:
            raise ValueError(f"{value!r} is there twice; keep one")
    return values


def seeds(values: list[int]) -> list[int]:
    """Seeds as they are, if each is one and there once.

    Raises:
        ValueError: naming the first that is not.
    """
    for value in values:
        if not SEEDS["ge"] <= value <= SEEDS["le"]:
            raise ValueError(f"{value} is no seed: give whole numbers from 0 to {SEEDS['le']:,}")
        if values.count(value) > 1:
            raise ValueError(f"the same seed twice is one run, not two: keep one {value}")
    return values
