"""Text of YAML files with a comment on each value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

Value = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]
COLUMN = 42  # of comments
_PLAIN = re.compile(r"[\w./ +-]+", re.ASCII)


def scalar(value: Value) -> str:
    """A value as YAML on one line."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value == value.strip()
        return value if plain and yaml.safe_load(value) == value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) or abs(value) >= 1e-3 else f"{value:.1e}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(str(name))}: {scalar(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(scalar(one) for one in value) + "]"
    return str(value)


def key(name: str, value: Value, comment: str = "", depth: int = 0) -> str:
    """A line ``name: value  # comment``."""
    line = f"{'  ' * depth}{scalar(name)}: {scalar(value)}"
    return _commented(line, comment)


def block(name: str, lines: Sequence[str], comment: str = "") -> list[str]:
    """A block of keys, whose lines are indented already."""
    head = f"{scalar(name)}:"
    return [_commented(head, comment), *lines]


def _commented(line: str, comment: str) -> str:
    return f"{line:<{COLUMN - 2}}  # {comment}" if comment else line


def prose(*sentences: str) -> list[str]:
    """Comment lines of their own."""
    return [f"# {sentence}" for sentence in sentences]
