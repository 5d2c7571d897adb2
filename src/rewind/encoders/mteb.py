"""Models of MTEB's registry that embed texts and video, loaded by MTEB and fed with Rewind's frames.

MTEB's models read clips from decoders and sample frames themselves. Each is given a decoder whose clip is exactly the
frames that Rewind sampled. If a model wants another number of frames, some are dropped or repeated here, symmetrically
in time: MTEB's own way of repeating frames would not give a twin the mirror image.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rewind import optional_packages
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.config.encoders import Encoding
from rewind.encoders import base, padding
from rewind.encoders.base import Encoder, EncoderOutput
from rewind.encoders.frames import default_device, to_pil_images
from rewind.errors import RewindError
from rewind.registry import ENCODERS
from rewind.video.frames import open_frames, resampled_indices

OWN_CODE_NOTE = "clips are encoded by the model's own code, so that one blind to their order ties to rounding only"
RESAMPLED_NOTE = "a model that takes another number of frames is given some twice, or not all, symmetric in time"
AUDIO_PACKAGES = ("torchaudio",)  # required by models that also take sound; no clip here has any
# MTEB's modules with models whose own score is not a product of two vectors.
PAIR_SCORING_MODULES = {"xclip_models": "X-CLIP"}


class Options(ConfigModel):
    """Options of the encoder `mteb`."""

    model: dict[str, Any] = config_field({}, "Arguments of the model's loader in MTEB, for example `num_frames`.")
    frames_per_second: float = config_field(
        1.0, "Frame rate that the model is told for the frames that it gets.", gt=0, le=1000
    )


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an absent package, a name that the registry lacks, a model without text or video, or another
            revision than the registry's.
    """
    base.require_package("mteb")
    base.require_package("datasets")
    _options(encoding)
    if encoding.precision != "fp32":
        raise RewindError(
            f"precision: {encoding.precision}: MTEB's loaders choose numbers themselves; remove the key, or give the "
            "loader's argument in encoder_options.model."
        )
    meta = _model_meta(encoding)
    modalities = set(meta.modalities)
    if not {"text", "video"} <= modalities:
        raise RewindError(f"name: {encoding.name}: embeds {', '.join(sorted(modalities))}; texts and video are needed.")
    if "dense" not in meta.model_type and "late-interaction" not in meta.model_type:
        raise RewindError(f"name: {encoding.name}: scores pairs and has no vectors; take a model that embeds.")
    if family := PAIR_SCORING_MODULES.get(_loader_module(meta)):
        raise RewindError(
            f"name: {encoding.name}: {family} scores a caption and a clip together, but MTEB compares vectors that it "
            "computes separately; use encoder: transformers."
        )
    if encoding.revision is not None and encoding.revision != meta.revision:
        raise RewindError(f"revision: {encoding.revision}, but MTEB knows {encoding.name} only at {meta.revision}.")
    if "/" in encoding.name and not encoding.name.startswith("mteb/baseline-") and meta.open_weights:
        base.require_cached_repository(
            encoding.model_copy(update={"revision": meta.revision}),
            encoding.name,
            ["config.json", "model.safetensors", "README.md"],
            "copy the hub's cache of another machine there",
        )


@ENCODERS.register("mteb", check=check)
def build(encoding: Encoding) -> Mteb:
    """The encoder of the model that ``encoding.name`` names."""
    check(encoding)
    return Mteb(encoding)


class Mteb(Encoder):
    """A model of MTEB's registry; see :func:`build`."""

    packages = ("mteb", "transformers", "sentence-transformers")

    def __init__(self, encoding: Encoding) -> None:
        self.size, options = encoding.batch_size, _options(encoding)
        self.speed = options.frames_per_second
        meta = _model_meta(encoding)
        remedy = "Look for a network, or for a package that the model needs; MTEB's page of the model names it."
        with _allow_missing_audio():
            self.model = base.load_pretrained(
                encoding, lambda: meta.load_model(device=str(default_device()), **options.model), remedy
            )
        self.facts = {"revision": meta.revision, "framework": [str(framework) for framework in meta.framework]}
        self.notes = [OWN_CODE_NOTE, RESAMPLED_NOTE]
        if encoding.frames == "model":
            self.notes = [OWN_CODE_NOTE]
        self.task = _retrieval_task()
        self.composes = "image" in meta.modalities
        # The tolerance of bf16, since a loader may choose that precision.
        if (effect := padding.batch_effect(self._encode_one_batch)) > padding.BATCH_EFFECT_TOLERANCE["bf16"]:
            self.notes.append(f"a caption's vector depends on the others of its batch, by {effect:.2g} of its length")

    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        return self._encode([{"text": text} for text in texts], "query")

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        return self._encode([{"video": FrameDecoder(clip, self.speed)} for clip in clips], "document")

    def encode_composed(self, texts: list[str], pictures: list[np.ndarray]) -> EncoderOutput:
        pairs = zip(to_pil_images(pictures), texts, strict=True)
        return self._encode([{"image": picture, "text": text} for picture, text in pairs], "query")

    def encode_files(self, paths: list[Any]) -> EncoderOutput:
        """Vectors of whole clips: the model's own sampler sees every frame."""
        return self._encode([{"video": FileDecoder(path)} for path in paths], "document")

    def _encode_one_batch(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions encoded as one batch; of a caption with several vectors their mean."""
        size, self.size = self.size, len(texts)
        try:
            vectors = self.encode_texts(texts)
        finally:
            self.size = size
        return np.stack([vector.mean(axis=0) if vector.ndim > 1 else vector for vector in vectors])

    def _encode(self, rows: list[dict[str, Any]], side: str) -> EncoderOutput:
        types = optional_packages.mteb("types")
        loader = torch.utils.data.DataLoader(_RowDataset(rows), batch_size=self.size, collate_fn=_collate)
        with _allow_missing_audio():
            vectors = self.model.encode(
                loader,
                task_metadata=self.task,
                hf_split="test",
                hf_subset="default",
                prompt_type=types.PromptType(side),
                batch_size=self.size,
            )
        return _to_float32(vectors)


class FrameDecoder:
    """A clip uint8 (T, H, W, 3) with the interface of torchcodec's decoder, as far as MTEB's collators use it.

    >>> decoder = FrameDecoder(np.zeros((8, 4, 6, 3), np.uint8), speed=2.0)
    >>> decoder.get_frames_at([0, 7]).data.shape, decoder.metadata.duration_seconds
    (torch.Size([2, 3, 4, 6]), 4.0)
    """

    def __init__(self, clip: np.ndarray, speed: float) -> None:
        self.clip = clip
        self.metadata = _decoder_metadata(len(clip), speed)

    def __len__(self) -> int:
        return len(self.clip)

    def get_frames_at(self, indices: Any) -> SimpleNamespace:
        """Frames as ``data``, uint8 (n, 3, H, W).

        Indices that reach from the first frame to the last are a collator's sample of the whole clip. As many frames
        are then sampled symmetrically in time instead, so that a twin gets the mirror image.
        """
        index = np.asarray(indices, np.int64)
        if len(index) > 1 and index[0] == 0 and index[-1] == len(self.clip) - 1:
            return _frame_batch(self.clip[resampled_indices(len(self.clip), len(index))])
        return _frame_batch(self.clip[index])


class FileDecoder:
    """A prepared clip on disk with the interface of torchcodec's decoder."""

    def __init__(self, path: Any) -> None:
        self.reader = open_frames(path)
        self.metadata = _decoder_metadata(len(self.reader), self.reader.fps)

    def __len__(self) -> int:
        return len(self.reader)

    def get_frames_at(self, indices: Any) -> SimpleNamespace:
        """Frames as ``data``, uint8 (n, 3, H, W)."""
        return _frame_batch(self.reader.read(np.asarray(indices, np.int64)))


class _RowDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Rows in memory, with the names of their columns in the attributes that MTEB's models read."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.features = dict.fromkeys(rows[0])
        self.column_names = list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(self.rows[index])  # a copy: collators write into it


def _decoder_metadata(frames: int, speed: float) -> SimpleNamespace:
    seconds = frames / speed
    return SimpleNamespace(
        num_frames=frames,
        average_fps=speed,
        begin_stream_seconds=0.0,
        end_stream_seconds=seconds,
        duration_seconds=seconds,
    )


def _frame_batch(frames: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(data=torch.from_numpy(np.ascontiguousarray(frames.transpose(0, 3, 1, 2))))


def _collate(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _to_float32(output: Any) -> Any:
    """A model's output as float32: (n, D), or a list of (L, D) if it has several vectors per input."""
    if isinstance(output, list | tuple):
        return [_to_float32(part) for part in output]
    if isinstance(output, torch.Tensor):
        output = output.detach().float().cpu().numpy()
    values = np.asarray(output, np.float32)
    # Inputs with fewer vectors than others are padded with zero vectors.
    return [vectors[np.abs(vectors).sum(axis=1) > 0] for vectors in values] if values.ndim == 3 else values


def _model_meta(encoding: Encoding) -> Any:
    registry = {meta.name: meta for meta in optional_packages.mteb().get_model_metas()}
    if encoding.name in registry:
        return registry[encoding.name]
    embeds = [name for name, meta in registry.items() if name and {"text", "video"} <= set(meta.modalities)]
    near = difflib.get_close_matches(encoding.name, embeds, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(embeds)} models of texts and video."
    raise RewindError(f"name: {encoding.name}: not in MTEB's registry; {hint}")


def _loader_module(meta: Any) -> str:
    """MTEB's module that a model's loader is in."""
    return str(getattr(meta.loader, "__module__", "")).rpartition(".")[2]


def _retrieval_task() -> Any:
    """The task as MTEB describes tasks, to find clips for captions: models choose their prompts by it."""
    return optional_packages.mteb("abstasks.task_metadata").TaskMetadata(
        name="RewindRetrieval",
        description="Find the clip that a caption describes.",
        reference=None,
        dataset={"path": "local", "revision": "1"},
        type="Any2AnyRetrieval",
        category="t2v",
        modalities=["text", "video"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
    )


@contextlib.contextmanager
def _allow_missing_audio() -> Iterator[None]:
    """Inside the block, MTEB takes audio packages for installed.

    Models that also take sound require them before they see that a clip has none.
    """
    module: Any = optional_packages.mteb("_requires_package")
    is_available = module._is_package_available
    module._is_package_available = lambda name: name in AUDIO_PACKAGES or is_available(name)
    try:
        yield
    finally:
        module._is_package_available = is_available


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "mteb")
