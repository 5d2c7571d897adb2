"""Mean ranks of methods over tasks, with intervals that hold for further tasks of the kind.

Scores of different tasks have no common unit, ranks within a task do. A method's mean rank is that over all tasks such
as these, each measured with as many queries; the tasks at hand are a sample of them, and which queries a task happened
to have is part of how its ranks differ from those of others. So tasks are what is resampled, by Student's t.

Ranks are few and whole: a method that came first in five tasks of five varies not at all, and t alone would claim that
it always will. As for proportions (Agresti and Coull, 1998), one task is added, half of it with the best and half with
the worst rank. ``benchmarks/task_ranks.py`` shows the coverage of both.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit


def mean_rank_intervals(ranks: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean rank and the ends of its interval, (…, K) each, of ``ranks`` (…, N, K) of K methods in N tasks, N ≥ 2.

    Each interval holds for its method alone, within 1 and K. The mean is that of the tasks, without the added one.

    Example:
        >>> ranks = np.array([[1, 2, 3], [1, 3, 2], [2, 1, 3], [1, 2, 3]])
        >>> mean, low, high = mean_rank_intervals(ranks, 0.95)
        >>> mean.tolist(), low.round(1).tolist(), high.round(1).tolist()
        ([1.25, 2.0, 2.75], [1.0, 1.0, 1.7], [2.3, 3.0, 3.0])
    """
    ranks = np.asarray(ranks, dtype=float)
    tasks, methods = ranks.shape[-2:]
    weight = tasks + 1.0
    centre = (ranks.sum(axis=-2) + (1 + methods) / 2) / weight
    squares = ((ranks - centre[..., None, :]) ** 2).sum(axis=-2)
    squares += ((1 - centre) ** 2 + (methods - centre) ** 2) / 2  # half a task at either end
    half = stdtrit(weight - 1, (1 + confidence) / 2) * np.sqrt(squares / (weight - 1) / weight)
    return ranks.mean(axis=-2), np.clip(centre - half, 1, methods), np.clip(centre + half, 1, methods)
