"""Freeze what Rewind does, move code, and see that it still does the same.

    python tools/golden record FOLDER [--only plans …] [--studies demo …]
    python tools/golden compare FOLDER [--only plans …] [--studies demo …]

``record`` writes what the checkout that it lies in does; ``compare`` does the same again and lists every difference.
Record at the commit before a move, compare at the commit after it, on the same machine: processors with other vector
instructions train other weights. Both run from anywhere, with the Python of the environment that has Rewind.

What is recorded, each in a folder of its own:

- ``help``: ``--help`` of every command, and ``config/README.md``. Seconds.
- ``plans``: the plan of every study as JSON, see plan.py; where the workflow refuses the study since files of the
  user's own are missing, its words. With a rehearsal under ``results/rehearsal`` also the plan there.
- ``results``: the contents of finished studies, see contents.py. Snakemake first brings them up to date.
- ``rehearsals``: files of every rehearsed study with their columns, arrays and keys. ``rewind rehearse`` runs first.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from contents import left_out, parts, shape, text

CHECKOUT = Path(__file__).resolve().parents[2]
STUDIES = sorted(path.stem for path in (CHECKOUT / "config/studies").glob("*.yaml"))
WITH_RESULTS = ["demo", "stamps", "translator_stamps", "models_demo"]
MAX_LINES = 12  # of a text that are shown where it differs
ENVIRONMENT = os.environ | {"PYTHONPATH": str(CHECKOUT / "src"), "COLUMNS": "120"}


def record_help(folder: Path, _studies: Sequence[str]) -> None:
    """``--help`` of ``rewind`` and of each of its commands, and the page of all configuration keys."""
    shutil.copyfile(CHECKOUT / "config/README.md", folder / "config_README.md")
    whole = _help()
    (folder / "rewind.txt").write_text(whole, encoding="utf-8")
    for path in _commands(whole):
        (folder / f"rewind {' '.join(path)}.txt").write_text(_help(*path), encoding="utf-8")


def _commands(page: str, *above: str) -> Iterator[tuple[str, ...]]:
    """Commands that a help page offers, and theirs: the names that are indented below COMMAND or a like word."""
    if " ...\n" not in page.split("\n\n")[0] + "\n":
        return
    for name in re.findall(r"^    ([a-z][\w-]*)(?:  |$)", page, re.MULTILINE):
        yield (*above, name)
        yield from _commands(_help(*above, name), *above, name)


def _help(*command: str) -> str:
    done = _run([sys.executable, "-m", "rewind", *command, "--help"])
    return done.stdout + done.stderr


def record_plans(folder: Path, studies: Sequence[str]) -> None:
    """The plan of every study, in an empty folder with this checkout's configuration, and in its rehearsal's."""
    for study in studies:
        with tempfile.TemporaryDirectory() as work:
            shutil.copytree(CHECKOUT / "config", Path(work) / "config")
            _plan(study, Path(work), folder / f"{study}.json")
        rehearsal = CHECKOUT / "results/rehearsal" / study
        if rehearsal.is_dir():
            with tempfile.TemporaryDirectory() as work:
                for path in rehearsal.iterdir():
                    if path.name not in ("results", ".snakemake"):
                        (Path(work) / path.name).symlink_to(path)
                _plan(study, Path(work), folder / f"{study}.rehearsed.json")


def _plan(study: str, directory: Path, target: Path) -> None:
    snakefile, script = CHECKOUT / "Snakefile", Path(__file__).with_name("plan.py")
    done = _run([sys.executable, str(script), str(snakefile), str(directory), study], cwd=directory)
    said = [line for line in done.stderr.splitlines() if line.strip() and str(directory) not in line]
    content = done.stdout if done.returncode == 0 else json.dumps({"refused": said[-3:]}, indent=1) + "\n"
    # Paths of this checkout and of the temporary folder are not part of a plan.
    target.write_text(content.replace(str(directory), "<work>").replace(str(CHECKOUT), "<checkout>"))


def record_results(folder: Path, studies: Sequence[str]) -> None:
    """Contents of finished studies and of their data sets."""
    chosen = [study for study in WITH_RESULTS if study in studies]
    _follow([sys.executable, "-m", "snakemake", "--cores", "all", "--config", f"studies=[{','.join(chosen)}]"])
    results = CHECKOUT / "results"
    for home in [*(results / study for study in chosen), *sorted((results / "data").glob("*"))]:
        name = home.relative_to(results).as_posix()
        found = {path.relative_to(home).as_posix(): parts(path) for path in _files(home, results)}
        _write(folder / f"{name.replace('/', '.')}.json", found)


def record_rehearsals(folder: Path, studies: Sequence[str]) -> None:
    """What files every study ends with, and what is in them."""
    rehearsals = CHECKOUT / "results/rehearsal"
    for study in studies:
        _follow([sys.executable, "-m", "rewind", "rehearse", study])
        results = rehearsals / study / "results"
        found = {path.relative_to(results).as_posix(): shape(path) for path in _files(results, results)}
        _write(folder / f"{study}.json", {path: dict.fromkeys(names, "") for path, names in found.items()})


def _files(home: Path, results: Path) -> Iterator[Path]:
    for path in sorted(home.rglob("*")):
        if path.is_file() and not left_out(path.relative_to(results).as_posix()):
            yield path


PARTS: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "help": record_help,
    "plans": record_plans,
    "rehearsals": record_rehearsals,  # plans look at them, too, but only at what is there
    "results": record_results,
}


def record(folder: Path, only: Sequence[str], studies: Sequence[str]) -> None:
    """Write what this checkout does."""
    for name in only:
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        print(f"recording {name}", file=sys.stderr, flush=True)
        PARTS[name](target, studies)
    commit = _run(["git", "describe", "--always", "--dirty", "--abbrev=12"]).stdout.strip()
    _write(folder / "about.json", {"commit": commit, "parts": sorted(only), "studies": sorted(studies)})


def compare(before: Path, after: Path, only: Sequence[str], studies: Sequence[str]) -> list[str]:
    """Differences between two records, a paragraph each."""
    found = []
    for name in only:
        if not (before / name).is_dir():
            found.append(f"{name}: not in {before}; record it first")
            continue
        old, new = (_by_name(folder / name) for folder in (before, after))
        for file in sorted({*old, *new}):
            if name != "help" and name != "results" and file.split(".")[0] not in studies:
                continue
            if file not in new or file not in old:
                found.append(f"{name}/{file}: {'is gone' if file not in new else 'is new'}")
            else:
                found += [f"{name}/{file}: {line}" for line in _differences(old[file], new[file])]
    return found


def _by_name(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in sorted(folder.iterdir())}


def _differences(before: Path, after: Path) -> Iterator[str]:
    if before.suffix != ".json":
        yield from _lines(text(before.read_text(encoding="utf-8")), text(after.read_text(encoding="utf-8")))
        return
    old, new = (_leaves(json.loads(path.read_text(encoding="utf-8"))) for path in (before, after))
    for name in sorted({*old, *new}):
        if name not in new:
            yield f"{name}: is gone"
        elif name not in old:
            yield f"{name}: is new"
        elif old[name] != new[name]:
            changed = list(_lines(old[name], new[name]))
            yield f"{name}:" + (f" {old[name]} -> {new[name]}" if "\n" not in old[name] + new[name] else changed[0])


def _leaves(content: object) -> dict[str, str]:
    """A plan's jobs by their rule and wildcards, key by key; or files and their parts."""
    found: dict[str, str] = {}
    if isinstance(content, list):
        for job in content:
            which = " ".join([job["rule"], *(f"{name}={value}" for name, value in sorted(job["wildcards"].items()))])
            found |= {f"{which}: {key}": json.dumps(value, sort_keys=True) for key, value in job.items()}
    elif isinstance(content, dict):
        for name, value in content.items():
            inside = value if isinstance(value, dict) else {"": json.dumps(value)}
            found |= {name: "there"} | {f"{name} {part}".strip(): text for part, text in inside.items()}
    return found


def _lines(before: str, after: str) -> Iterator[str]:
    changed = [
        line
        for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
        if not line.startswith(("---", "+++", "@@"))
    ]
    if changed:
        more = f"\n    and {len(changed) - MAX_LINES} more lines" if len(changed) > MAX_LINES else ""
        yield "\n    " + "\n    ".join(line[:300] for line in changed[:MAX_LINES]) + more


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def _run(command: Sequence[str], cwd: Path = CHECKOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def _follow(command: Sequence[str]) -> None:
    """Run a long command, which tells how far it is."""
    subprocess.run(command, cwd=CHECKOUT, env=ENVIRONMENT, check=True, stdout=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(prog="golden", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("act", choices=["record", "compare"])
    parser.add_argument("folder", type=Path, help="where the record is, outside of the checkout")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts of it")
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=STUDIES, metavar="STUDY", help="these alone")
    options = parser.parse_args()
    if options.act == "record":
        record(options.folder.resolve(), options.only, options.studies)
        return 0
    with tempfile.TemporaryDirectory() as now:
        record(Path(now), options.only, options.studies)
        found = compare(options.folder.resolve(), Path(now), options.only, options.studies)
    print("\n".join(found) if found else "equal")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
