"""Find what jobs of the workflow look at that their rules do not declare.

    python tests/undeclared.py rewind rehearse sanw cosine_gap       # or any other command that runs Snakemake

A file that a job reads without declaring it is there on one disk; in a bucket, on another machine or before its own job
has run it is not, and a change of it makes nothing stale. ``tests/opened/sitecustomize.py`` writes down what jobs look
at while the command runs, and this compares it with what they were given.

The exit code is the command's, or 1 if jobs looked at something undeclared, or if ``--all-rules`` is given and a rule
had no job.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPENED = Path(__file__).parent / "opened"
RULES = ROOT / "workflow/rules"
NO_JOB = {"all", "prepared"}
"""Rules that only name files."""

PROGRAM = {"src", "workflow", "profiles", ".snakemake", ".git", "Snakefile"}
"""Of the workflow itself. Of its code counts what a rule's `code` says (src/rewind/identity)."""

_DRAFT = re.compile(r"(.*/)?\.[^/]+\.\d+\.part(\.[^/]*)?(/.*)?")  # of rewind.files.atomic


@dataclass
class Job:
    """What one job was given, and what it and its processes looked at, in order.

    Attributes:
        folder: in which the workflow ran; all paths are relative to it.
        given: see :meth:`rewind.jobs.given.Given.content`.
        uses: (use, path), where the use is read, write, list or look.
        written: paths that the job itself made or removed.
    """

    folder: Path
    given: dict
    uses: list[tuple[str, str]]
    written: set[str] = field(default_factory=set)

    @property
    def rule(self) -> str:
        return self.given["rule"]

    def declared(self) -> list[str]:
        """Files and folders that the job was given, or that are its own."""
        found = [*self.given["input"]["values"], *self.given["output"]["values"], self.given["log"]]
        found += [self.given["params"]["names"].get("state") or self.given["log"]]
        for path in list(found):
            folder, _, name = path.rpartition("/")
            if name == "source.tar":  # unpacked beside it where its files are not there
                found.append(f"{folder}/source")
        return [os.path.normpath(path) for path in [*found, *self._kept()]]

    def _kept(self) -> Iterator[str]:
        """What a job that was killed goes on from, beside its outputs and of no other job."""
        output = self.given["output"]["names"]
        if tar := output.get("clips"):
            folder, _, name = str(tar).rpartition("/shards/")
            yield from (f"{folder}/.state/shards/{name}", f"{folder}/.state/shards/{Path(name).stem}.json")
        if vectors := output.get("item_vectors"):
            yield f"{Path(vectors).parent}/.state"


def environment(base: Mapping[str, str], record: Path) -> dict[str, str]:
    """The environment in which jobs write down what they look at, below the folder ``record``."""
    record.mkdir(parents=True, exist_ok=True)
    paths = [str(OPENED), *filter(None, [base.get("PYTHONPATH")])]
    return {**base, "PYTHONPATH": os.pathsep.join(paths), "REWIND_OPENED": str(record)}


def jobs(record: Path) -> list[Job]:
    """The jobs that wrote down what they looked at."""
    found = []
    for path in sorted(record.glob("*.jsonl")):
        about, *uses = (json.loads(line) for line in path.read_text().splitlines())
        found.append(Job(Path(about["folder"]), about["given"], [(use, path) for use, path in uses]))
    return found


def undeclared(done: Iterable[Job]) -> dict[str, list[str]]:
    """Rule → what its jobs looked at that it does not declare, "use path" each.

    A look at what nobody ever makes is harmless, and so is a file that the job itself made.
    """
    done = list(done)
    made = {(job.folder, path) for job in done for use, path in job.uses if use == "write"}
    content = {job.folder: _by_content(job.folder) for job in done}
    found: dict[str, set[str]] = {}
    for job in done:
        declared, own = job.declared(), set()
        for use, path in job.uses:
            if use == "write":
                own.add(path)
            elif path in own or path.split("/")[0] in PROGRAM or _DRAFT.fullmatch(path) or _below(path, declared):
                continue
            elif path in content[job.folder] and _named(path, job.given["params"]["values"]):
                continue
            elif use != "look" or (job.folder, path) in made or (job.folder / path).exists():
                found.setdefault(job.rule, set()).add(f"{use} {path}")
    return {rule: sorted(lines) for rule, lines in sorted(found.items())}


def unread(done: Iterable[Job]) -> dict[str, set[str]]:
    """Rule → suffixes of inputs that none of its jobs was seen to read: declared in vain, or read out of sight."""
    found: dict[str, set[str]] = {}
    for job in done:
        seen = [path for use, path in job.uses if use == "read"]
        for path in job.given["input"]["values"]:
            if not any(_below(one, [path]) for one in seen):
                found.setdefault(job.rule, set()).add(path)
    return found


def without_job(done: Iterable[Job]) -> list[str]:
    """Rules of the workflow that no job was of."""
    texts = [path.read_text() for path in [ROOT / "Snakefile", *sorted(RULES.glob("*.smk"))]]
    names = {a or b for text in texts for a, b in re.findall(r"^rule (\w+):|^use rule \w+ as (\w+)", text, re.M)}
    return sorted(names - NO_JOB - {job.rule for job in done})


def _below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def _by_content(folder: Path) -> set[str]:
    """Files whose content counts in a rule's `code`, as :mod:`rewind.identity.brought` keeps them."""
    file = folder / ".snakemake/rewind/brought.csv"
    if not file.is_file():
        return set()
    with file.open(newline="") as stream:
        return {os.path.normpath(row[0]) for row in csv.reader(stream) if row}


def _named(path: str, value: object) -> bool:
    """Whether a path is among plain values."""
    if isinstance(value, dict):
        return any(_named(path, part) for part in value.values())
    if isinstance(value, list):
        return any(_named(path, part) for part in value)
    return isinstance(value, str) and os.path.normpath(value) == path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all-rules", action="store_true", help="fail if a rule had no job")
    parser.add_argument("--keep", type=Path, help="write down what jobs look at in this folder, and leave it")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rewind-opened-") as made:
        record = (options.keep or Path(made)).resolve()
        code = subprocess.run(options.command, env=environment(os.environ, record)).returncode
        done = jobs(record)
        found, lacking = undeclared(done), without_job(done)
    for rule, lines in found.items():
        print(f"rule {rule} does not declare what its job looked at:", *lines, sep="\n  ")
    print(f"{len(done)} jobs watched; {len(found)} rules with undeclared files; without a job: {', '.join(lacking)}")
    sys.exit(code or bool(found or not done or (options.all_rules and lacking)))


if __name__ == "__main__":
    main()
