"""Find what a study names (``methods.*.model``, ``backbone.kind``) and build it, built-in or a user's own."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method, Training
from rewind.config import Text as TextKeys
from rewind.config.base import read_options
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.retriever import Retriever
from rewind.packaged import docs_page
from rewind.registry import BACKBONES, MODELS, Registry

Hooks = TypeVar("Hooks")


class ModelHooks:
    """What ``methods.*.model`` names: a class with these static or class methods, or a function that is ``build``.

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
        """Refuse keys that do not fit, each by its path. Called when the workflow is read, and before training."""

    def notes(self, method: Method, retriever: Retriever) -> list[str]:
        """What readers of a table must know about the row, a sentence each without its full stop.

        Called in the run's job after the test split was prepared, for models whose files are the user's own.
        """
        return []


def with_default_hooks(given: Any, declared: type[Hooks]) -> Hooks:
    """A user's hooks (a module, class, object or function), with a class's default of every hook that they lack."""
    if isinstance(given, declared):
        return given
    hooks = declared()
    for name in dir(declared):
        if not name.startswith("_") and hasattr(given, name):
            setattr(hooks, name, getattr(given, name))
    return hooks


def make_component(component: Any, registry: Registry, name: str, options: Mapping[str, Any], options_key: str) -> Any:
    """An instance of a class that a study names together with free options: a loss, a sampler.

    A class may declare its options as ``Options``, a :class:`rewind.config.base.ConfigModel`: it is then constructed
    with an instance, else without arguments. What is not a class is returned as it is. Options that are unknown or have
    a wrong value are refused with their path, which begins with ``options_key``.
    """
    if hasattr(component, "build"):
        warnings.warn(
            f"{registry.key}: {name} has `build(options)`, which the next version will not call: name a class that "
            f"declares its `Options` ({docs_page('add-a-method.md')}).",
            FutureWarning,
            stacklevel=2,
        )
        return component.build(dict(options))
    declared = getattr(component, "Options", None) if isinstance(component, type) else None
    if declared is not None:
        return component(read_options(declared, options, options_key, f"{registry.key.rpartition('.')[2]}: {name}"))
    if options:
        raise RewindError(f"{options_key}.{next(iter(options))}: {name} has no options; remove it.")
    return component() if isinstance(component, type) else component


def model_hooks(model: str) -> ModelHooks:
    return _builder(MODELS.find(model), f"methods.*.model: {model}")


def build_model(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The untrained retriever of a method, with the adapters of its training keys."""
    retriever = model_hooks(method.model).build(method, backbone, text, train_captions)
    _check_kind(retriever, Retriever, f"methods.*.model: {method.model}")
    if retriever.backbone is not None:
        _check_kind(retriever.backbone, Backbone, f"methods.*.model: {method.model}: its `backbone`")
    if not method.baseline:
        _prepare_towers(retriever, method.training)
    return retriever


def _prepare_towers(retriever: Retriever, keys: Training) -> None:
    """Adapters, and what else a method's training keys make of its towers before weights of a run are loaded."""
    if retriever.backbone is None:
        if keys.lora is not None:
            raise RewindError(f"training.lora: {type(retriever).__name__} has no towers; remove the key.")
        return
    retriever.backbone.tune(keys)


def backbone_builder(kind: str) -> Any:
    """What makes a backbone: its ``build(backbone, text, train_captions)``."""
    return _builder(BACKBONES.find(kind), f"backbone.kind: {kind}").build


def build_backbone(backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Backbone:
    towers = backbone_builder(backbone.kind)(backbone, text, train_captions)
    _check_kind(towers, Backbone, f"backbone.kind: {backbone.kind}")
    return towers


def _builder(component: Any, where: str) -> ModelHooks:
    """Its hooks: of a class or module with ``build``, or of a function, which is itself what builds."""
    hooks = with_default_hooks(component, ModelHooks)
    if hasattr(component, "build"):
        return hooks
    if isinstance(component, type) or not callable(component):
        raise RewindError(f"{where} has no `build(…)` function, which builds it ({docs_page('add-a-method.md')})")
    hooks.build = component  # type: ignore[method-assign]
    return hooks


def _check_kind(value: Any, expected: type, where: str) -> None:
    if not isinstance(value, expected):
        base = f"{expected.__module__}.{expected.__name__}"
        raise RewindError(
            f"{where} is a {type(value).__name__}, which is not a {base}: make it a subclass of that class, which "
            f"declares everything that is called ({docs_page('add-a-method.md')})."
        )
