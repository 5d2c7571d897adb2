"""Files of a workflow that is run from another folder: the user's own, or else those that it comes with."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def found(path: Path, home: Path | None) -> Path:
    """A file of keys here, or the one of the same name in the workflow's own folder where there is none here.

    Args:
        path: relative to the working folder.
        home: the workflow's own folder; None: it is not on this machine, or is the working folder.
    """
    return home / path if home and not path.is_file() and (home / path).is_file() else path


def at_home(value: Any, home: Path | None) -> Any:
    """Plain values in which every path below ``config/`` that is not here is the workflow's own, if it has it."""
    if isinstance(value, dict):
        return {name: at_home(part, home) for name, part in value.items()}
    if isinstance(value, list):
        return [at_home(part, home) for part in value]
    if isinstance(value, str) and value.startswith("config/"):
        return str(found(Path(value), home))
    return value
