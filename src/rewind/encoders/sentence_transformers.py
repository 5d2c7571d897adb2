"""Models of sentence-transformers that embed texts and clips, or texts and pictures, in one space.

A name on the hub or a local folder. Where the model itself takes video it is given all frames of a clip together; of
the others frames are averaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rewind import compat
from rewind.encoders import hub, own_score, padding
from rewind.encoders.frames import AVERAGED, batches, device, dtype, mean_of_frames
from rewind.encoders.interface import Encoder, Vectors, local_folder
from rewind.errors import RewindError
from rewind.study.encoding import Encoding
from rewind.study.keys import Keys, key, read_options

CONFIGS = ["modules.json", "config.json"]
TOGETHER = "all frames of a clip are encoded together"
FRAMES_PER_SECOND = 1.0
BARE = ("Transformer", "Normalize")  # modules that change no cosine of the model inside


class Options(Keys):
    """Options of the encoder `sentence_transformers`."""

    text_prompt: str | None = key(None, "Words before every caption, instead of the model's own prompt for queries.")
    text_prompt_name: str | None = key(None, "The model's prompt of this name before every caption.")
    item_prompt: str | None = key(None, "Words before every clip, instead of the model's own prompt for documents.")
    item_prompt_name: str | None = key(None, "The model's prompt of this name before every clip.")
    frames_per_second: float | None = key(
        None, "Speed that a model of video is told of the frames that it is given; 1 if empty.", gt=0, le=1000
    )


def build(encoding: Encoding) -> SentenceTransformers:
    """The encoder of a model."""
    check(encoding)
    return SentenceTransformers(encoding)


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an absent package, folder or file, or two prompts at once.
    """
    hub.package("sentence_transformers")
    options = _options(encoding)
    for side in ("text_prompt", "item_prompt"):
        if getattr(options, side) is not None and getattr(options, f"{side}_name") is not None:
            raise RewindError(f"encoder_options.{side}: there is {side}_name too; keep one of both.")
    if encoding.frames == "model":
        raise RewindError("frames: model: models of sentence-transformers are given frames; set frames: rewind.")
    folder = local_folder(encoding)
    if folder is None:
        name = _repository(encoding)
        hub.check_cached(encoding, name, CONFIGS, "copy the model into a folder and give that as name")
        if not hub.cached(name, CONFIGS[:1], encoding.revision):
            own_score.refuse_config(encoding, hub.cached_file(name, CONFIGS[1], encoding.revision))
    elif not any((folder / name).is_file() for name in CONFIGS):
        raise RewindError(f"name: {folder}: has neither {CONFIGS[0]} nor {CONFIGS[1]}; put the model's files there.")
    elif not (folder / CONFIGS[0]).is_file():
        own_score.refuse_config(encoding, folder / CONFIGS[1])


class SentenceTransformers(Encoder):
    """A model of sentence-transformers; see :func:`build`."""

    packages = ("sentence-transformers", "transformers", "tokenizers")

    def __init__(self, encoding: Encoding) -> None:
        library, options = compat.sentence_transformers(), _options(encoding)
        self.size, self.speed = encoding.batch_size, options.frames_per_second or FRAMES_PER_SECOND
        source = str(local_folder(encoding) or encoding.name)
        remedy = "Look for a network, or for files that are missing; a folder on this disk works without a network."
        with hub.missing_weights() as missing:
            self.model = hub.loaded(
                encoding,
                lambda: library.SentenceTransformer(
                    source,
                    device=str(device()),
                    revision=encoding.revision,
                    model_kwargs={"dtype": dtype(encoding.precision)},
                ),
                remedy,
            )
        modalities = set(getattr(self.model, "modalities", []))
        self.video = "video" in modalities
        if "text" not in modalities or not modalities & {"image", "video"}:
            raise RewindError(
                f"name: {encoding.name}: embeds {', '.join(sorted(modalities)) or 'nothing known'}; a model of "
                "texts and images, or of texts and video, is needed."
            )
        self.texts = _prompt(self.model, options.text_prompt, options.text_prompt_name, "text")
        self.items = _prompt(self.model, options.item_prompt, options.item_prompt_name, "item")
        self.facts = {"modalities": sorted(map(str, modalities)), "prompts": {"text": self.texts, "item": self.items}}
        self.notes = [TOGETHER if self.video else AVERAGED]
        inside = self._towers()
        if inside is None:
            effect = padding.batch_effect(self._texts)
            if effect > padding.TOLERANCE[encoding.precision]:
                self.notes.append(
                    f"a caption's vector depends on the others of its batch, by {effect:.2g} of its length"
                )
            return
        self._settle(encoding, inside, missing)

    def _towers(self) -> Any:
        """The model of transformers inside, where it is two towers with one space; None of other models."""
        inside = getattr(self.model[0], "model", None)
        own = hasattr(inside, "get_text_features") and hasattr(self.model[0], "processing_kwargs")
        return inside if own and getattr(self.model[0], "processor", None) is not None else None

    def _settle(self, encoding: Encoding, inside: Any, missing: set[str]) -> None:
        """Fill captions up as their family does, and refuse a family whose own score is not these vectors' cosine.

        Raises:
            RewindError: if captions cannot be encoded whatever their batch, or pairs are scored otherwise.
        """
        module, processor = self.model[0], self.model[0].processor
        own = dict(module.processing_kwargs.get("text", {}))

        def use(keys: padding.TextKeys) -> None:
            module.processing_kwargs = {**module.processing_kwargs, "text": own | keys}

        words = padding.declared(inside, processor)
        words |= {name: own[name] for name in ("padding", "truncation", "max_length") if name in own}
        bare = all(type(one).__name__ in BARE for one in self.model)
        # Modules that were published behind the towers were trained: the score is then what they give.
        compared = not self.video and (bare or not _published(encoding))
        frames, pixels = [clip[0] for clip in own_score.made_clips(1)], {}
        if compared:
            own_score.refuse_known(encoding, inside.config.model_type)
            pixels = own_score.image_pixels(inside, processor, frames)
            tokens = own_score.tokens(inside, processor, list(padding.CAPTIONS), words)
            own_score.forward(inside, tokens | pixels, encoding)  # without a score of its own there are no vectors
            own_score.refuse_missing(inside, tokens | pixels, missing, encoding)
        words = padding.settle(inside, words, use, self._texts, encoding)
        self.facts["captions"] = words
        if compared:
            text, items = (self._plain(values) for values in (list(padding.CAPTIONS), frames))
            if own_score.scores_pairs(inside, processor, words, text, items, pixels, encoding):
                raise RewindError(
                    f"name: {encoding.name}: {type(inside).__name__} scores a caption and a picture together, which "
                    "sentence-transformers does not; use encoder: transformers."
                )

    def encode_texts(self, texts: list[str]) -> Vectors:
        return self._encoded(self.model.encode_query, texts, self.texts)

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        if not self.video:
            return mean_of_frames(clips, self.encode_pictures, self.size)
        return np.concatenate([self._clips(some) for some in batches(clips, self.size)])

    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        return self._encoded(self.model.encode_document, [np.ascontiguousarray(frame) for frame in frames], self.items)

    def _texts(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions that are one batch."""
        return np.asarray(
            self.model.encode_query(texts, batch_size=len(texts), show_progress_bar=False, **self.texts), np.float32
        )

    def _plain(self, values: list[Any]) -> np.ndarray:
        """Vectors (n, D) of captions or pictures without a prompt."""
        return np.asarray(self.model.encode(values, prompt="", show_progress_bar=False), np.float32)

    def _clips(self, clips: list[np.ndarray]) -> np.ndarray:
        given = [
            {
                "array": np.ascontiguousarray(clip.transpose(0, 3, 1, 2)),  # (T, 3, H, W)
                "video_metadata": {
                    "fps": self.speed,
                    "total_num_frames": len(clip),
                    "duration": len(clip) / self.speed,
                    "frames_indices": list(range(len(clip))),
                },
            }
            for clip in clips
        ]
        return self._encoded(self.model.encode_document, given, self.items)

    def _encoded(self, encode: Any, values: list[Any], prompt: dict[str, str]) -> np.ndarray:
        found = encode(values, batch_size=self.size, show_progress_bar=False, convert_to_numpy=True, **prompt)
        vectors = np.asarray(found, np.float32)
        return vectors[:, 0] if vectors.ndim == 3 and vectors.shape[1] == 1 else vectors  # one vector of a clip


def _repository(encoding: Encoding) -> str:
    """The model's name on the hub."""
    return encoding.name if "/" in encoding.name else f"sentence-transformers/{encoding.name}"


def _published(encoding: Encoding) -> bool:
    """Whether the model's files say of which modules it is made; of others the library guesses."""
    folder = local_folder(encoding)
    if folder is not None:
        return (folder / CONFIGS[0]).is_file()
    return hub.cached(_repository(encoding), CONFIGS[:1], encoding.revision)


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "sentence_transformers")


def _prompt(model: Any, words: str | None, name: str | None, side: str) -> dict[str, str]:
    """What ``encode`` is told of prompts; nothing: the model's own for queries or documents, if it has one."""
    if words is not None:
        return {"prompt": words}
    if name is None:
        return {}
    known = list(getattr(model, "prompts", {}))
    if name not in known:
        shown = ", ".join(known) or "none"
        raise RewindError(f"encoder_options.{side}_prompt_name: the model has no prompt {name!r}, but {shown}.")
    return {"prompt_name": name}
