"""The tables that a study publishes: one per setting, its pairs, its runs, and the gap between Origin and Hard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rewind.reporting import (
    brief,
    gap_table,
    group_table,
    notes,
    pair_table,
    plain,
    seed_table,
    setting_table,
    verdict_notes,
    verdict_table,
    zero_shot_table,
)
from rewind.reporting.cells import LETTERS, TITLES, Table, build, numbers
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.published import Published
from rewind.reporting.results import Results
from rewind.reporting.sheet import Sheet


def stem(setting: str) -> str:
    """File name of a setting's table without suffix."""
    letter = LETTERS.get(setting)
    return f"table_{letter}_{setting}" if letter else f"table_{setting}"


def published(results: Results, settings: Iterable[str], facts: Footnotes, dataset: str = "") -> Iterator[Published]:
    """Every table that a study's numbers give, in reading order, under the condition that they all share.

    Args:
        results: the study's numbers.
        settings: of ``origin``, ``hard``, ``binary``, ``test``.
        facts: for the notes.
        dataset: title of the data, for the captions.

    Raises:
        RewindError: for numbers that cannot stand in one table (see :func:`rewind.reporting.results.check`).
    """
    for table in _all(results, list(settings), facts, dataset):
        yield replace(table, sheet=table.sheet.given(results.given))


def _all(results: Results, settings: list[str], facts: Footnotes, dataset: str) -> Iterator[Published]:
    for setting in settings:
        table = build(results, setting, dataset)
        blind = notes.seen(table) if table.blind and (table.few is not None or table.marked) else ""
        line, rows = brief.setting_line(facts, table, blind), numbers(results, setting)
        yield Published(stem(setting), _sheet(table, facts.items), notes.sentences(facts, table), rows, line, setting)
    line = brief.plain_line(results.confidence)
    if results.verdict:
        said = verdict_notes.sentences(facts, results)
        yield Published("table_verdict", _verdict(results, dataset), said, verdict_table.numbers(results), line)
    if len(results.zero_shot):
        said, rows = zero_shot_table.sentences(facts, results), zero_shot_table.numbers(results)
        yield Published("table_zero_shot", zero_shot_table.sheet(results), said, rows, line)
    if len(results.gaps):
        said, rows = notes.gap_sentences(facts, results), gap_table.numbers(results)
        yield Published("table_gap", gap_table.sheet(results, dataset), said, rows, brief.gap_line(results))
    for setting in settings:
        rows = group_table.numbers(results, setting)
        if len(rows):
            said, line = group_table.sentences(facts, results, setting), group_table.line(results, setting)
            printed = group_table.sheet(results, setting, dataset)
            yield Published(f"table_groups_{setting}", printed, said, rows, line, setting)
    for setting in settings:
        rows = pair_table.numbers(results, setting)
        if len(rows):
            said, line = notes.pair_sentences(facts, results, setting), brief.pair_line(facts, results, setting)
            printed = pair_table.sheet(results, setting, dataset)
            yield Published(f"table_pairs_{setting}", printed, said, rows, line, setting)
    for setting in settings:
        printed, said = seed_table.sheet(results, setting, dataset), notes.seed_sentences(facts, results, setting)
        rows = seed_table.numbers(results, setting)
        yield Published(f"table_seeds_{setting}", printed, said, rows, setting=setting, appendix=True)


def summary(
    results: Results,
    settings: Iterable[str],
    items: str = "videos",
    dataset: str = "",
    facts: Footnotes | None = None,
    more: str = "",
) -> str:
    """Tables of several settings, verdict, zero-shot accuracy and gaps, as aligned text for the end of a run.

    Args:
        results, settings, dataset: as in :func:`published`.
        items: what is searched, in the plural.
        facts: for the notes below the last table, which the tables share.
        more: other tables in plain text, to stand before these notes.
    """
    tables = [build(results, setting, dataset) for setting in settings if setting in TITLES]
    shown = [replace(_sheet(table, items), key=notes.summary_key(table)) for table in tables]
    if results.verdict:
        shown.append(_verdict(results, dataset))
    if len(results.zero_shot):
        shown.append(zero_shot_table.sheet(results))
    if len(results.gaps):
        shown.append(gap_table.sheet(results, dataset))
    texts = [plain.render(sheet.given(results.given)) for sheet in shown]
    said = notes.study_notes(facts, sorted({count for table in tables for count in table.seeds})) if facts else ""
    return "\n".join(text for text in (*texts, more, said) if text)


def _sheet(table: Table, items: str) -> Sheet:
    return replace(setting_table.sheet(table, words(table, items)), key=notes.key(table))


def _verdict(results: Results, dataset: str) -> Sheet:
    return replace(verdict_table.sheet(results, dataset), key="\n".join(verdict_notes.outcomes(results)))


def words(table: Table, items: str) -> str:
    """``text→video retrieval``, or what Binary asks."""
    one = items.removesuffix("s")
    if table.setting == "binary":
        return f"telling a {one} from its time-reversed twin"
    ways = {"text_to_item": f"text→{one}", "item_to_text": f"{one}→text"}
    return f"{' and '.join(ways[direction] for direction in table.directions)} retrieval"
