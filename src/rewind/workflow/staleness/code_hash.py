"""The code hash of a stage: a hash of all definitions that its output depends on, passed by rules as ``code``.

From the roots of a stage, names are followed through the syntax trees of the library and of the user's own modules;
nothing is imported. The hash and the definitions behind it are stored, so that ``rewind why`` can say which changed.

- A *definition* is a function, a class or a value at the top level of a module.
- *Parts* are the pieces of definitions that have a hash of their own: a function or a value is one part, a class one
  for each method. A code hash is the hash of all parts that are reached.
- *Roots* are where following begins: the stage's script, and what it reaches by no name
  (:func:`rewind.workflow.stages.code_roots`).
- *Named* code is further roots, which a study names by a string: a model, a head, a loss, a data format
  (``CodeDependencies.modules``).
- *Dynamic* names stand for code that runs only where a key asks for it, as what classifies images in validation. Where
  one is reached, the roots that the keys chose are followed in its place (``CodeDependencies.dynamic``).
- *Ignored* code computes nothing that is in a result (:mod:`rewind.workflow.staleness.no_effect`): it is not followed.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from rewind.errors import RewindError
from rewind.hashing import sha256_hex, short_hash, stable_hash
from rewind.io.cache import JsonCache
from rewind.io.files import read_cached_json, write_json
from rewind.packaged import WHEEL_FOLDER
from rewind.workflow.stages import SCRIPTS, CodeDependencies, code_roots
from rewind.workflow.staleness.no_effect import is_ignored
from rewind.workflow.staleness.normalise import (
    IMPORT_EFFECTS,
    ParsedModule,
    Target,
    module_from_json,
    module_to_json,
    parse_module,
)

LIBRARY = "rewind"

DefinitionHashes = dict[str, str]
"""``module:part`` → hash of its normalised source: what a code hash is made of."""

# ---- Hashes of stages, and the store of the definitions behind them ------------------------------------------------

CODE_HASH_FOLDER = Path(".snakemake/rewind/identity")
"""Where the definitions behind each hash are kept: next to Snakemake's own record of what was made with which hash."""


class StageCode:
    """Finds the definitions that stages depend on; each file is parsed once.

    Args:
        scripts: folder of the workflow's scripts; None: that of the checkout or wheel that this module is in.
        library: folder of the package ``rewind``; None: the one that this module is in.

    >>> definitions = StageCode().parts("sweep")
    >>> "rewind.training.sweep:choose_frames" in definitions, "rewind.errors:RewindError" in definitions
    (True, False)
    >>> len(compute_code_hash("sweep", definitions))
    16
    """

    def __init__(self, *, scripts: Path | None = None, library: Path | None = None, memory: Path | None = None) -> None:
        self.reader = ModuleReader(library or Path(__file__).parents[2], is_ignored, memory, scripts)

    def parts(self, stage: str, dependencies: CodeDependencies | None = None) -> DefinitionHashes:
        """The parts that a stage, or one of :data:`rewind.workflow.stages.SUB_STAGES`, needs, with hashes."""
        dependencies = dependencies or CodeDependencies()
        dynamic = sorted((name, tuple(roots)) for name, roots in dependencies.dynamic().items())
        return dict(self._parts(stage, tuple(dict.fromkeys(dependencies.modules)), tuple(dynamic)))

    # Every job of a rule asks for the same few combinations while the workflow is read.
    @functools.cache  # noqa: B019 - one object lives as long as the process
    def _parts(
        self, stage: str, named: tuple[str, ...], dynamic: tuple[tuple[str, tuple[str, ...]], ...]
    ) -> DefinitionHashes:
        return reachable_definitions(self.reader, (*code_roots(stage), *named), dict(dynamic))


def compute_code_hash(stage: str, definitions: DefinitionHashes) -> str:
    """The code hash of a stage, 16 hex digits."""
    return stable_hash(stage, definitions)


def store_code_hash(stage: str, definitions: DefinitionHashes, store: Path = CODE_HASH_FOLDER) -> str:
    """The code hash of a stage, whose definitions are stored so that ``rewind why`` can say what changed since."""
    code_hash = compute_code_hash(stage, definitions)
    path = store / f"{code_hash}.json"
    if not path.is_file():  # a file of this name holds the same: the name is a hash of it
        with contextlib.suppress(OSError):  # a read-only checkout can still be looked at
            write_json(path, {"stage": stage, "parts": definitions})
    return code_hash


def load_code_hash(code_hash: str, store: Path = CODE_HASH_FOLDER) -> tuple[str, DefinitionHashes] | None:
    """The stage and the definitions of a code hash, if they were stored."""
    try:
        content = read_cached_json(store / f"{code_hash}.json")
        return content["stage"], content["parts"]
    except (KeyError, TypeError):
        return None


@functools.cache
def library_hash() -> str:
    """Content hash of all files of the library, comments included: for what is cheap to do again.

    A wheel and a checkout of the same code have the same hash: the workflow, which only a wheel holds inside the
    package, is left out.
    """
    root = Path(__file__).parents[2]
    paths = [path for path in sorted(root.rglob("*.py")) if path.relative_to(root).parts[0] != WHEEL_FOLDER]
    return short_hash(*(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() for path in paths))


# ---- Following names from the roots of a stage ---------------------------------------------------------------------
# Methods of an object are code of its class, and a class is reached where an object is created. So following plain
# names, and taking classes whole, finds all that runs, except what is looked up by a string at run time: that is named
# in the table of stages, and a test runs the stages and compares. A name that cannot be resolved inside a module makes
# the whole module count: too much code in a hash costs a run, too little hides an edit.

WHOLE_MODULE = "*"

_DYNAMIC_IMPORTS = {"importlib", "import_module", "__import__", "pkgutil"}  # they import modules known at run time only


def reachable_definitions(
    reader: ModuleReader, roots: Iterable[str], dynamic: Mapping[str, Iterable[str]]
) -> DefinitionHashes:
    """The parts that are reached from roots, each with its hash.

    Args:
        roots: ``module:name``, ``module:table[key]`` for one entry of a table (a dict literal), or ``module`` for all
            of it. A dotted path of the user's own is a module or an attribute of one: all of the module counts.
        dynamic: ``module:name`` → the roots that are followed in its place where it is reached.
    """
    walk = _ReferenceWalk(reader, dynamic)
    for root in roots:
        walk.add_root(root)
    visited: set[Target] = set()
    while walk.pending:
        name = walk.pending.pop()
        if name not in visited:
            visited.add(name)
            walk.visit(*name)
    return dict(sorted(walk.hashes.items()))


class _ReferenceWalk:
    """A depth-first walk over names: ``pending`` are to be visited, ``hashes`` are of the parts reached.

    A name is a module and what is asked of it: a definition, ``table[key]``, or :data:`WHOLE_MODULE`.
    """

    def __init__(self, reader: ModuleReader, dynamic: Mapping[str, Iterable[str]]) -> None:
        self.reader, self.dynamic = reader, dynamic
        self.pending: list[Target] = []
        self.hashes: DefinitionHashes = {}

    def add_root(self, root: str) -> None:
        module, _, name = root.partition(":")
        if top_package(module) != LIBRARY:
            if module := self.reader.own(module):
                self.pending.append((module, WHOLE_MODULE))
            return
        parsed, table = self.reader.module(module), name.partition("[")[0]
        if parsed is None or (table and table not in parsed.units and table not in parsed.imports):
            raise RewindError(f"the table of stages names {root}, which does not exist.")
        self.pending.append((module, name or WHOLE_MODULE))

    def visit(self, module: str, name: str) -> None:
        if self.reader.is_ignored(f"{module}:{name}"):
            return
        if (roots := self.dynamic.get(f"{module}:{name}")) is not None:
            for root in roots:
                self.add_root(root)
            return
        if (parsed := self.reader.module(module)) is None:
            return
        # Importing a module runs its top-level statements and those of the packages that it is in.
        packages = module.split(".")
        self.pending += [(".".join(packages[:end]), IMPORT_EFFECTS) for end in range(1, len(packages) + 1)]
        table, bracket, _ = name.partition("[")
        if name == WHOLE_MODULE:
            self._visit_whole_module(module, parsed)
        elif definition := parsed.units.get(name):
            self.hashes |= {f"{module}:{part}": source_hash for part, source_hash in definition.parts.items()}
            for read in definition.reads:
                self._follow_name(module, parsed, read, definition.imports)
        elif table in parsed.imports:
            source, attribute = parsed.imports[table]
            self._follow_import(source, attribute + name[len(table) :] if attribute else "")
        elif bracket:
            self.pending.append((module, table))
        elif stars := [star for star in parsed.stars if self.reader.file(star)]:
            self.pending += [(star, name) for star in stars]
        else:
            self.pending.append((module, WHOLE_MODULE))  # created at run time, so it can be anything

    def _visit_whole_module(self, module: str, parsed: ParsedModule) -> None:
        self.pending += [(module, name) for name in parsed.units if "[" not in name]
        self.pending += [(star, WHOLE_MODULE) for star in parsed.stars]
        if top_package(module) == LIBRARY:
            return
        # The user's own code may import a module for what its import does.
        for imports in [parsed.imports, *(unit.imports for unit in parsed.units.values())]:
            for target in imports.values():
                self._follow_import(*target)
        if any(top_package(name) in _DYNAMIC_IMPORTS for unit in parsed.units.values() for name in unit.reads):
            self.pending += [(sibling, WHOLE_MODULE) for sibling in self.reader.beside(module)]

    def _follow_name(self, module: str, parsed: ParsedModule, dotted: str, local_imports: Mapping[str, Target]) -> None:
        """Follow a dotted name, or ``table[key]``, that code of a module reads."""
        dotted, bracket, key = dotted.partition("[")
        first, *rest = dotted.split(".")
        if first in local_imports or first in parsed.imports:
            source, attribute = local_imports.get(first) or parsed.imports[first]
            self._follow_import(source, attribute + bracket + key if attribute else "", *rest)
        elif first in parsed.units:
            self.pending.append((module, first + bracket + key))
        else:  # a local variable, a builtin, or of a module that is imported with a star
            self.pending += [(star, first) for star in parsed.stars if self._defines(star, first)]

    def _follow_import(self, module: str, attribute: str, *rest: str) -> None:
        """Follow what an import names, and attributes of it as long as they are modules."""
        module, attribute = self.reader.target(module, attribute)
        names = list(rest)
        while not attribute and names and self.reader.file(module):
            module, attribute = self.reader.target(module, names.pop(0))
        if self.reader.file(module):
            is_own = top_package(module) != LIBRARY
            self.pending.append((module, WHOLE_MODULE if is_own or not attribute else attribute))

    def _defines(self, module: str, name: str) -> bool:
        parsed = self.reader.module(module)
        return parsed is not None and (name in parsed.units or name in parsed.imports)


# ---- Finding and parsing modules without importing them ------------------------------------------------------------

_MAX_CACHED_MODULES = 2000


class ModuleReader:
    """Parses modules of the library and of the user's own, without importing any.

    Args:
        library: folder of the package ``rewind``; that of another checkout may be read.
        is_ignored: whether no result depends on ``module:name``.
        memory: cache file of parsed modules, see :class:`JsonCache`.
        scripts: folder of the workflow's scripts; None: that of the library's checkout or wheel.

    >>> reader = ModuleReader(Path(__file__).parents[2])
    >>> sorted(reader.module("rewind.torch_setup").units)  # doctest: +NORMALIZE_WHITESPACE
    ['(import)', 'keep_freed_memory', 'limit_gpu_memory', 'reproduce_on_cpu', 'seed_everything', 'set_deterministic',
     'synchronise']
    """

    def __init__(
        self,
        library: Path,
        is_ignored: Callable[[str], bool] = is_ignored,
        memory: Path | None = None,
        scripts: Path | None = None,
    ) -> None:
        wheel = library / WHEEL_FOLDER
        self.scripts = scripts or (wheel if wheel.is_dir() else library.parents[1]) / "workflow/scripts"
        self.library, self.is_ignored = library, is_ignored
        self.memory = JsonCache(memory, _MAX_CACHED_MODULES)
        # How a module is parsed is part of the key: an edit of these two makes every entry invalid.
        self._parser = [Path(__file__).with_name(name).read_bytes() for name in ("normalise.py", "no_effect.py")]
        self._own_packages: set[str] = set()
        self._own_folders: set[Path] = set()
        self._read: dict[str, ParsedModule | None] = {}
        self._files: dict[str, Path | None] = {}

    def own(self, name: str) -> str:
        """Module of a dotted name of the user's own (a module, or an attribute of one); empty where there is none.

        From now on the modules of its package, and those next to it if it is not an installed package, count as the
        user's own too.
        """
        package = top_package(name)
        if package != LIBRARY:
            self._own_packages.add(package)
            if (folder := _import_folder(package)) and str(folder) not in sysconfig.get_paths().values():
                self._own_folders.add(folder)
            self._files.clear()  # modules that were not found may be the user's own now
        parts = name.split(".")
        return next((module for n in range(len(parts), 0, -1) if self.file(module := ".".join(parts[:n]))), "")

    def file(self, name: str) -> Path | None:
        """File of a module of the library or the user's own; None for all others."""
        if name not in self._files:
            self._files[name] = self._find_file(name)
        return self._files[name]

    def _find_file(self, name: str) -> Path | None:
        package, *rest = name.split(".")
        if name.startswith(f"{SCRIPTS}."):
            return _module_file(self.scripts / rest[-1])
        if package == LIBRARY:
            return _module_file(self.library.joinpath(*rest))
        if package in self._own_packages:
            folders = {folder} if (folder := _import_folder(package)) else set()
        else:
            folders = self._own_folders if package not in sys.stdlib_module_names else set()
        return next((path for folder in folders if (path := _module_file(folder.joinpath(package, *rest)))), None)

    def beside(self, name: str) -> list[str]:
        """All modules of the package that one of the user's own is in."""
        folder = (_import_folder(top_package(name)) or Path()) / top_package(name)
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else []
        names = [".".join(path.relative_to(folder.parent).with_suffix("").parts) for path in files]
        return [module.removesuffix(".__init__") for module in names]

    def module(self, name: str) -> ParsedModule | None:
        """A module of the library or of the user's own, parsed or from the cache; None for one that is neither."""
        if name not in self._read:
            path = self.file(name)
            self._read[name] = self._parse(name, path) if path else None
        return self._read[name]

    def _parse(self, name: str, path: Path) -> ParsedModule:
        key = sha256_hex(b"\0".join([*self._parser, name.encode(), path.name.encode(), path.read_bytes()]))[:32]
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):  # a damaged entry is parsed again
            return module_from_json(self.memory.get(key))
        module = parse_module(name, path, self.is_ignored)
        self.memory[key] = module_to_json(module)
        return module

    def target(self, module: str, attribute: str) -> Target:
        """What ``from module import attribute`` names: a module (with an empty attribute), or an attribute of one."""
        if attribute and self.file(f"{module}.{attribute}"):
            parsed = self.module(module)
            if parsed is None or (attribute not in parsed.units and attribute not in parsed.imports):
                return f"{module}.{attribute}", ""
        return module, attribute


def top_package(name: str) -> str:
    """The top-level package of a dotted name.

    >>> top_package("rewind.training.run")
    'rewind'
    """
    return name.partition(".")[0]


def _module_file(stem: Path) -> Path | None:
    paths = (stem / "__init__.py", stem.with_name(stem.name + ".py"))
    return next((path for path in paths if path.is_file()), None)


def _import_folder(package: str) -> Path | None:
    """The folder that a top-level package or module would be imported from; it is not imported here."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    if spec and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).parent
    return Path(spec.origin).parent if spec and spec.origin and Path(spec.origin).is_file() else None
