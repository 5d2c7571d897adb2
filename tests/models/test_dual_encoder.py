"""Cross-attention of pairs is trained, and never enters what is reported; a zero-shot row is kept as it is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn

from messages import refusal
from rewind.config import Backbone as BackboneKeys
from rewind.config import Method, Text, Training
from rewind.config.evaluation import Evaluation
from rewind.distributed import World, join_process_group
from rewind.evaluation.cosine_gap import cosine_matrices, measure_cosine_gap
from rewind.loading.frame_source import CachedFrames
from rewind.losses.base import make_loss
from rewind.models import dual_encoder
from rewind.models.backbone import Backbone, scatter_frames
from rewind.models.checkpoint import load_model, save_model
from rewind.models.dual_encoder import CrossAttention, DualEncoder
from rewind.models.registry import model_hooks
from rewind.torch_setup import seed_everything
from rewind.training.batches import epoch_batches
from rewind.training.grad_cache import exact_step
from rewind.training.optim import parameter_groups

WIDTH = 8
KEYS = BackboneKeys(kind="test_dual_encoder.Towers")
EVALUATION = Evaluation(batch_size=3)


class Towers(Backbone):
    """Two linear towers."""

    def __init__(self) -> None:
        super().__init__()
        self.width = self.feature_width = WIDTH
        self.text, self.frames = nn.Linear(4, WIDTH), nn.Linear(5, WIDTH)
        self.logit_scale = nn.Parameter(torch.tensor(1.0))

    @staticmethod
    def build(keys, text, captions) -> Towers:
        return Towers()

    def encode_text(self, prepared: Tensor) -> Tensor:
        return self.text(prepared)

    def encode_frames(self, features: Tensor) -> Tensor:
        return scatter_frames(self.frames(features[features.any(-1)]), features.any(-1))

    def visual_parameters(self) -> list[nn.Parameter]:
        return list(self.frames.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.text.parameters())


def built(seed: int = 0, model=dual_encoder, **options) -> DualEncoder:
    seed_everything(seed)
    return model.build(Method(options=options), KEYS, Text(), [])


def data(n: int, seed: int = 0) -> tuple[Tensor, CachedFrames]:
    rng = np.random.default_rng(seed)
    frames = rng.normal(size=(n, 2, 5)).astype(np.float32)
    return torch.from_numpy(rng.normal(size=(n, 4)).astype(np.float32)), CachedFrames(frames, np.ones((n, 2), np.uint8))


def batch(text: Tensor, inputs: CachedFrames, rows: np.ndarray) -> dict[str, Tensor]:
    index = torch.from_numpy(rows)
    return {"text": text[index], "items": index, "rows": index} | inputs.batch(rows)


def test_cross_attention_over_one_key_is_a_linear_map_of_the_partner() -> None:
    torch.manual_seed(0)
    layer = CrossAttention(WIDTH, 4).double()
    query, other = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    value = F.linear(other, layer.attn.in_proj_weight[2 * WIDTH :], layer.attn.in_proj_bias[2 * WIDTH :])
    assert torch.allclose(layer(query, other), layer.ln(query + layer.attn.out_proj(value)), rtol=0, atol=1e-6)


def test_its_weights_are_in_the_optimiser_and_learn() -> None:
    model = built(cross_attention=True).train()
    groups = parameter_groups(model, Training(lr=1e-2, backbone_lr_multiplier=0.1))
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    assert all(rates[id(p)] == 1e-2 for p in model.attention.parameters())
    text, inputs = data(6)
    exact_step(model, make_loss("hnac", {}), batch(text, inputs, np.arange(6)))
    moved = {name: p.grad.abs().max().item() for name, p in model.attention.named_parameters()}
    assert moved["attn.out_proj.weight"] > 1e-4 and moved["ln.weight"] > 1e-4
    own, partner = model.attention.attn.in_proj_weight.grad.split([2 * WIDTH, WIDTH])
    assert own.abs().max() < 1e-6 and partner.abs().max() > 1e-4, "one key: query and key projections cannot learn"


LOSSES = [make_loss("infonce"), make_loss("infonce", {"temperature": 0.07}), make_loss("hnac")]


@pytest.mark.parametrize("objective", LOSSES)
def test_a_loss_in_micro_batches_is_the_whole_batchs(objective) -> None:
    text, inputs = data(7)
    grads = []
    for size in (None, 3):
        model = built(cross_attention=True).double().train()
        given = {n: v.double() if v.is_floating_point() else v for n, v in batch(text, inputs, np.arange(7)).items()}
        exact_step(model, objective, given, size)
        grads.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.allclose(*grads, rtol=1e-9, atol=1e-12)


def shared_step(rank: int, size: int, port: int, folder: Path) -> None:
    """One of two processes with half of a batch of 8 pairs each."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_process_group() as world:
        torch.save(one_step(world), folder / f"rank{rank}.pt")


def one_step(world: World) -> tuple[float, dict[str, Tensor]]:
    model, (text, inputs) = built(cross_attention=True).double().train(), data(8)
    given = {n: v.double() if v.is_floating_point() else v for n, v in batch(text, inputs, np.arange(8)).items()}
    share = {name: value[world.share(8)] for name, value in given.items()}
    loss = exact_step(model, make_loss("hnac", {}), share, 3, world=world).value
    return loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.slow
def test_pairs_on_two_processes_attend_as_on_one(tmp_path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(shared_step, (2, port, tmp_path), nprocs=2)
    loss, wanted = one_step(World())
    for rank in range(2):
        value, found = torch.load(tmp_path / f"rank{rank}.pt", weights_only=True)
        assert value == pytest.approx(loss, rel=1e-12)
        assert found.keys() == wanted.keys() and "attention.attn.out_proj.weight" in found
        assert all(torch.allclose(found[name], grad, rtol=1e-9, atol=1e-12) for name, grad in wanted.items())


def test_what_is_evaluated_is_independent_and_the_other_is_apart() -> None:
    model, (text, inputs), one = built(cross_attention=True), data(9), np.arange(9)
    found = cosine_matrices(model, text, inputs, one, EVALUATION, torch.device("cpu"))
    again = cosine_matrices(model.train(), text, inputs, one, EVALUATION, torch.device("cpu"))
    assert all((found[name] == again[name]).all() for name in ("independent", "pair_conditioned")), "twice the same"
    plain = built()
    plain.load_state_dict({n: v for n, v in model.state_dict().items() if not n.startswith("attention.")})
    bare = cosine_matrices(plain, text, inputs, one, EVALUATION, torch.device("cpu"))
    assert set(bare) == {"independent"} and (bare["independent"] == found["independent"]).all()
    text_features = model.encode_text({"text": text})
    scores = model.similarity(text_features, model.encode_items(inputs.batch(one)))
    assert torch.allclose(
        scores / model.backbone.logit_scale.exp(), torch.from_numpy(found["independent"]), rtol=0, atol=1e-5
    )


def test_pair_conditioned_vectors_are_the_originals() -> None:
    """Videos see texts first, texts then see what videos became, both through the same weights."""
    model, (text, inputs), one = built(cross_attention=True).eval(), data(5), np.arange(5)
    with torch.no_grad():
        raw_text = model.backbone.encode_text(text)
        raw_video = model.backbone.encode_frames(inputs.batch(one)["frames"]).mean(1)
        video = model.attention(raw_video, raw_text)
        words = model.attention(raw_text, video)
    expected = F.normalize(words, dim=-1) @ F.normalize(video, dim=-1).T
    found = cosine_matrices(model, text, inputs, one, EVALUATION, torch.device("cpu"))["pair_conditioned"]
    assert np.allclose(found, expected, rtol=0, atol=1e-5)


def test_an_item_with_two_captions_sees_its_first() -> None:
    model, (text, inputs) = built(cross_attention=True), data(4)
    own = np.array([0, 1, 2, 1])
    found = cosine_matrices(
        model,
        text,
        CachedFrames(inputs.frames.numpy()[:3], inputs.mask.numpy()[:3]),
        own,
        EVALUATION,
        torch.device("cpu"),
    )
    assert found["pair_conditioned"].shape == (4, 3)
    alone = cosine_matrices(
        model,
        text[:3],
        CachedFrames(inputs.frames.numpy()[:3], inputs.mask.numpy()[:3]),
        own[:3],
        EVALUATION,
        torch.device("cpu"),
    )
    assert np.allclose(found["pair_conditioned"][:3], alone["pair_conditioned"], rtol=0, atol=1e-6)


def test_on_noise_the_independent_gap_is_nought_and_the_pair_conditioned_is_not() -> None:
    """Captions and clips know nothing of one another; training on other such pairs still teaches to copy partners."""
    text, inputs = data(240, seed=1)
    held_text, held = data(120, seed=2)
    model = built(cross_attention=True).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    keys = Training(batch={"size": 24}).batch
    for epoch in range(20):
        for rows in epoch_batches(np.arange(240), np.arange(240), keys, 0, epoch):
            exact_step(model, make_loss("infonce", {"temperature": 0.07}), batch(text, inputs, rows))
            optimiser.step()
    one = np.arange(120)
    found = cosine_matrices(model, held_text, held, one, EVALUATION, torch.device("cpu"))
    gaps = {name: measure_cosine_gap(matrix, one, one).gap for name, matrix in found.items()}
    assert abs(gaps["independent"]) < 0.1 and gaps["pair_conditioned"] > 0.5


def test_zero_shot_learns_nothing_and_is_kept_in_its_file(tmp_path) -> None:
    model = built(3, model_hooks("zero_shot"))
    assert not list(model.parameters())
    save_model(tmp_path / "model.safetensors", model, {})
    other = built(4, model_hooks("zero_shot"))
    text, inputs = data(5)
    before = cosine_matrices(other, text, inputs, np.arange(5), EVALUATION, torch.device("cpu"))["independent"]
    load_model(tmp_path / "model.safetensors", other)
    after, expected = (
        cosine_matrices(m, text, inputs, np.arange(5), EVALUATION, torch.device("cpu"))["independent"]
        for m in (other, model)
    )
    assert (after == expected).all() and not (before == after).all()


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (
            {"cross_atention": True},
            "methods.*.options.cross_atention: model",
        ),
        ({"cross_attention": "yes"}, "methods.*.options.cross_attention"),
        ({"cross_attention": True, "heads": 3}, "methods.*.options.heads"),
        ({"heads": 0}, "methods.*.options.heads"),
        ({"backbone": {"knd": "viclip"}}, "methods.*.options.backbone.knd"),
        ({"backbone": {"kind": "viclip", "architecture": "viclip-x"}}, "backbone.architecture: 'viclip-x': kind"),
    ],
)
def test_bad_options_are_told(options: dict, place: str) -> None:
    with refusal(place):
        built(**options)
    with refusal("methods.*.options.heads: model"):
        built(0, model_hooks("zero_shot"), heads=2)


def test_rows_that_are_no_pairs_and_cached_features_of_other_towers_are_refused() -> None:
    model = built(cross_attention=True).train()
    text, inputs = data(4)
    with refusal():
        model.similarity(model.encode_text({"text": text}), model.encode_items(inputs.batch(np.arange(3))))
    method = Method(options={"backbone": {"kind": "test_dual_encoder.Towers"}}, training=Training(freeze=["visual"]))
    with refusal("methods.*.training.freeze"):
        dual_encoder.build(method, KEYS, Text(), [])
