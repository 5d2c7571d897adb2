"""One vector per caption and per item, for a picture of where a run puts them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rewind.feeding.encode import encode_all, encode_texts
from rewind.feeding.ids import Text
from rewind.feeding.inputs import Inputs
from rewind.models.retriever import Features, Retriever, masked_mean
from rewind.study.model import Evaluation


class Vectors(NamedTuple):
    """Float32 vectors of captions (n, d) and items (m, d).

    ``space`` is ``joint`` where a caption is compared with an item by these vectors, ``towers`` where a head scores
    pairs (the captions' vectors and the mean over each clip's frames before the head), and ``none`` where the
    retriever has no such vectors; d is then 0.
    """

    text: np.ndarray
    items: np.ndarray
    space: str


@torch.inference_mode()
def vectors(
    retriever: Retriever, text: Text, inputs: Inputs, keys: Evaluation, device: torch.device, workers: int = 0
) -> Vectors:
    """Encode every caption and item once.

    Args:
        retriever: the model, put into evaluation mode.
        text: prepared captions, one row each.
        inputs: the items.
        keys: ``batch_size``.
        device: where it is computed.
        workers: decoding processes.
    """
    retriever.eval().to(device)
    size = keys.batch_size
    captions = encode_texts(lambda batch: pooled(retriever.encode_text(batch)), text, size, device)
    items = encode_all(lambda batch: pooled(retriever.encode_items(batch)), inputs, size, device, workers=workers)
    space = _space(captions, items)
    if space == "joint" and retriever.compares_vectors:  # what is compared, where features are not of unit length
        captions, items = (
            {name: value} for name, value in zip(("text", "items"), retriever.vectors(captions, items), strict=True)
        )
    if space == "none":
        return Vectors(np.zeros((len(text), 0), np.float32), np.zeros((len(inputs), 0), np.float32), space)
    one, two = (_only(features).numpy() for features in (captions, items))
    return Vectors(one, two, space)


def pooled(features: Features) -> Features:
    """Features on the CPU in float32, with ``frames`` (n, T, D) averaged over ``mask``."""
    if "frames" in features and "mask" in features:
        return {"mean": masked_mean(features["frames"], features["mask"]).cpu()}
    return {name: (value.float() if value.is_floating_point() else value).cpu() for name, value in features.items()}


def _space(captions: Features, items: Features) -> str:
    one, two = _only(captions), _only(items)
    if one is None or two is None or one.shape[1] != two.shape[1] or one.shape[1] == 0:
        return "none"
    return "towers" if "mean" in items else "joint"


def _only(features: Features) -> Tensor | None:
    """The vectors, if the features are one vector a row and nothing else."""
    values = list(features.values())
    vectors = len(values) == 1 and values[0].dim() == 2 and values[0].is_floating_point()  # else they are row numbers
    return values[0] if vectors else None
