"""``rewind new``, and the version."""

from __future__ import annotations

import argparse
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

from rewind.packaged import version
from rewind.targets import output_folder


def add_new_command(parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind new`` and ``rewind --version``."""
    parser.add_argument("--version", action="version", version=f"rewind {version()}")
    new = commands.add_parser(
        "new",
        help="lay down a working folder: a Snakefile that uses the installed workflow, configuration, profiles",
    )
    new.add_argument("folder", type=Path, metavar="FOLDER", help="a folder that is absent or empty")
    new.add_argument(
        "--update",
        action="store_true",
        help="bring up to date the files of such a folder that you have not changed, and list those that differ",
    )
    new.set_defaults(command=_new)


def _new(options: argparse.Namespace) -> int:
    from rewind.starting.folder import lay

    output_folder(options.folder, "FOLDER")
    if options.update:
        return _update(options.folder)
    written = lay(options.folder)
    parts = Counter(name.partition("/")[0] + "/" * ("/" in name) for name in written)
    listed = [f"{part} ({count} files)" if count > 1 else part for part, count in parts.items()]
    print(f"{options.folder}: wrote {', '.join(listed)}\nNext:")
    here = options.folder.resolve() == Path.cwd()
    for line in ("snakemake -n" if here else f"cd {shlex.quote(str(options.folder))}", "snakemake --cores all"):
        print(f"    {line}")
    return 0


def _update(folder: Path) -> int:
    from rewind.packaged import home
    from rewind.starting.folder import update

    done = update(folder)
    lines = [f"{name}: written anew" for name in done.written]
    for name in done.kept:
        newer = " (Rewind's has changed too)" if name in done.newer else ""
        lines.append(f"{name}: differs from Rewind's, kept{newer}")
    lines += [f"{name}: you removed it" for name in done.removed]
    lines += [f"{name}: comes with Rewind no longer" for name in done.gone]
    print("\n".join(lines or [f"{folder}: all files are those of Rewind {version()}"]))
    if any(name.startswith(("config/", "profiles/", "envs/")) for name in done.kept):
        print(f"Rewind's own files are in {home()}")
    return 0
