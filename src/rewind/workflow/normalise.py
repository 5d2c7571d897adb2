"""Source code in a normal form, so that only edits which may change a result change its hash.

:func:`parse_module` splits a file into its definitions (functions, classes, values, and what runs on import).
:func:`normalise_source` writes a definition without comments, docstrings, annotations, formatting and messages.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rewind.hashing import stable_hash

# ---- Definitions of a module ---------------------------------------------------------------------------------------

IMPORT_EFFECTS = "(import)"
"""Name of the definition that stands for the statements which run when a module is imported."""

# Decorators that return what they decorate, or a wrapper of it, and register nothing elsewhere.
_PURE_DECORATORS = {"dataclass", "property", "staticmethod", "classmethod", "contextmanager", "cache", "lru_cache"}
_PURE_DECORATORS |= {"no_grad", "inference_mode", "wraps", "runtime_checkable", "cached_property", "total_ordering"}
_PURE_DECORATORS |= {"override", "abstractmethod"}

CHECKS_OF_CLIPS = frozenset(
    f"rewind.video.shards:{name}"
    for name in ("clip_within", "refuse_outside", "refuse_shard", "check_csv", "check_clip_location", "TRUST_OPTION")
)
"""They refuse a table of clips or a path in it, or let it be read unchanged."""

CHECKS_OF_ROWS = frozenset(
    f"rewind.video.frame_store:{name}"
    for name in (
        "write_row_checksums",
        "publish_row_checksums",
        "check_row",
        "verify_row_checksums",
        "_load_row_checksums",
        "_row_checksums",
        "_write_checksum_file",
        "_read_checksum_file",
        "_items_of_row",
        "ROW_CHECKSUM_SUFFIX",
    )
)
"""They refuse a row of a frame store, or return it unchanged."""

GUARDS = (
    {
        "rewind.io.files:reading_user_file",
        "rewind.io.files:require_regular_file",
        "rewind.io.files:require_intact_archive",
        "rewind.io.files:name_file_in_errors",
        "rewind.io.files:reraise_system_error",
        "rewind.training.checkpoint_store:check_training_state",
        "rewind.video.images:refuse_decode_errors",
    }
    | CHECKS_OF_CLIPS
    | CHECKS_OF_ROWS
)
"""They refuse a file or let it pass unchanged: no result depends on them, nor on which files they guard. Calls of them
and ``with`` blocks of them alone are left out of the normal form, so a reader that gets a guard stays the same."""


@dataclass(frozen=True)
class Definition:
    """A top-level function, class or value of a module.

    Attributes:
        parts: name → hash of its normalised source; a class has one part for each of its methods.
        reads: dotted names that it reads, and ``table[key]`` for a constant key.
        imports: what it imports itself: name → (module, attribute); the attribute is empty for the module itself.
    """

    parts: dict[str, str]
    reads: frozenset[str]
    imports: dict[str, tuple[str, str]]


@dataclass
class ParsedModule:
    """The definitions and imports of a file.

    Attributes:
        units: name → definition; ``(import)`` is what runs when the module is imported, beyond definitions.
        imports: as those of a definition, at the top level of the module.
        stars: modules of which it imports ``*``.
        entries: name of a table (a dict literal) → key → its entry, as a definition of its own.
    """

    units: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    entries: dict[str, dict[str, Definition]] = field(default_factory=dict)


def parse_module(name: str, path: Path, non_semantic: frozenset[str]) -> ParsedModule:
    """Split the file of a module into definitions, without importing it.

    Args:
        name: dotted name of the module.
        path: its file.
        non_semantic: modules, or ``module:name``, that no result depends on: texts passed to them are messages.
    """
    tree = ast.parse(path.read_bytes(), filename=str(path))
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    module = ParsedModule()
    for statement in _module_imports(tree.body):
        for local, target in _bound_names(statement, package):
            if local == "*":
                module.stars.append(target[0])
            else:
                module.imports[local] = target
    names = _name_classifier(name, module.imports, non_semantic)
    effects = []
    for node in tree.body:
        bound = list(_defined_names(node))
        for defined in bound:
            _add_definition(module, defined, node, names, package)
        if "_" in bound or _has_side_effects(node):  # nobody reads `_`, so its value runs for its effect
            effects.append(node)
    source = normalise_source(effects, names)
    hashes = {IMPORT_EFFECTS: stable_hash(source.text)} if source.text else {}
    module.units[IMPORT_EFFECTS] = Definition(hashes, frozenset(source.reads), _local_imports(source, package))
    return module


def _name_classifier(name: str, imports: dict[str, tuple[str, str]], non_semantic: frozenset[str]) -> NameClassifier:
    """The classifier for a module of this name and with these imports; names without an import are its own."""

    def is_non_semantic(called: str) -> bool:
        source, attribute = imports.get(called, (name, called))
        return source in non_semantic or f"{source}:{attribute}" in non_semantic

    def is_error(called: str) -> bool:
        return imports.get(called, ("", ""))[0] == "rewind.errors"

    def is_guard(called: str) -> bool:
        source, attribute = imports.get(called, (name, called))
        return source in GUARDS or f"{source}:{attribute}" in GUARDS

    return NameClassifier(is_error, is_non_semantic, is_guard, keys=name.startswith("rewind.config."))


def _add_definition(module: ParsedModule, name: str, node: ast.stmt, names: NameClassifier, package: str) -> None:
    earlier = module.units.get(name) or Definition({}, frozenset(), {})  # a name bound twice has the hash of both
    parts, reads, imports = dict(earlier.parts), set(earlier.reads), dict(earlier.imports)
    for label, part in _split_class(name, node):
        source = normalise_source([part], names)
        parts[label] = stable_hash(parts.get(label, ""), source.text)
        reads |= source.reads
        imports |= _local_imports(source, package)
    module.units[name] = Definition(parts, frozenset(reads), imports)
    if table := _table_entries(node, names):
        module.entries[name] = table


def _split_class(name: str, node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """A function or value in one part; a class in one per method, so that ``rewind why`` can name what changed."""
    if not isinstance(node, ast.ClassDef):
        yield name, node
        return
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    others = [part for part in node.body if part not in methods]
    without_methods = ast.ClassDef(
        name=node.name, bases=node.bases, keywords=node.keywords, body=others, decorator_list=node.decorator_list
    )
    yield name, without_methods
    for method in methods:
        with_one_method = ast.ClassDef(name=node.name, bases=[], keywords=[], body=[method], decorator_list=[])
        yield f"{name}.{method.name}", with_one_method  # twice under one name for a property and its setter


def _local_imports(source: NormalisedSource, package: str) -> dict[str, tuple[str, str]]:
    return {local: target for node in source.imports for local, target in _bound_names(node, package)}


def _module_imports(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports at the top level of a module, also inside ``if`` and ``try``."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            nested = [part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]
            yield from nested


def _bound_names(node: ast.stmt, package: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Local names that an import binds → what they name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield alias.asname or first, (alias.name if alias.asname else first, "")
            yield alias.name, (alias.name, "")  # `a.b` is no variable: this says which module was run, read or not
    elif isinstance(node, ast.ImportFrom):
        # Each dot of a relative import beyond the first leads one package up.
        parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*parents, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, (module, "" if alias.name == "*" else alias.name)


def _defined_names(node: ast.stmt) -> Iterator[str]:
    """Names that a top-level statement binds or changes: ``TABLE["x"] = 1`` is part of the definition of ``TABLE``."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        return
    else:
        names = []
        for part in ast.walk(node):
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                names.append(part.name)
            elif isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                names.append(part.id)
            elif (
                isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store) and _base_name(part)
            ):
                names.append(_base_name(part))
        yield from dict.fromkeys(name for name in names if name != "__all__")


def _base_name(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _has_side_effects(node: ast.stmt) -> bool:
    """Whether a statement may do more than bind a name when the module is imported; an unknown one may."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return any(_decorator_name(part) not in _PURE_DECORATORS for part in node.decorator_list)
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(part, ast.Subscript | ast.Attribute) for part in targets)
    return not (isinstance(node, ast.Import | ast.ImportFrom) or _only_imports(node))


def _only_imports(node: ast.stmt) -> bool:
    """Whether a block holds nothing but imports, as ``if TYPE_CHECKING:`` does."""
    body = getattr(node, "body", [])
    return bool(body) and all(isinstance(part, ast.Import | ast.ImportFrom) for part in body)


def _decorator_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _table_entries(node: ast.stmt, names: NameClassifier) -> dict[str, Definition]:
    """The entries of a dict literal with constant keys, so that a study depends on the entries that it names alone."""
    value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return {}
    name = next(iter(_defined_names(node)))
    entries = {}
    for key, entry in zip(value.keys, value.values, strict=True):
        assert isinstance(key, ast.Constant)
        source, label = normalise_source([entry], names), str(key.value)
        entries[label] = Definition({f"{name}[{label}]": stable_hash(source.text)}, frozenset(source.reads), {})
    return entries


# ---- Normal form of a syntax tree ----------------------------------------------------------------------------------
# It is written here and not by ``ast.dump`` or ``ast.unparse``, whose output differs between minor versions of Python.
# A field that is None or empty is left out, so fields that a later Python adds change nothing while unused. Words such
# as ``Keys`` and ``Said`` in the output are part of every stored code hash: another word would make all runs stale.

_SKIPPED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
# They look at values and change none, so a message that calls them is still nothing but a message.
_PURE_FUNCTIONS = {"len", "sum", "min", "max", "any", "all", "sorted", "round", "abs", "isinstance", "getattr", "type"}
_PURE_FUNCTIONS |= {"str", "repr", "int", "float", "bool", "list", "tuple", "set", "dict"}
_PURE_FUNCTIONS |= {"next", "map", "range", "enumerate", "zip"}
_VALIDATOR_DECORATORS = {"field_validator", "model_validator"}
# Of rewind.config.base: position of the argument that describes a key.
_DESCRIPTION_POSITIONS = {"config_field": 1, "required_field": 0}


@dataclass(frozen=True)
class NameClassifier:
    """What the names used in a module stand for, as far as the normal form depends on it.

    Attributes:
        error: whether a name is an error for people, whose message is no result.
        non_semantic: whether a name is of code that no result depends on.
        guard: whether a name is one of :data:`GUARDS`.
        keys: whether classes of this module are configuration models, whose values are parameters of rules already.
    """

    error: Callable[[str], bool] = lambda name: False
    non_semantic: Callable[[str], bool] = lambda name: False
    guard: Callable[[str], bool] = lambda name: False
    keys: bool = False


@dataclass
class NormalisedSource:
    """Code in normal form.

    Attributes:
        text: the normal form; two pieces of code with the same text compute the same.
        reads: dotted names that the code reads: ``x``, ``x.y`` as far as all parts are plain names.
        imports: import statements inside the code.
    """

    text: str = ""
    reads: set[str] = field(default_factory=set)
    imports: list[ast.stmt] = field(default_factory=list)


def normalise_source(nodes: Iterable[ast.AST], names: NameClassifier) -> NormalisedSource:
    """The normal form of syntax trees, without what no result depends on.

    >>> def text(source):
    ...     return normalise_source(ast.parse(source).body, NameClassifier()).text
    >>> text("x = 1  # one") == text('"A docstring."; x = (1)'), text("x = 1") == text("x = 2")
    (True, False)
    """
    normaliser = _Normaliser(names)
    parts = [normaliser.any(node, False) for node in nodes]
    return NormalisedSource("\n".join(part for part in parts if part), normaliser.reads, normaliser.imports)


class _Normaliser:
    """Writes syntax trees; a node of type ``X`` is written by the method ``_X`` where there is one.

    ``in_class`` is true directly inside of a class body: there annotations define the fields of dataclasses.
    """

    def __init__(self, names: NameClassifier) -> None:
        self.names = names
        self.reads: set[str] = set()
        self.imports: list[ast.stmt] = []
        self.non_semantic_locals: set[str] = set()  # local variables such as `progress = Progress(...)`
        self.in_message = False  # inside the arguments of non-semantic code

    def any(self, node: object, in_class: bool) -> str:
        if isinstance(node, list):
            return "[" + ",".join(filter(None, (self.any(part, in_class) for part in node))) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        special = getattr(self, f"_{type(node).__name__}", None)
        return special(node, in_class) if special else self._plain(node, in_class)

    def _plain(self, node: ast.AST, in_class: bool, without: Iterable[str] = ()) -> str:
        parts = []
        for name in node._fields:
            value = getattr(node, name, None)
            if name in _SKIPPED_FIELDS or name in without or value is None or value == []:
                continue
            parts.append(f"{name}={self.any(value, in_class)}")
        return f"{type(node).__name__}({','.join(parts)})"

    # Statements

    def _Pass(self, node: ast.Pass, in_class: bool) -> str:
        return ""

    def _Import(self, node: ast.Import, in_class: bool) -> str:
        self.imports.append(node)
        return ""

    def _ImportFrom(self, node: ast.ImportFrom, in_class: bool) -> str:
        self.imports.append(node)
        return ""

    def _Expr(self, node: ast.Expr, in_class: bool) -> str:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return ""  # a docstring, also of an attribute
        if self._guards(value):
            return ""
        if isinstance(value, ast.Call) and (_is_print(value) or _leftmost_name(value.func) in self.non_semantic_locals):
            # A line on the console is a message, but what its arguments call may change values.
            calls = [self._calls(part) for part in [*value.args, *(word.value for word in value.keywords)]]
            return "".join(f"Said({call})" for call in calls if call)
        return self._plain(node, in_class)

    def _With(self, node: ast.With, in_class: bool) -> str:
        """A block of guards alone computes what its body does."""
        items = [item for item in node.items if item.optional_vars is not None or not self._guards(item.context_expr)]
        if not items:
            return ",".join(filter(None, (self.any(part, in_class) for part in node.body)))
        return self._plain(ast.With(items=items, body=node.body), in_class)

    def _guards(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and self.names.guard(node.func.id)

    def _Raise(self, node: ast.Raise, in_class: bool) -> str:
        called = node.exc.func if isinstance(node.exc, ast.Call) else None
        if isinstance(called, ast.Name) and self.names.error(called.id):
            return f"Raise({called.id})"
        return self._plain(node, in_class)

    def _Assign(self, node: ast.Assign, in_class: bool) -> str:
        self._note_non_semantic_locals(node)
        return self._plain(node, in_class)

    def _AnnAssign(self, node: ast.AnnAssign, in_class: bool) -> str:
        return self._plain(node, in_class, () if in_class else ("annotation",))

    def _FunctionDef(self, node: ast.FunctionDef, in_class: bool) -> str:
        # Only decorators read annotations. They are removed from the tree itself, which is used for nothing else.
        undecorated = not node.decorator_list
        without = ("returns",) if undecorated else ()
        if undecorated:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for argument in [*arguments, *filter(None, [node.args.vararg, node.args.kwarg])]:
                argument.annotation = None
        return self._plain(node, False, without)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef, in_class: bool) -> str:
        if self.names.keys:
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and not _is_validator(part)]
            return f"Keys({node.name},{''.join(self.any(part, True) for part in methods)})"
        return self._plain(node, True)

    # Expressions

    def _Constant(self, node: ast.Constant, in_class: bool) -> str:
        if self.in_message and isinstance(node.value, str):
            return "words"
        return f"{type(node.value).__name__}:{node.value!r}"

    def _JoinedStr(self, node: ast.JoinedStr, in_class: bool) -> str:
        return f"words{self._calls(node)}" if self.in_message else self._plain(node, in_class)

    def _Name(self, node: ast.Name, in_class: bool) -> str:
        self.reads.add(node.id)
        return f"N:{node.id}"

    def _Attribute(self, node: ast.Attribute, in_class: bool) -> str:
        if dotted := _dotted_name(node):
            self.reads.add(dotted)
            return f"N:{dotted}"
        return self._plain(node, in_class)

    def _Subscript(self, node: ast.Subscript, in_class: bool) -> str:
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load):
            self.reads.add(f"{node.value.id}[{node.slice.value!s}]")  # `HEADS["meanP"]` needs one entry of a table
            return f"N:{node.value.id}[{self.any(node.slice, in_class)}]"
        return self._plain(node, in_class)

    def _Call(self, node: ast.Call, in_class: bool) -> str:
        if (
            isinstance(node.func, ast.Name)
            and node.func.id in _DESCRIPTION_POSITIONS
            and self.names.non_semantic(node.func.id)
        ):
            position = _DESCRIPTION_POSITIONS[node.func.id]
            args = [part for n, part in enumerate(node.args) if n != position]
            rest = [self.any(part, in_class) for part in [*args, *node.keywords]]
            return f"Key({','.join(rest)})"
        if isinstance(node.func, ast.Name) and self.names.non_semantic(node.func.id):
            outside, self.in_message = self.in_message, True
            text = self._plain(node, in_class)
            self.in_message = outside
            return text
        return self._plain(node, in_class)

    def _calls(self, node: ast.AST) -> str:
        """What building a message does besides: the calls and assignments in it, without harmless calls."""
        if isinstance(node, ast.Call):
            is_pure = isinstance(node.func, ast.Name) and node.func.id in _PURE_FUNCTIONS
            is_method_of_literal = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
            if not is_pure and not is_method_of_literal:
                return self.any(node, False)
        elif isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return self.any(node, False)
        return "".join(filter(None, (self._calls(part) for part in ast.iter_child_nodes(node))))

    def _note_non_semantic_locals(self, node: ast.Assign) -> None:
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for variable, value in pairs:
                function = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
                if isinstance(variable, ast.Name) and function and self.names.non_semantic(function):
                    self.non_semantic_locals.add(variable.id)


def _is_print(node: ast.Call) -> bool:
    """Whether a call prints to the console; a print to a file may write a result."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "print"):
        return False
    files = [word.value for word in node.keywords if word.arg == "file" or word.arg is None]
    return all(_dotted_name(file) in ("sys.stderr", "sys.stdout") for file in files)


def _is_validator(node: ast.FunctionDef) -> bool:
    """Whether a method of a configuration model only checks or compares keys."""
    if node.name == "fingerprint":  # it makes the parameters of rules, which Snakemake compares themselves
        return True
    decorators = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    return any(isinstance(part, ast.Name) and part.id in _VALIDATOR_DECORATORS for part in decorators)


def _leftmost_name(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted_name(node: ast.AST) -> str:
    """``a.b.c`` where all parts are plain names, else empty."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
