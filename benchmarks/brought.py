"""Seconds and peak memory of stages on similarity matrices of vectors: `python benchmarks/brought.py 1000 6000 10000`.

Writes a data set of so many captioned clips and their twins (no clip is there), vectors for it, and runs `rewind
evaluate` on them in a copy of the workflow's files: two runs, the vectors' and chance. Then each stage's job is done
once more in a process of its own, of which the kernel tells the peak.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rewind.platform import processor_name
from rewind.provenance import environment

ROOT = Path(__file__).resolve().parents[1]
NAME = "clips"  # of data set and study
STAGES = {
    "untrained_run": "ranks/items/seed0.parquet",  # the vectors checked, the matrix, its ranks
    "metrics": "metrics.csv",
    "statistics": "statistics/intervals.csv",
    "tables": "tables",
    "examples": "figures/examples.png",
    "page": "report.html",
}


def write(folder: Path, clips: int, width: int) -> None:
    """``clips.csv`` and the vectors of both sides: captions near their clips, twins apart by a little."""
    rng = np.random.default_rng(0)
    with (folder / "clips.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["item_id", "caption", "reverse_caption"])
        rows.writerows([f"v{n}", f"somebody opens door {n}", f"somebody closes door {n}"] for n in range(clips))
    items = [f"v{n}{suffix}" for suffix in ("", "_rev") for n in range(clips)]
    content, turn = rng.normal(size=(2, clips, width)).astype(np.float32)
    vectors = np.concatenate([content + 0.3 * turn, content - 0.3 * turn])
    noise = rng.normal(size=vectors.shape).astype(np.float32)
    np.savez(folder / "items.npz", ids=np.array(items), vectors=vectors)
    np.savez(folder / "captions.npz", ids=np.array([f"{item}#0" for item in items]), vectors=vectors + 2 * noise)


def alone(folder: Path, stages: dict[str, str]) -> dict[str, list[float]]:
    """Name of a rule → seconds and peak memory in MB of its job, done again in a process of its own."""
    found = {}
    for rule, file in stages.items():
        with tempfile.TemporaryDirectory(dir=folder) as out:
            began = time.monotonic()
            command = [sys.executable, "-m", "rewind", "job", f"results/{NAME}/{file}", "--out", out]
            job = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(job.pid, 0)
            if status:
                raise SystemExit(f"the job of {file} failed: run {' '.join(command)} in {folder}")
            found[rule] = [round(time.monotonic() - began, 1), usage.ru_maxrss // 1024]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=int, nargs="+", help="originals; the matrix has twice as many rows and columns")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--keep", type=Path, help="work in folders below this one, leave all there, and go on with it")
    options = parser.parse_args()
    rows = []
    for clips in options.clips:
        folder = options.keep / str(clips) if options.keep else Path(tempfile.mkdtemp())
        rows.append((2 * clips, measured(folder, clips, options.width)))
        if not options.keep:
            shutil.rmtree(folder)
    git = environment()["git"] or {}
    edits = ", with edits" if git.get("dirty") else ""
    print(f"commit {git.get('commit')}{edits}; {processor_name()}, {os.cpu_count()} cores")
    print("| queries × gallery | " + " | ".join(STAGES) + " |")
    print("|---" * (len(STAGES) + 1) + "|")
    for side, found in rows:
        cells = (f"{found[rule][0]:g} s, {found[rule][1]:,} MB" for rule in STAGES)
        print(f"| {side:,} × {side:,} | " + " | ".join(cells) + " |")


def measured(folder: Path, clips: int, width: int) -> dict[str, list[float]]:
    """Run the study in a folder, and then each of :data:`STAGES` once more, alone."""
    for name in ("config", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    shutil.copy(ROOT / "Snakefile", folder)
    if not (folder / "items.npz").is_file():
        write(folder, clips, width)
    command = ["-m", "rewind", "evaluate", "--data", f"{NAME}.csv", "--vectors", "captions.npz", "items.npz"]
    subprocess.run([sys.executable, *command], cwd=folder, check=True, stdout=sys.stderr)
    return alone(folder, STAGES)


if __name__ == "__main__":
    main()
