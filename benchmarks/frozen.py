"""Frozen-backbone mode on the demo: seconds of one run with cached features, and of the same run trained in full.

    make demo && python benchmarks/frozen.py

One seqTransf run, three times, each in a process of its own, one after the other: frame features read from the cache
(what the demo does); the visual tower frozen, but run on the pixels in every step; everything trained.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import torch

from rewind.config import load_study
from rewind.io.files import read_json
from rewind.training.run import TrainingJob, train_run

STUDY = Path("results/demo")


def run(kind: str, method: str, threads: int, folder: Path) -> None:
    """One run of a kind; its seconds go to a file."""
    torch.set_num_threads(threads)
    study = load_study("demo")
    frames = read_json(STUDY / "sweep/best.json")["max_frames"]
    training = study.methods[method].training
    if kind == "full":
        training = training.model_copy(update={"freeze": []})
    job = TrainingJob(
        name=kind,
        spec=study.run_spec(method, training),
        seed=0,
        data=Path("results/data") / study.dataset,
        dataset=study.dataset,
        max_frames=frames,
        state=folder / f"{kind}.pt",
        code="benchmark",
        cache=STUDY / f"features/seed0/frames{frames}.npz" if kind == "cached" else None,
        pretrained=STUDY / "pretrained/seed0/model.safetensors",
    )
    began = time.monotonic()
    record = train_run(job, folder / f"{kind}.safetensors", folder / f"{kind}.csv", folder / f"{kind}.json")
    seconds = time.monotonic() - began
    result = {"seconds": seconds, "examples": record["examples_per_second"], "score": record["best"]["valid_sum"]}
    (folder / f"{kind}.result").write_text(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="seqTransf")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("cached", "frozen", "full"):
            arguments = (kind, options.method, options.threads, Path(folder))
            process = multiprocessing.get_context("spawn").Process(target=run, args=arguments)
            process.start()
            process.join()
            found[kind] = json.loads((Path(folder) / f"{kind}.result").read_text())
    base = found["cached"]["seconds"]
    print(f"\n{options.method}, {options.threads} threads")
    print(f"{'':24} {'a run':>8} {'ratio':>7} {'pairs/s':>9} {'valid R@1+5+10':>15}")
    names = {"cached": "features cached", "frozen": "frozen, from pixels", "full": "everything trained"}
    for kind, row in found.items():
        print(
            f"{names[kind]:24} {row['seconds']:6.1f} s {row['seconds'] / base:6.1f}x {row['examples']:9.0f} "
            f"{row['score']:15.1f}"
        )


if __name__ == "__main__":
    main()
