"""The keys of statistics, tables and pictures."""

from __future__ import annotations

import difflib
from typing import Literal

from pydantic import field_validator

from rewind.metrics import METRICS, TESTED
from rewind.study.keys import SEEDS, Keys, key, once
from rewind.study.verdict import Verdict

DIRECTIONS = ("text_to_item", "item_to_text")
RANK = "Rank"
"""The column of places among the compared methods."""


class Statistics(Keys):
    """Intervals and tests over training seeds and queries."""

    confidence: float = key(0.95, "Confidence level of every interval.", gt=0.5, lt=1)
    resamples: int = key(
        10_000,
        "Number of resamples of the bootstrap over query clusters that is reported besides the primary intervals.",
        ge=100,
        le=1_000_000,
    )
    seed: int = key(0, "Seed of that bootstrap.", **SEEDS)
    primary: Literal[TESTED] | None = key(  # type: ignore[valid-type]
        None,
        "The deciding metric, named before anything is run: only its column has letters and bold in tables (in "
        "Binary: accuracy). Other metrics have intervals, and tests in `statistics/pairs.csv`. None: R@1 or, if no "
        "column shows it, the first column that is tested.",
    )
    pairs: list[tuple[str, str]] | None = key(
        None,
        "Pairs of methods to compare; they are the family of Holm's correction. None: all pairs of trained methods "
        "and fixed models (`zero_shot`, `fixed: true`).",
    )

    @field_validator("pairs")
    @classmethod
    def _of_two(cls, pairs: list[tuple[str, str]] | None) -> list[tuple[str, str]] | None:
        for place, (first, second) in enumerate(pairs or []):
            if first == second:
                raise ValueError(f"[{first}, {second}] compares a method with itself")
            if {first, second} in map(set, (pairs or [])[:place]):
                raise ValueError(f"[{first}, {second}] is there twice; keep the one in the wanted order")
        return pairs


class Tables(Keys):
    """What the tables of ranked settings show."""

    columns: list[str] = key(
        ["R@1", "R@5", "R@10", "MdR", "MnR"],
        f"Columns in order. Each is a metric ({', '.join(METRICS)}; docs/statistics.md explains them). Put "
        "`text_to_item` or `item_to_text` before it if it is not the first search direction, and `interval` after it "
        "to show its interval. `Rank` is the place among the compared methods by the deciding metric, with its "
        "interval (docs/statistics.md, Ranks of methods).",
        min_length=1,
    )
    order: Literal["file", "primary"] = key(
        "file",
        "Order of the methods in each setting's table: as in this file, trained methods before fixed models; or by the "
        "deciding metric in this setting, the best first, with baselines that are not compared at the end.",
        before="file",
    )
    notes: Literal["full", "short", "none"] = key(
        "full",
        "What stands below the tables in LaTeX: all notes, as in the other formats; one line with the figures that a "
        "reviewer needs; or nothing. What is left out stands below the table of every run, "
        "`table_seeds_<setting>.tex`, for the appendix.",
        before="full",
    )
    prefix: str = key(
        "", "Prefix of the file names of all tables, for example `rehearsal_`.", pattern=r"^[A-Za-z0-9_\-]*$"
    )
    verdict: Verdict | None = key(None, "A table that says which methods beat a baseline, and why others do not.")

    @field_validator("columns")
    @classmethod
    def _known(cls, columns: list[str]) -> list[str]:
        for column in columns:
            direction, metric, interval = split_column(column)
            if metric == RANK:
                if interval:
                    raise ValueError(f"column {column!r}: {RANK} always has its interval; remove `interval`")
                continue
            if metric not in METRICS or direction not in ("", *DIRECTIONS) or interval not in ("", "interval"):
                near = difflib.get_close_matches(metric, [*METRICS, RANK], n=1)
                hint = f"did you mean {near[0]!r}? " if near and near[0] != metric else ""
                raise ValueError(
                    f"column {column!r}: {hint}A column is [text_to_item|item_to_text] <metric> [interval], where "
                    f"the metric is one of {', '.join(METRICS)}, or {RANK}"
                )
            if interval and not METRICS[metric].interval:
                raise ValueError(f"column {column!r}: {metric} has no interval; remove `interval`")
        if all(split_column(column)[1] == RANK for column in columns):
            raise ValueError(f"{RANK} alone is no table; add a metric")
        return once(columns)


def split_column(column: str) -> tuple[str, str, str]:
    """Direction (may be empty), metric and ``interval`` (may be empty) of a column of a table template."""
    words = column.split()
    direction = words.pop(0) if len(words) > 1 and words[0] in DIRECTIONS else ""
    return direction, words[0] if words else "", " ".join(words[1:])


class Figures(Keys):
    """Figures."""

    examples: int = key(
        5, "Number of queries shown with their top-5 clips: hits, misses, and confusions with the twin.", ge=0, le=50
    )
    method: str = key(
        "", "Method whose first seed the examples show; if empty, the first trained method, or the first method."
    )
    every_method: bool = key(
        False,
        "Whether `examples`, `heatmap` and `embedding` are also drawn of every other trained method's first seed, in "
        "`figures/<method>/`.",
        before=False,
    )
    embedding: Literal["pca", "tsne", "umap"] = key(
        "pca", "Projection of captions and items in the figure of the embedding space (`umap` needs umap-learn)."
    )
    heatmap: int = key(60, "Number of captions and items shown in the similarity heat map.", ge=2, le=500)
