"""WTI: every token of a caption meets every frame of a clip (DRL, Wang et al., 2022, arXiv 2203.07111).

Computations, initialisation and names of parameters follow foolwood/DRL @475f96c. Two things differ. What is padded is
left out of the maxima, where upstream lets it count as a cosine of 0, which beats every negative one
(``padding: zero`` is upstream's). Frames are put in the order of their content before they are summed.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.models.head import Features, Head, in_chunks, in_order_of_content
from rewind.models.retriever import single
from rewind.models.temporal import SeqLSTM, SeqTransf
from rewind.study.keys import Keys, key

UNDER = {"none": None, "seqLSTM": SeqLSTM, "seqTransf": SeqTransf}
STD = 0.02  # of the maps that weigh
PAIRS_AT_ONCE = 32768


class Options(Keys):
    """Options of the head."""

    frames: Literal["none", "seqLSTM", "seqTransf"] = key(
        "none",
        "Head whose frame features are met: seqTransf is upstream's, with methods.*.head_layers; none cannot "
        "see order.",
    )
    weights: Literal["learnt", "uniform"] = key(
        "learnt", "How tokens and frames are weighed: `uniform` is upstream's TI, without parameters."
    )
    depth: int = key(2, "Linear maps behind a learnt weight (upstream's `wti_arch`).", ge=1, le=3)
    padding: Literal["masked", "zero"] = key(
        "masked", "Padded tokens and frames: left out of the maxima, or with a cosine of 0 (upstream's)."
    )


class Wti(Head):
    """Half the weighted mean of each token's best frame, half that of each frame's best token, in cosines."""

    pairwise = True
    reads_words = True
    scaled = True
    Options = Options
    pairs_at_once = PAIRS_AT_ONCE

    def __init__(self, width: int, layers: int = 4, positions: int = 77, options: Options | None = None) -> None:
        super().__init__()
        options = options or Options()
        self.zero_padding = options.padding == "zero"
        if under := UNDER[options.frames]:
            self.under = under(width, layers=layers, positions=positions)
        else:
            self.under = None
        self.uniform = options.weights == "uniform"
        self.text_weight_fc, self.video_weight_fc = (
            None if self.uniform else _weigher(width, options.depth) for _ in "ab"
        )

    def of_captions(self, text: Features) -> Features:
        """``text`` (n, L, D) of unit length, ``weight`` (n, L), and the mask ``words`` (n, L)."""
        vectors, words = text["text"], text["words"]
        return {
            "text": F.normalize(single(vectors), dim=-1),
            "words": words,
            "weight": _weights(self.text_weight_fc, vectors, words),
        }

    def of_clips(self, items: Features) -> Features:
        """``video`` (m, T, D) of unit length, ``weight`` (m, T), and ``mask`` (m, T)."""
        frames, mask = items["frames"], items["mask"]
        if self.under is not None:
            frames = self.under(frames, mask)
        frames = in_order_of_content(frames, mask)
        return {
            "video": F.normalize(single(frames), dim=-1),
            "mask": mask,
            "weight": _weights(self.video_weight_fc, frames, mask),
        }

    def start_from(self, blocks: Features) -> None:
        """The head below begins from CLIP's text blocks."""
        self.under.start_from(blocks)

    @property
    def copies_text(self) -> bool:
        """Whether there is a transformer below."""
        return isinstance(self.under, SeqTransf)

    def scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        """Weighted interaction of some captions with all clips, (len of rows, m), in float32 at least."""

        def score(some: range) -> Tensor:
            captions = {name: value[some.start : some.stop] for name, value in text.items()}
            with torch.autocast(items["video"].device.type, enabled=False):
                cosines = torch.einsum("nld,mtd->nmlt", captions["text"], items["video"])
                cosines = self._padded(cosines, captions["words"].unsqueeze(1), items["mask"].unsqueeze(0))
                best_frame = torch.einsum("nml,nl->nm", cosines.amax(dim=3), captions["weight"])
                best_word = torch.einsum("nmt,mt->nm", cosines.amax(dim=2), items["weight"])
                return (best_frame + best_word) / 2

        return in_chunks(score, rows, len(text["text"]), len(items["mask"]), self.pairs_at_once)

    def matches(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """For each pair (row i of both) the best frame of every token, (n, L), and the best token of every frame."""
        cosines = self._padded(text["text"] @ items["video"].mT, text["words"], items["mask"])
        return cosines.argmax(dim=2), cosines.argmax(dim=1)

    def _padded(self, cosines: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """(..., L, T), what is padded as the options say."""
        real = words.bool().unsqueeze(-1) & mask.bool().unsqueeze(-2)
        return cosines.masked_fill(~real, 0.0 if self.zero_padding else -2.0)


def _weigher(width: int, depth: int) -> nn.Module:
    """(..., D) → (..., 1)."""
    maps = [nn.Linear(width, width) for _ in range(depth - 1)] + [nn.Linear(width, 1)]
    for layer in maps:
        nn.init.normal_(layer.weight, std=STD)
        nn.init.zeros_(layer.bias)
    if depth == 1:
        return maps[0]
    return nn.Sequential(*(part for layer in maps[:-1] for part in (layer, nn.ReLU(inplace=True))), maps[-1])


def _weights(weigher: nn.Module | None, vectors: Tensor, mask: Tensor) -> Tensor:
    """(n, L) weights of real places, which sum to 1, in float32 at least; from (n, L, D), not normalised."""
    real = mask.to(vectors.device).bool()
    if weigher is None:
        return real.to(single(vectors).dtype) / real.sum(dim=1, keepdim=True)
    raw = single(weigher(vectors).squeeze(-1))
    return raw.masked_fill(~real, torch.finfo(raw.dtype).min).softmax(dim=1)
