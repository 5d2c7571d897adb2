"""Why a run of Snakemake failed: the last lines of each failed job's own log, which its output buries or leaves out."""

from __future__ import annotations

import re
from pathlib import Path

LINES = 25
"""Of each log, and of Snakemake's output where no job failed."""

_FAILED = re.compile(r"Error in (?:rule|group) ([\w-]+)|    jobs:$")  # the latter: of a group
_RULE = re.compile(r"        rule (\w+):$")
_LOG = re.compile(r"\s+log: (.+?)(?: \(check log file\(s\) for error details\))?$")
_BEFORE_JOBS = re.compile(r"^(WorkflowError|\w*Exception|\w*Error)\b", re.M)


def reasons(output: str, folder: Path) -> str:
    """What failed jobs said last.

    Args:
        output: all that Snakemake printed.
        folder: where it ran; logs that are on their way to a bucket are below its ``.snakemake/storage``.

    Returns:
        For every failed job that has a log its rule, the log, and the log's last lines. Where there is none, what
        Snakemake says from its own error on, or else its last lines.
    """
    found: dict[Path, str] = {}
    rule = None
    for line in output.splitlines():
        if match := _FAILED.match(line):
            rule = match[1] or ""
        elif rule is not None and not line.startswith("    "):
            rule = None  # the end of what is told of this failure
        elif rule is not None and (match := _RULE.match(line)):
            rule = match[1]
        elif rule is not None and (match := _LOG.match(line)):
            for log in (_local(address.split()[0], folder) for address in match[1].split(", ")):
                text = log.read_text(errors="replace").strip() if log.is_file() else ""
                if text and not text.splitlines()[-1].startswith("finished in "):  # a job of the group that ended well
                    found[log] = f"{rule} failed; {log} ends:\n{_end(text)}"
    if found:
        return "\n\n".join(found.values())
    told = list(_BEFORE_JOBS.finditer(output))
    return _end(output[told[-1].start() :] if told else output)


def _local(address: str, folder: Path) -> Path:
    """Where a log lies on this disk."""
    provider, found, rest = address.partition("://")
    return folder / ".snakemake/storage" / provider / rest if found else folder / address


def _end(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[-LINES:])
