"""X-Pool: a caption pools the frames that it attends to (Gorti et al., 2022, arXiv 2203.15086).

With c a caption's vector and f the frames of a clip: ``q = W_Q LN(c)``, ``K = W_K LN(f)``, ``V = W_V LN(f)``,
``r = LN(W_O softmax(q Kᵀ / √D) V)``, ``z = LN(r + FC(r))``, and the score is ``cos(c, z)``.

Computations, initialisation and names of parameters follow layer6ai-labs/xpool @bc88718. Two things differ. Padded
frames are masked, where upstream repeats a short clip's last frame. And frames are sorted by their content, because
no score may depend on the order in which terms are summed.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.config.base import ConfigModel, config_field
from rewind.errors import RewindError
from rewind.models.heads.base import Head, score_in_chunks, sort_by_content
from rewind.models.retriever import Features, at_least_float32
from rewind.registry import HEADS

PAIRS_AT_ONCE = 16384  # in training, at most


class XPoolOptions(ConfigModel):
    """``methods.*.options`` of ``head: xpool``."""

    heads: int = config_field(1, "Heads of the attention; they divide the towers' width.", ge=1)
    dropout: float = config_field(0.3, "Dropout behind the linear map of what was pooled.", ge=0, lt=1)


class Attention(nn.Module):
    """The four square maps of the attention of texts over frames: W_Q, W_K, W_V and W_O."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))


@HEADS.register("xpool")
class XPool(Head):
    """Cosine of a caption with the frames as it pools them; blind to their order.

    All maps start as the identity with biases of 0, so that training begins with attention by the features themselves.

    >>> head = XPool(width=64).eval()
    >>> text = head.of_captions({"text": torch.rand(3, 64)})
    >>> items = head.of_clips({"frames": torch.rand(2, 5, 64), "mask": torch.ones(2, 5)})
    >>> head.scores(text, items, slice(None)).shape
    torch.Size([3, 2])
    """

    pairwise = True
    scaled = True
    Options = XPoolOptions
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(
        self,
        width: int,
        layers: int = 0,
        positions: int = 0,
        options: XPoolOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or XPoolOptions()
        if width % options.heads:
            raise RewindError(
                f"methods.*.options.heads: features of width {width} cannot be divided into {options.heads} heads."
            )
        self.heads, self.dropped = options.heads, options.dropout
        self.cross_attn = Attention(width)
        self.linear_proj = nn.Linear(width, width)
        self.layer_norm1, self.layer_norm2, self.layer_norm3 = (nn.LayerNorm(width) for _ in range(3))
        attention = self.cross_attn
        for layer in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj, self.linear_proj):
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def of_captions(self, text: Features) -> Features:
        """``text`` (n, D) as it is, and ``query`` (n, D)."""
        return {"text": text["text"], "query": at_least_float32(self.cross_attn.q_proj(self.layer_norm1(text["text"])))}

    def of_clips(self, items: Features) -> Features:
        """``key`` and ``value`` (m, T, D) of the frames, and ``mask`` (m, T)."""
        # As upstream, frames go through the same norm as captions.
        frames = self.layer_norm1(sort_by_content(items["frames"], items["mask"]))
        key, value = at_least_float32(self.cross_attn.k_proj(frames)), at_least_float32(self.cross_attn.v_proj(frames))
        return {"key": key, "value": value, "mask": items["mask"]}

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Cosines (len of rows, m) of the raw text features with what each text pools of each clip."""
        # One draw for each call, whatever its rows are, so that the generators of all processes move alike.
        count, seed = len(items["mask"]), self._seed()

        def score(chunk: range) -> Tensor:
            part = slice(chunk.start, chunk.stop)
            raw, query = at_least_float32(text["text"][part]), text["query"][part]
            drop = None if seed is None else self._dropout_factors(seed, chunk, count, query)
            pooled = at_least_float32(self.pooled(query, items["key"], items["value"], items["mask"], drop))
            with torch.autocast(raw.device.type, enabled=False):  # scores are compared: float32 under autocast too
                return (F.normalize(raw, dim=-1).unsqueeze(1) * F.normalize(pooled, dim=-1)).sum(dim=-1)

        return score_in_chunks(score, rows, len(text["text"]), count, self.pairs_at_once)

    def pooled(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, drop: Tensor | None = None) -> Tensor:
        """What each text (n, D) pools of each clip (m, T, D), (n, m, D), through the last norm.

        ``drop``: dropout's factors on the outputs of FC, (n, m, D); None: nothing is dropped.
        """

        def split(x: Tensor) -> Tensor:
            return x.unflatten(-1, (self.heads, -1))

        logits = torch.einsum("nhd,mthd->nmht", split(query), split(key)) * (query.shape[-1] // self.heads) ** -0.5
        hidden = ~mask.to(logits.device).bool()
        # (m, T) as (m, 1, T): the same for all texts and heads.
        weights = logits.masked_fill(hidden[:, None, :], torch.finfo(logits.dtype).min).softmax(dim=-1)
        attended = torch.einsum("nmht,mthd->nmhd", weights.to(value.dtype), split(value)).flatten(-2)
        pooled = self.layer_norm2(self.cross_attn.out_proj(attended))
        mapped = self.linear_proj(pooled)
        return self.layer_norm3(pooled + (mapped if drop is None else mapped * drop))

    def _seed(self) -> int | None:
        """Seed of this call's dropout, from torch's global generator; None: nothing is dropped."""
        if not self.training or not self.dropped:
            return None
        return int(torch.randint(2**62, ()))

    def _dropout_factors(self, seed: int, rows: range, count: int, like: Tensor) -> Tensor:
        """0 or 1 / (1 - p), (len of rows, count, D), of each row from a generator of its own.

        So a row's dropout does not depend on the chunk or process that computes it, and is the same when a chunk's
        activations are recomputed in the backward pass.
        """
        if not rows:
            return like.new_zeros(0, count, like.shape[-1])
        factors = []
        for row in rows:
            generator = torch.Generator(like.device).manual_seed((seed + row) % 2**62)
            draws = torch.rand(count, like.shape[-1], generator=generator, device=like.device)
            factors.append((draws >= self.dropped).to(like.dtype) / (1 - self.dropped))
        return torch.stack(factors)
