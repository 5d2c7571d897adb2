"""BertAdam against trajectories of CLIP4Clip's own; groups by name; frozen layers."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from broken_runs import BreakingFile, Interrupt
from golden_numbers import agree, load
from messages import refusal
from rewind.config import Training
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.models.backbone import Backbone
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip import Clip4Clip
from rewind.models.clip4clip_checkpoint import CLIP4CLIP_HEADS
from rewind.optional_packages import open_clip
from rewind.registry import HEADS
from rewind.training.loop import train_model
from rewind.training.optim import BertAdam, bert_lr_factor, make_optimiser, parameter_groups

BERT = Training(optimiser="bert_adam", lr=0.03, backbone_lr_multiplier=0.1, weight_decay=0.2)


class Tokens:
    vocabulary = 40


def model(head: str = "seqTransf", blocks: int = 3) -> Clip4Clip:
    torch.manual_seed(0)
    vision = {"image_size": 16, "layers": blocks, "width": 64, "patch_size": 8}
    text = {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": blocks}
    towers = open_clip("model").CLIP(embed_dim=64, quick_gelu=True, vision_cfg=vision, text_cfg=text)
    return Clip4Clip(ClipTowers(towers, Tokens(), 8), HEADS.find(head)(64, layers=2, positions=8))


@pytest.fixture
def golden():
    return load("clip4clip/bertadam.npz")


@pytest.mark.golden
@pytest.mark.parametrize("kind", ["plain", "globalclip"])
def test_trajectories_equal_upstream(golden, kind):
    names = [str(name) for name in golden["in/param_names"]]
    parameters = {name: nn.Parameter(torch.tensor(golden[f"in/init/{name}"])) for name in names}
    place = dict(zip(names, golden["out/param_group_index"].tolist(), strict=True))
    groups = [
        {
            "params": [parameters[name] for name in names if place[name] == number],
            "lr": float(golden["out/group_lr"][number]),
            "weight_decay": float(golden["out/group_weight_decay"][number]),
        }
        for number in range(4)
    ]
    optimiser = BertAdam(groups)
    total, warmup = int(golden["in/t_total"]), float(golden["in/warmup_proportion"])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: bert_lr_factor(step, total, warmup))
    for step in range(int(golden["in/steps"])):
        for name in names:
            if f"in/grad/{name}" in golden:
                parameters[name].grad = torch.tensor(golden[f"in/grad/{name}"][step])
        if kind == "globalclip":
            norm = nn.utils.clip_grad_norm_(parameters.values(), 1.0)
            agree("CLIP4Clip, BertAdam", "joint norm", norm, golden["out/globalclip_total_norm"][step], rtol=1e-5)
        optimiser.step()
        schedule.step()
        if kind == "globalclip":
            parameters["clip.logit_scale"].data.clamp_(max=math.log(100))
        for name in names:
            wanted = golden[f"out/{kind}/{name}"][step]
            agree("CLIP4Clip, BertAdam", "parameters after every step", parameters[name], wanted, atol=5e-6)


@pytest.mark.golden
def test_schedule_equals_upstream(golden):
    total, warmup = int(golden["in/t_total"]), float(golden["in/warmup_proportion"])
    factors = [bert_lr_factor(step, total, warmup) for step in range(int(golden["in/steps"]))]
    agree("CLIP4Clip, BertAdam", "schedule", factors, golden["out/schedule_factor"], atol=1e-12)


def test_schedule_rises_again_behind_the_last_step_and_needs_no_warm_up():
    assert bert_lr_factor(12, 10, 0.3) == pytest.approx(0.5 * (1 + math.cos(1.2 * math.pi)))
    assert bert_lr_factor(0, 10, 0.0) == 1.0


def test_one_step_by_hand():
    """A gradient of norm 5 is clipped to 1; the moments are not corrected; decay is scaled by the rate alone."""
    parameter = nn.Parameter(torch.tensor([1.0, -2.0]))
    parameter.grad = torch.tensor([3.0, 4.0])
    BertAdam([parameter], lr=0.1, weight_decay=0.5).step()
    gradient = np.array([0.6, 0.8])
    update = 0.1 * gradient / (np.sqrt(0.02 * gradient**2) + 1e-6) + 0.5 * np.array([1.0, -2.0])
    np.testing.assert_allclose(parameter.detach(), np.array([1.0, -2.0]) - 0.1 * update, rtol=1e-5)
    np.testing.assert_array_equal(parameter.grad, [3.0, 4.0])


def test_state_survives_saving():
    def steps(count, parameter, optimiser):
        for number in range(count):
            parameter.grad = torch.full((3,), float(number + 1))
            optimiser.step()

    whole = nn.Parameter(torch.ones(3))
    steps(2, whole, optimiser := BertAdam([whole], lr=0.1))
    broken = nn.Parameter(whole.detach().clone())
    resumed = BertAdam([broken], lr=0.1)
    resumed.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    steps(3, whole, optimiser)
    steps(3, broken, resumed)
    assert torch.equal(whole, broken)


@pytest.mark.parametrize("head", CLIP4CLIP_HEADS)
def test_groups_are_upstreams_by_name(head):
    retriever = model(head)
    groups = parameter_groups(retriever, BERT)
    found = {id(p): (group["lr"], group["weight_decay"]) for group in groups for p in group["params"]}
    assert len(found) == len(list(retriever.parameters()))
    for name, parameter in retriever.named_parameters():
        lr = 0.03 * (0.1 if "clip." in name else 1.0)
        assert found[id(parameter)] == (pytest.approx(lr), 0.0 if "bias" in name else 0.2), name
    spared = {
        id(p) for g in parameter_groups(retriever, Training()) if not g["weight_decay"] for p in g["params"]
    }  # under adamw
    names = {name for name, p in retriever.named_parameters() if found[id(p)][1] and id(p) in spared}
    assert {"backbone.clip.logit_scale", "backbone.clip.ln_final.weight"} <= names


def test_the_study_key_chooses_optimiser_and_schedule():
    retriever = model()
    optimiser, schedule = make_optimiser(retriever, BERT, steps=20)
    assert isinstance(optimiser, BertAdam) and [g["lr"] for g in optimiser.param_groups] == [0.0] * 4
    before = [p.detach().clone() for p in retriever.parameters()]
    for parameter in retriever.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()  # at rate 0, as upstream's first
    assert all(torch.equal(a, b) for a, b in zip(before, retriever.parameters(), strict=True))
    schedule.step()
    optimiser.step()
    assert not any(torch.equal(a, b) for a, b in zip(before, retriever.parameters(), strict=True))
    assert isinstance(make_optimiser(retriever, Training(), steps=20)[0], torch.optim.AdamW)


def upstream_freezes(name: str, count: int) -> bool:
    if name.startswith(("ln_final.", "text_projection", "logit_scale", "visual.ln_post.", "visual.proj")):
        return False
    if "resblocks." in name:
        return int(name.split("resblocks.")[1].split(".")[0]) < count
    return True


@pytest.mark.parametrize("count", [None, 0, 1, 3])
def test_frozen_layers_are_upstreams_and_are_not_moved(count):
    retriever = model()
    optimiser, _ = make_optimiser(retriever, Training(freeze_layers=count), steps=5)
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    for name, parameter in retriever.backbone.clip.named_parameters():
        frozen = count is not None and upstream_freezes(name, count)
        assert parameter.requires_grad is not frozen and (id(parameter) in held) is not frozen, name
    assert all(p.requires_grad and id(p) in held for p in retriever.head.parameters())


def test_freezing_more_blocks_than_there_are_is_refused():
    with refusal("training.freeze_layers"):
        make_optimiser(model(), Training(freeze_layers=4), steps=5)


def test_freezing_layers_of_a_backbone_without_blocks_is_refused():
    retriever = model()
    retriever.backbone = Backbone()
    with refusal("training.freeze_layers"):
        make_optimiser(retriever, Training(freeze_layers=1), steps=5)


def trained(path, stop_after: int | None = None) -> tuple[Clip4Clip, list[dict]]:
    """Eight clips learnt by the loop in 24 steps of BertAdam, above frozen embeddings and one frozen block."""
    retriever = model("seqTransf")
    generator = torch.Generator().manual_seed(1)
    frames = torch.randn(8, 3, 64, generator=generator).numpy()
    text = torch.randint(1, 39, (8, 6), generator=generator)
    text[:, -1] = 39  # the end token is the largest
    order = np.arange(8)
    data = TrainingData(CachedFrames(frames, np.ones((8, 3), np.uint8)), text, order, order, [f"c{n}" for n in order])
    keys = Training(
        optimiser="bert_adam", freeze_layers=1, epochs=12, lr=1e-3, backbone_lr_multiplier=1.0, batch={"size": 4}
    )
    state = BreakingFile(path, "x", stop_after)

    def validate(_):
        return {"valid_sum": float(state.saves)}  # the last is best

    return retriever, train_model(retriever, data, keys, 0, torch.device("cpu"), validate, state, "test")


def test_the_loop_trains_with_it_and_resumes_to_the_same_bits(tmp_path):
    whole, history = trained(tmp_path / "whole.pt")
    assert history[-1]["loss"] < 0.5 * history[0]["loss"]
    for name, value in model("seqTransf").backbone.clip.named_parameters():
        if not name.startswith("visual."):  # the loop was given frame features
            still = torch.equal(value, whole.backbone.clip.get_parameter(name))
            assert still is upstream_freezes(name, 1), name
    with pytest.raises(Interrupt):
        trained(tmp_path / "broken.pt", stop_after=5)
    resumed, _ = trained(tmp_path / "broken.pt")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
