"""Files of the repository that a wheel includes (the workflow, ``config/``), and the installed version.

Rewind runs from a checkout or from a wheel; the functions here find the workflow, its documentation and the command
for adding packages in either.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

from rewind.errors import RewindError

DISTRIBUTION_NAME = "rewind-bench"
WHEEL_FOLDER = "_workflow"
"""Folder of this package in which a wheel has the workflow, ``config/``, ``profiles/`` and ``envs/constraints.txt``."""

PROJECT_URL = "https://github.com/rewind-bench/rewind"
DOCS_URL = f"{PROJECT_URL}/blob/main/docs"


def workflow_home() -> Path:
    """The checkout that contains this library, or the folder of a wheel with the same files."""
    if folder := _wheel_folder() or checkout_folder():
        return folder
    raise RewindError(
        f"{_library_folder()}: Rewind was installed without its workflow; install it again, from a wheel or from a "
        "checkout."
    )


def checkout_folder() -> Path | None:
    """The checkout that contains this library; None where it is installed from a wheel."""
    folder = _library_folder().parents[1]  # above src/rewind
    return folder if not _wheel_folder() and (folder / "workflow/rules").is_dir() else None


def _wheel_folder() -> Path | None:
    folder = _library_folder() / WHEEL_FOLDER
    return folder if folder.is_dir() else None


def _library_folder() -> Path:
    return Path(__file__).resolve().parent


def snakefile() -> str:
    """Path of the workflow's Snakefile, for an ``include:`` or a ``module``."""
    return str(workflow_home() / "Snakefile")


def installed_version() -> str:
    """Version of the installed package; ``unknown`` where Python finds its files but it was never installed."""
    try:
        return metadata.version(DISTRIBUTION_NAME)
    except metadata.PackageNotFoundError:
        return "unknown"


def docs_page(name: str) -> str:
    """Where a page of the documentation is: a file of the checkout, else its URL."""
    return f"docs/{name}" if checkout_folder() else f"{DOCS_URL}/{name}"


def install_command() -> str:
    """The command that installs missing requirements, for messages."""
    if checkout_folder():
        return "make demo, or: pip install --constraint envs/constraints.txt --editable ."
    return f"pip install --constraint {workflow_home() / 'envs/constraints.txt'} {DISTRIBUTION_NAME}"
