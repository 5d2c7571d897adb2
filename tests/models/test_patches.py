"""Patches over time (CLIP4Clip's linear_patch 3d): its own numbers, what a frame sees, padding, files, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from messages import refusal
from rewind.config import Backbone, Method, Text, Training
from rewind.losses.infonce import infonce
from rewind.models import clip4clip, towers
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip_checkpoint import CLIP4CLIP_HEADS, read_clip4clip, write_clip4clip
from rewind.models.patches import TEMPORAL_KERNEL, add_temporal_patches
from rewind.optional_packages import open_clip
from rewind.registry import HEADS
from rewind.training.grad_cache import exact_step
from rewind.training.optim import make_optimiser

CONFIG = {
    "embed_dim": 64,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 16, "layers": 2, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 40, "width": 64, "heads": 1, "layers": 2},
}
WORDS = ["one red ring turns", "two dots fall down"]
OWN = "backbone.clip." + TEMPORAL_KERNEL
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]])
# Logits of ArrowLuo/CLIP4Clip @508ffa3 with linear_patch 3d, of waves() and PIXELS, its padded frames zero behind the
# normalisation.
UPSTREAM = {
    "meanP": [[-0.66702, -0.79279, -1.62207], [-1.59494, -1.55752, -0.09655], [1.4195, 1.34436, -0.38197]],
    "seqTransf": [[-0.70013, -0.78341, -1.48553], [-1.43636, -1.399, -0.07555], [1.24895, 1.18644, -0.36287]],
}
PIXELS = (torch.arange(3 * 4 * 3 * 16 * 16) * 37 % 251).to(torch.uint8).view(3, 4, 3, 16, 16)
TOKENS = torch.tensor([[3, 7, 11, 39, 0, 0], [9, 2, 39, 0, 0, 0], [21, 22, 23, 24, 25, 39]])


class Tokens:
    vocabulary = 40


def model(head: str = "meanP") -> clip4clip.Clip4Clip:
    torch.manual_seed(0)
    clip = open_clip("model").CLIP(**CONFIG)
    add_temporal_patches(clip, "tiny")
    return clip4clip.Clip4Clip(ClipTowers(clip, Tokens(), 8), HEADS.find(head)(64, layers=2, positions=8))


def waves(retriever: torch.nn.Module) -> None:
    """Weights that every machine makes alike."""
    for number, (name, value) in enumerate(sorted(retriever.state_dict().items())):
        size = max(1, value[0].numel() if value.ndim > 1 else value.numel())
        wave = torch.sin(torch.arange(value.numel(), dtype=torch.float64) * 1.3 + number * 0.7) * (0.5 / size**0.5)
        norm = name.endswith(tuple(f"{n}.weight" for n in ("ln_pre", "ln_post", "ln_1", "ln_2", "ln_final")))
        value.copy_((wave + norm).view(value.shape))


def stirred(retriever: clip4clip.Clip4Clip) -> clip4clip.Clip4Clip:
    """With a kernel that reads all three frames."""
    with torch.no_grad():
        retriever.backbone.clip.visual.conv2.weight.normal_(std=0.05)
    return retriever


def build(folder, patch: str, weights=None, **changes) -> clip4clip.Clip4Clip:
    path = folder / "tiny.json"
    text = CONFIG["text_cfg"] | {"vocab_size": 11}
    path.write_text(json.dumps(CONFIG | {"text_cfg": text} | changes))
    keys = Backbone(architecture=str(path), patch=patch, weights=weights and str(weights))
    torch.manual_seed(3)
    return clip4clip.build(Method(head="seqTransf", head_layers=2), keys, Text(tokenizer="words", max_words=8), WORDS)


@pytest.mark.parametrize("head", UPSTREAM)
def test_logits_equal_upstreams(head):
    retriever = model(head).eval()
    waves(retriever)
    text = retriever.encode_text({"text": TOKENS})
    logits = retriever.similarity(text, retriever.encode_items({"pixels": PIXELS, "mask": MASK}))
    np.testing.assert_allclose(logits.detach(), UPSTREAM[head], atol=2e-5)


def test_it_begins_as_the_same_function_and_draws_nothing_at_random(tmp_path):
    flat, deep = build(tmp_path, "2d"), build(tmp_path, "3d")
    ours, theirs = deep.state_dict(), flat.state_dict()
    assert ours.keys() - theirs.keys() == {OWN}
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())  # the head's random weights too
    torch.testing.assert_close(
        deep.backbone.clip_features(PIXELS, MASK), flat.backbone.clip_features(PIXELS, MASK), atol=1e-5, rtol=1e-5
    )


def test_a_frame_sees_its_neighbours_and_no_more():
    backbone = stirred(model()).backbone
    whole, changed = torch.ones(3, 4), PIXELS.clone()
    changed[:, 0] = 255 - changed[:, 0]
    before, after = (backbone.clip_features(pixels, whole) for pixels in (PIXELS, changed))
    moved = (before != after).any(dim=-1)
    assert moved.tolist() == [[True, True, False, False]] * 3
    turned = backbone.clip_features(PIXELS.flip(1), whole).flip(1)
    assert not torch.allclose(before, turned, rtol=0, atol=1e-3)  # the order of frames matters before any head


def test_padding_is_never_seen_and_not_encoded():
    backbone = stirred(model()).backbone
    found = backbone.clip_features(PIXELS, MASK)
    other = torch.where(MASK.bool()[..., None, None, None], PIXELS, 255 - PIXELS)
    assert torch.equal(found, backbone.clip_features(other, MASK))
    short = backbone.clip_features(PIXELS[1:2, :3], torch.ones(1, 3))
    torch.testing.assert_close(found[1, :3], short[0], atol=1e-5, rtol=1e-5)
    assert not found[~MASK.bool()].any()
    rows = []
    backbone.clip.visual.transformer.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    backbone.clip_features(PIXELS, MASK)
    assert rows == [int(MASK.sum())]


def test_frames_alone_are_clips_of_one():
    backbone = stirred(model()).backbone
    alone = backbone.clip_features(PIXELS[:, :1], torch.ones(3, 1))[:, 0]
    assert torch.equal(backbone.frame_features(PIXELS[:, 0]), alone)


def test_cached_features_are_those_of_the_pixels():
    retriever = stirred(model("seqTransf")).eval()
    cached = {"frames": retriever.backbone.clip_features(PIXELS, MASK), "mask": MASK}
    direct = retriever.encode_items({"pixels": PIXELS, "mask": MASK})
    assert torch.equal(retriever.encode_items(cached)["video"], direct["video"])


def test_the_exact_step_trains_the_kernel_and_leaves_the_flat_one():
    retriever = model("seqTransf").double()
    batch = {"text": TOKENS, "pixels": PIXELS, "mask": MASK, "items": torch.arange(3)}
    exact_step(retriever, infonce, batch)
    wanted = {name: p.grad.clone() for name, p in retriever.named_parameters() if p.grad is not None}
    kernel = wanted[OWN]
    assert all(kernel[:, :, place].abs().max() > 1e-9 for place in range(3))
    exact_step(retriever, infonce, batch, 1)
    for name, gradient in wanted.items():
        torch.testing.assert_close(retriever.get_parameter(name).grad, gradient, rtol=1e-9, atol=1e-12)
    flat = retriever.backbone.clip.visual.conv1.weight
    assert not flat.requires_grad and flat.grad is None
    optimiser, _ = make_optimiser(retriever, Training(freeze_layers=0), steps=5)
    held = {id(p) for group in optimiser.param_groups for p in group["params"]}
    assert id(retriever.get_parameter(OWN)) in held and id(flat) not in held


@pytest.mark.parametrize("head", CLIP4CLIP_HEADS)
def test_clip4clips_files_come_back_as_they_were(tmp_path, head):
    first = stirred(model(head))
    write_clip4clip(first, tmp_path / "a.bin")
    theirs = torch.load(tmp_path / "a.bin", weights_only=True)
    assert theirs["clip.visual.conv2.weight"].shape == (64, 3, 3, 8, 8) and "clip.visual.conv1.weight" in theirs
    found, state = read_clip4clip(tmp_path / "a.bin")
    own = first.state_dict()
    assert found == head and state.keys() == own.keys() and all(torch.equal(state[n], own[n]) for n in own)
    second = model(head)
    second.load_state_dict(state)
    write_clip4clip(second, tmp_path / "b.bin")
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes()


def test_weights_of_both_kinds_are_loaded(tmp_path):
    flat = build(tmp_path, "2d")
    torch.nn.init.normal_(flat.backbone.clip.visual.conv1.weight)
    save_file(flat.state_dict(), tmp_path / "flat.safetensors")
    deep = build(tmp_path, "3d", tmp_path / "flat.safetensors")
    kernel, weight = deep.get_parameter(OWN), flat.backbone.clip.visual.conv1.weight
    assert torch.equal(kernel[:, :, 1], weight) and not kernel[:, :, [0, 2]].any()
    write_clip4clip(stirred(deep), tmp_path / "deep.bin")
    again = build(tmp_path, "3d", tmp_path / "deep.bin")
    assert all(torch.equal(again.state_dict()[name], value) for name, value in deep.state_dict().items())


def test_what_does_not_go_together_is_refused(tmp_path):
    write_clip4clip(build(tmp_path, "3d"), tmp_path / "deep.bin")
    with refusal("backbone.weights"):
        build(tmp_path, "2d", tmp_path / "deep.bin")
    resnet = CONFIG["vision_cfg"] | {"layers": [1, 1, 1, 1], "image_size": 32}
    with refusal("backbone.patch"):
        build(tmp_path, "3d", vision_cfg=resnet)
    with refusal("backbone.patch"):
        towers.build(Backbone(kind="towers", patch="3d"))
