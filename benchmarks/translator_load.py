"""The translator at the challenge's size, on random vectors: seconds and memory to load it, seconds of an epoch.

    python benchmarks/translator_load.py [--folder /tmp/translator]

125,000 captions (1024-d) of 25,000 images (1536-d), float16 on disk. Every stage runs in a process of its own, whose
peak memory is its largest resident set (pages of mapped files included). The time of an epoch is extrapolated from 20
steps. Loading as the original does is computed from the sizes of its arrays, not run: it unpacks the whole npz, with
the label matrix, and turns vectors to float32.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import shutil
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
import torch

from rewind.config import Dataset, load_study
from rewind.data.captions import load_split
from rewind.data.formats.embeddings import make_sources, read
from rewind.loading.run_data import EmbeddingFiles, PreparedSplit, TrainingData
from rewind.losses.base import make_objective
from rewind.models.translator import make_translator
from rewind.torch_setup import seed_everything
from rewind.training.grad_cache import exact_step
from rewind.training.optim import make_optimiser
from rewind.training.samplers.base import make_sampler
from rewind.video.dataset import make_captions, report_vectors

CAPTIONS, IMAGES, TEXT_WIDTH, IMAGE_WIDTH = 125_000, 25_000, 1024, 1536
NAME, DATA = "synthetic", Path("results/data/synthetic")
STEPS, WARM_UP = 20, 2


def matrix(file: zipfile.ZipFile, name: str, rows: int, width: int, seed: int) -> None:
    """Random float16 vectors, written some at a time."""
    rng = np.random.default_rng(seed)
    header = {"descr": "<f2", "fortran_order": False, "shape": (rows, width)}
    with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for at in range(0, rows, 5000):
            values = rng.standard_normal((min(5000, rows - at), width), dtype=np.float32)
            stream.write((values / np.sqrt(width)).astype(np.float16).tobytes())


def write_challenge(folder: Path) -> None:
    """``train.npz`` without the label matrix, which is never read, and ``captions.txt``."""
    names = [f"{1_000_000 + 7 * n}.jpg" for n in range(IMAGES)]
    texts = [f"caption {n} of image {n // 5}" for n in range(CAPTIONS)]
    arrays = {"captions/ids": np.arange(CAPTIONS), "captions/text": np.array(texts), "images/names": np.array(names)}
    with zipfile.ZipFile(folder / "train.npz", "w") as file:
        for name, values in arrays.items():
            with file.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, values)
        matrix(file, "captions/embeddings", CAPTIONS, TEXT_WIDTH, 0)
        matrix(file, "images/embeddings", IMAGES, IMAGE_WIDTH, 1)
    lines = [f"{names[n // 5]},{text}" for n, text in enumerate(texts)]
    (folder / "captions.txt").write_text("\n".join(["image,caption", *lines]) + "\n")


def dataset() -> Dataset:
    """The data set over these files."""
    return Dataset(name=NAME, source={"format": "embeddings", "train": "train.npz", "captions": "captions.txt"})


def lay_out() -> dict[str, float]:
    """Check the vectors and lay them out: once for a data set."""
    make_sources(dataset(), DATA / "source")
    return {}


def tables() -> dict[str, float]:
    """items.csv and the captions of every split: once for a data set."""
    read(dataset(), str(DATA / "source"))
    report_vectors(dataset(), str(DATA / "videos/report.csv"))
    make_captions(dataset(), str(DATA / "videos/report.csv"), str(DATA / "items.csv"))
    return {}


def training_data() -> TrainingData:
    """The training split as a run opens it."""
    found, (items, captions, _) = EmbeddingFiles(DATA / "source/embeddings.json"), load_split(DATA, NAME, "train")
    return PreparedSplit(items, captions, found.items(items), found.text(captions)).training_data()


def open_split() -> dict[str, float]:
    """What every run does before its first step, and one look at every vector."""
    data = training_data()
    began = time.monotonic()
    for rows in np.array_split(np.arange(len(data.text)), 200):
        data.batch(rows)
    return {"read once (s)": time.monotonic() - began, "captions": len(data.text)}


def geometry() -> dict[str, float]:
    """Fit the whitened Procrustes map."""
    began = time.monotonic()
    make_translator("geometry_adapter", TEXT_WIDTH, IMAGE_WIDTH).prepare(training_data())
    return {"fit (s)": time.monotonic() - began}


def steps(queue: int) -> dict[str, float]:
    """Seconds of a step of ``translator.yaml`` once its queue holds ``queue`` items."""
    seed_everything(0)
    study = load_study("translator", Path(__file__).parents[1] / "config/studies")
    method = study.methods["geometry_adapter"]
    keys, data = method.training, training_data()
    translator, loss = make_translator(method.head, TEXT_WIDTH, IMAGE_WIDTH, method.options), make_objective(keys)
    translator.start_epoch(10)
    loss.start_epoch(10 if queue else 0)
    if queue:
        loss.queue.add(
            torch.nn.functional.normalize(torch.randn(queue, IMAGE_WIDTH), dim=1), torch.arange(queue) % IMAGES
        )
    optimiser, _ = make_optimiser(translator, keys, 1000)
    batches = make_sampler(keys.batch).batches(data.item_of_caption, data.cluster_of_item, keys.batch, 0, 0, {})
    for number, rows in enumerate(batches[: WARM_UP + STEPS]):
        if number == WARM_UP:
            began = time.monotonic()
        exact_step(translator, loss, data.batch(rows))
        optimiser.step()
    step = (time.monotonic() - began) / STEPS
    return {"step (s)": step, "epoch, extrapolated (min)": step * len(batches) / 60, "steps": len(batches)}


def measured(work, folder: Path, *arguments: int) -> dict[str, float]:
    """Run ``work`` in a process of its own: its findings, its seconds, its peak memory."""
    process = multiprocessing.get_context("spawn").Process(target=_child, args=(work, str(folder), arguments))
    process.start()
    process.join()
    return json.loads((folder / "found.json").read_text())


def _child(work, folder: str, arguments: tuple[int, ...]) -> None:
    os.chdir(folder)
    torch.set_num_threads(1)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    found = work(*arguments)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = time.monotonic() - began
    Path("found.json").write_text(
        json.dumps({"seconds": seconds, "peak (MB)": peak / 1024, "idle (MB)": idle / 1024} | found)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", help="scratch folder; it is removed afterwards")
    options = parser.parse_args()
    folder = Path(options.folder or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    stages = {
        "lay out (once)": (lay_out, ()),
        "tables (once)": (tables, ()),
        "open a split": (open_split, ()),
        "fit geometry": (geometry, ()),
        "steps, no queue": (steps, (0,)),
        "steps, queue 65,536": (steps, (65_536,)),
    }
    try:
        write_challenge(folder)
        print(f"train.npz: {(folder / 'train.npz').stat().st_size / 1e6:.0f} MB")
        for name, (work, arguments) in stages.items():
            row = measured(work, folder, *arguments)
            print(f"{name:22} " + ", ".join(f"{k} {v:,.2f}" for k, v in row.items()), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    label, vectors = CAPTIONS * IMAGES, 4 * (CAPTIONS * TEXT_WIDTH + IMAGES * IMAGE_WIDTH)
    print(
        f"as the original, estimated: label matrix {label / 1e6:,.0f} MB + vectors as float32 {vectors / 1e6:,.0f} MB "
        f"+ as they are stored {vectors / 2e6:,.0f} MB = {(label + 1.5 * vectors) / 1e6:,.0f} MB"
    )


if __name__ == "__main__":
    main()
