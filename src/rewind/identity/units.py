"""A file as units of code: functions, classes, values, and what runs when it is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rewind.files import digest
from rewind.identity.spelling import Names, Spelt, spell

EFFECTS = "(import)"  # unit of what runs when a module is imported
# Decorators that hand back what they were given, or a wrapper of it, and leave nothing behind elsewhere.
_QUIET = {"dataclass", "property", "staticmethod", "classmethod", "contextmanager", "cache", "lru_cache", "no_grad"}
_QUIET |= {
    "inference_mode",
    "wraps",
    "runtime_checkable",
    "cached_property",
    "total_ordering",
    "override",
    "abstractmethod",
}
GUARDS = {
    "rewind.files:reading_user_file",
    "rewind.files:require_regular_file",
    "rewind.files:require_whole_archive",
    "rewind.video.row_checksums",
    "rewind.video.clip_checks",
    "rewind.files:naming_file",
    "rewind.files:raise_machine_fault",
    "rewind.training.places:check_state",
    "rewind.video.images:decoding",
}
"""They refuse a file or let it pass as it is: no result depends on them, nor on which files they stand before."""


@dataclass(frozen=True)
class Unit:
    """One piece of a module.

    Attributes:
        parts: name → hash of its text; a class has one part for each of its methods.
        reads: dotted names that it reads.
        imports: what it imports itself: name → (module, attribute; nothing for the module itself).
    """

    parts: dict[str, str]
    reads: frozenset[str]
    imports: dict[str, tuple[str, str]]


@dataclass
class Module:
    """What a file holds.

    Attributes:
        units: name → piece; ``(import)`` is what runs when it is imported, beyond definitions.
        imports: as of a unit, for all of the module.
        stars: modules that it imports everything of.
        entries: name of a table (a dict that is written out) → key → its entry, as a unit.
    """

    units: dict[str, Unit] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    entries: dict[str, dict[str, Unit]] = field(default_factory=dict)


def read(name: str, path: Path, never: frozenset[str]) -> Module:
    """What the file of a module holds; ``never`` are modules, or ``module:name``, that take words alone."""
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    module = Module()
    for node in _imports(tree.body):
        for local, target in _bound(node, package):
            if local == "*":
                module.stars.append(target[0])
            else:
                module.imports[local] = target
    names = _names(name, module.imports, never)
    effects = []
    for node in tree.body:
        bound = list(_defined(node))
        for one in bound:
            _define(module, one, node, names, package)
        if "_" in bound or _leaves_traces(node):
            effects.append(node)
    spelt = spell(effects, names)
    hashes = {EFFECTS: digest(spelt.text)} if spelt.text else {}
    module.units[EFFECTS] = Unit(hashes, frozenset(spelt.reads), _inner(spelt, package))
    return module


def _names(name: str, imports: dict[str, tuple[str, str]], never: frozenset[str]) -> Names:
    def plumbing(called: str) -> bool:
        where, attribute = imports.get(called, ("", ""))
        return where in never or f"{where}:{attribute}" in never

    def error(called: str) -> bool:
        return imports.get(called, ("", ""))[0] == "rewind.errors"

    def guard(called: str) -> bool:
        where, attribute = imports.get(called, (name, called))
        return where in GUARDS or f"{where}:{attribute}" in GUARDS

    return Names(error, plumbing, guard, keys=name.startswith("rewind.study."))


def _define(module: Module, name: str, node: ast.stmt, names: Names, package: str) -> None:
    old = module.units.get(name) or Unit({}, frozenset(), {})  # what is defined twice counts twice
    parts, reads, imports = dict(old.parts), set(old.reads), dict(old.imports)
    for label, piece in _pieces(name, node):
        spelt = spell([piece], names)
        parts[label] = digest(parts.get(label, ""), spelt.text)
        reads |= spelt.reads
        imports |= _inner(spelt, package)
    module.units[name] = Unit(parts, frozenset(reads), imports)
    if table := _entries(node, names):
        module.entries[name] = table


def _pieces(name: str, node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """A definition whole; a class in pieces, a method each, so that a change has a name."""
    if not isinstance(node, ast.ClassDef):
        yield name, node
        return
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    rest = [part for part in node.body if part not in methods]
    own = {"bases": node.bases, "keywords": node.keywords, "decorator_list": node.decorator_list}
    yield name, ast.ClassDef(name=node.name, body=rest, **own)
    for method in methods:
        alone = ast.ClassDef(name=node.name, bases=[], keywords=[], body=[method], decorator_list=[])
        yield f"{name}.{method.name}", alone  # a property and its setter share a name


def _inner(spelt: Spelt, package: str) -> dict[str, tuple[str, str]]:
    return {local: target for node in spelt.imports for local, target in _bound(node, package)}


def _imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports of a module itself, also behind conditions."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = [part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
            yield from inner


def _bound(node: ast.stmt, package: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local names that an import binds → what they name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield alias.asname or first, (alias.name if alias.asname else first, "")
            yield alias.name, (alias.name, "")  # no name has a dot: this is what ran, whether or not it is read
    elif isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*above, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, (module, "" if alias.name == "*" else alias.name)


def _defined(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        return
    else:
        found = []
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.append(part.name)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                found.append(part.id)
            elif (
                isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store) and _base_name(part)
            ):
                found.append(_base_name(part))
        yield from dict.fromkeys(name for name in found if name != "__all__")


def _base_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _leaves_traces(node: ast.stmt) -> bool:
    """Whether running a definition may do more than define: what is unknown may."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return any(_decorator(part) not in _QUIET for part in node.decorator_list)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(part, ast.Subscript | ast.Attribute) for part in targets)
    return not (isinstance(node, ast.Import | ast.ImportFrom) or _only_imports(node))


def _only_imports(node: ast.stmt) -> bool:
    """``if TYPE_CHECKING:`` and the like."""
    body = getattr(node, "body", None)
    return bool(body) and all(isinstance(part, ast.Import | ast.ImportFrom) for part in body)


def _decorator(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _entries(node: ast.stmt, names: Names) -> dict[str, Unit]:
    value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return {}
    name = next(iter(_defined(node)))
    found = {}
    for key, entry in zip(value.keys, value.values, strict=True):
        spelt = spell([entry], names)
        found[str(key.value)] = Unit({f"{name}[{key.value}]": digest(spelt.text)}, frozenset(spelt.reads), {})
    return found
