"""The notes below a setting's table, and sentences that several kinds of table share: plain, without markup.

Notes of the other kinds are next to their tables in :mod:`rewind.analyses`. The short notes of a paper's LaTeX
tables are in :mod:`rewind.tables.short_notes`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from rewind.ranking_metrics import metric_of_column
from rewind.tables.footnotes import (
    Footnotes,
    budget_sentence,
    confidence_percent,
    finish_sentences,
    pair_count,
    seed_caution,
    shared_notes,
    table_notes,
)
from rewind.tables.results import MIN_CLUSTERS_FOR_LETTERS, short_direction
from rewind.tables.settings import SETTING_TITLES, SettingResults, metric_decimals
from rewind.tables.table import format_number

# ---- What searches what in a setting, and how many queries and items there are -------------------------------------


def queries_sentence(facts: Footnotes, setting: str, directions: tuple[str, ...]) -> str:
    """What searches what in a setting, with numbers of queries and items; empty where nothing is known."""
    counts = facts.settings.get(setting, {})
    if not counts:
        return ""
    title, queries, items = SETTING_TITLES[setting], counts.get("queries"), counts.get("items")
    clusters = counts.get("clusters")
    gallery = f"{items:,} {facts.items}" if items is not None else facts.items
    clusters_text = f" (in {_cluster_count(clusters)})" if clusters and clusters != queries else ""
    if setting == "binary":
        searches = f"{queries:,} queries{clusters_text} on {gallery}" if queries is not None else gallery
        choice = "each a choice between two (a clip or its reverse, or their captions)"
        return f"{title}: {searches}, {choice}; chance is 50%"
    if queries is None:
        return f"{title}: {gallery}"
    if directions == ("item_to_text",):
        return f"{title}: {gallery} search {queries:,} captions"
    reverse = ", and vice versa" if len(directions) > 1 else ""
    return f"{title}: {queries:,} captions{clusters_text} search {gallery}{reverse}"


def direction_names_sentence(facts: Footnotes, directions: Sequence[str]) -> str:
    """What the short names of search directions mean: ``T2V: text→video``."""
    item = facts.items.removesuffix("s")
    names = {"text_to_item": f"text→{item}", "item_to_text": f"{item}→text"}
    return "; ".join(f"{short_direction(direction, facts.items)}: {names[direction]}" for direction in directions)


def _cluster_count(count: int) -> str:
    return f"{count:,} {'cluster' if count == 1 else 'clusters'}"


# ---- Notes of a setting's table -------------------------------------------------------------------------------------

MARKS_KEY = (
    "* best, or not significantly worse than the best and ahead of all that are; (a) significantly better than method a"
)
NO_INTERVAL_OF_TIES = (
    "No interval where every query is an exact tie in every run, so that accuracy is 50 by construction"
)
TERMINAL_WIDTH = 120  # characters
NO_INTERVAL_OF_CONSTANTS = (
    "No interval where every query ties with all that it searches in every run, so that numbers are those of chance"
)
MIN_QUERIES_FROM_LIMIT = 5  # queries right, or wrong, below which the coverage of an interval is only approximate


def setting_notes(facts: Footnotes, table: SettingResults) -> list[str]:
    """The notes of a setting's table."""
    several = any(column.group for column in table.columns)
    return table_notes(
        [
            queries_sentence(facts, table.setting, table.directions),
            direction_names_sentence(facts, table.directions) if several else "",
        ],
        [_metrics_sentence(table), _spread_sentence(table), _intervals_sentence(table), *table.said],
        [
            _marks_sentence(facts, table),
            few_clusters_sentence(table),
            bold_caution_sentence(table),
            holm_families_sentence(table),
        ],
        [missing_methods_sentence(table), tied_sentence(table)],
        [unequal_budgets(facts), seed_caution(table.seeds), _near_limit_sentence(facts, table)],
    )


def metric_units(metrics: Iterable[str]) -> str:
    """``R@k in percent, MdR and MnR in ranks``."""
    names_by_unit: dict[str, dict[str, None]] = {}
    for metric in map(metric_of_column, metrics):
        names_by_unit.setdefault(metric.unit.said, {})[metric.family or metric.name] = None
    return ", ".join(f"{' and '.join(names)} {unit}" for unit, names in names_by_unit.items())


def _metrics_sentence(table: SettingResults) -> str:
    if table.setting == "binary":
        return "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
    several = max(table.seeds, default=1) > 1
    shown = dict.fromkeys(metric_of_column(column.metric) for column in table.metrics)
    sentences = [m.sentence + (" over the queries of all seeds" if m.pooled and several else "") for m in shown]
    return "; ".join(dict.fromkeys(sentences))


def _spread_sentence(table: SettingResults) -> str:
    position = table.columns.index(table.metrics[0])
    first = [row.cells[position] for row in table.evaluated]
    counts = {cell.seeds for cell in first if cell.std == cell.std}
    if not counts:
        return ""
    number = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    single = any(cell.std != cell.std for cell in first)
    tail = "; a row without ± is a single run or a closed-form method" if single else ""
    return f"Mean ± standard deviation over {number} seeds{tail}"


def _intervals_sentence(table: SettingResults) -> str:
    shown = [column.metric for column in table.metrics if column.interval]
    if not shown:
        return ""
    return f"In brackets {confidence_percent(table.confidence)} intervals"


def tied_sentence(table: SettingResults) -> str:
    """Methods whose numbers have no interval because every query is a tie: no other queries could change them."""
    if not table.tied:
        return ""
    several = len(table.directions) > 1
    names = (f"{', '.join(labels)}{f' in {direction}' if several else ''}" for direction, labels in table.tied.items())
    reason = NO_INTERVAL_OF_TIES if table.setting == "binary" else NO_INTERVAL_OF_CONSTANTS
    return f"{reason}: {'; '.join(names)}"


def _near_limit_sentence(facts: Footnotes, table: SettingResults) -> str:
    """Where a handful of queries decides, the coverage of intervals is only approximate (docs/calibration.md)."""
    queries = facts.settings.get(table.setting, {}).get("queries") or 0
    bracketed = [column in table.metrics and column.interval for column in table.columns]
    positions = [i for i, c in enumerate(table.columns) if bracketed[i] and metric_of_column(c.metric).percent]
    values = [row.cells[position].estimate for row in table.rows if not row.baseline for position in positions]
    near = [value for value in values if 0 < queries * min(value, 100 - value) / 100 < MIN_QUERIES_FROM_LIMIT]
    if not near:
        return ""
    return f"Within {MIN_QUERIES_FROM_LIMIT} queries of 0% or 100%, the coverage of an interval is only approximate"


def _marks_sentence(facts: Footnotes, table: SettingResults) -> str:
    if table.few is not None:
        return ""
    if not table.tested:
        return "No differences between methods were tested, so nothing is bold" if facts.procedures else ""
    metric = "accuracy" if table.setting == "binary" else table.deciding
    level = f"p < {1 - table.confidence:.3g} after Holm’s correction"
    family = table.family or facts.family
    level += f" over {pair_count(family)}" if family else ""
    if not table.marked:
        return f"No two methods differ significantly in {metric} ({level}), so nothing is bold"
    return (
        f"Only the deciding metric, {metric}, has letters and bold. A raised letter marks a value that is "
        f"significantly better than that of the method with this letter ({level}); bold: the best value of a column, "
        "and values that were tested against it, are not significantly worse and are ahead of all that are"
    )


def unequal_budgets(facts: Footnotes) -> str:
    """How long each method trains, where that is not the same for all; otherwise empty."""
    return budget_sentence(facts.budgets) if len(facts.budgets) > 1 else ""


def same_ranks_sentence(order_blind: list[str]) -> str:
    """Which methods have no interval in the table of order controls, and why; empty if there are none."""
    return f"No interval where every rank stays the same in every run: {', '.join(order_blind)}" if order_blind else ""


def order_key(facts: Footnotes, percent: str, family: int, order_blind: list[str]) -> str:
    """What the numbers of the table of order controls are, for a terminal."""
    sentences = [
        f"What each control costs, with {percent} intervals of the paired difference over training seeds and queries, "
        "not adjusted for several comparisons",
        f"* differs from 0 after Holm’s correction over {family} pairs of a method and a control",
        same_ranks_sentence(order_blind),
        unequal_budgets(facts),
    ]
    return _wrapped_lines(finish_sentences(sentences))


def key_text(sentences: list[str]) -> str:
    return _wrapped_lines(finish_sentences(sentences))


def missing_methods_sentence(table: SettingResults) -> str:
    """Which methods have no numbers in a table, and why."""
    absent = [f"{row.label} ({row.absent})" for row in table.rows if row.absent]
    absent += [f"{row.label} in {direction} ({reason})" for row in table.rows for direction, reason in row.lacking]
    return f"Without numbers here: {', '.join(absent)}" if absent else ""


def table_key(facts: Footnotes, table: SettingResults) -> str:
    """What the marks and dashes of a table mean and what they do not, for a terminal."""
    return _wrapped_lines([*_marks_explained(table), *finish_sentences(_cautions(facts, table))])


def summary_table_key(facts: Footnotes, table: SettingResults) -> str:
    """The key of a table without other notes: it also states how rows are ordered."""
    return _wrapped_lines([*_marks_explained(table), *finish_sentences([*table.said, *_cautions(facts, table)])])


def _cautions(facts: Footnotes, table: SettingResults) -> list[str]:
    return [unequal_budgets(facts), seed_caution(table.seeds), tied_sentence(table), missing_methods_sentence(table)]


def _marks_explained(table: SettingResults) -> list[str]:
    if table.few is not None:
        return [few_clusters_sentence(table)]
    if not table.marked:
        return []
    return [MARKS_KEY, bold_caution_sentence(table).replace("Bold", "*", 1).replace("a bold", "a marked")]


def _wrapped_lines(sentences: list[str]) -> str:
    return "\n".join(wrap_line(sentence) for sentence in sentences if sentence)


def study_notes(facts: Footnotes, seeds: list[int]) -> str:
    """What applies to every table of a study, as a list for a terminal; empty where nothing is known."""
    lines = [wrap_line(text, "- ") for text in shared_notes(facts, seeds)]
    return "\n".join(["Of all tables:", *lines]) + "\n" if lines else ""


def wrap_line(text: str, bullet: str = "") -> str:
    """Lines of a terminal; the bullet is before the first, and the others are indented by its width."""
    return textwrap.fill(text, TERMINAL_WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet))


def few_clusters_sentence(table: SettingResults) -> str:
    """Why there are no letters, and what a study of this size could detect."""
    if table.few is None:
        return ""
    text = f"No letters: they need {MIN_CLUSTERS_FOR_LETTERS} clusters of queries, and there are {table.few:,}"
    return f"{text}. {_detectable_sentence(table, 'two methods')}" if table.blind else text


def bold_caution_sentence(table: SettingResults) -> str:
    """What bold does not mean: how large a difference it may hide."""
    if table.few is not None or not table.blind or not table.marked:
        return ""
    return f"Bold does not mean equal to the best. {_detectable_sentence(table, 'a bold value and the best')}"


def detectable_range(table: SettingResults) -> str:
    """``9.1 to 14.2 points of R@1``: the detectable differences of a table."""
    assert table.blind is not None
    return difference_range(table.setting, table.deciding, table.blind)


def difference_size(setting: str, deciding: str, size: float) -> str:
    """A difference in the deciding metric of a setting with its unit: ``9.1 points of R@1``."""
    return difference_range(setting, deciding, (size, size))


def difference_range(setting: str, deciding: str, ends: tuple[float, float]) -> str:
    """Two differences in the deciding metric of a setting, smaller first, with their unit."""
    metric = "accuracy" if setting == "binary" else deciding
    points = f"points of {metric}" if metric_of_column(deciding).percent else f"in {metric}"
    low, high = (format_number(end, metric_decimals(deciding)) for end in ends)
    return f"{low} {points}" if low == high else f"{low} to {high} {points}"


def is_beyond_possible(setting: str, metric: str, difference: float) -> bool:
    """Whether no two methods can differ by this much; in Binary, unless one is below chance.

    >>> is_beyond_possible("binary", "R@1", 52.0), is_beyond_possible("hard", "R@1", 52.0)
    (True, False)
    """
    return metric_of_column(metric).percent and difference >= (50 if setting == "binary" else 100)


def _detectable_sentence(table: SettingResults, between: str) -> str:
    assert table.blind is not None
    low, high = table.blind
    if is_beyond_possible(table.setting, table.deciding, low):
        return f"Between {between}, this study would detect no difference that is possible"
    if is_beyond_possible(table.setting, table.deciding, high):  # a range up to the impossible says nothing
        return (
            f"Between {between}, this study would detect a true difference of "
            f"{difference_size(table.setting, table.deciding, low)} in 80% of cases where results vary least, and "
            "smaller differences less often; where they vary most between seeds or queries it would detect none"
        )
    return (
        f"Between {between}, this study would detect a true difference of {detectable_range(table)} in 80% of cases, "
        "and smaller differences less often"
    )


def holm_families_sentence(table: SettingResults) -> str:
    """That a table's letters come from two families, one per search direction."""
    columns = {column.direction for column in table.columns if column.metric == table.deciding}
    if not table.tested or len(columns) < 2:
        return ""
    level = f"{100 * (1 - table.confidence):g}%"
    return (
        f"Holm’s correction is applied to each search direction separately: equal methods get a false letter in at "
        f"most {level} of studies in one direction, and in at most {2 * 100 * (1 - table.confidence):g}% in either"
    )
