"""Chooses the number of frames by the validation scores of the sweep's trials."""

from __future__ import annotations

import pandas as pd

from rewind.io.files import read_json, write_csv, write_json

TRIAL_COLUMNS = ["max_frames", "valid_sum", "valid_R@1", "valid_R@5", "valid_R@10", "valid_MdR", "valid_MnR", "epoch"]


def choose_frames(records: list[str], default: int, table: str, best: str) -> None:
    """Choose the ``max_frames`` with the best validation R@1 + R@5 + R@10; of equals the smaller, which is cheaper.

    Args:
        records: ``run.json`` of every trial; empty for a study without a sweep.
        default: the study's own value, for that case.
        table: CSV file of all trials that is written.
        best: JSON file with the choice that is written.
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
