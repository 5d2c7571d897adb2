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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rewind.errors import RewindError
from rewind.optional_packages import make_torchvision_importable
from rewind.working_folder import add_own_modules

Component = TypeVar("Component")


@dataclass(frozen=True)
class Registry:
    """The components of one kind.

    Attributes:
        variable: the name that this registry has here, by which its decorators are found.
        kind: in messages.
        package: whose modules register the built-in ones.
        key: of a study or a data set, which names one.

    >>> LOSSES.find("hnac").__name__
    'Hnac'
    """

    variable: str
    kind: str
    package: str
    key: str

    def register(self, name: str, **hooks: Any) -> Callable[[Component], Component]:
        """A decorator that makes a class or a function of this package a component.

        Args:
            name: what studies call it.
            hooks: further functions of the component, which become attributes of what is decorated: for example
                ``check``, called before the first job.
        """

        def decorate(component: Component) -> Component:
            for hook, function in hooks.items():
                setattr(component, hook, function)
            return component

        assert "." not in name, f"{name}: a name with a dot is a path of the user's own"
        return decorate

    def names(self) -> tuple[str, ...]:
        """The built-in names, sorted.

        >>> SAMPLERS.names()
        ('pk', 'topical', 'uniform')
        """
        return tuple(sorted(_registered(self.package, self.variable)))

    def full_name(self, name: str) -> str:
        """``module:attribute`` of a built-in name; a dotted path of the user's own as it is. Nothing is imported.

        A name that nothing has becomes a module of the package, which does not exist either.

        >>> MODELS.full_name("ridge"), MODELS.full_name("mylab.model")
        ('rewind.models.baselines:build_ridge', 'mylab.model')
        """
        return name if "." in name else _registered(self.package, self.variable).get(name, f"{self.package}.{name}")

    def attribute(self, name: str) -> Any:
        """A built-in class or function by the name that it has in Python, for ``from rewind.losses import Hnac``.

        Raises:
            AttributeError: if no built-in component has this name.

        >>> LOSSES.attribute("Hnac") is LOSSES.find("hnac")
        True
        """
        for full_name in _registered(self.package, self.variable).values():
            module, _, attribute = full_name.partition(":")
            if attribute == name:
                return getattr(importlib.import_module(module), attribute)
        raise AttributeError(f"module {self.package!r} has no attribute {name!r}")

    def find(self, name: str, key: str = "") -> Any:
        """The component of a name: what was registered, or the user's own module or attribute of one.

        Args:
            name: short, or a dotted path.
            key: that names it, for messages, where it is not the registry's.

        Raises:
            RewindError: naming the key if there is none.
        """
        key = key or self.key
        if "." in name:
            return import_path(name, key)
        known = _registered(self.package, self.variable)
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise RewindError(
                f"{key}: cannot find {name!r}: no such {self.kind}.{meant} Available: {', '.join(self.names())}, or "
                "the dotted path of your own."
            )
        module, _, attribute = known[name].partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise RewindError(f"{key}: cannot import {name!r} ({error}).") from error


MODELS = Registry("MODELS", "model", "rewind.models", "methods.*.model")
HEADS = Registry("HEADS", "head", "rewind.models.heads", "methods.*.head")
BACKBONES = Registry("BACKBONES", "backbone", "rewind.models", "backbone.kind")
LOSSES = Registry("LOSSES", "loss", "rewind.losses", "training.objective")
SAMPLERS = Registry("SAMPLERS", "sampler", "rewind.training.samplers", "training.batch.sampler")
ENCODERS = Registry("ENCODERS", "encoder", "rewind.encoders", "encoder")
FORMATS = Registry("FORMATS", "format", "rewind.data.formats", "source.format")
# Not a hook of the format: what its decorator names is code of every stage that reads annotations.
DUMMY_DATA = Registry("DUMMY_DATA", "format with dummy data", "rewind.data.formats", "source.format")


def head_modules(model: str, head: str) -> list[str]:
    """The code of the heads that a method may look up: its own, or any where a model of the user's own looks it up.

    >>> head_modules("clip4clip", "xpool"), head_modules("ridge", "meanP")
    (['rewind.models.heads.xpool:XPool'], [])
    """
    if "." in model:
        return [*map(HEADS.full_name, HEADS.names()), *[head] * ("." in head)]
    return [HEADS.full_name(head)] if model == "clip4clip" or "." in head else []


@functools.cache
def _registered(package: str, variable: str) -> Mapping[str, str]:
    """Name → ``module:attribute`` of what the modules of a package register."""
    folder = Path(__file__).parent.joinpath(*package.split(".")[1:])
    decorator = re.compile(
        rf'^@{variable}\.register\("(?P<name>\w+)".*?\)\n(?:@.*\n)*(?:class|def) (?P<attribute>\w+)', re.MULTILINE
    )
    return {
        match["name"]: f"{package}.{'.'.join(path.relative_to(folder).with_suffix('').parts)}:{match['attribute']}"
        for path in sorted(folder.rglob("*.py"))
        for match in decorator.finditer(path.read_text(encoding="utf-8"))
    }


def import_path(path: str, key: str) -> Any:
    """A module of the user's own, or an attribute of one, by its dotted path.

    Raises:
        RewindError: naming the configuration ``key`` if there is none.

    >>> import_path("fractions.Fraction", "methods.*.model")
    <class 'fractions.Fraction'>
    """
    module, _, attribute = path.rpartition(".")
    make_torchvision_importable()
    add_own_modules()
    try:
        # An attribute first: a package may have a module and a function of one name.
        if importlib.util.find_spec(module) and hasattr(parent := importlib.import_module(module), attribute):
            return getattr(parent, attribute)
        return importlib.import_module(path)
    except (ImportError, AttributeError) as error:
        raise RewindError(
            f"{key}: cannot find {path!r} ({error}). Modules of your own are looked for among installed packages, in "
            "folders of PYTHONPATH, and beside the Snakefile of the folder in which you start."
        ) from error
