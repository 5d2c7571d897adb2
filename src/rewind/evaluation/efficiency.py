"""What a query costs: encoding it, and comparing it with a gallery that is encoded already."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rewind.feeding.encode import encode_all
from rewind.feeding.ids import Text, text_batch
from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Features, Retriever

SHOWN = 10  # results a query asks for
WARM_UP, ROUNDS, LEAST_SECONDS = 5, 20, 0.5
ITEMS_AT_ONCE = 64


@dataclass(frozen=True)
class Cost:
    """Milliseconds a query, medians over rounds.

    Attributes:
        device: where it was measured.
        batch: queries at once.
        gallery: items that each is compared with.
        forward: from prepared text to features.
        search: from features to the ten best items.
        rounds: measured after the warm-up.
    """

    device: str
    batch: int
    gallery: int
    forward: float
    search: float
    rounds: int


def sizes(retriever: Retriever) -> tuple[int, float]:
    """Parameters, and megabytes (2²⁰ bytes) of parameters and buffers as they are held."""
    parameters = sum(p.numel() for p in retriever.parameters())
    held = [*retriever.parameters(), *retriever.buffers()]
    return parameters, sum(t.numel() * t.element_size() for t in held) / 2**20


@torch.inference_mode()
def query_costs(
    retriever: Retriever,
    text: Text,
    inputs: Inputs,
    batches: list[int],
    device: torch.device,
    name: str,
    workers: int = 0,
) -> list[Cost]:
    """Measure batches of queries against the whole gallery; encoding and searching apart, warmed up.

    Args:
        retriever: the model.
        text: prepared captions (n, ...); repeated where a batch is larger.
        inputs: the gallery.
        batches: numbers of queries at once.
        device: where.
        name: of the device, for the table.
        workers: decoding processes; none runs any more while something is timed.
    """
    retriever.eval().to(device)
    gallery = encode_all(retriever.encode_items, inputs, ITEMS_AT_ONCE, device, workers=workers)
    costs = []
    for batch in batches:
        given = text_batch(text, torch.arange(batch) % len(text))
        queries = {name: value.to(device) for name, value in given.items()}
        features = retriever.encode_text(queries)
        forward, rounds = _median(lambda queries=queries: retriever.encode_text(queries), device)
        search, _ = _median(lambda features=features: _search(retriever, features, gallery), device)
        costs.append(Cost(name, batch, len(inputs), 1e3 * forward / batch, 1e3 * search / batch, rounds))
    return costs


def _search(retriever: Retriever, text: Features, gallery: Features) -> Tensor:
    scores = retriever.similarity(text, gallery)
    return scores.topk(min(SHOWN, scores.shape[1]), dim=1).indices


def _median(work: Callable[[], object], device: torch.device) -> tuple[float, int]:
    """Median seconds of a call, and how many were measured: at least ``ROUNDS``, for ``LEAST_SECONDS`` at least."""
    for _ in range(WARM_UP):
        work()
    _wait(device)
    found: list[float] = []
    began = time.perf_counter()
    while len(found) < ROUNDS or time.perf_counter() - began < LEAST_SECONDS:
        start = time.perf_counter()
        work()
        _wait(device)
        found.append(time.perf_counter() - start)
    return statistics.median(found), len(found)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
