"""The tables that a study publishes: table_A_origin, table_B_hard, table_binary, table_A_test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rewind.files import write_csv, write_text
from rewind.reporting import latex, markup
from rewind.reporting.cells import LETTERS, TITLES, Table, build, numbers
from rewind.reporting.footnotes import Footnotes, sentences
from rewind.reporting.results import Results


def stem(setting: str) -> str:
    """File name of a setting's table without suffix."""
    letter = LETTERS.get(setting)
    return f"table_{letter}_{setting}" if letter else f"table_{setting}"


def render(folder: str | Path, setting: str, results: Results, facts: Footnotes, dataset: str = "") -> list[Path]:
    """Write a setting's table as Markdown, LaTeX and CSV.

    Args:
        folder: where ``<stem(setting)>.{md,tex,csv}`` go.
        setting: ``origin``, ``hard``, ``binary`` or ``test``.
        results: the study's numbers.
        facts: for the footnotes.
        dataset: title of the data, for the heading.

    Returns:
        The three paths.

    Raises:
        RewindError: for numbers that cannot stand in one table (see :func:`rewind.reporting.results.check`).
    """
    table = build(results, setting, dataset)
    notes, searched = sentences(facts, table), words(table, facts.items)
    base = Path(folder) / stem(setting)
    paths = [base.with_name(base.name + suffix) for suffix in (".md", ".tex", ".csv")]
    write_text(paths[0], markup.markdown(table, notes, searched))
    write_text(paths[1], latex.latex(table, notes, searched))
    write_csv(paths[2], numbers(results, setting))
    return paths


def summary(results: Results, settings: Iterable[str], items: str = "videos", dataset: str = "") -> str:
    """The tables of several settings as aligned plain text, for the end of a run."""
    tables = [build(results, setting, dataset) for setting in settings if setting in TITLES]
    return "\n".join(markup.text(table, words(table, items)) for table in tables)


def words(table: Table, items: str) -> str:
    """``text→video retrieval``, or what Binary asks."""
    one = items.removesuffix("s")
    if table.setting == "binary":
        return f"telling a {one} from its time-reversed twin"
    return f"text→{one} retrieval" if table.direction == "text_to_item" else f"{one}→text retrieval"
