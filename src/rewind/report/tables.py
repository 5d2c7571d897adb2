"""All tables that a study publishes, in reading order, and the summary for the terminal.

Order: settings, verdict, zero-shot accuracy, gap between Origin and Hard, groups, pairs, and every run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rewind.report import (
    gap_table,
    group_table,
    notes,
    pair_table,
    plain_text,
    seed_table,
    setting_table,
    short_notes,
    verdict,
    zero_shot_table,
)
from rewind.report.footnotes import Footnotes
from rewind.report.published import PublishedTable
from rewind.report.results import Results
from rewind.report.setting_table import (
    SETTING_TITLES,
    TABLE_LETTERS,
    SettingTable,
    build_setting_table,
    setting_csv_rows,
)
from rewind.report.sheet import Sheet


def table_stem(setting: str) -> str:
    """File name of a setting's table without suffix."""
    letter = TABLE_LETTERS.get(setting)
    return f"table_{letter}_{setting}" if letter else f"table_{setting}"


def published_tables(
    results: Results, settings: Iterable[str], facts: Footnotes, dataset: str = ""
) -> Iterator[PublishedTable]:
    """Every table of a study, in reading order, each with the condition of all numbers in its caption.

    Args:
        results: the study's numbers.
        settings: among ``origin``, ``hard``, ``binary``, ``test``.
        facts: for the notes.
        dataset: title of the data, for the captions.

    Raises:
        RewindError: for numbers that cannot stand in one table (see :func:`rewind.report.results.check_results`).
    """
    for table in _all_tables(results, list(settings), facts, dataset):
        yield replace(table, sheet=table.sheet.given(results.given))


def _all_tables(results: Results, settings: list[str], facts: Footnotes, dataset: str) -> Iterator[PublishedTable]:
    for setting in settings:
        table = build_setting_table(results, setting, dataset)
        # Undetectable differences matter only if letters are missing, or bold could be read as "equally good".
        blind = notes.detectable_range(table) if table.blind and (table.few is not None or table.marked) else ""
        line, rows = short_notes.setting_line(facts, table, blind), setting_csv_rows(results, setting)
        yield PublishedTable(
            table_stem(setting),
            _setting_sheet(table, facts.items),
            notes.setting_sentences(facts, table),
            rows,
            line,
            setting,
        )
    line = short_notes.intervals_line(results.confidence)
    if results.verdict:
        sentences = verdict.verdict_sentences(facts, results)
        yield PublishedTable(
            "table_verdict", _verdict_sheet(results, dataset), sentences, verdict.verdict_csv_rows(results), line
        )
    if len(results.zero_shot):
        sentences, rows = zero_shot_table.sentences(facts, results), zero_shot_table.csv_rows(results)
        yield PublishedTable("table_zero_shot", zero_shot_table.sheet(results), sentences, rows, line)
    if len(results.gaps):
        sentences, rows = notes.gap_sentences(facts, results), gap_table.csv_rows(results)
        yield PublishedTable(
            "table_gap", gap_table.sheet(results, dataset), sentences, rows, short_notes.gap_line(results)
        )
    for setting in settings:
        rows = group_table.csv_rows(results, setting)
        if len(rows):
            sentences, line = group_table.sentences(facts, results, setting), group_table.short_note(results, setting)
            sheet = group_table.sheet(results, setting, dataset)
            yield PublishedTable(f"table_groups_{setting}", sheet, sentences, rows, line, setting)
    for setting in settings:
        rows = pair_table.csv_rows(results, setting)
        if len(rows):
            sentences, line = (
                notes.pair_sentences(facts, results, setting),
                short_notes.pair_line(facts, results, setting),
            )
            sheet = pair_table.sheet(results, setting, dataset)
            yield PublishedTable(f"table_pairs_{setting}", sheet, sentences, rows, line, setting)
    for setting in settings:
        sheet, sentences = seed_table.sheet(results, setting, dataset), notes.seed_sentences(facts, results, setting)
        rows = seed_table.csv_rows(results, setting)
        yield PublishedTable(f"table_seeds_{setting}", sheet, sentences, rows, setting=setting, appendix=True)


def summary_text(
    results: Results,
    settings: Iterable[str],
    items: str = "videos",
    dataset: str = "",
    facts: Footnotes | None = None,
    more: str = "",
) -> str:
    """Tables of several settings, verdict, zero-shot accuracy and gaps, as aligned text for the end of a run.

    Args:
        results, settings, dataset: as in :func:`published_tables`.
        items: what is searched, in the plural.
        facts: for the notes below the last table, which all tables share.
        more: other tables in plain text, placed before these notes.
    """
    tables = [build_setting_table(results, setting, dataset) for setting in settings if setting in SETTING_TITLES]
    sheets = [replace(_setting_sheet(table, items), key=notes.summary_table_key(table)) for table in tables]
    if results.verdict:
        sheets.append(_verdict_sheet(results, dataset))
    if len(results.zero_shot):
        sheets.append(zero_shot_table.sheet(results))
    if len(results.gaps):
        sheets.append(gap_table.sheet(results, dataset))
    texts = [plain_text.render_text(sheet.given(results.given)) for sheet in sheets]
    footnotes = notes.study_notes(facts, sorted({count for table in tables for count in table.seeds})) if facts else ""
    return "\n".join(text for text in (*texts, more, footnotes) if text)


def _setting_sheet(table: SettingTable, items: str) -> Sheet:
    return replace(setting_table.setting_sheet(table, task_description(table, items)), key=notes.table_key(table))


def _verdict_sheet(results: Results, dataset: str) -> Sheet:
    return replace(verdict.verdict_sheet(results, dataset), key="\n".join(verdict.verdict_outcomes(results)))


def task_description(table: SettingTable, items: str) -> str:
    """``text→video retrieval``, or the task of Binary."""
    item = items.removesuffix("s")
    if table.setting == "binary":
        return f"telling a {item} from its time-reversed twin"
    names = {"text_to_item": f"text→{item}", "item_to_text": f"{item}→text"}
    return f"{' and '.join(names[direction] for direction in table.directions)} retrieval"
