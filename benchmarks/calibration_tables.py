"""What the stored figures of the calibration say, as Markdown. Every function takes the table that is stored."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from calibration_cells import SLICE
from reference_tests import REFERENCE_TESTS
from rewind.errors import RewindError
from rewind.io.files import read_csv
from rewind.statistics.calibration import OUR_TEST

BANDS = {"type I": (0.033, 0.060), "coverage": (0.934, 0.968)}
CROSSED = {"few clusters": ("cluster", "clusters"), "ceilings": ("cluster", "queries", "r1")}
_TEXT = ("seeds", "seed_sd", "group", "cell", "pretraining")
_STORED = (
    *("group", "cell", "seeds", "queries", "cluster", "seed_sd", "r1", "difference", "replicates"),
    *("procedure", "metric", "measure", "rate", "error"),
)


def stored(path: Path) -> pd.DataFrame:
    """The figures of a file.

    Raises:
        RewindError: if the file is of another kind.
    """
    table = read_csv(path, text=_TEXT)
    missing = {"cell", "group", "replicates", "measure", "rate", "error"} - set(table.columns)
    if missing:
        raise RewindError(f"{path}: column {sorted(missing)[0]!r} is missing; choose another --out.")
    return table


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the columns as text that may hold several numbers, like ``2+10``."""
    known = [column for column in _TEXT if column in table.columns]
    return table.assign(**{column: table[column].map(_shown) for column in known})


def slim(table: pd.DataFrame) -> pd.DataFrame:
    """Without what no table prints: designs are in a cell's name, and four digits are more than a simulation knows."""
    kept = [column for column in _STORED if column in table.columns]
    return table[kept].round({"rate": 4, "error": 4})


def range_of_errors(table: pd.DataFrame, procedure: str) -> str:
    """``4% to 5%``: the least and the greatest type I error on the slice, each a mean over the metrics."""
    here = (table["queries"] == SLICE[0]) & (table["cluster"] == SLICE[1]) & (table["group"] == "main")
    rows = table[here & (table["measure"] == "type I") & (table["procedure"] == procedure)]
    rates = 100 * rows.groupby(["seeds", "seed_sd"])["rate"].mean()
    return " to ".join(dict.fromkeys(f"{rate:.0f}%" for rate in (rates.min(), rates.max())))


def edges(table: pd.DataFrame) -> list[str]:
    """What the grid of edges says, group by group."""
    text = []
    for group in table["group"].unique():
        if group == "letters":
            text += [letters(table), kept(table)]
        elif group in CROSSED:
            there = [metric for metric in ("R@1", "R@10", "MnR") if metric in set(table["metric"])]
            kinds = [(measure, metric) for measure in BANDS for metric in there]
            text += [crossed(table, group, *kind, CROSSED[group], ("seeds", "seed_sd")) for kind in kinds]
        else:
            text.append(f"{group}\n\n{group_table(table, group, tuple(BANDS))}")
    return [*text, degenerate(table)]


def outside(table: pd.DataFrame) -> str:
    """Our figures beyond the bands by more than two of their standard errors, by the names of their cells."""
    judged = _judged(table)
    rows, counts = [], {}
    for measure in BANDS:
        ours = judged[judged["measure"] == measure]
        beyond = ours[ours["it"] != ""]
        counts[measure] = f"{len(beyond):,} of {len(ours):,}"
        for row in beyond.sort_values(["group", "metric", "rate"]).itertuples():
            rows.append([row.group, row.cell, row.metric, measure, _rate(row), row.it])
    said = "; ".join(
        f"{measure} outside [{least:.3f}, {most:.3f}]: {counts[measure]} figures"
        for measure, (least, most) in BANDS.items()
    )
    note = f"{said} (by more than two standard errors)."
    if not rows:
        return note
    return f"{note}\n\n{markdown(['group', 'cell', 'metric', 'measure', 'rate', 'it'], rows)}"


def outside_summary(table: pd.DataFrame) -> str:
    """How many figures of each group and metric are outside the bands, and the most liberal one."""
    lines = []
    for (group, measure, metric), part in _judged(table).groupby(["group", "measure", "metric"], sort=False):
        errs, cautious = (part[part["it"] == it] for it in ("liberal", "conservative"))
        if len(errs) or len(cautious):
            least = measure == "coverage"
            worst = errs.loc[errs["rate"].idxmin() if least else errs["rate"].idxmax()] if len(errs) else None
            said = "" if worst is None else f"{worst['rate']:.3f} ({worst['cell']})"
            lines.append([group, measure, metric, str(len(part)), str(len(errs)), str(len(cautious)), said])
    return markdown(["group", "measure", "metric", "designs", "liberal", "conservative", "the most liberal"], lines)


def _judged(table: pd.DataFrame) -> pd.DataFrame:
    """Our figures with ``it``: outside the band it is liberal (wrong too often) or conservative (which costs power)."""
    found = []
    for measure, (least, most) in BANDS.items():
        ours = table[(table["procedure"] == OUR_TEST) & (table["measure"] == measure)]
        under, over = (ours["rate"] < least - 2 * ours["error"]), (ours["rate"] > most + 2 * ours["error"])
        errs, cautious = (over, under) if measure == "type I" else (under, over)
        words = errs.map({True: "liberal", False: ""}) + cautious.map({True: "conservative", False: ""})
        found.append(ours.assign(it=words))
    return pd.concat(found)


def group_table(table: pd.DataFrame, group: str, measures: tuple[str, ...] | None = None) -> str:
    """All our figures of a group: a row per cell and measure, a column per metric."""
    rows = table[(table["procedure"] == OUR_TEST) & (table["group"] == group)]
    if measures is not None:
        rows = rows[rows["measure"].isin(measures)]
    metrics = [metric for metric in ("R@1", "R@5", "R@10", "MRR", "MnR", "any") if metric in set(rows["metric"])]
    lines = []
    for (cell, measure), part in rows.groupby(["cell", "measure"], sort=False):
        rates = part.set_index("metric")["rate"]
        lines.append([cell, measure, *(f"{rates[m]:.3f}" if m in rates else "" for m in metrics)])
    return markdown(["design", "measure", *metrics], lines)


def crossed(
    table: pd.DataFrame, group: str, measure: str, metric: str, down: tuple[str, ...], across: tuple[str, ...]
) -> str:
    """A measure of ours in a group: rows and columns are values of the design's columns, or of ``clusters``.

    What is in neither is averaged over.
    """
    rows = table[(table["procedure"] == OUR_TEST) & (table["group"] == group)]
    rows = rows[(rows["measure"] == measure) & (rows["metric"] == metric)]
    rows = rows.assign(clusters=rows["queries"] // rows["cluster"])
    means = rows.groupby([*down, *across])["rate"].mean()
    keys = list(means.index)
    left = sorted({key[: len(down)] for key in keys}, key=_order)
    top = sorted({key[len(down) :] for key in keys}, key=_order)
    head = [*(_HEADS.get(name, name) for name in down), *(_column(across, values) for values in top)]
    lines = [
        [*(_plain(v) for v in row), *(f"{means[row + column]:.3f}" if row + column in means else "" for column in top)]
        for row in left
    ]
    return f"{group}: {measure}, {metric}\n\n{markdown(head, lines)}"


_HEADS = {"r1": "R@1 (%)"}


def _column(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    """``3 seeds, seed sd 1``; a single run is a fixed model's."""
    said = {"seeds": lambda v: "fixed models" if v == "1" else f"{v} seeds"}
    return ", ".join(said.get(n, f"{n} {{}}".format)(_plain(v)) for n, v in zip(names, values, strict=True))


def letters(table: pd.DataFrame) -> str:
    """How often equal methods get a letter: for R@1 alone, and in any column of the table."""
    rows = table[(table["procedure"] == OUR_TEST) & (table["group"] == "letters") & (table["difference"] == 0)]
    lines = []
    for cell, part in rows.groupby("cell", sort=False):
        rate = part.set_index(["metric", "measure"])["rate"]
        lines.append([cell, f"{rate['R@1', 'family-wise']:.3f}", f"{rate['any', 'letter anywhere']:.3f}"])
    return markdown(["design", "a letter in R@1", "a letter in R@1, R@5, R@10 or MnR"], lines)


def kept(table: pd.DataFrame) -> str:
    """How often a method that is truly worse is not shown to be."""
    rows = table[(table["procedure"] == OUR_TEST) & (table["measure"] == "kept") & (table["group"] == "letters")]
    lines = [[row.cell, _rate(row)] for row in rows[rows["metric"] == "R@1"].itertuples()]
    return markdown(["design", "not significantly worse in R@1"], lines)


def degenerate(table: pd.DataFrame) -> str:
    """Where intervals without width or p = 0 occur: in how many cells of a group, and where most."""
    rows = table[table["measure"].isin(("zero width", "zero width, difference", "p = 0"))]
    lines = []
    for (group, metric, measure), part in rows.groupby(["group", "metric", "measure"], sort=False):
        most = part.loc[part["rate"].idxmax()]
        if most["rate"] > 0:
            count = f"{(part['rate'] > 0).sum()} of {len(part)}"
            lines.append([group, metric, measure, count, f"{most['rate']:.3f}", most["cell"]])
    head = ["group", "metric", "what", "cells", "greatest share", "in"]
    return markdown(head, lines) if lines else "No interval has zero width; no p is 0."


def whole_grid(table: pd.DataFrame) -> str:
    """Our procedure over the cells of the main grid: mean [least, greatest] per number of seeds."""
    rows = table[(table["procedure"] == OUR_TEST) & (table["group"] == "main")]
    rows = rows.assign(rate=rows["rate"].where(rows["measure"] != "coverage", 1 - rows["rate"]))
    names = {
        "type I": "type I error of one comparison",
        "coverage": "interval misses the true value",
        "family-wise": "any false difference, after Holm",
    }
    seeds = sorted(rows["seeds"].unique(), key=_order)
    lines = []
    for measure_name, title in names.items():
        for metrics in (("R@1", "R@10", "MRR"), ("MnR",)):
            chosen = rows[(rows["measure"] == measure_name) & rows["metric"].isin(metrics)]
            cells = [_range(chosen.loc[chosen["seeds"] == n, "rate"]) for n in seeds]
            lines.append([f"{title}: {', '.join(metrics)}", *cells])
    return markdown(["nominal 0.05", *(f"{n} seeds" for n in seeds)], lines)


def beside_others(table: pd.DataFrame) -> list[str]:
    """All procedures on the slice, per number of seeds; the figures of a field are those of the seeds' spreads."""
    rows = table[(table["queries"] == SLICE[0]) & (table["cluster"] == SLICE[1])]
    rows = rows[rows["group"].isin(("main", "power"))]
    if rows.empty:
        return []
    spreads, seeds = (sorted(rows[key].unique(), key=_order) for key in ("seed_sd", "seeds"))
    plain, shifted = rows[rows["difference"] == 0], rows[rows["measure"] == "power"]
    covered = plain[(plain["measure"] == "coverage") & (plain["metric"] != "MnR")]
    parts = [
        ("Type I error of a difference, mean over metrics", plain[plain["measure"] == "type I"]),
        ("One method not covered: R@1, R@10, MRR", covered.assign(rate=1 - covered["rate"])),
        *(
            (f"Power, R@1, a true difference of {points:g} points", shifted[shifted["difference"] == points])
            for points in sorted(shifted["difference"].unique())
        ),
    ]
    text = []
    for title, part in parts:
        rates = part.groupby(["procedure", "seeds", "seed_sd"])["rate"].mean()
        lines = [
            [name, *(" ".join(f"{rates[name, n, sd]:.3f}" for sd in spreads if (name, n, sd) in rates) for n in seeds)]
            for name in (OUR_TEST, *REFERENCE_TESTS)
            if name in part["procedure"].to_numpy()
        ]
        note = f"{title}; seed sd {', '.join(spreads)} points"
        text.append(f"{note}\n\n{markdown(['procedure', *(f'{n} seeds' for n in seeds)], lines)}")
    return text


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _range(rates: pd.Series) -> str:
    return f"{rates.mean():.3f} [{rates.min():.3f}, {rates.max():.3f}]" if len(rates) else ""


def _rate(row) -> str:
    return f"{row.rate:.3f} ± {row.error:.3f}"


def _order(value: object) -> tuple:
    """Numbers by size, several joined by + after their first."""
    if isinstance(value, tuple):
        return tuple(_order(each) for each in value)
    return tuple(float(part) for part in str(value).split("+"))


def _plain(value: object) -> str:
    return value if isinstance(value, str) else f"{value:g}"
