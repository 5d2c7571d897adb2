"""``model: artefacts_only``: how much a clip's traces say that it runs forward, whatever it shows.

The traces (:mod:`rewind.video.traces`) come from a camera's fields and an encoder's key frames and copied noise. It
sees no picture and no caption, so what it knows of the direction is no content, and a method that is no better than it
may have learnt from these too.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.models.blind import BlindBaseline, DirectedSplit, Validate, check_blind, directed_clips
from rewind.models.direction import direction_scores, fit_direction
from rewind.models.retriever import Features
from rewind.registry import MODELS
from rewind.video.traces import trace_names


class ArtefactsOnly(BlindBaseline):
    """A linear probe for the direction (:func:`rewind.models.direction.fit_direction`) on a clip's traces.

    >>> model = ArtefactsOnly()
    >>> model.encode_items({"frames": torch.ones(2, 1, len(model.weight))})["items"].tolist()
    [[0.0], [0.0]]
    """

    weight: Tensor
    reads_ids = True  # captions are not read, only counted

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(len(trace_names()), dtype=torch.float64))

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        """Fit on training clips; the strength is chosen on validation."""
        weight, _ = fit_direction(*_traces(train, "training"), *_traces(valid, "validation"), where=type(self).__name__)
        self.weight.copy_(torch.from_numpy(weight))

    def encode_text(self, batch: Features) -> Features:
        """Ones, ``text`` (n, 1): all captions are the same to it."""
        return {"text": torch.ones(len(batch["text"]), 1, dtype=torch.float64, device=batch["text"].device)}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, 1, F), the traces → ``items`` (n, 1): the higher, the more it looks as if it ran forward."""
        traces = batch["frames"][:, 0].double().cpu().numpy()
        scores = direction_scores(traces, self.weight.cpu().numpy(), 0.0)
        return {"items": torch.from_numpy(scores).to(batch["frames"].device)[:, None]}


def _traces(split: DirectedSplit, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Traces (n, F) of the clips of which both directions are described, and which of them run backward."""
    clips = directed_clips(split.items, split.captions, name)
    batch = split.inputs.batch(np.flatnonzero(split.items["item_id"].isin(clips["item_id"])))
    return batch["frames"][:, 0].double().numpy(), clips["reversed"].to_numpy()


@MODELS.register("artefacts_only", tags=("blind", "no backbone", "no towers", "traces"), check=check_blind)
def build_artefacts_only(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> ArtefactsOnly:
    return ArtefactsOnly()
