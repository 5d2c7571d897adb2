"""The one exception whose text is meant for the person at the keyboard, and how it lists faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class RewindError(Exception):
    """Something the user can mend: the message says what is wrong, where (file, row, key) and what to do.

    Jobs print the message alone, without a traceback; any other exception is a defect of ours and keeps its own.
    """


class Faults(RewindError):
    """Everything that is wrong at once: file → lines, each ``key: what is wrong; what to do``.

    Args:
        files: the lines.
        draft: what a file says with its faulty keys left out, so that one can look on for faults; None: nothing.
        left_out: paths of those keys, of which nothing more is to be said.
    """

    def __init__(self, files: Mapping[str, Sequence[str]], draft: Any = None, left_out: Iterable[str] = ()) -> None:
        self.draft, self.left_out = draft, tuple(left_out)
        self.files = {path: list(dict.fromkeys(lines)) for path, lines in files.items() if lines}
        blocks = (f"{path}:\n" + "\n".join(f"  {line}" for line in lines) for path, lines in self.files.items())
        super().__init__("\n".join(blocks))


LISTED = 10


def listed(faults: list[str]) -> str:
    """The first faults, a line each, and how many there are besides: for messages that name what must be mended."""
    more = [f"  … and {len(faults) - LISTED} more"] if len(faults) > LISTED else []
    return "\n".join([*faults[:LISTED], *more])
