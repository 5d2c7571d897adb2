"""Groups of captions: the deciding metric of every method in each, and in Binary whether it is above chance there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, picture_rule
from rewind.config import Study
from rewind.config.report import SEARCH_DIRECTIONS
from rewind.data.captions import load_split
from rewind.io.files import read_csv, write_csv
from rewind.job_values import Job, job_runs
from rewind.ranking_metrics import METRICS, metric_of_column
from rewind.statistics import labels
from rewind.statistics.blocks import NotEvaluated, RankBlock, RunRanks, rank_blocks
from rewind.statistics.chance import ALL_TIED, MIN_TESTED_CLUSTERS, against_chance, tied_percent
from rewind.statistics.inference import Inference, family_adjusted, mean_inference, significance_level
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_not_evaluated, read_ranks
from rewind.statistics.variance import Clusters, variance_components
from rewind.tables import notes, short_notes
from rewind.tables.footnotes import Footnotes, confidence_percent, seed_caution, table_notes
from rewind.tables.results import (
    ABOVE_CHANCE,
    BELOW_CHANCE,
    Results,
    chance_mark,
    direction_groups,
    shown_directions,
)
from rewind.tables.settings import metric_decimals, setting_title
from rewind.tables.spec import TableInputs, TableSpec
from rewind.tables.table import Cell, Column, Table, count_cell, number_cell, slug

# ---- Results in each group -----------------------------------------------------------------------------------------

GROUP_RESULT_COLUMNS = (
    *("setting", "direction", "group", "method", "metric", "seeds", "queries", "clusters", "estimate", "low", "high"),
    *("p", "p_holm", "family", "procedure", "tied"),
)
_UNTESTED = {"p": np.nan, "p_holm": np.nan, "family": 0}


def results_by_group(
    runs: RunRanks,
    groups: Mapping[str, str],
    deciding: Mapping[str, str],
    confidence: float,
    random: RandomFactors,
    compared: Collection[str],
    left_out: NotEvaluated | None = None,
) -> pd.DataFrame:
    """The deciding metric of every method in every group.

    Only Binary has a test: accuracy against 50%, two-sided, with the standard error under chance, so that it inverts
    the interval (:func:`~rewind.statistics.chance.against_chance`). Holm's correction runs over all compared methods
    and all groups with ``MIN_TESTED_CLUSTERS`` clusters or more, per search direction. ``tied`` is the percentage of
    queries that tie with the twin, over all runs; it is empty outside of Binary.

    Args:
        runs: rank tables.
        groups: query → its group; queries that are absent are in no group.
        deciding: setting → its metric.
        confidence: of the intervals, which are not adjusted for the number of groups.
        random: which methods are fixed models or exact.
        compared: methods that are tested; others are baselines.
        left_out: where methods were deliberately not evaluated.

    Returns:
        Columns :data:`GROUP_RESULT_COLUMNS`: a row per setting, direction, group and method, groups sorted by name.
        Settings in which no query has a group have no rows.
    """
    rows: list[dict[str, Any]] = []
    for block in rank_blocks(runs, left_out):
        group_of_query = np.array([groups.get(query, "") for query in block.queries], dtype=object)
        group_rows = [
            _group_row(
                _select_queries(block, group_of_query == group),
                group,
                method,
                deciding[block.setting],
                confidence,
                random,
            )
            for group in sorted(set(group_of_query) - {""})
            for method in block.higher
        ]
        rows += (
            _holm_corrected(group_rows, compared)
            if block.setting == "binary"
            else [row | _UNTESTED for row, _ in group_rows]
        )
    return pd.DataFrame(rows, columns=list(GROUP_RESULT_COLUMNS))


def _select_queries(block: RankBlock, selected: np.ndarray) -> RankBlock:
    """A block of the queries where the mask (Q,) is true; they search the same gallery."""
    # Cluster number of each query, from the queries in the order of clusters.
    clusters = np.empty(len(block.queries), int)
    clusters[block.clusters.order] = np.repeat(np.arange(len(block.clusters.sizes)), block.clusters.sizes)
    higher, ties = ({m: ranks[:, selected] for m, ranks in counts.items()} for counts in (block.higher, block.ties))
    queries = block.queries[selected]
    return RankBlock(
        block.setting,
        block.direction,
        queries,
        Clusters.of(clusters[selected]),  # without those that have no query in the group
        higher,
        ties,
        block.gallery,
        block.constant,
    )


def _group_row(
    block: RankBlock, group: str, method: str, metric: str, confidence: float, random: RandomFactors
) -> tuple[dict[str, Any], Inference]:
    fixed, sizes = method in random.fixed, block.clusters.sizes
    components = variance_components(block.totals(method, (metric,))[0], sizes, fixed)
    least, most = METRICS[metric].range(block.gallery)
    result = mean_inference(components, confidence, METRICS[metric].skewed, least, most)
    exact = method in random.exact | block.constant  # computed, not estimated: no error
    estimate = float(result.estimate)
    is_binary = block.setting == "binary"
    if is_binary:
        result = against_chance(result, len(sizes))
    row = {
        **{"setting": block.setting, "direction": block.direction, "group": group, "method": method},
        **{"metric": metric, "seeds": len(block.higher[method]), "queries": len(block.queries)},
        **{"clusters": len(sizes), "estimate": estimate, "p": float(result.p) if is_binary and not exact else np.nan},
        "low": estimate if exact else float(result.low),
        "high": estimate if exact else float(result.high),
        "procedure": labels.method(len(block.higher[method]), METRICS[metric].skewed, fixed),
        "tied": tied_percent(block, method) if is_binary else np.nan,
    }
    return row, result


def _holm_corrected(rows: list[tuple[dict[str, Any], Inference]], compared: Collection[str]) -> list[dict[str, Any]]:
    tested = [row["method"] in compared and row["clusters"] >= MIN_TESTED_CLUSTERS for row, _ in rows]
    family = [result for (_, result), is_tested in zip(rows, tested, strict=True) if is_tested]
    adjusted = iter(family_adjusted(family).tolist())
    return [
        row | ({"p_holm": next(adjusted), "family": len(family)} if is_tested else _UNTESTED)
        for (row, _), is_tested in zip(rows, tested, strict=True)
    ]


def compare(job: Job) -> None:
    """Results of every method in every group of test captions."""
    params, runs, ranks = job.params, job_runs(job), ranks_folder(job.input.ranks)
    captions = load_split(Path(job.input.item_table).parent, params.dataset, "test").captions
    groups = group_of_queries(read_csv(job.input.groups, ("group",)), captions)
    keys = dict(params.deciding), params.confidence, RandomFactors.of(params.random), list(params.compared)
    table = results_by_group(read_ranks(runs, ranks), groups, *keys, read_not_evaluated(runs, ranks))
    write_csv(job.output[0], table)


def group_of_queries(group_table: pd.DataFrame, captions: pd.DataFrame) -> dict[str, str]:
    """Query → group: of a caption its own, of an item that of its captions, where all of them have the same.

    >>> captions = pd.DataFrame({"caption_id": ["c1", "c2", "c3"], "video_id": ["a", "b", "b"]})
    >>> group_of_queries(pd.DataFrame({"caption_id": ["c1", "c2", "c3"], "group": ["x", "x", "y"]}), captions)
    {'c1': 'x', 'c2': 'x', 'c3': 'y', 'a': 'x'}
    """
    group_of_caption = dict(zip(group_table["caption_id"], group_table["group"], strict=True))
    groups_by_item = captions.assign(group=captions["caption_id"].map(group_of_caption)).groupby(
        "video_id", sort=False
    )["group"]
    group_of_item = groups_by_item.agg(lambda own: own.iloc[0] if own.notna().all() and own.nunique() == 1 else "")
    return group_of_caption | {item: group for item, group in group_of_item.items() if group}


# ---- The table -----------------------------------------------------------------------------------------------------


def group_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """The rows of a setting, groups by name and methods in the order of the tables; empty without groups."""
    rows = results.of("groups")
    if rows.empty:
        return rows
    keys = ["direction", "group"]
    return rows[rows["setting"] == setting].sort_values(
        keys, key=lambda column: column.map(_direction_or_name), kind="stable", ignore_index=True
    )


def _direction_or_name(name: str) -> tuple[int, str]:
    """Search directions as elsewhere, groups by name."""
    return (SEARCH_DIRECTIONS.index(name), "") if name in SEARCH_DIRECTIONS else (0, name.casefold())


def layout(inputs: TableInputs, setting: str) -> Table:
    """A row per group of captions, a column per method, a group of rows per search direction."""
    results = inputs.results
    rows = group_csv_rows(results, setting)
    methods, level = list(dict.fromkeys(rows["method"])), significance_level(results.confidence)

    def lines(part: pd.DataFrame) -> Iterator[tuple[Cell, ...]]:
        for name, group in part.groupby("group", sort=False):
            yield _table_row(str(name), group.set_index("method"), methods, level)

    what = "accuracy" if setting == "binary" else results.deciding(setting)
    return Table(
        "Groups",
        f"{setting_title(inputs.dataset, setting)}: {what} by group",
        slug(inputs.dataset, setting, "groups"),
        (
            Column("Group", number=False),
            Column("Queries"),
            *(Column(results.labels[method]) for method in methods),
        ),
        direction_groups(results, rows, shown_directions(rows), lines),
    )


def _table_row(group: str, rows: pd.DataFrame, methods: list[str], level: float) -> tuple[Cell, ...]:
    queries = count_cell(rows["queries"].iloc[0], separator="")
    return (Cell(group), queries, *(_table_cell(rows.loc[method], level) for method in methods))


def _table_cell(row: pd.Series, level: float) -> Cell:
    exact = row["low"] == row["high"] == row["estimate"]
    ends = {} if exact else {"low": row["low"], "high": row["high"]}
    mark = chance_mark(row["estimate"], row["p_holm"], level)
    decimals = metric_decimals(row["metric"])
    cell = number_cell(row["estimate"], decimals, **ends, marks=mark, bold=mark == ABOVE_CHANCE)
    return replace(cell, interval=None) if row.get("tied") == ALL_TIED else cell


def notes_below(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    rows = group_csv_rows(results, setting)
    metric, tested = results.deciding(setting), setting == "binary"
    unit = "accuracy" if tested else metric
    count = rows["group"].nunique()
    return table_notes(
        [
            f"{unit}{' in percent' if metric_of_column(metric).percent else ''} of the queries of each group"
            + ("" if tested else ", which search the same items as all others do")
        ],
        [
            f"In brackets {confidence_percent(results.confidence)} intervals: of {count} groups and any one method, "
            f"{count * (1 - results.confidence):.2g} intervals are expected to miss their true value"
        ],
        _test_sentences(rows, results) if tested else [],
        [_tied_groups_sentence(rows, results), _ungrouped_sentence(facts, rows, setting)],
        [
            "Groups are not compared with one another: a group may be harder to describe or to search for a "
            "reason other than its name",
            seed_caution(sorted(set(rows.loc[rows["method"].isin(results.trained()), "seeds"]))),
        ],
    )


def _test_sentences(rows: pd.DataFrame, results: Results) -> list[str]:
    families = sorted(set(rows["family"]) - {0})
    few = sorted(set(rows.loc[rows["clusters"] < MIN_TESTED_CLUSTERS, "group"]), key=str.casefold)
    sentences = []
    if families:
        numbers = " and ".join(f"{family:,}" for family in families)
        sentences.append(
            f"{ABOVE_CHANCE} above 50%, {BELOW_CHANCE} below it: p < {1 - results.confidence:.3g}, two-sided, after "
            f"Holm’s correction over the {numbers} tests of compared methods in groups of {MIN_TESTED_CLUSTERS} "
            "clusters or more"
        )
    if few:
        sentences.append(f"Not tested, with fewer than {MIN_TESTED_CLUSTERS} clusters of queries: {', '.join(few)}")
    return sentences


def _tied_groups_sentence(rows: pd.DataFrame, results: Results) -> str:
    """Whose values have no interval because a whole group is tied; chance has none anyway."""
    is_tied = rows.get("tied", pd.Series(np.nan, rows.index)) == ALL_TIED
    methods = [m for m in results.ordered() if (is_tied & (rows["method"] == m) & (rows["low"] < rows["high"])).any()]
    names = ", ".join(results.labels[method] for method in methods)
    return f"{notes.NO_INTERVAL_OF_TIES}: {names}" if methods else ""


def _ungrouped_sentence(facts: Footnotes, rows: pd.DataFrame, setting: str) -> str:
    """How many captions are in no group."""
    total = facts.settings.get(setting, {}).get("queries")
    one_method = rows[(rows["direction"] == "text_to_item") & (rows["method"] == rows["method"].iloc[0])]
    ungrouped = (total or 0) - int(one_method["queries"].sum())
    return f"{ungrouped:,} of {total:,} captions have no group" if total and len(one_method) and ungrouped > 0 else ""


def _short_note(inputs: TableInputs, setting: str) -> str:
    results = inputs.results
    families = sorted(set(group_csv_rows(results, setting)["family"]) - {0})
    tests = (
        f"{ABOVE_CHANCE}, {BELOW_CHANCE}: above, below 50%, p < {1 - results.confidence:.3g}, Holm over "
        + " and ".join(f"{family:,}" for family in families)
    )
    return short_notes.join_short_notes(
        [f"brackets: {confidence_percent(results.confidence)} intervals", f"{tests} tests" if families else ""]
    )


# ---- The picture ---------------------------------------------------------------------------------------------------


def draw(job: Job) -> None:
    """Intervals of every method in every group of a setting."""
    from rewind.figures import style
    from rewind.figures.groups import group_intervals

    study, setting = Study(**job.params.study), job.wildcards["setting"]
    names, compared = study.labels(), study.compared_methods()
    figure = group_intervals(
        read_csv(job.input.group_results, ("group",)),
        names,
        [name for name in names if name not in compared],
        setting,
        study.evaluation.directions[0],
        study.statistics.confidence,
    )
    style.save_output(figure, study.condition, job.output[0])


def caption(study: Study, setting: str) -> str:
    chance_note = (
        " Dashed: chance. * and †: shown to be above and below it, after Holm's correction over all methods and groups "
        "that were tested."
        if setting == "binary"
        else ""
    )
    name = "Accuracy" if chance_note else study.primary_metric_by_setting()[setting]
    line = f"{100 * study.statistics.confidence:g}% interval over {study.interval_scope()}"
    return f"{name} in each group of captions. Line: {line}, not adjusted for the number of groups.{chance_note}"


ANALYSIS = Analysis(
    applies=lambda plan: plan.dataset.has_groups,
    rules=(
        Rule(
            "group_results",
            "rewind.analyses.groups:compare",
            {"": "statistics/groups.csv"},
            inputs={
                "ranks": lambda plan: plan.rank_files(),
                "said": lambda plan: plan.run_metrics(),
                "item_table": lambda plan: plan.item_table(),
                "captions": lambda plan: plan.test_captions(),
                "groups": lambda plan: plan.group_table(),
            },
            params={
                "runs": lambda plan: plan.runs(),
                "dataset": lambda plan: plan.keys.dataset,
                "deciding": lambda plan: plan.keys.primary_metric_by_setting(),
                "confidence": lambda plan: plan.keys.statistics.confidence,
                "compared": lambda plan: plan.keys.compared_methods(),
                "random": lambda plan: plan.keys.random_factors(),
            },
            own_metrics=True,
        ),
        picture_rule(
            "group_figure",
            "rewind.analyses.groups:draw",
            {"group_results": lambda plan: f"{plan.folder}/statistics/groups.csv"},
            "groups_{setting}",
            caption,
            own_metrics=True,
        ),
    ),
    results={"groups": Result("statistics/groups.csv", GROUP_RESULT_COLUMNS)},
    tables=(
        TableSpec(
            "groups",
            file="table_groups_{setting}",
            needs="analyses.groups",
            layout=layout,
            notes=notes_below,
            data=lambda inputs, setting: group_csv_rows(inputs.results, setting),
            short_note=_short_note,
            place=90,
        ),
    ),
)
