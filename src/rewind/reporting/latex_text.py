"""Plain text as LaTeX that always compiles under pdflatex with its default fonts."""

from __future__ import annotations

import re
import unicodedata

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
