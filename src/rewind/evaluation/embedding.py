"""One vector per caption and per item, to plot a run's embedding space."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from rewind.config.evaluation import Evaluation
from rewind.io.files import ArrayParts, write_npz, write_stored_npz
from rewind.loading.encode import encode_all_items, encode_all_texts
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.loading.text import PreparedText
from rewind.models.retriever import Features, Retriever, masked_mean

VECTORS_AT_ONCE = 2**13
MAX_VECTORS_IN_MEMORY = 2**16
"""Number of vectors of a run up to which its file is built in memory and compressed."""


class RetrievalEmbeddings(NamedTuple):
    """Float32 vectors of captions (n, d) and items (m, d).

    ``space`` is ``joint`` if a caption is compared with an item by these vectors, ``towers`` if a head scores pairs
    (the vectors are then the captions' and the means over each clip's frames before the head), and ``none`` if the
    retriever has no such vectors; d is then 0.
    """

    text: np.ndarray
    items: np.ndarray
    space: str


@torch.inference_mode()
def compute_embeddings(
    retriever: Retriever,
    text: PreparedText,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    workers: int = 0,
) -> RetrievalEmbeddings:
    """Encode every caption and item once; puts the retriever into evaluation mode."""
    text_parts, item_parts, space = _vector_parts(retriever, text, inputs, keys, device, workers)
    return RetrievalEmbeddings(np.concatenate(list(text_parts)), np.concatenate(list(item_parts)), space)


def _vector_parts(
    retriever: Retriever, text: PreparedText, inputs: FrameSource, keys: Evaluation, device: torch.device, workers: int
) -> tuple[Iterator[np.ndarray], Iterator[np.ndarray], str]:
    """Float32 vectors of captions and of items, some rows at a time, and their space."""
    retriever.eval().to(device)
    size = keys.batch_size
    captions = encode_all_texts(lambda batch: pool_features(retriever.encode_text(batch)), text, size, device)
    items = encode_all_items(
        lambda batch: pool_features(retriever.encode_items(batch)), inputs, size, device, workers=workers
    )
    space = _embedding_space(retriever, captions, items)

    def parts(side: int) -> Iterator[np.ndarray]:
        count = (len(text), len(inputs))[side]
        if space == "none":
            yield np.zeros((count, 0), np.float32)
            return
        for top in range(0, count, VECTORS_AT_ONCE):
            rows = slice(top, top + VECTORS_AT_ONCE)
            sides = [
                {name: value[rows if number == side else slice(0, 1)] for name, value in features.items()}
                for number, features in enumerate((captions, items))
            ]
            if space == "joint" and retriever.compares_vectors:  # features may not have unit length
                yield retriever.vectors(*sides)[side].numpy()
            else:
                yield cast(Tensor, _single_vector(sides[side])).numpy()  # or the space would be `none`

    return parts(0), parts(1), space


def pool_features(features: Features) -> Features:
    """Features on the CPU in float32, with ``frames`` (n, T, D) averaged over ``mask``."""
    if "frames" in features and "mask" in features:
        return {"mean": masked_mean(features["frames"], features["mask"]).cpu()}
    return {name: (value.float() if value.is_floating_point() else value).cpu() for name, value in features.items()}


def _embedding_space(retriever: Retriever, captions: Features, items: Features) -> str:
    if retriever.compares_vectors and _are_row_numbers(captions) and _are_row_numbers(items):
        return "joint"
    text, views = _single_vector(captions), _single_vector(items)
    if text is None or views is None or text.shape[1] != views.shape[1] or text.shape[1] == 0:
        return "none"
    return "towers" if "mean" in items else "joint"


def _are_row_numbers(features: Features) -> bool:
    """Whether a retriever looks vectors up when it compares them: one whole number per row."""
    return all(value.dim() == 2 and not value.is_floating_point() for value in features.values())


def _single_vector(features: Features) -> Tensor | None:
    """The vectors, if the features are one vector per row and nothing else."""
    values = list(features.values())
    # Whole numbers are not vectors: retrievers that look something up give row numbers.
    are_vectors = len(values) == 1 and values[0].dim() == 2 and values[0].is_floating_point()
    return values[0] if are_vectors else None


def write_run_vectors(data: RunData, model: str, result: str) -> None:
    """Write vectors of the test split as npz: ``text``, ``items``, ``space``, ``query_ids`` and ``item_ids``."""
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    ids = {
        "query_ids": split.captions["caption_id"].to_numpy(dtype=str),
        "item_ids": split.items["item_id"].to_numpy(dtype=str),
    }
    keys, device = data.spec.evaluation, job_device()
    if len(split.captions) + len(split.items) <= MAX_VECTORS_IN_MEMORY:
        vectors = compute_embeddings(retriever, split.text, split.inputs, keys, device, split.workers)
        write_npz(result, text=vectors.text, items=vectors.items, space=vectors.space, **ids)
        return
    with torch.inference_mode():
        text, items, space = _vector_parts(retriever, split.text, split.inputs, keys, device, split.workers)
        sides = {"text": ArrayParts(len(split.captions), text), "items": ArrayParts(len(split.items), items)}
        write_stored_npz(result, **sides, space=np.array(space), **ids)
