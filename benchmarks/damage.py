"""What is found of damage to clips, by format and kind of damage, with this machine's ffmpeg.

python benchmarks/damage.py      # a table in Markdown, and results/damage.csv with the reasons
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
from damaged_clips import DAMAGE, FORMATS, outcomes
from rewind.io.files import write_csv


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in FORMATS:
            rows += [(kind, *found) for found in outcomes(Path(folder), kind)]
    table = pd.DataFrame(rows, columns=["format", "damage", "outcome", "reason"])
    write_csv(Path("results/damage.csv"), table)
    print(published(table)["table"])


def published(table: pd.DataFrame) -> dict[str, str]:
    """The table of formats and damage, for documents."""
    cells = table.set_index(["format", "damage"])["outcome"]
    lines = [f"| format | {' | '.join(DAMAGE)} |", "|---" * (len(DAMAGE) + 1) + "|"]
    for kind in table["format"].unique():
        lines.append(f"| {kind} | {' | '.join(cells.get((kind, damage), '–') for damage in DAMAGE)} |")
    return {"table": "\n".join(lines)}


if __name__ == "__main__":
    main()
