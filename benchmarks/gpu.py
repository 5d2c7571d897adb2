"""What one GPU does with Rewind, as documents print it.

    make gpu-check                                  # on a machine with a GPU; writes results/gpu.json
    python tools/publish gpu --from results/gpu.json    # here or elsewhere: the file names its machine

`make gpu-check` (``benchmarks/gpu_check``) makes the figures; docs/cluster.md says what they mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gpu_check.check import FAILED, format_figure
from rewind.errors import RewindError
from rewind.io.files import read_json

FIGURES = "results/gpu.json"
UNPUBLISHED = {
    "table": "No GPU has been checked yet: nothing is published here, and what the checks print has only been seen on a"
    " CPU.",
    "made": "none so far",
}
"""What documents print instead of a block, or of who made it, while no figures are published."""


def read(figures: Path) -> pd.DataFrame:
    """A row for each figure of a check, or one without a figure: name, state, seconds, detail, figure, value.

    Raises:
        RewindError: for figures of a CPU, which mean nothing.
    """
    record = read_json(figures)
    if not str(record["device"]).startswith("cuda"):
        raise RewindError(f"{figures}: these are figures of the {record['device']}; publish those of a GPU.")
    rows = []
    for check in record["checks"]:
        said = "; ".join(part for part in (*check["below_goal"], check["detail"]) if part)
        row = {name: check[name] for name in ("name", "state", "seconds")} | {"detail": said}
        rows += [row | {"figure": name, "value": value} for name, value in (check["figures"] or {"": None}).items()]
    return pd.DataFrame(rows)


def made(figures: Path) -> dict[str, Any]:
    """The machine, versions, commit and date of the figures, as ``run.json`` has them."""
    return read_json(figures)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print (``python tools/publish gpu``): a table in Markdown."""
    lines = ["| check | | s | figures | |", "|---|---|---:|---|---|"]
    for name, rows in table.groupby("name", sort=False):
        first = rows.iloc[0]
        measured = rows[rows["value"].notna()]
        figures = [f"{row.figure} {format_figure(row.value)}" for row in measured.itertuples()]
        state = f"**{first.state}**" if first.state == FAILED else first.state
        detail = "" if pd.isna(first.detail) else str(first.detail).replace("|", "\\|")
        lines.append(f"| {name} | {state} | {first.seconds:.1f} | {', '.join(figures)} | {detail} |")
    return {"table": "\n".join(lines)}
