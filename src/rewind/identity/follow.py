"""From what computes a stage's output to all code that this reaches, by name.

What an object's methods do is code of its class, and a class is reached where an object is made. So following plain
names, and taking classes whole, finds all that runs, except for what is looked up at run time by a string: that is
found in the table of stages, or not at all, and a test runs the stages and compares. A name that cannot be resolved
inside of a module counts with all of the module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rewind.errors import RewindError
from rewind.identity.modules import LIBRARY, Reader, top
from rewind.identity.units import EFFECTS, Module, Unit

Parts = dict[str, str]
"""``module:name`` → hash of its text: what an identity consists of."""

WHOLE = "*"
Place = tuple[str, str]
_BY_NAME = {"importlib", "import_module", "__import__", "pkgutil"}  # what these import, nobody can tell beforehand


def follow(reader: Reader, roots: Iterable[str], instead: Mapping[str, Iterable[str]]) -> Parts:
    """The parts of an identity.

    Args:
        reader: of modules.
        roots: ``module:name``, ``module:table[key]`` for one entry of a table that is written out, or ``module``: all
            of it. A dotted path of the user's own is a module, or an attribute of one: all of the module counts.
        instead: what is followed in place of ``module:name`` where that is reached: what a string chooses.

    Raises:
        RewindError: for a root of the library that is not there.
    """
    return _Walk(reader, instead).parts(roots)


class _Walk:
    def __init__(self, reader: Reader, instead: Mapping[str, Iterable[str]]) -> None:
        self.reader, self.instead = reader, instead
        self.left: list[Place] = []
        self.seen: set[Place] = set()
        self.found: Parts = {}

    def parts(self, roots: Iterable[str]) -> Parts:
        for root in roots:
            self._root(root)
        while self.left:
            place = self.left.pop()
            if place not in self.seen:
                self.seen.add(place)
                self._visit(*place)
        return dict(sorted(self.found.items()))

    def _root(self, root: str) -> None:
        module, _, name = root.partition(":")
        if top(module) != LIBRARY:
            if module := self.reader.own(module):
                self.left.append((module, WHOLE))
            return
        known, table = self.reader.module(module), name.partition("[")[0]
        if known is None or (table and table not in known.units and table not in known.imports):
            raise RewindError(f"the table of stages names {root}, which is not there.")
        self.left.append((module, name or WHOLE))

    def _visit(self, module: str, name: str) -> None:
        if module in self.reader.never or f"{module}:{name}" in self.reader.never:
            return
        if (chosen := self.instead.get(f"{module}:{name}")) is not None:
            for root in chosen:
                self._root(root)
            return
        known = self.reader.module(module)
        if known is None:
            return
        table, _, key = name.removesuffix("]").partition("[")
        if key and table not in known.imports:
            if key in known.entries.get(table, {}):
                self._unit(module, known, known.entries[table][key])
            else:
                self.left.append((module, table))
            return
        self.left.append((module, EFFECTS))
        self.left += [(above, EFFECTS) for above in _above(module)]
        if name == WHOLE:
            self._whole(module, known)
        elif name in known.units:
            self._unit(module, known, known.units[name])
        elif table in known.imports:
            where, attribute = known.imports[table]
            self._place(where, f"{attribute}[{key}]" if key and attribute else attribute)
        elif stars := [star for star in known.stars if self.reader.file(star)]:
            self.left += [(star, name) for star in stars]
        elif name != EFFECTS:
            self.left.append((module, WHOLE))  # made at run time, so it can be anything

    def _whole(self, module: str, known: Module) -> None:
        self.left += [(module, name) for name in known.units]
        self.left += [(star, WHOLE) for star in known.stars]
        if top(module) != LIBRARY:  # in code that we do not know an import may be there for what it does
            for imports in [known.imports, *(unit.imports for unit in known.units.values())]:
                for target in imports.values():
                    self._place(*target)
            if any(top(read) in _BY_NAME for unit in known.units.values() for read in unit.reads):
                self.left += [(other, WHOLE) for other in self.reader.beside(module)]

    def _unit(self, module: str, known: Module, unit: Unit) -> None:
        self.found |= {f"{module}:{part}": mark for part, mark in unit.parts.items()}
        for read in unit.reads:
            self._read(module, known, read, unit.imports)

    def _read(self, module: str, known: Module, dotted: str, inner: Mapping[str, Place]) -> None:
        """A name that code of a module reads."""
        dotted, bracket, key = dotted.partition("[")
        first, *rest = dotted.split(".")
        if first in inner or first in known.imports:
            where, attribute = inner.get(first) or known.imports[first]
            self._place(where, attribute + bracket + key if attribute and not rest else attribute, *rest)
        elif first in known.units:
            self.left.append((module, first + bracket + key if not rest else first))
        else:  # local, built in, or of a star
            self.left += [(star, first) for star in known.stars if self._has(star, first)]

    def _place(self, module: str, attribute: str, *rest: str) -> None:
        """What an import names, and attributes of it as long as they are modules."""
        module, attribute = self.reader.target(module, attribute)
        names = list(rest)
        while not attribute and names and self.reader.file(module):
            module, attribute = self.reader.target(module, names.pop(0))
        if not self.reader.file(module):
            return
        own = top(module) != LIBRARY
        self.left.append((module, WHOLE if own or not attribute else attribute))

    def _has(self, star: str, name: str) -> bool:
        known = self.reader.module(star)
        return known is not None and (name in known.units or name in known.imports)


def _above(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]
