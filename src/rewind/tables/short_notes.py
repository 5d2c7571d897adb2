"""One-line notes for the LaTeX tables of a paper (``tables.notes: short``).

The full notes then move to the appendix, below the table of every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rewind.tables.footnotes import Footnotes, confidence_percent, pair_count
from rewind.tables.results import MIN_CLUSTERS_FOR_LETTERS
from rewind.tables.settings import SettingResults
from rewind.tables.table import Table

FULL_NOTES_POINTER = "all notes are with the table of every run"


def with_latex_notes(tables: Sequence[Table], notes: str, shared: Sequence[str] = ()) -> list[Table]:
    """The tables of a study, in reading order, with the notes of their LaTeX files.

    Args:
        notes: ``tables.notes``. ``full``: as in the other markups. ``short``: one line; ``none``: nothing. What is left
            out moves below the table of every run in the same setting, or in the first setting for tables of no
            setting; without such a table nothing is left out.
        shared: notes of all tables; where notes are moved, the first table of every run has them too.
    """
    appendix_stems = {table.setting: table.name for table in tables if table.appendix}
    if notes == "full" or not appendix_stems:
        return list(tables)
    first = next(iter(appendix_stems.values()))
    moved_notes: dict[str, tuple[str, ...]] = {stem: () for stem in appendix_stems.values()}
    for table in tables:
        if not table.appendix:
            prefix = f"{table.number}: " if table.number else ""
            moved_notes[appendix_stems.get(table.setting, first)] += _prefixed_notes(prefix, table.notes)
    moved_notes[first] += tuple(shared)
    return [
        replace(
            table,
            latex_notes=table.notes + moved_notes[table.name] if table.appendix else _kept_notes(table, notes),
        )
        for table in tables
    ]


def _kept_notes(table: Table, notes: str) -> tuple[str, ...]:
    return (table.short_note,) if notes == "short" and table.short_note else ()


def _prefixed_notes(prefix: str, notes: tuple[str, ...]) -> tuple[str, ...]:
    """The notes of a table, of which the first begins with the table's name."""
    return (f"{prefix}{notes[0]}", *notes[1:]) if notes else ()


def join_short_notes(parts: Sequence[str]) -> str:
    """``Mean ± s.d. over 3 seeds; …; all notes are with …``, one sentence."""
    text = "; ".join(part for part in (*parts, FULL_NOTES_POINTER) if part)
    return f"{text[:1].upper()}{text[1:]}."


def setting_line(facts: Footnotes, table: SettingResults, detectable: str) -> str:
    """Short notes of a setting's table; ``detectable``: differences that could be detected, or empty."""
    tied = dict.fromkeys(name for names in table.tied.values() for name in names)
    pairs = table.family or facts.family
    family = f" over {pair_count(pairs)}" if pairs else ""
    marks = f"letters, bold: {'accuracy' if table.setting == 'binary' else table.deciding}, " if table.marked else ""
    if table.few is not None:
        tested = f"too few clusters of queries for letters ({table.few:,} of {MIN_CLUSTERS_FOR_LETTERS})"
    elif not table.tested:
        tested = ""
    else:
        outcome = marks or "no two methods differ, "
        tested = f"{outcome}p < {1 - table.confidence:.3g} over seeds and queries, Holm{family}"
    return join_short_notes(
        [
            _sizes(facts, table),
            _seeds(table),
            "training budgets differ" if len(facts.budgets) > 1 else "",
            f"brackets: {confidence_percent(table.confidence)} intervals"
            if any(column.interval for column in table.metrics)
            else "",
            tested,
            f"80% power at {detectable}" if detectable else "",
            "a tie counts one half" if table.setting == "binary" else "",
            f"no interval where every query is a tie ({', '.join(tied)})" if tied else "",
        ]
    )


def _sizes(facts: Footnotes, table: SettingResults) -> str:
    counts = facts.settings.get(table.setting, {})
    if not counts or counts.get("queries") is None:
        return ""
    clusters = counts.get("clusters")
    clusters_text = f" in {clusters:,} clusters" if clusters and clusters != counts["queries"] else ""
    return f"{counts['queries']:,} queries{clusters_text}, {counts['items']:,} {facts.items}"


def _seeds(table: SettingResults) -> str:
    counts = [count for count in table.seeds if count > 1]
    if not counts:
        return ""
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean ± s.d. over {number} seeds"
