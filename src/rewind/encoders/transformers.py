"""Models of transformers with one space for texts and pictures, or for texts and clips: CLIP, SigLIP, X-CLIP, …

A name on the hub or a local folder. A model that takes clips sees all frames of one together, so it can know their
order; of the others frames are averaged. Every model gives its own score: two vectors stand for a pair only where their
product is what its ``forward`` gives (:mod:`rewind.encoders.own_score`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind import compat
from rewind.encoders import hub, own_score, padding
from rewind.encoders.frames import AVERAGED, batches, device, dtype, mean_of_frames, numbers, symmetric
from rewind.encoders.interface import PairEncoder, Vectors, local_folder
from rewind.errors import RewindError
from rewind.study.encoding import Encoding
from rewind.study.keys import Keys, key, read_options

CONFIG = "config.json"
TOGETHER = "all frames of a clip are encoded together"
PAIRS = "every caption is scored with every clip by the model's own forward, since its vectors alone are not its score"
CAPTIONS_AT_ONCE = 8  # times batch_size: captions that meet a batch of clips, where pairs are scored


class Options(Keys):
    """Options of the encoder `transformers`."""

    text_prefix: str = key("", "Words before every caption, for example `a video of `.")


def build(encoding: Encoding) -> Transformers:
    """The encoder of a model."""
    check(encoding)
    return Transformers(encoding)


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an absent package, folder or file, or a number of frames that the model does not take.
    """
    hub.package("transformers")
    _options(encoding)
    if encoding.frames == "model":
        raise RewindError("frames: model: models of transformers are given frames; set frames: rewind.")
    folder = local_folder(encoding)
    if folder is None:
        hub.check_cached(encoding, encoding.name, [CONFIG], "copy the model into a folder and give that as name")
        _check_config(encoding, hub.cached_file(encoding.name, CONFIG, encoding.revision))
        return
    if not (folder / CONFIG).is_file():
        raise RewindError(f"name: {folder}/{CONFIG}: no such file. Put the model's configuration and weights there.")
    if not any(found for pattern in ("*.safetensors", "*.bin") for found in folder.glob(pattern)):
        raise RewindError(f"name: {folder}: has no weights; put model.safetensors there.")
    _check_config(encoding, folder / CONFIG)


class Transformers(PairEncoder):
    """A model of transformers; see :func:`build`."""

    packages = ("transformers", "tokenizers", "huggingface_hub")
    pairs = False  # until the model is tried

    def __init__(self, encoding: Encoding) -> None:
        library = compat.transformers()
        self.encoding = encoding
        self.size, self.type, self.device = encoding.batch_size, dtype(encoding.precision), device()
        self.prefix = _options(encoding).text_prefix
        source = str(local_folder(encoding) or encoding.name)
        given: dict[str, Any] = {"revision": encoding.revision} if encoding.revision else {}
        remedy = "Look for a network, or for files that are missing; a folder on this disk works without a network."
        with hub.missing_weights() as missing:
            self.model = hub.loaded(
                encoding, lambda: library.AutoModel.from_pretrained(source, dtype=self.type, **given), remedy
            )
        self.model = self.model.eval().to(self.device)
        self.processor = hub.loaded(encoding, lambda: library.AutoProcessor.from_pretrained(source, **given), remedy)
        self.video = hasattr(self.model, "get_video_features")
        kind = type(self.model).__name__
        if not hasattr(self.model, "get_text_features") or not (
            self.video or hasattr(self.model, "get_image_features")
        ):
            raise RewindError(
                f"name: {encoding.name}: a {kind} has no common space of texts and pictures (get_text_features, "
                "get_image_features); take a model such as CLIP, SigLIP or X-CLIP, or another encoder."
            )
        config = self.model.config
        own_score.refuse_known(encoding, config.model_type)
        self.frames = getattr(config.vision_config, "num_frames", None) if self.video else None
        if self.frames is not None:
            _check_frames(encoding, self.frames)
        self.words = self._settled(encoding, missing)
        self.facts = {"class": kind, "commit": getattr(config, "_commit_hash", None), "captions": self.words}
        self.notes = [TOGETHER if self.video else AVERAGED]
        if self.pairs:
            self.notes.append(PAIRS)
        if self.frames is not None:
            self.notes.append(f"shorter clips repeat frames up to {self.frames}")

    def _settled(self, encoding: Encoding, missing: set[str]) -> dict[str, Any]:
        """How captions are filled up; finds out whether pairs are scored.

        Args:
            encoding: names the model.
            missing: weights that its files lack.

        Raises:
            RewindError: if captions cannot be encoded whatever their batch, or pairs not as the model does.
        """
        clips = own_score.made_clips(self.frames or encoding.max_frames or 1)
        frames = [clip[0] for clip in clips]
        pixels = (
            own_score.clip_pixels(self.model, self.processor, clips)
            if self.video
            else own_score.image_pixels(self.model, self.processor, frames)
        )
        words = padding.declared(self.model, self.processor)
        tokens = own_score.tokens(self.model, self.processor, list(padding.CAPTIONS), words)
        own_score.forward(self.model, tokens | pixels, encoding)  # without a score of its own there are no vectors
        own_score.refuse_missing(self.model, tokens | pixels, missing, encoding)

        def use(keys: dict[str, Any]) -> None:
            self.words = keys

        words = padding.settle(self.model, words, use, self._texts, encoding)
        items = self._clips(clips) if self.video else self.encode_pictures(frames)
        text = self._texts(list(padding.CAPTIONS))
        self.pairs = own_score.scores_pairs(self.model, self.processor, words, text, items, pixels, encoding)
        if self.pairs and not self.video:
            raise RewindError(
                f"name: {encoding.name}: {type(self.model).__name__} scores pairs of a caption and one picture, of "
                f"which a clip has several; {own_score.INSTEAD}."
            )
        return words

    def encode_texts(self, texts: list[str]) -> Vectors:
        self._need_vectors()
        return np.concatenate(
            [self._texts(some) for some in batches([self.prefix + text for text in texts], self.size)]
        )

    def cut(self, texts: list[str]) -> int | None:
        given = [self.prefix + text for text in texts]
        return padding.longer(getattr(self.processor, "tokenizer", None), given, self.words)

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        self._need_vectors()
        if not self.video:
            return mean_of_frames(clips, self.encode_pictures, self.size)
        return np.concatenate([self._clips(some) for some in batches(clips, self.size)])

    @torch.inference_mode()
    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        return _projected(self.model.get_image_features(**own_score.image_pixels(self.model, self.processor, frames)))

    def score(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        given = [self.prefix + text for text in texts]
        return np.concatenate([self._scores(given, some) for some in batches(self._same(clips), self.size)], axis=1)

    def _need_vectors(self) -> None:
        if self.pairs:
            raise RewindError(
                f"name: {self.encoding.name}: {type(self.model).__name__} scores a caption and a clip together, so no "
                "vectors stand for them here: take a model that compares two, such as CLIP or SigLIP."
            )

    @torch.inference_mode()
    def _texts(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions that are one batch."""
        given = own_score.tokens(self.model, self.processor, texts, self.words)
        return _projected(self.model.get_text_features(**given))

    @torch.inference_mode()
    def _clips(self, clips: list[np.ndarray]) -> np.ndarray:
        """Vectors (n, D) of clips that are one batch."""
        same = self._same(clips)
        if len({len(clip) for clip in same}) > 1:  # a batch has one length; others go alone
            return np.concatenate([self._clips([clip]) for clip in same])
        return _projected(self.model.get_video_features(**own_score.clip_pixels(self.model, self.processor, same)))

    @torch.inference_mode()
    def _scores(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        """The model's own scores (n_text, n_clips) of one batch of clips."""
        if len({len(clip) for clip in clips}) > 1:
            return np.concatenate([self._scores(texts, [clip]) for clip in clips], axis=1)
        pixels = own_score.clip_pixels(self.model, self.processor, clips)
        found = []
        with own_score.computed_once(self.model.vision_model):
            for some in batches(texts, CAPTIONS_AT_ONCE * self.size):
                tokens = own_score.tokens(self.model, self.processor, some, self.words)
                found.append(own_score.logits(self.model, tokens | pixels)[0])
        return np.concatenate(found)

    def _same(self, clips: list[np.ndarray]) -> list[np.ndarray]:
        """Clips with as many frames as the model sees."""
        return [clip if self.frames is None else symmetric(clip, self.frames) for clip in clips]


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "transformers")


def _check_config(encoding: Encoding, config: Path | str | None) -> None:
    """Refuse what a model's configuration shows, where it is here."""
    content = own_score.refuse_config(encoding, config)
    vision = content.get("vision_config")
    if isinstance(vision, dict) and content.get("model_type") == "xclip":
        _check_frames(encoding, vision.get("num_frames", 8))


def _check_frames(encoding: Encoding, count: int) -> None:
    if encoding.max_frames != count:
        raise RewindError(
            f"max_frames: {encoding.max_frames}, but {encoding.name} sees exactly {count} frames of a clip; set "
            f"max_frames: {count}."
        )


def _projected(output: Any) -> np.ndarray:
    """Vectors (n, D) of what a model gives: a tensor, or an output that holds it."""
    found = output if isinstance(output, torch.Tensor) else output.pooler_output
    if found is not None and found.ndim == 3 and found.shape[1] == 1:  # VideoPrism's one vector of a clip
        found = found[:, 0]
    if found is None or found.ndim != 2:
        shape = "none" if found is None else f"one of shape {tuple(found.shape)}"
        raise RewindError(
            f"name: this model gives {shape} where a vector for each input is needed; {own_score.INSTEAD}."
        )
    return numbers(found)
