"""How well the direction is told by artefacts alone: the data set's own verdict (:mod:`rewind.video.traces`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.config import Dataset, Study
from rewind.data.annotations import TWIN_SUFFIX, twin_rows
from rewind.errors import RewindError
from rewind.io.files import read_csv, write_csv
from rewind.job_values import Job
from rewind.packaged import docs_page
from rewind.ranking_metrics import ACCURACY_METRIC, CHANCE_ACCURACY
from rewind.statistics.chance import against_chance
from rewind.statistics.inference import mean_inference, significance_level
from rewind.statistics.variance import variance_components
from rewind.tables.best_method import Finding
from rewind.tables.footnotes import confidence_percent, table_notes
from rewind.tables.results import Results
from rewind.tables.settings import metric_decimals
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, RowGroup, Table, format_bounds, format_number, number_cell, slug

# ---- Which studies -------------------------------------------------------------------------------------------------


def methods(study: Study) -> list[str]:
    """Methods that read traces."""
    return [name for name, method in study.methods.items() if method.reads_traces]


def dataset_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    for name in methods(study):
        if not dataset.clips or dataset.vectors or dataset.items == "images":
            yield (
                f"methods.{name}.model: {study.methods[name].model} needs clips, and "
                f"config/datasets/{dataset.name}.yaml has none; remove the method"
            )


# ---- The test ------------------------------------------------------------------------------------------------------

ALL = "all"
FOLDS = 5
COLUMNS = ("view", "family", "clips", "clusters", "estimate", "low", "high", "p")


def artefacts_table(traces: str, items: pd.DataFrame, confidence: float) -> pd.DataFrame:
    """In how many clips each family of traces, and all together, tell a clip from its twin.

    A clip is told if a linear probe scores it above its twin; a tie counts one half. As models see them, test clips are
    told by a probe that was fitted on the training split, its strength chosen on validation
    (:func:`rewind.models.direction.fit_direction`). At the sources' own size all splits are told by probes of other
    clips (:func:`cross_validated`), since of a large data set only some sources are measured. Intervals and tests
    against 50% are over clusters of clips.

    Args:
        traces: the table of :func:`rewind.video.traces.make_traces`.
        items: ``item_id, split, reversed, cluster_id`` of the data set's items.

    Returns:
        Columns :data:`COLUMNS`; ``family`` is :data:`ALL` or one of :data:`rewind.video.traces.FAMILIES`.

    Raises:
        RewindError: if a split has no clip with its twin.
    """
    from rewind.models.direction import direction_scores, fit_direction, pair_accuracy
    from rewind.video.traces import VIEWS, family_columns, read_traces

    rows = []
    for view in VIEWS:
        ids, values, names = read_traces(traces, view)
        known = items.set_index("item_id").loc[ids].reset_index()
        twin = twin_rows(ids)
        splits = {s: np.flatnonzero((known["split"] == s) & (twin >= 0)) for s in ("train", "valid", "test")}
        if empty := [name for name, at in splits.items() if view == "seen" and not len(at)]:
            raise RewindError(
                f"{traces}: no clip of the split {empty[0]} has a twin; remove the method artefacts_only."
            )
        cluster, backward = known["cluster_id"].to_numpy(), known["reversed"].to_numpy()
        train, valid, test = splits.values()
        forward = np.flatnonzero((backward == 0) & (twin >= 0))
        for family, columns in [(ALL, list(range(len(names)))), *family_columns(names)]:
            part = values[:, columns]
            if view == "seen":
                fit = fit_direction(
                    part[train], backward[train], part[valid], backward[valid], where=f"artefacts, {family}"
                )
                told = pair_accuracy(
                    direction_scores(part[test], *fit), backward[test], twin_rows([ids[at] for at in test]), "artefacts"
                )
                found = clip_interval(told["right"].to_numpy(), cluster[test[told["item"]]], confidence)
            else:
                found = cross_validated(part[forward], part[twin[forward]], confidence, cluster[forward])
            rows.append({"view": view, "family": family} | found)
    return pd.DataFrame(rows, columns=list(COLUMNS))


def cross_validated(
    forward: np.ndarray, backward: np.ndarray, confidence: float, clusters: np.ndarray | None = None
) -> dict[str, Any]:
    """In how many clips a probe that was fitted on clips of other clusters (5-fold) tells them from their twins.

    ``forward`` and ``backward`` are traces (n, F) of clips and of their twins; without ``clusters`` (n,) each clip is
    one. Returns what :func:`clip_interval` does.
    """
    from rewind.models.direction import pair_accuracy, probe_direction

    count = len(forward)
    clip, reversed = np.arange(count), np.repeat([0, 1], count)
    cluster = clip if clusters is None else np.unique(clusters, return_inverse=True)[1]
    both = np.concatenate([forward, backward])
    scores = probe_direction(both, reversed, np.tile(cluster, 2), min(FOLDS, cluster.max() + 1), "artefacts")
    told = pair_accuracy(scores["score"].to_numpy(), reversed, np.concatenate([clip + count, clip]), "artefacts")
    return clip_interval(told["right"].to_numpy(), cluster[told["item"]], confidence)


def clip_interval(right: np.ndarray, clusters: np.ndarray, confidence: float) -> dict[str, Any]:
    """Share of clips that are told, in percent, from 0, ½ or 1 for each, with its interval and p against 50%."""
    numbers, sizes = np.unique(clusters, return_inverse=True, return_counts=True)[1:]
    totals = 100 * np.bincount(numbers, weights=right)
    accuracy = mean_inference(variance_components(totals[None], sizes, fixed=True), confidence, least=0, most=100)
    tested = against_chance(accuracy, len(sizes))
    ends = {"low": float(accuracy.low), "high": float(accuracy.high), "p": float(tested.p)}
    return {"clips": len(right), "clusters": len(sizes), "estimate": float(accuracy.estimate), **ends}


FACTS = {
    "cuts": "cuts",
    "borders": "black borders",
    "fades": "fades from or to black",
    "repeated": "repeated frames",
    "key_interval": "key frames more than once in what is looked at",
}
"""Columns of traces → what the clips have where they are above 0."""


def source_facts(traces: str) -> pd.DataFrame:
    """``fact, clips, of, median``: how many clips have something that their frames show, and of those the median."""
    table = read_csv(traces, text=("item_id",))
    table = table[~table["item_id"].str.endswith(TWIN_SUFFIX)]
    rows = [
        {"fact": name, "clips": int((table[name] > 0).sum()), "of": int(table[name].count())}
        | {"median": float(table.loc[table[name] > 0, name].median())}
        for name in FACTS
    ]
    return pd.DataFrame(rows)


def compare(job: Job) -> None:
    """In how many test clips artefacts alone tell the direction, and what the sources are like."""
    items = read_csv(job.input.item_table, text=("item_id", "cluster_id"))
    write_csv(job.output.told, artefacts_table(job.input.traces, items, job.params.confidence))
    write_csv(job.output.facts, source_facts(job.input.traces))


# ---- The verdict and the table -------------------------------------------------------------------------------------

VIEW_TITLES = {"seen": "as models see clips", "source": "at the source’s size and rate"}
_DIGITS = metric_decimals(ACCURACY_METRIC)


def finding(results: Results) -> Finding:
    """Whether the data set's direction can be read from artefacts, in a sentence or two."""
    rows = results.of("artefacts").set_index(["view", "family"])
    seen, source = rows.loc[("seen", ALL)], rows.loc[("source", ALL)]
    level = significance_level(results.confidence)
    clips = f"{int(seen['clips']):,} test clips as models see them"
    if seen["p"] < level and seen["estimate"] > CHANCE_ACCURACY:
        parts = [
            f"{family} {format_number(row['estimate'], _DIGITS)}%"
            for family, row in rows.loc["seen"].drop(ALL).sort_values("estimate", ascending=False).iterrows()
            if row["p"] < level and row["estimate"] > CHANCE_ACCURACY
        ]
        by = f" (by themselves: {', '.join(parts)})" if parts else ""
        first = f"Direction can be told from artefacts alone in {_interval_text(seen)} of {clips}{by}."
    else:
        first = f"Not shown to be readable from artefacts: {_interval_text(seen)} of {clips}."
    second = f"{VIEW_TITLES['source'].capitalize()}: {_interval_text(source)} of {int(source['clips']):,} clips."
    return Finding(
        "Artefacts of the data set",
        [first, second],
        [*source_sentences(results), f"Half is what guessing tells ({docs_page('artefacts.md')})."],
    )


def source_sentences(results: Results) -> list[str]:
    """How many clips have cuts, borders, fades and repeated frames, and how far key frames are apart."""
    rows = results.of("source_facts").set_index("fact")
    sentences = []
    for of, part in rows.drop("key_interval").groupby("of", sort=False):
        found = [f"{FACTS[name]} {int(clips):,}" for name, clips in part["clips"].items()]
        sentences.append(f"Of {of:,} clips, how many have: {', '.join(found)}")
    key = rows.loc["key_interval"]
    interval = f"; key frames every {key['median']:.0f} frames where they are seen" if key["clips"] else ""
    return [f"{'. '.join(sentences)}{interval}."]


def _interval_text(row: pd.Series) -> str:
    ends = format_bounds(row["low"], row["high"], _DIGITS)
    return f"{format_number(row['estimate'], _DIGITS)}%" + (f" [{ends[0]}, {ends[1]}]" if ends else "")


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per family of traces, a column per view."""
    results = inputs.results
    rows, level = results.of("artefacts").set_index(["view", "family"]), significance_level(results.confidence)

    def cell(view: str, family: str) -> Cell:
        row = rows.loc[(view, family)]
        bold = bool(row["p"] < level and row["estimate"] > CHANCE_ACCURACY)
        return number_cell(row["estimate"], _DIGITS, low=row["low"], high=row["high"], bold=bold)

    lines = tuple((Cell(family), *(cell(view, family) for view in VIEW_TITLES)) for family in rows.loc["seen"].index)
    columns = (Column("Traces", number=False), *(Column(title) for title in VIEW_TITLES.values()))
    title = ", ".join(part for part in (inputs.dataset, "direction told from artefacts alone") if part)
    return Table("Artefacts", title, slug(inputs.dataset, "artefacts"), columns, (RowGroup("", lines),))


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    percent = confidence_percent(inputs.results.confidence)
    return table_notes(
        [
            "In how many clips, in percent, traces that show nothing tell a clip from the clip played backwards: "
            "fields of interlaced sources, key frames and copied noise of encoders, drifts of brightness, repeated "
            "frames. A linear probe of each family: of test clips as models see them, fitted on the training split; at "
            "the source’s size cross-validated"
        ],
        [f"In brackets {percent} intervals over clips; bold: above the 50% of guessing, not adjusted"],
    )


ANALYSIS = Analysis(
    applies=lambda plan: bool(methods(plan.keys)),
    dataset_faults=dataset_faults,
    rules=(
        Rule(
            "artefacts_table",
            "rewind.analyses.artefacts:compare",
            {"told": "statistics/artefacts.csv", "facts": "statistics/source_facts.csv"},
            inputs={"traces": lambda plan: plan.dataset.traces, "item_table": lambda plan: plan.item_table()},
            params={"confidence": lambda plan: plan.keys.statistics.confidence},
        ),
    ),
    results={
        "artefacts": Result("statistics/artefacts.csv", COLUMNS),
        "source_facts": Result("statistics/source_facts.csv", ("fact", "clips", "of", "median")),
    },
    tables=(analysis_table("artefacts", 45, layout, notes_below),),
    finding=finding,
)
