"""Which of several methods is best, by how much and how surely: the sentences of an answer.

No sentence states that two methods are equal. Where no difference was shown, it states how large a difference the
study would have detected. All numbers are those of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import scipy

from rewind.ranking_metrics import metric_of_column
from rewind.tables.notes import difference_size, is_beyond_possible
from rewind.tables.results import (
    Difference,
    Results,
    values_by_seed,
)
from rewind.tables.settings import metric_decimals
from rewind.tables.table import format_bounds, format_number, format_p_value

# ---- A finding -----------------------------------------------------------------------------------------------------


VERDICTS = {
    "yes": "Yes",
    "open": "Not shown",
    "below": "The other way round",
    "no": "No, it cannot",
    "untested": "Not tested",
    "blind": "Blind",
}
"""Kind of a verdict → its word, in the order in which they are shown."""


@dataclass(frozen=True)
class Verdict:
    """Methods of which the same was shown, and in a sentence what that is."""

    kind: str  # of VERDICTS
    methods: list[tuple[str, float, float, float]]  # label, accuracy in percent, ends of its interval or NaN
    why: str

    @property
    def word(self) -> str:
        return VERDICTS[self.kind]


@dataclass(frozen=True)
class Finding:
    """A heading, the sentences that answer it, and remarks on what was left out."""

    heading: str
    sentences: list[str]
    remarks: list[str] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)  # the sentences as rows that the page draws


def interval_text(value: float, low: float, high: float) -> str:
    """``58.9 [49.5, 68.3]``."""
    bounds = format_bounds(low, high)
    return f"{format_number(value)} [{', '.join(bounds)}]" if bounds else format_number(value)


# ---- The best method of one metric, what it is shown to beat, and what stays open ----------------------------------

MAX_NAMES_LISTED = 4
"""Most methods that a sentence names; if there are more, it gives their number, and the tables have the names."""

IntervalEstimate = tuple[float, float, float]
"""Estimate and the ends of its interval; the ends are NaN where there is none."""


def interval_estimate(row: pd.Series) -> IntervalEstimate:
    """The estimate of a row, with the ends of its interval."""
    low, high = (float(row.get(name, np.nan)) for name in ("low", "high"))
    return float(row["estimate"]), low, high


def unique_labels(results: Results, methods: Sequence[str]) -> dict[str, str]:
    """Label → method, in order; methods with the same label are distinguished by their keys."""
    labels = [results.labels[method] for method in methods]
    return {
        label if labels.count(label) == 1 else f"{label} ({method})": method
        for label, method in zip(labels, methods, strict=True)
    }


@dataclass(frozen=True)
class MethodComparison:
    """One metric of several methods.

    Attributes:
        values: label of every compared method → its value.
        against: function of two labels that returns first minus second; None where they were not compared.
        where: after what was or was not shown, for example `` in Hard``.
        detection: function of two labels: what would decide between them, without capital and full stop, or empty.
        aside: label of every method that is not compared → its value.

    Example:
        >>> difference = Difference(2.0, 0.5, 3.5, 0.01)
        >>> comparison = MethodComparison(
        ...     {"A": (42.0, 40.0, 44.0), "B": (40.0, 38.0, 42.0)}, lambda best, other: difference, level=0.05, unit="%"
        ... )
        >>> for sentence in best_method_sentences(comparison):
        ...     print(sentence)
        A has the best estimate of 2 compared methods: 42.0% [40.0, 44.0].
        It is significantly better than B: +2.0 [+0.5, +3.5], Holm’s p = 0.010.
    """

    values: Mapping[str, IntervalEstimate]
    against: Callable[[str, str], Difference | None]
    level: float  # p-values below it are significant
    lower: bool = False  # whether lower values are better
    digits: int = 1  # after the point
    unit: str = ""  # after a value, for example ``%``
    points: str = ""  # after a difference, for example `` points``
    where: str = ""
    detection: Callable[[str, str], str] = lambda first, second: ""
    aside: Mapping[str, IntervalEstimate] = field(default_factory=dict)
    untested: str = ""  # why no two methods were tested; empty where some were


def best_method_sentences(comparison: MethodComparison) -> list[str]:
    """The answer: two or three sentences, one more where a baseline leads; none where no value is defined.

    The first one names the best method where it was shown to be better than the next; elsewhere it states that this was
    not shown.
    """
    defined = _defined_values(comparison)
    if not defined:
        return []
    sign = 1 if comparison.lower else -1
    order = sorted(defined, key=lambda label: sign * defined[label][0])
    best, others = order[0], order[1:]
    # Means of equal values may differ in the last bit.
    tied = [label for label in order if math.isclose(defined[label][0], defined[best][0], rel_tol=1e-12)]
    differences = {label: comparison.against(best, label) for label in others}
    if others and len(tied) == 1 and not _is_shown(comparison, differences[others[0]]):
        sentences = _open_sentences(comparison, order, defined, differences)
    else:
        names = ("It", "Its") if len(tied) == 1 else (best, f"{best}’s")
        sentences = [
            _best_sentence(comparison, order, tied, defined),
            *_comparison_sentences(comparison, best, names, differences),
        ]
    return [*sentences, *_leading_baselines(comparison, defined[best])]


def best_method_remarks(comparison: MethodComparison) -> list[str]:
    """What the answer leaves out: values of baselines, and methods whose value is not defined."""
    listed = "; ".join(
        f"{label} {_value_text(comparison, value)}" for label, value in [*comparison.aside.items()][:MAX_NAMES_LISTED]
    )
    more = f"; and {len(comparison.aside) - MAX_NAMES_LISTED} more" if len(comparison.aside) > MAX_NAMES_LISTED else ""
    undefined = [label for label in comparison.values if label not in _defined_values(comparison)]
    remarks = [f"Baselines, not tested: {listed}{more}."] if comparison.aside else []
    return [*remarks, f"Not defined for {join_names(undefined)}."] if undefined else remarks


def join_names(labels: Sequence[str], word: str = "and") -> str:
    """``a, b and c``."""
    *most, last = labels
    return f"{', '.join(most)} {word} {last}" if most else last


def _defined_values(comparison: MethodComparison) -> dict[str, IntervalEstimate]:
    return {label: value for label, value in comparison.values.items() if not math.isnan(value[0])}


def _best_sentence(
    comparison: MethodComparison, order: list[str], tied: list[str], values: Mapping[str, IntervalEstimate]
) -> str:
    best = order[0]
    if len(order) == 1:
        return f"{best}: {_value_text(comparison, values[best])}."
    if len(tied) > 1:
        listed = "; ".join(f"{label} {_value_text(comparison, values[label])}" for label in tied[:MAX_NAMES_LISTED])
        more = f"; and {len(tied) - MAX_NAMES_LISTED} more" if len(tied) > MAX_NAMES_LISTED else ""
        return f"{len(tied)} of {len(order)} compared methods share the best estimate: {listed}{more}."
    return f"{best} has the best estimate of {len(order)} compared methods: {_value_text(comparison, values[best])}."


def _open_sentences(
    comparison: MethodComparison,
    order: list[str],
    values: Mapping[str, IntervalEstimate],
    differences: Mapping[str, Difference | None],
) -> list[str]:
    """The answer where the best method was not shown to be better than the next: what was not shown comes first."""
    best, following = order[0], order[1]
    outcome = _sort_by_outcome(comparison, differences)
    if comparison.untested or following in outcome.untested:
        next_best = "any of the others" if not outcome.tested else f"{following}, which comes next"
        reason = comparison.untested or f"{best} was not tested against {next_best}{comparison.where}."
        best_named = [
            _best_sentence(comparison, order, [best], values),
            *_lead_over_next(comparison, "Its", differences),
        ]
        if comparison.untested or not outcome.tested:
            return [reason, " ".join(best_named)]
        others = replace(outcome, untested=outcome.untested[1:])
        return [" ".join([reason, *best_named]), *_outcome_sentences(comparison, best, others, differences)]
    lead = (
        f"No difference between {best} and {following} was shown{comparison.where}: "
        f"{_value_text(comparison, values[best])} and {_value_text(comparison, values[following])}, "
        f"{_difference_text(comparison, outcome.tested[following])}."
    )
    if further := [label for label in outcome.open if label != following]:
        closest = f"; closest is {further[0]}" if len(further) > 1 else ""
        lead += (
            f" Nor was any between {best} and {_names_or_count(further, len(differences), 'or')}{closest}: "
            f"{_difference_text(comparison, outcome.tested[further[0]])}."
        )
    caution = f"That does not mean that they are equal{_power_note(comparison, best, following)}."
    return [lead, caution, *_outcome_sentences(comparison, best, replace(outcome, open=[]), differences)]


def _power_note(comparison: MethodComparison, first: str, second: str) -> str:
    text = comparison.detection(first, second)
    return f": {text}" if text else ""


def _comparison_sentences(
    comparison: MethodComparison, best: str, names: tuple[str, str], differences: Mapping[str, Difference | None]
) -> list[str]:
    """What is known about the best method's lead over the others, which are in their order.

    ``names`` are the best method's as a subject and as a possessive: ``It`` and ``Its``, or its label where others tie.
    """
    if not differences:
        return []
    outcome = _sort_by_outcome(comparison, differences)
    if comparison.untested or not outcome.tested:
        reason = comparison.untested or f"{names[0]} was not tested against any of the others."
        return [*_lead_over_next(comparison, names[1], differences), reason]
    return _outcome_sentences(comparison, best, outcome, differences, names[0])


@dataclass(frozen=True)
class _Outcome:
    """How the best method compares with the others: those that it was and was not shown to beat, and the rest."""

    tested: dict[str, Difference]
    beaten: list[str]
    open: list[str]
    untested: list[str]


def _sort_by_outcome(comparison: MethodComparison, differences: Mapping[str, Difference | None]) -> _Outcome:
    tested = {
        label: difference
        for label, difference in differences.items()
        if difference and not math.isnan(difference.p_holm)
    }
    beaten = [label for label in tested if _is_shown(comparison, tested[label])]
    not_beaten = [label for label in tested if label not in beaten]
    return _Outcome(tested, beaten, not_beaten, [label for label in differences if label not in tested])


def _is_shown(comparison: MethodComparison, difference: Difference | None) -> bool:
    """Whether the best method was shown to be better; never where there are no tests that can be trusted."""
    if difference is None or comparison.untested:
        return False
    is_better = difference.value < 0 if comparison.lower else difference.value > 0
    return difference.p_holm < comparison.level and is_better


def _outcome_sentences(
    comparison: MethodComparison,
    best: str,
    outcome: _Outcome,
    differences: Mapping[str, Difference | None],
    name: str = "",
) -> list[str]:
    """One sentence on each kind of outcome that there is; ``name``: of the best method in it, its label if empty."""
    sentences, count, name = [], len(differences), name or best
    if outcome.beaten:
        closest = outcome.beaten[0]
        losers = "each of the others" if len(outcome.beaten) == count > 1 else _names_or_count(outcome.beaten, count)
        closest_name = f"; closest is {closest}" if len(outcome.beaten) > 1 else ""
        difference_text = _difference_text(comparison, outcome.tested[closest])
        sentences.append(f"{name} is significantly better than {losers}{closest_name}: {difference_text}.")
    if outcome.open:
        closest = outcome.open[0]
        closest_name = f"closest is {closest}: " if len(outcome.open) > 1 else ""
        power_note = _power_note(comparison, best, closest)
        sentences.append(
            f"{name} was not shown to differ from {_names_or_count(outcome.open, len(outcome.tested))} "
            f"({closest_name}{_difference_text(comparison, outcome.tested[closest])}), "
            f"which does not mean that they are equal{power_note}."
        )
    if outcome.untested:
        sentences.append(f"{name} was not tested against {_names_or_count(outcome.untested, count)}.")
    return sentences


def _lead_over_next(
    comparison: MethodComparison, owner: str, differences: Mapping[str, Difference | None]
) -> list[str]:
    """The lead over the next method, without a p-value because nothing was tested or no test can be trusted."""
    label, difference = next(iter(differences.items()))
    if not difference:
        return []
    text = _difference_text(comparison, difference._replace(p_holm=math.nan))
    return [f"{owner} difference to the next, {label}: {text}."]


def _leading_baselines(comparison: MethodComparison, best: IntervalEstimate) -> list[str]:
    """Baselines that are ahead of all compared methods: an answer that leaves them out would mislead."""
    ahead = [
        label
        for label, value in comparison.aside.items()
        if (value[0] < best[0] if comparison.lower else value[0] > best[0])
    ]
    verb = "has" if len(ahead) == 1 else "have"
    return [f"{join_names(ahead)} {verb} a better estimate than every compared method."] if ahead else []


def _names_or_count(labels: list[str], total: int, word: str = "and") -> str:
    return join_names(labels, word) if len(labels) <= MAX_NAMES_LISTED else f"{len(labels)} of the {total} others"


def _value_text(comparison: MethodComparison, value: IntervalEstimate) -> str:
    ends = format_bounds(value[1], value[2], comparison.digits)
    interval = f" [{ends[0]}, {ends[1]}]" if ends and value[2] > value[1] else ""
    return f"{format_number(value[0], comparison.digits)}{comparison.unit}{interval}"


def _difference_text(comparison: MethodComparison, difference: Difference) -> str:
    ends = format_bounds(difference.low, difference.high, comparison.digits, signed=True)
    interval = f" [{ends[0]}, {ends[1]}]" if ends else ""
    p = "" if math.isnan(difference.p_holm) else f", {holm_p_text(difference.p_holm)}"
    return f"{format_number(difference.value, comparison.digits, signed=True)}{comparison.points}{interval}{p}"


def holm_p_text(p: float) -> str:
    """``Holm’s p = 0.010``, ``Holm’s p < 0.001``."""
    text = format_p_value(p)
    return f"Holm’s p {'< ' + text[1:] if text.startswith('<') else '= ' + text}"


# ---- What would decide between two methods --------------------------------------------------------------------------


def detection_text(results: Results, pair: pd.Series | None, setting: str, metric: str) -> str:
    """What difference between two methods would be detected, and what would be needed to find the one that was seen.

    ``pair`` is a row of ``pairs.csv``; None where they were not compared. The text lacks its first capital and its last
    full stop; it is empty where nothing is known.
    """
    if pair is None or not pair.get("detectable", math.nan) > 0:
        return ""
    size = float(pair["detectable"])
    if is_beyond_possible(setting, metric, size):
        return _seeds_reason(results, pair) or f"{int(pair['clusters']):,} clusters of queries are too few to tell"
    points = difference_size(setting, metric, size)
    text = f"a true difference of {points} between them would be detected in 80% of studies"
    seeds, queries = (float(pair.get(name, math.nan)) for name in ("seeds_needed", "queries_needed"))
    ways = [f"about {seeds:.0f} seeds"] if seeds > 0 else []
    ways += [f"{'' if ways else 'about '}{queries:,.0f} queries"] if queries > 0 else []
    return f"{text}; the one that was seen would take {' or '.join(ways)}" if ways else text


def _seeds_reason(results: Results, pair: pd.Series) -> str:
    """That the seeds of one of two methods differ by too much to tell, where that is most of the variance; or empty."""
    key = (pair["setting"], pair["direction"], pair["metric"])
    first, second = (values_by_seed(results, pair[name], *key) for name in ("first", "second"))
    if "seeds in pairs" in str(pair["procedure"]) and len(first) == len(second) > 1:
        seed_part = float((first - second).var(ddof=1)) / len(first)
    else:
        seed_part = sum(float(values.var(ddof=1)) / len(values) for values in (first, second) if len(values) > 1)
    # The longer half of the interval is t √V; the other may have been cut off at what is possible.
    half = max(float(pair["high"] - pair["difference"]), float(pair["difference"] - pair["low"]))
    t = float(scipy.special.stdtrit(float(pair.get("df", math.nan)), (1 + results.confidence) / 2))
    if not seed_part > (half / t) ** 2 / 2:  # also for NaN: an unknown share explains nothing
        return ""
    spreads = {
        pair[name]: float(values.std(ddof=1))
        for name, values in (("first", first), ("second", second))
        if len(values) > 1
    }
    method = max(spreads, key=spreads.__getitem__)
    points = " points" if metric_of_column(pair["metric"]).percent else ""
    spread = format_number(spreads[method], metric_decimals(pair["metric"]))
    return (
        f"the seeds of {results.labels[method]} differ by too much to tell, with a standard deviation of "
        f"{spread}{points}"
    )
