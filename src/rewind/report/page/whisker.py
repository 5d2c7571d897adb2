"""A value with its interval, drawn as a bar on a scale that all rows of a table share."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup

from rewind.ranking_metrics import CHANCE_ACCURACY
from rewind.report.page.document import ASSETS_FOLDER
from rewind.tables.render import render_template


class Scale:
    """A scale in percent, up to 100."""

    def __init__(self, lows: Iterable[float], guess: bool = True) -> None:
        """
        Args:
            lows: lower ends of intervals; the scale begins at a round number below all of them and below guessing.
            guess: whether the 50% of guessing has a line; without it the scale begins at 0.
        """
        self.guess = CHANCE_ACCURACY if guess else None
        lowest = min([CHANCE_ACCURACY, *(low for low in lows if not math.isnan(low))])
        self.start = max(0, 10 * math.floor((lowest - 5) / 10)) if guess else 0

    def at(self, value: float) -> float:
        """Where a value is, in percent of the width.

        >>> Scale([61.0]).at(50.0), Scale([], guess=False).at(50.0)
        (16.666666666666668, 50.0)
        """
        return 100 * (value - self.start) / (100 - self.start)

    def draw(self, value: float, low: float, high: float) -> Markup:
        """The bar as HTML; without an interval (NaN) only the value."""
        spread = None if math.isnan(low) else (f"{self.at(low):.2f}", f"{self.at(high) - self.at(low):.2f}")
        guess = None if self.guess is None else f"{self.at(self.guess):.2f}"
        content = {"at": f"{self.at(value):.2f}", "range": spread, "guess": guess}
        return Markup(render_template("whisker.html", ASSETS_FOLDER, **content))
