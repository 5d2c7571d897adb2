"""Scores normalised over the test captions: dual softmax and QB-Norm against their formulas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import write_scores
from rewind.evaluation.transductive import NormalisedScores, transductive_ranks


def softmax_over_captions(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(axis=0))
    return shares / shares.sum(axis=0)


@pytest.mark.parametrize("most", [2**24, 20, 1])
def test_both_are_as_their_papers_have_them(monkeypatch, most):
    monkeypatch.setattr("rewind.evaluation.ranking.SCORES_PER_BLOCK", most)
    scores = np.random.default_rng(0).normal(size=(12, 9)).astype(np.float32)
    shares = softmax_over_captions(3.0 * scores.astype(np.float64))
    np.testing.assert_allclose(NormalisedScores(scores, "dual_softmax", 3.0)[2:5], (scores * shares)[2:5], rtol=1e-12)
    np.testing.assert_allclose(np.exp(NormalisedScores(scores, "qb_norm", 3.0)[:]), shares, rtol=1e-12)


@pytest.mark.parametrize("how", ["dual_softmax", "qb_norm"])
def test_large_scores_do_not_overflow_and_missing_ones_stay_last(how):
    scores = np.array([[900.0, -900.0, MISSING_SCORE], [-900.0, 1.0, 2.0]], np.float32)
    found = NormalisedScores(scores, how, 1.0)[:]
    assert np.isfinite(found).all() and found[0, 2] == MISSING_SCORE == found.min()


def test_a_clip_that_is_near_to_all_captions_is_found_less_often_and_ties_stay(tmp_path):
    ids = ["v0", "v1", "v2", "v2_rev"]
    items = pd.DataFrame({"item_id": ids, "split": "test", "cluster_id": ["v0", "v1", "v2", "v2"], "status": "ok"})
    items.assign(path="", reversed=[0, 0, 0, 1]).to_csv(tmp_path / "items.csv", index=False)
    (tmp_path / "captions").mkdir()
    captions = pd.DataFrame({"video_id": ids, "caption": "x", "caption_id": [f"{name}#0" for name in ids]})
    captions.to_csv(tmp_path / "captions" / "d_test.csv", index=False)
    scores = np.array([[9, 5, 1, 1], [9, 8, 1, 1], [9, 1, 8, 8], [9, 1, 8, 8]], np.float32)  # the first is a hub
    write_scores(tmp_path / "seed0.npz", scores, captions["caption_id"].to_numpy(str), np.array(ids))
    similarity = {("m", 0): str(tmp_path / "seed0.npz")}
    found = transductive_ranks(tmp_path, "d", similarity, {"m": 1.0}, ["dual_softmax", "qb_norm"], "hard")
    for how in ("dual_softmax", "qb_norm"):
        ranks = found[how]["m"][0]
        assert ranks["higher"].tolist() == [0, 0, 0, 0] and ranks["ties"].tolist() == [0, 0, 1, 1], how
