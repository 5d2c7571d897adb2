"""Imports of open_clip, torchvision and packages that use them; the rest of Rewind imports them only from here.

All are slow to import: call these functions inside the function that needs the package. transformers,
sentence_transformers, mteb and peft are optional installs, whose functions raise ImportError without them.

torchvision's wheel for Linux on PyPI is built for CUDA. Next to a CPU build of torch its compiled operators do not
load, and its Python part then fails when it registers fake kernels for two operators that nobody has defined.
Defining their schemas first is enough; neither operator is ever called here. :func:`make_torchvision_importable` does
that whenever torchvision is imported afterwards, by whomever: a plug-in imports it as usual.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

# Of torchvision's operators for boxes: plain and quantised non-maximum suppression.
_OPERATOR_SCHEMAS = tuple(
    f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms")
)


def open_clip(part: str = "") -> ModuleType:
    """The package ``open_clip``, or its module ``open_clip.<part>``."""
    make_torchvision_importable()
    if "open_clip" not in sys.modules:
        _import_open_clip()
    return _import_part("open_clip", part)


def torchvision(part: str = "") -> ModuleType:
    """The package ``torchvision``, or its module ``torchvision.<part>``."""
    return _import_part("torchvision", part)


def timm(part: str = "") -> ModuleType:
    """The package ``timm``, or its module ``timm.<part>``."""
    return _import_part("timm", part)


def transformers(part: str = "") -> ModuleType:
    """The package ``transformers``, an optional install, or its module ``transformers.<part>``."""
    return _import_part("transformers", part)


def sentence_transformers(part: str = "") -> ModuleType:
    """The package ``sentence_transformers``, an optional install, or its module ``sentence_transformers.<part>``."""
    return _import_part("sentence_transformers", part)


def peft() -> ModuleType:
    """The package ``peft``, an optional install."""
    return _import_part("peft", "")


def mteb(part: str = "") -> ModuleType:
    """The package ``mteb``, an optional install, or its module ``mteb.<part>``."""
    return _import_part("mteb", part)


def is_installed(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return importlib.util.find_spec(package) is not None


def open_clip_folder() -> Path:
    """The folder in which open_clip is installed; the package is not imported."""
    return _folder_of_package("open_clip")


def _import_part(package: str, part: str) -> ModuleType:
    make_torchvision_importable()  # all of these packages import it
    return importlib.import_module(f"{package}.{part}" if part else package)


# ---- open_clip without what only some of its models need -------------------------------------------------------------
# timm and transformers take two seconds to import, of a job that often takes five. open_clip works without them, and
# the few models that do need them find them where they are first used.

_IMPORTED_ON_USE = ("timm", "transformers")
_THEIR_USERS = (
    ("timm_model", "TimmModel", "__init__"),
    ("hf_model", "HFTextEncoder", "__init__"),
    ("coca_model", "CoCa", "generate"),
)  # module of open_clip, class, method


def _import_open_clip() -> None:
    hidden = [package for package in _IMPORTED_ON_USE if package not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: Python says that it is not installed
    try:
        importlib.import_module("open_clip")
    finally:
        for package in hidden:
            sys.modules.pop(package, None)
    for module, owner, method in _THEIR_USERS:
        _import_again_before(importlib.import_module(f"open_clip.{module}"), owner, method)


def _import_again_before(module: ModuleType, name: str, method: str) -> None:
    """Import a module again, now with all packages, before a method of its class ``name`` is first called."""
    owner = getattr(module, name)
    original = getattr(owner, method)

    @functools.wraps(original)
    def import_and_call(*arguments: Any, **keys: Any) -> Any:
        setattr(owner, method, original)
        importlib.reload(module)  # into the same namespace, which is that of the class in use
        setattr(module, name, owner)  # there are instances of it
        return original(*arguments, **keys)

    setattr(owner, method, import_and_call)


def _folder_of_package(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0])


class _TorchvisionFinder(MetaPathFinder):
    """Finds torchvision as Python would, and defines its operators right before its own code runs."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torchvision":
            return None
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def define_and_run(module: ModuleType) -> None:
                _define_torchvision_operators()
                with _compiler_deferred():
                    run(module)

            spec.loader.exec_module = define_and_run  # type: ignore[method-assign]
        return spec


def make_torchvision_importable() -> None:
    """Let ``import torchvision`` work next to a CPU build of torch, in this process from now on."""
    if not any(isinstance(finder, _TorchvisionFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionFinder())


@contextlib.contextmanager
def _compiler_deferred() -> Iterator[None]:
    """Keep torch's compiler from being imported until it is used.

    torchvision asks it whether a device is supported when RoI align is called on a GPU, which nothing here does, and
    imports it for that in advance: more than a second of every job that has a network.
    """
    name = "torch._dynamo.utils"
    if name in sys.modules:
        yield
        return
    stand_in = ModuleType(name)

    def of_the_real_one(attribute: str) -> Any:
        if attribute.startswith("__"):  # the import system asks for __path__ and the like
            raise AttributeError(attribute)
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]
        return getattr(importlib.import_module(name), attribute)

    stand_in.__getattr__ = of_the_real_one  # type: ignore[method-assign]
    stand_in.is_compile_supported = lambda device: of_the_real_one("is_compile_supported")(device)  # type: ignore[attr-defined]
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        if sys.modules.get(name) is stand_in:
            del sys.modules[name]


@functools.cache
def _define_torchvision_operators() -> object:
    """Define torchvision's operators where its own library cannot; they last as long as the result, which is cached."""
    import torch  # here, because modules that run without torch import this one

    if torch.version.cuda is not None or torch.version.hip is not None:
        return None
    # A torchvision built without CUDA defines them itself, and a second definition would end the process: its library
    # is loaded first, without importing the package, whose import is what fails.
    finder = FileFinder(str(_folder_of_package("torchvision")), (ExtensionFileLoader, EXTENSION_SUFFIXES))
    compiled = finder.find_spec("_C")
    if compiled is not None and compiled.origin:
        with contextlib.suppress(OSError):  # built for CUDA, whose libraries are missing
            torch.ops.load_library(compiled.origin)
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for schema in _OPERATOR_SCHEMAS:
        library.define(schema)
    return library
