"""What is found of damage to clips, by format and kind of damage, with this machine's ffmpeg.

python benchmarks/damage.py      # a table in Markdown, and results/damage.csv with the reasons
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pandas as pd

from rewind.io.files import write_csv


def main() -> None:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/support"))
    from damaged_clips import FORMATS, outcomes  # as the test draws and damages them

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in parser.parse_args().formats:
            rows += [(kind, *found) for found in outcomes(Path(folder), kind)]
    table = pd.DataFrame(rows, columns=["format", "damage", "outcome", "reason"])
    write_csv(Path("results/damage.csv"), table)
    print(published(table)["table"])


def published(table: pd.DataFrame) -> dict[str, str]:
    """The table of formats and damage, for documents."""
    cells, damage = table.set_index(["format", "damage"])["outcome"], table["damage"].unique()
    lines = [f"| format | {' | '.join(damage)} |", "|---" * (len(damage) + 1) + "|"]
    for kind in table["format"].unique():
        lines.append(f"| {kind} | {' | '.join(cells.get((kind, name), '–') for name in damage)} |")
    return {"table": "\n".join(lines)}


if __name__ == "__main__":
    main()
