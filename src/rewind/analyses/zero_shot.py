"""Zero-shot accuracy, on labelled images that no method was trained on (:mod:`rewind.evaluation.zero_shot`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.config import Dataset, Study
from rewind.config.evaluation import ZeroShot
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, write_csv
from rewind.job_values import Job, files_by_run, job_pairs
from rewind.statistics.inference import significance_level
from rewind.statistics.pairs import ACCURACY_PAIR_COLUMNS, RandomFactors, accuracy_interval, accuracy_pairs
from rewind.tables.best_method import (
    Finding,
    MethodComparison,
    best_method_remarks,
    best_method_sentences,
    interval_estimate,
    unique_labels,
)
from rewind.tables.footnotes import confidence_percent, seed_caution, table_notes
from rewind.tables.results import Difference, Results, method_difference
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, RowGroup, Table, number_cell

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    if study.evaluation.zero_shot and not study.with_towers():
        yield "evaluation.zero_shot: no method here has towers that encode prompts and images; set it to null"


def dataset_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    if study.evaluation.zero_shot and dataset.vectors:
        yield (
            f"evaluation.zero_shot: prompts and pictures need towers, but config/datasets/{dataset.name}.yaml holds "
            "vectors; remove the key"
        )


# ---- A row per run, an interval per method -------------------------------------------------------------------------


def join_zero_shot(
    runs: dict[RunKey, str], keys: ZeroShot, confidence: float, fixed: list[str], run_table: str, intervals: str
) -> dict[str, np.ndarray]:
    """Write one row per run, and one per method with its interval over seeds and images (for ``fixed``: over images).

    Returns:
        Method → credit of every image in every seed, (S, n).

    Raises:
        RewindError: if two runs classified different images.
    """
    credits_of_run, digests, alike = {}, {}, {}
    for run, path in runs.items():
        with reading_user_file(path, "npz", "run again"), np.load(path, allow_pickle=False) as archive:
            credits_of_run[run], digests[run], alike[run] = (
                archive["credits"],
                str(archive["sha256"]),
                int(archive["alike"]),
            )
    first = next(iter(digests))
    for run, sha256 in digests.items():
        if sha256 != digests[first] or len(credits_of_run[run]) != len(credits_of_run[first]):
            raise RewindError(f"{runs[first]} and {runs[run]} are of different images; delete both and run again.")
    templates = keys.templates if isinstance(keys.templates, str) else "; ".join(keys.templates)
    content = {"data": keys.data, "templates": templates, "images": len(credits_of_run[first])}
    table = [
        {"method": run[0], "seed": run[1]}
        | content
        | {"accuracy": 100 * credits.mean(), "alike": alike[run], "sha256": digests[run]}
        for run, credits in credits_of_run.items()
    ]
    write_csv(run_table, pd.DataFrame(table))
    methods = dict.fromkeys(method for method, _ in credits_of_run)
    grouped = {method: np.stack([c for (m, _), c in credits_of_run.items() if m == method]) for method in methods}
    max_alike = {method: max(count for (m, _), count in alike.items() if m == method) for method in methods}
    table = [
        {"method": m} | content | {"alike": max_alike[m]} | accuracy_interval(c, confidence, m in fixed)
        for m, c in grouped.items()
    ]
    write_csv(intervals, pd.DataFrame(table))
    return grouped


def compare(job: Job) -> None:
    """Zero-shot accuracies of all runs, intervals of methods, tests of declared pairs."""
    params, output, random = job.params, job.output, RandomFactors.of(job.params.random)
    files, keys = files_by_run(job, job.input.classified), ZeroShot(**params.settings)
    credits = join_zero_shot(files, keys, params.confidence, params.random["fixed"], output.runs, output.intervals)
    write_csv(output.pairs, accuracy_pairs(credits, job_pairs(job), params.confidence, random))


# ---- The table -----------------------------------------------------------------------------------------------------

DATA_TITLES = {"cifar10": "CIFAR-10"}


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method that has towers."""
    results = inputs.results
    rows = results.of("zero_shot")
    is_baseline = rows["method"].isin(list(results.baselines))
    groups = tuple(
        RowGroup(title, tuple(map(_zero_shot_row, part.itertuples())))
        for title, part in (("", rows[~is_baseline]), ("Baselines", rows[is_baseline]))
        if len(part)
    )
    return Table(
        "Zero-shot",
        f"{data_title(rows)}: zero-shot classification",
        f"{rows['data'].iloc[0]}-zero-shot",
        (Column("Method", number=False), Column("Accuracy", "↑")),
        groups,
    )


def _zero_shot_row(row: Any) -> tuple[Cell, ...]:
    ends = {"low": row.low, "high": row.high} if row.high > row.low else {}
    return Cell(row.label), number_cell(row.estimate, std=row.std, **ends)


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results = inputs.results
    rows = results.of("zero_shot")
    first = rows.iloc[0]
    template = f"Prompts: {first['templates']}" + (
        " (open_clip’s for ImageNet)" if first["templates"] in ("simple", "openai") else ""
    )
    trained = rows[rows["method"].isin(results.trained())]
    several = len(trained) or rows["std"].notna().any()  # towers that were pre-trained with several seeds
    spread = "Mean ± standard deviation over training seeds; in brackets" if several else "In brackets"
    procedures = "; ".join(dict.fromkeys(rows["procedure"]))
    return table_notes(
        [
            f"Accuracy in percent on {first['images']:,} test images of {data_title(rows)}, none of which were "
            "used in training; the predicted class is the one with the most similar prompts; a tie counts fractionally",
            template,
        ],
        [f"{spread} {confidence_percent(results.confidence)} intervals: {procedures}"],
        [_identical_prompts_sentence(rows)],
        [seed_caution(sorted(set(trained["seeds"]))) if len(trained) else ""],
    )


def _identical_prompts_sentence(rows: pd.DataFrame) -> str:
    """Methods whose vocabulary lacks names of classes, so that several classes have the same prompts."""
    affected = [f"{row.alike} ({row.label})" for row in rows.itertuples() if row.alike]
    if not affected:
        return ""
    listed = ", ".join(affected)
    return f"Classes whose prompts are identical to the model, because their names are not in its vocabulary: {listed}"


def data_title(rows: pd.DataFrame) -> str:
    """The name of the labelled images in the rows of the table."""
    return DATA_TITLES.get(rows["data"].iloc[0], rows["data"].iloc[0])


# ---- The answer ----------------------------------------------------------------------------------------------------


def finding(results: Results) -> Finding | None:
    """Which method classifies best."""
    if results.of("zero_shot").empty:
        return None
    rows, pairs = results.of("zero_shot").set_index("method"), results.of("zero_shot_pairs")
    names = unique_labels(results, [*rows.index])
    compared = results.compared()

    def against(best: str, other: str) -> Difference | None:
        return method_difference(pairs, names[best], names[other])

    comparison = MethodComparison(
        values={label: interval_estimate(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=significance_level(results.confidence),
        unit="%",
        points=" points",
        where=f" on {data_title(rows)}",
        aside={label: interval_estimate(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(pairs) else "No differences between methods were tested.",
    )
    data = data_title(rows)
    return Finding(f"Zero-shot accuracy on {data}", best_method_sentences(comparison), best_method_remarks(comparison))


def classified_runs(plan: Any) -> list[RunKey]:
    """Every run that has towers."""
    return list(plan.runs(plan.keys.with_towers()))


ANALYSIS = Analysis(
    applies=lambda plan: plan.keys.evaluation.zero_shot is not None,
    faults=faults,
    dataset_faults=dataset_faults,
    rules=(
        Rule(
            "zero_shot_table",
            "rewind.analyses.zero_shot:compare",
            {
                "runs": "zero_shot.csv",
                "intervals": "statistics/zero_shot.csv",
                "pairs": "statistics/zero_shot_pairs.csv",
            },
            inputs={
                "classified": lambda plan: plan.per_run("zero_shot/{method}/seed{seed}.npz", classified_runs(plan))
            },
            params={
                "runs": classified_runs,
                "settings": lambda plan: plan.keys.evaluation.zero_shot.fingerprint("run"),
                "confidence": lambda plan: plan.keys.statistics.confidence,
                "random": lambda plan: plan.keys.random_factors(),
                "pairs": lambda plan: plan.keys.pairs(),
            },
            level=20,
            grows="",
        ),
    ),
    results={
        "zero_shot": Result(
            "statistics/zero_shot.csv",
            ("method", "data", "templates", "images", "alike", "seeds", "estimate", "low", "high"),
        ),
        "zero_shot_pairs": Result("statistics/zero_shot_pairs.csv", ACCURACY_PAIR_COLUMNS),
    },
    tables=(analysis_table("zero_shot", 30, layout, notes_below),),
    finding=finding,
)
