"""LaTeX: a table float for ``\\input`` under plain pdflatex with booktabs."""

from __future__ import annotations

from dataclasses import replace

from rewind.reporting.latex_text import escape
from rewind.reporting.sheet import Entry, Head, Part, Sheet

ROWS = 36
"""Rows of a float: a page of an article also has a heading, a caption and notes."""
WIDTH = 345.0
"""Points of a line in the narrowest common class."""
# Points of a digit at \footnotesize, in bold, at \scriptsize, and raised.
_DIGIT, _BOLD, _SMALL, _RAISED = 4.25, 4.9, 3.98, 3.5


def render(sheet: Sheet, notes: list[str]) -> str:
    """The table as a float, to be read by ``\\input``.

    Columns that do not fit beside each other are stacked; rows that do not fit on a page go into another float.

    Args:
        sheet: the table.
        notes: plain sentences for the paragraph below it.
    """
    blocks, gap = _layout(sheet)
    pages = _pages(sheet, max(1, ROWS // len(blocks)))
    title = [rf"\caption{{{escape(sheet.title)}.}}", rf"\label{{tab:{sheet.slug}}}"]
    again = [rf"\centerline{{{escape(f'{sheet.title}, continued')}}}", r"\vspace{4pt}"]
    note = [r"\par\smallskip", r"\parbox{\linewidth}{\footnotesize\raggedright", *map(escape, notes), r"}"]
    lines = [r"% Needs \usepackage{booktabs}."]
    for at, page in enumerate(pages):
        tabulars = [_tabular(page.pick(columns)) for columns in blocks]
        lines += [
            r"\begin{table*}[tp]",
            r"\centering\footnotesize",
            rf"\setlength{{\tabcolsep}}{{{gap}pt}}",
            r"\setlength{\belowcaptionskip}{4pt}",
            *(again if at else title),
            *(line for tabular in tabulars for line in [r"\par\smallskip", *tabular][tabular is tabulars[0] :]),
            *(note if at == len(pages) - 1 and notes else []),
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def _pages(sheet: Sheet, most: int) -> list[Sheet]:
    """The table in pieces of at most so many rows."""
    pages: list[list[Part]] = [[]]
    for part in sheet.parts:
        rows = list(part.rows)
        while rows:
            room = most - sum(len(done.rows) for done in pages[-1])
            if room <= 0:
                pages.append([])
                continue
            pages[-1].append(Part(part.title, tuple(rows[:room])))
            rows = rows[room:]
    return [replace(sheet, parts=tuple(parts)) for parts in pages]


def _layout(sheet: Sheet) -> tuple[list[list[int]], float]:
    """Columns that stand beside each other, and half of the space between them; less space where more then fit."""
    columns = map(sheet.column, range(len(sheet.heads)))
    usual = 2.5 if any(entry.interval for column in columns for entry in column) else 3.5
    wide, tight = _blocks(sheet, usual), _blocks(sheet, 1.5)
    return (tight, 1.5) if len(tight) < len(wide) else (wide, usual)


def _blocks(sheet: Sheet, gap: float) -> list[list[int]]:
    """The labels, then as many columns as fit; columns of a group stay together."""
    labels = [at for at, head in enumerate(sheet.heads) if not head.number]
    widths = [_width(sheet, at) + 2 * gap for at in range(len(sheet.heads))]
    room = WIDTH - sum(widths[at] for at in labels) + 2 * gap
    blocks: list[list[int]] = [[]]
    at = len(labels)
    for count in _groups(sheet, labels):
        group = list(range(at, at + count))
        at += count
        if blocks[-1] and sum(widths[i] for i in blocks[-1] + group) > room:
            blocks.append([])
        for column in group:
            if blocks[-1] and sum(widths[i] for i in [*blocks[-1], column]) > room:
                blocks.append([])
            blocks[-1].append(column)
    return [labels + block for block in blocks]


def _groups(sheet: Sheet, labels: list[int]) -> list[int]:
    """How many neighbouring columns of numbers stand under one title; untitled ones stand alone."""
    numbers = sheet.pick([at for at in range(len(sheet.heads)) if at not in labels])
    return [count for title, n in numbers.spans() for count in ([n] if title else [1] * n)]


def _width(sheet: Sheet, at: int) -> float:
    """About how wide a column is, in points."""
    head, entries = sheet.heads[at], sheet.column(at)
    title = _DIGIT * _digits(f"{head.title} {head.arrow}".strip())
    if not head.number:
        return max(title, *(_DIGIT * _digits(e.value) + _RAISED * _digits(e.raised) for e in entries))
    widest = _widest_spread(sheet, at)
    spread = _SMALL * (_digits("±" + widest) + 0.7) if widest else 0.0
    whole = max((_BOLD if entry.bold else _DIGIT) * _digits(entry.whole) for entry in entries)
    rest = max(
        (_BOLD if entry.bold else _DIGIT) * _digits(entry.rest)
        + (spread if entry.spread or entry.interval else 0)
        + (_SMALL * (_digits(entry.brackets) + 0.6) if entry.interval else 0)
        + _RAISED * _digits(entry.raised)
        for entry in entries
    )
    return max(title, whole + rest)


def _digits(text: str) -> float:
    """Width of a text in digits of Computer Modern."""
    return sum(next((width for width, characters in _WIDTHS.items() if char in characters), 1.0) for char in text)


_WIDTHS = {0.56: ".,:;[]()il", 0.67: " ", 0.85: "fjrst", 1.57: "+−±<>=@mwMWABCDEFGHKLNOPQRSTUVXYZ"}


def _tabular(sheet: Sheet) -> list[str]:
    spread = [_widest_spread(sheet, at) for at in range(len(sheet.heads))]
    return [
        rf"\begin{{tabular}}{{@{{}}{''.join('r@{}l' if head.number else 'l' for head in sheet.heads)}@{{}}}}",
        r"\toprule",
        *_spans(sheet),
        " & ".join(map(_head, sheet.heads)) + r" \\",
        *(line for at, part in enumerate(sheet.parts) for line in _part(sheet, part, spread, first=at == 0)),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _spans(sheet: Sheet) -> list[str]:
    """Titles above several columns, each with a rule of its own below."""
    if not sheet.grouped:
        return []
    titles, rules, at = [], [], 0
    for title, count in sheet.spans():
        width = _tex_columns(sheet.heads[at : at + count])
        first = _tex_columns(sheet.heads[:at]) + 1
        titles.append(rf"\multicolumn{{{width}}}{{c}}{{{escape(title)}}}")
        rules += [rf"\cmidrule(lr){{{first}-{first + width - 1}}}"] if title else []
        at += count
    return [" & ".join(titles) + r" \\", "".join(rules)]


def _tex_columns(heads: tuple[Head, ...]) -> int:
    """A number takes two, see :func:`_number`."""
    return sum(2 if head.number else 1 for head in heads)


def _head(head: Head) -> str:
    text = escape(f"{head.title} {head.arrow}").replace(" ", "~") if head.arrow else escape(head.title)
    return rf"\multicolumn{{2}}{{c}}{{{text}}}" if head.number else text


def _part(sheet: Sheet, part: Part, spread: list[str], first: bool) -> list[str]:
    rule = r"\midrule" if first else r"\midrule[0.03em]"
    width = _tex_columns(sheet.heads)
    title = [rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{escape(part.title)}}}}} \\"] if part.title else []
    return [rule, *title, *(_row(sheet, row, spread) for row in part.rows)]


def _row(sheet: Sheet, row: tuple[Entry, ...], spread: list[str]) -> str:
    cells = []
    for head, entry, widest in zip(sheet.heads, row, spread, strict=True):
        cells.append(_number(entry, widest) if head.number else escape(entry.value) + _raised(entry))
    return " & ".join(cells) + r" \\"


def _number(entry: Entry, widest: str) -> str:
    """Two columns, split before the decimal point, so that the points stand under each other."""
    whole, rest = escape(entry.whole), escape(entry.rest)
    if entry.bold:
        whole, rest = rf"\textbf{{{whole}}}", rf"\textbf{{{rest}}}"
    space = r"\," if entry.spread else "~"
    brackets = rf"{{\scriptsize{space}{escape(entry.brackets)}}}" if entry.brackets else ""
    return f"{whole} & {rest}{_deviation(entry, widest)}{brackets}{_raised(entry)}"


def _deviation(entry: Entry, widest: str) -> str:
    """Padded where an interval follows, so that intervals stand under each other."""
    if not entry.spread:
        return rf"{{\scriptsize\phantom{{\,$\pm$\,{widest}}}}}" if widest and entry.interval else ""
    pad = "0" * (len(widest) - len(entry.spread))
    return rf"{{\scriptsize\,$\pm$\,{entry.spread}" + (rf"\phantom{{{pad}}}" if pad and entry.interval else "") + "}"


def _widest_spread(sheet: Sheet, at: int) -> str:
    return max((entry.spread for entry in sheet.column(at)), key=len, default="")


def _raised(entry: Entry) -> str:
    return rf"\textsuperscript{{{escape(entry.raised)}}}" if entry.raised else ""
