"""The sweep's choice."""

from __future__ import annotations

import pandas as pd

from rewind.files import read_json, write_csv, write_json
from rewind.jobs.given import Given

COLUMNS = ["max_frames", "valid_sum", "valid_R@1", "valid_R@5", "valid_R@10", "valid_MdR", "valid_MnR", "epoch"]


def sweep(given: Given) -> None:
    """Rule ``sweep``."""
    choose_frames(list(given.input), given.params.default, given.output.table, given.output.best)


def choose_frames(records: list[str], default: int, table: str, best: str) -> None:
    """Take the ``max_frames`` with the best validation R@1 + R@5 + R@10, the smaller of equals (it is cheaper).

    Args:
        records: ``run.json`` of every trial; none means that the study has no sweep.
        default: the study's own value, for that case.
        table: CSV of all trials.
        best: JSON with the frozen choice.
    """
    trials = [read_json(path) for path in records]
    rows = [{"max_frames": trial["max_frames"]} | trial["best"] for trial in trials]
    frame = pd.DataFrame(rows, columns=COLUMNS).sort_values("max_frames")
    write_csv(table, frame)
    if frame.empty:
        write_json(best, {"max_frames": default, "chosen": "set by the study"})
        return
    print(frame.to_string(index=False))
    winner = frame.sort_values(["valid_sum", "max_frames"], ascending=[False, True]).iloc[0]
    tried = [int(n) for n in frame["max_frames"]]
    write_json(
        best, {"max_frames": int(winner["max_frames"]), "chosen": "by validation R@1 + R@5 + R@10", "tried": tried}
    )
