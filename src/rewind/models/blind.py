"""Baselines that see too little to answer Binary: one side of a pair, both sides but not together, or a single frame.

- ``caption_only`` scores how much a caption sounds like that of a clip that was not reversed, whatever clip it meets.
- ``clip_only`` scores how much a clip looks as if it ran forward, whatever caption searches it.
- ``blind_product`` multiplies the two scores: it is right if both are right about the direction, or both wrong, so that
  accuracies p and q of the two give pq + (1 − p)(1 − q) without any alignment of language and vision.
- ``single_frame`` compares a caption with one frame of each clip, which has no order.

In Binary every query is about an original: its caption, with the clip and its twin (text to item), or the clip, with
its own caption and the twin's (item to text). So ``clip_only`` by itself reaches p from text to item, and
``caption_only`` q from item to text. What a method scores beyond the best of these it knows of language and vision
together.

All are fitted on the training split; what is left to choose is chosen on validation. Comparable baselines: language
models that see no picture (SugarCrepe, arXiv 2306.14610; 2306.01879), one frame of a clip (ATP, 2206.01720).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.data.annotations import twin_of
from rewind.data.caption_direction import term_log_odds, words_and_bigrams
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.baselines import RowNumberSource, check_baseline_options
from rewind.models.direction import direction_scores, fit_direction, frame_sequence
from rewind.models.registry import build_backbone
from rewind.models.retriever import Features, Retriever, decode_names
from rewind.registry import MODELS

Validate = Callable[[Retriever], dict[str, float]]
"""A retriever → its scores on validation in Binary, see :func:`rewind.training.run.make_validator`."""
TEXT_TO_ITEM_ACCURACY, ITEM_TO_TEXT_ACCURACY = "valid_R@1", "valid_item_to_text R@1"


class DirectedSplit(Protocol):
    """What a fit needs of a split, such as :class:`rewind.loading.run_data.PreparedSplit`."""

    items: pd.DataFrame  # item_id, reversed
    captions: pd.DataFrame  # video_id, caption
    inputs: Any  # has ``batch(rows)``, with ``frames`` and ``mask`` of items


class BlindBaseline(Retriever):
    """A baseline that is fitted on whole splits, and evaluated only in Binary."""

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        """Fit on the training split; choose on validation. Frames are features of the backbone, if it has one."""
        raise NotImplementedError

    def similarity(self, text: Features, items: Features) -> Tensor:
        """The product of ``text`` (n, D) and ``items`` (m, D), float32 (n, m)."""
        return (text["text"] @ items["items"].T).float()

    def _best(
        self, candidates: tuple[float, ...], fit: Callable[[float], object], validate: Validate, score: str
    ) -> None:
        """Fit the candidate with the best score on validation; of equal ones the last."""

        def fitted_score(candidate: float) -> float:
            fit(candidate)
            return validate(self)[score]

        fit(max(reversed(candidates), key=fitted_score))  # max takes the first of equals


def directed_clips(items: pd.DataFrame, captions: pd.DataFrame, split: str = "training") -> pd.DataFrame:
    """The items with captions of both directions: rows of ``items``, in their order; an error if there are none.

    Originals whose twin is not described differ in what they show, and a fit would take that for direction.

    >>> items = pd.DataFrame({"item_id": ["a", "b", "a_rev"], "reversed": [0, 0, 1]})
    >>> directed_clips(items, pd.DataFrame({"video_id": ["a", "b", "a_rev"]}))["item_id"].tolist()
    ['a', 'a_rev']
    """
    described = set(items["item_id"]) & set(captions["video_id"])
    originals = {item for item in described if twin_of(item) in described}
    both = items["item_id"].isin(originals | {twin_of(item) for item in originals})
    if not originals:
        raise RewindError(
            f"no clip of the {split} split has captions of both directions, its own and its time-reversed twin's: "
            f"there is nothing to learn the direction from. Add reversed captions to the {split} split, or remove the "
            "method."
        )
    return items[both]


# ---- model: caption_only – naive Bayes on words and pairs of neighbouring words -------------------------------------

SMOOTHING = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Pseudo-counts of naive Bayes that are tried on validation."""


class CaptionOnly(BlindBaseline):
    """How much more likely a caption's words and bigrams are in captions of originals than in those of twins.

    >>> model = CaptionOnly(["a door opens", "a door closes"])
    >>> model.from_captions(pd.DataFrame({"item_id": ["a"]}), pd.DataFrame({"caption": ["a door"]}))[1].shape
    torch.Size([1, 3])
    """

    weight: Tensor

    def __init__(self, captions: list[str]) -> None:
        super().__init__()
        terms = sorted({term for caption in captions for term in words_and_bigrams(caption)})
        self.number = {term: number for number, term in enumerate(terms, start=1)}  # 0 is padding
        self.register_buffer("weight", torch.zeros(len(terms) + 1, dtype=torch.float64))

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        """Row numbers of items, and int64 (n, L) numbers of each caption's known terms, 0 behind them."""
        return RowNumberSource(len(items)), self.term_numbers(captions["caption"].tolist())

    def term_numbers(self, captions: list[str]) -> Tensor:
        terms = [
            [self.number[term] for term in words_and_bigrams(caption) if term in self.number] for caption in captions
        ]
        numbers = torch.zeros(len(terms), max([1, *map(len, terms)]), dtype=torch.long)
        for row, known in zip(numbers, terms, strict=True):
            row[: len(known)] = torch.tensor(known, dtype=torch.long)
        return numbers

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        """Naive Bayes of :mod:`rewind.data.caption_direction`; its pseudo-count is chosen on validation."""
        clips = directed_clips(train.items, train.captions).set_index("item_id")["reversed"]
        used = train.captions[train.captions["video_id"].isin(clips.index)]
        is_twin = clips[used["video_id"]].to_numpy() == 1
        forward, backward = (used["caption"][is_twin == side].tolist() for side in (False, True))

        def fit(pseudo_count: float) -> None:
            for term, odds in term_log_odds(forward, backward, pseudo_count).items():
                self.weight[self.number[term]] = odds

        self._best(SMOOTHING, fit, validate, ITEM_TO_TEXT_ACCURACY)

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, L), or ``captions`` (n, bytes) → ``text`` (n, 1): the log-odds that the clip is not a twin."""
        numbers = batch["text"]
        if "captions" in batch:  # next to a model that reads clips, whose backbone prepares the captions differently
            numbers = self.term_numbers(decode_names(batch["captions"])).to(self.weight.device)
        return {"text": self.weight[numbers].sum(dim=1, keepdim=True)}

    def encode_items(self, batch: Features) -> Features:
        """Ones, ``items`` (n, 1): all clips are the same to it."""
        return {"items": _ones(next(iter(batch.values())))}


# ---- model: clip_only – a linear probe for the direction, on features of all frames of frozen towers ----------------

PROBE_POSITIONS = 8
"""Moments of a clip whose features the probe sees: the same number for any number of frames."""


class ClipOnly(BlindBaseline):
    """How much a clip looks as if it ran forward: a linear probe on features of :data:`PROBE_POSITIONS` moments.

    >>> from rewind.models.embeddings import EmbeddingTowers
    >>> ClipOnly(EmbeddingTowers(text_width=8, item_width=4, width=4)).weight.shape
    torch.Size([32])
    """

    backbone: Backbone
    weight: Tensor
    bias: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.register_buffer("weight", torch.zeros(PROBE_POSITIONS * backbone.feature_width, dtype=torch.float64))
        self.register_buffer("bias", torch.zeros((), dtype=torch.float64))

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        """:func:`rewind.models.direction.fit_direction`, its strength chosen on validation."""
        sides = [_clip_features(train, "training"), _clip_features(valid, "validation")]
        weight, bias = fit_direction(*sides[0], *sides[1], where=type(self).__name__)
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.fill_(bias)

    def encode_text(self, batch: Features) -> Features:
        """Ones, ``text`` (n, 1): all captions are the same to it."""
        return {"text": _ones(batch["text"])}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, F) or ``pixels`` (n, T, 3, S, S), and ``mask`` → ``items`` (n, 1): above 0 if forward."""
        frames = _frame_features(self.backbone, batch)
        sequence = frame_sequence(frames.float().cpu().numpy(), batch["mask"].cpu().numpy(), PROBE_POSITIONS)
        scores = direction_scores(sequence, self.weight.cpu().numpy(), float(self.bias))
        return {"items": torch.from_numpy(scores).to(frames.device)[:, None]}


def _clip_features(split: DirectedSplit, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features (n, D) of the clips of which both directions are described, and which of them run backward."""
    clips = directed_clips(split.items, split.captions, name)
    batch = split.inputs.batch(np.flatnonzero(split.items["item_id"].isin(clips["item_id"])))
    sequence = frame_sequence(batch["frames"].float().numpy(), batch["mask"].numpy(), PROBE_POSITIONS)
    return sequence, clips["reversed"].to_numpy()


def _frame_features(backbone: Backbone, batch: Features) -> Tensor:
    return batch["frames"] if "frames" in batch else backbone.clip_features(batch["pixels"], batch["mask"])


def _ones(like: Tensor) -> Tensor:
    return torch.ones(len(like), 1, dtype=torch.float64, device=like.device)


# ---- model: blind_product – both, each without the other ------------------------------------------------------------


class BlindProduct(BlindBaseline):
    """The score of ``caption_only`` times that of ``clip_only``: no word meets a frame."""

    reads_ids = True  # the words of captions are read in addition to what the backbone prepares of them

    def __init__(self, backbone: Backbone, captions: list[str]) -> None:
        super().__init__()
        self.captions, self.clips = CaptionOnly(captions), ClipOnly(backbone)

    @property
    def backbone(self) -> Backbone:  # type: ignore[override]  # stored once, as a part of ClipOnly
        return self.clips.backbone

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        self.captions.fit_splits(train, valid, validate)
        self.clips.fit_splits(train, valid, validate)

    def encode_text(self, batch: Features) -> Features:
        return self.captions.encode_text(batch)

    def encode_items(self, batch: Features) -> Features:
        return self.clips.encode_items(batch)


# ---- model: single_frame – the caption against one frame, by the cosine of the towers ------------------------------


class SingleFrame(BlindBaseline):
    """Cosine of a caption and the frame at one moment of each clip, the same moment of all, in the towers' space."""

    backbone: Backbone
    moment: Tensor

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone.requires_grad_(False)
        self.register_buffer("moment", torch.tensor(0.5, dtype=torch.float64))

    def fit_splits(self, train: DirectedSplit, valid: DirectedSplit, validate: Validate) -> None:
        """Nothing is fitted: the moment, from the first frame (0) to the last (1), is chosen on validation."""
        moments = tuple(float(moment) for moment in np.linspace(0, 1, PROBE_POSITIONS))
        self._best(moments, self.moment.fill_, validate, TEXT_TO_ITEM_ACCURACY)

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, …), prepared → ``text`` (n, D), of unit length."""
        return {"text": F.normalize(self.backbone.encode_text(batch["text"]).float(), dim=-1)}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, F) or ``pixels`` (n, T, 3, S, S), and ``mask`` → ``items`` (n, D), of unit length."""
        frames = _frame_features(self.backbone, batch)
        last = (batch["mask"].sum(dim=1).to(frames.device) - 1).clamp(min=0)
        shown = frames[torch.arange(len(frames), device=frames.device), (self.moment * last).round().long()]
        return {"items": F.normalize(self.backbone.encode_frames(shown).float(), dim=-1)}


# ---- Building them ---------------------------------------------------------------------------------------------------


def check_blind(method: Method, backbone: BackboneKeys) -> None:
    """Refuse options, and towers that do not see single frames where one frame is asked for."""
    check_baseline_options(method.options, (), method.model)
    if method.model == "single_frame" and backbone.kind == "viclip":
        raise RewindError(
            "methods.*.model: single_frame: viclip sees all frames of a clip together; remove the method."
        )


@MODELS.register("caption_only", tags=("blind", "no backbone", "no towers"), check=check_blind)
def build_caption_only(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> CaptionOnly:
    return CaptionOnly(train_captions)


@MODELS.register("clip_only", tags=("blind", "no towers"), check=check_blind)
def build_clip_only(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> ClipOnly:
    return ClipOnly(build_backbone(backbone, text, train_captions))


@MODELS.register("blind_product", tags=("blind", "no towers"), check=check_blind)
def build_blind_product(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> BlindProduct:
    return BlindProduct(build_backbone(backbone, text, train_captions), train_captions)


@MODELS.register("single_frame", tags=("blind", "no towers"), check=check_blind)
def build_single_frame(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> SingleFrame:
    return SingleFrame(build_backbone(backbone, text, train_captions))
