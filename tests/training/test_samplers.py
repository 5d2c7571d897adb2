"""Samplers in the loop: found by name, prepared once, refreshed on time, saved with the run."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from broken_runs import BreakingFile, Interrupt
from gradients import CPU
from messages import refusal
from rewind.config import Training
from rewind.config.training import Batch
from rewind.distributed import World
from rewind.training.batches import epoch_batches
from rewind.training.loop import train_model
from rewind.training.order import BatchOrder, encode_all_captions
from rewind.training.samplers.base import make_sampler
from training_runs import data, keys, later_is_better, retriever, same


class ByVector:
    """Rows in the order of a state: at first the captions' lengths, then the text vectors' first coordinate."""

    refresh_every = 2

    def __init__(self) -> None:
        self.told: list = []

    def prepare(self, data, keys, seed):
        self.told.append("prepare")
        return {"order": np.argsort([len(caption) for caption in data.captions], kind="stable")}

    def refresh(self, epoch, text_vectors, state):
        self.told.append(epoch)
        return {"order": np.argsort(text_vectors[:, 0], kind="stable")}

    def batches(self, item_of_caption, cluster_of_item, keys, seed, epoch, state):
        turned = np.roll(state["order"], epoch)
        return list(turned.reshape(-1, keys.size))


class Made(ByVector):
    made: ByVector | None = None

    def __init__(self) -> None:
        super().__init__()
        Made.made = self


def split_of(model):
    split = data(model)
    split.captions = ["x" * (row * 3 % 8) for row in range(len(split.text))]
    return split


BY_VECTOR = {"size": 4, "sampler": f"{__name__}.Made"}


def run(path, stop_after=None):
    """A run of five epochs of two batches; also the rows of every batch and the vectors at each epoch's end."""
    model, rows, vectors = retriever("meanP"), [], []
    split = split_of(model)

    def validate(current):
        vectors.append(encode_all_captions(current, split.text, CPU))
        return later_is_better(current)

    training = keys(epochs=5, batch=BY_VECTOR, save_every_steps=1, objective=f"{__name__}.seeing")
    SEEN.clear()
    train_model(model, split, training, 0, CPU, validate, BreakingFile(path, "x", stop_after), "run")
    rows = list(SEEN)
    return model, rows, vectors


SEEN: list = []


def seeing(retriever, text, items, batch):
    from rewind.losses.infonce import infonce

    SEEN.append(batch["rows"].tolist())
    return infonce(retriever, text, items, batch)


def test_the_order_follows_the_refreshed_state(tmp_path):
    _, rows, vectors = run(tmp_path / "s.pt")
    assert Made.made.told == ["prepare", 2, 4]
    lengths = [row * 3 % 8 for row in range(8)]
    orders = [np.argsort(lengths, kind="stable")] * 2
    orders += [np.argsort(vectors[epoch][:, 0], kind="stable") for epoch in (1, 1, 3)]
    wanted = [part for epoch, order in enumerate(orders) for part in np.roll(order, epoch).reshape(-1, 4).tolist()]
    assert rows == wanted


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 3, 4, 5, 9])
def test_a_broken_run_sees_the_same_batches(tmp_path, stop_after):
    whole, rows, _ = run(tmp_path / "whole.pt")
    with pytest.raises(Interrupt):
        run(tmp_path / "broken.pt", stop_after)
    resumed, rest, _ = run(tmp_path / "broken.pt")
    assert same(whole, resumed) and rest == rows[stop_after:] and "prepare" not in Made.made.told


def test_uniform_is_the_order_of_old():
    model = retriever("meanP")
    split, training = data(model), keys()
    order = BatchOrder(split, training, 5, World())
    wanted = epoch_batches(split.item_of_caption, split.cluster_of_item, training.batch, 5, 1)
    assert np.array_equal(order.whole(1), wanted) and order.state == {}


def test_ranks_share_one_global_order():
    split = split_of(retriever("meanP"))
    training = keys(batch=BY_VECTOR)
    whole = BatchOrder(split, training, 0, World()).share(1)
    order = BatchOrder(split, training, 0, World())  # made alone, then seen as each of two
    shares = []
    for rank in range(2):
        order.world = World(rank, 2)
        shares.append(order.share(1))
    assert np.array_equal(np.concatenate(shares), whole)


def test_text_vectors_disturb_nothing():
    model = retriever("meanP").train()
    before = torch.get_rng_state()
    found = encode_all_captions(model, model.backbone.prepare_text(["a red ring up", "a blue star down"]), CPU)
    assert model.training and torch.equal(before, torch.get_rng_state())
    assert found.shape == (2, 96) and found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)


class Uneven:
    def batches(self, item_of_caption, cluster_of_item, keys, seed, epoch, state):
        return [np.arange(4)] * (2 + epoch)


def test_samplers_that_cannot_be_used_are_refused():
    split = data(retriever("meanP"))
    order = BatchOrder(split, keys(batch={"size": 4, "sampler": f"{__name__}.Uneven"}), 0, World())
    with refusal("training.batch.sampler"):
        order.whole(1)
    with refusal("training.batch.sampler"):
        make_sampler(Batch(sampler="sorted"))
    with refusal("training.batch.sampler"):
        make_sampler(Batch(sampler="rewind.errors"))
    with refusal("training.batch.sampler_options.k"):
        make_sampler(Training(batch={"sampler_options": {"k": 1}}).batch)
