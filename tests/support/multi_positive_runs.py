"""Training with several positives, killed or not."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from rewind.config import Training
from rewind.loading.run_data import EmbeddingFrames, TrainingData
from rewind.models.retriever import Retriever
from rewind.models.translator import make_translator
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.loop import train_model

PLAIN = {"queue": [8], "queue_from": 1, "hard_negatives": 0, "cross_batch": 0, "cosine": 0, "moment": 0, "agreement": 0}


class Given(Retriever):
    """A retriever whose vectors are what it is given."""

    def vectors(self, text, items):
        return F.normalize(text["text"], dim=1), F.normalize(items["items"], dim=1)


def data(captions: int = 3) -> TrainingData:
    torch.manual_seed(1)
    items = torch.randn(12, 6)
    owner = np.repeat(np.arange(12), captions)
    text = items[owner][:, :5] + 0.3 * torch.randn(len(owner), 5)
    return TrainingData(
        EmbeddingFrames(items.half()), text.half(), owner, np.arange(12), [f"c{n}" for n in range(len(owner))]
    )


KEYS = Training(
    epochs=4,
    lr=1e-2,
    micro_batch=None,
    batch={"size": 8, "sampler": "pk", "sampler_options": {"captions": 2}},
    objective="multi_positive",
    objective_options={"queue": [8, 16], "queue_from": 2, "hard_negatives": 4, "cross_batch": 2, "tau_epochs": 4},
    save_every_steps=1,
)


class Killed(Exception):
    pass


def trained(path, head: str, keys: Training = KEYS, kill_at: int | None = None):
    seed_everything(0)
    translator = make_translator(head, 5, 6, {"hidden": 8, "unfreeze_at": 3})
    state = StateFile(path, "f")
    saves = [0]
    plain = state.save

    def save(content):
        plain(content)
        saves[0] += 1
        if saves[0] == kill_at:
            raise Killed

    state.save = save

    def validate(model):
        return {"valid_sum": 0.0, "valid_R@1": 0.0}

    history = train_model(translator, data(), keys, 0, torch.device("cpu"), validate, state, "t")
    return translator, history
