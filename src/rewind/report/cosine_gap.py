"""Tables of cosine gaps and their notes: gaps of all methods beside R@k, and differences of the declared pairs.

The cosine gap is the mean cosine of captions with their own clips minus that with clips of other clusters. It is not a
retrieval score. Pair-conditioned vectors have seen the answer, so their gap is a warning and not a result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rewind.errors import RewindError
from rewind.evaluation.ranking import RECALL_CUTOFFS
from rewind.report.footnotes import (
    Footnotes,
    confidence_percent,
    finish_sentences,
    pair_count,
    seed_caution,
    seed_sentence,
    study_sentences,
)
from rewind.report.results import in_table_order
from rewind.report.table import MISSING, Cell, Column, RowGroup, Table, number_cell, p_value_cell, slug
from rewind.statistics.inference import significance_level

# ---- Results and tables --------------------------------------------------------------------------------------------

SPLIT_TITLES = {"test": "Test split", "valid": "Validation split"}
SCORING_TITLES = {"independent": "Independent embeddings", "pair_conditioned": "Pair-conditioned (sees the answer)"}
SCORING_HEADINGS = {"independent": "Independent", "pair_conditioned": "Sees the answer"}
COSINE_DIGITS = 3


@dataclass(frozen=True, eq=False)
class CosineGapResults:
    """A study's cosine gaps.

    Attributes:
        runs: one row per run, split and scoring: gap, positive, negative, captions, items, R@k in percent.
        intervals: one row per method, split, scoring and quantity.
        pairs: one row per compared pair, split and scoring; may be empty.
        labels: method → name, in table order.
        baselines: methods that were not trained, which come last.
        confidence: of the intervals.

    Example:
        >>> runs = pd.DataFrame({"method": ["meanP"], "scoring": ["independent"]})
        >>> results = CosineGapResults(runs, runs, pd.DataFrame(), {"meanP": "Mean pooling", "wti": "WTI"})
        >>> results.ordered(), results.absent(), results.scorings()
        (['meanP'], ['WTI'], ['independent'])
    """

    runs: pd.DataFrame
    intervals: pd.DataFrame
    pairs: pd.DataFrame
    labels: Mapping[str, str]
    baselines: Collection[str] = ()
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, table in (("cosine_gap.csv", self.runs), ("statistics/cosine_gap.csv", self.intervals)):
            unknown = [method for method in table["method"].unique() if method not in self.labels]
            if unknown:
                raise RewindError(f"{name}: method {unknown[0]!r} is not in the study; compute the gaps again.")

    def ordered(self) -> list[str]:
        """Methods that have a gap, baselines last."""
        methods = [method for method in self.labels if method in set(self.runs["method"])]
        return sorted(methods, key=lambda method: method in self.baselines)

    def absent(self) -> list[str]:
        """Names of methods that have no gap because they do not compare vectors."""
        return [label for method, label in self.labels.items() if method not in set(self.runs["method"])]

    def scorings(self) -> list[str]:
        """Ways in which vectors were computed, in table order."""
        return [scoring for scoring in SCORING_TITLES if scoring in set(self.runs["scoring"])]


def cosine_gap_csv_rows(results: CosineGapResults) -> pd.DataFrame:
    """The table's CSV: the intervals at full precision, with names and mean R@k over seeds."""
    keys = ["method", "split", "scoring"]
    recall = results.runs.groupby(keys, as_index=False)[list(RECALL_CUTOFFS)].mean()
    return in_table_order(results.intervals.merge(recall, how="left", on=keys), results.ordered(), results.labels)


def format_cosine_gap_table(results: CosineGapResults, dataset: str = "") -> Table:
    """A row per method, a part per split: gap, means, R@k, and the gap and R@1 of pair-conditioned vectors."""
    rows = cosine_gap_csv_rows(results).set_index(["split", "method", "scoring", "quantity"])
    groups = tuple(
        RowGroup(title, tuple(_method_row(results, rows, split, method) for method in results.ordered()))
        for split, title in SPLIT_TITLES.items()
        if split in rows.index.get_level_values("split")
    )
    first, *others = results.scorings()
    columns = [Column("Configuration", number=False), Column("Cosine gap", "↑", SCORING_HEADINGS[first])]
    columns += [Column(title, group=SCORING_HEADINGS[first]) for title in ("Pairs", "Others")]
    columns += [Column(metric, "↑", SCORING_HEADINGS[first]) for metric in RECALL_CUTOFFS]
    columns += [Column(title, group=SCORING_HEADINGS[other]) for other in others for title in ("Cosine gap", "R@1")]
    title = ": ".join(part for part in (dataset, "captions with their own clips against others") if part)
    return Table("Cosine gap", title, slug(dataset, "cosine-gap"), tuple(columns), groups)


def terminal_columns(table: Table) -> Table:
    """The columns for which a terminal has room: names, gaps and R@1."""
    shown = ("Configuration", "Cosine gap", "R@1")
    return table.pick([position for position, column in enumerate(table.columns) if column.title in shown])


def _method_row(results: CosineGapResults, rows: pd.DataFrame, split: str, method: str) -> tuple[Cell, ...]:
    first, *others = results.scorings()
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


def cosine_gap_pair_csv_rows(results: CosineGapResults) -> pd.DataFrame:
    """The CSV of differences, with the names of both methods."""
    rows = results.pairs.copy()
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(results.labels))
    return rows


def format_cosine_gap_pair_table(results: CosineGapResults, dataset: str = "") -> Table:
    """Differences in cosine gap, a part per split and scoring; at least one pair was compared."""
    rows, level = cosine_gap_pair_csv_rows(results), significance_level(results.confidence)
    groups = []
    for split, name in SPLIT_TITLES.items():
        for scoring in results.scorings():
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


def cosine_gap_sentences(facts: Footnotes, results: CosineGapResults, noise: list[str]) -> list[str]:
    """The notes of the main table.

    Args:
        facts: of the study.
        results: its cosine gaps.
        noise: names of methods that were evaluated on noise instead of clips.
    """
    return finish_sentences(
        [
            "Cosine gap: mean cosine of captions with their own clips (Pairs) minus mean cosine with clips of other "
            "clusters (Others); a clip’s twin belongs to its cluster and is in neither mean",
            "The gap is not a retrieval score; R@k (percent) is the result of a search by the same cosines",
            _sizes_sentence(results),
            _pair_conditioned_sentence(results),
            f"Control: {'; '.join(noise)}: every clip was replaced by noise, so there is nothing to find"
            if noise
            else "",
            _spread_sentence(results),
            _intervals_sentence(results),
            f"No gap, because the method does not compare vectors: {'; '.join(results.absent())}"
            if results.absent()
            else "",
            seed_caution(_seed_counts(results)),
            *study_sentences(facts),
        ]
    )


def cosine_gap_pair_sentences(facts: Footnotes, results: CosineGapResults) -> list[str]:
    """The notes of the table of differences."""
    family = int(results.pairs["family"].max())
    return finish_sentences(
        [
            "Difference: the first method’s cosine gap minus the second’s; in brackets its "
            f"{confidence_percent(results.confidence)} interval, not adjusted for multiple comparisons",
            f"Holm’s p: adjusted over at most {pair_count(family)}, separately for each split and scoring; bold: below "
            f"{1 - results.confidence:.3g}",
            f"Intervals and tests: {', '.join(dict.fromkeys(results.pairs['procedure']))}",
            seed_caution(_seed_counts(results)),
            seed_sentence(facts),
        ]
    )


def _sizes_sentence(results: CosineGapResults) -> str:
    rows = results.runs.drop_duplicates("split").set_index("split")
    splits = [split for split in SPLIT_TITLES if split in rows.index]
    sizes = [f"{SPLIT_TITLES[s]}: {rows.loc[s, 'captions']:,} captions, {rows.loc[s, 'items']:,} clips" for s in splits]
    return "; ".join(sizes)


def _pair_conditioned_sentence(results: CosineGapResults) -> str:
    if len(results.scorings()) < 2:
        return ""
    return (
        "Sees the answer (pair-conditioned): before the comparison, cross-attention mixes every caption into its own "
        "clip and the result into the caption, which a search cannot do because it does not know the answer. This is a "
        "warning, not a result: the gap can be large even if the clips are noise"
    )


def _spread_sentence(results: CosineGapResults) -> str:
    counts = [count for count in _seed_counts(results) if count > 1]
    return f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds" if counts else ""


def _intervals_sentence(results: CosineGapResults) -> str:
    methods_by_procedure = (
        results.intervals.drop_duplicates("method").groupby("procedure", sort=False)["method"].apply(list)
    )
    first, *others = methods_by_procedure.index
    rest = (f"{name} ({'; '.join(results.labels[m] for m in methods_by_procedure[name])})" for name in others)
    procedures = "; but ".join([first, *rest])
    percent = confidence_percent(results.confidence)
    return f"In brackets {percent} intervals, not adjusted for multiple comparisons: {procedures}"


def _seed_counts(results: CosineGapResults) -> list[int]:
    rows = results.runs[~results.runs["method"].isin(list(results.baselines))]
    return sorted(set(rows.groupby("method")["seed"].nunique()))
