"""Chooses the number of frames, and the keys of a method, by the validation scores of trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from rewind.io.files import read_json, write_csv, write_json

TRIAL_COLUMNS = ["max_frames", "valid_sum", "valid_R@1", "valid_R@5", "valid_R@10", "valid_MdR", "valid_MnR", "epoch"]


def choose_frames(records: list[str], default: int, table: str, best: str) -> None:
    """Choose the ``max_frames`` with the best validation R@1 + R@5 + R@10; of equals the smaller, which is cheaper.

    ``records`` are the ``run.json`` of all trials; a study without a sweep has none, and keeps its ``default``.
    """
    trials = [read_json(path) for path in records]
    rows = [{"max_frames": trial["max_frames"]} | trial["best"] for trial in trials]
    table_of_trials = pd.DataFrame(rows, columns=TRIAL_COLUMNS).sort_values("max_frames")
    write_csv(table, table_of_trials)
    if table_of_trials.empty:
        write_json(best, {"max_frames": default, "chosen": "set by the study"})
        return
    print(table_of_trials.to_string(index=False))
    winner = table_of_trials.sort_values(["valid_sum", "max_frames"], ascending=[False, True]).iloc[0]
    tried = [int(n) for n in table_of_trials["max_frames"]]
    write_json(
        best, {"max_frames": int(winner["max_frames"]), "chosen": "by validation R@1 + R@5 + R@10", "tried": tried}
    )


def choose_keys(
    records: Sequence[str], trials: Mapping[str, dict[str, Any]], metric: str, table: str, choice: str
) -> None:
    """Choose the keys of the trial with the best validation score; of equals the first.

    Args:
        trials: name → keys, in the same order.
        metric: ``training.select_metric`` of the method, by which its checkpoints are chosen too.
        choice: JSON file with the keys that were chosen. Nothing else is in it: a run with the same keys stays valid
            however many trials there were.
    """
    column, rows = f"valid_{metric}", []
    for path, (name, keys) in zip(records, trials.items(), strict=True):
        best = read_json(path)["best"]
        values = {key: json.dumps(value) for key, value in keys.items()}
        rows.append({"trial": name, column: best[column], "epoch": best["epoch"]} | values)
    ranked = pd.DataFrame(rows).sort_values(column, ascending=metric == "loss", kind="stable")
    write_csv(table, ranked)
    print(ranked.to_string(index=False))
    write_json(choice, {"keys": trials[ranked.iloc[0]["trial"]]})
