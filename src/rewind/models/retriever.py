"""``Retriever``, the one interface of models that training, evaluation and search use, and helpers for writing one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.models.backbone import Backbone

if TYPE_CHECKING:
    import pandas as pd

    from rewind.config import Training

Features = dict[str, Tensor]
"""What a model reads or returns, every tensor batched on dim 0, so that several batches can be concatenated."""


class Retriever(nn.Module):
    """Scores every caption against every item.

    A subclass writes the first three methods. All others are hooks with a default, to be overridden by a retriever that
    needs them; docs/add-a-method.md lists them. :func:`is_overridden` tells a hook of one's own from its default.

    >>> class FirstNumbers(Retriever):
    ...     def encode_text(self, batch):
    ...         return {"text": batch["text"][:, :1]}
    ...     def encode_items(self, batch):
    ...         return {"items": batch["frames"][:, 0, :1]}
    ...     def similarity(self, text, items):
    ...         return text["text"] @ items["items"].T
    >>> model = FirstNumbers()
    >>> text = model.encode_text({"text": torch.rand(3, 8)})
    >>> items = model.encode_items({"frames": torch.rand(2, 4, 8), "mask": torch.ones(2, 4)})
    >>> model.similarity(text, items).shape, model.compares_vectors
    (torch.Size([3, 2]), False)
    """

    backbone: Backbone | None  # by which captions are prepared, towers frozen and learning rates chosen
    # Pairs whose activations are held at a time in training, if pairs are scored in chunks; else None.
    # ``training.micro_batch`` lowers it for a step in which GPU memory runs out.
    pairs_at_once: int | None = None
    attends_to_pairs: bool = False  # whether `pair_vectors` has vectors
    # Whether batches of items also hold ``item_ids`` and ``item_paths``, and those of captions ``caption_ids`` and
    # ``captions``, which `decode_names` reads: for look-ups. The job that caches features of frozen towers does not
    # give them, because it serves all methods.
    reads_ids: bool = False
    score_dtype: torch.dtype = torch.float32  # of scores that are kept and ranked; float64 where float32 makes ties

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(type(self), "backbone"):  # on the object: an attribute of the class would hide the module
            self.backbone = None

    # What every retriever writes

    def encode_text(self, batch: Features) -> Features:
        """Features of a batch of captions: ``batch['text']`` is what ``prepare_text`` gave (zeros without towers)."""
        raise NotImplementedError

    def encode_items(self, batch: Features) -> Features:
        """Features of a batch of items.

        ``batch`` holds ``mask`` [n, T] (1 on real frames, which come first) and either ``pixels`` uint8 [n, T, 3, S, S]
        or cached ``frames`` float [n, T, F].
        """
        raise NotImplementedError

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Logits of all pairs, (n_text, n_items)."""
        raise NotImplementedError

    # Vectors

    @property
    def compares_vectors(self) -> bool:
        """Whether it scores by the cosine of the two :meth:`vectors`. Losses of cosines and the cosine gap ask this.

        The default: whether ``vectors`` is overridden. To be overridden itself if that depends on the head.
        """
        return is_overridden(self.vectors)

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and (m, D) of items; times ``exp(logit_scale)`` they give ``similarity``.

        If :attr:`compares_vectors`, called in a training step by losses of cosines, and after training for the cosine
        gap, the figure of the embedding and zero-shot prompts. Losses that need them are refused with this error.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no vectors(): it does not compare two vectors.")

    def outputs(self, text: Features, items: Features) -> tuple[Tensor, Tensor] | None:
        """:meth:`vectors` before normalisation, (n, D) and (m, D), for losses that depend on lengths.

        Called in a training step by ``multi_positive``. None, the default: it uses the unit vectors.
        """
        return None

    def pair_vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and of items, row i of both a pair, that have attended to each other.

        Called for the cosine gap if :attr:`attends_to_pairs`.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no pair_vectors().")

    def translate(self, text: Tensor) -> Tensor:
        """Vectors (n, dx) of captions → unit vectors (n, dy) in the space of the items' own vectors.

        Called for a challenge's submission file, in evaluation mode.
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no translate().")

    # Data

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The items and captions of a split that the model can score; called before a split is prepared.

        The default: all of them. Only all twins may be left out, with their captions: the model is then evaluated in
        the settings that need none, and tables show this.
        """
        return items, captions

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[Any, Tensor] | None:
        """Inputs and prepared captions of a split, for a retriever that looks at no pictures.

        Called whenever a split is prepared, before a file of it is read, with ``item_id`` of items, and ``video_id``
        and ``caption`` of captions. Returns what gives ``encode_items`` its batches (a
        :class:`~rewind.loading.frame_source.FrameSource`), and a tensor of one row per caption; None, the default:
        clips, features or vectors are read as the study states.
        """
        return None

    def check_state(self, state: dict[str, Tensor], where: str) -> None:
        """Refuse a state dict of the file ``where`` for what names and shapes do not show, such as another vocabulary.

        Called before a run's file is loaded. A retriever that overrides this has its vocabulary in its state: search
        then need not check whether the training captions changed.
        """

    # Training

    def fit(self, text: Tensor, items: Tensor, valid_text: Tensor, valid_items: Tensor) -> None:
        """Fit in closed form. A retriever that overrides this is not trained by steps: this is called once instead.

        Args:
            text, valid_text: prepared captions of training (n, dx) and of validation (v, dx).
            items, valid_items: features of each caption's item, averaged over its frames, (n, dy) and (v, dy).
        """
        raise RewindError(f"methods.*.model: {type(self).__name__} has no fit().")

    def parameter_groups(self, keys: Training) -> list[dict[str, Any]] | None:
        """Groups of the optimiser: ``params``, ``lr`` and ``weight_decay`` of each.

        Called once, before :meth:`prepare`. A parameter that is frozen at first must be in a group from the start.
        None, the default: pretrained towers at ``lr · backbone_lr_multiplier``, all else at ``lr``, and weight decay
        only of matrices.
        """
        return None

    def prepare(self, data: Any) -> None:
        """Start from a :class:`rewind.loading.run_data.TrainingData`: for a part that is fitted and then trained on.

        Called once before the first step, and again before a run is resumed.
        """

    def start_epoch(self, epoch: int) -> None:
        """Freeze or unfreeze what is trained from some epoch on; the outcome must follow only from ``epoch``.

        Called before the first step of every epoch, counted from 0, and before a run resumes in the middle of one.
        """

    def clamp(self) -> None:
        """Keep parameters within bounds. Called after every step that moved them."""

    def similarity_rows(self, text: Features, items: Features, rows: slice) -> Tensor | None:
        """Rows of :meth:`similarity`, (len of rows, m), for some of the n texts.

        For retrievers that spend much work on a pair: in a training step on several processes it is called with each
        process's own rows. None, the default: every process computes all of ``similarity``.
        """
        return None


def is_overridden(hook: Callable[..., Any]) -> bool:
    """Whether a hook of a retriever or of its towers is its own, and not the default of Retriever or Backbone."""
    declared = getattr(hook, "__func__", None)  # None: a function that was set on one object
    return declared is None or all(vars(kind).get(declared.__name__) is not declared for kind in (Retriever, Backbone))


def decode_names(letters: Tensor) -> list[str]:
    """``batch["item_ids"]``, ``["item_paths"]``, ``["caption_ids"]`` or ``["captions"]``, uint8 (n, bytes), as text.

    >>> decode_names(torch.tensor([[97, 98, 99], [97, 0, 0]], dtype=torch.uint8))
    ['abc', 'a']
    """
    return [bytes(row).rstrip(b"\0").decode("utf-8") for row in letters.cpu().numpy()]


def concatenate(parts: list[Features]) -> Features:
    """Concatenate features of consecutive batches along dim 0."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def masked_mean(frames: Tensor, mask: Tensor) -> Tensor:
    """Mean over real frames: (n, T, F) and mask (n, T) → (n, F), float32 at least; zero for a clip without frames.

    Summed in double precision and rounded once: the order of summation leaves no trace, so a clip and its exact mirror
    have the same mean, bit for bit.

    >>> masked_mean(torch.tensor([[[2.0], [4.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[3.]])
    """
    weights = mask.to(frames.device, torch.float64).unsqueeze(-1)
    mean = (frames.double() * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
    return mean.to(torch.promote_types(frames.dtype, torch.float32))


def at_least_float32(value: Tensor) -> Tensor:
    """Half precision as float32; float32 and float64 unchanged."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
