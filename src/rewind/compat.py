"""The one door to ``open_clip`` and ``torchvision``, and to what imports them: whoever needs them asks here.

The torchvision that PyPI has for Linux is built for CUDA. Beside a torch without CUDA its compiled operators do not
load, and its Python half then fails while it registers fake kernels for two operators that nobody defined. Naming their
schemas first is enough; neither is ever called here. Asking for a package sees to that, so no order of imports is left
to get wrong. All are slow to import: ask inside the function that uses them.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from pathlib import Path
from types import ModuleType

_SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))


def open_clip(part: str = "") -> ModuleType:
    """The package ``open_clip``, or its module ``open_clip.<part>``."""
    _name_operators()  # it imports torchvision
    return _module("open_clip", part)


def torchvision(part: str = "") -> ModuleType:
    """The package ``torchvision``, or its module ``torchvision.<part>``."""
    _name_operators()
    return _module("torchvision", part)


def transformers(part: str = "") -> ModuleType:
    """The package ``transformers``, which is there on request, or its module ``transformers.<part>``.

    Raises:
        ImportError: if it is not installed.
    """
    _name_operators()
    return _module("transformers", part)


def sentence_transformers(part: str = "") -> ModuleType:
    """The package ``sentence_transformers``, which is there on request, or a module of it.

    Raises:
        ImportError: if it is not installed.
    """
    _name_operators()
    return _module("sentence_transformers", part)


def mteb(part: str = "") -> ModuleType:
    """The package ``mteb``, which is there on request, or its module ``mteb.<part>``.

    Raises:
        ImportError: if it is not installed.
    """
    _name_operators()
    return _module("mteb", part)


def installed(package: str) -> bool:
    """Whether a package is installed; it is not imported."""
    return importlib.util.find_spec(package) is not None


def open_clip_folder() -> Path:
    """Where open_clip is installed; the package is not imported.

    Raises:
        ImportError: if it is not installed.
    """
    return _folder("open_clip")


def _module(package: str, part: str) -> ModuleType:
    return importlib.import_module(f"{package}.{part}" if part else package)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0])


@functools.cache
def _name_operators() -> object:
    """Name torchvision's operators where its own library cannot; returns what keeps them alive, or None."""
    import torch

    if torch.version.cuda is not None or torch.version.hip is not None:
        return None
    # A torchvision built without CUDA defines them itself, and a second definition would end the process.
    compiled = FileFinder(str(_folder("torchvision")), (ExtensionFileLoader, EXTENSION_SUFFIXES)).find_spec("_C")
    if compiled is not None and compiled.origin:
        with contextlib.suppress(OSError):
            torch.ops.load_library(compiled.origin)
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        library.define(schema)
    return library
