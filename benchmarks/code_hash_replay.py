"""Whether a change of how code hashes are computed changes which stages an edit of code makes stale.

    python benchmarks/code_hash_replay.py --old 54c602e          # beside the working tree's, over 100 commits
    python benchmarks/code_hash_replay.py --old 54c602e --commits 20

Both implementations (`src/rewind/workflow/staleness/code_hash.py` and what it uses: of the commit `--old`, and of the
working tree) read the code of each of the last commits (of first parents), whose `src` and `workflow` are unpacked into
a temporary folder; nothing of it is imported. Each runs in a process of its own, with its own table of stages. Where a
table names code that a commit does not have, its hash is refused, and nothing is compared.

What is hashed of a commit: every rule and part of one, in three variants: without what a study names, with every
plug-in module (models, losses, samplers, formats, encoders) and any head, and with these and one head by name. A commit
from before scripts had their folder has no stages that the table can name: there every module of `rewind/jobs`, which
had the rules' code, stands for a stage. Renamed packages are no obstacle, since names are followed from there.

Printed are, over all commits: hashes that are equal; how many edits (a commit and the one before) make which stages
stale, and where the two disagree about that; and every part (a definition) that is in one hash and not in the other, or
in both with another normal form, with the first commit where it is so. An edit from one kind of commit to the other
makes all stale in both, and is counted apart.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ("models", "losses", "objectives", "training/samplers", "data/formats", "datasets", "encoders")
REFUSED = {"error": "no such stage"}
Stages = dict[str, dict[str, str]]  # stage and variant → part → hash; with the single key "error" where there is none


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", required=True, help="commit with the other implementation")
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return hash_trees()
    replay = Replay()
    with tempfile.TemporaryDirectory() as folder:
        unpack(arguments.old, Path(folder) / "old")
        workers = {"old": start_worker(Path(folder) / "old/src"), "new": start_worker(ROOT / "src")}
        for commit in reversed(git("rev-list", "--first-parent", f"-{arguments.commits}", "HEAD").split()):
            with tempfile.TemporaryDirectory(dir=folder) as tree:
                unpack(commit, Path(tree))
                replay.add(commit[:8], {name: ask(worker, tree) for name, worker in workers.items()})
        for worker in workers.values():
            worker.communicate()
    replay.report()
    return 1 if replay.disagreements else 0


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def unpack(commit: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    archive = subprocess.Popen(["git", "archive", commit, "src", "workflow"], cwd=ROOT, stdout=subprocess.PIPE)
    subprocess.run(["tar", "-x", "-C", str(folder)], stdin=archive.stdout, check=True)
    if archive.wait():
        raise SystemExit(f"{commit} has no src and workflow")


# ---- One implementation, in a process of its own -------------------------------------------------------------------


def start_worker(source: Path) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--old", "", "--worker"]
    environment = os.environ | {"PYTHONPATH": str(source)}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(worker: subprocess.Popen[str], tree: str) -> Stages:
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(tree + "\n")
    worker.stdin.flush()
    answer: Stages = json.loads(worker.stdout.readline())
    return answer


def hash_trees() -> int:
    """Read folders of trees, and write the parts of all stages of each."""
    for line in sys.stdin:
        print(json.dumps(hash_tree(Path(line.strip()))), flush=True)
    return 0


def hash_tree(tree: Path) -> Stages:
    # The implementation is that of PYTHONPATH. Its names and arguments are those that both have.
    from rewind.errors import RewindError
    from rewind.workflow.stages import RULES, SUB_STAGES, CodeDependencies

    try:
        code_hash = importlib.import_module("rewind.workflow.staleness.code_hash")
    except ModuleNotFoundError:  # of a commit from before that folder
        code_hash = importlib.import_module("rewind.workflow.code_hash")
    library = tree / "src/rewind"
    code = code_hash.StageCode(library=library)
    files = [path for folder in PLUGINS for path in sorted((library / folder).glob("[!_]*.py"))]
    plugins = [".".join(("rewind", *path.relative_to(library).with_suffix("").parts)) for path in files]
    variants = {
        "": CodeDependencies(),
        " +plugins": CodeDependencies(plugins),
        " +plugins +meanP": CodeDependencies(plugins, ["meanP"]),
    }
    stages: Stages = {}
    if (library / "jobs").is_dir():
        for path in sorted((library / "jobs").glob("[!_]*.py")):
            stages[f"jobs/{path.stem}"] = code_hash.reachable_definitions(code.reader, [f"rewind.jobs.{path.stem}"], {})
        return stages
    for stage in (*RULES, *SUB_STAGES):
        for variant, dependencies in variants.items():
            try:
                stages[stage + variant] = code.parts(stage, dependencies)
            except RewindError as error:
                stages[stage + variant] = {"error": str(error)}
    return stages


# ---- What is printed -----------------------------------------------------------------------------------------------


class Replay:
    """Counts over commits; in memory are the hashes of one commit and of the one before."""

    def __init__(self) -> None:
        self.before: dict[str, Stages] | None = None
        self.counts: Counter[str] = Counter()
        self.disagreements: list[str] = []
        self.differing: dict[tuple[str, str], list[str]] = defaultdict(list)

    def add(self, commit: str, now: dict[str, Stages]) -> None:
        self.counts["commits with jobs" if is_jobs(now) else "commits with rules"] += 1
        for stage, old in now["old"].items():
            new = now["new"].get(stage, REFUSED)
            self.counts["hashes"] += 1
            if refused := ("error" in old) + ("error" in new):
                self.counts["hashes that both refuse" if refused == 2 else "hashes that one refuses"] += 1
                continue
            self.counts["hashes that are equal"] += old == new
            for part in changed_parts(old, new):
                what = "only in old" if part not in new else "only in new" if part not in old else "other normal form"
                self.differing[part, what].append(f"{commit} {stage}")
        if self.before is not None and is_jobs(self.before) == is_jobs(now):
            self._compare_edit(commit, self.before, now)
        self.before = now

    def _compare_edit(self, commit: str, before: dict[str, Stages], now: dict[str, Stages]) -> None:
        trees = [tree[name] for tree in (before, now) for name in tree]
        both = {stage for stage in now["old"] if not any("error" in tree.get(stage, REFUSED) for tree in trees)}
        stale = {name: changed_stages(before[name], now[name]) & both for name in now}
        self.counts["edits"] += 1
        self.counts["edits that make a stage stale"] += bool(stale["old"])
        self.counts["stale stages, by old"] += len(stale["old"])
        self.counts["stale stages, by new"] += len(stale["new"])
        for stage in sorted(stale["old"] ^ stale["new"]):
            name = "old" if stage in stale["old"] else "new"
            parts = changed_parts(before[name].get(stage, {}), now[name].get(stage, {}))
            self.disagreements.append(f"{commit}: {stage} is stale by {name} alone: {', '.join(parts[:8])}")

    def report(self) -> None:
        for what, count in self.counts.items():
            print(f"{what}: {count:,}")
        print(f"disagreements about what is stale: {len(self.disagreements)}", *self.disagreements, sep="\n  ")
        for (part, what), where in sorted(self.differing.items()):
            print(f"{part}: {what}, of {len(where):,} hashes, first {where[0]}")


def is_jobs(stages: dict[str, Stages]) -> bool:
    return any(stage.startswith("jobs/") for stage in stages["old"])


def changed_stages(before: Stages, after: Stages) -> set[str]:
    return {stage for stage in before.keys() | after.keys() if before.get(stage) != after.get(stage)}


def changed_parts(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return sorted(part for part in before.keys() | after.keys() if before.get(part) != after.get(part))


if __name__ == "__main__":
    sys.exit(main())
