"""Two stages: the ranks of a method that scores the first results of another one alone, against the obvious loops."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from rewind.evaluation.ranking import rank_searches, rank_table, searches_table
from rewind.evaluation.rerank import _binary_pairs, find_candidates, rank_again

SETTINGS, DIRECTIONS = ["origin", "hard", "binary"], ["text_to_item", "item_to_text"]


def made(seed: int, levels: int = 0) -> tuple[np.ndarray, np.ndarray, pd.DataFrame, pd.DataFrame]:
    """Scores of two stages for 9 clips with twins, one to three captions each; of few levels, so that many tie."""
    rng = np.random.default_rng(seed)
    ids = [name for n in range(9) for name in (f"v{n}", f"v{n}_rev")]
    items = pd.DataFrame({"item_id": ids, "cluster_id": [name.removesuffix("_rev") for name in ids]})
    items["reversed"] = [int(name.endswith("_rev")) for name in ids]
    owners = [name for name in ids for _ in range(int(rng.integers(1, 4)))]
    captions = pd.DataFrame({"caption_id": [f"{name}#{n}" for n, name in enumerate(owners)], "video_id": owners})
    draw = (
        (lambda: rng.integers(0, levels, (len(captions), len(ids))))
        if levels
        else lambda: rng.normal(size=(len(captions), len(ids)))
    )
    return draw().astype(np.float32), draw().astype(np.float32), captions, items


def reranked(
    first: np.ndarray, second: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, top: int, item_to_text: str
) -> pd.DataFrame:
    searches = rank_searches(first, captions, items, SETTINGS, DIRECTIONS, "first", item_to_text)
    own = pd.Series(np.arange(len(items)), index=items["item_id"])[captions["video_id"]].to_numpy()
    for search in searches:
        found = find_candidates(search, first, top, _binary_pairs(search, captions, items))
        rank_again(search, found, second[found.captions, found.items], own, item_to_text == "best_caption")
    return searches_table(searches, captions, items)


@pytest.mark.parametrize(("levels", "item_to_text"), product([0, 4], ["all_captions", "best_caption"]))
def test_with_all_results_the_ranks_are_those_of_the_second_stage(levels, item_to_text):
    first, second, captions, items = made(1, levels)
    whole = rank_table(second, captions, items, SETTINGS, DIRECTIONS, "second", item_to_text)
    pd.testing.assert_frame_equal(reranked(first, second, captions, items, 1000, item_to_text), whole)


@pytest.mark.parametrize(("seed", "levels", "top"), product(range(4), [0, 4], [2, 5]))
def test_a_truth_among_the_first_results_is_ranked_by_the_second_stage_and_any_other_by_the_first(seed, levels, top):
    first, second, captions, items = made(seed, levels)
    found = reranked(first, second, captions, items, top, "all_captions")
    before = rank_table(first, captions, items, SETTINGS, DIRECTIONS)
    own = pd.Series(np.arange(len(items)), index=items["item_id"])[captions["video_id"]].to_numpy()
    original = (items["reversed"] == 0).to_numpy()
    changed = 0
    for row, old in zip(found.itertuples(), before.itertuples(), strict=True):
        if row.setting == "binary":
            continue  # both candidates are scored again, as in the test above
        clips = np.flatnonzero(original | (row.setting == "hard"))
        texts = np.flatnonzero(original[own] | (row.setting == "hard"))
        if row.direction == "text_to_item":
            query = captions["caption_id"].tolist().index(row.query_id)
            old_scores, new_scores, correct = first[query, clips], second[query, clips], clips == own[query]
        else:
            query = items["item_id"].tolist().index(row.query_id)
            old_scores, new_scores, correct = first[texts, query], second[texts, query], own[texts] == query
        among = old_scores >= np.sort(old_scores)[-top]
        if (among & correct).any():
            truth = new_scores[among & correct].max()
            rivals = new_scores[among & ~correct]
            assert (row.higher, row.ties) == ((rivals > truth).sum(), (rivals == truth).sum())
            changed += 1
        else:
            assert (row.higher, row.ties) == (old.higher, old.ties)
    assert 0 < changed < len(found)
