"""What every pair of towers offers: a text tower and a frame tower under a shared width."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from rewind.errors import RewindError


class Backbone(nn.Module):
    """A text tower and a frame tower under a shared width.

    What can be cached when a tower is frozen is a step of its own: ``prepare_text`` before ``encode_text``,
    ``clip_features`` before ``encode_frames``.

    Attributes:
        width: of both sides' vectors.
        feature_width: of the visual tower's features.
        text_width: of prepared text, where that is a feature vector and not token ids.
        caches_text: whether prepared text is worth keeping beside frame features.
        logit_scale: logarithm of what cosines are multiplied by.
        tokenizer, max_words: of captions, and the most tokens of one, where it reads token ids: search tells what a
            query loses by them.
        stored_head: name and state dict of a head that came with the weights.
    """

    width: int
    feature_width: int
    text_width: int | None = None
    caches_text: bool = False
    logit_scale: nn.Parameter
    tokenizer: Any
    max_words: int | None = None
    stored_head: tuple[str, dict[str, Tensor]] | None = None

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(type(self), "tokenizer"):  # on the object: an attribute of the class would hide a module
            self.tokenizer = None

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Tensor of one row per caption (token ids, or features of a frozen sentence encoder)."""
        raise NotImplementedError

    def encode_text(self, prepared: Tensor) -> Tensor:
        """(n, width), not normalised."""
        raise NotImplementedError

    def encode_words(self, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, L, width) of every token, not normalised, and 1 on real ones (n, L), which come first.

        L does not depend on the batch, so that batches can be joined. Called for heads that read words.
        """
        raise NotImplementedError

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB frames (n, 3, S, S), each by itself → (n, feature_width)."""
        raise NotImplementedError

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """Features of the frames of clips; padded frames are not encoded.

        A tower whose frames see their neighbours overrides this.

        Args:
            pixels: uint8 RGB (n, T, 3, S, S).
            mask: (n, T), 1 on real frames, which come first.

        Returns:
            (n, T, feature_width), zero on padding.
        """
        real = mask.bool()
        return scatter(self.frame_features(pixels[real]), real)

    def encode_frames(self, features: Tensor) -> Tensor:
        """(n, feature_width) → (n, width), not normalised."""
        return features

    def visual_parameters(self) -> list[nn.Parameter]:
        """Parameters behind ``frame_features``."""
        raise NotImplementedError

    def text_parameters(self) -> list[nn.Parameter]:
        """Parameters of the text tower."""
        raise NotImplementedError

    def text_blocks(self) -> dict[str, Tensor]:
        """Positions and blocks of a CLIP text tower, from which temporal transformers start; empty: there are none."""
        return {}

    def freeze_layers(self, count: int) -> None:
        """From now on no gradients into the embeddings and the first ``count`` blocks of both towers.

        Raises:
            RewindError: if there are no such blocks, or fewer of them.
        """
        raise RewindError(
            "training.freeze_layers: this backbone has no transformer blocks to freeze; remove the key, or freeze "
            "whole towers with training.freeze."
        )

    def checkpoint_towers(self) -> None:
        """From now on keep no activations inside the towers' blocks; compute them again on the way back.

        Raises:
            RewindError: if the towers cannot.
        """
        raise RewindError(
            "training.gradient_checkpointing: this backbone has no blocks whose activations could be recomputed; "
            "remove the key."
        )

    def compile_towers(self) -> None:
        """From now on run the towers through torch.compile, in place: names in the state dict stay.

        Raises:
            RewindError: if the towers cannot.
        """
        raise RewindError("training.compile: this backbone has no towers that can be compiled; remove the key.")


def scatter(features: Tensor, real: Tensor) -> Tensor:
    """Features of real frames (r, F) at their places in clips: bool (n, T) with r places → (n, T, F), else zero."""
    full = features.new_zeros(*real.shape, features.shape[-1])
    full[real] = features
    return full
