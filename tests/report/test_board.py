"""A board ranks what may be compared and nothing else, and its page holds whatever names studies have."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from board_studies import card, finished, write_results
from checkout import ROOT
from messages import refusal
from page_reader import Reader, read_json_script
from rewind.config import Study, load_dataset
from rewind.io.files import read_csv, read_spreadsheet
from rewind.report.board.ranking import OWN, WIDENED, rank_cells, ranks_of_intervals, widen_interval
from rewind.report.board.site import Board
from rewind.report.board.studies import (
    BASELINE,
    COMPARED,
    TRAINED,
    ZERO_SHOT,
    MethodCard,
    StudyCard,
    read_board_study,
    study_card,
)
from rewind.statistics.inference import mean_inference
from rewind.statistics.variance import variance_components

HOSTILE = "</script><script>alert(1)</script><b onclick='x'>{&\"|_$%"


def groups_of(cells: pd.DataFrame) -> dict[tuple[int, str], str]:
    """(study, method) → its letter in Origin from text to items."""
    rows = cells[(cells["setting"] == "origin") & (cells["direction"] == "text_to_item")]
    return {(row.study, row.method): row.group for row in rows.itertuples()}


@pytest.mark.parametrize("values", [(0.3, 0.5, 0.7), (0.02, 0.5, 0.98), (0.99, 0.995, 0.999)])
@pytest.mark.parametrize("seeds", [1, 3])
def test_a_widened_interval_is_the_one_that_statistics_would_have_given(values, seeds):
    rng = np.random.default_rng(seeds)
    hits = rng.binomial(1, np.array(values)[:, None, None], (3, seeds, 300)) * 100.0
    parts = variance_components(hits, np.ones(300, dtype=int))
    ends = {level: mean_inference(parts, level, least=np.zeros(3), most=np.full(3, 100.0)) for level in (0.95, 0.99)}
    before, after = ends[0.95], ends[0.99]
    for k in range(3):
        row = {"metric": "R@1", "gallery": 300, "clusters": 300, "confidence": 0.95}
        row |= {name: getattr(before, name)[k] for name in ("estimate", "low", "high", "df")}
        wanted = (after.low[k], after.high[k])
        np.testing.assert_allclose(widen_interval(pd.Series(row), 0.99), wanted, atol=1e-9)


def test_a_rank_counts_the_methods_that_lie_wholly_above():
    ends = pd.DataFrame({"low": [50.0, 40, 20, 19], "high": [60.0, 55, 30, 29], "estimate": [55.0, 47, 25, 24]})
    rows = ends.assign(metric="R@1", gallery=100, clusters=100, df=99.0, confidence=0.95)
    low, high = ranks_of_intervals(rows)
    assert low.tolist() == [1, 1, 3, 3] and high.tolist() == [2, 2, 4, 4]
    lower_is_better = rows.assign(metric="MnR")
    low, high = ranks_of_intervals(lower_is_better)
    assert low.tolist() == [3, 3, 1, 1] and high.tolist() == [4, 4, 2, 2]


def test_ranks_of_widened_intervals_err_in_no_more_columns_than_they_say():
    """Five equal methods: all are first, and any other rank is an error, in at most 5% of all columns."""
    rng, errors, repeats = np.random.default_rng(0), 0, 200
    for _ in range(repeats):
        hits = rng.binomial(1, 0.5, (5, 3, 100)) * 100.0
        parts = variance_components(hits, np.ones(100, dtype=int))
        result = mean_inference(parts, 0.95, least=np.zeros(5), most=np.full(5, 100.0))
        rows = pd.DataFrame({name: getattr(result, name) for name in ("estimate", "low", "high", "df")})
        low, high = ranks_of_intervals(rows.assign(metric="R@1", gallery=100, clusters=100, confidence=0.95))
        errors += bool((low > 1).any() or (high < 5).any())
    assert errors <= 0.05 * repeats


def test_methods_of_two_studies_are_ranked_by_widened_intervals(tmp_path):
    studies = [
        finished(tmp_path, "one", {"a": 80, "b": 20, "chance": 1}, 0, seeds=6, tests=True),
        finished(tmp_path, "two", {"c": 78, "d": 50}, 1, seeds=6, tests=True),
    ]
    cells, groups = rank_cells(studies)
    assert [(group.letter, group.studies) for group in groups] == [("A", (0, 1))]
    rows = cells[(cells["setting"] == "origin") & (cells["direction"] == "text_to_item")].set_index("method")
    assert set(rows["rank_from"]) == {WIDENED, ""} and rows.loc["a", "ranked"] == 4
    ranks = {name: (rows.loc[name, "rank_low"], rows.loc[name, "rank_high"]) for name in "abcd"}
    assert ranks == {"a": (1, 2), "c": (1, 2), "d": (3, 3), "b": (4, 4)}
    assert rows.loc["chance", "group"] == "" and np.isnan(rows.loc["chance", "rank_low"])


def test_the_ranks_of_one_study_are_its_own(tmp_path):
    study = finished(tmp_path, "one", {"a": 90, "b": 10}, tests=True)
    cells, _ = rank_cells([study])
    assert set(cells["rank_from"]) == {OWN} and set(cells["rank_high"]) == {2}, "not counted from intervals"


@pytest.mark.parametrize(
    "change",
    [
        {"digest": "9c" * 32},
        {"digest": None},
        {"frames": 8},
        {"epochs": 6},
        {"confidence": 0.9},
        {"pretraining": "4 epochs of pre-training"},
        {"dataset": "others", "title": "Clips"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_differs_is_never_in_one_ranking(tmp_path, change):
    studies = [
        finished(tmp_path, "one", {"a": 80, "b": 30}, 0),
        finished(tmp_path, "two", {"c": 78, "d": 50}, 1, **change),
    ]
    cells, groups = rank_cells(studies)
    assert groups_of(cells) == {(0, "a"): "A", (0, "b"): "A", (1, "c"): "B", (1, "d"): "B"}
    assert set(cells["ranked"]) == {2} and [group.studies for group in groups] == [(0,), (1,)]


def test_data_of_unknown_version_are_ranked_within_their_study_alone(tmp_path):
    studies = [finished(tmp_path, name, {name: 80, f"{name}2": 30}, k, digest=None) for k, name in enumerate("xy")]
    assert len(rank_cells(studies)[1]) == 2


def test_another_mode_of_searching_captions_splits_one_direction_alone(tmp_path):
    studies = [
        finished(tmp_path, "one", {"a": 80}, 0),
        finished(tmp_path, "two", {"b": 30}, 1, item_to_text="best_caption"),
    ]
    cells, _ = rank_cells(studies)
    ranked = cells.groupby("direction")["ranked"].max().to_dict()
    assert ranked == {"text_to_item": 2, "item_to_text": 0}


def test_another_gallery_has_a_prime_and_a_ranking_of_its_own(tmp_path):
    studies = [
        finished(tmp_path, "one", {"a": 80, "b": 30}, 0),
        finished(tmp_path, "two", {"c": 78, "d": 50}, 1, clusters=150),
    ]
    cells, groups = rank_cells(studies)
    assert set(groups_of(cells).values()) == {"A", "A′"} and len(groups) == 1 and set(cells["ranked"]) == {2}


@pytest.mark.parametrize(("option", "value"), [("seeds", 1), ("clusters", 19)])
def test_what_is_too_little_for_a_claim_has_no_rank(tmp_path, option, value):
    cells, _ = rank_cells([finished(tmp_path, "one", {"a": 80, "b": 30}, **{option: value})])
    assert cells["rank_low"].isna().all() and (cells["unranked"] != "").all()


def test_the_page_is_one_document_that_asks_no_network(tmp_path):
    labels = {"a": MethodCard(HOSTILE, TRAINED), "b": MethodCard("=1+1", TRAINED)}
    write_results(tmp_path / "results/one", {"a": 80, "b": 30}, seeds=2)
    names = card("one", {}, title=HOSTILE, methods=labels)
    study = read_board_study(tmp_path / "results/one", names, 0, "results/one", page="../results/one/report.html")
    page, *tables = Board([study]).write(tmp_path / "board")
    assert [path.name for path in (page, *tables)] == [
        "index.html",
        "board.csv",
        "board.tex",
        "board.bib",
        "board.json",
    ]
    text = page.read_text()
    reader = Reader(text)
    assert len(set(reader.ids)) == len(reader.ids) and len(reader.scripts) == 2
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert "<script>alert" not in text and "onclick='" not in outside and "<b onclick" not in text
    assert all(address.startswith(("#", "data:", "../results/one/report.html")) for address in reader.addresses)
    assert (
        not re.search(r"https?://(?!github.com/rewind-bench/rewind)|@import|\bfetch\(|XMLHttpRequest", text)
        and "default-src 'none'" in text
    )
    copies = read_json_script(next(content for key, content in reader.scripts if key == "table-copies"))["board"]
    assert copies == {"LaTeX": tables[1].read_text(), "BibTeX": tables[2].read_text(), "CSV": tables[0].read_text()}
    assert copies["BibTeX"].count("@") == 2 and copies["BibTeX"].count("{") == copies["BibTeX"].count("}")
    assert "'=1+1" in copies["CSV"], "a spreadsheet would compute it"
    assert read_spreadsheet(tables[0])["label"].tolist()[-1] == "=1+1"
    content = json.loads(tables[3].read_text())
    assert content["format"] == 1 and content["cells"][0]["label"] == HOSTILE and content["groups"][0]["letter"] == "A"


def test_studies_of_one_name_are_told_apart(tmp_path):
    studies = [
        finished(tmp_path / "x", "one", {"a": 80}, 0),
        finished(tmp_path / "y", "one", {"a": 30}, 1),
    ]
    studies[1] = read_board_study(tmp_path / "y/results/one", studies[1].card, 1, "one.rewind.zip", shared=True)
    assert Board(studies).names == ["one (results/one)", "one (one.rewind.zip)"]
    studies[1] = read_board_study(tmp_path / "y/results/one", studies[1].card, 1, "results/one")
    assert Board(studies).names == ["one (1: results/one)", "one (2: results/one)"]


def test_broken_results_are_refused_by_file_and_row(tmp_path):
    folder = tmp_path / "results/one"
    write_results(folder, {"a": 80, "b": 30})
    intervals = folder / "statistics/intervals.csv"
    whole, names = read_csv(intervals), card("one", {"a": TRAINED, "b": TRAINED})
    broken = {
        "direction": whole.assign(direction="sideways"),
        "setting": whole.assign(setting="<b>"),
        "method": whole.assign(method="other"),
        "twice": pd.concat([whole, whole.head(1)]),
        "metric": whole.assign(metric="R@7"),
        "column": whole.drop(columns="estimate"),
        "text": whole.astype({"low": object}).assign(low=["x", *whole["low"].tolist()[1:]]),
        "infinite": whole.assign(estimate=np.inf),
    }
    for table in broken.values():
        table.to_csv(intervals, index=False)
        with pytest.raises(Exception) as caught:
            read_board_study(folder, names, 0)
        assert str(intervals) in str(caught.value)
    whole.to_csv(intervals, index=False)
    for content in ("[]", "{", '{"spec": 3}', '{"spec": {"method": {"training": {"epochs": "5"}}}}'):
        path = folder / "runs/a/seed1/run.json"
        path.write_text(content)
        with refusal("results/one/runs/a/seed1/run.json"):
            read_board_study(folder, names, 0)


def test_a_method_is_of_the_kind_that_its_study_makes_of_it():
    data = load_dataset("shapes", ROOT / "config/datasets")

    def kinds(**models: str) -> dict[str, str]:
        methods = {name: {"model": model} for name, model in models.items()}
        study = Study(name="s", dataset="shapes", methods=methods, sanity=None)
        return {name: method.kind for name, method in study_card(study, data).methods.items()}

    assert kinds(a="clip4clip", r="ridge", z="zero_shot") == {"a": TRAINED, "r": BASELINE, "z": ZERO_SHOT}
    assert kinds(r="ridge", c="chance") == {"r": COMPARED, "c": BASELINE}, "a study of baselines compares them"


# ---- One rank over data sets ---------------------------------------------------------------------------------------


def on_data_sets(folder, values, **changes):
    """A study for each data set; ``values``: data set → method → R@1."""
    return [
        finished(folder, name, own, number, dataset=name, title=name.title(), seeds=4, **changes)
        for number, (name, own) in enumerate(values.items())
    ]


def test_methods_of_one_label_have_a_mean_rank_over_data_sets(tmp_path):
    values = {
        "shapes": {"a": 90, "b": 50, "c": 20, "chance": 1},
        "emoji": {"a": 60, "c": 40, "b": 10},
        "films": {"b": 80, "a": 50, "c": 20, "d": 30},
    }
    board = Board(on_data_sets(tmp_path, values))
    table = next(one for one in board.over_data_sets if (one.setting, one.direction) == ("hard", "item_to_text"))
    assert len(board.over_data_sets) == 4 and table.data_sets == ["shapes", "emoji", "films"]
    found = {method.label: (list(method.ranks.values()), method.mean) for method in table.methods}
    assert found == {"a": ([1, 1, 2], 4 / 3), "b": ([2, 3, 1], 2), "c": ([3, 2, 3], 8 / 3)}
    assert table.left_out == ("d",) and table.says_little
    first = table.methods[0]
    assert first.label == "a" and (first.shown_best, first.shown_beaten) == (1, 1) and first.low == 1 < first.high
    page = board.write(tmp_path / "board")[0].read_text()
    assert "Over data sets" in page and "With 3 data sets an interval may hold every place" in page
    assert "Hard, text → item: 3 methods on 3 data sets (not on all of these: d)" in page
    stored = json.loads((tmp_path / "board/board.json").read_text())["over_data_sets"][0]
    assert stored["methods"][0]["ranks"] == {"shapes": 1, "emoji": 1, "films": 2}


def test_what_is_in_different_groups_on_some_data_set_is_not_ranked_over_them(tmp_path):
    studies = on_data_sets(tmp_path, {"shapes": {"a": 90, "b": 50}, "emoji": {"a": 60, "b": 40}})
    studies += [
        finished(tmp_path, "longer", {"c": 70}, 2, dataset="shapes", seeds=4, epochs=9),
        finished(tmp_path, "other", {"c": 20}, 3, dataset="emoji", seeds=4),
    ]
    labels = {tuple(method.label for method in table.methods) for table in Board(studies).over_data_sets}
    assert labels == {("a", "b")}


def test_one_data_set_or_a_label_of_two_rows_has_no_mean_rank(tmp_path):
    assert not Board(on_data_sets(tmp_path / "one", {"shapes": {"a": 90, "b": 50}})).over_data_sets
    studies = on_data_sets(tmp_path / "two", {"shapes": {"a": 90, "b": 50}, "emoji": {"a": 60, "b": 40}})
    studies.append(finished(tmp_path / "two", "again", {"b": 70}, 2, dataset="emoji", seeds=4))
    assert not Board(studies).over_data_sets


def test_a_study_s_quoted_numbers_are_on_the_board_and_travel(tmp_path):
    keys = {"methods": {"a": {}}, "evaluation": {"settings": ["origin", "binary"]}}
    quoted = [
        {
            "method": "People",
            "setting": "binary",
            "value": 97.3,
            "source": "2412.19178, Table 3",
            "differs": "30 clips",
        },
        {"method": "TARA", "setting": "origin", "value": 41.0, "source": "its page"},
        {"method": "TARA", "setting": "origin", "metric": "MdR", "value": 3.0, "source": "its page"},
    ]
    study = Study(name="s", dataset="shapes", tables={"quoted": quoted}, **keys)
    made = study_card(study, load_dataset("shapes", ROOT / "config/datasets"))
    again = StudyCard.from_json(json.loads(json.dumps(made.to_json())), "card.json")
    assert again == made and [method.source for method in made.quoted] == ["2412.19178, Table 3 (30 clips)", "its page"]
    results = finished(tmp_path, "shapes", {"a": 40}, dataset="shapes", settings=["origin"], seeds=4)
    board = Board([replace(results, card=replace(results.card, quoted=made.quoted))] * 1, made.quoted)
    assert [method.label for method in board.quoted] == ["People", "TARA"], "once, though given twice"
    page = board.write(tmp_path / "board")[0].read_text()
    assert "quoted: its page" in page and "Quoted numbers are those of their sources" in page
