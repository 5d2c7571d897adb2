"""How long the statistics of a large study take, beside ``scipy.stats.bootstrap`` on one of its intervals.

    python benchmarks/statistics_speed.py
    python benchmarks/statistics_speed.py --methods 8 --queries 5000

The whole stage without reading files: every interval, difference and gap of 4 methods × 5 seeds × 2,000 queries in
three settings and both directions, with 10,000 resamples of the bootstrap. scipy resamples one method's R@1 in one
setting, over the same clusters, as a ratio of sums. Each runs in a process of its own; the least of the times counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

import numpy as np
import pandas as pd
from scipy import stats

from rewind.config.report import Statistics
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.variance import Clusters

SETTINGS = ("origin", "hard", "binary")
DIRECTIONS = ("text_to_item", "item_to_text")


def main() -> None:
    """Run both and print seconds, peak memory and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--methods", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--queries", type=int, default=2000, help="per setting; two make a cluster")
    parser.add_argument("--resamples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    found = {name: alone(job, given) for name, job in (("all", whole_stage), ("scipy", one_scipy_interval))}
    seconds, memory, count = found["all"]
    print(f"{count:,} intervals and differences: {seconds:.2f} s, {memory:.0f} MiB above the start")
    seconds_one, memory_one, _ = found["scipy"]
    print(f"scipy.stats.bootstrap, one interval: {seconds_one:.2f} s, {memory_one:.0f} MiB above the start")
    print(
        f"per interval {seconds_one / (seconds / count):.0f} times as fast; all of them in {seconds / seconds_one:.2f}"
    )
    print("times scipy's time for one")


def alone(job, given: argparse.Namespace) -> tuple[float, float, int]:
    """(seconds, MiB, count) of a job in a fresh process, whose peak memory is then its own."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(job, (given,))


def whole_stage(given: argparse.Namespace) -> tuple[float, float, int]:
    """Every interval, difference and gap."""
    runs = {
        f"method{m}": {s: rank_table(given.queries, seed=100 * m + s) for s in range(given.seeds)}
        for m in range(given.methods)
    }
    names = list(runs)
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    keys = Statistics(resamples=given.resamples)
    return timed(lambda: sum(len(table) for table in vars(compare_methods(runs, pairs, keys)).values()), given.repeats)


def one_scipy_interval(given: argparse.Namespace) -> tuple[float, float, int]:
    """The percentile interval of one method's R@1."""
    table = rank_table(given.queries, seed=0)
    table = table[(table["setting"] == "origin") & (table["direction"] == "text_to_item")]
    clusters = Clusters.of(table["cluster_id"].to_numpy())
    totals, sizes = clusters.totals((table["higher"] == 0).to_numpy(float)), clusters.sizes.astype(float)

    def ratio(totals, sizes, axis=-1):
        return totals.sum(axis=axis) / sizes.sum(axis=axis)

    def interval() -> int:
        stats.bootstrap(
            (totals, sizes), ratio, n_resamples=given.resamples, paired=True, vectorized=True, method="percentile"
        )
        return 1

    return timed(interval, given.repeats)


def timed(job, repeats: int) -> tuple[float, float, int]:
    """(least seconds, MiB that the peak rose by, what the job returned)."""
    before, least = peak(), float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        count = job()
        least = min(least, time.perf_counter() - start)
    return least, peak() - before, count


def peak() -> float:
    """Largest resident memory so far in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def rank_table(queries: int, seed: int) -> pd.DataFrame:
    """A run's ranks with a few ties, log-normal, in every setting and direction."""
    rng = np.random.default_rng(seed)
    tables = []
    for setting in SETTINGS:
        for direction in DIRECTIONS:
            gallery = 2 if setting == "binary" else queries
            higher = np.minimum(np.exp(0.5 + 2.1 * rng.standard_normal(queries)).astype(int), gallery - 1)
            ties = (rng.random(queries) < 0.01).astype(int) * (higher + 1 < gallery)
            tables.append(
                pd.DataFrame(
                    {
                        "query_id": [f"q{i:05}" for i in range(queries)],
                        "setting": setting,
                        "direction": direction,
                        "higher": higher,
                        "ties": ties,
                        "rank": 1 + higher + ties / 2,
                        "cluster_id": [f"c{i // 2:05}" for i in range(queries)],
                        "gallery": gallery,
                    }
                )
            )
    return pd.concat(tables, ignore_index=True)


if __name__ == "__main__":
    main()
