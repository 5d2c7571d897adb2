"""Ranks, ties and metrics: against CLIP4Clip's own function, against brute force, and against hand-made cases."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden_numbers import agree, load_json
from messages import refusal
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.ranking_metrics import expected_worth, hits, recall_at, reciprocal_rank


def tables(n: int, twins: bool = False):
    """Captions and items, one to one; with ``twins`` every second item is the reverse of the one before."""
    ids = [f"v{i // 2}_rev" if twins and i % 2 else f"v{i // 2 if twins else i}" for i in range(n)]
    items = pd.DataFrame(
        {
            "item_id": ids,
            "cluster_id": [i.removesuffix("_rev") for i in ids],
            "reversed": [int("_rev" in i) for i in ids],
        }
    )
    captions = pd.DataFrame({"caption_id": [f"{i}#0" for i in ids], "video_id": ids})
    return captions, items


def table_of(similarity, setting="test", direction="text_to_item", twins=False):
    captions, items = tables(len(similarity), twins)
    return rank_table(np.asarray(similarity, dtype=float), captions, items, [setting], [direction])


@pytest.mark.golden
def test_untied_metrics_equal_clip4clip():
    for case in load_json("clip4clip/metrics.json")["matrices"]:
        for direction, name in (("text_to_item", "text_to_video"), ("item_to_text", "video_to_text")):
            table = table_of(case["matrix"], direction=direction)
            found, wanted = compute_metrics(table), case[name]
            for ours, theirs in (("R@1", "R1"), ("R@5", "R5"), ("R@10", "R10"), ("MdR", "MedianR"), ("MnR", "MeanR")):
                agree("CLIP4Clip, metrics", "of matrices", found[ours], wanted[theirs], rtol=1e-6)
            agree("CLIP4Clip, metrics", "ranks", table["higher"].to_numpy(), wanted["cols"])


@pytest.mark.golden
def test_several_captions_per_item_equal_clip4clip():
    for case in load_json("clip4clip/metrics.json")["multi_sentence"]:
        counts = case["captions_per_video"]
        items = pd.DataFrame({"item_id": [f"v{i}" for i in range(len(counts))], "reversed": 0})
        items["cluster_id"] = items["item_id"]
        videos = [f"v{i}" for i, count in enumerate(counts) for _ in range(count)]
        captions = pd.DataFrame({"caption_id": [f"c{i}" for i in range(len(videos))], "video_id": videos})
        table = rank_table(np.array(case["matrix"]), captions, items, ["test"], ["text_to_item"])
        found = compute_metrics(table)
        for ours, theirs in (("R@1", "R1"), ("R@5", "R5"), ("R@10", "R10"), ("MnR", "MeanR")):
            agree("CLIP4Clip, metrics", "several captions", found[ours], case["text_to_video"][theirs], atol=1e-4)
        back = ["test"], ["item_to_text"], "similarity"
        table = rank_table(np.array(case["matrix"]), captions, items, *back, "best_caption")
        agree("CLIP4Clip, metrics", "ranks", table["higher"].to_numpy(), case["video_to_text"]["cols"])
        assert (table["ties"] == 0).all() and (table["gallery"] == len(counts)).all()
        back_metrics = compute_metrics(table)
        for ours, theirs in (("R@1", "R1"), ("R@5", "R5"), ("R@10", "R10"), ("MdR", "MedianR"), ("MnR", "MeanR")):
            wanted = case["video_to_text"][theirs]
            agree("CLIP4Clip, metrics", "several captions", back_metrics[ours], wanted, rtol=1e-9)
        shuffled = np.random.default_rng(0).permutation(len(captions))
        again = rank_table(np.array(case["matrix"])[shuffled], captions.iloc[shuffled], items, *back, "best_caption")
        assert again["rank"].tolist() == table["rank"].tolist()
        every = rank_table(np.array(case["matrix"]), captions, items, *back)
        assert (every["gallery"] == len(captions)).all() and (every["rank"] >= table["rank"]).all()


def first_hits(queries: dict[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    """Ranks of queries (scores of documents, which of them are relevant): documents are an item's captions here."""
    rows = []
    for name, (scores, relevant) in queries.items():
        ids = [f"c{n}" for n in range(len(scores))]
        captions = pd.DataFrame({"caption_id": ids, "video_id": np.where(relevant, "own", "other")})
        items = pd.DataFrame({"item_id": ["own", "other"], "cluster_id": ["own", "other"], "reversed": 0})
        table = rank_table(np.stack([scores, scores], axis=1), captions, items, ["test"], ["item_to_text"])
        rows.append(table[table["query_id"] == "own"].assign(query_id=name))
    return pd.concat(rows, ignore_index=True)


WHOLE_RUNS = [
    "multi_relevant_no_ties",
    "single_relevant_no_ties",
    "score_ties",
    "explicit_zero_judgement",
    "tie_order_probe",
]


@pytest.mark.golden
@pytest.mark.parametrize("name", WHOLE_RUNS)
def test_ranks_and_metrics_equal_those_of_ranx_and_ir_measures(name):
    """The cases where every document has a score: here nothing is ever cut off."""
    (case,) = (case for case in load_json("ranking.json")["cases"] if case["name"] == name)
    queries = {}
    for query, run in case["run"].items():
        relevant = np.array([case["qrels"][query].get(document, 0) > 0 for document in run])
        queries[query] = np.array(list(run.values())), relevant
    table = first_hits(queries)
    best, worst = ([case["ranks"][q][f"first_hit_{kind}"] for q in queries] for kind in ("optimistic", "pessimistic"))
    agree("Ranking", "ranks", 1 + table["higher"].to_numpy(), best)
    agree("Ranking", "ranks", (1 + table["higher"] + table["ties"]).to_numpy(), worst)
    found, ends = compute_metrics(table), (case["interval_pessimistic"], case["interval_optimistic"])
    for k in (1, 5, 10):
        low, high = (100 * end[f"hit_rate@{k}"] for end in ends)
        agree("Ranking", "metrics", [found[f"R@{k}_pessimistic"], found[f"R@{k}_optimistic"]], [low, high], rtol=1e-9)
        for tool in ("ranx", "ir_measures") if low == high else ():
            agree("Ranking", "metrics", found[f"R@{k}"], 100 * case[tool]["mean"][f"hit_rate@{k}"], rtol=1e-9)
    low, high = (end["mrr"] for end in ends)
    assert low - 1e-9 <= found["MRR"] <= high + 1e-9
    for tool in ("ranx", "ir_measures") if low == high else ():
        agree("Ranking", "metrics", found["MRR"], case[tool]["mean"]["mrr"], rtol=1e-9)


@pytest.mark.parametrize("case", load_json("ranking.json")["hand_checked"], ids=lambda case: case["name"])
def test_ranks_and_metrics_of_cases_checked_by_hand(case):
    scores = np.array(case["similarity"])
    columns = np.arange(scores.shape[1])
    relevant = [np.isin(columns, own) for own in case["relevant_columns"]]
    table = first_hits({str(n): query for n, query in enumerate(zip(scores, relevant, strict=True))})
    assert (1 + table["higher"]).tolist() == case["rank_optimistic"]
    assert (1 + table["higher"] + table["ties"]).tolist() == case["rank_pessimistic"]
    for kind in ("optimistic", "pessimistic"):
        ties = 0 if kind == "optimistic" else table["ties"]
        found = compute_metrics(table.assign(higher=table["higher"] + ties, ties=0, rank=1 + table["higher"] + ties))
        wanted = case[f"metrics_{kind}"]
        assert [found[name] for name in wanted] == pytest.approx(list(wanted.values()), rel=1e-9)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(1, 8))
def test_ties_are_an_expectation_over_their_orders(higher, ties, k):
    places = list(itertools.chain(range(higher + 1, higher + ties + 2)))  # where the truth may stand
    array = np.array([higher]), np.array([ties])
    assert recall_at(k, *array)[0] == pytest.approx(np.mean([place <= k for place in places]))
    assert expected_worth(hits(k), *array)[0] == recall_at(k, *array)[0]
    assert expected_worth(reciprocal_rank, *array)[0] == pytest.approx(np.mean([1 / place for place in places]))


@settings(max_examples=40)
@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_counts_equal_a_plain_loop(n, seed):
    scores = np.random.default_rng(seed).integers(0, 4, (n, n)).astype(float)
    table = table_of(scores)
    for i, row in enumerate(scores):
        others = np.delete(row, i)
        assert (table["higher"][i], table["ties"][i]) == ((others > row[i]).sum(), (others == row[i]).sum())


def test_a_constant_matrix_is_exactly_chance():
    found = compute_metrics(table_of(np.zeros((20, 20))))
    assert (found["R@1"], found["R@5"], found["R@10"]) == pytest.approx((5, 25, 50))
    assert found["MnR"] == found["MdR"] == 10.5
    assert (found["R@1_optimistic"], found["R@1_pessimistic"]) == (100, 0)


def test_a_perfect_matrix_with_several_captions_per_item_scores_one():
    items = pd.DataFrame({"item_id": ["a", "b", "c"], "cluster_id": ["a", "b", "c"], "reversed": 0})
    videos = ["a", "a", "b", "c", "c", "c"]
    captions = pd.DataFrame({"caption_id": [f"k{i}" for i in range(6)], "video_id": videos})
    scores = np.array([[1.0 if video == item else 0.0 for item in "abc"] for video in videos])
    table = rank_table(scores, captions, items, ["test"], ["text_to_item", "item_to_text"])
    assert (table["rank"] == 1).all() and len(table) == 9


def test_settings_of_a_set_with_twins():
    # captions and items: v0, v0_rev, v1, v1_rev
    scores = [[3, 4, 0, 0], [1, 2, 0, 0], [5, 0, 3, 3], [0, 0, 1, 2]]
    hard, origin, binary = (table_of(scores, name, twins=True) for name in ("hard", "origin", "binary"))
    assert hard["higher"].tolist() == [1, 0, 1, 0] and hard["ties"].tolist() == [0, 0, 1, 0]
    assert origin["query_id"].tolist() == ["v0#0", "v1#0"] and origin["higher"].tolist() == [0, 1]
    assert binary["higher"].tolist() == [1, 0] and binary["ties"].tolist() == [0, 1]
    assert compute_metrics(binary)["R@1"] == 25 and compute_metrics(binary)["R@1_pessimistic"] == 0
    other_way = table_of(scores, "binary", "item_to_text", twins=True)
    assert other_way["higher"].tolist() == [0, 0]
    assert set(hard["cluster_id"]) == {"v0", "v1"}


def test_origin_equals_a_sub_matrix_of_hard():
    scores = np.random.default_rng(0).normal(size=(12, 12))
    whole = table_of(scores, "origin", twins=True)
    part = table_of(scores[::2, ::2])
    assert whole["rank"].tolist() == part["rank"].tolist()


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (
            lambda s, c, i: s.__setitem__((1, 2), np.nan),
            "x.npz",
        ),
        (lambda s, c, i: i.__setitem__("item_id", ["v0", "v0", "v2"]), "x.npz"),
        (lambda s, c, i: c.__setitem__("video_id", ["v0", "v1", "zz"]), ""),
    ],
)
def test_what_cannot_be_ranked_is_refused_by_name(spoil, place):
    captions, items = tables(3)
    scores = np.eye(3)
    spoil(scores, captions, items)
    with refusal(place):
        rank_table(scores, captions, items, ["test"], ["text_to_item"], "x.npz")


@pytest.mark.parametrize(
    ("higher", "ties", "median", "mean"),
    [
        ([0, 1, 2, 9], [0, 0, 0, 0], 2.5, 4.0),  # ranks 1 2 3 10: the median lies between the middle two
        ([0, 4, 0], [0, 0, 0], 1.0, 7 / 3),
        ([0, 0, 3], [1, 2, 0], 2.0, 7.5 / 3),  # expected ranks 1.5, 2 and 4
        ([6], [3], 8.5, 8.5),
    ],
)
def test_median_and_mean_rank_by_hand(higher, ties, median, mean):
    table = pd.DataFrame({"higher": higher, "ties": ties, "gallery": 10})
    table["rank"] = 1 + table["higher"] + table["ties"] / 2
    found = compute_metrics(table)
    assert found["MdR"] == median and found["MnR"] == pytest.approx(mean)


def test_median_and_mean_rank_of_a_matrix_by_hand():
    scores = np.array([[9, 1, 2, 3], [8, 7, 9, 1], [5, 5, 5, 5], [3, 2, 1, 0]])
    found = compute_metrics(table_of(scores))  # ranks 1, 3, 1 + 3/2 and 4
    assert (found["MdR"], found["MnR"]) == (3, 2.625)
    back = compute_metrics(table_of(scores, direction="item_to_text"))  # ranks 1, 1, 2, 4
    assert (back["MdR"], back["MnR"]) == (1.5, 2.0)


def test_hard_without_twins_is_refused():
    with refusal("evaluation.settings"):
        table_of(np.eye(3), "hard")


def test_scores_tie_only_where_they_are_equal():
    close = np.nextafter(np.float32(0.5), np.float32(1))
    found = table_of([[0.5, close], [0.5, 0.5]])
    assert found["higher"].tolist() == [1, 0] and found["ties"].tolist() == [0, 1]
