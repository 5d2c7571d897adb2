"""Rewind: does a text-to-video retriever know which way time runs?

In a notebook ``rewind.ranks``, ``metrics``, ``compare``, ``table`` and ``evaluate`` take score matrices that you have,
and ``results`` reads a finished study (:mod:`rewind.api`). Configuration is in :mod:`rewind.config`, models in
:mod:`rewind.models`, losses in :mod:`rewind.losses`; what the workflow's rules need is in :mod:`rewind.workflow`, the
commands of ``rewind`` in :mod:`rewind.cli`.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's constant, which type checkers know by its name: importing typing costs every command
if TYPE_CHECKING:
    from rewind.api import Comparison, compare, evaluate, metrics, ranks, results, table

__all__ = ["Comparison", "compare", "evaluate", "metrics", "ranks", "results", "table"]


def __getattr__(name: str) -> object:
    # Imported on first use: every job and every command imports this package, and needs neither pandas nor
    # jinja2 for it.
    if name in __all__:
        from rewind import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
