"""``Backbone``, the interface of towers: a text encoder and a frame encoder whose vectors have one width."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from rewind.config.training import adapted_towers
from rewind.errors import RewindError
from rewind.models.lora import add_adapters

if TYPE_CHECKING:
    from rewind.config import Training
    from rewind.config.study import Frames


class Backbone(nn.Module):
    """A text tower and a frame tower under a shared width.

    What can be cached when a tower is frozen is a step of its own: ``prepare_text`` before ``encode_text``,
    ``clip_features`` before ``encode_frames``.

    >>> import torch
    >>> class MeanColours(Backbone):
    ...     feature_width = width = 3
    ...     def frame_features(self, pixels):
    ...         return pixels.float().mean((2, 3))
    >>> pixels, mask = torch.zeros(2, 4, 3, 8, 8, dtype=torch.uint8), torch.ones(2, 4)
    >>> MeanColours().clip_features(pixels, mask).shape
    torch.Size([2, 4, 3])
    """

    width: int  # of both sides' vectors
    feature_width: int  # of the visual tower's features
    text_width: int | None = None  # of prepared text, if that is a feature vector and not token ids
    caches_text: bool = False
    logit_scale: nn.Parameter  # logarithm of the factor on cosines
    tokenizer: Any  # of captions, as the key ``text.tokenizer`` names it; None if the towers have their own
    max_words: int | None = None  # most tokens of a caption that are read, if ids; tables and search tell what is cut
    stored_head: tuple[str, dict[str, Tensor]] | None = None  # name and state dict, if it came with the weights
    notes: tuple[str, ...] = ()  # what readers of a table must know about them, clauses

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(type(self), "tokenizer"):  # on the object: an attribute of the class would hide a module
            self.tokenizer = None

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Captions as a tensor of one row each: token ids, or features of a frozen sentence encoder.

        All that encodes captions with a run's towers comes by here (training, evaluation, search, exports, encoders),
        so the same words are the same ids everywhere, and are cut at the same ``max_words``.
        """
        raise NotImplementedError

    def token_counts(self, captions: list[str]) -> list[int] | None:
        """Tokens of each caption before it is cut, as ``max_words`` counts them; None if that is not known."""
        return None if self.tokenizer is None else self.tokenizer.count(captions)

    def encode_text(self, prepared: Tensor) -> Tensor:
        """(n, width), not normalised."""
        raise NotImplementedError

    def encode_words(self, prepared: Tensor) -> tuple[Tensor, Tensor]:
        """Features (n, L, width) of every token, not normalised, and 1 on real ones (n, L), which come first.

        L is the same for every batch, so that batches can be concatenated. Called for heads that read words.
        """
        raise NotImplementedError

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB frames (n, 3, S, S), each encoded by itself → (n, feature_width)."""
        raise NotImplementedError

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """uint8 RGB (n, T, 3, S, S) and mask (n, T), real frames first → (n, T, feature_width), zero on padding.

        Padding is not encoded. A tower whose frames see their neighbours overrides this.
        """
        real = mask.bool()
        return scatter_frames(self.frame_features(pixels[real]), real)

    @property
    def sees_single_frames(self) -> bool:
        """Whether the features of a frame depend on that frame alone."""
        return type(self).clip_features is Backbone.clip_features

    def encode_frames(self, features: Tensor) -> Tensor:
        """(n, feature_width) → (n, width), not normalised."""
        return features

    def visual_parameters(self) -> list[nn.Parameter]:
        """Parameters that ``frame_features`` uses."""
        raise NotImplementedError

    def text_parameters(self) -> list[nn.Parameter]:
        """Parameters of the text tower."""
        raise NotImplementedError

    def cached_text(self, captions: list[str]) -> Tensor:
        """What is cached of captions next to frame features if it ``caches_text``: (n, …), as for ``encode_text``."""
        return self.prepare_text(captions)

    def check_frames(self, frames: Frames) -> None:
        """Refuse frames that the towers cannot read, naming the key of ``frames``. Called when the workflow is read."""

    def tune(self, keys: Training) -> None:
        """Get ready for a method's training keys, when its model is built: for training, and before weights are read.

        The default: put the adapters of ``training.lora`` into the towers.
        """
        if keys.lora is not None:
            add_adapters(self, keys.lora, adapted_towers(keys))

    def text_blocks(self) -> dict[str, Tensor]:
        """Positions and blocks of a CLIP text tower, from which temporal transformers start; empty if it has none."""
        return {}

    def freeze_layers(self, count: int) -> None:
        """Stop computing gradients of the embeddings and the first ``count`` blocks of both towers."""
        raise RewindError(
            "training.freeze_layers: this backbone has no transformer blocks to freeze; remove the key, or freeze "
            "whole towers with training.freeze."
        )

    def checkpoint_towers(self) -> None:
        """Keep activations inside the towers' blocks no longer; recompute them in the backward pass."""
        raise RewindError(
            "training.gradient_checkpointing: this backbone has no blocks whose activations could be recomputed; "
            "remove the key."
        )

    def compile_towers(self) -> None:
        """Run the towers through torch.compile, in place: names in the state dict stay."""
        raise RewindError("training.compile: this backbone has no towers that can be compiled; remove the key.")


def scatter_frames(features: Tensor, real: Tensor) -> Tensor:
    """Put features of real frames into their clips: (r, F) and bool (n, T) with r true → (n, T, F), zero elsewhere.

    >>> import torch
    >>> scatter_frames(torch.ones(3, 8), torch.tensor([[True, True], [True, False]])).shape
    torch.Size([2, 2, 8])
    """
    full = features.new_zeros(*real.shape, features.shape[-1])
    full[real] = features
    return full


def clip_vectors_at_frames(encode: Callable[[Tensor], Tensor], pixels: Tensor, mask: Tensor, width: int) -> Tensor:
    """One vector for each clip, repeated at each of its frames: for towers that encode all frames together.

    ``encode``: clips of one length (n, T, 3, S, S) → (n, width). Real frames come first in ``mask`` (n, T); others are
    not encoded. The result is (n, T, width), zero on padding: the mean over a clip's frames is its vector.

    >>> import torch
    >>> mask = torch.tensor([[1, 1], [1, 0]])
    >>> clip_vectors_at_frames(lambda clips: clips.mean((1, 3, 4)), torch.ones(2, 2, 3, 4, 4), mask, 3)[:, :, 0]
    tensor([[1., 1.],
            [1., 0.]])
    """
    counts = mask.bool().sum(dim=1)
    vectors: Any = None  # of the type that the tower gives
    for count in counts.unique().tolist():  # clips of one length together, because positions depend on it
        rows = counts == count
        encoded = encode(pixels[rows, :count])
        vectors = encoded.new_zeros(len(pixels), width) if vectors is None else vectors
        vectors = vectors.index_put((rows.nonzero()[:, 0],), encoded)
    return vectors.unsqueeze(1) * mask.unsqueeze(-1).to(vectors.dtype)


def trim_after_end_token(tokens: Tensor) -> Tensor:
    """Token ids (n, L) without the positions after the end token of the longest caption, for towers that pool there.

    The end token is the largest id of a row, as CLIP pools. Padding cannot be used to find it: its id, 0, is ``!`` to
    CLIP's tokenizer if a word follows without a space.

    >>> import torch
    >>> trim_after_end_token(torch.tensor([[7, 3, 9, 0, 0], [7, 9, 0, 0, 0]]))
    tensor([[7, 3, 9],
            [7, 9, 0]])
    """
    return tokens[:, : int(tokens.argmax(dim=1).max()) + 1]
