"""Results of one method as a JSON object with the fields of MiniCLIP's ``metrics_<model>.json``."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Any

import pandas as pd

from rewind.config import Study
from rewind.tables.results import Results

METRIC_FIELDS = {"R@1": "R@1", "R@5": "R@5", "R@10": "R@10", "MRR": "MRR", "MedR": "MdR"}
"""Name in the file → metric. R@k in percent, MRR from 0 to 1, MedR a rank."""

PREFERRED_SETTINGS = ("test", "origin", "hard")


def method_metrics(
    study: Study, results: Results, records: Mapping[tuple[str, int], Mapping[str, Any]], method: str
) -> dict[str, Any]:
    """Test scores of text→item search of a trained method, those of the baselines, and how the method was trained.

    With several seeds the numbers are means over them, and ``runs`` has those of each.
    """
    seeds = study.methods[method].seeds or study.seeds
    runs = [_run(study, results, records[method, seed], method, seed) for seed in seeds]
    keys = study.methods[method].training
    return {
        "model_type": method,
        "test_metrics": _mean([run["test_metrics"] for run in runs]),
        "baselines": {
            name: _mean([_scores(study, results, name, seed) for seed in study.methods[name].seeds or study.seeds])
            for name in results.baselines
        },
        "training": _mean([run["training"] for run in runs]),
        "config": {
            "image_size": study.frames.size,
            "max_seq_len": study.text.max_words,
            "max_vocab_size": study.text.max_vocabulary if study.text.tokenizer == "miniclip" else None,
            "batch_size": keys.batch.size,
            "num_epochs": keys.epochs,
            "learning_rate": keys.lr,
            "embed_dim": study.backbone.width,
            "dropout": study.methods[method].options.get("dropout", 0.2),
            "seed": seeds[0] if len(seeds) == 1 else list(seeds),
        },
        "runs": runs,
    }


def _run(study: Study, results: Results, record: Mapping[str, Any], method: str, seed: int) -> dict[str, Any]:
    best, last = record.get("best") or {}, record.get("last") or {}
    training = {
        "best_epoch": best.get("epoch"),
        "best_val_r1": best.get("valid_R@1"),
        "final_train_loss": last.get("loss"),
    }
    return {"seed": seed, "test_metrics": _scores(study, results, method, seed), "training": training}


def _scores(study: Study, results: Results, method: str, seed: int) -> dict[str, float]:
    table = results.metrics
    setting = next(
        (name for name in PREFERRED_SETTINGS if name in study.evaluation.settings), study.evaluation.settings[0]
    )
    direction = study.evaluation.directions[0]
    direction = "text_to_item" if "text_to_item" in study.evaluation.directions else direction
    of_run = (table["method"] == method) & (table["seed"] == seed)
    row = table[of_run & (table["setting"] == setting) & (table["direction"] == direction)].iloc[0]
    return {field: float(row[name]) for field, name in METRIC_FIELDS.items()}


def _mean(parts: list[dict[str, Any]]) -> dict[str, float | None]:
    """Mean of every field; None where a part has no value. A single part is returned as it is."""
    if len(parts) == 1:
        return dict(parts[0])
    return {
        field: None if any(pd.isna(part[field]) for part in parts) else fmean(part[field] for part in parts)
        for field in parts[0]
    }
