"""Keys of statistics, tables, figures and the verdict on a baseline."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import field_validator

from rewind.config.base import SEED_BOUNDS, ConfigModel, LabelText, config_field, require_unique, required_field
from rewind.errors import RewindError
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS, Metric, add_metric, tested_metrics
from rewind.registry import import_path

# ---- Statistics, tables and figures --------------------------------------------------------------------------------

SEARCH_DIRECTIONS = ("text_to_item", "item_to_text")
RANK_COLUMN = "Rank"
"""The column of a method's rank among the compared methods."""


def load_metrics(paths: Iterable[str]) -> None:
    """Make a study's own metrics known to this process, by their dotted paths.

    Raises:
        RewindError: if there is no such module or attribute, it is not a :class:`rewind.ranking_metrics.Metric`, or
            another metric has its name.
    """
    for path in paths:
        metric = import_path(path, "metrics")
        if not isinstance(metric, Metric):
            raise RewindError(f"metrics: {path} is a {type(metric).__name__}, not a rewind.ranking_metrics.Metric.")
        try:
            add_metric(metric)
        except ValueError as error:
            raise RewindError(f"metrics: {path}: {error}.") from error


class Statistics(ConfigModel, affects="statistics"):
    """Intervals and tests over training seeds and queries.

    >>> Statistics(pairs=[("meanP", "seqTransf")]).confidence
    0.95
    """

    confidence: float = config_field(0.95, "Confidence level of every interval.", gt=0.5, lt=1)
    resamples: int = config_field(
        10_000,
        "Number of resamples of the bootstrap over query clusters that is reported next to the primary intervals.",
        ge=100,
        le=1_000_000,
    )
    seed: int = config_field(0, "Seed of that bootstrap.", **SEED_BOUNDS)
    primary: str | None = config_field(
        None,
        "The deciding metric, named before anything is run: only its column has letters and bold in tables (in "
        "Binary: accuracy). Other metrics have intervals, and tests in `statistics/pairs.csv`. None: R@1 or, if no "
        "column shows it, the first column that is tested. One of "
        f"{', '.join(tested_metrics())}, or of the study's own `metrics`.",
    )
    pairs: list[tuple[str, str]] | None = config_field(
        None,
        "Pairs of methods to compare; they are the family of Holm's correction. None: all pairs of trained methods "
        "and fixed models (`zero_shot`, `fixed: true`).",
    )

    @field_validator("primary")
    @classmethod
    def _tested(cls, primary: str | None) -> str | None:
        if primary is not None and primary not in tested_metrics():
            raise ValueError(f"a metric that is tested decides: one of {', '.join(tested_metrics())}")
        return primary

    @field_validator("pairs")
    @classmethod
    def _of_two(cls, pairs: list[tuple[str, str]] | None) -> list[tuple[str, str]] | None:
        for position, (first, second) in enumerate(pairs or []):
            if first == second:
                raise ValueError(f"[{first}, {second}] compares a method with itself")
            if {first, second} in map(set, (pairs or [])[:position]):  # in either order
                raise ValueError(f"[{first}, {second}] is listed twice; remove the one in the wrong order")
        return pairs


class QuotedNumber(ConfigModel, affects="report"):
    """A number that a paper reports, of a method or of people.

    >>> QuotedNumber(method="People", setting="binary", value=97.3, source="2412.19178, Table 3").metric
    'R@1'
    """

    method: LabelText = required_field("Its name in the table; people's rows too.", min_length=1)
    setting: Literal["origin", "hard", "binary", "test"] = required_field("Where it stands beside the study's own.")
    value: float = required_field("As printed, in percent for R@k and accuracy.", allow_inf_nan=False)
    source: LabelText = required_field("What to cite, with table and page.", min_length=1)
    metric: str = config_field(ACCURACY_METRIC, "The metric; R@1 of `binary` is accuracy.")
    direction: Literal["text_to_item", "item_to_text"] = config_field("text_to_item", "Which side searches.")
    differs: LabelText = config_field(
        "", "How its protocol differs from the study's: gallery, frames, seeds; a footnote."
    )

    @field_validator("metric")
    @classmethod
    def _known(cls, metric: str) -> str:
        if metric not in METRICS:
            raise ValueError(f"unknown metric {metric!r}; one of {', '.join(METRICS)}")
        return metric


class Tables(ConfigModel, affects="report"):
    """What the tables of ranked settings show.

    >>> Tables(columns=["R@1 interval", "item_to_text R@1"]).notes
    'full'
    """

    columns: list[str] = config_field(
        ["R@1", "R@5", "R@10", "MdR", "MnR"],
        f"Columns in order. Each is a metric ({', '.join(METRICS)}; docs/statistics.md explains them). Put "
        "`text_to_item` or `item_to_text` before it if it is not the first search direction, and `interval` after it "
        "to show its interval. `Rank` is the place among the compared methods by the deciding metric, with its "
        "interval (docs/statistics.md, Ranks of methods).",
        min_length=1,
    )
    order: Literal["file", "primary"] = config_field(
        "file",
        "Order of the methods in each setting's table: as in this file, trained methods before fixed models; or by the "
        "deciding metric in this setting, the best first, with baselines that are not compared at the end.",
        legacy_default="file",
    )
    notes: Literal["full", "short", "none"] = config_field(
        "full",
        "What is printed below the tables in LaTeX: all notes, as in the other formats; one line with the figures that "
        "a reviewer needs; or nothing. What is left out is printed below the table of every run, "
        "`table_seeds_<setting>.tex`, for the appendix.",
        legacy_default="full",
    )
    prefix: str = config_field(
        "", "Prefix of the file names of all tables, for example `rehearsal_`.", pattern=r"^[A-Za-z0-9_\-]*$"
    )
    verdict: Verdict | None = config_field(
        None, "A table that shows which methods beat a baseline, and why others do not."
    )
    quoted: list[QuotedNumber] = config_field(
        [],
        "Numbers of papers, shown in a table of their own and on the page: never tested, never ranked.",
        legacy_default=[],
    )

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: list[str]) -> list[str]:
        for column in columns:
            direction, metric, interval = split_column(column)
            if metric == RANK_COLUMN:
                if interval:
                    raise ValueError(f"column {column!r}: {RANK_COLUMN} always has its interval; remove `interval`")
                continue
            if metric not in METRICS or direction not in ("", *SEARCH_DIRECTIONS) or interval not in ("", "interval"):
                near = difflib.get_close_matches(metric, [*METRICS, RANK_COLUMN], n=1)
                hint = f"did you mean {near[0]!r}? " if near and near[0] != metric else ""
                raise ValueError(
                    f"column {column!r}: {hint}A column is [text_to_item|item_to_text] <metric> [interval], where "
                    f"the metric is one of {', '.join(METRICS)}, or {RANK_COLUMN}"
                )
            if interval and not METRICS[metric].interval:
                raise ValueError(f"column {column!r}: {metric} has no interval; remove `interval`")
        if all(split_column(column)[1] == RANK_COLUMN for column in columns):
            raise ValueError(f"{RANK_COLUMN} alone is not a table; add a metric")
        return require_unique(columns)

    def default_metric(self) -> str:
        """The deciding metric where the study names none: R@1 or, if no column shows it, the first tested column.

        >>> Tables(columns=["MdR", "MRR interval", "R@5"]).default_metric()
        'MRR'
        """
        shown = [split_column(column)[1] for column in self.columns]
        tested = [metric for metric in shown if metric != RANK_COLUMN and METRICS[metric].tested]
        return ACCURACY_METRIC if ACCURACY_METRIC in shown else next(iter(tested), ACCURACY_METRIC)

    def faults(self, directions: Sequence[str], primary: str | None) -> Iterator[str]:
        """What does not fit the rest of the study, each fault with its key."""
        for column in self.columns:
            direction = split_column(column)[0]
            if direction and direction not in directions:
                yield f"tables.columns: {column!r}: {direction} is not among evaluation.directions"
            plain = " ".join(word for word in column.split() if word != directions[0])
            if plain != column and plain in self.columns:
                yield f"tables.columns: {column!r} and {plain!r} are the same column; keep one"
        if primary and primary not in {split_column(column)[1] for column in self.columns}:
            yield (
                f"statistics.primary: {primary} is the only metric with letters, but no column of tables.columns shows "
                "it; add the column or name another metric"
            )


def split_column(column: str) -> tuple[str, str, str]:
    """Direction (may be empty), metric and ``interval`` (may be empty) of an entry of ``tables.columns``.

    >>> split_column("item_to_text R@1 interval")
    ('item_to_text', 'R@1', 'interval')
    >>> split_column("MdR")
    ('', 'MdR', '')
    """
    words = column.split()
    direction = words.pop(0) if len(words) > 1 and words[0] in SEARCH_DIRECTIONS else ""
    return direction, words[0] if words else "", " ".join(words[1:])


class Figures(ConfigModel, affects="report"):
    """Figures."""

    examples: int = config_field(
        5, "Number of queries shown with their top-5 clips: hits, misses, and confusions with the twin.", ge=0, le=50
    )
    method: str = config_field(
        "", "Method whose first seed the examples show; if empty, the first trained method, or the first method."
    )
    every_method: bool = config_field(
        False,
        "Whether `examples`, `heatmap` and `embedding` are also drawn of every other trained method's first seed, in "
        "`figures/<method>/`.",
        legacy_default=False,
    )
    embedding: Literal["pca", "tsne", "umap"] = config_field(
        "pca", "Projection of captions and items in the figure of the embedding space (`umap` needs umap-learn)."
    )
    heatmap: int = config_field(60, "Number of captions and items shown in the similarity heat map.", ge=2, le=500)


# ---- The verdict: what counts as a win over a baseline -------------------------------------------------------------

CLAIMED_METRICS = ("R@1", "R@5")
"""Metrics in which a win can be claimed; both in percent."""


class Verdict(ConfigModel, affects="report"):
    """Which methods should beat which baseline, at what cost, and where their gain should shrink.

    >>> Verdict(baseline="uniform", methods=["topical"], control={"uniform": "u0", "topical": "t0"}).max_slowdown
    0.1
    """

    baseline: str = required_field("The baseline that the methods have to beat.", affects="statistics")
    methods: list[str] = required_field(
        "Methods that should beat it, trained with the same seeds.", min_length=1, affects="statistics"
    )
    control: dict[str, str] = config_field(
        {},
        "For the baseline and for every method, its counterpart trained without the supposed cause of the gain "
        "(topical batches); there the gain over the baseline should be smaller. Empty: no control.",
        affects="statistics",
    )
    max_slowdown: float = config_field(
        0.10, "Largest tolerated slowdown of a training step, relative to the baseline.", ge=0, le=10
    )
    setting: Literal["origin", "hard", "test"] | None = config_field(
        None,
        f"Setting whose {' and '.join(CLAIMED_METRICS)} are compared; the first of `evaluation.settings` if empty.",
        affects="statistics",
    )
    requires: list[Literal["zero_shot", "spread"]] = config_field(
        [],
        "What a win needs besides: `zero_shot`, a significant gain in the accuracy of `evaluation.zero_shot`; "
        "`spread`, scores that certainly differ less between seeds. Both are shown in any case.",
        legacy_default=[],
    )
    rounds: int = config_field(
        30,
        "Rounds of timing; in each, every method makes two training steps in turn.",
        ge=5,
        le=1000,
        affects="statistics",
    )

    def faults(
        self,
        trained: Sequence[str],
        seeds: Mapping[str, list[int]],
        pairs: Sequence[tuple[str, str]],
        settings: Sequence[str],
        compute: Mapping[str, Mapping[str, Any]],
    ) -> Iterator[str]:
        """What does not fit the rest of the study, each fault with its key.

        Args:
            compute: method → the keys that decide how much a training step computes, which must be equal for steps to
                be compared in time.
        """
        where = "tables.verdict"
        by_key = {"baseline": [self.baseline], "methods": self.methods, "control": list(self.control.values())}
        for key, methods in by_key.items():
            for unknown in (method for method in methods if method not in trained):
                yield f"{where}.{key}: no trained method {unknown!r}; there are {', '.join(trained)}"
        if self.baseline in self.methods or len(set(self.methods)) < len(self.methods):
            yield f"{where}.methods: each method once, without the baseline {self.baseline!r}"
        yield from self._control_faults(where)
        if self.where(settings) not in settings or self.where(settings) == "binary":
            yield f"{where}.setting: {self.where(settings)!r} is not evaluated, or is not a ranked setting"
        tested = {frozenset(pair) for pair in pairs}
        for method in self.methods:
            if method not in trained or self.baseline not in trained or method == self.baseline:
                continue  # reported above
            if sorted(seeds[method]) != sorted(seeds[self.baseline]):
                yield f"{where}.methods: {method!r} and {self.baseline!r} have different seeds"
            if frozenset((method, self.baseline)) not in tested:
                yield f"{where}.methods: statistics.pairs does not compare {method!r} with {self.baseline!r}"
            for name, theirs in compute[self.baseline].items():
                if (ours := compute[method][name]) != theirs:
                    yield (
                        f"{where}.methods: {method!r} has {name}: {ours}, {self.baseline!r} has {theirs}; steps can "
                        "only be compared at equal compute"
                    )

    def _control_faults(self, where: str) -> Iterator[str]:
        if not self.control:
            return
        compared = [self.baseline, *self.methods]
        if missing := [method for method in compared if method not in self.control]:
            yield f"{where}.control: the counterpart of {missing[0]!r} is missing"
        if unknown := [method for method in self.control if method not in compared]:
            yield f"{where}.control: {unknown[0]!r} is neither the baseline nor one of the methods"
        if len(set(self.control.values()) | set(compared)) < 2 * len(set(compared)):
            yield f"{where}.control: every counterpart must be a method of its own"

    def where(self, settings: Sequence[str]) -> str:
        """The setting in which methods are compared: :attr:`setting`, or the first of the evaluated settings."""
        return self.setting or settings[0]
