"""Paraphrases: whether a clip is found whichever of its captions asks for it.

Recall averages over captions, so a method that finds every second caption of each clip cannot be told from one that
finds all captions of every second clip. Of every item with several captions, this counts how often each is found first,
how often all are, and how often at least one is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.analyses.probes import PROBE_COLUMNS, probe_tables
from rewind.config import Study
from rewind.data.tokenizers import same_text_labels
from rewind.errors import RewindError
from rewind.io.files import read_csv, write_csv
from rewind.job_values import Job, job_pairs, job_runs
from rewind.ranking_metrics import recall_at
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.tables.best_method import Finding, interval_text
from rewind.tables.footnotes import confidence_percent, seed_caution, table_notes
from rewind.tables.results import Results
from rewind.tables.settings import SETTING_TITLES
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, RowGroup, Table, number_cell, slug

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    if study.evaluation.paraphrases and "text_to_item" not in study.evaluation.directions:
        yield (
            "evaluation.paraphrases: captions search the items; add text_to_item to evaluation.directions, or set the "
            "key to false"
        )


# ---- What is counted -----------------------------------------------------------------------------------------------

MEASURES = ("mean", "every", "any")
PARAPHRASE_COLUMNS = (
    *(column for column in PROBE_COLUMNS if column not in ("probe", "part", "p", "p_holm")),
    *("setting", "fewest", "most", "captions"),
)


def paraphrase_values(ranks: pd.DataFrame, captions: pd.DataFrame) -> pd.DataFrame:
    """Per setting and item with several different captions: the shares of them that are found first, in percent.

    With h the probability that a caption's own item comes first, and ties broken for each caption by itself: ``mean``
    is the mean of h, ``every`` the product Π h, and ``any`` is 1 − Π (1 − h). Captions that repeat another's words are
    left out.

    Args:
        ranks: rank table of a run (:mod:`rewind.evaluation.ranking`).
        captions: ``caption_id``, ``video_id`` and ``caption`` of the test split.

    Returns:
        Columns :data:`rewind.config.evaluation.VALUE_COLUMNS`, the setting as ``part``.

    >>> ranks = pd.DataFrame({"query_id": ["a#0", "a#1"], "setting": "test", "direction": "text_to_item",
    ...                       "higher": [0, 3], "ties": [1, 0], "cluster_id": "a"})
    >>> captions = pd.DataFrame({"caption_id": ["a#0", "a#1"], "video_id": "a", "caption": ["It runs.", "One runs."]})
    >>> paraphrase_values(ranks, captions)[["metric", "value"]].values.tolist()
    [['mean', 25.0], ['every', 0.0], ['any', 50.0]]
    """
    words = captions.assign(text=same_text_labels(captions["caption"].tolist()))
    words = words.drop_duplicates(["video_id", "text"]).set_index("caption_id")["video_id"]
    asked = ranks[(ranks["direction"] == "text_to_item") & ranks["query_id"].isin(words.index)]
    first = recall_at(1, asked["higher"].to_numpy(), asked["ties"].to_numpy())
    asked = asked.assign(item=asked["query_id"].map(words), first=first, missed=1 - first)
    by_item = asked.groupby(["setting", "item", "cluster_id"], sort=False)
    found = by_item.agg(captions=("first", "size"), mean=("first", "mean"), every=("first", "prod"))
    found["any"] = 1 - by_item["missed"].prod()
    found = found[found["captions"] > 1].reset_index()
    values = found.melt(["setting", "item", "cluster_id", "captions"], list(MEASURES), "metric", "value")
    values["value"] *= 100
    return values.rename(columns={"setting": "part", "item": "query_id"}).assign(
        probe="paraphrases", direction="text_to_item"
    )


def compare(job: Job) -> None:
    """Write the intervals of every method, and the differences of the declared pairs."""
    params, captions = job.params, read_csv(job.input.captions, ("caption_id", "video_id", "caption"))
    ranks = read_ranks(job_runs(job), ranks_folder(job.input.ranks))
    values = {
        method: {seed: paraphrase_values(table, captions) for seed, table in seeds.items()}
        for method, seeds in ranks.items()
    }
    counts = _captions_by_setting(values)
    intervals, pairs = probe_tables(values, job_pairs(job), params.confidence, RandomFactors.of(params.random))
    intervals = intervals.drop(columns=["probe", "p", "p_holm"]).rename(columns={"part": "setting"})
    write_csv(job.output.intervals, intervals.join(counts, on="setting"))
    write_csv(job.output.pairs, pairs.drop(columns="probe").rename(columns={"part": "setting"}))


def _captions_by_setting(values: Mapping[str, Mapping[int, pd.DataFrame]]) -> pd.DataFrame:
    """Setting → the fewest, most and mean captions of its items; refused where no item has several."""
    every = [table for seeds in values.values() for table in seeds.values()]
    of_items = pd.concat(every).drop_duplicates(["part", "query_id"])
    if of_items.empty:
        raise RewindError(
            "evaluation.paraphrases: no item of the test split has several captions with different words; set it to "
            "false."
        )
    return of_items.groupby("part")["captions"].agg(fewest="min", most="max", captions="mean")


# ---- The table -----------------------------------------------------------------------------------------------------


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method under each setting; each share with its interval."""
    results = inputs.results
    rows = results.of("paraphrases")
    groups = []
    for name, of_setting in rows.groupby("setting", sort=False):
        cells = {(row.method, row.metric): row for row in of_setting.itertuples()}
        lines = tuple(
            (Cell(results.labels[method]), *(_share_cell(cells[method, metric]) for metric in MEASURES))
            for method in dict.fromkeys(of_setting["method"])
        )
        groups.append(RowGroup(SETTING_TITLES[str(name)], lines))
    return Table(
        "Paraphrases",
        ", ".join(part for part in (inputs.dataset, "R@1 by the captions of one item") if part),
        slug(inputs.dataset, "paraphrases"),
        (Column("Method", number=False), *(Column(name, "↑") for name in MEASURES)),
        tuple(groups),
    )


def _share_cell(row: Any) -> Cell:
    return number_cell(row.estimate, **{} if row.constant else {"low": row.low, "high": row.high})


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results = inputs.results
    rows = results.of("paraphrases")
    counts = [
        f"{row.queries:,.0f} {inputs.facts.items} with {_range_text(row)} ({SETTING_TITLES[row.setting]})"
        for row in rows.drop_duplicates("setting").itertuples()
    ]
    return table_notes(
        [
            "Of items with several captions, in percent: mean, how often a caption finds its item first; every, how "
            "often all captions of an item do; any, how often at least one does"
        ],
        ["; ".join(counts)],
        ["Every falls and any rises with the number of captions, also where captions are found by chance"],
        [f"In brackets {confidence_percent(results.confidence)} intervals over training seeds and items"],
        [seed_caution(results.seed_counts())],
    )


def _range_text(row: Any) -> str:
    if row.fewest == row.most:
        return f"{row.most:,.0f} captions each"
    return f"{row.fewest:,.0f} to {row.most:,.0f} captions, {row.captions:.1f} on average"


# ---- The answer ----------------------------------------------------------------------------------------------------


def finding(results: Results) -> Finding | None:
    """How often each method finds a clip by every one of its captions, in the first setting."""
    rows = results.of("paraphrases")
    if rows.empty:
        return None
    setting = rows["setting"].iloc[0]
    rows = rows[(rows["setting"] == setting) & rows["method"].isin(results.compared())]
    parts = [
        "; ".join(
            f"{row.label} {interval_text(row.estimate, row.low, row.high)}"
            for row in rows[rows["metric"] == metric].sort_values("estimate", ascending=False).itertuples()
        )
        for metric in ("every", "any")
    ]
    sentences = [f"Found by every caption of an item: {parts[0]}.", f"By at least one: {parts[1]}."]
    return Finding(f"Paraphrases, {SETTING_TITLES[setting]}, R@1", sentences, [])


ANALYSIS = Analysis(
    applies=lambda plan: plan.keys.evaluation.paraphrases,
    faults=faults,
    rules=(
        Rule(
            "paraphrases",
            "rewind.analyses.paraphrases:compare",
            {"intervals": "statistics/paraphrases.csv", "pairs": "statistics/paraphrase_pairs.csv"},
            inputs={"ranks": lambda plan: plan.rank_files(), "captions": lambda plan: plan.test_captions()},
            params={
                "runs": lambda plan: plan.runs(),
                "pairs": lambda plan: plan.keys.pairs(),
                "confidence": lambda plan: plan.keys.statistics.confidence,
                "random": lambda plan: plan.keys.random_factors(),
            },
        ),
    ),
    results={"paraphrases": Result("statistics/paraphrases.csv", PARAPHRASE_COLUMNS)},
    tables=(analysis_table("paraphrases", 95, layout, notes_below),),
    finding=finding,
)
