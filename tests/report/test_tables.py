"""Tables: what is bold, what is marked, what is refused, and the numbers as CSV."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from messages import expect_message, invalid, refusal
from rewind.config import Study
from rewind.config.report import Tables
from rewind.io.files import write_json
from rewind.report.study import ReportFiles, _model_cut_notes
from rewind.tables.footnotes import Footnotes
from rewind.tables.notes import setting_notes
from rewind.tables.settings import compare_in_setting, format_setting_table, letter_names, setting_csv_rows
from table_numbers import FACTS, TESTS, results
from table_texts import published


def test_the_sign_of_a_difference_decides_who_is_better():
    swapped = {(b, a): p for (a, b), p in TESTS.items()}
    for metric, at in (("R@1", 0), ("MnR", 4)):
        one, other = (compare_in_setting(results(tests=t, primary=metric), "hard") for t in (TESTS, swapped))
        assert repr(one) == repr(other)  # not ==: cells without a value hold NaN
        by_name = {row.method: row for row in one.rows}
        assert all(not by_name[m].cells[at].beats for m in ("meanP", "seqLSTM", "chance"))
        assert by_name["seqTransf"].cells[at].beats == ("a", "b")
        assert not any(row.cells[k].beats or row.cells[k].best for row in one.rows for k in range(5) if k != at)


def test_with_few_clusters_there_are_no_letters_but_what_could_be_seen():
    def few(clusters):
        given_ = results()
        return compare_in_setting(dataclasses.replace(given_, pairs=given_.pairs.assign(clusters=clusters)), "hard")

    assert few(20).marked and not few(19).marked and few(19).few == 19
    found = setting_notes(Footnotes.from_json(FACTS), few(11))
    (letters,) = [sentence for sentence in found if "letters" in sentence]
    assert "20 clusters" in letters and "there are 11" in letters and "4.5 points" in " ".join(found)
    assert "raised letter" not in " ".join(found)
    expect_message("\n".join(found))


def test_bold_says_how_large_a_difference_it_may_hide():
    table = compare_in_setting(results(tests=TESTS | {("seqTransf", "seqLSTM"): 0.2}), "hard")
    assert [row.method for row in table.rows if row.cells[0].best] == ["seqLSTM", "seqTransf"]
    said = setting_notes(Footnotes(), table)
    (hidden,) = [sentence for sentence in said if "4.5 points" in sentence]
    expect_message(hidden)
    alone = setting_notes(Footnotes(), compare_in_setting(results(), "hard"))
    assert not any("4.5 points" in s for s in alone), "nothing is bold beside the best"


def test_captions_that_models_by_name_cut_are_told_apart_where_they_differ(tmp_path):
    study = Study(name="s", dataset="d", methods={"one": {}, "two": {"label": "2nd"}, "chance": {"model": "chance"}})
    files = ReportFiles(*[""] * 4, records={}, best="", videos="", ranks=str(tmp_path))

    def notes(**cut: int) -> list[str]:
        for method, count in cut.items():
            facts = {"captions_cut": {"cut": count, "captions": 40, "max_words": 64}}
            write_json(tmp_path / method / "seed0.json", facts | {"metrics": []})
        return _model_cut_notes(study, files, SimpleNamespace(labels=study.labels()))

    assert notes() == []
    assert notes(one=3, two=3) == ["3 of 40 test captions (7.5%) are cut at 64 tokens"]
    assert notes(two=0) == [
        "Of one: 3 of 40 test captions (7.5%) are cut at 64 tokens",
        "Of 2nd: no test caption is longer than the 64 tokens that the text tower reads",
    ]


def test_near_100_percent_the_note_says_how_sure_intervals_are():
    values = {"a": [99.9, 99.9], "b": [60.0, 61.0]}
    for queries, said in ((2000, True), (20000, False)):
        facts = Footnotes(settings={"hard": {"queries": queries, "items": queries, "clusters": queries}})
        found = setting_notes(facts, compare_in_setting(results(values, {}, columns=["R@1 interval"]), "hard"))
        caution = [sentence for sentence in found if "coverage" in sentence]
        assert len(caution) == said
        for sentence in caution:
            expect_message(sentence)


def test_fixed_models_have_letters_and_a_part_of_their_own():
    table = compare_in_setting(results(baselines=(), fixed=("meanP", "chance")), "hard")
    assert [(row.method, row.letter) for row in table.rows] == [
        ("seqLSTM", "a"),
        ("seqTransf", "b"),
        ("chance", "c"),
        ("meanP", "d"),
    ]
    assert [part.title for part in format_setting_table(table, "x").groups] == ["", "Fixed models"]
    assert table.seeds == [2], "a model has no training seeds"


def test_nothing_is_bold_where_nothing_differs():
    table = compare_in_setting(results(tests=dict.fromkeys(TESTS, 0.0500001)), "hard")
    assert not any(cell.best or cell.beats for row in table.rows for cell in row.cells)
    expect_message("\n".join(setting_notes(Footnotes(), table)))
    assert not any(
        cell.best for row in compare_in_setting(results(pairs=pd.DataFrame()), "hard").rows for cell in row.cells
    )


def test_p_at_the_level_is_not_significant():
    assert not compare_in_setting(results(tests={("meanP", "seqTransf"): 0.05}), "hard").marked
    assert compare_in_setting(results(tests={("meanP", "seqTransf"): 0.0499}), "hard").marked
    assert compare_in_setting(results(tests={("meanP", "seqTransf"): 0.05}, confidence=0.9), "hard").marked


def bold(table, at=0):
    return [row.method for row in table.rows if row.cells[at].best]


THREE = {"low": [20.0, 20.0], "mid": [29.0, 29.0], "top": [30.0, 30.0]}


def test_bold_are_the_best_and_those_not_worse_where_anybody_is():
    def shown(**p):
        tests = {("low", "mid"): p["lm"], ("low", "top"): p["lt"], ("mid", "top"): p["mt"]}
        return bold(compare_in_setting(results(THREE, tests), "hard"))

    assert shown(lm=0.01, lt=0.001, mt=0.6) == ["mid", "top"]
    assert shown(lm=0.01, lt=0.001, mt=0.01) == ["top"]
    assert shown(lm=0.6, lt=0.6, mt=0.6) == []
    assert shown(lm=0.01, lt=0.2, mt=0.6) == [], "nobody is worse than the best one"
    assert shown(lm=0.6, lt=0.2, mt=0.01) == ["top"], "what varies too much to be shown worse is no rival of the best"


def test_a_method_never_compared_with_the_best_is_not_bold():
    assert bold(compare_in_setting(results(THREE, {("low", "top"): 0.001}), "hard")) == ["top"]


def test_equal_bests_are_all_bold():
    table = compare_in_setting(
        results({"meanP": [1.0, 2.0], "x": [0.1 + 0.2, 0.3], "y": [0.3, 0.3]}, {("x", "meanP"): 0.2}), "hard"
    )
    assert not table.marked
    values = {"m": [20.0, 20.0], "x": [30.1, 30.3], "y": [30.3, 30.1]}
    bold = [row.cells[0].best for row in compare_in_setting(results(values, {("m", "x"): 0.001}), "hard").rows]
    assert bold == [False, True, True]


def test_a_baseline_is_never_bold_nor_marked_nor_counted():
    values = {"chance": [90.0], "meanP": [20.0, 21.0], "seqTransf": [30.0, 30.0]}
    tests = {("chance", "meanP"): 0.0001, ("chance", "seqTransf"): 0.0001, ("meanP", "seqTransf"): 0.001}
    table = compare_in_setting(results(values, tests), "hard")
    assert [row.method for row in table.rows] == ["meanP", "seqTransf", "chance"]
    assert not any(cell.best or cell.beats for cell in table.rows[-1].cells)
    assert table.rows[1].cells[0].best and table.rows[1].cells[0].beats == ("a",)


def test_no_plus_minus_for_one_run_or_a_closed_form():
    values = {"meanP": [20.0], "chance": [0.1, 0.1, 0.1], "seqTransf": [30.0, 30.0]}
    table = compare_in_setting(results(values, {}), "hard")
    shown = {row.method: row.cells[0].std for row in table.rows}
    assert math.isnan(shown["meanP"]) and math.isnan(shown["chance"]) and shown["seqTransf"] == 0
    one = setting_notes(Footnotes(), table)
    expect_message("\n".join(sentence for sentence in one if "±" in sentence))


def test_a_single_direction_gives_its_own_columns():
    given_ = results(setting="binary")
    only = given_.metrics[given_.metrics["direction"] == "item_to_text"].reset_index(drop=True)
    table = compare_in_setting(dataclasses.replace(given_, metrics=only), "binary")
    assert [(column.group, column.title) for column in table.columns] == [("V2T", "accuracy"), ("V2T", "strict")]


def test_columns_follow_the_studys_template():
    columns = Tables(columns=["MRR", "R@1 interval", "item_to_text R@1", "item_to_text MnR interval"]).columns
    table = compare_in_setting(results(columns=columns), "hard")
    found = [(c.group, c.title, c.direction, c.interval) for c in table.columns]
    assert found == [
        ("T2V", "MRR", "text_to_item", False),
        ("T2V", "R@1", "text_to_item", True),
        ("V2T", "R@1", "item_to_text", False),
        ("V2T", "MnR", "item_to_text", True),
    ]
    images = compare_in_setting(results(columns=columns, items="images"), "hard")
    assert {column.group for column in images.columns} == {"T2I", "I2T"}
    said = setting_notes(Footnotes(items="images"), images)
    expect_message("\n".join(sentence for sentence in said if "I2T" in sentence))
    row = {row.method: row for row in table.rows}["seqTransf"]
    assert row.cells[0].estimate == pytest.approx(0.405) and row.cells[3].estimate == pytest.approx(79.5)
    assert not any(column.group for column in compare_in_setting(results(columns=["text_to_item R@1"]), "hard").columns)
    assert compare_in_setting(results(setting="binary", columns=columns), "binary").columns[0].title == "accuracy"


@pytest.mark.parametrize(
    ("column", "place"),
    [("R@3", "tables.columns: 'R@3'"), ("item_to_text R@1", "tables.columns")],
)
def test_a_column_that_cannot_be_shown_is_refused(column, place):
    given_ = results(columns=[column])
    only = given_.metrics[given_.metrics["direction"] == "text_to_item"].reset_index(drop=True)
    with refusal(place):
        compare_in_setting(dataclasses.replace(given_, metrics=only), "hard")


def test_an_unknown_metric_in_a_template_is_refused_by_the_study_file():
    with invalid("columns: column 'R@2'"):
        Tables(columns=["R@1", "R@2"])


def test_csv_holds_plain_numbers(tmp_path):
    published(tmp_path, "hard", results())
    table = pd.read_csv(tmp_path / "table_B_hard.csv")
    chosen = table[(table["direction"] == "text_to_item") & (table["method"] == "seqTransf")].set_index("metric")
    assert chosen.loc["R@1", ["estimate", "low", "high", "seeds"]].tolist() == [40.5, 37.25, 45.0, 2]
    assert chosen.loc["R@1", "std"] == pytest.approx(np.std([40, 41], ddof=1))
    assert chosen.loc["R@1", "beats"] == "meanP seqLSTM"
    assert table[table["bold"] == 1][["method", "metric"]].drop_duplicates().values.tolist() == [["seqTransf", "R@1"]]
    assert chosen.loc["MRR", "estimate"] == pytest.approx(0.405)
    assert not table.duplicated(["method", "direction", "metric"]).any()
    assert table["method"].drop_duplicates().tolist() == ["meanP", "seqLSTM", "seqTransf", "chance"]
    assert len(table) == 4 * 2 * 7


def test_rendering_twice_gives_the_same_bytes(tmp_path):
    one, two = (published(tmp_path / n, "hard", results(), Footnotes.from_json(FACTS)) for n in "ab")
    assert len(one) == 12 and [p.read_bytes() for p in one] == [p.read_bytes() for p in two]


def change(frame, row, **values):
    frame = frame.copy()
    for name, value in values.items():
        frame.loc[row, name] = value
    return frame


@pytest.mark.parametrize(
    ("where", "how", "place"),
    [
        ("metrics", lambda t: t[t["method"] != "seqLSTM"], "metrics.csv"),
        (
            "metrics",
            lambda t: pd.concat([t, t.iloc[[3]]], ignore_index=True),
            "",
        ),
        ("metrics", lambda t: change(t, 4, **{"R@5": np.nan}), ""),
        ("metrics", lambda t: change(t, 5, queries=1999), ""),
        ("metrics", lambda t: change(t, 2, gallery=7), ""),
        ("metrics", lambda t: change(t, 2, method="other"), ""),
        ("metrics", lambda t: t.drop(columns="MnR"), "metrics.csv"),
        ("intervals", lambda t: t.drop(index=13), "intervals.csv"),
        ("intervals", lambda t: pd.concat([t, t.iloc[[13]]], ignore_index=True), ""),
        ("intervals", lambda t: t.assign(estimate=t["estimate"] + 0.01), ""),
        ("pairs", lambda t: change(t, 1, first="other"), ""),
        ("pairs", lambda t: pd.concat([t, t.iloc[[2]]], ignore_index=True), ""),
        ("pairs", lambda t: t.drop(columns="boot_low"), "pairs.csv"),
        ("gaps", lambda t: change(t, 2, method="other"), ""),
        ("seeds", lambda _: {"meanP": [0, 1, 7]}, "metrics.csv"),
    ],
)
def test_numbers_that_cannot_stand_in_one_table_are_refused(where, how, place):
    given_ = results(with_gaps=True)
    broken = dataclasses.replace(given_, **{where: how(getattr(given_, where))})
    with refusal(place):
        compare_in_setting(broken, "hard")
        setting_csv_rows(broken, "hard")


def test_unknown_and_unevaluated_settings_are_refused():
    with refusal("tables"):
        compare_in_setting(results(), "harder")
    with refusal("metrics.csv"):
        compare_in_setting(results(), "origin")


def test_letters_never_repeat():
    names = letter_names(100)
    assert len(set(names)) == 100 and names[:2] == ["a", "b"] and names[25:28] == ["z", "aa", "ab"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_bold_follows_its_definition(data):
    count = data.draw(st.integers(2, 4))
    tenths = data.draw(st.lists(st.integers(0, 30), min_size=count, max_size=count))
    values = {f"m{i}": [t / 10, t / 10] for i, t in enumerate(tenths)}
    pairs = [(f"m{i}", f"m{j}") for i in range(count) for j in range(i + 1, count)]
    p = {pair: data.draw(st.sampled_from([0.001, 0.6])) for pair in pairs if data.draw(st.booleans())}
    worse = {frozenset(pair) for pair, value in p.items() if value < 0.05 and values[pair[0]] != values[pair[1]]}
    top = {f"m{i}" for i, t in enumerate(tenths) if t == max(tenths)}
    beaten = {m for m in values if m not in top and any(frozenset((m, t)) in worse for t in top)}
    level = {m for m in values for t in top if {(m, t), (t, m)} & set(p) and frozenset((m, t)) not in worse} - beaten
    level = {m for m in level if values[m][0] > max((values[b][0] for b in beaten), default=0)}
    assert set(bold(compare_in_setting(results(values, p), "hard"))) == ((top | level) if beaten else set())
