"""The answer of a study in a few sentences: who knows which way time runs, who is best, by how much, and how surely.

No sentence says that two methods are equal. Where no difference was shown, the text says how large a difference the
study would have detected. All numbers are those of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rewind.ranking_metrics import metric_of_column
from rewind.report import cosine_gap, verdict
from rewind.report.cosine_gap import CosineGapResults
from rewind.report.footnotes import confidence_percent, seed_caution
from rewind.report.notes import difference_size, is_beyond_possible, wrap_line
from rewind.report.results import (
    MIN_CLUSTERS_FOR_LETTERS,
    Difference,
    Results,
    evaluated_directions,
    first_matching_row,
    leading_direction,
    method_difference,
    methods_in_order,
    tested_pairs,
    ties_every_query,
    values_by_seed,
)
from rewind.report.setting_table import SETTING_TITLES, metric_decimals, setting_csv_rows
from rewind.report.table import format_bounds, format_number, format_p_value
from rewind.report.tables import order_csv_rows, zero_shot_csv_rows, zero_shot_title
from rewind.report.time_answer import time_answer
from rewind.report.verdict import MethodVerdict, judge_methods, verdict_keys, verdict_setting
from rewind.statistics.inference import significance_level

# ---- The best method of one metric, what it is shown to beat, and what stays open ----------------------------------

MAX_NAMES_LISTED = 4
"""Most methods that a sentence names; of more it gives the number, and the tables have the names."""

IntervalEstimate = tuple[float, float, float]
"""Estimate and the ends of its interval; the ends are NaN where there is none."""


@dataclass(frozen=True)
class MethodComparison:
    """One metric of several methods.

    Attributes:
        values: label of every compared method → its value.
        against: function of two labels that returns first minus second; None where they were not compared.
        level: p-values below it are significant.
        lower: whether lower values are better.
        digits: after the point.
        unit: after a value, for example ``%``.
        points: after a difference, for example `` points``.
        where: after what was or was not shown, for example `` in Hard``.
        detection: function of two labels: what would decide between them, without capital and full stop, or empty.
        aside: label of every method that is not compared → its value.
        untested: why no two methods were tested; empty where some were.

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
    level: float
    lower: bool = False
    digits: int = 1
    unit: str = ""
    points: str = ""
    where: str = ""
    detection: Callable[[str, str], str] = lambda first, second: ""
    aside: Mapping[str, IntervalEstimate] = field(default_factory=dict)
    untested: str = ""


def best_method_sentences(comparison: MethodComparison) -> list[str]:
    """The answer: two or three sentences, one more where a baseline leads; none where no value is defined.

    The first one names the best method where it was shown to be better than the next; elsewhere it says that this was
    not shown.

    Example:
        >>> difference = Difference(2.0, -0.5, 4.5, 0.1)
        >>> values = {"A": (42.0, 40.0, 44.0), "B": (40.0, 38.0, 42.0)}
        >>> comparison = MethodComparison(values, lambda best, other: difference, level=0.05, where=" in Hard")
        >>> lead, caution = best_method_sentences(comparison)
        >>> lead[:53], caution
        ('No difference between A and B was shown in Hard: 42.0', 'That does not mean that they are equal.')
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

    Args:
        results: the study's numbers.
        pair: row of ``pairs.csv``; None where they were not compared.
        setting, metric: of the row.

    Returns:
        Sentences without the first capital and the last full stop; empty where nothing is known.
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
    t = float(stdtrit(float(pair.get("df", math.nan)), (1 + results.confidence) / 2))
    if not seed_part > (half / t) ** 2 / 2:  # NaN too: what is not known is no reason
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


# ---- Findings by setting, zero-shot accuracy, cosine gap and verdict -----------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A heading, the sentences that answer it, and remarks on what was left out.

    Example:
        >>> Finding("Hard, R@1", ["A has the best estimate."]).remarks
        []
    """

    heading: str
    sentences: list[str]
    remarks: list[str] = field(default_factory=list)


def study_findings(results: Results, settings: Sequence[str], gaps: CosineGapResults | None = None) -> list[Finding]:
    """What the study found: its verdict where it has one; otherwise who knows which way time runs (where Binary was
    evaluated), who is best in each setting, and further results.

    Args:
        results: the study's numbers.
        settings: in the order of the study.
        gaps: cosine gaps, where the study has them.

    Raises:
        RewindError: as :func:`rewind.report.results.check_results`.
    """
    if results.verdict:
        return [_verdict_finding(results)]
    findings = [_time_finding(results)] if "binary" in settings and len(results.chance) else []
    findings += [_setting_finding(results, setting) for setting in settings]
    if len(results.frame_order):
        findings.append(_order_finding(results))
    if len(results.zero_shot):
        findings.append(_zero_shot_finding(results))
    if gaps is not None and len(gaps.runs):
        findings.append(_cosine_gap_finding(gaps))
    return findings


def _time_finding(results: Results) -> Finding:
    answer = time_answer(results)
    missing = _missing_methods(results, "binary", leading_direction(results, "binary"))
    return Finding(answer.heading, [*answer.sentences, *answer.group_sentences], [*answer.remarks, *missing])


def _setting_finding(results: Results, setting: str) -> Finding:
    direction, metric = leading_direction(results, setting), results.deciding(setting)
    two_directions = len(evaluated_directions(results, setting)) > 1
    metric_name = "accuracy" if setting == "binary" else metric
    heading = (
        f"{SETTING_TITLES[setting]}, {results.short(direction)} {metric_name}"
        if two_directions
        else f"{SETTING_TITLES[setting]}, {metric_name}"
    )
    rows = setting_csv_rows(results, setting)
    rows = rows[(rows["direction"] == direction) & (rows["metric"] == metric)].set_index("method")
    compared = [method for method in results.compared() if method in rows.index]
    names = _unique_labels(results, [*rows.index])
    tested = tested_pairs(results, setting, direction, metric)
    entry = metric_of_column(metric)

    def estimate(method: str) -> IntervalEstimate:
        value = _interval_estimate(rows.loc[method])
        # Chance by construction has no interval in tables either.
        is_tied = value[1] == value[2] or (setting == "binary" and ties_every_query(results, method, direction))
        return (value[0], math.nan, math.nan) if is_tied else value

    key = {"setting": setting, "direction": direction, "metric": metric}

    def against(best: str, other: str) -> Difference | None:
        return method_difference(results.pairs, names[best], names[other], **key)

    def detection(best: str, other: str) -> str:
        first, second = names[best], names[other]
        pair = first_matching_row(results.pairs, first=first, second=second, **key)
        if pair is None:
            pair = first_matching_row(results.pairs, first=second, second=first, **key)
        return detection_text(results, pair, setting, metric)

    comparison = MethodComparison(
        values={label: estimate(m) for label, m in names.items() if m in compared},
        against=against,
        level=significance_level(results.confidence),
        lower=entry.lower_is_better,
        digits=metric_decimals(metric),
        unit="%" if entry.percent else "",
        points=" points" if entry.percent else "",
        where=f" in {SETTING_TITLES[setting]}",
        detection=detection,
        aside={label: estimate(m) for label, m in names.items() if m not in compared},
        untested=_untested_reason(results, tested, compared),
    )
    remarks = [*best_method_remarks(comparison), *_missing_methods(results, setting, direction)]
    return Finding(heading, best_method_sentences(comparison), remarks)


def _missing_methods(results: Results, setting: str, direction: str) -> list[str]:
    asked = methods_in_order(results, setting)
    missing = [f"{results.labels[m]} ({why})" for m in asked if (why := results.reason(m, setting, direction))]
    return [f"Without numbers here: {', '.join(missing)}."] if missing else []


def _untested_reason(results: Results, tested: pd.DataFrame, compared: Sequence[str]) -> str:
    """Why there are no trustworthy tests; empty where there are."""
    if len(compared) < 2:
        return ""
    if tested.empty:
        counts = sorted({len(set(results.seeds[m])) for m in results.trained() if m in results.seeds})
        caution = seed_caution(counts) if counts and counts[0] == 1 else ""
        return f"{caution}." if caution else "No differences between methods were tested."
    clusters = int(tested["clusters"].min())
    if clusters >= MIN_CLUSTERS_FOR_LETTERS:
        return ""
    return (
        f"Too few queries to tell who is better: tests need {MIN_CLUSTERS_FOR_LETTERS} clusters of them, and there are "
        f"{clusters:,}."
    )


SAID_CONTROLS = {"reversed": "backwards", "shuffled": "in random order"}  # the table has the others


def _order_finding(results: Results) -> Finding:
    """What each method loses where frames are backwards or shuffled."""
    rows = order_csv_rows(results)
    metric = results.deciding(rows["setting"].iloc[0])
    rows = rows[rows["metric"] == metric]
    level = significance_level(results.confidence)
    sentences = []
    for control in [name for name in SAID_CONTROLS if name in set(rows["control"])] or [rows["control"].iloc[0]]:
        here = rows[rows["control"] == control]
        shown = here[(here["p_holm"] < level) & (here["identical"] == 0)].sort_values("loss", ascending=False)
        unclear = here[~here.index.isin(shown.index) & (here["identical"] == 0)]
        losses, open_losses = (
            [f"{row.label} {_interval_text(row.loss, row.low, row.high)}" for row in rows.itertuples()]
            for rows in (shown, unclear)
        )
        same = here.loc[here["identical"] == 1, "label"].tolist()
        parts = [
            f"costs {', '.join(losses)}" if losses else "",
            f"not shown to cost {join_names(open_losses, 'or')}" if open_losses else "",
            f"leaves every rank of {join_names(same)} as it is" if same else "",
        ]
        what = f"Frames {SAID_CONTROLS[control]}" if control in SAID_CONTROLS else f"The control “{control}”"
        sentences.append(f"{what}: {'; '.join(part for part in parts if part)}.")
    remark = (
        f"What {metric} loses in the same runs, in points with {confidence_percent(results.confidence)} intervals, not "
        "adjusted for several comparisons; tested with Holm’s correction over all methods and controls."
    )
    return Finding("Order of frames", sentences, [remark])


def _interval_text(value: float, low: float, high: float) -> str:
    """``58.9 [49.5, 68.3]``."""
    bounds = format_bounds(low, high)
    return f"{format_number(value)} [{', '.join(bounds)}]" if bounds else format_number(value)


def _zero_shot_finding(results: Results) -> Finding:
    rows = zero_shot_csv_rows(results).set_index("method")
    names = _unique_labels(results, [*rows.index])
    compared = results.compared()

    def against(best: str, other: str) -> Difference | None:
        return method_difference(results.zero_shot_pairs, names[best], names[other])

    comparison = MethodComparison(
        values={label: _interval_estimate(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=significance_level(results.confidence),
        unit="%",
        points=" points",
        where=f" on {zero_shot_title(rows)}",
        aside={label: _interval_estimate(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(results.zero_shot_pairs) else "No differences between methods were tested.",
    )
    data = zero_shot_title(rows)
    return Finding(f"Zero-shot accuracy on {data}", best_method_sentences(comparison), best_method_remarks(comparison))


def _cosine_gap_finding(gaps: CosineGapResults) -> Finding:
    """The gap of the first split, of vectors that have not seen the answer, and what the same vectors retrieve."""
    scoring = gaps.scorings()[0]
    rows = cosine_gap.cosine_gap_csv_rows(gaps)
    splits = [split for split in cosine_gap.SPLIT_TITLES if split in set(rows["split"])]
    rows = rows[(rows["split"] == splits[0]) & (rows["scoring"] == scoring) & (rows["quantity"] == "gap")]
    rows = rows.set_index("method")
    names = _unique_labels(gaps, [*rows.index])

    def against(best: str, other: str) -> Difference | None:
        return method_difference(gaps.pairs, names[best], names[other], split=splits[0], scoring=scoring)

    declared = {*gaps.pairs["first"], *gaps.pairs["second"]} if len(gaps.pairs) else set()
    compared = [m for m in rows.index if m not in gaps.baselines or m in declared] or list(rows.index)
    comparison = MethodComparison(
        values={label: _interval_estimate(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=significance_level(gaps.confidence),
        digits=cosine_gap.COSINE_DIGITS,
        aside={label: _interval_estimate(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(gaps.pairs) else "No differences between methods were tested.",
    )
    first = max(rows.index, key=lambda method: rows.loc[method, "R@1"])
    caution = (
        "The gap is not a retrieval score: a search by these cosines has at best an R@1 of "
        f"{format_number(float(rows.loc[first, 'R@1']))}% ({gaps.labels[first]})."
    )
    remarks = [f"No gap, because they do not compare vectors: {join_names(gaps.absent())}."] if gaps.absent() else []
    name = cosine_gap.SPLIT_TITLES[splits[0]]
    heading = f"Cosine gap, {name[0].lower()}{name[1:]}"
    return Finding(heading, [*best_method_sentences(comparison), caution], [*best_method_remarks(comparison), *remarks])


def _verdict_finding(results: Results) -> Finding:
    two_directions = len(evaluated_directions(results, verdict_setting(results))) > 1
    sentences = [
        f"{outcome} {_gain_sentence(results, judged)}."
        for outcome, judged in zip(verdict.verdict_outcomes(results), judge_methods(results), strict=True)
    ]
    keys = verdict_keys(results)
    wins = sum(judged.win for judged in judge_methods(results))
    summary = (
        f"{wins} of {len(sentences)} methods win over {results.labels[keys.baseline]}." if len(sentences) > 1 else ""
    )
    where = f"{SETTING_TITLES[verdict_setting(results)]}" + (", either search direction" if two_directions else "")
    heading = f"Verdict: who wins over {results.labels[keys.baseline]} ({where})"
    return Finding(heading, [*filter(None, [summary]), *sentences])


def _gain_sentence(results: Results, judged: MethodVerdict) -> str:
    """The mean gain that the verdict rests on."""
    best = judged.best
    ends = format_bounds(best.low, best.high, 1, signed=True)
    interval = f" [{ends[0]}, {ends[1]}]" if ends else ""
    p = "no p-value" if math.isnan(best.p_holm) else holm_p_text(best.p_holm)
    return f"Its mean gain there is {format_number(best.difference, 1, True)} points{interval}, {p}"


def answer_text(findings: Sequence[Finding]) -> str:
    """The findings for a terminal: each heading, and below it every sentence on lines of its own.

    Example:
        >>> print(answer_text([Finding("Hard, R@1", ["A: 40.0%."], ["Baselines, not tested: B 0.1%."])]), end="")
        Hard, R@1
          A: 40.0%.
          Baselines, not tested: B 0.1%.
    """
    lines = [
        line
        for finding in findings
        for line in (finding.heading, *(wrap_line(text, "  ") for text in (*finding.sentences, *finding.remarks)))
    ]
    return "".join(f"{line}\n" for line in lines)


def _interval_estimate(row: pd.Series) -> IntervalEstimate:
    low, high = (float(row.get(name, np.nan)) for name in ("low", "high"))
    return float(row["estimate"]), low, high


def _unique_labels(results: Results | CosineGapResults, methods: Sequence[str]) -> dict[str, str]:
    """Label → method, in order; methods with the same label are distinguished by their keys."""
    labels = [results.labels[method] for method in methods]
    return {
        label if labels.count(label) == 1 else f"{label} ({method})": method
        for label, method in zip(labels, methods, strict=True)
    }
