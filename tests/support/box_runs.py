"""Boxes that cross a wall, and their reversed twins: clips with a direction, and runs trained on them in seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import torch

from checkout import ROOT
from rewind.config import Backbone, Frames, Method, RunSpec, Text
from rewind.config.evaluation import Evaluation
from rewind.config.training import Batch, Training
from rewind.io.files import write_csv
from rewind.training.run import TrainingJob, train_run
from rewind.video import ffmpeg

COLOURS = ["red", "lime", "blue", "yellow", "black"]
WAYS = {False: "right", True: "left"}
HEADS = {"meanP": {}, "seqLSTM": {"head_layers": 1}, "tightTransf": {"head_layers": 1, "head_start": "random"}}


def make_boxes(root: Path) -> Path:
    """``results/data/boxes`` and its configuration under ``root``: every clip is in all three splits, by other names.

    A clip has two captions and its twin two others; one clip of the test split is missing.
    """
    folder = root / "results/data/boxes"
    (folder / "videos").mkdir(parents=True)
    (root / "config/models").mkdir(parents=True)
    shutil.copy(ROOT / "config/models/tiny.json", root / "config/models/tiny.json")
    items, captions = [], {split: [] for split in ("train", "valid", "test")}
    for colour in COLOURS:
        drawn = _draw(root, colour)
        for split in captions:
            for twin, name in ((False, f"{split}_{colour}"), (True, f"{split}_{colour}_rev")):
                shutil.copy(drawn[twin], folder / f"videos/{name}.mp4")
                items.append((name, f"videos/{name}.mp4", split, f"{split}_{colour}", int(twin), "ok"))
                texts = (f"a {colour} box moves {WAYS[twin]}", f"to the {WAYS[twin]} goes something {colour}")
                captions[split] += [(name, text, f"{name}#{n}") for n, text in enumerate(texts)]
    items.append(("test_gone", "videos/test_gone.mp4", "test", "test_gone", 0, "missing"))
    captions["test"].append(("test_gone", "a box that is gone", "test_gone#0"))
    columns = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    write_csv(folder / "items.csv", pd.DataFrame(items, columns=columns))
    for split, rows in captions.items():
        write_csv(
            folder / f"captions/boxes_{split}.csv", pd.DataFrame(rows, columns=["video_id", "caption", "caption_id"])
        )
    return folder


def _draw(root: Path, colour: str) -> tuple[Path, Path]:
    """A clip of 10 frames and the same backwards, without loss."""
    forward, backward = root / f"{colour}.mp4", root / f"{colour}_rev.mp4"
    coding = ["-c:v", "libx264", "-qp", "0", "-g", "1"]
    box = f"color=c=gray:s=48x32:r=5:d=2[w];color=c={colour}:s=12x12:r=5:d=2[b];[w][b]overlay=x=4*n:y=10"
    run = ["-f", "lavfi", "-i", box, *coding, str(forward)]
    assert ffmpeg.run_command([ffmpeg.executable(), *run]).code == 0
    assert (
        ffmpeg.run_command([ffmpeg.executable(), "-i", str(forward), "-vf", "reverse", *coding, str(backward)]).code
        == 0
    )
    return forward, backward


def spec_of(head: str, epochs: int) -> RunSpec:
    """The keys of a run of the tiny CLIP with ``head``."""
    training = Training(
        epochs=epochs,
        lr=3e-3,
        backbone_lr_multiplier=1.0,
        batch=Batch(size=10, captions="one"),
        evaluate_every=epochs,
    )
    return RunSpec(
        backbone=Backbone(architecture="config/models/tiny.json"),
        frames=Frames(size=32, max_frames=4, keep_in_memory=True),
        text=Text(tokenizer="words", max_words=8),
        evaluation=Evaluation(settings=["origin", "hard", "binary"], batch_size=4),
        method=Method(head=head, **HEADS[head]).model_copy(update={"training": training}),
    )


def train_boxes(root: Path, head: str, epochs: int) -> Path:
    """Train a run in ``root``, which is the present folder; its folder, relative."""
    folder = Path(f"results/boxes/runs/{head}/seed0")
    torch.set_num_threads(1)
    data = Path("results/data/boxes")
    job = TrainingJob(f"{head}/seed0", spec_of(head, epochs), 0, data, "boxes", 4, root / f"{head}.pt", "code")
    train_run(job, folder / "model.safetensors", folder / "history.csv", folder / "run.json")
    return folder
