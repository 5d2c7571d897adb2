"""The answer to the title: who knows which way time runs, who cannot, and what a study cannot judge."""

from __future__ import annotations

import dataclasses
import html

import numpy as np
import pandas as pd
import pytest

from messages import expect_message, refusal
from rank_rows import ranks
from rewind import api
from rewind.figures.groups import group_intervals
from rewind.report.answer import answer_text, study_findings
from rewind.report.page.build import first_comparison
from rewind.report.page.headline import headline_html
from rewind.report.study import _drawn_intervals
from rewind.report.tables import build_tables
from rewind.report.time_answer import time_answer, time_verdicts
from rewind.tables import notes
from rewind.tables import results as result_rows
from rewind.tables.best_method import detection_text
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import render_markdown
from rewind.tables.results import ties_every_query
from rewind.tables.settings import compare_in_setting, setting_csv_rows
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, TESTS, results

QUERIES = 60


def runs(right, ties=0, seeds=3, direction="text_to_item", queries=QUERIES):
    """Rank tables of Binary: seed s is right on the first ``right + s`` queries."""
    clusters = [f"c{i:04}" for i in range(queries)]
    hits = [(np.arange(queries) < right + s).astype(int) for s in range(seeds)]
    tables = [ranks(1 - hit if not ties else 0 * hit, clusters, "binary", ties) for hit in hits]
    return [table.assign(gallery=2, direction=direction) for table in tables]


def compared(methods, **keys):
    return api.compare(methods, resamples=100, **keys)._results


@pytest.fixture(scope="module")
def four():
    return compared(
        {"meanP": runs(0, ties=1), "seqLSTM": runs(52), "tightTransf": runs(34), "seqTransf": runs(57), "odd": runs(5)}
    )


def test_every_method_is_told_by_what_was_shown(four):
    answer = time_answer(four)
    table = four.chance.set_index("method")
    assert (table.loc[["seqLSTM", "seqTransf", "odd"], "p_holm"] < 0.05).all() and table.loc[
        "tightTransf", "p_holm"
    ] > 0.1
    assert [sentence.split()[0] for sentence in answer.sentences] == ["Knows", "Not", "Below", "Cannot:"]
    for method, sentence in zip(("seqTransf", "tightTransf", "odd", "meanP"), answer.sentences, strict=True):
        assert f": {method} (" in sentence
        row = table.loc[method]
        shown = f"({row['estimate']:.1f}% [{row['low']:.1f}, {row['high']:.1f}])"
        assert (shown in sentence) == (method != "meanP"), "what is 50 by construction has no interval"
    assert answer.sentences[0].index("seqTransf") < answer.sentences[0].index("seqLSTM"), "the best first"
    expect_message("\n".join([answer.heading, *answer.sentences, *answer.remarks]))


def test_the_page_has_a_row_for_each_verdict_with_the_numbers_of_the_sentences(four):
    verdicts = time_verdicts(four)
    assert [verdict.word for verdict in verdicts] == ["Yes", "Not shown", "The other way round", "No, it cannot"]
    said = dict(
        zip(("Yes", "Not shown", "The other way round", "No, it cannot"), time_answer(four).sentences, strict=True)
    )
    head = html.unescape(headline_html([], study_findings(four, ["binary"]), ""))
    for verdict in verdicts:
        for label, value, low, high in verdict.methods:
            ends = "" if np.isnan(low) else f" [{low:.1f}, {high:.1f}]"
            assert f"{label} ({value:.1f}%{ends})" in said[verdict.word] or verdict.kind == "no"
            assert f"<b>{label}</b>" in head and f"{value:.1f}%" in head
    assert [label for label, *_ in verdicts[0].methods] == ["seqTransf", "seqLSTM"], "the best first"
    assert np.isnan(verdicts[3].methods[0][2]), "what is 50 by construction has no interval"
    assert all(sentence in head for sentence in time_answer(four).sentences), "in sentences too"
    expect_message("\n".join(f"{verdict.word}: {verdict.why}" for verdict in verdicts))


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"a": runs(57)}, ["Yes"]),
        ({"a": runs(31)}, ["Not shown"]),
        ({"a": runs(0, ties=1)}, ["No, it cannot"]),
        ({"a": runs(3)}, ["The other way round"]),
        ({"a": runs(8, queries=9)}, ["Not tested"]),
        ({"a": runs(57, direction="item_to_text")}, []),
    ],
    ids=["a clear yes", "not shown", "cannot", "backwards", "nine clips", "captions of one clip"],
)
def test_one_method_has_one_verdict(made, words):
    verdicts = time_verdicts(compared(made))
    assert [verdict.word for verdict in verdicts] == words
    expect_message("\n".join(verdict.why for verdict in verdicts))


def test_the_answer_comes_first_and_is_one_in_the_summary_and_on_the_page(four):
    findings = study_findings(four, ["binary"])
    assert findings[0].heading == time_answer(four).heading and findings[1].heading.startswith("Binary, ")
    text, page = answer_text(findings), html.unescape(headline_html([], findings, ""))
    for sentence in (*findings[0].sentences, *findings[0].remarks):
        assert sentence in " ".join(text.split()) and sentence in page
    assert text.startswith(findings[0].heading)


def test_the_explorer_begins_with_the_best_beside_one_that_cannot_see_order(four):
    everything = set(four.labels)
    assert first_comparison(four, everything) == ("seqTransf", "meanP")
    assert first_comparison(four, everything - {"seqTransf"}) == ("seqLSTM", "meanP")
    assert first_comparison(four, everything - {"meanP"}) is None
    assert first_comparison(dataclasses.replace(four, chance=four.chance.iloc[:0]), everything) is None


def test_ties_decide_and_no_name():
    """A method called meanP that tells clips apart is tested; one that ties all of them is not, whatever its name."""
    made = compared({"seqLSTM": runs(0, ties=1), "meanP": runs(52)})
    knows, cannot = time_answer(made).sentences
    assert knows.startswith("Knows which way time runs: meanP (88.3% [")
    assert cannot == "Cannot: seqLSTM (every clip ties with its twin)."
    tied = made.chance.set_index("method")["tied"] == 100
    assert {m: ties_every_query(made, m, "text_to_item") for m in made.labels} == tied.to_dict()


def test_one_query_that_is_told_apart_is_no_blindness():
    tables = runs(0, ties=1)
    tables[2].loc[0, "ties"] = 0
    made = compared({"nearly": tables})
    assert not ties_every_query(made, "nearly", "text_to_item")
    answer = time_answer(made)
    assert answer.sentences[0] == "No method was shown to know which way time runs."
    assert answer.sentences[1].startswith("Not shown: nearly (50.3% [")


def test_what_was_not_tested_says_why():
    made = compared({"fixed": runs(52, seeds=1)[0], "m": runs(52)})
    one = dataclasses.replace(made, fixed=(), chance=made.chance.assign(p_holm=[np.nan, 0.01]))
    assert any(
        s.startswith("Not tested: fixed (") and s.endswith("; one training seed).") for s in time_answer(one).sentences
    )
    few = compared({"a": runs(8, queries=9)})
    assert time_answer(few).sentences[0] == "No method was tested against chance."
    assert "; fewer than 10 clusters of queries)." in time_answer(few).sentences[1]
    two = compared({"a": runs(52, seeds=2)})
    assert "Two training seeds are few" in study_findings(two, ["binary"])[-1].sentences[0]
    assert study_findings(compared({"a": runs(52)}), ["binary"])[-1].heading != "Caution"


def test_two_captions_of_one_clip_say_nothing_of_time():
    made = compared({"a": runs(52, direction="item_to_text"), "b": runs(0, ties=1, direction="item_to_text")})
    answer = time_answer(made)
    assert "time" not in " ".join([answer.heading, *answer.sentences])
    expect_message("\n".join([answer.heading, *answer.sentences, *answer.remarks]))


def test_baselines_stay_apart(four):
    made = dataclasses.replace(four, baselines=("odd", "meanP"))
    assert "odd" not in " ".join(time_answer(made).sentences) and "meanP" not in " ".join(time_answer(made).sentences)


def test_studies_without_binary_are_not_asked():
    for finding in study_findings(results(), ["hard"]):
        assert "time" not in " ".join([finding.heading, *finding.sentences, *finding.remarks])


def test_a_broken_chance_file_is_refused(four):
    with refusal("chance.csv"):
        time_answer(dataclasses.replace(four, chance=four.chance[four.chance["method"] != "seqLSTM"]))
    with refusal("chance.csv"):
        time_answer(dataclasses.replace(four, chance=four.chance.assign(estimate=12.0)))


# ---- Groups of captions --------------------------------------------------------------------------------------------


def grouped(made, **changes):
    """Groups: orbit is below chance by its interval alone, spin after Holm's correction too, fill is tied by meanP."""
    rows = [
        ("orbit", "seqLSTM", 25.0, 10.2, 49.4, 0.6, 0.0),
        ("spin", "seqLSTM", 5.0, 1.0, 12.0, 0.001, 0.0),
        ("fill", "seqLSTM", 95.0, 90.0, 99.0, 0.001, 0.0),
        *((name, "meanP", 50.0, 36.8, 63.2, 1.0, 100.0) for name in ("orbit", "spin", "fill")),
    ]
    table = pd.DataFrame(rows, columns=["group", "method", "estimate", "low", "high", "p_holm", "tied"])
    table = table.assign(setting="binary", direction="text_to_item", metric="R@1", seeds=3, queries=12, clusters=12)
    table = table.assign(**({"p": 0.01, "family": 6, "procedure": "t"} | changes))
    return dataclasses.replace(made, analyses={"groups": table})


def test_groups_below_chance_are_said(four):
    assert time_answer(four).group_sentences == []
    assert time_answer(grouped(four)).group_sentences == [
        "Below chance in groups of captions: seqLSTM in spin (5.0% [1.0, 12.0]).",
        "Below chance by the interval alone, not after Holm’s correction over 6 tests of groups: seqLSTM in orbit "
        "(25.0% [10.2, 49.4]).",
    ]
    assert time_answer(grouped(four, clusters=9, family=0)).group_sentences == [], "nothing was tested"


# ---- What ties every clip has no interval, in any table or picture -------------------------------------------------


def test_tables_print_no_interval_of_what_is_50_by_construction(four):
    made = grouped(four)
    inputs = TableInputs(made, ["binary"], Footnotes.from_json(FACTS), "Shapes")
    tables = {table.kind: table for table in build_tables(inputs)}
    row = next(row for part in tables["setting"].groups for row in part.rows if row[0].text == "meanP")
    assert row[2].text == "50.0" and row[2].interval is None and row[2].low is not None, "numbers of files stay"
    group_rows = {row[0].text: row for part in tables["groups"].groups for row in part.rows}
    titles = [column.title for column in tables["groups"].columns]
    for name in ("orbit", "spin", "fill"):
        cells = dict(zip(titles, group_rows[name], strict=True))
        assert cells["meanP"].interval is None and cells["seqLSTM"].interval is not None
    for table, start in (
        (tables["setting"], notes.NO_INTERVAL_OF_TIES + ": meanP."),
        (tables["groups"], notes.NO_INTERVAL_OF_TIES + ": meanP."),
    ):
        assert [said for said in table.notes if said.startswith(start)], table.notes
        assert "50.0 [" not in render_markdown(table)
    assert "50 by construction" in tables["setting"].key
    csv = setting_csv_rows(made, "binary").set_index(["method", "metric"])
    want = made.intervals.set_index(["method", "metric"]).loc[("meanP", "R@1")]
    assert csv.loc[("meanP", "R@1"), "low"] == want["low"] < 50


def test_pictures_draw_no_bar_of_it(four):
    drawn = _drawn_intervals(four).set_index(["method", "metric"])
    ends = ["low", "high", "boot_low", "boot_high"]
    assert drawn.loc[("meanP", "R@1"), ends].isna().all() and drawn.loc[("seqLSTM", "R@1"), ends].notna().all()
    assert drawn.loc[("meanP", "R@5"), ends].notna().all()
    bars = [
        sum(len(line.get_xdata()) == 2 and line.get_linewidth() == 2.6 for line in figure.axes[0].lines)
        for figure in (
            group_intervals(made.analyses["groups"], {"meanP": "meanP", "seqLSTM": "x"}, (), "binary")
            for made in (grouped(four), grouped(four, tied=0.0))
        )
    ]
    assert bars == [3, 6]


def test_exact_chance_needs_no_note(four):
    intervals = four.intervals.copy()
    intervals.loc[intervals["method"] == "meanP", ["low", "high"]] = 50.0
    made = dataclasses.replace(four, baselines=("meanP",), intervals=intervals)
    table = compare_in_setting(made, "binary")
    assert table.tied == {} and not any("by construction" in note for note in table.said)


# ---- What a study would detect -------------------------------------------------------------------------------------


def detection(detectable, seeds=((20.0, 22.0), (30.0, 30.5), (40.0, 41.0)), setting="hard", **changes):
    """What is said of meanP and seqTransf, the second of three pairs."""
    made = results(
        {"chance": [0.05], **dict(zip(("meanP", "seqLSTM", "seqTransf"), map(list, seeds), strict=True))}, TESTS
    )
    table = made.pairs.assign(df=2.0, detectable=detectable, clusters=12, **changes)
    made = dataclasses.replace(made, pairs=table)
    pair = result_rows.tested_pairs(made, "hard", "text_to_item", "R@1").iloc[1]
    assert {pair["first"], pair["second"]} == {"meanP", "seqTransf"}
    return detection_text(made, pair, setting, "R@1")


def test_what_would_decide_is_the_pairs_own():
    assert detection(5.0) == "a true difference of 5.0 points of R@1 between them would be detected in 80% of studies"
    needed = detection(5.0, seeds_needed=12.0, queries_needed=3600.0)
    assert needed.endswith("; the one that was seen would take about 12 seeds or 3,600 queries")
    assert detection(5.0, seeds_needed=np.nan, queries_needed=3600.0).endswith("would take about 3,600 queries")


@pytest.mark.parametrize(("setting", "size"), [("hard", 100.0), ("hard", 150.0), ("binary", 50.0)])
def test_no_difference_is_named_that_is_not_possible(setting, size):
    wide = {"low": -60.0, "high": 100.0}
    text = detection(size, ((20.0, 60.0), (30.0, 30.5), (40.0, 41.0)), setting, **wide)
    assert text == "the seeds of meanP differ by too much to tell, with a standard deviation of 28.3 points"
    assert detection(size, setting=setting, low=-300.0, high=300.0) == "12 clusters of queries are too few to tell"


@pytest.mark.parametrize(("sizes", "said"), [((9.1, 14.2), "9.1 to 14.2 points"), ((15.2, 150.0), "15.2 points")])
def test_notes_of_tables_give_no_range_up_to_the_impossible(sizes, said):
    table = dataclasses.replace(compare_in_setting(results(), "hard"), few=12, blind=sizes)
    sentence = notes.few_clusters_sentence(table)
    assert f"a true difference of {said} of R@1 in 80% of cases" in sentence
    assert ("it would detect none" in sentence) == (sizes[1] > 100) and "more than 100" not in sentence


def test_seeds_in_pairs_differ_by_their_differences():
    """Both methods' seeds move together, so that they add nothing to the difference."""
    seeds = ((20.0, 60.0), (30.0, 30.5), (40.0, 80.0))
    wide = {"low": -60.0, "high": 100.0}
    assert "the seeds of" in detection(150.0, seeds, **wide)
    paired = detection(150.0, seeds, **wide, procedure="t over training seeds, seeds in pairs")
    assert paired == "12 clusters of queries are too few to tell"
