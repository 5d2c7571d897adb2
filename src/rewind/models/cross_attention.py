"""A caption and a clip, one vector each, attend to one another."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.errors import RewindError


class CrossAttention(nn.Module):
    """``LayerNorm(x + attention(x → y))`` on single vectors.

    Over one key the softmax is 1, whatever query and key are: what is added is a linear map of ``y`` alone, and the
    query and key projections are never trained.

    Args:
        width: of both vectors.
        heads: of the attention.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise RewindError(
                f"methods.*.options.heads: vectors of width {width} cannot be divided into {heads} heads."
            )
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln = nn.LayerNorm(width)

    def forward(self, query: Tensor, other: Tensor) -> Tensor:
        """(n, D) and (n, D), row by row → (n, D)."""
        query, other = query.unsqueeze(1), other.unsqueeze(1)
        return self.ln(query + self.attn(query, other, other, need_weights=False)[0]).squeeze(1)

    def pairs(self, text: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of texts and items whose rows are pairs: the items first, then texts on what they became.

        Each has seen its partner, so comparing them says nothing of a search, where the partner is not known.
        """
        with torch.autocast(text.device.type, enabled=False):
            items = self(items, text)
            return F.normalize(self(text, items), dim=-1), F.normalize(items, dim=-1)
