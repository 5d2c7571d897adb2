"""ViCLIP as a backbone: one vector per clip, from joint attention over all patches of all its frames."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.files import reading_user_file, require_regular_file
from rewind.models.image_towers import MEAN, STD
from rewind.models.retriever import Backbone
from rewind.models.tokens import up_to_the_end
from rewind.models.viclip_files import load_viclip
from rewind.models.viclip_towers import SIZES, Architecture, TextTower, VisionTower
from rewind.models.weights import FORM_ALONE
from rewind.study import Backbone as BackboneKeys
from rewind.study import Text as TextKeys
from rewind.text import Tokenizer, make_tokenizer


class ViClip(Backbone):
    """A clip's vector stands at the place of each of its frames, so the mean over frames (``meanP``) is that vector.

    Pixels are normalised with ImageNet's channel means and deviations. Only real frames are encoded, at the temporal
    positions of so many frames.

    Args:
        size: of both towers.
        tokenizer: CLIP's, or words of the training captions.
        max_words: tokens per caption.
        token_mask: share of patches left out while training; never in evaluation mode (upstream 0.9).
    """

    def __init__(self, size: Architecture, tokenizer: Tokenizer, max_words: int, token_mask: float = 0.0) -> None:
        super().__init__()
        if max_words > size.text.context:
            raise RewindError(
                f"text.max_words: {max_words} is more than the architecture's context length {size.text.context}."
            )
        self.vision_encoder = VisionTower(size.vision, size.embed_dim)
        self.text_encoder = TextTower(size.text, size.embed_dim)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(100)))  # upstream's `temp` is exp(-logit_scale), 0.01
        self.tokenizer, self.max_words, self.token_mask = tokenizer, max_words, token_mask
        self.width = self.feature_width = size.embed_dim
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1) * 255, persistent=False)

    def prepare_text(self, captions: list[str]) -> Tensor:
        """Token ids int64 (n, max_words), 0 after the end token; longer captions are cut before it."""
        return torch.from_numpy(self.tokenizer.encode(captions, self.max_words))

    def encode_text(self, prepared: Tensor) -> Tensor:
        # Attention is causal: what stands behind the end token changes nothing and is left out.
        return self.text_encoder(up_to_the_end(prepared))

    def frame_features(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S), each a clip of one frame → (n, width)."""
        return self.clip_vectors(pixels[:, None])

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """uint8 RGB (n, T, 3, S, S) and mask (n, T) → (n, T, width): the clip's vector at every real frame, else 0.

        Raises:
            RewindError: for frames of another size, or that are not RGB.
        """
        counts = mask.bool().sum(dim=1)
        vectors = None
        for count in counts.unique().tolist():  # clips of one length together: positions depend on it
            rows = counts == count
            found = self.clip_vectors(pixels[rows, :count])
            vectors = found.new_zeros(len(pixels), self.width) if vectors is None else vectors
            vectors = vectors.index_put((rows.nonzero()[:, 0],), found)
        return vectors.unsqueeze(1) * mask.unsqueeze(-1).to(vectors.dtype)

    def clip_vectors(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, T, 3, S, S) → (n, width), not normalised."""
        side = self.vision_encoder.image
        if pixels.ndim != 5 or tuple(pixels.shape[2:]) != (3, side, side):
            raise RewindError(
                f"frames: ViCLIP reads RGB frames of {side} × {side} pixels, not {tuple(pixels.shape[2:])}: set "
                f"frames.size: {side}, or another backbone.architecture."
            )
        frames = (pixels.to(self.mean.dtype) - self.mean) / self.std
        return self.vision_encoder(frames, self.token_mask if self.training else 0.0)

    def visual_parameters(self) -> list[nn.Parameter]:
        return list(self.vision_encoder.parameters())

    def text_parameters(self) -> list[nn.Parameter]:
        return list(self.text_encoder.parameters())

    def checkpoint_towers(self) -> None:
        for tower in (self.vision_encoder, self.text_encoder):
            tower.transformer.recompute = True

    def compile_towers(self) -> None:
        for tower in (self.vision_encoder, self.text_encoder):
            for block in tower.transformer.resblocks:
                block.compile(dynamic=True)


def build(keys: BackboneKeys, text: TextKeys, train_captions: list[str]) -> ViClip:
    """The towers of a study with ``kind: viclip``; new parameters come from torch's global generator.

    Raises:
        RewindError: for an unknown architecture, a key of other kinds, or weights that are not there or do not fit.
    """
    if keys.pretrained or keys.patch != "2d":
        name = "pretrained" if keys.pretrained else "patch"
        raise RewindError(f"backbone.{name}: kind: viclip has no such key; name a file with backbone.weights.")
    size = architecture(keys.architecture)
    tokenizer = make_tokenizer(text.tokenizer, train_captions)
    if text.tokenizer == "miniclip":
        raise RewindError("text.tokenizer: miniclip has no end token, which ViCLIP's text tower reads; use words.")
    if text.tokenizer == "words":
        size = size.model_copy(update={"text": size.text.model_copy(update={"vocabulary": tokenizer.vocabulary})})
    model = ViClip(size, tokenizer, text.max_words, keys.token_mask)
    if keys.weights and not FORM_ALONE.get():
        load_viclip(model, keys.weights, keys.architecture)
    return model


def architecture(name: str) -> Architecture:
    """Sizes by name (``viclip-b``, ``viclip-l``) or from a JSON file with the fields of :class:`Architecture`.

    Raises:
        RewindError: for an unknown name or a file that is missing or holds anything else.
    """
    if name in SIZES:
        return SIZES[name]
    if not name.endswith(".json"):
        raise RewindError(f"backbone.architecture: {name!r}: kind: viclip has {', '.join(SIZES)}, or a JSON file.")
    path = Path(name)
    require_regular_file(path, missing_ok=True)
    if not path.is_file():
        raise RewindError(f"backbone.architecture: {name}: no such file.")
    with reading_user_file(path, "JSON file"):
        try:
            size = Architecture.model_validate(json.loads(path.read_text()))
        except ValueError as error:  # of JSON, of its letters, or of its fields
            raise RewindError(f"backbone.architecture: {name}: {error}") from None
    for tower, at in ((size.vision, "vision"), (size.text, "text")):
        if tower.width % tower.heads:
            raise RewindError(f"backbone.architecture: {name}: {at}: width {tower.width} in {tower.heads} heads.")
    if size.vision.image % size.vision.patch:
        raise RewindError(f"backbone.architecture: {name}: vision: image must be a multiple of patch.")
    return size
