"""What LaTeX needs of a table: text that compiles under plain pdflatex, and a layout in floats that fit on a page.

Wide tables are stacked in blocks of columns and long ones continue in another float.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace

from markupsafe import Markup

from rewind.tables.table import Cell, Column, RowGroup, Table

# ---- Escaping text -------------------------------------------------------------------------------------------------
# The result must compile under pdflatex with its default (OT1) fonts, whatever characters a name contains.

# Characters that have a meaning in TeX or no glyph in OT1. A bracket or star at the head of a row would be read as an
# argument of the line break before it.
_TEXT_COMMANDS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#",
    "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedblright{}", "`": r"\textquoteleft{}",
    "[": "{[}", "]": "{]}", "*": "{*}", "\u00a0": "~", "–": r"\textendash{}", "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}", "’": "'", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "…": r"\ldots{}", "•": r"\textbullet{}", "©": r"\copyright{}", "ß": r"\ss{}", "æ": r"\ae{}",
    "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "ı": r"\i{}", "§": r"\S{}", "¶": r"\P{}", "¡": "!`", "¿": "?`",
}  # fmt: skip
_MATH_COMMANDS = {
    "±": r"\pm", "∓": r"\mp", "×": r"\times", "·": r"\cdot", "÷": r"\div", "−": "-", "≤": r"\leq",
    "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "≪": r"\ll", "≫": r"\gg", "∞": r"\infty",
    "→": r"\rightarrow", "←": r"\leftarrow", "↔": r"\leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "⇒": r"\Rightarrow", "∈": r"\in", "∑": r"\sum", "√": r"\surd", "∂": r"\partial", "∇": r"\nabla",
    "°": r"^{\circ}", "µ": r"\mu", "†": r"\dagger", "‡": r"\ddagger", "∼": r"\sim", "∪": r"\cup",
    "∩": r"\cap", "⊂": r"\subset", "¬": r"\neg", "★": r"\star", "✓": r"\surd",
}  # fmt: skip
# Greek capitals that look Latin, and omicron, have no command of their own.
_GREEK_LOOKALIKES = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)) | {"ς": r"\varsigma"}
_ACCENT_COMMANDS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b",
}  # fmt: skip
_SCRIPT_COMMANDS = {"<super>": "textsuperscript", "<sub>": "textsubscript"}


def escape_latex(text: str) -> str:
    r"""``text`` so that it prints as itself under pdflatex with its default fonts.

    Accented Latin, Greek and the usual mathematical signs are supported; any other character prints as its code
    point, for example ``[U+4E2D]``, rather than stopping the compiler or vanishing.

    Example:
        >>> print(escape_latex("R@1 ≥ 50%"))
        R@1 \ensuremath{\geq} 50\%
    """
    line = unicodedata.normalize("NFC", " ".join(text.split()))
    # Two hyphens or apostrophes would be drawn as one longer sign.
    return re.sub(r"([-'])(?=\1)", r"\1{}", "".join(map(_character, line)))


def _character(char: str) -> str:
    if char in _TEXT_COMMANDS:
        return _TEXT_COMMANDS[char]
    if char in _MATH_COMMANDS:
        return rf"\ensuremath{{{_MATH_COMMANDS[char]}}}"
    if " " <= char <= "~":
        return char
    return _greek(char) or _accented(char) or _compatible(char) or rf"{{[}}U+{ord(char):04X}{{]}}"


def _greek(char: str) -> str:
    if char in _GREEK_LOOKALIKES:
        return rf"\ensuremath{{{_GREEK_LOOKALIKES[char]}}}"
    match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(char, ""))
    if not match:
        return ""
    name = {"LAMDA": "lambda"}.get(match[2], match[2].lower())
    return rf"\ensuremath{{\{name.title() if match[1] == 'CAPITAL' else name}}}"


def _accented(char: str) -> str:
    base, *marks = list(unicodedata.normalize("NFD", char))
    if len(marks) != 1 or marks[0] not in _ACCENT_COMMANDS or not (base.isascii() and base.isalpha()):
        return ""
    # An accent above replaces the dot of i and j: \i and \j are the letters without it.
    inner = rf"\{base}" if base in "ij" and marks[0] not in "\u0323\u0327\u0331" else base
    return rf"\{_ACCENT_COMMANDS[marks[0]]}{{{inner}}}"


def _compatible(char: str) -> str:
    """Ligatures, raised and lowered digits, full-width letters: what Unicode decomposes into simpler characters."""
    kind, _, codes = unicodedata.decomposition(char).rpartition("> ")
    if not kind:
        return ""
    inner = "".join(_character(chr(int(code, 16))) for code in codes.split())
    command = _SCRIPT_COMMANDS.get(kind + ">")
    return rf"\{command}{{{inner}}}" if command else inner


# ---- Layout and printing of tables ---------------------------------------------------------------------------------

MAX_ROWS_PER_FLOAT = 36
"""Most rows of a float: a page of an article also has a heading, a caption and notes."""
LINE_WIDTH_PT = 345.0
"""Width of a line, in points, in the narrowest common class."""
# Widths of a digit in points: at \footnotesize, in bold, at \scriptsize, and raised.
_DIGIT_PT, _BOLD_DIGIT_PT, _SMALL_DIGIT_PT, _RAISED_DIGIT_PT = 4.25, 4.9, 3.98, 3.5
# Widths of other characters in multiples of a digit; those not listed count as one digit.
_CHARACTER_WIDTHS = {0.56: ".,:;[]()il", 0.67: " ", 0.85: "fjrst", 1.57: "+−±<>=@mwMWABCDEFGHKLNOPQRSTUVXYZ"}


@dataclass(frozen=True)
class LatexGroup:
    """A group of rows: its title as plain text, and rows as LaTeX."""

    title: str
    rows: list[Markup]


@dataclass(frozen=True)
class LatexBlock:
    """Columns that stand side by side."""

    alignment: Markup  # of ``tabular``
    width: int  # number of LaTeX's columns
    head: list[Markup]  # lines of headings
    groups: list[LatexGroup]


def latex_blocks(table: Table) -> tuple[list[list[LatexBlock]], float]:
    r"""The floats of a table, each as blocks of columns to be stacked, and half of the space between columns in points.

    Example:
        >>> from rewind.tables.table import number_cell
        >>> rows = RowGroup("", ((Cell("mean_P"), number_cell(9.2)),))
        >>> columns = (Column("Method", number=False), Column("R@1", "↑"))
        >>> [[block]], gap = latex_blocks(Table("Table A", "Origin", "origin", columns, (rows,)))
        >>> print(block.alignment, block.width, block.groups[0].rows[0])
        lr@{}l 3 mean\_P & 9 & .2 \\
    """
    blocks, gap = _layout(table)
    pages = _pages(table, max(1, MAX_ROWS_PER_FLOAT // len(blocks)))
    return [[_block(page.pick(columns)) for columns in blocks] for page in pages], gap


def _pages(table: Table, most: int) -> list[Table]:
    """The table in pieces of at most ``most`` rows; a group of rows may be split."""
    pages: list[list[RowGroup]] = [[]]
    for group in table.groups:
        rows = list(group.rows)
        while rows:
            room = most - sum(len(placed.rows) for placed in pages[-1])
            if room <= 0:
                pages.append([])
                continue
            pages[-1].append(RowGroup(group.title, tuple(rows[:room])))
            rows = rows[room:]
    return [replace(table, groups=tuple(groups)) for groups in pages]


def _layout(table: Table) -> tuple[list[list[int]], float]:
    """Blocks of columns that fit side by side, and half of the space between columns, less if it saves a block."""
    columns = map(table.cells, range(len(table.columns)))
    usual = 2.5 if any(cell.interval for column in columns for cell in column) else 3.5
    wide, tight = _column_blocks(table, usual), _column_blocks(table, 1.5)
    return (tight, 1.5) if len(tight) < len(wide) else (wide, usual)


def _column_blocks(table: Table, gap: float) -> list[list[int]]:
    """The labels, then as many columns as fit; columns of a group stay together."""
    labels = [at for at, head in enumerate(table.columns) if not head.number]
    widths = [_column_width(table, at) + 2 * gap for at in range(len(table.columns))]
    room = LINE_WIDTH_PT - sum(widths[at] for at in labels) + 2 * gap
    blocks: list[list[int]] = [[]]
    at = len(labels)
    for count in _group_sizes(table, labels):
        group = list(range(at, at + count))
        at += count
        if blocks[-1] and sum(widths[i] for i in blocks[-1] + group) > room:
            blocks.append([])
        for column in group:
            if blocks[-1] and sum(widths[i] for i in [*blocks[-1], column]) > room:
                blocks.append([])
            blocks[-1].append(column)
    return [labels + block for block in blocks]


def _group_sizes(table: Table, labels: list[int]) -> list[int]:
    """Numbers of neighbouring columns that share a title; columns without one are groups of their own."""
    numbers = table.pick([at for at in range(len(table.columns)) if at not in labels])
    return [count for title, n in numbers.spans() for count in ([n] if title else [1] * n)]


def _column_width(table: Table, at: int) -> float:
    """Approximate width of a column, in points."""
    head, cells = table.columns[at], table.cells(at)
    title = _DIGIT_PT * _width_in_digits(f"{head.title} {head.arrow}".strip())
    if not head.number:
        return max(
            title,
            *(_DIGIT_PT * _width_in_digits(e.text) + _RAISED_DIGIT_PT * _width_in_digits(e.marks) for e in cells),
        )
    widest = _widest_spread(table, at)
    spread = _SMALL_DIGIT_PT * (_width_in_digits("±" + widest) + 0.7) if widest else 0.0
    whole = max((_BOLD_DIGIT_PT if cell.bold else _DIGIT_PT) * _width_in_digits(cell.whole) for cell in cells)
    rest = max(
        (_BOLD_DIGIT_PT if cell.bold else _DIGIT_PT) * _width_in_digits(cell.rest)
        + (spread if cell.spread or cell.interval else 0)
        + (_SMALL_DIGIT_PT * (_width_in_digits(cell.brackets) + 0.6) if cell.interval else 0)
        + _RAISED_DIGIT_PT * _width_in_digits(cell.marks)
        for cell in cells
    )
    return max(title, whole + rest)


def _width_in_digits(text: str) -> float:
    """Approximate width of a text in Computer Modern, in multiples of a digit."""
    return sum(
        next((width for width, characters in _CHARACTER_WIDTHS.items() if char in characters), 1.0) for char in text
    )


def _block(table: Table) -> LatexBlock:
    widest_spreads = [_widest_spread(table, position) for position in range(len(table.columns))]
    groups = [
        LatexGroup(group.title, [Markup(_row_line(table, row, widest_spreads)) for row in group.rows])
        for group in table.groups
    ]
    heading = " & ".join(map(_heading, table.columns)) + r" \\"
    return LatexBlock(
        Markup("".join("r@{}l" if column.number else "l" for column in table.columns)),
        _tex_column_count(table.columns),
        [Markup(line) for line in [*_span_lines(table), heading]],
        groups,
    )


def _span_lines(table: Table) -> list[str]:
    """Titles above several columns, each underlined by a rule of its own."""
    if not table.grouped:
        return []
    titles, rules, first_column = [], [], 0
    for title, count in table.spans():
        width = _tex_column_count(table.columns[first_column : first_column + count])
        first_tex_column = _tex_column_count(table.columns[:first_column]) + 1
        titles.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(title)}}}")
        rules += [rf"\cmidrule(lr){{{first_tex_column}-{first_tex_column + width - 1}}}"] if title else []
        first_column += count
    return [" & ".join(titles) + r" \\", "".join(rules)]


def _tex_column_count(columns: tuple[Column, ...]) -> int:
    """A column of numbers is two of LaTeX's, see :func:`_number_cells`."""
    return sum(2 if column.number else 1 for column in columns)


def _heading(head: Column) -> str:
    text = escape_latex(f"{head.title} {head.arrow}").replace(" ", "~") if head.arrow else escape_latex(head.title)
    return rf"\multicolumn{{2}}{{c}}{{{text}}}" if head.number else text


def _row_line(table: Table, row: tuple[Cell, ...], widest_spreads: list[str]) -> str:
    cells = []
    for head, cell, widest_spread in zip(table.columns, row, widest_spreads, strict=True):
        cells.append(_number_cells(cell, widest_spread) if head.number else escape_latex(cell.text) + _marks(cell))
    return " & ".join(cells) + r" \\"


def _number_cells(cell: Cell, widest: str) -> str:
    """Two columns, split before the decimal point, so that the points are aligned."""
    whole, rest = escape_latex(cell.whole), escape_latex(cell.rest)
    if cell.bold:
        whole, rest = rf"\textbf{{{whole}}}", rf"\textbf{{{rest}}}"
    space = r"\," if cell.spread else "~"
    brackets = rf"{{\scriptsize{space}{escape_latex(cell.brackets)}}}" if cell.brackets else ""
    return f"{whole} & {rest}{_deviation(cell, widest)}{brackets}{_marks(cell)}"


def _deviation(cell: Cell, widest: str) -> str:
    """± and the standard deviation, padded where an interval follows, so that intervals are aligned."""
    if not cell.spread:
        return rf"{{\scriptsize\phantom{{\,$\pm$\,{widest}}}}}" if widest and cell.interval else ""
    pad = "0" * (len(widest) - len(cell.spread))
    return rf"{{\scriptsize\,$\pm$\,{cell.spread}" + (rf"\phantom{{{pad}}}" if pad and cell.interval else "") + "}"


def _widest_spread(table: Table, at: int) -> str:
    return max((cell.spread for cell in table.cells(at)), key=len, default="")


def _marks(cell: Cell) -> str:
    return rf"\textsuperscript{{{escape_latex(cell.marks)}}}" if cell.marks else ""
