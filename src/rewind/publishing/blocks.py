"""What a marked block of a document prints.

A block is ``<!-- published: WHAT -->…<!-- end -->``. WHAT begins with the study (or the benchmark):

| WHAT | prints |
|---|---|
| ``demo table hard`` | the table as the terminal shows it |
| ``demo markdown hard columns="Method; R@1 ↑: value as R@1" rows="meanP; seqTransf" part="T2V"`` | a Markdown table |
| ``demo number hard seqTransf "R@1 ↑" spread part="T2V"`` | a number within a sentence: its value, or more |
| ``demo made`` | commit, date and machine |
| ``demo wall`` | minutes that the whole took |
| ``calibration markdown grid``, ``calibration number type-i-fisher`` | what the benchmark prints under this name |
| ``demo unmarked hard`` | the sentence as it stands, while no value of the table is significantly better than another |
| ``sanw says verdict Win no`` | the sentence as it stands, while the column says this in every row |

A column is named as the terminal names it; ``: value``, ``: spread`` and ``: interval`` print a part of its cells
(the first without letters).
Marks are those on which all stored machines agree, numbers the first machine's.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from rewind.errors import RewindError
from rewind.publishing.agree import marked
from rewind.publishing.choose import column, lines
from rewind.publishing.claims import CLAIMS, check
from rewind.publishing.library import Absent, Library
from rewind.publishing.record import duration, where
from rewind.publishing.stored import Stored
from rewind.reporting import markdown, notes, plain
from rewind.reporting.sheet import Entry, Head, Part, Sheet

COUNTS = {2: "both", 3: "all three", 4: "all four"}
PIECES: dict[str, Callable[[Entry], Entry]] = {
    "": lambda entry: entry,
    "value": lambda entry: replace(entry, spread="", interval=None, raised=""),
    "spread": lambda entry: replace(entry, interval=None),
    "interval": lambda entry: replace(entry, spread=""),
}


def render(library: Library, what: str, body: str) -> str:
    """The text between the markers.

    Args:
        library: the published results.
        what: the marker's words.
        body: the text that is there.

    Raises:
        Absent: if nothing is published that it could be made from.
        Untrue: for a sentence that the results do not bear out.
        Unreadable: if what is published cannot be read.
        RewindError: for a marker that cannot be understood, or names a row or column that is not there.
    """
    try:
        words = shlex.split(what)
    except ValueError as error:
        raise RewindError(f"{error} in its words; put names with spaces between double quotes.") from None
    options = dict(word.split("=", 1) for word in words if word.partition("=")[0] in ("columns", "rows", "part"))
    words = [word for word in words if word.partition("=")[0] not in options]
    source, kind, arguments = words[0], words[1] if len(words) > 1 else "", words[2:]
    counts = {"table": (1, 1), "markdown": (1, 1), "number": (1, 4), "made": (0, 0), "wall": (0, 0)}
    counts |= {claim: (number, number) for claim, number in CLAIMS.items()}
    if kind not in counts or not counts[kind][0] <= len(arguments) <= counts[kind][1]:
        raise RewindError(f"write `<study> {'|'.join(counts)} …`, as src/rewind/publishing/blocks.py lists.")
    found = library.machines(source)
    if not found:
        raise Absent(f"nothing of {source} is published")
    if kind == "made":
        return _made(found)
    if kind == "wall":
        return _wall(found[0])
    if found[0].record["kind"] == "benchmark":
        return _printed(found[0], arguments, kind == "markdown")
    if kind in CLAIMS:
        check(kind, library.sheets(source, arguments[0]), arguments[1:], options)
        return body
    sheet = library.sheet(source, arguments[0])
    if kind == "table":
        return _terminal(sheet, len(found))
    if kind == "number":
        return _number(lines(sheet, options), *arguments[1:])
    return "\n" + _markdown(lines(sheet, options), options) + "\n"


def _terminal(sheet: Sheet, count: int) -> str:
    first, *rest = sheet.key.splitlines() or [""]
    if first == notes.KEY and count > 1:
        rest = [f"Only marks that {_all(count)} agree on are shown.", *rest]
        if not marked(sheet):
            first, rest = "", []
    text = plain.render(replace(sheet, key="\n".join([first, *rest]).strip()))
    return "\n\n" + "\n".join(f"    {line}".rstrip() for line in text.splitlines()) + "\n\n"


def _all(count: int) -> str:
    return f"{COUNTS.get(count, f'all {count}')} machines"


def _made(found: list[Stored]) -> str:
    first, *others = found
    text = where(first.record)
    if others:
        text += f"; run again on {' and on '.join(where(other.record) for other in others)}"
    return text


def _wall(stored: Stored) -> str:
    seconds = stored.record.get("wall_seconds")
    if seconds is None:
        raise Absent(f"how long {stored.record['name']} took is not known: its jobs did not run without interruption")
    return duration(seconds)


def _printed(stored: Stored, arguments: list[str], whole: bool) -> str:
    name = arguments[0]
    if name not in stored.texts:
        raise RewindError(f"{stored.record['name']} has no {name!r}; available: {', '.join(stored.texts)}.")
    return f"\n{stored.texts[name]}\n" if whole else stored.texts[name]


def _number(sheet: Sheet, row: str = "", title: str = "", piece: str = "value") -> str:
    labels = [entry.value for entry in sheet.column(0)]
    if labels.count(row) != 1:
        number = "occurs more than once; add part=" if row in labels else "is not there"
        raise RewindError(f"row {row!r} of {sheet.heading!r} {number}; available: {'; '.join(labels)}.")
    entry = PIECES[_piece(piece)](sheet.column(column(sheet, title))[labels.index(row)])
    spread = f" ± {entry.spread}" if entry.spread else ""
    return f"{entry.value}{spread}" + (f" {entry.brackets}" if entry.brackets else "")


def _markdown(sheet: Sheet, options: dict[str, str]) -> str:
    wanted = [_wish(text) for text in options["columns"].split("; ")] if "columns" in options else []
    at = [column(sheet, name) for name, _, _ in wanted] or list(range(len(sheet.heads)))
    picked = sheet.pick(at)
    for number, (_, piece, title) in enumerate(wanted):
        picked = _changed(picked, number, PIECES[piece], title)
    text = markdown.render(picked, [])
    return text.split("\n\n", 1)[1].rstrip()


def _changed(sheet: Sheet, at: int, piece: Callable[[Entry], Entry], title: str) -> Sheet:
    heads = list(sheet.heads)
    heads[at] = Head(title, number=heads[at].number) if title else heads[at]
    parts = tuple(
        Part(part.title, tuple((*row[:at], piece(row[at]), *row[at + 1 :]) for row in part.rows))
        for part in sheet.parts
    )
    return replace(sheet, heads=tuple(heads), parts=parts)


def _wish(text: str) -> tuple[str, str, str]:
    """``R@1 ↑: value as R@1`` → name, piece, title."""
    text, _, title = text.partition(" as ")
    name, _, piece = text.partition(": ")
    return name, _piece(piece), title


def _piece(name: str) -> str:
    if name not in PIECES:
        raise RewindError(f"a cell has no part {name!r}; available: {', '.join(filter(None, PIECES))}.")
    return name
