"""How far the gradients of a divided batch are from those of the whole batch at once.

    python benchmarks/gradient_error.py

A batch of 16 in float64, tiny CLIP, every temporal head, dropout off. Each number is the largest error of a parameter
tensor, ‖g − g_full‖ / ‖g_full‖ (a tensor whose gradient is zero but for rounding counts against the largest tensor).
`exact` is Rewind's step with that micro-batch, in one, two and four processes (gloo), where each process has its share
of the 16; `accumulation` is plain gradient accumulation over parts of that size, whose negatives are their own part's.
"""

from __future__ import annotations

import argparse
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.multiprocessing as mp

from rewind.config import Backbone, Method, Text
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.losses.infonce import infonce
from rewind.models.clip4clip import build
from rewind.models.heads import HEADS
from rewind.models.retriever import Features, Retriever
from rewind.training.grad_cache import exact_step

ROWS, FRAMES = 16, 4
MICRO_BATCHES = (1, 3, 8, 16)
WORLDS = (1, 2, 4)
ARCHITECTURE = Path(__file__).resolve().parents[1] / "config/models/tiny.json"
Gradients = dict[str, torch.Tensor]


def example(head: str) -> tuple[Retriever, Features]:
    """A model with random weights and a global batch of distinct items, the same in every process."""
    torch.manual_seed(0)
    captions = [f"a {colour} {shape} moves" for colour in "abcd" for shape in "stuv"]
    method = Method(head=head, head_layers=2, head_start="random")
    model = build(method, Backbone(architecture=str(ARCHITECTURE)), Text(tokenizer="words", max_words=12), captions)
    mask = torch.ones(ROWS, FRAMES, dtype=torch.uint8)
    mask[::3, 2:] = 0
    pixels = torch.randint(0, 256, (ROWS, FRAMES, 3, 32, 32), dtype=torch.uint8)
    text = model.backbone.prepare_text(captions)
    return model.double().eval(), {"text": text, "pixels": pixels, "mask": mask, "items": torch.arange(ROWS)}


def exact(head: str, micro_batch: int | None, world: World = SINGLE_PROCESS) -> Gradients:
    model, batch = example(head)
    share = {name: value[world.share(ROWS)] for name, value in batch.items()}
    exact_step(model, infonce, share, micro_batch, world=world)
    return gradients(model)


def accumulated(head: str, size: int) -> Gradients:
    model, batch = example(head)
    for at in range(0, ROWS, size):
        part = {name: value[at : at + size] for name, value in batch.items()}
        loss = infonce(model, model.encode_text(part), model.encode_items(part), part).value
        (loss * len(part["items"]) / ROWS).backward()
    return gradients(model)


def gradients(model: Retriever) -> Gradients:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def error(found: Gradients, full: Gradients) -> float:
    largest = max(value.norm() for value in full.values())
    floor = {name: value.norm() if value.norm() > 1e-9 * largest else largest for name, value in full.items()}
    return max(((found[name] - value).norm() / floor[name]).item() for name, value in full.items())


def measure(world: World) -> dict[tuple[str, int], float]:
    """Error by head and micro-batch, the same on every rank."""
    errors = {}
    for head in HEADS.names():
        full = exact(head, None)
        for size in MICRO_BATCHES:
            errors[head, size] = error(exact(head, size, world), full)
    return errors


def work(rank: int, size: int, port: int, result: Path) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with join_process_group() as world:
        errors = measure(world)
    if rank == 0:
        torch.save(errors, result)


def measure_world(size: int) -> dict[tuple[str, int], float]:
    if size == 1:
        return measure(SINGLE_PROCESS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "errors.pt"
        mp.spawn(work, (size, port, result), nprocs=size)
        return torch.load(result, weights_only=False)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.set_num_threads(1)
    worlds = {size: measure_world(size) for size in WORLDS}
    plain = {
        (head, size): error(accumulated(head, size), exact(head, None))
        for head in HEADS.names()
        for size in MICRO_BATCHES
    }
    print(f"| head | micro-batch | {' | '.join(f'exact, world {size}' for size in WORLDS)} | accumulation |")
    print("|---|---:|" + "---:|" * (len(WORLDS) + 1))
    for head in HEADS.names():
        for size in MICRO_BATCHES:
            cells = [f"{worlds[world][head, size]:.1e}" for world in WORLDS] + [f"{plain[head, size]:.1e}"]
            print(f"| {head} | {size} of {ROWS} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
