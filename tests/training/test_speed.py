"""Gradient checkpointing and torch.compile: the same gradients and names; fused AdamW; attention without weights."""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from checkout import ROOT
from messages import expect_message, refusal
from rewind.config import Backbone, Method, Text, Training
from rewind.config.evaluation import Evaluation
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames
from rewind.losses.infonce import infonce
from rewind.models.backbone import Backbone as AnyBackbone
from rewind.models.checkpoint import load_model, save_model
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip import Clip4Clip, build
from rewind.models.heads.clip4clip import MeanP
from rewind.models.retriever import Retriever
from rewind.optional_packages import open_clip
from rewind.training import loop
from rewind.training.grad_cache import exact_step
from rewind.training.loop import speed_up
from rewind.training.optim import make_optimiser

WORDS = [f"a {colour} {shape}" + " now" * times for colour in "abc" for shape in "stu" for times in (0, 2)][:9]
TOOLS = (shutil.which("g++") or shutil.which("clang++")) and Path(sysconfig.get_path("include"), "Python.h").exists()
CHECKPOINTING = Training(gradient_checkpointing=True)


def tiny(head: str = "seqTransf", patch: str = "2d") -> Clip4Clip:
    torch.manual_seed(0)
    keys = Backbone(architecture=str(ROOT / "config/models/tiny.json"), patch=patch)
    method = Method(head=head, head_layers=1, head_start="random")
    return build(method, keys, Text(tokenizer="words", max_words=12), WORDS)


def batch_of(model: Clip4Clip) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    mask = torch.ones(9, 3, dtype=torch.uint8)
    mask[::4, 2:] = 0
    pixels = torch.randint(0, 256, (9, 3, 3, 32, 32), generator=draw, dtype=torch.uint8)
    return {"text": model.backbone.prepare_text(WORDS), "mask": mask, "items": torch.arange(9), "pixels": pixels}


def step(model: Clip4Clip, micro_batch: int | None, precision: str = "fp32") -> dict[str, torch.Tensor]:
    torch.manual_seed(3)  # tightTransf has dropout
    exact_step(model, infonce, batch_of(model), micro_batch, precision=precision)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def error(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    assert found.keys() == wanted.keys()
    largest = max(value.norm() for value in wanted.values())
    return max(((found[n] - v).norm() / max(v.norm(), 1e-6 * largest)).item() for n, v in wanted.items())


def held(model: Clip4Clip) -> int:
    """Bytes of different tensors that the towers keep for the way back."""
    sizes: dict[int, int] = {}

    def keep(value: torch.Tensor) -> torch.Tensor:
        sizes[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    batch = batch_of(model)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        outputs = model.encode_text(batch)["text"], model.backbone.clip_features(batch["pixels"], batch["mask"])
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    assert all(output.requires_grad for output in outputs)
    return sum(size for place, size in sizes.items() if place not in weights)


# --- gradient checkpointing


@pytest.mark.parametrize(("head", "patch"), [("seqTransf", "2d"), ("tightTransf", "2d"), ("meanP", "3d")])
@pytest.mark.parametrize("micro_batch", [None, 4])
def test_recomputed_activations_give_the_same_gradients(head, patch, micro_batch):
    plain, saving = tiny(head, patch).double(), tiny(head, patch).double()
    speed_up(saving, CHECKPOINTING)
    assert error(step(saving, micro_batch), step(plain, micro_batch)) < 1e-12


@pytest.mark.parametrize("frozen", [0, 2])
def test_frozen_blocks_and_reduced_precision_change_nothing_about_that(frozen):
    plain, saving = tiny(), tiny()
    speed_up(saving, CHECKPOINTING)
    for model in (plain, saving):
        make_optimiser(model, Training(freeze_layers=frozen), steps=5)
    for precision, tolerance in (("fp32", 1e-5), ("bf16", 1e-3)):
        assert error(step(saving, 4, precision), step(plain, 4, precision)) < tolerance


def test_activations_inside_the_blocks_are_not_kept():
    plain, saving = tiny(), tiny()
    speed_up(saving, CHECKPOINTING)
    # Saved are one input a block instead of a block's twenty-odd tensors.
    assert held(saving) < held(plain) / 3


def test_a_tower_that_is_no_transformer_says_so(capsys):
    text = {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": 1}
    vision = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 16}
    clip = open_clip("model").CLIP(embed_dim=32, vision_cfg=vision, text_cfg=text)
    resnet = Clip4Clip(ClipTowers(clip, None, 8), MeanP(32))
    speed_up(resnet, CHECKPOINTING)
    expect_message(capsys.readouterr().out)
    assert resnet.backbone.clip.transformer.grad_checkpointing


@pytest.mark.parametrize("key", ["gradient_checkpointing", "compile"])
def test_models_that_cannot_are_told(key, monkeypatch):
    monkeypatch.setattr(loop, "_try_to_compile", lambda device: None)
    model = Retriever()
    speed_up(model, Training())  # nothing is asked for
    with refusal(f"training.{key}"):
        speed_up(model, Training(**{key: True}))
    model.backbone = AnyBackbone()
    with refusal(f"training.{key}"):
        speed_up(model, Training(**{key: True}))


# --- torch.compile


@pytest.fixture
def traced(monkeypatch) -> list[int]:
    """torch.compile as far as tracing goes, so that no compiler is needed; counts graphs."""
    graphs: list[int] = []

    def backend(graph, inputs):
        graphs.append(len(inputs))
        return graph.forward

    original = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **keys: original(self, **keys | {"backend": backend}))
    monkeypatch.setattr(loop, "_try_to_compile", lambda device: None)
    torch._dynamo.reset()
    yield graphs
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_towers_take_the_exact_step_and_keep_their_names(traced, tmp_path, checkpointing):
    plain, compiled = tiny(), tiny()
    speed_up(compiled, Training(compile=True, gradient_checkpointing=checkpointing))
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in compiled.named_parameters()] == [n for n, _ in plain.named_parameters()]
    for micro_batch in (None, 4, 2):  # 2 leaves one row over
        assert error(step(compiled, micro_batch), step(plain, micro_batch)) < 1e-5
    assert 2 <= len(traced) <= 12, "one graph for all blocks of a tower and a mode, not one a block or a length"

    batch = batch_of(plain)
    frames = plain.backbone.clip_features(batch["pixels"], batch["mask"]).detach().numpy()
    inputs = CachedFrames(frames, batch["mask"].numpy())
    scores = [
        similarity_matrix(m, batch["text"], inputs, Evaluation(batch_size=4), torch.device("cpu"))
        for m in (plain, compiled)
    ]
    np.testing.assert_allclose(*scores, atol=1e-5)

    for model, path in ((plain, tmp_path / "a"), (compiled, tmp_path / "b")):
        save_model(path, model, {"method": "x"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    load_model(tmp_path / "b", tiny())


@pytest.mark.slow
@pytest.mark.skipif(not TOOLS, reason="torch.compile needs a C++ compiler and Python's headers")
@pytest.mark.skipif(
    os.environ.get("ATEN_CPU_CAPABILITY") == "default",
    reason="the C++ that torch 2.13 writes for torch.compile does not compile under ATEN_CPU_CAPABILITY=default",
)
def test_the_real_compiler_computes_the_same():
    torch._dynamo.reset()
    plain, compiled = tiny(), tiny()
    speed_up(compiled, Training(compile=True))
    text = plain.backbone.prepare_text(WORDS)
    with torch.no_grad():
        torch.testing.assert_close(compiled.backbone.encode_text(text), plain.backbone.encode_text(text))
    assert all(block._compiled_call_impl is not None for block in compiled.backbone.clip.visual.transformer.resblocks)


def test_a_machine_without_a_compiler_is_told_before_the_first_step(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("InvalidCxxCompiler: none found\nand a page more")

    monkeypatch.setattr(torch, "compile", broken)
    with refusal("training.compile"):
        speed_up(tiny("meanP"), Training(compile=True))


# --- kernels


def test_adamw_is_fused_on_gpus_alone(monkeypatch):
    model = tiny("meanP")
    assert not make_optimiser(model, Training(), steps=5)[0].defaults["fused"]
    monkeypatch.setattr(nn.Parameter, "is_cuda", True, raising=False)
    assert make_optimiser(model, Training(), steps=5)[0].defaults["fused"] is True
    assert "fused" not in make_optimiser(model, Training(optimiser="bert_adam"), steps=5)[0].defaults


@pytest.mark.parametrize("training", [True, False])
def test_attention_is_torchs_own_and_keeps_no_weights(monkeypatch, training):
    calls: list[tuple[int, ...]] = []
    original = F.scaled_dot_product_attention

    def counted(query, *rest, **keys):
        calls.append(tuple(query.shape))
        return original(query, *rest, **keys)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    model = tiny("seqTransf").train(training)
    batch = batch_of(model)
    model.similarity(model.encode_text(batch), model.encode_items(batch))
    clip = model.backbone.clip
    assert len(calls) == len(clip.transformer.resblocks) + len(clip.visual.transformer.resblocks) + 1
