"""Runs with captions of the opposite direction: where these come from, and that a killed run keeps its bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from broken_runs import BreakingFile, Interrupt
from gradients import CPU
from messages import refusal
from rewind.config import Training
from rewind.distributed import SINGLE_PROCESS
from rewind.loading.features import compute_features
from rewind.loading.hard_negatives import negatives_of_texts
from rewind.loading.run_data import RunData, build_untrained_model
from rewind.models.checkpoint import load_model
from rewind.training.loop import train_model
from rewind.training.order import BatchOrder
from rewind.training.run import TrainingJob, train_run
from search_runs import make_data, spec_of
from training_runs import CAPTIONS, data, retriever, same


@pytest.fixture
def walls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_data(tmp_path)
    return tmp_path


def opposites_file(rows: list[tuple[str, str]]) -> str:
    pd.DataFrame(rows, columns=["caption_id", "opposite"]).to_csv("opposites.csv", index=False)
    return "opposites.csv"


def other_colours() -> list[tuple[str, str]]:
    """Of every red wall's first caption, one of another colour; of every lime wall's, one that no clip has."""
    rows = [(f"train_red{n}#0", "a blue wall") for n in range(2)]
    return rows + [(f"train_lime{n}#0", "a green wall that is not there") for n in range(2)]


def run_data(method: str, hard_negatives: str | None, cache: Path | None = None) -> RunData:
    spec = spec_of(method, 2)
    training = spec.method.training.model_copy(update={"hard_negatives": hard_negatives, "objective": "negclip"})
    spec = spec.model_copy(update={"method": spec.method.model_copy(update={"training": training})})
    return RunData(Path("results/data/walls"), "walls", spec, 2, cache)


@pytest.mark.parametrize("method", ["meanP", "frozen"])
def test_a_run_reads_opposites_from_a_file(walls: Path, method: str) -> None:
    cache = None
    if method == "frozen":
        cache = Path("results/walls/features/frames2.npz")
        compute_features(run_data(method, None), str(cache))
    read = run_data(method, opposites_file(other_colours()), cache)
    torch.manual_seed(0)
    model = build_untrained_model(read)
    split = read.split("train", model)
    negatives = split.hard_negatives
    drawn = negatives.draw(0, 0)
    having = [name for name, row in zip(split.captions["caption_id"], drawn, strict=True) if row >= 0]
    assert sorted(having) == sorted(name for name, _ in other_colours())
    assert read.split("valid", model).hard_negatives is None

    # A batch's features of opposites are those of their captions.
    rows = np.flatnonzero(drawn >= 0)
    batch = split.training_data().batch(np.stack([rows, drawn[rows]]))
    text = model.encode_text({"text": model.backbone.prepare_text(["a blue wall"])})["text"]
    red = [n for n, row in enumerate(rows) if "red" in split.captions["caption_id"][row]]
    found = model.encode_text({"text": batch["negative_text"]})["text"][red]
    torch.testing.assert_close(found, text.expand_as(found))
    job = TrainingJob("x/seed0", read.spec, 0, read.folder, "walls", 2, walls / "x.pt", "code", cache)
    assert "opposites.csv" in job.hashes()
    record = train_run(job, *(Path(name) for name in ("model.safetensors", "history.csv", "run.json")))
    assert (
        "above_hard_negative" in pd.read_csv("history.csv") and record["spec"]["method"]["training"]["hard_negatives"]
    )
    load_model("model.safetensors", build_untrained_model(read))


def test_what_cannot_be_read_is_refused(walls: Path) -> None:
    read = run_data("meanP", opposites_file([("nobody#0", "a blue wall")]))
    with refusal("opposites.csv"):
        read.split("train", build_untrained_model(read))
    read = run_data("meanP", "twins")
    with refusal("training.hard_negatives"):
        read.split("train", build_untrained_model(read))
    read = run_data("meanP", "gone.csv")
    with refusal("gone.csv"):
        read.split("train", build_untrained_model(read))


def opposed(model):
    """The usual tiny data, where up is the opposite of down; captions of stars have none."""
    split, texts, owners = data(model, captions_per_item=1), [], []
    for row, caption in enumerate(CAPTIONS):
        if "ring" in caption:
            texts.append(caption.replace("up", "x").replace("down", "up").replace("x", "down"))
            owners.append(row)
    items = pd.DataFrame({"item_id": [f"i{n}" for n in range(len(CAPTIONS))]})
    captions = pd.DataFrame({"caption": CAPTIONS, "video_id": items["item_id"]})
    split.hard_negatives = negatives_of_texts(items, captions, model.backbone.prepare_text(texts), texts, owners)
    split.captions = CAPTIONS
    return split


def train(path: Path, objective: str, stop_after: int | None = None):
    model = retriever("seqTransf", 0)
    keys = Training(epochs=4, lr=1e-3, backbone_lr_multiplier=1.0, freeze=["visual"], batch={"size": 4},
                    objective=objective, hard_negatives="twins", save_every_steps=1)  # fmt: skip
    state = BreakingFile(path, "x", stop_after)
    history = train_model(model, opposed(model), keys, 0, CPU, lambda m: {"valid_sum": 1.0}, state, "x")
    return model, [row["loss"] for row in history]


@pytest.mark.parametrize("objective", ["negclip", "ceclip"])
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, objective: str) -> None:
    whole, losses = train(tmp_path / "a.pt", objective)
    with pytest.raises(Interrupt):
        train(tmp_path / "b.pt", objective, stop_after=3)
    resumed, same_losses = train(tmp_path / "b.pt", objective)
    assert same(whole, resumed) and losses == same_losses


def test_each_epoch_draws_anew_and_every_process_the_same() -> None:
    model = retriever("meanP", 0)
    split = opposed(model)
    negatives = split.hard_negatives
    negatives.starts = np.arange(0, 2 * len(CAPTIONS) + 1, 2)  # two of each
    negatives.rows = np.tile(np.arange(2), len(CAPTIONS))
    order = BatchOrder(split, Training(epochs=3, batch={"size": 4}), 5, SINGLE_PROCESS)
    keys = [order.keys_of(step) for step in range(3 * order.per_epoch)]
    assert all(rows.shape == (2, 4) for rows in keys)
    by_epoch = [
        {row: negative for rows in keys[2 * n : 2 * n + 2] for row, negative in rows.T.tolist()} for n in range(3)
    ]
    assert len({tuple(sorted(epoch.items())) for epoch in by_epoch}) == 3
    again = BatchOrder(split, Training(epochs=3, batch={"size": 4}), 5, SINGLE_PROCESS)
    assert all((order.keys_of(step) == again.keys_of(step)).all() for step in (5, 0, 3))
