"""The answer says what the tables say, for every kind of study, and never that two methods are equal."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

import verdict_numbers
from messages import expect_message
from rewind.report.answer import study_findings
from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import render_text
from rewind.tables.settings import compare_in_setting
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, TESTS, VALUES, pairs, results


def said(made, settings=("hard",)):
    """Heading → its sentences in one text."""
    answers = study_findings(made, settings)
    assert all(len(one.sentences) <= 3 for one in answers if not one.heading.startswith("Verdict"))
    found = {one.heading: " ".join([*one.sentences, *one.remarks]) for one in answers}
    for text in found.values():
        for equal in re.findall(r"[^.]*\b(?:equal|same|identical|as good as)\b[^.]*", text):
            assert "does not mean" in equal, equal
    return found


def answer(made, heading="Hard, T2V R@1", settings=("hard",)):
    """The sentences under a heading; they are those of the snapshot."""
    text = said(made, settings)[heading]
    expect_message(text)
    return text


def printed(made, settings=("hard",)):
    """Every table of the study in plain text."""
    facts = Footnotes.from_json(FACTS)
    return "\n".join(render_text(table) for table in build_tables(TableInputs(made, settings, facts)))


def test_the_best_its_interval_and_its_leads():
    assert list(said(results())) == ["Hard, T2V R@1", "Caution"], "two seeds are few"
    text = answer(results())
    for number in ("40.5% [37.2, 45.0]", "+10.2 points [+8.2, +13.2]", "0.010", "0.1% [−3.2, 4.5]"):
        assert number in text


def test_few_seeds_and_seeds_that_differ_much_are_a_caution():
    three = {"chance": [0.1], "meanP": [30.0, 31.0, 32.0], "seqLSTM": [20.0, 40.0, 36.0]}
    answer(results(three, {}), "Caution")
    answer(results({name: values[:1] for name, values in three.items()}, {}), "Caution")
    assert "Caution" not in said(results({**three, "seqLSTM": [34.0, 36.0, 38.0]}, {}))


def test_numbers_are_those_of_the_tables():
    made = results(tests=TESTS | {("seqTransf", "seqLSTM"): 0.3}, columns=["R@1 interval"])
    text = answer(made)
    whole = printed(made)
    for number in re.findall(r"\d+\.\d+", text):
        assert number in whole, number
    best, *_ = compare_in_setting(made, "hard").rows
    cell = {row.method: row.cells[0] for row in compare_in_setting(made, "hard").rows}
    assert cell["seqTransf"].beats == ("a",) and best


def test_no_difference_is_not_equality():
    text = answer(results(tests=dict.fromkeys(TESTS, 0.4)))
    assert "significantly" not in text and "0.400" in text and "4.5 points" in text


def test_pairs_that_were_not_declared_are_named():
    answer(results(tests={("seqTransf", "seqLSTM"): 0.01}))
    alone = answer(results(tests={("meanP", "seqLSTM"): 0.01}))
    assert "significantly" not in alone


def test_one_method_and_chance_alone():
    one = answer(results({"chance": [0.05], "meanP": [20.0, 22.0]}, {}))
    assert "21.0% [17.8, 25.5]" in one and "0.1% [−3.2, 4.5]" in one
    none = answer(results({"chance": [0.05]}, {}))
    assert "0.1% [−3.2, 4.5]" in none


def test_one_seed_has_differences_and_no_p():
    values = {"meanP": [20.0], "seqLSTM": [30.0]}
    made = results(values, {("meanP", "seqLSTM"): np.nan}, seeds={"meanP": [0], "seqLSTM": [0]}, baselines=())
    text = answer(made)
    assert "+10.0 points [+7.0, +12.0]" in text
    assert "Holm" not in text and "significant" not in text


def test_too_few_queries_leave_it_open():
    table = results().metrics
    text = answer(results(pairs=pairs(table, TESTS, clusters=12)))
    assert "20 clusters" in text and "12" in text and "+10.2 points [+8.2, +13.2]" in text
    assert "significantly" not in text and "Holm" not in text


def test_a_baseline_above_all_is_said():
    usual, above = answer(results()), answer(results(VALUES | {"chance": [50.0]}))
    assert above.count("chance") == 1 + usual.count("chance")


def test_ties_share_the_first_place():
    values = {"a": [30.0, 30.0], "b": [30.0, 30.0], "c": [10.0, 11.0]}
    made = results(values, {("a", "b"): 1.0, ("a", "c"): 0.001, ("b", "c"): 0.001}, baselines=())
    text = answer(made)
    assert "a 30.0% [26.8, 34.5]; b 30.0% [26.8, 34.5]" in text


def test_a_metric_that_is_better_when_lower():
    made = results(primary="MnR", columns=["MnR"])
    text = answer(made, "Hard, T2V MnR")
    assert "79.5 [76.2, 84.0]" in text and "−10.2 [−12.2, −7.2]" in text and "points" not in text


def test_methods_without_numbers_are_named():
    absent = {"seqTransf": {"hard": "its file has no twins"}}
    made = results(not_evaluated=absent)
    made = dataclasses.replace(
        made,
        metrics=made.metrics[made.metrics["method"] != "seqTransf"],
        pairs=made.pairs[(made.pairs["first"] != "seqTransf") & (made.pairs["second"] != "seqTransf")],
    )
    assert absent["seqTransf"]["hard"] in answer(made)


@pytest.mark.parametrize(("p", "wins"), [(0.01, True), (0.2, False)])
def test_a_verdict_is_the_answer(p, wins):
    ((heading, text),) = said(verdict_numbers.results(p=p), ["test"]).items()
    assert heading.startswith("Verdict: ") and ("a win" in text) == wins
    assert "+3.2 points [+1.2, +6.2]" in text and f"{p:.3f}" in text
    expect_message(f"{heading}\n{text}")


def zero_shot(p):
    shared = {"data": "cifar10", "templates": "simple", "images": 100, "std": np.nan, "procedure": "t", "alike": ""}
    rows = [
        {"method": m, "estimate": e, "low": e - 1, "high": e + 1, "seeds": 2} for m, e in (("meanP", 12), ("x", 15))
    ]
    one = {"first": "meanP", "second": "x", "difference": -3.0, "low": -4.0, "high": -2.0, "p_holm": p, "family": 1}
    return {"analyses": {"zero_shot": pd.DataFrame(rows).assign(**shared), "zero_shot_pairs": pd.DataFrame([one])}}


def test_zero_shot_accuracy_is_asked_too():
    made = results({"meanP": [20.0, 22.0], "x": [30.0, 30.5]}, {("meanP", "x"): 0.01}, baselines=(), **zero_shot(0.02))
    text = answer(made, "Zero-shot accuracy on CIFAR-10")
    assert "15.0% [14.0, 16.0]" in text and "+3.0 points [+2.0, +4.0]" in text


def cosine(p, gap=(0.2, 0.3)):
    keys = {"split": "test", "scoring": "independent"}
    runs = [
        {"method": m, "seed": s, **keys, "gap": g, "positive": g, "negative": 0.0, "captions": 9, "items": 9}
        | {"R@1": 10.0 + 5 * (m == "a"), "R@5": 30.0, "R@10": 40.0}
        for m, g in zip("ab", gap, strict=True)
        for s in (0, 1)
    ]
    intervals = [
        {"method": m, **keys, "quantity": q, "estimate": g, "std": 0.0, "low": g - 0.1, "high": g + 0.1}
        for m, g in zip("ab", gap, strict=True)
        for q in ("gap", "positive", "negative")
    ]
    one = {"first": "a", "second": "b", **keys, "difference": -0.1, "low": -0.2, "high": 0.0, "p_holm": p, "family": 1}
    labels = {"a": "InfoNCE", "b": "HNAC", "c": "tight"}
    tables = {"cosine_gap_runs": runs, "cosine_gap": intervals, "cosine_gap_pairs": [one]}
    return results(
        dict.fromkeys(labels, VALUES["meanP"]),
        {},
        labels=labels,
        baselines=(),
        analyses={name: pd.DataFrame(rows) for name, rows in tables.items()},
    )


def test_a_cosine_gap_is_no_retrieval_score():
    text = answer(cosine(0.03), "Cosine gap, test split")
    assert "0.300 [0.200, 0.400]" in text and "15.0% (InfoNCE)" in text and text.endswith("tight.")


def test_what_is_not_defined_is_said():
    text = answer(cosine(np.nan, gap=(0.2, np.nan)), "Cosine gap, test split")
    assert text.startswith("InfoNCE: 0.200 [0.100, 0.300].") and "HNAC." in text
