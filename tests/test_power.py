"""What a study can detect: against simulated ranks, and as the command tells it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from rewind.cli import main
from rewind.files import write_csv
from rewind.statistics.calibration import calibrate
from rewind.statistics.power import detectable, power, variances, with_spread
from rewind.statistics.simulation import Design, draw_ranks

STUDY = """
dataset: shapes
methods: {a: {head: meanP}, b: {head: seqLSTM}, c: {head: seqTransf}, chance: {model: chance, seeds: [0]}}
evaluation: {settings: [origin, hard, binary]}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mini.yaml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def results(folder, r1=(50.0, 60.0, 70.0), spread=(-2.0, 0.0, 2.0)):
    rows = [
        {"method": m, "seed": s, "setting": setting, "direction": "text_to_item", "queries": 400, "R@1": mean + off}
        for setting in ("origin", "hard")
        for m, mean in zip("abc", r1, strict=True)
        for s, off in enumerate(spread)
    ]
    rows.append(rows[0] | {"method": "chance", "R@1": 0.5})
    write_csv(folder / "results/mini/metrics.csv", pd.DataFrame(rows))
    clusters = pd.DataFrame(rows)[["method", "setting", "direction", "queries"]].assign(clusters=200)
    write_csv(folder / "results/mini/statistics/intervals.csv", clusters)


def told(capsys, *arguments):
    assert main(["power", "mini.yaml", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["power", "mini.yaml", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "design", [Design(queries=400), Design(queries=500, seed_sd=3, cluster=5), Design(seeds=8, queries=300, seed_sd=0)]
)
def test_normal_theory_agrees_with_simulated_ranks(design):
    points = detectable(design)
    assert power(design, points) == pytest.approx(0.8, abs=1e-3)
    found = calibrate(replace(design, difference=points), 600, metrics=("R@1",)).set_index("measure")["rate"]
    assert found["power"] == pytest.approx(0.8, abs=0.06)


def test_the_spread_over_seeds_is_what_a_table_would_show():
    design = Design(seeds=10, queries=400, seed_sd=1.5, cluster=4)
    hits = draw_ranks(design, 300, np.random.default_rng(0)) <= 1
    shown = hits.mean(axis=3).var(axis=2, ddof=1).mean() ** 0.5
    assert variances(design).run ** 0.5 == pytest.approx(shown, rel=0.04)
    assert with_spread(replace(design, seed_sd=9), 100 * variances(design).run ** 0.5).seed_sd == pytest.approx(1.5)
    little = with_spread(design, 0.3)
    assert little.seed_sd == 0 and little.disagreement < design.disagreement
    assert 100 * variances(little).run ** 0.5 == pytest.approx(0.3)


def test_power_grows_with_seeds_queries_and_agreement():
    base = Design(seed_sd=1)
    assert power(base, 0) == pytest.approx(0.045, abs=0.012)
    assert power(base, 3) < power(replace(base, seeds=5), 3) < power(replace(base, seeds=10), 3)
    assert detectable(replace(base, queries=4000)) < detectable(base) < detectable(replace(base, queries=250))
    assert detectable(base) < detectable(replace(base, cluster=5)) < detectable(replace(base, cluster=5, seed_sd=4))
    assert detectable(Design(seeds=2, queries=100, seed_sd=40)) == float("inf")


def test_without_results_the_command_says_what_it_assumes(folder, capsys):
    text = told(capsys)
    assert text == told(capsys), "the same words every time"
    assert "mini, origin, 3 seeds, 1,000 queries: a difference of" in text and "of 3 pairs" in text
    assert text.count("assumed\n") == 4 and "no claim about methods" in text
    points = float(text.split("a difference of ")[1].split()[0])
    assert points == pytest.approx(detectable(with_spread(Design(cluster=1), 1.0)), abs=0.051)


def test_the_command_reads_the_studys_own_results(folder, capsys):
    results(folder)
    text = told(capsys, "--setting", "hard")
    assert "60.0        mean of 3 methods in results/mini/metrics.csv" in text, "chance is no trained method"
    assert "2.0         pooled over 3 methods in results/mini/metrics.csv" in text
    assert "cluster size  2           results/mini/statistics/intervals.csv" in text and "400 queries:" in text
    points = float(text.split("a difference of ")[1].split()[0])
    design = with_spread(Design(queries=400, cluster=2, r1=60), 2.0)
    assert points == pytest.approx(detectable(design), abs=0.051)


def test_what_is_given_overrules_what_is_measured(folder, capsys):
    results(folder)
    text = told(capsys, "--seeds", "5", "--queries", "4000", "--r1", "30", "--seed-sd", "0.8", "--cluster-size", "1")
    assert "mini, origin, 5 seeds, 4,000 queries" in text and text.count(" given\n") == 5
    assert "measured on   400" in text, "the spread is that of 400 queries"


def test_one_seed_claims_nothing(folder, capsys):
    text = told(capsys, "--seeds", "1")
    assert "no claim about methods can be made" in text and "Checked" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--setting", "test"], "--setting test: the study is not evaluated there; there are origin, hard, binary"),
        (["--seeds", "0"], "--seeds and --cluster-size are 1 or more"),
        (["--r1", "100"], "give --r1 between"),
        (["--queries", "10", "--cluster-size", "4"], "10 queries in clusters of 4: at least 3 clusters"),
    ],
)
def test_numbers_that_make_no_study_are_refused(folder, capsys, arguments, message):
    assert message in refused(capsys, *arguments)


def test_broken_results_are_refused(folder, capsys):
    results(folder, r1=(50.0, float("nan"), 70.0))
    assert "results/mini/metrics.csv, row 5: R@1 is not a number" in refused(capsys)
    write_csv(folder / "results/mini/metrics.csv", pd.DataFrame({"method": ["a"], "seed": [0]}))
    assert "column 'R@1' is missing" in refused(capsys)
