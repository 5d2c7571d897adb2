"""Direction probes: does a tower hold the direction of time that a head fails to read?

A linear classifier tells from features whether a clip runs forward or is the time-reversed twin of one. Where it can
and the run's order-blind head cannot, the head loses what the tower has; where it cannot, no head on these features
helps. Captions play no part, so a probe is also the clip's half of what a model can score without understanding any
caption.

Comparable probes: LiFT (arXiv 2509.08502), scikit-learn's RidgeClassifier on features of all frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.backbone import Backbone, scatter_frames

STRENGTHS = np.logspace(0, 6, 7)
"""Strengths of the regularisation that are tried, RidgeClassifier's ``alpha``; 1 is its default, and LiFT's.

Features are standardised, so the eigenvalues of what ``alpha`` is added to have a mean of the larger one of the numbers
of clips and of features: the grid reaches from hardly any regularisation to almost nothing else.
"""
INNER_FOLDS = 3
"""Folds in which the strength is chosen, inside each training part."""
FINAL = "final"
"""Name of the tower's own features among its layers."""
NUMBERS_PER_BLOCK = 2**24
"""Numbers of which copies are in memory at a time."""

# ---- Features --------------------------------------------------------------------------------------------------------


def frame_sequence(
    frames: np.ndarray, mask: np.ndarray, positions: int | None = None, where: str = "features"
) -> np.ndarray:
    """Features (n, P·F) of all frames of each clip in a row, from ``frames`` (n, T, F) and ``mask`` (n, T).

    A clip with c real frames is interpolated linearly over normalised time, from 0 at the first to 1 at the last, to P
    positions (``positions``; None: T); one frame is repeated. The sequence of a clip with its frames reversed is the
    reversed sequence, bit for bit: otherwise a probe could read a clip's direction from rounding.

    Raises:
        RewindError: for a clip without frames, or whose real frames do not come first.

    >>> frames = np.array([[[1.0], [2.0], [3.0]], [[1.0], [5.0], [0.0]]])
    >>> frame_sequence(frames, np.array([[1, 1, 1], [1, 1, 0]])).tolist()
    [[1.0, 2.0, 3.0], [1.0, 3.0, 5.0]]
    """
    count, length, width = frames.shape
    counts = mask.astype(bool).sum(axis=1)
    wrong = (counts == 0) | (mask.astype(bool) != (np.arange(length) < counts[:, None])).any(axis=1)
    if wrong.any():
        raise RewindError(
            f"{where}: item {int(wrong.argmax())}: a clip needs a real frame, and its real frames come before the "
            "padding; compute the features again."
        )
    positions = length if positions is None else positions
    sequence = np.empty((count, positions, width), frames.dtype)
    for real in np.unique(counts):
        rows = np.flatnonzero(counts == real)
        # Position j of P is at j·(c − 1) / (P − 1) frames. Quotient and remainder are integers, and those of the
        # mirrored position are the mirrored ones: both weights come from the same division and only change places.
        steps = max(positions - 1, 1)
        left, part = np.divmod(np.arange(positions) * (real - 1), steps)
        right = np.minimum(left + 1, real - 1)
        weights = (np.stack([steps - part, part]) / steps).astype(frames.dtype)[..., None]
        for block in _row_blocks(len(rows), positions * width):
            clips = frames[rows[block]]
            sequence[rows[block]] = weights[0] * clips[:, left] + weights[1] * clips[:, right]
    return sequence.reshape(count, positions * width)


@torch.inference_mode()
def layer_features(backbone: Backbone, pixels: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Features of the frames of clips after every block of a vision transformer, and those of the whole tower.

    ``block1``, ``block2``, …: (n, T, F), the class token after that block, before any final norm and projection;
    ``final``: (n, T, feature_width), what ``clip_features`` gives. All are zero on padding. Blocks are looked for where
    open_clip's vision transformers have them (``clip.visual.transformer.resblocks``); another backbone has only its
    final features. The backbone is put into evaluation mode.

    >>> class MeanColours(Backbone):
    ...     def frame_features(self, pixels):
    ...         return pixels.float().mean((2, 3))
    >>> pixels, mask = torch.zeros(2, 4, 3, 8, 8, dtype=torch.uint8), torch.ones(2, 4)
    >>> {name: tuple(layer.shape) for name, layer in layer_features(MeanColours(), pixels, mask).items()}
    {'final': (2, 4, 3)}
    """
    backbone.eval()
    visual: Any = getattr(getattr(backbone, "clip", None), "visual", None)
    blocks = getattr(getattr(visual, "transformer", None), "resblocks", ())
    tokens: dict[str, list[Tensor]] = {f"block{number}": [] for number in range(1, len(blocks) + 1)}
    # Only the class token is kept, by a copy: a view would keep all tokens of all layers in memory.
    handles = [
        block.register_forward_hook(lambda _module, _inputs, output, kept=kept: kept.append(output[:, 0].clone()))
        for block, kept in zip(blocks, tokens.values(), strict=True)
    ]
    try:
        final = backbone.clip_features(pixels, mask)
    finally:
        for handle in handles:
            handle.remove()
    # The tower sees only real frames, in the order of their clips.
    return {name: scatter_frames(torch.cat(kept), mask.bool()) for name, kept in tokens.items()} | {FINAL: final}


# ---- Probes ----------------------------------------------------------------------------------------------------------


def probe_direction(
    features: np.ndarray, reversed: np.ndarray, cluster: np.ndarray, folds: int = 5, where: str = "probe"
) -> pd.DataFrame:
    """Probe every clip's direction with a linear classifier that has seen neither it nor its twin.

    scikit-learn's StandardScaler and RidgeClassifier, in a cross-validation by cluster (GroupKFold without shuffling:
    nothing is drawn). The strength of the regularisation is chosen from :data:`STRENGTHS` in each training part by an
    inner cross-validation by cluster; of equally good ones the strongest.

    Args:
        features: (n, D) of any scale; float32 or float64.
        reversed: (n,) 1 on clips that run backward, 0 on others.
        cluster: (n,) of any integers; a clip and its twin are in one cluster.
        folds: of the outer cross-validation, at least 2.

    Returns:
        One row per clip, in order: ``item``, its row; ``fold``, in which it was left out; ``strength``, chosen there;
        ``score``, above 0 for "forward"; ``right``, 1 if the sign is right, 0 if it is wrong, and ½ if the score is
        0 or the same features occur in the clip's cluster in both directions: an order-blind vector has exactly ½
        everywhere.

    Raises:
        RewindError: for features that are not numbers, clips of only one direction (also in a training part), or fewer
            clusters than folds.

    >>> features = np.array([[1.0, 5], [-1, 5], [2, 0], [-2, 0], [1, 7], [-1, 7]])
    >>> found = probe_direction(features, np.array([0, 1] * 3), np.array([0, 0, 1, 1, 2, 2]), folds=3)
    >>> found["right"].tolist(), (found["score"] > 0).tolist()
    ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [True, False, True, False, True, False])
    """
    _check_features(features, reversed, where)
    target = _targets(reversed)
    table = pd.DataFrame({"item": np.arange(len(features)), "fold": 0, "strength": 0.0, "score": 0.0})
    for fold, (train, held_out) in enumerate(_grouped_folds(cluster, folds, where)):
        strength = _choose_strength(features, target, cluster, train, where)
        weights, biases = _fit_ridge(features, target, train, np.array([strength]), where)
        scores = direction_scores(features[held_out], weights[0], biases[0])
        table.loc[held_out, ["fold", "strength", "score"]] = np.column_stack(
            [np.full(len(held_out), fold), np.full(len(held_out), strength), scores]
        )
    table["fold"] = table["fold"].astype(int)
    blind = _same_in_both_directions(features, reversed, cluster)
    return table.assign(right=np.where(blind, 0.5, _right(table["score"].to_numpy(), target)))


def direction_by_chance(
    features: np.ndarray,
    reversed: np.ndarray,
    twin: np.ndarray,
    cluster: np.ndarray,
    permutations: int,
    folds: int = 5,
    where: str = "probe",
) -> np.ndarray:
    """Accuracies of :func:`probe_direction` in pairs where it is drawn which clip of a pair runs forward.

    If features tell nothing about the direction, the accuracy with the true directions is one of these: a permutation
    test in pairs, exact for any features and folds (Good, *Permutation Tests*, 2000). The whole procedure is repeated
    for each draw, the choice of the strength included; the draws are the same for all features of the same clips.

    Args:
        features, reversed, cluster, folds, where: as in :func:`probe_direction`.
        twin: (n,) row of each clip's twin; every clip has one.

    Returns:
        (permutations,) shares of pairs that are told right, ½ each where a clip and its twin have the same features.
    """
    forward = np.flatnonzero(np.asarray(reversed) == 0)
    flips = np.random.default_rng(0).choice([-1.0, 1.0], size=(len(forward), permutations))
    target = np.empty((len(features), permutations))
    target[forward], target[twin[forward]] = flips, -flips
    scores = np.empty_like(target)
    for train, held_out in _grouped_folds(cluster, folds, where):
        right = np.zeros((len(STRENGTHS), permutations))
        for rows, asked in _inner_folds(cluster, train, where):
            found = _ridge_scores(features, target, rows, asked, STRENGTHS)
            right += np.stack([_right(each, target[asked]).sum(axis=0) for each in found])
        # argmax takes the first of equals: from the back, the strongest of equally good ones.
        strongest = len(STRENGTHS) - 1 - right[::-1].argmax(axis=0)
        # (strengths, clips that are left out, permutations).
        tried = np.stack(list(_ridge_scores(features, target, train, held_out, STRENGTHS)))
        scores[held_out] = np.take_along_axis(tried, strongest[None, None], axis=0)[0]
    told = (np.sign((scores[forward] - scores[twin[forward]]) * flips) + 1) / 2
    told[(features[forward] == features[twin[forward]]).all(axis=1)] = 0.5  # a product may round the two differently
    return told.mean(axis=0)


def _ridge_scores(
    features: np.ndarray, target: np.ndarray, train: np.ndarray, held_out: np.ndarray, strengths: np.ndarray
) -> Iterator[np.ndarray]:
    """Scores (h, k) of clips that are left out, by :func:`_fit_ridge`'s classifiers of k targets, for each strength."""
    from scipy.linalg import eigh

    known = features[train].astype(np.float64)
    mean, scale = known.mean(axis=0), known.std(axis=0)
    scale[scale <= 10 * np.finfo(np.float64).eps * np.abs(mean)] = 1  # a constant feature, as StandardScaler takes it
    known, asked = (known - mean) / scale, (features[held_out] - mean) / scale
    middle = target[train].mean(axis=0)
    # The normal equations of the smaller side; their eigenvectors serve all strengths and targets.
    if known.shape[0] < known.shape[1]:
        values, vectors = eigh(known @ known.T, overwrite_a=True, check_finite=False)
        parts, asked = vectors.T @ (target[train] - middle), (asked @ known.T) @ vectors
    else:
        values, vectors = eigh(known.T @ known, overwrite_a=True, check_finite=False)
        parts, asked = vectors.T @ (known.T @ (target[train] - middle)), asked @ vectors
    for strength in strengths:
        # Either side gives the same scores: x Xᵀ (X Xᵀ + s)⁻¹ y = x (Xᵀ X + s)⁻¹ Xᵀ y, with s the strength.
        yield (asked / (values + strength)) @ parts + middle


def fit_direction(
    features: np.ndarray,
    reversed: np.ndarray,
    valid_features: np.ndarray,
    valid_reversed: np.ndarray,
    where: str = "probe",
) -> tuple[np.ndarray, float]:
    """The classifier of :func:`probe_direction`, fitted on training data, its strength chosen on validation.

    The strength with the best accuracy on validation is taken, of equally good ones the strongest. scikit-learn forms
    the normal equations of the smaller side, D × D or n × n, in float64, once for all strengths. In addition to the
    features it takes 8·n·D bytes for a standardised copy, about 16·min(n, D)² for the equations, and 0.4 GB: with
    30,000 × 6,144 features of float32, which are 0.7 GB themselves, 2.5 GB more (measured; a minute on one core).

    Args:
        features, valid_features: (n, D) and (v, D); float32 is enough.
        reversed, valid_reversed: (n,) and (v,), 1 on clips that run backward, 0 on others.

    Returns:
        Weight (D,) and bias, float64: ``features @ weight + bias`` is above 0 for "forward". :func:`direction_scores`
        computes it so that equal clips score the same.

    >>> features, reversed = np.array([[1.0, 5], [-1, 5], [2, 0], [-2, 0]], np.float32), np.array([0, 1, 0, 1])
    >>> weight, bias = fit_direction(features, reversed, features, reversed)
    >>> (features @ weight + bias > 0).tolist()
    [True, False, True, False]
    """
    _check_features(features, reversed, f"{where}: training")
    _check_features(valid_features, valid_reversed, f"{where}: validation")
    if features.shape[1] != valid_features.shape[1]:
        raise RewindError(
            f"{where}: features of training have width {features.shape[1]}, those of validation "
            f"{valid_features.shape[1]}; compute them with the same tower and as many frames."
        )
    weights, biases = _fit_ridge(features, _targets(reversed), np.arange(len(features)), STRENGTHS, where)
    best = _strongest_of_best(_right_by_strength(valid_features, _targets(valid_reversed), weights, biases))
    return weights[best], float(biases[best])


def direction_scores(features: np.ndarray, weight: np.ndarray, bias: float) -> np.ndarray:
    """Scores (n,) of clips (n, D), float64, above 0 for "forward"; clips with equal features have equal scores.

    >>> direction_scores(np.array([[1.0, 2.0], [0.0, 0.0]]), np.array([1.0, -1.0]), 0.5).tolist()
    [-0.5, 0.5]
    """
    scores = np.empty(len(features))
    for rows in _row_blocks(*features.shape):
        # Not a product with `weight`: BLAS rounds the last rows differently, and a clip that equals its twin must tie.
        scores[rows] = (features[rows].astype(np.float64) * weight).sum(axis=1)
    return scores + bias


def pair_accuracy(scores: np.ndarray, reversed: np.ndarray, twin: np.ndarray, where: str = "probe") -> pd.DataFrame:
    """Which of a clip and its twin runs forward: an easier question than :func:`probe_direction`'s, without a bias.

    One row per pair: ``item``, the row of the clip that runs forward; ``right``, 1 if it has the higher score, ½ if
    both have the same, else 0. The accuracy is the mean.

    Args:
        scores: (n,) higher for "forward".
        reversed: (n,) 1 on clips that run backward, 0 on others.
        twin: (n,) row of each clip's twin, -1 for none, as :func:`rewind.data.annotations.twin_rows` gives them.

    Raises:
        RewindError: for scores that are NaN, twins that are not each other's or run the same way, or no pair at all.

    >>> pair_accuracy(np.array([0.3, 0.1, 0.2, 0.2, 9.0]), np.array([0, 1, 0, 1, 0]), np.array([1, 0, 3, 2, -1]))
       item  right
    0     0    1.0
    1     2    0.5
    """
    backward = np.asarray(reversed) == 1
    paired = np.flatnonzero(twin >= 0)
    if not len(paired):
        raise RewindError(f"{where}: no clip has a time-reversed twin, so there is no pair to tell apart.")
    wrong = (twin[twin[paired]] != paired) | (backward[twin[paired]] == backward[paired])
    if wrong.any():
        raise RewindError(
            f"{where}: item {int(paired[wrong.argmax()])}: a clip and its twin are each other's, and one of them runs "
            "backward; check the column reversed."
        )
    forward = paired[~backward[paired]]
    if np.isnan(scores[paired]).any():
        raise RewindError(f"{where}: item {int(paired[np.isnan(scores[paired]).argmax()])}: its score is not a number.")
    gap = scores[forward] - scores[twin[forward]]
    return pd.DataFrame({"item": forward, "right": (np.sign(gap) + 1) / 2})


def _row_blocks(rows: int, width: int) -> Iterator[slice]:
    size = max(1, NUMBERS_PER_BLOCK // max(1, width))
    return (slice(top, min(top + size, rows)) for top in range(0, rows, size))


def _check_features(features: np.ndarray, reversed: np.ndarray, where: str) -> None:
    if features.ndim != 2 or len(features) != len(reversed):
        raise RewindError(f"{where}: {len(reversed)} clips need features (clips, D), not an array {features.shape}.")
    for rows in _row_blocks(*features.shape):
        invalid = ~np.isfinite(features[rows]).all(axis=1)
        if invalid.any():
            raise RewindError(
                f"{where}: item {rows.start + int(invalid.argmax())}: its features are not numbers; look for NaN in "
                "the tower."
            )
    _check_directions(_targets(reversed), where)


def _check_directions(target: np.ndarray, where: str) -> None:
    if len(np.unique(target)) < 2:
        raise RewindError(
            f"{where}: a probe of direction needs clips that run forward and clips that run backward, and all run "
            "in the same direction; use a data set with time-reversed twins."
        )


def _targets(reversed: np.ndarray) -> np.ndarray:
    return np.where(np.asarray(reversed) == 1, -1.0, 1.0)  # RidgeClassifier's own: a regression on −1 and 1


def _grouped_folds(cluster: np.ndarray, folds: int, where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit on and rows to leave out, no cluster in both."""
    from sklearn.model_selection import GroupKFold

    found = len(np.unique(cluster))
    if folds < 2 or found < folds:
        raise RewindError(
            f"{where}: {found} clusters cannot be left out in {folds} folds; a probe needs at least two folds, and as "
            "many clusters."
        )
    return GroupKFold(folds).split(np.zeros((len(cluster), 1)), groups=cluster)


def _inner_folds(cluster: np.ndarray, train: np.ndarray, where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Folds inside a training part, by which a strength is chosen, as rows of all clips."""
    folds = min(INNER_FOLDS, len(np.unique(cluster[train])))
    for rows, held_out in _grouped_folds(cluster[train], folds, f"{where}: training part"):
        yield train[rows], train[held_out]


def _choose_strength(
    features: np.ndarray, target: np.ndarray, cluster: np.ndarray, train: np.ndarray, where: str
) -> float:
    """The strength with which clips of the training part are told best by a cross-validation inside it."""
    right = np.zeros(len(STRENGTHS))
    for rows, held_out in _inner_folds(cluster, train, where):
        weights, biases = _fit_ridge(features, target, rows, STRENGTHS, where)
        right += _right_by_strength(features[held_out], target[held_out], weights, biases)
    return float(STRENGTHS[_strongest_of_best(right)])


def _fit_ridge(
    features: np.ndarray, target: np.ndarray, rows: np.ndarray, strengths: np.ndarray, where: str
) -> tuple[np.ndarray, np.ndarray]:
    """StandardScaler and RidgeClassifier on some rows: weights (s, D) and biases (s,) for features as they are.

    RidgeClassifier is Ridge on −1 and 1. Ridge takes a strength for each of several targets: the same target once per
    strength lets all share one product of the features with themselves, by far the longest part.
    """
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import StandardScaler

    _check_directions(target[rows], f"{where}: training part")
    scaler = StandardScaler()
    blocks = list(_row_blocks(len(rows), features.shape[1]))
    for block in blocks:  # fitted at once, it would make a further copy in float64
        scaler.partial_fit(features[rows[block]].astype(np.float64))
    scaled = np.empty((len(rows), features.shape[1]))
    for block in blocks:
        scaled[block] = scaler.transform(features[rows[block]].astype(np.float64))
    ridge = Ridge(alpha=strengths, copy_X=False, solver="cholesky")
    ridge.fit(scaled, np.repeat(target[rows, None], len(strengths), axis=1))
    # Standardising is folded into the map: w·(x − μ)/σ + b = (w/σ)·x + b − (w/σ)·μ.
    weights = ridge.coef_.reshape(len(strengths), -1) / scaler.scale_
    return weights, np.atleast_1d(ridge.intercept_) - weights @ scaler.mean_


def _right_by_strength(features: np.ndarray, target: np.ndarray, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """(s,) number of clips whose direction each classifier gives."""
    classifiers = zip(weights, biases, strict=True)
    return np.array([_right(direction_scores(features, *each), target).sum() for each in classifiers])


def _right(scores: np.ndarray, target: np.ndarray) -> np.ndarray:
    """1 where the sign is that of the target, ½ where the score is 0, else 0."""
    return (np.sign(scores) * target + 1) / 2


def _strongest_of_best(right: np.ndarray) -> int:
    return int(np.flatnonzero(right == right.max())[-1])  # strengths are in ascending order


def _same_in_both_directions(features: np.ndarray, reversed: np.ndarray, cluster: np.ndarray) -> np.ndarray:
    """Bool (n,): whether a clip of the same cluster and the other direction has the same features."""
    _, vector = np.unique(features, axis=0, return_inverse=True)
    clips = pd.DataFrame({"cluster": cluster, "vector": vector, "reversed": np.asarray(reversed) == 1})
    return (clips.groupby(["cluster", "vector"])["reversed"].transform("nunique") > 1).to_numpy()
