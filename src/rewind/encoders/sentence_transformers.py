"""Models of sentence-transformers that embed texts and clips, or texts and images, in one space.

``name`` is a name on the hub or a local folder. A model that takes video gets all frames of a clip together; for
others the features of frames are averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rewind import optional_packages
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.config.encoders import Encoding
from rewind.encoders import base, padding, transformers
from rewind.encoders.base import Encoder, EncoderOutput, local_model_folder
from rewind.encoders.caption_text import UNKNOWN, UNKNOWN_NOTE, caption_writer, prepare_captions
from rewind.encoders.frames import (
    FRAMES_AVERAGED_NOTE,
    batched,
    default_device,
    mean_frame_features,
    to_pil_images,
    torch_dtype,
)
from rewind.errors import RewindError
from rewind.registry import ENCODERS

CONFIG_FILES = ["modules.json", "config.json"]
DEFAULT_FRAMES_PER_SECOND = 1.0
PLAIN_MODULES = ("Transformer", "Normalize")  # modules that leave the cosines of the model of transformers as they are


class Options(ConfigModel):
    """Options of the encoder `sentence_transformers`."""

    text_prompt: str | None = config_field(
        None, "Words before every caption, instead of the model's own prompt for queries."
    )
    text_prompt_name: str | None = config_field(None, "The model's prompt of this name before every caption.")
    item_prompt: str | None = config_field(
        None, "Words before every clip, instead of the model's own prompt for documents."
    )
    item_prompt_name: str | None = config_field(None, "The model's prompt of this name before every clip.")
    frames_per_second: float | None = config_field(
        None, "Frame rate that a model of video is told for the frames that it gets; 1 if empty.", gt=0, le=1000
    )


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for a missing package, folder or file, or two prompts at once.
    """
    base.require_package("sentence_transformers")
    options = _options(encoding)
    for side in ("text_prompt", "item_prompt"):
        if getattr(options, side) is not None and getattr(options, f"{side}_name") is not None:
            raise RewindError(f"encoder_options.{side}: {side}_name is set too; keep only one of them.")
    if encoding.frames == "model":
        raise RewindError("frames: model: models of sentence-transformers are given frames; set frames: rewind.")
    folder = local_model_folder(encoding)
    if folder is None:
        name = _hub_repository(encoding)
        base.require_cached_repository(
            encoding, name, CONFIG_FILES, "copy the model into a folder and give that as name"
        )
        if not base.is_any_file_cached(name, CONFIG_FILES[:1], encoding.revision):
            transformers.read_supported_config(
                encoding, base.cached_file_path(name, CONFIG_FILES[1], encoding.revision)
            )
    elif not any((folder / name).is_file() for name in CONFIG_FILES):
        raise RewindError(
            f"name: {folder}: has neither {CONFIG_FILES[0]} nor {CONFIG_FILES[1]}; put the model's files there."
        )
    elif not (folder / CONFIG_FILES[0]).is_file():
        transformers.read_supported_config(encoding, folder / CONFIG_FILES[1])


@ENCODERS.register("sentence_transformers", check=check)
def build(encoding: Encoding) -> SentenceTransformers:
    """The encoder of the model that ``encoding.name`` names."""
    check(encoding)
    return SentenceTransformers(encoding)


class SentenceTransformers(Encoder):
    """A model of sentence-transformers; see :func:`build`."""

    packages = ("sentence-transformers", "transformers", "tokenizers")

    def __init__(self, encoding: Encoding) -> None:
        library, options = optional_packages.sentence_transformers(), _options(encoding)
        self.size, self.speed = encoding.batch_size, options.frames_per_second or DEFAULT_FRAMES_PER_SECOND
        source = str(local_model_folder(encoding) or encoding.name)
        with base.collect_missing_weights() as missing:
            self.model = base.load_pretrained(
                encoding,
                lambda: library.SentenceTransformer(
                    source,
                    device=str(default_device()),
                    revision=encoding.revision,
                    model_kwargs={"dtype": torch_dtype(encoding.precision)},
                ),
                transformers.NO_FILES_REMEDY,
            )
        modalities = set(getattr(self.model, "modalities", []))
        self.video = "video" in modalities
        self.composes = {"image", "message"} <= modalities  # both in one message
        if "text" not in modalities or not modalities & {"image", "video"}:
            raise RewindError(
                f"name: {encoding.name}: embeds {', '.join(sorted(modalities)) or 'nothing known'}; a model of "
                "texts and images, or of texts and video, is needed."
            )
        self.texts = _prompt_arguments(self.model, options.text_prompt, options.text_prompt_name, "text")
        self.items = _prompt_arguments(self.model, options.item_prompt, options.item_prompt_name, "item")
        self.facts = {"modalities": sorted(map(str, modalities)), "prompts": {"text": self.texts, "item": self.items}}
        self.notes = [transformers.JOINT_FRAMES_NOTE if self.video else FRAMES_AVERAGED_NOTE]
        self.written: Callable[[list[str]], list[str]] = list
        towers = self._towers()
        if towers is None:
            effect = padding.batch_effect(self._encode_one_batch)
            if effect > padding.BATCH_EFFECT_TOLERANCE[encoding.precision]:
                self.notes.append(
                    f"a caption's vector depends on the others of its batch, by {effect:.2g} of its length"
                )
            return
        self._choose_padding_and_check_scores(encoding, towers, missing)

    def _towers(self) -> Any:
        """The model of transformers inside, if it is two towers with one space; None for other models."""
        towers = getattr(self.model[0], "model", None)
        is_two_towers = hasattr(towers, "get_text_features") and hasattr(self.model[0], "processing_kwargs")
        return towers if is_two_towers and getattr(self.model[0], "processor", None) is not None else None

    def _choose_padding_and_check_scores(self, encoding: Encoding, towers: Any, missing: set[str]) -> None:
        """Pad captions as their family does, and refuse a family whose own score is not the cosine of these vectors.

        ``towers`` is the model of transformers inside, ``missing`` the weights that its files lack.
        """
        module, processor = self.model[0], self.model[0].processor
        tokenizer = getattr(processor, "tokenizer", None)
        self.facts["caption_text"] = prepare_captions(towers.config.model_type, tokenizer)
        self.written = caption_writer(towers.config.model_type)
        if self.facts["caption_text"] == UNKNOWN and not _declares_modules(encoding):
            self.notes = [*self.notes, UNKNOWN_NOTE]
        own_options = dict(module.processing_kwargs.get("text", {}))

        def use(options: padding.TokenizerOptions) -> None:
            module.processing_kwargs = {**module.processing_kwargs, "text": own_options | options}

        options = padding.declared_padding(towers, processor)
        options |= {name: own_options[name] for name in ("padding", "truncation", "max_length") if name in own_options}
        bare = all(type(part).__name__ in PLAIN_MODULES for part in self.model)
        # Modules that were published behind the towers were trained: the model's score is then the cosine of what they
        # give, and the towers' own is not a measure.
        compared = not self.video and (bare or not _declares_modules(encoding))
        frames, pixels = [clip[0] for clip in transformers.probe_clips(1)], {}
        if compared:
            transformers.refuse_family_without_score(encoding, towers.config.model_type)
            pixels = transformers.preprocess_images(towers, processor, frames)
            tokens = transformers.tokenise(towers, processor, list(padding.PROBE_CAPTIONS), options)
            transformers.forward_scores(towers, tokens | pixels, encoding)  # raises if the model has no score
            transformers.refuse_random_weights(towers, tokens | pixels, missing, encoding)
        options = padding.choose_padding(towers, options, use, self._encode_one_batch, encoding)
        self.facts["captions"] = options
        if compared:
            text, items = (self._encode_without_prompt(values) for values in (list(padding.PROBE_CAPTIONS), frames))
            if transformers.scores_pairs(towers, processor, options, text, items, pixels, encoding):
                raise RewindError(
                    f"name: {encoding.name}: {type(towers).__name__} scores a caption and a picture together, which "
                    "sentence-transformers does not; use encoder: transformers."
                )

    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        return self._encode(self.model.encode_query, self.written(texts), self.texts)

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        if not self.video:
            return mean_frame_features(clips, self.encode_pictures, self.size)
        return np.concatenate([self._encode_clip_batch(batch) for batch in batched(clips, self.size)])

    def encode_composed(self, texts: list[str], pictures: list[np.ndarray]) -> EncoderOutput:
        pairs = zip(to_pil_images(pictures), texts, strict=True)
        # The picture first, as in the prompts of TARA and of Qwen3-VL-Embedding.
        queries = [{"image": picture, "text": text} for picture, text in pairs]
        return self._encode(self.model.encode_query, queries, self.texts)

    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        return self._encode(self.model.encode_document, [np.ascontiguousarray(frame) for frame in frames], self.items)

    def _encode_one_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions encoded as one batch."""
        return np.asarray(
            self.model.encode_query(texts, batch_size=len(texts), show_progress_bar=False, **self.texts), np.float32
        )

    def _encode_without_prompt(self, values: list[Any]) -> np.ndarray:
        """Vectors (n, D) of captions or pictures without a prompt."""
        return np.asarray(self.model.encode(values, prompt="", show_progress_bar=False), np.float32)

    def _encode_clip_batch(self, clips: list[np.ndarray]) -> np.ndarray:
        # The metadata say how far apart in time the frames are, and that none was left out.
        inputs = [
            {
                "array": np.ascontiguousarray(clip.transpose(0, 3, 1, 2)),  # (T, 3, H, W)
                "video_metadata": transformers.frames_metadata(len(clip), self.speed),
            }
            for clip in clips
        ]
        return self._encode(self.model.encode_document, inputs, self.items)

    def _encode(self, encode: Any, values: list[Any], prompt: dict[str, str]) -> np.ndarray:
        output = encode(values, batch_size=self.size, show_progress_bar=False, convert_to_numpy=True, **prompt)
        vectors = np.asarray(output, np.float32)
        return vectors[:, 0] if vectors.ndim == 3 and vectors.shape[1] == 1 else vectors  # one vector of a clip


def _hub_repository(encoding: Encoding) -> str:
    """The model's name on the hub; sentence-transformers puts its own organisation before a bare name."""
    return encoding.name if "/" in encoding.name else f"sentence-transformers/{encoding.name}"


def _declares_modules(encoding: Encoding) -> bool:
    """Whether the model's files declare its modules; if not, the library guesses them."""
    folder = local_model_folder(encoding)
    if folder is not None:
        return (folder / CONFIG_FILES[0]).is_file()
    return base.is_any_file_cached(_hub_repository(encoding), CONFIG_FILES[:1], encoding.revision)


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "sentence_transformers")


def _prompt_arguments(model: Any, words: str | None, name: str | None, side: str) -> dict[str, str]:
    """Arguments of ``encode`` for a prompt; none leaves the model's own for queries or documents, if it has one."""
    if words is not None:
        return {"prompt": words}
    if name is None:
        return {}
    names = list(getattr(model, "prompts", {}))
    if name not in names:
        available = ", ".join(names) or "none"
        raise RewindError(f"encoder_options.{side}_prompt_name: the model has no prompt {name!r}, but {available}.")
    return {"prompt_name": name}
