"""The similarity matrix of a run: features are encoded once, then all pairs are scored in blocks, on all processes.

The result is float32 (n_captions, n_items).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rewind.config.evaluation import Evaluation
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.matrix import write_scores
from rewind.hashing import content_key
from rewind.loading.encode import encode_all_items, encode_all_texts
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import PreparedText, RunData, job_device, load_trained_model
from rewind.models.retriever import Features, Retriever


@torch.inference_mode()
def similarity_matrix(
    retriever: Retriever,
    text: PreparedText,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
) -> np.ndarray:
    """Scores of every caption against every item.

    Args:
        retriever: the model, put into evaluation mode.
        text: prepared captions, one row each.
        inputs: the items.
        keys: batch sizes. Features are computed once per caption and once per item; pairs are scored in blocks of at
            most ``pair_batch_size``, which bounds the memory of heads that look at pairs.
        device: where it is computed.
        world: processes that share the work, batch by batch and block by block; blocks are the same as on one process.
        workers: decoding processes.

    Returns:
        float32 (n_captions, n_items), on every process.

    Raises:
        RewindError: naming the key to lower, if GPU memory runs out.
    """
    captions = encode_captions(retriever, text, keys, device, world)
    return score_items(retriever, captions, len(text), inputs, keys, device, world, workers)


@torch.inference_mode()
def encode_captions(
    retriever: Retriever, text: PreparedText, keys: Evaluation, device: torch.device, world: World = SINGLE_PROCESS
) -> Features:
    """The captions' part of :func:`similarity_matrix`, for callers that score several sets of items."""
    retriever.eval().to(device)
    with _explain_out_of_memory(f"{keys.batch_size} rows encoded at once", "evaluation.batch_size"):
        return encode_all_texts(retriever.encode_text, text, keys.batch_size, device, world)


@torch.inference_mode()
def score_items(
    retriever: Retriever,
    captions: Features,
    count: int,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
) -> np.ndarray:
    """The rest of :func:`similarity_matrix`: items are encoded, and ``count`` encoded captions scored against them."""
    with _explain_out_of_memory(f"{keys.batch_size} rows encoded at once", "evaluation.batch_size"):
        items = encode_all_items(retriever.encode_items, inputs, keys.batch_size, device, world, workers)
    with _explain_out_of_memory(f"{keys.pair_batch_size:,} pairs scored at once", "evaluation.pair_batch_size"):
        return _score_all_pairs(retriever, captions, items, count, len(inputs), keys.pair_batch_size, world)


@contextlib.contextmanager
def _explain_out_of_memory(what: str, key: str) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RewindError(f"out of GPU memory with {what}: lower {key} (scores stay the same).") from error


def _score_all_pairs(
    retriever: Retriever, captions: Features, items: Features, n: int, m: int, most: int, world: World
) -> np.ndarray:
    # Equal features are scored once: two items with the same features tie exactly, whereas a matrix product may round
    # differently in different columns.
    distinct, group = _distinct_rows(items, m)
    if len(distinct) < m:
        items = {name: value[distinct.to(value.device)] for name, value in items.items()}
    columns = min(len(distinct), most)
    rows = max(1, most // columns)
    scores = torch.zeros(n, m)
    for block, top in enumerate(range(0, n, rows)):
        if block % world.size != world.rank:
            continue
        text = {name: value[top : top + rows] for name, value in captions.items()}
        parts = []
        for left in range(0, len(distinct), columns):
            part = {name: value[left : left + columns] for name, value in items.items()}
            parts.append(retriever.similarity(text, part).float().cpu())
        scores[top : top + rows] = torch.cat(parts, dim=1)[:, group]
    # Every process has zeros in the blocks of the others, so the sum is exact.
    return world.sum(scores.to(world.device)).cpu().numpy() if world.size > 1 else scores.numpy()


def _distinct_rows(features: Features, count: int) -> tuple[Tensor, Tensor]:
    """Rows that are the first with their content, and for each row the index of its content among them."""
    parts = [value.cpu().contiguous().view(count, -1).view(torch.uint8).numpy() for value in features.values()]
    index_of_content: dict[bytes, int] = {}
    first_rows: list[int] = []
    indices: list[int] = []
    for row in range(count):
        key = content_key(*(part[row].tobytes() for part in parts))
        if key not in index_of_content:
            index_of_content[key] = len(first_rows)
            first_rows.append(row)
        indices.append(index_of_content[key])
    return torch.tensor(first_rows), torch.tensor(indices)


# ---- Similarity matrix of a trained model --------------------------------------------------------------------------


def compute_similarity(data: RunData, model: str, result: str) -> None:
    """Score every test caption against every test item: one matrix serves Origin, Hard and Binary.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with join_process_group() as world:
        _compute_similarity(data, model, result, world)


def _compute_similarity(data: RunData, model: str, result: str, world: World) -> None:
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    keys = data.spec.evaluation
    scores = similarity_matrix(retriever, split.text, split.inputs, keys, job_device(), world, split.workers)
    if world.rank == 0:
        ids = split.captions["caption_id"].to_numpy(dtype=str), split.items["item_id"].to_numpy(dtype=str)
        write_scores(result, scores, *ids)
