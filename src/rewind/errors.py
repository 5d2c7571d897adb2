"""Errors with a message for the user, and text that is safe to print on a terminal.

A :class:`RewindError` says what is wrong, where (file, row, key) and what to do; jobs and commands print it without
a traceback. Any other exception is a bug in Rewind and keeps its traceback. Names of files, labels and captions
come from others and may contain control characters: :func:`printable` escapes them in whole texts, and
:func:`printable_name` also ends of lines in a name, which would look like another message.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

MAX_LISTED_LINES = 10

# ---- Errors for the user -------------------------------------------------------------------------------------------


class RewindError(Exception):
    """Something the user can mend: the message says what is wrong, where (file, row, key) and what to do."""

    @property
    def place(self) -> str:
        """Where the fault is, such as ``clips.csv: row 3`` or ``methods.meanP.head``; empty: nowhere in particular."""
        return place_of(str(self))


class ConfigErrors(RewindError):
    """All faults of the configuration at once: file → lines, each ``key: what is wrong; what to do``.

    Args:
        files: the lines of each file; repeated lines and files without lines are left out.
        draft: the file's content without its faulty keys, so that later checks can look for further faults.
        left_out: paths of those keys, about which nothing more is to be said.

    >>> print(ConfigErrors({"demo.yaml": ["epochs: this key is missing", "epochs: this key is missing"]}))
    demo.yaml:
      epochs: this key is missing
    """

    def __init__(self, files: Mapping[str, Sequence[str]], draft: Any = None, left_out: Iterable[str] = ()) -> None:
        self.draft, self.left_out = draft, tuple(left_out)
        self.files = {path: list(dict.fromkeys(lines)) for path, lines in files.items() if lines}
        blocks = (f"{path}:\n" + "\n".join(f"  {line}" for line in lines) for path, lines in self.files.items())
        super().__init__("\n".join(blocks))

    @property
    def places(self) -> list[str]:
        """``file: key`` of every fault, or only the file where a fault names no key; each once."""
        lines = ((path, place_of(line)) for path, lines in self.files.items() for line in lines)
        return list(dict.fromkeys(f"{path}: {key}" if key else path for path, key in lines))


# `row 3`, `line 12`, `caption 'c1'`: what a file holds, counted or named.
_PART_OF_FILE = re.compile(r"(row|line|column|entry|query|caption|item|frame|shard)s? \S+")


def place_of(message: str) -> str:
    """The parts of a message before its sentence: a file, a row, a key, each followed by a colon.

    A message for the user reads ``FILE: row N: KEY: what is wrong; what to do``, with those that apply. A part has
    no blanks, or is ``row N`` and the like; the first other part begins the sentence.

    >>> place_of("demo.yaml: training.lr: this must be a number; write 1.0e-4.")
    'demo.yaml: training.lr'
    >>> place_of("no GPU is visible: set resources.device: cpu.")
    ''
    """
    parts = message.partition("\n")[0].split(": ")[:-1]
    return ": ".join(itertools.takewhile(lambda part: " " not in part or _PART_OF_FILE.fullmatch(part), parts))


def first_lines(faults: list[str]) -> str:
    """The first :data:`MAX_LISTED_LINES` faults, one per line, and the number of those left out.

    >>> print(first_lines([f"  row {row}: empty" for row in range(1, 13)]).splitlines()[-1])
      … and 2 more
    """
    more = [f"  … and {len(faults) - MAX_LISTED_LINES} more"] if len(faults) > MAX_LISTED_LINES else []
    return "\n".join([*faults[:MAX_LISTED_LINES], *more])


def count_noun(count: int, singular: str, plural: str = "") -> str:
    """A number with its noun, for messages; without ``plural``, an *s* is added.

    >>> count_noun(1, "clip"), count_noun(2000, "clip"), count_noun(2, "group of files", "groups of files")
    ('1 clip', '2,000 clips', '2 groups of files')
    """
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


# ---- Text that is safe to print on a terminal ----------------------------------------------------------------------

# C0 and C1 controls set colours and titles and move the cursor; tab, line feed and carriage return are let through.
_CONTROL_CHARACTERS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
# Direction marks and line separators make a text read differently from what it is.
_BIDI_CHARACTERS = r"\u200e\u200f\u2028-\u202e\u2066-\u2069"
# Characters without width hide in a text: two that look the same differ. Joiners are let through, for emoji's sake.
_HIDDEN_CHARACTERS = r"\u00ad\u061c\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
# Lone surrogates: bytes of file names that are not UTF-8 (PEP 383), which no stream could encode.
_UNPRINTABLE = re.compile(rf"[{_CONTROL_CHARACTERS}{_BIDI_CHARACTERS}{_HIDDEN_CHARACTERS}\ud800-\udfff]")

CONTROL_CHARACTER = re.compile(f"[{_CONTROL_CHARACTERS}]")
"""What a terminal obeys instead of showing it; tabs and ends of lines are not among these."""


def printable(text: str) -> str:
    r"""The text with control characters and bytes that are not UTF-8 written out: ``\x1b``, ``\u202e``, ``\xff``.

    >>> print(printable("clip\x1b[31m.mp4"))
    clip\x1b[31m.mp4
    """
    return _UNPRINTABLE.sub(_escape_match, text)


def printable_name(name: object) -> str:
    r"""A file's name or an id in a message: as :func:`printable`, and on one line.

    >>> print(printable_name("clip\n1.mp4"))
    clip\n1.mp4
    """
    return printable(str(name)).replace("\n", r"\n").replace("\r", r"\r")


def _escape_match(match: re.Match[str]) -> str:
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a name that is not UTF-8, as Python's "surrogateescape" decodes it
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# ---- Labels: names that are in tables, figures and pages -----------------------------------------------------------

MAX_LABEL_CHARACTERS = 200
_NOT_IN_LABELS = re.compile(rf"[{_CONTROL_CHARACTERS}\t\n\r\u2028\u2029\ud800-\udfff]")
_UNSEEN = re.compile(rf"[{_BIDI_CHARACTERS}{_HIDDEN_CHARACTERS}\u200c\u200d]")


def label_fault(label: object) -> str:
    r"""What is wrong with a name for tables, figures and pages, and what to do; empty for one that can stand there.

    >>> label_fault("meanP, 12 frames"), label_fault("=1+1")
    ('', "it begins with '=', as formulas of spreadsheets do; begin otherwise")
    >>> print(label_fault("mean\x1b[2J"))
    it holds the character \x1b; remove it
    """
    seen = _UNSEEN.sub("", label) if isinstance(label, str) else ""
    if not seen.strip() or len(seen) > MAX_LABEL_CHARACTERS:
        return f"not a text of 1 to {MAX_LABEL_CHARACTERS} characters"
    if found := _NOT_IN_LABELS.search(str(label)):
        return f"it holds the character {found[0].encode('unicode_escape').decode()}; remove it"
    if unicodedata.normalize("NFKC", seen).strip().startswith("="):  # full-width ones too
        return "it begins with '=', as formulas of spreadsheets do; begin otherwise"
    return ""


def labels_fault(labels: Mapping[Any, object]) -> tuple[str, str] | None:
    """Key and :func:`label_fault` of the first label that cannot stand in a table, or looks like an earlier one.

    >>> labels_fault({"a": "mean", "b": " mean "})
    ('b', "the name of 'a' too; tell them apart")
    """
    seen: dict[str, Any] = {}
    for key, label in labels.items():
        fault = label_fault(label)
        shown = unicodedata.normalize("NFC", " ".join(_UNSEEN.sub("", str(label)).split()))
        if not fault and shown in seen:
            fault = f"the name of {seen[shown]!r} too; tell them apart"
        if fault:
            return str(key), fault
        seen[shown] = key
    return None


class PrintableStream:
    """A text stream that writes everything through :func:`printable`; other attributes are those of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Let only printable text reach standard output and standard error while the block runs."""
    out: Any = PrintableStream(sys.stdout)
    err: Any = PrintableStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
