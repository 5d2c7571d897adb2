"""Input files as a plan names them, with what Snakemake is told of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Unwatched(str):
    """An input whose age makes nothing stale (Snakemake's ``ancient``)."""


class UserFile(str):
    """An input that the user brings: at the same path on every machine, also where results are in a bucket."""


Files = dict[str, Any]
"""Name of an input → a path or a list of paths; a rule's ``unpack(…)``."""


def user_files(paths: Iterable[str | None]) -> list[str]:
    """Files that a key names; an output of a rule (vectors of a model by name, say) is not a file of the user's.

    >>> [type(path).__name__ for path in user_files(["captions.csv", None, "results/data/clips/made/train.npz"])]
    ['UserFile', 'str']
    """
    return [path if path.startswith("results/") else UserFile(path) for path in paths if path]


def json_files(names: Iterable[str | None]) -> list[str]:
    """The names of architectures that are files."""
    return [name for name in names if name and name.endswith(".json")]
