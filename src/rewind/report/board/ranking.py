"""Which methods of several studies may be ranked together, and their ranks with simultaneous intervals.

Methods form a *group* if they were trained and evaluated on the same version of the data, read the same number of
frames and had the same training budget. Each group has a letter. In each column (data set, setting, direction, metric)
the methods of a group are ranked among each other and with nobody else.

Where all of them belong to one study, its own ranks are used: they come from paired tests of the same queries, with
Holm's correction. Methods of several studies were not tested against each other: each of K intervals is widened from
confidence 1 − α to 1 − α/K (Bonferroni), so that all K hold at once with confidence 1 − α whatever their correlation.
Methods whose intervals lie wholly above another one's are then better than it, and where all intervals hold, so does
every rank. This needs larger differences than paired tests do.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from rewind.ranking_metrics import METRICS
from rewind.report.board.studies import BASELINE, TRAINED, BoardStudy
from rewind.statistics.bounds import wilson_interval, zero_variance_interval
from rewind.statistics.ranks import method_ranks, rank_bounds
from rewind.tables.results import MIN_CLUSTERS_FOR_LETTERS

COLUMN_KEY = ["data_set", "setting", "direction", "metric"]
GROUP_KEY = ["data_set", "digest", "frames", "budget", "item_to_text", "confidence"]

OWN, WIDENED = "study", "intervals"
"""Where a rank comes from: the study's own paired tests, or intervals widened for all methods of the group."""


@dataclass(frozen=True)
class Group:
    """Methods that may be ranked together."""

    letter: str
    data_set: str
    digest: str  # of its data
    frames: int  # that a method reads; 0: not known, or the method's own
    budget: str  # of training, in words; empty: not trained
    item_to_text: str  # what items search, where that differs from all captions
    confidence: float  # of the intervals
    studies: tuple[int, ...]  # numbers of the studies with methods in it


def rank_cells(studies: Sequence[BoardStudy]) -> tuple[pd.DataFrame, list[Group]]:
    """All cells of a board with their groups and ranks, and the groups.

    Returns:
        The studies' :attr:`~rewind.report.board.studies.BoardStudy.cells` below each other with further columns:
        ``group`` (a letter, with a prime where a method of the group searched another gallery; empty for baselines),
        ``rank_low`` and ``rank_high`` (ends of the interval of the rank; the first is the rank by the upper bound),
        ``ranked`` (number of methods that were ranked together), ``rank_from`` (:data:`OWN` or :data:`WIDENED`) and
        ``unranked`` (why there is no rank; empty where there is one).
    """
    cells = pd.concat([study.cells for study in studies], ignore_index=True)
    # Searching all captions is the rule, which needs no group of its own.
    cells["item_to_text"] = cells["item_to_text"].replace("all_captions", "")
    comparable = cells[cells["kind"] != BASELINE]
    groups, letters = [], {}
    for position, (key, rows) in enumerate(comparable.groupby(GROUP_KEY, sort=False)):
        letters[key] = letter_of(position)
        values: Any = dict(zip(GROUP_KEY, key, strict=True))
        groups.append(Group(letter=letters[key], **values, studies=tuple(dict.fromkeys(rows["study"].tolist()))))
    for name, value in {"group": "", "ranked": 0, "rank_from": "", "unranked": "baselines are not ranked"}.items():
        cells[name] = value
    cells["rank_low"] = cells["rank_high"] = np.nan
    for key, rows in comparable.groupby([*GROUP_KEY, *COLUMN_KEY[1:]], sort=False):
        letter = letters[key[: len(GROUP_KEY)]]
        for prime, (_, same) in enumerate(rows.groupby(["queries", "gallery"], sort=False, dropna=False)):
            cells.loc[same.index, "group"] = letter + "′" * prime
            _rank_together(cells, cells.loc[same.index], studies)
    return cells, groups


def letter_of(position: int) -> str:
    """The letter of a group, from 0: A to Z, then AA and so on.

    >>> letter_of(0), letter_of(25), letter_of(26)
    ('A', 'Z', 'AA')
    """
    before, last = divmod(position, 26)
    return (letter_of(before - 1) if before else "") + string.ascii_uppercase[last]


def _rank_together(cells: pd.DataFrame, rows: pd.DataFrame, studies: Sequence[BoardStudy]) -> None:
    """Rank the methods of a group in one column; writes into ``cells``."""
    cells.loc[rows.index, "unranked"] = ""
    for index, reason in ((i, _unranked_reason(rows.loc[i])) for i in rows.index):
        cells.at[index, "unranked"] = reason
    ready = rows[cells.loc[rows.index, "unranked"] == ""]
    if len(ready) < 2:
        cells.loc[ready.index, "unranked"] = "nothing to be compared with"
        return
    numbers = ready["study"].unique()
    bounds = _own_ranks(ready, studies[numbers[0]]) if len(numbers) == 1 else None
    source = OWN if bounds is not None else WIDENED
    low, high = bounds if bounds is not None else ranks_of_intervals(ready)
    cells.loc[ready.index, "rank_low"], cells.loc[ready.index, "rank_high"] = low, high
    cells.loc[ready.index, "ranked"], cells.loc[ready.index, "rank_from"] = len(ready), source


def _unranked_reason(row: pd.Series) -> str:
    """Why a cell can have no rank, as the page says it; empty if it can."""
    if row["kind"] == TRAINED and row["seeds"] < 2:
        return "one training seed says nothing about others"
    if row["clusters"] < MIN_CLUSTERS_FOR_LETTERS:
        return f"fewer than {MIN_CLUSTERS_FOR_LETTERS} clusters of queries"
    if not np.isfinite([row["low"], row["high"]]).all():
        return "no interval"
    return ""


def _own_ranks(rows: pd.DataFrame, study: BoardStudy) -> tuple[np.ndarray, np.ndarray] | None:
    """Intervals of ranks by the study's own tests; None where it did not compare all these methods."""
    methods, first = rows["method"].tolist(), rows.iloc[0]
    key = {name: first[name] for name in ("setting", "direction", "metric")}

    def of_column(table: pd.DataFrame) -> pd.DataFrame:
        return table[np.logical_and.reduce([table[name] == value for name, value in key.items()])]

    ranks = of_column(study.ranks).drop_duplicates("method").set_index("method")
    if set(ranks.index) != set(methods):  # the study ranked others among them: count again, by the same tests
        ranks = method_ranks(of_column(study.intervals), of_column(study.pairs), methods, study.card.confidence)
        ranks = ranks.set_index("method")
    if set(ranks.index) != set(methods):
        return None
    low, high = (ranks.loc[methods, end].to_numpy(dtype=float) for end in ("low", "high"))
    count = len(methods)
    return (low, high) if ((low >= 1) & (low <= high) & (high <= count)).all() else None


def ranks_of_intervals(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of ranks of K methods, from their own intervals, (K,) each.

    They are 1 + the number of methods whose widened intervals lie wholly above, and K − those wholly below. ``rows``
    are cells of one column and group, whose ``confidence`` is that of each single interval.

    >>> row = {"metric": "R@1", "gallery": 100, "clusters": 100, "df": 99.0, "confidence": 0.95}
    >>> ends = [(70.0, 60.4, 78.1), (40.0, 30.9, 49.8), (66.0, 56.3, 74.5)]
    >>> cells = pd.DataFrame([row | {"estimate": e, "low": low, "high": high} for e, low, high in ends])
    >>> [values.tolist() for values in ranks_of_intervals(cells)]
    [[1, 3, 1], [2, 3, 2]]
    """
    confidence = 1 - (1 - float(rows["confidence"].iloc[0])) / len(rows)
    ends = np.array([widen_interval(row, confidence) for _, row in rows.iterrows()])
    metric = METRICS[str(rows["metric"].iloc[0])]
    better = ends[:, None, 0] > ends[None, :, 1]
    return rank_bounds(better.T if metric.lower_is_better else better)


def widen_interval(row: pd.Series, confidence: float) -> tuple[float, float]:
    """Ends of a cell's interval with another confidence.

    Shares (R@k, accuracy, MRR, nDCG) have Wilson's interval: its variance is solved from the end that is further from
    the range's, and the ends follow from it exactly. Values that all clusters share have Clopper's and Pearson's ends.
    Mean and median ranks are stretched in proportion to the quantiles of t, which is an approximation.

    ``row`` has ``metric``, ``gallery``, ``clusters``, ``estimate``, ``low``, ``high``, ``df``, ``confidence``.

    >>> row = pd.Series({"metric": "R@1", "gallery": 120, "clusters": 120, "confidence": 0.95})
    >>> row = pd.concat([row, pd.Series({"estimate": 100.0, "low": 97.0, "high": 100.0, "df": np.nan})])
    >>> [round(end, 1) for end in widen_interval(row, 0.99)]
    [95.7, 100.0]
    """
    estimate, low, high = (float(row[name]) for name in ("estimate", "low", "high"))
    if low == high:  # computed, not estimated
        return low, high
    gallery = row["gallery"] if np.isfinite(row["gallery"]) else 1
    least, most = METRICS[str(row["metric"])].range(int(max(gallery, 1)))
    df = float(row["df"])
    if not df > 0:
        ends = zero_variance_interval(
            np.array(estimate), np.array(least), np.array(most), int(row["clusters"]), confidence
        )
        return min(low, float(ends[0])), max(high, float(ends[1]))
    before, after = (float(stdtrit(df, (1 + level) / 2)) for level in (float(row["confidence"]), confidence))
    if df < 0.5 or not after < 1e9:  # next to no degrees of freedom: anything may be
        return least, most
    share = (estimate - least) / (most - least) if most > least else 0.0
    if METRICS[str(row["metric"])].skewed or METRICS[str(row["metric"])].pooled or not 0 < share < 1:
        return estimate - (estimate - low) * after / before, estimate + (high - estimate) * after / before
    end = ((high if share < 0.5 else low) - least) / (most - least)
    if not 1e-12 < end < 1 - 1e-12:  # cut off at the range's end: the variance is not known
        return least, most
    variance = (share - end) ** 2 / (end * (1 - end)) * share * (1 - share) / before**2
    ends = wilson_interval(np.array(share), np.array(variance), np.array(after))
    wide = [least + (most - least) * float(value) for value in ends]
    return min(low, wide[0]), max(high, wide[1])
