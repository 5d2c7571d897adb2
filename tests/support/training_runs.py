"""A few epochs on made-up clips, and what stands in for a GPU that is short of memory."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from checkout import ROOT
from rewind.config import Backbone, Method, Text, Training
from rewind.loading.frame_source import CachedFrames
from rewind.loading.run_data import TrainingData
from rewind.models.clip4clip import build
from rewind.models.retriever import Retriever
from rewind.torch_setup import seed_everything

CAPTIONS = [
    f"a {colour} {shape} {verb}" for colour in ("red", "blue") for shape in ("ring", "star") for verb in ("up", "down")
]


TINY = Backbone(architecture=str(ROOT / "config/models/tiny.json"))
WORDS = Text(tokenizer="words", max_words=12)


def retriever(head: str, seed: int = 0, **keys):
    seed_everything(seed)
    return build(Method(head=head, **{"head_start": "random", "head_layers": 2} | keys), TINY, WORDS, CAPTIONS)


def data(model, captions_per_item: int = 2) -> TrainingData:
    items = len(CAPTIONS) // captions_per_item
    frames = np.random.default_rng(0).normal(size=(items, 4, 96)).astype(np.float32)
    mask = np.ones((items, 4), np.uint8)
    mask[0, 2:] = 0
    return TrainingData(
        inputs=CachedFrames(frames, mask),
        text=model.backbone.prepare_text(CAPTIONS),
        item_of_caption=np.arange(len(CAPTIONS)) // captions_per_item,
        cluster_of_item=np.arange(items) // 2,
        caption_ids=[f"c{i}" for i in range(len(CAPTIONS))],
    )


def keys(**over) -> Training:
    base = {"epochs": 3, "lr": 1e-3, "backbone_lr_multiplier": 1.0, "freeze": ["visual"], "batch": {"size": 4}}
    return Training(**base | over)


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def short_of_memory_above(pairs: int, model: Retriever) -> None:
    """Let a head that scores pairs fail above so many at once."""
    cross = model.head._cross

    def limited(texts, items, mask):
        if len(texts[0]) * len(items[0]) > pairs:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        return cross(texts, items, mask)

    model.head._cross = limited


def later_is_better(model: Retriever, count=itertools.count()) -> dict[str, float]:  # noqa: B008 - counts all calls
    """A validation that keeps the last weights."""
    return {"valid_sum": float(next(count))}
