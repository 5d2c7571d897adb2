"""Captions end at their end token, not at their last non-zero id: CLIP's id 0 is a token (``stop!(now)``)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from checkout import ROOT
from rewind.config import Backbone, Method, Text
from rewind.losses.infonce import infonce
from rewind.models.clip4clip import Clip4Clip, build
from rewind.training.grad_cache import exact_step

WORDS = 12
CAPTIONS = ["a cat", "go", "stop!(now)", "a dog", "stop!(later)", "yes!no!(maybe)"]
CLIP = {
    "embed_dim": 32,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 32, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
VICLIP = json.loads((ROOT / "config/models/viclip_tiny.json").read_text())
VICLIP["text"]["vocabulary"] = 49408


@pytest.fixture(params=["clip", "viclip"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Clip4Clip:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(CLIP if request.param == "clip" else VICLIP))
    torch.manual_seed(0)
    keys = Backbone(kind=request.param, architecture=str(path))
    return build(Method(head="meanP"), keys, Text(tokenizer="clip", max_words=WORDS), []).double().eval()


def at_full_length(model: Clip4Clip, tokens: torch.Tensor) -> torch.Tensor:
    """Features without any cut: open_clip's own, or those of ViCLIP's tower on all places."""
    towers = model.backbone
    if hasattr(towers, "text_encoder"):
        return towers.text_encoder(tokens)
    padded = torch.zeros(len(tokens), 16, dtype=torch.int64)  # open_clip adds all positions
    padded[:, : tokens.shape[1]] = tokens
    return towers.clip.encode_text(padded)


@torch.no_grad()
@pytest.mark.parametrize("rows", [[2], [0, 2], [1, 4, 2], [5], [0, 1, 2, 3, 4, 5]])
def test_a_zero_inside_the_longest_caption_cuts_nothing(model: Clip4Clip, rows: list[int]) -> None:
    tokens = model.backbone.prepare_text([CAPTIONS[row] for row in rows])
    assert any(0 in row[: row.argmax()] for row in tokens)
    found = model.backbone.encode_text(tokens)
    torch.testing.assert_close(found, at_full_length(model, tokens), rtol=1e-12, atol=1e-12)


@torch.no_grad()
def test_two_captions_stay_two(model: Clip4Clip) -> None:
    one, two = model.backbone.encode_text(model.backbone.prepare_text(["stop!(now)", "stop!(later)"]))
    assert (one - two).norm() > 0.01 * one.norm()


def test_micro_batches_of_such_captions_are_exact(model: Clip4Clip) -> None:
    n, frames = len(CAPTIONS), torch.Generator().manual_seed(1)
    batch = {
        "text": model.backbone.prepare_text(CAPTIONS),
        "frames": torch.randn(n, 2, model.backbone.width, generator=frames, dtype=torch.float64),
        "mask": torch.ones(n, 2),
        "items": torch.arange(n),
    }
    whole = exact_step(model, infonce, batch).value
    wanted = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    for rows in (1, 2, 3):
        assert exact_step(model, infonce, batch, rows).value == pytest.approx(whole, rel=1e-12)
        for name, parameter in model.named_parameters():
            if name in wanted:
                torch.testing.assert_close(parameter.grad, wanted[name], rtol=1e-9, atol=1e-12)
