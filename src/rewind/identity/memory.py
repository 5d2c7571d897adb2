"""Keeps what modules were read as, by the content of their files: most are as they were the last time."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rewind.files import remembered, write_text
from rewind.identity.units import Module, Unit, read

_MOST = 2000  # modules
_READ_BY = ("units.py", "spelling.py")


class Memory:
    """Modules by content.

    Args:
        path: JSON file that keeps them; None: nothing is kept.
        never: see :func:`rewind.identity.units.read`.
    """

    def __init__(self, path: Path | None, never: frozenset[str]) -> None:
        self.path, self.never, self.new = path, never, False
        here = Path(__file__).parent  # what reads modules has a say in what they are read as
        self._reader = [*((here / name).read_bytes() for name in _READ_BY), repr(sorted(never)).encode()]
        self._kept = _load(path)

    def module(self, name: str, path: Path) -> Module:
        """A module, read or remembered."""
        whole = hashlib.sha256(b"\0".join([*self._reader, name.encode(), path.name.encode(), path.read_bytes()]))
        key = whole.hexdigest()[:32]
        if key in self._kept:
            with contextlib.suppress(KeyError, TypeError, ValueError):
                return _module(self._kept[key])
        module = read(name, path, self.never)
        self._kept[key] = asdict(module)
        self.new = True
        return module

    def keep(self) -> None:
        """Write what was read anew; a folder that is read-only is no fault."""
        if self.path is None or not self.new:
            return
        kept = dict(list(self._kept.items())[-_MOST:])
        with contextlib.suppress(OSError):
            write_text(self.path, json.dumps(kept, default=sorted))
        self.new = False


def _load(path: Path | None) -> dict[str, dict[str, Any]]:
    found = remembered(path)
    return found if isinstance(found, dict) else {}


def _module(kept: dict[str, Any]) -> Module:
    return Module(
        units={name: _unit(unit) for name, unit in kept["units"].items()},
        imports={name: tuple(target) for name, target in kept["imports"].items()},
        stars=list(kept["stars"]),
        entries={name: {key: _unit(unit) for key, unit in table.items()} for name, table in kept["entries"].items()},
    )


def _unit(kept: dict[str, Any]) -> Unit:
    imports = {name: tuple(target) for name, target in kept["imports"].items()}
    return Unit(dict(kept["parts"]), frozenset(kept["reads"]), imports)
