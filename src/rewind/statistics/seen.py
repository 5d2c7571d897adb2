"""What a comparison that was made could have seen."""

from __future__ import annotations

import numpy as np
from scipy.special import nctdtrinc, stdtrit


def smallest_seen(variance: np.ndarray, df: np.ndarray, level: float, power: float = 0.8) -> np.ndarray:
    """The smallest true difference that a two-sided t test finds in this share of studies.

    Args:
        variance: V of the difference.
        df: its degrees of freedom.
        level: of the test; the family's divided by its pairs for the first to pass Holm's correction.
        power: the share.

    Returns:
        As ``variance``, in its square root's unit; NaN where it is 0 or not known.
    """
    variance, df = np.broadcast_arrays(np.asarray(variance, dtype=float), np.asarray(df, dtype=float))
    known = (variance > 0) & (df > 0)
    found = np.full(variance.shape, np.nan)
    bound = stdtrit(df[known], 1 - level / 2)
    found[known] = nctdtrinc(df[known], 1 - power, bound) * np.sqrt(variance[known])
    return found
