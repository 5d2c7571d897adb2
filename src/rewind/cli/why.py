"""``rewind why`` lists stale jobs and what changed; ``rewind accept`` declares that a code edit changes no result."""

from __future__ import annotations

import datetime
import getpass
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from rewind.commands import override_words
from rewind.errors import RewindError
from rewind.workflow.stages import is_display, strip_rule_prefix
from rewind.workflow.staleness.accepted import AcceptedEdit, AcceptedEditStore, hash_size_and_ends, job_name
from rewind.workflow.staleness.reasons import (
    JobChange,
    PlannedJob,
    dry_run,
    find_changes,
    inputs_only_moved,
    parse_dry_run,
    planned_jobs,
    studies_of_targets,
    update_recorded_inputs,
    update_recorded_params,
)
from rewind.workflow.what_ran import typed_overrides


def why(targets: Sequence[str]) -> int:
    """Print which jobs would run and what changed since their outputs were written; nothing is run.

    Targets are files, rules or studies, as for ``snakemake``. Returns the exit code.
    """
    accepted = AcceptedEditStore()
    if typed := typed_overrides(studies_of_targets(targets)):
        repeated = shlex.join(override_words({"overrides": typed}))
        print(
            f"as these results were computed, with {repeated}; `snakemake` without it computes again what depends on it"
        )
    text = dry_run(targets)
    notes = [line.removeprefix("note: ") for line in text.splitlines() if line.startswith("note: ")]
    changes = [(job, find_changes(job, accepted)) for job in parse_dry_run(text)]
    for note in notes:  # files that are gone, and that no target lacks
        print(note)
    if not changes:
        print("nothing else is stale" if notes else "nothing is stale")
        return 0
    follow_ups: dict[str, int] = {}
    for job, change in changes:
        if words := change.words():
            print(f"{job_title(job)}: {'; '.join(words)}")
        else:
            follow_ups[job.rule] = follow_ups.get(job.rule, 0) + 1
    if follow_ups:
        print(
            "and what is computed from these: "
            + ", ".join(f"{rule}{_job_count_text(count)}" for rule, count in follow_ups.items())
        )
    return 0


def accept(targets: Sequence[str]) -> int:
    """Declare that edits of code change no result: existing outputs then count as computed by the present code.

    The declaration is the user's claim, of which nothing is checked. It is recorded in ``accepted.json`` of the study
    or data set; where clips and frames are stored elsewhere, their new paths go into Snakemake's records. Tables,
    figures and pages are made again nevertheless (:data:`rewind.workflow.stages.is_display`).

    Raises:
        RewindError: where no output of these targets is stale only because of an edit of code.
    """
    accepted = AcceptedEditStore()
    new_edits: dict[Path, list[AcceptedEdit]] = {}
    moved_jobs, updated_jobs = set[str](), set[str]()
    # Snakemake names a job's own reason only where none of its inputs is computed again, so stages are accepted in
    # turn: each dry run shows the next ones.
    while edited := [
        (job, change)
        for job, change in _edited_jobs(targets)
        if not _already_accepted(job, accepted, new_edits)
        and not (change.files and job_title(job) in moved_jobs)
        and not (change.recounted and job_title(job) in updated_jobs)
    ]:
        for job, change in edited:
            print(f"{job_title(job)}: {'; '.join(change.words())}", flush=True)
            if change.recounted:
                update_recorded_params(job, change)
                updated_jobs.add(job_title(job))
            if change.files:
                update_recorded_inputs(job)
                moved_jobs.add(job_title(job))
            new_edits.setdefault(accepted.file(job.wildcards), []).extend(_accepted_edits(job, change, accepted))
        for path, edits in new_edits.items():
            if edits:
                accepted.add(path, edits)
    if not any(new_edits.values()) and not moved_jobs and not updated_jobs:
        raise RewindError(
            "nothing to accept: no output of these targets is stale only because of an edit of code; `rewind why` "
            "lists what is stale, and why."
        )
    for path, edits in new_edits.items():
        if edits:
            print(f"{path}: {len(edits)} accepted")
    if moved_jobs:
        print(f"{len(moved_jobs)} jobs read the same clips and frames from where they are now (.snakemake/metadata)")
    if updated_jobs:
        print(f"{len(updated_jobs)} jobs are compared by fewer keys than when they ran (.snakemake/metadata)")
    if any(new_edits.values()):
        print(
            f"That these edits change no result is the claim of {getpass.getuser()}; nothing was compared. Finished "
            "results now count as computed by the current code, and tables state who accepted what."
        )
    return 0


def _edited_jobs(targets: Sequence[str]) -> list[tuple[PlannedJob, JobChange]]:
    """Jobs that are stale only because code was edited, clips are stored elsewhere, or keys do not count any more."""
    changes = [(job, find_changes(job)) for job in planned_jobs(targets) if not is_display(strip_rule_prefix(job.rule))]
    accepted = [
        (job, change)
        for job, change in changes
        if (change.code or change.files or change.recounted) and not change.keys
    ]
    return [(job, change) for job, change in accepted if not change.files or inputs_only_moved(job)]


def _already_accepted(job: PlannedJob, accepted: AcceptedEditStore, new_edits: dict[Path, list[AcceptedEdit]]) -> bool:
    name = job_name(job.wildcards)
    return any(edit.job == name and edit.rule == job.rule for edit in new_edits.get(accepted.file(job.wildcards), ()))


def _accepted_edits(job: PlannedJob, change: JobChange, accepted: AcceptedEditStore) -> Iterable[AcceptedEdit]:
    # The smallest existing output represents the job: its state is hashed, now and whenever tables are written.
    smallest = min(filter(Path.is_file, map(Path, job.outputs)), key=lambda path: path.stat().st_size, default=None)
    output = str(smallest or job.outputs[0])
    earlier_edits = accepted.entries(accepted.file(job.wildcards))
    for code in change.code:
        earlier = earlier_edits.get((code.stage, job_name(job.wildcards)))
        words = earlier.changed if earlier and earlier.recorded == code.old else []
        yield AcceptedEdit(
            stage=code.stage,
            rule=job.rule,
            job=job_name(job.wildcards),
            recorded=code.old,
            accepted=code.new,
            changed=list(dict.fromkeys([*words, *code.words()])),
            who=getpass.getuser(),
            when=datetime.datetime.now(datetime.UTC).date().isoformat(),
            output=output,
            state=hash_size_and_ends(output),
        )


def job_title(job: PlannedJob) -> str:
    """A job by name.

    >>> job_title(PlannedJob("train", {"study": "demo", "method": "seqTransf", "seed": "0"}))
    'train demo/seqTransf/seed0'
    """
    wildcards = dict(job.wildcards)
    parts = [wildcards.pop("study", "") or wildcards.pop("dataset", ""), wildcards.pop("method", "")]
    parts += [f"seed{wildcards.pop('seed')}"] if "seed" in wildcards else []
    parts += [value.strip("/") if name == "part" else f"{name}{value}" for name, value in wildcards.items()]
    return f"{job.rule} {'/'.join(filter(None, parts))}"


def _job_count_text(count: int) -> str:
    return f" ({count} jobs)" if count > 1 else ""
