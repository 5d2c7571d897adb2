"""Scores normalised over the test captions: dual softmax and QB-Norm against their formulas."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rewind.analyses.transductive import NormalisedScores, transductive_ranks
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import write_scores

NORMALISATIONS = ["dual_softmax", "qb_norm"]


def softmax_over_captions(scores: np.ndarray) -> np.ndarray:
    shares = np.exp(scores - scores.max(axis=0))
    return shares / shares.sum(axis=0)


def places(normalised: np.ndarray) -> np.ndarray:
    """(n, m) how many clips are above each clip for each caption, and how many are at it: the order, with its ties."""
    above, at = normalised[:, None, :] > normalised[:, :, None], normalised[:, None, :] == normalised[:, :, None]
    return np.stack([above.sum(axis=2), at.sum(axis=2)])


@pytest.mark.parametrize("most", [2**24, 20, 1])
def test_both_are_as_their_formulas_have_them(monkeypatch, most):
    monkeypatch.setattr("rewind.evaluation.ranking.SCORES_PER_BLOCK", most)
    scores = np.random.default_rng(0).normal(size=(12, 9)).astype(np.float32)
    z = 3.0 * scores.astype(np.float64)
    shares = softmax_over_captions(z)
    dual = np.exp(NormalisedScores(scores, "dual_softmax", 3.0)[2:5])
    np.testing.assert_allclose(dual, ((z - z.min()) * shares)[2:5], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(np.exp(NormalisedScores(scores, "qb_norm", 3.0)[:]), shares, rtol=1e-12)


def test_dual_softmax_of_positive_logits_is_nearly_that_of_the_paper():
    rng = np.random.default_rng(1)
    captions, hubs = rng.normal(size=(400, 32)), rng.normal(size=32) * np.abs(rng.normal(size=(400, 1)))
    clips = 0.7 * captions + 0.8 * rng.normal(size=(400, 32)) + 0.7 * hubs
    captions, clips = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (captions, clips))
    logits = 100 * (0.35 + 0.3 * captions @ clips.T)
    assert logits.min() > 0
    found = {
        name: 100 * (scores.argmax(axis=1) == np.arange(400)).mean()
        for name, scores in (
            ("own", logits),
            ("paper", logits * softmax_over_captions(logits)),
            ("here", NormalisedScores(logits, "dual_softmax", 1.0)[:]),
        )
    }
    assert found["paper"] > found["own"] + 5 and abs(found["here"] - found["paper"]) <= 0.5, found


# Quarters, of which sums and products are exact: what a shift rounds away would change the order.
DRAWN = arrays(
    np.float64, st.tuples(st.integers(1, 7), st.integers(1, 6)), elements=st.integers(-80, 80).map(lambda n: n / 4)
)


@settings(deadline=None)
@pytest.mark.parametrize("how", NORMALISATIONS)
@given(
    scores=DRAWN, shift=st.integers(-4000, 4000), exponent=st.integers(-3, 3), seed=st.integers(0, 99), data=st.data()
)
def test_the_order_is_that_of_shifted_scaled_and_reordered_scores(how, scores, shift, exponent, seed, data):
    missing = data.draw(arrays(bool, scores.shape), label="missing")
    scores = np.where(missing, MISSING_SCORE, scores)
    expected = places(NormalisedScores(scores, how, 1.0)[:])
    shifted = np.where(missing, MISSING_SCORE, scores + shift / 4)
    np.testing.assert_array_equal(places(NormalisedScores(shifted, how, 1.0)[:]), expected)
    # Scores in another unit have another inverse temperature; a power of two rounds nothing.
    scaled = np.where(missing, MISSING_SCORE, scores * 2.0**exponent)
    np.testing.assert_array_equal(places(NormalisedScores(scaled, how, 2.0**-exponent)[:]), expected)
    rng = np.random.default_rng(seed)
    rows, columns = (rng.permutation(length) for length in scores.shape)
    reordered = places(NormalisedScores(scores[np.ix_(rows, columns)], how, 1.0)[:])
    np.testing.assert_array_equal(reordered, expected[:, rows][:, :, columns])


@settings(deadline=None)
@pytest.mark.parametrize("how", NORMALISATIONS)
@given(scores=DRAWN)
def test_of_one_clip_a_caption_that_scores_higher_is_normalised_higher(how, scores):
    normalised = NormalisedScores(scores, how, 1.0)[:]
    assert np.isfinite(normalised).all()
    for column in range(scores.shape[1]):
        order = np.argsort(scores[:, column], kind="stable")
        assert (np.diff(normalised[order, column]) >= 0).all()


@pytest.mark.parametrize("how", NORMALISATIONS)
def test_large_scores_do_not_overflow_and_missing_ones_stay_last(how):
    scores = np.array([[900.0, -900.0, MISSING_SCORE], [-900.0, 1.0, 2.0], [-3.3e38, 3.3e38, MISSING_SCORE]])
    found = NormalisedScores(scores, how, 100.0)[:]
    assert np.isfinite(found).all()
    assert (found[0, 2] == found[2, 2]) and (found[0, 2] < np.delete(found.ravel(), [2, 8])).all()


def test_a_clip_without_any_score_stays_last():
    found = NormalisedScores(np.array([[1.0, MISSING_SCORE], [2.0, MISSING_SCORE]]), "dual_softmax", 1.0)[:]
    assert np.isfinite(found).all() and (found[:, 1] < found[:, 0]).all()


def test_a_clip_that_is_near_to_all_captions_is_found_less_often_and_ties_stay(tmp_path):
    ids = ["v0", "v1", "v2", "v2_rev"]
    items = pd.DataFrame({"item_id": ids, "split": "test", "cluster_id": ["v0", "v1", "v2", "v2"], "status": "ok"})
    items.assign(path="", reversed=[0, 0, 0, 1]).to_csv(tmp_path / "items.csv", index=False)
    (tmp_path / "captions").mkdir()
    captions = pd.DataFrame({"video_id": ids, "caption": "x", "caption_id": [f"{name}#0" for name in ids]})
    captions.to_csv(tmp_path / "captions" / "d_test.csv", index=False)
    scores = np.array([[9, 5, 1, 1], [9, 8, 1, 1], [9, 1, 8, 8], [9, 1, 8, 8]], np.float32)  # the first is a hub
    for shift in (0, -40):
        write_scores(tmp_path / "seed0.npz", scores + shift, captions["caption_id"].to_numpy(str), np.array(ids))
        similarity = {("m", 0): str(tmp_path / "seed0.npz")}
        found = transductive_ranks(tmp_path, "d", similarity, {"m": 1.0}, NORMALISATIONS, "hard")
        for how in NORMALISATIONS:
            ranks = found[how]["m"][0]
            assert ranks["higher"].tolist() == [0, 0, 0, 0] and ranks["ties"].tolist() == [0, 0, 1, 1], (how, shift)
