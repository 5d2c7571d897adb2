"""The sentences below each kind of table, plain text without markup."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rewind.metrics import METRICS, known
from rewind.reporting import gap_table, seed_table
from rewind.reporting.cells import Table, pairs_compared
from rewind.reporting.footnotes import (
    Footnotes,
    finished,
    procedure_sentence,
    seed_caution,
    seed_sentence,
    study_sentences,
)
from rewind.reporting.results import DIRECTIONS, Results, directions
from rewind.reporting.searches import queries_sentence, short_sentence
from rewind.reporting.setting_table import decimals
from rewind.reporting.sheet import number
from rewind.reporting.significance import LETTERS_FROM

KEY = (
    "* best, or not significantly worse than the best and ahead of all that are; (a) significantly better than method a"
)
WIDTH = 120  # of a terminal's lines
ENDS = 5  # queries


def sentences(facts: Footnotes, table: Table) -> list[str]:
    """The notes of a setting's table."""
    return finished(
        [
            queries_sentence(facts, table.setting, table.directions),
            short_sentence(facts, table.directions) if any(column.group for column in table.columns) else "",
            _reading(table),
            *table.said,
            absent_sentence(table),
            _spread(table),
            _intervals(table),
            _near_the_ends(facts, table),
            _marks(facts, table),
            few_sentence(table),
            blind_sentence(table),
            families_sentence(table),
            procedure_sentence(facts, table.tested),
            seed_caution(table.seeds),
            *study_sentences(facts),
        ]
    )


def pair_sentences(facts: Footnotes, results: Results, setting: str) -> list[str]:
    """The notes of a setting's table of pairs."""
    counts, ways = _seed_counts(results), tuple(directions(results, setting))
    metric = results.deciding(setting)
    unit = "accuracy in percent" if setting == "binary" else f"{metric} in percent" if known(metric).percent else metric
    level = f"{1 - results.confidence:.3g}"
    compared = pairs_compared(results, setting) or facts.family
    family = f" over {_pairs(compared)}" if compared else ""
    tested = bool(results.pairs.loc[results.pairs["setting"] == setting, "p"].notna().any())
    return finished(
        [
            queries_sentence(facts, setting, ways),
            short_sentence(facts, ways) if len(ways) > 1 else "",
            f"Difference: the first method minus the second, {unit}; in brackets its {_percent(results)} interval, not "
            "adjusted for multiple comparisons",
            f"Holm’s p: adjusted{family}, separately for each search direction; bold: below {level}" if tested else "",
            "Detectable: the smallest true difference that this comparison would find significant in 80% of studies, "
            "at the strictest level of Holm’s correction"
            if tested
            else "",
            "Effect: the share of queries on which the first method does better minus the share on which it does "
            "worse, −1 to 1",
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
            "Gap: the result of Origin’s queries in Origin’s gallery minus their result in the gallery with the "
            "time-reversed twins added, in the same runs",
            _losses(gap_table.metrics(results)),
            f"In brackets {_percent(results)} intervals, not adjusted for multiple comparisons",
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
        else f"{units(seed_table.columns(results, setting).values())}; expected values when tied items are ordered at "
        "random; strict counts every tie as a miss"
    )
    ways = tuple(directions(results, setting))
    return finished(
        [queries_sentence(facts, setting, ways), short_sentence(facts, ways) if len(ways) > 1 else "", reading]
    )


def units(metrics: Iterable[str]) -> str:
    """``R@k in percent, MdR and MnR in ranks``."""
    found: dict[str, dict[str, None]] = {}
    for metric in map(known, metrics):
        found.setdefault(metric.unit.said, {})[metric.family or metric.name] = None
    return ", ".join(f"{' and '.join(names)} {said}" for said, names in found.items())


def _losses(metrics: list[str]) -> str:
    """What the sign of a gap means."""
    falls, rises = ([m for m in metrics if METRICS[m].lower_is_better is lower] for lower in (False, True))
    said = [f"{units(falls)}, 0 means that twins cost nothing and above 0 that they do"] if falls else []
    zero = "" if falls else "0 means that twins cost nothing and "
    return "; ".join(said + ([f"{units(rises)}, {zero}below 0 that they do"] if rises else []))


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
    return f"Bootstrap: {_percent(results)} interval, {facts.bootstrap}; it says nothing about other training seeds"


def _reading(table: Table) -> str:
    if table.setting == "binary":
        return "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
    several = max(table.seeds, default=1) > 1
    shown = dict.fromkeys(known(column.metric) for column in table.metrics)
    said = [m.sentence + (" over the queries of all seeds" if m.pooled and several else "") for m in shown]
    return (
        f"{'; '.join(dict.fromkeys(said))}; ↑ higher is better, ↓ lower is better; metrics are expected values when "
        "tied items are ordered at random"
    )


def _spread(table: Table) -> str:
    at = table.columns.index(table.metrics[0])
    first = [row.cells[at] for row in table.evaluated]
    counts = {cell.seeds for cell in first if cell.std == cell.std}
    if not counts:
        return ""
    number = str(counts.pop()) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    single = any(cell.std != cell.std for cell in first)
    tail = "; a row without ± is a single run or a closed-form method" if single else ""
    return f"Mean ± standard deviation over {number} seeds{tail}"


def _intervals(table: Table) -> str:
    shown = [column.metric for column in table.metrics if column.interval]
    if not shown:
        return ""
    return f"In brackets {100 * table.confidence:g}% intervals, not adjusted for multiple comparisons"


def _near_the_ends(facts: Footnotes, table: Table) -> str:
    """Where a handful of queries decides, the coverage of intervals is only approximate (docs/calibration.md)."""
    queries = facts.settings.get(table.setting, {}).get("queries") or 0
    bracketed = [column in table.metrics and column.interval for column in table.columns]
    shown = [at for at, c in enumerate(table.columns) if bracketed[at] and known(c.metric).percent]
    values = [row.cells[at].estimate for row in table.rows if not row.baseline for at in shown]
    near = [value for value in values if 0 < queries * min(value, 100 - value) / 100 < ENDS]
    if not near:
        return ""
    return f"Within {ENDS} queries of 0% or 100%, the coverage of an interval is only approximate"


def _marks(facts: Footnotes, table: Table) -> str:
    if table.few is not None:
        return ""
    if not table.tested:
        return "No differences between methods were tested, so nothing is bold" if facts.procedures else ""
    what = "accuracy" if table.setting == "binary" else table.deciding
    level = f"p < {1 - table.confidence:.3g} after Holm’s correction"
    family = table.family or facts.family
    level += f" over {_pairs(family)}" if family else ""
    if not table.marked:
        return f"No two methods differ significantly in {what} ({level}), so nothing is bold"
    return (
        f"Only the deciding metric, {what}, has letters and bold. A raised letter marks a value that is significantly "
        f"better than that of the method with this letter ({level}); bold: the best value of a column, and values that "
        "were tested against it, are not significantly worse and are ahead of all that are"
    )


def absent_sentence(table: Table) -> str:
    """Which methods have no numbers in a table, and why."""
    absent = [f"{row.label} ({row.absent})" for row in table.rows if row.absent]
    absent += [f"{row.label} in {way} ({why})" for row in table.rows for way, why in row.lacking]
    return f"Without numbers here: {', '.join(absent)}" if absent else ""


def key(table: Table) -> str:
    """What the marks and the dashes of a table say, for a terminal, and what they do not."""
    return _below([*_explained(table), *finished([absent_sentence(table)])])


def summary_key(table: Table) -> str:
    """The key of a table that has no other notes beside it: also its order."""
    return _below([*_explained(table), *finished([*table.said, absent_sentence(table)])])


def _explained(table: Table) -> list[str]:
    if table.few is not None:
        return [few_sentence(table)]
    if not table.marked:
        return []
    return [KEY, blind_sentence(table).replace("Bold", "*", 1).replace("a bold", "a marked")]


def _below(sentences: list[str]) -> str:
    return "\n".join(wrapped(sentence) for sentence in sentences if sentence)


def study_notes(facts: Footnotes, seeds: list[int]) -> str:
    """What holds for every table of a study, as a list for a terminal; nothing where nothing is known.

    ``seeds`` are the numbers of seeds of trained methods.
    """
    said = finished([*study_sentences(facts), seed_caution(seeds)])
    return "\n".join(["Of all tables:", *(wrapped(text, "- ") for text in said)]) + "\n" if said else ""


def wrapped(text: str, mark: str = "") -> str:
    """Lines of a terminal; a mark stands before the first, and the others are indented by as much."""
    return textwrap.fill(text, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark))


def few_sentence(table: Table) -> str:
    """Why there are no letters, and what a study of this size could see."""
    if table.few is None:
        return ""
    text = f"No letters: they need {LETTERS_FROM} clusters of queries, and there are {table.few:,}"
    return f"{text}. {_seen(table, 'two methods')}" if table.blind else text


def blind_sentence(table: Table) -> str:
    """What bold does not say: how large a difference it may hide."""
    if table.few is not None or not table.blind or not table.marked:
        return ""
    return f"Bold does not mean equal to the best. {_seen(table, 'a bold value and the best')}"


def seen(table: Table) -> str:
    """``9.1 to 14.2 points of R@1``: what the study could just see; of shares no more than all."""
    assert table.blind is not None
    return span(table.setting, table.deciding, table.blind)


def span(setting: str, deciding: str, ends: tuple[float, float]) -> str:
    """Two differences in the deciding metric of a setting, from the smaller to the greater, with their unit."""
    what = "accuracy" if setting == "binary" else deciding
    share = known(deciding).percent
    points = f"points of {what}" if share else f"in {what}"
    low, high = ("more than 100" if share and end > 100 else number(end, decimals(deciding)) for end in ends)
    return f"{low} {points}" if low == high else f"{low} to {high} {points}"


def _seen(table: Table, between: str) -> str:
    return (
        f"Between {between}, this study would detect a true difference of {seen(table)} in 80% of cases, and smaller "
        "differences less often"
    )


def families_sentence(table: Table) -> str:
    """Over how many families a table's letters go."""
    columns = {column.direction for column in table.columns if column.metric == table.deciding}
    if not table.tested or len(columns) < 2:
        return ""
    level = f"{100 * (1 - table.confidence):g}%"
    return (
        f"Holm’s correction is applied to each search direction separately: equal methods get a false letter in at "
        f"most {level} of studies in one direction, and in at most {2 * 100 * (1 - table.confidence):g}% in either"
    )
