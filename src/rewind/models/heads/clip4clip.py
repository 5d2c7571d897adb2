"""CLIP4Clip's four temporal heads over per-frame features (Luo et al., 2022, sections 3.3 and 3.4).

Computations, names of parameters and initialisation follow ArrowLuo/CLIP4Clip @508ffa3, so that its checkpoints fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rewind.errors import RewindError
from rewind.models.autocast import quick_gelu, quick_gelu_layers
from rewind.models.heads.base import Head
from rewind.models.lstm import Lstm
from rewind.models.retriever import at_least_float32
from rewind.registry import HEADS

LN_EPS = 1e-12  # of the heads' layer norms; CLIP's own towers use 1e-5
PAIRS_AT_ONCE = 4096  # of tightTransf in training, at most


class Block(nn.Module):
    """Pre-norm transformer block with QuickGELU, bidirectional, no dropout.

    >>> block = Block(width=64, heads=1)
    >>> block(torch.zeros(2, 5, 64), torch.ones(2, 5)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_1 = nn.LayerNorm(width, eps=LN_EPS)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})
        self.ln_2 = nn.LayerNorm(width, eps=LN_EPS)

    def forward(self, x: Tensor, mask: Tensor, queries: int | None = None) -> Tensor:
        """(n, L, D) and mask (n, L) → (n, L, D); with ``queries`` only this many first positions are computed."""
        return self.attend(x, *self.project(x), mask, queries)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of every position, each (..., L, D); they depend on that position alone."""
        q, k, v = F.linear(self.ln_1(x), self.attn.in_proj_weight, self.attn.in_proj_bias).chunk(3, dim=-1)
        return q, k, v

    def attend(self, x: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, queries: int | None = None) -> Tensor:
        """The rest of the block, given the projections."""
        x, q = x[:, :queries], q[:, :queries]
        heads = self.attn.num_heads

        def split(t: Tensor) -> Tensor:
            return t.unflatten(-1, (heads, -1)).transpose(1, 2)

        # Upstream adds −1e6 to the scores of padded keys; leaving these out is the same in float32, and cannot overflow
        # in half precision.
        keep = mask.bool()[:, None, None, :]  # the same for all heads and queries
        attended = F.scaled_dot_product_attention(split(q), split(k), split(v), attn_mask=keep)
        x = x + self.attn.out_proj(attended.transpose(1, 2).flatten(2))
        return x + quick_gelu_layers(self.ln_2(x), self.mlp["c_fc"], self.mlp["c_proj"])


class Transformer(nn.Module):
    """A stack of blocks under upstream's name (``resblocks``); the heads call the blocks one by one."""

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(Block(width, heads) for _ in range(layers))


@HEADS.register("meanP")
class MeanP(Head):
    """Parameter-free (meanP): frames are averaged as they are."""

    def __init__(self, width: int, layers: int = 0, positions: int = 0) -> None:
        super().__init__()

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        return frames


@HEADS.register("seqLSTM")
class SeqLSTM(Head):
    """One unidirectional LSTM layer over the real frames, plus a residual: ``x + LSTM(x)``.

    >>> SeqLSTM(width=64)(torch.rand(2, 5, 64), torch.ones(2, 5)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(self, width: int, layers: int = 1, positions: int = 77) -> None:
        super().__init__()
        self.lstm_visual = Lstm(width, width, num_layers=1, batch_first=True)

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        # Upstream packs real frames, and padding keeps its input, to which the residual adds it once more (hence 2x).
        # The LSTM runs forward and padding comes last, so real steps cannot see padding: no packing is needed.
        hidden, _ = self.lstm_visual(frames)
        return torch.where(mask.bool().unsqueeze(-1), hidden + frames, 2 * frames)


@HEADS.register("seqTransf", tags=("transformer",))
class SeqTransf(Head):
    """Learned positions P and a small transformer over the frames, plus a residual: ``x + Transformer(x + P)``.

    >>> SeqTransf(width=64, layers=1)(torch.rand(2, 5, 64), torch.ones(2, 5)).shape
    torch.Size([2, 5, 64])
    """

    def __init__(self, width: int, layers: int = 4, positions: int = 77) -> None:
        super().__init__()
        self.frame_position_embeddings = nn.Embedding(positions, width)
        self.transformerClip = Transformer(width, layers, max(1, width // 64))  # heads of width 64, as in CLIP

    def forward(self, frames: Tensor, mask: Tensor) -> Tensor:
        x = frames + position_rows(self.frame_position_embeddings, 0, frames.shape[1])
        for block in self.transformerClip.resblocks:
            x = block(x, mask)
        # The residual is without the positions, and no norm follows the last block.
        return x + frames

    def start_from(self, text: dict[str, Tensor]) -> None:
        """Begin as a copy of CLIP's text positions and first text blocks, as upstream does."""
        _copy(text, self.frame_position_embeddings, self.transformerClip)


@HEADS.register("tightTransf", tags=("transformer",))
class TightTransf(Head):
    """A cross encoder over one pooled text token and the frame tokens; it scores pairs, without a logit scale.

    >>> head = TightTransf(width=64, layers=1).eval()
    >>> head.pairs(torch.rand(3, 64), torch.rand(2, 5, 64), torch.ones(2, 5)).shape
    torch.Size([3, 2])
    """

    pairwise = True
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(self, width: int, layers: int = 4, positions: int = 77) -> None:
        super().__init__()
        self.position_embeddings = nn.Embedding(positions, width)
        self.transformer = Transformer(width, layers, max(1, width // 64))
        self.ln_pool = nn.LayerNorm(width, eps=LN_EPS)
        self.dense = nn.Linear(width, width)
        self.similarity_dense = nn.Linear(width, 1)
        self.dropout = nn.Dropout(0.1)
        for layer in (self.dense, self.similarity_dense):
            nn.init.normal_(layer.weight, std=0.02)  # upstream's initializer_range, which is BERT's
            nn.init.zeros_(layer.bias)

    def pairs(self, text: Tensor, frames: Tensor, mask: Tensor) -> Tensor:
        return self.pair_rows(text, frames, mask, slice(None))

    def pair_rows(self, text: Tensor, frames: Tensor, mask: Tensor, rows: slice) -> Tensor:
        """Logits (r, m) of r texts with all clips, float32 under autocast too.

        Random numbers are drawn for all n texts, so that rows computed by several processes are those of one.
        """
        # Position 0 is the text's. Dropout and the first block's projections look at only one token, so they are
        # computed once per text and clip, and not once per pair (upstream draws dropout for every pair).
        left = self.dropout(text.unsqueeze(1) + position_rows(self.position_embeddings, 0, 1))[rows]
        right = self.dropout(frames + position_rows(self.position_embeddings, 1, frames.shape[1]))
        first = cast(Block, self.transformer.resblocks[0])
        texts, items = (left, *first.project(left)), (right, *first.project(right))
        # Chunks of at most `pairs_at_once` pairs: `high` texts by `wide` clips.
        wide = min(self.pairs_at_once, max(1, len(frames)))
        high = max(1, self.pairs_at_once // wide)
        if not torch.is_grad_enabled() or (len(left) <= high and len(frames) <= wide):
            return self._cross(texts, items, mask)
        # Exact, because pairs do not depend on one another. Each chunk's activations are computed again in the backward
        # pass; nothing random happens inside, so no state of generators need be kept.
        run = partial(checkpoint, self._cross, use_reentrant=False, preserve_rng_state=False)
        across = [(_rows(items, at, wide), mask[at : at + wide]) for at in range(0, len(frames), wide)]
        down = [_rows(texts, at, high) for at in range(0, len(left), high)]
        return torch.cat(
            [torch.cat([run(texts_part, *items_part) for items_part in across], dim=1) for texts_part in down]
        )

    def _cross(self, texts: tuple[Tensor, ...], items: tuple[Tensor, ...], mask: Tensor) -> Tensor:
        """(n, m) logits from each side's tokens and their first projections, (n, 1, D) and (m, T, D)."""
        n, m = len(texts[0]), len(items[0])
        blocks = cast("Sequence[Block]", self.transformer.resblocks)

        def join(a: Tensor, b: Tensor) -> Tensor:
            """Tokens of all pairs, (n · m, 1 + T, …)."""
            sides = [a.unsqueeze(1).expand(n, m, *a.shape[1:]), b.unsqueeze(0).expand(n, m, *b.shape[1:])]
            return torch.cat(sides, dim=2).flatten(0, 1)

        # The text's token is never padding.
        keep = join(mask.new_ones(n, 1, 1), mask.unsqueeze(-1)).squeeze(-1)
        query, key, value = (join(a, b) for a, b in zip(texts[1:], items[1:], strict=True))
        last = len(blocks) - 1  # of which only position 0 is computed, because only that is read
        x = blocks[0].attend(join(texts[0], items[0]), query, key, value, keep, queries=1 if last == 0 else None)
        for number, block in enumerate(blocks[1:], start=1):
            x = block(x, keep, queries=1 if number == last else None)
        pooled = quick_gelu(self.dense(self.ln_pool(x[:, 0])))
        with torch.autocast(pooled.device.type, enabled=False):  # scores are compared: float32 under autocast too
            return self.similarity_dense(at_least_float32(pooled)).view(n, m)

    def start_from(self, text: dict[str, Tensor]) -> None:
        _copy(text, self.position_embeddings, self.transformer)


def _rows(parts: tuple[Tensor, ...], at: int, count: int) -> tuple[Tensor, ...]:
    return tuple(part[at : at + count] for part in parts)


def position_rows(table: nn.Embedding, first: int, count: int) -> Tensor:
    """Rows ``first`` to ``first + count`` (exclusive) of a table of positions."""
    if first + count > len(table.weight):
        raise RewindError(
            f"frames.max_frames: a clip has {count} frames, but this head has learned positions for only "
            f"{len(table.weight) - first} (CLIP4Clip's table): lower the key, or use meanP or seqLSTM."
        )
    return table.weight[first : first + count]


def _copy(text: dict[str, Tensor], positions: nn.Embedding, transformer: Transformer) -> None:
    # The paper says that these parameters come from the image encoder; upstream's code takes the text encoder's.
    table = text["positional_embedding"]
    rows = min(len(table), len(positions.weight))
    state = {
        name.removeprefix("transformer."): value for name, value in text.items() if name.startswith("transformer.")
    }
    parameters = dict(transformer.named_parameters())
    wrong = [name for name in parameters if name not in state or state[name].shape != parameters[name].shape]
    if wrong:
        raise RewindError(
            f"methods.*.head_start: this backbone's text blocks differ in structure from the head's ({wrong[0]}): set "
            "head_start: random."
        )
    with torch.no_grad():
        positions.weight[:rows] = table[:rows]
        for name, parameter in parameters.items():
            parameter.copy_(state[name])
