"""X-Pool: a caption pools the frames that it attends to (Gorti et al., 2022, arXiv 2203.15086).

Computations and initialisation follow layer6ai-labs/xpool @bc88718; names of parameters do too. Two things differ.
Padded frames are masked, where upstream repeats a short clip's last frame, and frames are put in the order of their
content, since no score may depend on the order of sums.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.models.head import Features, Head, in_chunks, in_order_of_content
from rewind.models.retriever import single
from rewind.study.keys import Keys, key

PAIRS_AT_ONCE = 16384


class Options(Keys):
    """Options of the head."""

    heads: int = key(1, "Heads of the attention; they divide the towers' width.", ge=1)
    dropout: float = key(0.3, "Dropout behind the linear map of what was pooled.", ge=0, lt=1)


class Attention(nn.Module):
    """The four square maps of the attention of texts over frames."""

    def __init__(self, width: int) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(width, width))


class XPool(Head):
    """Cosine of a caption with the frames as it pools them; blind to their order.

    All maps start as the identity, without biases, so that training begins near attention by the frames' own features.
    """

    pairwise = True
    scaled = True
    Options = Options
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(self, width: int, layers: int = 0, positions: int = 0, options: Options | None = None) -> None:
        super().__init__()
        options = options or Options()
        if width % options.heads:
            raise RewindError(
                f"methods.*.options.heads: features of width {width} cannot be divided into {options.heads} heads."
            )
        self.heads, self.dropped = options.heads, options.dropout
        self.cross_attn = Attention(width)
        self.linear_proj = nn.Linear(width, width)
        self.layer_norm1, self.layer_norm2, self.layer_norm3 = (nn.LayerNorm(width) for _ in range(3))
        for layer in [*self.cross_attn.children(), self.linear_proj]:
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)

    def of_captions(self, text: Features) -> Features:
        """``text`` (n, D) as it is, and ``query`` (n, D)."""
        return {"text": text["text"], "query": single(self.cross_attn.q_proj(self.layer_norm1(text["text"])))}

    def of_clips(self, items: Features) -> Features:
        """``key`` and ``value`` (m, T, D) of the frames, and ``mask`` (m, T)."""
        frames = self.layer_norm1(in_order_of_content(items["frames"], items["mask"]))
        key, value = single(self.cross_attn.k_proj(frames)), single(self.cross_attn.v_proj(frames))
        return {"key": key, "value": value, "mask": items["mask"]}

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Cosines (len of rows, m) of the raw text features with what each text pools of each clip."""
        count, seed = len(items["mask"]), self._seed()

        def score(some: range) -> Tensor:
            part = slice(some.start, some.stop)
            raw, query = single(text["text"][part]), text["query"][part]
            drop = None if seed is None else self._kept(seed, some, count, query)
            pooled = single(self.pooled(query, items["key"], items["value"], items["mask"], drop))
            with torch.autocast(raw.device.type, enabled=False):  # scores are compared: float32 under autocast too
                return (F.normalize(raw, dim=-1).unsqueeze(1) * F.normalize(pooled, dim=-1)).sum(dim=-1)

        return in_chunks(score, rows, len(text["text"]), count, self.pairs_at_once)

    def pooled(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, drop: Tensor | None = None) -> Tensor:
        """What each text (n, D) pools of each clip (m, T, D), (n, m, D), through the last norm.

        Args:
            query, key, value, mask: see :meth:`of_captions` and :meth:`of_clips`.
            drop: what the linear map's outputs are multiplied by, (n, m, D); None: nothing is dropped.
        """
        split = lambda t: t.unflatten(-1, (self.heads, -1))  # noqa: E731 - (..., heads, D / heads)
        fit = torch.einsum("nhd,mthd->nmht", split(query), split(key)) * (query.shape[-1] // self.heads) ** -0.5
        hidden = ~mask.to(fit.device).bool()
        weights = fit.masked_fill(hidden[:, None, :], torch.finfo(fit.dtype).min).softmax(dim=-1)
        mixed = torch.einsum("nmht,mthd->nmhd", weights.to(value.dtype), split(value)).flatten(-2)
        pooled = self.layer_norm2(self.cross_attn.out_proj(mixed))
        mapped = self.linear_proj(pooled)
        return self.layer_norm3(pooled + (mapped if drop is None else mapped * drop))

    def _seed(self) -> int | None:
        """Of this call's dropout, from torch's global generator; None: nothing is dropped."""
        if not self.training or not self.dropped:
            return None
        return int(torch.randint(2**62, ()))

    def _kept(self, seed: int, rows: range, count: int, like: Tensor) -> Tensor:
        """0 or 1 / (1 - p), (len of rows, count, D): each row's from its own number, whoever computes it."""
        if not rows:
            return like.new_zeros(0, count, like.shape[-1])
        made = []
        for row in rows:
            generator = torch.Generator(like.device).manual_seed((seed + row) % 2**62)
            draws = torch.rand(count, like.shape[-1], generator=generator, device=like.device)
            made.append((draws >= self.dropped).to(like.dtype) / (1 - self.dropped))
        return torch.stack(made)
