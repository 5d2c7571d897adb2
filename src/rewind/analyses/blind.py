"""Accuracy in Binary beyond baselines that see too little to answer it (:mod:`rewind.models.blind`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.config import Dataset, Study
from rewind.io.files import write_csv
from rewind.job_values import Job, job_runs
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.chance import ALL_TIED, tied_percent
from rewind.statistics.inference import Inference, family_p_value, holm_adjusted, significance_level
from rewind.statistics.pairs import RandomFactors, compare_pair
from rewind.statistics.rank_files import ranks_folder, read_not_evaluated, read_ranks
from rewind.tables.footnotes import confidence_percent, table_notes
from rewind.tables.notes import key_text
from rewind.tables.results import Results, evaluated_directions
from rewind.tables.settings import metric_decimals, setting_title
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, RowGroup, Table, number_cell, slug

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    for name in study.blind_methods():
        model = study.methods[name].model
        if "binary" not in study.evaluation.settings:
            yield f"methods.{name}.model: {model} is evaluated in binary; add it to evaluation.settings"
        if study.methods[name].noise:
            yield f"methods.{name}.noise: {model} has nothing to find in noise; remove the key"


def dataset_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    for name in study.blind_methods():
        if dataset.vectors and study.methods[name].model != "caption_only":
            yield (
                f"methods.{name}.model: {study.methods[name].model} looks at frames, but "
                f"config/datasets/{dataset.name}.yaml holds vectors; remove the method"
            )


# ---- The test ------------------------------------------------------------------------------------------------------

BLIND_COLUMNS = (
    *("method", "best", "setting", "direction", "metric", "estimate", "blind", "difference", "low", "low_of", "high"),
    *("p", "p_of", "p_holm", "family", "procedure", "clusters", "df"),
)


def blind_table(
    runs: RunRanks,
    blind: Sequence[str],
    compared: Sequence[str],
    confidence: float,
    random: RandomFactors,
    left_out: NotEvaluated | None = None,
) -> pd.DataFrame:
    """Whether each method is more accurate than every blind baseline.

    A method beats the best of several baselines if and only if it beats each of them, so its p-value is the largest of
    those against each (an intersection-union test: Berger, 1982). Nothing has to be chosen on the test split, and
    baselines that are added can only make it harder. Holm's correction runs over the methods.

    Args:
        runs: rank tables of all runs; settings other than Binary are ignored.
        blind: names of the baselines.
        compared: names of the methods that are tested.
        confidence: of the intervals, which are not adjusted.
        random: which factors are random.
        left_out: where methods were deliberately not evaluated.

    Returns:
        Columns :data:`BLIND_COLUMNS`, one row per method and direction. ``best`` is the baseline with the highest
        accuracy there, ``blind`` its accuracy, and ``difference`` what the method has more. The interval is that of
        what it has more than the truly best of them, over all baselines, as the test is; ``low_of`` and ``p_of`` are
        the baselines that decide its lower end and p. Methods that tie every query in every run are not tested.
    """
    rows = []
    for block in rank_blocks(_in_binary(runs), left_out):
        baselines = [name for name in blind if name in block.higher]
        methods = [name for name in compared if name in block.higher and baselines]
        # A method that ties every query in every run is not tested, so it is not in the family, as in the test against
        # chance.
        family = [name for name in methods if tied_percent(block, name) < ALL_TIED]
        found = {name: _beyond(block, name, baselines, confidence, random, len(family)) for name in methods}
        adjusted = dict(zip(family, holm_adjusted(np.array([found[name][1] for name in family])), strict=True))
        for name, (row, _) in found.items():
            p = {"p_holm": adjusted[name]} if name in adjusted else {"p": np.nan, "p_holm": np.nan}
            rows.append(row | p | {"family": len(family)})
    return pd.DataFrame(rows, columns=list(BLIND_COLUMNS))


def _in_binary(runs: RunRanks) -> RunRanks:
    binary = {m: {s: table[table["setting"] == "binary"] for s, table in seeds.items()} for m, seeds in runs.items()}
    return {method: seeds for method, seeds in binary.items() if all(len(table) for table in seeds.values())}


def _beyond(
    block: RankBlock,
    method: str,
    baselines: Sequence[str],
    confidence: float,
    random: RandomFactors,
    family: int,
) -> tuple[dict[str, object], float]:
    """A method's row, and its p-value as one of a family of tests."""
    totals = {name: block.totals(name, (ACCURACY_METRIC,))[0] for name in (method, *baselines)}
    estimates = {name: float(total.mean(axis=0).sum() / len(block.queries)) for name, total in totals.items()}

    def compare(baseline: str, confidence: float) -> tuple[Inference, str]:
        return compare_pair(totals, (method, baseline), block.clusters.sizes, confidence, random, 100.0)

    results = {name: compare(name, confidence)[0] for name in baselines}
    # A method's lead over the *best* baseline is the smallest of its differences, so the interval of the lead reaches
    # from the smallest lower end to the smallest upper end. The lower end holds at α, since it must err for the one
    # baseline that is truly best; any of B upper ends may be the smallest, so each has the level α/B.
    lowest = min(baselines, key=lambda name: float(results[name].low))
    high = min(float(compare(name, 1 - (1 - confidence) / len(baselines))[0].high) for name in baselines)
    # Two-sided p-values, as everywhere; a method that is not above a baseline is not shown to be.
    p, family_p = (
        {name: float(value(result)) if result.estimate > 0 else 1.0 for name, result in results.items()}
        for value in (lambda result: result.p, lambda result: family_p_value(result, family))
    )
    # A baseline against which there is no p-value decides: the method is not shown to beat it.
    closest = max(baselines, key=lambda name: np.nan_to_num(p[name], nan=np.inf))
    _, procedure = compare(closest, confidence)
    best = max(baselines, key=estimates.__getitem__)
    return {
        "method": method,
        "best": best,
        "setting": block.setting,
        "direction": block.direction,
        "metric": ACCURACY_METRIC,
        "estimate": estimates[method],
        "blind": estimates[best],
        "difference": float(results[best].estimate),
        "low": float(results[lowest].low),
        "low_of": lowest,
        "high": high,
        "p": p[closest],  # NaN where one of them is: a trained method with one seed cannot claim anything
        "p_of": closest,
        "procedure": procedure,
        "clusters": len(block.clusters.sizes),
        "df": float(results[closest].df),
    }, float(np.max([*family_p.values()]))  # NaN if one is; max() would depend on the order


def compare(job: Job) -> None:
    """What every method's accuracy in Binary is beyond that of baselines which see too little to answer it."""
    params, runs, folder = job.params, job_runs(job), ranks_folder(job.input.ranks)
    tables, left_out = read_ranks(runs, folder), read_not_evaluated(runs, folder)
    random = RandomFactors.of(params.random)
    table = blind_table(tables, params.blind, params.compared, params.confidence, random, left_out)
    write_csv(job.output[0], table)


# ---- The table -----------------------------------------------------------------------------------------------------

BLIND_EXPLANATION = (
    "Blind baselines see only the captions, only the clips, both but not together, one frame, or artefacts of each clip"
)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method: its accuracy, the best blind baseline, and the difference."""
    results, dataset = inputs.results, inputs.dataset
    rows, digits = results.of("blind"), metric_decimals(ACCURACY_METRIC)
    directions = [
        direction for direction in evaluated_directions(results, "binary") if direction in set(rows["direction"])
    ]
    groups = []
    for direction in directions:
        here = rows[rows["direction"] == direction]
        lines = tuple(_blind_line(row, results, digits) for row in here.itertuples())
        groups.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    columns = (
        Column("Method", number=False),
        Column("accuracy", "↑"),
        Column("best blind baseline", number=False),
        Column("its accuracy"),
        Column("beyond it"),
    )
    return Table(
        "Beyond",
        f"{setting_title(dataset, 'binary')}: accuracy beyond what words and pictures give separately",
        slug(dataset, "binary", "blind"),
        columns,
        tuple(groups),
        key_text([*_beyond_sentences(results), _marked_sentence(results, "*")]),
    )


def _beyond_sentences(results: Results) -> list[str]:
    """What the interval is, and which baselines decide it where that is not the one in the table."""
    rows, percent = results.of("blind"), confidence_percent(results.confidence)
    if "low_of" not in rows:  # written before intervals were over all baselines
        return [f"In brackets {percent} intervals of the difference to the best one, not adjusted"]
    several = rows["direction"].nunique() > 1
    others = [
        f"{row.label}{f' ({results.short(row.direction)})' * several}: lower end by {results.labels[row.low_of]}, p by "
        f"{results.labels[row.p_of]}"
        for row in rows.itertuples()
        if row.p == row.p and {row.low_of, row.p_of} != {row.best}
    ]
    return [
        f"In brackets {percent} intervals of a method’s lead over the best of all baselines, whichever that truly "
        "is; not adjusted for several methods",
        f"Decided by another baseline: {'; '.join(others)}" if others else "",
    ]


def _marked_sentence(results: Results, mark: str) -> str:
    counts = sorted(set(results.of("blind")["family"].astype(int)))
    return (
        f"{mark}: more accurate than every blind baseline, by the largest of the p-values against each "
        f"(intersection-union test), after Holm’s correction over {' and '.join(map(str, counts))} methods"
    )


def _blind_line(row: Any, results: Results, digits: int) -> tuple[Cell, ...]:
    significant = bool(row.p_holm < significance_level(results.confidence) and row.difference > 0)
    return (
        Cell(row.label),
        number_cell(row.estimate, digits),
        Cell(results.labels[row.best]),
        number_cell(row.blind, digits),
        number_cell(row.difference, digits, low=row.low, high=row.high, signed=True, bold=significant),
    )


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    return table_notes(
        [f"{BLIND_EXPLANATION}; they are fitted on the training split and chosen on validation"],
        _beyond_sentences(inputs.results),
        [_marked_sentence(inputs.results, "Bold")],
    )


ANALYSIS = Analysis(
    applies=lambda plan: bool(plan.keys.blind_methods()),
    faults=faults,
    dataset_faults=dataset_faults,
    rules=(
        Rule(
            "blind_table",
            "rewind.analyses.blind:compare",
            {"": "statistics/blind.csv"},
            inputs={"ranks": lambda plan: plan.rank_files(), "said": lambda plan: plan.run_metrics()},
            params={
                "runs": lambda plan: plan.runs(),
                "blind": lambda plan: plan.keys.blind_methods(),
                "compared": lambda plan: plan.keys.compared_methods(),
                "confidence": lambda plan: plan.keys.statistics.confidence,
                "random": lambda plan: plan.keys.random_factors(),
            },
            own_metrics=True,
        ),
    ),
    results={"blind": Result("statistics/blind.csv", BLIND_COLUMNS)},
    tables=(analysis_table("blind", 40, layout, notes_below),),
)
