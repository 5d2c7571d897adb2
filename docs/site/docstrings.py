"""The docstrings as mkdocstrings reads them: what is named there and is not there fails the build."""

from __future__ import annotations

import re
from typing import Any

import griffe

# `one, other: what both are`, with lines that go on below it.
TOGETHER = re.compile(r"^( +)(\w+(?:, \w+)+): (.+(?:\n\1 +.+)*)$", flags=re.M)
ROLE = re.compile(r":(?:func|class|mod|meth|data|attr|exc|obj):`~?([\w.]+)`")


class Docstrings(griffe.Extension):
    """Rewrites every docstring as soon as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Arguments that are described together get an entry each, and roles with a full name become links."""
        if obj.docstring:
            obj.docstring.value = ROLE.sub(_link, TOGETHER.sub(_apart, obj.docstring.value))


def _apart(found: re.Match[str]) -> str:
    return "\n".join(f"{found[1]}{name}: {found[3]}" for name in found[2].split(", "))


def _link(found: re.Match[str]) -> str:
    name = found[1]
    return f"[`{name}`][{name}]" if name.startswith("rewind.") else f"`{name}`"
