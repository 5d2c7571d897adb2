"""The HTML document of a study's page: its parts, captions, tables, style and script.

Start at :func:`render_page`. Everything is embedded, so that the page opens from a disk and needs no network. Functions
that take plain text escape it.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup
from PIL import Image

from rewind.analyses import analyses_of
from rewind.config import Study
from rewind.hashing import short_hash
from rewind.tables.render import escape_html, read_shared_notes, read_tables, render_template, templates_hash
from rewind.tables.table import Table

# ---- Style sheets and scripts of the page --------------------------------------------------------------------------

ASSETS_FOLDER = Path(__file__).parent
STYLE_FILES = ("page.css", "verdicts.css", "explorer.css")
SCRIPT_FILES = (
    "packed.js",
    "data.js",
    "clips.js",
    "tables.js",
    "order.js",
    "list.js",
    "link.js",
    "detail.js",
    "explorer.js",
)


def read_asset(name: str) -> str:
    """The text of one of the page's style sheets or scripts."""
    return (ASSETS_FOLDER / name).read_text(encoding="utf-8")


def assets_hash() -> str:
    """Content hash (16 hex digits) of the style sheets, scripts and templates, which code hashes do not include."""
    paths = sorted(path for path in ASSETS_FOLDER.iterdir() if path.suffix in (".css", ".js", ".html"))
    assets = [path.name.encode() + b"\0" + path.read_bytes() for path in paths]
    return short_hash(templates_hash().encode(), *assets)


# ---- Building blocks of HTML ---------------------------------------------------------------------------------------

PNG_DPI = 200  # of pictures as PNG
PIXELS_PER_INCH = 110  # of the page for an inch of a picture
MAX_SVG_BYTES = 150_000  # a picture with a larger SVG is shown in pixels
WEBP_QUALITY = 85  # of 100; letters stay sharp
_SVG_SIZE = re.compile(rb'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"')


def html_section(key: str, title: str, *content: str, folded: bool = False) -> str:
    """A part of the page with a heading and an anchor; a folded one opens by a click, a link to it, and in print."""
    heading = f'<h2 id="{escape_html(key)}-title">{escape_html(title)}</h2>'
    body = "\n".join(part for part in content if part)
    if folded:
        heading, body = f"<details><summary>{heading}</summary>", f"{body}\n</details>"
    return (
        f'<section id="{escape_html(key)}" aria-labelledby="{escape_html(key)}-title">\n{heading}\n{body}\n</section>'
    )


def html_paragraph(text: str) -> str:
    """A paragraph of plain text."""
    return f"<p>{escape_html(text)}</p>"


def html_figure(path: Path, caption: str, narrow: Path | None = None) -> str:
    """An embedded picture with its caption; on a narrow screen the picture ``narrow`` takes its place."""
    source, width, height = _embedded_picture(Path(path))
    image = f'<img alt="{escape_html(caption)}" width="{width}" height="{height}" src="{source}">'
    if narrow is not None:
        source, width, height = _embedded_picture(narrow)
        small = f'<source media="(max-width: 48rem)" width="{width}" height="{height}" srcset="{source}">'
        image = f"<picture>{small}{image}</picture>"
    below = f"<figcaption>{escape_html(caption)}</figcaption>"
    wide = f'<div class="wide" tabindex="0" role="group" aria-label="Picture">{image}</div>'
    return f'<figure id="figure-{escape_html(Path(path).stem)}">{wide}{below}</figure>'


def _embedded_picture(path: Path) -> tuple[str, int, int]:
    """Data URL, width and height of a picture: of the SVG next to the PNG ``path`` if it is small, else of its pixels.

    They become WebP, which takes a third of the bytes of a PNG.
    """
    drawing = path.with_suffix(".svg")
    use_svg = drawing.is_file() and drawing.stat().st_size < MAX_SVG_BYTES
    if use_svg and (size_in_points := _SVG_SIZE.search(drawing.read_bytes())):
        content, kind = drawing.read_bytes(), "svg+xml"
        width, height = (round(float(size) * PIXELS_PER_INCH / 72) for size in size_in_points.groups())
    else:
        stream = io.BytesIO()
        with Image.open(path) as picture:
            width, height = (round(size * PIXELS_PER_INCH / PNG_DPI) for size in picture.size)
            picture.save(stream, "WEBP", quality=WEBP_QUALITY)
        content, kind = stream.getvalue(), "webp"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}", width, height


def text_table(rows: pd.DataFrame, caption: str, numbers: Sequence[str] = ()) -> str:
    """A table of plain values with its caption; the columns in ``numbers`` are aligned to the right."""
    columns = [(str(column), column in numbers) for column in rows.columns]
    texts = [[_cell_text(value) for value in row] for row in rows.itertuples(index=False, name=None)]
    return render_template("text_table.html", caption=caption, columns=columns, rows=texts).rstrip("\n")


def json_script(key: str, value: Any) -> str:
    """JSON in a script element, as gzip in base64: a third of its size, and nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode("ascii")
    return f'<script type="application/gzip" id="{escape_html(key)}">{packed}</script>'


def _cell_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


# ---- Captions of the figures ---------------------------------------------------------------------------------------

PROJECTION_PHRASES = {"pca": "the first two principal components", "tsne": "t-SNE", "umap": "UMAP"}


def figure_captions(study: Study, labels: Mapping[str, str]) -> dict[str, str]:
    """File name of a picture, without suffix → its caption."""
    method, seed = study.pictured()
    run = f"{labels[method]}, seed {seed}" if method in study.trained() else labels[method]
    confidence = f"{100 * study.statistics.confidence:g}%"
    condition, metric = study.condition, study.figure_metric()
    captions = {
        "intervals": f"{metric} of every method. Broad bar: {confidence} interval over {study.interval_scope()}; thin "
        "line: bootstrap over queries with these checkpoints fixed. Numbers: the estimates.",
        "pairs": f"Difference in {metric} of every declared pair, with the same two intervals. Filled squares are "
        "significant after Holm's correction over the declared pairs; the intervals are not adjusted.",
        "gap": "Left: R@1 of the same queries in Origin's gallery and in Hard's, which includes the reversed twins. "
        "Right: the mean difference within runs, with its intervals.",
        "training_curves": "Validation recall and training loss, mean over seeds; the band spans the seeds.",
        "rank_curve": "Share of test queries whose true item is among the first k (expected value over ties).",
        "ranks": "Compared methods from best to worst in the deciding metric of each setting. Bar: the interval of a "
        f"place, {confidence} for all places at once; it leaves out methods that are shown to be better or worse. Dot: "
        "the place by the mean, filled where the interval is only that place.",
        "examples": f"What captions found with {run}. They are chosen by outcome, as stated in the figure.",
        "twin_examples": "Captions of Binary next to their clip and its twin, and the methods that preferred each, or "
        "neither (first seed of each). They are chosen by outcome, as stated in the figure.",
        "heatmap": f"Similarities of {run}. Every row is a caption, standardised over all test items. The true item "
        "is on the diagonal; a frame marks a clip and its twin.",
        "embedding": f"Captions and items of {run} in {PROJECTION_PHRASES[study.figures.embedding]} of their vectors. "
        "What to look for: captions and items in clouds of their own are a modality gap. Which item a caption finds is "
        "not visible in two dimensions.",
    }
    for analysis in analyses_of(study).values():
        for rule in analysis.rules:
            captions |= rule.captions(study)
    return {name: f"{text} {condition.capitalize()}." if condition else text for name, text in captions.items()}


# ---- Tables of the page --------------------------------------------------------------------------------------------
# They are rendered from tables.json; the page also has the other markups of each table, to be copied.


FOLDED_KINDS = ("gap", "groups", "order", "pairs", "seeds", "trials")
"""Kinds of tables of which only the caption is shown at first: details of what the settings' tables say."""

COPY_SUFFIXES = {"LaTeX": ".tex", "Markdown": ".md", "CSV": ".csv"}


def table_section(folder: Path, prefix: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Tables as HTML in reading order, those of every run folded away; and file name → markup → the file's text.

    ``prefix`` is that of their file names, the key ``tables.prefix``.
    """

    elements, copies = [], {}
    for table in read_tables(folder):
        stem = f"{prefix}{table.name}"
        files = {title: folder / f"{stem}{suffix}" for title, suffix in COPY_SUFFIXES.items()}
        copies[stem] = {title: path.read_text(encoding="utf-8") for title, path in files.items() if path.is_file()}
        elements.append(page_table(table, copies=stem))
    if notes := read_shared_notes(folder):
        elements.append(render_template("page_notes.html", ASSETS_FOLDER, notes=notes))
    return elements, copies


def page_table(table: Table, copies: str = "") -> str:
    """A table with its notes folded away; one of details or of the appendix is folded away whole, under its caption.

    The notes are not in the table's foot, in which a long paragraph would make the table as wide as the page.
    ``copies`` is the name under which the page has its other markups.
    """
    folded = table.appendix or table.kind in FOLDED_KINDS
    return render_template("page_table.html", ASSETS_FOLDER, table=table, copies=copies, folded=folded)


# ---- The whole document --------------------------------------------------------------------------------------------

SECTIONS_BEFORE_EXPLORER = ("answer",)


@dataclass(frozen=True)
class Page:
    """What is on the page.

    Example:
        >>> sections = {"tables": html_section("tables", "Tables", html_paragraph("R@1 < 50%"))}
        >>> page = Page("Demo", "3 methods", sections, {}, explorer={}, strips={}, clips="No clips.")
        >>> html = render_page(page)
        >>> "<p>R@1 &lt; 50%</p>" in html
        True
    """

    title: str
    subtitle: str
    sections: Mapping[str, str]  # HTML by key, in order; the keys are anchors
    names: Mapping[str, str]  # key → its name in the contents
    explorer: Mapping[str, Any]  # see :meth:`rewind.report.explorer.Explorer.data`
    strips: Mapping[str, Any]  # see :meth:`rewind.report.page.strips.PageStrips.content`
    clips: str  # a sentence that says which clips play in the page and which are linked
    beside: bool = False  # whether the explorer's data has files next to the page
    copies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # see :func:`table_section`
    question: str = ""  # the heading, where the study asks one; else its title is


def render_page(page: Page) -> str:
    """The document. It needs no network and opens from a disk."""
    keys = [*page.sections]
    before = [key for key in keys if key in SECTIONS_BEFORE_EXPLORER]
    after = [key for key in keys if key not in SECTIONS_BEFORE_EXPLORER]
    scripts = (json_script(key, value) for key, value in _script_data(page).items())
    return render_template(
        "page.html",
        ASSETS_FOLDER,
        title=page.title,
        question=page.question,
        subtitle=page.subtitle,
        style=_joined(map(read_asset, STYLE_FILES)),
        contents=[(key, page.names.get(key, key.capitalize())) for key in (*before, "explorer", *after)],
        before=_joined(page.sections[key] for key in before),
        explorer=Markup(render_template("explorer.html", ASSETS_FOLDER, clips=page.clips)),
        after=_joined(page.sections[key] for key in after),
        beside=Markup(" 'self' file:" if page.beside else ""),
        data=_joined(scripts),
        script=_joined(map(read_asset, SCRIPT_FILES)),
    )


def _joined(parts: Iterable[str]) -> Markup:
    """What is HTML, a style sheet or a script already, line after line."""
    return Markup("\n".join(parts))


def _script_data(page: Page) -> dict[str, Any]:
    """What the script reads, by the id of its element."""
    return {"explorer-data": page.explorer, "explorer-strips": page.strips, "table-copies": page.copies}
