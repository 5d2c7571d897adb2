"""What the closed-form baselines share: cosine similarity, checked options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from rewind.errors import RewindError
from rewind.models.retriever import Features, Retriever, masked_mean


class PooledBaseline(Retriever):
    """Cosine of one vector per caption and one per item; nothing is learnt by gradient descent.

    Subclasses map ``batch['text']`` (n, dt) and the frame features averaged over time (n, di) to one space.
    """

    def map_text(self, text: Tensor) -> Tensor:
        """Prepared text features (n, dt) → (n, d)."""
        raise NotImplementedError

    def map_items(self, items: Tensor) -> Tensor:
        """Pooled item features (n, di) → (n, d)."""
        raise NotImplementedError

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, dt) → ``text`` (n, d), of unit length."""
        return {"text": F.normalize(self.map_text(batch["text"].float()), dim=1)}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, F) and ``mask`` (n, T) → ``items`` (n, d), of unit length."""
        return {"items": F.normalize(self.map_items(masked_mean(batch["frames"], batch["mask"])), dim=1)}

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Cosines of all pairs, (n_text, n_items)."""
        return text["text"] @ items["items"].T


def check_options(options: Mapping[str, Any], known: tuple[str, ...], method: str) -> None:
    """Refuse options that a baseline does not have.

    Raises:
        RewindError: naming the unknown key and the known ones.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        valid = ", ".join(known) or "none"
        raise RewindError(f"methods: options.{unknown[0]}: the baseline {method!r} has no such option; valid: {valid}.")
