"""What Snakemake would run, as it says itself (``snakemake -n``), and what it recorded when outputs were made."""

from __future__ import annotations

import ast
import base64
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.files import remembered

_JOB = re.compile(r"^((?:    )?)(?:local)?(?:rule|checkpoint) (\w+):$")  # those of a group are indented
_LINE = re.compile(r"^    (\w[\w ]*): (.*)$")
_CHANGED = re.compile(
    r"Params have changed since last execution: .*?before: (?P<before>.*) now: (?P<now>.*?) *(?:; |$)"
)
_OF_EVERY_RUN = re.compile(
    r"Using (workflow specific )?profiles? |Config file .* is extended by |Building DAG of jobs|host: "
    r"|WorkflowError in file .*, line \d+:$|\s+File \".*\", line \d+, in <module>$"
    r"|Assuming (un)?restricted shared filesystem|SNAKEMAKE$|=+$"
    r"|  (Date|Workflow ID|Platform|Host|User|Snakemake version|Python version|Command|Snakefile|(Base|Run|Working) "
    r"directory|Config file\(s\)|Config MD5): "
)
_RECORDS = Path(".snakemake/metadata")
_LONGEST = 255  # of a file name


@dataclass(frozen=True)
class Planned:
    """A job that would run.

    Attributes:
        rule: its rule.
        wildcards: of the job.
        inputs, outputs: files.
        reason: what Snakemake says.
        old: parameters that its outputs were made with, as far as they differ from those of now; as Python writes them.
        new: those of now that differ.
    """

    rule: str
    wildcards: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reason: str = ""
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)


def planned(targets: Sequence[str]) -> list[Planned]:
    """Jobs that ``snakemake TARGET…`` would run here, in its order; a name of a study stands for all of that study.

    Raises:
        RewindError: with what Snakemake said, where it refuses.
    """
    if not Path("Snakefile").is_file():
        raise RewindError("no Snakefile here: go to the folder in which you run snakemake.")
    studies = [name for name in targets if Path(f"config/studies/{name}.yaml").is_file()]
    command = [sys.executable, "-m", "snakemake", "-n", "--cores", "1", "--nolock"]
    command += ["--config", f"studies=[{','.join(studies)}]"] if studies else []
    others = [name for name in targets if name not in studies]
    done = subprocess.run([*command, *(["--", *others] if others else [])], capture_output=True, text=True)
    if done.returncode:
        raise RewindError(f"snakemake -n refuses:\n{refusal(done.stdout, done.stderr)}")
    return jobs(done.stdout + "\n" + done.stderr)


def refusal(stdout: str, stderr: str) -> str:
    """Why Snakemake refuses: what it said on either stream, without what it says of every run.

    The reason is on standard output where the workflow itself refuses, and on standard error beside a line about the
    profile.
    """
    lines = [line for line in f"{stdout}\n{stderr}".splitlines() if line.strip()]
    telling = [line for line in lines if not _OF_EVERY_RUN.match(line)]
    return "\n".join(telling or lines) or "it gave no reason"


def jobs(said: str) -> list[Planned]:
    """Jobs among the lines of a dry run, without those that only name targets."""
    found: list[tuple[str, dict[str, str]]] = []
    margin: str | None = None
    for line in said.splitlines():
        if start := _JOB.match(line):
            margin = start[1]
            found.append((start[2], {}))
        elif not line.startswith(" "):
            margin = None
        elif margin is not None and (pair := _LINE.match(line.removeprefix(margin))):
            found[-1][1][pair[1]] = pair[2]
    return [_job(rule, values) for rule, values in found if "jobid" in values and "output" in values]


def _job(rule: str, values: dict[str, str]) -> Planned:
    wildcards = dict(pair.split("=", 1) for pair in _listed(values.get("wildcards", "")))
    inputs, outputs = (_listed(values.get(name, "")) for name in ("input", "output"))
    reason = values.get("reason", "")
    changed = _CHANGED.search(reason)
    old, new = (_values(changed[1]), _values(changed[2])) if changed else ([], [])
    return Planned(rule, wildcards, inputs, outputs, reason, old, new)


def _listed(text: str) -> list[str]:
    """Files of a line, without what Snakemake adds in brackets."""
    return [re.sub(r" \(.*\)$", "", part) for part in text.split(", ") if part]


def _values(text: str) -> list[str]:
    """Values that Snakemake joined by commas, as Python writes them."""
    found, begun = [], ""
    for part in text.split(","):
        begun = f"{begun},{part}" if begun else part
        try:
            ast.literal_eval(begun)
        except (ValueError, SyntaxError):
            continue
        found.append(begun)
        begun = ""
    return found


def record(output: str) -> dict[str, Any]:
    """What Snakemake noted when it made a file; nothing where it noted nothing."""
    return remembered(record_path(output)) or {}


def record_path(output: str) -> Path:
    """Where Snakemake notes how it made a file."""
    name = base64.urlsafe_b64encode(output.encode()).decode()
    parts = [name[at : at + _LONGEST - 1] for at in range(0, len(name), _LONGEST - 1)]
    return _RECORDS.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])
