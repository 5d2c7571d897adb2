"""Where modules are, of the library and of the user's own; none is imported."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path

from rewind.identity.memory import Memory
from rewind.identity.units import Module

LIBRARY = "rewind"


class Reader:
    """Reads modules of the library and of the user's own, without importing any.

    Args:
        library: folder of the package ``rewind``; another checkout's may be read.
        never: modules, or ``module:name``, that never count; what is said to them are words.
        memory: file that remembers what modules were read as; none: each is read anew.
    """

    def __init__(self, library: Path, never: frozenset[str] = frozenset(), memory: Path | None = None) -> None:
        self.library, self.never = library, never
        self.memory = Memory(memory, never)
        self.roots: set[Path] = set()
        self.tops: set[str] = {LIBRARY}
        self._read: dict[str, Module | None] = {}
        self._files: dict[str, Path | None] = {}
        self._bases: dict[str, Path | None] = {}

    def own(self, name: str) -> str:
        """Module of a dotted name of the user's own (a module, or an attribute of one); nothing where there is none.

        From now on what lies in its package, or beside it outside of the installed packages, is the user's own too.
        """
        package = top(name)
        if package != LIBRARY:
            self.tops.add(package)
            if (base := self._base(package)) and not _installed(base):
                self.roots.add(base)
            self._files.clear()
        parts = name.split(".")
        return next((found for n in range(len(parts), 0, -1) if self.file(found := ".".join(parts[:n]))), "")

    def file(self, name: str) -> Path | None:
        """File of a module of the library or the user's own; None for all others."""
        if name not in self._files:
            self._files[name] = self._find(name)
        return self._files[name]

    def _find(self, name: str) -> Path | None:
        package, *rest = name.split(".")
        if package == LIBRARY:
            return _file(self.library.joinpath(*rest))
        if package in self.tops:
            bases = [base] if (base := self._base(package)) else []
        else:
            bases = [root for root in self.roots if package not in sys.stdlib_module_names]
        return next((found for base in bases if (found := _file(base.joinpath(package, *rest)))), None)

    def beside(self, name: str) -> list[str]:
        """All modules of the package that one of the user's own is in."""
        folder = (self._base(top(name)) or Path()) / top(name)
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else []
        stems = [path.relative_to(folder.parent).with_suffix("").parts for path in files]
        return [".".join(parts[:-1] if parts[-1] == "__init__" else parts) for parts in stems]

    def _base(self, package: str) -> Path | None:
        if package not in self._bases:
            self._bases[package] = _base(package)
        return self._bases[package]

    def module(self, name: str) -> Module | None:
        """A module of the library or of the user's own; None for one that is neither."""
        if name not in self._read:
            path = self.file(name)
            self._read[name] = self.memory.module(name, path) if path else None
        return self._read[name]

    def target(self, module: str, attribute: str) -> tuple[str, str]:
        """What ``from module import attribute`` names: a module (without attribute), or an attribute of one."""
        if attribute and self.file(f"{module}.{attribute}"):
            found = self.module(module)
            if found is None or (attribute not in found.units and attribute not in found.imports):
                return f"{module}.{attribute}", ""
        return module, attribute


def top(name: str) -> str:
    """The package that a module is in."""
    return name.partition(".")[0]


def _file(stem: Path) -> Path | None:
    for path in (stem / "__init__.py", stem.with_name(stem.name + ".py")):
        if path.is_file():
            return path
    return None


def _base(top: str) -> Path | None:
    """The folder that a package or module of the user's own is imported from; it is not imported here."""
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if found is None:
        return None
    if found.submodule_search_locations:
        return Path(next(iter(found.submodule_search_locations))).parent
    return Path(found.origin).parent if found.origin and Path(found.origin).is_file() else None


def _installed(folder: Path) -> bool:
    return str(folder) in {sysconfig.get_path(kind) for kind in ("purelib", "platlib", "stdlib", "platstdlib")}
