"""What a rehearsal says at its end: a table of stages, the price of the whole, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewind.files import write_json
from rewind.progress import clock
from rewind.rehearsal.cost import Cost, Machine
from rewind.rehearsal.measure import Job
from rewind.rehearsal.stages import stage_of

if TYPE_CHECKING:
    from rewind.rehearsal.command import Rehearsal

NO_RESULT = "Nothing in this folder is a result."


def text(rehearsal: Rehearsal, machine: Machine) -> str:
    """The rehearsal of one study."""
    good = "every stage of every method finished" if rehearsal.good else "FAILED"
    lines = [f"\nRehearsal of {rehearsal.name}: {good} ({clock(rehearsal.outcome.seconds)})", ""]
    lines += _table(rehearsal)
    if rehearsal.sanity:
        lines += ["", _sanity(rehearsal.sanity)]
    if not rehearsal.good:
        failed = ", ".join(rehearsal.outcome.failed) or "Snakemake itself"
        lines += [
            "",
            f"Failed: {failed}. The end of {rehearsal.stage.folder / 'snakemake.log'}:",
            "",
            rehearsal.outcome.said,
            "",
            *rehearsal.outcome.why,
        ]
    if rehearsal.cost:
        lines += ["", *_price(rehearsal.cost, machine)]
    if rehearsal.good:
        lines += ["", f"Page: {rehearsal.stage.results(rehearsal.name) / 'report.html'}. {NO_RESULT}"]
    return "\n".join(lines)


def _table(rehearsal: Rehearsal) -> list[str]:
    cost = rehearsal.cost
    rows = [("Stage", "Jobs", "Seconds", "Peak memory") + (("Jobs in all", "Seconds in all") if cost else ())]
    for row in cost.rows if cost else ():
        whole = (f"{row.whole_jobs:,}", f"{row.whole_seconds:,.0f}")
        rows.append((row.rule, str(row.jobs), f"{row.seconds:.1f}", _mb(row.memory), *whole))
    for rule, jobs in () if cost else _by_rule(rehearsal.jobs):
        rows.append((rule, str(len(jobs)), f"{sum(job.seconds for job in jobs):.1f}", _mb(_most(jobs))))
    return aligned(rows)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of text as lines: the first column to the left, numbers to the right, a rule below the first row."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return [lines[0], "─" * len(lines[0]), *lines[1:]]


def _by_rule(jobs: list[Job]) -> list[tuple[str, list[Job]]]:
    rules = sorted({job.rule for job in jobs}, key=lambda rule: (stage_of(rule).level, rule))
    return [(rule, [job for job in jobs if job.rule == rule]) for rule in rules]


def _most(jobs: list[Job]) -> float | None:
    return max((job.memory for job in jobs if job.memory is not None), default=None)


def _sanity(found: dict[str, Any]) -> str:
    return f"Over-fitting check: training R@1 {found['train_R@1']:.2f} after a few steps (no threshold is enforced)."


def _price(cost: Cost, machine: Machine) -> list[str]:
    gpus = f", {machine.gpus} GPU{'s' * (machine.gpus > 1)}" if machine.gpus else ""
    items = ", ".join(f"{count:,} {split}" for split, count in cost.counts.items.items())
    on_gpu = f", GPU memory {_mb(cost.gpu_memory)}" if cost.gpu_memory is not None else ""
    lines = [
        f"The whole study on {machine.cores} cores{gpus}: about {span(cost.wall)}; disk {size(cost.disk)}; memory of "
        f"the largest job here {_mb(cost.memory)}{on_gpu}. Items: {items} ({cost.counts.said}).",
    ]
    return lines + ["Guessed, not measured:"] * bool(cost.guesses) + [f"  - {guess}" for guess in cost.guesses]


def span(seconds: float) -> str:
    """``95`` → ``2 min``; ``7200`` → ``2.0 h``; days from two on."""
    if seconds < 5400:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def size(count: float) -> str:
    """Bytes for people."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


def _mb(memory: float | None) -> str:
    return "–" if memory is None else f"{memory:,.0f} MB"


def overview(done: Sequence[Rehearsal]) -> str:
    """Several studies, a line each."""
    rows = [("Study", "Jobs", "Rehearsal", "Whole study", "Failed")]
    for one in done:
        whole = span(one.cost.wall) if one.cost else "–"
        rows.append(
            (one.name, str(len(one.jobs)), clock(one.outcome.seconds), whole, ", ".join(one.outcome.failed) or "–")
        )
    why = [line for one in done for line in one.outcome.why]
    return "\n".join(["", *aligned(rows), *[""] * bool(why), *why])


def write(done: Sequence[Rehearsal], machine: Machine, path: Path) -> None:
    """Write everything as JSON: a list with an object for every study."""
    write_json(path, [_json(one, machine) for one in done])


def _json(one: Rehearsal, machine: Machine) -> dict[str, Any]:
    stages = [
        {
            "stage": rule,
            "jobs": len(jobs),
            "seconds": round(sum(j.seconds for j in jobs), 3),
            "peak_memory_mb": _most(jobs),
        }
        for rule, jobs in _by_rule(one.jobs)
    ]
    return {
        "rehearsal": True,
        "study": one.name,
        "ended": one.good,
        "failed": one.outcome.failed,
        "why": one.outcome.why,
        "seconds": round(one.outcome.seconds, 3),
        "folder": str(one.stage.folder),
        "stand_ins": one.stage.notes,
        "stages": stages,
        "whole_study": one.cost and {"machine": asdict(machine), **asdict(one.cost)},
    }
