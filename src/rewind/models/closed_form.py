"""Maps between embedding spaces that are fitted in closed form: moments of pairs of vectors, whitened Procrustes.

All sums are in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from rewind.errors import RewindError

ROWS_AT_ONCE = 8192  # pairs that are converted to double precision at a time
EIGENVALUE_EPS = 1e-5  # added to the eigenvalues of covariances, as upstream

# ---- Means and covariances of pairs of vectors, summed piece by piece ----------------------------------------------


class Moments(NamedTuple):
    """Number of pairs (x, y), means (dx,) and (dy,), and sums of centred products, all float64.

    ``xx`` (dx, dx) is ``Σ (x − x̄)(x − x̄)ᵀ``, ``yy`` and ``xy`` (dx, dy) likewise; ``yy`` is None if not needed.
    """

    count: int  # type: ignore[assignment]  # hides the method of tuples
    x_mean: Tensor
    y_mean: Tensor
    xx: Tensor
    yy: Tensor | None
    xy: Tensor


def compute_moments(pieces: Iterable[tuple[Tensor, Tensor]], both: bool = True) -> Moments:
    """Moments of the pairs (x[i], y[i]), given some at a time (:func:`split_pairs`); ``both``: with ``yy``.

    Two passes, so ``pieces`` is iterated over twice, the second over centred values: the difference of uncentred sums
    would lose digits where means are large compared with deviations.

    >>> moments = compute_moments(split_pairs(torch.rand(10, 3), torch.rand(10, 2)))
    >>> moments.count, moments.xx.shape, moments.xy.shape
    (10, torch.Size([3, 3]), torch.Size([3, 2]))
    """
    counts, *means = zip(*((len(x), x.double().mean(0), y.double().mean(0)) for x, y in pieces), strict=True)
    count = sum(counts)
    # The mean of all is the mean of the pieces' means, weighted by their numbers of pairs.
    shares = torch.tensor(counts, dtype=torch.float64, device=means[0][0].device) / count
    x_mean, y_mean = (torch.einsum("p,pd->d", shares, torch.stack(parts)) for parts in means)
    xx, xy, yy = _zeros(x_mean, x_mean), _zeros(x_mean, y_mean), _zeros(y_mean, y_mean) if both else None
    for x, y in pieces:
        x, y = x.double() - x_mean, y.double() - y_mean
        xx += x.T @ x
        xy += x.T @ y
        if yy is not None:
            yy += y.T @ y
    return Moments(count, x_mean, y_mean, xx, yy, xy)


def split_pairs(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Views of two tensors, some rows at a time, so that no copy of everything is made in double precision."""
    return list(zip(x.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True))


def _zeros(x: Tensor, y: Tensor) -> Tensor:
    return torch.zeros(len(x), len(y), dtype=torch.float64, device=x.device)


# ---- Whitened orthogonal Procrustes: the map that gives one set of vectors the mean and covariance of another ------


def whitened_procrustes(pairs: Moments, eps: float = EIGENVALUE_EPS) -> tuple[Tensor, Tensor]:
    """``y ≈ A x + b`` with ``A = Cy^½ R Cx^−½`` and ``b = μy − A μx``, as emanueleiacca/AML_Hackaton fits it.

    ``Cx`` and ``Cy`` are covariances (divided by n); their powers are computed from eigenvalues clipped at 0 plus
    ``eps``: the smaller it is, the more directions of almost no variance are magnified. With ``M = Cx^−½ (Xᵀ Y) Cy^−½ =
    U S Vᵀ`` of the centred pairs, ``R = V Uᵀ`` is the best rotation of whitened x onto whitened y. So every canonical
    direction has gain 1, however much x tells about it: ridge regression, in contrast, shrinks directions that x does
    not predict. Returns A (dy, dx) and b (dy,), float64.

    >>> weight, bias = whitened_procrustes(compute_moments(split_pairs(torch.rand(50, 3), torch.rand(50, 4))))
    >>> weight.shape, bias.shape
    (torch.Size([4, 3]), torch.Size([4]))
    """
    if pairs.yy is None or not all(torch.isfinite(part).all() for part in (pairs.xx, pairs.yy, pairs.xy)):
        raise RewindError("geometry: training vectors contain NaN or infinity; look for a broken encoder.")
    x_values, x_vectors = torch.linalg.eigh(pairs.xx / pairs.count)
    y_values, y_vectors = torch.linalg.eigh(pairs.yy / pairs.count)
    x_white = _power(x_values, x_vectors, eps, -0.5)
    y_white, y_root = _power(y_values, y_vectors, eps, -0.5), _power(y_values, y_vectors, eps, 0.5)
    # `left` is U and `right` Vᵀ. S is not needed, so that Xᵀ Y need not be divided by n. If dx and dy differ, the
    # reduced SVD gives an R of min(dx, dy) directions.
    left, _, right = torch.linalg.svd(x_white @ pairs.xy @ y_white, full_matrices=False)
    weight = y_root @ (right.T @ left.T) @ x_white
    return weight, pairs.y_mean - weight @ pairs.x_mean


def _power(values: Tensor, vectors: Tensor, eps: float, power: float) -> Tensor:
    """``Q (Λ + eps)^power Qᵀ``; rounding makes eigenvalues of 0 slightly negative, hence the clamp."""
    return (vectors * (values.clamp(min=0) + eps) ** power) @ vectors.T
