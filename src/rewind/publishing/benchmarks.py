"""Benchmarks whose figures documents print: ``benchmarks/<name>.py`` with ``published`` and perhaps ``slim``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from rewind.errors import RewindError


def benchmark(root: Path, name: str) -> ModuleType:
    """The program ``benchmarks/<name>.py``, whose ``published(table)`` gives name → Markdown.

    Raises:
        RewindError: where there is none, or it has no such function.
    """
    file = root / f"benchmarks/{name}.py"
    if not file.is_file():
        raise RewindError(f"{name}: neither config/studies/{name}.yaml nor benchmarks/{name}.py is there.")
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", file)
    module = importlib.util.module_from_spec(spec)
    with _beside(file.parent):
        spec.loader.exec_module(module)
    if not hasattr(module, "published"):
        raise RewindError(f"{file}: has no function published(table), so its results cannot be published.")
    return module


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Programs find their neighbours, as they do when they are run."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
