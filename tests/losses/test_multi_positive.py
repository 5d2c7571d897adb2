"""The loss with several positives: what its memory may not do, its schedules, its options, and killed runs."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from checkout import ROOT
from messages import refusal
from multi_positive_runs import PLAIN, Given, Killed, trained
from rewind.config.docs import _render_model
from rewind.losses.base import make_loss
from rewind.losses.multi_positive import (
    MultiPositiveOptions,
    NegativeQueue,
    PositiveMemory,
    epoch_queue_length,
    epoch_temperature,
    hardest_negatives,
    multi_positive_nce,
    newest_per_item,
)
from rewind.models.baselines import Chance
from rewind.models.translator import TranslatorOptions


def batch(ids: list[int], rows: list[int] | None = None) -> dict[str, torch.Tensor]:
    return {"items": torch.tensor(ids), "rows": torch.tensor(rows or ids)}


def step(loss, left: torch.Tensor, right: torch.Tensor, ids: list[int], rows: list[int] | None = None):
    return loss(Given(), {"text": left}, {"items": right}, batch(ids, rows))


def test_the_own_image_in_the_queue_is_no_negative():
    vectors, later = torch.eye(4), torch.eye(4) + 0.1
    masked, seed = make_loss("multi_positive", PLAIN), make_loss("multi_positive", PLAIN | {"mask_ids": False})
    for loss in (masked, seed):
        loss.start_epoch(0)
        step(loss, vectors, vectors, [0, 1, 2, 3], [0, 1, 2, 3])
    same = step(masked, later, vectors, [0, 1, 2, 3], [4, 5, 6, 7]).value
    wrong = step(seed, later, vectors, [0, 1, 2, 3], [4, 5, 6, 7]).value
    # A right vector that is its own negative: at best two columns share the probability.
    assert wrong - same > 0.9 * math.log(2)


def test_other_images_of_the_queue_count():
    vectors = torch.eye(4)
    loss = make_loss("multi_positive", PLAIN)
    alone = step(loss, vectors + 0.1, vectors, [0, 1, 2, 3], [0, 1, 2, 3]).value
    assert step(loss, vectors + 0.1, vectors, [4, 5, 6, 7], [4, 5, 6, 7]).value > alone


def test_earlier_captions_are_positives_of_their_image_alone():
    torch.manual_seed(0)
    left, right, ids = torch.randn(4, 6), torch.randn(3, 6)[[0, 1, 2, 0]], [0, 1, 2, 0]
    loss = make_loss("multi_positive", PLAIN | {"queue": [], "cross_batch": 2, "tau_epochs": 1})
    step(loss, left, right, ids, [0, 1, 2, 3])
    found = step(loss, left + 0.1, right, ids, [4, 5, 6, 7]).value
    one, two, past = F.normalize(left + 0.1, dim=1), F.normalize(right, dim=1), F.normalize(left, dim=1)
    total = 0.0
    for row in range(4):
        columns = [(float(one[row] @ two[c]), ids[c]) for c in range(4)]
        columns += [(float(one[row] @ past[c]), ids[c]) for c in range(4)]
        exps = [(math.exp(cosine / 0.06), owner == ids[row]) for cosine, owner in columns]
        total += -math.log(sum(e for e, own in exps if own) / sum(e for e, _ in exps)) / 4
    assert float(found) == pytest.approx(total, rel=1e-4)


def test_chuangs_denominator():
    logits = torch.tensor([[2.0, 1.0, 0.5, -1.0]], dtype=torch.float64)
    positive = torch.tensor([[True, True, False, False]])
    tau, prior = 0.5, 0.1
    found = multi_positive_nce(logits, positive, ~positive, tau, "chuang", prior)
    good, bad = logits[0, :2].exp(), logits[0, 2:].exp()
    negatives = max((bad.sum() - prior * 2 * good.mean()) / (1 - prior), 2 * math.exp(-1 / tau))
    assert float(found) == pytest.approx(float(-(good.sum() / (good.sum() + negatives)).log()), rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), tau=st.floats(0.03, 1.0), debias=st.sampled_from(["none", "chuang"]))
def test_the_loss_is_finite_and_not_negative(seed, tau, debias):
    generator = torch.Generator().manual_seed(seed)
    cosines = torch.rand(5, 9, generator=generator) * 2 - 1
    positive = torch.rand(5, 9, generator=generator) > 0.6
    positive[:, 0] = True
    logits = (cosines / tau).requires_grad_()
    loss = multi_positive_nce(logits, positive, ~positive, tau, debias, 0.05)
    loss.sum().backward()
    assert (loss >= 0).all()
    assert torch.isfinite(logits.grad).all()


def test_mining_takes_an_image_once_and_only_what_is_allowed():
    ids = torch.tensor([3, 5, 3, -1, -1, 5, 7])
    newest = newest_per_item(ids)
    assert newest.tolist() == [False, False, True, True, True, True, True]
    logits = torch.tensor([[9.0, 8, 7, 1, 2, 6, 5], [9.0, 8, 7, 1, 2, 6, 5]])
    allowed = newest[None] & (ids[None] != torch.tensor([[7], [3]]))
    values, there = hardest_negatives(logits, allowed, 3)
    assert values[there].tolist() == [7, 6, 2, 6, 5, 2]
    values, there = hardest_negatives(logits, torch.zeros_like(allowed), 3)
    assert not there.any()
    assert hardest_negatives(logits[:, :2], allowed[:, :2] | True, 64)[0].shape == (2, 2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=9), max_size=6), st.integers(1, 3), st.integers(1, 7))
def test_positives_hold_the_newest_within_both_caps(batches, per_item, capacity):
    store, log = PositiveMemory(per_item, capacity), []
    for ids in batches:
        store.add(torch.arange(len(log), len(log) + len(ids)).float()[:, None], torch.tensor(ids))
        for item in ids:
            log.append(item)
    held = []  # the definition: one after the other
    for number, item in enumerate(log):
        own = [n for n in held if log[n] == item]
        if len(own) == per_item:
            held.remove(own[0])
        elif len(held) == capacity:
            held.pop(0)
        held.append(number)
    state = store.state_dict()
    assert (state["vectors"][:, 0].tolist() if state else []) == held
    other = PositiveMemory(per_item, capacity)
    other.load_state_dict(state)
    assert len(other) == len(store) <= capacity


def test_a_queue_goes_on_as_it_was():
    one, two = NegativeQueue(5), NegativeQueue(5)
    for start in range(0, 9, 3):
        one.add(torch.arange(start, start + 3).float()[:, None], torch.arange(start, start + 3))
    two.load_state_dict(one.state_dict())
    for queue in (one, two):
        queue.add(torch.tensor([[9.0]]), torch.tensor([9]))
    assert (
        one.recent(9, torch.zeros(1, 1))[1].tolist() == two.recent(9, torch.zeros(1, 1))[1].tolist() == [5, 6, 7, 8, 9]
    )


def test_a_step_that_is_tried_again_is_remembered_once():
    loss = make_loss("multi_positive", PLAIN)
    for _ in range(3):
        step(loss, torch.eye(4), torch.eye(4), [0, 1, 2, 3])
    assert len(loss.state_dict()["queue"]["ids"]) == 4


def test_the_loss_is_the_same_under_autocast():
    torch.manual_seed(0)
    values = []
    for enabled in (False, True):
        loss = make_loss("multi_positive", PLAIN | {"cross_batch": 2, "cosine": 0.5, "agreement": 0.05, "moment": 0.02})
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            generator = torch.Generator().manual_seed(3)
            for turn in range(3):
                vectors = torch.randn(2, 6, 32, generator=generator)
                found = step(loss, *vectors, [0, 1, 2, 3, 4, 0], list(range(6 * turn, 6 * turn + 6))).value
        values.append(float(found))
    assert values[0] == values[1]


def test_schedules_end():
    assert epoch_temperature(MultiPositiveOptions(tau_epochs=1), 0) == 0.06
    assert epoch_temperature(MultiPositiveOptions(tau_epochs=5), 99) == pytest.approx(0.06)
    assert epoch_queue_length(MultiPositiveOptions(queue=[]), 7) == 0
    assert [epoch_queue_length(MultiPositiveOptions(queue=[4, 9], queue_from=2), epoch) for epoch in range(4)] == [
        0,
        4,
        9,
        9,
    ]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"queues": [8]}, "training.objective_options.queues: objective"),
        ({"tau_start": 0}, "training.objective_options.tau_start"),
        ({"prior": 1.0}, "training.objective_options.prior"),
        ({"queue": [0]}, "training.objective_options: queue"),
        ({"debias": "dcl"}, "training.objective_options.debias"),
    ],
)
def test_bad_options_are_refused(options, place):
    with refusal(place):
        make_loss("multi_positive", options)


def test_a_queue_smaller_than_a_batch_is_refused():
    with refusal("training.objective_options.queue"):
        step(make_loss("multi_positive", PLAIN | {"queue": [3, 8]}), torch.eye(4), torch.eye(4), [0, 1, 2, 3])


def test_a_retriever_without_vectors_is_named():
    with refusal("training.objective"):
        make_loss("multi_positive", {})(Chance(), {}, {}, batch([0, 1]))


@pytest.mark.parametrize("model", [MultiPositiveOptions, TranslatorOptions])
def test_the_documentation_has_every_option_as_it_is(model):
    table = "\n".join(_render_model(model, "", set())[1:]).strip()
    assert table in (ROOT / "docs/translator.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("head", ["geometry_adapter", "mlp1"])
@pytest.mark.parametrize("kill_at", [2, 5, 12])
def test_a_killed_run_ends_with_the_same_bits(tmp_path, head, kill_at):
    whole, history = trained(tmp_path / "a.pt", head)
    with pytest.raises(Killed):
        trained(tmp_path / "b.pt", head, kill_at=kill_at)
    again, rest = trained(tmp_path / "b.pt", head)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    for one, two in zip(history, rest, strict=True):
        assert {k: v for k, v in one.items() if "second" not in k} == {
            k: v for k, v in two.items() if "second" not in k
        }
    assert next(row["queue"] for row in history) == 0 < history[-1]["queue"]
