"""Models of transformers with a common space of texts and images, or of texts and clips: CLIP, SigLIP, X-CLIP, …

``name`` is a name on the hub or a local folder. A model that takes clips sees all frames of one together, so it can
know their order; for others the features of frames are averaged. Vectors stand for a pair only if their cosine ranks
pairs as the model's own ``forward`` does. X-CLIP, for example, adds to a caption what it sees in the clip, so its pairs
are scored by ``forward``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind import optional_packages
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.config.encoders import Encoding
from rewind.data.tokenizers import count_truncated
from rewind.encoders import base, padding
from rewind.encoders.base import EncoderOutput, PairEncoder, local_model_folder
from rewind.encoders.caption_text import UNKNOWN, UNKNOWN_NOTE, caption_writer, prepare_captions
from rewind.encoders.frames import (
    FRAMES_AVERAGED_NOTE,
    batched,
    default_device,
    l2_normalise,
    mean_frame_features,
    to_numpy,
    to_pil_images,
    torch_dtype,
)
from rewind.encoders.padding import PROBE_CAPTIONS, TokenizerOptions
from rewind.errors import RewindError
from rewind.io.files import read_json, require_regular_file
from rewind.models.backbone import Backbone
from rewind.models.encoder_backbone import EncoderBackbone, UnknownTowers, probe_pixel_input
from rewind.models.weights import SHAPES_ONLY
from rewind.registry import ENCODERS
from rewind.video.frames import resampled_indices

# ---- The encoder ---------------------------------------------------------------------------------------------------

CONFIG_FILE = "config.json"
NO_FILES_REMEDY = "Look for a network, or for files that are missing; a folder on this disk works without a network."
JOINT_FRAMES_NOTE = "all frames of a clip are encoded together"
PAIR_SCORES_NOTE = "a caption and a clip go through the model's own forward together: its vectors alone are no score"
DEFAULT_XCLIP_FRAMES = 8  # of XCLIPVisionConfig
CAPTION_BATCH_FACTOR = 8  # times batch_size: captions scored at once with a batch of clips


class Options(ConfigModel):
    """Options of the encoder `transformers`."""

    text_prefix: str = config_field("", "Words before every caption, for example `a video of `.")


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for a missing package, folder or file, or a number of frames that the model does not take.
    """
    base.require_package("transformers")
    _options(encoding)
    if encoding.frames == "model":
        raise RewindError("frames: model: models of transformers are given frames; set frames: rewind.")
    _check_config(encoding, find_config(encoding))


def find_config(encoding: Encoding) -> Path | str | None:
    """A model's configuration; None of a model of the hub that is not on this machine yet.

    Raises:
        RewindError: for a folder without configuration or weights, or a model that cannot be fetched.
    """
    folder = local_model_folder(encoding)
    if folder is None:
        base.require_cached_repository(
            encoding, encoding.name, [CONFIG_FILE], "copy the model into a folder and give that as name"
        )
        return base.cached_file_path(encoding.name, CONFIG_FILE, encoding.revision)
    require_regular_file(folder / CONFIG_FILE, missing_ok=True)
    if not (folder / CONFIG_FILE).is_file():
        raise RewindError(
            f"name: {folder}/{CONFIG_FILE}: no such file. Put the model's configuration and weights there."
        )
    if not any(path for pattern in ("*.safetensors", "*.bin") for path in folder.glob(pattern)):
        raise RewindError(f"name: {folder}: has no weights; put model.safetensors there.")
    return folder / CONFIG_FILE


def backbone(encoding: Encoding) -> Backbone:
    """The model's towers, which can be trained; while the workflow is read, of tensors without numbers."""
    check(encoding)
    if SHAPES_ONLY.get():
        return _towers_without_numbers(encoding)
    with torch.inference_mode(False):  # a model that is built in inference mode cannot be trained
        encoder = Transformers(encoding)
        return TransformersTowers(encoder.model.cpu(), encoder.processor, encoder.words, encoding, encoder.pairs)


@ENCODERS.register("transformers", check=check, backbone=backbone)
def build(encoding: Encoding) -> Transformers:
    """The encoder of the model that ``encoding.name`` names."""
    check(encoding)
    return Transformers(encoding)


class Transformers(PairEncoder):
    """A model of transformers; see :func:`build`.

    Whether it compares vectors or scores pairs is found out when it is loaded.
    """

    packages = ("transformers", "tokenizers", "huggingface_hub")
    pairs = False

    def __init__(self, encoding: Encoding) -> None:
        library = optional_packages.transformers()
        self.encoding = encoding
        self.size, self.type, self.device = encoding.batch_size, torch_dtype(encoding.precision), default_device()
        self._pooled: dict[str, torch.Tensor] = {}  # output of X-CLIP's text tower by caption
        source, hub = model_source(encoding)
        with base.collect_missing_weights() as missing:
            self.model = base.load_pretrained(
                encoding,
                lambda: library.AutoModel.from_pretrained(source, dtype=self.type, **hub),
                NO_FILES_REMEDY,
            )
        self.model = self.model.eval().to(self.device)
        self.processor = base.load_pretrained(
            encoding, lambda: library.AutoProcessor.from_pretrained(source, **hub), NO_FILES_REMEDY
        )
        text = prepare_captions(self.model.config.model_type, getattr(self.processor, "tokenizer", None))
        self.written = caption_writer(self.model.config.model_type, _options(encoding).text_prefix)
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
        refuse_family_without_score(encoding, config.model_type)
        self.frames = getattr(config.vision_config, "num_frames", None) if self.video else None
        if self.frames is not None:
            _check_frames(encoding, self.frames)
        self.words = self._choose_padding_and_check_scores(encoding, missing)  # the tokenizer's options
        self.facts = {"class": kind, "commit": getattr(config, "_commit_hash", None), "captions": self.words}
        self.facts["caption_text"] = text
        self.notes = [JOINT_FRAMES_NOTE if self.video else FRAMES_AVERAGED_NOTE]
        if text == UNKNOWN:
            self.notes.append(UNKNOWN_NOTE)
        if self.pairs:
            self.notes.append(PAIR_SCORES_NOTE)
        if self.frames is not None:
            self.notes.append(f"shorter clips repeat frames up to {self.frames}")

    def _choose_padding_and_check_scores(self, encoding: Encoding, missing: set[str]) -> dict[str, Any]:
        """Options of the tokenizer, which pad captions; sets ``pairs`` if the model's score is not a cosine.

        A model is refused if a caption's vector depends on its batch with every padding, if pairs cannot be scored as
        the model does, or if its scores depend on weights that its files lack (``missing``).
        """
        clips = probe_clips(self.frames or encoding.max_frames or 1)
        frames = [clip[0] for clip in clips]
        pixels = (
            preprocess_clips(self.model, self.processor, clips)
            if self.video
            else preprocess_images(self.model, self.processor, frames)
        )
        options = padding.declared_padding(self.model, self.processor)
        tokens = tokenise(self.model, self.processor, list(padding.PROBE_CAPTIONS), options)
        forward_scores(self.model, tokens | pixels, encoding)  # raises if the model has no score
        refuse_random_weights(self.model, tokens | pixels, missing, encoding)

        def use(tokenizer_options: dict[str, Any]) -> None:
            self.words = tokenizer_options

        options = padding.choose_padding(self.model, options, use, self._encode_text_batch, encoding)
        items = self._encode_clip_batch(clips) if self.video else self.encode_pictures(frames)
        text = self._encode_text_batch(list(padding.PROBE_CAPTIONS))
        self.pairs = scores_pairs(self.model, self.processor, options, text, items, pixels, encoding)
        if self.pairs and not self.video:
            raise RewindError(
                f"name: {encoding.name}: {type(self.model).__name__} scores pairs of a caption and one picture, of "
                f"which a clip has several; {SUPPORTED_MODELS_HINT}."
            )
        return options

    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        self._require_vectors()
        return np.concatenate([self._encode_text_batch(batch) for batch in batched(self.written(texts), self.size)])

    def cut(self, texts: list[str]) -> int | None:
        tokenizer = getattr(self.processor, "tokenizer", None)
        if tokenizer is None or "max_length" not in self.words:
            return None
        return count_truncated(padding.token_counts(tokenizer, self.written(texts)), self.words["max_length"])

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        self._require_vectors()
        if not self.video:
            return mean_frame_features(clips, self.encode_pictures, self.size)
        return np.concatenate([self._encode_clip_batch(batch) for batch in batched(clips, self.size)])

    @torch.inference_mode()
    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        return _pooled_vectors(self.model.get_image_features(**preprocess_images(self.model, self.processor, frames)))

    def score(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        written, batches = self.written(texts), batched(self._resample(clips), self.size)
        return np.concatenate([self._score_clip_batch(written, batch) for batch in batches], axis=1)

    def _require_vectors(self) -> None:
        if self.pairs:
            raise RewindError(
                f"name: {self.encoding.name}: {type(self.model).__name__} scores a caption and a clip together, so no "
                "vectors represent them here: take a model that compares two, such as CLIP or SigLIP."
            )

    @torch.inference_mode()
    def _encode_text_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions encoded as one batch."""
        return _pooled_vectors(self.model.get_text_features(**tokenise(self.model, self.processor, texts, self.words)))

    @torch.inference_mode()
    def _encode_clip_batch(self, clips: list[np.ndarray]) -> np.ndarray:
        """Vectors (n, D) of clips encoded as one batch."""
        clips = self._resample(clips)
        if len({len(clip) for clip in clips}) > 1:  # a tensor holds clips of one length; clips of several go one by one
            return np.concatenate([self._encode_clip_batch([clip]) for clip in clips])
        return _pooled_vectors(self.model.get_video_features(**preprocess_clips(self.model, self.processor, clips)))

    @torch.inference_mode()
    def _score_clip_batch(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        """The model's own scores (n_text, n_clips) of one batch of clips."""
        if len({len(clip) for clip in clips}) > 1:
            return np.concatenate([self._score_clip_batch(texts, [clip]) for clip in clips], axis=1)
        pixels = preprocess_clips(self.model, self.processor, clips)
        scores = []
        with reuse_first_output(self.model.vision_model):
            for batch in batched(texts, CAPTION_BATCH_FACTOR * self.size):
                with self._captions(batch) as tokens:
                    scores.append(pair_logits(self.model, tokens | pixels)[0])
        return np.concatenate(scores)

    @contextlib.contextmanager
    def _captions(self, texts: list[str]) -> Iterator[dict[str, torch.Tensor]]:
        """A batch of captions as ``forward`` takes it.

        X-CLIP's text tower sees no clip. It is asked once for each caption, and not again for every clip: inside the
        block it returns what it said before, whatever it is given.
        """
        if self.model.config.model_type != "xclip":
            yield tokenise(self.model, self.processor, texts, self.words)
            return
        unknown = [text for text in dict.fromkeys(texts) if text not in self._pooled]
        for batch in batched(unknown, self.size):
            output = self.model.text_model(**tokenise(self.model, self.processor, batch, self.words))
            self._pooled |= dict(zip(batch, output.pooler_output, strict=True))
        pooled = torch.stack([self._pooled[text] for text in texts])
        # The model takes the pooled output by its place; the states before it are not used.
        with reuse_first_output(self.model.text_model, (None, pooled)):
            yield {"input_ids": torch.zeros(len(texts), 1, dtype=torch.long, device=self.device)}

    def _resample(self, clips: list[np.ndarray]) -> list[np.ndarray]:
        """Clips with exactly as many frames as the model sees, if that is fixed."""
        return [clip if self.frames is None else clip[resampled_indices(len(clip), self.frames)] for clip in clips]


# ---- Its towers as a backbone --------------------------------------------------------------------------------------

DEFAULT_CONTEXT = 77  # tokens of a caption, of tokenizers that state no number
DEFAULT_LOGIT_SCALE = math.log(1 / 0.07)  # of models without one of their own
UNUSED_FORWARD_NOTE = "its own score also shows a caption to the clip; here two vectors are compared"


class TransformersTowers(EncoderBackbone):
    """The towers of a model of transformers; see :func:`backbone`.

    ``words`` are options of the tokenizer, which pad captions; ``pairs``: the model's own score is not a cosine.
    """

    def __init__(
        self, model: Any, processor: Any, words: TokenizerOptions, encoding: Encoding, pairs: bool = False
    ) -> None:
        self.joint_frames = hasattr(model, "get_video_features")
        self.frame_count = getattr(model.config.vision_config, "num_frames", None) if self.joint_frames else None
        self.processor = processor
        self.written = caption_writer(model.config.model_type, _options(encoding).text_prefix)
        # While the workflow is read, models are made of tensors without numbers; what is tried here needs some.
        with torch.device("cpu"):
            self.pixels_name = _pixels_name(self._process(np.zeros((64, 64, 3), np.uint8)), encoding)
            pixels = probe_pixel_input(self._preprocess, encoding.name)
            self.length = words.get("max_length", DEFAULT_CONTEXT)
            self.words = words | {"padding": "max_length", "max_length": self.length, "return_tensors": "pt"}
            self.masks = "attention_mask" in processor(text=["a"], **self.words)
        super().__init__(model, pixels, encoding.name)
        self.max_words = self.length
        # Only where captions are padded to the longest: SigLIP was trained on whole contexts, padding included.
        self.trims_padding = self.masks and words["padding"] == "longest"
        notes = ((JOINT_FRAMES_NOTE, self.joint_frames), (UNUSED_FORWARD_NOTE, pairs))
        self.notes = tuple(note for note, applies in notes if applies)
        own = getattr(model, "logit_scale", None)
        start = own.detach().float().reshape(()).clone() if isinstance(own, torch.Tensor) and own.numel() == 1 else None
        self.logit_scale = torch.nn.Parameter(torch.tensor(DEFAULT_LOGIT_SCALE) if start is None else start)
        self.find_towers()

    def tokenise(self, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        processed = self.processor(text=self.written(captions), **self.words)
        tokens = processed["input_ids"]
        return tokens, processed["attention_mask"] if self.masks else torch.ones_like(tokens)

    def token_counts(self, captions: list[str]) -> list[int] | None:
        tokenizer = getattr(self.processor, "tokenizer", None)
        return None if tokenizer is None else padding.token_counts(tokenizer, self.written(captions))

    def text_vectors(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        masks = {"attention_mask": mask} if self.masks else {}
        return _pooled(self.model.get_text_features(input_ids=tokens, **masks))

    def picture_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        return _pooled(self.model.get_image_features(**{self.pixels_name: pixels}))

    def video_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        return _pooled(self.model.get_video_features(**{self.pixels_name: pixels}))

    def checkpoint_towers(self) -> None:
        # Called gradient_checkpointing_enable before transformers 5.23.
        enable = getattr(self.model, "activation_checkpointing_enable", self.model.gradient_checkpointing_enable)
        enable({"use_reentrant": False})

    def _process(self, picture: np.ndarray) -> Mapping[str, torch.Tensor]:
        """What the processor makes of a picture, or of a clip that shows it all the time."""
        if not self.joint_frames:
            return process_images(self.processor, [picture])
        return process_clips(self.processor, [np.repeat(picture[None], self.frame_count or 1, axis=0)])

    def _preprocess(self, picture: np.ndarray) -> torch.Tensor:
        values = self._process(picture)[self.pixels_name]
        # Clips come as (1, T, 3, S, S), whose frames are alike; pictures as (1, 3, S, S).
        return values[0, 0] if self.joint_frames and values.ndim == 5 else values[0]


def _pixels_name(processed: Mapping[str, torch.Tensor], encoding: Encoding) -> str:
    """The name under which a model takes pictures or clips."""
    for name, value in processed.items():
        if isinstance(value, torch.Tensor) and name.startswith("pixel_values"):
            return name
    raise RewindError(f"name: {encoding.name}: its processor computes no pixel_values from a picture.")


def model_source(encoding: Encoding) -> tuple[str, dict[str, Any]]:
    """Where a model's files are, its revision, and that no code among them is run: arguments of ``from_pretrained``."""
    hub: dict[str, Any] = {"trust_remote_code": False, **({"revision": encoding.revision} if encoding.revision else {})}
    return str(local_model_folder(encoding) or encoding.name), hub


def _towers_without_numbers(encoding: Encoding) -> Backbone:
    library, (source, hub) = optional_packages.transformers(), model_source(encoding)
    verbosity = library.logging.get_verbosity()
    library.logging.set_verbosity_error()  # a job that loads the model shows the library's messages
    try:
        config = library.AutoConfig.from_pretrained(source, local_files_only=True, **hub)
        with torch.device("cpu"):
            processor = library.AutoProcessor.from_pretrained(source, local_files_only=True, **hub)
        model = library.AutoModel.from_config(config).eval()
    except (OSError, ValueError):  # not on this machine yet
        return UnknownTowers()
    finally:
        library.logging.set_verbosity(verbosity)
    words = padding.declared_padding(model, processor)
    try:
        return TransformersTowers(model, processor, words, encoding)
    except RuntimeError:  # a forward that needs numbers
        return UnknownTowers()


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "transformers")


def _check_config(encoding: Encoding, config: Path | str | None) -> None:
    """Refuse what a model's configuration shows, if its file is on this machine."""
    content = read_supported_config(encoding, config)
    vision = content.get("vision_config")
    if isinstance(vision, dict) and content.get("model_type") == "xclip":
        _check_frames(encoding, vision.get("num_frames", DEFAULT_XCLIP_FRAMES))


def _check_frames(encoding: Encoding, count: int) -> None:
    """Refuse another number of frames than the model sees; without a number its towers check the study's later."""
    if encoding.max_frames not in (None, count):
        raise RewindError(
            f"max_frames: {encoding.max_frames}, but {encoding.name} sees exactly {count} frames of a clip; set "
            f"max_frames: {count}."
        )


def _pooled_vectors(output: Any) -> np.ndarray:
    """Vectors (n, D) of a model's output."""
    return to_numpy(_pooled(output))


def _pooled(output: Any) -> torch.Tensor:
    """(n, D) of a model's output: a tensor in some versions of transformers, in others an object with it."""
    vectors = output if isinstance(output, torch.Tensor) else output.pooler_output
    if vectors is not None and vectors.ndim == 3 and vectors.shape[1] == 1:  # VideoPrism: (n, 1, D) for clips
        vectors = vectors[:, 0]
    if vectors is None or vectors.ndim != 2:
        shape = "none" if vectors is None else f"one of shape {tuple(vectors.shape)}"
        raise RewindError(
            f"name: this model gives {shape} where a vector for each input is needed; {SUPPORTED_MODELS_HINT}."
        )
    return vectors


# ---- Is the cosine of two vectors the score that the model itself gives a pair? ------------------------------------
# Before anything is encoded, probe captions are scored against probe images or clips, once by their vectors and once by
# the model's own forward.

SCORE_TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 2e-2}
"""Largest difference of cosines that rounding explains, by precision."""

SUPPORTED_MODELS_HINT = (
    "take a model whose forward gives logits of captions and pictures, such as CLIP, SigLIP, AltCLIP or X-CLIP"
)

FAMILIES_WITHOUT_SCORE: Mapping[str, str] = {
    "flava": "FLAVA's FlavaModel gives no score of a caption and a picture",
    "blip-2": "BLIP-2's Blip2Model writes text about a picture and gives no score of a caption and a picture",
}
"""Families that are known to have no score, by ``model_type``: refused before the first job. Others are tried."""


def refuse_family_without_score(encoding: Encoding, model_type: str) -> None:
    """Refuse a family that is known to have no score of a caption and a picture."""
    if model_type in FAMILIES_WITHOUT_SCORE:
        raise RewindError(f"name: {encoding.name}: {FAMILIES_WITHOUT_SCORE[model_type]}; {SUPPORTED_MODELS_HINT}.")


def read_supported_config(encoding: Encoding, config: Path | str | None) -> dict[str, Any]:
    """A model's configuration, its family checked before the model is loaded; empty if it is not on this machine."""
    content = read_json(config) if config else {}
    if not isinstance(content, dict):
        raise RewindError(f"name: {config}: not a model's configuration; put the model's own file there.")
    refuse_family_without_score(encoding, str(content.get("model_type")))
    return content


def probe_clips(frames: int) -> list[np.ndarray]:
    """Three different clips uint8 (T, 64, 64, 3): noise, a red ramp that moves, a blue one that does not.

    >>> [clip.shape for clip in probe_clips(2)]
    [(2, 64, 64, 3), (2, 64, 64, 3), (2, 64, 64, 3)]
    """
    ramp = np.linspace(0, 255, 64, dtype=np.uint8)
    red, blue = np.zeros((2, frames, 64, 64, 3), np.uint8)
    for frame in range(frames):
        red[frame, :, :, 0], blue[frame, :, :, 2] = np.roll(ramp, 8 * frame), ramp[::-1, None]
    return [np.random.default_rng(0).integers(0, 256, red.shape, dtype=np.uint8), red, blue]


def tokenise(model: Any, processor: Any, texts: list[str], keys: TokenizerOptions) -> dict[str, torch.Tensor]:
    """A model's inputs for captions: token ids and what else its tokenizer makes, (n, L) each."""
    return to_model_device(model, processor(text=texts, **keys | {"return_tensors": "pt"}))


def preprocess_images(model: Any, processor: Any, frames: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """A model's inputs for pictures uint8 (H, W, 3)."""
    return to_model_device(model, process_images(processor, frames))


def preprocess_clips(model: Any, processor: Any, clips: list[np.ndarray]) -> dict[str, torch.Tensor]:
    """A model's inputs for clips uint8 (T, H, W, 3) of one length: all of their frames."""
    return to_model_device(model, process_clips(processor, clips))


def process_images(processor: Any, frames: list[np.ndarray]) -> Mapping[str, torch.Tensor]:
    """What a processor makes of pictures uint8 (H, W, 3)."""
    return processor(images=to_pil_images(frames), return_tensors="pt")


def process_clips(processor: Any, clips: list[np.ndarray]) -> Mapping[str, torch.Tensor]:
    """What a processor makes of clips uint8 (T, H, W, 3) of one length."""
    # Some processors sample frames themselves unless told not to; the others do not know the argument.
    told: dict[str, Any] = {}
    if hasattr(getattr(processor, "video_processor", None), "do_sample_frames"):
        # Without times they take clips as of 24 frames a second. Ascending in a twin too, which they would give away.
        told = {"do_sample_frames": False, "video_metadata": [frames_metadata(len(clip)) for clip in clips]}
    return processor(videos=[to_pil_images(clip) for clip in clips], return_tensors="pt", **told)


FRAMES_PER_SECOND = 2.0


def frames_metadata(count: int, fps: float = FRAMES_PER_SECOND) -> dict[str, Any]:
    """What a processor is told of a clip whose frames were chosen already: that none was left out, and their rate."""
    return {"fps": fps, "total_num_frames": count, "frames_indices": list(range(count)), "duration": count / fps}


def to_model_device(model: Any, processed: Any) -> dict[str, torch.Tensor]:
    """The tensors of a processor's output on the model's device, those of pictures in the model's dtype."""
    return {
        name: value.to(model.device, model.dtype if value.is_floating_point() else None)
        for name, value in processed.items()
        if isinstance(value, torch.Tensor)
    }


def scores_pairs(
    model: Any,
    processor: Any,
    keys: TokenizerOptions,
    text: np.ndarray,
    items: np.ndarray,
    pixels: dict[str, torch.Tensor],
    encoding: Encoding,
) -> bool:
    """Whether the model's own score of a pair differs from the cosine of the pair's vectors.

    Args:
        text: vectors (3, D) of ``PROBE_CAPTIONS``.
        items: vectors (m, D) of pictures or clips.
        pixels: the model's inputs for the same pictures or clips.

    Raises:
        RewindError: if the model's own score of a pair depends on its batch, so that it cannot be used either.
    """
    inputs = tokenise(model, processor, list(PROBE_CAPTIONS), keys) | pixels
    scores, has_vectors_per_pair = forward_scores(model, inputs, encoding)
    if has_vectors_per_pair:
        return True
    error = score_disagreement(l2_normalise(text) @ l2_normalise(items).T, scores)
    if error <= SCORE_TOLERANCE[encoding.precision]:
        return False
    # The score is not the cosine. It serves if a pair alone gets the same one as among others.
    alone, _ = forward_scores(model, {name: value[:1] for name, value in inputs.items()}, encoding)
    if abs(alone[0, 0] - scores[0, 0]) <= SCORE_TOLERANCE[encoding.precision] * max(1.0, float(np.abs(scores).max())):
        return True
    raise RewindError(
        f"name: {encoding.name}: the score that {type(model).__name__} gives a pair is neither the cosine of its "
        f"vectors (off by {error:.2g}) nor the same in every batch; {SUPPORTED_MODELS_HINT}."
    )


def refuse_random_weights(model: Any, inputs: dict[str, torch.Tensor], missing: set[str], encoding: Encoding) -> None:
    """Refuse a model whose scores depend on weights that its files lack (``missing``) and that were drawn at random.

    These are overwritten in ``model``. ``inputs`` are the model's for captions and pictures.
    """
    weights = dict(model.named_parameters())
    random_names = sorted(missing & weights.keys())
    if not random_names:
        return
    # The library may leave uninitialised memory there, even NaN, so two draws of our own are compared.
    scores = []
    for seed in (1, 2):
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name in random_names:
                shape = weights[name].shape  # a scale or a bias is near 1; a matrix keeps the lengths of vectors
                draw = torch.randn(shape, generator=generator)
                weights[name].copy_(draw * shape[-1] ** -0.5 if len(shape) > 1 else 1 + 0.2 * draw)
        scores.append(_standardise(forward_scores(model, inputs, encoding)[0]))
    if np.allclose(scores[0], scores[1], atol=1e-3):
        return  # they do not matter: a factor of all scores, or a pooling layer that is not used
    architectures = ", ".join(getattr(model.config, "architectures", None) or []) or "another class"
    first_names = ", ".join(random_names[:2]) + (" …" if len(random_names) > 2 else "")
    raise RewindError(
        f"name: {encoding.name}: its files have no {first_names}, which {type(model).__name__} needs and would draw at "
        f"random ({len(random_names):,} in all). They are of {architectures}: take the model that was "
        "published for retrieval, or an encoder of your own."
    )


def forward_scores(model: Any, inputs: dict[str, torch.Tensor], encoding: Encoding) -> tuple[np.ndarray, bool]:
    """:func:`pair_logits` of a model that may not give scores at all, and is then refused."""
    try:
        return pair_logits(model, inputs)
    except torch.cuda.OutOfMemoryError:  # a RuntimeError as well, but no fault of the model's
        raise
    except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RewindError(
            f"name: {encoding.name}: {type(model).__name__} gives no score of a caption and a picture ({reason}); "
            f"{SUPPORTED_MODELS_HINT}."
        ) from error


@torch.inference_mode()
def pair_logits(model: Any, inputs: dict[str, torch.Tensor]) -> tuple[np.ndarray, bool]:
    """The scores of a model's own forward, and whether it makes a vector for each pair.

    Args:
        inputs: the model's for n captions and m pictures or clips.

    Returns:
        Scores (n, m), and whether captions have a vector for each item: X-CLIP's ``text_embeds`` is (m, n, D).

    Raises:
        ValueError: if it gives no scores.
    """
    output = model(**inputs)
    logits = getattr(output, "logits_per_text", None)
    if logits is None:
        per_item = getattr(output, "logits_per_image", getattr(output, "logits_per_video", None))
        logits = None if per_item is None else per_item.T
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        raise ValueError("its forward has no logits_per_text")
    vectors = getattr(output, "text_embeds", None)
    return to_numpy(logits), isinstance(vectors, torch.Tensor) and vectors.ndim > 2


def score_disagreement(cosines: np.ndarray, scores: np.ndarray) -> float:
    """Largest deviation of scores from a rising line through cosines, both (n, m), measured in cosines.

    A scale above 0 and a bias change no rank, so a line is fitted by least squares. Scores that are a softmax are taken
    apart: it adds the same number to the logarithms of a query's scores, which double centring removes.

    >>> cosines = np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> score_disagreement(cosines, 100 * cosines - 10) < 1e-9, score_disagreement(cosines, -cosines)
    (True, inf)
    """
    if (scores > 0).all() and any(np.allclose(scores.sum(axis=axis), 1, atol=1e-3) for axis in (0, 1)):
        cosines, scores = _double_centre(cosines), _double_centre(np.log(scores))
    x, y = cosines - cosines.mean(), scores - scores.mean()
    slope = float((x * y).sum()) / max(float((x * x).sum()), 1e-20)
    return float(np.abs(y / slope - x).max()) if slope > 0 else float("inf")


def _standardise(values: np.ndarray) -> np.ndarray:
    return (values - values.mean()) / max(float(values.std()), 1e-12)


def _double_centre(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()


@contextlib.contextmanager
def reuse_first_output(tower: torch.nn.Module, output: Any = None) -> Iterator[None]:
    """Inside the block, a tower returns its first output again, or one that is known already.

    One batch of clips is scored with many batches of captions, and is encoded only for the first.
    """
    forward: Any = tower.forward
    outputs = [] if output is None else [output]

    def forward_once(*args: Any, **keys: Any) -> Any:
        if not outputs:
            outputs.append(forward(*args, **keys))
        return outputs[0]

    tower.forward = forward_once
    try:
        yield
    finally:
        del tower.forward  # an attribute of the object; the class's own method is visible again
