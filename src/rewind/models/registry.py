"""Find what a study names (``methods.*.model``, ``backbone.kind``) and build it.

``model_hooks`` and ``backbone_module`` find a built-in module or a user's own by dotted path; ``build_model`` and
``build_backbone`` build the untrained retriever and its towers. ``ModelHooks`` declares what such a module may define.
"""

from __future__ import annotations

from typing import Any, TypeVar

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.retriever import Retriever, find_component
from rewind.packaged import docs_page

Hooks = TypeVar("Hooks")


class ModelHooks:
    """What ``methods.*.model`` names: a module with these functions, or a class with these static or class methods.

    >>> model_hooks("ridge").build.__name__
    'build_ridge'
    """

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
        """What readers of a table must know about the row, a sentence each without its full stop.

        Called in the run's job after the test split was prepared, for models whose files are the user's own.
        """
        return []


def with_default_hooks(given: Any, declared: type[Hooks]) -> Hooks:
    """A user's hooks, with a class's default of every hook that they lack; an instance of the class is left as it is.

    Args:
        given: a module, a class, an object or a function that has some of the hooks.
        declared: the class that declares the hooks, constructed without arguments.
    """
    if isinstance(given, declared):
        return given
    hooks = declared()
    for name in dir(declared):
        if not name.startswith("_") and hasattr(given, name):
            setattr(hooks, name, getattr(given, name))
    return hooks


def model_hooks(model: str) -> ModelHooks:
    """The module or class of a method's model.

    Raises:
        RewindError: if there is none, or it has no ``build``.
    """
    component = find_component(model, "rewind.models", "methods.*.model")
    _check_build(component, f"methods.*.model: {model}")
    return with_default_hooks(component, ModelHooks)


def build_model(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The untrained retriever of a method.

    Raises:
        RewindError: for what the model refuses, or a model that is not a retriever.
    """
    retriever = model_hooks(method.model).build(method, backbone, text, train_captions)
    _check_kind(retriever, Retriever, f"methods.*.model: {method.model}")
    if retriever.backbone is not None:
        _check_kind(retriever.backbone, Backbone, f"methods.*.model: {method.model}: its `backbone`")
    return retriever


def backbone_module(kind: str) -> Any:
    """The module or class of a backbone, which has ``build(backbone, text, train_captions)``.

    Raises:
        RewindError: if there is none, or it has no ``build``.
    """
    component = find_component(kind, "rewind.models", "backbone.kind")
    _check_build(component, f"backbone.kind: {kind}")
    return component


def build_backbone(backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Backbone:
    """The towers that ``backbone.kind`` names.

    Raises:
        RewindError: for what they refuse, or a kind that is not a backbone.
    """
    towers = backbone_module(backbone.kind).build(backbone, text, train_captions)
    _check_kind(towers, Backbone, f"backbone.kind: {backbone.kind}")
    return towers


def _check_build(component: Any, where: str) -> None:
    if not hasattr(component, "build"):
        raise RewindError(f"{where} has no `build(…)` function, which makes it ({docs_page('add-a-method.md')})")


def _check_kind(value: Any, expected: type, where: str) -> None:
    if not isinstance(value, expected):
        base = f"{expected.__module__}.{expected.__name__}"
        raise RewindError(
            f"{where} is a {type(value).__name__}, which is not a {base}: make it a subclass of that class, which "
            f"declares everything that is called ({docs_page('add-a-method.md')})."
        )
