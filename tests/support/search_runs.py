"""A study of walls in six colours, trained in seconds: real clips, real runs, for the tests of the search."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from checkout import ROOT
from rewind.cli.main import main
from rewind.config import Backbone as BackboneKeys
from rewind.config import Frames, Method, RunSpec, Text
from rewind.config.evaluation import Evaluation
from rewind.config.training import Batch, Training
from rewind.io.files import write_csv
from rewind.loading.features import compute_features
from rewind.loading.run_data import RunData
from rewind.models.backbone import Backbone
from rewind.training.run import TrainingJob, train_run
from rewind.video import ffmpeg

COLOURS = ["red", "lime", "blue", "yellow", "white", "black"]
CAPTIONS = ["a {} wall", "the wall is {}", "something {}"]
CLIP = BackboneKeys(architecture="config/models/tiny.json")
TOWERS = BackboneKeys(kind="search_runs.ColourTowers", width=8)
METHODS = {
    "meanP": (CLIP, Method(head="meanP")),
    "tightTransf": (CLIP, Method(head="tightTransf", head_layers=1, head_start="random")),
    "frozen": (TOWERS, Method(head="meanP")),
    "ridge": (TOWERS, Method(model="ridge", options={"alpha": 0.01})),
    "chance": (CLIP, Method(model="chance")),
    "bow": (CLIP, Method(model="bow")),
}
MINICLIP = {
    "miniclip": (
        BackboneKeys(kind="miniclip_towers", architecture="resnet18"),
        Method(model="miniclip", options={"text": "lstm"}),
    )
}


class ColourTowers(Backbone):
    """Frozen towers that know colours, under trained projections."""

    feature_width, text_width, caches_text = 3, len(COLOURS), True

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.text_projection, self.frame_projection = nn.Linear(len(COLOURS), width), nn.Linear(3, width)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    @staticmethod
    def build(keys, text, captions) -> ColourTowers:
        return ColourTowers(keys.width)

    def prepare_text(self, captions: list[str]) -> Tensor:
        return torch.tensor([[float(colour in caption) for colour in COLOURS] for caption in captions])

    def encode_text(self, prepared: Tensor) -> Tensor:
        return self.text_projection(prepared)

    def frame_features(self, pixels: Tensor) -> Tensor:
        return pixels.float().mean((2, 3)) / 255

    def encode_frames(self, features: Tensor) -> Tensor:
        return self.frame_projection(features)

    def visual_parameters(self) -> list[nn.Parameter]:
        return []

    def text_parameters(self) -> list[nn.Parameter]:
        return []


def make_data(root: Path) -> Path:
    """``results/data/walls`` under ``root``: two training clips a colour, one to validate, one to test.

    The test split also has the reversed twin of the red wall, which looks the same, and a clip that is gone.
    """
    folder = root / "results/data/walls"
    (folder / "videos").mkdir(parents=True)
    (root / "config/models").mkdir(parents=True)
    shutil.copy(ROOT / "config/models/tiny.json", root / "config/models/tiny.json")
    items, captions = [], {split: [] for split in ("train", "valid", "test")}
    for colour in COLOURS:
        first = _draw(folder / f"videos/train_{colour}0.mp4", colour)
        names = [("train", f"train_{colour}0"), ("train", f"train_{colour}1"), ("valid", f"valid_{colour}")]
        names += [("test", f"test_{colour}")] + [("test", "test_red_rev")] * (colour == "red")
        for split, name in names:
            if not (folder / f"videos/{name}.mp4").exists():
                shutil.copy(first, folder / f"videos/{name}.mp4")
            twin = name.endswith("_rev")
            items.append((name, f"videos/{name}.mp4", split, name.removesuffix("_rev"), int(twin), "ok"))
            rows = [(name, text.format(colour), f"{name}#{n}") for n, text in enumerate(CAPTIONS)]
            captions[split] += rows[:1] if twin else rows
    items.append(("test_gone", "videos/test_gone.mp4", "test", "test_gone", 0, "missing"))
    captions["test"].append(("test_gone", "a wall that is gone", "test_gone#0"))
    columns = ["item_id", "path", "split", "cluster_id", "reversed", "status"]
    write_csv(folder / "items.csv", pd.DataFrame(items, columns=columns))
    for split, rows in captions.items():
        table = pd.DataFrame(rows, columns=["video_id", "caption", "caption_id"])
        write_csv(folder / f"captions/walls_{split}.csv", table)
    return folder


def _draw(path: Path, colour: str) -> Path:
    drawing = ["-f", "lavfi", "-i", f"color=c={colour}:s=48x32:r=5:d=1", "-c:v", "libx264", "-qp", "5"]
    assert ffmpeg.run_command([ffmpeg.executable(), *drawing, str(path)]).code == 0
    return path


def spec_of(method: str, epochs: int) -> RunSpec:
    """The keys of a run; towers of colours are frozen, CLIP learns from pixels."""
    backbone, keys = (METHODS | MINICLIP)[method]
    frozen = backbone is TOWERS
    training = Training(
        epochs=epochs,
        lr=3e-2 if frozen else 3e-3,
        backbone_lr_multiplier=1.0,
        freeze=["visual"] if frozen else [],
        batch=Batch(size=6, captions="one"),
        evaluate_every=epochs,
    )
    return RunSpec(
        backbone=backbone,
        frames=Frames(size=32, max_frames=2, keep_in_memory=True),
        text=Text(tokenizer="miniclip" if method == "miniclip" else "words", max_words=8),
        evaluation=Evaluation(settings=["test"], pair_batch_size=4),
        method=keys.model_copy(update={"training": training}),
    )


def train(root: Path, method: str, epochs: int = 30) -> Path:
    """Train a run of the study ``walls`` in ``root``, which is the present folder; its folder, relative."""
    data, folder = Path("results/data/walls"), Path(f"results/walls/runs/{method}/seed0")
    torch.set_num_threads(1)  # as jobs do: on busy cores two threads of a tiny model wait for each other
    spec, cache = spec_of(method, epochs), None
    if spec.backbone == TOWERS:
        cache = Path("results/walls/features/frames2.npz")
        if not cache.exists():
            compute_features(RunData(data, "walls", spec_of("frozen", epochs), 2), str(cache))
    job = TrainingJob(f"{method}/seed0", spec, 0, data, "walls", 2, root / f"{method}.pt", "code", cache)
    train_run(job, folder / "model.safetensors", folder / "history.csv", folder / "run.json")
    return folder


def make_study(root: Path, **epochs: int) -> Path:
    """The data and a finished run of each named method, in ``root``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        make_data(root)
        for method, count in epochs.items():
            train(root, method, count)
    return root


def copy_study(made: Path, folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, as the present folder; the folder of its runs."""
    shutil.copytree(made, folder, dirs_exist_ok=True)
    patch.chdir(folder)
    return Path("results/walls/runs")


def search(capsys, *arguments: object) -> tuple[int, str, str]:
    """``rewind search``: its exit code, what it prints, and what it says besides."""
    record = Path(arguments[0]) / "run.json"
    own = record.is_file() and TOWERS.kind in record.read_text()
    code = main(["search", *map(str, arguments), *["--trust"] * own])
    return code, *capsys.readouterr()
