"""``rewind new``: arguments and messages."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from rewind.cli.new.folder import create_folder, update_folder
from rewind.io.files import check_output_folder
from rewind.packaged import installed_version, workflow_home


def add_new_command(commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind new``."""
    new = commands.add_parser(
        "new",
        description="Create a working folder: a Snakefile that uses the installed workflow, configuration, profiles. "
        "All files of your own live in it, and it works on after an upgrade of Rewind. A folder that is not empty is "
        "refused.",
    )
    new.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that is absent or empty")
    new.add_argument(
        "--update",
        action="store_true",
        help="bring up to date the files of such a folder that you have not changed, and list those that differ",
    )
    new.set_defaults(command=_new)


def _new(options: argparse.Namespace) -> int:

    check_output_folder(options.folder, "FOLDER")
    if options.update:
        return _update(options.folder)
    written = create_folder(options.folder)
    parts = Counter(name.partition("/")[0] + "/" * ("/" in name) for name in written)  # files of each top-level entry
    summary = [f"{part} ({count} files)" if count > 1 else part for part, count in parts.items()]
    print(f"{options.folder}: wrote {', '.join(summary)}\nNext:")
    is_current = options.folder.resolve() == Path.cwd()
    for line in ("snakemake -n" if is_current else f"cd {shlex.quote(str(options.folder))}", "snakemake --cores all"):
        print(f"    {line}")
    return 0


def _update(folder: Path) -> int:

    report = update_folder(folder)
    lines = [f"{name}: written anew" for name in report.written]
    for name in report.kept:
        newer = " (Rewind's has changed too)" if name in report.newer else ""
        lines.append(f"{name}: differs from Rewind's, kept{newer}")
    lines += [f"{name}: you removed it" for name in report.removed]
    lines += [f"{name}: comes with Rewind no longer" for name in report.gone]
    print("\n".join(lines or [f"{folder}: all files are those of Rewind {installed_version()}"]))
    if any(name.startswith(("config/", "profiles/", "envs/")) for name in report.kept):
        print(f"Rewind's own files are in {workflow_home()}")
    return 0
