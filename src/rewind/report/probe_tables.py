"""Tables of probes (docs/probes.md): accuracy beyond blind baselines, and what runs are asked beside their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.evaluation import DIRECTION_PERMUTATIONS
from rewind.errors import count_noun
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.report.footnotes import confidence_percent, finish_sentences
from rewind.report.notes import key_text
from rewind.report.results import Results, evaluated_directions, in_table_order, leading_direction
from rewind.report.setting_table import metric_decimals, setting_title
from rewind.report.table import MISSING, Cell, Column, RowGroup, Table, number_cell, slug
from rewind.statistics.chance import ALL_TIED
from rewind.statistics.inference import significance_level

# ---- Beyond blind baselines ------------------------------------------------------------------------------------------

BLIND_EXPLANATION = (
    "Blind baselines see the captions alone, the clips alone, both but not together, or one frame of each clip"
)


def blind_csv_rows(results: Results) -> pd.DataFrame:
    """``blind.csv`` in the order of the tables, with the methods' names."""
    return in_table_order(results.blind, results.ordered(), results.labels)


def blind_layout(results: Results, dataset: str) -> Table:
    """A row per method: its accuracy, the best blind baseline, and the difference."""
    rows, digits = blind_csv_rows(results), metric_decimals(ACCURACY_METRIC)
    directions = [
        direction for direction in evaluated_directions(results, "binary") if direction in set(rows["direction"])
    ]
    groups = []
    for direction in directions:
        here = rows[rows["direction"] == direction]
        lines = tuple(_blind_line(row, results, digits) for row in here.itertuples())
        groups.append(RowGroup(results.short(direction) if len(directions) > 1 else "", lines))
    columns = (
        Column("Method", number=False),
        Column("accuracy", "↑"),
        Column("best blind baseline", number=False),
        Column("its accuracy"),
        Column("beyond it"),
    )
    return Table(
        "Beyond",
        f"{setting_title(dataset, 'binary')}: accuracy beyond what words and pictures give apart",
        slug(dataset, "binary", "blind"),
        columns,
        tuple(groups),
        key_text([*_beyond_sentences(results), _marked_sentence(results, "*")]),
    )


def _beyond_sentences(results: Results) -> list[str]:
    """What the interval is, and which baselines decide it where that is not the one in the table."""
    rows, percent = blind_csv_rows(results), confidence_percent(results.confidence)
    if "low_of" not in rows:  # made before intervals were over all baselines
        return [f"In brackets {percent} intervals of the difference to the best one, not adjusted"]
    others = [
        f"{row.label}: lower end by {results.labels[row.low_of]}, p by {results.labels[row.p_of]}"
        for row in rows.itertuples()
        if row.p == row.p and {row.low_of, row.p_of} != {row.best}
    ]
    return [
        f"In brackets {percent} intervals of what a method has more than the best of all baselines, whichever that "
        "truly is; not adjusted for several methods",
        f"Decided by another baseline: {'; '.join(others)}" if others else "",
    ]


def _marked_sentence(results: Results, mark: str) -> str:
    counts = sorted(set(results.blind["family"].astype(int)))
    return (
        f"{mark}: more accurate than every blind baseline, by the largest of the p-values against each "
        f"(intersection-union test), after Holm’s correction over {' and '.join(map(str, counts))} methods"
    )


def _blind_line(row: Any, results: Results, digits: int) -> tuple[Cell, ...]:
    significant = bool(row.p_holm < significance_level(results.confidence) and row.difference > 0)
    return (
        Cell(row.label),
        number_cell(row.estimate, digits),
        Cell(results.labels[row.best]),
        number_cell(row.blind, digits),
        number_cell(row.difference, digits, low=row.low, high=row.high, signed=True, bold=significant),
    )


def blind_notes(results: Results) -> list[str]:
    """The sentences below the table."""
    return finish_sentences(
        [
            f"{BLIND_EXPLANATION}; they are fitted on the training split and chosen on validation",
            *_beyond_sentences(results),
            _marked_sentence(results, "Bold"),
        ]
    )


# ---- What probes measure -------------------------------------------------------------------------------------------


BINARY = "binary"
"""Column of accuracy in Binary beside the probe of direction: what the head makes of what the features hold."""


@dataclass(frozen=True)
class ProbeTable:
    """How the table of a probe looks.

    Attributes:
        title: of the table.
        headings: metric → heading of its column, in order; metrics that are not here have no column. Empty: a column
            for every part.
        digits: after the point.
        higher: whether an arrow says that higher values are better.
        reading: what the numbers are.

    Example:
        >>> PROBE_TABLES["pairs"].headings["group"]
        'group'
    """

    title: str
    reading: str
    headings: Mapping[str, str]
    digits: int = 1
    higher: bool = True


PROBE_TABLES: Mapping[str, ProbeTable] = {
    "pairs": ProbeTable(
        "text, video and group score of pairs",
        "Of two clips with a caption each: text, each clip scores its own caption above the other; video, each caption "
        "its own clip; group, both. In percent, expected over the order of ties. Where all tie: 25, 25 and 16.7; what "
        "sees the captions alone, the clips alone or no order has a group score of 0; a guess of the clip’s direction "
        "times one of the caption’s can have 50 and know nothing",
        {"text": "text", "video": "video", "group": "group"},
    ),
    "answers": ProbeTable(
        "search with several right answers",
        "In percent, expected over the order of ties. mAP: mean average precision; R@k: a right one is among the first "
        "k; nDCG: binary gains, all right ones first is 100",
        {"AP": "mAP", "R@1": "R@1", "R@5": "R@5", "R@10": "R@10", "nDCG": "nDCG"},
    ),
    "foils": ProbeTable(
        "true captions against foils",
        "How often a clip scores its true caption above all foils of a kind, in percent; a tie counts as its share",
        {},
    ),
    "direction": ProbeTable(
        "direction of time in features",
        "Which of a clip and its twin runs forward, told by a linear classifier that has seen neither (cross-validated "
        "by cluster), in percent. Frames in a row: features of all frames, what a head could read; clip vector: what "
        "its vectors have kept of it. 50: nothing",
        {"frames in a row": "frames in a row", "clip vector": "clip vector", BINARY: "Binary"},
    ),
    "geometry": ProbeTable(
        "geometry of vectors",
        "Modality gap: distance of the mean vectors of captions and clips. Hubness: skewness of how often clips are "
        "among the ten nearest of a caption. Alignment: mean squared distance of right pairs. Uniformity: log mean of "
        "exp(−2 · squared distance); lower is more uniform. No such clip: with the best threshold on validation, how "
        "often a caption whose clip is there is refused (missed), and one whose clip is not there is answered (false), "
        "in percent; AUROC: how often the former scores higher",
        {
            "modality_gap": "modality gap",
            "hubness": "hubness",
            "alignment": "alignment",
            "uniformity_text": "uniformity, captions",
            "uniformity_items": "uniformity, clips",
            "missed": "missed",
            "false": "false",
            "auroc": "AUROC",
        },
        digits=2,
        higher=False,
    ),
}
"""Probe → its table."""

_PERCENT_OF_GEOMETRY = ("missed", "false", "auroc")


def probe_csv_rows(results: Results, probe: str) -> pd.DataFrame:
    """The probe's rows of ``probes.csv`` in the order of the tables, with the methods' names."""
    return in_table_order(results.probe(probe), results.ordered(), results.labels)


def probe_layout(results: Results, probe: str, dataset: str) -> Table:
    """A row per method, a column per metric; of foils, a column per kind. Parts and directions are groups of rows."""
    look, rows = PROBE_TABLES[probe], _shown_rows(results, probe)
    if not look.headings:  # kinds stand side by side, and metrics, if there are several, below one another
        several = rows["metric"].nunique() > 1
        rows = rows.assign(part=rows["metric"] if several else "", metric=rows["part"])
    headings = look.headings or {kind: kind for kind in dict.fromkeys(rows["metric"])}
    if look.headings:
        headings = {metric: heading for metric, heading in headings.items() if metric in set(rows["metric"])}
    groups = []
    for part, direction in dict.fromkeys(zip(rows["part"].fillna(""), rows["direction"].fillna(""), strict=True)):
        here = rows[(rows["part"].fillna("") == part) & (rows["direction"].fillna("") == direction)]
        lines = tuple(
            _probe_line(results, here, method, headings, look.digits) for method in dict.fromkeys(here["method"])
        )
        title = " ".join(filter(None, [part, results.short(direction) if direction else ""]))
        groups.append(RowGroup(title, lines))
    arrow = "↑" if look.higher else ""
    columns = (Column("Method", number=False), *(Column(heading, arrow) for heading in headings.values()))
    title, key = f"{dataset}: {look.title}", key_text(_probe_sentences(results, probe, "*"))
    return Table(probe.capitalize(), title, slug(dataset, probe), columns, tuple(groups), key)


def _shown_rows(results: Results, probe: str) -> pd.DataFrame:
    """The rows that the table shows."""
    rows = probe_csv_rows(results, probe)
    if probe == "foils":
        values = rows.pivot_table("estimate", ["method", "part"], "metric")
        if {"accuracy", "pairwise"} <= set(values) and np.allclose(values["accuracy"], values["pairwise"]):
            rows = rows[rows["metric"] != "pairwise"]  # one foil for each caption: both are the same
    if probe == "direction":
        direction = leading_direction(results, "binary") if len(results.chance) else ""
        binary = results.chance[results.chance["direction"] == direction] if direction else results.chance
        binary = binary[binary["method"].isin(rows["method"])] if direction else pd.DataFrame()
        if len(binary):
            constant = (binary["tied"] == ALL_TIED).astype(int)
            beside = binary.assign(
                probe=probe, metric=BINARY, part="", direction="", constant=constant, p=np.nan, p_holm=np.nan
            )
            rows = pd.concat([rows, beside.reindex(columns=rows.columns)], ignore_index=True)
    return rows


def _probe_line(
    results: Results, rows: pd.DataFrame, method: str, headings: Mapping[str, str], digits: int
) -> tuple[Cell, ...]:
    cells = {row.metric: row for row in rows[rows["method"] == method].itertuples()}
    level = significance_level(results.confidence)
    return (Cell(results.labels[method]), *(_probe_cell(cells.get(metric), digits, level) for metric in headings))


def _probe_cell(row: Any, digits: int, level: float) -> Cell:
    if row is None:
        return Cell(MISSING)
    digits = 1 if row.metric in _PERCENT_OF_GEOMETRY else digits
    if np.isnan(row.low):
        return number_cell(row.estimate, digits, row.std)
    if row.constant:
        return number_cell(row.estimate, digits)
    is_more = getattr(row, "p_holm", np.nan) < level
    return number_cell(row.estimate, digits, low=row.low, high=row.high, bold=is_more)


def probe_notes(results: Results, probe: str) -> list[str]:
    """The sentences below the table."""
    return finish_sentences(_probe_sentences(results, probe, "Bold"))


def _with_seeds(results: Results) -> set[str]:
    """Methods that were trained with several seeds."""
    runs = results.metrics.groupby("method")["seed"].nunique()
    return {method for method in results.trained() if runs.get(method, 0) > 1}


def _probe_sentences(results: Results, probe: str, mark: str) -> list[str]:
    rows = results.probe(probe)
    percent = confidence_percent(results.confidence)
    sentences = [PROBE_TABLES[probe].reading]
    if rows["low"].notna().any():
        whose = rows.loc[rows["low"].notna() & rows["method"].isin(_with_seeds(results)), "method"]
        over = "clusters of queries"
        if len(whose):
            some = "" if set(whose) == set(rows.loc[rows["low"].notna(), "method"]) else ", where a method has several,"
            over = f"training seeds{some} and {over}"
        sentences.append(f"In brackets {percent} intervals over {over}, not adjusted")
    if (rows["low"].isna() & rows["method"].isin(_with_seeds(results))).any():
        sentences.append("±: standard deviation over seeds, of what is a property of a whole run")
    if "p" in rows and (tests := int(rows["p"].notna().sum())):  # results of earlier versions have no tests
        sentences.append(
            f"{mark}: more than chance by a permutation test, which draws {DIRECTION_PERMUTATIONS} times which clip of "
            f"a pair runs forward, after Holm’s correction over {count_noun(tests, 'test')}"
        )
    return sentences
