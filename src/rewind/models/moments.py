"""Means and covariances of pairs of vectors, summed in double precision piece by piece."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 8192  # summed at once


class Moments(NamedTuple):
    """Of n pairs (x, y): their number, means (dx,) and (dy,), and sums of centred products, all float64."""

    count: int
    x_mean: Tensor
    y_mean: Tensor
    xx: Tensor
    yy: Tensor | None
    xy: Tensor


def moments(pieces: Iterable[tuple[Tensor, Tensor]], both: bool = True) -> Moments:
    """Moments of the pairs (x[i], y[i]).

    Two passes, the second over centred values, so that nothing cancels.

    Args:
        pieces: x (n, dx) and y (n, dy) of some pairs at a time; gone through twice. See :func:`split`.
        both: whether products of y with itself are wanted.
    """
    counts, *means = zip(*((len(x), x.double().mean(0), y.double().mean(0)) for x, y in pieces), strict=True)
    count = sum(counts)
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


def split(x: Tensor, y: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Views of two tensors, some rows at a time, so that no copy of everything is made in double precision."""
    return list(zip(x.split(ROWS), y.split(ROWS), strict=True))


def _zeros(one: Tensor, two: Tensor) -> Tensor:
    return torch.zeros(len(one), len(two), dtype=torch.float64, device=one.device)
