"""Direction probes: what a linear classifier finds, against scikit-learn, and what it must not find."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.models.backbone import Backbone
from rewind.models.clip import build
from rewind.models.direction import (
    INNER_FOLDS,
    STRENGTHS,
    direction_by_chance,
    direction_scores,
    fit_direction,
    frame_sequence,
    layer_features,
    pair_accuracy,
    probe_direction,
)
from training_runs import CAPTIONS, TINY, WORDS


def clips(pairs: int, length: int = 6, width: int = 8, seed: int = 0, drift: float = 0.0, noise: float = 1.0):
    """Clips and their reversed twins next to each other: content that stays, noise, and a drift along one axis."""
    rng = np.random.default_rng(seed)
    axis = np.random.default_rng(1).normal(size=width)
    frames = rng.normal(size=(pairs, 1, width)) + noise * rng.normal(size=(pairs, length, width))
    frames = (frames + drift * np.linspace(-1, 1, length)[:, None] * axis).astype(np.float32)
    both = np.stack([frames, frames[:, ::-1]], axis=1).reshape(2 * pairs, length, width)
    return both, np.tile([0, 1], pairs), np.repeat(np.arange(pairs), 2)


def sequences(*args, **keys):
    frames, reversed, cluster = clips(*args, **keys)
    return frame_sequence(frames, np.ones(frames.shape[:2])), reversed, cluster


@pytest.fixture(params=[2**24, 100], ids=["one block", "many blocks"])
def blocks(request, monkeypatch):
    monkeypatch.setattr(ranking, "SCORES_PER_BLOCK", request.param)


# ---- Features --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 5, 8, 12])
def test_a_reversed_clip_has_the_reversed_sequence_bit_for_bit(length, blocks):
    rng = np.random.default_rng(0)
    counts = np.arange(1, length + 1).repeat(20)
    frames = rng.lognormal(size=(len(counts), length, 7)).astype(np.float32)
    mask = (np.arange(length) < counts[:, None]).astype(np.uint8)
    backward = np.full_like(frames, np.nan)  # what is in padding does not matter
    for clip, count in enumerate(counts):
        backward[clip, :count] = frames[clip, :count][::-1]
    there, back = (frame_sequence(each, mask).reshape(frames.shape) for each in (frames, backward))
    assert there.dtype == np.float32 and there.tobytes() == np.ascontiguousarray(back[:, ::-1]).tobytes()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7])
def test_short_clips_are_interpolated_over_normalised_time(count):
    frames, mask = np.random.default_rng(0).normal(size=(1, 7, 4)), (np.arange(7) < count)[None]
    found = frame_sequence(frames, mask).reshape(7, 4)
    for column in range(4):
        known = np.linspace(0, 1, count) if count > 1 else [0.0]
        wanted = np.interp(np.linspace(0, 1, 7), known, frames[0, :count, column])
        assert np.allclose(found[:, column], wanted, atol=1e-14)
    assert np.array_equal(found[[0, -1]], frames[0, [0, count - 1]]), "the ends are the clip's own"


def test_clips_without_padding_are_left_as_they_are():
    frames, _, _ = clips(4)
    assert np.array_equal(frame_sequence(frames, np.ones((8, 6))), frames.reshape(8, -1))


@pytest.mark.parametrize("mask", [[[1, 1], [0, 0]], [[1, 0], [0, 1]]], ids=["no frame", "padding first"])
def test_padding_comes_last_and_no_clip_is_empty(mask):
    with pytest.raises(RewindError, match="run a: item 1: a clip needs a real frame"):
        frame_sequence(np.ones((2, 2, 3)), np.array(mask), where="run a")


def pixels(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    return torch.randint(0, 256, (3, 4, 3, 32, 32), dtype=torch.uint8, generator=generator), mask


@pytest.fixture(params=["2d", "3d"])
def towers(request):
    torch.manual_seed(0)
    return build(TINY.model_copy(update={"patch": request.param}), WORDS, CAPTIONS)


def test_the_last_block_through_the_towers_own_end_is_the_towers_features(towers):
    frames, mask = pixels()
    layers = layer_features(towers.train(), frames, mask)
    assert list(layers) == ["block1", "block2", "block3", "final"] and not towers.training
    visual, real = towers.clip.visual, mask.bool()
    with torch.no_grad():
        ended = visual.ln_post(layers["block3"][real]) @ visual.proj
        wanted = towers.eval().clip_features(frames, mask)
    assert torch.equal(layers["final"], wanted) and wanted.abs().max() > 0.1
    torch.testing.assert_close(ended, wanted[real], rtol=1e-5, atol=1e-5)
    assert not torch.allclose(layers["block2"], layers["block3"])


def test_layers_belong_to_their_frames_and_padding_is_zero(towers):
    frames, mask = pixels()
    layers = layer_features(towers, frames, mask)
    alone = layer_features(towers, frames[1:2, :2], mask[1:2, :2])
    for name, layer in layers.items():
        assert layer.shape == (3, 4, 96) and not layer[mask == 0].any(), name
        torch.testing.assert_close(layer[1:2, :2], alone[name], rtol=1e-4, atol=1e-5)
    assert not any(block._forward_hooks for block in towers.clip.visual.transformer.resblocks), "hooks are taken away"


def test_hooks_are_taken_away_after_an_error(towers):
    with pytest.raises(RewindError, match=r"frames\.size"):
        layer_features(towers, torch.zeros(1, 1, 3, 8, 8, dtype=torch.uint8), torch.ones(1, 1))
    assert not any(block._forward_hooks for block in towers.clip.visual.transformer.resblocks)


def test_a_backbone_without_blocks_has_its_final_features_alone():
    class MeanColours(Backbone):
        def frame_features(self, frames):
            return frames.float().mean((2, 3))

    frames, mask = pixels()
    layers = layer_features(MeanColours(), frames, mask)
    assert list(layers) == ["final"] and torch.equal(layers["final"], MeanColours().clip_features(frames, mask))


# ---- Probes ----------------------------------------------------------------------------------------------------------


def test_a_direction_that_is_there_is_found():
    found = probe_direction(*sequences(100, drift=2.0, noise=0.3))
    assert found["right"].mean() > 0.95
    assert (found["right"] == ((found["score"] > 0) == (found["item"] % 2 == 0))).all(), "above 0: forward"


def test_a_direction_is_found_in_more_features_than_clips_and_in_any_unit():
    features, reversed, cluster = sequences(60, length=12, width=64, drift=1.0, noise=0.5)
    units = np.random.default_rng(0).lognormal(sigma=6, size=features.shape[1])
    plain, other = (probe_direction(each, reversed, cluster)["right"] for each in (features, features * units + 3))
    assert features.shape[1] > 4 * len(features) and plain.mean() > 0.95 and (plain == other).mean() > 0.98


def test_an_order_blind_vector_has_exactly_one_half():
    frames, reversed, cluster = clips(40, drift=2.0)
    for blind in (np.sort(frames, axis=1).mean(axis=1), np.ones((80, 3)), np.zeros((80, 1))):
        assert (probe_direction(blind, reversed, cluster)["right"] == 0.5).all()


def test_only_clips_that_equal_their_twin_are_counted_half():
    features, reversed, cluster = sequences(40, drift=2.0, noise=0.3)
    features[1] = features[0]
    features[5] = features[3]  # another clip's, in the same direction: no reason
    right = probe_direction(features, reversed, cluster)["right"]
    assert right[[0, 1]].tolist() == [0.5, 0.5] and (right[2:] != 0.5).all()


@pytest.mark.parametrize("seed", range(3))
def test_directions_that_are_drawn_are_not_found(seed):
    features, _, cluster = sequences(300, drift=2.0, seed=seed)
    first = np.random.default_rng(seed).integers(0, 2, 300)
    found = probe_direction(features, np.stack([first, 1 - first], axis=1).ravel(), cluster)
    assert abs(found["right"].mean() - 0.5) < 0.09  # three standard errors of 300 pairs


@pytest.mark.parametrize(("width", "drift"), [(3, 0.4), (40, 0.1)], ids=["few features", "more features than clips"])
def test_a_permutation_is_the_probe_with_these_directions(monkeypatch, width, drift):
    features, reversed, cluster = sequences(45, width=width, drift=drift)
    twin = np.arange(90).reshape(-1, 2)[:, ::-1].ravel()
    flips = np.random.default_rng(1).choice([-1.0, 1.0], size=(45, 4))
    monkeypatch.setattr(np.random, "default_rng", lambda _: SimpleNamespace(choice=lambda *_, **__: flips))
    found = direction_by_chance(features, reversed, twin, cluster, 4)
    for draw, chance in zip(flips.T, found, strict=True):
        drawn = np.stack([draw < 0, draw > 0], axis=1).astype(int).ravel()
        probed = probe_direction(features, drawn, cluster)
        assert chance == pair_accuracy(probed["score"].to_numpy(), drawn, twin)["right"].mean()


def test_memorised_clusters_do_not_help():
    # One feature per cluster, as a tower's content is: all clips of a cluster run the same way here.
    cluster = np.repeat(np.arange(30), 2)
    found = probe_direction(np.eye(30)[cluster], cluster % 2, cluster)
    assert found["right"].mean() < 0.6


def test_folds_never_separate_a_clip_from_its_twin():
    features, reversed, cluster = sequences(53)
    order = np.random.default_rng(0).permutation(len(cluster))
    found = probe_direction(features[order], reversed[order], cluster[order])
    assert found["item"].tolist() == list(range(106)) and set(found["fold"]) == set(range(5))
    assert (found.groupby(cluster[order])["fold"].nunique() == 1).all()


@pytest.mark.parametrize(("width", "drift"), [(3, 0.4), (40, 0.1)], ids=["few features", "more features than clips"])
def test_the_probe_is_scikit_learns_own_nested_cross_validation(width, drift, blocks):
    features, reversed, cluster = sequences(45, width=width, drift=drift)
    found = probe_direction(features, reversed, cluster)
    classifier = make_pipeline(StandardScaler(), RidgeClassifier())
    # The strongest first: of equal ones GridSearchCV takes the first. Here all inner folds are of one size.
    grid = {"ridgeclassifier__alpha": STRENGTHS[::-1]}
    for fold, (train, test) in enumerate(GroupKFold(5).split(features, groups=cluster)):
        search = GridSearchCV(classifier, grid, cv=GroupKFold(INNER_FOLDS), scoring="accuracy")
        search.fit(features[train].astype(float), 1 - reversed[train], groups=cluster[train])
        rows = found.iloc[test]
        assert (rows["fold"] == fold).all()
        assert (rows["strength"] == search.best_params_["ridgeclassifier__alpha"]).all()
        assert np.allclose(rows["score"], search.decision_function(features[test].astype(float)), atol=1e-8)
        assert rows["right"].mean() == search.score(features[test].astype(float), 1 - reversed[test])
    assert found["strength"].nunique() > 1 and 0.55 < found["right"].mean() < 0.95, "there is something to choose"


@pytest.mark.parametrize(("width", "drift"), [(3, 0.4), (40, 0.1)], ids=["few features", "more features than clips"])
def test_a_fitted_classifier_is_scikit_learns_with_the_best_strength_on_validation(width, drift, blocks):
    train, reversed, _ = sequences(45, width=width, drift=drift)
    valid, valid_reversed, _ = sequences(30, width=width, drift=drift, seed=5)
    weight, bias = fit_direction(train, reversed, valid, valid_reversed)
    assert weight.dtype == np.float64 and weight.shape == (train.shape[1],) and isinstance(bias, float)
    fitted = [make_pipeline(StandardScaler(), RidgeClassifier(alpha=strength)) for strength in STRENGTHS]
    double = valid.astype(float)
    right = [each.fit(train.astype(float), 1 - reversed).score(double, 1 - valid_reversed) for each in fitted]
    best = fitted[max(i for i, value in enumerate(right) if value == max(right))]
    assert min(right) < max(right) < 1
    assert np.allclose(direction_scores(valid, weight, bias), best.decision_function(double), atol=1e-9)
    assert np.allclose(valid @ weight + bias, direction_scores(valid, weight, bias))


def test_a_fit_is_deterministic():
    train, valid = sequences(45, drift=0.4), sequences(30, drift=0.4, seed=5)
    first, again = (fit_direction(*train[:2], *valid[:2]) for _ in range(2))
    assert first[0].tobytes() == again[0].tobytes() and first[1] == again[1]


def test_equal_clips_have_equal_scores_in_every_row(blocks):
    rng = np.random.default_rng(0)
    scores = direction_scores(np.tile(rng.normal(size=511), (57, 1)).astype(np.float32), rng.normal(size=511), 0.1)
    assert (scores == scores[0]).all()


def test_which_of_two_runs_forward_needs_no_bias():
    features, reversed, _ = sequences(60, drift=2.0, noise=0.3)
    weight, bias = fit_direction(features, reversed, features, reversed)
    twin = np.arange(120) ^ 1
    found = pair_accuracy(direction_scores(features, weight, bias + 100), reversed, twin)
    assert found["right"].mean() > 0.95 and found["item"].tolist() == list(range(0, 120, 2))
    blind = np.sort(features.reshape(120, 6, 8), axis=1).mean(axis=1)
    assert (pair_accuracy(direction_scores(blind, np.ones(8), 0.0), reversed, twin)["right"] == 0.5).all()


def test_pairs_by_hand():
    found = pair_accuracy(
        np.array([1.0, 2.0, 5.0, 4.0, 0.0, 3.0, 3.0]), np.array([1, 0, 1, 0, 0, 0, 1]), np.array([1, 0, 3, 2, -1, 6, 5])
    )
    assert found.to_dict("list") == {"item": [1, 3, 5], "right": [1.0, 0.0, 0.5]}


@pytest.mark.parametrize(
    ("twin", "reversed", "message"),
    [
        ([1, 0, 1, -1], [0, 1, 0, 0], "item 2: a clip and its twin are each other's"),
        ([1, 0, -1, -1], [0, 0, 0, 0], "item 0: a clip and its twin"),
        ([-1, -1, -1, -1], [0, 1, 0, 0], "no clip has a time-reversed twin"),
        ([-1, -1, 3, 2], [0, 0, 0, 1], "item 3: its score is not a number"),
    ],
)
def test_pairs_that_are_none_are_refused(twin, reversed, message):
    with pytest.raises(RewindError, match=f"run a: {message}"):
        pair_accuracy(np.array([1.0, 2, 3, np.nan]), np.array(reversed), np.array(twin), "run a")


def with_nan(features):
    features[7, 3] = np.nan
    return features


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, r, c: (f, r, c // 10), "4 clusters cannot be left out in 5 folds"),
        (lambda f, r, c: (f, 0 * r, c), "a probe of direction needs clips that run forward"),
        (lambda f, r, c: (f, (c == 3) * 1, c), "training part: a probe of direction needs clips that run forward"),
        (lambda f, r, c: (with_nan(f), r, c), "item 7: its features are not numbers"),
        (lambda f, r, c: (f[:, 0], r, c), r"80 clips need features \(clips, D\)"),
        (lambda f, r, c: (f[:3], r, c), "80 clips need features"),
    ],
)
def test_what_cannot_be_probed_is_refused(change, message):
    with pytest.raises(RewindError, match=f"run a: {message}"):
        probe_direction(*change(*sequences(40)), where="run a")


def test_what_cannot_be_fitted_is_refused():
    features, reversed, _ = sequences(10)
    with pytest.raises(RewindError, match="run a: features of training have width 48, those of validation 47"):
        fit_direction(features, reversed, features[:, 1:], reversed, "run a")
    with pytest.raises(RewindError, match="run a: validation: item 7: its features are not numbers"):
        fit_direction(features, reversed, with_nan(features.copy()), reversed, "run a")
    with pytest.raises(RewindError, match="run a: training: a probe of direction needs clips"):
        fit_direction(features, 0 * reversed, features, reversed, "run a")
