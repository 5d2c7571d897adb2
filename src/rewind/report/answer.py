"""The answer of a study in a few sentences: who knows which way time runs, who is best, by how much, and how surely.

No sentence says that two methods are equal. Where no difference was shown, the text says how large a difference the
study would have detected. All numbers are those of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import pandas as pd

from rewind.analyses import all_analyses
from rewind.ranking_metrics import metric_of_column
from rewind.report.time_answer import time_answer, time_verdicts
from rewind.statistics.inference import significance_level
from rewind.tables.best_method import (
    Finding,
    IntervalEstimate,
    MethodComparison,
    best_method_remarks,
    best_method_sentences,
    detection_text,
    interval_estimate,
    unique_labels,
)
from rewind.tables.footnotes import seed_caution
from rewind.tables.notes import difference_size, wrap_line
from rewind.tables.results import (
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
from rewind.tables.settings import SETTING_TITLES, metric_decimals, setting_csv_rows

MUCH_BETWEEN_SEEDS = 5.0  # points of standard deviation from which a reader is warned

# ---- Findings by setting, zero-shot accuracy, cosine gap and verdict -----------------------------------------------


def study_findings(results: Results, settings: Sequence[str]) -> list[Finding]:
    """What the study found: its verdict where it has one; otherwise who knows which way time runs (where Binary was
    evaluated), who is best in each setting, and further results.
    """
    asked = [one for one in all_analyses().values() if not one.results.keys().isdisjoint(results.analyses)]
    if whole := [said for analysis in asked if analysis.decides and (said := analysis.finding(results))]:
        return whole
    findings = [_time_finding(results)] if "binary" in settings and len(results.chance) else []
    findings += [_setting_finding(results, setting) for setting in settings]
    findings += [said for analysis in asked if (said := analysis.finding(results))]
    cautions = [*_few_seeds(results), *_unlike_seeds(results, settings)]
    return findings + ([Finding("Caution", [" ".join(cautions)])] if cautions else [])


def _few_seeds(results: Results) -> list[str]:
    caution = seed_caution(results.seed_counts())
    return [f"{caution}."] if caution else []


def _unlike_seeds(results: Results, settings: Sequence[str]) -> list[str]:
    """The setting in which a method varies most between its seeds, for each method that varies much."""
    worst: dict[str, tuple[float, str]] = {}
    for setting, method in product(settings, results.ordered()):
        metric, run = results.deciding(setting), (method, setting, leading_direction(results, setting))
        if metric_of_column(metric).percent and len(results.runs.get(run, ())) > 1:
            spread = float(values_by_seed(results, *run, metric).std(ddof=1))
            if spread >= MUCH_BETWEEN_SEEDS:
                text = f"{difference_size(setting, metric, spread)} in {SETTING_TITLES[setting]}"
                worst[method] = max(worst.get(method, (0.0, "")), (spread, text))
    return [
        f"Seeds of {results.labels[method]} differ by {text} (standard deviation): one run says little."
        for method, (_, text) in worst.items()
    ]


def _time_finding(results: Results) -> Finding:
    answer = time_answer(results)
    missing = _missing_methods(results, "binary", leading_direction(results, "binary"))
    sentences = [*answer.sentences, *answer.group_sentences]
    return Finding(answer.heading, sentences, [*answer.remarks, *missing], time_verdicts(results))


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
    names = unique_labels(results, [*rows.index])
    tested = tested_pairs(results, setting, direction, metric)
    entry = metric_of_column(metric)

    def estimate(method: str) -> IntervalEstimate:
        value = interval_estimate(rows.loc[method])
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
        return "No differences between methods were tested."
    clusters = int(tested["clusters"].min())
    if clusters >= MIN_CLUSTERS_FOR_LETTERS:
        return ""
    return (
        f"Too few queries to tell who is better: tests need {MIN_CLUSTERS_FOR_LETTERS} clusters of them, and there are "
        f"{clusters:,}."
    )


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
