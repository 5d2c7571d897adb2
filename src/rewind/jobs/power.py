"""What a study can detect, before it runs or from its results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from rewind.errors import RewindError
from rewind.jobs.power_known import ASSUMED, Known, Places, Wishes, known_of
from rewind.statistics.calibration import calibrate
from rewind.statistics.power import detectable, queries_alone, variances, with_spread
from rewind.statistics.simulation import Design
from rewind.study import Study

WANTED = 0.8  # share of studies in which a difference is to be detected
SEEDS = (1, 3, 5, 10)
_RANKS = 12_000_000  # ranks drawn by the check of each end
_STEPS = 9  # spreads looked at between least and greatest
Cases = list[Design]
"""What the study may be like: every number that is not known at several values of its range."""


def detection(study: Study, wishes: Wishes, places: Places | None = None) -> str:
    """What the study can detect, as text.

    Args:
        study: whose seeds, pairs and confidence count.
        wishes: what overrules the study and its results.
        places: where results and data set files are.

    Raises:
        RewindError: for numbers that make no study, or broken results or annotations.
    """
    setting = wishes.setting or study.evaluation.settings[0]
    if setting not in study.evaluation.settings:
        there = ", ".join(study.evaluation.settings)
        raise RewindError(f"--setting {setting}: the study is not evaluated there; available: {there}.")
    known = known_of(study, setting, wishes, places or Places())
    cases = _cases(known)
    level, pairs = round(1 - study.statistics.confidence, 12), max(len(study.pairs()), 1)
    what = f"{study.name}, {setting}, {_number(cases[0].seeds, 'seed')}, {cases[0].queries:,} queries"
    if known["queries"].source.startswith(ASSUMED):
        what += " (assumed)"
    lines = [_headline(what, cases, level, pairs), ""]
    lines += [f"  {name:<13} {_shown(name, number):<11} {number.source}" for name, number in known.items()]
    lines += ["", *_table(cases, level, pairs), "", *_assumptions(cases, level)]
    if cases[0].seeds > 1:
        lines += ["", *_check(cases, level)]
    return "\n".join(lines)


def _cases(known: dict[str, Known]) -> Cases:
    """Every case; the spread over seeds is split where it was measured, then carried over to the queries asked."""
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

    # Neither end of the spread need be the worst: where seeds never disagree, methods do so all the more.
    spreads = sorted({*np.linspace(*spread, _STEPS), known["± over seeds"].value})
    cases = []
    for points, correlation in product(spreads, sorted(set(alike))):
        split = with_spread(replace(base, queries=measured, alike=correlation), float(points))
        cases.append(replace(split, queries=queries))
    return cases


def _headline(what: str, cases: Cases, level: float, pairs: int) -> str:
    if cases[0].seeds == 1:
        return f"{what}: no claim about methods can be made. One run per method says nothing about other seeds."
    text = (
        f"{what}: a difference of {_range(_detected(cases, level))} points of R@1\nbetween two methods is detected in "
        f"{100 * WANTED:.0f}% of studies (p ≤ {level:g})"
    )
    if pairs == 1:
        return f"{text}."
    first = _range(_detected(cases, level / pairs))
    return (
        f"{text};\na difference of {first} points if it must be the first of {pairs} pairs to pass Holm's correction."
    )


def _table(cases: Cases, level: float, pairs: int) -> list[str]:
    levels = [level] if pairs == 1 else [level, level / pairs]
    first = "" if pairs == 1 else f"   of {pairs} pairs, Holm's first"
    lines = [f"  seeds   {'± over seeds':>14}   {'detected':>14}{first}"]
    for seeds in sorted({*SEEDS, cases[0].seeds}):
        if seeds == 1:
            lines.append(f"  {1:>5}   no claim about methods")
            continue
        other = [replace(design, seeds=seeds) for design in cases]
        spreads = [100 * variances(design).run ** 0.5 for design in other]
        shown = [_range(spreads), *(_range(_detected(other, at)) for at in levels)]
        lines.append("   ".join([f"  {seeds:>5}", *(f"{field:>14}" for field in shown)]))
    return lines


def _assumptions(cases: Cases, level: float) -> list[str]:
    fixed = cases[0].seeds == 1
    limits = [queries_alone(design, WANTED, level) for design in cases]
    alone = _range(limits)
    text = [
        f"These trained models, over other queries: a difference of {alone} points is detected in that share of "
        "studies."
        if fixed
        else f"More seeds do not replace queries: with this many queries it never falls below {alone} points."
    ]
    if min(limits) == 0:
        text += [
            "0.0: the queries' part of a difference between methods so alike is estimated as 0, so that queries set no",
            "limit there; with other queries it need not be 0.",
        ]
    if len(cases) == 1:
        return text
    return [
        *text,
        "From – to: the smallest and the largest over the ranges above. If methods find the same queries hard (alike,",
        "a latent correlation) and seeds vary little, small differences are detected; otherwise only larger ones.",
    ]


def _check(cases: Cases, level: float) -> list[str]:
    """The least and the greatest by simulated ranks, which normal theory does not know of."""
    found = []
    needed = [detectable(design, WANTED, level) for design in cases]
    for at in dict.fromkeys((int(np.argmin(needed)), int(np.argmax(needed)))):
        design, points = cases[at], needed[at]
        if f"{points:.1f}" == "0.0":  # simulated ranks are of whole queries
            found.append(f"  {points:5.1f} points: not checked by simulation; a single query moves R@1 by more")
            continue
        signs = [sign for sign in (1, -1) if 0.5 < design.r1 + sign * points < 99.5]
        if not signs:
            continue
        size = max(1, round(design.cluster))
        queries = max(3, round(design.queries / size)) * size
        chosen = replace(design, queries=queries, cluster=size, difference=signs[0] * points)
        replicates = int(np.clip(_RANKS // (design.methods * design.seeds * queries), 20, 1000))
        rates = calibrate(chosen, replicates, metrics=("R@1",), confidence=1 - level).set_index("measure")["rate"]
        found.append(
            f"  {points:5.1f} points: detected in {100 * rates['power']:.0f}%; false positives: "
            f"{100 * rates['type I']:.1f}%; intervals for a method's R@1 contain it in {100 * rates['coverage']:.1f}%"
        )
    if not found:
        return ["Not checked by simulation: so large a difference does not fit between 0 and 100%."]
    return ["Checked on simulated ranks (up to 1,000 studies each):", *found]


def _detected(cases: Cases, level: float) -> list[float]:
    return [detectable(design, WANTED, level) for design in cases]


def _range(points: Sequence[float], digits: int = 1) -> str:
    """Least and greatest as ``1.2–3.4``, or one number where both look the same.

    Raises:
        ValueError: for NaN, which has no place in an order: the ends would depend on where it stands.
    """
    if np.isnan(points).any():
        raise ValueError(f"a range over NaN: {list(points)}")
    low, high = (f"{end:.{digits}f}" if np.isfinite(end) else "over 100" for end in (min(points), max(points)))
    return low if low == high else f"{low}–{high}"


def _number(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _shown(name: str, number: Known) -> str:
    if name == "alike":
        return _range(number.ends, 2)
    if name == "± over seeds":
        return _range(number.ends)
    if name in ("R@1", "disagreement") or number.value != int(number.value):
        return f"{number.value:,.1f}"
    return f"{int(number.value):,}"
