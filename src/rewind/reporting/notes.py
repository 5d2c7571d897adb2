"""The sentences below each kind of table, plain text without markup."""

from __future__ import annotations

from collections.abc import Sequence

from rewind.reporting.cells import TITLES, Table
from rewind.reporting.footnotes import (
    Footnotes,
    finished,
    procedure_sentence,
    seed_caution,
    seed_sentence,
    study_sentences,
)
from rewind.reporting.results import DIRECTIONS, LOWER_IS_BETTER, Results, directions, short_direction


def sentences(facts: Footnotes, table: Table) -> list[str]:
    """The notes of a setting's table."""
    return finished(
        [
            _queries(facts, table.setting, table.directions),
            short_sentence(facts, table.directions) if any(column.group for column in table.columns) else "",
            _reading(table),
            _spread(table),
            _intervals(table),
            _marks(facts, table),
            procedure_sentence(facts, table.tested),
            seed_caution(table.seeds),
            *study_sentences(facts),
        ]
    )


def pair_sentences(facts: Footnotes, results: Results, setting: str) -> list[str]:
    """The notes of a setting's table of pairs."""
    counts, ways = _seed_counts(results), tuple(directions(results, setting))
    unit = "accuracy in percent" if setting == "binary" else "R@1 in percent"
    level = f"{1 - results.confidence:.3g}"
    family = f" over {_pairs(facts.family)}" if facts.family else ""
    tested = counts != [1]
    return finished(
        [
            _queries(facts, setting, ways),
            short_sentence(facts, ways) if len(ways) > 1 else "",
            f"Difference: the first method minus the second, {unit}; in brackets its {_percent(results)} interval, not "
            "adjusted for the number of pairs",
            f"Holm’s p: adjusted{family}, in each search direction by itself; bold: below {level}" if tested else "",
            "Effect: the share of queries where the first does better minus the share where it does worse, −1 to 1",
            procedure_sentence(facts, tested),
            _bootstrap(facts, results),
            seed_caution(counts),
            seed_sentence(facts),
        ]
    )


def gap_sentences(facts: Footnotes, results: Results) -> list[str]:
    """The notes of the table of gaps."""
    ways = [way for way in DIRECTIONS if way in set(results.gaps["direction"])]
    return finished(
        [
            short_sentence(facts, ways) if len(ways) > 1 else "",
            "Origin’s queries, once in its gallery and once with the time-reversed twins beside it: the first minus "
            "the second, in the same runs",
            "R@k in percent, 0 means that twins cost nothing and above 0 that they do; MnR in ranks, below 0 that they "
            "do",
            f"In brackets {_percent(results)} intervals, not adjusted for their number",
            procedure_sentence(facts, tested=False),
            seed_caution(_seed_counts(results)),
            seed_sentence(facts),
        ]
    )


def seed_sentences(facts: Footnotes, results: Results, setting: str) -> list[str]:
    """The notes of the appendix of runs."""
    reading = (
        "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
        if setting == "binary"
        else "R@k in percent, MdR and MnR in ranks, MRR from 0 to 1, as expectations under random order of ties; "
        "strict counts every tie as a miss"
    )
    ways = tuple(directions(results, setting))
    return finished([_queries(facts, setting, ways), short_sentence(facts, ways) if len(ways) > 1 else "", reading])


def short_sentence(facts: Footnotes, ways: Sequence[str]) -> str:
    """What the short names of search directions mean."""
    one = facts.items.removesuffix("s")
    meant = {"text_to_item": f"text→{one}", "item_to_text": f"{one}→text"}
    return "; ".join(f"{short_direction(way, facts.items)}: {meant[way]}" for way in ways)


def _seed_counts(results: Results) -> list[int]:
    rows = results.metrics[results.metrics["method"].isin(results.trained())]
    return sorted(set(rows.groupby("method")["seed"].nunique()))


def _percent(results: Results) -> str:
    return f"{100 * results.confidence:g}%"


def _pairs(count: int) -> str:
    return f"{count:,} {'pair' if count == 1 else 'pairs'}"


def _bootstrap(facts: Footnotes, results: Results) -> str:
    if not facts.bootstrap:
        return ""
    return f"Bootstrap: {_percent(results)} interval, {facts.bootstrap}; it says nothing of other training seeds"


def _queries(facts: Footnotes, setting: str, directions: tuple[str, ...]) -> str:
    counts = facts.settings.get(setting, {})
    if not counts:
        return ""
    title, queries, items = TITLES[setting], counts.get("queries"), counts.get("items")
    clusters = counts.get("clusters")
    what = f"{items:,} {facts.items}" if items is not None else facts.items
    apart = f" (in {clusters:,} clusters)" if clusters and clusters != queries else ""
    if setting == "binary":
        number = f"{queries:,} queries{apart} on {what}" if queries is not None else what
        choice = "each a choice between two (a clip or its reverse, or their captions)"
        return f"{title}: {number}, {choice}; chance is 50%"
    if queries is None:
        return f"{title}: {what}"
    if directions == ("item_to_text",):
        return f"{title}: {what} search {queries:,} captions"
    back = ", and the other way round" if len(directions) > 1 else ""
    return f"{title}: {queries:,} captions{apart} search {what}{back}"


def _reading(table: Table) -> str:
    if table.setting == "binary":
        return "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
    shown = {column.metric for column in table.columns}
    ratio = "; MRR is the mean reciprocal rank" if "MRR" in shown else ""
    ratio += "; P75 is the rank that three quarters of the queries reach" if "P75" in shown else ""
    return (
        f"R@k in percent; MdR and MnR are the median and mean rank{ratio}; ↑ higher is better, ↓ lower is better; "
        "ranks are expectations under random order of ties"
    )


def _spread(table: Table) -> str:
    counts = {row.cells[0].seeds for row in table.rows if row.cells[0].std == row.cells[0].std}
    if not counts:
        return ""
    number = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    single = any(row.cells[0].std != row.cells[0].std for row in table.rows)
    tail = "; a row without ± is a single run or a closed form" if single else ""
    return f"Mean ± standard deviation over {number} seeds{tail}"


def _intervals(table: Table) -> str:
    shown = [column.metric for column in table.columns if column.interval]
    if not shown:
        return ""
    pooled = "; that of MdR is of the median over all seeds’ ranks" if "MdR" in shown else ""
    return f"In brackets {100 * table.confidence:g}% intervals, not adjusted for their number{pooled}"


def _marks(facts: Footnotes, table: Table) -> str:
    if not table.tested:
        return "No differences between methods are tested, so nothing is bold" if facts.procedures else ""
    level = f"p < {1 - table.confidence:.3g} after Holm’s correction"
    level += f" over {_pairs(facts.family)}" if facts.family else ""
    if not table.marked:
        return f"No two methods differ significantly ({level}), so nothing is bold"
    return (
        "A raised letter marks a value that is significantly better than that of the method with this letter "
        f"({level}); bold: the best value of a column and those tested against it that are not significantly worse, "
        f"where any method is{_wide(table)}"
    )


def _wide(table: Table) -> str:
    """A bold value can be worse than one that is not: it varies too much to be told from the best."""
    for at, column in enumerate(table.columns):
        cells = [row.cells[at] for row in table.rows if not row.baseline]
        sign = -1 if column.metric in LOWER_IS_BETTER else 1
        bold = [sign * cell.estimate for cell in cells if cell.best]
        if bold and any(sign * cell.estimate > min(bold) for cell in cells if not cell.best):
            return " (so a worse value can be bold if it varies more over seeds)"
    return ""
