"""Zero-shot never scores with what was neither trained nor given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from checkout import ROOT
from messages import refusal
from rewind.config import Backbone, Method, Text
from rewind.models.precomputed import EmbeddingCosine
from rewind.models.zero_shot import build_zero_shot, check_zero_shot

TINY = str(ROOT / "config/models/tiny.json")


def vectors(text: int, items: int) -> Backbone:
    return Backbone(kind="embeddings", text_width=text, item_width=items, width=8)


def test_vectors_of_one_width_are_compared_as_they_are() -> None:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(60, 32)).astype(np.float32)
    texts = 3 * images + rng.normal(scale=0.01, size=images.shape).astype(np.float32)
    torch.manual_seed(0)
    model = build_zero_shot(Method(model="zero_shot"), vectors(32, 32), Text(), [])
    frames = torch.from_numpy(images)[:, None]
    items = model.encode_items({"frames": frames, "mask": torch.ones(60, 1, dtype=torch.uint8)})
    found = model.similarity(model.encode_text({"text": torch.from_numpy(texts)}), items).numpy()
    norms = np.linalg.norm(texts, axis=1)[:, None] * np.linalg.norm(images, axis=1)
    np.testing.assert_allclose(found, texts @ images.T / norms, atol=1e-6)
    assert (found.argmax(axis=1) == np.arange(60)).all(), "two random projections to 8 numbers would find few of them"
    assert isinstance(model, EmbeddingCosine) and not list(model.parameters())
    check_zero_shot(Method(model="zero_shot"), vectors(32, 32))


def test_vectors_of_two_widths_have_no_common_space() -> None:
    with refusal("methods.*.model"):
        build_zero_shot(Method(model="zero_shot"), vectors(32, 16), Text(), [])


@pytest.mark.parametrize(
    "backbone",
    [
        {"architecture": TINY},
        {"kind": "viclip", "architecture": "viclip-b"},
        {"kind": "towers"},
        {"kind": "miniclip_towers", "architecture": "resnet18", "weights": "a.pt"},
    ],
)
def test_random_networks_are_scored_only_where_that_is_asked_for(backbone: dict) -> None:
    keys = Backbone(**backbone)
    place = "methods.*.model: zero_shot" + (": kind" if backbone.get("kind") == "towers" else "")
    with refusal(place):
        check_zero_shot(Method(model="zero_shot"), keys)
    with refusal(place):
        check_zero_shot(Method(model="zero_shot", options={"backbone": backbone}), Backbone(weights="the_study_s.pt"))
    check_zero_shot(Method(model="zero_shot", options={"untrained": True}), keys)
    check_zero_shot(Method(model="zero_shot"), Backbone(architecture=TINY, weights="trained.pt"))
    check_zero_shot(Method(model="zero_shot"), Backbone(pretrained="openai"))
