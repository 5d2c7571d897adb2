"""The similarity matrix of a run: features once, then all pairs in blocks, on all processes that there are."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rewind.distributed import ALONE, World
from rewind.errors import RewindError
from rewind.feeding.encode import encode_all, encode_texts
from rewind.feeding.ids import Text
from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Features, Retriever
from rewind.study.model import Evaluation


@torch.inference_mode()
def similarity_matrix(
    retriever: Retriever,
    text: Text,
    inputs: Inputs,
    keys: Evaluation,
    device: torch.device,
    world: World = ALONE,
    workers: int = 0,
) -> np.ndarray:
    """Scores of every caption against every item.

    Args:
        retriever: the model, put into evaluation mode.
        text: prepared captions, one row each.
        inputs: the items.
        keys: batch sizes. Features are computed once a caption and once an item; pairs are scored in blocks of at
            most ``pair_batch_size``, which bounds the memory of heads that look at pairs.
        device: where it is computed.
        world: processes that share the work, batch by batch and block by block; the blocks are those of one process.
        workers: decoding processes.

    Returns:
        float32 (n_captions, n_items), on every process.

    Raises:
        RewindError: naming the key to lower, if GPU memory runs out.
    """
    retriever.eval().to(device)
    with _advised(f"{keys.batch_size} rows encoded at once", "evaluation.batch_size"):
        captions = encode_texts(retriever.encode_text, text, keys.batch_size, device, world)
        items = encode_all(retriever.encode_items, inputs, keys.batch_size, device, world, workers)
    with _advised(f"{keys.pair_batch_size:,} pairs scored at once", "evaluation.pair_batch_size"):
        return _all_pairs(retriever, captions, items, len(text), len(inputs), keys.pair_batch_size, world)


@contextlib.contextmanager
def _advised(what: str, key: str) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RewindError(f"out of GPU memory with {what}: lower {key} (scores stay the same).") from error


def _all_pairs(
    retriever: Retriever, captions: Features, items: Features, n: int, m: int, most: int, world: World
) -> np.ndarray:
    # The same features are scored once: two items of the same content tie exactly, wherever kernels would put them.
    first, place = _distinct(items, m)
    if len(first) < m:
        items = {name: value[first.to(value.device)] for name, value in items.items()}
    columns = min(len(first), most)
    rows = max(1, most // columns)
    scores = torch.zeros(n, m)
    for block, top in enumerate(range(0, n, rows)):
        if block % world.size != world.rank:
            continue
        text = {name: value[top : top + rows] for name, value in captions.items()}
        found = []
        for left in range(0, len(first), columns):
            part = {name: value[left : left + columns] for name, value in items.items()}
            found.append(retriever.similarity(text, part).float().cpu())
        scores[top : top + rows] = torch.cat(found, dim=1)[:, place]
    return world.sum(scores.to(world.device)).cpu().numpy() if world.size > 1 else scores.numpy()


def _distinct(features: Features, count: int) -> tuple[Tensor, Tensor]:
    """Rows that are the first of their content, and for each row its place among them."""
    rows = [value.cpu().contiguous().view(count, -1).view(torch.uint8).numpy() for value in features.values()]
    seen: dict[bytes, int] = {}
    firsts, places = [], []
    for row in range(count):
        content = hashlib.blake2b(b"".join(part[row].tobytes() for part in rows), digest_size=16).digest()
        if content not in seen:
            seen[content] = len(firsts)
            firsts.append(row)
        places.append(seen[content])
    return torch.tensor(firsts), torch.tensor(places)
