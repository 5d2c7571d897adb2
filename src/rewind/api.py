"""Ranks, metrics, comparisons and tables of score matrices in a notebook, as the workflow computes them.

From two matrices to a LaTeX table with intervals and letters::

    import rewind

    mine = [rewind.ranks(scores) for scores in my_seeds]   # (n, n) each, query i belonging to item i
    theirs = rewind.ranks(their_scores)                    # one model: nothing of it can be trained again
    results = rewind.compare({"mine": mine, "theirs": theirs})
    results.intervals, results.pairs                       # DataFrames
    print(rewind.table(results, "latex", title="MSR-VTT"))

Nothing here imports torch, and only :func:`evaluate` starts jobs. What these functions take and return stays.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd

from rewind.config.base import read_options
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.config.report import SEARCH_DIRECTIONS, Statistics, Tables
from rewind.data.annotations import twin_of
from rewind.errors import RewindError, count_noun, label_fault, labels_fault, printable_name
from rewind.evaluation.ranking import MIN_NEAR_TIE_SHARE, compute_metrics, near_tie_share, rank_table, row_blocks
from rewind.report.tables import table_specs
from rewind.report.time_answer import time_verdicts
from rewind.statistics.blocks import check_ranks
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import RandomFactors
from rewind.tables import render
from rewind.tables.footnotes import Footnotes, shared_notes
from rewind.tables.results import Results, interval_procedures, setting_sizes
from rewind.tables.spec import TableInputs
from rewind.tables.table import MISSING, Table

__all__ = ["Comparison", "compare", "evaluate", "metrics", "ranks", "results", "table"]

if TYPE_CHECKING:
    from rewind.workflow.plan.study import StudyPlan

Kind = Literal["setting", "pairs", "gap", "seeds"]
Format = Literal["text", "markdown", "latex", "html", "csv", "json"]
Items = Literal["videos", "images"]


# ---- From scores to ranks and metrics ------------------------------------------------------------------------------


def ranks(
    scores: np.ndarray,
    truth: Sequence[int] | np.ndarray | None = None,
    clusters: Sequence[object] | np.ndarray | None = None,
    queries: Iterable[str] | None = None,
    twins: Sequence[int] | np.ndarray | None = None,
    directions: Sequence[str] = ("text_to_item",),
) -> pd.DataFrame:
    """Where each query's item stands among all items, ties counted instead of broken.

    Args:
        scores: (n, m) of query i and item j, the higher the better; compared in the precision that they have.
        truth: (n,) the column of each query's item; None: query i belongs to item i.
        clusters: (m,) which items are not independent of each other (a clip and its twin, clips of one film); None:
            each item is its own cluster, with its twin. Intervals and tests resample clusters.
        queries: (n,) names of the queries, by which runs are matched; None: their row numbers.
        twins: (m,) for a time-reversed clip the column of its original, else -1; None: no item is reversed. With twins
            the settings are ``origin`` (originals search originals), ``hard`` (all search all) and ``binary`` (a clip
            or its twin), else ``test``.
        directions: ``text_to_item``, ``item_to_text`` or both.

    Returns:
        A row per query, setting and direction: query_id, setting, direction, ``higher`` (items scored above), ``ties``
        (others scored the same), ``rank`` (expected over the orders of ties), cluster_id, gallery.

    Raises:
        RewindError: for scores that are not numbers, or lengths that do not fit.

    >>> scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, 0.8], [0.9, 0.5, 0.4]])
    >>> ranks(scores)[["query_id", "higher", "ties", "rank"]].values.tolist()
    [['0', 0, 0, 1.0], ['1', 0, 1, 1.5], ['2', 2, 0, 3.0]]
    >>> with_twin = ranks(np.array([[0.9, 0.1], [0.8, 0.2]]), twins=[-1, 0])
    >>> with_twin[["setting", "query_id", "rank"]].values.tolist()
    [['origin', '0', 1.0], ['hard', '0', 1.0], ['hard', '1', 2.0], ['binary', '0', 1.0]]
    """
    scores = _score_matrix(scores)
    count, width = scores.shape
    columns = _column_numbers(np.arange(count) if truth is None else truth, "truth", count, width)
    names = list(map(str, range(count))) if queries is None else _names(queries, "queries", count)
    chosen = _list_of(directions, "directions")
    for position, direction in enumerate(chosen):
        if direction not in SEARCH_DIRECTIONS or direction in chosen[:position]:
            what = "is listed twice" if direction in SEARCH_DIRECTIONS else "is not a direction"
            raise RewindError(f"directions: {direction!r} {what}; available: {', '.join(SEARCH_DIRECTIONS)}.")
    if not chosen:
        raise RewindError(f"directions: none; available: {', '.join(SEARCH_DIRECTIONS)}.")
    original_of = _check_twins(twins, width)
    groups = np.where(original_of < 0, np.arange(width), original_of)
    if clusters is not None:
        groups = _cluster_numbers(clusters, width)
    ids = [
        f"item{column}" if original < 0 else twin_of(f"item{original}") for column, original in enumerate(original_of)
    ]
    items = pd.DataFrame({"item_id": ids, "cluster_id": groups, "reversed": (original_of >= 0).astype(int)})
    captions = pd.DataFrame({"caption_id": names, "video_id": items["item_id"].to_numpy()[columns]})
    settings = ["test"] if twins is None else [*TWIN_SETTINGS]
    table = rank_table(scores, captions, items, settings, chosen, "scores")
    near_ties = 0.0 if twins is None else near_tie_share(scores, captions, items)
    if near_ties >= MIN_NEAR_TIE_SHARE:
        warnings.warn(
            f"binary: for {100 * near_ties:.0f}% of queries the scores of a clip and its twin differ by less than 1e-5 "
            "of their size; there rounding may decide, not what the model sees",
            stacklevel=2,
        )
    return table


def _check_twins(twins: Sequence[int] | np.ndarray | None, width: int) -> np.ndarray:
    """(m,) column of each reversed item's original, -1 for originals."""
    original_of = np.full(width, -1) if twins is None else _column_numbers(twins, "twins", width, width, least=-1)
    originals = original_of[original_of >= 0]
    for column in originals[original_of[originals] >= 0]:
        raise RewindError(f"twins: item {column} is the original of another and a twin itself.")
    columns, counts = np.unique(originals, return_counts=True)
    for column in columns[counts > 1]:
        raise RewindError(f"twins: item {column} has more than one twin.")
    return original_of


def metrics(ranked: pd.DataFrame, setting: str = "", direction: str = "") -> dict[str, float]:
    """Every metric of one run: R@1, R@5, R@10, MdR, P75, MnR, MRR, nDCG@10, and R@k with ties won and lost.

    Args:
        ranked: what :func:`ranks` returned.
        setting, direction: which, where there are several.

    Raises:
        RewindError: if there are several, or none, or ``ranked`` does not come from :func:`ranks`.

    >>> found = metrics(ranks(np.array([[0.9, 0.1], [0.8, 0.2]])))
    >>> found["R@1"], found["MnR"]
    (50.0, 1.5)
    """
    _check_run(ranked, "ranked")
    for name, value in (("setting", setting), ("direction", direction)):
        present = list(dict.fromkeys(ranked[name]))
        if (value and value not in present) or (not value and len(present) > 1):
            raise RewindError(f"{name}: name one of {', '.join(present)}.")
        ranked = ranked[ranked[name] == (value or present[0])]
    return compute_metrics(ranked)


# ---- From ranks to comparisons -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """How methods compare: DataFrames with the columns of the workflow's CSV files. Made by :func:`compare`.

    Printed it shows the table of every setting; a notebook shows them as HTML.

    >>> results = compare({"a": ranks(np.eye(30)), "b": ranks(np.eye(30)[::-1])}, resamples=100)
    >>> results.metrics[["method", "R@1"]].values.tolist(), results.settings
    ([['a', 100.0], ['b', 0.0]], ['test'])
    """

    _results: Results

    @property
    def metrics(self) -> pd.DataFrame:
        """A row per method, seed, setting and direction: every metric (``metrics.csv``)."""
        return self._results.metrics

    @property
    def intervals(self) -> pd.DataFrame:
        """A row per method, setting, direction and metric: the mean over seeds and its interval."""
        return self._results.intervals

    @property
    def pairs(self) -> pd.DataFrame:
        """A row per pair of methods, setting, direction and metric: difference, p, Holm's p, ``detectable``."""
        return self._results.pairs

    @property
    def ranks(self) -> pd.DataFrame:
        """A row per method, setting, direction and metric: its place among the methods, with an interval."""
        return self._results.places

    @property
    def chance(self) -> pd.DataFrame:
        """A row per method and direction of Binary: its accuracy tested against 50%; empty without twins."""
        return self._results.chance

    @property
    def gaps(self) -> pd.DataFrame:
        """Origin minus Hard, a row per method, direction and metric; empty without twins."""
        return self._results.gaps

    @property
    def settings(self) -> list[str]:
        """``origin``, ``hard`` and ``binary``, or ``test``."""
        return list(dict.fromkeys(self._results.metrics["setting"]))

    def __repr__(self) -> str:
        return "\n".join(table(self, "text", setting=setting) for setting in self.settings)

    def _repr_html_(self) -> str:
        from rewind.report.page.headline import notebook_html

        verdicts = time_verdicts(self._results) if "binary" in self.settings else []
        return "\n".join([notebook_html(verdicts), *(table(self, "html", setting=s) for s in self.settings)])


def compare(
    methods: Mapping[str, pd.DataFrame | Sequence[pd.DataFrame]],
    pairs: Iterable[tuple[str, str]] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    seeds_are_paired: Iterable[str] = (),
    primary: str = "R@1",
    items: Items = "videos",
) -> Comparison:
    """Intervals of methods and tests of their differences, over training seeds and queries.

    Args:
        methods: name → what :func:`ranks` returned for each training seed; or for one model that cannot be trained
            again, whose intervals generalise to other queries only.
        pairs: the family of Holm's correction; None: all pairs.
        confidence: of every interval.
        resamples: of the bootstrap over clusters, which is reported next to the intervals.
        seed: of the bootstrap.
        seeds_are_paired: methods whose seed s starts from the same pre-trained weights.
        primary: the metric that has letters in tables; in Binary it is accuracy.
        items: what is searched, for the words of tables.

    Raises:
        RewindError: for runs of different queries or clusters, or a pair that names no method.

    >>> generator = np.random.default_rng(0)
    >>> def scored(strength):
    ...     return ranks(strength * np.eye(60) + generator.normal(size=(60, 60)))
    >>> results = compare({"strong": [scored(4), scored(4)], "weak": [scored(1), scored(1)]}, resamples=200)
    >>> row = results.pairs.set_index("metric").loc["R@1"]
    >>> bool(row["difference"] > 50 and row["p_holm"] < 0.05)
    True
    """
    runs = {name: dict(enumerate(given)) for name, given in _runs_by_method(methods).items()}
    fixed = frozenset(name for name, given in methods.items() if isinstance(given, pd.DataFrame))
    paired = frozenset(_list_of(seeds_are_paired, "seeds_are_paired"))
    for name in paired:
        if name not in runs or name in fixed:
            what = "has one run, and no seeds" if name in runs else f"is not a method; available: {', '.join(runs)}"
            raise RewindError(f"seeds_are_paired: {name!r} {what}.")
    _check_choice(items, "items", Items)
    given_keys = {"confidence": confidence, "resamples": resamples, "seed": seed, "primary": primary}
    if pairs is not None:
        given_keys["pairs"] = _list_of(pairs, "pairs")
    keys = read_options(Statistics, given_keys, "compare", "compare()")
    family = list(itertools.combinations(runs, 2)) if keys.pairs is None else keys.pairs
    random = RandomFactors(fixed=fixed, paired=paired)
    tables = compare_methods(runs, family, keys, random, list(runs))
    rows = [
        {"method": method, "seed": number, "setting": setting, "direction": direction} | compute_metrics(part)
        for method, ranked_by_seed in runs.items()
        for number, ranked in ranked_by_seed.items()
        for (setting, direction), part in ranked.groupby(["setting", "direction"], sort=False)
    ]
    return Comparison(
        Results(
            metrics=pd.DataFrame(rows),
            intervals=tables.intervals,
            pairs=tables.pairs,
            labels={name: name for name in runs},
            train=dict.fromkeys(runs, MISSING),
            fixed=fixed,
            primary=primary,
            confidence=keys.confidence,
            columns=(f"{primary} interval", *(name for name in Tables().columns if name != primary)),
            gaps=tables.gaps,
            items=items,
            places=tables.ranks,
            chance=tables.chance,
        )
    )


# ---- From comparisons to tables ------------------------------------------------------------------------------------


def table(
    results: Comparison,
    format: Format = "text",
    kind: Kind = "setting",
    setting: str = "",
    title: str = "",
    labels: Mapping[str, str] | None = None,
    train: Mapping[str, str] | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """A table as the workflow prints it, with its notes: mean ± deviation over seeds, intervals, letters, bold.

    Args:
        results: from :func:`compare` or :func:`evaluate`.
        format: ``text`` for a terminal, ``markdown``, ``latex`` (with booktabs), ``html``, ``csv`` (full precision), or
            ``json`` (as in ``tables.json``, see results/README.md).
        kind: ``setting`` (metrics of every method), ``pairs`` (differences and tests), ``gap`` (Origin minus Hard), or
            ``seeds`` (every run).
        setting: which, where there are several.
        title: of the data, for the caption.
        labels: method → its name in the table, in the order of rows; methods that it leaves out keep theirs.
        train: method → what it was trained on, for a column of its own.
        columns: of ``kind: setting``, as the key ``tables.columns``: ``R@1``, ``R@1 interval``, ``item_to_text R@5``,
            ``Rank``.

    Raises:
        RewindError: for an unknown format, kind, setting or method.

    >>> results = compare({"a": ranks(np.eye(30)), "b": ranks(np.eye(30)[::-1])}, resamples=100)
    >>> print(table(results, "text", title="Toy", labels={"b": "theirs"}, columns=["R@1 interval", "MdR"]))
    Table A. Toy, Test: text→video retrieval
       Method  R@1 ↑                     MdR ↓
    ──────────────────────────────────────────
    a  theirs    0.0 [0.0, 11.6]          16.0
    b  a       *100.0 [88.4, 100.0] (a)    1.0
    * best, or not significantly worse than the best and ahead of all that are; (a) significantly better than method a
    <BLANKLINE>
    """
    if not isinstance(results, Comparison):
        raise RewindError(
            f"results: {_shown(results)} is not a Comparison; give what compare() or evaluate() returned."
        )
    _check_choice(format, "format", Format)
    _check_choice(kind, "kind", Kind)
    numbers = results._results
    for name, by_method in (("labels", labels), ("train", train)):
        if not isinstance(by_method, Mapping | None):
            raise RewindError(f"{name}: {_shown(by_method)} is not a dict; give one of method → text.")
        for method in (by_method or {}).keys() - numbers.labels.keys():
            raise RewindError(f"{name}: method {method!r} has no results; available: {', '.join(numbers.labels)}.")
    numbers = replace(
        numbers,
        labels={**(labels or {}), **{m: label for m, label in numbers.labels.items() if m not in (labels or {})}},
        train={**numbers.train, **(train or {})},
        columns=numbers.columns
        if columns is None
        else read_options(Tables, {"columns": _list_of(columns, "columns")}, "table", "table()").columns,
    )
    _check_labels(numbers.labels, "labels")
    for method, text in {"": title or "–", **(train or {})}.items():
        if fault := label_fault(text):
            raise RewindError(f"{f'train: of {method!r}' if method else 'title'}: {_shown(text)}: {fault}.")
    spec = next(spec for spec in table_specs() if spec.kind == kind)
    facts = _facts(numbers)
    inputs = TableInputs(numbers, results.settings, facts, title)
    setting = _choose_setting(inputs, spec.per_setting, setting)
    if not inputs.has(spec.needs, setting):
        raise RewindError(f"kind: there are no numbers for {kind!r}.")
    made = spec.build(inputs, setting)
    made = replace(made, notes=(*made.notes, *shared_notes(facts)))  # a study has these in files of their own
    if kind == "setting" and not any(numbers.train[method] != MISSING for method in numbers.labels):
        made = made.pick([position for position, column in enumerate(made.columns) if column.title != "Train"])
    return _FORMATS[format](made)


def _facts(results: Results) -> Footnotes:
    """What the notes can say: sizes, and how intervals were computed."""
    return Footnotes(
        settings=setting_sizes(results),
        items=results.items,
        procedures=interval_procedures(results),
        bootstrap=results.intervals["boot_procedure"].iloc[0],
        family=len(results.pairs[["first", "second"]].drop_duplicates()) if len(results.pairs) else None,
    )


def _choose_setting(inputs: TableInputs, per_setting: bool, setting: str) -> str:
    """The setting of a table: the named one, or the only one; empty for a kind of table that belongs to none."""
    available = ", ".join(inputs.settings)
    if not per_setting:
        return ""
    if setting and setting not in inputs.settings:
        raise RewindError(f"setting: {setting!r} was not evaluated; available: {available}.")
    if not setting and len(inputs.settings) > 1:
        raise RewindError(f"setting: name one of {available}.")
    return setting or inputs.settings[0]


_FORMATS: Mapping[str, Callable[[Table], str]] = {
    "text": render.render_text,
    "markdown": render.render_markdown,
    "latex": render.render_latex,
    "html": render.render_html,
    "csv": lambda made: made.data.to_csv(index=False),
    "json": lambda made: json.dumps(made.to_json(), ensure_ascii=False, indent=1),
}


# ---- What callers give, checked at the door ------------------------------------------------------------------------
# Each refusal names the argument, the position (rows and columns count from 0, as in NumPy), the value and the remedy.


def _shown(value: object) -> str:
    """A value in a message."""
    value = value.item() if isinstance(value, np.generic) else value
    plain = isinstance(value, str | int | float | complex)
    text = printable_name(repr(value) if plain else f"a {type(value).__name__}")
    return f"{text[:57]}…" if len(text) > 60 else text


def _list_of(values: Iterable[Any], name: str) -> list[Any]:
    """The values of a list; a text, whose characters are not values, is refused."""
    if isinstance(values, str | bytes):
        raise RewindError(f"{name}: {_shown(values)} is one text; give a list: [{_shown(values)}].")
    try:
        return list(values.tolist() if isinstance(values, np.ndarray | pd.Series | pd.Index) else values)
    except TypeError:
        raise RewindError(f"{name}: {_shown(values)} is not a list; give one.") from None


def _check_choice(value: object, name: str, choices: Any) -> None:
    if value not in get_args(choices):
        raise RewindError(f"{name}: unknown {name} {_shown(value)}; available: {', '.join(get_args(choices))}.")


def _check_labels(labels: Mapping[Any, object], name: str) -> None:
    if found := labels_fault(labels):
        given = next(label for key, label in labels.items() if str(key) == found[0])
        raise RewindError(f"{name}: {_shown(given)} for {_shown(found[0])}: {found[1]}.")


def _array_of(values: Any, name: str) -> np.ndarray:
    """An array as NumPy makes it, without what it would lose: masks, gradients, rows of unequal length."""
    if getattr(values, "requires_grad", False):
        raise RewindError(f"{name}: a tensor with a gradient; give {name}.detach().cpu().numpy().")
    if np.ma.is_masked(values):
        place = np.argwhere(np.ma.getmaskarray(values))[0].tolist()
        raise RewindError(f"{name}: masked at {place}; fill it ({name}.filled(…)), or leave the row out.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = (
            "rows of unequal length" if "inhomogeneous" in str(error) else f"not an array ({error})".splitlines()[0]
        )
        raise RewindError(f"{name}: {reason}; give an array of numbers.") from None


def _score_matrix(values: Any) -> np.ndarray:
    """(n, m) finite numbers, in the precision that they have."""
    scores = _array_of(values, "scores")
    if scores.ndim != 2:
        raise RewindError(
            f"scores: a matrix (queries, items) is needed, not an array of {count_noun(scores.ndim, 'dimension')}."
        )
    if not scores.size:
        raise RewindError(f"scores: {scores.shape[0]} queries and {scores.shape[1]} items; there must be some of both.")
    if scores.dtype.kind not in "iuf":
        place = [0, 0]
        if scores.dtype == object:
            odd = (at for at, value in np.ndenumerate(scores) if type(value) not in (int, float))
            place = list(next(odd, place))
        raise RewindError(f"scores: {_shown(scores[*place])} at {place} is not a number; give an array of floats.")
    if scores.dtype.kind != "f":  # whole numbers, which have no infinity
        scores = scores.astype(np.float64)
    for rows in row_blocks(*scores.shape):
        if not (finite := np.isfinite(scores[rows])).all():
            row, column = np.argwhere(~finite)[0].tolist()
            raise RewindError(
                f"scores: {scores[rows][row, column]} at {[rows.start + row, column]} is not a score; correct what "
                "computed it."
            )
    return scores


def _column_numbers(values: Any, name: str, count: int, width: int, least: int = 0) -> np.ndarray:
    """(count,) whole numbers from ``least`` to ``width`` − 1."""
    columns = _array_of(values, name)
    also = ", or -1 for an original" if least < 0 else ""
    remedy = f"column numbers from 0 to {width - 1} are needed{also}"
    if columns.ndim != 1:
        raise RewindError(
            f"{name}: an array of {count_noun(columns.ndim, 'dimension')}, where one is needed; {remedy}."
        )
    if len(columns) != count:
        noun = "queries" if name == "truth" else "items"
        raise RewindError(f"{name}: {len(columns)} values for {count} {noun}; {remedy}.")
    if columns.dtype.kind not in "iu":
        raise RewindError(f"{name}: {_shown(columns.tolist()[0])} at 0 is not a whole number; {remedy}.")
    if (wrong := (columns < least) | (columns >= width)).any():
        raise RewindError(f"{name}: {columns[wrong][0]} at {wrong.argmax()} is not a column; {remedy}.")
    return columns.astype(np.int64)


def _names(values: Iterable[Any], name: str, count: int) -> list[str]:
    """Names as texts; numbers are written out."""
    _, names = _texts_or_numbers(values, name, count, "queries")
    return list(map(str, names))


def _cluster_numbers(values: Iterable[Any], width: int) -> np.ndarray:
    """(m,) numbers of clusters in the order of their labels."""
    kinds, labels = _texts_or_numbers(values, "clusters", width, "items")
    for position, kind in enumerate(kinds):
        if kind != kinds[0]:  # NumPy would make texts of all, and 1 the same as "1"
            raise RewindError(
                f"clusters: {_shown(labels[position])} at {position} and {_shown(labels[0])} at 0 are of different "
                "types; give texts, or numbers."
            )
    return np.unique(np.array(labels, dtype=object), return_inverse=True)[1].ravel()


def _texts_or_numbers(values: Iterable[Any], name: str, count: int, nouns: str) -> tuple[list[type], list[Any]]:
    """The type, ``str`` or ``float``, and value of each; a missing one is refused, as it would be equal to others."""
    given = _list_of(values, name)
    if len(given) != count:
        raise RewindError(f"{name}: {len(given)} values for {count} {nouns}; one is given for each.")
    kinds: list[type] = []
    for position, value in enumerate(given):
        plain = value.item() if isinstance(value, np.generic) else value
        is_number = isinstance(plain, int | float) and not isinstance(plain, bool) and np.isfinite(plain)
        if not is_number and not (isinstance(plain, str) and plain.strip()):
            raise RewindError(f"{name}: {_shown(value)} at {position} is not a name; give a text or a number for each.")
        kinds.append(float if is_number else str)
    return kinds, given


def _check_run(ranked: object, where: str) -> None:
    if not isinstance(ranked, pd.DataFrame):
        raise RewindError(f"{where}: {_shown(ranked)} is not a table of ranks; give what ranks() returned.")
    check_ranks(ranked, where)


def _runs_by_method(methods: Any) -> dict[str, list[pd.DataFrame]]:
    """The checked runs of each method, in the order of its seeds."""
    if not isinstance(methods, Mapping) or not methods:
        raise RewindError(f"methods: {_shown(methods)}: give a dict of name → what ranks() returned for each seed.")
    _check_labels({name: name for name in methods}, "methods")
    runs = {}
    for name, given in methods.items():
        runs[name] = [given] if isinstance(given, pd.DataFrame) else _list_of(given, f"methods: {name}")
        if not runs[name]:
            raise RewindError(f"methods: {name!r} has no run; give what ranks() returned for each of its seeds.")
        for seed, ranked in enumerate(runs[name]):
            _check_run(ranked, f"{name}/seed{seed}")
            if any(ranked is other for other in runs[name][:seed]):
                raise RewindError(
                    f"methods: {name!r} has one run twice, at {seed} too, as if seeds made no difference; give each "
                    "seed's own, or the run itself for a model that cannot be trained again."
                )
    return runs


# ---- A whole evaluation, as the command does it --------------------------------------------------------------------


def evaluate(
    data: str | Path,
    scores: str | Path | Sequence[str | Path] = (),
    vectors: Sequence[tuple[str | Path, str | Path]] = (),
    encoder: str = "",
    model: str = "",
    videos: str | Path = "",
    options: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
    labels: Sequence[str] = (),
    study: str = "",
    add: bool = False,
    cores: int | Literal["all"] = "all",
) -> Comparison:
    """Evaluate files of scores or vectors, or a model by name, as ``rewind evaluate`` does, and read the results.

    It writes a study into the current folder and runs the workflow; what was run before is not run again. The tables,
    figures and the page of the study are in ``results/<study>``.

    Args:
        data: a CSV of ``item_id,caption[,reverse_caption]``, or the name of a data set.
        scores: files of similarities, one for each model.
        vectors: (captions, items) files of embeddings, a pair for each model.
        encoder, model: how a model is loaded, and which: ``encoder="open_clip", model="ViT-B-32/openai"``.
        videos: folder of the clips, for an encoder.
        options: further options of ``model: vectors``.
        settings: some of ``origin``, ``hard``, ``binary`` and ``test``; empty: all that the data allow.
        labels: names in tables, for scores, vectors and the model, in this order.
        study: its name; empty: that of the data.
        add: add to the study of an earlier call.
        cores: for the workflow.

    Returns:
        The numbers of all methods of the study, chance among them.

    Raises:
        RewindError: if the files cannot be evaluated, or the workflow fails.
    """
    from rewind.cli.evaluate import EvaluateOptions, run_evaluation

    score_files = [scores] if isinstance(scores, (str, Path)) else scores
    plan, code = run_evaluation(
        EvaluateOptions(
            data=str(data),
            study=study,
            videos=str(videos or ""),
            vectors=[(str(captions), str(items)) for captions, items in vectors],
            scores=[str(file) for file in score_files],
            encoder=encoder,
            model=model,
            options=[f"{key}={json.dumps(value)}" for key, value in (options or {}).items()],
            settings=list(settings),
            labels=list(labels),
            add=add,
            cores=str(cores),
        )
    )
    if code:
        raise RewindError(f"{plan.name}: the workflow failed with exit code {code}; its messages say where.")
    return _comparison(plan)


def results(study: str) -> Comparison:
    """The numbers of a finished study in the current folder: what its page and its tables show.

    Raises:
        RewindError: naming the file, where the study or one of its results does not exist.
    """
    from rewind.config import load_dataset, load_study
    from rewind.workflow.plan.dataset import DatasetPlan
    from rewind.workflow.plan.study import StudyPlan

    keys = load_study(study)
    dataset = load_dataset(keys.dataset)
    return _comparison(StudyPlan(keys, DatasetPlan(dataset, {dataset.name: dataset})))


def _comparison(plan: StudyPlan) -> Comparison:
    from rewind.report.study import ReportFiles, load_results
    from rewind.statistics.rank_files import ranks_folder
    from rewind.workflow.plan.reporting import result_files

    files = result_files(plan)
    report_files = ReportFiles(
        metrics=str(files["metrics"]),
        intervals=str(files["intervals"]),
        pairs=str(files["pairs"]),
        gaps=str(files["gaps"]),
        places=str(files["places"]),
        chance=str(files["chance"]),
        ranks=ranks_folder(plan.rank_files()),
        records={},
        best="",
        videos="",
    )
    return Comparison(load_results(plan.keys, plan.dataset.keys, report_files))
