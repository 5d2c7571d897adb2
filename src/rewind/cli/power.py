"""``rewind power``: the difference of R@1 that a study can detect (minimum detectable effect), before or after it runs.

Seeds, queries, clusters, R@1, the spread over seeds and the correlation between methods come from options, else from
results, else from the data set, else they are assumed. The result is checked by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import chdtri

from rewind.config import Study
from rewind.errors import RewindError
from rewind.io.files import read_csv
from rewind.statistics.blocks import RankBlock, rank_blocks
from rewind.statistics.calibration import calibrate
from rewind.statistics.inference import significance_level
from rewind.statistics.power import (
    CORRELATION_RANGE,
    SEED_SPREAD_RANGE,
    between_method_correlation,
    design_detectable_effect,
    model_variances,
    query_limited_effect,
    with_seed_spread,
)
from rewind.statistics.rank_files import ranks_path, read_not_evaluated, read_ranks
from rewind.statistics.simulation import Design, shared_number
from rewind.workflow.checksums import verify_files_below
from rewind.workflow.queries import query_clusters

# ---- The numbers that power depends on, and where each comes from --------------------------------------------------

ASSUMED = "ASSUMED"  # begins the source of a number that the data set itself would show if it existed
# Another seed of a method shifts R@1 by 0.7 points (standard deviation) and answers 10% of the queries differently:
# ±1 point on 1,000 queries.
_TYPICAL_DESIGN = Design(queries=1000, cluster=1, seed_sd=0.7)


@dataclass(frozen=True)
class PowerOptions:
    """Numbers on the command line; None is looked up.

    Attributes:
        setting: by default the study's first.
        queries, r1, seed_sd: by default as in the results. Without results, queries are counted in the data set, R@1 is
            40% (60% in Binary, where chance is 50%), and the standard deviation over seeds is half to twice the usual:
            ±1 point on 1,000 queries, more on fewer.
        cluster: queries per cluster; by default counted, as queries are.
        alike: latent correlation of two methods; by default as in the results, or from 0.6 to 0.95.
    """

    setting: str | None = None
    seeds: int | None = None
    queries: int | None = None
    cluster: int | None = None
    seed_sd: float | None = None
    r1: float | None = None
    alike: float | None = None


class SourcedValue(NamedTuple):
    """A number, or a range around it, and where it comes from.

    >>> SourcedValue(0.8, "assumed", 0.6, 0.95).ends, SourcedValue(3, "the study").ends
    ((0.6, 0.95), (3, 3))
    """

    value: float
    source: str
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The range, or the number twice."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class PowerFolders:
    """Where a study's numbers are looked up: the results, and the data set files."""

    results: Path = Path("results")
    datasets: Path = Path("config/datasets")


def collect_known_values(
    study: Study, setting: str, options: PowerOptions, folders: PowerFolders
) -> dict[str, SourcedValue]:
    """Every number by name, from the options, else the results, else the data set, else assumed."""
    folder = folders.results / study.name
    measured = _measured_values(study, setting, folder)
    counted = (
        {} if options.queries is not None and options.cluster is not None else _counted_queries(study, setting, folders)
    )
    fallback = {
        "R@1": SourcedValue(60.0 if setting == "binary" else _TYPICAL_DESIGN.r1, "assumed"),
        "alike": SourcedValue(_TYPICAL_DESIGN.alike, "assumed", *CORRELATION_RANGE),
    }
    given = {
        "seeds": options.seeds,
        "queries": options.queries,
        "cluster size": options.cluster,
        "R@1": options.r1,
        "alike": options.alike,
        "± over seeds": options.seed_sd,
    }
    known = {"seeds": SourcedValue(len(study.seeds), "the study")} | counted | fallback | measured
    known |= {name: SourcedValue(value, "given") for name, value in given.items() if value is not None}
    if "± over seeds" not in known:
        known["± over seeds"] = _assumed_seed_sd(known)
    if "queries" in measured and options.queries is not None:
        known["measured on"] = SourcedValue(measured["queries"].value, f"queries, {measured['queries'].source}")
    return known


def _assumed_seed_sd(known: dict[str, SourcedValue]) -> SourcedValue:
    """The spread over seeds of the usual design, halved and doubled; with fewer queries runs scatter more."""
    r1 = min(max(known["R@1"].value, 0.1), 99.9)
    cluster, queries = max(known["cluster size"].value, 1), max(known["queries"].value, 1)
    points = 100 * model_variances(replace(_TYPICAL_DESIGN, r1=r1, queries=int(queries), cluster=cluster)).run ** 0.5
    return SourcedValue(points, "assumed: half to twice the usual", *(factor * points for factor in SEED_SPREAD_RANGE))


def _counted_queries(study: Study, setting: str, folders: PowerFolders) -> dict[str, SourcedValue]:
    """Queries and cluster size, counted in the data set or assumed."""
    clusters = query_clusters(study.dataset, setting, study.evaluation.directions[0], folders.datasets, folders.results)
    if clusters.sizes is not None:
        return _cluster_values(clusters.sizes, clusters.source)
    pairs_of_twins = setting == "hard"  # in other settings captions of twins are not queries
    return {
        "queries": SourcedValue(_TYPICAL_DESIGN.queries, f"{ASSUMED}: {clusters.source}"),
        "cluster size": SourcedValue(
            2 if pairs_of_twins else 1, f"{ASSUMED}{': a clip with its twin' if pairs_of_twins else ''}"
        ),
    }


def _cluster_values(sizes: np.ndarray, source: str) -> dict[str, SourcedValue]:
    """Numbers of queries and clusters; unequal clusters have the variance of fewer equal ones of size Σn² / Σn."""
    size = float(np.square(sizes).sum() / sizes.sum())
    range_note = f", of {sizes.min()} to {sizes.max()} queries" if sizes.min() < sizes.max() else ""
    return {
        "queries": SourcedValue(int(sizes.sum()), source),
        "cluster size": SourcedValue(size, f"{len(sizes):,} clusters{range_note}"),
    }


def _measured_values(study: Study, setting: str, folder: Path) -> dict[str, SourcedValue]:
    """Numbers from the study's results: queries, R@1, spread over seeds and, from ranks, clusters and correlation."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return {}
    verify_files_below(folder, "metrics.csv", "statistics/*.csv", "ranks/*/*")
    table = read_csv(path)
    missing = {"method", "seed", "setting", "direction", "queries", "R@1"} - set(table.columns)
    if missing:
        raise RewindError(f"{path}: column {sorted(missing)[0]!r} is missing; compute the metrics again.")
    rows = _setting_rows(table, study, setting)
    if rows.empty:
        return {}
    if not np.isfinite(rows["R@1"]).all():
        row = rows.index[~np.isfinite(rows["R@1"])][0]
        raise RewindError(f"{path}, row {row + 2}: R@1 is not a number; compute the metrics again.")
    methods = rows.groupby("method")["R@1"]
    count = f"{methods.ngroups} method{'s' if methods.ngroups > 1 else ''}"
    values = {
        "queries": SourcedValue(int(rows["queries"].iloc[0]), str(path)),
        "R@1": SourcedValue(float(methods.mean().mean()), f"mean of {count} in {path}"),
    }
    variances = methods.var(ddof=1).dropna()
    if len(variances):
        degrees = int((methods.count() - 1).clip(lower=0).sum())
        values["± over seeds"] = _seed_sd_range(
            float(np.sqrt(variances.mean())), degrees, f"pooled over {count} in {path}"
        )
    values |= _recorded_cluster_size(study, setting, folder / "statistics" / "intervals.csv")
    return values | _values_from_ranks(study, setting, folder / "ranks", rows)


def _seed_sd_range(points: float, degrees: int, source: str) -> SourcedValue:
    """A standard deviation with its 95% interval: runs are taken as normal, so s² · df / σ² is χ² with df degrees."""
    # chdtri is the inverse of the upper tail: the tail of 0.025 gives the lower end of σ.
    low, high = (points * np.sqrt(degrees / chdtri(degrees, tail)) for tail in (0.025, 0.975))
    return SourcedValue(points, f"{points:.1f} {source}; 95% interval", float(low), float(high))


def _recorded_cluster_size(study: Study, setting: str, path: Path) -> dict[str, SourcedValue]:
    """The mean number of queries per cluster from the statistics, which record only the two totals."""
    if not path.is_file():
        return {}
    table = read_csv(path)
    if not {"method", "setting", "direction", "queries", "clusters"} <= set(table.columns):
        return {}
    rows = _setting_rows(table, study, setting)
    if rows.empty:
        return {}
    clusters = int(rows["clusters"].iloc[0])
    return {"cluster size": SourcedValue(float(rows["queries"].iloc[0] / clusters), f"{clusters:,} clusters in {path}")}


def _values_from_ranks(study: Study, setting: str, folder: Path, rows: pd.DataFrame) -> dict[str, SourcedValue]:
    """Clusters, how often two seeds disagree, and correlations of methods, from the rank tables of runs."""
    runs = [(str(row.method), int(row.seed)) for row in rows.itertuples()]
    runs = [run for run in runs if ranks_path(str(folder), *run).is_file()]
    block = _find_block(runs, folder, setting, study.evaluation.directions[0])
    if block is None:
        return {}
    values = _cluster_values(block.clusters.sizes, str(folder))
    cluster_size = values.pop("cluster size")
    values = {"cluster size": SourcedValue(cluster_size.value, f"{cluster_size.source} in {folder}")}
    correlation = between_method_correlation(block, cluster_size.value)
    if correlation is None:
        return values
    values["disagreement"] = SourcedValue(
        correlation.disagreement, f"percent of queries, between two seeds, in {folder}"
    )
    if correlation.alike:
        pairs = f"{len(correlation.alike)} pair{'s' if len(correlation.alike) > 1 else ''} of methods in {folder}"
        values["alike"] = SourcedValue(
            float(np.median(correlation.alike)), pairs, correlation.alike[0], correlation.alike[-1]
        )
    return values


def _find_block(runs: list[tuple[str, int]], folder: Path, setting: str, direction: str) -> RankBlock | None:
    blocks = rank_blocks(read_ranks(runs, str(folder)), read_not_evaluated(runs, str(folder))) if runs else ()
    return next((block for block in blocks if (block.setting, block.direction) == (setting, direction)), None)


def _setting_rows(table: pd.DataFrame, study: Study, setting: str) -> pd.DataFrame:
    """Rows of the trained methods in one setting, in the study's first direction."""
    direction = study.evaluation.directions[0]
    here = (table["setting"] == setting) & (table["direction"] == direction)
    return table[here & table["method"].isin(study.trained())]


# ---- The minimum detectable difference as text ---------------------------------------------------------------------

TARGET_POWER = 0.8  # share of studies in which a difference is to be detected
SEED_COUNTS = (1, 3, 5, 10)  # rows of the table, besides the study's own number
NONE_DETECTED = "none"
_MAX_SIMULATED_RANKS = 12_000_000  # ranks that the check of one design draws
_SPREAD_STEPS = 9  # spreads over seeds that are tried between the least and the greatest
Designs = list[Design]
"""Designs that the study may have: a number that is known as a range is tried at several values of it."""


def power_report(study: Study, options: PowerOptions, folders: PowerFolders | None = None) -> str:
    """What the study can detect, as text; ``options`` override the numbers of the study and its results.

    Raises:
        RewindError: for numbers that are not a possible design, or broken results or annotations.
    """
    setting = options.setting or study.evaluation.settings[0]
    if setting not in study.evaluation.settings:
        available = ", ".join(study.evaluation.settings)
        raise RewindError(f"--setting {setting}: the study is not evaluated there; available: {available}.")
    known = collect_known_values(study, setting, options, folders or PowerFolders())
    cases = _possible_designs(known)
    seeds = shared_number(cases[0].seeds)
    level, pairs = significance_level(study.statistics.confidence), max(len(study.pairs()), 1)
    title = f"{study.name}, {setting}, {_count_text(seeds, 'seed')}, {cases[0].queries:,} queries"
    if known["queries"].source.startswith(ASSUMED):
        title += " (assumed)"
    lines = [_headline(title, cases, level, pairs), ""]
    lines += [f"  {name:<13} {_value_text(name, number):<11} {number.source}" for name, number in known.items()]
    lines += ["", *_seed_table(cases, level, pairs), "", *_assumption_lines(cases, level)]
    if seeds > 1:
        lines += ["", *_simulation_check(cases, level)]
    return "\n".join(lines)


def _possible_designs(known: dict[str, SourcedValue]) -> Designs:
    """Every combination of spread over seeds and correlation.

    A measured spread has a part that falls with the number of queries. It is split into its parts at the number of
    queries that it was measured on, and then applied to the number of queries of the design.
    """
    seeds, queries = int(known["seeds"].value), int(known["queries"].value)
    cluster, r1 = known["cluster size"].value, known["R@1"].value
    spread, alike = known["± over seeds"].ends, known["alike"].ends
    if not (seeds >= 1 and cluster >= 1 and 0 <= spread[0] <= spread[1] < math.inf):
        raise RewindError("--seeds and --cluster-size must be at least 1, and --seed-sd a number of at least 0.")
    if not 0 <= alike[0] <= alike[1] <= 1:
        raise RewindError(f"--alike {alike[0]:g}: give a correlation from 0 to 1.")
    if not 0 < r1 < 100:
        raise RewindError(f"R@1 of {r1:g}%: nothing can be estimated at 0 or 100%; give an --r1 in between.")
    if not queries / cluster >= 3:
        raise RewindError(f"{queries:,} queries in clusters of {cluster:g}: at least 3 clusters are needed.")
    base = Design(seeds=seeds, queries=queries, cluster=cluster, r1=r1)
    if "disagreement" in known:
        base = base.disagreeing_by(known["disagreement"].value)
    measured = int(known["measured on"].value) if "measured on" in known else queries

    # Neither end of the spread need be the worst case: the less seeds disagree, the more methods do.
    spreads = sorted({*np.linspace(*spread, _SPREAD_STEPS), known["± over seeds"].value})
    cases = []
    for points, correlation in product(spreads, sorted(set(alike))):
        design = with_seed_spread(replace(base, queries=measured, alike=correlation), float(points))
        cases.append(replace(design, queries=queries))
    return cases


def _headline(title: str, cases: Designs, level: float, pairs: int) -> str:
    if cases[0].seeds == 1:
        return f"{title}: no claim about methods can be made. One run per method says nothing about other seeds."
    text = (
        f"{title}: {_difference_words(_detected_differences(cases, level))} of R@1\n"
        f"between two methods is detected in {100 * TARGET_POWER:.0f}% of studies (p ≤ {level:g})"
    )
    if pairs == 1:
        return f"{text}."
    holm_first = _difference_words(_detected_differences(cases, level, pairs))
    return f"{text};\n{holm_first} if it must be the first of {pairs} pairs to pass Holm's correction."


def _difference_words(points: Sequence[float]) -> str:
    text = _detected_text(points)
    return "no possible difference" if text == NONE_DETECTED else f"a difference of {text} points"


def _seed_table(cases: Designs, level: float, pairs: int) -> list[str]:
    families = [1] if pairs == 1 else [1, pairs]
    holm_column = "" if pairs == 1 else f"   of {pairs} pairs, Holm's first"
    lines = [f"  seeds   {'± over seeds':>14}   {'detected':>14}{holm_column}"]
    for seeds in sorted({*SEED_COUNTS, shared_number(cases[0].seeds)}):
        if seeds == 1:
            lines.append(f"  {1:>5}   no claim about methods")
            continue
        designs = [replace(design, seeds=seeds) for design in cases]
        spreads = [100 * model_variances(design).run ** 0.5 for design in designs]
        columns = [
            _range_text(spreads),
            *(_detected_text(_detected_differences(designs, level, family)) for family in families),
        ]
        lines.append("   ".join([f"  {seeds:>5}", *(f"{field:>14}" for field in columns)]))
    return lines


def _assumption_lines(cases: Designs, level: float) -> list[str]:
    one_seed = cases[0].seeds == 1
    limits = [query_limited_effect(design, TARGET_POWER, level) for design in cases]
    known = [limit for limit in limits if f"{limit:.1f}" != "0.0"]  # what is printed as 0.0 limits nothing
    lines = (
        [
            f"These trained models, over other queries: a difference of {_range_text(known)} points is detected in "
            f"{100 * TARGET_POWER:.0f}% of studies."
            if one_seed
            else f"More seeds do not replace queries: with this many it stays above {_range_text(known)} points."
        ]
        if known
        else []
    )
    if len(known) < len(limits):
        lines += [
            "The queries' part of a difference between methods as alike as above is estimated as 0: no limit is known.",
        ]
    if len(cases) == 1:
        return lines
    return [
        *lines,
        "From – to: the smallest and the largest over the ranges above. If methods find the same queries hard (alike,",
        "a latent correlation) and seeds vary little, small differences are detected; otherwise only larger ones.",
    ]


def _simulation_check(cases: Designs, level: float) -> list[str]:
    """The least and the greatest detectable difference, checked on simulated ranks instead of by normal theory."""
    lines = []
    differences = [design_detectable_effect(design, TARGET_POWER, level) for design in cases]
    for index in dict.fromkeys((int(np.argmin(differences)), int(np.argmax(differences)))):
        design, points = cases[index], differences[index]
        if f"{points:.1f}" == "0.0":  # a simulated R@1 changes by whole queries
            lines.append(f"  {points:5.1f} points: not checked by simulation; a single query moves R@1 by more")
            continue
        signs = [sign for sign in (1, -1) if 0.5 < design.r1 + sign * points < 99.5]
        if not signs:
            continue
        cluster = max(1, round(design.cluster))
        queries = max(3, round(design.queries / cluster)) * cluster
        simulated = replace(design, queries=queries, cluster=cluster, difference=signs[0] * points)
        replicates = int(
            np.clip(_MAX_SIMULATED_RANKS // (design.methods * shared_number(design.seeds) * queries), 20, 1000)
        )
        rates = calibrate(simulated, replicates, metrics=("R@1",), confidence=1 - level).set_index("measure")["rate"]
        lines.append(
            f"  {points:5.1f} points: detected in {100 * rates['power']:.0f}%; false positives: "
            f"{100 * rates['type I']:.1f}%; intervals for a method's R@1 contain it in {100 * rates['coverage']:.1f}%"
        )
    if not lines:
        return ["Not checked by simulation: so large a difference does not fit between 0 and 100%."]
    return ["Checked on simulated ranks (up to 1,000 studies each):", *lines]


def _detected_differences(cases: Designs, level: float, family: int = 1) -> list[float]:
    """Points of R@1 for each case; infinite where R@1 would have to leave 0 to 100% for it."""
    found = [design_detectable_effect(design, TARGET_POWER, level, family=family) for design in cases]
    return [
        points if points <= max(design.r1, 100 - design.r1) else math.inf
        for design, points in zip(cases, found, strict=True)
    ]


def _detected_text(points: Sequence[float]) -> str:
    """A range of detected differences; ``or more`` where some cases detect none that is possible.

    >>> _detected_text([13.94, math.inf]), _detected_text([8.0, 12.5]), _detected_text([math.inf])
    ('13.9 or more', '8.0–12.5', 'none')
    """
    possible = [point for point in points if point < math.inf]
    if not possible:
        return NONE_DETECTED
    return _range_text(points) if len(possible) == len(points) else f"{min(possible):.1f} or more"


def _range_text(points: Sequence[float], digits: int = 1) -> str:
    """Least and greatest as ``1.2–3.4``, or one number where both look the same.

    NaN is refused, since it has no place in an order: the ends would depend on where it stands.
    """
    if np.isnan(points).any():
        raise ValueError(f"a range over NaN: {list(points)}")
    low, high = (f"{end:.{digits}f}" for end in (min(points), max(points)))
    return low if low == high else f"{low}–{high}"


def _count_text(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _value_text(name: str, number: SourcedValue) -> str:
    if name == "alike":
        return _range_text(number.ends, 2)
    if name == "± over seeds":
        return _range_text(number.ends)
    if name in ("R@1", "disagreement") or number.value != int(number.value):
        return f"{number.value:,.1f}"
    return f"{int(number.value):,}"
