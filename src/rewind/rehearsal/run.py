"""Snakemake on a rehearsal's folder: the checkout's own workflow, told line by line how far it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rewind.errors import RewindError
from rewind.progress import clock

_DONE = re.compile(r"(\d+) of (\d+) steps")
_FAILED = re.compile(r"Error in rule (\w+)")
_LOG = re.compile(r"^\s+log: (\S+)")
EVERY = 10.0  # seconds between two lines
SHOWN = 40  # lines of the log that are shown where it failed


@dataclass(frozen=True)
class Outcome:
    """How a run of Snakemake ended.

    Attributes:
        code: its exit code.
        seconds: that it took.
        failed: rules of which a job failed.
        said: the end of what it printed.
        why: a line for each failed job that has a log: where it lies, and its last words.
    """

    code: int
    seconds: float
    failed: list[str]
    said: str
    why: list[str] = field(default_factory=list)


def run(folder: Path, checkout: Path, cores: int, gpus: int, targets: list[str]) -> Outcome:
    """Run the checkout's workflow in ``folder``; everything it says goes to ``snakemake.log`` there.

    Modules of the user's own are found from the checkout, as they are in a real run.
    """
    snakefile, profile = checkout / "Snakefile", checkout / "profiles/default"
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(folder)]
    command += ["--cores", str(cores), "--resources", f"gpu={gpus}", "--keep-going"]
    command += ["--workflow-profile", str(profile)] if profile.is_dir() else []
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    log, began, shown, failed = folder / "snakemake.log", time.monotonic(), 0.0, {}
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [*command, *targets], cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        try:
            for line in process.stdout or ():
                stream.write(line)
                stream.flush()
                if found := _FAILED.search(line):
                    failed[found[1]] = None
                now = time.monotonic() - began
                if (step := _DONE.search(line)) and (now - shown >= EVERY or step[1] == step[2]):
                    shown = now
                    print(f"  {step[1]} of {step[2]} jobs, {clock(now)}", file=sys.stderr, flush=True)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        finally:
            signal.signal(signal.SIGTERM, before)
        code = process.wait()
    lines = log.read_text(encoding="utf-8").splitlines()
    said = "\n".join(lines[-SHOWN:])
    return Outcome(code, time.monotonic() - began, list(failed), said, _reasons(lines, folder))


def _reasons(lines: list[str], folder: Path) -> list[str]:
    """Logs of the jobs that failed, with their last words."""
    found, failed = {}, None
    for line in lines:
        if match := _FAILED.search(line):
            failed = match[1]
        elif failed and (match := _LOG.match(line)):
            found[match[1]] = f"{failed}, {folder / match[1]}: {last_words(folder / match[1])}"
            failed = None
    return list(found.values())


def last_words(log: Path) -> str:
    """Why a job failed, by its log: the last error for people, or else its last line."""
    if not log.is_file():
        return "it left no log"
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or ["its log is empty"])[-1].strip()


def check_checkout(folder: Path) -> None:
    """Refuse a folder in which the workflow does not lie.

    Raises:
        RewindError: if there is no Snakefile.
    """
    if not (folder / "Snakefile").is_file():
        raise RewindError(
            f"{folder}: no Snakefile here; go to the folder in which you run snakemake, and rehearse there."
        )
