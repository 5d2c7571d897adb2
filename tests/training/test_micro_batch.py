"""Micro-batches in the loop: `auto` and GPU memory, reduced precision, resumption."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from gradients import CAPTIONS, CPU, HEADS, Noisy, batch_of, error, gradients, noisy_batch, tiny
from messages import expect_message, refusal
from rewind.config import Training
from rewind.config.evaluation import Evaluation
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.losses.infonce import infonce
from rewind.models.retriever import Retriever
from rewind.training.checkpoint import StateFile
from rewind.training.grad_cache import MicroBatch, exact_step
from rewind.training.loop import train_model
from training_runs import later_is_better, short_of_memory_above

# --- GPU memory


def out_of_memory_above(rows: int, model: Retriever) -> list[int]:
    """Let encoding fail above ``rows``; returns the list of tried sizes."""
    tried, encode = [], model.encode_items

    def limited(batch):
        tried.append(len(batch["items"]))
        if tried[-1] > rows:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return encode(batch)

    model.encode_items = limited
    return tried


def test_auto_halves_says_so_once_and_remembers(capsys):
    model, batch = Noisy(), noisy_batch()
    micro_batch = MicroBatch("auto")
    tried = out_of_memory_above(3, model)

    def step(rows, pairs):
        return exact_step(model, infonce, batch, rows)

    torch.manual_seed(0)
    value = micro_batch.run(step, 10, CPU)
    assert micro_batch.rows == 2 and tried[:2] == [10, 5] and max(tried[2:]) == 2
    expect_message(capsys.readouterr().out)
    torch.manual_seed(0)
    assert exact_step(model, infonce, batch, 2) == value, "failed tries leave no trace in the random numbers"
    tried.clear()
    micro_batch.run(step, 10, CPU)
    assert max(tried) == 2 and capsys.readouterr().out == ""


def test_auto_encodes_all_where_memory_suffices(capsys):
    model, batch = Noisy(), noisy_batch()
    tried, micro_batch = out_of_memory_above(10, model), MicroBatch("auto")
    micro_batch.run(lambda rows, pairs: exact_step(model, infonce, batch, rows), 10, CPU)
    assert tried == [10] and micro_batch.rows is None and capsys.readouterr().out == ""


@pytest.mark.parametrize("key, place", [("auto", ""), (4, ""), (None, "")])
def test_too_little_memory_ends_with_advice(key, place):
    model, batch = Noisy(), noisy_batch()
    out_of_memory_above(0, model)
    with refusal(place):
        MicroBatch(key).run(lambda rows, pairs: exact_step(model, infonce, batch, rows), 10, CPU)


# --- memory for pairs


def test_auto_scores_fewer_pairs_at_once_with_the_same_loss_and_gradients(capsys):
    model, micro_batch = tiny("tightTransf", dropout=True), MicroBatch("auto")
    batch = batch_of(model)
    torch.manual_seed(4)
    loss = exact_step(model, infonce, batch).value
    wanted = gradients(model)
    short_of_memory_above(20, model)
    torch.manual_seed(4)
    found = micro_batch.run(lambda rows, pairs: exact_step(model, infonce, batch, rows, pairs=pairs), 16, CPU)
    assert found.value == pytest.approx(loss, rel=1e-13) and error(gradients(model), wanted) < 1e-12
    assert (micro_batch.rows, micro_batch.pairs) == (8, 16), "rows were halved once, before it was known what was short"
    expect_message(capsys.readouterr().out)


def test_too_little_memory_for_pairs_ends_with_advice():
    model = tiny("tightTransf")
    batch = batch_of(model)

    def step(rows, pairs):
        return exact_step(model, infonce, batch, rows, pairs=pairs)

    short_of_memory_above(20, model)
    with refusal():
        MicroBatch(4).run(step, 16, CPU)
    MicroBatch(1).run(step, 16, CPU)
    short_of_memory_above(0, model)
    with refusal():
        MicroBatch("auto").run(step, 16, CPU)


def test_evaluation_names_the_key_that_is_too_large():
    model = tiny("tightTransf").float()
    batch = batch_of(model)
    inputs = CachedFrames(batch["frames"].float().numpy(), batch["mask"].numpy())
    short_of_memory_above(20, model)
    fits = similarity_matrix(model, batch["text"], inputs, Evaluation(pair_batch_size=16), CPU)
    assert fits.shape == (16, 16)
    with refusal():
        similarity_matrix(model, batch["text"], inputs, Evaluation(pair_batch_size=32), CPU)
    out_of_memory_above(3, model)
    inputs.batch = lambda rows: {name: value[rows] for name, value in batch.items()}
    with refusal():
        similarity_matrix(model, batch["text"], inputs, Evaluation(batch_size=4), CPU)


def test_a_killed_run_remembers_how_many_pairs_fitted(tmp_path):
    with pytest.raises(Interrupted):
        trained(tmp_path / "a", "tightTransf", stop=True, micro_batch="auto", most=10)
    assert StateFile(tmp_path / "a", "x").load()["micro_batch"] == [4, 8]
    whole, losses = trained(tmp_path / "b", "tightTransf", micro_batch=None)
    resumed, same = trained(tmp_path / "a", "tightTransf", micro_batch="auto", most=10)
    assert same == pytest.approx(losses, rel=1e-5) and far(whole, resumed) < 1e-3


@pytest.mark.parametrize("wrong", [-1, "some", 1.5])
def test_a_micro_batch_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="micro_batch"):
        Training(micro_batch=wrong)


# --- the loop


class Interrupted(Exception):
    pass


def trained(path, head: str = "seqTransf", stop: bool = False, most: int | None = None, **keys):
    model = tiny(head).float()
    if most:
        short_of_memory_above(most, model)
    frames = np.random.default_rng(0).normal(size=(len(CAPTIONS), 3, 96)).astype(np.float32)
    inputs = CachedFrames(frames, np.ones((len(CAPTIONS), 3), np.uint8))
    rows = np.arange(len(CAPTIONS))
    data = TrainingData(inputs, model.backbone.prepare_text(CAPTIONS), rows, rows, [str(row) for row in rows])
    base = {"epochs": 4, "lr": 1e-3, "backbone_lr_multiplier": 1.0, "freeze": ["visual"], "batch": {"size": 8}}

    class File(StateFile):
        def save(self, state):
            super().save(state)
            if stop and state["epoch"] == 2:
                raise Interrupted

    history = train_model(model, data, Training(**base | keys), 0, CPU, later_is_better, File(path, "x"), "run")
    return model, [row["loss"] for row in history]


def far(a: nn.Module, b: nn.Module) -> float:
    return max((x - y).abs().max().item() for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_micro_batches_train_like_the_whole_batch(tmp_path):
    whole, losses = trained(tmp_path / "a", micro_batch=None)
    parts, same_losses = trained(tmp_path / "b", micro_batch=3)
    auto, auto_losses = trained(tmp_path / "c", micro_batch="auto", precision="fp32")
    assert losses == pytest.approx(same_losses, rel=1e-5) and far(whole, parts) < 1e-3
    assert auto_losses == losses and far(whole, auto) == 0


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("head", HEADS)
def test_reduced_precision_trains_on_cpu(tmp_path, precision, head):
    _, exact = trained(tmp_path / "a", head)
    model, losses = trained(tmp_path / "b", head, precision=precision, micro_batch=3, epochs=16)
    assert losses != exact and losses[0] == pytest.approx(exact[0], rel=0.1) and losses[-1] < 0.9 * losses[0]
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_micro_batches_in_reduced_precision_err_no_more_than_the_whole_batch():
    model = tiny("seqTransf").float()
    batch = {name: v.float() if v.dtype == torch.float64 else v for name, v in batch_of(model, pixels=True).items()}
    exact_step(model, infonce, batch)
    full = gradients(model)
    errors = []
    for micro_batch in (None, 3):
        exact_step(model, infonce, batch, micro_batch, precision="bf16")
        errors.append(error(gradients(model), full))
    assert 1e-4 < errors[0] < 0.2 and errors[1] < 1.5 * errors[0]


def test_a_broken_fp16_run_ends_with_the_same_bits_loss_scale_included(tmp_path):
    keys = {"precision": "fp16", "micro_batch": 3}
    whole, losses = trained(tmp_path / "a", **keys)
    with pytest.raises(Interrupted):
        trained(tmp_path / "b", stop=True, **keys)
    saved = StateFile(tmp_path / "b", "x").load()
    assert saved["scaler"]["scale"] > 0 and saved["scaler"]["_growth_tracker"] > 0
    resumed, resumed_losses = trained(tmp_path / "b", **keys)
    assert far(whole, resumed) == 0 and losses == resumed_losses
