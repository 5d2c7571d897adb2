"""CLIP4Clip (``model: clip4clip``): a backbone's frame and text features under a temporal head."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.heads import make_head
from rewind.models.heads.base import Head
from rewind.models.registry import build_backbone
from rewind.models.retriever import Features, Retriever, at_least_float32, is_overridden, masked_mean
from rewind.registry import MODELS


class Clip4Clip(Retriever):
    """Loose heads pool the frames into one vector; tight heads score pairs.

    Loose similarity is ``exp(logit_scale) · cos(text, video)``, where video is the mean of the real frames, each of
    unit length. Tight similarity is the head's own score, times ``exp(logit_scale)`` only if the head is ``scaled``.
    Features that leave the towers, and logits, are float32 under autocast too.

    >>> from rewind.models.embeddings import EmbeddingTowers
    >>> from rewind.models.heads.clip4clip import MeanP
    >>> model = Clip4Clip(EmbeddingTowers(text_width=8, item_width=8, width=4), MeanP(4))
    >>> text = model.encode_text({"text": torch.rand(3, 8)})
    >>> items = model.encode_items({"frames": torch.rand(2, 5, 8), "mask": torch.ones(2, 5)})
    >>> model.similarity(text, items).shape
    torch.Size([3, 2])
    """

    backbone: Backbone

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head

    def encode_text(self, batch: Features) -> Features:
        """Loose: ``text`` (n, D), normalised. Tight: what the head computes once per caption."""
        if self.head.reads_words:
            text, words = self.backbone.encode_words(batch["text"])
            return self.head.of_captions({"text": at_least_float32(text), "words": words})
        text = at_least_float32(self.backbone.encode_text(batch["text"]))
        return self.head.of_captions({"text": text}) if self.head.pairwise else {"text": F.normalize(text, dim=-1)}

    def encode_items(self, batch: Features) -> Features:
        """Loose: ``video`` (n, D), normalised. Tight: what the head computes once per clip."""
        mask = batch["mask"]
        frames = at_least_float32(self.backbone.encode_frames(self._frame_features(batch)))
        if self.head.pairwise:
            return self.head.of_clips({"frames": frames, "mask": mask})
        # Normalised before the mean and after it, as upstream: each frame counts by its direction, whatever its length.
        frames = F.normalize(at_least_float32(self.head(frames, mask)), dim=-1)
        return {"video": F.normalize(masked_mean(frames, mask), dim=-1)}

    def similarity(self, text: Features, items: Features) -> Tensor:
        if self.head.pairwise:
            return self._scores(text, items, slice(None))
        left, right = text["text"], items["video"]
        # At a scale of 100 the rounding of half precision would be as large as differences between items.
        with torch.autocast(left.device.type, enabled=False):
            return self.backbone.logit_scale.exp() * left @ right.T

    @property
    def compares_vectors(self) -> bool:
        return not self.head.pairwise

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of the texts and (m, D) of the items, by whose cosines loose heads score."""
        if self.head.pairwise:
            raise RewindError(
                f"methods.*.head: {type(self.head).__name__} scores pairs and has no vector per clip, which this loss "
                "needs: choose another head, or training.objective: infonce."
            )
        return text["text"], items["video"]

    def similarity_rows(self, text: Features, items: Features, rows: slice) -> Tensor | None:
        """Rows of :meth:`similarity` for tight heads, whose work processes share; None for loose heads."""
        return self._scores(text, items, rows) if self.head.pairwise else None

    @property
    def pairs_at_once(self) -> int | None:
        return self.head.pairs_at_once

    @pairs_at_once.setter
    def pairs_at_once(self, count: int | None) -> None:
        self.head.pairs_at_once = count

    def _scores(self, text: Features, items: Features, rows: slice) -> Tensor:
        scores = self.head.scores(text, items, rows)
        if not self.head.scaled:
            return scores
        with torch.autocast(scores.device.type, enabled=False):
            return self.backbone.logit_scale.exp() * scores

    def _frame_features(self, batch: Features) -> Tensor:
        return batch["frames"] if "frames" in batch else self.backbone.clip_features(batch["pixels"], batch["mask"])

    @torch.no_grad()
    def clamp(self) -> None:
        """Keep the logit scale at or below 100, as CLIP does after every step."""
        self.backbone.logit_scale.clamp_(max=math.log(100))


@MODELS.register("clip4clip")
def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Clip4Clip:
    """The retriever of a method; every new parameter is drawn from torch's global generator."""
    # Towers before the head: both draw from one generator, so the order decides which numbers each gets.
    towers = build_backbone(backbone, text, train_captions)
    head = make_head(method, towers.width)
    if head.reads_words and not is_overridden(towers.encode_words):
        raise RewindError(
            f"methods.*.head: {method.head} reads features of every token, and these towers give one vector per "
            "caption: choose another head, or backbone.kind: clip."
        )
    if method.head_start == "clip" and head.copies_text:
        _start_from_text(head, towers, method)
    # After start_from: where the weights are a CLIP4Clip checkpoint, its head replaces the copy of CLIP's blocks.
    if stored := towers.stored_head:
        _continue_from(stored, head, method.head, f"backbone.weights: {backbone.weights}")
        towers.stored_head = None  # keeps no second copy of its tensors in memory
    return Clip4Clip(towers, head)


def _start_from_text(head: Head, towers: Backbone, method: Method) -> None:
    blocks = towers.text_blocks()
    width = blocks["positional_embedding"].shape[1] if blocks else None
    # Names are transformer.resblocks.<number>.<part>.
    layers = len({name.split(".")[2] for name in blocks if name.startswith("transformer.resblocks.")})
    if width != towers.width or layers < method.head_layers:
        raise RewindError(
            f"methods.*.head_start: {method.head} cannot start from this backbone's text tower (width {width}, "
            f"{layers} layers; the head has width {towers.width}, {method.head_layers} layers): set head_start: random."
        )
    head.start_from(blocks)


def _continue_from(stored: tuple[str, dict[str, Tensor]], head: nn.Module, name: str, where: str) -> None:
    """Load the head that came with the weights if the method has that head; else print that it is left out."""
    if name != stored[0]:
        print(f"{where}: it holds a {stored[0]} head, but this method has {name}: only the towers are loaded.")
        return
    own, state = head.state_dict(), stored[1]
    wrong = [n for n in own if n not in state or own[n].shape != state[n].shape] + [n for n in state if n not in own]
    if wrong:
        shapes = [str(tuple(d[wrong[0]].shape)) if wrong[0] in d else "absent" for d in (own, state)]
        raise RewindError(
            f"{where}: its {name} head has another size: {len(wrong)} tensors differ, first {wrong[0]!r} "
            f"(model {shapes[0]}, file {shapes[1]}); check methods.*.head_layers."
        )
    head.load_state_dict(state)
