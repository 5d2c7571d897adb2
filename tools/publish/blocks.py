"""Rendering of a marked block in a document.

A block is ``<!-- published: WHAT -->…<!-- end -->``. WHAT begins with the study (or the benchmark):

| WHAT | prints |
|---|---|
| ``demo table hard`` | the table as the terminal shows it |
| ``demo markdown hard columns="Method; R@1 ↑: value as R@1" rows="meanP; seqTransf" part="T2V"`` | a Markdown table |
| ``demo number hard seqTransf "R@1 ↑" spread part="T2V"`` | a number within a sentence: its value, or more |
| ``demo answer`` | who knows which way time runs, as the study's own answer says it |
| ``demo budgets`` | how long its methods trained, and which of them differed |
| ``demo made`` | commit, date and machine |
| ``demo wall`` | how long the study took, as minutes and seconds |
| ``calibration markdown grid``, ``calibration number type-i-fisher`` | what the benchmark prints under this name |
| ``gpu markdown table`` | likewise; what the benchmark's ``UNPUBLISHED`` says while nothing is published |
| ``demo unmarked hard`` | the sentence as it stands, while no value of the table is significantly better than another |
| ``sanw says verdict Win no`` | the sentence as it stands, while the column says this in every row |

A column is named as the terminal names it; ``: value``, ``: spread`` and ``: interval`` print a part of its cells
(the first without letters). Numbers are the first machine's, marks and answers those on which all published machines
agree.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from library import NotPublished, ResultsLibrary, StoredResults, has_letters
from rewind.errors import RewindError
from rewind.report.time_answer import chance_by_method, chance_sentences, listed_accuracies, sort_by_chance
from rewind.statistics.inference import significance_level
from rewind.tables import notes
from rewind.tables.footnotes import budget_sentence
from rewind.tables.render import markdown_rows, render_text
from rewind.tables.results import leading_direction
from rewind.tables.table import Cell, Column, RowGroup, Table
from store import describe_record, format_wall_time

# ---- Selecting rows and columns by their printed names -------------------------------------------------------------


def select_rows(table: Table, options: Mapping[str, str]) -> Table:
    """A table with some of its rows.

    Args:
        table: the table.
        options: ``part``, the title of the only part to keep; ``rows``, names of rows in their new order, separated by
            ``"; "``. Both may be absent.

    Raises:
        RewindError: for a part or row that the table does not have.
    """
    parts = table.groups
    if "part" in options:
        parts = tuple(replace(part, title="") for part in parts if part.title == options["part"])
        if not parts:
            titles = ", ".join(part.title for part in table.groups)
            raise RewindError(f"no part {options['part']!r} in {table.heading!r}; available: {titles}.")
    if "rows" in options:
        rows_by_name = {row[0].text: row for part in reversed(parts) for row in part.rows}
        names = options["rows"].split("; ")
        if unknown := [name for name in names if name not in rows_by_name]:
            raise RewindError(f"no row {unknown[0]!r} in {table.heading!r}; available: {'; '.join(rows_by_name)}.")
        parts = (RowGroup("", tuple(rows_by_name[name] for name in names)),)
    return replace(table, groups=parts)


def column_index(table: Table, name: str) -> int:
    """Number of the column with this name.

    Raises:
        RewindError: if there is none.
    """
    names = [head.name for head in table.columns]
    if name not in names:
        raise RewindError(f"no column {name!r} in {table.heading!r}; available: {', '.join(names)}.")
    return names.index(name)


# ---- Sentences that rest on published results ----------------------------------------------------------------------
# They stay as they were written while the results support them.

CLAIM_ARGUMENTS = {"unmarked": 1, "says": 3}
"""Kind of claim → number of words that follow it in the marker."""


class UntrueClaim(RewindError):
    """Raised for a sentence that published results do not support."""


def check_claim(kind: str, tables: Mapping[str, Table], words: Sequence[str], options: Mapping[str, str]) -> None:
    """Refuse a sentence that does not hold on every machine.

    Args:
        kind: ``unmarked``: no value is significantly better than another; ``says``: a column has the same word in
            every row.
        tables: machine → the table.
        words: of ``says``: the column and the word.
        options: ``rows`` and ``part`` select rows, see :func:`select_rows`.

    Raises:
        UntrueClaim: naming the machine and the row.
    """
    for machine, full_table in tables.items():
        table = select_rows(full_table, options)
        numbers = [at for at, head in enumerate(table.columns) if head.number]
        for at in numbers if kind == "unmarked" else [column_index(table, words[0])]:
            for label, cell in zip(table.cells(0), table.cells(at), strict=True):
                where = f"{machine}, {label.text}, {table.columns[at].name}"
                if kind == "unmarked" and cell.marks:
                    raise UntrueClaim(f"{where}: {cell.text} is significantly better than {cell.marks}")
                if kind == "says" and cell.text != words[1]:
                    raise UntrueClaim(f"{where}: it is {cell.text}, not {words[1]}")


# ---- Rendering a block ---------------------------------------------------------------------------------------------

COUNT_WORDS = {2: "both", 3: "all three", 4: "all four"}
# Which part of a cell is printed → the cell reduced to it.
CELL_PIECES: dict[str, Callable[[Cell], Cell]] = {
    "": lambda entry: entry,
    "value": lambda entry: replace(entry, spread="", interval=None, marks=""),
    "spread": lambda entry: replace(entry, interval=None),
    "interval": lambda entry: replace(entry, spread=""),
}


def render_block(library: ResultsLibrary, what: str, body: str) -> str:
    """The text between the markers.

    Args:
        library: the published results.
        what: the marker's words.
        body: the present text.

    Raises:
        NotPublished: if no published results have what the block prints.
        UntrueClaim: for a sentence that the results do not support.
        UnreadableResults: if published results cannot be read.
        RewindError: for a marker that cannot be understood, or names a row or column that does not exist.
    """
    try:
        words = shlex.split(what)
    except ValueError as error:
        raise RewindError(f"{error} in its words; put names with spaces between double quotes.") from None
    options = dict(word.split("=", 1) for word in words if word.partition("=")[0] in ("columns", "rows", "part"))
    words = [word for word in words if word.partition("=")[0] not in options]
    source, kind, arguments = words[0], words[1] if len(words) > 1 else "", words[2:]
    counts = {"table": (1, 1), "markdown": (1, 1), "number": (1, 4)}
    counts |= dict.fromkeys(("answer", "budgets", "made", "wall"), (0, 0))
    counts |= {claim: (number, number) for claim, number in CLAIM_ARGUMENTS.items()}
    if kind not in counts or not counts[kind][0] <= len(arguments) <= counts[kind][1]:
        raise RewindError(f"write `<study> {'|'.join(counts)} …`, as tools/publish/blocks.py lists.")
    stored = library.machines(source)
    if not stored:
        text = library.unpublished(source, arguments[0] if arguments else kind)
        if text is None:
            raise NotPublished(f"nothing of {source} is published")
        return f"\n{text}\n" if kind == "markdown" else text
    if kind == "made":
        return _describe_origin(stored)
    if kind == "wall":
        return _wall_time(stored[0])
    if stored[0].record["kind"] == "benchmark":
        return _benchmark_text(stored[0], arguments, kind == "markdown")
    if kind == "budgets":
        return budget_sentence(stored[0].budgets)
    if kind == "answer":
        return _agreed_answer(stored)
    if kind in CLAIM_ARGUMENTS:
        check_claim(kind, library.tables(source, arguments[0]), arguments[1:], options)
        return body
    table = library.table(source, arguments[0])
    if kind == "table":
        return _terminal_table(table, len(stored))
    if kind == "number":
        return _number_text(select_rows(table, options), *arguments[1:])
    return "\n" + _markdown_table(select_rows(table, options), options) + "\n"


def _terminal_table(table: Table, count: int) -> str:
    key, *notes_below = table.key.splitlines() or [""]
    if key == notes.MARKS_KEY and count > 1:
        notes_below = [f"Only marks that {_all_machines(count)} agree on are shown.", *notes_below]
        if not has_letters(table):
            key, notes_below = "", []
    text = render_text(replace(table, key="\n".join([key, *notes_below]).strip()))
    return "\n\n" + "\n".join(f"    {line}".rstrip() for line in text.splitlines()) + "\n\n"


def _agreed_answer(machines: list[StoredResults]) -> str:
    """The first machine's sentences on the methods of which every machine shows the same; the others are named."""
    first, kinds = machines[0].results, [_kinds_by_method(machine) for machine in machines]
    assert first is not None  # _kinds_by_method has refused it
    direction = leading_direction(first, "binary")
    rows = chance_by_method(first, direction)
    unlike = [method for method in rows.index if len({kind.get(method) for kind in kinds}) > 1]
    agreed = sort_by_chance(rows.drop(unlike), significance_level(first.confidence))
    sentences = chance_sentences(first, rows, agreed, direction)
    for method in unlike:
        shown = sum(kind.get(method) == "above" for kind in kinds)
        listed = listed_accuracies(first, rows, [method])
        sentences.append(f"Not the same on {_all_machines(len(machines))}: {listed}, above chance on {shown} of them.")
    return " ".join(sentences)


def _kinds_by_method(machine: StoredResults) -> dict[str, str]:
    """Method → the kind to which :func:`rewind.report.time_answer.sort_by_chance` puts it."""
    results = machine.results
    if results is None or results.chance.empty:
        raise NotPublished(f"{machine.name}: no tests against chance are published; publish the study again")
    rows = chance_by_method(results, leading_direction(results, "binary"))
    found = sort_by_chance(rows, significance_level(results.confidence))
    return {method: kind for kind, methods in vars(found).items() for method in methods}


def _all_machines(count: int) -> str:
    return f"{COUNT_WORDS.get(count, f'all {count}')} machines"


def _describe_origin(machines: list[StoredResults]) -> str:
    first, *others = machines
    text = describe_record(first.record)
    if others:
        text += f"; run again on {' and on '.join(describe_record(other.record) for other in others)}"
    return text


def _wall_time(stored: StoredResults) -> str:
    seconds = stored.record.get("wall_seconds")
    if seconds is None:
        raise NotPublished(
            f"how long {stored.record['name']} took is not known: its jobs did not run without interruption"
        )
    return format_wall_time(seconds)


def _benchmark_text(stored: StoredResults, arguments: list[str], is_block: bool) -> str:
    name = arguments[0]
    if name not in stored.texts:
        raise RewindError(f"{stored.record['name']} has no {name!r}; available: {', '.join(stored.texts)}.")
    return f"\n{stored.texts[name]}\n" if is_block else stored.texts[name]


def _number_text(table: Table, row: str = "", title: str = "", piece: str = "value") -> str:
    labels = [cell.text for cell in table.cells(0)]
    if labels.count(row) != 1:
        problem = "occurs more than once; add part=" if row in labels else "is not there"
        raise RewindError(f"row {row!r} of {table.heading!r} {problem}; available: {'; '.join(labels)}.")
    cell = CELL_PIECES[_check_piece(piece)](table.cells(column_index(table, title))[labels.index(row)])
    spread = f" ± {cell.spread}" if cell.spread else ""
    return f"{cell.text}{spread}" + (f" {cell.brackets}" if cell.brackets else "")


def _markdown_table(full_table: Table, options: dict[str, str]) -> str:
    selection = [_parse_column(text) for text in options["columns"].split("; ")] if "columns" in options else []
    indices = [column_index(full_table, name) for name, _, _ in selection]
    table = full_table.pick(indices) if indices else full_table
    for number, (_, piece, title) in enumerate(selection):
        table = _change_column(table, number, CELL_PIECES[piece], title)
    return "\n".join(markdown_rows(table))


def _change_column(table: Table, at: int, piece: Callable[[Cell], Cell], title: str) -> Table:
    heads = list(table.columns)
    heads[at] = Column(title, number=heads[at].number) if title else heads[at]
    parts = tuple(
        RowGroup(part.title, tuple((*row[:at], piece(row[at]), *row[at + 1 :]) for row in part.rows))
        for part in table.groups
    )
    return replace(table, columns=tuple(heads), groups=parts)


def _parse_column(text: str) -> tuple[str, str, str]:
    """``R@1 ↑: value as R@1`` → name, piece, title."""
    text, _, title = text.partition(" as ")
    name, _, piece = text.partition(": ")
    return name, _check_piece(piece), title


def _check_piece(name: str) -> str:
    if name not in CELL_PIECES:
        raise RewindError(f"a cell has no part {name!r}; available: {', '.join(filter(None, CELL_PIECES))}.")
    return name
