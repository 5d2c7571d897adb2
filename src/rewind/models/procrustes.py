"""Whitened orthogonal Procrustes: the map that gives one cloud of vectors the mean and covariance of another."""

from __future__ import annotations

import torch
from torch import Tensor

from rewind.errors import RewindError
from rewind.models.moments import Moments

EPS = 1e-5  # added to the eigenvalues of covariances, as upstream


def whitened_procrustes(pairs: Moments, eps: float = EPS) -> tuple[Tensor, Tensor]:
    """``y ≈ A x + b`` with ``A = Cy^½ R Cx^−½`` and ``b = μy − A μx``, as emanueleiacca/AML_Hackaton fits it.

    ``Cx`` and ``Cy`` are covariances (divided by n), their powers taken of eigenvalues clipped at 0 plus ``eps``. With
    ``M = Cx^−½ (Xᵀ Y) Cy^−½ = U S Vᵀ`` of the centred pairs, ``R = V Uᵀ`` is the best rotation of whitened x onto
    whitened y, so every canonical direction has gain 1, whether x says much about it or not.

    Args:
        pairs: moments of the training pairs, with ``yy``.
        eps: the smaller, the more directions without variance are blown up.

    Returns:
        A (dy, dx) and b (dy,), float64.

    Raises:
        RewindError: if the moments are not finite.
    """
    if pairs.yy is None or not all(torch.isfinite(part).all() for part in (pairs.xx, pairs.yy, pairs.xy)):
        raise RewindError("geometry: training vectors contain NaN or infinity; look for a broken encoder.")
    x_values, x_vectors = torch.linalg.eigh(pairs.xx / pairs.count)
    y_values, y_vectors = torch.linalg.eigh(pairs.yy / pairs.count)
    x_white = _power(x_values, x_vectors, eps, -0.5)
    y_white, y_root = _power(y_values, y_vectors, eps, -0.5), _power(y_values, y_vectors, eps, 0.5)
    left, _, right = torch.linalg.svd(x_white @ pairs.xy @ y_white, full_matrices=False)
    weight = y_root @ (right.T @ left.T) @ x_white
    return weight, pairs.y_mean - weight @ pairs.x_mean


def _power(values: Tensor, vectors: Tensor, eps: float, power: float) -> Tensor:
    return (vectors * (values.clamp(min=0) + eps) ** power) @ vectors.T
