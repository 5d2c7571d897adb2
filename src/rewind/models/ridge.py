"""Closed-form baseline: a ridge map between text features and time-averaged features of frozen towers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rewind.errors import RewindError
from rewind.models.baselines import PooledBaseline, check_options
from rewind.models.making import make_towers
from rewind.models.moments import moments, split
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys

ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Strengths tried on validation, as multiples of the mean eigenvalue of the source features' covariance."""

DIRECTIONS = ("text_to_items", "items_to_text")


class Ridge(PooledBaseline):
    """Cosine of predicted and true features, both less the training pairs' mean.

    With ``text_to_items`` the prediction is ``(text − text_mean) W``, compared with ``items − item_mean``;
    with ``items_to_text`` the other way round. ``W = (X'X + alpha m I)⁻¹ X'Y``, where X and Y are the centred
    training pairs and m = trace(X'X)/width: ``alpha`` means the same for any number of pairs and any scale.
    The map knows nothing of the order of frames.

    Args:
        text_width: dt, width of the prepared text features.
        item_width: di, width of the frame features.
        alpha: strength of the ridge; none: chosen among :data:`ALPHAS` on validation.
        direction: one of :data:`DIRECTIONS`.
    """

    def __init__(
        self, text_width: int, item_width: int, alpha: float | None = None, direction: str = DIRECTIONS[0]
    ) -> None:
        super().__init__()
        self.wanted, self.from_text = alpha, direction == "text_to_items"
        widths = (text_width, item_width) if self.from_text else (item_width, text_width)
        self.register_buffer("weight", torch.zeros(widths))
        self.register_buffer("text_mean", torch.zeros(text_width))
        self.register_buffer("item_mean", torch.zeros(item_width))
        self.register_buffer("alpha", torch.tensor(float("nan")))

    @torch.no_grad()
    def fit(
        self, text: Tensor, items: Tensor, valid_text: Tensor | None = None, valid_items: Tensor | None = None
    ) -> None:
        """Solve for the map; deterministic, in float64.

        Args:
            text: prepared features of the training captions (n, dt).
            items: features of each caption's item, pooled by :func:`rewind.models.retriever.masked_mean` (n, di).
            valid_text: the same of the validation captions (v, dt); needed where no ``alpha`` was given.
            valid_items: the item of each validation caption (v, di).

        Raises:
            RewindError: if shapes do not fit, features are not finite, or nothing to choose alpha on.
        """
        self._check(text, items, "training")
        if self.wanted is None:
            if valid_text is None or valid_items is None:
                raise RewindError(
                    "ridge: options.alpha is not set and there are no validation pairs to choose it with."
                )
            self._check(valid_text, valid_items, "validation")
        pairs = moments(split(text, items) if self.from_text else split(items, text), both=False)
        means = (pairs.x_mean, pairs.y_mean) if self.from_text else (pairs.y_mean, pairs.x_mean)
        self.text_mean.copy_(means[0])
        self.item_mean.copy_(means[1])
        # One eigendecomposition serves every alpha.
        values, vectors = torch.linalg.eigh(pairs.xx)
        right = vectors.T @ pairs.xy

        def solve(alpha: float) -> None:
            strength = alpha * values.mean().clamp(min=1e-12)
            self.weight.copy_(vectors @ (right / (values.clamp(min=0) + strength)[:, None]))
            self.alpha.fill_(alpha)

        def score(alpha: float) -> float:
            solve(alpha)
            return mean_reciprocal_rank(self, valid_text, valid_items)

        # The largest of equally good strengths: the smoother map.
        solve(self.wanted if self.wanted is not None else max(reversed(ALPHAS), key=score))

    def translate(self, text: Tensor) -> Tensor:
        """Vectors (n, dt) of captions → unit vectors (n, di): the prediction with the items' mean, not less it.

        Raises:
            RewindError: for a map of items to texts.
        """
        if not self.from_text:
            raise RewindError("methods.*.options.direction: items_to_text maps no caption into the space of items.")
        return F.normalize(self.map_text(text.float()) + self.item_mean, dim=1)

    def map_text(self, text: Tensor) -> Tensor:
        """(n, dt) → (n, di), or with ``items_to_text`` (n, dt)."""
        return self._map(text - self.text_mean, self.from_text)

    def map_items(self, items: Tensor) -> Tensor:
        """(n, di) → (n, di), or with ``items_to_text`` (n, dt)."""
        return self._map(items - self.item_mean, not self.from_text)

    def _map(self, centred: Tensor, source: bool) -> Tensor:
        if torch.isnan(self.alpha):
            raise RewindError("ridge: the map has not been fitted; call fit() or load a fitted checkpoint.")
        return centred @ self.weight if source else centred

    def _check(self, text: Tensor, items: Tensor, which: str) -> None:
        widths = len(self.text_mean), len(self.item_mean)
        expected = (len(text), widths[0]), (len(text), widths[1])
        if (tuple(text.shape), tuple(items.shape)) != expected or not len(text):
            raise RewindError(
                f"ridge: {which} pairs have shapes {tuple(text.shape)} and {tuple(items.shape)}; there must be "
                f"one row per caption in each, with widths {widths[0]} and {widths[1]}."
            )
        if not (torch.isfinite(text).all() and torch.isfinite(items).all()):
            raise RewindError(f"ridge: {which} features contain NaN or infinity; look for a broken clip or checkpoint.")


def mean_reciprocal_rank(ridge: Ridge, text: Tensor, items: Tensor) -> float:
    """Mean of 1/rank of pair i's item among the distinct items, ties at their mean rank."""
    distinct, place = torch.unique(items.float(), dim=0, return_inverse=True)
    targets = F.normalize(ridge.map_items(distinct), dim=1)
    scores = F.normalize(ridge.map_text(text.float()), dim=1) @ targets.T
    truth = scores.gather(1, place[:, None])
    ranks = 1 + (scores > truth).sum(1) + ((scores == truth).sum(1) - 1) / 2
    return float((1 / ranks).mean())


def make(text_width: int, item_width: int, options: Mapping[str, Any] | None = None) -> Ridge:
    """The baseline ``ridge``, not yet fitted; ``options`` may fix its ``alpha`` and its ``direction``.

    Raises:
        RewindError: on an unknown option, an alpha that is not a positive number, or an unknown direction.
    """
    options = options or {}
    check_options(options, ("alpha", "direction"), "ridge")
    alpha, direction = options.get("alpha"), options.get("direction", DIRECTIONS[0])
    number = isinstance(alpha, int | float) and not isinstance(alpha, bool) and 0 < alpha < 1e12
    if alpha is not None and not number:
        raise RewindError(
            f"methods: options.alpha: {alpha!r} is not a positive number; leave it out to have it chosen."
        )
    if direction not in DIRECTIONS:
        raise RewindError(f"methods: options.direction: {direction!r} is not one of {', '.join(DIRECTIONS)}.")
    return Ridge(text_width, item_width, None if alpha is None else float(alpha), direction)


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Ridge:
    """The baseline over the features of a study's backbone.

    Raises:
        RewindError: for a backbone whose prepared text is no feature vector, or an option that ridge lacks.
    """
    towers = make_towers(backbone, text, train_captions)
    if towers.text_width is None:
        raise RewindError(
            f"methods: ridge maps sentence features, but backbone.kind {backbone.kind!r} reads token ids; use it with "
            "kind: towers."
        )
    return make(towers.text_width, towers.feature_width, method.options)
