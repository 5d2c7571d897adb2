"""The files of a board: ``index.html``, ``board.csv``, ``board.tex``, ``board.bib`` and ``board.json``.

Together they are a static site: any web server can serve the folder, and the page opens from a disk without a network.
Names come from studies that others may have run, so every text is escaped for its markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from rewind.errors import count_noun
from rewind.io.files import write_json, write_spreadsheet, write_text
from rewind.packaged import PROJECT_URL
from rewind.ranking_metrics import ACCURACY_METRIC, METRICS
from rewind.report.board.quoted import QUOTED, QuotedMethod
from rewind.report.board.ranking import COLUMN_KEY, OWN, Group, rank_cells
from rewind.report.board.studies import BASELINE, KINDS, BoardStudy
from rewind.report.board.tasks import TaskRanks, ranks_over_data_sets
from rewind.report.page.document import json_script, read_asset
from rewind.report.page.whisker import Scale
from rewind.tables.latex import escape_latex
from rewind.tables.render import ARROW_MEANINGS, render_latex, render_template
from rewind.tables.results import short_direction
from rewind.tables.settings import SETTING_TITLES, accuracy_name
from rewind.tables.table import MISSING, Cell, Column, RowGroup, Table, number_cell

BOARD_FORMAT = 1
"""Raised when a key of ``board.json`` changes its meaning or is removed."""

PAGE_FILE = "index.html"
ASSETS_FOLDER = Path(__file__).parent
DIGEST_DIGITS = 12
"""Digits of a data digest that are shown; all of them are in ``board.csv`` and ``board.json``."""

METHOD_KEY = ["study", "method"]
_METHOD_FACTS = ("Kind", "Seeds", "Frames", "Training", "Data version")
_DIRECTION_NAMES = {"text_to_item": "text → item", "item_to_text": "item → text"}


class BoardColumn(NamedTuple):
    """A column of numbers: which, and its heading."""

    data_set: str
    setting: str
    direction: str
    metric: str
    title: str
    arrow: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Values of :data:`rewind.report.board.ranking.COLUMN_KEY`."""
        return self.data_set, self.setting, self.direction, self.metric

    @property
    def place(self) -> str:
        """``Shapes, Origin``."""
        return f"{self.title}, {SETTING_TITLES[self.setting]}"


class Board:
    """A board over finished studies: its cells with ranks, groups, columns and rows.

    The studies are in the order of their rows; ``number`` of each cell is the study's position. ``cells`` and
    ``groups`` are those of :func:`rewind.report.board.ranking.rank_cells`, ``titles`` those of data sets, ``columns``
    are in order of data sets, settings and directions, ``over_data_sets`` those of
    :func:`rewind.report.board.tasks.ranks_over_data_sets`, ``quoted`` those given and those of the studies, and
    ``names`` are those of the studies, with their source where two have one name.
    """

    def __init__(self, studies: Sequence[BoardStudy], quoted: Sequence[QuotedMethod] = ()) -> None:
        self.studies = list(studies)
        self.quoted = [*quoted, *(method for study in studies for method in study.card.quoted)]
        self.quoted = [method for n, method in enumerate(self.quoted) if method not in self.quoted[:n]]
        self.cells, self.groups = rank_cells(studies)
        self.over_data_sets = ranks_over_data_sets(self.cells)
        self.names = _study_names(studies)
        self.titles = dict(zip(self.cells["data_set"], self.cells["title"], strict=True))
        self.columns = _columns(self.cells, self.titles)
        self.rows = [rows for _, rows in self.cells.groupby(METHOD_KEY, sort=False)]

    @property
    def summary(self) -> str:
        """``7 methods of 2 studies on 1 data set``."""
        methods = count_noun(len(self.rows), "method")
        studies = count_noun(len(self.studies), "study", "studies")
        return f"{methods} of {studies} on {count_noun(self.cells['data_set'].nunique(), 'data set')}"

    def cell(self, rows: pd.DataFrame, column: BoardColumn) -> pd.Series | None:
        """A method's cell in a column; None where it has no number there."""
        match = rows
        for name, value in zip(COLUMN_KEY, column.key, strict=True):
            match = match[match[name] == value]
        return None if match.empty else match.iloc[0]

    def write(self, folder: Path) -> list[Path]:
        """Write the page and the table in every format; returns the paths, the page first."""
        paths = [folder / name for name in (PAGE_FILE, "board.csv", "board.tex", "board.bib", "board.json")]
        latex = render_latex(board_table(self))
        write_spreadsheet(paths[1], board_rows(self))
        write_text(paths[2], latex)
        bibtex = board_bibtex(self)
        write_text(paths[3], bibtex)
        write_json(paths[4], board_json(self))
        copies = {"LaTeX": latex, "BibTeX": bibtex, "CSV": paths[1].read_text(encoding="utf-8")}
        write_text(paths[0], render_board(self, copies))
        return paths


def _study_names(studies: Sequence[BoardStudy]) -> list[str]:
    """Names of studies; of those with one name, with their source, or numbered where that is the same too."""
    names = [study.card.name for study in studies]
    full = [f"{study.card.name} ({study.source})" for study in studies]
    numbered = [
        text if full.count(text) == 1 else f"{study.card.name} ({full[:position].count(text) + 1}: {study.source})"
        for position, (text, study) in enumerate(zip(full, studies, strict=True))
    ]
    return [name if names.count(name) == 1 else long for name, long in zip(names, numbered, strict=True)]


def _columns(cells: pd.DataFrame, titles: dict[str, str]) -> list[BoardColumn]:
    """Columns by data set in the order of ``titles``, then settings and directions in their usual order."""
    orders = [list(titles), list(SETTING_TITLES), list(_DIRECTION_NAMES), list(METRICS)]
    keys = sorted(
        set(cells[COLUMN_KEY].itertuples(index=False, name=None)),
        key=lambda key: [order.index(value) for order, value in zip(orders, key, strict=True)],
    )
    columns = []
    for data_set, setting, direction, metric in keys:
        arrow = "↓" if METRICS[metric].lower_is_better else "↑"
        # Two data sets may have one title.
        title = titles[data_set] if list(titles.values()).count(titles[data_set]) == 1 else data_set
        columns.append(BoardColumn(data_set, setting, direction, metric, title, arrow))
    return columns


# ---- The table in rows, as LaTeX and as JSON -----------------------------------------------------------------------


def board_rows(board: Board) -> pd.DataFrame:
    """One row per method and column, with the names of studies: ``board.csv``."""
    names = {number: board.names[number] for number in range(len(board.studies))}
    sources = {number: study.source for number, study in enumerate(board.studies)}
    table = board.cells.assign(
        study=board.cells["study"].map(names),
        source=board.cells["study"].map(sources),
        seeds=board.cells["seeds"].astype(int),
        queries=board.cells["queries"].astype(int),
        gallery=board.cells["gallery"].astype("Int64"),
        clusters=board.cells["clusters"].astype(int),
        rank_low=board.cells["rank_low"].astype("Int64"),
        rank_high=board.cells["rank_high"].astype("Int64"),
    )
    order = [
        "study", "method", "label", "kind", "data_set", "setting", "direction", "metric", "estimate", "low", "high",
        "group", "rank_low", "rank_high", "ranked", "rank_from", "unranked", "seeds", "frames", "budget",
        "item_to_text", "queries", "gallery", "clusters", "confidence", "digest", "source",
    ]  # fmt: skip
    return table[order]


def board_table(board: Board) -> Table:
    """The table as it is printed in a paper: a row per method; raised, the letter of its group and its rank."""
    columns = [Column("Method", number=False), Column("Study", number=False), Column("Frames", number=False)]
    for column in board.columns:
        short = short_direction(column.direction, _items(board, column.data_set))
        columns.append(Column(f"{short} {accuracy_name(column.setting, column.metric)}", column.arrow, column.place))
    rows = []
    for of_method in board.rows:
        first = of_method.iloc[0]
        cells = [Cell(first["label"]), Cell(board.names[first["study"]]), Cell(_frames_text(first["frames"]))]
        rows.append((*cells, *(_table_cell(board.cell(of_method, column)) for column in board.columns)))
    notes = (*_notes(board), *(f"{group.letter}: {_group_sentence(group)}" for group in board.groups))
    return Table("", _caption(board), "board", tuple(columns), (RowGroup("", tuple(rows)),), name="board", notes=notes)


def board_bibtex(board: Board) -> str:
    """An entry for Rewind, and one for the results of every study, which the digest of its data tells from others."""
    rewind = {
        "title": "{Rewind: does a text-to-video retriever know which way time runs?}",
        "author": "{The Rewind authors}",
        "year": "2026",
        "url": PROJECT_URL,
    }
    entries = [("software", "rewind", rewind)]
    for number, study in enumerate(board.studies):
        digest = study.cells["digest"].iloc[0][:DIGEST_DIGITS]
        title = escape_latex(f"Results of the study {board.names[number]} on {study.card.title}")
        # BibTeX counts braces, also escaped ones.
        title = title.replace(r"\{", r"\textbraceleft{}").replace(r"\}", r"\textbraceright{}")
        fields = {"title": f"{{{title}}}", "note": f"evaluated with Rewind; data {digest}"}
        entries.append(("misc", f"rewind-{study.card.name}-{digest}", fields))
    return "\n".join(
        f"@{kind}{{{key},\n" + "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items()) + "}\n"
        for kind, key, fields in entries
    )


def _table_cell(cell: pd.Series | None) -> Cell:
    if cell is None:
        return Cell(MISSING)
    marks = f"{cell['group']} {_rank_text(cell)}".strip() if cell["group"] else ""
    # Chance is computed, not estimated: its interval is a point.
    low, high = (math.nan, math.nan) if cell["low"] == cell["high"] else (cell["low"], cell["high"])
    return number_cell(cell["estimate"], METRICS[cell["metric"]].unit.digits, low=low, high=high, marks=marks)


def board_json(board: Board) -> dict[str, Any]:
    """All that the page shows, as plain values: ``board.json``."""
    rows = board_rows(board).astype(object)
    rows = rows.where(rows.notna(), None)
    return {
        "format": BOARD_FORMAT,
        "studies": [
            {"name": name, "source": study.source, "page": study.page or None, "card": study.card.to_json()}
            for name, study in zip(board.names, board.studies, strict=True)
        ],
        "groups": [
            {**vars(group), "studies": [board.names[number] for number in group.studies]} for group in board.groups
        ],
        "cells": rows.to_dict("records"),
        "quoted": [asdict(method) for method in board.quoted],
        "over_data_sets": [asdict(table) for table in board.over_data_sets],
    }


# ---- The overview: a row per method and data set, with what is compared first ---------------------------------------

OVERVIEW_SETTINGS = ("origin", "hard", "test")
"""Settings with a column of their own in the overview, whose metric is R@1, from text to items."""


def overview(board: Board) -> dict[str, Any]:
    """The table that opens the page: its headings, and a row per method and data set, the best first.

    What is drawn is the accuracy in Binary, from text to items; on a board without Binary the first R@1 that it has.
    Bars of all rows have one scale. Quoted numbers have neither interval nor rank.
    """
    cells = board.cells[board.cells["direction"] == "text_to_item"]
    recalls = cells[(cells["setting"] != "binary") & (cells["metric"] == ACCURACY_METRIC)]
    settings = [setting for setting in OVERVIEW_SETTINGS if setting in set(recalls["setting"])]
    binary = "binary" in set(cells["setting"])
    main, others = ("binary", settings) if binary else (settings[0] if settings else "", settings[1:])
    shown = cells[cells["setting"] == "binary"] if binary else recalls[recalls["setting"] == main]
    scale = Scale([*shown["low"], *(method.values.get(main, math.nan) for method in board.quoted)], guess=binary)
    rows = []
    for (_, _, data_set), of_method in board.cells.groupby([*METHOD_KEY, "data_set"], sort=False):
        first, drawn = of_method.iloc[0], shown.loc[shown.index.intersection(of_method.index)]
        found = recalls.loc[recalls.index.intersection(of_method.index)].set_index("setting")["estimate"]
        cell = None if drawn.empty else drawn.iloc[0]
        row = {
            "data_set": data_set,
            "title": first["title"],
            "label": first["label"],
            "kind": first["kind"],
            "study": board.names[first["study"]],
            "page": board.studies[first["study"]].page,
            "main": None if cell is None else _page_cell(cell),
            "bar": "" if cell is None else scale.draw(cell["estimate"], cell["low"], cell["high"]),
            "others": [f"{found[setting]:.1f}" if setting in found else "" for setting in others],
            "source": count_noun(int(of_method["seeds"].max()), "seed") if first["budget"] else first["kind"],
        }
        rows.append((-math.inf if cell is None else cell["estimate"], row))
    for method in board.quoted:
        value = method.values.get(main)
        row = {
            "data_set": method.data_set,
            "title": board.titles[method.data_set],
            "label": method.label,
            "kind": QUOTED,
            "study": "",
            "page": "",
            "main": None if value is None else {"text": f"{value:.1f}", "interval": "", "group": ""},
            "bar": "" if value is None else scale.draw(value, math.nan, math.nan),
            "others": [f"{method.values[setting]:.1f}" if setting in method.values else "" for setting in others],
            "source": f"quoted: {method.source}",
        }
        rows.append((-math.inf if value is None else value, row))
    order = list(board.titles)
    rows.sort(key=lambda each: (order.index(each[1]["data_set"]), -each[0]))
    return {
        "rows": [row for _, row in rows],
        "binary": binary,
        "drawn": "Knows the direction" if binary else "R@1",
        "others": [f"{SETTING_TITLES[setting]} R@1" for setting in others],
    }


# ---- The page ------------------------------------------------------------------------------------------------------


def render_board(board: Board, copies: dict[str, str]) -> str:
    """The page. It needs no network and opens from a disk.

    ``copies``: name of a markup → the whole table in it.
    """
    style = "\n".join((read_asset("page.css"), read_asset("verdicts.css"), _asset("board.css")))
    script = "\n".join((read_asset("packed.js"), _asset("helpers.js"), read_asset("tables.js"), _asset("filters.js")))
    return render_template(
        "board.html",
        ASSETS_FOLDER,
        title="Who knows which way time runs?" if "binary" in set(board.cells["setting"]) else "Board",
        overview=overview(board),
        subtitle=board.summary,
        caption=_caption(board),
        lead="Each cell has the mean over seeds, its interval, the letter of the group of methods that it may be "
        "compared with, and its place among them: 1–3 means first to third. The first number is the rank by the upper "
        "bound, as on Chatbot Arena; methods that the data do not tell apart share it.",
        filters=_filters(board),
        facts=[(name, name in ("Seeds", "Frames")) for name in ("Method", "Study", *_METHOD_FACTS)],
        columns=[_page_column(board, column) for column in board.columns],
        rows=[_page_row(board, rows) for rows in board.rows],
        notes=_notes(board),
        over_data_sets=[_page_ranks(board, table) for table in board.over_data_sets],
        rank_notes=_rank_notes(board),
        comparable="Methods are ranked together only if they were evaluated on the same version of the data, read the "
        "same number of frames and were trained as long, with batches of the same size. Methods that were not trained "
        "are never ranked among trained ones. Numbers of different groups may be in one column; no rank compares "
        "them.",
        group_columns=("Group", "Data set", "Data version", "Frames", "Training", "Intervals", "Studies"),
        groups=[_group_row(board, group) for group in board.groups],
        studies=[
            {
                "name": name,
                "title": study.card.title,
                "methods": study.cells["method"].nunique(),
                "source": f"{study.source} (shared)" if study.shared else study.source,
                "page": study.page,
            }
            for name, study in zip(board.names, board.studies, strict=True)
        ],
        style=Markup(style),
        script=Markup(script),
        data=Markup(json_script("table-copies", {"board": copies})),
    )


def _asset(name: str) -> str:
    return (ASSETS_FOLDER / name).read_text(encoding="utf-8")


def _caption(board: Board) -> str:
    titles = list(dict.fromkeys(column.title for column in board.columns))
    return f"Methods on {'; '.join(titles)}"


def _filters(board: Board) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Key, name and options of every filter that has something to choose."""
    settings = [(key, title) for key, title in SETTING_TITLES.items() if key in set(board.cells["setting"])]
    directions = [(key, name) for key, name in _DIRECTION_NAMES.items() if key in set(board.cells["direction"])]
    data_sets = list(dict.fromkeys((column.data_set, column.title) for column in board.columns))
    kinds = [(kind, kind) for kind in KINDS if kind in set(board.cells["kind"])]
    kinds += [(QUOTED, QUOTED)] if board.quoted else []
    return [
        ("data_set", "Data set", data_sets),
        ("setting", "Setting", settings),
        ("direction", "Direction", directions),
        ("kind", "Methods", kinds),
    ]


def _page_ranks(board: Board, table: TaskRanks) -> dict[str, Any]:
    """A table of mean ranks over data sets."""
    place = f"{SETTING_TITLES[table.setting]}, {_DIRECTION_NAMES[table.direction]}"
    left_out = f" (not on all of these: {', '.join(table.left_out)})" if table.left_out else ""
    return {
        "caption": f"{place}: {len(table.methods)} methods on {len(table.data_sets)} data sets{left_out}",
        "heads": [board.titles[name] for name in table.data_sets],
        "rows": [
            {
                "label": method.label,
                "mean": f"{method.mean:.1f}",
                "interval": f"[{method.low:.1f}, {method.high:.1f}]",
                "places": list(method.ranks.values()),
                "shown": f"{method.shown_best} / {method.shown_beaten}",
            }
            for method in table.methods
        ],
    }


def _rank_notes(board: Board) -> list[str]:
    """What is below all tables of mean ranks."""
    tables = board.over_data_sets
    levels = " or ".join(f"{100 * level:g}%" for level in sorted({table.confidence for table in tables}))
    notes = [
        "The mean of a method’s places within data sets, 1 for the best, never of its scores, which have no common "
        f"unit. In brackets: {levels} intervals of the mean over further data sets such as these, each for its method "
        "alone. A place depends on who is compared: it changes when a method is added.",
        "Data sets that share clips are not independent, and count as if they were.",
    ]
    if few := sorted({len(table.data_sets) for table in tables if table.says_little}):
        count = " or ".join(map(str, few))
        notes.append(f"With {count} data sets an interval may hold every place: so few say little about others.")
    return notes


def _page_column(board: Board, column: BoardColumn) -> dict[str, str]:
    short = short_direction(column.direction, _items(board, column.data_set))
    metric = accuracy_name(column.setting, column.metric)
    return column._asdict() | {
        "heading": f"{column.place}, {short} {metric}",
        "better": ARROW_MEANINGS[column.arrow],
    }


def _page_row(board: Board, rows: pd.DataFrame) -> dict[str, Any]:
    first = rows.iloc[0]
    facts = [
        (first["kind"], False),
        (f"{int(rows['seeds'].max())}", True),
        (_frames_text(first["frames"]), True),
        (first["budget"] or MISSING, False),
        (first["digest"][:DIGEST_DIGITS], False),
    ]
    return {
        "label": first["label"],
        "study": board.names[first["study"]],
        "page": board.studies[first["study"]].page,
        "kind": first["kind"],
        "facts": facts,
        "cells": [_page_cell(board.cell(rows, column)) for column in board.columns],
    }


def _page_cell(cell: pd.Series | None) -> dict[str, str] | None:
    if cell is None:
        return None
    printed = _table_cell(cell)
    rank = _rank_text(cell)
    among = f"among {cell['ranked']} of group {cell['group']}"
    why = f"rank {rank} {among}" if rank else f"not ranked: {cell['unranked']}"
    if rank:
        why += "; paired tests of its study" if cell["rank_from"] == OWN else "; widened intervals"
    return {
        "text": printed.text,
        "interval": printed.brackets,
        "group": cell["group"],
        "rank": rank or MISSING,
        "why": why,
    }


def _notes(board: Board) -> list[str]:
    """What the numbers of the table mean, as far as it has any of the kind."""
    cells, notes = board.cells, []
    confidences = sorted(set(cells["confidence"]))
    levels = " or ".join(f"{100 * level:g}%" for level in confidences)
    notes.append(
        f"In brackets: {levels} intervals, each only for its cell. They show how sure one number is; where two "
        "overlap, a paired test may still tell the methods apart."
    )
    ranked = cells[cells["rank_low"].notna()]
    if (ranked["rank_from"] == OWN).any():
        notes.append(
            "Places of methods of one study come from that study’s paired tests of the same queries, with Holm’s "
            "correction over its pairs; all places of a column hold at once with the confidence of the intervals."
        )
    if ((ranked["rank_from"] != OWN) & (ranked["rank_from"] != "")).any():
        notes.append(
            "Methods of different studies were not tested in pairs. Their places, and those of methods that their "
            "study did not test, come from intervals that are widened from confidence 1 − α to 1 − α/K for K methods "
            "of the group (Bonferroni), so that all places of a column hold at once; this needs larger differences "
            "than paired tests do."
        )
    if len(ranked):
        notes.append("Places are not adjusted for the number of columns.")
    reasons = sorted(set(cells.loc[(cells["kind"] != BASELINE) & (cells["unranked"] != ""), "unranked"]))
    if reasons:
        notes.append(f"Without a place (–): {'; '.join(reasons)}.")
    if (cells["kind"] == BASELINE).any():
        notes.append("Baselines have no letter and no place.")
    if board.quoted:
        notes.append("Quoted numbers are those of their sources: other data, frames or weights may be behind them.")
    if cells["group"].str.contains("′").any():
        notes.append("′: the same group, but other numbers of queries or a gallery of another size; ranked apart.")
    return notes


def _group_sentence(group: Group) -> str:
    frames = count_noun(group.frames, "frame") if group.frames else "its own frames"
    searched = ", items search their best caption" if group.item_to_text else ""
    version = group.digest[:DIGEST_DIGITS]
    return f"{group.data_set}, data version {version}, {frames}, {group.budget or 'not trained'}{searched}"


def _group_row(board: Board, group: Group) -> tuple[str, ...]:
    training = group.budget or "not trained"
    if group.item_to_text:
        training += "; items search their best caption"
    studies = ", ".join(board.names[number] for number in group.studies)
    frames, level = _frames_text(group.frames), f"{100 * group.confidence:g}%"
    return group.letter, group.data_set, group.digest[:DIGEST_DIGITS], frames, training, level, studies


def _rank_text(cell: pd.Series) -> str:
    """``1–3``, ``2``, or nothing."""
    if math.isnan(cell["rank_low"]):
        return ""
    low, high = int(cell["rank_low"]), int(cell["rank_high"])
    return f"{low}" if low == high else f"{low}–{high}"


def _frames_text(frames: int) -> str:
    return f"{frames}" if frames else MISSING


def _items(board: Board, data_set: str) -> str:
    return next(study.card.items for study in board.studies if study.card.dataset == data_set)
