"""Documents with marked blocks: what they print, and what they should."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path

from rewind.errors import Faults, RewindError
from rewind.files import write_text
from rewind.publishing.blocks import render
from rewind.publishing.claims import Untrue
from rewind.publishing.library import Absent, Library, Unreadable

OPENING, CLOSING = "<!-- published: ", "<!-- end -->"
BLOCK = re.compile(rf"{OPENING}(?P<what>[^\n]*?) -->(?P<body>.*?){CLOSING}", re.S)


@dataclass(frozen=True)
class Block:
    """A marked block as it stands.

    Attributes:
        file, line: where its marker is; the file as seen from the checkout.
        what: the marker's words.
        body: between the markers.
        start, end: of the body, in characters of the file.
    """

    file: str
    line: int
    what: str
    body: str
    start: int
    end: int


@dataclass(frozen=True)
class Comparison:
    """What documents print beside what they should.

    Attributes:
        texts: file → how it should read.
        changed: blocks that read otherwise, with how they should.
        untrue: sentences that no longer hold, with the reason.
        typed: blocks for which nothing is published, with the reason; they stay as somebody typed them.
    """

    texts: dict[str, str] = field(default_factory=dict)
    changed: list[tuple[Block, str]] = field(default_factory=list)
    untrue: list[tuple[Block, str]] = field(default_factory=list)
    typed: list[tuple[Block, str]] = field(default_factory=list)


def documents(root: Path) -> list[Path]:
    """README.md and the pages under docs/."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def blocks(root: Path, file: Path) -> list[Block]:
    """The marked blocks of a document.

    Raises:
        RewindError: for a block without an end.
    """
    text, name = file.read_text(encoding="utf-8"), file.relative_to(root).as_posix()
    found = [
        Block(name, text.count("\n", 0, match.start()) + 1, match["what"], match["body"], *match.span("body"))
        for match in BLOCK.finditer(text)
    ]
    for block in found:
        if OPENING in block.body:
            raise RewindError(f"{name}:{block.line}: the block {block.what!r} has no {CLOSING}; add it.")
    if text.count(OPENING) != len(found):
        raise RewindError(f"{name}: a block begins with {OPENING!r} and has no end; add ' -->' and {CLOSING!r}.")
    return found


def compare(root: Path) -> Comparison:
    """Render every block of every document.

    Raises:
        Faults: for all markers that cannot be understood, with file and line.
        RewindError: for a published folder that cannot be read.
    """
    library, found, faults = Library(root), Comparison(), {}
    for file in documents(root):
        text, shift = file.read_text(encoding="utf-8"), 0
        for block in blocks(root, file):
            try:
                body = render(library, block.what, block.body)
            except Absent as reason:
                found.typed.append((block, str(reason)))
                continue
            except Untrue as reason:
                found.untrue.append((block, str(reason)))
                continue
            except Unreadable:
                raise
            except RewindError as error:
                faults.setdefault(block.file, []).append(f"line {block.line}, {block.what}: {error}")
                continue
            if body != block.body:
                found.changed.append((block, body))
                text = text[: block.start + shift] + body + text[block.end + shift :]
                shift += len(body) - len(block.body)
        found.texts[file.relative_to(root).as_posix()] = text
    if faults:
        raise Faults(faults)
    return found


def rewrite(root: Path, found: Comparison) -> list[str]:
    """Write the documents that change; returns their names."""
    names = list(dict.fromkeys(block.file for block, _ in found.changed))
    for name in names:
        write_text(root / name, found.texts[name])
    return names


def difference(block: Block, body: str) -> str:
    """The block's lines that should read otherwise, with its place."""
    place = f"{block.file}:{block.line}"
    lines = difflib.unified_diff(
        block.body.strip("\n").splitlines(),
        body.strip("\n").splitlines(),
        place,
        f"published: {block.what}",
        lineterm="",
    )
    return "\n".join(lines)
