"""Two processes against one: loss, gradients, training, resumption, memory. Float64, gloo, one thread each."""

from __future__ import annotations

import os
import socket
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp

from gradients import CAPTIONS, CPU, HEADS, Noisy, batch_of, error, gradients, noisy_batch, tiny
from messages import refusal
from opposed import LOSSES, opposed_batch, prepared
from rewind.config import Training
from rewind.config.evaluation import Evaluation
from rewind.config.training import Lora
from rewind.distributed import World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.losses.base import Loss, make_loss
from rewind.losses.infonce import infonce
from rewind.models.lora import add_adapters, is_adapter
from rewind.training.checkpoint import StateFile
from rewind.training.grad_cache import MicroBatch, exact_step
from rewind.training.loop import train_model
from training_runs import later_is_better, short_of_memory_above

pytestmark = pytest.mark.slow

ROWS = len(CAPTIONS)
CASES = [(head, micro, drop) for head in HEADS for micro, drop in ((None, False), (3, False), (3, True))]


def share(world: World, batch: dict) -> dict:
    return {name: value[world.share(len(value))] for name, value in batch.items()}


def one_step(
    world: World, head: str, micro_batch: int | None, dropout: bool, pixels: bool = False
) -> tuple[float, dict]:
    """The second of two steps. Dropout acts in tightTransf's pairs alone, that is within the loss."""
    model = tiny(head, dropout)
    model.register_parameter("unused", torch.nn.Parameter(torch.zeros(2)))
    torch.manual_seed(7)
    batch = share(world, batch_of(model, pixels))
    exact_step(model, infonce, batch, micro_batch, world=world)
    return exact_step(model, infonce, batch, micro_batch, world=world).value, gradients(model)


def weighted_step(world: World) -> tuple[float, dict, dict]:
    """A loss that needs the vectors of the global batch, and logs."""
    model = tiny("meanP")
    loss = exact_step(model, make_loss("sanw", {"mode": "bandpass"}), share(world, batch_of(model)), 3, world=world)
    return loss.value, loss.logs, gradients(model)


def opposed_step(world: World, head: str, name: str) -> tuple[float, dict, dict]:
    """A loss with hard negatives, whose features are gathered like those of captions."""
    model = tiny(head)
    loss = exact_step(model, prepared(name), share(world, opposed_batch(model)), 3, world=world)
    return loss.value, loss.logs, gradients(model)


def adapted_step(world: World) -> tuple[float, dict]:
    """Adapters of both towers, of which nothing else learns; CLIP's are of torch's attention."""
    model = tiny("meanP")
    add_adapters(model.backbone, Lora(rank=2), ["text", "visual"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if is_adapter(name):
                parameter.normal_(0, 0.1)
    batch = share(world, batch_of(model, pixels=True))
    return exact_step(model, infonce, batch, 3, world=world).value, gradients(model)


def biased_step(world: World) -> tuple[float, dict, torch.Tensor]:
    """A loss with a parameter of its own: its gradient is that of the global batch, once."""
    model, loss = tiny("tightTransf"), make_loss("sigmoid").double()
    value = exact_step(model, loss, share(world, batch_of(model)), 3, world=world).value
    return value, gradients(model), loss.bias.grad


def topical_rows(world: World, folder: Path) -> list[np.ndarray]:
    """This rank's rows of all steps of a run whose clusters are made anew after two epochs."""
    model = tiny("meanP").float()
    frames = np.random.default_rng(0).normal(size=(ROWS, 3, 96)).astype(np.float32)
    inputs, rows = CachedFrames(frames, np.ones((ROWS, 3), np.uint8)), np.arange(ROWS)
    names = [str(row) for row in rows]
    data = TrainingData(inputs, model.backbone.prepare_text(CAPTIONS), rows, rows, names, CAPTIONS)
    batch = {"size": 4, "sampler": "topical", "sampler_options": {"clusters": 3, "p_topical": 0.9}}
    keys = Training(epochs=3, freeze=["visual"], batch=batch, micro_batch=2)
    seen, made = [], data.batch

    def batch_of_rows(wanted):
        seen.append(wanted)
        return made(wanted)

    data.batch = batch_of_rows
    history = train_model(
        model, data, keys, 0, CPU, later_is_better, StateFile(folder / "t.pt", "x"), "run", world=world
    )
    assert history[0]["topical_pct"] > 0
    return seen


def squares(retriever, text, items, batch) -> Loss:
    return Loss((text["text"] ** 2).sum() + (items["items"] ** 2).sum())


def draws(world: World, objective) -> list:
    """What two steps drop in a tower with dropout, and the random numbers that follow."""
    model, seen = Noisy(), []
    torch.manual_seed(7)
    for _ in range(2):
        exact_step(model, objective, share(world, noisy_batch()), 3, world=world)
        seen.append((model.seen[0] == 0, model.seen[4] == 0))
        model.seen.clear()
    return [*seen, torch.rand(1)]


def given(world: World) -> dict:
    """What the objective sees of the batch."""
    model, seen = Noisy(), {}

    def watching(retriever, text, items, batch):
        seen.update(batch)
        return Loss((text["text"] ** 2).sum())

    exact_step(model, watching, share(world, noisy_batch()), 2, world=world)
    return seen


def short_of_memory(world: World) -> tuple[int, float]:
    """Only rank 1 is short of memory; all go on with the same micro-batch."""
    model, micro_batch = tiny("seqTransf"), MicroBatch("auto")
    encode = model.encode_items

    def limited(part):
        if world.rank == 1 and len(part["mask"]) > 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return encode(part)

    model.encode_items = limited
    batch = share(world, batch_of(model))
    value = micro_batch.run(
        lambda rows, pairs: exact_step(model, infonce, batch, rows, world=world), len(batch["mask"]), CPU
    )
    return micro_batch.rows, value.value


def short_of_memory_for_pairs(world: World) -> tuple[int | None, int | None, float]:
    """Only rank 1 is short of memory, and only where pairs are scored."""
    model, micro_batch = tiny("tightTransf"), MicroBatch("auto")
    if world.rank == 1:
        short_of_memory_above(20, model)
    batch = share(world, batch_of(model))

    def step(rows, pairs):
        return exact_step(model, infonce, batch, rows, pairs=pairs, world=world)

    value = micro_batch.run(step, len(batch["mask"]), CPU)
    return micro_batch.rows, micro_batch.pairs, value.value


class Interrupted(Exception):
    pass


class Breaking(CachedFrames):
    """Fails on every rank alike after so many batches."""

    def __init__(self, *features, after: int) -> None:
        super().__init__(*features)
        self.left = after

    def batch(self, rows):
        self.left -= 1
        if self.left < 0:
            raise Interrupted
        return super().batch(rows)


def trained(world: World, state: Path, after: int = 99, size: int = 8):
    """Weights, losses and saves of a run. Ranks start from different weights: rank 0's count."""
    model = tiny("seqTransf").float()
    if world.rank:
        torch.nn.init.zeros_(model.head.frame_position_embeddings.weight)
    frames = np.random.default_rng(0).normal(size=(ROWS, 3, 96)).astype(np.float32)
    inputs, rows = Breaking(frames, np.ones((ROWS, 3), np.uint8), after=after), np.arange(ROWS)
    data = TrainingData(inputs, model.backbone.prepare_text(CAPTIONS), rows, rows, [str(row) for row in rows])
    base = {"epochs": 3, "lr": 1e-3, "backbone_lr_multiplier": 1.0, "freeze": ["visual"], "save_every_steps": 1}
    keys = Training(**base, batch={"size": size}, micro_batch=3)
    saves = []

    class File(StateFile):
        def save(self, saved):
            super().save(saved)
            saves.append((saved["epoch"], saved["step"]))

    def validate(current):
        return later_is_better(current)

    history = train_model(model, data, keys, 0, CPU, validate, File(state, "x"), "run", world=world)
    return dict(model.state_dict()), [row["loss"] for row in history], saves


def scored(world: World, head: str) -> np.ndarray:
    """Scores of 8 captions and 8 items in batches of 3 and blocks of 2 rows: more of each than processes."""
    model = tiny(head).float()
    batch = batch_of(model)
    inputs = CachedFrames(batch["frames"].float().numpy(), batch["mask"].numpy())
    keys = Evaluation(batch_size=3, pair_batch_size=2 * len(inputs))
    return similarity_matrix(model, batch["text"], inputs, keys, CPU, world)


def work(rank: int, size: int, port: int, folder: Path) -> None:
    """Everything that needs a process group, in one start of the processes."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_process_group() as world:
        found = {
            "world": (world.rank, world.size),
            "steps": {case: one_step(world, *case) for case in CASES},
            "visual": {head: one_step(world, head, 3, False, pixels=True) for head in HEADS},
            "weighted": weighted_step(world),
            "opposed": {case: opposed_step(world, *case) for case in product(HEADS, LOSSES)},
            "biased": biased_step(world),
            "adapted": adapted_step(world),
            "topical": topical_rows(world, folder),
            "draws": [draws(world, infonce), draws(world, squares)],  # a loss that draws, and one that does not
            "given": given(world),
            "memory": short_of_memory(world),
            "pairs": short_of_memory_for_pairs(world),
            "trained": trained(world, folder / "whole.pt"),
            "scored": {head: scored(world, head) for head in HEADS},
        }
        with pytest.raises(Interrupted):
            trained(world, folder / "broken.pt", after=3)
        found["resumed"] = trained(world, folder / "broken.pt")
        with pytest.raises(RewindError, match="batch of 5 rows cannot be divided equally among 2"):
            trained(world, folder / "odd.pt", size=5)
        torch.save(found, folder / f"rank{rank}.pt")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    """What two processes found, by rank."""
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(work, (2, port, folder), nprocs=2)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize("head, micro_batch, dropout", CASES)
def test_every_gradient_equals_the_single_process_full_batch(two, head, micro_batch, dropout):
    loss, wanted = one_step(World(), head, None, dropout)
    assert ("backbone.clip.logit_scale" in wanted) == (head != "tightTransf") and "unused" not in wanted
    for found in two:
        value, grads = found["steps"][head, micro_batch, dropout]
        assert value == pytest.approx(loss, rel=1e-13)
        assert error(grads, wanted) < 1e-12


@pytest.mark.parametrize("head", HEADS)
def test_so_does_every_gradient_of_a_visual_tower_that_learns(two, head):
    # A clip's features get a gradient from the captions of every process, and only one process has the clip.
    loss, wanted = one_step(World(), head, None, False, pixels=True)
    assert any(name.startswith("backbone.clip.visual") and value.any() for name, value in wanted.items())
    for found in two:
        value, grads = found["visual"][head]
        assert value == pytest.approx(loss, rel=1e-13) and error(grads, wanted) < 1e-11


def test_weighted_negatives_and_their_statistics_are_of_the_global_batch(two):
    loss, logs, wanted = weighted_step(World())
    for value, found, grads in (one["weighted"] for one in two):
        assert value == pytest.approx(loss, rel=1e-12) and error(grads, wanted) < 1e-11
        assert found == pytest.approx(logs, rel=1e-9) and found["n"] == ROWS * (ROWS - 1) - 2


@pytest.mark.parametrize(("head", "name"), product(HEADS, LOSSES))
def test_hard_negatives_are_those_of_the_global_batch(two, head, name):
    loss, logs, wanted = opposed_step(World(), head, name)
    for value, found, grads in (one["opposed"][head, name] for one in two):
        assert value == pytest.approx(loss, rel=1e-12) and error(grads, wanted) < 1e-11
        assert found == pytest.approx(logs, rel=1e-6)


def test_adapters_have_the_gradient_of_the_global_batch(two):
    loss, wanted = adapted_step(World())
    assert len(wanted) > 1 and all(is_adapter(name) or "logit_scale" in name for name in wanted)
    for value, grads in (one["adapted"] for one in two):
        assert value == pytest.approx(loss, rel=1e-12) and error(grads, wanted) < 1e-11


def test_the_parameter_of_a_loss_has_the_gradient_of_the_global_batch(two):
    value, wanted, bias = biased_step(World())
    for found, grads, own in (one["biased"] for one in two):
        assert found == pytest.approx(value, rel=1e-12) and error(grads, wanted) < 1e-11
        torch.testing.assert_close(own, bias, rtol=1e-12, atol=0)
    assert torch.equal(two[0]["biased"][2], two[1]["biased"][2])


def test_topical_batches_of_two_processes_are_those_of_one(two, tmp_path):
    alone = topical_rows(World(), tmp_path)
    halves = (found["topical"] for found in two)
    assert len(alone) == 3 * ROWS // 4
    assert [row.tolist() for row in alone] == [np.concatenate(pair).tolist() for pair in zip(*halves, strict=True)]


def test_ranks_hold_the_same_bits(two):
    for step, (value, grads) in two[0]["steps"].items():
        other_value, others = two[1]["steps"][step]
        assert value == other_value and all(torch.equal(others[name], grad) for name, grad in grads.items())


@pytest.mark.parametrize("case", [0, 1], ids=["loss draws", "loss draws not"])
def test_ranks_drop_different_numbers_and_share_those_that_follow(two, case):
    (first, second, after), (other_first, other_second, other_after) = (found["draws"][case] for found in two)
    for side in (0, 1):
        assert not torch.equal(first[side], other_first[side]) and not torch.equal(second[side], other_second[side])
        assert not torch.equal(first[side], second[side]), "another step, other numbers"
    assert torch.equal(after, other_after)


def test_the_objective_sees_the_global_batch(two):
    whole = noisy_batch()
    for found in two:
        assert found["given"].keys() == whole.keys() - {"frames"}
        assert all(torch.equal(value, whole[name]) for name, value in found["given"].items())


def test_a_rank_short_of_memory_takes_the_others_along(two):
    model = tiny("seqTransf")
    loss = exact_step(model, infonce, batch_of(model)).value
    assert [found["memory"][0] for found in two] == [2, 2]
    assert all(found["memory"][1] == pytest.approx(loss, rel=1e-13) for found in two)


def test_a_rank_short_of_memory_for_pairs_takes_the_others_along(two):
    model = tiny("tightTransf")
    loss = exact_step(model, infonce, batch_of(model)).value
    for rows, pairs, value in (found["pairs"] for found in two):
        assert (rows, pairs) == (None, 16) and value == pytest.approx(loss, rel=1e-13)


def test_two_processes_train_like_one(two, tmp_path):
    (weights, losses, saves), (others, other_losses, no_saves) = (found["trained"] for found in two)
    assert saves == [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)] and no_saves == []
    assert losses == other_losses and all(torch.equal(others[name], value) for name, value in weights.items())
    alone, own_losses, _ = trained(World(), tmp_path / "alone.pt")
    assert losses == pytest.approx(own_losses, rel=1e-5)
    assert max((weights[name] - value).abs().max().item() for name, value in alone.items()) < 1e-3


def test_a_broken_run_of_two_ends_with_the_same_bits(two):
    for found in two:
        (weights, losses, _), (resumed, same_losses, _) = found["trained"], found["resumed"]
        assert losses == same_losses and all(torch.equal(resumed[name], value) for name, value in weights.items())
    assert two[0]["resumed"][2][0] == (2, 0), "it went on where it broke off"


@pytest.mark.parametrize("head", HEADS)
def test_two_processes_score_with_the_bits_of_one(two, head):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as each of the two has: the order of a sum depends on it
    alone = scored(World(), head)
    torch.set_num_threads(threads)
    assert alone.shape == (ROWS, ROWS) and len(np.unique(alone)) > ROWS
    assert all(np.array_equal(found["scored"][head], alone) for found in two)


# --- one process


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with join_process_group() as world:
        assert world == World() and world.share(7) == slice(0, 7)
        batch = noisy_batch()
        assert all(torch.equal(value, batch[name]) for name, value in world.gather(batch).items())
        assert world.any(True) and not world.any(False) and world.agree("x") == "x"


def test_more_processes_than_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in (("WORLD_SIZE", "3"), ("RANK", "2"), ("LOCAL_RANK", "2")):
        monkeypatch.setenv(name, value)
    with refusal(), join_process_group():
        pass


@pytest.mark.parametrize("size, rows", [(2, 7), (4, 6), (3, 128)])
def test_unequal_shares_are_refused(size, rows):
    with refusal("training.batch.size"):
        World(rank=0, size=size).share(rows)


def test_shares_cover_the_batch():
    rows = np.arange(12)
    assert [rows[World(rank, 4).share(12)].tolist() for rank in range(4)] == rows.reshape(4, 3).tolist()
