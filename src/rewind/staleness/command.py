"""``rewind why`` and ``rewind accept``."""

from __future__ import annotations

import datetime
import getpass
from collections.abc import Iterable, Sequence
from pathlib import Path

from rewind.errors import RewindError
from rewind.identity.accepted import SHOWN, Accepted, Entry, job_name, state_of
from rewind.identity.stages import job_named
from rewind.staleness.changes import Change, change
from rewind.staleness.moved import only_moved, rebase
from rewind.staleness.plan import Planned, planned


def why(targets: Sequence[str]) -> int:
    """Say which jobs would run and what changed since their outputs were made; nothing is run."""
    accepted = Accepted()
    found = [(job, change(job, accepted)) for job in planned(targets)]
    if not found:
        print("nothing is stale")
        return 0
    follows: dict[str, int] = {}
    for job, seen in found:
        if words := seen.words():
            print(f"{title(job)}: {'; '.join(words)}")
        else:
            follows[job.rule] = follows.get(job.rule, 0) + 1
    if follows:
        print("and what is made from these: " + ", ".join(f"{rule}{_times(n)}" for rule, n in follows.items()))
    return 0


def accept(targets: Sequence[str]) -> int:
    """Let outputs that are there count as made by the code of now; what shows numbers is made again all the same.

    Raises:
        RewindError: where no output of these targets is stale for an edit of code alone.
    """
    accepted = Accepted()
    files: dict[Path, list[Entry]] = {}
    moved: set[str] = set()
    # Snakemake names a job's own reason only once nothing before it runs again: stage by stage, then.
    while new := [
        (job, seen)
        for job, seen in _edited(targets)
        if not _among(job, accepted, files) and not (seen.files and title(job) in moved)
    ]:
        for job, seen in new:
            print(f"{title(job)}: {'; '.join(seen.words())}", flush=True)
            if seen.files:
                rebase(job)
                moved.add(title(job))
            files.setdefault(accepted.file(job.wildcards), []).extend(_entries(job, seen, accepted))
        for path, entries in files.items():
            if entries:
                accepted.add(path, entries)
    if not any(files.values()) and not moved:
        raise RewindError(
            "nothing to accept: no output of these targets is stale only because of an edit of code; `rewind why` says "
            "what is stale, and why."
        )
    for path, entries in files.items():
        if entries:
            print(f"{path}: {len(entries)} accepted")
    if moved:
        print(f"{len(moved)} jobs read the same clips and frames from where they are now")
    return 0


def _edited(targets: Sequence[str]) -> list[tuple[Planned, Change]]:
    """Jobs whose code was edited since, or whose clips lie elsewhere, and nothing else."""
    found = [(job, change(job)) for job in planned(targets) if job_named(job.rule) not in SHOWN]
    same = [(job, seen) for job, seen in found if (seen.code or seen.files) and not seen.keys]
    return [(job, seen) for job, seen in same if not seen.files or only_moved(job)]


def _among(job: Planned, accepted: Accepted, files: dict[Path, list[Entry]]) -> bool:
    name = job_name(job.wildcards)
    return any(entry.job == name and entry.rule == job.rule for entry in files.get(accepted.file(job.wildcards), ()))


def _entries(job: Planned, seen: Change, accepted: Accepted) -> Iterable[Entry]:
    output = min(filter(Path.is_file, map(Path, job.outputs)), key=lambda path: path.stat().st_size, default=None)
    output = str(output or job.outputs[0])
    before = accepted.entries(accepted.file(job.wildcards))
    for code in seen.code:
        earlier = before.get((code.stage, job_name(job.wildcards)))
        words = earlier.changed if earlier and earlier.recorded == code.old else []
        yield Entry(
            stage=code.stage,
            rule=job.rule,
            job=job_name(job.wildcards),
            recorded=code.old,
            accepted=code.new,
            changed=list(dict.fromkeys([*words, *code.words()])),
            who=getpass.getuser(),
            when=datetime.datetime.now(datetime.UTC).date().isoformat(),
            output=output,
            state=state_of(output),
        )


def title(job: Planned) -> str:
    """A job by name, for example ``train demo/seqTransf/seed0``."""
    rest = dict(job.wildcards)
    words = [rest.pop("study", "") or rest.pop("dataset", ""), rest.pop("method", "")]
    words += [f"seed{rest.pop('seed')}"] if "seed" in rest else []
    words += [value.strip("/") if name == "part" else f"{name}{value}" for name, value in rest.items()]
    return f"{job.rule} {'/'.join(filter(None, words))}"


def _times(count: int) -> str:
    return f" ({count} jobs)" if count > 1 else ""
