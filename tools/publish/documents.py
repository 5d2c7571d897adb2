"""Documents that print published results: their marked blocks and their pictures.

:func:`compare_documents` renders every block of README.md and ``docs/*.md``; :func:`rewrite_documents` writes what
changed. Pictures are ``docs/images/<study>_<picture>.png``.
"""

from __future__ import annotations

import difflib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from blocks import UntrueClaim, render_block
from library import NotPublished, ResultsLibrary, UnreadableResults
from rewind.errors import ConfigErrors, RewindError
from rewind.io.files import atomic_write, read_json, write_json, write_text
from rewind.provenance import file_hash
from store import machine_folders

# ---- Marked blocks -------------------------------------------------------------------------------------------------

BLOCK_OPENING, BLOCK_CLOSING = "<!-- published: ", "<!-- end -->"
BLOCK_PATTERN = re.compile(rf"{BLOCK_OPENING}(?P<what>[^\n]*?) -->(?P<body>.*?){BLOCK_CLOSING}", re.S)


@dataclass(frozen=True)
class MarkedBlock:
    """A marked block of a document.

    Attributes:
        file, line: where its marker is; the file relative to the checkout.
        what: the marker's words.
        body: the text between the markers.
        start, end: of the body, in characters of the file.

    >>> match = BLOCK_PATTERN.search("It took <!-- published: demo wall -->6:34<!-- end --> minutes.")
    >>> MarkedBlock("README.md", 1, match["what"], match["body"], *match.span("body")).what
    'demo wall'
    """

    file: str
    line: int
    what: str
    body: str
    start: int
    end: int


@dataclass(frozen=True)
class DocumentComparison:
    """What documents print, compared with what they should print.

    Attributes:
        texts: file → its text as it should be.
        changed: blocks that are out of date, with the body that they should have.
        untrue: sentences that are no longer true, with the reason.
        typed: blocks for which nothing is published, with the reason; they keep what somebody typed there.
    """

    texts: dict[str, str] = field(default_factory=dict)
    changed: list[tuple[MarkedBlock, str]] = field(default_factory=list)
    untrue: list[tuple[MarkedBlock, str]] = field(default_factory=list)
    typed: list[tuple[MarkedBlock, str]] = field(default_factory=list)


def document_files(root: Path) -> list[Path]:
    """README.md and the pages under docs/."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def marked_blocks(root: Path, file: Path) -> list[MarkedBlock]:
    """The marked blocks of a document.

    Raises:
        RewindError: for a block without an end.
    """
    text, name = file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()
    blocks = [
        MarkedBlock(name, text.count("\n", 0, match.start()) + 1, match["what"], match["body"], *match.span("body"))
        for match in BLOCK_PATTERN.finditer(text)
    ]
    for block in blocks:
        if BLOCK_OPENING in block.body:
            raise RewindError(f"{name}:{block.line}: the block {block.what!r} has no {BLOCK_CLOSING}; add it.")
    if text.count(BLOCK_OPENING) != len(blocks):
        raise RewindError(
            f"{name}: a block begins with {BLOCK_OPENING!r} and has no end; add ' -->' and {BLOCK_CLOSING!r}."
        )
    return blocks


def compare_documents(root: Path) -> DocumentComparison:
    """Render every block of every document, and compare it with the document.

    Raises:
        ConfigErrors: for all markers that cannot be understood, with file and line.
        RewindError: for a published folder that cannot be read.
    """
    library, comparison = ResultsLibrary(root), DocumentComparison()
    faults: dict[str, list[str]] = {}
    for file in document_files(root):
        text, shift = file.read_text(encoding="utf-8"), 0
        for block in marked_blocks(root, file):
            try:
                body = render_block(library, block.what, block.body)
            except NotPublished as reason:
                comparison.typed.append((block, str(reason)))
                continue
            except UntrueClaim as reason:
                comparison.untrue.append((block, str(reason)))
                continue
            except UnreadableResults:
                raise
            except RewindError as error:
                faults.setdefault(block.file, []).append(f"line {block.line}, {block.what}: {error}")
                continue
            if body != block.body:
                comparison.changed.append((block, body))
                text = text[: block.start + shift] + body + text[block.end + shift :]
                shift += len(body) - len(block.body)
        comparison.texts[file.relative_to(root).as_posix()] = text
    if faults:
        raise ConfigErrors(faults)
    return comparison


def rewrite_documents(root: Path, comparison: DocumentComparison) -> list[str]:
    """Write the documents that change, and return their names."""
    names = list(dict.fromkeys(block.file for block, _ in comparison.changed))
    for name in names:
        write_text(root / name, comparison.texts[name])
    return names


def block_diff(block: MarkedBlock, body: str) -> str:
    """The difference between a block and the body that it should have, with its file and line."""
    where = f"{block.file}:{block.line}"
    lines = difflib.unified_diff(
        block.body.strip("\n").splitlines(),
        body.strip("\n").splitlines(),
        where,
        f"published: {block.what}",
        lineterm="",
    )
    return "\n".join(lines)


# ---- Pictures ------------------------------------------------------------------------------------------------------
# They are copied from a study's figures, or photographed from the explorer of its page by a headless browser.

IMAGES_FOLDER = "docs/images"
PAGE_PICTURE = "report"  # <study>_report.png shows the explorer of report.html
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WINDOW_SIZE = (1440, 1000)
_EXPLORER_ONLY_STYLE = "<style>header, nav, main > :not(#explorer) { display: none !important }</style>"
_IMAGE_LINK = re.compile(r"!\[[^\]]*\]\((?:docs/)?images/([\w.-]+)\.png\)")


def pictures_shown(root: Path, study: str) -> list[str]:
    """Names of the figures of a study that documents show."""
    texts = [file.read_text(encoding="utf-8") for file in document_files(root)]
    names = dict.fromkeys(name for text in texts for name in _IMAGE_LINK.findall(text))
    return [name.removeprefix(f"{study}_") for name in names if name.startswith(f"{study}_")]


def copy_pictures(root: Path, study: str, results: Path, folder: Path) -> list[str]:
    """Bring the pictures of documents up to date, and store their hashes in the published record.

    Args:
        root: of the checkout.
        study: its name.
        results: its results folder.
        folder: its published folder, of the machine whose numbers documents print.

    Returns:
        A line for each picture, also for one that could not be made.
    """
    messages, hashes = [], {}
    for picture in pictures_shown(root, study):
        target = f"{IMAGES_FOLDER}/{study}_{picture}.png"
        try:
            if picture == PAGE_PICTURE:
                photograph_explorer(results / "report.html", root / target)
            else:
                _copy_figure(results / f"figures/{picture}.png", root / target)
        except RewindError as error:
            messages.append(f"{target}: not updated: {error}")
            continue
        hashes[target] = file_hash(root / target)
        messages.append(f"{target}: written")
    write_json(folder / "record.json", read_json(folder / "record.json") | {"pictures": hashes})
    return messages


def picture_faults(root: Path, studies: list[str]) -> tuple[list[str], list[str]]:
    """Lines about pictures that are not those of the published results; and pictures that were never published."""
    faults, unpublished = [], []
    for study in studies:
        folders = machine_folders(root, study)
        hashes = read_json(folders[0] / "record.json").get("pictures", {}) if folders else {}
        for picture in pictures_shown(root, study):
            target = f"{IMAGES_FOLDER}/{study}_{picture}.png"
            if target not in hashes:
                unpublished.append(target)
            elif not (root / target).is_file() or file_hash(root / target) != hashes[target]:
                faults.append(f"{target}: not the picture that was published with {study}, {folders[0].name}")
    return faults, unpublished


def _copy_figure(source: Path, target: Path) -> None:
    if not source.is_file():
        raise RewindError(f"{source}: no such file")
    with atomic_write(target) as temporary:
        shutil.copyfile(source, temporary)


def photograph_explorer(page: Path, target: Path) -> None:
    """Write a screenshot of the explorer of a report's page, taken with a headless browser.

    Raises:
        RewindError: if there is no browser, no page, or no picture was made.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RewindError(f"none of {', '.join(BROWSERS)} is on PATH")
    if not page.is_file():
        raise RewindError(f"{page}: no such file")
    # --no-sandbox: containers seldom allow the browser's sandbox, and the page is our own. --virtual-time-budget: the
    # page's scripts get 5 s of the browser's clock, which does not wait for real time. The profile is temporary.
    with tempfile.TemporaryDirectory() as folder, atomic_write(target) as temporary:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}"]
        options += [
            f"--window-size={WINDOW_SIZE[0]},{WINDOW_SIZE[1]}",
            "--virtual-time-budget=5000",
            f"--screenshot={temporary.resolve()}",
        ]
        # A headless browser always photographs the top of a page, so that a copy hides everything above the explorer.
        page_copy = Path(folder) / "page.html"
        page_copy.write_text(
            page.read_text(encoding="utf-8").replace("</head>", f"{_EXPLORER_ONLY_STYLE}</head>", 1), "utf-8"
        )
        address = page_copy.as_uri()
        try:
            process = subprocess.run(
                [browser, *options, address], capture_output=True, text=True, timeout=120, cwd=folder
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RewindError(f"{Path(browser).name} did not take the picture: {error}") from None
        if not temporary.is_file() or not temporary.read_bytes().startswith(b"\x89PNG"):
            lines = process.stderr.strip().splitlines() or ["it gave no message"]
            raise RewindError(f"{Path(browser).name} took no picture: {lines[-1]}")
