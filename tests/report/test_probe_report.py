"""Blind baselines and probes in tables and in the answer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from messages import expect_message
from rewind.analyses.probes import PROBE_TABLES
from rewind.report.tables import table_specs
from rewind.report.time_answer import blind_sentences
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS
from rewind.tables.results import methods_in_order
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results
from table_texts import markdown_rows


def blind(significant: tuple[str, ...] = ("seqTransf",)) -> pd.DataFrame:
    rows = [
        {"method": method, "best": "words", "setting": "binary", "direction": direction, "metric": "R@1"}
        | {"estimate": value, "blind": 60.0, "difference": value - 60, "low": value - 65, "high": value - 55}
        | {"low_of": "words", "p_of": "words", "p": 0.01, "p_holm": 0.01 if method in significant else 0.5, "family": 2}
        for direction in ("text_to_item", "item_to_text")
        for method, value in (("meanP", 50.0), ("seqLSTM", 62.0), ("seqTransf", 85.0))
    ]
    table = pd.DataFrame(rows)
    table.loc[table["method"] == "meanP", ["p", "p_holm"]] = np.nan
    return table


def probed(probe: str, metrics: dict[str, float], part: str = "", interval: bool = True) -> pd.DataFrame:
    rows = [
        {"method": method, "probe": probe, "part": part, "direction": "", "metric": metric, "estimate": value + add}
        | {"std": 1.0, "low": value - 5 if interval else np.nan, "high": value + 5 if interval else np.nan}
        | {"constant": 0}
        for method, add in (("meanP", 0), ("seqTransf", 10))
        for metric, value in metrics.items()
    ]
    return pd.DataFrame(rows)


def given(**changes):
    made = results(**changes)
    return dataclasses.replace(made, labels=dict(made.labels) | {"words": "words alone"})


def table(made, kind: str):
    spec = next(spec for spec in table_specs() if spec.kind == kind)
    inputs = TableInputs(made, ["hard"], Footnotes.from_json(FACTS), "Data")
    assert inputs.has(spec.needs)
    return spec.build(inputs)


def cells(made, kind: str) -> dict[str, list[str]]:
    rows = markdown_rows(MARKUPS[".md"](table(made, kind)))
    return {row[0]: [cell.replace("&numsp;", "").replace("\\", "").strip() for cell in row[1:]] for row in rows}


def test_the_table_marks_what_is_beyond_every_blind_baseline(monkeypatch):
    monkeypatch.setattr("rewind.analyses.blind.evaluated_directions", lambda *_: ["text_to_item", "item_to_text"])
    made = given(analyses={"blind": blind()}, baselines=("chance", "words"))
    rows = cells(made, "blind")
    assert rows["seqTransf"][0] == "85.0" and rows["seqTransf"][1:3] == ["words alone", "60.0"]
    assert rows["seqTransf"][3] == "**+25.0** [+20.0, +30.0]" and not rows["seqLSTM"][3].startswith("**")
    expect_message("\n".join(table(made, "blind").notes))


def test_blind_baselines_stand_in_no_other_settings_table():
    made = given(baselines=("chance", "words"), only_in_binary=("words",))
    assert "words" not in methods_in_order(made, "hard") and "words" in methods_in_order(made, "binary")


@pytest.mark.parametrize("significant", [("seqTransf",), ()], ids=["one", "none"])
def test_the_answer_names_who_scores_beyond_them(significant):
    made = given(analyses={"blind": blind(significant)})
    expect_message("\n".join(blind_sentences(made, "text_to_item")))
    assert blind_sentences(given(), "text_to_item") == []


def test_the_method_that_is_most_beyond_them_is_named_first():
    compared = blind(("seqTransf", "seqLSTM"))
    for most, least in (("seqTransf", "seqLSTM"), ("seqLSTM", "seqTransf")):
        compared["difference"] = compared["method"].map({most: 30.0, least: 10.0}).fillna(0.0)
        first = blind_sentences(given(analyses={"blind": compared}), "text_to_item")[0]
        assert 0 < first.index(most) < first.index(least)


def test_every_probe_has_a_table_and_notes():
    for probe, look in PROBE_TABLES.items():
        metrics = dict.fromkeys(look.headings or ["accuracy"], 40.0)
        made = given(analyses={"probes": probed(probe, metrics, "verbs" if probe == "foils" else "")})
        found = table(made, f"probe_{probe}")
        assert found.kind == f"probe_{probe}" and len(found.groups[0].rows) == 2
        assert len(found.columns) == 1 + len(metrics)
        expect_message("\n".join(found.notes))


def test_notes_speak_of_training_seeds_where_some_were_trained_alone():
    probes = probed("pairs", {"group": 40.0})
    trained = given(analyses={"probes": probes})
    one = dataclasses.replace(trained, metrics=trained.metrics[trained.metrics["seed"] == 0])
    fixed = dataclasses.replace(trained, fixed=("meanP", "seqTransf", "seqLSTM", "tightTransf"))
    mixed = dataclasses.replace(trained, fixed=("meanP",))
    for made, says in ((trained, "over training seeds and"), (one, "over clusters"), (fixed, "over clusters")):
        assert any(says in note for note in table(made, "probe_pairs").notes)
    assert any("training seeds, where a method has several, and" in note for note in table(mixed, "probe_pairs").notes)
    assert not any("training seeds" in note for made in (one, fixed) for note in table(made, "probe_pairs").notes)
    whole = dataclasses.replace(fixed, analyses={"probes": probed("geometry", {"modality_gap": 0.2}, interval=False)})
    assert not any("over seeds" in note for note in table(whole, "probe_geometry").notes)


def test_kinds_of_foils_stand_side_by_side_and_equal_shares_once():
    both = pd.concat(
        [probed("foils", {"accuracy": 40.0, "pairwise": 40.0}, part) for part in ("verbs", "colours")],
        ignore_index=True,
    )
    found = table(given(analyses={"probes": both}), "probe_foils")
    assert [column.name.split()[0] for column in found.columns][1:] == ["verbs", "colours"] and len(found.groups) == 1
    both.loc[both["metric"] == "pairwise", "estimate"] += 20
    several = table(given(analyses={"probes": both}), "probe_foils")
    assert [group.title for group in several.groups] == ["accuracy", "pairwise"]


def test_measures_of_whole_runs_show_their_spread_and_ties_no_interval():
    geometry = probed("geometry", {"modality_gap": 0.2}, interval=False)
    assert cells(given(analyses={"probes": geometry}), "probe_geometry")["meanP"] == ["0.20±1.00"]
    tied = probed("pairs", {"group": 25.0}).assign(constant=1)
    assert cells(given(analyses={"probes": tied}), "probe_pairs")["meanP"] == ["25.0"]
