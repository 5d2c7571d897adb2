"""SANW: similarity-aware negative weighting of InfoNCE (skcpda/CLIPSE @b62f3e3; docs/sanw.md).

The more similar two pairs are, the less certain it is that one is a negative of the other. With unit vectors t of
captions and v of items, and logits ℓ = exp(logit_scale) · v·tᵀ, the similarity of pairs i and j is
s_ij = α·t_i·t_j + (1 − α)·v_i·v_j, and

    loss = ½ Σ over directions of mean_i[ −ℓ_ii + log Σ_j w_ij·exp(ℓ_ij) ],   w_ii = 1,

where w follows from s by a mode (:func:`negative_weights`) and no gradient flows through w.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from rewind.config import Training
from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.loading.encode import encode_all_items, encode_all_texts
from rewind.losses.base import (
    OPTIONS_KEY,
    Exclude,
    Exclusions,
    Loss,
    Objective,
    exclude_field,
    require_vectors,
    unit_vectors,
)
from rewind.models.retriever import Features, Retriever
from rewind.registry import LOSSES

# ---- The loss ------------------------------------------------------------------------------------------------------

_TEACHER_BATCH = 64  # captions or items that the teacher encodes at once
WEIGHT_EPS = 1e-12  # upstream's, inside the logarithm of a weight


class SanwOptions(ConfigModel):
    """Options of the loss; upstream's symbols are their names.

    >>> SanwOptions(**{"lambda": 2.0}).lambda_
    2.0
    """

    mode: Literal["vanilla", "debias", "bandpass"] = config_field("debias", "How weights follow from similarity.")
    alpha: float = config_field(0.5, "Share of the texts in the similarity; the items have the rest.", ge=0, le=1)
    lambda_: float = Field(4.0, alias="lambda", description="debias: how fast weights fall.", ge=0)
    delta: float = config_field(0.6, "debias: similarity above which weights fall.", ge=-1, le=1)
    m1: float = config_field(0.3, "bandpass: lower edge of the band.")
    m2: float = config_field(0.8, "bandpass: upper edge of the band.")
    gamma: float = config_field(0.05, "bandpass: width of the edges.", gt=0)
    floor: float = config_field(1e-3, "bandpass: least weight.", ge=0, le=1)
    seed_compatible: bool = config_field(
        False,
        "Upstream's diagonal (w_ii = 1 + the weight of s = 0) and its statistics, only of an epoch's last batch.",
    )
    row_normalise: bool = config_field(False, "Scale the weights of a pair's negatives to a mean of 1.")
    similarity: Literal["live", "teacher"] = config_field(
        "live", "Vectors that s is computed from: of the step, or of the weights that training started from."
    )
    exclude: list[Exclude] = exclude_field()

    @model_validator(mode="after")
    def _require_band(self) -> SanwOptions:
        if self.m1 >= self.m2:
            raise ValueError(f"m1 ({self.m1}) must be below m2 ({self.m2})")
        return self


def negative_weights(s: Tensor, options: SanwOptions) -> Tensor:
    """Weights of pairs of similarity ``s``, elementwise.

    ``vanilla``: 1. ``debias``: exp(−λ·relu(s − δ)). ``bandpass``: max(floor, σ((s − m1)/γ)·(1 − σ((s − m2)/γ))).

    >>> negative_weights(torch.tensor([0.2, 0.6, 1.0]), SanwOptions(delta=0.6)).tolist()[:2]  # 1 up to δ
    [1.0, 1.0]
    """
    if options.mode == "vanilla":
        return torch.ones_like(s)
    if options.mode == "debias":
        return torch.exp(-options.lambda_ * F.relu(s - options.delta))
    rising, falling = ((s - edge) / options.gamma for edge in (options.m1, options.m2))
    return (torch.sigmoid(rising) * (1 - torch.sigmoid(falling))).clamp(min=options.floor)


def normalise_rows(w: Tensor, negative: Tensor) -> Tensor:
    """Weights (B, B) scaled to a mean of 1 over each row's negatives; a row whose weights are all 0 stays as it is.

    >>> normalise_rows(torch.tensor([[9.0, 0.2, 0.6]]), torch.tensor([[False, True, True]]))[0, 1:].tolist()
    [0.5, 1.5]
    """
    total = (w * negative).sum(1, keepdim=True)
    count = negative.sum(1, keepdim=True)
    return torch.where(total > WEIGHT_EPS, w * count / total.clamp(min=WEIGHT_EPS), w)


@LOSSES.register("sanw")
class Sanw(Objective):
    """The loss of a study's options.

    Pairs of one item, and those that ``exclude`` names, are not negatives, whatever their weight, and no statistic
    counts them. Besides the loss, it logs the epoch's w_mean, w_low_pct (w < 1e-3), w_high_pct (w > 0.8), w_sim_corr
    (Pearson's r of w and s), the margins of items against texts, and w_empty_rows_pct, the share of pairs whose
    negatives all have weight 0.
    """

    Options = SanwOptions

    def __init__(self, options: SanwOptions) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)
        self.teacher: tuple[Tensor, Tensor] | None = None
        self.last: dict[str, float] = {}
        self.warned = False

    def check(self, retriever: Retriever, keys: Training) -> None:
        require_vectors(retriever, "sanw")

    @torch.no_grad()
    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Compute a teacher's vectors if options ask for one: the model with the weights that training starts from."""
        self.exclusions.prepare(data, device)
        if self.options.similarity != "teacher":
            return
        training = retriever.training
        retriever.eval()
        texts = encode_all_texts(retriever.encode_text, data.text, _TEACHER_BATCH, device)
        items = encode_all_items(retriever.encode_items, data.inputs, _TEACHER_BATCH, device, workers=data.workers)
        self.teacher = unit_vectors(retriever, texts, items, "sanw")
        retriever.train(training)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """The loss of at least two pairs; the teacher also needs ``batch['rows']``."""
        logits = retriever.similarity(text, items).T  # rows are items, as in upstream's names
        if len(logits) < 2:
            raise RewindError("training.objective: sanw weights the negatives of a batch; a batch of 1 pair has none.")
        with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
            s = self._similarity(retriever, text, items, batch)
            excluded = self.exclusions.batch(batch)
            negative = ~excluded
            negative.fill_diagonal_(False)
            w = negative_weights(s, self.options)
            if self.options.row_normalise:
                w = normalise_rows(w, negative)
            empty = ((w * negative).amax(1) <= WEIGHT_EPS) & negative.any(1)
            own = s.new_ones(())  # w_ii
            # Upstream adds that 1 to a diagonal that already has the weight of s_ii = 0, so its w_ii is 2 with debias
            # and 1.0025 with bandpass.
            if self.options.seed_compatible:
                own = 1 + negative_weights(s.new_zeros(()), self.options)
            # w · exp(ℓ) = exp(ℓ + log w): weighted InfoNCE is a cross entropy of biased logits; no gradient goes to w.
            bias = torch.log(torch.where(torch.eye(len(w), dtype=torch.bool, device=w.device), own, w) + WEIGHT_EPS)
        logs = self._logs(logits.detach(), s, w, excluded, empty)
        least = torch.finfo(logits.dtype).min
        truth = torch.arange(len(logits), device=logits.device)
        # Row i of w belongs to pair i whichever side searches, so the same bias serves both directions.
        directions = [(side + bias).masked_fill(excluded, least) for side in (logits, logits.T)]
        loss = sum(F.cross_entropy(direction, truth) for direction in directions) / 2
        # Cross entropy also takes the bias off the numerator, −(ℓ_ii + log w_ii); the formula has only −ℓ_ii.
        return Loss(loss + bias[0, 0], logs)

    def _similarity(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Tensor:
        """s (B, B), its diagonal 0."""
        if self.teacher is None:
            texts, views = unit_vectors(retriever, text, items, "sanw")
        else:
            texts, views = self.teacher[0][batch["rows"]], self.teacher[1][batch["items"]]
        alpha = self.options.alpha
        # Rounding can put a cosine above 1.
        s = alpha * (texts @ texts.T).clamp(-1, 1) + (1 - alpha) * (views @ views.T).clamp(-1, 1)
        return s.fill_diagonal_(0)

    def _logs(self, logits: Tensor, s: Tensor, w: Tensor, excluded: Tensor, empty: Tensor) -> dict[str, float | Tensor]:
        if empty.any() and not self.warned:
            print(
                f"sanw: all negatives of {int(empty.sum())} of {len(empty)} pairs of a batch have weight 0, so these "
                f"pairs learn nothing from others. Check w_empty_rows_pct in history.csv, and {OPTIONS_KEY} (mode: "
                f"{self.options.mode})."
            )
            self.warned = True
        logs: dict[str, float | Tensor] = {"w_empty_rows_pct": 100 * empty.float().mean()}
        if self.options.seed_compatible:
            self.last = upstream_weight_statistics(logits, s, w, excluded)
            return logs
        return logs | batch_weight_sums(logits, s, w, excluded)

    def summary(self, logs: dict[str, float]) -> dict[str, float]:
        """Columns of the history, over all pairs of the epoch (``seed_compatible``: of its last batch)."""
        statistics = self.last if self.options.seed_compatible else weight_statistics(logs)
        return statistics | {"w_empty_rows_pct": logs["w_empty_rows_pct"]}


# ---- Statistics of the weights over an epoch -----------------------------------------------------------------------
# Sums are kept for every batch and the epoch's statistics follow from them exactly: a correlation over an epoch is not
# the mean of its batches' correlations.

LOW_WEIGHT, HIGH_WEIGHT = 1e-3, 0.8  # upstream's
WEIGHT_COLUMNS = ("w_mean", "w_low_pct", "w_high_pct", "w_sim_corr", "unweighted_margin", "weighted_margin")
_MIN_RELATIVE_VARIANCE = 1e-12  # a variance below this share of the mean square is rounding


@torch.no_grad()
def batch_weight_sums(logits: Tensor, s: Tensor, w: Tensor, excluded: Tensor) -> dict[str, Tensor]:
    """Sums over a batch's negatives, and over its rows of the margins (double precision).

    Row i of ``logits`` (B, B) belongs to column i; ``s`` and ``w`` (B, B) are similarities and weights, and
    ``excluded`` is True for pairs that are not negatives, the diagonal aside.
    """
    negative = ~excluded & ~torch.eye(len(w), dtype=torch.bool, device=w.device)
    sums = _product_sums(w, s, negative)
    sums |= {"low": (negative & (w < LOW_WEIGHT)).sum(), "high": (negative & (w > HIGH_WEIGHT)).sum()}
    margins = [_margins(logits, others, negative) for others in (logits, logits + (w + WEIGHT_EPS).log())]
    sums |= {"rows": negative.any(1).sum(), "unweighted": margins[0].sum(), "weighted": margins[1].sum()}
    return sums


def _product_sums(w: Tensor, s: Tensor, mask: Tensor) -> dict[str, Tensor]:
    # In double precision: the variances below are differences of such sums.
    x, y = ((side * mask).double().flatten() for side in (w, s))
    return {"n": mask.sum(), "w": x.sum(), "s": y.sum(), "ww": x.dot(x), "ss": y.dot(y), "ws": x.dot(y)}


def _margins(logits: Tensor, others: Tensor, negative: Tensor) -> Tensor:
    """ℓ_ii − log Σ over the row's negatives of exp(others_ij), of the rows that have any."""
    has_negatives = negative.any(1)
    return (logits.diagonal() - others.masked_fill(~negative, -math.inf).logsumexp(1))[has_negatives].double()


def weight_statistics(sums: dict[str, float]) -> dict[str, float]:
    """The epoch's statistics from the means of its batches' :func:`batch_weight_sums`.

    Means serve as well as sums: every statistic is a ratio, in which the number of batches cancels.
    """
    n, rows = sums["n"], sums["rows"]
    if not n:
        return dict.fromkeys(WEIGHT_COLUMNS, math.nan)
    values = (
        sums["w"] / n,
        100 * sums["low"] / n,
        100 * sums["high"] / n,
        _correlation(sums),
        sums["unweighted"] / rows,
        sums["weighted"] / rows,
    )
    return dict(zip(WEIGHT_COLUMNS, values, strict=True))


def _correlation(sums: dict[str, float]) -> float:
    """Pearson's r; not a number where one side is constant."""
    n = sums["n"]
    w, s = sums["w"] / n, sums["s"] / n
    w_variance, s_variance = sums["ww"] / n - w * w, sums["ss"] / n - s * s
    if w_variance <= _MIN_RELATIVE_VARIANCE * sums["ww"] / n or s_variance <= _MIN_RELATIVE_VARIANCE * sums["ss"] / n:
        return math.nan
    return (sums["ws"] / n - w * s) / math.sqrt(w_variance * s_variance)


@torch.no_grad()
def upstream_weight_statistics(logits: Tensor, s: Tensor, w: Tensor, excluded: Tensor) -> dict[str, float]:
    """Upstream's statistics of one batch, number for number: the diagonal counts, with s_ii = 0.

    ``w`` has the weight of s = 0 on its diagonal. Both margins set the diagonal to 0 instead of leaving it out, and so
    count one exp(0) more.
    """
    sums = {name: float(value) for name, value in _product_sums(w, s, ~excluded).items()}
    statistics = {
        "w_mean": sums["w"] / sums["n"],
        "w_low_pct": 100 * float((w[~excluded] < LOW_WEIGHT).double().mean()),
        "w_high_pct": 100 * float((w[~excluded] > HIGH_WEIGHT).double().mean()),
        "w_sim_corr": _correlation(sums),
    }
    sides = (logits, logits + (w + WEIGHT_EPS).log())
    margins = [float((logits.diagonal() - _upstream_logsumexp(side, excluded)).mean()) for side in sides]
    return statistics | {"unweighted_margin": margins[0], "weighted_margin": margins[1]}


def _upstream_logsumexp(logits: Tensor, excluded: Tensor) -> Tensor:
    zeros = torch.zeros_like(logits.diagonal())
    return torch.diagonal_scatter(logits.masked_fill(excluded, -math.inf), zeros).logsumexp(1)
