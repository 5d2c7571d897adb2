"""How much less one method's training seeds differ than another's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import fdtri


def spread_ratio(first: Sequence[float], second: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """Standard deviation over seeds of the first, divided by that of the second, with the interval of Fisher's F.

    Seeds are taken as independent and their scores as normal, which three seeds can neither show nor refute.

    Returns:
        Ratio, low and high: below 1, the first varies less. NaN where either has one seed or does not vary, as scores
        of few queries may: such a zero is no measurement of a spread.
    """
    few, many = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    df = len(few) - 1, len(many) - 1
    if min(df) < 1 or not (np.ptp(few) and np.ptp(many)):
        return (np.nan,) * 3
    ratio = few.std(ddof=1) / many.std(ddof=1)
    ends = (fdtri(*df, (1 + sign * confidence) / 2) for sign in (1, -1))
    low, high = (float(ratio / np.sqrt(end)) for end in ends)
    return float(ratio), low, high
