"""LaTeX: a table float for ``\\input`` under plain pdflatex with booktabs, and text that always compiles."""

from __future__ import annotations

import re
import unicodedata

from rewind.reporting.cells import Cell, Column, Row, Table

# What pdflatex's default (OT1) fonts cannot take as it stands; brackets and the star are options after a row.
_PLAIN = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#",
    "$": r"\$", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedblright{}", "`": r"\textquoteleft{}",
    "[": "{[}", "]": "{]}", "*": "{*}", "\u00a0": "~", "–": r"\textendash{}", "—": r"\textemdash{}",
    "‘": r"\textquoteleft{}", "’": "'", "“": r"\textquotedblleft{}", "”": r"\textquotedblright{}",
    "…": r"\ldots{}", "•": r"\textbullet{}", "©": r"\copyright{}", "ß": r"\ss{}", "æ": r"\ae{}",
    "Æ": r"\AE{}", "œ": r"\oe{}", "Œ": r"\OE{}", "ø": r"\o{}", "Ø": r"\O{}", "ł": r"\l{}", "Ł": r"\L{}",
    "ı": r"\i{}", "§": r"\S{}", "¶": r"\P{}", "¡": "!`", "¿": "?`",
}  # fmt: skip
_MATHS = {
    "±": r"\pm", "∓": r"\mp", "×": r"\times", "·": r"\cdot", "÷": r"\div", "−": "-", "≤": r"\leq",
    "≥": r"\geq", "≠": r"\neq", "≈": r"\approx", "≪": r"\ll", "≫": r"\gg", "∞": r"\infty",
    "→": r"\rightarrow", "←": r"\leftarrow", "↔": r"\leftrightarrow", "↑": r"\uparrow", "↓": r"\downarrow",
    "⇒": r"\Rightarrow", "∈": r"\in", "∑": r"\sum", "√": r"\surd", "∂": r"\partial", "∇": r"\nabla",
    "°": r"^{\circ}", "µ": r"\mu", "†": r"\dagger", "‡": r"\ddagger", "∼": r"\sim", "∪": r"\cup",
    "∩": r"\cap", "⊂": r"\subset", "¬": r"\neg", "★": r"\star", "✓": r"\surd",
}  # fmt: skip
# Greek capitals that look Latin, and omicron, have no command of their own.
_GREEK = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True)) | {"ς": r"\varsigma"}
_ACCENTS = {
    "\u0300": "`", "\u0301": "'", "\u0302": "^", "\u0303": "~", "\u0304": "=", "\u0306": "u", "\u0307": ".",
    "\u0308": '"', "\u030a": "r", "\u030b": "H", "\u030c": "v", "\u0323": "d", "\u0327": "c", "\u0331": "b",
}  # fmt: skip
_POSITIONS = {"<super>": "textsuperscript", "<sub>": "textsubscript"}


def escape(text: str) -> str:
    """``text`` so that it prints as itself under pdflatex with its default fonts.

    Accented Latin, Greek and the usual mathematical signs are set; a character beyond them prints as its code
    point, for example ``[U+4E2D]``, rather than stopping the compiler or vanishing.
    """
    line = unicodedata.normalize("NFC", " ".join(text.split()))
    # Two hyphens or apostrophes would be drawn as one longer sign.
    return re.sub(r"([-'])(?=\1)", r"\1{}", "".join(map(_character, line)))


def _character(char: str) -> str:
    if char in _PLAIN:
        return _PLAIN[char]
    if char in _MATHS:
        return rf"\ensuremath{{{_MATHS[char]}}}"
    if " " <= char <= "~":
        return char
    return _greek(char) or _accented(char) or _compatible(char) or rf"{{[}}U+{ord(char):04X}{{]}}"


def _greek(char: str) -> str:
    if char in _GREEK:
        return rf"\ensuremath{{{_GREEK[char]}}}"
    match = re.fullmatch(r"GREEK (SMALL|CAPITAL) LETTER (\w+)", unicodedata.name(char, ""))
    if not match:
        return ""
    name = {"LAMDA": "lambda"}.get(match[2], match[2].lower())
    return rf"\ensuremath{{\{name.title() if match[1] == 'CAPITAL' else name}}}"


def _accented(char: str) -> str:
    base, *marks = unicodedata.normalize("NFD", char)
    if len(marks) != 1 or marks[0] not in _ACCENTS or not (base.isascii() and base.isalpha()):
        return ""
    inner = rf"\{base}" if base in "ij" and marks[0] not in "\u0323\u0327\u0331" else base
    return rf"\{_ACCENTS[marks[0]]}{{{inner}}}"


def _compatible(char: str) -> str:
    """Ligatures, raised and lowered digits, full-width letters: what stands for simpler characters."""
    kind, _, codes = unicodedata.decomposition(char).rpartition("> ")
    if not kind:
        return ""
    inner = "".join(_character(chr(int(code, 16))) for code in codes.split())
    command = _POSITIONS.get(kind + ">")
    return rf"\{command}{{{inner}}}" if command else inner


def latex(table: Table, notes: list[str], searched: str) -> str:
    """The table as a float, to be read by ``\\input``.

    Args:
        table: the cells.
        notes: plain sentences for the paragraph below the table.
        searched: plain words for the caption, for example ``text→video``.
    """
    caption = escape(f"{table.heading.partition('. ')[2]}: {searched}.")
    spread = _spread_widths(table)
    # Brackets need the room; 345 pt is the line of the narrowest common class.
    gap = "2.5pt" if any(column.interval for column in table.columns) else "3.5pt"
    lines = [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table*}[t]",
        r"\centering\footnotesize",
        rf"\setlength{{\tabcolsep}}{{{gap}}}",
        r"\setlength{\belowcaptionskip}{4pt}",
        rf"\caption{{{caption}}}",
        rf"\label{{tab:{_slug(table)}}}",
        rf"\begin{{tabular}}{{@{{}}ll*{{{len(table.columns)}}}{{r@{{}}l}}@{{}}}}",
        r"\toprule",
        "Method & Train & "
        + " & ".join(rf"\multicolumn{{2}}{{c}}{{{escape(c.title)}}}" for c in table.columns)
        + r" \\",
        r"\midrule",
        *[_row(row, table.columns, spread) for row in table.rows if not row.baseline],
        *([r"\midrule[0.03em]"] if _both_kinds(table) else []),
        *[_row(row, table.columns, spread) for row in table.rows if row.baseline],
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
        r"\parbox{\linewidth}{\footnotesize\raggedright",
        *[escape(note) for note in notes],
        r"}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _both_kinds(table: Table) -> bool:
    return len({row.baseline for row in table.rows}) == 2


def _slug(table: Table) -> str:
    name = unicodedata.normalize("NFKD", f"{table.dataset} {table.setting}").encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _row(row: Row, columns: tuple[Column, ...], spread: list[int]) -> str:
    name = escape(row.label) + _raised(row.letter)
    cells = [_cell(cell, column, width) for cell, column, width in zip(row.cells, columns, spread, strict=True)]
    return " & ".join([name, escape(row.train), *cells]) + r" \\"


def _cell(cell: Cell, column: Column, spread: int) -> str:
    """Two columns, split before the decimal point, so that the points stand under each other."""
    whole, tenth = f"{cell.estimate:.1f}".split(".")
    whole, tenth = (rf"\textbf{{{whole}}}", rf"\textbf{{.{tenth}}}") if cell.best else (whole, f".{tenth}")
    rest = _deviation(cell, column, spread) + _bracket(cell, column) + _raised(",".join(cell.beats))
    return f"{whole} & {tenth}{rest}"


def _deviation(cell: Cell, column: Column, spread: int) -> str:
    if cell.std != cell.std:
        # Only what follows needs the room of the absent deviation.
        empty = rf"\phantom{{\,$\pm$\,{'0' * spread}.0}}"
        return rf"{{\scriptsize{empty}}}" if spread and column.interval else ""
    digits = f"{cell.std:.1f}"
    pad = "0" * (spread + 2 - len(digits))
    return rf"{{\scriptsize\,$\pm$\,{digits}" + (rf"\phantom{{{pad}}}" if pad and column.interval else "") + "}"


def _bracket(cell: Cell, column: Column) -> str:
    if not column.interval or cell.low != cell.low:
        return ""
    return rf"{{\scriptsize\,{{[}}{cell.low:.1f}, {cell.high:.1f}{{]}}}}"


def _spread_widths(table: Table) -> list[int]:
    """Digits before the point of each column's widest deviation; 0 where no row has one."""
    widths = []
    for i in range(len(table.columns)):
        shown = [f"{row.cells[i].std:.1f}" for row in table.rows if row.cells[i].std == row.cells[i].std]
        widths.append(max((len(text) - 2 for text in shown), default=0))
    return widths


def _raised(letters: str) -> str:
    return rf"\textsuperscript{{{letters}}}" if letters else ""
