"""HNAC and InfoNCE at a fixed temperature against the original's numbers; pairs of one item; refused options."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from golden_numbers import agree, load
from messages import refusal
from rewind.config import Training
from rewind.data.tokenizers import same_text_labels
from rewind.losses.base import make_loss, make_objective
from rewind.models.baselines import Chance
from rewind.models.retriever import Retriever
from rewind.training.order import count_doubtful_negatives

GOLDEN = load("hnac.npz")
CASES = [(0.07, 0.5), (0.2, 0.9)]


class Raw(Retriever):
    """Vectors as they are given."""

    def vectors(self, text, items):
        return F.normalize(text["v"], dim=-1), F.normalize(items["v"], dim=-1)


def scored(objective, batch: int, dtype: torch.dtype):
    """Loss, and gradients to videos and texts, on one golden batch."""
    video, text = (
        torch.from_numpy(GOLDEN[f"in/{batch}/{side}"]).to(dtype).requires_grad_() for side in ("video", "text")
    )
    loss = objective(Raw(), {"v": text}, {"v": video}, {"items": torch.arange(len(video))}).value
    loss.backward()
    return loss.item(), video.grad.numpy(), text.grad.numpy()


@pytest.mark.golden
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize(("temperature", "weight"), CASES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_hnac_is_the_originals_loss_and_gradient(batch: int, temperature: float, weight: float, reduction: str) -> None:
    options = {"temperature": temperature, "hard_negative_weight": weight, "reduction": reduction}
    objective, name = make_loss("hnac", options), f"{batch}/hnac_t{temperature}_w{weight}_{reduction}"
    agree("HNAC", "loss", scored(objective, batch, torch.float64)[0], GOLDEN[f"ref64/{name}"], rtol=1e-9)
    loss, video, text = scored(objective, batch, torch.float32)
    agree("HNAC", "loss", np.float32(loss), GOLDEN[f"out/{name}"], rtol=1e-5)
    mean, times = name.replace("sum", "mean"), len(video) if reduction == "sum" else 1
    agree("HNAC", "gradients", video / times, GOLDEN[f"grad/{mean}/video"], rtol=1e-4, atol=1e-5)
    agree("HNAC", "gradients", text / times, GOLDEN[f"grad/{mean}/text"], rtol=1e-4, atol=1e-5)


@pytest.mark.golden
@pytest.mark.parametrize("batch", [0, 1, 2])
@pytest.mark.parametrize("temperature", [0.07, 0.2])
def test_infonce_at_a_fixed_temperature_is_the_originals(batch: int, temperature: float) -> None:
    objective, name = make_loss("infonce", {"temperature": temperature}), f"{batch}/clip_loss_t{temperature}"
    agree("HNAC, InfoNCE", "loss", scored(objective, batch, torch.float64)[0], GOLDEN[f"ref64/{name}"], rtol=1e-9)
    loss, video, text = scored(objective, batch, torch.float32)
    agree("HNAC, InfoNCE", "loss", np.float32(loss), GOLDEN[f"out/{name}"], rtol=1e-5)
    agree("HNAC, InfoNCE", "gradients", video, GOLDEN[f"grad/{name}/video"], rtol=1e-4, atol=1e-5)
    agree("HNAC, InfoNCE", "gradients", text, GOLDEN[f"grad/{name}/text"], rtol=1e-4, atol=1e-5)


def test_another_pair_of_the_same_item_is_no_negative() -> None:
    torch.manual_seed(0)
    text, video = torch.randn(3, 6), torch.randn(3, 6)
    text, video = text[[0, 1, 2, 0]], video[[0, 1, 2, 0]]  # the last pair shows the first item again
    index = torch.tensor([0, 1, 2, 0])
    for objective in (make_loss("hnac", {}), make_loss("infonce", {"temperature": 0.07})):
        found = objective(Raw(), {"v": text}, {"v": video}, {"items": index}).value
        counted = objective(Raw(), {"v": text}, {"v": video}, {"items": torch.arange(4)}).value
        assert found < counted - 0.1 and torch.isfinite(found)
    alone = torch.zeros(2, dtype=torch.long)  # nothing but one item: nothing to learn, and no loss
    nothing = make_loss("hnac", {})(Raw(), {"v": text[[0, 0]]}, {"v": video[[0, 0]]}, {"items": alone}).value
    assert nothing.item() == pytest.approx(0, abs=1e-6)


def test_a_harder_negative_counts_less_than_in_infonce() -> None:
    text = torch.eye(2, 3, dtype=torch.float64)
    losses = {}
    for closeness in (0.0, 0.9):
        video = torch.tensor([[1.0, 0, 0], [closeness, (1 - closeness**2) ** 0.5, 0]], dtype=torch.float64)
        index = {"items": torch.arange(2)}
        pair = [o(Raw(), {"v": text}, {"v": video}, index).value for o in (make_loss("infonce", {"temperature": 1.0}),)]
        pair.append(make_loss("hnac", {"temperature": 1.0})(Raw(), {"v": text}, {"v": video}, index).value)
        losses[closeness] = (pair[0] - pair[1]).item()
    assert losses[0.9] > losses[0.0] > 0


def test_options_are_checked_by_key() -> None:
    assert make_objective(Training(objective="hnac", objective_options={"temperature": 0.2})).temperature == 0.2
    for options, place in (
        ({"temprature": 1}, "temprature: objective"),
        ({"temperature": 0}, "temperature"),
        ({"hard_negative_weight": 1.5}, "hard_negative_weight"),
        ({"hard_negative_weight": "much"}, "hard_negative_weight"),
    ):
        with refusal(f"training.objective_options.{place}"):
            make_objective(Training(objective="hnac", objective_options=options))
    with refusal("training.objective_options.lambda: objective"):
        make_objective(Training(objective_options={"lambda": 1}))


def test_a_retriever_without_vectors_is_named() -> None:
    with refusal("training.objective"):
        make_loss("hnac", {})(Chance(), {}, {}, {"items": torch.arange(2)})


def test_infonce_leaves_out_what_it_is_told_to() -> None:
    """Pairs 0 and 1 say the same of different clips, 2 and 3 are a clip and its twin, 4 and 5 show one clip."""
    vectors = F.normalize(torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), dim=-1)
    data = SimpleNamespace(
        captions=["a door opens", "A  door opens", "x", "y", "z", "w"], cluster_of_item=np.array([0, 1, 2, 2, 3])
    )
    batch = {"rows": torch.arange(6), "items": torch.tensor([0, 1, 2, 3, 4, 4])}
    logits = vectors @ vectors.flip(0).T / 0.5
    pairs = {"same_text": [(0, 1)], "twins": [(2, 3)]}
    for exclude in ([], ["same_text"], ["twins"], ["same_text", "twins"]):
        objective = make_loss("infonce", {"temperature": 0.5, "exclude": exclude})
        objective.prepare(Raw(), data, torch.device("cpu"))
        found = objective(Raw(), {"v": vectors}, {"v": vectors.flip(0)}, batch).value
        left = logits.clone()
        for one, other in [(4, 5), *(pair for name in exclude for pair in pairs[name])]:
            left[one, other] = left[other, one] = -torch.inf
        truth = torch.arange(6)
        wanted = (F.cross_entropy(left, truth) + F.cross_entropy(left.T, truth)) / 2
        assert found.item() == pytest.approx(wanted.item(), rel=1e-6), exclude
    with refusal("training.objective_options.exclude.0"):
        make_loss("infonce", {"exclude": ["twin"]})


def test_doubtful_negatives_of_an_epoch_are_counted() -> None:
    data = SimpleNamespace(
        captions=["a door opens", "A  door opens", "x", "x", "z", "w"],
        item_of_caption=np.array([0, 1, 2, 2, 3, 4]),
        cluster_of_item=np.array([0, 1, 2, 3, 3]),
    )
    one, two, texts = np.array([0, 1, 2]), np.array([3, 4, 5]), same_text_labels(data.captions)
    assert count_doubtful_negatives([one, two], data, texts) == {"same_text_negatives": 1.0, "twin_negatives": 1.0}
    assert count_doubtful_negatives([np.arange(6)] * 2, data, texts) == {
        "same_text_negatives": 2.0,
        "twin_negatives": 2.0,
    }
    assert count_doubtful_negatives([two, one[[0, 2]]], data, texts) == {
        "same_text_negatives": 0.0,
        "twin_negatives": 1.0,
    }
