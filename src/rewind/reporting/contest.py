"""Who is best, in sentences: the best value, what it is shown to beat, and what stays open.

Nothing here says that two methods are equal: where no difference was shown, the sentences say how large a difference
the study would have seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rewind.reporting.differences import Difference
from rewind.reporting.sheet import bounds, number, p_value

LISTED = 4
"""Names in a sentence; of more only the number is said, and the tables have them."""

Value = tuple[float, float, float]
"""Estimate and the ends of its interval; the ends are NaN where there is none."""


@dataclass(frozen=True)
class Contest:
    """One metric of several methods.

    Attributes:
        values: label of every compared method → its value.
        against: best and other label → their difference, best minus other; None where they were not compared.
        level: p-values below it are significant.
        lower: whether lower values are better.
        digits: after the point.
        unit: after a value, for example ``%``.
        points: after a difference, for example `` points``.
        seen: smallest and greatest detectable difference → words.
        aside: label of every method that takes no part → its value.
        untested: why no two methods were tested; empty where some were.
    """

    values: Mapping[str, Value]
    against: Callable[[str, str], Difference | None]
    level: float
    lower: bool = False
    digits: int = 1
    unit: str = ""
    points: str = ""
    seen: Callable[[tuple[float, float]], str] = str
    aside: Mapping[str, Value] = field(default_factory=dict)
    untested: str = ""


def sentences(contest: Contest) -> list[str]:
    """The answer: two or three sentences, one more where a baseline leads; none where no value is defined."""
    defined = _defined(contest)
    if not defined:
        return []
    sign = 1 if contest.lower else -1
    order = sorted(defined, key=lambda label: sign * defined[label][0])
    best, others = order[0], order[1:]
    # Means of equal values may differ in the last bit.
    alike = [label for label in order if math.isclose(defined[label][0], defined[best][0], rel_tol=1e-12)]
    found = {label: contest.against(best, label) for label in others}
    who = ("It", "Its") if len(alike) == 1 else (best, f"{best}’s")
    return [_first(contest, order, alike, defined), *_compared(contest, who, found), *_led(contest, defined[best])]


def remarks(contest: Contest) -> list[str]:
    """What takes no part in the answer: baselines, and methods whose value is not defined."""
    each = "; ".join(f"{label} {_value(contest, value)}" for label, value in [*contest.aside.items()][:LISTED])
    more = f"; and {len(contest.aside) - LISTED} more" if len(contest.aside) > LISTED else ""
    lacking = [label for label in contest.values if label not in _defined(contest)]
    said = [f"Baselines, not tested: {each}{more}."] if contest.aside else []
    return [*said, f"Not defined for {listed(lacking)}."] if lacking else said


def listed(labels: Sequence[str], word: str = "and") -> str:
    """``a, b and c``."""
    *most, last = labels
    return f"{', '.join(most)} {word} {last}" if most else last


def _defined(contest: Contest) -> dict[str, Value]:
    return {label: value for label, value in contest.values.items() if not math.isnan(value[0])}


def _first(contest: Contest, order: list[str], alike: list[str], values: Mapping[str, Value]) -> str:
    best = order[0]
    if len(order) == 1:
        return f"{best}: {_value(contest, values[best])}."
    if len(alike) > 1:
        each = "; ".join(f"{label} {_value(contest, values[label])}" for label in alike[:LISTED])
        more = f"; and {len(alike) - LISTED} more" if len(alike) > LISTED else ""
        return f"{len(alike)} of {len(order)} compared methods share the best estimate: {each}{more}."
    return f"{best} has the best estimate of {len(order)} compared methods: {_value(contest, values[best])}."


def _compared(contest: Contest, who: tuple[str, str], found: Mapping[str, Difference | None]) -> list[str]:
    """What is known of the best method's lead over the others, which come in their order.

    ``who`` names it as the subject of a sentence and as the owner of something.
    """
    if not found:
        return []
    tested = {label: one for label, one in found.items() if one and not math.isnan(one.p_holm)}
    if contest.untested or not tested:
        why = contest.untested or f"{who[0]} was not tested against any of the others."
        return [*_next(contest, who[1], found), why]
    beaten = [label for label, one in tested.items() if one.p_holm < contest.level and _ahead(contest, one)]
    still = [label for label in tested if label not in beaten]
    missing = [label for label in found if label not in tested]
    said = []
    if beaten:
        closest = beaten[0]
        whom = "each of the others" if len(beaten) == len(found) > 1 else _names(beaten, len(found))
        near = f"; closest is {closest}" if len(beaten) > 1 else ""
        said.append(f"{who[0]} is significantly better than {whom}{near}: {_said(contest, tested[closest])}.")
    if still:
        said.append(_open(contest, who[0], still, tested))
    if missing:
        said.append(f"{who[0]} was not tested against {_names(missing, len(found))}.")
    return said


def _open(contest: Contest, who: str, still: list[str], tested: Mapping[str, Difference]) -> str:
    """Pairs without a significant difference, and what that does not say."""
    closest = still[0]
    near = f"closest is {closest}: " if len(still) > 1 else ""
    seen = [one for label in still if not math.isnan(one := tested[label].detectable)]
    how = f": {detects(contest.seen((min(seen), max(seen))))}" if seen else ""
    return (
        f"{who} was not shown to differ from {_names(still, len(tested))} ({near}{_said(contest, tested[closest])}), "
        f"which does not mean that they are equal{how}."
    )


def detects(difference: str) -> str:
    """What a study can see."""
    return f"this study would detect a true difference of {difference} in 80% of cases, and smaller ones less often"


def _next(contest: Contest, whose: str, found: Mapping[str, Difference | None]) -> list[str]:
    """The lead over the next method, without a p-value: nothing was tested, or no test can be trusted."""
    label, one = next(iter(found.items()))
    return [f"{whose} difference to the next, {label}: {_said(contest, one._replace(p_holm=math.nan))}."] if one else []


def _led(contest: Contest, best: Value) -> list[str]:
    """Baselines ahead of all: an answer that leaves them out would mislead."""
    ahead = [
        label for label, value in contest.aside.items() if (value[0] < best[0] if contest.lower else value[0] > best[0])
    ]
    have = "has" if len(ahead) == 1 else "have"
    return [f"{listed(ahead)} {have} a better estimate than every compared method."] if ahead else []


def _names(labels: list[str], whole: int) -> str:
    return listed(labels) if len(labels) <= LISTED else f"{len(labels)} of the {whole} others"


def _ahead(contest: Contest, one: Difference) -> bool:
    return one.value < 0 if contest.lower else one.value > 0


def _value(contest: Contest, value: Value) -> str:
    ends = bounds(value[1], value[2], contest.digits)
    shown = f" [{ends[0]}, {ends[1]}]" if ends and value[2] > value[1] else ""
    return f"{number(value[0], contest.digits)}{contest.unit}{shown}"


def _said(contest: Contest, one: Difference) -> str:
    ends = bounds(one.low, one.high, contest.digits, signed=True)
    shown = f" [{ends[0]}, {ends[1]}]" if ends else ""
    p = "" if math.isnan(one.p_holm) else f", {holm(one.p_holm)}"
    return f"{number(one.value, contest.digits, signed=True)}{contest.points}{shown}{p}"


def holm(p: float) -> str:
    """``Holm’s p = 0.010``, ``Holm’s p < 0.001``."""
    text = p_value(p)
    return f"Holm’s p {'< ' + text[1:] if text.startswith('<') else '= ' + text}"
