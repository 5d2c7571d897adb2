"""The verdict: a win only where every part of it holds, and the reason wherever it does not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from messages import expect_message, invalid, refusal
from rank_rows import ranks
from rewind.analyses.verdict import compare, judge_methods, verdict_outcomes
from rewind.config import Study
from rewind.config.report import Statistics, Verdict
from rewind.io.files import write_parquet
from rewind.job_values import Job, NamedList, Outputs
from rewind.report import tables
from rewind.statistics.comparisons import compare_methods, gap_shrinkage
from rewind.statistics.pairs import spread_ratio
from rewind.statistics.rank_files import ranks_path
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_table
from rewind.tables.spec import TableInputs
from verdict_numbers import CONTROL, VALUES, control, results

FACTS = Footnotes(items="images", family=4, procedures={"t over seeds and queries": ["New"]})


def published(given, stem="table_verdict"):
    return next(
        table for table in tables.build_tables(TableInputs(given, ["test"], FACTS, "Stamps")) if table.name == stem
    )


@pytest.mark.parametrize("turned", [False, True])
def test_a_win_holds_in_every_part(turned):
    (found,) = judge_methods(results(turned=turned))
    assert found.win and found.affordable and found.best.holds and found.reasons == ()
    assert found.best.gains == {0: 3.0, 1: 2.5, 2: 4.0}
    assert found.best.difference == pytest.approx(9.5 / 3) and found.best.p_holm == 0.01
    assert found.best.low < found.best.difference < found.best.high
    expect_message("\n".join(verdict_outcomes(results(turned=turned))))


LOSSES = {
    "one seed": {"values": VALUES | {"new": [23.0, 20.9, 26.0]}},
    "equal is no gain": {"values": VALUES | {"new": [23.0, 21.0, 26.0]}},
    "not significant": {"p": 0.05},
    "no p-value": {"p": np.nan},
    "slow": {"ratio": 1.1001},
    "slower than a limit of its own": {"ratio": 1.06, "max_slowdown": 0.05},
    "unclear control": {"shrinkage": (0.5, 1.0)},
    "larger in the control": {"shrinkage": (-2.0, 1.0)},
}


@pytest.mark.parametrize("changes", LOSSES.values(), ids=LOSSES)
def test_what_is_lacking_is_said(changes):
    given = results(**changes)
    (found,) = judge_methods(given)
    assert not found.win and len(found.reasons) == 1
    (outcome,) = verdict_outcomes(given)
    assert found.reasons[0] in outcome
    expect_message(outcome)
    table = published(given)
    assert table.data["win"].eq(0).all() and table.groups[0].rows[0][1].text == "no"


def test_all_that_is_lacking_is_said_at_once():
    (found,) = judge_methods(
        results(p=0.2, ratio=2.0, shrinkage=(0.0, 1.0), values=VALUES | {"new": [23.0, 20.0, 26.0]})
    )
    assert not found.win and len(found.reasons) == 4
    expect_message("\n".join(found.reasons))
    (worse,) = judge_methods(results(values=VALUES | {"new": [10.0, 10.0, 10.0]}, p=0.001))
    assert not worse.win and len(worse.reasons) == 2
    expect_message("\n".join(worse.reasons))


def test_a_slowdown_at_the_limit_is_tolerated():
    assert judge_methods(results(ratio=1.1))[0].win and judge_methods(results(ratio=0.9))[0].win


def test_one_claim_must_hold_whole():
    """A gain in every seed by one metric and significance by another are no win."""
    given = results(p=0.5)
    at = (given.metrics["method"] == "new") & (given.metrics["seed"] == 0)
    given.metrics.loc[at & (given.metrics["direction"] == "text_to_item"), "R@5"] = 1.0
    rows = (given.pairs["metric"] == "R@5") & (given.pairs["direction"] == "text_to_item")
    given.pairs.loc[rows, "p_holm"] = 0.001
    (found,) = judge_methods(given)
    broken = next(c for c in found.claims if (c.direction, c.metric) == ("text_to_item", "R@5"))
    assert broken.significant and not broken.every_seed
    assert not found.win and found.best.every_seed and not found.best.significant


def test_the_other_direction_can_be_the_win():
    given = results()
    given.metrics.loc[(given.metrics["method"] == "new") & (given.metrics["direction"] == "text_to_item"), "R@1"] = 1.0
    given.metrics.loc[(given.metrics["method"] == "new") & (given.metrics["direction"] == "text_to_item"), "R@5"] = 1.0
    (found,) = judge_methods(given)
    assert found.win and found.best.direction == "item_to_text"


def test_without_a_control_none_is_asked_for():
    given = results(control={})
    assert judge_methods(given)[0].win
    table = published(given)
    assert not any(head.group == "Control" for head in table.columns) and "ontrol" not in " ".join(table.notes)


def test_the_table_in_every_markup(tmp_path):
    table = published(results())
    paths = {path.suffix: path.read_text(encoding="utf-8") for path in write_table(tmp_path, table)}
    assert {".md", ".tex", ".html", ".csv"} == set(paths)
    row = next(line for line in paths[".md"].splitlines() if line.startswith("| New"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:6] == ["New", "yes", "T2I R@1", "**+3.0**", "**+2.5**", "**+4.0**"]
    assert cells[7:10] == ["**0.010**", r"**1.05** \[1.03, 1.08\]", r"**+2.0** \[+1.0, +3.0\]"]
    assert cells[10:] == [r"1.61 \[0.26, 10.04\]"], "1.607 is the ratio of standard deviations; √39, its factor"
    said = " ".join(table.notes)
    assert "1.10 times" in said and "30 rounds" in said and "(New, uniform − Base, uniform)" in said
    expect_message("\n".join(table.notes))
    rows = pd.read_csv(tmp_path / "table_verdict.csv")
    assert len(rows) == 4 and rows["win"].eq(1).all() and rows["gain_seed1"].tolist() == [2.5] * 4
    assert r"\caption{Stamps, Test: who wins over Base.}" in paths[".tex"]
    summary = tables.summary_text(TableInputs(results(), ["test"]))
    assert "a win" in summary


def zero_shot(difference: float, p: float, first: str = "new", second: str = "base") -> pd.DataFrame:
    ends = {"difference": difference, "low": difference - 0.5, "high": difference + 0.5}
    return pd.DataFrame([{"first": first, "second": second} | ends | {"p": p, "p_holm": p, "family": 2}])


def test_zero_shot_accuracy_and_spread_are_shown_and_needed_only_where_asked_for():
    weak = dataclasses.replace(results(), analyses=results().analyses | {"zero_shot_pairs": zero_shot(0.4, 0.3)})
    assert judge_methods(weak)[0].win, "neither is needed by default"
    table = published(weak)
    expect_message("\n".join(table.notes))
    assert table.groups[0].rows[0][-2].text == "+0.40" and not table.groups[0].rows[0][-2].bold
    assert table.data["zero_shot"].eq(0.4).all() and table.data["zero_shot_p_holm"].eq(0.3).all()
    asked = {"requires": ["zero_shot", "spread"]}
    weak = dataclasses.replace(results(**asked), analyses=results().analyses | {"zero_shot_pairs": zero_shot(0.4, 0.3)})
    lacking = judge_methods(weak)[0].reasons
    assert len(lacking) == 2 and "+0.40" in lacking[0] and "1.61 [0.26, 10.04]" in lacking[1]
    expect_message("\n".join(lacking))
    steady = VALUES | {"base": [12.0, 16.0, 20.0], "new": [23.0, 23.1, 23.2]}
    turned = zero_shot(-1.5, 0.01, first="base", second="new")
    strong = dataclasses.replace(
        results(values=steady, **asked), analyses=results().analyses | {"zero_shot_pairs": turned}
    )
    (found,) = judge_methods(strong)
    assert found.win and found.zero_shot.difference == 1.5 and (found.zero_shot.low, found.zero_shot.high) == (1, 2)
    expect_message("\n".join(published(strong).notes))
    with refusal("zero_shot_pairs.csv"):
        judge_methods(
            dataclasses.replace(
                results(), analyses=results().analyses | {"zero_shot_pairs": zero_shot(1.0, 0.1, first="other")}
            )
        )


def test_the_spread_of_seeds_has_the_interval_of_fishers_f():
    rng = np.random.default_rng(0)
    ratios = np.array([spread_ratio(*rng.normal(size=(2, 3)), 0.95) for _ in range(4000)])
    inside = ((ratios[:, 1] < 1) & (ratios[:, 2] > 1)).mean()
    assert inside == pytest.approx(0.95, abs=0.01)
    for pair in (([1.0], [1.0, 2.0]), ([1, 1], [2, 2]), ([1, 2], [2, 2]), ([1, 1], [2, 3])):
        assert np.isnan(spread_ratio(*pair, 0.95)).all(), "a zero is no measurement of a spread"


def test_seeds_that_all_score_alike_have_no_ratio_of_spreads():
    table = published(results(values=VALUES | {"base": [20.0, 20.0, 20.0]}))
    assert table.groups[0].rows[0][-1].text == "–" and table.data["spread"].isna().any()


def test_zero_shot_cannot_be_required_where_nothing_is_classified():
    keys = {"baseline": "a", "methods": ["b"], "requires": ["zero_shot"]}
    with invalid("tables.verdict.requires: zero_shot"):
        Study.model_validate({"name": "s", "dataset": "d", "methods": {"a": {}, "b": {}}, "tables": {"verdict": keys}})


def test_numbers_that_are_missing_are_named():
    for name, place in (("step_time", "step_time.csv"), ("control", "statistics/control.csv")):
        given = results()
        table = given.analyses[name]
        table.drop(index=table.index[table["method"] == "new"], inplace=True)
        with refusal(place):
            judge_methods(given)
    given = results()
    given.pairs.drop(index=given.pairs.index, inplace=True)
    with refusal("pairs.csv"):
        judge_methods(given)


def made_runs(gap: int, other: int, start: int = 0):
    """Ranks where ``new`` turns so many of 200 misses into hits, and its counterpart so many."""
    rng = np.random.default_rng(start)
    runs = {}
    for method, better in (("base", 0), ("new", gap), ("base_uniform", 0), ("new_uniform", other)):
        runs[method] = {}
        for seed in range(3):
            higher = np.where(np.arange(400) < 200 + better, 0, 9)
            flipped = rng.random(400) < 0.05
            runs[method][seed] = ranks(np.where(flipped, 9 - higher, higher))
    return runs


def test_the_control_is_the_difference_of_two_differences(tmp_path):
    runs = made_runs(80, 10)
    for method, seeds in runs.items():
        for seed, table in seeds.items():
            write_parquet(ranks_path(str(tmp_path / "ranks"), method, seed), table)
    listed = [(method, seed) for method, seeds in runs.items() for seed in seeds]
    files = [ranks_path(str(tmp_path / "ranks"), *run) for run in listed]
    verdict = Verdict(baseline="base", methods=["new"], control=CONTROL).model_dump()
    params = {"runs": listed, "verdict": verdict, "setting": "test", "confidence": 0.95}
    output = Outputs([str(tmp_path / "control.csv")], {})
    compare(Job("control", NamedList([], {"ranks": files}), output, NamedList([], params), {}, 1, {}, "log"))
    found = pd.read_csv(tmp_path / "control.csv").set_index("metric").loc["R@1"]
    pairs = [("new", "base"), ("new_uniform", "base_uniform")]
    each = compare_methods(runs, pairs, Statistics(resamples=100)).pairs.set_index(["first", "metric"])["difference"]
    assert found["gap"] == pytest.approx(each["new", "R@1"])
    assert found["control_gap"] == pytest.approx(each["new_uniform", "R@1"])
    assert found["shrinkage"] == pytest.approx(each["new", "R@1"] - each["new_uniform", "R@1"])
    assert found["low"] > 0 and found["p"] < 0.05 and found["high"] - found["low"] < 20
    same = gap_shrinkage(made_runs(40, 40), "base", ["new"], CONTROL, "test", 0.95).set_index("metric").loc["R@1"]
    assert same["low"] < 0 < same["high"]


def test_intervals_of_the_control_cover_as_they_say():
    """Both gaps are 40 of 400 queries in truth; an interval of 80% leaves that out one time in five."""
    inside = []
    for start in range(40):
        found = gap_shrinkage(made_runs(40, 40, start), "base", ["new"], CONTROL, "test", 0.8).set_index("metric")
        inside.append(found.loc["R@1", "low"] <= 0 <= found.loc["R@1", "high"])
    assert 0.65 < np.mean(inside) <= 0.98


METHODS = {name: {} for name in VALUES} | {"floor": {"model": "chance"}}
FAULTS = [
    ("tables.verdict.methods", {"methods": ["other"]}),
    ("tables.verdict.baseline", {"baseline": "floor"}),
    ("tables.verdict.methods", {"methods": ["new", "base"]}),
    ("tables.verdict.control", {"control": {"new": "new_uniform"}}),
    ("tables.verdict.control", {"control": {"new": "none", "base": "base_uniform"}}),
    ("tables.verdict.control", {"control": CONTROL | {"base_uniform": "new_uniform"}}),
    ("tables.verdict.control", {"control": {"new": "base_uniform", "base": "base_uniform"}}),
    ("tables.verdict.setting", {"setting": "hard"}),
]


def study(verdict, **keys):
    content = {"name": "s", "dataset": "d", "methods": METHODS, "evaluation": {"settings": ["test"]}} | keys
    return Study.model_validate(content | {"tables": {"verdict": {"baseline": "base", "methods": ["new"]} | verdict}})


@pytest.mark.parametrize(("place", "keys"), FAULTS)
def test_keys_that_do_not_fit_the_study_are_refused(place, keys):
    with invalid(place):
        study(keys)


def test_a_verdict_needs_its_pairs_seeds_and_equal_compute():
    assert study({"control": CONTROL}).tables.verdict.max_slowdown == 0.1
    with invalid("tables.verdict.methods"):
        study({}, statistics={"pairs": [["new", "new_uniform"]]})
    assert study({}, statistics={"pairs": [["base", "new"]]})
    with invalid("tables.verdict.methods"):
        study({}, methods=METHODS | {"new": {"seeds": [0, 1]}})
    with invalid("tables.verdict.methods"):
        study({}, methods=METHODS | {"new": {"training": {"batch": {"size": 64}}}})


def test_a_control_without_rows_in_one_direction_is_told():
    made = results()
    given = dataclasses.replace(made, analyses=made.analyses | {"control": control(1.0, 0.5, ("text_to_item",))})
    with refusal("statistics/control.csv"):
        judge_methods(given)
