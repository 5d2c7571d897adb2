"""Overrides of studies and data sets, from ``config/config.yaml`` and from ``--config``, before any file is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rewind.errors import RewindError
from rewind.study.keys import NAME, NAMES
from rewind.study.load import merge
from rewind.study.yaml_file import DEEPEST, check_plain, parse_yaml

EXAMPLE = "{studies.demo.training.epochs: 2}"


def overrides(given: Any) -> dict[str, dict[str, Any]]:
    """Overrides as nested blocks with typed values, by kind and name.

    Raises:
        RewindError: naming the key that is no block, has an empty part, or whose value cannot be read.
    """
    check_plain(given, "overrides")
    nested = _nested(given, "overrides")
    for name in nested:
        if name not in ("studies", "datasets"):
            raise RewindError(
                f"overrides.{name}: start with studies.<name> or datasets.<name>, for example "
                "studies.demo.training.epochs."
            )
    found = {kind: _nested(nested.get(kind) or {}, f"overrides.{kind}") for kind in ("studies", "datasets")}
    for kind, blocks in found.items():
        for name, block in blocks.items():
            if not re.fullmatch(NAME, name):
                raise RewindError(f"overrides.{kind}: {name!r} is not the name of a file in config/{kind}; {NAMES}.")
            where = f"overrides.{kind}.{name}"
            blocks[name] = _typed(_nested({} if block is None else block, where), where)
    return found


def _nested(value: Any, where: str) -> dict[str, Any]:
    """A block with its dotted keys as blocks.

    Raises:
        RewindError: if it is none, or a part of a key leads nowhere.
    """
    if not isinstance(value, Mapping):
        raise RewindError(f"{where}: a block of keys is expected, for example {EXAMPLE} (given: {str(value)[:100]!r}).")
    _check_parts(value, where)
    return merge({}, value)


def _check_parts(value: Any, where: str) -> None:
    """Refuse dotted keys with an empty part, also in blocks within."""
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        shown = f"{str(name)[:100]!r}"
        if not all(str(name).split(".")):
            raise RewindError(f"{where}: the key {shown} has an empty part; write for example {EXAMPLE}.")
        if str(name).count(".") > DEEPEST:
            raise RewindError(f"{where}: the key {shown}… has more parts than any key.")
        _check_parts(inner, f"{where}.{name}")


def _typed(value: Any, where: str) -> Any:
    """Values with their YAML types: on Snakemake's command line every value of a nested block arrives as text."""
    if isinstance(value, Mapping):
        return {name: _typed(part, f"{where}.{name}") for name, part in _nested(value, where).items()}
    if isinstance(value, list):
        return [_typed(part, where) for part in value]
    if not isinstance(value, str) or not value:
        return value
    found = parse_yaml(value, where)
    check_plain(found, where)
    return found
