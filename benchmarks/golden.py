"""What agrees with other people's own code, and how closely: `make golden`, or `python benchmarks/golden.py`.

Runs the tests that are marked `golden` and prints, for each model or loss, how many numbers were compared and the
largest absolute difference, in double and in single precision. The tests assert bounds; this says how far below them
this machine stays. `tests/golden/README.md` says how the numbers were made.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
PRECISIONS = ("double", "single", "exact")


def run(out: Path) -> int:
    """Run the tests, which write ``out``; their exit code."""
    # One process: each has notes of its own. One thread: sums are added in one order.
    command = [sys.executable, "-m", "pytest", "-m", "golden", "--golden-table", str(out.resolve())]
    files = sorted(str(file) for file in (ROOT / "tests").rglob("test_*.py") if "golden_numbers" in file.read_text())
    return subprocess.run([*command, *files], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}).returncode


def by_precision(table: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """One row per ``names``: numbers compared and their largest difference, in each precision."""
    rows = []
    for values, group in table.groupby(names, sort=False):
        row = dict(zip(names, values, strict=True)) | {"quantities": ", ".join(dict.fromkeys(group["quantity"]))}
        for precision, part in group.groupby("precision"):
            row |= {
                f"{precision} numbers": part["numbers"].sum(),
                f"{precision} largest": part["largest_difference"].max(),
            }
        rows.append(row)
    found = pd.DataFrame(rows)
    wanted = [f"{precision} {column}" for precision in PRECISIONS for column in ("numbers", "largest")]
    return found.reindex(columns=[*names, "quantities", *wanted])


def cells(row: pd.Series) -> list[str]:
    """Numbers and largest difference in double and in single precision, and the count of whole numbers."""
    found = []
    for precision in PRECISIONS:
        count = row[f"{precision} numbers"]
        found.append("–" if pd.isna(count) else f"{int(count):,}")
        if precision != "exact":
            found.append("–" if pd.isna(count) else _power(row[f"{precision} largest"]))
    return found


def _power(value: float) -> str:
    return f"{value:.0e}".replace("e-0", "e-") if value else "0"


HEADS = ["double", "largest difference", "single", "largest difference", "whole numbers, all equal"]


def printed(table: pd.DataFrame) -> str:
    """The table for a terminal, a row per model or loss and quantity."""
    shown = by_precision(table, ["compared", "quantity", "original"])
    rows = [[row["compared"], row["quantity"], row["original"], *cells(row)] for _, row in shown.iterrows()]
    rows.insert(0, ["model or loss", "compared", "with", *HEADS[:4], "whole"])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        padded = [
            cell.ljust(width) if at < 3 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print (``python tools/publish golden``): a table in Markdown, and its sums."""
    found = by_precision(table, ["compared", "original"])
    lines = ["| model or loss | what is compared | with numbers from | " + " | ".join(HEADS) + " |"]
    lines.append("|---|---|---|" + "---:|" * len(HEADS))
    for _, row in found.iterrows():
        lines.append("| " + " | ".join([row["compared"], row["quantities"], row["original"], *cells(row)]) + " |")
    texts = {"table": "\n".join(lines), "numbers": f"{table['numbers'].sum():,}"}
    for precision in ("double", "single"):
        part = table[table["precision"] == precision]
        # The worst relative to its own bound says more than the worst: sizes differ by a factor of a thousand.
        texts[f"{precision}-share"] = f"{100 * (part['largest_difference'] / part['allowed']).max():.2g}%"
        texts[f"{precision}-numbers"] = f"{part['numbers'].sum():,}"
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "results/golden.csv", help="the same as CSV")
    out = parser.parse_args().out
    out.unlink(missing_ok=True)
    code = run(out)
    if code:
        sys.exit(code)
    table = pd.read_csv(out)
    print(printed(table), f"{table['numbers'].sum():,} numbers; as CSV: {out}", sep="\n\n")


if __name__ == "__main__":
    main()
