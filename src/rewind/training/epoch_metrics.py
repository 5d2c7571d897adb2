"""``metrics.csv`` of a run: one row per epoch under the column names that SANW's original writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd

COLUMNS = {
    "epoch": "epoch",
    "r1_i2t": "valid_item_to_text R@1",
    "r5_i2t": "valid_item_to_text R@5",
    "r10_i2t": "valid_item_to_text R@10",
    "r1_t2i": "valid_R@1",
    "r5_t2i": "valid_R@5",
    "r10_t2i": "valid_R@10",
    "mean_r1": "valid_mean R@1",
    "zs_cifar10": "zs_cifar10",
    "logit_scale": "logit_scale",
    "exp_logit_scale": "exp_logit_scale",
    "lr": "lr",
    "loss": "loss",
    "w_mean": "w_mean",
    "w_low_pct": "w_low_pct",
    "w_high_pct": "w_high_pct",
    "w_sim_corr": "w_sim_corr",
    "unweighted_margin": "unweighted_margin",
    "weighted_margin": "weighted_margin",
}
"""Name here → name in ``history.csv``."""


def epoch_metrics(history: Iterable[Mapping[str, float]]) -> pd.DataFrame:
    """The table of a run's history; R@k in percent, of validation.

    ``loss`` is the epoch's mean (the original divides what came since its last message by all steps) and R@k counts
    every caption of an image as its own. What an epoch or a loss does not have is empty.
    """
    return pd.DataFrame([_row(row) for row in history], columns=list(COLUMNS))


def _row(row: Mapping[str, float]) -> dict[str, float]:
    given = {"exp_logit_scale": math.exp(row["logit_scale"])} if "logit_scale" in row else {}
    return {name: {**row, **given}.get(source, math.nan) for name, source in COLUMNS.items()}
