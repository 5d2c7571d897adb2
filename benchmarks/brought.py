"""CPU seconds and peak memory of every stage on vectors: `python benchmarks/brought.py 1000 6000 10000`.

Writes a data set of so many captioned clips and their twins (no clip is there), vectors of 512 numbers in half
precision for it, and runs `rewind evaluate` on them in a copy of the workflow's files: two runs, the vectors' and
chance. With `--gallery 100000`, 1,000 captions search so many clips without twins, of which all others have no caption.
Then each stage's job is done once more in a process of its own, whose seconds and peak the kernel tells.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rewind.platform import processor_name
from rewind.provenance import environment

ROOT = Path(__file__).resolve().parents[1]
NAME = "clips"  # of data set and study
STAGES = {
    "inventory": f"data/{NAME}/items.csv",
    "captions": f"data/{NAME}/captions/{NAME}_test.csv",
    "untrained_run": f"{NAME}/ranks/items/seed0.parquet",  # the vectors checked, the matrix, its ranks
    "chance": f"{NAME}/ranks/chance/seed0.parquet",  # the same rule
    "metrics": f"{NAME}/metrics.csv",
    "statistics": f"{NAME}/statistics/intervals.csv",
    "tables": f"{NAME}/tables",
    "embedding": f"{NAME}/embedding/items.seed0.npz",
    "examples": f"{NAME}/figures/examples.png",
    "page": f"{NAME}/report.html",
}
GALLERY_CAPTIONS = 1000
BLOCK_ROWS = 2**14


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
    save(folder / "items.npz", items, vectors)
    save(folder / "captions.npz", [f"{item}#0" for item in items], vectors + 2 * noise)


def write_gallery(folder: Path, clips: int, width: int) -> None:
    """As :func:`write`, for clips without twins, most of them without a caption."""
    rng = np.random.default_rng(0)
    captioned = np.linspace(0, clips - 1, GALLERY_CAPTIONS).astype(int)
    captions = dict.fromkeys(captioned.tolist(), "somebody opens door {}")
    with (folder / "clips.csv").open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["item_id", "caption"])
        rows.writerows([f"v{n}", captions.get(n, "").format(n)] for n in range(clips))
    vectors = np.empty((clips, width), np.float16)
    for top in range(0, clips, BLOCK_ROWS):
        vectors[top : top + BLOCK_ROWS] = rng.normal(size=vectors[top : top + BLOCK_ROWS].shape)
    save(folder / "items.npz", [f"v{n}" for n in range(clips)], vectors)
    noise = rng.normal(size=(len(captioned), width)).astype(np.float32)
    save(folder / "captions.npz", [f"v{n}#0" for n in captioned], vectors[captioned] + 4 * noise)


def save(path: Path, ids: list[str], vectors: np.ndarray) -> None:
    np.savez(path, ids=np.array(ids), vectors=vectors.astype(np.float16))


def alone(folder: Path, stages: dict[str, str]) -> dict[str, tuple[float, int]]:
    """Name of a rule → CPU seconds and peak memory in MB of its job, done again in a process of its own."""
    found = {}
    for rule, file in stages.items():
        with tempfile.TemporaryDirectory(dir=folder) as out:
            command = [sys.executable, "-m", "rewind", "job", f"results/{file}", "--out", out]
            found[rule] = usage_of(command, folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "clips", type=int, nargs="*", help="originals; the matrix has twice as many rows and as many columns"
    )
    parser.add_argument("--gallery", type=int, nargs="*", default=[], help="clips that 1,000 captions search")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--keep", type=Path, help="work in folders below this one, leave all there, and go on with it")
    options = parser.parse_args()
    sizes = [(f"{2 * clips:,} × {2 * clips:,}", clips, write) for clips in options.clips]
    sizes += [(f"{GALLERY_CAPTIONS:,} × {clips:,}", clips, write_gallery) for clips in options.gallery]
    rows = []
    for size, clips, make in sizes:
        folder = options.keep / size.replace(" ", "") if options.keep else Path(tempfile.mkdtemp())
        rows.append((size, *measured(folder, clips, options.width, make)))
        if not options.keep:
            shutil.rmtree(folder)
    git = environment()["git"] or {}
    edits = ", with edits" if git.get("dirty") else ""
    print(f"commit {git.get('commit')}{edits}; {processor_name()}, {os.cpu_count()} cores")
    print("| captions × clips | all | " + " | ".join(STAGES) + " |")
    print("|---" * (len(STAGES) + 2) + "|")
    for size, total, largest, found in rows:
        cells = (f"{found[rule][0]:g} s, {found[rule][1]:,} MB" for rule in STAGES)
        print(f"| {size} | {total:.0f} s, {largest:,} MB | " + " | ".join(cells) + " |")


def measured(
    folder: Path, clips: int, width: int, make: Callable[[Path, int, int], None]
) -> tuple[float, int, dict[str, tuple[float, int]]]:
    """CPU seconds of a study, run in a folder, its largest process in MB, and each of :data:`STAGES` alone."""
    for name in ("config", "workflow", "profiles"):
        shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    shutil.copy(ROOT / "Snakefile", folder)
    if not (folder / "items.npz").is_file():
        # In another process: a job's peak would begin with the memory of the one that starts it.
        writer = multiprocessing.get_context("spawn").Process(target=make, args=(folder, clips, width))
        writer.start()
        writer.join()
    command = ["-m", "rewind", "evaluate", "--data", f"{NAME}.csv", "--vectors", "captions.npz", "items.npz"]
    seconds, largest = usage_of([sys.executable, *command], folder)  # with all processes that it starts
    return seconds, largest, alone(folder, STAGES)


def usage_of(command: list[str], folder: Path) -> tuple[float, int]:
    """CPU seconds of a command and what it starts, and the largest of these processes in MB."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: run {' '.join(command)} in {folder}")
    return round(usage.ru_utime + usage.ru_stime, 1), usage.ru_maxrss // 1024


if __name__ == "__main__":
    main()
