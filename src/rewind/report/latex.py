"""Tables as LaTeX floats, to be included in a paper; they compile under plain pdflatex with booktabs.

Wide tables are stacked in blocks of columns and long ones continue in another float.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell

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


def render_latex(sheet: Sheet, notes: list[str]) -> str:
    """The table as a float, to be read by ``\\input``.

    Columns that do not fit beside each other are stacked; rows that do not fit on a page go into another float.

    Args:
        sheet: the table.
        notes: plain sentences for the paragraph below it.
    """
    blocks, gap = _layout(sheet)
    pages = _pages(sheet, max(1, MAX_ROWS_PER_FLOAT // len(blocks)))
    caption = [rf"\caption{{{escape_latex(sheet.title)}.}}", rf"\label{{tab:{sheet.slug}}}"]
    continuation = [rf"\centerline{{{escape_latex(f'{sheet.title}, continued')}}}", r"\vspace{4pt}"]
    note_lines = [r"\par\smallskip", r"\parbox{\linewidth}{\footnotesize\raggedright", *map(escape_latex, notes), r"}"]
    lines = [r"% Needs \usepackage{booktabs}."]
    for number, page in enumerate(pages):
        tabulars = [_tabular(page.pick(columns)) for columns in blocks]
        lines += [
            r"\begin{table*}[tp]",
            r"\centering\footnotesize",
            rf"\setlength{{\tabcolsep}}{{{gap}pt}}",
            r"\setlength{\belowcaptionskip}{4pt}",
            *(continuation if number else caption),
            *(line for tabular in tabulars for line in [r"\par\smallskip", *tabular][tabular is tabulars[0] :]),
            *(note_lines if number == len(pages) - 1 and notes else []),
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def _pages(sheet: Sheet, most: int) -> list[Sheet]:
    """The table in pieces of at most ``most`` rows; a group of rows may be split."""
    pages: list[list[RowGroup]] = [[]]
    for part in sheet.parts:
        rows = list(part.rows)
        while rows:
            room = most - sum(len(group.rows) for group in pages[-1])
            if room <= 0:
                pages.append([])
                continue
            pages[-1].append(RowGroup(part.title, tuple(rows[:room])))
            rows = rows[room:]
    return [replace(sheet, parts=tuple(parts)) for parts in pages]


def _layout(sheet: Sheet) -> tuple[list[list[int]], float]:
    """Blocks of columns that fit beside each other, and half of the space between columns, less if it saves a block."""
    columns = map(sheet.column, range(len(sheet.heads)))
    usual = 2.5 if any(entry.interval for column in columns for entry in column) else 3.5
    wide, tight = _column_blocks(sheet, usual), _column_blocks(sheet, 1.5)
    return (tight, 1.5) if len(tight) < len(wide) else (wide, usual)


def _column_blocks(sheet: Sheet, gap: float) -> list[list[int]]:
    """The labels, then as many columns as fit; columns of a group stay together."""
    labels = [at for at, head in enumerate(sheet.heads) if not head.number]
    widths = [_column_width(sheet, at) + 2 * gap for at in range(len(sheet.heads))]
    room = LINE_WIDTH_PT - sum(widths[at] for at in labels) + 2 * gap
    blocks: list[list[int]] = [[]]
    at = len(labels)
    for count in _group_sizes(sheet, labels):
        group = list(range(at, at + count))
        at += count
        if blocks[-1] and sum(widths[i] for i in blocks[-1] + group) > room:
            blocks.append([])
        for column in group:
            if blocks[-1] and sum(widths[i] for i in [*blocks[-1], column]) > room:
                blocks.append([])
            blocks[-1].append(column)
    return [labels + block for block in blocks]


def _group_sizes(sheet: Sheet, labels: list[int]) -> list[int]:
    """Numbers of neighbouring columns that share a title; columns without one are groups of their own."""
    numbers = sheet.pick([at for at in range(len(sheet.heads)) if at not in labels])
    return [count for title, n in numbers.spans() for count in ([n] if title else [1] * n)]


def _column_width(sheet: Sheet, at: int) -> float:
    """Approximate width of a column, in points."""
    head, entries = sheet.heads[at], sheet.column(at)
    title = _DIGIT_PT * _width_in_digits(f"{head.title} {head.arrow}".strip())
    if not head.number:
        return max(
            title,
            *(_DIGIT_PT * _width_in_digits(e.value) + _RAISED_DIGIT_PT * _width_in_digits(e.raised) for e in entries),
        )
    widest = _widest_spread(sheet, at)
    spread = _SMALL_DIGIT_PT * (_width_in_digits("±" + widest) + 0.7) if widest else 0.0
    whole = max((_BOLD_DIGIT_PT if entry.bold else _DIGIT_PT) * _width_in_digits(entry.whole) for entry in entries)
    rest = max(
        (_BOLD_DIGIT_PT if entry.bold else _DIGIT_PT) * _width_in_digits(entry.rest)
        + (spread if entry.spread or entry.interval else 0)
        + (_SMALL_DIGIT_PT * (_width_in_digits(entry.brackets) + 0.6) if entry.interval else 0)
        + _RAISED_DIGIT_PT * _width_in_digits(entry.raised)
        for entry in entries
    )
    return max(title, whole + rest)


def _width_in_digits(text: str) -> float:
    """Approximate width of a text in Computer Modern, in multiples of a digit."""
    return sum(
        next((width for width, characters in _CHARACTER_WIDTHS.items() if char in characters), 1.0) for char in text
    )


def _tabular(sheet: Sheet) -> list[str]:
    widest_spreads = [_widest_spread(sheet, position) for position in range(len(sheet.heads))]
    return [
        rf"\begin{{tabular}}{{@{{}}{''.join('r@{}l' if head.number else 'l' for head in sheet.heads)}@{{}}}}",
        r"\toprule",
        *_span_lines(sheet),
        " & ".join(map(_heading, sheet.heads)) + r" \\",
        *(
            line
            for position, part in enumerate(sheet.parts)
            for line in _row_group_lines(sheet, part, widest_spreads, first=position == 0)
        ),
        r"\bottomrule",
        r"\end{tabular}",
    ]


def _span_lines(sheet: Sheet) -> list[str]:
    """Titles above several columns, each underlined by a rule of its own."""
    if not sheet.grouped:
        return []
    titles, rules, first_column = [], [], 0
    for title, count in sheet.spans():
        width = _tex_column_count(sheet.heads[first_column : first_column + count])
        first_tex_column = _tex_column_count(sheet.heads[:first_column]) + 1
        titles.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(title)}}}")
        rules += [rf"\cmidrule(lr){{{first_tex_column}-{first_tex_column + width - 1}}}"] if title else []
        first_column += count
    return [" & ".join(titles) + r" \\", "".join(rules)]


def _tex_column_count(heads: tuple[ColumnHead, ...]) -> int:
    """A column of numbers is two of LaTeX's, see :func:`_number_cells`."""
    return sum(2 if head.number else 1 for head in heads)


def _heading(head: ColumnHead) -> str:
    text = escape_latex(f"{head.title} {head.arrow}").replace(" ", "~") if head.arrow else escape_latex(head.title)
    return rf"\multicolumn{{2}}{{c}}{{{text}}}" if head.number else text


def _row_group_lines(sheet: Sheet, part: RowGroup, widest_spreads: list[str], first: bool) -> list[str]:
    rule = r"\midrule" if first else r"\midrule[0.03em]"
    width = _tex_column_count(sheet.heads)
    title = [rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{escape_latex(part.title)}}}}} \\"] if part.title else []
    return [rule, *title, *(_row_line(sheet, row, widest_spreads) for row in part.rows)]


def _row_line(sheet: Sheet, row: tuple[SheetCell, ...], widest_spreads: list[str]) -> str:
    cells = []
    for head, cell, widest_spread in zip(sheet.heads, row, widest_spreads, strict=True):
        cells.append(_number_cells(cell, widest_spread) if head.number else escape_latex(cell.value) + _raised(cell))
    return " & ".join(cells) + r" \\"


def _number_cells(entry: SheetCell, widest: str) -> str:
    """Two columns, split before the decimal point, so that the points are aligned."""
    whole, rest = escape_latex(entry.whole), escape_latex(entry.rest)
    if entry.bold:
        whole, rest = rf"\textbf{{{whole}}}", rf"\textbf{{{rest}}}"
    space = r"\," if entry.spread else "~"
    brackets = rf"{{\scriptsize{space}{escape_latex(entry.brackets)}}}" if entry.brackets else ""
    return f"{whole} & {rest}{_deviation(entry, widest)}{brackets}{_raised(entry)}"


def _deviation(entry: SheetCell, widest: str) -> str:
    """± and the standard deviation, padded where an interval follows, so that intervals are aligned."""
    if not entry.spread:
        return rf"{{\scriptsize\phantom{{\,$\pm$\,{widest}}}}}" if widest and entry.interval else ""
    pad = "0" * (len(widest) - len(entry.spread))
    return rf"{{\scriptsize\,$\pm$\,{entry.spread}" + (rf"\phantom{{{pad}}}" if pad and entry.interval else "") + "}"


def _widest_spread(sheet: Sheet, at: int) -> str:
    return max((entry.spread for entry in sheet.column(at)), key=len, default="")


def _raised(entry: SheetCell) -> str:
    return rf"\textsuperscript{{{escape_latex(entry.raised)}}}" if entry.raised else ""
