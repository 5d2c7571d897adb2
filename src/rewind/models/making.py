"""How parts that a study names by a string are made, and what each may leave out."""

from __future__ import annotations

from typing import Any, TypeVar

from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.retriever import Retriever, find
from rewind.packaged import page
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

Part = TypeVar("Part")


class Maker:
    """What ``methods.*.model`` names: a module with these functions, or a class with these class methods."""

    def build(self, method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
        """The untrained retriever of a method, new parameters drawn from torch's global generator.

        Called in every job that needs the method's model; a built-in one's also when the workflow is read, on tensors
        without numbers.
        """
        raise NotImplementedError

    def check(self, method: Method, backbone: BackboneKeys) -> None:
        """Refuse keys that do not fit, each by its path. Called when the workflow is read, and before training.

        Raises:
            RewindError: naming the key.
        """

    def notes(self, method: Method, retriever: Retriever) -> list[str]:
        """What readers of a table must know of the row, a sentence each without its full stop.

        Called in the run's job, for models that bring files after the test split was prepared.
        """
        return []


def with_defaults(given: Any, declared: type[Part]) -> Part:
    """What a user wrote, with a class's default of every hook that it lacks; what subclasses the class as it is.

    Args:
        given: a module, a class, an object or a function.
        declared: the class that declares the hooks, made without arguments.
    """
    if isinstance(given, declared):
        return given
    made = declared()
    for name in dir(declared):
        if not name.startswith("_") and hasattr(given, name):
            setattr(made, name, getattr(given, name))
    return made


def maker(model: str) -> Maker:
    """The module or class of a method's model.

    Raises:
        RewindError: if there is none, or it makes nothing.
    """
    found = find(model, "rewind.models", "methods.*.model")
    _check_build(found, f"methods.*.model: {model}")
    return with_defaults(found, Maker)


def make_retriever(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The untrained retriever of a method.

    Raises:
        RewindError: for what the model refuses, or a model that is no retriever.
    """
    made = maker(method.model).build(method, backbone, text, train_captions)
    _check_kind(made, Retriever, f"methods.*.model: {method.model}")
    if made.backbone is not None:
        _check_kind(made.backbone, Backbone, f"methods.*.model: {method.model}: its `backbone`")
    return made


def towers_module(kind: str) -> Any:
    """The module or class of a backbone, which has ``build(backbone, text, train_captions)``.

    Raises:
        RewindError: if there is none, or it makes nothing.
    """
    found = find(kind, "rewind.models", "backbone.kind")
    _check_build(found, f"backbone.kind: {kind}")
    return found


def make_towers(backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Backbone:
    """The towers that ``backbone.kind`` names.

    Raises:
        RewindError: for what they refuse, or a kind that is no pair of towers.
    """
    made = towers_module(backbone.kind).build(backbone, text, train_captions)
    _check_kind(made, Backbone, f"backbone.kind: {backbone.kind}")
    return made


def _check_build(found: Any, where: str) -> None:
    if not hasattr(found, "build"):
        raise RewindError(f"{where} has no `build(…)` function, which makes it ({page('add-a-method.md')})")


def _check_kind(made: Any, wanted: type, where: str) -> None:
    if not isinstance(made, wanted):
        base = f"{wanted.__module__}.{wanted.__name__}"
        raise RewindError(
            f"{where} is a {type(made).__name__}, which is not a {base}: make it a subclass of that class, which "
            f"declares everything that is called ({page('add-a-method.md')})."
        )
