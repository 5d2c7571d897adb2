"""What queries found, against the obvious loops, and which of them are shown as examples."""

import re

import numpy as np
import pandas as pd
import pytest

from messages import expect_message, refusal
from page_numbers import SETTINGS, WAYS, explorer, scores, split
from rewind.evaluation.ranking import rank_table
from rewind.report.examples import choice_sentence, choose_examples, classify_outcomes
from rewind.report.explorer import (
    MARGIN_STEPS,
    NO_TWIN,
    ScoredSplit,
    make_query_view,
    pack_array,
    quantise_margins,
    search_results,
    unpack_array,
)

CAPTIONS, ITEMS = split(7)
TEST = ScoredSplit.of(CAPTIONS, ITEMS)


def results_of(view, matrix, split=TEST):
    """The ten best candidates of every query, and margins."""
    return search_results([view], matrix, split, 10)[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("tied", [False, True])
def test_the_truth_stands_where_its_rank_says(setting, way, tied):
    matrix = scores(len(ITEMS), 5, tied)
    found = make_query_view(TEST, setting, way)
    ranks = rank_table(matrix, CAPTIONS, ITEMS, [setting], [way])
    assert found.ids.tolist() == ranks["query_id"].tolist()
    best = results_of(found, matrix).top
    assert best.shape == (len(found.ids), min(10, found.candidates.shape[-1]))
    for row, (higher, ties) in enumerate(zip(ranks["higher"], ranks["ties"], strict=True)):
        items = best[row] if way == "text_to_item" else TEST.own[best[row]]
        place = np.flatnonzero(items == found.truth[row])
        if higher + ties < best.shape[1]:
            assert higher <= place[0] <= higher + ties
        column = found.queries[row] if way == "text_to_item" else None
        values = matrix[column, best[row]] if way == "text_to_item" else matrix[best[row], found.truth[row]]
        assert (np.diff(values) <= 0).all() and len(set(best[row])) == len(best[row])


def test_equal_scores_stand_in_the_files_order():
    found = make_query_view(TEST, "hard", "text_to_item")
    assert results_of(found, np.zeros((14, 14))).top.tolist() == [list(range(10))] * 14


@pytest.mark.parametrize("way", WAYS)
def test_margins_say_which_of_the_two_is_preferred(way):
    matrix = scores(len(ITEMS), 3)
    for setting in ("hard", "binary"):
        found = make_query_view(TEST, setting, way)
        margin = results_of(found, matrix).margin
        for row, query in enumerate(found.queries):
            if way == "text_to_item":
                gap = (matrix[query, found.truth[row]] - matrix[query, found.rival[row]]) / matrix[query].std()
            else:
                item = found.truth[row]  # one caption an item, so that captions and items have the same numbers
                gap = (matrix[item, item] - matrix[item ^ 1, item]) / matrix[:, item].std()
            assert margin[row] == pytest.approx(gap, rel=1e-5)
        if way == "text_to_item":
            assert (results_of(found, scores(len(ITEMS), 3, tied=True)).margin == 0).all()
    assert np.isnan(results_of(make_query_view(TEST, "origin", way), matrix).margin).all(), (
        "no twin in Origin's gallery"
    )


def test_several_captions_an_item():
    """Searching captions, the best own caption counts, and Binary takes the twin's caption at the same place."""
    captions = pd.DataFrame(
        {"caption_id": list("abcd"), "video_id": ["x", "x", "x_rev", "x_rev"], "caption": list("stuv")}
    )
    items = pd.DataFrame({"item_id": ["x", "x_rev"], "reversed": [0, 1], "path": "p", "cluster_id": "x"})
    test = ScoredSplit.of(captions, items)
    matrix = np.array([[1.0, 0], [4, 1], [2, 5], [3, 2]])
    assert results_of(make_query_view(test, "hard", "item_to_text"), matrix, test).margin == pytest.approx(
        [(4 - 3) / matrix[:, 0].std(), (5 - 1) / matrix[:, 1].std()]
    )
    binary = make_query_view(test, "binary", "item_to_text")
    assert binary.candidates.tolist() == [[0, 2], [1, 3]] and results_of(binary, matrix, test).top.tolist() == [
        [2, 0],
        [1, 3],
    ]


def test_stored_margins_keep_ties_and_signs():
    values = np.array([0.0, 1e-7, -1e-7, 2.5, -99.0, np.nan])
    assert quantise_margins(values).tolist() == [0, 1, -1, 2.5 * MARGIN_STEPS, -32_767, NO_TWIN]
    assert unpack_array(pack_array(np.array([[1, 2], [3, 65_535]]), "u2"), "u2").tolist() == [1, 2, 3, 65_535]


def test_runs_are_stored_as_they_are():
    made, kept = explorer(7, ["seqLSTM"], seeds=1)
    data = made.data({"seqLSTM": "LSTM"}, (), ITEMS["path"], [0] * len(ITEMS))
    hard = next(v for v in data["views"] if (v["setting"], v["direction"]) == ("hard", "text_to_item"))
    found, matrix = make_query_view(TEST, "hard", "text_to_item"), kept["seqLSTM", 0]
    run = hard["runs"]["seqLSTM/0"]
    ranks = rank_table(matrix, CAPTIONS, ITEMS, ["hard"], ["text_to_item"])["rank"]
    assert unpack_array(run["rank"], "f4").tolist() == ranks.tolist()
    assert unpack_array(run["top"], "u2").reshape(-1, 10).tolist() == results_of(found, matrix).top.tolist()
    assert (hard["gallery"], hard["top"], hard["wide"]) == (14, 10, False)
    assert unpack_array(hard["queries"], "i4").tolist() == list(range(14))


def test_runs_that_do_not_fit_are_refused():
    made, kept = explorer(7, ["seqLSTM"], seeds=1)
    ranks = rank_table(kept["seqLSTM", 0], CAPTIONS, ITEMS, list(SETTINGS), list(WAYS))
    with refusal("a.npz"):
        made.add("m", 0, kept["seqLSTM", 0], ranks[ranks["setting"] != "hard"], "a.npz")
    with refusal("a.npz"):
        made.add("m", 0, kept["seqLSTM", 0][:3], ranks, "a.npz")
    with refusal("b.npz"):
        made.check(ScoredSplit.of(CAPTIONS, ITEMS.iloc[::-1]), "b.npz")


def test_every_query_has_one_outcome():
    higher, ties = np.array([0, 1, 1, 0, 0, 5, 0]), np.array([0, 0, 0, 1, 1, 0, 2])
    margin = np.array([1.0, -1, 1, 0, np.nan, -1, 0])
    assert classify_outcomes(higher, ties, margin).tolist() == ["hit", "twin", "miss", "twin", "miss", "miss", "miss"]


def test_examples_are_a_fixed_choice_that_is_said():
    kinds = np.array(["hit"] * 10 + ["miss"] + ["twin"] * 4)
    assert choose_examples(kinds, 5) == [2, 7, 10, 12, 14]
    assert choose_examples(kinds, 50) == list(range(15)) and choose_examples(kinds, 0) == []
    assert choose_examples(np.array(["miss"] * 3), 2) == [0, 2]
    said = choice_sentence(kinds, choose_examples(kinds, 5))
    assert re.findall(r"\d+ of \d+", said) == ["2 of 10", "1 of 1", "2 of 4"]
    expect_message(said)
