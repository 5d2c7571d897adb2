"""Progress lines that read well on a terminal and in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Progress:
    """Counts units of work and prints rate and time left to standard error, one line every ``every`` seconds.

    The last unit always prints a line. Workflow jobs share one terminal and each writes a log file; a bar that redraws
    itself garbles both, whole lines do not.

    >>> progress = Progress("videos", 540, "clips")
    >>> progress.advance(120)
    >>> progress.line(progress.start + 4)
    'videos: 120/540 clips, 30.0 clips/s, 0:14 left'
    """

    def __init__(self, what: str, total: int, unit: str, every: float = 5.0) -> None:
        self.what, self.total, self.unit, self.every = what, total, unit, every
        self.done, self.note = 0, ""
        self.start = self.shown = time.monotonic()

    def advance(self, n: int = 1, note: str = "") -> None:
        """Add ``n`` finished units and print a line if it is time to; ``note`` is shown at its end until the next."""
        self.done += n
        self.note = note or self.note
        now = time.monotonic()
        if now - self.shown >= self.every or self.done >= self.total:
            self.shown = now
            print(self.line(now), file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """The status line at the time ``now`` of :func:`time.monotonic`."""
        rate = self.done / max(now - self.start, 1e-9)
        remaining = (self.total - self.done) / rate if rate else 0.0
        finished = self.done >= self.total
        when = f"took {format_duration(now - self.start)}" if finished else f"{format_duration(remaining)} left"
        note = f", {self.note}" if self.note else ""
        return f"{self.what}: {self.done}/{self.total} {self.unit}, {rate:,.1f} {self.unit}/s, {when}{note}"


def format_duration(seconds: float) -> str:
    """Minutes and seconds, with hours when needed.

    >>> format_duration(75), format_duration(3675)
    ('1:15', '1:01:15')
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def track(items: Iterable[T], what: str, total: int, unit: str) -> Iterator[T]:
    """Yield ``items`` while a :class:`Progress` counts them."""
    progress = Progress(what, total, unit)
    for item in items:
        yield item
        progress.advance()
