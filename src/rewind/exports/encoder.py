"""A finished run as an encoder of captions and clips, for MTEB or for your own use.

:func:`load_encoder` returns a :class:`RunEncoder`, which maps captions and clips to unit vectors, float32 (n, D).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rewind import optional_packages
from rewind.config import Frames
from rewind.data.annotations import TWIN_SUFFIX
from rewind.errors import RewindError
from rewind.loading.encode import tower_features
from rewind.loading.run_data import job_device
from rewind.models.backbone import Backbone
from rewind.models.baselines import PooledBaseline
from rewind.models.retriever import Features, Retriever
from rewind.provenance import file_hash
from rewind.search.run import FinishedRun, open_run
from rewind.search.searcher import QueryEncoder, load_trained
from rewind.video.frames import FrameReader, crop_square, frame_indices, open_frames, stretch_square

ClipFrames = tuple[np.ndarray, np.ndarray]
"""Pixels uint8 [T, 3, S, S] and mask uint8 [T] of a clip; the mask is 1 for frames and 0 for padding."""
EncoderInput = str | ClipFrames
"""A caption, or a clip."""


def load_encoder(folder: str | Path, say: Callable[[str], None] = print, trust: bool = False) -> RunEncoder:
    """The encoder of a finished run, ``results/<study>/runs/<method>/seed<k>``.

    Args:
        say: takes sentences about what was found.
        trust: also run code that is not Rewind's, such as a head of your own: only for results that you trust.

    Raises:
        RewindError: if there is no such run, its model scores pairs, it reads embeddings instead of clips, or it names
            code that was not trusted.
    """
    run = open_run(folder)
    if run.spec.backbone.kind == "embeddings":
        raise RewindError(f"{folder}: this run reads ready-made vectors, so it cannot encode clips.")
    retriever, backbone, _ = load_trained(run, say, trust)
    if not (retriever.compares_vectors or isinstance(retriever, PooledBaseline)):
        raise RewindError(
            f"{folder}: {run.spec.method.model} {run.spec.method.head} scores pairs and has no vector per clip, so it "
            "cannot be an encoder; evaluate it in a study, or use a run with another head."
        )
    assert not isinstance(backbone, QueryEncoder)  # it is that of runs on ready-made vectors
    return RunEncoder(run, retriever, backbone)


class RunEncoder:
    """Maps captions and clips to unit vectors in one space; what is similar has a large dot product.

    It has the methods of MTEB's ``EncoderProtocol`` and the usual ones of sentence-transformers. Frames are chosen,
    resized and cropped as in the run's own evaluation, and rows are encoded ``evaluation.batch_size`` at a time, always
    this many, because other batch sizes can change the last digits and so break ties. ``backbone`` prepares captions,
    and makes frame features for baselines that read only features.
    """

    def __init__(self, run: FinishedRun, retriever: Retriever, backbone: Backbone) -> None:
        self.run, self.retriever, self.backbone = run, retriever, backbone
        self.size, self._read = run.spec.evaluation.batch_size, _InputReader(run.spec.frames, run.max_frames)

    def encode(self, inputs: Any, **ignored: Any) -> np.ndarray:
        """Unit vectors, float32 [n, D], in the order of ``inputs``.

        Args:
            inputs: captions (``str``), clips (``pathlib.Path``, or decoders like torchcodec's), or MTEB's data loader.
                A clip whose file is called ``<id>_rev`` is read as a reversed twin: the exact mirror of its original.
            ignored: further arguments of MTEB, such as the task and the batch size.

        Raises:
            RewindError: if captions and clips are mixed, a clip cannot be read, or there is nothing to encode.
        """
        rows = self._loaded(inputs) if hasattr(inputs, "dataset") else map(self._read, inputs)
        parts: list[np.ndarray] = []
        for part in _batched(rows, self.size):
            full = part + part[:1] * (self.size - len(part)) if parts else part
            parts.append(self._batch(full)[: len(part)])
        if not parts:
            raise RewindError("there is nothing to encode; give captions or clips.")
        return np.concatenate(parts)

    def encode_query(self, inputs: Any, **ignored: Any) -> np.ndarray:
        """As :meth:`encode`, which tells captions from clips by their types."""
        return self.encode(inputs)

    def encode_document(self, inputs: Any, **ignored: Any) -> np.ndarray:
        """As :meth:`encode`, which tells captions from clips by their types."""
        return self.encode(inputs)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of all pairs, float32 [n, m].

        Multiplied in double precision and rounded once: otherwise the scores of equal vectors could differ in the last
        digit with their position in the matrix, and a clip would not tie with its twin.
        """
        return (_as_matrix(embeddings1) @ _as_matrix(embeddings2).T).float()

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Cosines of pairs, row by row, float32 [n]."""
        return (_as_matrix(embeddings1) * _as_matrix(embeddings2)).sum(dim=1).float()

    @functools.cached_property
    def mteb_model_meta(self) -> Any:
        """MTEB's description of the model: the run's name, and a hash of its checkpoint as revision.

        Raises:
            RewindError: if MTEB is not installed.
        """
        try:
            model_meta = optional_packages.mteb("models").ModelMeta  # an optional install
        except ModuleNotFoundError:
            raise RewindError("MTEB is not installed: run `pip install 'rewind-bench[mteb]'`.") from None
        return model_meta(
            loader=None,
            name="rewind/" + self.run.name.strip("/").replace("/", "-"),
            revision=file_hash(self.run.model)[:16],
            release_date=None,
            languages=None,
            n_parameters=sum(parameter.numel() for parameter in self.retriever.parameters()),
            memory_usage_mb=None,
            max_tokens=None,
            embed_dim=self.encode(["a"]).shape[1],
            license=None,
            open_weights=None,
            public_training_code=None,
            public_training_data=None,
            framework=["PyTorch"],
            similarity_fn_name="cosine",
            use_instructions=False,
            training_datasets=None,
            modalities=["text", "video"],
        )

    @torch.inference_mode()
    def _batch(self, rows: Sequence[EncoderInput]) -> np.ndarray:
        captions = [row for row in rows if isinstance(row, str)]
        clips = [row for row in rows if not isinstance(row, str)]
        if captions and clips:
            raise RewindError("captions and clips are mixed; encode captions (str) and clips (pathlib.Path) apart.")
        vectors = self._captions(captions) if captions else self._clips(clips)
        return vectors.float().cpu().numpy()

    def _captions(self, captions: list[str]) -> Tensor:
        text = self._text(captions)
        return text["text"] if isinstance(self.retriever, PooledBaseline) else self._vectors(text, self._any_clip)[0]

    def _clips(self, views: Sequence[ClipFrames]) -> Tensor:
        pixels, masks = (torch.from_numpy(np.stack(part)) for part in zip(*views, strict=True))
        items = self._items({"pixels": pixels, "mask": masks})
        baseline = isinstance(self.retriever, PooledBaseline)
        return items["items"] if baseline else self._vectors(self._any_caption, items)[1]

    def _vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors of both sides. A retriever computes them together; neither side depends on the other."""
        return self.retriever.vectors(text, items)

    @functools.cached_property
    def _any_caption(self) -> Features:
        return self._text(["a"])

    @functools.cached_property
    def _any_clip(self) -> Features:
        return self._items(self._read.blank())

    def _text(self, captions: list[str]) -> Features:
        return self.retriever.encode_text({"text": self.backbone.prepare_text(captions).to(job_device())})

    def _items(self, batch: Features) -> Features:
        batch = {name: value.to(job_device()) for name, value in batch.items()}
        if isinstance(self.retriever, PooledBaseline):
            batch = tower_features(self.backbone, batch)
        return self.retriever.encode_items(batch)

    def _loaded(self, inputs: Any) -> Iterator[EncoderInput]:
        """Rows of MTEB's data loader; with this ``collate_fn`` its worker processes read clips as the run does."""
        inputs.collate_fn = self._read.rows
        for batch in inputs:
            yield from batch


class _InputReader:
    """Reads a caption as it is, and a clip as the at most ``count`` frames that the run sees of it."""

    def __init__(self, keys: Frames, count: int) -> None:
        self.keys, self.count = keys, count

    def rows(self, rows: list[dict[str, Any]]) -> list[EncoderInput]:
        """Read rows of MTEB, each of one caption or one clip."""
        inputs = []
        for row in rows:
            present = [name for name in ("text", "video", "image", "audio") if row.get(name) is not None]
            if present not in (["text"], ["video"]):
                raise RewindError(
                    f"this encoder takes rows of one caption or one clip, not of {' and '.join(present) or 'nothing'}; "
                    "choose tasks of the categories t2v and v2t."
                )
            inputs.append(self(row[present[0]]))
        return inputs

    def __call__(self, row: Any) -> EncoderInput:
        if isinstance(row, str):
            return row
        is_path = isinstance(row, Path)
        reader: FrameReader | _DecoderFrames = open_frames(row) if is_path else _DecoderFrames(row)
        twin = is_path and row.stem.endswith(TWIN_SUFFIX)
        keys = self.keys
        # The same steps as in rewind.video.frames.sample_clip, which reads only files.
        indices = frame_indices(len(reader), self.count, keys.sampling, reader.fps, keys.rate, twin)
        resize = stretch_square if keys.fit == "stretch" else crop_square
        pixels, mask = np.zeros((self.count, 3, keys.size, keys.size), np.uint8), np.zeros(self.count, np.uint8)
        pixels[: len(indices)] = np.stack([resize(frame, keys.size) for frame in reader.read(indices)]).transpose(
            0, 3, 1, 2
        )
        mask[: len(indices)] = 1
        return pixels, mask

    def blank(self) -> Features:
        """A batch of one black clip."""
        size = self.keys.size
        return {
            "pixels": torch.zeros(1, self.count, 3, size, size, dtype=torch.uint8),
            "mask": torch.ones(1, self.count, dtype=torch.uint8),
        }


class _DecoderFrames:
    """Frames of a decoder with torchcodec's methods.

    Reversed twins need no care here: the decoder of a task that Rewind exported mirrors them itself.
    """

    def __init__(self, decoder: Any) -> None:
        if not hasattr(decoder, "get_frames_at"):
            raise RewindError(f"{type(decoder).__name__} is neither a caption (str) nor a clip (pathlib.Path).")
        self.decoder, self.fps = decoder, round(float(decoder.metadata.average_fps), 3)

    def __len__(self) -> int:
        return int(self.decoder.metadata.num_frames)

    def read(self, indices: np.ndarray) -> np.ndarray:
        """uint8 RGB [n, height, width, 3] of the frames at ``indices``."""
        return self.decoder.get_frames_at([int(at) for at in indices]).data.permute(0, 2, 3, 1).cpu().numpy()


def _batched(rows: Iterable[EncoderInput], size: int) -> Iterator[list[EncoderInput]]:
    """Lists of ``size`` rows, the last one shorter (``itertools.batched`` exists from Python 3.12 on)."""
    part: list[EncoderInput] = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _as_matrix(vectors: Any) -> Tensor:
    """float64 [n, D]; a single vector is one row."""
    matrix = torch.as_tensor(vectors, dtype=torch.float64)
    return matrix if matrix.dim() == 2 else matrix[None]
