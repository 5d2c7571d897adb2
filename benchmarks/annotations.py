"""Seconds and peak memory of the inventory and the captions: `python benchmarks/annotations.py 21537 215370`.

Writes annotations in RTime's format (for each clip one caption and nine rewrites of 16 words in each direction) and an
empty file for each clip, then runs the two jobs, each in a process of its own. No clip is read: the report between them
says that one in fifty is broken.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import tempfile
import time
from pathlib import Path

import pandas as pd

from rewind.config.dataset import Dataset
from rewind.io.files import read_csv, write_csv
from rewind.platform import processor_name
from rewind.provenance import environment
from rewind.video.dataset import make_captions, make_inventory
from rewind.video.prepare import REPORT_COLUMNS

WORDS = ("a", "person", "slowly", "opens", "the", "wooden", "door", "and", "walks", "into", "bright", "room", "while")
SHARES = {"valid": 500 / 21_537, "test": 1_000 / 21_537}
REWRITES = 9


def write(folder: Path, clips: int) -> Dataset:
    """Annotations, an empty file for each clip, and the data set's keys."""
    rng, number = random.Random(0), 0
    (folder / "clips").mkdir()
    sizes = {split: round(clips * share) for split, share in SHARES.items()}
    for split, size in {"train": clips - sum(sizes.values()), **sizes}.items():
        entries = {}
        for _ in range(size):
            name, number = f"{number:011d}", number + 1
            texts = [" ".join(rng.choices(WORDS, k=16)) for _ in range(2 + 2 * REWRITES)]
            lists = (texts[:1], texts[1:2], texts[2 : 2 + REWRITES], texts[2 + REWRITES :])
            names = ("forward_captions", "reverse_captions", "forward_rewrites", "reverse_rewrites")
            entries[name] = {"temporal": True, "reverse": True, **dict(zip(names, lists, strict=True))}
            (folder / "clips" / f"{name}.mp4").touch()
        (folder / f"{split}.json").write_text(json.dumps(entries), encoding="utf-8")
    paths = {split: str(folder / f"{split}.json") for split in ("train", *SHARES)}
    source = {"format": "rtime", "annotations": paths, "videos": str(folder / "clips")}
    return Dataset(name="measured", source=source, reverse=True, video={"shards": 200})


def report(inventory: Path, path: Path) -> None:
    """A report of clips that nobody has read."""
    rows = read_csv(inventory)
    states = ["ok" if number % 50 else "broken" for number in range(len(rows))]
    table = pd.DataFrame("", index=range(len(rows)), columns=list(REPORT_COLUMNS))
    write_csv(path, table.assign(item_id=rows["item_id"], split=rows["split"], status=states, sha256="0" * 64))


def alone(function, *arguments) -> tuple[float, int]:
    """Seconds and peak memory in MB of a call in a new process."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_timed, (function, *arguments))


def _timed(function, *arguments) -> tuple[float, int]:
    began = time.monotonic()
    function(*arguments)
    # Not getrusage, whose peak is also that of the process that started this one.
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return time.monotonic() - began, int(peak[1]) // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clips", type=int, nargs="+", help="originals; each has a twin")
    rows = []
    for clips in parser.parse_args().clips:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            dataset = write(folder, clips)
            found = alone(make_inventory, dataset, str(folder / "inventory.csv"))
            report(folder / "inventory.csv", folder / "report.csv")
            rows.append(
                (clips, found, alone(make_captions, dataset, str(folder / "report.csv"), str(folder / "items.csv")))
            )
    git = environment()["git"] or {}
    edits = ", with edits" if git.get("dirty") else ""
    print(f"commit {git.get('commit')}{edits}; {processor_name()}, {os.cpu_count()} cores")
    print("| clips | inventory | captions |\n|---|---|---|")
    for clips, *cells in rows:
        print(f"| {clips:,} | " + " | ".join(f"{seconds:.1f} s, {peak:,} MB" for seconds, peak in cells) + " |")


if __name__ == "__main__":
    main()
