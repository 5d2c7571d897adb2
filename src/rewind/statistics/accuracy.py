"""The share of images that a method gets right, and how much larger it is than another's, over seeds and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rewind.statistics import labels
from rewind.statistics.inference import holm, one
from rewind.statistics.pairs import Random, compare_pair
from rewind.statistics.parts import parts

PAIRS = ("first", "second", "difference", "low", "high", "p", "p_holm", "procedure", "family", "df")


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


def accuracy_pairs(
    credits: Mapping[str, np.ndarray], pairs: Sequence[tuple[str, str]], confidence: float, random: Random
) -> pd.DataFrame:
    """Differences of accuracy, in percentage points, paired over the images, as those of ranks are over queries.

    Args:
        credits: method → (S, n), see :func:`accuracy_interval`; the same images in the same order.
        pairs: that are compared: the family of Holm's correction; those without both methods are left out.
        confidence: of the intervals.
        random: what is.

    Returns:
        One row per pair.
    """
    percent = {name: 100 * np.asarray(values, dtype=float) for name, values in credits.items()}
    chosen = [(first, second) for first, second in pairs if first in percent and second in percent]
    ones = np.ones(next(iter(percent.values())).shape[1], dtype=int)
    found = [compare_pair(percent, pair, ones, confidence, random, 100.0) for pair in chosen]
    adjusted = holm(np.array([float(result.p) for result, _ in found]))
    rows = [
        {"first": first, "second": second, "difference": float(result.estimate)}
        | {"low": float(result.low), "high": float(result.high), "p": float(result.p), "p_holm": adjusted[at]}
        | {"procedure": labels.of_images(said), "family": len(chosen), "df": float(result.df)}
        for at, ((first, second), (result, said)) in enumerate(zip(chosen, found, strict=True))
    ]
    return pd.DataFrame(rows, columns=list(PAIRS))
