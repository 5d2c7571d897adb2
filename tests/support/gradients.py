"""Tiny retrievers, batches for them, and the gradients that they give."""

from __future__ import annotations

import torch
from torch import nn

from checkout import ROOT
from rewind.config import Backbone, Method, Text
from rewind.models.clip4clip import build
from rewind.models.retriever import Retriever
from rewind.torch_setup import seed_everything

HEADS = ["meanP", "seqLSTM", "seqTransf", "tightTransf"]
COLOURS, SHAPES, MOVES = ("red", "blue"), ("ring", "star"), ("up", "down", "in", "out")
CAPTIONS = [f"a {c} {s} {m}" + " now" * (len(m) % 3) for c in COLOURS for s in SHAPES for m in MOVES]
CPU = torch.device("cpu")


def tiny(head: str, dropout: bool = False) -> Retriever:
    seed_everything(0)
    method = Method(head=head, head_layers=2, head_start="random")
    keys = Backbone(architecture=str(ROOT / "config/models/tiny.json"))
    model = build(method, keys, Text(tokenizer="words", max_words=12), CAPTIONS)
    return model.double().train(dropout)


def batch_of(model: Retriever, pixels: bool = False) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    n = len(CAPTIONS)
    mask = torch.ones(n, 3, dtype=torch.uint8)
    mask[::4, 2:] = 0
    inputs = {"pixels": torch.randint(0, 256, (n, 3, 3, 32, 32), generator=draw, dtype=torch.uint8)}
    if not pixels:
        inputs = {"frames": torch.randn(n, 3, 96, generator=draw, dtype=torch.float64)}
    items = torch.arange(n)
    items[5] = items[11]  # two captions of one item, in different micro-batches
    return {"text": model.backbone.prepare_text(CAPTIONS), "mask": mask, "items": items} | inputs


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def error(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Largest ‖found − wanted‖ / ‖wanted‖ of a tensor; one that is zero but for rounding counts against the largest."""
    assert found.keys() == wanted.keys()
    largest = max(value.norm() for value in wanted.values())
    return max(
        ((found[n] - v).norm() / (v.norm() if v.norm() > 1e-9 * largest else largest)).item() for n, v in wanted.items()
    )


class Noisy(Retriever):
    """Dropout in both towers; keeps every output, so that two passes can be compared."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.dropout = nn.Linear(4, 6), nn.Linear(5, 6), nn.Dropout(0.5)
        self.seen: list[torch.Tensor] = []
        self.double()

    def encode_text(self, batch):
        self.seen.append(self.dropout(self.left(batch["text"])))
        return {"text": self.seen[-1]}

    def encode_items(self, batch):
        self.seen.append(self.dropout(self.right(batch["frames"])))
        return {"items": self.seen[-1]}

    def similarity(self, text, items):
        return text["text"] @ self.dropout(items["items"]).T


def noisy_batch():
    draw = torch.Generator().manual_seed(2)
    text, frames = (torch.randn(10, d, generator=draw, dtype=torch.float64) for d in (4, 5))
    return {"text": text, "frames": frames, "items": torch.arange(10)}
