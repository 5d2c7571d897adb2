"""The exact global batch: gradients against the full batch, upstream's numbers, dropout, memory, precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from golden_numbers import agree, load
from gradients import HEADS, Noisy, batch_of, error, gradients, noisy_batch, tiny
from messages import refusal
from rewind.losses.base import Loss
from rewind.losses.infonce import infonce
from rewind.models.heads.clip4clip import PAIRS_AT_ONCE
from rewind.models.retriever import Retriever
from rewind.training.grad_cache import exact_step


@pytest.mark.slow
@pytest.mark.parametrize("pixels", [False, True], ids=["frames", "pixels"])
@pytest.mark.parametrize("head", HEADS)
def test_loss_and_gradients_equal_the_full_batch(head, pixels):
    model = tiny(head)
    batch = batch_of(model, pixels)
    loss = infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value
    loss.backward()
    wanted = gradients(model)
    assert ("backbone.clip.logit_scale" in wanted) == (head != "tightTransf")
    for micro_batch in (1, 3, 8):
        assert exact_step(model, infonce, batch, micro_batch).value == pytest.approx(loss.item(), rel=1e-13)
        assert error(gradients(model), wanted) < 1e-12, micro_batch


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("micro_batch", [None, 0, 16, 99])
def test_the_whole_batch_at_once_is_the_plain_step_bit_for_bit(head, micro_batch):
    model = tiny(head, dropout=True)
    batch = batch_of(model)
    torch.manual_seed(3)
    loss = infonce(model, model.encode_text(batch), model.encode_items(batch), batch).value
    loss.backward()
    wanted, after = gradients(model), torch.get_rng_state()
    torch.manual_seed(3)
    assert exact_step(model, infonce, batch, micro_batch).value == loss.item()
    found = gradients(model)
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert torch.equal(torch.get_rng_state(), after)


def test_plain_accumulation_is_not_this():
    model = tiny("seqTransf")
    batch = batch_of(model)
    exact_step(model, infonce, batch)
    wanted = gradients(model)
    model.zero_grad()
    for at in range(0, 16, 4):
        part = {name: value[at : at + 4] for name, value in batch.items()}
        (infonce(model, model.encode_text(part), model.encode_items(part), part).value / 4).backward()
    assert error(gradients(model), wanted) > 0.1


# --- numbers made by running GradCache's own code


class Golden(Retriever):
    """The towers of the golden file: tanh MLP and mean of embeddings, both normalised."""

    def __init__(self, golden) -> None:
        super().__init__()
        self.image = nn.ModuleDict({"fc1": nn.Linear(10, 12), "fc2": nn.Linear(12, 8)})
        self.text = nn.ModuleDict(
            {"embedding": nn.Embedding(20, 9), "norm": nn.LayerNorm(9), "proj": nn.Linear(9, 8, bias=False)}
        )
        self.logit_scale = nn.Parameter(torch.zeros(()))
        self.double()
        prefix = "state/"
        self.load_state_dict({n.removeprefix(prefix): torch.tensor(golden[n]) for n in golden if n.startswith(prefix)})

    def encode_text(self, batch):
        pooled = self.text["embedding"](batch["text"]).mean(1)
        return {"text": F.normalize(self.text["proj"](self.text["norm"](pooled)), dim=-1)}

    def encode_items(self, batch):
        return {"items": F.normalize(self.image["fc2"](torch.tanh(self.image["fc1"](batch["image"]))), dim=-1)}

    def similarity(self, text, items):
        return self.logit_scale.exp() * text["text"] @ items["items"].T


@pytest.mark.golden
def test_gradients_equal_upstreams_and_not_those_of_accumulation():
    golden = load("gradcache.npz")
    model = Golden(golden)
    n = len(golden["input/image"])
    batch = {"text": torch.tensor(golden["input/text_ids"]), "image": torch.tensor(golden["input/image"])}
    batch["items"] = torch.arange(n)
    wanted, wrong = (
        {k.removeprefix(p): torch.tensor(golden[k]) for k in golden if k.startswith(p)}
        for p in ("grad/", "plain_accumulation/grad/")
    )
    for size in golden["upstream/chunk_sizes"].tolist():
        agree("GradCache", "loss", exact_step(model, infonce, batch, size).value, golden["loss"], rtol=1e-12)
        found = gradients(model)
        assert error(found, wanted) < 1e-10, size
        for name, gradient in wanted.items():
            agree("GradCache", "gradients", found[name], gradient, atol=1e-10 * float(gradient.abs().max()))
        assert error(found, wrong) > 0.1
    features = {"image": model.encode_items(batch)["items"], "text": model.encode_text(batch)["text"]}
    for side, values in features.items():
        agree("GradCache", "features", values, golden[f"features/{side}"], atol=1e-10)


# --- randomness


def test_both_passes_drop_the_same_and_each_micro_batch_something_else():
    model = Noisy()
    exact_step(model, infonce, noisy_batch(), 4)
    first, second = model.seen[:6], model.seen[6:]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)) and len(second) == 6
    assert not any(f.requires_grad for f in first) and all(s.requires_grad for s in second)
    assert not torch.equal(first[0] == 0, first[2] == 0)


def test_dropout_gradients_are_those_of_the_loss_that_was_drawn():
    model, batch = Noisy(), noisy_batch()
    torch.manual_seed(5)
    value = exact_step(model, infonce, batch, 4).value
    found, after = gradients(model), torch.rand(1)
    model.zero_grad()
    torch.manual_seed(5)
    parts = [{n: v[at : at + 4] for n, v in batch.items()} for at in (0, 4, 8)]
    outputs = [(model.encode_text(part), model.encode_items(part)) for part in parts]
    text, items = ({k: torch.cat([o[i][k] for o in outputs])} for i, k in ((0, "text"), (1, "items")))
    loss = infonce(model, text, items, batch).value
    loss.backward()
    assert value == pytest.approx(loss.item(), rel=1e-13) and error(found, gradients(model)) < 1e-12
    assert torch.equal(torch.rand(1), after), "the second pass leaves no trace in the random numbers that follow"


# --- what the loss sees


def test_the_objective_sees_the_whole_batch_and_unused_features_need_no_gradient():
    model, batch = Noisy(), noisy_batch()
    seen = {}

    def text_alone(retriever, text, items, given):
        seen.update(given)
        return Loss((text["text"] ** 2).sum())

    exact_step(model, text_alone, batch, 3)
    assert seen.keys() == batch.keys() and all(torch.equal(seen[name], value) for name, value in batch.items())
    assert model.left.weight.grad.abs().sum() > 0 and model.right.weight.grad is None


def test_frozen_towers_get_no_gradient():
    model = tiny("seqLSTM")
    for parameter in model.backbone.clip.parameters():
        parameter.requires_grad_(False)
    batch = batch_of(model)
    exact_step(model, infonce, batch)
    wanted = gradients(model)
    exact_step(model, infonce, batch, 5)
    assert wanted and all(name.startswith("head.") for name in wanted) and error(gradients(model), wanted) < 1e-12


def test_a_loss_that_is_no_number_leaves_no_gradient():
    model, batch = Noisy(), noisy_batch()
    batch["frames"][7] = float("nan")
    assert np.isnan(exact_step(model, infonce, batch, 4).value)
    assert all(p.grad is None for p in model.parameters())


def test_a_batch_norm_in_training_mode_is_refused():
    model, batch = Noisy(), noisy_batch()
    model.left = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)).double()
    exact_step(model, infonce, batch)
    with refusal():
        exact_step(model, infonce, batch, 4)
    model.left[1].eval()
    exact_step(model, infonce, batch, 4)


# --- pairs in chunks


@pytest.mark.parametrize("pairs", [1, 7, 16, 40, 64])
def test_pairs_in_chunks_are_exact_dropout_included(pairs):
    model = tiny("tightTransf", dropout=True)
    batch = batch_of(model)
    torch.manual_seed(4)
    loss = exact_step(model, infonce, batch).value
    wanted = gradients(model)
    torch.manual_seed(4)
    assert exact_step(model, infonce, batch, 3, pairs=pairs).value == pytest.approx(loss, rel=1e-13)
    assert error(gradients(model), wanted) < 1e-12


def test_chunks_of_pairs_hold_less_for_the_way_back():
    model = tiny("tightTransf")
    text, items = (encode(batch_of(model)) for encode in (model.encode_text, model.encode_items))

    def held() -> int:
        sizes = {}

        def pack(value):
            sizes[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            model.similarity(text, items)
        return sum(sizes.values())

    whole = held()
    model.pairs_at_once = 32
    assert held() < whole / 8


BOUNDS = [(None, None, 256), (3, None, 48), (1, None, 16), (3, 5, 5)]


@pytest.mark.parametrize(("micro_batch", "pairs", "largest"), BOUNDS)
def test_a_micro_batch_bounds_the_pairs_that_are_scored_at_once(micro_batch, pairs, largest):
    model, seen = tiny("tightTransf"), []
    cross = model.head._cross

    def watched(texts, items, mask):
        seen.append(len(texts[0]) * len(items[0]))
        return cross(texts, items, mask)

    model.head._cross = watched
    exact_step(model, infonce, batch_of(model), micro_batch, pairs=pairs)
    assert max(seen) == largest and model.pairs_at_once == PAIRS_AT_ONCE, "the bound is of one step"
