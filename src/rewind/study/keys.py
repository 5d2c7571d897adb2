"""What every configuration model shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rewind.errors import RewindError

K = TypeVar("K", bound="Keys")

NAME = r"^[A-Za-z0-9_\-]{1,100}$"
"""Names of files and folders that we make: no path, no dot (``<method>.seed<k>``), nothing that Snakemake reads, and
short enough for what is hung on them."""

NAMES = "use letters, digits, '_' and '-', at most 100 of them"
"""The same for people."""

DRAFT = "draft"
"""In a validation's context: what keys decide together is not looked at, single keys are."""

VOCABULARY = 5000  # ids of MiniCLIP's tokenizer

SEEDS = {"ge": 0, "le": 2**32 - 1}
"""Bounds of a seed: what NumPy, scikit-learn and torch all take."""


class Keys(BaseModel):
    """A block of a YAML file: unknown keys, infinity and NaN are refused, values cannot be changed once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def signature(self, **chosen: Any) -> dict[str, Any]:
        """The keys as plain values, which rules compare: what differs makes results stale.

        A key that came after a release is left out while its value is its default and what was done before it was
        there (``before`` of :func:`key`), so that it makes nothing stale.

        Args:
            chosen: ``include`` or ``exclude`` of pydantic's ``model_dump``.
        """
        return _known_before(self, self.model_dump(mode="json", **chosen))


_ALWAYS = object()  # the key was there from the first release on


def key(default: Any, description: str, before: Any = _ALWAYS, **bounds: Any) -> Any:
    """A key with its default, its meaning for ``config/README.md``, and its bounds.

    Args:
        default: where the file says nothing.
        description: a sentence for people.
        before: for a key that came after a release: the value that stands for what was done until then. Runs that were
            made before still count while the key has it, see :meth:`Keys.signature`.
        bounds: as of pydantic's ``Field``.
    """
    later = {} if before is _ALWAYS else {"json_schema_extra": {"before": before}}
    return Field(default, description=description, **later, **bounds)


def required(description: str, **bounds: Any) -> Any:
    """A key that the file must give."""
    return Field(..., description=description, **bounds)


def _known_before(value: Any, dumped: Any) -> Any:
    if isinstance(value, Keys):
        for name in list(dumped):
            field, inner = type(value).model_fields[name], getattr(value, name)
            extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
            if "before" in extra and inner == extra["before"] == field.default:
                del dumped[name]
            else:
                dumped[name] = _known_before(inner, dumped[name])
    elif isinstance(value, dict):
        return {name: _known_before(inner, dumped[str(name)]) for name, inner in value.items()}
    elif isinstance(value, list | tuple):
        return [_known_before(inner, one) for inner, one in zip(value, dumped, strict=True)]
    return dumped


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
            raise ValueError(f"{value} is not a seed: give whole numbers from 0 to {SEEDS['le']:,}")
        if values.count(value) > 1:
            raise ValueError(f"seed {value} is listed twice, but one seed gives one run: keep one")
    return values
