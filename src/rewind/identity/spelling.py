"""A piece of code as text that changes where its meaning may: no comments, docstrings, formatting or words for people.

The syntax tree is spelt out here and not by ``ast.dump`` or ``ast.unparse``, whose output differs between minor
versions of Python: a field that is None or empty is left out, so fields that a later Python adds change nothing while
they are not used.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_SKIPPED = {"ctx", "kind", "type_comment", "type_ignores"}
# They look at values and change none, so a message that calls them is words all the same.
_HARMLESS = {
    "len",
    "str",
    "repr",
    "int",
    "float",
    "round",
    "sum",
    "min",
    "max",
    "sorted",
    "list",
    "tuple",
    "type",
    "abs",
}
_HARMLESS |= {"any", "all", "next", "set", "dict", "map", "range", "enumerate", "zip", "bool", "isinstance", "getattr"}
_VALIDATORS = {"field_validator", "model_validator"}
_DESCRIBED = {"key": 1, "required": 0}  # rewind.study.keys: place of the sentence for people


@dataclass(frozen=True)
class Names:
    """What names of a module mean, as far as spelling depends on it.

    Attributes:
        error: whether a name is an error for people, whose message is no result.
        plumbing: whether a name is of a module that never counts.
        guard: whether a name refuses a file or lets it pass, and says what is wrong with one.
        keys: whether classes here read keys, whose values are parameters of rules already.
    """

    error: Callable[[str], bool] = lambda name: False
    plumbing: Callable[[str], bool] = lambda name: False
    guard: Callable[[str], bool] = lambda name: False
    keys: bool = False


@dataclass
class Spelt:
    """Text of a piece of code, and the dotted names that it reads (``x``, ``x.y`` as far as they are plain)."""

    text: str = ""
    reads: set[str] = field(default_factory=set)
    imports: list[ast.stmt] = field(default_factory=list)


def spell(nodes: Iterable[ast.AST], names: Names) -> Spelt:
    """The text and the names of nodes; imports inside of functions are handed back beside them."""
    speller = _Speller(names)
    parts = [speller.any(node, False) for node in nodes]
    return Spelt("\n".join(part for part in parts if part), speller.reads, speller.imports)


class _Speller:
    def __init__(self, names: Names) -> None:
        self.names = names
        self.reads: set[str] = set()
        self.imports: list[ast.stmt] = []
        self.plumbing: set[str] = set()  # local names of progress and the like
        self.mute = False  # among what is said to people

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
            if name in _SKIPPED or name in without or value is None or value == []:
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
        if isinstance(value, ast.Call) and (_is_print(value) or _root(value.func) in self.plumbing):
            calls = [self._calls(part) for part in [*value.args, *(word.value for word in value.keywords)]]
            return "".join(f"Said({call})" for call in calls if call)
        return self._plain(node, in_class)

    def _With(self, node: ast.With, in_class: bool) -> str:
        """A block around which a file is guarded computes what is in it."""
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
        self._note_plumbing(node)
        return self._plain(node, in_class)

    def _AnnAssign(self, node: ast.AnnAssign, in_class: bool) -> str:
        return self._plain(node, in_class, () if in_class else ("annotation",))

    def _FunctionDef(self, node: ast.FunctionDef, in_class: bool) -> str:
        # Annotations mean something to decorators alone.
        bare = not node.decorator_list
        without = ("returns",) if bare else ()
        if bare:
            everything = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            for argument in [*everything, *filter(None, [node.args.vararg, node.args.kwarg])]:
                argument.annotation = None
        return self._plain(node, False, without)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef, in_class: bool) -> str:
        if self.names.keys:
            methods = [part for part in node.body if isinstance(part, ast.FunctionDef) and not _validates(part)]
            return f"Keys({node.name},{''.join(self.any(part, True) for part in methods)})"
        return self._plain(node, True)

    # Expressions

    def _Constant(self, node: ast.Constant, in_class: bool) -> str:
        if self.mute and isinstance(node.value, str):
            return "words"
        return f"{type(node.value).__name__}:{node.value!r}"

    def _JoinedStr(self, node: ast.JoinedStr, in_class: bool) -> str:
        return f"words{self._calls(node)}" if self.mute else self._plain(node, in_class)

    def _Name(self, node: ast.Name, in_class: bool) -> str:
        self.reads.add(node.id)
        return f"N:{node.id}"

    def _Attribute(self, node: ast.Attribute, in_class: bool) -> str:
        if dotted := _dotted(node):
            self.reads.add(dotted)
            return f"N:{dotted}"
        return self._plain(node, in_class)

    def _Subscript(self, node: ast.Subscript, in_class: bool) -> str:
        if isinstance(node.value, ast.Name) and isinstance(node.slice, ast.Constant) and isinstance(node.ctx, ast.Load):
            self.reads.add(f"{node.value.id}[{node.slice.value}]")  # perhaps one entry of a table
            return f"N:{node.value.id}[{self.any(node.slice, in_class)}]"
        return self._plain(node, in_class)

    def _Call(self, node: ast.Call, in_class: bool) -> str:
        if isinstance(node.func, ast.Name) and node.func.id in _DESCRIBED and self.names.plumbing(node.func.id):
            at = _DESCRIBED[node.func.id]
            args = [part for place, part in enumerate(node.args) if place != at]
            rest = [self.any(part, in_class) for part in [*args, *node.keywords]]
            return f"Key({','.join(rest)})"
        if isinstance(node.func, ast.Name) and self.names.plumbing(node.func.id):
            before, self.mute = self.mute, True
            text = self._plain(node, in_class)
            self.mute = before
            return text
        return self._plain(node, in_class)

    def _calls(self, node: ast.AST) -> str:
        """What a message does besides saying words: the calls and assignments in it."""
        if isinstance(node, ast.Call):
            harmless = isinstance(node.func, ast.Name) and node.func.id in _HARMLESS
            joining = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant)
            if not harmless and not joining:
                return self.any(node, False)
        elif isinstance(node, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom):
            return self.any(node, False)
        return "".join(filter(None, (self._calls(part) for part in ast.iter_child_nodes(node))))

    def _note_plumbing(self, node: ast.Assign) -> None:
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=False))
            for name, value in pairs:
                made = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
                if isinstance(name, ast.Name) and made and self.names.plumbing(made):
                    self.plumbing.add(name.id)


def _is_print(node: ast.Call) -> bool:
    """A print to the console; one to a file may write a result."""
    if not (isinstance(node.func, ast.Name) and node.func.id == "print"):
        return False
    files = [word.value for word in node.keywords if word.arg == "file" or word.arg is None]
    return all(_dotted(file) in ("sys.stderr", "sys.stdout") for file in files)


def _validates(node: ast.FunctionDef) -> bool:
    if node.name == "signature":  # of keys: it makes parameters of rules, which are compared themselves
        return True
    found = [part.func if isinstance(part, ast.Call) else part for part in node.decorator_list]
    return any(isinstance(part, ast.Name) and part.id in _VALIDATORS for part in found)


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of plain names, else nothing."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""
