"""Text that others wrote, such as names of files and labels, as a terminal may show it."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any, TextIO

_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"  # colours, titles, moves of the cursor; but tab and line ends
_REORDERING = r"\u200e\u200f\u2028-\u202e\u2066-\u2069"  # text that reads otherwise than it is
_UNSHOWN = re.compile(rf"[{_CONTROLS}{_REORDERING}\ud800-\udfff]")


def printable(text: str) -> str:
    """A text with control characters, and bytes that are no UTF-8, written out: ``\\x1b``, ``\\u202e``, ``\\xff``."""
    return _UNSHOWN.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:  # a byte, as Python has it in names that are not UTF-8
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


class PrintableStream:
    """A text stream on which everything is written printable."""

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
    """Let nothing but printable text reach standard output and standard error."""
    out: Any = PrintableStream(sys.stdout)
    err: Any = PrintableStream(sys.stderr)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
