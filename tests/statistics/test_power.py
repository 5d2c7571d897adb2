"""What a study can detect: against simulated ranks, and as the command tells it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from messages import expect_message
from rewind.cli.main import main
from rewind.io.files import write_csv
from rewind.statistics.calibration import calibrate
from rewind.statistics.pairs import minimum_detectable_effect
from rewind.statistics.power import (
    design_detectable_effect,
    detection_power,
    few_clusters_effect,
    model_variances,
    query_limited_effect,
    with_seed_spread,
)
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


COMPUTED = r"\d+\.\d+(–\d+\.\d+)?|\d+%(?=;)"


def parts(text):
    """What the command prints: the headline, what is known, the table, and what is to be said about it."""
    headline, known, table, *remarks = text.split("\n\n")
    return headline, known, table, "\n".join(remarks)


def shown(text):
    """The range of the headline."""
    return [float(end) for end in text.split("a difference of ")[1].split()[0].split("–")]


def extremes(design, spreads, needed=design_detectable_effect):
    """Least and greatest over a finer grid than the command's."""
    found = [
        needed(with_seed_spread(replace(design, alike=alike), spread))
        for spread in np.linspace(*spreads, 25)
        for alike in (0.6, 0.8, 0.95)
    ]
    return [min(found), max(found)]


def refused(capsys, *arguments, study="mini.yaml"):
    """The message is that of the snapshot."""
    assert main(["power", study, *arguments]) == 1
    text = capsys.readouterr().err
    expect_message(text)
    return text


@pytest.mark.slow
def test_a_study_is_named_as_in_other_commands(folder, capsys):
    expected = shown(told(capsys))
    (folder / "config/studies").mkdir(parents=True)
    (folder / "mini.yaml").rename(folder / "config/studies/mini.yaml")
    assert main(["power", "mini"]) == 0 and shown(capsys.readouterr().out) == expected
    assert "mimi" in refused(capsys, study="mimi")


@pytest.mark.parametrize(
    "design", [Design(queries=400), Design(queries=500, seed_sd=3, cluster=5), Design(seeds=8, queries=300, seed_sd=0)]
)
def test_normal_theory_agrees_with_simulated_ranks(design):
    points = design_detectable_effect(design)
    assert detection_power(design, points) == pytest.approx(0.8, abs=1e-3)
    found = calibrate(replace(design, difference=points), 600, metrics=("R@1",)).set_index("measure")["rate"]
    assert found["power"] == pytest.approx(0.8, abs=0.06)


def test_the_spread_over_seeds_is_what_a_table_would_show():
    design = Design(seeds=10, queries=400, seed_sd=1.5, cluster=4)
    hits = draw_ranks(design, 300, np.random.default_rng(0)) <= 1
    shown = hits.mean(axis=3).var(axis=2, ddof=1).mean() ** 0.5
    assert model_variances(design).run ** 0.5 == pytest.approx(shown, rel=0.04)
    assert with_seed_spread(
        replace(design, seed_sd=9), 100 * model_variances(design).run ** 0.5
    ).seed_sd == pytest.approx(1.5)
    little = with_seed_spread(design, 0.3)
    assert little.seed_sd == 0 and little.disagreement < design.disagreement
    assert 100 * model_variances(little).run ** 0.5 == pytest.approx(0.3)


def test_power_grows_with_seeds_queries_and_agreement():
    base = Design(seed_sd=1)
    assert detection_power(base, 0) == pytest.approx(0.045, abs=0.012)
    assert (
        detection_power(base, 3)
        < detection_power(replace(base, seeds=5), 3)
        < detection_power(replace(base, seeds=10), 3)
    )
    assert (
        design_detectable_effect(replace(base, queries=4000))
        < design_detectable_effect(base)
        < design_detectable_effect(replace(base, queries=250))
    )
    assert (
        design_detectable_effect(base)
        < design_detectable_effect(replace(base, cluster=5))
        < design_detectable_effect(replace(base, cluster=5, seed_sd=4))
    )
    assert design_detectable_effect(Design(seeds=2, queries=100, seed_sd=40)) == float("inf")


@pytest.mark.parametrize("df", [1.0, 2.7, 9.0, 400.0])
@pytest.mark.parametrize("level", [0.05, 0.05 / 6])
def test_the_smallest_difference_seen_is_found_in_four_studies_of_five(df, level):
    rng = np.random.default_rng(0)
    true = minimum_detectable_effect(4.0, df, level)
    t = (true / 2 + rng.standard_normal(200_000)) / np.sqrt(rng.chisquare(df, 200_000) / df)
    assert (2 * stats.t.sf(np.abs(t), df) <= level).mean() == pytest.approx(0.8, abs=0.005)


def test_the_smallest_difference_seen_needs_an_error():
    got = minimum_detectable_effect(np.array([0.0, np.nan, 1.0, 1.0]), np.array([3.0, 3.0, np.nan, 3.0]), 0.05)
    assert np.isnan(got).tolist() == [True, True, True, False]
    one, four = minimum_detectable_effect(np.array([1.0, 4.0]), 8.0, 0.05)
    assert four == pytest.approx(2 * one)


def test_queries_set_a_limit_that_no_seeds_pass():
    design = Design(queries=300, seed_sd=0, disagreement=5)
    limit = query_limited_effect(design)
    assert design_detectable_effect(replace(design, seeds=400)) == pytest.approx(limit, rel=0.03)
    assert design_detectable_effect(replace(design, seeds=3)) > limit
    assert query_limited_effect(replace(design, seeds=1)) > limit, "two fixed models also differ as two seeds would"


def test_few_clusters_show_nothing_but_the_greatest_differences():
    ranges = [few_clusters_effect(clusters) for clusters in (3, 8, 20, 120)]
    assert all(like < unlike for like, unlike in ranges) and ranges == sorted(ranges, reverse=True)
    assert ranges[0][1] == float("inf"), "a difference above 100 points there is not"
    many = Design(seeds=100, queries=120, cluster=1, seed_sd=0)
    least, most = replace(many, alike=0.95), replace(many, alike=0.6, disagreement=0)
    assert ranges[-1] == pytest.approx((design_detectable_effect(least), design_detectable_effect(most)), rel=0.05)


@pytest.mark.slow
def test_without_results_the_command_says_what_it_assumes(folder, capsys):
    text = told(capsys)
    assert text == told(capsys), "the same words every time"
    expect_message(text, varying=COMPUTED)
    assert shown(text) == pytest.approx(extremes(Design(cluster=1), (0.5, 2.0)), abs=0.06)


def test_the_command_reads_the_studys_own_results(folder, capsys):
    results(folder)
    text = told(capsys, "--setting", "hard")
    low, high = (2 * np.sqrt(6 / quantile) for quantile in stats.chi2.ppf([0.975, 0.025], 6))
    assert f"{low:.1f}–{high:.1f}  " in text and "60.0  " in text, "chance is no trained method"
    assert "ASSUMED" not in text, "nothing is assumed of the queries"
    expect_message(parts(text)[1], varying=COMPUTED)
    assert shown(text) == pytest.approx(extremes(Design(queries=400, cluster=2, r1=60), (low, high)), abs=0.06)


def test_a_number_that_is_given_is_no_range(folder, capsys):
    results(folder)
    text = told(capsys, "--setting", "hard", "--seed-sd", "2", "--alike", "0.8")
    design = with_seed_spread(Design(queries=400, cluster=2, r1=60), 2.0)
    assert shown(text) == pytest.approx([design_detectable_effect(design)], abs=0.051)
    assert "From – to" not in text


def test_methods_that_nothing_moves_apart_show_any_difference(folder, capsys):
    """With a spread of 0 and queries that count alike there is no error to divide by."""
    text = told(capsys, "--seed-sd", "0", "--alike", "1")
    assert shown(text) == [0.0] and "nan" not in text
    expect_message(parts(text)[-1])


def test_no_difference_is_printed_that_cannot_be(folder, capsys):
    """From R@1 of 50% no method can gain or lose more than 50 points."""
    text = told(capsys, "--seed-sd", "20", "--queries", "30", "--seeds", "3", "--r1", "50")
    assert "no possible difference of R@1" in parts(text)[0]
    rows = [re.split(r"\s{2,}", line.strip()) for line in parts(text)[2].splitlines()[2:]]
    assert rows[0][2] == "none"
    points = [float(number) for row in rows for number in re.findall(r"\d+\.\d", row[2])]
    assert points and max(points) <= 50


def test_what_is_given_overrules_what_is_measured(folder, capsys):
    results(folder)
    text = told(capsys, "--seeds", "5", "--queries", "4000", "--r1", "30", "--seed-sd", "0.8", "--cluster-size", "1")
    assert text.count(" given\n") == 5 and re.search(r"measured on +400", text), "the spread is that of 400 queries"
    assert text.startswith("mini, origin, 5 seeds, 4,000 queries: ")
    expect_message(parts(text)[1])


def test_one_seed_claims_nothing(folder, capsys):
    text = told(capsys, "--seeds", "1")
    assert "Checked" not in text
    expect_message(parts(text)[0])
    expect_message(parts(text)[-1], varying=COMPUTED)
    limits = extremes(Design(seeds=1, cluster=1), (0.5, 2.0), query_limited_effect)
    told_of = text.split("over other queries: a difference of ")[1].split()[0].split("–")
    assert [float(end) for end in told_of] == pytest.approx(limits, abs=0.06)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--setting", "test"],
        ["--seeds", "0"],
        ["--r1", "100"],
        ["--alike", "1.2"],
        ["--queries", "10", "--cluster-size", "4"],
    ],
)
def test_numbers_that_make_no_study_are_refused(folder, capsys, arguments):
    refused(capsys, *arguments)


def test_broken_results_are_refused(folder, capsys):
    results(folder, r1=(50.0, float("nan"), 70.0))
    assert "results/mini/metrics.csv, row 5: R@1" in refused(capsys)
    write_csv(folder / "results/mini/metrics.csv", pd.DataFrame({"method": ["a"], "seed": [0]}))
    assert "'R@1'" in refused(capsys)
