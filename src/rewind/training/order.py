"""The order of a run's batches: the sampler's global batches, this process's share, and the sampler's saved state.

The module also counts negatives that may be false: captions of the same words for different items, and time-reversed
twins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from rewind.config import Training
from rewind.data.tokenizers import same_text_labels
from rewind.distributed import World
from rewind.errors import RewindError
from rewind.loading.encode import encode_all_texts
from rewind.loading.frame_source import load_batches
from rewind.loading.run_data import TrainingData
from rewind.loading.text import PreparedText
from rewind.models.retriever import Features, Retriever
from rewind.training.grad_cache import random_state, set_random_state
from rewind.training.samplers.base import SamplerState, make_sampler

# ---- Order of batches ----------------------------------------------------------------------------------------------

_CAPTION_BATCH = 256


class BatchOrder:
    """Which caption rows every step sees: of all processes, and of this one.

    ``saved`` is the sampler's state of a run that is resumed.
    """

    def __init__(
        self, data: TrainingData, keys: Training, seed: int, world: World, saved: dict[str, Tensor] | None = None
    ) -> None:
        self.data, self.keys, self.seed, self.world, self.epochs = data, keys.batch, seed, world, keys.epochs
        self.sampler, self.max_steps = make_sampler(keys.batch), keys.epoch_steps
        self.refresh_every = self.sampler.refresh_every
        self.texts = same_text_labels(data.captions) if data.captions else None
        self.drawn: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))  # an epoch, and its hard negatives
        self.state: SamplerState = {}
        if saved is not None:
            self.state = {name: value.numpy() for name, value in saved.items()}
        else:
            self._set_state(lambda: self.sampler.prepare(data, keys.batch, seed))
        self.epoch, self.batches = 0, self._make_batches(0)  # the last epoch requested
        self.per_epoch = len(self.batches)
        world.share(len(self.batches[0]))  # a batch that cannot be shared is refused before anything runs

    def _make_batches(self, epoch: int) -> list[np.ndarray]:
        items, clusters = self.data.item_of_caption, self.data.cluster_of_item
        return self.sampler.batches(items, clusters, self.keys, self.seed, epoch, self.state)[: self.max_steps]

    def whole(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch; the sampler's state must be that of this epoch."""
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, self._make_batches(epoch)
            if len(self.batches) != self.per_epoch:
                raise RewindError(
                    f"training.batch.sampler: {self.keys.sampler} gives {len(self.batches)} batches in epoch "
                    f"{epoch + 1} and {self.per_epoch} in epoch 1; every epoch must have the same number."
                )
        return self.batches

    def share(self, step: int) -> np.ndarray:
        """This process's rows of a step, counted from the run's beginning."""
        rows = self.whole(step // self.per_epoch)[step % self.per_epoch]
        return rows[self.world.share(len(rows))]

    def keys_of(self, step: int) -> np.ndarray:
        """What this process's batch of a step is made from: its rows (B,), or (2, B) with their hard negatives'."""
        rows, epoch = self.share(step), step // self.per_epoch
        if self.data.hard_negatives is None:
            return rows
        if self.drawn[0] != epoch:
            self.drawn = epoch, self.data.hard_negatives.draw(self.seed, epoch)
        return np.stack([rows, self.drawn[1][rows]])

    def refresh(self, epoch: int, vectors: Callable[[], np.ndarray]) -> None:
        """Renew the sampler's state if ``epoch``, from 0, begins with that; only then are ``vectors`` (n, D) made."""
        if self.refresh_every and epoch and epoch % self.refresh_every == 0:
            self._set_state(lambda: self.sampler.refresh(epoch, vectors(), self.state))
            self.epoch = -1  # batches built with the former state are void

    def describe(self, epoch: int) -> dict[str, float]:
        """What the sampler says about an epoch's batches: columns of the history."""
        return self.sampler.describe(self.whole(epoch), self.state)

    def doubtful(self, epoch: int) -> dict[str, float]:
        """How many negatives of an epoch's batches may be false ones: columns of the history."""
        return count_doubtful_negatives(self.whole(epoch), self.data, self.texts)

    def _set_state(self, make: Callable[[], SamplerState]) -> None:
        # Rank 0 computes it and the others get a copy: rounding elsewhere must not give them another order.
        self.state = self.world.agree(make() if self.world.rank == 0 else None)

    def saved(self) -> dict[str, Tensor]:
        """The state, for the training state file."""
        return {name: torch.from_numpy(np.array(value)) for name, value in self.state.items()}

    def feed(self, first: int, workers: int, device: torch.device) -> Iterator[Features]:
        """This process's batches of all steps from ``first`` on, some made ahead of the caller.

        One loader continues past the end of an epoch, so that the next epoch's first batches are made while this one is
        validated. A new loader begins only where the sampler's state is renewed: the order behind it is not known
        before.
        """
        start = first
        while start < self.epochs * self.per_epoch:
            end = self._next_refresh(start // self.per_epoch) * self.per_epoch
            shares = (self.keys_of(step) for step in range(start, end))
            yield from load_batches(self.data.batch, shares, self.data.inputs, workers, device)
            start = end

    def _next_refresh(self, epoch: int) -> int:
        """The first epoch after ``epoch`` that begins with a new state, or the number of epochs."""
        every = self.refresh_every
        return min(self.epochs, (epoch // every + 1) * every) if every else self.epochs


@torch.no_grad()
def encode_all_captions(retriever: Retriever, text: PreparedText, device: torch.device) -> np.ndarray:
    """Unit text vectors of all captions under the current weights, float32 (n, D).

    They are computed in evaluation mode; the retriever's mode and the random state are restored.
    """
    before, training = random_state(device), retriever.training
    retriever.eval()

    def unit_vector(batch: Features) -> Features:
        features = retriever.encode_text(batch)
        if set(features) != {"text"} or features["text"].ndim != 2:
            raise RewindError(
                f"training.batch.sampler_options: {type(retriever).__name__} does not have one vector per caption, "
                "from which batches could be built again: set refresh_every: null."
            )
        return {"text": torch.nn.functional.normalize(features["text"].float(), dim=-1).cpu()}

    vectors = encode_all_texts(unit_vector, text, _CAPTION_BATCH, device)["text"].numpy()
    retriever.train(training)
    set_random_state(before, device)
    return vectors


# ---- Doubtful negatives: captions of the same words, and twins -----------------------------------------------------


def count_doubtful_negatives(
    batches: Iterable[np.ndarray], data: TrainingData, texts: np.ndarray | None
) -> dict[str, float]:
    """Columns of the history: how many pairs of an epoch's batches are negatives of each other, although

    - ``same_text_negatives``: their captions have the same words, for different items;
    - ``twin_negatives``: their items are a clip and its twin, which is what teaches the direction of time.

    Two pairs of the same item are not negatives, and are not counted. ``texts`` are (n,) labels of
    :func:`rewind.data.tokenizers.same_text_labels`; without them only twins are counted.
    """
    same_text = twins = 0
    for rows in batches:
        items = data.item_of_caption[rows]
        if texts is not None:
            # Pairs with the same words, less those that show the same item too.
            same_text += _count_equal_pairs(texts[rows]) - _count_equal_pairs(texts[rows], items)
        clusters = data.cluster_of_item[items]
        twins += _count_equal_pairs(clusters) - _count_equal_pairs(clusters, items)
    return ({"same_text_negatives": float(same_text)} if texts is not None else {}) | {"twin_negatives": float(twins)}


def _count_equal_pairs(*keys: np.ndarray) -> int:
    """Number of pairs that agree in all keys: c·(c − 1)/2 of every group of c."""
    counts = np.unique(np.stack(keys), axis=1, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())
