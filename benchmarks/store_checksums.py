"""What comparing every row of a frame store with its checksum costs, beside reading and beside a training step.

    python benchmarks/store_checksums.py                 # 256 rows of 12 frames of 224² in batches of 8
    python benchmarks/store_checksums.py --rows 1024 --batch 128 --threads 4 --rounds 9 --no-step

All ways read the same rows in turn in one process, round by round, and a training step of CLIP ViT-B/32
(`benchmarks/real_step.py`) on as many clips as a batch has is done in every round. The tables show medians, in
processor time, so that other work on the machine counts little: on an idle machine a way with one thread takes as long
on the clock. (On a GPU, where the processor's time says nothing of a step, its seconds are taken.)

Without the check is what versions before it did; `the first time` compares a row only when a process first reads it.
Fast checksums of Python's own library are compared on the bytes of the same rows.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import real_step
from rewind.config import Frames
from rewind.loading.frame_source import StoredFrames, load_batches
from rewind.platform import processor_name
from rewind.video import frame_store as stores
from rewind.video.frame_store import (
    FrameView,
    StoreShard,
    check_row,
    store_shard_path,
    write_row_checksums,
    write_store_index,
)

KEYS = Frames()  # 12 frames of 224², as config/studies/rtime.yaml has them
VIEW = FrameView.of(KEYS, KEYS.max_frames)
ROWS_OF_A_SHARD = 128
CHECKSUMS: dict[str, Callable[[np.ndarray], object]] = {
    "CRC-32 (zlib)": lambda row: zlib.crc32(row.data),
    "Adler-32 (zlib)": lambda row: zlib.adler32(row.data),
    "SHA-1": lambda row: hashlib.sha1(row).digest(),
    "SHA-256": lambda row: hashlib.sha256(row).digest(),
    "BLAKE2b": lambda row: hashlib.blake2b(row).digest(),
}


def make_store(folder: Path, rows: int) -> Path:
    """A store of random pixels: none of what is measured depends on them."""
    rng, shards = np.random.default_rng(0), []
    (folder / "shards").mkdir()
    for number, first in enumerate(range(0, rows, ROWS_OF_A_SHARD)):
        count, whole = min(ROWS_OF_A_SHARD, rows - first), hashlib.sha256()
        with store_shard_path(folder, number).open("wb") as stream:
            for _ in range(count):
                row = rng.integers(0, 256, VIEW.bytes, dtype=np.uint8)
                stream.write(row)
                whole.update(row)
        write_row_checksums(store_shard_path(folder, number), VIEW.bytes, whole)
        places = [(f"v{first + row}", row, VIEW.max_frames, 0) for row in range(count)]
        shards.append(StoreShard(count, whole.hexdigest(), places))
    write_store_index(folder, VIEW, shards)
    return folder / "index.json"


def first_time() -> Callable[..., None]:
    """The check, of each row when it is first read."""
    seen = set()

    def check(store: stores.FrameStore, shard: int, row: int, pixels: np.ndarray) -> None:
        if (int(shard), int(row)) not in seen:
            check_row(store, shard, row, pixels)
            seen.add((int(shard), int(row)))

    return check


def seconds_of(clips: StoredFrames, batches: list[np.ndarray], threads: int, check: Callable[..., None]) -> float:
    """Read all batches as the training loop does, with another check in the place of ours."""
    stores.check_row = check
    try:
        start = time.process_time()
        for batch in load_batches(clips.batch, batches, clips, threads, torch.device("cpu")):
            assert batch["pixels"].shape[1:] == VIEW.shape
        return time.process_time() - start
    finally:
        stores.check_row = check_row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256, help="clips in the store")
    parser.add_argument("--batch", type=int, default=8, help="clips of a batch and of a step")
    parser.add_argument("--threads", type=int, default=1, help="threads that read (frames.workers)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-step", action="store_true", help="no training step")
    options = parser.parse_args()
    import pandas as pd

    with tempfile.TemporaryDirectory() as folder:
        index = make_store(Path(folder), options.rows)
        clips = StoredFrames(pd.DataFrame({"item_id": [f"v{n}" for n in range(options.rows)]}), index, KEYS, 12)
        order = np.random.default_rng(1).permutation(options.rows)
        batches = [order[at : at + options.batch] for at in range(0, options.rows, options.batch)]
        ways = {"without the check": lambda *_: None, "the first time": first_time(), "every time": check_row}
        found: dict[str, list[float]] = {name: [] for name in ways}
        sums: dict[str, list[float]] = {name: [] for name in CHECKSUMS}
        steps: list[float] = []
        step = None if options.no_step else real_step.rewind_step(step_keys(options.batch))
        for turn in range(options.rounds + 1):  # the first brings the files into memory
            for name, check in ways.items():
                seconds = seconds_of(clips, batches, options.threads, check)
                found[name] += [seconds] * (turn > 0)
            rows = [np.array(clips.store._row(0, row)).ravel() for row in range(min(32, options.rows))]
            for name, checksum in CHECKSUMS.items():
                start = time.process_time()
                for row in rows:
                    checksum(row)
                sums[name].append(len(rows) * VIEW.bytes / (time.process_time() - start))
            if step:
                steps += [seconds_of_step(step)] * (turn > 0)
    report(options, found, sums, steps)


def seconds_of_step(step: real_step.Step) -> float:
    start = time.process_time()
    seconds = real_step.timed(step)["seconds"]
    return seconds if torch.cuda.is_available() else time.process_time() - start


def step_keys(batch: int) -> dict:
    gpu = torch.cuda.is_available()
    if not gpu:
        torch.set_num_threads(real_step.THREADS)
    rest = {"micro_batch": None, "optimiser": "adamw"} if gpu else {"micro_batch": 2, "optimiser": "bert_adam"}
    return real_step.PLAIN | {"head": "meanP", "batch": batch, "precision": "bf16" if gpu else "fp32"} | rest


def report(
    options: argparse.Namespace, found: dict[str, list[float]], sums: dict[str, list[float]], steps: list[float]
) -> None:
    """Print both tables."""
    print(f"{processor_name()}, {options.threads} reading threads, rows of {VIEW.bytes / 1e6:.2f} MB, zlib "
          f"{zlib.ZLIB_RUNTIME_VERSION}; medians of {options.rounds} rounds in turn\n")  # fmt: skip
    batches = -(-options.rows // options.batch)
    plain = statistics.median(found["without the check"])
    print(
        "| reading | MB/s of a core | clips/s of a core | ms a batch | more than without |"
        + " of a step |" * bool(steps)
    )
    print("|---|---|---|---|---|" + "---|" * bool(steps))
    for name, seconds in found.items():
        middle = statistics.median(seconds)
        more = statistics.median(now - before for now, before in zip(seconds, found["without the check"], strict=True))
        line = f"| {name} | {options.rows * VIEW.bytes / middle / 1e6:,.0f} | {options.rows / middle:,.0f} | "
        line += f"{middle / batches * 1e3:.2f} | {more / plain:+.0%} |"
        print(line + (f" {more / batches / statistics.median(steps):+.3%} |" if steps else ""))
    if steps:
        print(f"\nA step of {options.batch} clips: {statistics.median(steps):.2f} s")
    print("\n| checksum of a row | MB/s of a core |\n|---|---|")
    for name, rates in sums.items():
        print(f"| {name} | {statistics.median(rates) / 1e6:,.0f} |")


if __name__ == "__main__":
    main()
