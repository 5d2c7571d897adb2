"""Writing files into the user's folder: what ``rewind new``, ``rewind init`` and ``rewind evaluate`` have in common.

Files of the user are never overwritten, several files are written or none, and each of them whole.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from rewind.config.load import parse_yaml, read_yaml
from rewind.errors import RewindError
from rewind.io.files import write_text
from rewind.workflow.config import MAIN_CONFIG

DATASETS_FOLDER, STUDIES_FOLDER = Path("config/datasets"), Path("config/studies")
MAX_NAME_CHARACTERS = 90  # of a name in files, to which a number may be added


def template_text(name: str) -> str:
    """A file of ``rewind/cli/templates``."""
    return (resources.files("rewind.cli") / "templates" / name).read_text(encoding="utf-8")


def first_files(study: str) -> dict[Path, str]:
    """What a folder without a workflow needs so that ``snakemake`` and other commands know a study in it.

    That is the Snakefile of ``rewind new``, which includes the installed workflow, and, unless it exists, the main file
    of the configuration.
    """
    texts = {Path("Snakefile"): template_text("Snakefile")}
    if not Path(MAIN_CONFIG).exists():
        texts[Path(MAIN_CONFIG)] = f"# Studies that `snakemake` brings up to date.\nstudies: [{study}]\n"
    return texts


def safe_file_name(text: str) -> str:
    """A name for files from any text: letters of ASCII, digits, ``_`` and ``-``.

    >>> safe_file_name("ViT-B/32 (OpenAI)")
    'ViT-B_32_OpenAI'
    """
    return re.sub(r"[^A-Za-z0-9_\-]+", "_", text).strip("_")[:MAX_NAME_CHARACTERS] or "model"


# ---- Writing -------------------------------------------------------------------------------------------------------

Backups = dict[Path, str | None]
"""Path → previous text of a file that was written; None where there was no file."""


def refuse_overwriting(texts: Mapping[Path, str], option: str, advice: str = "") -> None:
    """Refuse to write where other files have the same names: YAML files with other values, others with other bytes.

    The message has ``option``, by which the user chooses another name, and ``advice`` on what else to do.

    Raises:
        RewindError: naming every file with another content.
    """
    conflicts = [conflict for path, text in texts.items() if (conflict := _overwrite_conflict(path, text, option))]
    if conflicts:
        raise RewindError("\n".join(conflicts) + (f" {advice}" if advice else ""))


def _overwrite_conflict(path: Path, text: str, option: str) -> str:
    """Why a file must not be written; empty where it may be."""
    if not os.path.lexists(path):  # a broken link counts as a file: writing would follow it
        return ""
    if path.suffix == ".yaml":
        with contextlib.suppress(RewindError):
            if read_yaml(path) == parse_yaml(text, str(path)):
                return ""
    elif path.is_file() and path.read_bytes() == text.encode():
        return ""
    return f"{path}: another file has this name; choose one with {option}, or remove it."


@contextlib.contextmanager
def write_files(texts: Mapping[Path, str], replaced: Collection[Path] = ()) -> Iterator[Backups]:
    """Write files, and take all of them back if one cannot be written or the block fails, as a check of them may.

    A file that exists stays as it is, unless it is in ``replaced``. Yields the earlier texts of files that were
    written, None for new ones.
    """
    backups: Backups = {}
    try:
        for path, text in texts.items():
            if path.exists() and path not in replaced:
                continue
            old_text = path.read_text(encoding="utf-8") if path.exists() else None
            if old_text != text:
                backups[path] = old_text
                write_text(path, text)
        yield backups
    except BaseException:
        restore_files(backups)
        raise


def restore_files(backups: Backups) -> None:
    """Make files what they were before :func:`write_files`; folders below the working one that hold nothing go too."""
    for path, text in backups.items():
        if text is None:
            with contextlib.suppress(OSError):  # the error that made this necessary is the one to report
                path.unlink()
                for folder in () if path.is_absolute() else path.parents:
                    folder.rmdir()  # fails for the first that still holds something
        elif path.read_text(encoding="utf-8") != text:
            write_text(path, text)


def dump_yaml(keys: Mapping[str, Any]) -> str:
    """Keys as YAML in their order, without comments.

    >>> dump_yaml({"title": "Türen", "methods": {"chance": {"model": "chance"}}})
    'title: Türen\\nmethods:\\n  chance:\\n    model: chance\\n'
    """
    return yaml.safe_dump(keys, sort_keys=False, allow_unicode=True, width=110)
