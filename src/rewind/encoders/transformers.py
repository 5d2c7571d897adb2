"""Models of transformers with one space for texts and pictures, or for texts and clips: CLIP, SigLIP, X-CLIP, …

A name on the hub or a local folder. A model that takes clips sees all frames of one together, so it can know their
order; of the others frames are averaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rewind import compat
from rewind.encoders import hub
from rewind.encoders.frames import (
    AVERAGED,
    batches,
    device,
    dtype,
    mean_of_frames,
    numbers,
    pictures,
    symmetric,
)
from rewind.encoders.interface import Encoder, Vectors, local_folder
from rewind.errors import RewindError
from rewind.files import read_json
from rewind.study.encoding import Encoding
from rewind.study.keys import Keys, key, read_options

CONFIG = "config.json"
TOGETHER = "all frames of a clip are encoded together"


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
        return
    if not (folder / CONFIG).is_file():
        raise RewindError(f"name: {folder}/{CONFIG}: no such file. Put the model's configuration and weights there.")
    if not any(found for pattern in ("*.safetensors", "*.bin") for found in folder.glob(pattern)):
        raise RewindError(f"name: {folder}: has no weights; put model.safetensors there.")
    content = read_json(folder / CONFIG)
    vision = content.get("vision_config") if isinstance(content, dict) else None
    if isinstance(vision, dict) and content.get("model_type") == "xclip":
        _check_frames(encoding, vision.get("num_frames", 8))


class Transformers(Encoder):
    """A model of transformers; see :func:`build`."""

    packages = ("transformers", "tokenizers", "huggingface_hub")

    def __init__(self, encoding: Encoding) -> None:
        library = compat.transformers()
        self.size, self.type, self.device = encoding.batch_size, dtype(encoding.precision), device()
        self.prefix = _options(encoding).text_prefix
        source = str(local_folder(encoding) or encoding.name)
        given: dict[str, Any] = {"revision": encoding.revision} if encoding.revision else {}
        remedy = "Look for a network, or for files that are missing; a folder on this disk works without a network."
        self.model = hub.loaded(
            encoding, lambda: library.AutoModel.from_pretrained(source, dtype=self.type, **given), remedy
        )
        self.model = self.model.eval().to(self.device)
        self.processor = hub.loaded(encoding, lambda: library.AutoProcessor.from_pretrained(source, **given), remedy)
        self.video = hasattr(self.model, "get_video_features")
        if not hasattr(self.model, "get_text_features") or not (
            self.video or hasattr(self.model, "get_image_features")
        ):
            kind = type(self.model).__name__
            raise RewindError(
                f"name: {encoding.name}: a {kind} has no common space of texts and pictures (get_text_features, "
                "get_image_features); take a model such as CLIP, SigLIP or X-CLIP, or another encoder."
            )
        config = self.model.config
        self.frames = getattr(config.vision_config, "num_frames", None) if self.video else None
        if self.frames is not None:
            _check_frames(encoding, self.frames)
        self.words = _text_keys(config)
        self.facts = {"class": type(self.model).__name__, "commit": getattr(config, "_commit_hash", None)}
        self.notes = [TOGETHER if self.video else AVERAGED]
        if self.frames is not None:
            self.notes.append(f"shorter clips repeat frames up to {self.frames}")

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> Vectors:
        found = []
        for some in batches([self.prefix + text for text in texts], self.size):
            given = self._given(self.processor(text=some, return_tensors="pt", truncation=True, **self.words))
            found.append(_projected(self.model.get_text_features(**given)))
        return np.concatenate(found)

    def cut(self, texts: list[str]) -> int | None:
        context, tokenizer = self.words.get("max_length"), getattr(self.processor, "tokenizer", None)
        if context is None or tokenizer is None:
            return None
        given = tokenizer([self.prefix + text for text in texts], truncation=False).input_ids
        return sum(len(ids) > context for ids in given)

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        if not self.video:
            return mean_of_frames(clips, self.encode_pictures, self.size)
        return np.concatenate([self._clips(some) for some in batches(clips, self.size)])

    @torch.inference_mode()
    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        given = self.processor(images=pictures(frames), return_tensors="pt")
        return _projected(self.model.get_image_features(**self._given(given)))

    @torch.inference_mode()
    def _clips(self, clips: list[np.ndarray]) -> np.ndarray:
        same = [clip if self.frames is None else symmetric(clip, self.frames) for clip in clips]
        if len({len(clip) for clip in same}) > 1:  # a batch has one length; others go alone
            return np.concatenate([self._clips([clip]) for clip in same])
        given = self.processor(videos=[pictures(clip) for clip in same], return_tensors="pt")
        return _projected(self.model.get_video_features(**self._given(given)))

    def _given(self, processed: Any) -> dict[str, Any]:
        """Inputs on the device, pictures in the model's numbers."""
        return {
            name: value.to(self.device, self.type if value.is_floating_point() else None)
            for name, value in processed.items()
            if isinstance(value, torch.Tensor)
        }


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "transformers")


def _text_keys(config: Any) -> dict[str, Any]:
    """How captions are filled up: SigLIP was trained on whole contexts, and reads another vector from shorter ones."""
    context = getattr(getattr(config, "text_config", config), "max_position_embeddings", None)
    length = {} if context is None else {"max_length": context}
    return {"padding": "max_length" if config.model_type.startswith("siglip") else True, **length}


def _check_frames(encoding: Encoding, count: int) -> None:
    if encoding.max_frames != count:
        raise RewindError(
            f"max_frames: {encoding.max_frames}, but {encoding.name} sees exactly {count} frames of a clip; set "
            f"max_frames: {count}."
        )


def _projected(output: Any) -> np.ndarray:
    """Vectors (n, D) of what a model gives: a tensor, or an output that holds it."""
    return numbers(output if isinstance(output, torch.Tensor) else output.pooler_output)
