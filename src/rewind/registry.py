"""What a study may name, by kind: ``head: seqTransf``, ``objective: hnac``, ``encoder: open_clip``, ``format: rtime``.

A built-in component registers itself where it is written::

    @LOSSES.register("hnac")
    class Hnac(Objective): ...

and is found by that name. Code outside of the package is named by its dotted path, ``mylab.losses.Margin``, and needs
no decorator. Which module has which name is read from the text of the package's modules, so that the workflow can ask
while its rules are read, without importing torch.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from rewind.errors import RewindError
from rewind.optional_packages import make_torchvision_importable
from rewind.working_folder import add_own_modules

Component = TypeVar("Component")


TAGS = {
    # Of models.
    "files": "vectors or scores from files: nothing is trained or encoded",
    "blind": "sees too little to know the direction from language and vision together; evaluated only in Binary",
    "traces": "reads traces of clips in the place of frames",
    "no backbone": "never uses the study's backbone",
    "no towers": "cannot encode a text or picture of one's own; nothing in it learns by gradient descent",
    "as it is": "scored without training",
    "cosines": "its scores are cosines; those of other models are logits",
    # Of heads.
    "transformer": "has a transformer over frames",
    # Of backbones.
    "seeded": "its visual tower, if it has no weights, is initialised from the seed of the run",
}
"""What is known of a component before it is imported, by the words of its decorator."""


class Registered(NamedTuple):
    """What a decorator in the text of the package says."""

    full_name: str  # module:attribute
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Registry:
    """The components of one kind.

    >>> LOSSES.find("hnac").__name__
    'Hnac'
    """

    variable: str  # the name that this registry has here, by which its decorators are found
    kind: str  # in messages
    package: str  # whose modules register the built-in ones
    key: str  # of a study or a data set, which names one
    arguments: tuple[str, ...]  # of a function of the user's own; empty: only classes and their instances will do
    methods: tuple[str, ...]  # of which a class of the user's own has one at least

    def register(self, name: str, tags: Sequence[str] = (), **hooks: Any) -> Callable[[Component], Component]:
        """A decorator that makes a class or a function of this package a component, by the name that studies use.

        ``tags``, among :data:`TAGS`, say what must be known before it is imported. ``hooks`` are further functions of
        the component, which become attributes of what is decorated: for example ``check``, called before the first job.
        """

        def decorate(component: Component) -> Component:
            for hook, function in hooks.items():
                setattr(component, hook, function)
            return component

        assert "." not in name, f"{name}: a name with a dot is a path of the user's own"
        assert TAGS.keys() >= set(tags), f"{name}: unknown tags {tags}"
        return decorate

    def names(self) -> tuple[str, ...]:
        """The built-in names, sorted.

        >>> SAMPLERS.names()
        ('pk', 'topical', 'uniform')
        """
        return tuple(sorted(_registered(self.package, self.variable)))

    def tagged(self, tag: str) -> tuple[str, ...]:
        """The built-in names with a tag of :data:`TAGS`, sorted; nothing is imported.

        >>> MODELS.tagged("files")
        ('scores', 'vectors')
        """
        return _tagged(self.package, self.variable, tag)

    def full_name(self, name: str) -> str:
        """``module:attribute`` of a built-in name; a dotted path of the user's own unchanged. Nothing is imported.

        A name that nothing has becomes a module of the package, which does not exist either.

        >>> MODELS.full_name("ridge"), MODELS.full_name("mylab.model")
        ('rewind.models.baselines:build_ridge', 'mylab.model')
        """
        known = _registered(self.package, self.variable)
        return known[name].full_name if name in known else name if "." in name else f"{self.package}.{name}"

    def attribute(self, name: str) -> Any:
        """A built-in class or function by the name that it has in Python, for ``from rewind.losses import Hnac``.

        Raises:
            AttributeError: if no built-in component has this name.
        """
        for entry in _registered(self.package, self.variable).values():
            module, _, attribute = entry.full_name.partition(":")
            if attribute == name:
                return getattr(importlib.import_module(module), attribute)
        raise AttributeError(f"module {self.package!r} has no attribute {name!r}")

    def find(self, name: str, key: str = "") -> Any:
        """The component of a name: what was registered, or, for a dotted path, the user's own module or its attribute.

        Raises:
            RewindError: naming ``key``, by default the registry's, if there is none.
        """
        key = key or self.key
        if "." in name:
            component = import_path(name, key)
            if fault := self._fault(component):
                raise RewindError(
                    f"{key}: {name} {fault}, so it cannot be used as the {self.kind} and is not called; name your own."
                )
            return component
        known = _registered(self.package, self.variable)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise RewindError(
                f"{key}: cannot find {name!r}: no such {self.kind}.{meant} Available: {', '.join(self.names())}, or "
                "the dotted path of your own."
            )
        module, _, attribute = known[name].full_name.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise RewindError(f"{key}: cannot import {name!r} ({error}).") from error

    def _fault(self, component: Any) -> str:
        """Why a class or a function cannot be of this kind; nothing is called."""
        if isinstance(component, type):
            found = any(method in vars(base) for base in component.__mro__[:-1] for method in self.methods)
            return "" if found else f"is a class without {' or '.join(f'`{method}`' for method in self.methods)}"
        if not inspect.isroutine(component) and not isinstance(component, functools.partial):
            return ""  # an object, which is not called before its methods are known
        if any(hasattr(component, method) for method in self.methods if method != "__call__"):
            return ""
        if not self.arguments:
            return "is a function, where a class is needed"
        try:
            inspect.signature(component).bind(*self.arguments)
        except (TypeError, ValueError):  # a builtin of C has no signature
            return f"cannot be called with ({', '.join(self.arguments)})"
        return ""


_TOWERS = ("backbone", "text", "train_captions")
MODELS = Registry("MODELS", "model", "rewind.models", "methods.*.model", ("method", *_TOWERS), ("build",))
HEADS = Registry("HEADS", "head", "rewind.models.heads", "methods.*.head", (), ("forward", "__call__"))
BACKBONES = Registry("BACKBONES", "backbone", "rewind.models", "backbone.kind", _TOWERS, ("build",))
LOSSES = Registry(
    "LOSSES",
    "loss",
    "rewind.losses",
    "training.objective",
    ("retriever", "text", "items", "batch"),
    ("__call__", "forward", "build"),
)
SAMPLERS = Registry(
    "SAMPLERS", "sampler", "rewind.training.samplers", "training.batch.sampler", (), ("batches", "build")
)
ENCODERS = Registry(
    "ENCODERS",
    "encoder",
    "rewind.encoders",
    "encoder",
    ("encoding",),
    ("build", "encode_texts", "encode_clips", "encode_composed", "encode_files", "score"),
)
FORMATS = Registry("FORMATS", "format", "rewind.data.formats", "source.format", ("dataset", "sources"), ("read",))
# Not a hook of the format: what its decorator names is code of every stage that reads annotations.
DUMMY_DATA = Registry("DUMMY_DATA", "format with dummy data", "rewind.data.formats", "source.format", (), ())


def head_modules(model: str, head: str) -> list[str]:
    """The code of the heads that a method may look up: its own, or any where a model of the user's looks it up.

    >>> head_modules("clip4clip", "xpool"), head_modules("ridge", "meanP")
    (['rewind.models.heads.xpool:XPool'], [])
    """
    if "." in model:
        return [*map(HEADS.full_name, HEADS.names()), *[head] * ("." in head)]
    return [HEADS.full_name(head)] if model == "clip4clip" or "." in head else []


@functools.cache
def _registered(package: str, variable: str) -> Mapping[str, Registered]:
    """Name → what the modules of a package register by it."""
    folder = Path(__file__).parent.joinpath(*package.split(".")[1:])
    decorator = re.compile(
        rf'^@{variable}\.register\(\s*"(?P<name>\w+)"(?:,\s*tags=(?P<tags>\(.*?\)))?[^@]*?\)\n'
        r"(?:@.*\n)*(?:class|def) (?P<attribute>\w+)",
        re.MULTILINE,
    )
    return {
        match["name"]: Registered(
            f"{package}.{'.'.join(path.relative_to(folder).with_suffix('').parts)}:{match['attribute']}",
            tuple(re.findall(r'"(.*?)"', match["tags"] or "")),
        )
        for path in sorted(folder.rglob("*.py"))
        for match in decorator.finditer(path.read_text(encoding="utf-8"))
    }


@functools.cache  # properties of methods ask for every job of a workflow
def _tagged(package: str, variable: str, tag: str) -> tuple[str, ...]:
    assert tag in TAGS
    return tuple(sorted(name for name, entry in _registered(package, variable).items() if tag in entry.tags))


def import_path(path: str, key: str) -> Any:
    """A module of the user's own, or an attribute of one, by its dotted path.

    Raises:
        RewindError: naming the configuration ``key`` if nothing has this path, or it is Python's own: nothing of the
            standard library is imported or called because a file names it.
    """
    module, _, attribute = path.rpartition(".")
    if _is_standard(path.partition(".")[0]):
        raise RewindError(
            f"{key}: {path} is part of Python's standard library; name a class or a function of your own."
        )
    make_torchvision_importable()
    add_own_modules()
    try:
        # An attribute first: a package may have a module and a function of one name.
        if importlib.util.find_spec(module) and hasattr(parent := importlib.import_module(module), attribute):
            found = getattr(parent, attribute)
        else:
            found = importlib.import_module(path)
    except (ImportError, AttributeError) as error:
        raise RewindError(
            f"{key}: cannot find {path!r} ({error}). Modules of your own are looked for among installed packages, in "
            "folders of PYTHONPATH, and next to the Snakefile of the folder in which you start."
        ) from error
    home = found.__name__ if isinstance(found, ModuleType) else str(getattr(found, "__module__", None) or "")
    is_code = isinstance(found, type | ModuleType) or inspect.isroutine(found)
    if is_code and _is_standard(home.partition(".")[0]):  # under another name
        raise RewindError(f"{key}: {path} is {home}'s, of Python's standard library; name what is your own.")
    return found


def _is_standard(package: str) -> bool:
    """Whether a name is a package of Python's standard library, and not one of the user's that goes before it."""
    if package not in sys.stdlib_module_names:
        return False
    spec = importlib.util.find_spec(package)
    folder = Path(sysconfig.get_path("stdlib"))
    return spec is None or spec.origin in (None, "built-in", "frozen") or Path(str(spec.origin)).is_relative_to(folder)
