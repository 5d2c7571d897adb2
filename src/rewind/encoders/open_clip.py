"""Models of open_clip: an architecture with published or local weights, a local folder, or a name on the hub.

Each is given what it was trained on: its own tokenizer and context, its own pooling, its own size, mean, deviation and
way to resize. Scale and bias of its logits are left out: they change no rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rewind import compat
from rewind.encoders import hub
from rewind.encoders.frames import AVERAGED, batches, device, dtype, in_threads, mean_of_frames, numbers, pictures
from rewind.encoders.interface import Encoder, Vectors, local_folder
from rewind.encoders.open_clip_keys import HUB, Options, check, image_keys, on_hub, options_of, repository
from rewind.study.encoding import LOCAL, Encoding

__all__ = ["build", "check"]


def build(encoding: Encoding) -> OpenClip:
    """The encoder of a model."""
    check(encoding)
    return OpenClip(encoding)


class OpenClip(Encoder):
    """A model of open_clip; see :func:`build`."""

    packages = ("open-clip-torch", "timm", "transformers")

    def __init__(self, encoding: Encoding) -> None:
        self.size, self.type, self.device = encoding.batch_size, dtype(encoding.precision), device()
        options = options_of(encoding)
        remedy = "Look for a network, or for a broken or wrong file; a folder on this disk works without a network."
        self.model = hub.loaded(encoding, lambda: _model(encoding, options, self.device), remedy).eval()
        self.tokenizer = hub.loaded(encoding, lambda: _tokenizer(encoding), remedy)
        keys = dict(self.model.visual.preprocess_cfg)
        transform = compat.open_clip("transform")
        self.preprocess = transform.image_transform_v2(transform.PreprocessCfg(**keys), is_train=False)
        self.facts = {"preprocess": keys, "context": getattr(self.tokenizer, "context_length", None)}
        self.notes = [AVERAGED]
        if options.untrained:
            self.notes.append(f"random weights (seed {options.seed}), never trained")

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> Vectors:
        parts = []
        for some in batches(texts, self.size):
            parts.append(numbers(self.model.encode_text(self.tokenizer(some).to(self.device), normalize=True)))
        return np.concatenate(parts)

    def cut(self, texts: list[str]) -> int | None:
        return longer(self.tokenizer, texts)

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        return mean_of_frames(clips, self.encode_pictures, self.size)

    @torch.inference_mode()
    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        pixels = in_threads(self.preprocess, pictures(frames)).to(self.device, self.type)
        return numbers(self.model.encode_image(pixels, normalize=True))


def _model(encoding: Encoding, options: Options, on: torch.device) -> Any:
    """The model with its weights, and with the preprocessing that belongs to them."""
    name, pretrained = _source(encoding), options.pretrained
    image = _preprocess(encoding, options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        return compat.open_clip().create_model(
            name,
            pretrained=pretrained,
            load_weights=not options.untrained,
            require_pretrained=not options.untrained,
            precision=encoding.precision,
            device=on,
            force_quick_gelu=_quick_gelu(encoding, options),
            force_preprocess_cfg=image,
            pretrained_text=False,  # a language model without its head is no weights of this model
        )


def _source(encoding: Encoding) -> str:
    """The model's name as open_clip wants it; a revision of the hub is fetched into a folder, since it takes none."""
    folder = local_folder(encoding)
    if folder is not None:
        return f"{LOCAL}{folder}"
    if not on_hub(encoding):
        return encoding.name
    if encoding.revision is None:
        return f"{HUB}{repository(encoding)}"
    from huggingface_hub import snapshot_download

    return f"{LOCAL}{snapshot_download(repository(encoding), revision=encoding.revision)}"


def _tokenizer(encoding: Encoding) -> Any:
    return compat.open_clip().get_tokenizer(_source(encoding))


def _preprocess(encoding: Encoding, options: Options) -> dict[str, Any] | None:
    """What replaces the preprocessing that open_clip takes for a model, if anything does."""
    if isinstance(options.preprocess, str):
        return image_keys(compat.open_clip().get_pretrained_cfg(encoding.name, options.preprocess))
    if options.preprocess is None:
        return None
    return {name: value for name, value in options.preprocess.model_dump().items() if value is not None}


def _quick_gelu(encoding: Encoding, options: Options) -> bool:
    """Whether the activation is to be QuickGELU where the architecture does not say so."""
    tag = options.preprocess if isinstance(options.preprocess, str) else options.pretrained
    published = compat.open_clip().get_pretrained_cfg(encoding.name, tag) if tag else {}
    return bool(options.quick_gelu or published.get("quick_gelu"))


def longer(tokenizer: Any, texts: list[str]) -> int | None:
    """How many texts have more tokens than one of open_clip's tokenizers keeps; None where that is not known."""
    context = getattr(tokenizer, "context_length", None)
    if context is None:
        return None
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is not None and getattr(tokenizer, "tokenizer_mode", "") != "clips":
        return sum(len(ids) > context for ids in inner(texts, truncation=False).input_ids)
    if hasattr(tokenizer, "sot_token_id"):
        return sum(len(tokenizer.encode(text)) + 2 > context for text in texts)  # with its start and its end
    return None
