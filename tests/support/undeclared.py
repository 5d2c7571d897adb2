"""Find what jobs of the workflow look at that their rules do not declare.

    python tests/support/undeclared.py rewind rehearse sanw cosine_gap       # or any other command that runs Snakemake

A file that a job reads without declaring it is there on one disk; in a bucket, on another machine or before its own job
has run it is not, and a change of it makes nothing stale. ``tests/support/opened/sitecustomize.py`` writes down what
jobs look at while the command runs, and this compares it with what they were given.

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
from dataclasses import dataclass
from pathlib import Path

from checkout import ROOT
from rule_files import rules_text

OPENED = Path(__file__).parent / "opened"
NO_JOB = {"all", "prepared", "trained", "scored", "ranked", "board"}
"""Rules that only name files."""

PROGRAM = {"src", "workflow", "profiles", ".snakemake", ".git", "Snakefile"}
"""Of the workflow itself. Of its code counts what a rule's `code` says (src/rewind/workflow)."""

# Of rewind.io.files.atomic_write, and clips that show whether the machine is at fault (rewind.video.transcode).
_DRAFT = re.compile(r"(.*/)?\.([^/]+\.\d+\.part(\.[^/]*)?|control-[^/]+)(/.*)?")


@dataclass
class Job:
    """What one job was given, and what it and its processes looked at, in order.

    Attributes:
        folder: in which the workflow ran; all paths are relative to it.
        given: see :meth:`rewind.workflow.job.Job.content`.
        uses: (use, path), where the use is read, write, list or look.
    """

    folder: Path
    given: dict
    uses: list[tuple[str, str]]

    @property
    def rule(self) -> str:
        return self.given["rule"]

    def declared(self) -> list[str]:
        """Files and folders that the job was given, or that are its own."""
        found = [*self.given["input"]["values"], *self.given["output"]["values"], self.given["log"]]
        found += filter(None, [self.given["params"]["names"].get("state")])
        found += [path.removesuffix(".tar") for path in found if Path(path).name == "source.tar"]  # unpacked there
        # Of a data set of vectors one of two files stands for all beside it, whose checksums are kept.
        stands = [Path(path).parent for path in found if Path(path).name in ("ready.json", "embeddings.json")]
        found += [str(folder) for folder in stands if (self.folder / folder / "embeddings.json").is_file()]
        return [self.relative(path) for path in [*found, *self._kept()]]

    def _kept(self) -> Iterator[str]:
        """What a job that was killed goes on from: beside its outputs, and of no other job."""
        output = self.given["output"]["names"]
        if tar := output.get("clips"):
            yield str(Path(tar).parents[1] / ".state")
        for name in {"item_vectors", "index"} & output.keys():  # vectors by name; a frame store
            yield str(Path(output[name]).parent / ".state")
        if ready := output.get("ready"):  # source files that are made here, of which this says that they are complete
            yield str(Path(ready).parent)

    def named(self) -> set[str]:
        """Values of parameters that may be paths."""
        return {self.relative(text) for text in _texts(self.given["params"]["values"])}

    def listed(self) -> set[str]:
        """The user's own clips that an inventory among the inputs lists."""
        return {self.relative(row["source"]) for row in self._inventory()}

    def unpacked(self, path: str) -> bool:
        """Whether a file is a clip of the job's own shard, made before it was killed, and not yet packed."""
        place, tar = Path(path), Path(self.given["output"]["names"].get("clips", ""))
        if tar.suffix != ".tar" or place.parent != tar.parents[1]:
            return False
        shard = self.given["wildcards"]["shard"]
        return place.stem.removesuffix("_rev") in {
            row["item_id"].removesuffix("_rev") for row in self._inventory() if row["shard"] == shard
        }

    def _inventory(self) -> list[dict[str, str]]:
        found = [path for path in self.given["input"]["values"] if Path(path).name == "inventory.csv"]
        return [row for path in found for row in _rows(self.folder / path)]

    def relative(self, path: str) -> str:
        return os.path.relpath(self.folder / path, self.folder)


def environment(base: Mapping[str, str], record: Path) -> dict[str, str]:
    """The environment in which jobs write down what they look at, below the folder ``record``."""
    record.mkdir(parents=True, exist_ok=True)
    paths = [str(OPENED), *filter(None, [base.get("PYTHONPATH")])]
    return {**base, "PYTHONPATH": os.pathsep.join(paths), "REWIND_OPENED": str(record)}


def jobs(record: Path) -> list[Job]:
    """The jobs that wrote down what they looked at."""
    found = []
    for path in sorted(record.glob("*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        if lines:  # a job that was killed may not have come so far
            about, *uses = lines
            found.append(Job(Path(about["folder"]), about["given"], [(use, path) for use, path in uses]))
    return found


def undeclared(done: Iterable[Job]) -> dict[str, list[str]]:
    """Rule → what its jobs looked at that it does not declare, "use path" each.

    Declared are inputs and outputs, and, of files outside of ``results/``, what parameters name: the folder of clips
    that an inventory is made of, and files whose content counts in the rule's ``code``. Harmless are a look at what
    nobody ever makes, what the job itself makes, and a list of a folder that declared files are in: who reads others
    there is seen.
    """
    done = list(done)
    made = {(job.folder, path) for job in done for use, path in job.uses if use == "write"}
    content = {folder: _by_content(folder) for folder in {job.folder for job in done}}
    found: dict[str, set[str]] = {}
    for job in done:
        declared, written = job.declared(), {path for use, path in job.uses if use == "write"}
        folders = {str(folder) for path in declared for folder in Path(path).parents}
        named, listed, own = job.named(), job.listed(), set()
        for use, path in job.uses:
            if use == "write":
                own.add(path)
            harmless = (
                path.split("/")[0] in PROGRAM
                or path in own
                or _DRAFT.fullmatch(path)
                or _below(path, declared)
                or job.unpacked(path)
                or (use == "list" and path.removesuffix("/shards").removesuffix("/.state") in folders)
                or (use == "look" and (path in written or (job.folder / path).is_dir()))
                or (use == "look" and (job.folder, path) not in made and not (job.folder / path).exists())
            )
            theirs = not path.startswith("results/") and (
                path in listed
                or (path in named and path in content[job.folder])
                or any(_below(path, [place]) and (job.folder / place).is_dir() for place in named - {"."})
            )
            if not harmless and not theirs:
                found.setdefault(job.rule, set()).add(f"{use} {path}")
    return {rule: sorted(lines) for rule, lines in sorted(found.items())}


def unread(done: Iterable[Job]) -> dict[str, set[str]]:
    """Rule → inputs that its job was not seen to read: declared in vain, or read where nothing is seen."""
    found: dict[str, set[str]] = {}
    for job in done:
        seen = [path for use, path in job.uses if use == "read"]
        for path in map(job.relative, job.given["input"]["values"]):
            if not any(_below(one, [path]) for one in seen):
                found.setdefault(job.rule, set()).add(path)
    return found


def without_job(done: Iterable[Job]) -> list[str]:
    """Rules of the workflow that no job was of."""
    text = (ROOT / "Snakefile").read_text() + rules_text()
    names = {a or b for a, b in re.findall(r"^rule (\w+):|^use rule \w+ as (\w+)", text, re.M)}
    return sorted(names - NO_JOB - {job.rule for job in done})


def _below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def _by_content(folder: Path) -> set[str]:
    """Files whose content counts in a rule's `code`, as :mod:`rewind.workflow.staleness.user_inputs` keeps them."""
    file = folder / ".snakemake/rewind/brought.csv"
    rows = csv.reader(file.read_text().splitlines()) if file.is_file() else []
    return {os.path.relpath(folder / row[0], folder) for row in rows if row}


def _rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines())) if path.is_file() else []


def _texts(value: object) -> Iterator[str]:
    """The texts among plain values."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


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
