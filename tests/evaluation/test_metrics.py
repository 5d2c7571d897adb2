"""Entries of metrics: what they are worth, that they agree with validation, and that one entry is seen everywhere."""

from __future__ import annotations

import dataclasses
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rewind.ranking_metrics
from checkout import ROOT
from library import _stored_config, _stored_files
from messages import expect_message, invalid, refusal
from rewind.analyses.gap import gap_metrics, gap_notes
from rewind.config import Study
from rewind.config.report import Statistics
from rewind.evaluation.ranking import compute_metrics, validation_scores
from rewind.figures import forest
from rewind.ranking_metrics import (
    FRACTION,
    METRICS,
    RANKS,
    Metric,
    median_rank_with_ties,
    metric_of_column,
    metrics_by_name,
    reciprocal_rank,
)
from rewind.report.study import load_results
from rewind.report.tables import build_tables
from rewind.statistics.bootstrap import Resamples
from rewind.statistics.calibration import calibrate
from rewind.statistics.comparisons import compare_methods
from rewind.statistics.pairs import _bootstrap_differences
from rewind.statistics.simulation import Design, draw_ranks, metric_values, true_means
from rewind.statistics.variance import Clusters
from rewind.tables.footnotes import Footnotes
from rewind.tables.notes import setting_notes
from rewind.tables.render import render_markdown, write_table
from rewind.tables.results import Results
from rewind.tables.settings import compare_in_setting
from rewind.tables.spec import TableInputs
from table_numbers import results

COLUMNS = ["R@1", "nDCG@10 interval"]


entry_worth = METRICS["nDCG@10"].worth


def ndcg(ranking: tuple[str, ...], k: int) -> float:
    """By its definition, the answer being called ``truth``: DCG of the ranking over DCG of the best one."""
    gains = [float(item == "truth") for item in ranking]
    dcg, best = (
        sum(gain / np.log2(1 + rank) for rank, gain in enumerate(order[:k], 1))
        for order in (gains, sorted(gains, reverse=True))
    )
    return dcg / best


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1), st.sampled_from([2, 3, 10]))
def test_ndcg_is_its_mean_over_all_orders_of_tied_items(higher, ties, lower, k):
    above, tied, below = ("above",) * higher, ("truth", *("tied",) * ties), ("below",) * lower
    orders = [(*above, *order, *below) for order in itertools.permutations(tied)]
    entry = METRICS["nDCG@10"]
    if k < 10:  # so few items that more would never be cut
        entry = dataclasses.replace(entry, worth=lambda rank: (rank <= k) * entry_worth(rank))
    found = entry.per_query(np.array([higher]), np.array([ties]))[0]
    assert found == pytest.approx(np.mean([ndcg(order, k) for order in orders])) and 0 <= found <= 1


def test_ndcg_by_hand():
    entry = METRICS["nDCG@10"]
    found = entry.per_query(np.array([0, 1, 2, 9, 10, 0, 9]), np.array([0, 0, 0, 0, 0, 1, 1]))
    eleventh = 1 / np.log2(11)
    want = [1, 1 / np.log2(3), 0.5, eleventh, 0, (1 + 1 / np.log2(3)) / 2, eleventh / 2]
    np.testing.assert_allclose(found, want, rtol=1e-12)
    assert found[0] == 1 and found[4] == 0 and entry.range(50) == (0, 1)


def ranks(seed: int, shift: int, setting: str = "test", queries: int = 160, ties: bool = True) -> pd.DataFrame:
    """Ranks of a method that is worse the greater ``shift``."""
    rng = np.random.default_rng(seed)
    hard = np.random.default_rng(7).geometric(0.25, queries)
    table = pd.DataFrame({"query_id": [f"q{i:03}" for i in range(queries)], "setting": setting, "gallery": queries})
    table["higher"] = np.maximum(hard + shift + rng.integers(-2, 3, queries) - 1, 0)
    table["ties"] = rng.integers(0, 3, queries) if ties else 0
    table["cluster_id"] = [f"c{i // 2:03}" for i in range(queries)]
    return table.assign(direction="text_to_item", rank=1 + table["higher"] + table["ties"] / 2)


def test_validation_scores_are_the_metrics_to_the_last_bit():
    table = ranks(0, 2)
    row, found = compute_metrics(table), validation_scores(table)
    assert found == {name: row[name] for name in found}
    assert list(found) == ["R@1", "R@5", "R@10", "MdR", "MnR", "MRR"], "columns of history.csv"
    bounds = [f"{name}_{end}" for name in ("R@1", "R@5", "R@10") for end in ("optimistic", "pessimistic")]
    assert list(row) == ["queries", "gallery", *METRICS, *bounds]


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60)), min_size=1, max_size=30))
def test_entries_have_the_bits_of_their_closed_forms(counts):
    higher, ties = np.array(counts).T
    for k in (1, 5, 10):
        assert (METRICS[f"R@{k}"].per_query(higher, ties) == 100 * np.clip((k - higher) / (ties + 1), 0, 1)).all()
    assert (METRICS["MnR"].per_query(higher, ties) == 1 + higher + ties / 2).all()
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, 262))])
    assert (
        METRICS["MRR"].per_query(higher, ties) == (harmonic[higher + ties + 1] - harmonic[higher]) / (ties + 1)
    ).all()
    row = compute_metrics(pd.DataFrame({"higher": higher, "ties": ties, "rank": 1 + higher + ties / 2, "gallery": 300}))
    assert row["R@5"] == 100 * float(np.clip((5 - higher) / (ties + 1), 0, 1).mean())
    assert row["R@5_optimistic"] == 100 * float((higher < 5).mean())
    assert row["R@5_pessimistic"] == 100 * float((higher + ties < 5).mean())
    assert row["MnR"] == float((1 + higher + ties / 2).mean())
    assert row["P75"] == float(np.percentile(1 + higher + ties / 2, 75))


def test_every_entry_is_simulated_as_it_is_computed():
    drawn = draw_ranks(Design(queries=40, gallery=30), 2, np.random.default_rng(0))
    counts = drawn.astype(int) - 1, 0 * drawn.astype(int)
    for name in rewind.ranking_metrics.tested_metrics():
        exact = METRICS[name].per_query(*counts) / METRICS[name].unit.scale
        np.testing.assert_allclose(metric_values(drawn, name), exact, rtol=1e-6, atol=1e-12)
        least, most = METRICS[name].unit.range(30)
        assert (least <= true_means(Design(gallery=30), name)).all() and (
            true_means(Design(gallery=30), name) <= most
        ).all()


def test_a_further_metric_moves_no_last_digit_of_differences():
    rng = np.random.default_rng(2)
    draws = Resamples.draw(Clusters.of(np.arange(300)), 500, seed=0)
    columns = [(rng.normal(size=(6, 300)), 3) for _ in range(3)]
    more = _bootstrap_differences(columns, draws, 0.95)
    fewer = _bootstrap_differences([(totals[:5], count) for totals, count in columns], draws, 0.95)
    assert more[0].shape == (3, 6) and all(np.array_equal(a[:, :5], b) for a, b in zip(more, fewer, strict=True))


@pytest.fixture(scope="module")
def made() -> Results:
    """Two settings of three methods, from ranks through the statistics; nDCG@10 decides."""
    places = {"hard": 0, "origin": -1}
    runs = {
        method: {
            seed: pd.concat([ranks(10 * at + seed, 3 * at + easier, name) for name, easier in places.items()])
            for seed in range(3)
        }
        for at, method in enumerate(("a", "b", "c"))
    }
    for seeds in runs.values():  # more clips to search help no query
        for table in seeds.values():
            hard, origin = table["setting"] == "hard", table["setting"] == "origin"
            table.loc[origin.to_numpy(), ["higher", "ties"]] = np.minimum(
                table.loc[origin.to_numpy(), ["higher", "ties"]].to_numpy(),
                table.loc[hard.to_numpy(), ["higher", "ties"]].to_numpy(),
            )
    rows = [
        {"method": m, "seed": s, "setting": setting, "direction": "text_to_item"} | compute_metrics(part)
        for m, seeds in runs.items()
        for s, table in seeds.items()
        for setting, part in table.groupby("setting", sort=False)
    ]
    found = compare_methods(runs, [("a", "b"), ("a", "c"), ("b", "c")], Statistics(resamples=200))
    names = {m: m for m in runs}
    return Results(
        *(pd.DataFrame(rows), found.intervals, found.pairs, names, names),
        primary="nDCG@10",
        columns=COLUMNS,
        gaps=found.gaps,
    )


def test_one_entry_is_a_column_with_intervals_comparisons_and_letters(made, tmp_path: Path):
    table = compare_in_setting(made, "hard")
    best = table.rows[0].cells[1]
    assert [column.title for column in table.columns] == ["R@1", "nDCG@10"] and table.deciding == "nDCG@10"
    assert 0 < best.low < best.estimate < best.high < 1 and best.beats == ("b", "c") and best.best
    assert not any(row.cells[0].beats for row in table.rows), "one metric decides"
    said = " ".join(setting_notes(Footnotes(), table))
    expect_message(next(sentence for sentence in setting_notes(Footnotes(), table) if "nDCG@k" in sentence))
    assert "MRR" not in said and "MnR" not in said, "notes say what is shown"
    assert "of nDCG" not in said
    tables = {one.name: one for one in build_tables(TableInputs(made, ["hard"], Footnotes(), "T"))}
    assert set(tables) >= {"table_B_hard", "table_pairs_hard", "table_seeds_hard", "table_gap"}
    sheet = tables["table_B_hard"]
    shown = sheet.cells(len(sheet.columns) - 1)[0]
    assert sheet.columns[-1].name == "nDCG@10 ↑" and "nDCG@10" in render_markdown(sheet)
    assert (shown.value, shown.std, shown.low, shown.high) == (best.estimate, best.std, best.low, best.high)
    assert (shown.text, shown.spread) == (f"{best.estimate:.3f}", f"{best.std:.3f}") and shown.bold
    assert shown.interval == (f"{best.low:.3f}", f"{best.high:.3f}") and shown.marks == "b,c"
    assert "nDCG@10" in tables["table_pairs_hard"].title
    assert [head.title for head in tables["table_seeds_hard"].columns][-2:] == ["nDCG@10", "R@1 strict"]
    expect_message(tables["table_seeds_hard"].notes[-1])
    assert [head.title for head in tables["table_gap"].columns] == ["Method", "R@1", "nDCG@10"]
    assert gap_metrics(made) == ["R@1", "nDCG@10"]
    rows = tables["table_B_hard"].data.set_index(["method", "metric"])
    assert rows.loc[("a", "nDCG@10"), "beats"] == "b c" and rows.loc[("a", "nDCG@10"), "low"] == best.low
    for path in write_table(tmp_path, tables["table_B_hard"]):
        assert "U+" not in path.read_text(), "LaTeX can print it"


def test_pictures_take_units_and_digits_from_the_entry(made):
    figure = forest.interval_forest(made.intervals, made.labels, metric="nDCG@10")
    texts = [text.get_text() for text in figure.axes[0].texts]
    estimate = made.intervals.set_index(["method", "setting", "metric"]).loc[("a", "origin", "nDCG@10"), "estimate"]
    assert f"{estimate:.3f}" in texts and figure.axes[0].get_xlabel() == "nDCG@10"
    assert forest.interval_forest(made.intervals, made.labels).axes[0].get_xlabel() == "R@1 (%)"


def test_a_gap_says_which_sign_is_a_loss(made):
    expect_message("\n".join(gap_notes(TableInputs(made))))
    ranked = dataclasses.replace(made, columns=["MnR"])
    expect_message("\n".join(gap_notes(TableInputs(ranked))))
    gaps = made.gaps.set_index(["method", "metric"])["gap"]
    assert (gaps.xs("nDCG@10", level="metric") >= 0).all() and (gaps.xs("MnR", level="metric") <= 0).all()


def test_a_study_may_show_it_and_let_it_decide():
    given_ = {"name": "s", "dataset": "d", "methods": {"a": {}}, "sanity": None, "tables": {"columns": COLUMNS}}
    given_ |= {"evaluation": {"settings": ["hard"]}}
    assert Study.model_validate(given_).primary_metric() == "R@1"
    study = Study.model_validate(given_ | {"statistics": {"primary": "nDCG@10"}})
    assert study.primary_metric() == study.figure_metric() == "nDCG@10"
    with invalid("tables.columns: column 'NDCG@10'"):
        Study.model_validate(given_ | {"tables": {"columns": ["NDCG@10"]}})
    assert "nDCG@10" not in Study.model_validate(given_ | {"tables": {}}).tables.columns, "not by default"


def test_results_of_an_earlier_version_are_read_without_it():
    folder = ROOT / "docs/published/demo/avx512"
    found = load_results(*(config := _stored_config(folder)), _stored_files(*config, folder))
    old = [m for m in found.evaluated() if m != "nDCG@10"]
    found = dataclasses.replace(found, metrics=found.metrics.drop(columns="nDCG@10", errors="ignore"))
    tables = list(build_tables(TableInputs(found, ["hard"], Footnotes(), "T")))
    assert set(tables[0].data["metric"]) == {*old, "R@1_pessimistic"} and len(old) == 6
    asked = dataclasses.replace(results(), columns=COLUMNS)
    with refusal("metrics.csv"):
        compare_in_setting(asked, "hard")


def test_an_entry_that_cannot_be_one_is_refused():
    good = Metric("one", "one is one", FRACTION, reciprocal_rank)
    assert metrics_by_name(good) == {"one": good} and metric_of_column("R@5_pessimistic") is METRICS["R@5"]
    for bad, place in (
        (dataclasses.replace(good, name="two words"), ""),
        (dataclasses.replace(good, name="two_words"), ""),
        (dataclasses.replace(good, of_run=median_rank_with_ties), ""),
        (dataclasses.replace(good, worth=None), ""),
        (Metric("P10", "P10 is early", RANKS, of_run=lambda higher, ties: 1.0, pooled=True), ""),
    ):
        with refusal(place, error=ValueError):
            metrics_by_name(bad)
    with refusal("", error=ValueError):
        metrics_by_name(good, good)


def test_the_entry_of_the_documents_is_one():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/add-a-metric.md").read_text(), re.DOTALL)
    module: dict[str, Any] = {}
    exec(code, module)
    entry = module["RBP"]
    metrics_by_name(*METRICS.values(), entry)
    higher, ties = np.array([0, 2, 5]), np.array([0, 0, 2])
    want = [1, 0.8**2, (0.8**5 + 0.8**6 + 0.8**7) / 3]
    np.testing.assert_allclose(entry.per_query(higher, ties), want, rtol=1e-12)
    assert entry.value(higher, ties) == pytest.approx(np.mean(want)) and entry.tested and not entry.usual


@pytest.mark.parametrize("seed_sd", [0, 4])
def test_intervals_and_tests_of_ndcg_err_as_often_as_promised(seed_sd):
    """On 4,000 studies: room for chance, and less than a false interval would need."""
    found = calibrate(Design(queries=200, seed_sd=seed_sd), 4000, seed=1, metrics=("nDCG@10",))
    rate = found.set_index("measure")["rate"]
    assert 0.945 <= rate["coverage"] <= 0.975 and rate["type I"] <= 0.05 and rate["family-wise"] <= 0.05


@pytest.fixture
def own_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The module of docs/add-a-metric.md on the path; the registry is as before afterwards."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/add-a-metric.md").read_text(), re.DOTALL)
    (tmp_path / "metric_for_tests.py").write_text(
        code + "\nOTHER = Metric('R@1', 'x', FRACTION, lambda ranks: ranks)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(METRICS)
    yield "metric_for_tests.RBP"
    METRICS.clear()
    METRICS.update(before)
    sys.modules.pop("metric_for_tests", None)


def test_a_study_brings_its_own_metric(own_metric):
    keys = {"name": "s", "dataset": "shapes", "methods": {"meanP": {}}, "seeds": [0]}
    shown = {"statistics": {"primary": "RBP"}, "tables": {"columns": ["R@1", "RBP interval"]}}
    with invalid("statistics.primary", "tables.columns"):
        Study(**keys, **shown)
    study = Study(**keys, **shown, metrics=[own_metric])
    row = compute_metrics(pd.DataFrame({"higher": [0, 2], "ties": [0, 0], "gallery": [5, 5]}))
    assert row["RBP"] == pytest.approx((1 + 0.8**2) / 2) and rewind.ranking_metrics.tested_metrics()[-1] == "RBP"
    assert study.fingerprint()["metrics"] == [own_metric]
    assert "metrics" not in Study(**keys).fingerprint(), "other studies are as they were"
    assert Study(**study.fingerprint()) == study, "jobs read the keys again"


@pytest.mark.parametrize(
    ("name", "place"),
    [("OTHER", "metrics: metric_for_tests.OTHER"), ("FRACTION", "metrics"), ("nothing", "metrics")],
)
def test_what_is_no_metric_is_refused(own_metric, name, place):
    with invalid(place):
        Study(name="s", dataset="shapes", methods={"meanP": {}}, metrics=[f"metric_for_tests.{name}"])
