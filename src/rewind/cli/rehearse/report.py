"""What a rehearsal prints at its end, a table of stages and the cost of the whole study, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rewind.cli.rehearse.cost import Machine, StudyCost
from rewind.cli.rehearse.measured import FinishedJob, jobs_by_rule, peak_memory
from rewind.cli.rehearse.shrink import PreparedRehearsal
from rewind.io.files import write_json
from rewind.progress import format_duration

NO_RESULT_NOTE = "Nothing in this folder is a result."


@dataclass(frozen=True)
class SnakemakeOutcome:
    """How a run of Snakemake ended."""

    code: int
    seconds: float
    failed: list[str]  # rules of which a job failed
    tail: str  # the end of its output
    why: list[str] = field(default_factory=list)  # for each failed job that has a log: its path, and its last error


@dataclass
class Rehearsal:
    """One study's rehearsal: its folder, how Snakemake ended, what its jobs took, what the whole study will cost.

    ``cost`` is None where the rehearsal failed, ``sanity`` (the over-fitting check) where there was none.
    """

    name: str
    prepared: PreparedRehearsal
    outcome: SnakemakeOutcome
    jobs: list[FinishedJob]
    cost: StudyCost | None
    sanity: dict[str, Any] | None

    @property
    def good(self) -> bool:
        """Whether every job finished."""
        return self.outcome.code == 0


def report_text(rehearsal: Rehearsal, machine: Machine) -> str:
    """The report of one study's rehearsal; ``machine`` is that of the whole study."""
    good = "every stage of every method finished" if rehearsal.good else "FAILED"
    lines = [f"\nRehearsal of {rehearsal.name}: {good} ({format_duration(rehearsal.outcome.seconds)})", ""]
    lines += _stage_table(rehearsal)
    if rehearsal.sanity:
        r1 = f"{rehearsal.sanity['train_R@1']:.2f}"
        lines += ["", f"Over-fitting check: training R@1 {r1} after a few steps (no threshold is enforced)."]
    if not rehearsal.good:
        failed = ", ".join(rehearsal.outcome.failed) or "Snakemake itself"
        lines += [
            "",
            f"Failed: {failed}. The end of {rehearsal.prepared.folder / 'snakemake.log'}:",
            "",
            rehearsal.outcome.tail,
            "",
            *rehearsal.outcome.why,
        ]
    if rehearsal.cost:
        lines += ["", *cost_lines(rehearsal.cost, machine)]
    if rehearsal.good:
        page = rehearsal.prepared.folder / "results" / rehearsal.name / "report.html"
        lines += ["", f"Page: {page}. {NO_RESULT_NOTE}"]
    return "\n".join(lines)


def _stage_table(rehearsal: Rehearsal) -> list[str]:
    """A line per stage: what it took, and what it costs in all, which is seconds each × units, and the jobs' start."""
    rows = [] if rehearsal.cost else [_measured_cells(**stage) for stage in _stages(rehearsal.jobs)]
    for row in rehearsal.cost.rows if rehearsal.cost else ():
        units = ("–", "–") if not row.count else (f"{row.rate:.2g}", f"{row.count:,.0f}")
        whole = (row.unit, *units, f"{row.whole_jobs:,}", f"{row.whole_seconds / 3600:,.2f}")
        rows.append((*_measured_cells(row.rule, row.jobs, row.seconds, row.memory), *whole))
    columns: tuple[str, ...] = ("Stage", "Jobs", "Seconds", "Peak memory")
    columns += ("Unit", "Seconds each", "Units in all", "Jobs in all", "Hours in all") if rehearsal.cost else ()
    return align_columns([columns, *rows])


def _measured_cells(stage: str, jobs: int, seconds: float, peak_memory_mb: float | None) -> tuple[str, ...]:
    return stage, str(jobs), f"{seconds:.1f}", _format_mb(peak_memory_mb)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as aligned lines: the first column to the left, others to the right, a rule below the first row.

    >>> align_columns([("Stage", "Jobs"), ("train", "12")])
    ['Stage  Jobs', '───────────', 'train    12']
    """
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return [lines[0], "─" * len(lines[0]), *lines[1:]]


def cost_lines(cost: StudyCost, machine: Machine) -> list[str]:
    """What the whole study takes on a machine, what that costs where its price is known, and what was guessed."""
    gpus = f", {machine.gpus} GPU{'s' * (machine.gpus > 1)}" if machine.gpus else ""
    items = ", ".join(f"{count:,} {split}" for split, count in cost.counts.items.items())
    on_gpu = f", GPU memory {_format_mb(cost.gpu_memory)}" if cost.gpu_memory is not None else ""
    lines = [
        f"The whole study on {machine.cores} cores{gpus}: about {approximate_duration(cost.wall)}; "
        f"disk {format_bytes(cost.disk)}; memory of the largest job here {_format_mb(cost.memory)}{on_gpu}. "
        f"Items: {items} ({cost.counts.said}).",
    ]
    if machine.price is not None:
        lines.append(f"At {machine.price:g} an hour for that machine: about {cost.wall / 3600 * machine.price:,.2f}.")
    return lines + ["Guessed, not measured:"] * bool(cost.guesses) + [f"  - {guess}" for guess in cost.guesses]


def approximate_duration(seconds: float) -> str:
    """Minutes, hours from 90 minutes on, days from two on.

    >>> approximate_duration(95), approximate_duration(7200)
    ('2 min', '2.0 h')
    """
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def format_bytes(count: float) -> str:
    """Bytes in MB, from 1 GB on in GB."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _format_mb(memory: float | None) -> str:
    return "–" if memory is None else f"{memory:,.0f} MB"


def overview_table(rehearsals: Sequence[Rehearsal]) -> str:
    """A line for each of several studies, then why jobs failed."""
    rows = [("Study", "Jobs", "Rehearsal", "Whole study", "Failed")]
    for rehearsal in rehearsals:
        full_cost = approximate_duration(rehearsal.cost.wall) if rehearsal.cost else "–"
        rows.append(
            (
                rehearsal.name,
                str(len(rehearsal.jobs)),
                format_duration(rehearsal.outcome.seconds),
                full_cost,
                ", ".join(rehearsal.outcome.failed) or "–",
            )
        )
    reasons = [line for rehearsal in rehearsals for line in rehearsal.outcome.why]
    return "\n".join(["", *align_columns(rows), *[""] * bool(reasons), *reasons])


def write_json_report(rehearsals: Sequence[Rehearsal], machine: Machine, path: Path) -> None:
    """Write everything as JSON: a list with an object for each study."""
    write_json(path, [_study_json(rehearsal, machine) for rehearsal in rehearsals])


def _stages(jobs: list[FinishedJob]) -> list[dict[str, Any]]:
    return [
        {
            "stage": rule,
            "jobs": len(jobs),
            "seconds": round(sum(job.seconds for job in jobs), 3),
            "peak_memory_mb": peak_memory(jobs),
        }
        for rule, jobs in jobs_by_rule(jobs).items()
    ]


def _study_json(rehearsal: Rehearsal, machine: Machine) -> dict[str, Any]:
    return {
        "rehearsal": True,
        "study": rehearsal.name,
        "ended": rehearsal.good,
        "failed": rehearsal.outcome.failed,
        "why": rehearsal.outcome.why,
        "seconds": round(rehearsal.outcome.seconds, 3),
        "folder": str(rehearsal.prepared.folder),
        "stand_ins": rehearsal.prepared.notes,
        "stages": _stages(rehearsal.jobs),
        "whole_study": rehearsal.cost and {"machine": asdict(machine), **asdict(rehearsal.cost)},
    }
