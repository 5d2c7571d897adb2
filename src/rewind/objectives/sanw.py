"""SANW: similarity-aware negative weighting of InfoNCE (skcpda/CLIPSE).

The more alike two pairs are, the less certain it is that one is a negative of the other. With unit vectors t, v and
logits ℓ = exp(logit_scale) · v·tᵀ, pairs i and j are alike by s_ij = α·t_i·t_j + (1 − α)·v_i·v_j, and

    loss = ½ Σ over directions of mean_i[ −ℓ_ii + log Σ_j w_ij·exp(ℓ_ij) ],   w_ii = 1,

with w made of s by a mode (:func:`weights`) and no gradient through w.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor

from rewind.errors import RewindError
from rewind.feeding.encode import encode_all, encode_texts
from rewind.models.retriever import Features, Retriever, single
from rewind.objectives.exclude import Exclude, Exclusions, exclude_key
from rewind.objectives.interface import OPTIONS, Loss, Objective, check_vectors, unit_vectors
from rewind.objectives.sanw_statistics import TINY, last_batch, moments, summary
from rewind.study import Training
from rewind.study.keys import Keys, key, read_options

_AT_ONCE = 64  # pairs that the teacher encodes


class Options(Keys):
    """Options of the loss."""

    mode: Literal["vanilla", "debias", "bandpass"] = key("debias", "How weights follow from similarity.")
    alpha: float = key(0.5, "Share of the texts in the similarity; the items have the rest.", ge=0, le=1)
    lambda_: float = Field(4.0, alias="lambda", description="debias: how fast weights fall.", ge=0)
    delta: float = key(0.6, "debias: similarity above which weights fall.", ge=-1, le=1)
    m1: float = key(0.3, "bandpass: lower edge of the band.")
    m2: float = key(0.8, "bandpass: upper edge of the band.")
    gamma: float = key(0.05, "bandpass: width of the edges.", gt=0)
    floor: float = key(1e-3, "bandpass: least weight.", ge=0, le=1)
    seed_compatible: bool = key(
        False,
        "Upstream's diagonal (w_ii = 1 + the weight of s = 0) and its statistics, of an epoch's last batch alone.",
    )
    row_normalise: bool = key(False, "Scale the weights of a pair's negatives to a mean of 1.")
    similarity: Literal["live", "teacher"] = key(
        "live", "Vectors that s is made of: of the step, or of the weights that training started from."
    )
    exclude: list[Exclude] = exclude_key()

    @model_validator(mode="after")
    def _a_band(self) -> Options:
        if self.m1 >= self.m2:
            raise ValueError(f"m1 ({self.m1}) must be below m2 ({self.m2})")
        return self


def weights(s: Tensor, options: Options) -> Tensor:
    """Weights of pairs of similarity ``s``, elementwise.

    ``vanilla``: 1. ``debias``: exp(−λ·relu(s − δ)). ``bandpass``: max(floor, σ((s − m1)/γ)·(1 − σ((s − m2)/γ))).
    """
    if options.mode == "vanilla":
        return torch.ones_like(s)
    if options.mode == "debias":
        return torch.exp(-options.lambda_ * F.relu(s - options.delta))
    rising, falling = ((s - edge) / options.gamma for edge in (options.m1, options.m2))
    return (torch.sigmoid(rising) * (1 - torch.sigmoid(falling))).clamp(min=options.floor)


def row_normalised(w: Tensor, negative: Tensor) -> Tensor:
    """Weights whose mean over each row's negatives is 1; a row whose weights are all 0 stays as it is."""
    total = (w * negative).sum(1, keepdim=True)
    count = negative.sum(1, keepdim=True)
    return torch.where(total > TINY, w * count / total.clamp(min=TINY), w)


class Sanw(Objective):
    """The loss of a study's options.

    Pairs of one item, and those that ``exclude`` names, are no negatives, whatever their weight, and no statistic
    counts them. Beside the loss, the epoch's w_mean, w_low_pct (w < 1e-3), w_high_pct (w > 0.8), w_sim_corr (Pearson's
    r of w and s), the margins of items against texts, and w_empty_rows_pct, the share of pairs whose negatives all have
    weight 0.
    """

    def __init__(self, options: Options) -> None:
        self.options, self.exclusions = options, Exclusions(options.exclude)
        self.teacher: tuple[Tensor, Tensor] | None = None
        self.last: dict[str, float] = {}
        self.warned = False

    def check(self, retriever: Retriever, keys: Training) -> None:
        """Refuse a retriever that does not compare vectors."""
        check_vectors(retriever, "sanw")

    @torch.no_grad()
    def prepare(self, retriever: Retriever, data: Any, device: torch.device) -> None:
        """Which pairs are no negatives, and a teacher's vectors: of all captions and items, under the first weights."""
        self.exclusions.prepare(data, device)
        if self.options.similarity != "teacher":
            return
        training = retriever.training
        retriever.eval()
        texts = encode_texts(retriever.encode_text, data.text, _AT_ONCE, device)
        items = encode_all(retriever.encode_items, data.inputs, _AT_ONCE, device, workers=data.workers)
        self.teacher = unit_vectors(retriever, texts, items, "sanw")
        retriever.train(training)

    def __call__(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Loss:
        """``batch['items']`` (B,) tells which item each pair shows; the teacher also needs ``batch['rows']``.

        Raises:
            RewindError: for a batch of one pair, or a method without one vector per caption and per item.
        """
        logits = retriever.similarity(text, items).T  # rows are items, as in upstream's names
        if len(logits) < 2:
            raise RewindError("training.objective: sanw weights the negatives of a batch; a batch of 1 pair has none.")
        with torch.no_grad(), torch.autocast(logits.device.type, enabled=False):
            s = self._similarity(retriever, text, items, batch)
            same = self.exclusions.batch(batch).fill_diagonal_(True)
            w = weights(s, self.options)
            if self.options.row_normalise:
                w = row_normalised(w, ~same)
            empty = ((w * ~same).amax(1) <= TINY) & (~same).any(1)
            own = 1 + weights(s.new_zeros(()), self.options) if self.options.seed_compatible else s.new_ones(())
            bias = torch.log(torch.where(torch.eye(len(w), dtype=torch.bool, device=w.device), own, w) + TINY)
        same.fill_diagonal_(False)
        logs = self._logs(logits.detach(), s, w, same, empty)
        least = torch.finfo(logits.dtype).min
        truth = torch.arange(len(logits), device=logits.device)
        # Cross-entropy weighs the pair itself too: the logarithm of that weight is put back.
        loss = sum(F.cross_entropy((side + bias).masked_fill(same, least), truth) for side in (logits, logits.T)) / 2
        return Loss(loss + bias[0, 0], logs)

    def _similarity(self, retriever: Retriever, text: Features, items: Features, batch: Features) -> Tensor:
        """s (B, B), its diagonal 0."""
        if self.teacher is None:
            texts, views = (single(side) for side in unit_vectors(retriever, text, items, "sanw"))
        else:
            texts, views = self.teacher[0][batch["rows"]], self.teacher[1][batch["items"]]
        alpha = self.options.alpha
        s = alpha * (texts @ texts.T).clamp(-1, 1) + (1 - alpha) * (views @ views.T).clamp(-1, 1)
        return s.fill_diagonal_(0)

    def _logs(self, logits: Tensor, s: Tensor, w: Tensor, same: Tensor, empty: Tensor) -> dict[str, Tensor]:
        if empty.any() and not self.warned:
            print(
                f"sanw: all negatives of {int(empty.sum())} of {len(empty)} pairs of a batch have weight 0, so these "
                f"pairs learn nothing from others. Check w_empty_rows_pct in history.csv, and {OPTIONS} (mode: "
                f"{self.options.mode})."
            )
            self.warned = True
        logs = {"w_empty_rows_pct": 100 * empty.float().mean()}
        if self.options.seed_compatible:
            self.last = last_batch(logits, s, w, same)
            return logs
        return logs | moments(logits, s, w, same)

    def summary(self, logs: dict[str, float]) -> dict[str, float]:
        """Columns of the history, over all pairs of the epoch (``seed_compatible``: of its last batch)."""
        found = self.last if self.options.seed_compatible else summary(logs)
        return found | {"w_empty_rows_pct": logs["w_empty_rows_pct"]}


def build(options: dict[str, Any]) -> Sanw:
    """The loss with ``training.objective_options``.

    Raises:
        RewindError: for an unknown option or a wrong value.
    """
    return Sanw(read_options(Options, options, OPTIONS, "objective: sanw"))
