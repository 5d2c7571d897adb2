"""The one interface that training, evaluation and search need."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.models.backbone import Backbone

if TYPE_CHECKING:
    import pandas as pd

    from rewind.study import Training

Features = dict[str, Tensor]
"""Whatever a head needs, every tensor batched on dim 0, so that features of several batches can be concatenated."""


class Retriever(nn.Module):
    """Scores every caption against every item.

    A subclass writes the first three methods. All that follows them has a default: it is written where a retriever
    needs it, and docs/add-a-method.md lists it. :func:`offers` tells a hook that was written from its default.

    Attributes:
        backbone: the towers, None where there are none: captions are prepared, towers frozen and learning rates chosen
            by them.
        pairs_at_once: pairs whose activations are held at a time in training, where scoring pairs is done in chunks;
            None: it is not. ``training.micro_batch`` lowers it for a step where GPU memory runs out.
        reads_ids: whether batches of items also hold ``item_ids`` and ``item_paths``, and those of captions
            ``caption_ids`` and ``captions``, which :func:`names` reads: for look-ups. Not of cached features' own job,
            which knows no method.
        attends_to_pairs: whether :meth:`pair_vectors` has vectors.
    """

    backbone: Backbone | None
    pairs_at_once: int | None = None
    attends_to_pairs: bool = False
    reads_ids: bool = False

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(type(self), "backbone"):  # on the object: an attribute of the class would hide the module
            self.backbone = None

    # What every retriever writes

    def encode_text(self, batch: Features) -> Features:
        """Features of a batch of captions (``batch['text']`` as made by ``prepare_text``; zeros without towers)."""
        raise NotImplementedError

    def encode_items(self, batch: Features) -> Features:
        """Features of a batch of items.

        ``batch`` holds ``mask`` [n, T] (1 on real frames, which come first) and either ``pixels`` uint8
        [n, T, 3, S, S] or cached ``frames`` float [n, T, F].
        """
        raise NotImplementedError

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Logits of all pairs, (n_text, n_items)."""
        raise NotImplementedError

    # Vectors

    @property
    def compares_vectors(self) -> bool:
        """Whether it scores by the cosine of the two :meth:`vectors`. Losses of cosines and the cosine gap ask this.

        The default: whether ``vectors`` was written. To be overridden where that is not so for every head.
        """
        return offers(self.vectors)

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and (m, D) of items; times ``exp(logit_scale)`` they give ``similarity``.

        Called in the step by losses of cosines, and after training for the cosine gap, the picture of the embedding
        and zero-shot prompts, where :attr:`compares_vectors`.

        Raises:
            RewindError: where there are none; a loss that needs them is refused with this message.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no vectors(): it does not compare two vectors.")

    def outputs(self, text: Features, items: Features) -> tuple[Tensor, Tensor] | None:
        """:meth:`vectors` before they have unit length, (n, D) and (m, D), for losses that look at lengths.

        Called in the step by ``multi_positive``. None, the default: it takes the unit vectors.
        """
        return None

    def pair_vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and of items, row i of both a pair, that have attended to each other.

        Called for the cosine gap where :attr:`attends_to_pairs`.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no pair_vectors().")

    def translate(self, text: Tensor) -> Tensor:
        """Vectors (n, dx) of captions → unit vectors (n, dy) in the space of the items' own vectors.

        Called for the challenge's submission, in evaluation mode.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no translate().")

    # Data

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The items and captions of a split that the model can score; called before a split is prepared.

        The default: all of them. Only all twins may be left out, with their captions: the model is then evaluated in
        the settings that need none, and tables say so.
        """
        return items, captions

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[Any, Tensor] | None:
        """Inputs and prepared captions of a split, for a retriever that looks at no pictures.

        Called whenever a split is prepared, before a file of it is read.

        Args:
            items: one row per item, with ``item_id``.
            captions: one row per caption, with ``video_id`` and ``caption``.

        Returns:
            What gives ``encode_items`` its batches (as :class:`rewind.feeding.inputs.Inputs`), and a tensor of one row
            per caption; None, the default: clips, features or vectors are read as the study says.
        """
        return None

    def check_state(self, state: dict[str, Tensor], where: str) -> None:
        """Refuse a state dict by what no shape shows, such as another vocabulary.

        Called before a run's file is loaded. One that writes this has its vocabulary in its state: search then need not
        ask whether the training captions changed.

        Raises:
            RewindError: naming ``where``, the file.
        """

    # Training

    def fit(self, text: Tensor, items: Tensor, valid_text: Tensor, valid_items: Tensor) -> None:
        """Fit in closed form. One that writes this is not trained by steps: it is called once instead.

        Args:
            text: prepared training captions (n, dx).
            items: the features of each one's item, averaged over its frames (n, dy).
            valid_text, valid_items: the same of the validation split, (v, dx) and (v, dy).
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no fit().")

    def parameter_groups(self, keys: Training) -> list[dict[str, Any]] | None:
        """Groups of the optimiser: ``params``, ``lr`` and ``weight_decay`` of each.

        Called once, before :meth:`prepare`. A parameter that is frozen at first must be in one from the start. None,
        the default: pretrained towers at ``lr · backbone_lr_multiplier``, all else at ``lr``, matrices decayed.
        """
        return None

    def prepare(self, data: Any) -> None:
        """Start from the training split, for a part that is fitted in closed form and then trained on.

        Called once before the first step, and again before a run is resumed.

        Args:
            data: a :class:`rewind.feeding.training_data.TrainingData`.
        """

    def start_epoch(self, epoch: int) -> None:
        """For what is trained from some epoch on; what this sets must follow from the epoch alone.

        Called before the first step of every epoch, counted from 0, and before a run goes on in the middle of one.
        """

    def clamp(self) -> None:
        """Keep parameters within bounds. Called after every step that moved them."""

    def similarity_rows(self, text: Features, items: Features, rows: slice) -> Tensor | None:
        """Rows of :meth:`similarity`, (len of rows, m), of some of the n texts that are given.

        Called in the step on several processes, with the process's own rows, where scoring a pair costs much. None, the
        default: every process computes all of ``similarity``.
        """
        return None


def offers(hook: Callable[..., Any]) -> bool:
    """Whether a hook of a retriever or of its towers is its own: not the default that is declared here."""
    declared = getattr(hook, "__func__", None)  # none: a function that was put on one object
    return declared is None or all(vars(kind).get(declared.__name__) is not declared for kind in (Retriever, Backbone))


def names(letters: Tensor) -> list[str]:
    """``batch["item_ids"]``, ``["item_paths"]``, ``["caption_ids"]`` or ``["captions"]``, uint8 (n, bytes), as text.

    They are there where ``Retriever.reads_ids`` is true.
    """
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in letters.cpu().numpy()]


def concatenate(parts: list[Features]) -> Features:
    """Join features of consecutive batches along dim 0."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def masked_mean(frames: Tensor, mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Mean over real frames: (n, T, F) and mask (n, T) → (n, F), summed and given as ``dtype``; without any, zero."""
    weights = mask.to(frames.device, dtype).unsqueeze(-1)
    return (frames.to(dtype) * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


def single(value: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 as they are."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def find(name: str, package: str, key: str) -> Any:
    """A built-in of ``package`` by its short name, or a module or an attribute of one by dotted path.

    Raises:
        RewindError: naming the configuration ``key`` if there is no such thing.
    """
    module, _, attribute = name.rpartition(".")
    try:
        if not module:
            return importlib.import_module(f"{package}.{name}")
        if importlib.util.find_spec(module) and hasattr(parent := importlib.import_module(module), attribute):
            return getattr(parent, attribute)
        return importlib.import_module(name)
    except (ImportError, AttributeError) as error:
        where = ""
        if module:
            where = " Modules of your own are looked for in the folders of PYTHONPATH and among installed packages:"
            where += " start with `PYTHONPATH=<folder> snakemake …`."
        raise RewindError(f"{key}: cannot find {name!r} ({error}).{where}") from error
