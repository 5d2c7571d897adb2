"""One vector a caption and an item, from every kind of retriever."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rewind.config.evaluation import Evaluation
from rewind.evaluation.embedding import compute_embeddings
from rewind.loading.frame_source import CachedFrames
from rewind.models.baselines import Chance
from rewind.models.retriever import Retriever

CPU, KEYS = torch.device("cpu"), Evaluation(batch_size=4)


class Loose(Retriever):
    def encode_text(self, batch):
        return {"text": F.normalize(batch["text"], dim=-1)}

    def encode_items(self, batch):
        return {"video": F.normalize(batch["frames"].mean(dim=1), dim=-1)}

    def similarity(self, text, items):
        return text["text"] @ items["video"].T


class Tight(Loose):
    def encode_items(self, batch):
        return {"frames": batch["frames"], "mask": batch["mask"]}


class Own(Loose):
    def encode_items(self, batch):
        return {"video": batch["frames"].mean(dim=1), "sound": batch["frames"].mean(dim=1)}


@pytest.fixture
def data():
    rng = torch.Generator().manual_seed(0)
    text, frames = torch.randn(10, 5, generator=rng), torch.randn(7, 3, 5, generator=rng)
    mask = torch.ones(7, 3)
    mask[2, 1:] = 0
    return text, frames, mask, CachedFrames(frames.numpy(), mask.numpy())


def test_a_joint_space_is_the_one_that_scores(data):
    text, frames, _, inputs = data
    model = Loose().train()
    found = compute_embeddings(model, text, inputs, KEYS, CPU)
    assert (found.space, found.text.dtype, found.text.shape, found.items.shape) == (
        "joint",
        np.float32,
        (10, 5),
        (7, 5),
    )
    scores = model.similarity(model.encode_text({"text": text}), model.encode_items({"frames": frames}))
    np.testing.assert_allclose(found.text @ found.items.T, scores.numpy(), atol=1e-6)
    assert not model.training


def test_heads_that_score_pairs_give_the_towers_vectors(data):
    text, frames, _, inputs = data
    found = compute_embeddings(Tight(), text, inputs, KEYS, CPU)
    assert found.space == "towers"
    np.testing.assert_allclose(found.items[2], frames[2, 0].numpy(), rtol=1e-6)
    np.testing.assert_allclose(found.items[0], frames[0].mean(0).numpy(), rtol=1e-5)


@pytest.mark.parametrize("model", [Chance(), Own()])
def test_a_retriever_without_vectors_has_no_space(data, model):
    text, _, _, inputs = data
    found = compute_embeddings(model, text, inputs, KEYS, CPU)
    assert (found.space, found.text.shape, found.items.shape) == ("none", (10, 0), (7, 0))
