"""What a board reads of a finished study: a card with its names, and its numbers as one row per cell.

The card comes from the study's configuration, or from a shared file. Everything else is read only from the folder of
results, so that a study that somebody else ran is read in the same way. Nothing in those files is trusted: names, types
and ranges are checked before a number is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.commands import snakemake_command
from rewind.config import Dataset, Study
from rewind.config.base import NAME_PATTERN
from rewind.config.report import SEARCH_DIRECTIONS
from rewind.errors import RewindError, label_fault, labels_fault
from rewind.io.files import read_csv
from rewind.io.strict import csv_header, read_user_json
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS, STRICT_ACCURACY_COLUMN
from rewind.registry import import_path
from rewind.report.board.quoted import QuotedMethod, quoted_by_study
from rewind.tables.results import Results, all_tied, metric_interval
from rewind.tables.settings import SETTING_TITLES

TRAINED, ZERO_SHOT, COMPARED, BASELINE = "trained", "zero-shot", "compared baseline", "baseline"
KINDS = (TRAINED, ZERO_SHOT, COMPARED, BASELINE)
"""Kinds of methods: trained by gradient descent; scored as they are; neither, but compared by its study all the same;
and what others are measured against, which has no rank."""

MAX_METHODS = 1000

# ---- The card of a study -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MethodCard:
    """A method's name in tables and its kind, one of :data:`KINDS`."""

    label: str
    kind: str


@dataclass(frozen=True)
class StudyCard:
    """What the configuration states of a finished study, as far as a board needs it."""

    name: str
    dataset: str
    title: str  # of the data set
    items: str  # ``videos`` or ``images``
    confidence: float  # of its intervals
    item_to_text: str  # whether an item searches all captions or its best one
    pretraining: str  # how its backbone was trained before the methods were; empty if it was not
    metrics: Mapping[str, str]  # setting → its deciding metric
    methods: Mapping[str, MethodCard]  # in order
    own_metrics: tuple[str, ...] = ()  # names of metrics that are the study's own
    quoted: tuple[QuotedMethod, ...] = ()  # numbers of papers that its tables show

    def to_json(self) -> dict[str, Any]:
        """The card as plain values, of the last two keys those with a value: earlier versions do not know them."""
        return {key: value for key, value in asdict(self).items() if value or key not in ("own_metrics", "quoted")}

    @classmethod
    def from_json(cls, content: Any, where: str) -> StudyCard:
        """The card of :meth:`to_json`, from a file that somebody else wrote.

        Raises:
            RewindError: naming ``where`` and the key, for anything that :meth:`to_json` does not write.
        """
        return _CardReader(where).read(content)


def study_card(study: Study, dataset: Dataset) -> StudyCard:
    """The card of a configured study."""
    labels, keys = study.labels(), study.pretraining
    kinds = dict.fromkeys(study.methods, BASELINE)
    for name in study.compared_methods():
        method = study.methods[name]
        as_it_is = method.zero_shot or method.precomputed or method.scored_as_it_is
        kinds[name] = TRAINED if name in study.trained() else ZERO_SHOT if as_it_is else COMPARED
    return StudyCard(
        name=study.name,
        dataset=dataset.name,
        title=dataset.title or dataset.name,
        items=dataset.items,
        confidence=study.statistics.confidence,
        item_to_text=study.evaluation.item_to_text,
        pretraining=f"{keys.training.epochs} epochs of pre-training" if keys else "",
        metrics=study.primary_metric_by_setting(),
        methods={name: MethodCard(labels[name], kinds[name]) for name in study.methods},
        own_metrics=tuple(import_path(path, "metrics").name for path in study.metrics),
        quoted=quoted_by_study(study, dataset.name),
    )


class _CardReader:
    """Reads a card from JSON that anybody may have written."""

    def __init__(self, where: str) -> None:
        self.where = where

    def read(self, content: Any) -> StudyCard:
        keys = {"own_metrics": [], "quoted": []} | self.mapping(content, "the card")
        unknown = sorted(set(keys) ^ set(StudyCard.__dataclass_fields__))
        if unknown:
            raise self.fault(unknown[0], "this key is missing or unknown")
        confidence = keys["confidence"]
        if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0.5 < confidence < 1:
            raise self.fault("confidence", "not a number between 0.5 and 1")
        metrics = {
            self.choice(setting, "metrics", SETTING_TITLES): self.choice(metric, f"metrics.{setting}", METRICS)
            for setting, metric in self.mapping(keys["metrics"], "metrics").items()
        }
        return StudyCard(
            name=self.name(keys["name"], "name"),
            dataset=self.name(keys["dataset"], "dataset"),
            title=self.text(keys["title"], "title"),
            items=self.choice(keys["items"], "items", ("videos", "images")),
            confidence=float(confidence),
            item_to_text=self.choice(keys["item_to_text"], "item_to_text", ("all_captions", "best_caption")),
            pretraining=self.text(keys["pretraining"], "pretraining", empty=True),
            metrics=metrics,
            methods=self.methods(keys["methods"]),
            own_metrics=self.own_metrics(keys["own_metrics"]),
            quoted=tuple(self.quoted(row, keys["dataset"]) for row in self.rows(keys["quoted"], "quoted", "methods")),
        )

    def methods(self, content: Any) -> dict[str, MethodCard]:
        methods = self.mapping(content, "methods")
        if not 0 < len(methods) <= MAX_METHODS:
            raise self.fault("methods", f"{len(methods)} methods, where 1 to {MAX_METHODS} are possible")
        cards = {}
        for name, card in methods.items():
            key = f"methods.{self.name(name, 'methods')}"
            values = self.mapping(card, key)
            if set(values) != {"label", "kind"}:
                raise self.fault(key, "it needs label and kind, and nothing else")
            label, kind = values["label"], self.choice(values["kind"], f"{key}.kind", KINDS)
            cards[name] = MethodCard(self.text(label, f"{key}.label"), kind)
        if found := labels_fault({name: card.label for name, card in cards.items()}):
            raise self.fault(f"methods.{found[0]}.label", found[1].partition(";")[0])
        return cards

    def own_metrics(self, content: Any) -> tuple[str, ...]:
        return tuple(self.text(name, "own_metrics") for name in self.rows(content, "own_metrics", "names"))

    def quoted(self, content: Any, dataset: str) -> QuotedMethod:
        row = self.mapping(content, "quoted")
        if set(row) != {"label", "data_set", "source", "values"} or row["data_set"] != dataset:
            raise self.fault("quoted", "each needs label, source, values and the study's data_set, and nothing else")
        values = self.mapping(row["values"], "quoted.values")
        for setting, value in values.items():
            self.choice(setting, "quoted.values", SETTING_TITLES)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
                raise self.fault(f"quoted.values.{setting}", "not a number from 0 to 100")
        label, source = (self.text(row[key], f"quoted.{key}") for key in ("label", "source"))
        return QuotedMethod(label, dataset, source, values)

    def rows(self, value: Any, key: str, noun: str) -> list[Any]:
        if not isinstance(value, list) or len(value) > MAX_METHODS:
            raise self.fault(key, f"not a list of at most {MAX_METHODS} {noun}")
        return value

    def mapping(self, value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fault(key, "not an object")
        return value

    def name(self, value: Any, key: str) -> str:
        if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
            raise self.fault(key, f"{value!r:.60} is not a name of letters, digits, '_' and '-'")
        return value

    def text(self, value: Any, key: str, empty: bool = False) -> str:
        if (fault := label_fault(value)) and not (empty and value == ""):
            raise self.fault(key, fault.partition(";")[0])
        return value

    def choice(self, value: Any, key: str, known: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise self.fault(key, f"{value!r:.60} is not one of {', '.join(known)}")
        return value

    def fault(self, key: str, what: str) -> RewindError:
        return RewindError(f"{self.where}: {key}: {what}; ask its author to share the study again.")


# ---- The numbers of a study ----------------------------------------------------------------------------------------

CELL_COLUMNS = (
    "study", "method", "label", "kind", "seeds", "frames", "budget", "digest", "item_to_text", "data_set", "title",
    "setting", "direction", "metric", "queries", "gallery", "clusters", "estimate", "low", "high", "df", "confidence",
)  # fmt: skip
"""Columns of :attr:`BoardStudy.cells`."""


@dataclass(frozen=True)
class BoardStudy:
    """A finished study on a board.

    Attributes:
        source: where it was read: a folder or a shared file.
        cells: a row per method, setting and direction, with :data:`CELL_COLUMNS`: the deciding metric with its
            interval, numbers of seeds, queries, clusters of queries and of the gallery, frames (0: not known or the
            method's own), training budget in words (empty: not trained), and the digest of the data.
        ranks, pairs: its own ``statistics/ranks.csv`` and ``statistics/pairs.csv``; empty where it has none.
    """

    card: StudyCard
    source: str
    cells: pd.DataFrame = field(repr=False)
    ranks: pd.DataFrame = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)
    intervals: pd.DataFrame = field(repr=False)  # ``statistics/intervals.csv``
    page: str = ""  # address of its report, relative to the board; empty without one
    shared: bool = False  # whether it came in a shared file


_KEY = ["method", "setting", "direction"]
_COUNTS = ("seed", "seeds", "queries", "gallery", "clusters", "rank", "compared")
_MAX_COUNT = 10**9


def read_board_study(
    folder: Path, card: StudyCard, number: int, source: str = "", page: str = "", shared: bool = False
) -> BoardStudy:
    """Read a finished study.

    Args:
        folder: of its results, or of what was unpacked from a shared file.
        number: of the study on the board, from 0.

    Raises:
        RewindError: naming the file, for one that is missing, lacks columns or contains what is not a number.
    """
    intervals = _read_numbers(
        folder / "statistics/intervals.csv",
        (*_KEY, "metric"),
        ("seeds", "queries", "clusters", "estimate", "low", "high", "df"),
        may_lack=("low", "high", "df"),
    )
    _check_rows(folder / "statistics/intervals.csv", intervals, card, [*_KEY, "metric"])
    header = csv_header(folder / "metrics.csv") if (folder / "metrics.csv").is_file() else []
    asked = [*dict.fromkeys(intervals["metric"]), STRICT_ACCURACY_COLUMN]
    measured = tuple(metric for metric in asked if metric in header)
    metrics = _read_numbers(folder / "metrics.csv", tuple(_KEY), ("seed", "queries", "gallery", *measured))
    _refuse_other_runs(folder, metrics, intervals, card)
    ranks = _read_optional(folder / "statistics/ranks.csv", (*_KEY, "metric"), ("rank", "low", "high", "compared"))
    pairs = _read_optional(
        folder / "statistics/pairs.csv",
        ("first", "second", "setting", "direction", "metric"),
        ("difference", "p_holm"),
        ("difference", "p_holm"),
    )
    _check_rows(folder / "statistics/ranks.csv", ranks, card, [*_KEY, "metric"])
    ordered = pairs.assign(pair=[" and ".join(sorted(pair)) for pair in pairs[["first", "second"]].to_numpy()])
    _check_rows(folder / "statistics/pairs.csv", ordered, card, ["pair", "setting", "direction", "metric"])
    cells = _study_cells(folder, card, number, metrics, intervals)
    return BoardStudy(card, source or str(folder), cells, ranks, pairs, intervals, page, shared)


def _study_cells(
    folder: Path, card: StudyCard, number: int, metrics: pd.DataFrame, intervals: pd.DataFrame
) -> pd.DataFrame:
    galleries = metrics.groupby(_KEY)["gallery"].max().to_dict()
    tied = _tied_methods(metrics)
    facts = {name: _run_facts(folder / "runs" / name, card, number, name) for name in card.methods}
    rows = []
    for row in intervals.to_dict("records"):
        method, setting, direction = (str(row[name]) for name in _KEY)
        if row["metric"] != card.metrics.get(setting, ""):
            continue
        kept = {
            name: row[name]
            for name in (*_KEY, "metric", "seeds", "queries", "clusters", "estimate", "low", "high", "df")
        }
        if row["metric"] == ACCURACY_METRIC and (method, setting, direction) in tied:
            kept |= {"low": row["estimate"], "high": row["estimate"]}  # 50 by construction: nothing was estimated
        rows.append(
            kept
            | {"study": number, "label": card.methods[method].label, "kind": card.methods[method].kind}
            | {"data_set": card.dataset, "title": card.title, "confidence": card.confidence}
            | {"item_to_text": card.item_to_text if direction == "item_to_text" else ""}
            | {"gallery": galleries.get((method, setting, direction), math.nan)}
            | facts[method]
        )
    if not rows:
        raise RewindError(
            f"{folder / 'statistics/intervals.csv'}: no interval of a deciding metric "
            f"({', '.join(sorted(set(card.metrics.values())))}); run the study again."
        )
    return pd.DataFrame(rows, columns=list(CELL_COLUMNS))


def _tied_methods(metrics: pd.DataFrame) -> set[tuple[str, str, str]]:
    """Method, setting and direction of Binary where every query ties in every run."""
    if not {ACCURACY_METRIC, STRICT_ACCURACY_COLUMN} <= set(metrics.columns):
        return set()
    return {key for key, runs in metrics[metrics["setting"] == "binary"].groupby(_KEY) if all_tied(runs)}


def _check_rows(path: Path, table: pd.DataFrame, card: StudyCard, key: list[str]) -> None:
    """Refuse rows of methods and metrics that the study does not have, and rows that are listed twice."""
    for column in table.columns.intersection(["method", "first", "second"]):
        unknown = sorted(set(table[column]) - set(card.methods))
        if unknown:
            raise RewindError(
                f"{path}: method {unknown[0]!r:.60} is not in the study's configuration; run the study again, or take "
                "the configuration that it was run with."
            )
    unknown = sorted(set(table.get("metric", ())) - {*METRICS, *card.own_metrics})
    if unknown:
        raise RewindError(f"{path}: metric {unknown[0]!r:.60} is not one of {', '.join(METRICS)}; update Rewind.")
    twice = table.duplicated(key)
    if twice.any():
        row = ", ".join(f"{value:g}" if isinstance(value, float) else value for value in table.loc[twice.idxmax(), key])
        raise RewindError(f"{path}: row {twice.idxmax() + 2}: {row} is listed twice; compute the statistics again.")


def _refuse_other_runs(folder: Path, metrics: pd.DataFrame, intervals: pd.DataFrame, card: StudyCard) -> None:
    """Refuse intervals that are not those of the runs in ``metrics.csv``, or that no runs can have."""
    path = folder / "statistics/intervals.csv"
    _check_rows(folder / "metrics.csv", metrics, card, [*_KEY, "seed"])
    results = Results(
        metrics, intervals, pd.DataFrame(), {name: method.label for name, method in card.methods.items()}, {}
    )
    for key in sorted(set(results.runs) ^ {row[:3] for row in results.ends}):
        file, other = (folder / "metrics.csv", path.name) if key in results.runs else (path, "metrics.csv")
        raise RewindError(f"{file}: {', '.join(key)}: {other} has no such row; compute the statistics again.")
    for number, row in enumerate(intervals.to_dict("records"), start=2):
        key, where = tuple(row[name] for name in _KEY), f"{path}: row {number}"
        runs = results.runs[key]
        if row["seeds"] != len(runs) or (runs["queries"] != row["queries"]).any():
            raise RewindError(
                f"{where}: {row['seeds']:g} seeds of {row['queries']:g} queries, where metrics.csv has {len(runs)} of "
                f"{runs['queries'].iloc[0]:g} ({', '.join(key)}); compute the statistics again."
            )
        if row["metric"] not in METRICS:
            continue  # the study's own: only its own process knows its range
        if row["metric"] in runs:
            try:
                metric_interval(results, *key, row["metric"])
            except RewindError as error:
                raise RewindError(f"{path.parent}/{error}") from None
        if not _is_possible(row | {"gallery": runs["gallery"].max()}):
            raise RewindError(
                f"{where}: {', '.join(key)}: {row['metric']} cannot be {row['estimate']:g} with the interval "
                f"{row['low']:g} to {row['high']:g}; compute the statistics again."
            )


def _is_possible(row: dict[Any, Any]) -> bool:
    """Whether a value is in the range of its metric and within its interval, up to rounding."""
    least, most = METRICS[row["metric"]].range(int(row["gallery"]))
    rounding = 1e-6 * (1 + abs(row["estimate"]))
    order = [least, row["low"], row["estimate"], row["high"], most]
    known = [value for value in order if value == value]
    return all(before <= after + rounding for before, after in pairwise(known))


def _run_facts(folder: Path, card: StudyCard, number: int, method: str) -> dict[str, Any]:
    """Frames, training budget and data of a method, from the records of its runs."""
    records = [(path, _read_record(path)) for path in sorted(folder.glob("seed*/run.json"))]
    frames = {record["max_frames"] for _, record in records}
    digests = {record["data_digest"] for _, record in records}
    budgets = {record["budget"] for _, record in records} if card.methods[method].kind == TRAINED else {""}
    for what, values in (("numbers of frames", frames), ("versions of the data", digests), ("budgets", budgets)):
        if len(values) > 1:
            raise RewindError(f"{folder}: its runs have different {what}; run the study again.")
    budget = "".join(budgets)
    if budget and card.pretraining:
        budget += f", after {card.pretraining}"
    # A version that is not known is comparable only within its own study.
    digest = next(iter(digests), "") or f"not recorded ({number + 1})"
    return {"frames": next(iter(frames), 0), "digest": digest, "budget": budget}


def _read_record(path: Path) -> dict[str, Any]:
    """``max_frames``, ``data_digest`` and ``budget`` of a ``run.json``."""
    content = read_user_json(path, infinite=True)
    try:
        keys = content["spec"]["method"]["training"]
        epochs, steps, batch = keys["epochs"], keys.get("epoch_steps"), keys["batch"]["size"]
        frames, digest = content["max_frames"], content.get("data_digest") or ""
        valid = all(type(value) is int and 0 <= value < 10**9 for value in (epochs, steps or 0, batch, frames or 0))
    except (TypeError, KeyError, AttributeError):
        valid, epochs, steps, batch, frames, digest = False, 0, 0, 0, 0, ""
    if not valid or not isinstance(digest, str) or not re.fullmatch(r"[0-9a-f]{0,64}", digest):
        raise RewindError(f"{path}: not the record of a run; run the study again.")
    each = f"{steps:,} steps with " if steps else ""
    words = f"{epochs:,} {'epoch' if epochs == 1 else 'epochs'} of {each}batches of {batch:,}"
    return {"max_frames": frames or 0, "data_digest": digest, "budget": words}


def _read_optional(
    path: Path, text: tuple[str, ...], numbers: tuple[str, ...], may_lack: tuple[str, ...] = ()
) -> pd.DataFrame:
    if not path.is_file():
        return pd.DataFrame(columns=[*text, *numbers])
    return _read_numbers(path, text, numbers, may_lack, may_be_empty=True)


def _read_numbers(
    path: Path,
    text: tuple[str, ...],
    numbers: tuple[str, ...],
    may_lack: tuple[str, ...] = (),
    may_be_empty: bool = False,
) -> pd.DataFrame:
    """The named columns of a CSV; unknown directions and settings, and cells that are not numbers, are refused.

    Args:
        may_lack: those of ``numbers`` that may be absent or empty in some rows.
        may_be_empty: whether there may be no row, as in a study of one method, which compares none.
    """
    if not path.is_file():
        raise RewindError(f"{path}: missing; a board needs finished studies (`{snakemake_command(path)}`).")
    table = read_csv(path, text)
    if table.empty and not may_be_empty:
        raise RewindError(f"{path}: it has no rows below its header; run the study again.")
    missing = [name for name in (*text, *numbers) if name not in table.columns and name not in may_lack]
    if missing:
        raise RewindError(f"{path}: column {missing[0]!r} is missing; compute the statistics again.")
    known: dict[str, Any] = {"direction": SEARCH_DIRECTIONS, "setting": SETTING_TITLES}
    for name, values in known.items():
        wrong = sorted(set(table[name].astype(str)) - set(values)) if name in text else []
        if wrong:
            raise RewindError(f"{path}: {name} {wrong[0]!r:.60} is not one of {', '.join(values)}.")
    columns = {name: table[name].astype(str) for name in text}
    for name in numbers:
        given = table[name] if name in table else pd.Series(math.nan, index=table.index)
        number = given.map(_float_of).astype(float)
        broken = number.isin([math.inf, -math.inf]) | (number.isna() & (given.notna() | (name not in may_lack)))
        if name in _COUNTS:
            broken |= (number < 0) | (number > _MAX_COUNT) | (number % 1 != 0)
        if name == "df":
            broken |= number <= 0
        if broken.any():
            raise RewindError(
                f"{path}: row {int(broken.to_numpy().argmax()) + 2}: {name} is not a possible value; compute "
                "the statistics again."
            )
        columns[name] = number
    return pd.DataFrame(columns)


def _float_of(value: Any) -> float:
    """A cell as a number; NaN for anything else. A number of too many digits is infinite."""
    try:
        return math.nan if isinstance(value, bool) else float(str(value))
    except ValueError:
        return math.nan
