"""MiniCLIP's text towers, on token ids that are 0 after the last word.

Names of parameters are upstream's (SoroushRaeisian/miniclip), so that its state dicts load.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from rewind.models.lstm import Lstm


class LstmText(nn.Module):
    """Two bidirectional LSTM layers; the last forward and backward states under a small projection.

    Args:
        vocabulary: number of token ids.
        width: of the result.
        word_width, hidden, layers: of the embedding and the LSTM.
        dropout: between LSTM layers and inside the projection.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 256,
        word_width: int = 128,
        hidden: int = 256,
        layers: int = 2,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, word_width, padding_idx=0)
        self.lstm = Lstm(word_width, hidden, layers, batch_first=True, bidirectional=True, dropout=dropout)
        self.layer_norm = nn.LayerNorm(2 * hidden)
        self.projection = nn.Sequential(
            nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, width)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """int64 (n, L) → (n, width), not normalised. A caption without words is one padding token."""
        packed = pack_padded_sequence(self.embedding(ids), lengths(ids).cpu(), batch_first=True, enforce_sorted=False)
        _, (states, _) = self.lstm(packed)  # the last layer's two directions come last
        return self.projection(self.layer_norm(torch.cat([states[-2], states[-1]], dim=1)))


class TransformerText(nn.Module):
    """Two pre-norm transformer layers over a class token and the words; the class token under a small projection.

    Args:
        vocabulary: number of token ids.
        width: of the result.
        word_width, heads, layers: of the transformer.
        most_words: longest caption in tokens.
        dropout: in the transformer, on positions, and inside the projection.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int = 256,
        word_width: int = 128,
        heads: int = 4,
        layers: int = 2,
        most_words: int = 32,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(0.02 * torch.randn(1, 1, word_width))
        self.embedding = nn.Embedding(vocabulary, word_width, padding_idx=0)
        self.pos_encoding = Positions(most_words + 1, word_width, dropout)
        layer = nn.TransformerEncoderLayer(
            word_width, heads, 4 * word_width, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.transformer = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.layer_norm = nn.LayerNorm(word_width)
        self.projection = nn.Sequential(
            nn.Linear(word_width, word_width), nn.GELU(), nn.Dropout(dropout), nn.Linear(word_width, width)
        )

    def forward(self, ids: Tensor) -> Tensor:
        """int64 (n, L) → (n, width), not normalised. A caption without words attends to one padding token."""
        words = torch.cat([self.cls_token.expand(len(ids), -1, -1), self.embedding(ids)], dim=1)
        place = torch.arange(words.shape[1], device=ids.device)
        padding = place > lengths(ids)[:, None]
        return self.projection(
            self.layer_norm(self.transformer(self.pos_encoding(words), src_key_padding_mask=padding)[:, 0])
        )


class Positions(nn.Module):
    """Adds fixed sines and cosines of the position; position 0 is the class token."""

    def __init__(self, length: int, width: int, dropout: float) -> None:
        super().__init__()
        place = torch.arange(length)[:, None]
        turn = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
        table = torch.stack([torch.sin(place * turn), torch.cos(place * turn)], dim=2).flatten(1)
        self.register_buffer("pe", table[None])
        self.dropout = nn.Dropout(dropout)

    def forward(self, words: Tensor) -> Tensor:
        """(n, L, d) with its positions added; L is at most ``length``."""
        return self.dropout(words + self.pe[:, : words.shape[1]])


def lengths(ids: Tensor) -> Tensor:
    """Tokens of each caption, (n,), at least 1."""
    return ids.ne(0).sum(dim=1).clamp(min=1)


TOWERS = {"lstm": LstmText, "transformer": TransformerText}
