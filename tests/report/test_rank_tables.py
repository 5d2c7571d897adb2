"""Tables of many models: their order, ranks as a column, methods without numbers in a setting."""

from __future__ import annotations

import dataclasses
import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from messages import expect_message, invalid, refusal
from rewind.analyses.gap import gap_csv_rows
from rewind.config.report import Tables
from rewind.report import tables
from rewind.statistics.ranks import method_ranks, rank_by_mean
from rewind.tables import settings
from rewind.tables.footnotes import Footnotes
from rewind.tables.notes import setting_notes
from rewind.tables.render import MARKUPS
from rewind.tables.settings import compare_in_setting, setting_csv_rows
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, VALUES, WAYS, results
from table_texts import published

MODELS = VALUES | {"clip": [35.0], "blank": [0.07]}
NAMES = ["meanP", "seqLSTM", "seqTransf", "clip"]


def every_pair(names=NAMES, alike=()):
    """Every two methods differ, but for those that are named alike."""
    return {pair: 0.5 if set(pair) <= set(alike) else 0.001 for pair in combinations(names, 2)}


def ranked(tests=None, columns=("Rank", "R@1", "R@5"), order="primary", **changes):
    tests = every_pair(alike=("seqTransf", "clip")) if tests is None else tests
    changes = {"baselines": ("chance", "blank"), "fixed": ("clip",), "columns": columns, "order": order} | changes
    made = results(MODELS, tests, **changes)
    return dataclasses.replace(made, places=method_ranks(made.intervals, made.pairs, made.compared(), 0.95))


def of_ranks(table):
    """What the notes say about ranks, in one sentence."""
    (said,) = [sentence for sentence in setting_notes(Footnotes(), table) if "ranks" in sentence]
    return said


def test_the_best_stands_first_and_chance_last_without_a_rank():
    table = compare_in_setting(ranked(), "hard")
    assert [row.method for row in table.rows] == ["seqTransf", "clip", "seqLSTM", "meanP", "blank", "chance"]
    assert [row.letter for row in table.rows] == ["a", "b", "c", "d", "", ""]
    sheet = settings.format_setting_table(table, "")
    assert [part.title for part in sheet.groups] == ["", "Baselines"]
    assert [(e.text, e.brackets) for e in sheet.cells(2)] == [
        ("1", "[1, 2]"), ("2", "[1, 2]"), ("3", "[3, 3]"), ("4", "[4, 4]"), ("–", ""), ("–", ""),
    ]  # fmt: skip
    assert [e.marks for e in sheet.cells(3)] == ["c,d", "c,d", "d", "", "", ""]


def test_tables_of_the_file_keep_their_order_and_letters():
    table = compare_in_setting(ranked(order="file", columns=("R@1",)), "hard")
    assert [row.method for row in table.rows] == ["meanP", "seqLSTM", "seqTransf", "clip", "chance", "blank"]
    assert [part.title for part in settings.format_setting_table(table, "").groups] == [
        "",
        "Fixed models",
        "Baselines",
    ]
    assert Tables().order == "file" and "order" not in Tables().fingerprint()
    said = " ".join(setting_notes(Footnotes(), table))
    assert "Ordered by" not in said and "Rank" not in said


def test_a_metric_where_less_is_better_orders_the_other_way():
    table = compare_in_setting(
        ranked(primary="MnR", columns=("MnR", "Rank")), "hard"
    )  # the made-up MnR falls where R@1 rises
    assert [row.method for row in table.rows][:4] == ["seqTransf", "clip", "seqLSTM", "meanP"]
    assert [row.cells[1].estimate for row in table.rows][:4] == [1, 2, 3, 4]


def test_many_letters_in_a_row_are_a_span():
    names = [f"m{i}" for i in range(6)]
    values = {name: [10.0 + 5 * i, 11.0 + 5 * i] for i, name in enumerate(names)}
    made = results(values, every_pair(names), columns=("R@1",), order="primary", baselines=())
    raised = [e.marks for e in settings.format_setting_table(compare_in_setting(made, "hard"), "").cells(2)]
    assert raised == ["b–f", "c–f", "d–f", "e,f", "f", ""]


def test_every_markup_shows_ranks_and_says_what_they_mean(tmp_path):
    notes = setting_notes(Footnotes.from_json(FACTS), compare_in_setting(ranked(), "hard"))
    expect_message("\n".join(sentence for sentence in notes if "Rank" in sentence))
    published(tmp_path, "hard", ranked(), Footnotes.from_json(FACTS))
    for suffix in MARKUPS:
        text = next(tmp_path.glob(f"table_B_hard{suffix}")).read_text()
        assert "Rank" in text and "[1, 2]" in re.sub(r"[\\{}]", "", text)
        assert "4 compared methods" in text
        assert "Ordered by T2V R" in text
    rows = pd.read_csv(tmp_path / "table_B_hard.csv")
    found = rows[(rows["direction"] == WAYS[0]) & (rows["metric"] == "R@1")].set_index("method")
    assert found.loc["clip", ["rank", "rank_low", "rank_high"]].tolist() == [2, 1, 2]
    assert rows.loc[rows["metric"] != "R@1", "rank"].isna().all() and found.loc["chance", "rank"] != 1
    assert "rank" not in setting_csv_rows(ranked(columns=("R@1",)), "hard").columns
    assert "[1, 2]" in tables.summary_text(TableInputs(ranked(), ["hard"]))


@pytest.mark.parametrize(
    "tests",
    [
        {("meanP", "seqLSTM"): 0.01, ("meanP", "clip"): 0.01},
        dict.fromkeys(every_pair(), float("nan")),
    ],
    ids=["some pairs", "no test"],
)
def test_a_table_says_why_it_has_no_ranks(tests):
    made = ranked(tests)
    table = compare_in_setting(made, "hard")
    assert all(row.cells[0].estimate != row.cells[0].estimate for row in table.rows)
    expect_message(of_ranks(table))


def test_with_few_clusters_there_are_no_ranks():
    made = ranked()
    table = compare_in_setting(dataclasses.replace(made, pairs=made.pairs.assign(clusters=19)), "hard")
    assert all(row.cells[0].estimate != row.cells[0].estimate for row in table.rows)
    expect_message(of_ranks(table))


def two_settings():
    """``clip`` was evaluated in Origin alone."""
    tests = every_pair()
    parts = [results(MODELS, tests, setting) for setting in ("origin", "hard")]
    frames = {
        name: pd.concat([getattr(p, name) for p in parts], ignore_index=True)
        for name in ("metrics", "intervals", "pairs")
    }
    hard = {name: frame["setting"] == "hard" for name, frame in frames.items()}
    frames["metrics"] = frames["metrics"][~(hard["metrics"] & (frames["metrics"]["method"] == "clip"))]
    frames["intervals"] = frames["intervals"][~(hard["intervals"] & (frames["intervals"]["method"] == "clip"))]
    mine = frames["pairs"]["first"].eq("clip") | frames["pairs"]["second"].eq("clip")
    frames["pairs"] = frames["pairs"][~(hard["pairs"] & mine)].assign(
        family=lambda t: t["setting"].map({"origin": 6, "hard": 3})
    )
    made = dataclasses.replace(
        parts[0], **frames, baselines=("chance", "blank"), fixed=("clip",), columns=("Rank", "R@1"), order="primary",
        not_evaluated={"clip": {"hard": "its vectors have no time-reversed twins"}},
    )  # fmt: skip
    return dataclasses.replace(made, places=method_ranks(made.intervals, made.pairs, made.compared(), 0.95))


def test_a_method_without_numbers_here_has_dashes_and_a_reason(tmp_path):
    made = two_settings()
    table = compare_in_setting(made, "hard")
    assert [row.method for row in table.rows] == ["seqTransf", "seqLSTM", "meanP", "clip", "blank", "chance"]
    row = next(row for row in settings.format_setting_table(table, "").groups[0].rows if row[0].text == "clip")
    assert [cell.text for cell in row[2:]] == ["–", "–"] and not row[0].marks
    found = setting_notes(Footnotes.from_json(FACTS), table)
    assert "3 pairs" in " ".join(found) and "3 compared methods" in " ".join(found)
    origin = setting_notes(Footnotes.from_json(FACTS | {"family": 6}), compare_in_setting(made, "origin"))
    assert "6 pairs" in " ".join(origin) and "4 compared methods" in " ".join(origin)
    (absent,) = [sentence for sentence in found if made.not_evaluated["clip"]["hard"] in sentence]
    assert absent not in origin
    expect_message(absent)
    assert "clip" not in set(setting_csv_rows(made, "hard")["method"])
    for setting in ("origin", "hard"):
        assert published(tmp_path / setting, setting, made)
    assert gap_csv_rows(made).empty


def test_only_a_known_reason_excuses_missing_numbers():
    made = dataclasses.replace(two_settings(), not_evaluated={})
    with refusal("metrics.csv"):
        compare_in_setting(made, "hard")


@pytest.mark.parametrize("columns", [["Rank interval", "R@1"], ["Rank"]])
def test_columns_of_ranks_are_checked(columns):
    with invalid("columns"):
        Tables(columns=columns)
    assert Tables(columns=["Rank", "item_to_text Rank", "R@1"])


def test_means_that_differ_by_rounding_share_a_rank():
    mean = np.mean([40.1, 40.2, 40.3])
    assert rank_by_mean(np.array([mean, np.nextafter(mean, 100), 39.0])).tolist() == [1, 1, 3]
