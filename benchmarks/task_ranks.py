"""How often intervals of mean ranks over tasks hold, in simulations of methods whose truth is known.

    python benchmarks/task_ranks.py [--repeats 4000]

A method's score in a task is its own level, a part that differs from task to task (normal, or with Student's 3 degrees
of freedom), and noise of the task's queries. Its true mean rank is that over 100,000 such tasks. Columns: how often an
interval for N tasks held, the mean over methods and the method with the least, beside Student's t alone.
"""

from __future__ import annotations

import argparse

import numpy as np
from scipy.special import stdtrit

from rewind.statistics.task_ranks import mean_rank_intervals

GAPS = {"equal": 0.0, "close": 0.3, "apart": 0.8, "one always first": 2.0, "heavy tails": 0.5}
TASKS, METHODS, CONFIDENCE, QUERY_NOISE = (3, 5, 10, 20), (3, 5, 8), 0.95, 0.3


def draw_ranks(rng: np.random.Generator, shape: tuple[int, int, int], gap: float, heavy: bool) -> np.ndarray:
    """Ranks (repeats, tasks, methods); neighbouring methods are ``gap`` apart, in units of what differs by task."""
    own = rng.standard_t(3, shape) if heavy else rng.standard_normal(shape)
    scores = -gap * np.arange(shape[-1]) + own + QUERY_NOISE * rng.standard_normal(shape)
    return 1.0 + (scores[..., None, :] > scores[..., :, None]).sum(axis=-1)


def coverage(kind: str, methods: int, tasks: int, repeats: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Per method, how often its interval holds, and how often that of t alone does."""
    rng, gap, heavy = np.random.default_rng(seed), GAPS[kind], kind == "heavy tails"
    truth = draw_ranks(rng, (1, 100_000, methods), gap, heavy).mean(axis=(0, 1))
    ranks = draw_ranks(rng, (repeats, tasks, methods), gap, heavy)
    mean, low, high = mean_rank_intervals(ranks, CONFIDENCE)
    half = stdtrit(tasks - 1, (1 + CONFIDENCE) / 2) * ranks.std(axis=1, ddof=1) / np.sqrt(tasks)
    return ((low <= truth) & (truth <= high)).mean(axis=0), (np.abs(mean - truth) <= half).mean(axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=4000)
    options = parser.parse_args()
    print("| methods | their levels | " + " | ".join(f"{n} tasks | t alone" for n in TASKS) + " |")
    print("|---:|---" + "|---:" * 2 * len(TASKS) + "|")
    for methods in METHODS:
        for kind in GAPS:
            found = [coverage(kind, methods, tasks, options.repeats) for tasks in TASKS]
            cells = [f"{part.mean():.3f}, {part.min():.3f}" for pair in found for part in pair]
            print(f"| {methods} | {kind} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
