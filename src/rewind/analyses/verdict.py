"""The verdict: which methods win over a baseline, with its table and notes.

A win needs one metric in one search direction with a gain in every seed and a significant mean gain, an affordable
training step and, where the study has a control, a gap that is smaller there. The table also shows what the original
study expects of a win without requiring it: better zero-shot accuracy and a smaller spread over seeds. A study can make
either a requirement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.config import Study
from rewind.config.report import CLAIMED_METRICS, Verdict
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import write_csv
from rewind.job_values import Job, job_runs
from rewind.statistics.comparisons import SHRINKAGE_COLUMNS, gap_shrinkage
from rewind.statistics.inference import significance_level
from rewind.statistics.pairs import spread_ratio
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.tables.best_method import Finding, holm_p_text
from rewind.tables.footnotes import confidence_percent, pair_count, seed_caution, table_notes
from rewind.tables.notes import direction_names_sentence
from rewind.tables.results import Results, check_results, evaluated_directions, first_matching_row, method_difference
from rewind.tables.settings import SETTING_TITLES, setting_title
from rewind.tables.spec import TableInputs
from rewind.tables.table import (
    Cell,
    Column,
    RowGroup,
    Table,
    format_bounds,
    format_number,
    format_p_value,
    number_cell,
    p_value_cell,
    slug,
)

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    verdict = study.tables.verdict
    if verdict is None:
        return
    if "zero_shot" in verdict.requires and study.evaluation.zero_shot is None:
        yield "tables.verdict.requires: zero_shot: evaluation.zero_shot names no labelled images"
    seeds = {name: study.seeds_of(name) for name in study.methods}
    compute = {name: method.training.compute() for name, method in study.methods.items()}
    yield from verdict.faults(study.trained(), seeds, study.pairs(), study.evaluation.settings, compute)


# ---- The control: gaps between methods next to those between their counterparts ------------------------------------


def controlled_runs(plan: Any) -> list[RunKey]:
    """Runs of the verdict's methods and of their counterparts."""
    control = plan.keys.tables.verdict.control
    methods = [*plan.timed_methods(), *(control.values() if control else ())]
    return [run for run in plan.runs() if run[0] in methods]


def compare(job: Job) -> None:
    """How much smaller gaps to the baseline are between the methods' counterparts."""
    params, keys = job.params, Verdict(**job.params.verdict)
    tables = read_ranks(job_runs(job), ranks_folder(job.input.ranks))
    gaps = gap_shrinkage(tables, keys.baseline, keys.methods, keys.control, params.setting, params.confidence)
    write_csv(job.output[0], gaps)


# ---- Judging methods -----------------------------------------------------------------------------------------------

SIDES = ("first", "second")


@dataclass(frozen=True)
class Claim:
    """One metric in one search direction, method − baseline, in percentage points.

    Attributes:
        direction, metric: which.
        gains: seed → gain.
        difference, low, high: mean gain and its interval.
        p_holm: of the difference.
        shrinkage, shrinkage_low, shrinkage_high: how much larger the gap is than in the control; NaN without one.
        level: p-values below it are significant.
        spread, spread_low, spread_high: standard deviation over seeds divided by the baseline's, and its interval.

    Example:
        >>> nan = math.nan
        >>> claim = Claim(
        ...     "text_to_item", "R@1", gains={0: 1.5, 1: 0.5}, difference=1.0, low=0.2, high=1.8, p_holm=0.01,
        ...     shrinkage=nan, shrinkage_low=nan, shrinkage_high=nan, level=0.05,
        ...     spread=0.8, spread_low=0.1, spread_high=6.0,
        ... )
        >>> claim.every_seed, claim.significant, claim.steadier, claim.holds
        (True, True, False, True)
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
        """Whether the gap is significantly smaller in the control; true without a control."""
        return math.isnan(self.shrinkage) or bool(self.shrinkage_low > 0)

    @property
    def steadier(self) -> bool:
        """Whether the spread over seeds is significantly smaller than the baseline's."""
        return bool(self.spread_high < 1)  # false for NaN: one seed shows no spread

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
class MethodVerdict:
    """A method's verdict.

    Attributes:
        method: which.
        claims: of every metric and direction.
        best: the claim that the verdict rests on.
        ratio, ratio_low, ratio_high: step time as a multiple of the baseline's, and its quartiles over rounds.
        limit: the largest ratio that is tolerated.
        reasons: what a win lacks; empty for a win.
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


def judge_methods(results: Results) -> list[MethodVerdict]:
    """The verdict on every method that the study names, in its order.

    All conditions must hold for the same claim: a gain in one metric and significance in another are not a win.

    Raises:
        RewindError: for numbers that are missing; see also :func:`rewind.tables.results.check_results`.
    """
    keys = verdict_keys(results)
    setting = verdict_setting(results)
    check_results(results, setting)
    return [_judge_method(results, keys, method, setting) for method in keys.methods]


def verdict_keys(results: Results) -> Verdict:
    """The study's key ``verdict``; only studies that have it get here."""
    assert results.verdict is not None
    return results.verdict


def verdict_setting(results: Results) -> str:
    """The setting that decides."""
    return verdict_keys(results).where(list(dict.fromkeys(results.metrics["setting"])))


def _judge_method(results: Results, keys: Verdict, method: str, setting: str) -> MethodVerdict:
    claims = tuple(
        _make_claim(results, keys, method, setting, direction, metric)
        for direction in evaluated_directions(results, setting)
        for metric in CLAIMED_METRICS
    )
    best = max(claims, key=_strength)
    ratio, low, high = _step_time_ratio(results, method)
    limit, zero_shot = 1 + keys.max_slowdown, _zero_shot_gain(results, method, keys.baseline)
    reasons = [*_missing_conditions(best, ratio, limit), *_missing_requirements(keys, best, zero_shot)]
    return MethodVerdict(method, claims, best, ratio, low, high, limit, tuple(reasons), zero_shot)


def _strength(claim: Claim) -> tuple[Any, ...]:
    """Claims that hold in more respects are stronger, then those whose worst seed gains more."""
    surely_gains = claim.every_seed and claim.significant
    return claim.holds, surely_gains, claim.every_seed, claim.significant, min(claim.gains.values())


def _missing_conditions(best: Claim, ratio: float, limit: float) -> list[str]:
    reasons = []
    if not best.every_seed:
        without_gain = sum(gain <= 0 for gain in best.gains.values())
        reasons.append(f"no gain in {without_gain} of {len(best.gains)} seeds")
    if not best.significant:
        p = _holm_p_text(best.p_holm)
        reasons.append(f"not significant ({p})" if best.difference >= 0 else f"worse on average ({p})")
    if not ratio <= limit:  # NaN too
        digits = 2 if round(ratio, 2) > limit else 4  # never "1.10 times as long, 1.10 is allowed"
        reasons.append(f"too slow (a step takes {ratio:.{digits}f} times as long, {limit:.{digits}f} is allowed)")
    if not best.controlled:
        ends = f"[{format_number(best.shrinkage_low, 1, True)}, {format_number(best.shrinkage_high, 1, True)}]"
        change = "has not been shown to shrink" if best.shrinkage_high > 0 else "grows"
        reasons.append(
            f"its gap {change} in the control (it shrinks by {format_number(best.shrinkage, 1, True)} {ends})"
        )
    return reasons


def _missing_requirements(keys: Verdict, best: Claim, zero_shot: ZeroShotGain | None) -> list[str]:
    """What is missing of the further requirements that this study makes."""
    reasons = []
    if "zero_shot" in keys.requires and not (zero_shot and zero_shot.significant):
        gain = zero_shot and f" ({format_number(zero_shot.difference, 2, True)}, {_holm_p_text(zero_shot.p_holm)})"
        reasons.append(f"no significant gain in zero-shot accuracy{gain or ''}")
    if "spread" in keys.requires and not best.steadier:
        ends = f"[{format_number(best.spread_low, 2)}, {format_number(best.spread_high, 2)}]"
        reasons.append(f"its seeds have not been shown to differ less (ratio {format_number(best.spread, 2)} {ends})")
    return reasons


def _holm_p_text(p_holm: float) -> str:
    return "no p-value" if math.isnan(p_holm) else f"Holm’s p {format_p_value(p_holm)}"


def _zero_shot_gain(results: Results, method: str, baseline: str) -> ZeroShotGain | None:
    if results.of("zero_shot_pairs").empty:
        return None
    difference, low, high, p = _pair_difference(results.of("zero_shot_pairs"), "zero_shot_pairs.csv", method, baseline)
    return ZeroShotGain(difference, low, high, p, significance_level(results.confidence))


def _make_claim(results: Results, keys: Verdict, method: str, setting: str, direction: str, metric: str) -> Claim:
    scores = _metric_by_seed(results, method, setting, direction, metric)
    baseline_scores = _metric_by_seed(results, keys.baseline, setting, direction, metric)
    key = {"setting": setting, "direction": direction, "metric": metric}
    difference = _pair_difference(results.pairs, "pairs.csv", method, keys.baseline, **key)
    control = _control_shrinkage(results, method, setting, direction, metric) if keys.control else (np.nan,) * 3
    gains = {int(seed): float(scores[seed] - baseline_scores[seed]) for seed in baseline_scores.index}
    level = significance_level(results.confidence)
    spread = spread_ratio(scores, baseline_scores, results.confidence)
    return Claim(direction, metric, gains, *difference, *control, level, *spread)


def _metric_by_seed(results: Results, method: str, setting: str, direction: str, metric: str) -> pd.Series:
    return results.runs[method, setting, direction].set_index("seed")[metric].astype(float)


def _pair_difference(
    table: pd.DataFrame, name: str, method: str, baseline: str, **key: str
) -> tuple[float, float, float, float]:
    """Difference, low, high and Holm's p of method − baseline, whichever stands first in the file."""
    difference = method_difference(table, method, baseline, **key)
    if difference:
        return difference[:4]
    where = f" in {', '.join(key.values())}" if key else ""
    raise RewindError(
        f"{name}: no row of {method!r} and {baseline!r}{where}; declare the pair in statistics.pairs and run the "
        "statistics again."
    )


def _control_shrinkage(
    results: Results, method: str, setting: str, direction: str, metric: str
) -> tuple[float, float, float]:
    row = first_matching_row(results.of("control"), method=method, setting=setting, direction=direction, metric=metric)
    if row is None:
        raise RewindError(
            f"statistics/control.csv: no row of {method!r}, {direction}, {metric}; run the statistics again."
        )
    return float(row["shrinkage"]), float(row["low"]), float(row["high"])


def _step_time_ratio(results: Results, method: str) -> tuple[float, float, float]:
    row = first_matching_row(results.of("step_time"), method=method)
    if row is None:
        raise RewindError(f"step_time.csv: no row of {method!r}; time the steps again.")
    return float(row["ratio"]), float(row["ratio_low"]), float(row["ratio_high"])


# ---- Notes: what a win is, and why a method has none ---------------------------------------------------------------


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The notes of the table."""
    facts, results = inputs.facts, inputs.results
    keys = verdict_keys(results)
    several = len(evaluated_directions(results, verdict_setting(results))) > 1
    baseline = results.labels[keys.baseline]
    family = f" over {pair_count(facts.family)}" if facts.family else ""
    seeds = sorted({len(results.seeds[name]) for name in (keys.baseline, *keys.methods) if name in results.seeds})
    return table_notes(
        verdict_outcomes(results),
        [
            f"A method wins over {baseline} if, for {' or '.join(CLAIMED_METRICS)} in one search direction of "
            f"{SETTING_TITLES[verdict_setting(results)]}, every seed gains, the mean gain is significant (p < "
            f"{1 - results.confidence:.3g} after Holm’s correction{family}), {_other_conditions(keys)}",
            "The row shows the metric that comes closest to a win; bold: this condition holds; all are in the CSV file",
        ],
        [
            f"Gains: method minus {baseline} with the same seed, in percentage points; in brackets "
            f"{confidence_percent(results.confidence)} intervals",
            direction_names_sentence(facts, evaluated_directions(results, verdict_setting(results))) if several else "",
            _step_time_sentence(results),
            _control_sentence(results),
        ],
        [_expected_sentence(results)],
        [seed_caution(seeds)],
    )


def verdict_outcomes(results: Results) -> list[str]:
    """The verdict on each method in a sentence."""
    several = len(evaluated_directions(results, verdict_setting(results))) > 1
    return [_verdict_outcome(results, judged, several) for judged in judge_methods(results)]


def _verdict_outcome(results: Results, judged: MethodVerdict, several: bool) -> str:
    label, claim = results.labels[judged.method], claim_name(results, judged.best, several)
    if judged.win:
        return f"{label}: a win, in {claim}."
    return f"{label}: no win; in {claim}, which comes closest: {', '.join(judged.reasons)}."


def _other_conditions(keys: Verdict) -> str:
    step = f"a training step takes at most {1 + keys.max_slowdown:.2f} times as long"
    requirements = {
        "zero_shot": "zero-shot accuracy gains significantly",
        "spread": "its seeds certainly differ less than the baseline’s",
    }
    conditions = [step, *["the control holds"] * bool(keys.control), *(requirements[name] for name in keys.requires)]
    return f"{', '.join(conditions[:-1])}, and {conditions[-1]}" if len(conditions) > 1 else f"and {step}"


def _expected_sentence(results: Results) -> str:
    """What is in the last columns."""
    keys = verdict_keys(results)
    baseline = results.labels[keys.baseline]
    zero_shot = ""
    if not results.of("zero_shot_pairs").empty:
        family = int(results.of("zero_shot_pairs")["family"].iloc[0])
        zero_shot = (
            f"gain in zero-shot accuracy over {baseline}, in percentage points, paired over the images (bold: Holm’s p "
            f"over {pair_count(family)} is below {1 - results.confidence:.3g}); "
        )
    return (
        f"Expected too: {zero_shot}standard deviation over seeds of the metric in the row, divided by that of "
        f"{baseline}, with the interval of Fisher’s F, which a few seeds leave wide (bold: all of it is below 1). "
        + ("What is required of them is named above" if keys.requires else "Neither is needed for a win")
    )


def _step_time_sentence(results: Results) -> str:
    row, baseline = results.of("step_time").iloc[0], results.labels[verdict_keys(results).baseline]
    return (
        f"Step time: the time of a training step divided by that of {baseline} on the "
        f"same batch of {int(row['batch'])}, measured in turn in one process ({row['device']}); median over "
        f"{int(row['rounds'])} rounds, in brackets the quartiles"
    )


def _control_sentence(results: Results) -> str:
    keys = verdict_keys(results)
    if not keys.control:
        return ""
    names = results.labels
    pairs = "; ".join(f"{names[keys.control[m]]} − {names[keys.control[keys.baseline]]}" for m in keys.methods)
    return (
        f"Control: how much larger the gain over {names[keys.baseline]} is than the gain of the counterparts "
        f"({pairs}); the condition holds if the whole interval is above 0"
    )


# ---- Table: what each method gains over the baseline, how surely and at what cost ----------------------------------


def verdict_csv_rows(results: Results) -> pd.DataFrame:
    """The table's CSV: one row per method, search direction and metric, with the method's verdict in each.

    ``gain_seed<k>``, ``difference``, ``shrinkage`` and ``zero_shot`` (where images are classified) are in percentage
    points, ``spread`` is a ratio of standard deviations over seeds; ``every_seed``, ``significant``, ``affordable``,
    ``controlled``, ``holds`` (all of these) and ``win`` (of the method) are 1 or 0.
    """
    rows, baseline = [], verdict_keys(results).baseline
    for judged in judge_methods(results):
        for claim in judged.claims:
            rows.append(
                {"method": judged.method, "label": results.labels[judged.method], "baseline": baseline}
                | {"setting": verdict_setting(results), "direction": claim.direction, "metric": claim.metric}
                | {f"gain_seed{seed}": gain for seed, gain in claim.gains.items()}
                | {"every_seed": int(claim.every_seed)}
                | {"difference": claim.difference, "low": claim.low, "high": claim.high}
                | {"p_holm": claim.p_holm, "significant": int(claim.significant)}
                | {"step_time_ratio": judged.ratio, "affordable": int(judged.affordable)}
                | {"shrinkage": claim.shrinkage, "shrinkage_low": claim.shrinkage_low}
                | {"shrinkage_high": claim.shrinkage_high, "controlled": int(claim.controlled)}
                | {"spread": claim.spread, "spread_low": claim.spread_low, "spread_high": claim.spread_high}
                | _zero_shot_csv_columns(judged.zero_shot)
                | {"holds": int(claim.holds and judged.affordable)}
                | {"win": int(judged.win), "reasons": "; ".join(judged.reasons)}
            )
    return pd.DataFrame(rows)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method, with the claim that its verdict rests on."""
    results, dataset = inputs.results, inputs.dataset
    keys, setting, verdicts = verdict_keys(results), verdict_setting(results), judge_methods(results)
    seeds = list(verdicts[0].best.gains)
    several = len(evaluated_directions(results, setting)) > 1
    control = [Column("Gap shrinks by", group="Control")] if keys.control else []
    columns = (
        Column("Method", number=False),
        Column("Win", number=False),
        Column("By", number=False),
        *(Column(str(seed), group="Gain, seed") for seed in seeds),
        Column("Mean gain"),
        Column("Holm’s p"),
        Column("Step time"),
        *control,
        *([] if verdicts[0].zero_shot is None else [Column("Zero-shot gain", group="Expected too")]),
        Column("Spread over seeds", group="Expected too"),
    )
    lines = tuple(_method_row(results, judged, several) for judged in verdicts)
    title = f"{setting_title(dataset, setting)}: who wins over {results.labels[keys.baseline]}"
    key = "\n".join(verdict_outcomes(results))
    return Table("Verdict", title, slug(dataset, setting, "verdict"), columns, (RowGroup("", lines),), key=key)


def claim_name(results: Results, claim: Claim, several: bool) -> str:
    """``T2V R@5``, or the metric alone where there is one search direction."""
    return f"{results.short(claim.direction)} {claim.metric}" if several else claim.metric


def _method_row(results: Results, judged: MethodVerdict, several: bool) -> tuple[Cell, ...]:
    best = judged.best
    shrinkage = number_cell(
        best.shrinkage, low=best.shrinkage_low, high=best.shrinkage_high, signed=True, bold=best.controlled
    )
    return (
        Cell(results.labels[judged.method]),
        Cell("yes" if judged.win else "no"),
        Cell(claim_name(results, best, several)),
        *(number_cell(gain, signed=True, bold=gain > 0) for gain in best.gains.values()),
        number_cell(best.difference, low=best.low, high=best.high, signed=True),
        p_value_cell(best.p_holm, bold=best.significant),
        number_cell(judged.ratio, 2, low=judged.ratio_low, high=judged.ratio_high, bold=judged.affordable),
        *([shrinkage] if verdict_keys(results).control else []),
        *([] if judged.zero_shot is None else [_zero_shot_cell(judged.zero_shot)]),
        number_cell(best.spread, 2, low=best.spread_low, high=best.spread_high, bold=best.steadier),
    )


def _zero_shot_cell(gain: ZeroShotGain) -> Cell:
    return number_cell(gain.difference, 2, low=gain.low, high=gain.high, signed=True, bold=gain.significant)


def _zero_shot_csv_columns(gain: ZeroShotGain | None) -> dict[str, float]:
    if gain is None:
        return {}
    ends = {"zero_shot_low": gain.low, "zero_shot_high": gain.high, "zero_shot_p_holm": gain.p_holm}
    return {"zero_shot": gain.difference} | ends


# ---- The answer ----------------------------------------------------------------------------------------------------


def finding(results: Results) -> Finding | None:
    """Who wins: the whole answer of a study that has a verdict."""
    if results.verdict is None:
        return None
    two_directions = len(evaluated_directions(results, verdict_setting(results))) > 1
    sentences = [
        f"{outcome} {_gain_sentence(results, judged)}."
        for outcome, judged in zip(verdict_outcomes(results), judge_methods(results), strict=True)
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


ANALYSIS = Analysis(
    applies=lambda plan: plan.keys.tables.verdict is not None,
    rules=(
        Rule(
            "control",
            "rewind.analyses.verdict:compare",
            {"": "statistics/control.csv"},
            inputs={"ranks": lambda plan: plan.rank_files()},
            params={
                "runs": controlled_runs,
                "verdict": lambda plan: plan.keys.tables.verdict.fingerprint("statistics"),
                "setting": lambda plan: plan.keys.tables.verdict.where(plan.keys.evaluation.settings),
                "confidence": lambda plan: plan.keys.statistics.confidence,
            },
            applies=lambda plan: bool(plan.keys.tables.verdict.control),
            own_metrics=True,
        ),
    ),
    results={
        # Of the rule step_time, which trains.
        "step_time": Result(
            "step_time.csv", ("method", "batch", "device", "rounds", "ratio", "ratio_low", "ratio_high")
        ),
        "control": Result(
            "statistics/control.csv", SHRINKAGE_COLUMNS, applies=lambda plan: bool(plan.keys.tables.verdict.control)
        ),
    },
    tables=(
        replace(
            analysis_table("verdict", 10, layout, notes_below),
            needs="results.verdict",
            data=lambda inputs, _: verdict_csv_rows(inputs.results),
        ),
    ),
    faults=faults,
    finding=finding,
    decides=True,
)
