"""The sigmoid loss against open_clip's, and a loss whose own parameter learns: trained, resumed, in micro-batches."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from broken_runs import BreakingFile, Interrupt
from gradients import CPU, batch_of, error, gradients, tiny
from messages import refusal
from rewind import optional_packages
from rewind.config import Training
from rewind.losses.base import Loss, Objective, loss_module, make_loss
from rewind.models.baselines import make_chance
from rewind.training.grad_cache import exact_step
from rewind.training.loop import train_model
from rewind.training.optim import make_optimiser
from training_runs import data, keys, retriever, same


class Cosines(nn.Module):
    """Stands in for a retriever: unit vectors, and logits with a learnt scale."""

    compares_vectors = True

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(10.0).log().double())

    def vectors(self, text, items):
        return text["text"], items["video"]

    def similarity(self, text, items):
        return self.logit_scale.exp() * text["text"] @ items["video"].T


def unit(rows: int, seed: int) -> torch.Tensor:
    vectors = torch.randn(rows, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return nn.functional.normalize(vectors, dim=-1).requires_grad_()


@pytest.mark.parametrize("bias", [-10.0, 0.0, 0.7])
def test_loss_and_gradients_are_open_clips(bias):
    theirs, scale = optional_packages.open_clip("loss").SigLipLoss(), Cosines()
    texts, items, their_bias = unit(5, 0), unit(5, 1), torch.tensor(bias, dtype=torch.float64, requires_grad=True)
    wanted = theirs(items, texts, scale.logit_scale.exp(), their_bias)
    wanted.backward()
    ours, model = make_loss("sigmoid", {"initial_bias": bias}).double(), Cosines()
    our_texts, our_items = unit(5, 0), unit(5, 1)
    loss = ours(model, {"text": our_texts}, {"video": our_items}, {"items": torch.arange(5)})
    loss.value.backward()
    assert loss.value.item() == pytest.approx(wanted.item(), rel=1e-7)
    assert loss.logs["bias"].item() == pytest.approx(bias)
    for found, expected in (
        (our_texts.grad, texts.grad),
        (our_items.grad, items.grad),
        (ours.bias.grad, their_bias.grad),
        (model.logit_scale.grad, scale.logit_scale.grad),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-12)  # 0.7 is a float32 in ours


def test_a_fixed_temperature_takes_cosines_and_excluded_pairs_count_for_nothing():
    texts, items = unit(3, 2), unit(3, 3)
    loss = make_loss("sigmoid", {"temperature": 0.5, "initial_bias": 0.0}).double()
    index = torch.tensor([4, 4, 7])  # pairs 0 and 1 show one item
    found = loss(Cosines(), {"text": texts}, {"video": items}, {"items": index}).value.item()
    cosines = (texts @ items.T / 0.5).tolist()
    terms = [
        -math.log(1 / (1 + math.exp(-(1 if i == j else -1) * cosines[i][j])))
        for i in range(3)
        for j in range(3)
        if i == j or index[i] != index[j]
    ]
    assert len(terms) == 7 and found == pytest.approx(sum(terms) / 3, rel=1e-12)
    with refusal("training.objective"):
        loss.check(make_chance(), Training())


def test_the_bias_has_the_gradient_of_the_whole_batch_in_micro_batches():
    model, loss = tiny("seqTransf"), make_loss("sigmoid").double()
    whole = exact_step(model, loss, batch_of(model))
    wanted, bias = gradients(model), loss.bias.grad.clone()
    for _ in range(2):  # a second step finds no gradient of the first
        parts = exact_step(model, loss, batch_of(model), 3)
        assert parts.value == pytest.approx(whole.value, rel=1e-12) and error(gradients(model), wanted) < 1e-11
        torch.testing.assert_close(loss.bias.grad, bias, rtol=1e-12, atol=0)
    assert parts.logs == {"bias": -10.0}


def sigmoid_keys() -> Training:
    return keys(objective="sigmoid", save_every_steps=1)


def run(path, stop_after=None):
    model = retriever("meanP")
    split = data(model)
    split.captions = [f"caption {row}" for row in range(len(split.text))]
    state = BreakingFile(path, "x", stop_after)
    history = train_model(model, split, sigmoid_keys(), 0, CPU, lambda m: {"valid_sum": 1.0}, state, "run")
    return model, history, state


@pytest.mark.parametrize("stop_after", [1, 2, 4])
def test_the_bias_learns_and_a_killed_run_resumes_to_the_same_bits(tmp_path, stop_after):
    whole, history, state = run(tmp_path / "whole.pt")
    bias = state.load()["objective"]["bias"].item()
    assert abs(bias + 10) > 1e-4, "it learns"
    assert [row["bias"] for row in history] != [-10.0] * len(history)
    with pytest.raises(Interrupt):
        run(tmp_path / "broken.pt", stop_after=stop_after)
    resumed, again, state = run(tmp_path / "broken.pt")
    assert same(whole, resumed) and [row["bias"] for row in again] == [row["bias"] for row in history]
    assert state.load()["objective"]["bias"].item() == bias


def test_the_parameters_of_a_loss_have_their_own_groups_and_the_last_group_stays_the_retrievers():
    class Two(nn.Module, Objective):
        def __init__(self) -> None:
            super().__init__()
            self.matrix, self.fixed = nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2), requires_grad=False)
            self.bias = nn.Parameter(torch.zeros(2))

    model, loss = retriever("meanP"), Two()
    loss.shared = model  # a teacher, say: the retriever's own parameters are no loss's
    optimiser, _ = make_optimiser(model, keys(weight_decay=0.2), 10, loss)
    plain, _ = make_optimiser(model, keys(weight_decay=0.2), 10)
    added = optimiser.param_groups[: len(optimiser.param_groups) - len(plain.param_groups)]
    assert [(group["params"], group["weight_decay"]) for group in added] == [([loss.bias], 0.0), ([loss.matrix], 0.2)]
    assert optimiser.param_groups[-1]["lr"] == plain.param_groups[-1]["lr"]
    assert loss_module(loss) is loss and loss_module(make_loss("hnac")) is None


class Late(nn.Module, Objective):
    """Makes its parameter when the optimiser is there already."""

    def prepare(self, retriever, data, device) -> None:
        self.late = nn.Parameter(torch.zeros(()))

    def forward(self, retriever, text, items, batch) -> Loss:
        return Loss(self.late + retriever.similarity(text, items).mean())


def test_a_parameter_that_the_optimiser_would_not_see_is_refused(tmp_path):
    model = retriever("meanP")
    late = keys(objective=f"{__name__}.Late")
    with refusal("training.objective"):
        train_model(model, data(model), late, 0, CPU, lambda m: {}, BreakingFile(tmp_path / "s.pt", "x", None), "run")
