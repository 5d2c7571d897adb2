"""What a study may ask beside its retrieval scores: one module an analysis, from its key to its table and picture.

A module of this folder ends in ``ANALYSIS = Analysis(…)`` (:mod:`rewind.analyses.base`). Rules, plans, tables, answers
and published results find it by :func:`all_analyses`, and need not name it. A module of somebody's own is one where a
study names it by its dotted path (``analyses``).
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from rewind.analyses.base import Analysis, Result, Rule
from rewind.config import Study
from rewind.errors import RewindError
from rewind.job_values import Job
from rewind.registry import import_path

_own: dict[str, Analysis] = {}  # dotted path, as studies name them


@functools.cache
def _packaged() -> Mapping[str, Analysis]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in ("__init__", "base"))
    return MappingProxyType({name: importlib.import_module(f"{__name__}.{name}").ANALYSIS for name in names})


def all_analyses() -> dict[str, Analysis]:
    """Name of a module → its analysis; those of users' own last, by dotted path, once a study was read that names them.

    >>> list(all_analyses())[:2], "verdict" in all_analyses()
    (['artefacts', 'batches'], True)
    """
    return {**_packaged(), **_own}


def module_of(analysis: str) -> str:
    """The module of an analysis by its name."""
    return analysis if analysis in _own else f"{__name__}.{analysis}"


def analyses_of(study: Study) -> dict[str, Analysis]:
    """Those that a study may have: the packaged ones, and of others those that it names."""
    return {name: one for name, one in all_analyses().items() if name not in _own or name in study.analyses}


def add_analyses(paths: Iterable[str]) -> None:
    """Make a study's own analyses known to this process, by the dotted paths of their modules.

    Raises:
        RewindError: if there is no such module, it has no ``ANALYSIS``, or another analysis has a rule, a result or a
            kind of table of the same name.
    """
    for path in paths:
        if path in _own:
            continue
        found = getattr(import_path(path, "analyses"), "ANALYSIS", None)
        if not isinstance(found, Analysis):
            raise RewindError(f"analyses: {path} has no ANALYSIS, a rewind.analyses.base.Analysis.")
        for name, other in all_analyses().items():
            if taken := sorted(_names(found) & _names(other)):
                raise RewindError(f"analyses: {path}: {name} has a {taken[0]} already; choose another name.")
        _own[path] = found


def _names(analysis: Analysis) -> set[str]:
    names = {f"rule {rule.name!r}" for rule in analysis.rules} | {f"result {name!r}" for name in analysis.results}
    return names | {f"kind of table {spec.kind!r}" for spec in analysis.tables}


def analysis_rules() -> dict[str, Rule]:
    """Name of a rule → what there is to know of it."""
    return {rule.name: rule for analysis in all_analyses().values() for rule in analysis.rules}


def analysis_results() -> dict[str, Result]:
    """Name of a result → what the report reads."""
    return {name: result for analysis in all_analyses().values() for name, result in analysis.results.items()}


def find_function(rule: str) -> Callable[[Job], None]:
    """What a job of an analysis does, by the name of its rule."""
    module, _, name = analysis_rules()[rule].function.partition(":")
    function: Callable[[Job], None] = getattr(importlib.import_module(module), name)
    return function
