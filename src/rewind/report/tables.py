"""All tables of a study: what each kind is made from, and the function that builds it.

:data:`SPECS` lists them. The tables of settings, the verdict and cosine gaps, which compute more, have modules of their
own; the others follow below, each as the rows of its CSV, its cells and its notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.report import RANK_COLUMN, SEARCH_DIRECTIONS
from rewind.errors import RewindError
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS, STRICT_ACCURACY_COLUMN, metric_of_column
from rewind.report import cosine_gap, notes, probe_tables, short_notes, trial_table, verdict
from rewind.report.cosine_gap import CosineGapResults
from rewind.report.efficiency_table import efficiency_notes, efficiency_table
from rewind.report.footnotes import (
    Footnotes,
    confidence_percent,
    finish_sentences,
    pair_count,
    procedure_sentence,
    seed_caution,
    seed_sentence,
)
from rewind.report.render import render_text
from rewind.report.results import (
    ABOVE_CHANCE,
    BELOW_CHANCE,
    Results,
    chance_mark,
    check_results,
    evaluated_directions,
    in_table_order,
    methods_in_order,
    with_labels,
)
from rewind.report.setting_table import (
    SettingResults,
    better_arrow,
    binary_columns,
    compare_in_setting,
    file_letter,
    format_setting_table,
    metric_decimals,
    reduced_family_size,
    setting_csv_rows,
    setting_title,
)
from rewind.report.table import (
    MISSING,
    Cell,
    Column,
    RowGroup,
    Table,
    count_cell,
    number_cell,
    p_value_cell,
    slug,
)
from rewind.statistics.chance import ALL_TIED, MIN_TESTED_CLUSTERS
from rewind.statistics.inference import significance_level

# ---- What tables are made from -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TableInputs:
    """What the tables of a study are made from.

    Attributes:
        results: the study's numbers.
        settings: in order, among ``origin``, ``hard``, ``binary``, ``test``.
        facts: for the notes.
        dataset: title of the data, for the captions.
        gaps: cosine gaps, where the study computes them.
        noise: names of methods that were evaluated on noise instead of clips.
        costs: sizes and times of methods, see :data:`rewind.report.efficiency_table.EFFICIENCY_COLUMNS`.
    """

    results: Results
    settings: Sequence[str] = ()
    facts: Footnotes = field(default_factory=Footnotes)
    dataset: str = ""
    gaps: CosineGapResults | None = None
    noise: Sequence[str] = ()
    costs: pd.DataFrame = field(default_factory=pd.DataFrame)

    _settings: dict[str, SettingResults] = field(default_factory=dict, init=False, repr=False)

    def setting_results(self, setting: str) -> SettingResults:
        """The numbers of a setting's table, computed once.

        Raises:
            RewindError: from :func:`rewind.report.setting_table.compare_in_setting`.
        """
        if setting not in self._settings:
            self._settings[setting] = compare_in_setting(self.results, setting, self.dataset)
        return self._settings[setting]

    @property
    def cosine_gaps(self) -> CosineGapResults:
        """The cosine gaps of a study that has some."""
        assert self.gaps is not None
        return self.gaps

    def has(self, needed: str, setting: str = "") -> bool:
        """Whether there are numbers, and if they belong to settings, numbers of ``setting``.

        Args:
            needed: path of a field, for example ``results.pairs``.
            setting: empty for numbers of no setting.
        """
        if needed.startswith("gaps.") and self.gaps is None:
            return False
        if needed.startswith("probes."):
            return len(self.results.probe(needed.removeprefix("probes."))) > 0
        numbers = attrgetter(needed)(self)
        if isinstance(numbers, pd.DataFrame):
            return len(numbers) > 0 and (not setting or bool((numbers["setting"] == setting).any()))
        return numbers is not None


Layout = Callable[[TableInputs, str], Table]


@dataclass(frozen=True)
class TableSpec:
    """A kind of table. Its functions take the inputs and a setting, which is empty for a table of no setting.

    Attributes:
        kind: its name.
        file: name of its files without prefix and suffix; ``{setting}`` where there is one per setting.
        needs: which numbers of :class:`TableInputs` it shows, see :meth:`TableInputs.has`.
        layout: the table without notes and CSV.
        notes: sentences below it.
        data: its CSV.
        short_note: the notes in one line, for a paper.
        summary: the table as the terminal shows it at the end of a run; None: it does not.
        appendix: whether it takes the notes that a paper's other tables leave out.

    Example:
        >>> spec = next(spec for spec in SPECS if spec.kind == "pairs")
        >>> spec.file_name("hard"), spec.needs, spec.summary is None
        ('table_pairs_hard', 'results.pairs', True)
    """

    kind: str
    file: str
    needs: str
    layout: Layout
    notes: Callable[[TableInputs, str], list[str]]
    data: Callable[[TableInputs, str], pd.DataFrame]
    short_note: Callable[[TableInputs, str], str] = lambda inputs, setting: ""
    summary: Layout | None = None
    appendix: bool = False

    @property
    def per_setting(self) -> bool:
        """Whether there is a table for every setting."""
        return "{setting}" in self.file

    def file_name(self, setting: str = "") -> str:
        """Name of its files without prefix and suffix."""
        return self.file.format(setting=setting, letter=file_letter(setting))

    def build(self, inputs: TableInputs, setting: str = "") -> Table:
        """The whole table, with the condition of all numbers in its caption.

        Raises:
            RewindError: for numbers that cannot stand in one table (see :func:`rewind.report.results.check_results`).
        """
        return replace(
            self.layout(inputs, setting).with_condition(inputs.results.given),
            name=self.file_name(setting),
            kind=self.kind,
            setting=setting,
            appendix=self.appendix,
            notes=tuple(self.notes(inputs, setting)),
            short_note=self.short_note(inputs, setting),
            data=self.data(inputs, setting),
        )


def planned_tables(inputs: TableInputs) -> list[tuple[TableSpec, str]]:
    """(kind, setting) of every table that a study has, in reading order; the setting is empty for a table of none."""
    return [
        (spec, setting)
        for spec in SPECS
        for setting in (inputs.settings if spec.per_setting else [""])
        if inputs.has(spec.needs, setting)
    ]


def build_tables(inputs: TableInputs) -> Iterator[Table]:
    """Every table of a study, in reading order.

    Raises:
        RewindError: for numbers that cannot stand in one table (see :func:`rewind.report.results.check_results`).
    """
    for spec, setting in planned_tables(inputs):
        yield spec.build(inputs, setting)


def summary_text(inputs: TableInputs) -> str:
    """Settings, verdict, zero-shot accuracy and gaps as aligned text for the end of a run, and the notes of all tables.

    Raises:
        RewindError: as :func:`build_tables`.
    """
    shown = [(spec.summary, setting) for spec, setting in planned_tables(inputs) if spec.summary]
    tables = [summary(inputs, setting).with_condition(inputs.results.given) for summary, setting in shown]
    counts = {count for setting in inputs.settings for count in inputs.setting_results(setting).seeds}
    footnotes = notes.study_notes(inputs.facts, sorted(counts))
    return "\n".join(text for text in (*map(render_text, tables), footnotes) if text)


# ---- Settings, verdict, cosine gaps --------------------------------------------------------------------------------


def setting_layout(inputs: TableInputs, setting: str) -> Table:
    """The main table of a setting: a row per method, see :mod:`rewind.report.setting_table`."""
    table = inputs.setting_results(setting)
    formatted = format_setting_table(table, task_description(table, inputs.facts.items))
    return replace(formatted, key=notes.table_key(inputs.facts, table))


def setting_summary(inputs: TableInputs, setting: str) -> Table:
    """As :func:`setting_layout`, with a key that also says what the notes would."""
    key = notes.summary_table_key(inputs.facts, inputs.setting_results(setting))
    return replace(setting_layout(inputs, setting), key=key)


def _setting_line(inputs: TableInputs, setting: str) -> str:
    table = inputs.setting_results(setting)
    # Undetectable differences matter only if letters are missing, or bold could be read as "equally good".
    blind = notes.detectable_range(table) if table.blind and (table.few is not None or table.marked) else ""
    return short_notes.setting_line(inputs.facts, table, blind)


def _intervals_line(inputs: TableInputs, setting: str) -> str:
    return short_notes.intervals_line(inputs.results.confidence)


def task_description(table: SettingResults, items: str) -> str:
    """``text→video retrieval``, or the task of Binary."""
    item = items.removesuffix("s")
    if table.setting == "binary":
        return f"telling a {item} from its time-reversed twin"
    names = {"text_to_item": f"text→{item}", "item_to_text": f"{item}→text"}
    return f"{' and '.join(names[direction] for direction in table.directions)} retrieval"


def verdict_layout(inputs: TableInputs, setting: str = "") -> Table:
    """What each method gains over the baseline, see :mod:`rewind.report.verdict`."""
    table = verdict.format_verdict_table(inputs.results, inputs.dataset)
    return replace(table, key="\n".join(verdict.verdict_outcomes(inputs.results)))


def cosine_gap_layout(inputs: TableInputs, setting: str = "") -> Table:
    """Cosine gaps of all methods, see :mod:`rewind.report.cosine_gap`."""
    return cosine_gap.format_cosine_gap_table(inputs.cosine_gaps, inputs.dataset)


def cosine_gap_summary(inputs: TableInputs, setting: str = "") -> Table:
    """The columns of :func:`cosine_gap_layout` for which a terminal has room."""
    return cosine_gap.terminal_columns(cosine_gap_layout(inputs))


def cosine_gap_pair_layout(inputs: TableInputs, setting: str = "") -> Table:
    """Differences in cosine gap."""
    return cosine_gap.format_cosine_gap_pair_table(inputs.cosine_gaps, inputs.dataset)


# ---- Zero-shot classification: accuracy on labelled images that no method was trained on ---------------------------

DATA_TITLES = {"cifar10": "CIFAR-10"}


def zero_shot_csv_rows(results: Results) -> pd.DataFrame:
    """Accuracy in percent with its interval, methods in the order of the tables, with their names.

    Raises:
        RewindError: for a method that is not in the study.
    """
    order = {method: at for at, method in enumerate(results.ordered())}
    unknown = [method for method in results.zero_shot["method"] if method not in order]
    if unknown:
        raise RewindError(f"statistics/zero_shot.csv: method {unknown[0]!r} is not in the study; make the file anew.")
    return in_table_order(results.zero_shot, results.ordered(), results.labels)


def zero_shot_layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method that has towers."""
    results = inputs.results
    rows = zero_shot_csv_rows(results)
    is_baseline = rows["method"].isin(list(results.baselines))
    groups = tuple(
        RowGroup(title, tuple(map(_zero_shot_row, part.itertuples())))
        for title, part in (("", rows[~is_baseline]), ("Baselines", rows[is_baseline]))
        if len(part)
    )
    return Table(
        "Zero-shot",
        f"{zero_shot_title(rows)}: zero-shot classification",
        f"{rows['data'].iloc[0]}-zero-shot",
        (Column("Method", number=False), Column("Accuracy", "↑")),
        groups,
    )


def _zero_shot_row(row: Any) -> tuple[Cell, ...]:
    ends = {"low": row.low, "high": row.high} if row.high > row.low else {}
    return Cell(row.label), number_cell(row.estimate, std=row.std, **ends)


def zero_shot_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results = inputs.results
    rows = zero_shot_csv_rows(results)
    first = rows.iloc[0]
    template = f"Prompts: {first['templates']}" + (
        " (open_clip’s for ImageNet)" if first["templates"] in ("simple", "openai") else ""
    )
    trained = rows[rows["method"].isin(results.trained())]
    several = len(trained) or rows["std"].notna().any()  # towers that were pre-trained with several seeds
    spread = "Mean ± standard deviation over training seeds; in brackets" if several else "In brackets"
    procedures = "; ".join(dict.fromkeys(rows["procedure"]))
    return finish_sentences(
        [
            f"Accuracy in percent on {first['images']:,} test images of {zero_shot_title(rows)}, none of which were "
            "used in training; the predicted class is the one with the most similar prompts; a tie counts fractionally",
            template,
            f"{spread} {confidence_percent(results.confidence)} intervals, not adjusted for multiple comparisons: "
            f"{procedures}",
            _identical_prompts_sentence(rows),
            seed_caution(sorted(set(trained["seeds"]))) if len(trained) else "",
        ]
    )


def _identical_prompts_sentence(rows: pd.DataFrame) -> str:
    """Methods whose vocabulary lacks names of classes, so that several classes have the same prompts."""
    affected = [f"{row.alike} ({row.label})" for row in rows.itertuples() if row.alike]
    if not affected:
        return ""
    listed = ", ".join(affected)
    return f"Classes whose prompts are identical to the model, because their names are not in its vocabulary: {listed}"


def zero_shot_title(rows: pd.DataFrame) -> str:
    """The name of the labelled images in the rows of :func:`zero_shot_csv_rows`."""
    return DATA_TITLES.get(rows["data"].iloc[0], rows["data"].iloc[0])


# ---- Order of frames: what a method loses when clips show theirs in another order ----------------------------------

CONTROL_TITLES = {
    "reversed": "reversed",
    "shuffled": "shuffled",
    "halves": "halves swapped",
    "single": "one frame",
    "frozen": "one frame, repeated",
}


def order_csv_rows(results: Results) -> pd.DataFrame:
    """``order.csv`` in the order of the tables, with the methods' names."""
    return in_table_order(results.frame_order, results.ordered(), results.labels)


def order_layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method: its value on clips as they are, and what each control costs."""
    results, rows = inputs.results, order_csv_rows(inputs.results)
    key = notes.order_key(
        inputs.facts, confidence_percent(results.confidence), int(rows["family"].max()), _order_blind(rows)
    )
    return _control_table(inputs, rows, "Order", "that frames in another order cost", "order", CONTROL_TITLES, key)


def _order_blind(rows: pd.DataFrame) -> list[str]:
    """Methods of which a control changes no rank at all."""
    return list(dict.fromkeys(rows.loc[rows["identical"] == 1, "label"]))


def _control_table(
    inputs: TableInputs,
    rows: pd.DataFrame,
    label: str,
    what: str,
    name: str,
    titles: Mapping[str, str],
    key: str,
    sign: int = 1,
) -> Table:
    """A row per method: its value in the deciding metric, and the difference under each control.

    Args:
        inputs: of all tables.
        rows: in the form of :func:`rewind.statistics.order.order_table`.
        label: of the table, before its title.
        what: words of the title behind the metric.
        name: of the table in references.
        titles: control → title, in the order of columns.
        key: what stands below it in a terminal.
        sign: 1 where a loss is shown, -1 where a gain is.
    """
    results, where = inputs.results, rows["setting"].iloc[0]
    metric = results.deciding(where)
    shown = rows[rows["metric"] == metric]
    controls = [control for control in titles if control in set(shown["control"])]
    lines = []
    for method in dict.fromkeys(shown["method"]):
        cells = {row.control: row for row in shown[shown["method"] == method].itertuples()}
        value = number_cell(next(iter(cells.values())).estimate, metric_decimals(metric))
        changes = (_control_cell(cells.get(control), results, metric, sign) for control in controls)
        lines.append((Cell(results.labels[method]), value, *changes))
    return Table(
        label,
        f"{setting_title(inputs.dataset, where)}: {metric} {what}",
        slug(inputs.dataset, where, name),
        (
            Column("Method", number=False),
            Column(f"{metric}, as is", better_arrow(metric)),
            *(Column(titles[control]) for control in controls),
        ),
        (RowGroup("", tuple(lines)),),
        key,
    )


def _control_cell(row: Any, results: Results, metric: str, sign: int) -> Cell:
    if row is None:
        return Cell(MISSING)
    low, high = sorted((sign * row.low, sign * row.high))
    ends = {} if row.identical else {"low": low, "high": high}
    significant = bool(row.p_holm < significance_level(results.confidence))
    return number_cell(sign * row.loss, metric_decimals(metric), **ends, signed=True, bold=significant)


def order_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results = inputs.results
    rows = order_csv_rows(results)
    metric = results.deciding(rows["setting"].iloc[0])
    first = rows.iloc[0]
    percent = confidence_percent(results.confidence)
    sign = "below" if METRICS[metric].lower_is_better else "above"
    return finish_sentences(
        [
            f"{metric} of the same models and captions on clips as they are minus that with each clip’s frames in "
            f"another order; {sign} 0 where it costs something",
            "Shuffled: at random, each clip with a seed of its own; halves swapped: the second half before the first; "
            "one frame: the middle one, alone or in the place of all",
            f"In brackets {percent} intervals of the paired difference over training seeds and queries, not adjusted; "
            f"bold: differs after Holm’s correction over {first['family']} pairs of a method and a control",
            notes.same_ranks_sentence(_order_blind(rows)),
            notes.unequal_budgets(inputs.facts),
            seed_caution(_seed_counts(results)),
        ]
    )


# ---- Transductive: what a method gains if its scores are normalised over the test captions --------------------------

NORMALISATION_TITLES = {"dual_softmax": "dual softmax", "qb_norm": "QB-Norm"}


def transductive_csv_rows(results: Results) -> pd.DataFrame:
    """``transductive.csv`` in the order of the tables, with the methods' names."""
    return in_table_order(results.transductive, results.ordered(), results.labels)


def transductive_layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method: its value by its own scores, and the gain of each normalisation."""
    rows = transductive_csv_rows(inputs.results)
    family = f"{rows['family'].iloc[0]} pairs of a method and a normalisation"
    key = notes.key_text([TRANSDUCTIVE_WARNING, f"*: differs from 0, after Holm’s correction over {family}"])
    what = "gained by normalising over all test captions"
    return _control_table(inputs, rows, "Sees the test set", what, "transductive", NORMALISATION_TITLES, key, sign=-1)


TRANSDUCTIVE_WARNING = (
    "NOT A RETRIEVAL RESULT: each score was normalised over all captions of the test split, which no search engine "
    "has; compare such numbers with none that were not made so"
)


def transductive_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results, rows = inputs.results, transductive_csv_rows(inputs.results)
    metric, percent = results.deciding(rows["setting"].iloc[0]), confidence_percent(results.confidence)
    return finish_sentences(
        [
            TRANSDUCTIVE_WARNING,
            f"{metric} of captions that search clips, by normalised scores minus by the method’s own. Dual softmax: a "
            "score, counted from the lowest of all, times the softmax of the clip’s scores over all captions; QB-Norm: "
            "that softmax alone, with the test captions as its bank",
            f"In brackets {percent} intervals of the paired difference over training seeds and queries, not adjusted; "
            f"bold: differs after Holm’s correction over {rows['family'].iloc[0]} pairs of a method and a "
            "normalisation",
            notes.unequal_budgets(inputs.facts),
            seed_caution(_seed_counts(results)),
        ]
    )


# ---- Gap: what a method loses when the time-reversed twins join the gallery ----------------------------------------


def gap_csv_rows(results: Results) -> pd.DataFrame:
    """``gaps.csv`` in the order of the tables, with the methods' names; empty without gaps."""
    if results.gaps.empty:
        return pd.DataFrame()
    return in_table_order(results.gaps, results.ordered(), results.labels)


def gap_metrics(results: Results) -> list[str]:
    """Metrics of the study's tables that have a gap, because they are means over queries; R@1 if there are none."""
    return [metric for metric in results.shown() if METRICS[metric].tested] or [ACCURACY_METRIC]


def gap_layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method, a group per search direction; each gap with its interval."""
    results = inputs.results
    rows = gap_csv_rows(results)
    directions = _directions_of(rows)
    groups = []
    for direction in directions:
        cells = {(r.method, r.metric): r for r in rows[rows["direction"] == direction].itertuples()}
        methods = dict.fromkeys(method for method, _ in cells)
        lines = tuple(_gap_row(results, method, cells) for method in methods)
        groups.append(RowGroup(_direction_title(results, direction, directions), lines))
    return Table(
        "Gap",
        ", ".join(part for part in (inputs.dataset, "Origin − Hard") if part),
        slug(inputs.dataset, "gap"),
        (Column("Method", number=False), *map(Column, gap_metrics(results))),
        tuple(groups),
    )


def _gap_row(results: Results, method: str, cells: dict[tuple[str, str], Any]) -> tuple[Cell, ...]:
    shown = (_gap_cell(cells.get((method, metric)), metric) for metric in gap_metrics(results))
    return (Cell(results.labels[method]), *shown)


def _gap_cell(row: Any, metric: str) -> Cell:
    if row is None:
        return Cell(MISSING)
    ends = {"low": row.low, "high": row.high} if row.high > row.low else {}  # chance has a gap without an interval
    return number_cell(row.gap, metric_decimals(metric), **ends, signed=True)


def gap_notes(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    directions = _directions_of(results.gaps)
    return finish_sentences(
        [
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
            "Gap: the result of Origin’s queries in Origin’s gallery minus their result in the gallery with the "
            "time-reversed twins added, in the same runs",
            _gap_sign_sentence(gap_metrics(results)),
            f"In brackets {confidence_percent(results.confidence)} intervals, not adjusted for multiple comparisons",
            _constant_gaps_sentence(results),
            procedure_sentence(facts, tested=False),
            seed_caution(_seed_counts(results)),
            seed_sentence(facts),
        ]
    )


def _constant_gaps_sentence(results: Results) -> str:
    """Which methods have no intervals because all ties; chance has none anyway."""
    gaps = results.gaps
    constant = set(gaps["method"][(gaps["low"] == gaps["high"]) & (gaps["low"] == gaps["gap"])])
    names = [results.labels[m] for m in results.ordered() if m in constant and m not in results.baselines]
    return f"{notes.NO_INTERVAL_OF_CONSTANTS}: {', '.join(names)}" if names else ""


def _gap_sign_sentence(metrics: list[str]) -> str:
    """What the sign of a gap means."""
    higher_better, lower_better = (
        [m for m in metrics if METRICS[m].lower_is_better is lower] for lower in (False, True)
    )
    sentences = []
    if higher_better:
        units = notes.metric_units(higher_better)
        sentences.append(f"{units}, 0 means that twins cost nothing and above 0 that they do")
    if lower_better:
        zero = "" if higher_better else "0 means that twins cost nothing and "
        sentences.append(f"{notes.metric_units(lower_better)}, {zero}below 0 that they do")
    return "; ".join(sentences)


# ---- Groups of captions --------------------------------------------------------------------------------------------


def group_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """``groups.csv`` in this setting, methods in the order of the tables; empty without groups."""
    if results.groups.empty:
        return pd.DataFrame()
    order = {method: at for at, method in enumerate(results.ordered())}
    rows = results.groups[results.groups["setting"] == setting]
    rows = rows.sort_values(
        ["direction", "group", "method"],
        key=lambda column: column.map(order) if column.name == "method" else column.map(_direction_or_name),
        kind="stable",
        ignore_index=True,
    )
    return with_labels(rows, results.labels)


def _direction_or_name(name: str) -> tuple[int, str]:
    """Search directions as elsewhere, groups by name."""
    return (SEARCH_DIRECTIONS.index(name), "") if name in SEARCH_DIRECTIONS else (0, name.casefold())


def group_layout(inputs: TableInputs, setting: str) -> Table:
    """A row per group of captions, a column per method, a group of rows per search direction."""
    results = inputs.results
    rows = group_csv_rows(results, setting)
    directions, methods = _directions_of(rows), list(dict.fromkeys(rows["method"]))
    level = significance_level(results.confidence)
    groups = []
    for direction in directions:
        by_name = rows[rows["direction"] == direction].groupby("group", sort=False)
        lines = tuple(_group_row(name, part.set_index("method"), methods, level) for name, part in by_name)
        groups.append(RowGroup(_direction_title(results, direction, directions), lines))
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
        tuple(groups),
    )


def _group_row(group: str, rows: pd.DataFrame, methods: list[str], level: float) -> tuple[Cell, ...]:
    queries = count_cell(rows["queries"].iloc[0], separator="")
    return (Cell(group), queries, *(_group_cell(rows.loc[method], level) for method in methods))


def _group_cell(row: pd.Series, level: float) -> Cell:
    exact = row["low"] == row["high"] == row["estimate"]
    ends = {} if exact else {"low": row["low"], "high": row["high"]}
    mark = chance_mark(row["estimate"], row["p_holm"], level)
    decimals = metric_decimals(row["metric"])
    cell = number_cell(row["estimate"], decimals, **ends, marks=mark, bold=mark == ABOVE_CHANCE)
    return replace(cell, interval=None) if row.get("tied") == ALL_TIED else cell


def group_notes(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    rows = group_csv_rows(results, setting)
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
            *(_group_test_sentences(rows, results) if tested else ()),
            _tied_groups_sentence(rows, results),
            _ungrouped_sentence(facts, rows, setting),
            procedure_sentence(facts, tested),
            seed_caution(sorted(set(rows.loc[rows["method"].isin(results.trained()), "seeds"]))),
        ]
    )


def _group_test_sentences(rows: pd.DataFrame, results: Results) -> list[str]:
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


def _group_line(inputs: TableInputs, setting: str) -> str:
    results = inputs.results
    families = sorted(set(group_csv_rows(results, setting)["family"]) - {0})
    tests = (
        f"{ABOVE_CHANCE}, {BELOW_CHANCE}: above, below 50%, p < {1 - results.confidence:.3g}, Holm over "
        + " and ".join(f"{family:,}" for family in families)
    )
    return short_notes.join_short_notes(
        [f"brackets: {confidence_percent(results.confidence)} intervals", f"{tests} tests" if families else ""]
    )


# ---- Pairs: differences with their interval, p, Holm's p, effect size and bootstrap interval -----------------------


def pair_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """``pairs.csv`` in this setting, all metrics, with the names of both methods.

    Raises:
        RewindError: from :func:`rewind.report.results.check_results`.
    """
    check_results(results, setting)
    if results.pairs.empty:
        return pd.DataFrame()
    rows = results.pairs[results.pairs["setting"] == setting].reset_index(drop=True)
    for column in ("second", "first"):
        rows.insert(0, f"{column}_label", rows[column].map(results.labels))
    return rows


def pair_layout(inputs: TableInputs, setting: str) -> Table:
    """A row per pair, a group per search direction; only the deciding metric is printed."""
    results = inputs.results
    rows, metric = pair_csv_rows(results, setting), results.deciding(setting)
    directions, level = evaluated_directions(results, setting), significance_level(results.confidence)
    groups = []
    for direction in directions:
        shown = rows[(rows["direction"] == direction) & (rows["metric"] == metric)]
        if len(shown):
            lines = tuple(_pair_row(row, level, metric_decimals(metric)) for row in shown.itertuples())
            groups.append(RowGroup(_direction_title(results, direction, directions), lines))
    what = "accuracy" if setting == "binary" else metric
    return Table(
        "Pairs",
        f"{setting_title(inputs.dataset, setting)}: differences in {what}",
        slug(inputs.dataset, setting, "pairs"),
        (
            Column("Pair", number=False),
            Column("Difference"),
            *(Column(title) for title in ("p", "Holm’s p", "Detectable", "Effect")),
            Column("these checkpoints", group="Bootstrap"),
        ),
        tuple(groups),
    )


def _pair_row(row: Any, level: float, decimals: int) -> tuple[Cell, ...]:
    significant = bool(row.p_holm < level)
    beyond = notes.is_beyond_possible(row.setting, row.metric, row.detectable)
    detectable = Cell(MISSING) if beyond else number_cell(row.detectable, decimals)
    bootstrap = number_cell(row.difference, decimals, low=row.boot_low, high=row.boot_high, signed=True)
    return (
        Cell(f"{row.first_label} − {row.second_label}"),
        number_cell(row.difference, decimals, low=row.low, high=row.high, signed=True, bold=significant),
        p_value_cell(row.p),
        p_value_cell(row.p_holm, bold=significant),
        detectable,
        number_cell(row.effect, 2, signed=True),
        replace(bootstrap, text="", value=None),  # the difference is in a column of its own
    )


def pair_notes(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    directions, metric = tuple(evaluated_directions(results, setting)), results.deciding(setting)
    percent = metric_of_column(metric).percent
    unit = "accuracy in percent" if setting == "binary" else f"{metric} in percent" if percent else metric
    family_size = reduced_family_size(results, setting) or facts.family
    family = f" over {pair_count(family_size)}" if family_size else ""
    tested = bool(results.pairs.loc[results.pairs["setting"] == setting, "p"].notna().any())
    interval = confidence_percent(results.confidence)
    return finish_sentences(
        [
            notes.queries_sentence(facts, setting, directions),
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
            f"Difference: the first method minus the second, {unit}; in brackets its {interval} interval, not adjusted "
            "for multiple comparisons",
            f"Holm’s p: adjusted{family}, separately for each search direction; bold: below "
            f"{1 - results.confidence:.3g}"
            if tested
            else "",
            "Detectable: the smallest true difference that this comparison would find significant in 80% of studies, "
            f"at the strictest level of Holm’s correction; {MISSING}: none that is possible"
            if tested
            else "",
            "Effect: the share of queries on which the first method does better minus the share on which it does "
            "worse, −1 to 1",
            procedure_sentence(facts, tested),
            f"Bootstrap: {interval} interval, {facts.bootstrap}; it says nothing about other training seeds"
            if facts.bootstrap
            else "",
            seed_caution(_seed_counts(results)),
            seed_sentence(facts),
        ]
    )


# ---- Every run, in the appendix ------------------------------------------------------------------------------------


def seed_csv_rows(results: Results, setting: str) -> pd.DataFrame:
    """``metrics.csv`` in this setting, methods in the order of the tables, with their names.

    Raises:
        RewindError: from :func:`rewind.report.results.check_results`.
    """
    check_results(results, setting)
    rows = results.metrics[results.metrics["setting"] == setting]
    order = {method: at for at, method in enumerate(methods_in_order(results, setting))}
    rows = rows.assign(order=rows["method"].map(order)).sort_values(["order", "seed"], kind="stable")
    return with_labels(rows.drop(columns="order").reset_index(drop=True), results.labels)


def seed_columns(results: Results, setting: str) -> dict[str, str]:
    """Title → metric: the usual ones, others in the study's tables, and strict R@1; in Binary both accuracies."""
    if setting == "binary":
        binary = binary_columns(results, ["text_to_item"])
        return {column.title: column.metric for column in binary if column.metric != RANK_COLUMN}
    metrics = [m for m in results.evaluated() if METRICS[m].usual or m in results.shown()]
    return {metric: metric for metric in metrics} | {"R@1 strict": STRICT_ACCURACY_COLUMN}


def seed_layout(inputs: TableInputs, setting: str) -> Table:
    """A row per run, a group per search direction."""
    results = inputs.results
    rows, directions = seed_csv_rows(results, setting), evaluated_directions(results, setting)
    titles = seed_columns(results, setting)
    groups = []
    for direction in directions:
        runs = rows[rows["direction"] == direction].to_dict("records")
        lines = tuple(_seed_row(row, list(titles.values())) for row in runs)
        groups.append(RowGroup(_direction_title(results, direction, directions), lines))
    return Table(
        "Seeds",
        f"{setting_title(inputs.dataset, setting)}: every run",
        slug(inputs.dataset, setting, "seeds"),
        (
            Column("Method", number=False),
            Column("Seed"),
            *(Column(title, better_arrow(metric)) for title, metric in titles.items()),
        ),
        tuple(groups),
    )


def _seed_row(row: dict[str, Any], metrics: list[str]) -> tuple[Cell, ...]:
    cells = (number_cell(float(row[metric]), metric_decimals(metric)) for metric in metrics)
    return (Cell(row["label"]), count_cell(row["seed"], separator=""), *cells)


def seed_notes(inputs: TableInputs, setting: str) -> list[str]:
    """The sentences below the table."""
    results, facts = inputs.results, inputs.facts
    reading = (
        "In percent; a tie counts one half in accuracy and as wrong in strict accuracy"
        if setting == "binary"
        else f"{notes.metric_units(seed_columns(results, setting).values())}; expected values when tied items are "
        "ordered at random; strict counts every tie as a miss"
    )
    directions = tuple(evaluated_directions(results, setting))
    return finish_sentences(
        [
            notes.queries_sentence(facts, setting, directions),
            notes.direction_names_sentence(facts, directions) if len(directions) > 1 else "",
            reading,
        ]
    )


# ---- What several kinds share --------------------------------------------------------------------------------------


def _directions_of(rows: pd.DataFrame) -> list[str]:
    return [direction for direction in SEARCH_DIRECTIONS if direction in set(rows["direction"])]


def _direction_title(results: Results, direction: str, directions: Sequence[str]) -> str:
    """The title of a group of rows: none where there is one search direction."""
    return results.short(direction) if len(directions) > 1 else ""


def _seed_counts(results: Results) -> list[int]:
    rows = results.metrics[results.metrics["method"].isin(results.trained())]
    return sorted(set(rows.groupby("method")["seed"].nunique()))


# ---- All kinds -----------------------------------------------------------------------------------------------------


def _probe_spec(probe: str) -> TableSpec:
    def layout(inputs: TableInputs, setting: str) -> Table:
        return probe_tables.probe_layout(inputs.results, probe, inputs.dataset)

    return TableSpec(
        f"probe_{probe}",
        file=f"table_probe_{probe}",
        needs=f"probes.{probe}",
        layout=layout,
        notes=lambda inputs, _: probe_tables.probe_notes(inputs.results, probe),
        data=lambda inputs, _: probe_tables.probe_csv_rows(inputs.results, probe),
        short_note=_intervals_line,
        summary=layout,
    )


# To add a kind, write its functions and add an entry here.
SPECS: tuple[TableSpec, ...] = (
    TableSpec(
        "setting",
        file="table_{letter}{setting}",
        needs="results",
        layout=setting_layout,
        notes=lambda inputs, setting: notes.setting_sentences(inputs.facts, inputs.setting_results(setting)),
        data=lambda inputs, setting: setting_csv_rows(inputs.results, setting),
        short_note=_setting_line,
        summary=setting_summary,
    ),
    TableSpec(
        "verdict",
        file="table_verdict",
        needs="results.verdict",
        layout=verdict_layout,
        notes=lambda inputs, _: verdict.verdict_sentences(inputs.facts, inputs.results),
        data=lambda inputs, _: verdict.verdict_csv_rows(inputs.results),
        short_note=_intervals_line,
        summary=verdict_layout,
    ),
    TableSpec(
        "zero_shot",
        file="table_zero_shot",
        needs="results.zero_shot",
        layout=zero_shot_layout,
        notes=zero_shot_notes,
        data=lambda inputs, _: zero_shot_csv_rows(inputs.results),
        short_note=_intervals_line,
        summary=zero_shot_layout,
    ),
    TableSpec(
        "blind",
        file="table_blind",
        needs="results.blind",
        layout=lambda inputs, _: probe_tables.blind_layout(inputs.results, inputs.dataset),
        notes=lambda inputs, _: probe_tables.blind_notes(inputs.results),
        data=lambda inputs, _: probe_tables.blind_csv_rows(inputs.results),
        short_note=_intervals_line,
        summary=lambda inputs, _: probe_tables.blind_layout(inputs.results, inputs.dataset),
    ),
    TableSpec(
        "order",
        file="table_order",
        needs="results.frame_order",
        layout=order_layout,
        notes=order_notes,
        data=lambda inputs, _: order_csv_rows(inputs.results),
        short_note=_intervals_line,
        summary=order_layout,
    ),
    TableSpec(
        "transductive",
        file="table_transductive",
        needs="results.transductive",
        layout=transductive_layout,
        notes=transductive_notes,
        data=lambda inputs, _: transductive_csv_rows(inputs.results),
        short_note=_intervals_line,
        summary=transductive_layout,
    ),
    *(_probe_spec(probe) for probe in probe_tables.PROBE_TABLES),
    TableSpec(
        "gap",
        file="table_gap",
        needs="results.gaps",
        layout=gap_layout,
        notes=gap_notes,
        data=lambda inputs, _: gap_csv_rows(inputs.results),
        short_note=lambda inputs, _: short_notes.gap_line(inputs.results),
        summary=gap_layout,
    ),
    TableSpec(
        "groups",
        file="table_groups_{setting}",
        needs="results.groups",
        layout=group_layout,
        notes=group_notes,
        data=lambda inputs, setting: group_csv_rows(inputs.results, setting),
        short_note=_group_line,
    ),
    TableSpec(
        "pairs",
        file="table_pairs_{setting}",
        needs="results.pairs",
        layout=pair_layout,
        notes=pair_notes,
        data=lambda inputs, setting: pair_csv_rows(inputs.results, setting),
        short_note=lambda inputs, setting: short_notes.pair_line(inputs.facts, inputs.results, setting),
    ),
    TableSpec(
        "seeds",
        file="table_seeds_{setting}",
        needs="results",
        layout=seed_layout,
        notes=seed_notes,
        data=lambda inputs, setting: seed_csv_rows(inputs.results, setting),
        appendix=True,
    ),
    TableSpec(
        "trials",
        file="table_trials",
        needs="results.trials",
        layout=lambda inputs, _: trial_table.trial_layout(inputs.results, inputs.dataset),
        notes=lambda inputs, _: trial_table.trial_notes(inputs.results),
        data=lambda inputs, _: trial_table.trial_csv_rows(inputs.results),
        short_note=lambda inputs, _: "Validation scores; bold: that of the keys that were chosen.",
    ),
    TableSpec(
        "cosine_gap",
        file="table_cosine_gap",
        needs="gaps.runs",
        layout=cosine_gap_layout,
        notes=lambda inputs, _: cosine_gap.cosine_gap_sentences(inputs.facts, inputs.cosine_gaps, list(inputs.noise)),
        data=lambda inputs, _: cosine_gap.cosine_gap_csv_rows(inputs.cosine_gaps),
        short_note=_intervals_line,
        summary=cosine_gap_summary,
    ),
    TableSpec(
        "cosine_gap_pairs",
        file="table_cosine_gap_pairs",
        needs="gaps.pairs",
        layout=cosine_gap_pair_layout,
        notes=lambda inputs, _: cosine_gap.cosine_gap_pair_sentences(inputs.facts, inputs.cosine_gaps),
        data=lambda inputs, _: cosine_gap.cosine_gap_pair_csv_rows(inputs.cosine_gaps),
        short_note=_intervals_line,
    ),
    # Only `python tools/publish` has these numbers beside the others: a rule of its own writes the table, on request.
    TableSpec(
        "efficiency",
        file="table_efficiency",
        needs="costs",
        layout=lambda inputs, _: efficiency_table(inputs.costs, inputs.dataset),
        notes=lambda inputs, _: efficiency_notes(inputs.costs),
        data=lambda inputs, _: inputs.costs,
    ),
)
"""Every kind of table, in reading order."""
