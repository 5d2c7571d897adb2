"""Edits that somebody declared to change no number: which outputs keep the sum that they were made with.

``accepted.json`` lies beside the results, of a study or of a data set, and goes where they go. It is written by
``rewind accept``, read by the rules, and said below every table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rewind.files import reading_user_file, write_json

FILE = "accepted.json"
_ENDS = 1 << 16  # bytes of a large file that tell whether it is the one that was there
SHOWN = frozenset({"tables", "figures", "cosine_gap_figure", "group_figure", "examples", "page"})
"""Stages that show numbers and hold none of their own: they are made again, and no table speaks of them."""


@dataclass(frozen=True)
class Entry:
    """One accepted edit of one job's code.

    Attributes:
        stage, rule, job: whose code; ``job`` are its wildcards, for example ``method=meanP, seed=0, study=demo``.
        recorded: the sum that its outputs were made with, which they keep.
        accepted: the sum that counts as the same.
        changed: what differs between the two, in words.
        who, when: who said so (the account's name), and the day.
        output: one of its outputs.
        state: what that file was when the edit was accepted: an output that is made anew is not of the old code.
    """

    stage: str
    rule: str
    job: str
    recorded: str
    accepted: str
    changed: list[str]
    who: str
    when: str
    output: str
    state: str

    def holds(self) -> bool:
        """Whether the output is still the one that was made with the older code."""
        return state_of(self.output) == self.state


class Accepted:
    """What was accepted, read once."""

    def __init__(self, results: Path = Path("results")) -> None:
        self.results = results
        self._read: dict[Path, dict[tuple[str, str], Entry]] = {}

    def recorded(self, stage: str, wildcards: Mapping[str, str], mark: str) -> str:
        """The sum that a job passes: its own, or that of its outputs where this one was accepted for them."""
        entry = self.entries(self.file(wildcards)).get((stage, job_name(wildcards)))
        return entry.recorded if entry and entry.accepted == mark else mark

    def counted(self, wildcards: Mapping[str, str], mark: str) -> str:
        """The sum that was last accepted for outputs of a job that were made with ``mark``; else this one."""
        name = job_name(wildcards)
        entries = self.entries(self.file(wildcards)).values()
        return next((one.accepted for one in entries if (one.job, one.recorded) == (name, mark)), mark)

    def file(self, wildcards: Mapping[str, str]) -> Path:
        """``accepted.json`` of the study or data set that a job is of."""
        folder = wildcards["study"] if "study" in wildcards else Path("data") / wildcards["dataset"]
        return self.results / folder / FILE

    def entries(self, path: Path) -> dict[tuple[str, str], Entry]:
        """Stage and job → what was accepted for it.

        Raises:
            RewindError: if the file is there and cannot be read: without it finished runs would be made again.
        """
        if path not in self._read:
            self._read[path] = {(entry.stage, entry.job): entry for entry in _load(path)}
        return self._read[path]

    def add(self, path: Path, new: Iterable[Entry]) -> None:
        """Write further entries; of the same job the last one holds."""
        found = self.entries(path) | {(entry.stage, entry.job): entry for entry in new}
        write_json(path, [asdict(entry) for entry in found.values()])
        self._read[path] = found

    def sentences(self, study: str, dataset: str) -> list[str]:
        """What tables say of it: an edit and the stages it was accepted for, as long as their outputs are those."""
        groups: dict[tuple[str, str, str], list[str]] = {}
        for folder in (Path("data") / dataset, Path(study)):
            for entry in self.entries(self.results / folder / FILE).values():
                if entry.stage not in SHOWN and entry.holds():
                    what = ", ".join(entry.changed)
                    groups.setdefault((what, entry.who, entry.when), []).append(entry.stage)
        return [
            f"Accepted by {who} on {when} as changing no number, after results were made: {what} (stages: "
            f"{', '.join(dict.fromkeys(stages))})"
            for (what, who, when), stages in groups.items()
        ]


def job_name(wildcards: Mapping[str, str]) -> str:
    """A job's wildcards as one text, in alphabetical order."""
    return ", ".join(f"{name}={wildcards[name]}" for name in sorted(wildcards))


def state_of(path: str | Path) -> str:
    """A short hash of a file's size and ends; of a folder its name alone, and nothing where there is none."""
    path = Path(path)
    if path.is_dir():
        return "folder"
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            ends = stream.read(_ENDS)
            stream.seek(max(0, size - _ENDS))
            ends += stream.read()
    except OSError:
        return ""
    return hashlib.sha256(f"{size}\0".encode() + ends).hexdigest()[:16]


def _load(path: Path) -> list[Entry]:
    if not path.exists():
        return []
    remedy = (
        "without it finished results count as stale: put back the file as `rewind accept` wrote it, or delete it, and "
        "what it kept is made again"
    )
    with reading_user_file(path, "list of accepted edits", remedy):
        entries = [Entry(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        if not all(isinstance(value, str) for one in entries for value in (one.stage, one.job, one.recorded)):
            raise TypeError("a stage, a job or a sum is no text")
        return entries
