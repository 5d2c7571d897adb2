"""Caption matching: scores are the mean over all orders of ties, and blind scorers gain nothing."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from messages import refusal
from rewind.evaluation.foils import binary_pair_values, combined_accuracy, foil_values, pair_scores, pair_values
from rewind.evaluation.ranking import rank_table


def strict_scores(s):
    """Winoground's definition, as it is printed."""
    text = s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0]
    video = s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1]
    return text, video, text and video


def in_all_orders(values, right):
    """Mean of ``right`` over all orders of the tied ones among ``values``."""
    orders = [sorted(order, key=lambda i: values[i]) for order in permutations(range(len(values)))]
    return np.mean([right(np.argsort(order)) for order in set(map(tuple, orders))], axis=0)


def test_pair_scores_are_the_mean_over_all_orders_of_ties():
    tables = np.array(list(product(range(4), repeat=4)), dtype=float)  # every pattern of four scores
    expected = np.array([in_all_orders(table, lambda ranks: strict_scores(ranks.reshape(2, 2))) for table in tables])
    found = np.stack(pair_scores(tables.reshape(-1, 2, 2)), axis=1)
    assert np.allclose(found, expected, atol=1e-12) and len(np.unique(found.round(6), axis=0)) > 10


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pair_scores_without_ties_are_winogrounds(dtype):
    scores = np.random.default_rng(0).permutation(4 * 200).reshape(200, 2, 2).astype(dtype)
    assert np.array_equal(np.stack(pair_scores(scores), axis=1), [strict_scores(s) for s in scores])


def test_chance_of_pairs_is_a_quarter_a_quarter_and_a_sixth_tied_or_independent():
    tied = [float(score[0]) for score in pair_scores(np.zeros((1, 2, 2)))]
    assert tied == pytest.approx([1 / 4, 1 / 4, 1 / 6])
    drawn = pair_scores(np.random.default_rng(0).normal(size=(200_000, 2, 2)))
    assert [score.mean() for score in drawn] == pytest.approx(tied, abs=0.005)


@pytest.mark.parametrize(
    ("scorer", "expected"),
    [
        (lambda clip, caption: caption + 0 * clip, (0, 1 / 4, 0)),
        (lambda clip, caption: clip + 0 * caption, (1 / 4, 0, 0)),
        (lambda clip, caption: clip.mean(axis=1, keepdims=True) * caption + 0 * clip, (0, 1 / 4, 0)),  # blind to order
    ],
)
def test_blind_scorers_have_no_group_score(scorer, expected):
    rng = np.random.default_rng(1)
    clip, caption = rng.normal(size=(500, 2, 1)), rng.normal(size=(500, 1, 2))
    found = pair_scores(scorer(clip, caption))
    assert all(np.array_equal(score, np.full(500, value)) for score, value in zip(found, expected, strict=True))


def test_a_sum_of_clip_and_caption_has_no_group_score_and_a_product_may():
    rng = np.random.default_rng(2)
    clip, caption = rng.integers(0, 4, size=(2000, 2, 1)), rng.integers(0, 4, size=(2000, 1, 2))
    summed = clip + caption
    all_tied = (summed == summed[:, :1, :1]).all(axis=(1, 2))
    assert all_tied.any() and not pair_scores(summed).group[~all_tied].any()
    guesses = np.array([1.0, -1.0])
    assert pair_scores((guesses[:, None] * guesses)[None]).group.tolist() == [1]


def test_pairs_of_another_shape_or_without_a_number_are_refused():
    with pytest.raises(ValueError, match=r"\(n, 2, 2\)"):
        pair_scores(np.zeros((3, 2, 3)))
    scores = np.zeros((3, 2, 2))
    scores[1, 0, 1] = np.nan
    with refusal():
        pair_scores(scores)


# ---- A clip and its twin -------------------------------------------------------------------------------------------


CAPTIONS = pd.DataFrame(
    {
        "caption_id": ["a#0", "a#1", "a_rev#0", "b#0", "b_rev#0", "c#0", "d#0"],
        "video_id": ["a", "a", "a_rev", "b", "b_rev", "c", "d"],
    }
)
ITEMS = pd.DataFrame(
    {
        "item_id": ["b_rev", "a", "c", "a_rev", "b", "d", "d_rev"],
        "cluster_id": ["film", "a", "c", "a", "film", "d", "d"],
        "reversed": [1, 0, 0, 1, 0, 0, 1],
    }
)


def matrix(seed=0):
    return np.random.default_rng(seed).integers(0, 3, size=(len(CAPTIONS), len(ITEMS))).astype(np.float32)


def test_every_pair_of_binary_is_a_clip_and_its_twin_with_their_kth_captions():
    table = binary_pair_values(matrix(), CAPTIONS, ITEMS)
    assert table.columns.tolist() == ["metric", "query_id", "cluster_id", "value"]
    assert table["metric"].unique().tolist() == ["text", "video", "group"]
    assert table["query_id"].tolist() == ["a#0", "a#1", "b#0"] * 3, "d's twin has no caption, c has no twin"
    assert table["cluster_id"].tolist() == ["a", "a", "film"] * 3
    scores = pd.DataFrame(matrix(), index=CAPTIONS["caption_id"], columns=ITEMS["item_id"])
    # The twin of `a` has one caption, which is the partner of both of the original's.
    partners = {"a#0": ("a", "a_rev#0"), "a#1": ("a", "a_rev#0"), "b#0": ("b", "b_rev#0")}
    for (query, metric), value in table.set_index(["query_id", "metric"])["value"].items():
        clip, partner = partners[query]
        pair = np.array([[scores.loc[caption, item] for caption in (query, partner)] for item in (clip, f"{clip}_rev")])
        assert value == pytest.approx(100 * getattr(pair_scores(pair[None]), metric)[0])


def test_group_of_binary_is_at_most_its_accuracy_in_either_direction():
    similarity = np.random.default_rng(3).normal(size=(len(CAPTIONS), len(ITEMS)))
    values = binary_pair_values(similarity, CAPTIONS, ITEMS).pivot(index="query_id", columns="metric", values="value")
    ranks = rank_table(similarity, CAPTIONS, ITEMS, ["binary"], ["text_to_item", "item_to_text"])
    right = ranks.assign(right=100.0 * (ranks["rank"] == 1)).pivot(
        index="query_id", columns="direction", values="right"
    )
    assert (values["video"] <= right["text_to_item"]).all() and (values["text"] <= right["item_to_text"]).all()
    assert (values["group"] <= values[["text", "video"]].min(axis=1)).all()


def test_a_preference_for_clips_that_run_forward_wins_binary_and_no_group_score():
    similarity = np.tile(1.0 - ITEMS["reversed"].to_numpy(), (len(CAPTIONS), 1))
    ranks = rank_table(similarity, CAPTIONS, ITEMS, ["binary"], ["text_to_item"])
    assert (ranks["rank"] == 1).all()
    values = binary_pair_values(similarity, CAPTIONS, ITEMS).groupby("metric")["value"].mean()
    assert values.to_dict() == {"group": 0, "text": 25, "video": 0}


def test_pairs_of_two_clips_are_looked_up_by_id():
    captions = pd.DataFrame({"caption_id": ["0_pos#0", "1_pos#0", "1_neg#0", "0_neg#0"]})
    captions["video_id"] = captions["caption_id"].str.removesuffix("#0")
    items = pd.DataFrame({"item_id": ["1_neg", "0_pos", "0_neg", "1_pos"], "cluster_id": ["1", "0", "0", "1"]})
    similarity = (captions["video_id"].to_numpy()[:, None] == items["item_id"].to_numpy()).astype(float)
    similarity[3, 2] = -1  # the second caption of pair 0 scores its own clip below the other one
    first, second = ["1_pos#0", "0_pos#0"], ["1_neg#0", "0_neg#0"]
    pairs = pd.DataFrame({"pair_id": ["1", "0"], "first": first, "second": second, "kind": ["action", "object"]})
    table = pair_values(similarity, captions, items, pairs)
    assert table["value"].tolist() == [100, 0] * 3 and table["query_id"].tolist() == ["1", "0"] * 3
    assert table["cluster_id"].tolist() == ["1", "0"] * 3 and table["kind"].tolist() == ["action", "object"] * 3
    with refusal("caption '1_neg#0'"):
        pair_values(similarity[:2], captions[:2], items, pairs)


# ---- A caption and its foils ---------------------------------------------------------------------------------------


def questions(*rows):
    """Rows of foils from (caption, kind, truth, scores of foils)."""
    table = [(name, kind, name.partition("#")[0], truth, foil) for name, kind, truth, foils in rows for foil in foils]
    return pd.DataFrame(table, columns=["caption_id", "kind", "cluster_id", "truth", "foil"])


def by_question(table, metric):
    return table[table["metric"] == metric].set_index(["query_id", "kind"])["value"].to_dict()


@pytest.mark.parametrize("foils", [1, 2, 3])
def test_foil_values_are_the_mean_over_all_orders_of_ties(foils):
    for scores in product(range(3), repeat=foils + 1):
        found = foil_values(questions(("a#0", "x", scores[0], scores[1:])))
        first = in_all_orders(scores, lambda ranks: ranks[0] == ranks.max())
        above = in_all_orders(scores, lambda ranks: (ranks[0] > ranks[1:]).mean())
        assert by_question(found, "accuracy")["a#0", "x"] == pytest.approx(100 * first)
        assert by_question(found, "pairwise")["a#0", "x"] == pytest.approx(100 * above)


def test_a_model_with_one_score_for_everything_is_at_chance():
    table = foil_values(questions(("a#0", "x", 0.5, [0.5] * 3), ("b#0", "y", 0.5, [0.5])))
    assert np.allclose(table["value"], table["chance"])
    assert by_question(table, "accuracy") == {("a#0", "x"): 25, ("b#0", "y"): 50}


def test_questions_are_a_caption_and_a_kind_and_foils_need_not_be_neighbours():
    table = questions(("b#0", "x", 0.5, [0.1, 0.9]), ("a#0", "x", 0.5, [0.1]), ("b#0", "y", 0.5, [0.4]))
    shuffled = table.iloc[[0, 2, 3, 1]]
    found = foil_values(shuffled)
    assert by_question(found, "accuracy") == {("b#0", "x"): 0, ("a#0", "x"): 100, ("b#0", "y"): 100}
    assert by_question(found, "pairwise") == {("b#0", "x"): 50, ("a#0", "x"): 100, ("b#0", "y"): 100}
    assert (
        found["query_id"].tolist() == ["b#0", "a#0", "b#0"] * 2 and found["cluster_id"].tolist() == ["b", "a", "b"] * 2
    )


def test_scores_of_foils_that_contradict_each_other_are_refused():
    table = questions(("a#0", "x", 0.5, [0.1, 0.9]))
    with refusal("caption 'a#0'"):
        foil_values(table.assign(truth=[0.5, 0.6]))
    with refusal("caption 'a#0'"):
        foil_values(table.assign(cluster_id=["a", "b"]))
    with refusal("caption 'a#0'"):
        foil_values(table.assign(foil=[0.5, np.nan]))


def test_combined_accuracy_is_the_mean_over_all_orders_of_ties():
    for scores in product(range(3), repeat=4):
        main, foil, proficient, other_foil = scores
        table = questions(("a#0", "main", main, [foil]), ("a#1", "proficiency", proficient, [other_foil]))
        found = combined_accuracy(table, pd.DataFrame({"caption_id": ["a#0"], "proficiency_id": ["a#1"]}))
        expected = in_all_orders(scores, lambda ranks: ranks[0] > ranks[1] and ranks[2] > ranks[3])
        assert found["value"].tolist() == pytest.approx([100 * expected]) and found["chance"].tolist() == [25]


def test_one_true_caption_of_both_questions_has_one_place_in_the_order():
    for scores in product(range(3), repeat=4):
        truth, first, second, other_foil = scores
        table = questions(("a#0", "main", truth, [first, second]), ("a#0", "proficiency", truth, [other_foil]))
        found = combined_accuracy(table, pd.DataFrame({"caption_id": ["a#0"], "proficiency_id": ["a#0"]}))
        expected = in_all_orders(scores, lambda ranks: ranks[0] == ranks.max())
        assert found["value"].tolist() == pytest.approx([100 * expected]) and found["chance"].tolist() == [25]


def test_combined_accuracy_is_that_of_questions_with_a_proficiency_question():
    table = questions(
        *(("a#0", "main", 3, [1]), ("a#1", "proficiency", 1, [2]), ("b#0", "main", 3, [1])),
        *(("c#0", "main", 3, [1]), ("c#1", "proficiency", 3, [2])),
    )
    links = pd.DataFrame({"caption_id": ["c#0", "a#0"], "proficiency_id": ["c#1", "a#1"]})
    found = combined_accuracy(table, links)
    assert found.set_index("query_id")["value"].to_dict() == {"a#0": 0, "c#0": 100}
    assert (found["metric"] == "combined").all() and found["cluster_id"].tolist() == ["a", "c"]
    with refusal("caption 'c#1'"):
        combined_accuracy(table.iloc[:-1], links)
