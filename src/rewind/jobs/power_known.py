"""What is known of a study before or after it ran: seeds, queries, R@1, how seeds spread, how alike methods are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtri

from rewind.errors import RewindError
from rewind.files import read_csv
from rewind.jobs.metrics import ranks_path, read_ranks, read_reasons
from rewind.jobs.queries import asked
from rewind.jobs.seals import check_below
from rewind.statistics.blocks import Block, blocks
from rewind.statistics.likeness import likeness
from rewind.statistics.power import ALIKE, SPREAD, variances
from rewind.statistics.simulation import Design
from rewind.study import Study

ASSUMED = "ASSUMED"  # what the data set itself would tell if it were here
# Seeds of a method move all queries by 0.7 points and answer 10% of them otherwise: ±1 point on 1,000 queries.
_USUAL = Design(queries=1000, cluster=1, seed_sd=0.7)


@dataclass(frozen=True)
class Wishes:
    """What the user says; None is looked up.

    Attributes:
        setting: one of the study's; its first.
        seeds: per method; the study's.
        queries, r1, seed_sd: as in the results; else the queries are counted in the data set, R@1 is 40% (60% in
            Binary, whose chance is 50%), and the spread over seeds half to twice of what is usual: ±1 point on 1,000
            queries, more on fewer.
        cluster: queries per cluster; counted, as the queries are.
        alike: latent correlation of two methods; as in the results, or from 0.6 to 0.95.
    """

    setting: str | None = None
    seeds: int | None = None
    queries: int | None = None
    cluster: int | None = None
    seed_sd: float | None = None
    r1: float | None = None
    alike: float | None = None


class Known(NamedTuple):
    """A number, or a range of it, and where it comes from."""

    value: float
    source: str
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The range, or the number twice."""
        return (self.value, self.value) if self.low is None else (self.low, self.high)


@dataclass(frozen=True)
class Places:
    """Folders.

    Attributes:
        results: of all results.
        datasets: of data set files.
    """

    results: Path = Path("results")
    datasets: Path = Path("config/datasets")


def known_of(study: Study, setting: str, wishes: Wishes, places: Places) -> dict[str, Known]:
    """Every number by name, from what the user said, else the results, else the data set, else assumed.

    Raises:
        RewindError: for broken results or annotations.
    """
    folder = places.results / study.name
    found = _measured(study, setting, folder)
    counted = {} if wishes.queries is not None and wishes.cluster is not None else _counted(study, setting, places)
    fallback = {
        "R@1": Known(60.0 if setting == "binary" else _USUAL.r1, "assumed"),
        "alike": Known(_USUAL.alike, "assumed", *ALIKE),
    }
    said = {
        "seeds": wishes.seeds,
        "queries": wishes.queries,
        "cluster size": wishes.cluster,
        "R@1": wishes.r1,
        "alike": wishes.alike,
        "± over seeds": wishes.seed_sd,
    }
    known = {"seeds": Known(len(study.seeds), "the study")} | counted | fallback | found
    known |= {name: Known(value, "given") for name, value in said.items() if value is not None}
    if "± over seeds" not in known:
        known["± over seeds"] = _guess(known)
    if "queries" in found and wishes.queries is not None:
        known["measured on"] = Known(found["queries"].value, f"queries, {found['queries'].source}")
    return known


def _guess(known: dict[str, Known]) -> Known:
    """The spread over seeds of the usual model, halved and doubled: the fewer queries, the wider runs scatter."""
    r1 = min(max(known["R@1"].value, 0.1), 99.9)
    cluster, queries = max(known["cluster size"].value, 1), max(known["queries"].value, 1)
    points = 100 * variances(replace(_USUAL, r1=r1, queries=queries, cluster=cluster)).run ** 0.5
    return Known(points, "assumed: half to twice the usual", *(factor * points for factor in SPREAD))


def _counted(study: Study, setting: str, places: Places) -> dict[str, Known]:
    """Queries and cluster size, as the data set has them or assumed."""
    found = asked(study.dataset, setting, study.evaluation.directions[0], places.datasets, places.results)
    if found.sizes is not None:
        return _sizes(found.sizes, found.source)
    twins = setting == "hard"  # elsewhere twins do not ask
    return {
        "queries": Known(_USUAL.queries, f"{ASSUMED}: {found.source}"),
        "cluster size": Known(2 if twins else 1, f"{ASSUMED}{': a clip with its twin' if twins else ''}"),
    }


def _sizes(sizes: np.ndarray, source: str) -> dict[str, Known]:
    """Clusters of unlike sizes err like fewer clusters of Σn² / Σn queries."""
    size = float(np.square(sizes).sum() / sizes.sum())
    unlike = f", of {sizes.min()} to {sizes.max()} queries" if sizes.min() < sizes.max() else ""
    return {
        "queries": Known(int(sizes.sum()), source),
        "cluster size": Known(size, f"{len(sizes):,} clusters{unlike}"),
    }


def _measured(study: Study, setting: str, folder: Path) -> dict[str, Known]:
    """Queries, R@1, spread and, where there are ranks, clusters and likeness, as far as there are results."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return {}
    check_below(folder, "metrics.csv", "statistics/*.csv", "ranks/*/*")
    table = read_csv(path)
    missing = {"method", "seed", "setting", "direction", "queries", "R@1"} - set(table.columns)
    if missing:
        raise RewindError(f"{path}: column {sorted(missing)[0]!r} is missing; compute the metrics again.")
    rows = _rows(table, study, setting)
    if rows.empty:
        return {}
    if not np.isfinite(rows["R@1"]).all():
        row = rows.index[~np.isfinite(rows["R@1"])][0]
        raise RewindError(f"{path}, row {row + 2}: R@1 is not a number; compute the metrics again.")
    methods = rows.groupby("method")["R@1"]
    count = f"{methods.ngroups} method{'s' if methods.ngroups > 1 else ''}"
    found = {
        "queries": Known(int(rows["queries"].iloc[0]), str(path)),
        "R@1": Known(float(methods.mean().mean()), f"mean of {count} in {path}"),
    }
    spread = methods.var(ddof=1).dropna()
    if len(spread):
        df = int((methods.count() - 1).clip(lower=0).sum())
        found["± over seeds"] = _spread(float(np.sqrt(spread.mean())), df, f"pooled over {count} in {path}")
    found |= _cluster_size(study, setting, folder / "statistics" / "intervals.csv")
    return found | _from_ranks(study, setting, folder / "ranks", rows)


def _spread(points: float, df: int, source: str) -> Known:
    """A standard deviation with the ends of its 95% interval, were runs normal."""
    low, high = (points * np.sqrt(df / chdtri(df, tail)) for tail in (0.025, 0.975))
    return Known(points, f"{points:.1f} {source}; 95% interval", float(low), float(high))


def _cluster_size(study: Study, setting: str, path: Path) -> dict[str, Known]:
    """Queries per cluster from the statistics, which know their numbers alone."""
    if not path.is_file():
        return {}
    table = read_csv(path)
    if not {"method", "setting", "direction", "queries", "clusters"} <= set(table.columns):
        return {}
    rows = _rows(table, study, setting)
    if rows.empty:
        return {}
    clusters = int(rows["clusters"].iloc[0])
    return {"cluster size": Known(float(rows["queries"].iloc[0] / clusters), f"{clusters:,} clusters in {path}")}


def _from_ranks(study: Study, setting: str, folder: Path, rows: pd.DataFrame) -> dict[str, Known]:
    """Clusters, how often seeds disagree and how alike methods are."""
    runs = [(str(row.method), int(row.seed)) for row in rows.itertuples()]
    runs = [run for run in runs if ranks_path(str(folder), *run).is_file()]
    block = _block(runs, folder, setting, study.evaluation.directions[0])
    if block is None:
        return {}
    found = _sizes(block.clusters.sizes, str(folder))
    size = found.pop("cluster size")
    found = {"cluster size": Known(size.value, f"{size.source} in {folder}")}
    told = likeness(block, size.value)
    if told is None:
        return found
    found["disagreement"] = Known(told.disagreement, f"percent of queries, between two seeds, in {folder}")
    if told.alike:
        pairs = f"{len(told.alike)} pair{'s' if len(told.alike) > 1 else ''} of methods in {folder}"
        found["alike"] = Known(float(np.median(told.alike)), pairs, told.alike[0], told.alike[-1])
    return found


def _block(runs: list[tuple[str, int]], folder: Path, setting: str, direction: str) -> Block | None:
    found = blocks(read_ranks(runs, str(folder)), read_reasons(runs, str(folder))) if runs else ()
    return next((block for block in found if (block.setting, block.direction) == (setting, direction)), None)


def _rows(table: pd.DataFrame, study: Study, setting: str) -> pd.DataFrame:
    """Rows of the trained methods in one setting, in the study's first direction."""
    direction = study.evaluation.directions[0]
    here = (table["setting"] == setting) & (table["direction"] == direction)
    return table[here & table["method"].isin(study.trained())]
