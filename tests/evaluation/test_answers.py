"""Several right answers: values are means over all orders of tied candidates, and those of other tools without ties."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewind.data.readers import MISSING_SCORE
from rewind.errors import RewindError
from rewind.evaluation.answers import (
    ANSWER_METRICS,
    answer_values,
    expected_average_precision,
    expected_hit,
    expected_ndcg,
    judged_share,
    tie_groups,
)
from rewind.ranking_metrics import METRICS, recall_at

WAYS = ["text_to_item", "item_to_text"]


def metrics_of_order(grades: np.ndarray) -> dict[str, float]:
    """The textbook's definitions for one ranking without ties, from the first rank to the last."""
    right, ideal = grades > 0, sorted(grades, reverse=True)
    ranks = np.flatnonzero(right) + 1
    values = {"AP": np.mean([right[:rank].mean() for rank in ranks])}
    values |= {f"R@{k}": float(ranks[0] <= k) for k in (1, 2, 3, 5, 10)}
    for name, k in (("nDCG", len(right)), ("nDCG@3", 3), ("nDCG@10", 10)):
        gained, best = (sum(g / np.log2(1 + rank) for rank, g in enumerate(row[:k], 1)) for row in (grades, ideal))
        values[name] = gained / best
    return values


def mean_over_orders(scores: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Every order of the candidates that goes from the highest score to the lowest, each once."""
    groups = [np.flatnonzero(scores == score) for score in sorted(set(scores), reverse=True)]
    orders = product(*(list(permutations(group)) for group in groups))
    found = [metrics_of_order(right[np.concatenate(order)]) for order in orders]
    return {name: np.mean([values[name] for values in found]) for name in found[0]}


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_values_are_the_mean_over_all_orders_of_tied_candidates(levels, graded, seed):
    generator = np.random.default_rng([levels, seed])
    scores = generator.integers(0, levels, 7 if levels > 1 else 6).astype(np.float32)
    right = generator.random(len(scores)) < 0.4
    right[generator.integers(len(right))] = True
    if graded:
        right = right * generator.integers(1, 4, len(right))
    groups, wanted = tie_groups(scores, right), mean_over_orders(scores, right)
    found = {name: metric(groups) for name, metric in ANSWER_METRICS.items()}
    found |= {f"R@{k}": expected_hit(groups, k) for k in (2, 3)} | {"nDCG@3": expected_ndcg(groups, 3)}
    assert found == pytest.approx(wanted, abs=1e-12) and set(found) == set(wanted)


def test_groups_of_ties_go_from_the_highest_score_to_the_lowest():
    groups = tie_groups(np.array([0.0, 2.0, -0.0, 1.0, 2.0]), np.array([1, 0, 3, 0, 2]))
    assert groups.sizes.tolist() == [2, 1, 2] and groups.rights.tolist() == [1, 0, 2]
    assert groups.gains.tolist() == [2, 0, 4] and groups.ideal.tolist() == [3, 2, 1]


def test_where_all_candidates_tie_precision_is_that_of_a_random_order():
    """One right of n: the mean of 1/rank, a harmonic number over n; all right: 1."""
    n = 50

    def tied(right: int):
        return tie_groups(np.zeros(n), np.arange(n) < right)

    assert expected_average_precision(tied(1)) == pytest.approx((1 / np.arange(1, n + 1)).mean())
    assert expected_average_precision(tied(n)) == pytest.approx(1)
    assert expected_hit(tied(5), 10) == pytest.approx(1 - np.prod((40 - np.arange(5)) / (50 - np.arange(5))))


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_with_one_right_answer_they_are_the_metrics_of_its_rank(data):
    count, queries = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 8))
    scores = np.array(
        [data.draw(st.lists(st.integers(0, 5), min_size=count, max_size=count)) for _ in range(queries)], np.float32
    )
    own = np.array([data.draw(st.integers(0, count - 1)) for _ in range(queries)])
    truth = scores[np.arange(queries), own][:, None]
    higher, ties = (scores > truth).sum(axis=1), (scores == truth).sum(axis=1) - 1
    values = values_of(scores, [(f"c{row}", f"v{column}", 1) for row, column in enumerate(own)], WAYS[:1])
    for k in (1, 5, 10):
        assert values[f"R@{k}"].to_numpy() == pytest.approx(100 * recall_at(k, higher, ties), abs=1e-9)
    assert values["nDCG@10"].to_numpy() == pytest.approx(100 * METRICS["nDCG@10"].per_query(higher, ties), abs=1e-9)
    assert values["AP"].to_numpy() == pytest.approx(100 * METRICS["MRR"].per_query(higher, ties), abs=1e-9), (
        "one precision alone"
    )


# ---- Matrices --------------------------------------------------------------------------------------------------------


def tables(queries: int, count: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    items = pd.DataFrame(
        {"item_id": [f"v{n}" for n in range(count)], "cluster_id": [f"k{n // 2}" for n in range(count)]}
    )
    captions = pd.DataFrame({"caption_id": [f"c{n}" for n in range(queries)]})
    return captions.assign(video_id=[f"v{(3 * n + 1) % count}" for n in range(queries)]), items


def judged(rows, setting: str = "all", gallery: str = "all") -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["caption_id", "item_id", "right"]).assign(setting=setting, gallery=gallery)


def values_of(scores: np.ndarray, rows, ways=WAYS) -> pd.DataFrame:
    """Query × metric."""
    values = answer_values(scores, *tables(*scores.shape), judged(rows), ways)
    return values.pivot(index="query_id", columns="metric", values="value").reindex(values["query_id"].unique())


def random_answers(queries: int, count: int, seed: int, most: int = 20) -> list[tuple[str, str, int]]:
    generator = np.random.default_rng(seed)
    chosen = {row: generator.choice(count, generator.integers(1, most), replace=False) for row in range(queries)}
    return [
        (f"c{row}", f"v{column}", int(generator.integers(1, 4)))
        for row, columns in chosen.items()
        for column in columns
    ]


def test_another_tool_agrees_on_every_query_without_ties():
    tool = pytest.importorskip("ir_measures", reason="ir-measures is not installed")
    names = {"AP": "AP", "nDCG": "nDCG", "nDCG@10": "nDCG@10"} | {f"R@{k}": f"Success@{k}" for k in (1, 5, 10)}
    queries, count = 40, 120
    # trec_eval keeps scores in single precision, which holds these whole numbers exactly.
    scores = np.random.default_rng(3).permutation(queries * count).reshape(queries, count).astype(np.float32)
    rows = random_answers(queries, count, 4)
    values = answer_values(scores, *tables(queries, count), judged(rows), WAYS)
    for way, pairs in (("text_to_item", rows), ("item_to_text", [(item, text, grade) for text, item, grade in rows])):
        found = values[values["direction"] == way].pivot(index="query_id", columns="metric", values="value")
        matrix = pd.DataFrame(scores, [f"c{n}" for n in range(queries)], [f"v{n}" for n in range(count)])
        matrix = matrix if way == "text_to_item" else matrix.T
        qrels = [tool.Qrel(*pair) for pair in pairs]
        run = [tool.ScoredDoc(query, name, float(s)) for query in found.index for name, s in matrix.loc[query].items()]
        measured = list(tool.iter_calc([tool.parse_measure(name) for name in names.values()], qrels, run))
        assert len(measured) == len(names) * len(found)
        for ours, theirs in names.items():
            wanted = {m.query_id: 100 * m.value for m in measured if str(m.measure) == theirs}
            assert found[ours].to_dict() == pytest.approx(wanted, abs=1e-9), ours


def test_pairs_without_a_score_are_below_all_others_and_tie():
    scores = np.array([[MISSING_SCORE, -3e38, MISSING_SCORE, MISSING_SCORE]], np.float32)
    assert values_of(scores, [("c0", "v1", 1)], WAYS[:1])["R@1"].item() == 100
    assert values_of(scores, [("c0", "v2", 1)], WAYS[:1])["AP"].item() == pytest.approx(
        100 * (1 / 2 + 1 / 3 + 1 / 4) / 3
    )


def test_in_a_closed_setting_only_listed_pairs_are_candidates():
    scores = np.array([[0.5, 0.4, 0.9], [0.9, 0.8, 0.1]])
    captions, items = tables(2, 3)
    rows = [("c0", "v0", 1), ("c0", "v1", 0), ("c1", "v1", 1)]
    closed = judged(rows, gallery="judged")
    values = answer_values(scores, captions, items, closed, WAYS).set_index(["direction", "query_id", "metric"])
    assert values["value"]["text_to_item", "c0", "R@1"] == 100, "v2, scored higher, is not listed for c0"
    assert values["value"]["text_to_item", "c1", "R@1"] == 100
    assert values["value"]["item_to_text", "v1", "R@1"] == 100, "c1 is right and above c0"
    assert values["value"]["item_to_text", "v0", "R@1"] == 100, "c1 does not list v0"
    assert set(values.index.get_level_values("query_id")) == {"c0", "c1", "v0", "v1"}
    opened = answer_values(scores, captions, items, judged(rows), WAYS)
    alone = answer_values(scores, captions, items, judged([row for row in rows if row[2]]), WAYS)
    assert opened.equals(alone), "a pair that is judged wrong is as wrong as one that is not listed"
    opened = opened.set_index(["direction", "query_id", "metric"])["value"]
    assert opened["text_to_item", "c0", "R@1"] == 0 and opened["item_to_text", "v0", "R@1"] == 0
    assert opened["text_to_item", "c1", "AP"] == 50


def test_how_many_of_the_first_results_were_judged():
    scores = np.array([[5.0, 4, 3, 3], [1, 1, 1, 1]])
    rows = [("c0", "v0", 1), ("c0", "v1", 0), ("c0", "v3", 2), ("c1", "v0", 0), ("c1", "v1", 1)]
    for k, wanted in ((1, [100, 50]), (3, [100 * 2.5 / 3, 50]), (10, [75, 50])):
        table = judged_share(scores, *tables(2, 4), judged(rows), k)
        assert table["value"].tolist() == pytest.approx(wanted) and set(table["metric"]) == {f"judged@{k}"}
        assert table["query_id"].tolist() == ["c0", "c1"] and table["cluster_id"].tolist() == ["k0", "k0"]


def test_one_pair_that_is_judged_wrong_changes_nothing_else():
    scores = np.random.default_rng(5).normal(size=(40, 40)).astype(np.float32)
    rows = [(f"c{n}", f"v{n}", 1) for n in range(40)]
    before = answer_values(scores, *tables(40, 40), judged(rows), WAYS)
    after = answer_values(scores, *tables(40, 40), judged([*rows, ("c0", "v1", 0)]), WAYS)
    assert after.equals(before) and before[before["metric"] == "AP"]["value"].mean() < 50


def test_settings_are_closed_each_for_itself_and_a_clip_that_is_never_right_is_no_query():
    scores = np.array([[0.1, 0.5, 0.9]])
    closed, opened = judged([("c0", "v0", 1), ("c0", "v1", 0)], "closed", "judged"), judged([("c0", "v0", 1)], "open")
    values = answer_values(scores, *tables(1, 3), pd.concat([closed, opened]), WAYS)
    ap = values[values["metric"] == "AP"].set_index(["setting", "direction", "query_id"])["value"]
    assert ap.round(6).to_dict() == {
        ("closed", "text_to_item", "c0"): 50,
        ("closed", "item_to_text", "v0"): 100,
        ("open", "text_to_item", "c0"): round(100 / 3, 6),
        ("open", "item_to_text", "v0"): 100,
    }


def test_clusters_are_a_clips_own_and_that_of_a_captions_clip():
    captions, items = tables(4, 6)
    values = answer_values(np.zeros((4, 6)), captions, items, judged(random_answers(4, 6, 0, 4)), WAYS)
    own = dict(zip(items["item_id"], items["cluster_id"], strict=True))
    own |= {row.caption_id: own[row.video_id] for row in captions.itertuples()}
    assert values["cluster_id"].tolist() == [own[query] for query in values["query_id"]]
    assert values.columns.tolist() == ["setting", "direction", "metric", "query_id", "cluster_id", "value"]


def test_the_order_of_answers_captions_and_items_changes_nothing():
    generator = np.random.default_rng(7)
    scores, rows = generator.integers(0, 4, (9, 11)).astype(np.float32), random_answers(9, 11, 1, 6)
    known = {row[:2] for row in rows}
    rows += [(f"c{n}", f"v{n}", 0) for n in range(9) if (f"c{n}", f"v{n}") not in known]
    captions, items = tables(9, 11)
    first = answer_values(scores, captions, items, judged(rows, gallery="judged"), WAYS)
    row, column = generator.permutation(9), generator.permutation(11)
    mixed = judged(rows, gallery="judged").sample(frac=1, random_state=0)
    again = answer_values(scores[np.ix_(row, column)], captions.iloc[row], items.iloc[column], mixed, WAYS)
    keys = ["direction", "metric", "query_id"]
    first, again = (table.sort_values(keys, ignore_index=True) for table in (first, again))
    assert first.drop(columns="value").equals(again.drop(columns="value"))
    assert first["value"].to_numpy() == pytest.approx(again["value"].to_numpy(), abs=1e-12)


def test_no_answers_are_no_values():
    values = answer_values(np.zeros((2, 2)), *tables(2, 2), judged([]), WAYS)
    assert values.empty and "value" in values


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("c0", "v0", 1), ("c9", "v0", 1)], "answers.csv: row 3: the caption_id 'c9'"),
        ([("c0", "v9", 1)], "answers.csv: row 2: the item_id 'v9'"),
        (
            [("c0", "v0", 1), ("c1", "v0", 1), ("c0", "v0", 0)],
            "row 4: setting 'all' lists caption 'c0' with item 'v0' twice",
        ),
        ([("c0", "v0", 1), ("c1", "v0", 0), ("c1", "v1", 0)], "row 3: caption 'c1' has no right item in setting 'all'"),
        ([("c0", "v0", -1)], "row 2: `right` is -1"),
        ([("c0", "v0", 0.5)], "row 2: `right` is 0.5"),
        ([("c0", "v0", np.nan)], "row 2: `right` is nan"),
    ],
)
def test_answers_that_cannot_be_used_are_told_with_their_row(rows, said):
    with pytest.raises(RewindError, match=said.replace(".", r"\.")):
        answer_values(np.zeros((2, 2)), *tables(2, 2), judged(rows), WAYS, where="answers.csv")


def test_tables_and_matrices_that_do_not_fit_are_refused():
    captions, items = tables(2, 3)
    rows = judged([("c0", "v0", 1)])
    with pytest.raises(RewindError, match="column 'right' is missing"):
        answer_values(np.zeros((2, 3)), captions, items, rows.drop(columns="right"), WAYS)
    with pytest.raises(RewindError, match="2 captions and 3 items"):
        answer_values(np.zeros((3, 2)), captions, items, rows, WAYS)
    with pytest.raises(RewindError, match="caption id 'c0' occurs twice"):
        answer_values(np.zeros((2, 3)), captions.assign(caption_id="c0"), items, rows, WAYS)
    with pytest.raises(RewindError, match="'elsewhere' is the clip of a caption"):
        answer_values(np.zeros((2, 3)), captions.assign(video_id="elsewhere"), items, rows, WAYS)
    scores = np.zeros((2, 3))
    scores[1, 2] = np.nan
    with pytest.raises(RewindError, match="caption 'c1' and item 'v2'"):
        answer_values(scores, captions, items, rows, WAYS)
