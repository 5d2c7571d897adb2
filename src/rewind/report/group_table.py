"""The table of results by group of captions."""

from __future__ import annotations

import pandas as pd

from rewind.config.report import SEARCH_DIRECTIONS
from rewind.metrics import CHANCE_ACCURACY, metric_of_column
from rewind.report.footnotes import (
    Footnotes,
    confidence_percent,
    finish_sentences,
    procedure_sentence,
    seed_caution,
)
from rewind.report.results import Results
from rewind.report.setting_table import metric_decimals, setting_title
from rewind.report.sheet import ColumnHead, RowGroup, Sheet, SheetCell, format_bounds, format_number, slug
from rewind.report.short_notes import join_short_notes
from rewind.statistics.groups import MIN_TESTED_CLUSTERS
from rewind.statistics.inference import significance_level

ABOVE_CHANCE, BELOW_CHANCE = "*", "†"


def csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``groups.csv`` in this setting, methods in the order of the tables; empty without groups."""
    if results.groups.empty:
        return pd.DataFrame()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.groups[results.groups["setting"] == setting]
    rows = rows.sort_values(
        ["direction", "group", "method"],
        key=lambda column: column.map(order) if column.name == "method" else column.map(_sort_key),
        kind="stable",
        ignore_index=True,
    )
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def _sort_key(name: str) -> tuple[int, str]:
    """Search directions as elsewhere, groups by name."""
    return (SEARCH_DIRECTIONS.index(name), "") if name in SEARCH_DIRECTIONS else (0, name.casefold())


def sheet(results: Results, setting: str, dataset: str = "") -> Sheet:
    """A row per group, a column per method, a part per search direction.

    Args:
        results: the study's numbers; at least one query of the setting has a group.
        setting: which.
        dataset: title of the data, for the caption.
    """
    rows = csv_rows(results, setting)
    directions = [direction for direction in SEARCH_DIRECTIONS if direction in set(rows["direction"])]
    methods = list(dict.fromkeys(rows["method"]))
    level = significance_level(results.confidence)
    parts = []
    for direction in directions:
        rows_of_direction = rows[rows["direction"] == direction]
        groups = rows_of_direction.groupby("group", sort=False)
        lines = tuple(_line(name, rows_of_group.set_index("method"), methods, level) for name, rows_of_group in groups)
        parts.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    heads = (
        ColumnHead("Group", number=False),
        ColumnHead("Queries"),
        *(ColumnHead(results.labels[method]) for method in methods),
    )
    what = "accuracy" if setting == "binary" else results.deciding(setting)
    title = f"{setting_title(dataset, setting)}: {what} by group"
    return Sheet("Groups", title, slug(dataset, setting, "groups"), heads, tuple(parts))


def _line(group: str, rows: pd.DataFrame, methods: list[str], level: float) -> tuple[SheetCell, ...]:
    queries = str(int(rows["queries"].iloc[0]))
    return (SheetCell(group), SheetCell(queries), *(_cell(rows, method, level) for method in methods))


def _cell(rows: pd.DataFrame, method: str, level: float) -> SheetCell:
    row = rows.loc[method]
    digits = metric_decimals(row["metric"])
    low, high = row["low"], row["high"]
    ends = format_bounds(low, high, digits) if not low == high == row["estimate"] else None
    mark = chance_mark(row["estimate"], row["p_holm"], level)
    return SheetCell(format_number(row["estimate"], digits), interval=ends, raised=mark, bold=mark == ABOVE_CHANCE)


def chance_mark(estimate: float, p_holm: float, level: float) -> str:
    """``*`` significantly above chance, ``†`` below it, empty otherwise (also where nothing was tested)."""
    if not p_holm < level:  # NaN too
        return ""
    return ABOVE_CHANCE if estimate > CHANCE_ACCURACY else BELOW_CHANCE


def sentences(facts: Footnotes, results: Results, setting: str) -> list[str]:
    """The notes of the table."""
    rows = csv_rows(results, setting)
    metric, tested = results.deciding(setting), setting == "binary"
    unit = "accuracy" if tested else metric
    count = rows["group"].nunique()
    return finish_sentences(
        [
            f"{unit}{' in percent' if metric_of_column(metric).percent else ''} of the queries of each group"
            + ("" if tested else ", which search the same items as all others do"),
            f"In brackets {confidence_percent(results.confidence)} intervals, not adjusted for multiple comparisons: "
            f"of {count} groups and any one method, {count * (1 - results.confidence):.2g} intervals are expected to "
            "miss their true value",
            "Groups are not compared with one another: a group may be harder to describe or to search for another "
            "reason than its name",
            *(_test_sentences(rows, results) if tested else ()),
            _ungrouped_sentence(facts, rows, setting),
            procedure_sentence(facts, tested),
            seed_caution(sorted(set(rows.loc[rows["method"].isin(results.trained()), "seeds"]))),
        ]
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


def _ungrouped_sentence(facts: Footnotes, rows: pd.DataFrame, setting: str) -> str:
    """How many captions are in no group."""
    total = facts.settings.get(setting, {}).get("queries")
    one_method = rows[(rows["direction"] == "text_to_item") & (rows["method"] == rows["method"].iloc[0])]
    ungrouped = (total or 0) - int(one_method["queries"].sum())
    return f"{ungrouped:,} of {total:,} captions have no group" if total and len(one_method) and ungrouped > 0 else ""


def short_note(results: Results, setting: str) -> str:
    """The notes in one line, for a paper."""
    families = sorted(set(csv_rows(results, setting)["family"]) - {0})
    tests = (
        f"{ABOVE_CHANCE}, {BELOW_CHANCE}: above, below 50%, p < {1 - results.confidence:.3g}, Holm over "
        + " and ".join(f"{family:,}" for family in families)
    )
    return join_short_notes(
        [f"brackets: {confidence_percent(results.confidence)} intervals", f"{tests} tests" if families else ""]
    )
