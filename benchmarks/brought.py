"""Seconds and memory from files of vectors to tables: `python benchmarks/brought.py 1000`.

Writes a data set of so many captioned clips and their twins (no clip is there), vectors for it, and runs `rewind
evaluate` on them in a copy of the workflow's files.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=int, help="originals; the matrix has twice as many rows and columns")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--keep", type=Path, help="work here, and leave everything there")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    for name in ("config", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    shutil.copy(ROOT / "Snakefile", folder)
    write(folder, options.clips, options.width)
    command = ["-m", "rewind", "evaluate", "--data", "clips.csv", "--vectors", "captions.npz", "items.npz"]
    began = time.monotonic()
    subprocess.run([sys.executable, *command], cwd=folder, check=True)
    seconds = time.monotonic() - began
    size = sum(path.stat().st_size for path in (folder / "results").rglob("*") if path.is_file())
    most = {}
    for path in sorted((folder / "results").glob("*/benchmarks/**/*.tsv")):
        row = dict(zip(*(line.split("\t") for line in path.read_text().splitlines()[:2]), strict=True))
        most[path.relative_to(folder / "results").as_posix()] = [float(row["s"]), row["max_rss"]]
    found = {
        "matrix": [2 * options.clips] * 2,
        "seconds": round(seconds, 1),
        "largest process, MB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
        "results on disk, MB": size // 2**20,
        "stages: seconds, MB": most,
    }
    print(json.dumps(found, indent=1))
    if not options.keep:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
