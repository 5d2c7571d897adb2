"""The files of the repository that a wheel brings along, and what is said of an installation: where pages are, how
packages are added, which version it is."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from rewind.errors import RewindError

DISTRIBUTION = "rewind-bench"
FOLDER = "_workflow"
"""Folder of this package in which a wheel has the workflow, ``config/``, ``profiles/`` and ``envs/constraints.txt``."""
PAGES = "https://github.com/rewind-bench/rewind/blob/main/docs"


def home() -> Path:
    """The checkout that this library lies in, or the folder of a wheel with the same files.

    Raises:
        RewindError: if there is neither.
    """
    if found := _wheel() or checkout():
        return found
    raise RewindError(
        f"{_library()}: Rewind was installed without its workflow; install it again, from a wheel or from a checkout."
    )


def checkout() -> Path | None:
    """The checkout that this library lies in; None where it is installed from a wheel."""
    folder = _library().parents[1]
    return folder if not _wheel() and (folder / "workflow/rules").is_dir() else None


def snakefile() -> str:
    """Path of the workflow's Snakefile, for an ``include:`` or a ``module``."""
    return str(home() / "Snakefile")


def version() -> str:
    """Version of the installed package; ``unknown`` where Python only finds its files."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"


def page(name: str) -> str:
    """Where a page of the documentation is: a file of the checkout, or else its address."""
    return f"docs/{name}" if checkout() else f"{PAGES}/{name}"


def installing() -> str:
    """How requirements that are missing are installed."""
    if checkout():
        return "make demo, or: pip install --constraint envs/constraints.txt --editable ."
    return f"pip install --constraint {home() / 'envs/constraints.txt'} {DISTRIBUTION}"


def _wheel() -> Path | None:
    folder = _library() / FOLDER
    return folder if folder.is_dir() else None


def _library() -> Path:
    return Path(__file__).resolve().parent
