"""``Head``, the interface of heads: how frame features become a score.

A head either pools the frames of a clip or scores pairs of a caption and a clip. ``sort_by_content`` and
``score_in_chunks`` help to write heads of the second kind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rewind.config.base import ConfigModel
from rewind.models.retriever import Features


class Head(nn.Module):
    """Pools the frames of a clip, or scores pairs of a caption and a clip.

    A head of either kind writes one method, ``forward`` or ``pairs``; all else has a default. A class that is not a
    subclass gets the defaults of what it lacks (:func:`with_head_defaults`). It is constructed with the ``width`` of
    frame and text features, ``layers`` (``methods.*.head_layers``), ``positions`` (rows of a table of positions) and,
    only if the class declares :attr:`Options`, ``options``: an instance of it.

    >>> class LastFrame(Head):
    ...     def forward(self, frames, mask):
    ...         last = mask.sum(dim=1).long() - 1
    ...         return frames[torch.arange(len(frames)), last][:, None].expand_as(frames)
    >>> head = LastFrame()
    >>> head(torch.rand(2, 5, 64), torch.ones(2, 5)).shape, head.pairwise, head.copies_text
    (torch.Size([2, 5, 64]), False, False)
    """

    pairwise: bool = False  # whether it scores pairs; else its frames are averaged and compared by cosine
    Options: ClassVar[type[ConfigModel] | None] = None  # declares ``methods.*.options``; None: it has none
    reads_words: bool = False  # whether it gets features of every token of a caption, which not all towers have
    scaled: bool = False  # whether its scores are cosines, to be multiplied by the towers' ``exp(logit_scale)``
    # Pairs whose activations training holds at a time; scores and gradients are the same with any number. None: pairs
    # are not scored in chunks. ``training.micro_batch`` lowers it.
    pairs_at_once: int | None = None

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        """Frame features (n, T, D), not normalised, and mask (n, T), 1 on real frames → (n, T, D)."""
        raise NotImplementedError

    def pairs(self, text: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
        """Scores of all pairs (n, m) of text features (n, D) and frames (m, T, D), neither normalised."""
        raise NotImplementedError

    def pair_rows(self, text: Tensor, frames: Tensor, mask: Tensor, rows: slice) -> Tensor:
        """:meth:`pairs` of some of the texts.

        To be overridden by a head that draws random numbers for pairs: it draws them for all texts, so that several
        processes that score some rows each draw the same ones.
        """
        return self.pairs(text[rows], frames, mask)

    def of_captions(self, text: Features) -> Features:
        """What is computed once per caption, and not once per pair: tensors of n rows. The default: ``text`` as it is.

        ``text`` is (n, D); for a head that :attr:`reads_words` (n, L, D), with ``words`` (n, L), 1 on real tokens,
        which come first.
        """
        return text

    def of_clips(self, items: Features) -> Features:
        """What is computed once per clip, and not once per pair: tensors of m rows. The default: as they are.

        ``frames`` is (m, T, D), not normalised, and ``mask`` (m, T).
        """
        return items

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Scores of some captions with all clips, (len of rows, m), from what the two methods above returned."""
        return self.pair_rows(text["text"], items["frames"], items["mask"], rows)

    def start_from(self, blocks: Features) -> None:
        """Begin from CLIP's text positions and first text blocks; called if :attr:`copies_text`."""

    @property
    def copies_text(self) -> bool:
        """Whether it begins from CLIP's text blocks unless ``head_start: random``; towers without such are refused.

        The default: whether ``start_from`` is overridden.
        """
        return type(self).start_from is not Head.start_from


def with_head_defaults(kind: type[nn.Module]) -> type[Head]:
    """A class with :class:`Head`'s default of every hook that it lacks."""
    return kind if issubclass(kind, Head) else type(kind.__name__, (kind, Head), {"__module__": kind.__module__})


def sort_by_content(frames: Tensor, mask: Tensor, keys: int = 4) -> Tensor:
    """Frames (n, T, D) in an order of their content only: a clip and its mirror become the same, bit for bit.

    For heads that cannot see order. Floating-point sums depend on the order of their terms, so a clip and its twin
    would differ by rounding and not tie; sorted, they do. Real frames, which come first and stay there, are sorted by
    their first feature, equal ones by the next, and so on for ``keys`` features; frames that agree in all of them keep
    their order.

    >>> frames, mask = torch.rand(2, 5, 8), torch.ones(2, 5)
    >>> torch.equal(sort_by_content(frames, mask), sort_by_content(frames.flip(1), mask))
    True
    """
    # A lexicographic sort: stable sorts by one key after another, the most important last. Padding is at infinity.
    real = mask.to(frames.device).bool()
    order = torch.arange(frames.shape[1], device=frames.device).expand(len(frames), -1)
    for column in reversed(range(min(keys, frames.shape[2]))):
        values = frames[:, :, column].detach().masked_fill(~real, float("inf"))
        order = order.gather(1, values.gather(1, order).argsort(dim=1, stable=True))
    return frames.gather(1, order.unsqueeze(-1).expand_as(frames))


def score_in_chunks(score: Callable[[range], Tensor], places: slice, texts: int, clips: int, pairs: int) -> Tensor:
    """Scores of consecutive texts with all clips, in chunks, whose activations are recomputed in the backward pass.

    Args:
        score: a range of texts → their scores, (len of range, clips); the same numbers each time it is called.
        places: the texts to score.
        pairs: how many pairs' activations are held at a time; at least those of one text.

    >>> with torch.no_grad():
    ...     score_in_chunks(lambda rows: torch.zeros(len(rows), 3), slice(None), texts=10, clips=3, pairs=6).shape
    torch.Size([10, 3])
    """
    rows, high = range(*places.indices(texts)), max(1, pairs // max(1, clips))
    if len(rows) <= high:
        return score(rows)
    parts = [rows[at : at + high] for at in range(0, len(rows), high)]
    if torch.is_grad_enabled():
        # `score` gives the same numbers each time by itself, so no generator's state need be kept for it.
        return torch.cat([checkpoint(score, part, use_reentrant=False, preserve_rng_state=False) for part in parts])
    return torch.cat([score(part) for part in parts])
