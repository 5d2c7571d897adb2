"""The cosine gap: the mean cosine of captions with their own clips minus that with clips of other clusters.

It is not a retrieval score. Pair-conditioned vectors have seen the answer, so their gap is a warning and not a result.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table, picture_rule
from rewind.config import Study
from rewind.config.report import Statistics
from rewind.evaluation.ranking import RECALL_CUTOFFS
from rewind.io.files import read_csv
from rewind.job_values import Job, files_by_run, job_pairs
from rewind.statistics.inference import significance_level
from rewind.statistics.pairs import RandomFactors
from rewind.tables.best_method import (
    Finding,
    MethodComparison,
    best_method_remarks,
    best_method_sentences,
    interval_estimate,
    join_names,
    unique_labels,
)
from rewind.tables.footnotes import confidence_percent, pair_count, seed_caution, table_notes
from rewind.tables.results import Difference, Results, method_difference, with_pair_labels
from rewind.tables.spec import TableInputs
from rewind.tables.table import (
    MISSING,
    Cell,
    Column,
    RowGroup,
    Table,
    format_number,
    number_cell,
    p_value_cell,
    slug,
)


def compare(job: Job) -> None:
    """Gaps of all runs, their intervals, tests and counts."""
    from rewind.statistics.cosine_gaps import compute_cosine_gap

    params, output, data = job.params, job.output, Path(job.input.item_table).parent
    keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
    tables = output.table, output.intervals, output.pairs, output.counts
    compute_cosine_gap(
        data, params.dataset, files_by_run(job, job.input.cosines), job_pairs(job), keys, random, *tables
    )


def draw(job: Job) -> None:
    """Densities of cosines of pairs and of non-pairs."""
    from rewind.figures import style
    from rewind.figures.gaps import cosine_densities

    study = Study(**job.params.study)
    figure = cosine_densities(read_csv(job.input.counts), study.labels())
    style.save_output(figure, study.condition, job.output[0])


# ---- The table -----------------------------------------------------------------------------------------------------

SPLIT_TITLES = {"test": "Test split", "valid": "Validation split"}
SCORING_HEADINGS = {"independent": "Independent", "pair_conditioned": "Sees the answer"}
SCORING_TITLES = {"independent": "Independent embeddings", "pair_conditioned": "Pair-conditioned (sees the answer)"}
COSINE_DIGITS = 3


def scorings(results: Results) -> list[str]:
    """Ways in which vectors were computed, in table order."""
    return [scoring for scoring in SCORING_TITLES if scoring in set(results.of("cosine_gap_runs")["scoring"])]


def absent(results: Results) -> list[str]:
    """Names of methods that have no gap because they do not compare vectors."""
    return [label for name, label in results.labels.items() if name not in set(results.of("cosine_gap_runs")["method"])]


def cosine_gap_csv_rows(results: Results) -> pd.DataFrame:
    """The table's CSV: the intervals at full precision, with names and mean R@k over seeds."""
    keys = ["method", "split", "scoring"]
    recall = results.of("cosine_gap_runs").groupby(keys, as_index=False)[list(RECALL_CUTOFFS)].mean()
    return results.of("cosine_gap").merge(recall, how="left", on=keys)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method, a part per split: gap, means, R@k, and the gap and R@1 of pair-conditioned vectors."""
    results, dataset = inputs.results, inputs.dataset
    rows = cosine_gap_csv_rows(results)
    methods = dict.fromkeys(rows["method"])
    rows = rows.set_index(["split", "method", "scoring", "quantity"])
    groups = tuple(
        RowGroup(title, tuple(_method_row(results, rows, split, method) for method in methods))
        for split, title in SPLIT_TITLES.items()
        if split in rows.index.get_level_values("split")
    )
    first, *others = scorings(results)
    columns = [Column("Configuration", number=False), Column("Cosine gap", "↑", SCORING_HEADINGS[first])]
    columns += [Column(title, group=SCORING_HEADINGS[first]) for title in ("Pairs", "Others")]
    columns += [Column(metric, "↑", SCORING_HEADINGS[first]) for metric in RECALL_CUTOFFS]
    columns += [Column(title, group=SCORING_HEADINGS[other]) for other in others for title in ("Cosine gap", "R@1")]
    title = ": ".join(part for part in (dataset, "captions with their own clips against others") if part)
    return Table("Cosine gap", title, slug(dataset, "cosine-gap"), tuple(columns), groups)


def summary(inputs: TableInputs, setting: str = "") -> Table:
    """The columns for which a terminal has room: names, gaps and R@1."""
    table = layout(inputs)
    shown = ("Configuration", "Cosine gap", "R@1")
    return table.pick([position for position, column in enumerate(table.columns) if column.title in shown])


def _method_row(results: Results, rows: pd.DataFrame, split: str, method: str) -> tuple[Cell, ...]:
    first, *others = scorings(results)
    gap = rows.loc[split, method, first, "gap"]
    cells = [Cell(results.labels[method]), _gap_cell(gap)]
    means = (rows.loc[split, method, first, quantity] for quantity in ("positive", "negative"))
    cells += [number_cell(row["estimate"], COSINE_DIGITS) for row in means]
    cells += [number_cell(gap[metric]) for metric in RECALL_CUTOFFS]
    for other in others:
        if (split, method, other, "gap") in rows.index:
            row = rows.loc[split, method, other, "gap"]
            cells += [_gap_cell(row), number_cell(row["R@1"])]
        else:
            cells += [Cell(MISSING), Cell(MISSING)]
    return tuple(cells)


def _gap_cell(row: pd.Series) -> Cell:
    return number_cell(row["estimate"], COSINE_DIGITS, row["std"], row["low"], row["high"])


def cosine_gap_pair_csv_rows(results: Results) -> pd.DataFrame:
    """The CSV of differences, with the names of both methods."""
    return with_pair_labels(results.of("cosine_gap_pairs"), results.labels)


def pair_layout(inputs: TableInputs, setting: str = "") -> Table:
    """Differences in cosine gap, a part per split and scoring; at least one pair was compared."""
    results, dataset = inputs.results, inputs.dataset
    rows, level = cosine_gap_pair_csv_rows(results), significance_level(results.confidence)
    groups = []
    for split, name in SPLIT_TITLES.items():
        for scoring in scorings(results):
            shown = rows[(rows["split"] == split) & (rows["scoring"] == scoring)]
            if len(shown):
                title = f"{name}, {SCORING_TITLES[scoring][0].lower()}{SCORING_TITLES[scoring][1:]}"
                groups.append(RowGroup(title, tuple(_pair_row(row, level) for row in shown.itertuples())))
    columns = (Column("Pair", number=False), Column("Difference"), Column("p"), Column("Holm’s p"))
    title = ": ".join(part for part in (dataset, "differences in cosine gap") if part)
    return Table("Cosine gap, pairs", title, slug(dataset, "cosine-gap-pairs"), columns, tuple(groups))


def _pair_row(row: Any, level: float) -> tuple[Cell, ...]:
    significant = bool(row.p_holm < level)
    return (
        Cell(f"{row.first_label} − {row.second_label}"),
        number_cell(row.difference, COSINE_DIGITS, low=row.low, high=row.high, signed=True, bold=significant),
        p_value_cell(row.p),
        p_value_cell(row.p_holm, bold=significant),
    )


# ---- Notes below the tables ----------------------------------------------------------------------------------------


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The notes of the main table."""
    results, facts = inputs.results, inputs.facts
    return table_notes(
        [
            "Cosine gap: mean cosine of captions with their own clips (Pairs) minus mean cosine with clips of other "
            "clusters (Others); a clip’s twin belongs to its cluster and is in neither mean",
            "The gap is not a retrieval score; R@k (percent) is the result of a search by the same cosines",
        ],
        [_sizes_sentence(results), _spread_sentence(results), _intervals_sentence(results)],
        [
            _pair_conditioned_sentence(results),
            f"Control: {'; '.join(facts.noise)}: every clip was replaced by noise, so there is nothing to find"
            if facts.noise
            else "",
        ],
        [
            f"No gap, because the method does not compare vectors: {'; '.join(absent(results))}"
            if absent(results)
            else ""
        ],
        [seed_caution(_seed_counts(results))],
    )


def pair_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The notes of the table of differences."""
    results = inputs.results
    family = int(results.of("cosine_gap_pairs")["family"].max())
    return table_notes(
        [
            "Difference: the first method’s cosine gap minus the second’s; in brackets its "
            f"{confidence_percent(results.confidence)} interval",
            f"Intervals and tests: {', '.join(dict.fromkeys(results.of('cosine_gap_pairs')['procedure']))}",
        ],
        [
            f"Holm’s p: adjusted over at most {pair_count(family)}, separately for each split and scoring; bold: below "
            f"{1 - results.confidence:.3g}"
        ],
        [seed_caution(_seed_counts(results))],
    )


def _sizes_sentence(results: Results) -> str:
    rows = results.of("cosine_gap_runs").drop_duplicates("split").set_index("split")
    splits = [split for split in SPLIT_TITLES if split in rows.index]
    sizes = [f"{SPLIT_TITLES[s]}: {rows.loc[s, 'captions']:,} captions, {rows.loc[s, 'items']:,} clips" for s in splits]
    return "; ".join(sizes)


def _pair_conditioned_sentence(results: Results) -> str:
    if len(scorings(results)) < 2:
        return ""
    return (
        "Sees the answer (pair-conditioned): before the comparison, cross-attention mixes every caption into its own "
        "clip and the result into the caption, which a search cannot do because it does not know the answer. This is a "
        "warning, not a result: the gap can be large even if the clips are noise"
    )


def _spread_sentence(results: Results) -> str:
    counts = [count for count in _seed_counts(results) if count > 1]
    return f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds" if counts else ""


def _intervals_sentence(results: Results) -> str:
    methods_by_procedure = (
        results.of("cosine_gap").drop_duplicates("method").groupby("procedure", sort=False)["method"].apply(list)
    )
    first, *others = methods_by_procedure.index
    rest = (f"{name} ({'; '.join(results.labels[m] for m in methods_by_procedure[name])})" for name in others)
    procedures = "; but ".join([first, *rest])
    percent = confidence_percent(results.confidence)
    return f"In brackets {percent} intervals: {procedures}"


def _seed_counts(results: Results) -> list[int]:
    runs = results.of("cosine_gap_runs")
    return sorted(set(runs[runs["method"].isin(results.trained())].groupby("method")["seed"].nunique()))


# ---- The answer ----------------------------------------------------------------------------------------------------


def finding(results: Results) -> Finding | None:
    """The gap of the first split, of vectors that have not seen the answer, and what the same vectors retrieve."""
    if results.of("cosine_gap_runs").empty:
        return None
    scoring, pairs = scorings(results)[0], results.of("cosine_gap_pairs")
    rows = cosine_gap_csv_rows(results)
    splits = [split for split in SPLIT_TITLES if split in set(rows["split"])]
    rows = rows[(rows["split"] == splits[0]) & (rows["scoring"] == scoring) & (rows["quantity"] == "gap")]
    rows = rows.set_index("method")
    names = unique_labels(results, [*rows.index])

    def against(best: str, other: str) -> Difference | None:
        return method_difference(pairs, names[best], names[other], split=splits[0], scoring=scoring)

    declared = {*pairs["first"], *pairs["second"]} if len(pairs) else set()
    compared = [m for m in rows.index if m in results.trained() or m in declared] or list(rows.index)
    comparison = MethodComparison(
        values={label: interval_estimate(rows.loc[m]) for label, m in names.items() if m in compared},
        against=against,
        level=significance_level(results.confidence),
        digits=COSINE_DIGITS,
        aside={label: interval_estimate(rows.loc[m]) for label, m in names.items() if m not in compared},
        untested="" if len(pairs) else "No differences between methods were tested.",
    )
    first = max(rows.index, key=lambda method: rows.loc[method, "R@1"])
    caution = (
        "The gap is not a retrieval score: a search by these cosines has at best an R@1 of "
        f"{format_number(float(rows.loc[first, 'R@1']))}% ({results.labels[first]})."
    )
    remarks = (
        [f"No gap, because they do not compare vectors: {join_names(absent(results))}."] if absent(results) else []
    )
    name = SPLIT_TITLES[splits[0]]
    heading = f"Cosine gap, {name[0].lower()}{name[1:]}"
    return Finding(heading, [*best_method_sentences(comparison), caution], [*best_method_remarks(comparison), *remarks])


ANALYSIS = Analysis(
    applies=lambda plan: plan.keys.evaluation.cosine_gap,
    rules=(
        Rule(
            "cosine_gap",
            "rewind.analyses.cosine_gap:compare",
            {
                "table": "cosine_gap.csv",
                "intervals": "statistics/cosine_gap.csv",
                "pairs": "statistics/cosine_gap_pairs.csv",
                "counts": "cosine_counts.csv",
            },
            inputs={
                "item_table": lambda plan: plan.item_table(),
                "captions": lambda plan: list(plan.captions("valid", "test").values()),
                "cosines": lambda plan: plan.per_run("cosines/{method}/seed{seed}.npz"),
            },
            params={
                "runs": lambda plan: plan.runs(),
                "dataset": lambda plan: plan.keys.dataset,
                "settings": lambda plan: plan.keys.statistics.fingerprint("report"),
                "pairs": lambda plan: plan.keys.pairs(),
                "random": lambda plan: plan.keys.random_factors(),
            },
            reported=("table",),
            level=20,
            grows="",
        ),
        picture_rule(
            "cosine_gap_figure",
            "rewind.analyses.cosine_gap:draw",
            {"counts": lambda plan: f"{plan.folder}/cosine_counts.csv"},
            "cosine_gap",
            lambda study, setting: (
                "Cosines of test captions with their own clips (pairs) and with those of other clusters (others), all "
                "seeds together, each scaled to the same height. Bars: the means; their distance is the cosine gap. "
                "Pair-conditioned vectors have seen the answer."
            ),
            level=21,
        ),
    ),
    results={
        "cosine_gap_runs": Result("cosine_gap.csv", ("method", "seed", "split", "scoring", "gap", *RECALL_CUTOFFS)),
        "cosine_gap": Result(
            "statistics/cosine_gap.csv",
            ("method", "split", "scoring", "quantity", "estimate", "std", "low", "high", "procedure"),
        ),
        "cosine_gap_pairs": Result(
            "statistics/cosine_gap_pairs.csv",
            ("first", "second", "split", "scoring", "difference", "low", "high", "p", "p_holm", "procedure", "family"),
        ),
    },
    tables=(
        replace(
            analysis_table("cosine_gap", 4, layout, notes_below),
            needs="analyses.cosine_gap_runs",
            data=lambda inputs, _: cosine_gap_csv_rows(inputs.results),
            summary=summary,
        ),
        replace(
            analysis_table("cosine_gap_pairs", 6, pair_layout, pair_notes),
            data=lambda inputs, _: cosine_gap_pair_csv_rows(inputs.results),
            summary=None,
        ),
    ),
    finding=finding,
)
