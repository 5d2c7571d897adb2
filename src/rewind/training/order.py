"""The order of a run's batches: the sampler's global batches, this process's share, and the state they depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from rewind.distributed import World
from rewind.errors import RewindError
from rewind.feeding.encode import encode_texts
from rewind.feeding.ids import Text
from rewind.feeding.inputs import load
from rewind.feeding.training_data import TrainingData
from rewind.models.retriever import Features, Retriever
from rewind.study import Training
from rewind.text import same_texts
from rewind.training.grad_cache import random_state, set_random_state
from rewind.training.negatives import doubtful
from rewind.training.samplers.interface import State, make_sampler

_CAPTIONS_AT_ONCE = 256


class Order:
    """Which caption rows every step sees: of all processes together, and of this one.

    Args:
        data: the training split.
        keys: of the run.
        seed: its seed.
        world: its processes, which all see the same order.
        saved: the sampler's state of a run that goes on; None: it begins anew.

    Raises:
        RewindError: if the processes cannot share a batch equally, or what the sampler refuses.
    """

    def __init__(
        self, data: TrainingData, keys: Training, seed: int, world: World, saved: dict[str, Tensor] | None = None
    ) -> None:
        self.data, self.keys, self.seed, self.world, self.epochs = data, keys.batch, seed, world, keys.epochs
        self.sampler, self.most = make_sampler(keys.batch), keys.epoch_steps
        self.every = self.sampler.refresh_every
        self.texts = same_texts(data.captions) if data.captions else None
        self.state: State = {}
        if saved is not None:
            self.state = {name: value.numpy() for name, value in saved.items()}
        else:
            self._put(lambda: self.sampler.prepare(data, keys.batch, seed))
        self.epoch, self.batches = 0, self._of(0)
        self.per_epoch = len(self.batches)
        world.share(len(self.batches[0]))  # a batch that cannot be shared is refused before anything runs

    def _of(self, epoch: int) -> list[np.ndarray]:
        items, clusters = self.data.item_of_caption, self.data.cluster_of_item
        return self.sampler.batches(items, clusters, self.keys, self.seed, epoch, self.state)[: self.most]

    def whole(self, epoch: int) -> list[np.ndarray]:
        """The global batches of an epoch, for which the state must be the right one."""
        if epoch != self.epoch:
            self.epoch, self.batches = epoch, self._of(epoch)
            if len(self.batches) != self.per_epoch:
                raise RewindError(
                    f"training.batch.sampler: {self.keys.sampler} gives {len(self.batches)} batches in epoch "
                    f"{epoch + 1} and {self.per_epoch} in epoch 1; every epoch must have the same number."
                )
        return self.batches

    def share(self, place: int) -> np.ndarray:
        """This process's rows of the step ``place``, counted from the run's beginning."""
        rows = self.whole(place // self.per_epoch)[place % self.per_epoch]
        return rows[self.world.share(len(rows))]

    def refresh(self, epoch: int, vectors: Callable[[], np.ndarray]) -> None:
        """Make the sampler's state anew where ``epoch`` is one that begins with that.

        Args:
            epoch: counts from 0.
            vectors: gives the text vectors (n, D) of all captions.
        """
        if self.every and epoch and epoch % self.every == 0:
            self._put(lambda: self.sampler.refresh(epoch, vectors(), self.state))
            self.epoch = -1  # batches made with the former state are void

    def describe(self, epoch: int) -> dict[str, float]:
        """What the sampler says of an epoch's batches: columns of the history."""
        return self.sampler.describe(self.whole(epoch), self.state)

    def doubtful(self, epoch: int) -> dict[str, float]:
        """How many negatives of an epoch's batches may be none: columns of the history."""
        return doubtful(self.whole(epoch), self.data, self.texts)

    def _put(self, make: Callable[[], State]) -> None:
        self.state = self.world.agree(make() if self.world.rank == 0 else None)

    def saved(self) -> dict[str, Tensor]:
        """The state, for the training state file."""
        return {name: torch.from_numpy(np.array(value)) for name, value in self.state.items()}

    def feed(self, first: int, workers: int, device: torch.device) -> Iterator[Features]:
        """This process's batches of all steps from ``first`` on, some made ahead of the caller.

        One loader goes on over the end of an epoch, so that the next one's first batches are made while this one is
        validated; only where the sampler's state is made anew a next loader begins.
        """
        place = first
        while place < self.epochs * self.per_epoch:
            end = self._known_until(place // self.per_epoch) * self.per_epoch
            shares = (self.share(step) for step in range(place, end))
            yield from load(self.data.batch, shares, self.data.inputs, workers, device)
            place = end

    def _known_until(self, epoch: int) -> int:
        """The first epoch after ``epoch`` whose order is not known in it."""
        return min(self.epochs, (epoch // self.every + 1) * self.every) if self.every else self.epochs


@torch.no_grad()
def text_vectors(retriever: Retriever, text: Text, device: torch.device) -> np.ndarray:
    """Unit text vectors of all captions under the weights of this moment, float32 (n, D).

    They are made in evaluation mode; the retriever's mode and the random numbers stay as they were.

    Raises:
        RewindError: if the retriever has no vector per caption.
    """
    before, training = random_state(device), retriever.training
    retriever.eval()

    def vector(batch: Features) -> Features:
        found = retriever.encode_text(batch)
        if set(found) != {"text"} or found["text"].ndim != 2:
            raise RewindError(
                f"training.batch.sampler_options: {type(retriever).__name__} does not have one vector per caption, "
                "from which batches could be made again: set refresh_every: null."
            )
        return {"text": torch.nn.functional.normalize(found["text"].float(), dim=-1).cpu()}

    vectors = encode_texts(vector, text, _CAPTIONS_AT_ONCE, device)["text"].numpy()
    retriever.train(training)
    set_random_state(before, device)
    return vectors
