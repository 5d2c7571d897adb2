"""`metrics.csv` of a run: one row per epoch, under the column names of SANW's original code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd

HISTORY_NAMES = {
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
"""Column of ``metrics.csv`` → column of ``history.csv``."""


def epoch_metrics(history: Iterable[Mapping[str, float]]) -> pd.DataFrame:
    """The table of a run's history; R@k in percent, on the validation split.

    ``loss`` is the epoch's mean (the original divides the sum since its last message by all steps), and for R@k every
    caption of an image is correct (in the original only the one on the diagonal). What an epoch or a loss does not
    have is empty.

    >>> epoch_metrics([{"epoch": 1, "loss": 0.5, "logit_scale": 0.0}])[["epoch", "exp_logit_scale", "r1_t2i"]].values
    array([[ 1.,  1., nan]])
    """
    return pd.DataFrame([_row(row) for row in history], columns=list(HISTORY_NAMES))


def _row(row: Mapping[str, float]) -> dict[str, float]:
    derived = {"exp_logit_scale": math.exp(row["logit_scale"])} if "logit_scale" in row else {}
    return {name: {**row, **derived}.get(source, math.nan) for name, source in HISTORY_NAMES.items()}
