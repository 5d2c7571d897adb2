"""Models of MTEB's registry that embed texts and video, loaded as MTEB loads them and fed with our frames.

MTEB's models take clips from decoders and choose frames by themselves. Each is given a decoder whose clip is exactly
the frames that were chosen here. Where a model wants another number, frames are dropped or repeated here too, symmetric
in time: MTEB's own way to repeat them would not give a twin the mirror image.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rewind import compat
from rewind.encoders import hub, padding
from rewind.encoders.frames import device, symmetric
from rewind.encoders.interface import Encoder, Vectors
from rewind.errors import RewindError
from rewind.study.encoding import Encoding
from rewind.study.keys import Keys, key, read_options
from rewind.video.frames import open_clip

OWN = "clips are encoded by the model's own code, so that one blind to their order ties to rounding only"
SAMPLED = "a model that takes another number of frames is given some twice, or not all, symmetric in time"
SOUND = ("torchaudio",)  # asked for by models that could hear; no clip here has sound
PAIRWISE = {"xclip_models": "X-CLIP"}  # MTEB's modules of models whose own score is no product of two vectors


class Options(Keys):
    """Options of the encoder `mteb`."""

    model: dict[str, Any] = key({}, "Arguments of the model's loader in MTEB, for example `num_frames`.")
    frames_per_second: float = key(1.0, "Speed that the model is told of the frames that it is given.", gt=0, le=1000)


def build(encoding: Encoding) -> Mteb:
    """The encoder of a model."""
    check(encoding)
    return Mteb(encoding)


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an absent package, a name that the registry lacks, a model without text or video, or another
            revision than the registry's.
    """
    hub.package("mteb")
    hub.package("datasets")
    _options(encoding)
    if encoding.precision != "fp32":
        raise RewindError(
            f"precision: {encoding.precision}: MTEB's loaders choose numbers themselves; remove the key, or give the "
            "loader's argument in encoder_options.model."
        )
    meta = _meta(encoding)
    has = set(meta.modalities)
    if not {"text", "video"} <= has:
        raise RewindError(f"name: {encoding.name}: embeds {', '.join(sorted(has))}; texts and video are needed.")
    if "dense" not in meta.model_type and "late-interaction" not in meta.model_type:
        raise RewindError(f"name: {encoding.name}: scores pairs and has no vectors; take a model that embeds.")
    if _module(meta) in PAIRWISE:
        raise RewindError(
            f"name: {encoding.name}: {PAIRWISE[_module(meta)]} scores a caption and a clip together, but MTEB compares "
            "vectors that it makes apart; use encoder: transformers."
        )
    if encoding.revision is not None and encoding.revision != meta.revision:
        raise RewindError(f"revision: {encoding.revision}, but MTEB knows {encoding.name} at {meta.revision} alone.")
    if "/" in encoding.name and not encoding.name.startswith("mteb/baseline-") and meta.open_weights:
        hub.check_cached(
            encoding.model_copy(update={"revision": meta.revision}),
            encoding.name,
            ["config.json", "model.safetensors", "README.md"],
            "copy the hub's cache of another machine there",
        )


class Mteb(Encoder):
    """A model of MTEB's registry; see :func:`build`."""

    packages = ("mteb", "transformers", "sentence-transformers")

    def __init__(self, encoding: Encoding) -> None:
        self.size, options = encoding.batch_size, _options(encoding)
        self.speed = options.frames_per_second
        meta = _meta(encoding)
        remedy = "Look for a network, or for a package that the model needs; MTEB's page of the model names it."
        with _without_sound():
            self.model = hub.loaded(encoding, lambda: meta.load_model(device=str(device()), **options.model), remedy)
        self.facts = {"revision": meta.revision, "framework": [str(one) for one in meta.framework]}
        self.notes = [OWN, SAMPLED]
        if encoding.frames == "model":
            self.notes = [OWN]
        self.task = _task()
        if (effect := padding.batch_effect(self._together)) > padding.TOLERANCE["bf16"]:  # loaders choose the numbers
            self.notes.append(f"a caption's vector depends on the others of its batch, by {effect:.2g} of its length")

    def encode_texts(self, texts: list[str]) -> Vectors:
        return self._encoded([{"text": text} for text in texts], "query")

    def _together(self, texts: list[str]) -> np.ndarray:
        """Vectors (n, D) of captions that are one batch, of several vectors of each the mean."""
        size, self.size = self.size, len(texts)
        try:
            found = self.encode_texts(texts)
        finally:
            self.size = size
        return np.stack([one.mean(axis=0) if one.ndim > 1 else one for one in found])

    def encode_clips(self, clips: list[np.ndarray]) -> Vectors:
        return self._encoded([{"video": Frames(clip, self.speed)} for clip in clips], "document")

    def encode_files(self, paths: list[Any]) -> Vectors:
        """Vectors of whole clips: the model's own sampler sees every frame."""
        return self._encoded([{"video": File(path)} for path in paths], "document")

    def _encoded(self, rows: list[dict[str, Any]], side: str) -> Vectors:
        types = compat.mteb("types")
        loader = torch.utils.data.DataLoader(_Rows(rows), batch_size=self.size, collate_fn=_columns)
        with _without_sound():
            found = self.model.encode(
                loader,
                task_metadata=self.task,
                hf_split="test",
                hf_subset="default",
                prompt_type=types.PromptType(side),
                batch_size=self.size,
            )
        return _rows(found)


class Frames:
    """A clip in memory that looks like torchcodec's decoder: what MTEB's collators use of it, and no more.

    Args:
        clip: uint8 (T, H, W, 3).
        speed: frames per second.
    """

    def __init__(self, clip: np.ndarray, speed: float) -> None:
        self.clip = clip
        self.metadata = _metadata(len(clip), speed)

    def __len__(self) -> int:
        return len(self.clip)

    def get_frames_at(self, indices: Any) -> SimpleNamespace:
        """Frames as ``data``, uint8 (n, 3, H, W); of a choice from the whole clip as many, symmetric in time."""
        places = np.asarray(indices, np.int64)
        if len(places) > 1 and places[0] == 0 and places[-1] == len(self.clip) - 1:
            return _frames(symmetric(self.clip, len(places)))
        return _frames(self.clip[places])


class File:
    """A clip on disk that looks like torchcodec's decoder.

    Args:
        path: a prepared clip.
    """

    def __init__(self, path: Any) -> None:
        self.reader = open_clip(path)
        self.metadata = _metadata(len(self.reader), self.reader.fps)

    def __len__(self) -> int:
        return len(self.reader)

    def get_frames_at(self, indices: Any) -> SimpleNamespace:
        """Frames as ``data``, uint8 (n, 3, H, W)."""
        return _frames(self.reader.read(np.asarray(indices, np.int64)))


class _Rows(torch.utils.data.Dataset):
    """Rows in memory, with the names of their columns where MTEB's models look for them."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.features = dict.fromkeys(rows[0])
        self.column_names = list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return dict(self.rows[place])  # a collator writes into it


def _metadata(frames: int, speed: float) -> SimpleNamespace:
    seconds = frames / speed
    return SimpleNamespace(
        num_frames=frames,
        average_fps=speed,
        begin_stream_seconds=0.0,
        end_stream_seconds=seconds,
        duration_seconds=seconds,
    )


def _frames(chosen: np.ndarray) -> SimpleNamespace:
    return SimpleNamespace(data=torch.from_numpy(np.ascontiguousarray(chosen.transpose(0, 3, 1, 2))))


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in rows[0]}


def _rows(found: Any) -> Vectors:
    """What a model gives as float32: (n, D), or a list of (L, D) where it has many vectors of each."""
    if isinstance(found, list | tuple):
        return [_rows(one) for one in found]
    if isinstance(found, torch.Tensor):
        found = found.detach().float().cpu().numpy()
    values = np.asarray(found, np.float32)
    return [one[np.abs(one).sum(axis=1) > 0] for one in values] if values.ndim == 3 else values


def _meta(encoding: Encoding) -> Any:
    known = {meta.name: meta for meta in compat.mteb().get_model_metas()}
    if encoding.name in known:
        return known[encoding.name]
    embeds = [name for name, meta in known.items() if name and {"text", "video"} <= set(meta.modalities)]
    near = difflib.get_close_matches(encoding.name, embeds, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(embeds)} models of texts and video."
    raise RewindError(f"name: {encoding.name}: not in MTEB's registry; {hint}")


def _module(meta: Any) -> str:
    """MTEB's module that a model's loader is in."""
    return str(getattr(meta.loader, "__module__", "")).rpartition(".")[2]


def _task() -> Any:
    """What MTEB's models are told of the task, which decides their prompts: to find clips for captions."""
    return compat.mteb("abstasks.task_metadata").TaskMetadata(
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
def _without_sound() -> Iterator[None]:
    """Models that could hear ask MTEB for a package of sound before they look at a silent clip; let them pass."""
    module = compat.mteb("_requires_package")
    asked = module._is_package_available
    module._is_package_available = lambda name: name in SOUND or asked(name)
    try:
        yield
    finally:
        module._is_package_available = asked


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "mteb")
