"""Source code in a normal form, so that only edits which may change a result change its hash.

:func:`parse_module` splits a file into its definitions (functions, classes, values, and what runs on import).
:func:`normalise_source` writes a definition without comments, docstrings, annotations, formatting and messages.
The terms are those of :mod:`rewind.workflow.staleness.code_hash`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.hashing import stable_hash
from rewind.workflow.staleness.no_effect import GUARDS

# ---- Definitions of a module ---------------------------------------------------------------------------------------

IMPORT_EFFECTS = "(import)"
"""Name of the definition that represents the statements which run when a module is imported."""

Target = tuple[str, str]
"""What an import names: module and attribute; the attribute is empty for the module itself."""

# Decorators that return what they decorate, or a wrapper of it, and register nothing elsewhere.
_PURE_DECORATORS = {"dataclass", "property", "staticmethod", "classmethod", "contextmanager", "cache", "lru_cache"}
_PURE_DECORATORS |= {"no_grad", "inference_mode", "wraps", "runtime_checkable", "cached_property", "total_ordering"}
_PURE_DECORATORS |= {"override", "abstractmethod"}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)


@dataclass
class Definition:
    """A top-level function, class or value of a module, an entry of a table, or :data:`IMPORT_EFFECTS`."""

    parts: dict[str, str] = field(default_factory=dict)  # name → hash of its normalised source; one per method
    reads: list[str] = field(default_factory=list)  # dotted names, and ``table[key]`` for a constant key
    imports: dict[str, Target] = field(default_factory=dict)  # its own, by local name

    def add(self, label: str, source: NormalisedSource) -> None:
        """Add a part; of a name that is bound twice, the hash is of both."""
        self.parts[label] = stable_hash(self.parts.get(label, ""), source.text)
        self.reads = sorted({*self.reads, *source.reads})
        self.imports |= source.imports


@dataclass
class ParsedModule:
    """The definitions and imports of a file.

    ``units`` also has ``table[key]`` → an entry of a dict literal with constant keys, so that a study depends only on
    the entries that it names.
    """

    units: dict[str, Definition] = field(default_factory=dict)
    imports: dict[str, Target] = field(default_factory=dict)  # at its top level, by local name
    stars: list[str] = field(default_factory=list)  # modules of which it imports ``*``


def module_to_json(module: ParsedModule) -> dict[str, Any]:
    """A module for :func:`module_from_json`, sharing its lists and dictionaries: ``asdict`` takes long to copy them."""
    return vars(module) | {"units": {name: vars(unit) for name, unit in module.units.items()}}


def module_from_json(content: dict[str, Any]) -> ParsedModule:
    """A module from what :func:`module_to_json` returned, once it was JSON.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: if it is something else.
    """

    def targets(imports: dict[str, Any]) -> dict[str, Target]:
        return {name: (module, attribute) for name, (module, attribute) in imports.items()}

    units = {
        name: Definition(dict(unit["parts"]), list(unit["reads"]), targets(unit["imports"]))
        for name, unit in content["units"].items()
    }
    return ParsedModule(units, targets(content["imports"]), list(content["stars"]))


def parse_module(name: str, path: Path, is_ignored: Callable[[str], bool]) -> ParsedModule:
    """Split the file of a module into definitions, without importing it.

    ``is_ignored``: whether no result depends on ``module:name``.
    """
    tree = ast.parse(path.read_bytes(), filename=str(path))
    names = NameClassifier(name, name if path.name == "__init__.py" else name.rpartition(".")[0], is_ignored)
    module = ParsedModule(imports=names.imports)
    for statement in _module_imports(tree.body):
        for local, target in _bound_names(statement, names.package):
            if local == "*":
                module.stars.append(target[0])
            else:
                module.imports[local] = target
    effects = []
    for node in tree.body:
        bound = list(_defined_names(node))
        for defined in bound:
            definition = module.units.setdefault(defined, Definition())
            for label, part in _split_class(defined, node):
                if label == defined or not is_ignored(f"{name}:{label}"):  # a method can be ignored by itself
                    definition.add(label, normalise_source([part], names))
            for key, entry in _table_entries(node).items():
                module.units[f"{defined}[{key}]"] = _definition(f"{bound[0]}[{key}]", [entry], names)
        if "_" in bound or _has_side_effects(node, names):  # no code reads `_`, so its value runs for its effect
            effects.append(node)
    module.units[IMPORT_EFFECTS] = _definition(IMPORT_EFFECTS, effects, names)
    return module


def _definition(label: str, nodes: Iterable[ast.AST], names: NameClassifier) -> Definition:
    source = normalise_source(nodes, names)
    return Definition({label: stable_hash(source.text)} if source.text else {}, sorted(source.reads), source.imports)


def _split_class(name: str, node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """A function or value in one part; a class in one per method, so that ``rewind why`` can name what changed."""
    if not isinstance(node, ast.ClassDef):
        yield name, node
        return
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    rest = [part for part in node.body if part not in methods]
    yield name, _class(node.name, rest, bases=node.bases, keywords=node.keywords, decorator_list=node.decorator_list)
    for method in methods:
        yield f"{name}.{method.name}", _class(node.name, [method])  # twice under one name for a property and its setter


def _class(name: str, body: list[ast.stmt], **fields: Any) -> ast.ClassDef:
    return ast.ClassDef(**{"name": name, "bases": [], "keywords": [], "decorator_list": [], "body": body} | fields)


def _module_imports(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Imports at the top level of a module, also inside ``if`` and ``try``."""
    for node in body:
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            yield from (part for part in ast.walk(node) if isinstance(part, _IMPORTS))


def _bound_names(node: ast.stmt, package: str) -> Iterator[tuple[str, Target]]:
    """Local names that an import binds → what they name."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            first = alias.name.partition(".")[0]
            yield alias.asname or first, (alias.name if alias.asname else first, "")
            yield alias.name, (alias.name, "")  # `a.b` is not a variable: this records which module ran, read or not
    elif isinstance(node, ast.ImportFrom):
        # Each dot of a relative import beyond the first leads one package up.
        parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        module = ".".join([*parents, *([node.module] if node.module else [])])
        for alias in node.names:
            yield alias.asname or alias.name, (module, "" if alias.name == "*" else alias.name)


def _defined_names(node: ast.stmt) -> dict[str, None]:
    """Names that a top-level statement binds or changes: ``TABLE["x"] = 1`` is part of the definition of ``TABLE``."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        return {node.name: None}
    names = []
    for part in ast.walk(node) if not isinstance(node, _IMPORTS) else ():
        if isinstance(part, (*_FUNCTIONS, ast.ClassDef)):
            names.append(part.name)
        elif isinstance(part, ast.Name | ast.Subscript | ast.Attribute) and isinstance(part.ctx, ast.Store):
            names.append(_leftmost_name(part))
    return dict.fromkeys(name for name in names if name and name != "__all__")


def _has_side_effects(node: ast.stmt, names: NameClassifier) -> bool:
    """Whether a statement may do more than bind a name when the module is imported; an unknown one may."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        called = [_called_name(part) for part in node.decorator_list]
        # `LOSSES.register("hnac")` is code of an ignored module, by whatever name it is imported.
        return any(
            name.rpartition(".")[2] not in _PURE_DECORATORS
            and not names.is_ignored(names.qualified(name.partition(".")[0]))
            for name in called
        )
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(part, ast.Subscript | ast.Attribute) for part in targets)
    body = getattr(node, "body", None) or [node]  # a block of nothing but imports, as `if TYPE_CHECKING:`, has none
    return not all(isinstance(part, _IMPORTS) for part in body)


def _table_entries(node: ast.stmt) -> dict[str, ast.expr]:
    """The entries of a dict literal with constant keys, by key."""
    value = getattr(node, "value", None) if isinstance(node, ast.Assign | ast.AnnAssign) else None
    if not isinstance(value, ast.Dict):
        return {}
    keys = [str(key.value) for key in value.keys if isinstance(key, ast.Constant)]
    return dict(zip(keys, value.values, strict=True)) if len(keys) == len(value.keys) else {}


# ---- Normal form of a syntax tree ----------------------------------------------------------------------------------
# It is written here and not by ``ast.dump`` or ``ast.unparse``, whose output differs between minor versions of Python.
# A field that is None or empty is left out, so fields that a later Python adds change nothing while unused. Words such
# as ``Keys`` and ``Said`` in the output are part of every stored code hash: another word would make all runs stale.

# ctx follows from where a node is, kind is the u before an old string; the others are about comments on types.
_SKIPPED_FIELDS = {"ctx", "kind", "type_comment", "type_ignores"}
_WRITTEN_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _SKIPPED_FIELDS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
# They look at values and change none, so a message that calls them is still nothing but a message.
_PURE_FUNCTIONS = {"len", "sum", "min", "max", "any", "all", "sorted", "round", "abs", "isinstance", "getattr", "type"}
_PURE_FUNCTIONS |= {"str", "repr", "int", "float", "bool", "list", "tuple", "set", "dict"}
_PURE_FUNCTIONS |= {"next", "map", "range", "enumerate", "zip"}
_VALIDATOR_DECORATORS = {"field_validator", "model_validator"}
# Of rewind.config.base: position of the argument that describes a key.
_DESCRIPTION_POSITIONS = {"config_field": 1, "required_field": 0}


@dataclass
class NameClassifier:
    """What the names used in a module stand for, as far as the normal form depends on it."""

    module: str = ""
    package: str = ""  # that its relative imports start from
    is_ignored: Callable[[str], bool] = lambda name: False  # whether no result depends on ``module:name``
    imports: dict[str, Target] = field(default_factory=dict)  # by local name; all other names are the module's own

    def qualified(self, name: str) -> str:
        return ":".join(self.imports.get(name, (self.module, name)))

    def ignored_call(self, node: ast.AST | None) -> str:
        """The name of the function or class that is called, if no result depends on it; else empty."""
        name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        return name if name and self.is_ignored(self.qualified(name)) else ""

    def is_guard(self, node: ast.AST) -> bool:
        """Whether an expression is a call of one of :data:`rewind.workflow.staleness.no_effect.GUARDS`."""
        return isinstance(node, ast.Call) and self.qualified(_called_name(node)) in GUARDS


@dataclass
class NormalisedSource:
    """Code in normal form; two pieces of code with the same text compute the same."""

    text: str = ""
    reads: set[str] = field(default_factory=set)  # ``x``, ``x.y`` as far as all parts are plain names
    imports: dict[str, Target] = field(default_factory=dict)  # those of the code itself, by local name


def normalise_source(nodes: Iterable[ast.AST], names: NameClassifier) -> NormalisedSource:
    """The normal form of syntax trees, without what no result depends on.

    >>> def text(source):
    ...     return normalise_source(ast.parse(source).body, NameClassifier()).text
    >>> text("x = 1  # one") == text('"A docstring."; x = (1)'), text("x = 1") == text("x = 2")
    (True, False)
    """
    normaliser = _Normaliser(names)
    normaliser.source.text = "\n".join(filter(None, map(normaliser.write, nodes)))
    return normaliser.source


class _Normaliser:
    """Writes syntax trees; a node of type ``X`` is written by the method ``_X`` where there is one."""

    def __init__(self, names: NameClassifier) -> None:
        self.names, self.source = names, NormalisedSource()
        self.ignored_locals: set[str] = set()  # variables of ignored classes, such as ``progress = Progress(...)``
        # Inside the arguments of ignored code, whose texts are messages; directly inside of a class body, where
        # annotations define the fields of dataclasses.
        self.in_message = self.in_class = False

    def write(self, node: object) -> str:
        if isinstance(node, list):
            return "[" + ",".join(filter(None, map(self.write, node))) + "]"
        if not isinstance(node, ast.AST):
            return repr(node)
        written: str = getattr(self, f"_{type(node).__name__}", self._fields)(node)
        return written

    def _fields(self, node: ast.AST, without: str = "", **state: bool) -> str:
        """The fields of a node; ``state`` are attributes of this object that have other values inside of it."""
        outside = {name: getattr(self, name) for name in state}
        self.__dict__.update(state)
        parts = []
        for name in _WRITTEN_FIELDS[type(node)]:
            value = getattr(node, name, None)
            if value is not None and value != [] and name != without:
                parts.append(f"{name}={self.write(value)}")
        self.__dict__.update(outside)
        return f"{type(node).__name__}({','.join(parts)})"

    # Statements

    def _Pass(self, node: ast.Pass) -> str:
        return ""

    def _Import(self, node: ast.Import | ast.ImportFrom) -> str:
        self.source.imports |= dict(_bound_names(node, self.names.package))
        return ""

    _ImportFrom = _Import

    def _Expr(self, node: ast.Expr) -> str:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return ""  # a docstring, also of an attribute
        if self.names.is_guard(value):
            return ""
        if isinstance(value, ast.Call) and (_is_print(value) or _leftmost_name(value.func) in self.ignored_locals):
            # A line on the console is a message, but what its arguments call may change values.
            calls = [self._calls(part) for part in [*value.args, *(word.value for word in value.keywords)]]
            return "".join(f"Said({call})" for call in calls if call)
        return self._fields(node)

    def _With(self, node: ast.With) -> str:
        """A block that consists only of guards computes what its body does."""
        items = [item for item in node.items if item.optional_vars or not self.names.is_guard(item.context_expr)]
        if not items:
            return ",".join(filter(None, map(self.write, node.body)))
        return self._fields(ast.With(items=items, body=node.body))

    def _Raise(self, node: ast.Raise) -> str:
        error = self.names.ignored_call(node.exc)
        return f"Raise({error})" if error else self._fields(node)

    def _Assign(self, node: ast.Assign) -> str:
        for target in node.targets:
            variables, values = [target], [node.value]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                variables, values = target.elts, node.value.elts
            for variable, value in zip(variables, values, strict=False):
                if isinstance(variable, ast.Name) and self.names.ignored_call(value):
                    self.ignored_locals.add(variable.id)
        return self._fields(node)

    def _AnnAssign(self, node: ast.AnnAssign) -> str:
        return self._fields(node, without="" if self.in_class else "annotation")

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        if node.decorator_list:
            return self._fields(node, in_class=False)
        # Only decorators read annotations. They are removed from the tree itself, which is used for nothing else.
        for part in ast.walk(node.args):
            if isinstance(part, ast.arg):
                part.annotation = None
        return self._fields(node, without="returns", in_class=False)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> str:
        if self.names.module.startswith("rewind.config."):  # the values of keys are parameters of rules already
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and not _is_validator(part)]
            return f"Keys({node.name},{''.join(map(self.write, methods))})"
        return self._fields(node, in_class=True)

    # Expressions

    def _Constant(self, node: ast.Constant) -> str:
        if self.in_message and isinstance(node.value, str):
            return "words"
        return f"{type(node.value).__name__}:{node.value!r}"

    def _JoinedStr(self, node: ast.JoinedStr) -> str:
        return f"words{self._calls(node)}" if self.in_message else self._fields(node)

    def _Name(self, node: ast.Name | ast.Attribute) -> str:
        if dotted := _dotted_name(node):
            self.source.reads.add(dotted)
            return f"N:{dotted}"
        return self._fields(node)

    _Attribute = _Name

    def _Subscript(self, node: ast.Subscript) -> str:
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load):
            self.source.reads.add(f"{node.value.id}[{node.slice.value!s}]")  # `TABLE["x"]` needs only one entry
            return f"N:{node.value.id}[{self.write(node.slice)}]"
        return self._fields(node)

    def _Call(self, node: ast.Call) -> str:
        called = self.names.ignored_call(node)
        if called in _DESCRIPTION_POSITIONS:
            args = [part for n, part in enumerate(node.args) if n != _DESCRIPTION_POSITIONS[called]]
            return f"Key({','.join(map(self.write, [*args, *node.keywords]))})"
        return self._fields(node, in_message=True) if called else self._fields(node)

    def _calls(self, node: ast.AST) -> str:
        """What building a message does besides: the calls and assignments in it, without harmless calls."""
        if isinstance(node, ast.Call):
            is_pure = isinstance(node.func, ast.Name) and node.func.id in _PURE_FUNCTIONS
            is_method_of_literal = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
            if not is_pure and not is_method_of_literal:
                return self.write(node)
        elif isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return self.write(node)
        return "".join(map(self._calls, ast.iter_child_nodes(node)))


def _is_print(node: ast.Call) -> bool:
    """Whether a call prints to the console; a print to a file may write a result."""
    files = [word.value for word in node.keywords if word.arg in ("file", None)]
    return _called_name(node) == "print" and all(_dotted_name(file) in ("sys.stderr", "sys.stdout") for file in files)


def _is_validator(node: ast.FunctionDef) -> bool:
    """Whether a method of a configuration model only checks or compares keys."""
    # `fingerprint` makes the parameters of rules, which Snakemake compares itself.
    return node.name == "fingerprint" or any(
        _called_name(part) in _VALIDATOR_DECORATORS for part in node.decorator_list
    )


def _called_name(node: ast.expr) -> str:
    """``a.b`` of ``a.b`` and of ``a.b(...)``; empty for other expressions."""
    return _dotted_name(node.func if isinstance(node, ast.Call) else node)


def _leftmost_name(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted_name(node: ast.AST) -> str:
    """``a.b.c`` where all parts are plain names, else empty."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
