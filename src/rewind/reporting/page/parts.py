"""Pieces of HTML that the page is put together from; every text is escaped here."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

DPI = 200  # of pictures as PNG
PIXELS = 110  # on the page for an inch of a picture
DRAWING = 150_000  # bytes of SVG from which a picture is shown as PNG
_SIZE = re.compile(rb'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')


def section(key: str, title: str, *content: str) -> str:
    """A part of the page with a heading and an anchor."""
    heading = f'<h2 id="{escape(key)}-title">{escape(title)}</h2>'
    body = "\n".join(part for part in content if part)
    return f'<section id="{escape(key)}" aria-labelledby="{escape(key)}-title">\n{heading}\n{body}\n</section>'


def paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def picture(path: Path, caption: str) -> str:
    """A picture inside the page, with its caption: the SVG beside a PNG where it is small, else the PNG."""
    drawing = Path(path).with_suffix(".svg")
    small = drawing.is_file() and drawing.stat().st_size < DRAWING
    if small and (found := _SIZE.search(drawing.read_bytes())):
        content, kind = drawing.read_bytes(), "svg+xml"
        width, height = (round(float(size) * PIXELS / 72) for size in found.groups())
    else:
        content, kind = Path(path).read_bytes(), "png"
        sizes = struct.unpack(">II", content[16:24])  # of the PNG's first chunk
        width, height = (round(size * PIXELS / DPI) for size in sizes)
    data = base64.b64encode(content).decode("ascii")
    size = f'width="{width}" height="{height}"'
    image = f'<img alt="{escape(caption)}" {size} src="data:image/{kind};base64,{data}">'
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure id="figure-{escape(Path(path).stem)}"><div class="wide">{image}</div>{below}</figure>'


def fragment(table: str, folded: bool = False) -> str:
    """A table that is HTML already: its notes folded away below it, or the whole under its caption.

    A foot as long as a paragraph would make the table as wide as the page.
    """
    title = re.search(r"<caption>(.*?)</caption>", table, re.S)
    name = title[1].strip() if title else "Table"
    notes = re.search(r'<ul class="notes">.*?</ul>', table, re.S)
    body = re.sub(r"<tfoot>.*?</tfoot>\s*", "", table, flags=re.S) if notes else table
    below = f'<details class="below"><summary>Notes</summary>\n{notes[0]}</details>' if notes else ""
    quoted = name.replace('"', "&quot;")
    wide = f'<div class="wide" tabindex="0" role="group" aria-label="{quoted}">{body}</div>\n{below}'
    if folded:
        return f"<details><summary>{name}</summary>\n{wide}</details>"
    return f'<div class="sheet">{wide}</div>'


def grid(rows: pd.DataFrame, caption: str, numbers: Sequence[str] = ()) -> str:
    """A table of texts with its caption; the columns in ``numbers`` are aligned to the right."""
    sides = {column: ' class="number"' if column in numbers else "" for column in rows.columns}
    head = "".join(f'<th scope="col"{sides[column]}>{escape(str(column))}</th>' for column in rows.columns)
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{sides[c]}>{escape(_text(v))}</td>" for c, v in zip(rows.columns, row, strict=True))
        + "</tr>"
        for row in rows.itertuples(index=False, name=None)
    )
    title = f"<caption>{escape(caption)}</caption>"
    table = f"<table>{title}<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
    return f'<div class="wide" tabindex="0" role="group" aria-label="{escape(caption)}">{table}</div>'


def embedded(key: str, value: Any) -> str:
    """JSON in a script element; nothing in it can end the element or begin a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{escape(key)}">{text}</script>'


def _text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
