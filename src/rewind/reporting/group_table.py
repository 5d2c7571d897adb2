"""The table of groups: what each method does in each group of captions."""

from __future__ import annotations

import pandas as pd

from rewind.metrics import known
from rewind.reporting.brief import joined
from rewind.reporting.footnotes import Footnotes, finished, procedure_sentence, seed_caution
from rewind.reporting.results import DIRECTIONS, Results
from rewind.reporting.setting_table import decimals, place
from rewind.reporting.sheet import Entry, Head, Part, Sheet, bounds, number, slug
from rewind.statistics.groups import TESTED_FROM

ABOVE, BELOW = "*", "†"


def numbers(results: Results, setting: str) -> pd.DataFrame:
    """The table's CSV: ``groups.csv`` in this setting, methods in the order of the tables; empty without groups."""
    if results.groups.empty:
        return pd.DataFrame()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.groups[results.groups["setting"] == setting]
    rows = rows.sort_values(
        ["direction", "group", "method"],
        key=lambda column: column.map(order) if column.name == "method" else column.map(_sortable),
        kind="stable",
        ignore_index=True,
    )
    rows.insert(0, "label", rows["method"].map(results.labels))
    return rows


def _sortable(name: str) -> tuple[int, str]:
    """Search directions as elsewhere, groups by name."""
    return (DIRECTIONS.index(name), "") if name in DIRECTIONS else (0, name.casefold())


def sheet(results: Results, setting: str, dataset: str = "") -> Sheet:
    """A row per group, a column per method, a part per search direction.

    Args:
        results: the study's numbers; some query of the setting has a group.
        setting: which.
        dataset: title of the data, for the caption.
    """
    rows = numbers(results, setting)
    ways = [way for way in DIRECTIONS if way in set(rows["direction"])]
    methods = list(dict.fromkeys(rows["method"]))
    level = round(1 - results.confidence, 12)
    parts = []
    for way in ways:
        chosen = rows[rows["direction"] == way]
        groups = chosen.groupby("group", sort=False)
        lines = tuple(_line(name, of.set_index("method"), methods, level) for name, of in groups)
        parts.append(Part(results.short(way) if len(ways) > 1 else "", lines))
    heads = (
        Head("Group", number=False),
        Head("Queries"),
        *(Head(results.labels[method]) for method in methods),
    )
    what = "accuracy" if setting == "binary" else results.deciding(setting)
    title = f"{place(dataset, setting)}: {what} by group"
    return Sheet("Groups", title, slug(dataset, setting, "groups"), heads, tuple(parts))


def _line(group: str, rows: pd.DataFrame, methods: list[str], level: float) -> tuple[Entry, ...]:
    queries = str(int(rows["queries"].iloc[0]))
    return (Entry(group), Entry(queries), *(_cell(rows, method, level) for method in methods))


def _cell(rows: pd.DataFrame, method: str, level: float) -> Entry:
    row = rows.loc[method]
    digits = decimals(row["metric"])
    low, high = row["low"], row["high"]
    ends = bounds(low, high, digits) if not low == high == row["estimate"] else None
    raised = mark(row["estimate"], row["p_holm"], level)
    return Entry(number(row["estimate"], digits), interval=ends, raised=raised, bold=raised == ABOVE)


def mark(estimate: float, p_holm: float, level: float) -> str:
    """``*`` above chance, ``†`` below it, nothing where that was not shown."""
    if not p_holm < level:
        return ""
    return ABOVE if estimate > 50 else BELOW


def sentences(facts: Footnotes, results: Results, setting: str) -> list[str]:
    """The notes of the table."""
    rows = numbers(results, setting)
    metric, tested = results.deciding(setting), setting == "binary"
    unit = "accuracy" if tested else metric
    percent = f"{100 * results.confidence:g}%"
    count = rows["group"].nunique()
    return finished(
        [
            f"{unit}{' in percent' if known(metric).percent else ''} of the queries of each group"
            + ("" if tested else ", which search the same items as all others do"),
            f"In brackets {percent} intervals, not adjusted for multiple comparisons: of {count} groups and any one "
            f"method, {count * (1 - results.confidence):.2g} intervals are expected to miss their true value",
            "Groups are not compared with one another: a group may be harder to describe or to search for another "
            "reason than its name",
            *(_tests(rows, results) if tested else ()),
            _left(facts, rows, setting),
            procedure_sentence(facts, tested),
            seed_caution(sorted(set(rows.loc[rows["method"].isin(results.trained()), "seeds"]))),
        ]
    )


def _tests(rows: pd.DataFrame, results: Results) -> list[str]:
    families = sorted(set(rows["family"]) - {0})
    few = sorted(set(rows.loc[rows["clusters"] < TESTED_FROM, "group"]), key=str.casefold)
    said = []
    if families:
        number_of = " and ".join(f"{family:,}" for family in families)
        said.append(
            f"{ABOVE} above 50%, {BELOW} below it: p < {1 - results.confidence:.3g}, two-sided, after Holm’s "
            f"correction over the {number_of} tests of compared methods in groups of {TESTED_FROM} clusters or more"
        )
    if few:
        said.append(f"Not tested, with fewer than {TESTED_FROM} clusters of queries: {', '.join(few)}")
    return said


def _left(facts: Footnotes, rows: pd.DataFrame, setting: str) -> str:
    """How many queries are in no group."""
    total = facts.settings.get(setting, {}).get("queries")
    first = rows[(rows["direction"] == "text_to_item") & (rows["method"] == rows["method"].iloc[0])]
    left = (total or 0) - int(first["queries"].sum())
    return f"{left:,} of {total:,} captions have no group" if total and len(first) and left > 0 else ""


def line(results: Results, setting: str) -> str:
    """The notes in one line, for a paper."""
    families = sorted(set(numbers(results, setting)["family"]) - {0})
    tests = f"{ABOVE}, {BELOW}: above, below 50%, p < {1 - results.confidence:.3g}, Holm over " + " and ".join(
        f"{family:,}" for family in families
    )
    return joined([f"brackets: {100 * results.confidence:g}% intervals", f"{tests} tests" if families else ""])
