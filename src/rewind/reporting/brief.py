"""One line below a table of a paper (``tables.notes: short``), and where the rest of the notes goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rewind.reporting.cells import Table, pairs_compared
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.published import Published
from rewind.reporting.results import Results
from rewind.reporting.significance import LETTERS_FROM

APPENDIX = "all notes are with the table of every run"


def for_paper(tables: Sequence[Published], notes: str) -> list[Published]:
    """The tables with the notes that their LaTeX has.

    Args:
        tables: of a study, in reading order.
        notes: ``tables.notes``. ``full``: as in the other markups. ``short``: its line; ``none``: nothing. What is
            left out stands below the table of every run in the same setting, or in the first setting for tables that
            are of none; with no such table nothing is left out.
    """
    homes = {table.setting: table.stem for table in tables if table.appendix}
    if notes == "full" or not homes:
        return list(tables)
    first = next(iter(homes.values()))
    moved: dict[str, list[str]] = {stem: [] for stem in homes.values()}
    for table in tables:
        if not table.appendix:
            called = f"{table.sheet.number}: " if table.sheet.number else ""
            moved[homes.get(table.setting, first)] += _named(called, table.notes)
    return [
        replace(table, latex=table.notes + moved[table.stem] if table.appendix else _kept(table, notes))
        for table in tables
    ]


def _kept(table: Published, notes: str) -> list[str]:
    return [table.line] if notes == "short" and table.line else []


def _named(called: str, notes: list[str]) -> list[str]:
    """The notes of a table, of which the first says whose they are."""
    return [f"{called}{notes[0]}", *notes[1:]] if notes else []


def joined(parts: Sequence[str]) -> str:
    """``Mean ± s.d. over 3 seeds; …; all notes are with …``, one sentence."""
    text = "; ".join(part for part in (*parts, APPENDIX) if part)
    return f"{text[:1].upper()}{text[1:]}."


def setting_line(facts: Footnotes, table: Table, blind: str) -> str:
    """What a reviewer looks for below a setting's table; ``blind``: what differences may be unseen, or nothing."""
    pairs = table.family or facts.family
    family = f" over {pairs:,} {'pair' if pairs == 1 else 'pairs'}" if pairs else ""
    marks = f"letters, bold: {'accuracy' if table.setting == 'binary' else table.deciding}, " if table.marked else ""
    if table.few is not None:
        tested = f"too few clusters of queries for letters ({table.few:,} of {LETTERS_FROM})"
    elif not table.tested:
        tested = ""
    else:
        found = marks or "no two methods differ, "
        tested = f"{found}p < {1 - table.confidence:.3g} over seeds and queries, Holm{family}"
    return joined(
        [
            _sizes(facts, table),
            _seeds(table),
            f"brackets: {_percent(table.confidence)} intervals"
            if any(column.interval for column in table.metrics)
            else "",
            tested,
            f"80% power at {blind}" if blind else "",
            "a tie counts one half" if table.setting == "binary" else "",
        ]
    )


def pair_line(facts: Footnotes, results: Results, setting: str) -> str:
    """Of a table of pairs."""
    compared = pairs_compared(results, setting) or facts.family
    tested = bool(results.pairs.loc[results.pairs["setting"] == setting, "p"].notna().any())
    family = f" over {compared:,} {'pair' if compared == 1 else 'pairs'}" if compared else ""
    return joined(
        [
            f"first minus second, {_percent(results.confidence)} intervals",
            f"p after Holm’s correction{family}, bold below {1 - results.confidence:.3g}" if tested else "",
            "detectable: in 80% of studies" if tested else "",
        ]
    )


def gap_line(results: Results) -> str:
    """Of the table of gaps."""
    return joined(["the same queries and runs in both galleries", f"{_percent(results.confidence)} intervals"])


def plain_line(confidence: float) -> str:
    """Of any other table that has intervals."""
    return joined([f"brackets: {_percent(confidence)} intervals"])


def _sizes(facts: Footnotes, table: Table) -> str:
    counts = facts.settings.get(table.setting, {})
    if not counts or counts.get("queries") is None:
        return ""
    clusters = counts.get("clusters")
    apart = f" in {clusters:,} clusters" if clusters and clusters != counts["queries"] else ""
    return f"{counts['queries']:,} queries{apart}, {counts['items']:,} {facts.items}"


def _seeds(table: Table) -> str:
    counts = [count for count in table.seeds if count > 1]
    if not counts:
        return ""
    number = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"mean ± s.d. over {number} seeds"


def _percent(confidence: float) -> str:
    return f"{100 * confidence:g}%"
