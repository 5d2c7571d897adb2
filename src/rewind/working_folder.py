"""The folder in which Snakemake is run: its Snakefile, and modules of the user's own next to that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rewind.errors import RewindError

SNAKEFILES = ("Snakefile", "snakefile", "workflow/Snakefile", "workflow/snakefile")
"""Where Snakemake looks for the workflow, in this order."""
MODULES_VARIABLE = "REWIND_MODULES"
"""In jobs, which may work in another folder than the Snakefile's (``--directory``): that of the Snakefile."""


def find_snakefile(folder: Path) -> Path | None:
    """The Snakefile that Snakemake would take in a folder."""
    return next((folder / name for name in SNAKEFILES if (folder / name).is_file()), None)


def require_snakefile() -> Path:
    """The Snakefile of the working folder.

    Raises:
        RewindError: if there is none.
    """
    if found := find_snakefile(Path.cwd()):
        return found
    raise RewindError(
        f"{Path.cwd()}: no Snakefile here; go to the folder in which you run snakemake, or make one with `rewind new "
        "FOLDER`."
    )


def record_modules_folder(snakefile: str | os.PathLike[str]) -> None:
    """Tell the jobs of a workflow where modules next to its Snakefile are."""
    os.environ[MODULES_VARIABLE] = str(Path(snakefile).resolve().parent)


def add_own_modules() -> None:
    """Let modules next to the Snakefile be imported, in commands as in jobs.

    They come last, as in Snakemake's jobs: nothing that is installed is replaced by a file of this folder. Call it only
    where the user's configuration names a module.
    """
    found = find_snakefile(Path.cwd())
    folder = os.environ.get(MODULES_VARIABLE) or (str(found.parent) if found else "")
    if folder and folder not in sys.path:
        sys.path.append(folder)
