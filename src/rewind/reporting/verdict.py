"""Who wins over a baseline: a gain in every seed, significant, affordable, smaller in the control. No markup here.

Beside it stand what the original expects of a win and does not ask for: zero-shot accuracy, and a smaller spread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rewind.errors import RewindError
from rewind.reporting.differences import between, row_of
from rewind.reporting.results import Results, check, directions
from rewind.reporting.sheet import number, p_value
from rewind.statistics.spread import spread_ratio
from rewind.study.verdict import CLAIMED, Verdict

SIDES = ("first", "second")


@dataclass(frozen=True)
class Claim:
    """One metric in one search direction, method − baseline, in percentage points.

    Attributes:
        direction, metric: which.
        gains: of each seed.
        difference, low, high: mean gain and its interval.
        p_holm: of the difference.
        shrinkage, shrinkage_low, shrinkage_high: how much larger the gap is than in the control; NaN without one.
        level: p-values below it are significant.
        spread, spread_low, spread_high: standard deviation over seeds divided by the baseline's, and its interval.
    """

    direction: str
    metric: str
    gains: dict[int, float]
    difference: float
    low: float
    high: float
    p_holm: float
    shrinkage: float
    shrinkage_low: float
    shrinkage_high: float
    level: float
    spread: float
    spread_low: float
    spread_high: float

    @property
    def every_seed(self) -> bool:
        return min(self.gains.values()) > 0

    @property
    def significant(self) -> bool:
        return bool(self.p_holm < self.level and self.difference > 0)

    @property
    def controlled(self) -> bool:
        """Without a control, or the gap is certainly smaller there."""
        return math.isnan(self.shrinkage) or bool(self.shrinkage_low > 0)

    @property
    def steadier(self) -> bool:
        """Certainly less spread over seeds than the baseline."""
        return bool(self.spread_high < 1)

    @property
    def holds(self) -> bool:
        return self.every_seed and self.significant and self.controlled


@dataclass(frozen=True)
class ZeroShotGain:
    """Accuracy on labelled images, method − baseline, in percentage points.

    Attributes:
        difference, low, high, p_holm: as a :class:`Claim` has them.
        level: p-values below it are significant.
    """

    difference: float
    low: float
    high: float
    p_holm: float
    level: float

    @property
    def significant(self) -> bool:
        return bool(self.p_holm < self.level and self.difference > 0)


@dataclass(frozen=True)
class Judged:
    """A method's verdict.

    Attributes:
        method: which.
        claims: of every metric and direction.
        best: the claim that the verdict rests on.
        ratio, ratio_low, ratio_high: step time as a multiple of the baseline's, and its quartiles over rounds.
        limit: the largest ratio that is tolerated.
        reasons: what is lacking for a win; empty for one.
        zero_shot: gain on labelled images; None where none are classified.
    """

    method: str
    claims: tuple[Claim, ...]
    best: Claim
    ratio: float
    ratio_low: float
    ratio_high: float
    limit: float
    reasons: tuple[str, ...]
    zero_shot: ZeroShotGain | None

    @property
    def affordable(self) -> bool:
        return self.ratio <= self.limit

    @property
    def win(self) -> bool:
        return not self.reasons


def judge(results: Results) -> list[Judged]:
    """The verdict on every method that the study names, in its order.

    One claim must hold whole: a gain in one metric and significance in another are no win.

    Raises:
        RewindError: for numbers that are missing; see also :func:`rewind.reporting.results.check`.
    """
    keys = results.verdict
    setting = place(results)
    check(results, setting)
    return [_judged(results, keys, method, setting) for method in keys.methods]


def place(results: Results) -> str:
    """The setting that counts."""
    return results.verdict.where(list(dict.fromkeys(results.metrics["setting"])))


def _judged(results: Results, keys: Verdict, method: str, setting: str) -> Judged:
    claims = tuple(
        _claim(results, keys, method, setting, direction, metric)
        for direction in directions(results, setting)
        for metric in CLAIMED
    )
    best = max(claims, key=_strength)
    ratio, low, high = _ratio(results, method)
    limit, zero_shot = 1 + keys.max_slowdown, _zero_shot(results, method, keys.baseline)
    reasons = [*_reasons(best, ratio, limit), *_wanted(keys, best, zero_shot)]
    return Judged(method, claims, best, ratio, low, high, limit, tuple(reasons), zero_shot)


def _strength(claim: Claim) -> tuple[Any, ...]:
    """Claims that hold in more respects are stronger, then those whose worst seed gains more."""
    both = claim.every_seed and claim.significant
    return claim.holds, both, claim.every_seed, claim.significant, min(claim.gains.values())


def _reasons(best: Claim, ratio: float, limit: float) -> list[str]:
    found = []
    if not best.every_seed:
        lost = sum(gain <= 0 for gain in best.gains.values())
        found.append(f"no gain in {lost} of {len(best.gains)} seeds")
    if not best.significant:
        p = _said_p(best.p_holm)
        found.append(f"not significant ({p})" if best.difference >= 0 else f"worse on average ({p})")
    if not ratio <= limit:
        digits = 2 if round(ratio, 2) > limit else 4
        found.append(f"too slow (a step takes {ratio:.{digits}f} times as long, {limit:.{digits}f} is allowed)")
    if not best.controlled:
        ends = f"[{number(best.shrinkage_low, 1, True)}, {number(best.shrinkage_high, 1, True)}]"
        how = "has not been shown to shrink" if best.shrinkage_high > 0 else "grows"
        found.append(f"its gap {how} in the control (it shrinks by {number(best.shrinkage, 1, True)} {ends})")
    return found


def _wanted(keys: Verdict, best: Claim, zero_shot: ZeroShotGain | None) -> list[str]:
    """What is lacking of what this study requires besides."""
    found = []
    if "zero_shot" in keys.requires and not (zero_shot and zero_shot.significant):
        gain = zero_shot and f" ({number(zero_shot.difference, 2, True)}, {_said_p(zero_shot.p_holm)})"
        found.append(f"no significant gain in zero-shot accuracy{gain or ''}")
    if "spread" in keys.requires and not best.steadier:
        ends = f"[{number(best.spread_low, 2)}, {number(best.spread_high, 2)}]"
        found.append(f"its seeds have not been shown to differ less (ratio {number(best.spread, 2)} {ends})")
    return found


def _said_p(p_holm: float) -> str:
    return "no p-value" if math.isnan(p_holm) else f"Holm’s p {p_value(p_holm)}"


def _zero_shot(results: Results, method: str, baseline: str) -> ZeroShotGain | None:
    if results.zero_shot_pairs.empty:
        return None
    difference, low, high, p = _turned(results.zero_shot_pairs, "zero_shot_pairs.csv", method, baseline)
    return ZeroShotGain(difference, low, high, p, round(1 - results.confidence, 12))


def _claim(results: Results, keys: Verdict, method: str, setting: str, direction: str, metric: str) -> Claim:
    ours, theirs = (_by_seed(results, name, setting, direction, metric) for name in (method, keys.baseline))
    place = {"setting": setting, "direction": direction, "metric": metric}
    tested = _turned(results.pairs, "pairs.csv", method, keys.baseline, **place)
    control = _control(results, method, setting, direction, metric) if keys.control else (np.nan,) * 3
    gains = {int(seed): float(ours[seed] - theirs[seed]) for seed in theirs.index}
    level = round(1 - results.confidence, 12)
    return Claim(direction, metric, gains, *tested, *control, level, *spread_ratio(ours, theirs, results.confidence))


def _by_seed(results: Results, method: str, setting: str, direction: str, metric: str) -> pd.Series:
    return results.runs[method, setting, direction].set_index("seed")[metric].astype(float)


def _turned(
    table: pd.DataFrame, name: str, method: str, baseline: str, **place: str
) -> tuple[float, float, float, float]:
    """Difference, low, high and Holm's p of method − baseline, whichever stands first in the file."""
    found = between(table, method, baseline, **place)
    if found:
        return found[:4]
    where = f" in {', '.join(place.values())}" if place else ""
    raise RewindError(
        f"{name}: no row of {method!r} and {baseline!r}{where}; declare the pair in statistics.pairs and run the "
        "statistics again."
    )


def _control(results: Results, method: str, setting: str, direction: str, metric: str) -> tuple[float, float, float]:
    row = row_of(results.control, method=method, setting=setting, direction=direction, metric=metric)
    if row is None:
        raise RewindError(f"statistics/control.csv: no row of {method!r}, {direction}, {metric}; make the file anew.")
    return float(row["shrinkage"]), float(row["low"]), float(row["high"])


def _ratio(results: Results, method: str) -> tuple[float, float, float]:
    row = row_of(results.step_time, method=method)
    if row is None:
        raise RewindError(f"step_time.csv: no row of {method!r}; make the file anew.")
    return float(row["ratio"]), float(row["ratio_low"]), float(row["ratio_high"])
