"""What a head may offer: how frame features become a score."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rewind.models.retriever import Features
from rewind.study.keys import Keys


class Head(nn.Module):
    """Pools the frames of a clip, or scores pairs of a caption and a clip.

    A head of either kind writes one method, ``forward`` or ``pairs``; all else has a default. One that is no subclass
    gets the defaults of what it lacks.

    What it is built with:
        width: of frame and text features.
        layers: ``methods.*.head_layers``.
        positions: rows of a table of positions.
        options: only if the class declares :attr:`Options`: an instance of it.

    Attributes:
        pairwise: whether it scores pairs; else its frames are averaged and compared by cosine.
        Options: a :class:`rewind.study.keys.Keys` that declares ``methods.*.options``; None: it has none.
        reads_words: whether it gets features of every token of a caption, which not all towers have.
        scaled: whether its scores are cosines, to be multiplied by the towers' ``exp(logit_scale)``.
        pairs_at_once: pairs whose activations training holds at a time; scores and gradients are the same with any
            number. None: it is not done in chunks. ``training.micro_batch`` lowers it.
    """

    pairwise: bool = False
    Options: ClassVar[type[Keys] | None] = None
    reads_words: bool = False
    scaled: bool = False
    pairs_at_once: int | None = None

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Frame features (n, T, D), not normalised, and mask (n, T), 1 on real frames → (n, T, D)."""
        raise NotImplementedError

    def pairs(self, text: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
        """Scores of all pairs (n, m) of text features (n, D) and frames (m, T, D), neither normalised."""
        raise NotImplementedError

    def pair_rows(self, text: Tensor, frames: Tensor, mask: Tensor, rows: slice) -> Tensor:
        """:meth:`pairs` of some of the texts that are given.

        Written where random numbers are drawn for pairs: then they are drawn for all texts, so that several processes
        with some rows each draw the same ones.
        """
        return self.pairs(text[rows], frames, mask)

    def of_captions(self, text: Features) -> Features:
        """What of a caption is computed once, and not for every pair.

        Args:
            text: ``text`` (n, D); for a head that :attr:`reads_words` (n, L, D), with ``words`` (n, L), 1 on real
                tokens, which come first.

        Returns:
            Tensors of n rows. The default: as they are.
        """
        return text

    def of_clips(self, items: Features) -> Features:
        """What of a clip is computed once, and not for every pair.

        Args:
            items: ``frames`` (m, T, D), not normalised, and ``mask`` (m, T).

        Returns:
            Tensors of m rows. The default: as they are.
        """
        return items

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Scores of some captions with all clips, (len of rows, m), from what the two methods above returned.

        The default: :meth:`pair_rows`.
        """
        return self.pair_rows(text["text"], items["frames"], items["mask"], rows)

    def start_from(self, blocks: Features) -> None:
        """Begin from CLIP's text positions and first text blocks; called where :attr:`copies_text`."""

    @property
    def copies_text(self) -> bool:
        """Whether it begins from CLIP's text blocks, unless ``head_start: random``; then towers without are refused.

        The default: whether ``start_from`` was written.
        """
        return type(self).start_from is not Head.start_from


def with_hooks(kind: type[nn.Module]) -> type[Head]:
    """A class with :class:`Head`'s default of every hook that it lacks."""
    return kind if issubclass(kind, Head) else type(kind.__name__, (kind, Head), {"__module__": kind.__module__})


def in_order_of_content(frames: Tensor, mask: Tensor, keys: int = 4) -> Tensor:
    """Frames in an order that follows from the frames alone: a clip and its mirror become the same, bit for bit.

    For heads that cannot see order: what they sum then leaves no trace of it either, not even by rounding.

    Args:
        frames: (n, T, D).
        mask: (n, T), 1 on real frames, which come first and stay there.
        keys: features that are compared; frames that agree in all of them stay as they are.

    Returns:
        (n, T, D), the real frames of each row sorted by their first feature, equal ones by the next, and so on.
    """
    real = mask.to(frames.device).bool()
    order = torch.arange(frames.shape[1], device=frames.device).expand(len(frames), -1)
    for place in reversed(range(min(keys, frames.shape[2]))):
        values = frames[:, :, place].detach().masked_fill(~real, float("inf"))
        order = order.gather(1, values.gather(1, order).argsort(dim=1, stable=True))
    return frames.gather(1, order.unsqueeze(-1).expand_as(frames))


def in_chunks(score: Callable[[range], Tensor], places: slice, texts: int, clips: int, pairs: int) -> Tensor:
    """Scores of consecutive texts with all clips, some at a time: in training each chunk's activations are made again.

    Args:
        score: some of the texts → their scores; the same numbers each time it is asked.
        places: the texts that are wanted.
        texts, clips: how many there are.
        pairs: whose activations are held at a time; those of one text at least.
    """
    rows, high = range(*places.indices(texts)), max(1, pairs // max(1, clips))
    if len(rows) <= high:
        return score(rows)
    parts = [rows[at : at + high] for at in range(0, len(rows), high)]
    if torch.is_grad_enabled():
        return torch.cat([checkpoint(score, part, use_reentrant=False, preserve_rng_state=False) for part in parts])
    return torch.cat([score(part) for part in parts])
