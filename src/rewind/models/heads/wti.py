"""WTI (weighted token-wise interaction): every token of a caption is compared with every frame of a clip.

With t the tokens and v the frames, of unit length, and u and w their softmax weights:
``s = ½ Σᵢ uᵢ maxⱼ tᵢ·vⱼ + ½ Σⱼ wⱼ maxᵢ tᵢ·vⱼ``.

Source: DRL, Wang et al., 2022, arXiv 2203.07111; computations, initialisation and names of parameters follow
foolwood/DRL @475f96c. Two things differ. Padding is left out of the maxima; upstream lets it count as a cosine of 0,
which is larger than every negative one (``padding: zero`` does as upstream). Frames are sorted by their content before
they are summed.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.config.base import ConfigModel, config_field
from rewind.models.heads.base import Head, score_in_chunks, sort_by_content
from rewind.models.heads.clip4clip import SeqLSTM, SeqTransf
from rewind.models.retriever import Features, at_least_float32
from rewind.registry import HEADS

FRAME_HEADS: dict[str, type[SeqLSTM] | type[SeqTransf] | None] = {
    "none": None,
    "seqLSTM": SeqLSTM,
    "seqTransf": SeqTransf,
}
WEIGHT_INIT_STD = 0.02  # of the networks that compute the weights u and w
PAIRS_AT_ONCE = 32768  # in training, at most


class WtiOptions(ConfigModel):
    """``methods.*.options`` of ``head: wti``."""

    frames: Literal["none", "seqLSTM", "seqTransf"] = config_field(
        "none",
        "Head whose frame features are met: seqTransf is upstream's, with methods.*.head_layers; none cannot "
        "see order.",
    )
    weights: Literal["learnt", "uniform"] = config_field(
        "learnt", "How tokens and frames are weighed: `uniform` is upstream's TI, without parameters."
    )
    depth: int = config_field(2, "Linear maps behind a learnt weight (upstream's `wti_arch`).", ge=1, le=3)
    padding: Literal["masked", "zero"] = config_field(
        "masked", "Padded tokens and frames: left out of the maxima, or with a cosine of 0 (upstream's)."
    )


@HEADS.register("wti", tags=("transformer",))
class Wti(Head):
    """Half the weighted mean of each token's best cosine with a frame, half that of each frame's with a token.

    >>> head = Wti(width=64)
    >>> text = head.of_captions({"text": torch.rand(3, 7, 64), "words": torch.ones(3, 7)})
    >>> items = head.of_clips({"frames": torch.rand(2, 5, 64), "mask": torch.ones(2, 5)})
    >>> head.scores(text, items, slice(None)).shape
    torch.Size([3, 2])
    """

    pairwise = True
    reads_words = True
    scaled = True
    Options = WtiOptions
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(
        self,
        width: int,
        layers: int = 4,
        positions: int = 77,
        options: WtiOptions | None = None,
    ) -> None:
        super().__init__()
        options = options or WtiOptions()
        self.zero_padding = options.padding == "zero"
        kind = FRAME_HEADS[options.frames]
        self.under = kind(width, layers=layers, positions=positions) if kind else None
        self.uniform = options.weights == "uniform"
        self.text_weight_fc, self.video_weight_fc = (
            None if self.uniform else _weight_network(width, options.depth) for _ in range(2)
        )

    def of_captions(self, text: Features) -> Features:
        """``text`` (n, L, D) of unit length, ``weight`` (n, L), and the mask ``words`` (n, L)."""
        vectors, words = text["text"], text["words"]
        return {
            "text": F.normalize(at_least_float32(vectors), dim=-1),
            "words": words,
            "weight": _weights(self.text_weight_fc, vectors, words),
        }

    def of_clips(self, items: Features) -> Features:
        """``video`` (m, T, D) of unit length, ``weight`` (m, T), and ``mask`` (m, T)."""
        frames, mask = items["frames"], items["mask"]
        if self.under is not None:
            frames = self.under(frames, mask)
        # Behind the temporal head, which is to see the order.
        frames = sort_by_content(frames, mask)
        return {
            "video": F.normalize(at_least_float32(frames), dim=-1),
            "mask": mask,
            "weight": _weights(self.video_weight_fc, frames, mask),
        }

    def start_from(self, blocks: Features) -> None:
        if self.under is not None:
            self.under.start_from(blocks)

    @property
    def copies_text(self) -> bool:
        return isinstance(self.under, SeqTransf)

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Weighted interaction of some captions with all clips, (len of rows, m), in float32 at least."""

        def score(chunk: range) -> Tensor:
            captions = {name: value[chunk.start : chunk.stop] for name, value in text.items()}
            # Half precision would round the cosines of different items to the same number.
            with torch.autocast(items["video"].device.type, enabled=False):
                cosines = torch.einsum("nld,mtd->nmlt", captions["text"], items["video"])
                cosines = self._padded(cosines, captions["words"].unsqueeze(1), items["mask"].unsqueeze(0))
                best_frame = torch.einsum("nml,nl->nm", cosines.amax(dim=3), captions["weight"])  # Σᵢ uᵢ maxⱼ tᵢ·vⱼ
                best_word = torch.einsum("nmt,mt->nm", cosines.amax(dim=2), items["weight"])  # Σⱼ wⱼ maxᵢ tᵢ·vⱼ
                return (best_frame + best_word) / 2

        return score_in_chunks(score, rows, len(text["text"]), len(items["mask"]), self.pairs_at_once)

    def matches(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """For pairs (row i of both) the best frame of every token, (n, L), and best token of every frame, (n, T)."""
        cosines = self._padded(text["text"] @ items["video"].mT, text["words"], items["mask"])
        return cosines.argmax(dim=2), cosines.argmax(dim=1)

    def _padded(self, cosines: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """Cosines (..., L, T), those of padding as the options state."""
        real = words.bool().unsqueeze(-1) & mask.bool().unsqueeze(-2)
        # −2 is below every cosine, so padding is never the best. Its own rows and columns have weight 0.
        return cosines.masked_fill(~real, 0.0 if self.zero_padding else -2.0)


def _weight_network(width: int, depth: int) -> nn.Module:
    """A network that gives a token or frame (..., D) its weight before the softmax, (..., 1)."""
    maps = [nn.Linear(width, width) for _ in range(depth - 1)] + [nn.Linear(width, 1)]
    for layer in maps:
        nn.init.normal_(layer.weight, std=WEIGHT_INIT_STD)
        nn.init.zeros_(layer.bias)
    if depth == 1:
        return maps[0]
    return nn.Sequential(*(part for layer in maps[:-1] for part in (layer, nn.ReLU(inplace=True))), maps[-1])


def _weights(weigher: nn.Module | None, vectors: Tensor, mask: Tensor) -> Tensor:
    """Weights (n, L) of real tokens or frames (n, L, D), not normalised; they sum to 1, in float32 at least."""
    real = mask.to(vectors.device).bool()
    if weigher is None:
        return real.to(at_least_float32(vectors).dtype) / real.sum(dim=1, keepdim=True)
    layers: list[Any] = list(weigher) if isinstance(weigher, nn.Sequential) else [weigher]
    for layer in layers[:-1]:
        vectors = layer(vectors)
    # Not a product of one column: BLAS rounds its rows by their place in a batch, and a clip must tie with its mirror.
    logits = (at_least_float32(vectors) * layers[-1].weight).sum(dim=-1) + layers[-1].bias
    return logits.masked_fill(~real, torch.finfo(logits.dtype).min).softmax(dim=1)
