"""Geometry of vectors and the threshold of "no such clip": against loops over the definitions, and by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import pdist
from sklearn.metrics import roc_auc_score

from rewind.data.readers import MISSING_SCORE
from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.evaluation.geometry import (
    AnswerScores,
    alignment,
    answer_scores,
    answer_threshold,
    hubness,
    item_occurrences,
    measure_geometry,
    modality_gap,
    uniformity,
)


@pytest.fixture(params=[2**24, 7], ids=["one block", "many blocks"], autouse=True)
def blocks(request, monkeypatch):
    monkeypatch.setattr(ranking, "SCORES_PER_BLOCK", request.param)


def unit(count: int, width: int = 5, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(count, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(dtype)


def occurrences_by_loop(text, items, k):
    """Every caption fills k places, best scores first; the group that does not fit shares what is left."""
    found = np.zeros(len(items))
    for caption in text.astype(float):
        scores, places = [round(float(caption @ item), 12) for item in items.astype(float)], k
        for score in sorted(set(scores), reverse=True):
            group = [i for i, other in enumerate(scores) if other == score]
            found[group] += min(places, len(group)) / len(group)
            places -= min(places, len(group))
    return found


# ---- Vectors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("copies", [1, 2, 3], ids="copies of each item: {}".format)
def test_occurrences_are_those_of_a_loop(k, copies):
    text, items = unit(23), np.tile(unit(12, seed=1), (copies, 1))
    found = item_occurrences(text, items, k)
    assert np.allclose(found, occurrences_by_loop(text, items, k), atol=1e-12)
    assert found.sum() == pytest.approx(23 * k)


@pytest.mark.parametrize("count", [3, 17, 50])
def test_equal_items_occur_equally_often_whatever_blas_rounds(count):
    text, items = unit(40, width=511), np.tile(unit(1, width=511, seed=1), (count, 1))
    found = item_occurrences(text, items, 2)
    assert (found == found[0]).all() and found[0] == pytest.approx(40 * 2 / count)
    assert hubness(found) == 0


def test_hubness_is_the_skewness_of_the_occurrences():
    text, items = unit(60, width=3), unit(30, width=3, seed=1)
    measured, found = measure_geometry(text, items, np.arange(60) // 2, k=2), occurrences_by_loop(text, items, 2)
    centred = found - found.mean()
    assert measured["hubness"] == pytest.approx((centred**3).mean() / (centred**2).mean() ** 1.5)
    assert measured["hubness"] == pytest.approx(stats.skew(found)) and measured["hubness"] > 0.1
    assert measured["antihubs"] == np.mean(found == 0) > 0


def test_one_item_near_to_every_caption_is_a_hub_and_the_others_are_antihubs():
    text = np.concatenate([np.eye(6), np.ones((6, 1))], axis=1) / math.sqrt(2)  # each has a share of the last axis
    items = np.concatenate([-np.eye(7)[:6], np.eye(7)[6:]])
    measured = measure_geometry(text, items, np.arange(6), k=1)
    assert measured["antihubs"] == 6 / 7
    # N_1 is 6 once and 0 six times: μ = 6/7, so (6·(−6/7)³ + (36/7)³) / 7 / (variance)^1.5.
    variance = (6 * (6 / 7) ** 2 + (36 / 7) ** 2) / 7
    assert measured["hubness"] == pytest.approx((6 * (-6 / 7) ** 3 + (36 / 7) ** 3) / 7 / variance**1.5)


def test_gap_alignment_and_uniformity_are_their_definitions():
    text, items, own = unit(31), unit(14, seed=1), np.random.default_rng(2).integers(0, 14, 31)
    measured = measure_geometry(text, items, own)
    x, y = text.astype(float), items.astype(float)
    assert measured["modality_gap"] == pytest.approx(math.dist(x.mean(axis=0), y.mean(axis=0)))
    assert measured["alignment"] == pytest.approx(
        np.mean([math.dist(a, y[i]) ** 2 for a, i in zip(x, own, strict=True)])
    )
    for name, vectors in (("text", x), ("items", y)):
        loop = [math.exp(-2 * math.dist(a, b) ** 2) for a, b in itertools.combinations(vectors, 2)]
        assert measured[f"uniformity_{name}"] == pytest.approx(math.log(np.mean(loop)), abs=1e-12)
        wanted = np.log(np.exp(-2 * pdist(vectors, "sqeuclidean")).mean())
        assert measured[f"uniformity_{name}"] == pytest.approx(wanted, abs=1e-12)


def test_identical_vectors_have_no_gap_no_hub_and_no_uniformity():
    vectors = np.tile(unit(1), (12, 1))
    measured = measure_geometry(vectors, vectors, np.arange(12), k=5)
    assert measured == pytest.approx(dict.fromkeys(measured, 0.0), abs=1e-12)


def test_a_square_by_hand():
    square = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], dtype=float)
    measured = measure_geometry(square, np.roll(square, 1, axis=0), np.arange(4), k=1)
    # Four pairs at distance √2 and two at distance 2; every caption is √2 from its item, and each item nearest once.
    assert measured["uniformity_text"] == pytest.approx(math.log((4 * math.exp(-4) + 2 * math.exp(-8)) / 6))
    assert (measured["modality_gap"], measured["alignment"]) == (0, 2)
    assert (measured["hubness"], measured["antihubs"]) == (0, 0)


def test_opposite_sides_are_as_far_apart_as_can_be():
    north = np.tile([0.0, 1.0], (11, 1))
    assert modality_gap(north, -north) == 2 and alignment(north, -north, np.arange(11)) == 4


def test_single_precision_is_summed_in_double():
    vectors = unit(400, width=32)
    assert uniformity(vectors) == uniformity(vectors.astype(np.float64))
    assert modality_gap(vectors, -vectors) == modality_gap(vectors.astype(float), -vectors.astype(float))


def test_the_same_vectors_give_the_same_bits():
    text, items = unit(50), unit(20, seed=1)
    assert measure_geometry(text, items, np.arange(50) % 20) == measure_geometry(text, items, np.arange(50) % 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": 2 * unit(6)}, "caption 0: the vector's length is 2, not 1"),
        ({"items": np.where(np.arange(5)[:, None] == 3, np.nan, unit(5))}, "item 3: the vector's length is nan"),
        ({"items": unit(5, width=4)}, "width 5, those of items 4"),
        ({"item_of_caption": np.array([0, 1, 2, 3, 4, 5])}, "row of its item, from 0 to 4"),
        ({"item_of_caption": np.array([0, 1])}, "row of its item"),
        ({"k": 5}, "k: 5 nearest of 5 items"),
        ({"items": unit(1)}, "items: vectors of at least two are needed"),
    ],
)
def test_what_has_no_geometry_is_refused(change, message):
    with pytest.raises(RewindError, match=f"run a: .*{message}"):
        measure_geometry(
            **{"text": unit(6), "items": unit(5), "item_of_caption": np.arange(6) % 5, "k": 2, "where": "run a"}
            | change
        )


# ---- No such clip ----------------------------------------------------------------------------------------------------


def made_scores(count: int, seed: int, levels: int = 0) -> AnswerScores:
    """Scores of captions of ten clips with twins; with few ``levels`` there are many ties."""
    rng = np.random.default_rng(seed)
    own = rng.integers(0, 20, count)
    similarity = rng.normal(size=(count, 20)) + 2 * (np.arange(20) // 2 == own[:, None] // 2)
    similarity = np.round(similarity * levels / 4) if levels else similarity
    return answer_scores(similarity, own, np.arange(20) // 2)


def test_best_scores_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    similarity, own, clusters = rng.normal(size=(15, 8)).astype(np.float32), rng.integers(0, 8, 15), np.arange(8) // 3
    scores = answer_scores(similarity, own, clusters)
    for row, item in enumerate(own):
        others = [similarity[row, i] for i in range(8) if clusters[i] != clusters[item]]
        assert scores.present[row] == max(similarity[row]) and scores.absent[row] == max(others)


def mean_error(scores: AnswerScores, threshold: float) -> float:
    missed = np.mean([score < threshold for score in scores.present])
    return 50 * (missed + np.mean([score >= threshold for score in scores.absent]))


@pytest.mark.parametrize("levels", [0, 4, 8])
@pytest.mark.parametrize("seed", range(4))
def test_no_threshold_has_a_smaller_error_on_validation(levels, seed):
    valid, test = made_scores(40, seed, levels), made_scores(30, seed + 100, levels)
    result = answer_threshold(valid, test)
    values = np.unique([valid.present, valid.absent])
    tried = [values[0] - 1, *values, *(values[:-1] + np.diff(values) / 2), values[-1] + 1]
    assert mean_error(valid, result.threshold) == pytest.approx(min(mean_error(valid, t) for t in tried))
    assert (result.valid_missed + result.valid_false) / 2 == pytest.approx(mean_error(valid, result.threshold))
    assert (result.missed.mean() + result.false.mean()) / 2 == pytest.approx(mean_error(test, result.threshold))
    assert set(result.missed) | set(result.false) <= {0.0, 100.0} and result.missed.shape == result.false.shape == (30,)


@pytest.mark.parametrize("levels", [0, 4])
def test_auroc_is_that_of_scikit_learn_and_of_a_loop_over_pairs(levels):
    test = made_scores(35, 3, levels)
    result = answer_threshold(made_scores(10, 4, levels), test)
    wanted = [[(p > a) + (p == a) / 2 for a in test.absent] for p in test.present]
    assert np.allclose(result.present_placement, 100 * np.mean(wanted, axis=1))
    assert np.allclose(result.absent_placement, 100 * np.mean(wanted, axis=0))
    labels = np.repeat([1, 0], 35)
    area = 100 * roc_auc_score(labels, np.concatenate([test.present, test.absent]))
    assert result.auroc == pytest.approx(area) == pytest.approx(result.absent_placement.mean())


def test_placements_are_what_leaving_out_a_caption_changes():
    test = made_scores(200, 5)
    result = answer_threshold(test, test)
    influence = result.present_placement + result.absent_placement - 2 * result.auroc
    without = np.array(
        [answer_threshold(test, AnswerScores(*np.delete([test.present, test.absent], i, 1))).auroc for i in range(200)]
    )
    assert np.allclose(199 * (result.auroc - without), influence, atol=0.5) and np.ptp(influence) > 10
    assert influence.mean() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("present", "absent", "threshold"),
    [
        ([5.0, 6.0], [1.0, 2.0], 3.5),  # no error between 2 and 5
        ([4.0, 8.0], [1.0, 5.0], 2.5),  # (1, 4] and (5, 8]: one of four errors either way, equally wide: the lower one
        ([4.0, 9.0], [1.0, 5.0], 7.0),  # now (5, 9] is wider
        ([3.0, 3.0], [3.0, 3.0], 3.0),  # one score: that score
        ([2.0, 4.0], [2.0, 4.0], 3.0),  # every threshold is as bad: the middle of all scores
        ([5.0, 5.0, 9.0], [1.0, 5.0, 5.0], 5.0),  # (1, 5] and (5, 9] have two errors and no other run between them
        ([1.0], [np.nextafter(1.0, 0)], 1.0),  # no number between them, whose middle rounds up
        ([np.nextafter(1.0, 2)], [1.0], np.nextafter(1.0, 2)),  # or down
    ],
)
def test_the_threshold_is_the_middle_of_the_widest_run(present, absent, threshold):
    valid = AnswerScores(np.array(present), np.array(absent))
    assert answer_threshold(valid, valid).threshold == threshold


@pytest.mark.parametrize(("scale", "shift"), [(100.0, 0.0), (2.0**-20, 0.0), (3.0, -50.0)])
def test_logits_of_any_scale_have_the_same_errors(scale, shift):
    valid, test = made_scores(40, 1), made_scores(40, 2)
    plain = answer_threshold(valid, test)
    moved = answer_threshold(
        *(AnswerScores(scale * s.present + shift, scale * s.absent + shift) for s in (valid, test))
    )
    assert moved.threshold == pytest.approx(scale * plain.threshold + shift)
    assert np.array_equal(moved.missed, plain.missed) and np.array_equal(moved.false, plain.false)
    assert moved.auroc == plain.auroc


def test_a_model_that_scores_all_alike_knows_nothing():
    scores = answer_scores(np.ones((6, 4)), np.arange(6) % 4, np.arange(4))
    result = answer_threshold(scores, scores)
    assert (result.auroc, result.missed.mean() + result.false.mean()) == (50, 100)


def test_pairs_without_a_score_are_never_the_best():
    similarity = np.array([[1.0, MISSING_SCORE, -3.0], [MISSING_SCORE, -np.inf, 2.0]], dtype=np.float32)
    scores = answer_scores(similarity, np.array([0, 1]), np.arange(3))
    assert scores.present.tolist() == [1, 2] and scores.absent.tolist() == [-3, 2]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_not_numbers_are_refused(value):
    similarity = np.ones((3, 3))
    similarity[1, 1] = value
    with pytest.raises(RewindError, match="run a: caption 1: its scores are not numbers"):
        answer_scores(similarity, np.arange(3), np.arange(3), "run a")


@pytest.mark.parametrize("other", [MISSING_SCORE, -np.inf])
def test_a_caption_without_a_score_elsewhere_is_refused(other):
    with pytest.raises(RewindError, match="run a: caption 0: it has no score for any item of another cluster"):
        answer_scores(np.array([[1.0, other]], np.float32), np.array([0]), np.array([0, 1]), "run a")


def test_a_split_without_captions_is_refused():
    nothing = AnswerScores(*np.zeros((2, 0)))
    with pytest.raises(RewindError, match="validation: there is no caption"):
        answer_threshold(nothing, made_scores(3, 0))
    with pytest.raises(RewindError, match="test: there is no caption"):
        answer_threshold(made_scores(3, 0), nothing)
