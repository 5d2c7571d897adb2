"""Code edits that somebody declared to change no number (``rewind accept``): outputs keep their code hash.

``accepted.json`` is stored next to the results of a study or data set and is copied with them. ``rewind accept`` writes
it, the rules read it, and every table mentions it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from rewind.hashing import short_hash
from rewind.io.files import reading_user_file, write_json
from rewind.workflow.stages import is_display

ACCEPTED_FILE = "accepted.json"
_END_BYTES = 1 << 16  # bytes at either end of a file that, with its size, tell whether it is still the same


@dataclass(frozen=True)
class AcceptedEdit:
    """One accepted edit of one job's code.

    ``state`` is the :func:`hash_size_and_ends` of ``output`` when the edit was accepted: an output that was rebuilt
    since is not of the old code.
    """

    stage: str
    rule: str
    job: str  # its wildcards, for example ``method=meanP, seed=0, study=demo``
    recorded: str  # the code hash of its outputs, which they keep
    accepted: str  # the code hash that counts as the same
    changed: list[str]  # what differs between the two, in words
    who: str  # name of the account
    when: str  # the day
    output: str
    state: str

    def holds(self) -> bool:
        """Whether the output is still the one that was made with the older code."""
        return hash_size_and_ends(self.output) == self.state


class AcceptedEditStore:
    """The accepted edits of all studies and data sets; each file is read once.

    >>> AcceptedEditStore(Path("results")).file({"study": "demo", "method": "meanP"}).as_posix()
    'results/demo/accepted.json'
    """

    def __init__(self, results: Path = Path("results")) -> None:
        self.results = results
        self._read: dict[Path, dict[tuple[str, str], AcceptedEdit]] = {}

    def recorded(self, stage: str, wildcards: Mapping[str, str], code_hash: str) -> str:
        """The code hash that a job's rule passes: its own, or that of its outputs where its own was accepted."""
        entry = self.entries(self.file(wildcards)).get((stage, job_name(wildcards)))
        return entry.recorded if entry and entry.accepted == code_hash else code_hash

    def counted(self, wildcards: Mapping[str, str], code_hash: str) -> str:
        """The code hash that was last accepted for outputs of a job made with ``code_hash``; else ``code_hash``."""
        name = job_name(wildcards)
        entries = self.entries(self.file(wildcards)).values()
        return next(
            (entry.accepted for entry in entries if (entry.job, entry.recorded) == (name, code_hash)), code_hash
        )

    def file(self, wildcards: Mapping[str, str]) -> Path:
        """``accepted.json`` of the study or data set that a job belongs to."""
        folder = wildcards["study"] if "study" in wildcards else Path("data") / wildcards["dataset"]
        return self.results / folder / ACCEPTED_FILE

    def entries(self, path: Path) -> dict[tuple[str, str], AcceptedEdit]:
        """Stage and job → what was accepted for it.

        A file that cannot be read is refused: without it finished runs would be made again.
        """
        if path not in self._read:
            self._read[path] = {(entry.stage, entry.job): entry for entry in _load_edits(path)}
        return self._read[path]

    def check(self, studies: Iterable[str], datasets: Iterable[str]) -> None:
        """Read the files of studies and data sets, as :meth:`entries` does: one that cannot be read is refused."""
        for folder in (*studies, *(f"data/{name}" for name in datasets)):
            self.entries(self.results / folder / ACCEPTED_FILE)

    def add(self, path: Path, new: Iterable[AcceptedEdit]) -> None:
        """Write further entries; the last one for a stage and job replaces earlier ones."""
        entries = self.entries(path) | {(entry.stage, entry.job): entry for entry in new}
        write_json(path, [asdict(entry) for entry in entries.values()])
        self._read[path] = entries

    def sentences(self, study: str, dataset: str) -> list[str]:
        """Sentences for tables: each edit with the stages it was accepted for, while their outputs are unchanged."""
        groups: dict[tuple[str, str, str], list[str]] = {}
        for folder in (Path("data") / dataset, Path(study)):
            for entry in self.entries(self.results / folder / ACCEPTED_FILE).values():
                if not is_display(entry.stage) and entry.holds():
                    changed = ", ".join(entry.changed)
                    groups.setdefault((changed, entry.who, entry.when), []).append(entry.stage)
        return [
            f"Accepted by {who} on {when} as changing no number, after results were computed: {changed} (stages: "
            f"{', '.join(dict.fromkeys(stages))})"
            for (changed, who, when), stages in groups.items()
        ]


def job_name(wildcards: Mapping[str, str]) -> str:
    """A job's wildcards as one text, in alphabetical order.

    >>> job_name({"study": "demo", "seed": "0"})
    'seed=0, study=demo'
    """
    return ", ".join(f"{name}={wildcards[name]}" for name in sorted(wildcards))


def hash_size_and_ends(path: str | Path) -> str:
    """A short hash of a file's size, first and last bytes; ``folder`` for a folder, empty where there is no file."""
    path = Path(path)
    if path.is_dir():
        return "folder"
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            ends = stream.read(_END_BYTES)
            stream.seek(max(0, size - _END_BYTES))
            ends += stream.read()
    except OSError:
        return ""
    return short_hash(f"{size}\0".encode(), ends)


def _load_edits(path: Path) -> list[AcceptedEdit]:
    if not path.exists():
        return []
    remedy = (
        "without it finished results count as stale: put back the file as `rewind accept` wrote it, or delete it, and "
        "what it kept is made again"
    )
    with reading_user_file(path, "list of accepted edits", remedy):
        entries = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise TypeError("it is not a list of objects")
        edits = [AcceptedEdit(**entry) for entry in entries]
        if not all(isinstance(value, str) for edit in edits for value in (edit.stage, edit.job, edit.recorded)):
            raise TypeError("a stage, a job or a sum is not text")
        return edits
