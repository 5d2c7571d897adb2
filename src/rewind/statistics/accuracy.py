"""The interval of a share of items that a method gets right, over training seeds and items."""

from __future__ import annotations

from typing import Any

import numpy as np

from rewind.statistics import labels
from rewind.statistics.inference import one
from rewind.statistics.parts import parts


def accuracy_interval(credits: np.ndarray, confidence: float, fixed: bool = False) -> dict[str, Any]:
    """Mean accuracy in percent with its interval, as :func:`rewind.statistics.inference.one` has it.

    Args:
        credits: (S, n) what each of n items counts in each of S seeds, 0 to 1.
        confidence: of the interval.
        fixed: one model, which cannot be trained again.

    Returns:
        ``seeds``, ``estimate``, ``std`` (over seeds; NaN for one), ``low``, ``high``, ``procedure``, ``df``.
    """
    percent = 100 * np.asarray(credits, dtype=float)
    found = one(parts(percent, np.ones(percent.shape[1], dtype=int), fixed), confidence, least=0, most=100)
    seeds = percent.mean(axis=1)
    return {
        "seeds": len(seeds),
        "estimate": float(found.estimate),
        "std": float(seeds.std(ddof=1)) if len(seeds) > 1 else np.nan,
        "low": float(found.low),
        "high": float(found.high),
        "procedure": labels.accuracy(len(seeds), fixed),
        "df": float(found.df),
    }
