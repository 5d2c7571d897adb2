"""Closed-form baselines."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from messages import refusal
from rewind.models import baselines
from rewind.models.retriever import concatenate, masked_mean

TEXT, ITEM = 12, 20


def pairs(count: int, seed: int, noise: float = 0.0) -> tuple[Tensor, Tensor]:
    """Text features, and item features that are a fixed affine map of them plus noise."""
    fixed = torch.Generator().manual_seed(7)
    weight = torch.randn(TEXT, ITEM, generator=fixed)
    shift = 5 * torch.randn(ITEM, generator=fixed)
    draw = torch.Generator().manual_seed(seed)
    text = torch.randn(count, TEXT, generator=draw)
    return text, text @ weight + shift + noise * torch.randn(count, ITEM, generator=draw)


def recall_at_1(model: baselines.Ridge, text: Tensor, items: Tensor) -> float:
    encoded = model.encode_items({"frames": items[:, None], "mask": torch.ones(len(items), 1)})
    scores = model.similarity(model.encode_text({"text": text}), encoded)
    return float((scores.argmax(1) == torch.arange(len(text))).float().mean())


@pytest.mark.parametrize("direction", baselines.DIRECTIONS)
def test_ridge_is_the_closed_form(direction: str) -> None:
    text, items = pairs(40, 1, noise=0.3)
    model = baselines.make_ridge(TEXT, ITEM, {"alpha": 0.7, "direction": direction})
    model.fit(text, items)
    source, target = (text, items) if direction == "text_to_items" else (items, text)
    # The same optimum as ordinary least squares with sqrt(lambda) I appended to the centred rows.
    x, y = source.double() - source.double().mean(0), target.double() - target.double().mean(0)
    width = x.shape[1]
    strength = 0.7 * (x.T @ x).trace() / width
    rows = torch.cat([x, strength.sqrt() * torch.eye(width, dtype=torch.float64)])
    zeros = torch.zeros(width, y.shape[1], dtype=torch.float64)
    expected = torch.linalg.lstsq(rows, torch.cat([y, zeros])).solution
    torch.testing.assert_close(model.weight.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("direction", baselines.DIRECTIONS)
def test_ridge_finds_unseen_items(direction: str) -> None:
    model = baselines.make_ridge(TEXT, ITEM, {"direction": direction})
    model.fit(*pairs(200, 1, noise=0.5), *pairs(50, 2, noise=0.5))
    assert recall_at_1(model, *pairs(100, 3, noise=0.5)) > 0.95
    shuffled = baselines.make_ridge(TEXT, ITEM, {"direction": direction})
    text, items = pairs(200, 1, noise=0.5)
    shuffled.fit(text, items.roll(1, 0), *pairs(50, 2, noise=0.5))
    assert recall_at_1(shuffled, *pairs(100, 3, noise=0.5)) < 0.2


def test_alpha_is_chosen_on_validation_alone() -> None:
    few, valid = pairs(15, 1, noise=6.0), pairs(400, 2, noise=1.0)
    model = baselines.make_ridge(TEXT, ITEM)
    model.fit(*few, *valid)
    scores = {}
    for alpha in baselines.ALPHAS:
        fixed = baselines.make_ridge(TEXT, ITEM, {"alpha": alpha})
        fixed.fit(*few)
        scores[alpha] = baselines.mean_reciprocal_rank(fixed, *valid)
    best = max(scores.values())
    assert min(scores.values()) < best  # the choice matters here
    assert float(model.alpha) == pytest.approx(max(a for a, score in scores.items() if score == best))


def test_ties_and_shared_items_in_the_rank() -> None:
    model = baselines.make_ridge(2, 2, {"alpha": 1.0})
    model.fit(torch.eye(2), torch.eye(2))
    model.weight.copy_(torch.eye(2))
    model.text_mean.zero_()
    model.item_mean.zero_()
    text = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    items = torch.tensor([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    # Two captions of one item count it once; the other item ties with it, for the third query too.
    assert baselines.mean_reciprocal_rank(model, text, items) == pytest.approx(1 / 1.5)


def test_a_checkpoint_round_trips(tmp_path) -> None:
    model = baselines.make_ridge(TEXT, ITEM)
    model.fit(*pairs(60, 1, noise=0.5), *pairs(20, 2, noise=0.5))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    loaded = baselines.make_ridge(TEXT, ITEM)
    loaded.load_state_dict(load_file(tmp_path / "model.safetensors"))
    text, _ = pairs(5, 9)
    assert torch.equal(model.encode_text({"text": text})["text"], loaded.encode_text({"text": text})["text"])
    again = baselines.make_ridge(TEXT, ITEM)
    again.fit(*pairs(60, 1, noise=0.5), *pairs(20, 2, noise=0.5))
    assert all(torch.equal(a, b) for a, b in zip(model.buffers(), again.buffers(), strict=True))


def test_an_unfitted_map_is_refused() -> None:
    with refusal("ridge"):
        baselines.make_ridge(TEXT, ITEM).encode_text({"text": torch.zeros(1, TEXT)})


def test_what_cannot_be_fitted_is_named() -> None:
    text, items = pairs(10, 1)
    with refusal("ridge"):
        baselines.make_ridge(TEXT, ITEM).fit(text, items)
    with refusal("ridge"):
        baselines.make_ridge(TEXT, ITEM, {"alpha": 1}).fit(text, items[1:])
    with refusal("ridge"):
        baselines.make_ridge(TEXT, ITEM).fit(text, items, text, items * float("nan"))


@pytest.mark.parametrize("alpha", [0, -1.0, "big", True, float("nan"), float("inf")])
def test_a_bad_alpha_is_refused(alpha: object) -> None:
    with refusal("methods: options.alpha"):
        baselines.make_ridge(TEXT, ITEM, {"alpha": alpha})


def test_unknown_options_are_refused() -> None:
    with refusal("methods: options.alhpa"):
        baselines.make_ridge(TEXT, ITEM, {"alhpa": 1})
    with refusal("methods: options.direction"):
        baselines.make_ridge(TEXT, ITEM, {"direction": "both"})
    with refusal("methods: options.seed"):
        baselines.make_chance({"seed": 1})


def test_constant_features_do_not_divide_by_zero() -> None:
    model = baselines.make_ridge(TEXT, ITEM, {"alpha": 1.0})
    model.fit(torch.ones(5, TEXT), torch.ones(5, ITEM))
    assert torch.isfinite(model.encode_text({"text": torch.ones(2, TEXT)})["text"]).all()


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), seed=st.integers(0, 1000))
def test_pooling_sees_only_real_frames(lengths: list[int], seed: int) -> None:
    frames = torch.randn(len(lengths), 6, 4, generator=torch.Generator().manual_seed(seed))
    mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).long()
    pooled = masked_mean(frames, mask)
    for row, clip, length in zip(pooled, frames, lengths, strict=True):
        expected = clip[:length].mean(0) if length else torch.zeros(4)
        torch.testing.assert_close(row, expected)


def test_frames_in_another_order_change_nothing() -> None:
    model = baselines.make_ridge(TEXT, ITEM, {"alpha": 1.0})
    model.fit(*pairs(30, 1))
    frames, mask = torch.randn(3, 5, ITEM), torch.ones(3, 5)
    forward = model.encode_items({"frames": frames, "mask": mask})["items"]
    reverse = model.encode_items({"frames": frames.flip(1), "mask": mask})["items"]
    torch.testing.assert_close(forward, reverse)


def test_chance_ties_every_item() -> None:
    model = baselines.make_chance()
    text = [model.encode_text({"text": torch.zeros(n, 7, dtype=torch.long)}) for n in (2, 3)]
    items = model.encode_items({"pixels": torch.zeros(4, 2, 3, 8, 8, dtype=torch.uint8), "mask": torch.ones(4, 2)})
    scores = model.similarity(concatenate(text), items)
    assert torch.equal(scores, torch.zeros(5, 4)) and scores.dtype == torch.float32


def test_chance_saves_as_nothing(tmp_path) -> None:
    save_file(baselines.make_chance().state_dict(), tmp_path / "model.safetensors")
    baselines.make_chance().load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert list(baselines.make_chance().parameters()) == []
