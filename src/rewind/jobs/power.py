"""What a study can detect, before it runs or from its results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.files import read_csv
from rewind.statistics.calibration import calibrate
from rewind.statistics.power import detectable, variances, with_spread
from rewind.statistics.simulation import Design
from rewind.study import Study

WANTED = 0.8  # share of studies in which a difference is to be detected
SEEDS = (1, 3, 5, 10)
_RANKS = 24_000_000  # ranks drawn by the check
_DEFAULTS = Design()


@dataclass(frozen=True)
class Wishes:
    """What the user says; None is looked up.

    Attributes:
        setting: one of the study's; its first.
        seeds: per method; the study's.
        queries, r1, seed_sd: as in the results, or 1,000 queries, 40%, and a spread over seeds of 1 point.
        cluster: queries per cluster; as in the results, or 2 where the setting has twins, else 1.
    """

    setting: str | None = None
    seeds: int | None = None
    queries: int | None = None
    cluster: int | None = None
    seed_sd: float | None = None
    r1: float | None = None


class Known(NamedTuple):
    """A number and where it comes from."""

    value: float
    source: str


def detection(study: Study, wishes: Wishes, results: Path = Path("results")) -> str:
    """What the study can detect, as text.

    Args:
        study: whose seeds, pairs and confidence count.
        wishes: what overrules the study and its results.
        results: folder of all studies' results, where R@1, its spread and the queries are read if they are there.

    Raises:
        RewindError: for numbers that make no study, or broken results.
    """
    setting = wishes.setting or study.evaluation.settings[0]
    if setting not in study.evaluation.settings:
        there = ", ".join(study.evaluation.settings)
        raise RewindError(f"--setting {setting}: the study is not evaluated there; there are {there}.")
    known = _known(study, setting, wishes, results / study.name)
    design = _design(known)
    level, pairs = round(1 - study.statistics.confidence, 12), max(len(study.pairs()), 1)
    lines = [_headline(study.name, setting, design, level, pairs), ""]
    lines += [f"  {name:<13} {_shown(name, number.value):<11} {number.source}" for name, number in known.items()]
    lines += ["", *_table(design, level, pairs), "", *_assumptions(design)]
    if design.seeds > 1:
        lines += ["", _check(design, level)]
    return "\n".join(lines)


def _known(study: Study, setting: str, wishes: Wishes, folder: Path) -> dict[str, Known]:
    found = _measured(study, setting, folder)
    twins = setting != "test" and setting != "origin"
    fallback = {
        "queries": Known(_DEFAULTS.queries, "assumed"),
        "cluster size": Known(2 if twins else 1, "assumed: a clip with its twin" if twins else "assumed"),
        "R@1": Known(_DEFAULTS.r1, "assumed"),
        "± over seeds": Known(1.0, "assumed"),
    }
    said = {
        "seeds": wishes.seeds,
        "queries": wishes.queries,
        "cluster size": wishes.cluster,
        "R@1": wishes.r1,
        "± over seeds": wishes.seed_sd,
    }
    known = {"seeds": Known(len(study.seeds), "the study")} | fallback | found
    known |= {name: Known(value, "given") for name, value in said.items() if value is not None}
    if "queries" in found and wishes.queries is not None:
        known["measured on"] = Known(found["queries"].value, f"queries, {found['queries'].source}")
    return known


def _measured(study: Study, setting: str, folder: Path) -> dict[str, Known]:
    """Queries, R@1, spread and cluster size of the results, as far as there are any."""
    path = folder / "metrics.csv"
    if not path.is_file():
        return {}
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
        found["± over seeds"] = Known(float(np.sqrt(spread.mean())), f"pooled over {count} in {path}")
    return found | _cluster_size(study, setting, folder / "statistics" / "intervals.csv")


def _cluster_size(study: Study, setting: str, path: Path) -> dict[str, Known]:
    if not path.is_file():
        return {}
    table = read_csv(path)
    if not {"method", "setting", "direction", "queries", "clusters"} <= set(table.columns):
        return {}
    rows = _rows(table, study, setting)
    if rows.empty:
        return {}
    return {"cluster size": Known(max(1, round(float(rows["queries"].iloc[0] / rows["clusters"].iloc[0]))), str(path))}


def _rows(table: pd.DataFrame, study: Study, setting: str) -> pd.DataFrame:
    """Rows of the trained methods in one setting, in the study's first direction."""
    direction = study.evaluation.directions[0]
    here = (table["setting"] == setting) & (table["direction"] == direction)
    return table[here & table["method"].isin(study.trained())]


def _design(known: dict[str, Known]) -> Design:
    """The study to plan for: the spread over seeds is split where it was measured, then carried over."""
    seeds, queries, cluster = (int(known[name].value) for name in ("seeds", "queries", "cluster size"))
    r1, spread = known["R@1"].value, known["± over seeds"].value
    if seeds < 1 or cluster < 1 or spread < 0:
        raise RewindError("--seeds and --cluster-size are 1 or more, --seed-sd is 0 or more.")
    if not 0 < r1 < 100:
        raise RewindError(f"R@1 of {r1:g}%: with every query or none answered nothing is known; give --r1 between.")
    if queries // cluster < 3:
        raise RewindError(f"{queries:,} queries in clusters of {cluster}: at least 3 clusters are needed.")
    base = Design(seeds=seeds, queries=queries, cluster=cluster, r1=r1)
    measured = int(known["measured on"].value) if "measured on" in known else queries
    split = with_spread(replace(base, queries=measured), spread)
    return replace(split, queries=queries)


def _headline(name: str, setting: str, design: Design, level: float, pairs: int) -> str:
    what = f"{name}, {setting}, {_number(design.seeds, 'seed')}, {design.queries:,} queries"
    if design.seeds == 1:
        return f"{what}: no claim about methods can be made. One run each shows nothing of other seeds."
    points = detectable(design, WANTED, level)
    text = (
        f"{what}: a difference of {points:.1f} points of R@1\nbetween two methods is detected in {100 * WANTED:.0f}% "
        f"of studies (p ≤ {level:g})"
    )
    if pairs == 1:
        return f"{text}."
    first = detectable(design, WANTED, level / pairs)
    return f"{text}; one of {first:.1f} points where it must be the first\nof {pairs} pairs to pass Holm's correction."


def _table(design: Design, level: float, pairs: int) -> list[str]:
    lines = [f"  seeds   ± over seeds   detected   of {pairs} pairs, Holm's first"]
    for seeds in sorted({*SEEDS, design.seeds}):
        if seeds == 1:
            lines.append(f"  {1:>5}   no claim about methods")
            continue
        other = replace(design, seeds=seeds)
        alone, first = (detectable(other, WANTED, at) for at in (level, level / pairs))
        spread = 100 * variances(other).run ** 0.5
        lines.append(f"  {seeds:>5}   {spread:>12.1f}   {alone:>8.1f}   {first:>8.1f}")
    return lines


def _assumptions(design: Design) -> list[str]:
    return [
        f"Assumed: two methods' latent correlation is {design.alike:g}, that of queries in a cluster "
        f"{design.together:g};",
        f"two seeds of a method disagree on {design.disagreement:.1f}% of the queries. Methods less alike need more.",
    ]


def _check(design: Design, level: float) -> str:
    """The same by simulated ranks, which normal theory does not know of."""
    points = detectable(design, WANTED, level)
    signs = [sign for sign in (1, -1) if 0.5 < design.r1 + sign * points < 99.5]
    if not signs:
        return "Not checked by simulation: so great a difference does not fit between 0 and 100%."
    queries = design.queries - design.queries % design.cluster
    chosen = replace(design, queries=queries, difference=signs[0] * points)
    replicates = int(np.clip(_RANKS // (design.methods * design.seeds * queries), 20, 1000))
    rates = calibrate(chosen, replicates, metrics=("R@1",), confidence=1 - level).set_index("measure")["rate"]
    return (
        f"Checked on {replicates:,} simulated studies of ranks: this difference is detected in "
        f"{100 * rates['power']:.0f}%,\nno difference is called one in {100 * rates['type I']:.1f}%, and intervals of "
        f"a method's R@1 cover it in {100 * rates['coverage']:.1f}%."
    )


def _number(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _shown(name: str, value: float) -> str:
    return f"{value:,.1f}" if name in ("R@1", "± over seeds") else f"{int(value):,}"
