"""A split, ready for a model: usable items and captions, inputs, prepared text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.feeding.embeddings import INDEX, Embeddings
from rewind.feeding.ids import Identified, IdentifiedText, Text
from rewind.feeding.inputs import Clips, Inputs, Noise, StoredClips, cached_frames, cached_text
from rewind.feeding.training_data import TrainingData
from rewind.files import reading_user_file
from rewind.models.checkpoint import load_model, visual_hash
from rewind.models.making import make_retriever, maker
from rewind.models.retriever import Retriever
from rewind.study import RunSpec
from rewind.study.together import NOISE


@dataclass
class Prepared:
    """One split as a model needs it; ``workers`` processes may decode it."""

    items: pd.DataFrame
    captions: pd.DataFrame
    inputs: Inputs
    text: Text
    workers: int = 0

    def training_data(self) -> TrainingData:
        """The split in the form of the training loop."""
        row = pd.Series(np.arange(len(self.items)), index=self.items["item_id"])
        clusters = pd.factorize(self.items["cluster_id"])[0]
        return TrainingData(
            inputs=self.inputs,
            text=self.text,
            item_of_caption=row[self.captions["video_id"]].to_numpy(),
            cluster_of_item=clusters,
            caption_ids=self.captions["caption_id"].tolist(),
            captions=self.captions["caption"].tolist(),
            workers=self.workers,
        )


@dataclass
class DataFolder:
    """Where a run's data lie.

    Attributes:
        folder: ``results/data/<dataset>``.
        dataset: the dataset's name.
        spec: the run's keys.
        max_frames: frames per clip.
        cache: what was made once for all runs: features of frozen towers (``.npz``), the ``index.json`` of a frame
            store, or the ``embeddings.json`` of a data set of vectors; None to read clips.
    """

    folder: Path
    dataset: str
    spec: RunSpec
    max_frames: int
    cache: Path | None = None

    def __post_init__(self) -> None:
        self._features = self._embeddings = None
        if self.cache is not None and self.cache.name == INDEX:
            self._embeddings = Embeddings(self.cache)
            self.spec = _with_widths(self.spec, self._embeddings)
        elif self.cache is not None and self.cache.suffix == ".npz":
            with reading_user_file(self.cache, "npz", "remake it"), np.load(self.cache, allow_pickle=False) as archive:
                self._features = {name: archive[name] for name in archive.files}

    def train_captions(self) -> list[str]:
        """Captions from which a word vocabulary is built."""
        return load_split(self.folder, self.dataset, "train").captions["caption"].tolist()

    def split(self, name: str, retriever: Retriever) -> Prepared:
        """A split's usable items and captions, prepared for ``retriever``."""
        items, captions, _ = load_split(self.folder, self.dataset, name)
        return self.prepare(items, captions, retriever)

    def prepare(self, items: pd.DataFrame, captions: pd.DataFrame, retriever: Retriever) -> Prepared:
        """Inputs and text of any items and captions, as far as the model covers them."""
        items, captions = retriever.covers(items, captions)
        given = retriever.from_captions(items, captions)
        if given is not None:
            return Prepared(items, captions, *given)
        inputs = self.inputs_for(retriever, items)
        text: Text
        if self._embeddings is not None:
            text = self._embeddings.text(captions)
        elif self._features is not None and "text" in self._features:
            text = cached_text(self._features, captions, str(self.cache))
        else:
            text = _prepare_text(retriever, captions["caption"].tolist())
        if retriever.reads_ids:
            text = IdentifiedText(text, captions)
        return Prepared(items, captions, inputs, text, self.spec.frames.workers)

    def check_tower(self, retriever: Retriever) -> None:
        """Refuse cached features of another visual tower than the retriever's: its scores would mean nothing.

        Raises:
            RewindError: with the keys that give all runs one tower. Features of earlier versions do not say whose they
                are, and pass.
        """
        if retriever.backbone is None or not self._features or "tower" not in self._features:
            return
        own, theirs = visual_hash(retriever.backbone), str(self._features["tower"])
        if own and theirs and own != theirs:
            raise RewindError(
                f"{self.cache}: features of another visual tower than this run's. A frozen tower must be the same in "
                "every job: name its weights (backbone.weights, backbone.pretrained), train it first (pretraining), or "
                "take visual out of the method's training.freeze. If only its weights changed, delete this file and "
                "run again."
            )

    def inputs_for(self, retriever: Retriever, items: pd.DataFrame) -> Inputs:
        """:meth:`inputs`, with ids and paths where the retriever reads them."""
        inputs = self.inputs(items)
        return Identified(inputs, items, self.folder) if retriever.reads_ids else inputs

    def inputs(self, items: pd.DataFrame) -> Inputs:
        """What a model sees of ``items``, from where it is cheapest.

        Raises:
            RewindError: for noise where features of clips are cached, or there are no clips.
        """
        if self.spec.frames.noise:
            if self._features is not None or self._embeddings is not None:
                raise RewindError(f"noise: {NOISE}.")
            return Noise(items, self.spec.frames, self.max_frames)
        if self._embeddings is not None:
            return self._embeddings.items(items)
        if self._features is not None:
            return cached_frames(self._features, items, str(self.cache))
        if self.cache is not None:
            return StoredClips(items, self.cache, self.spec.frames, self.max_frames)
        return Clips(items, self.folder, self.spec.frames, self.max_frames)


def check_method(spec: RunSpec) -> None:
    """Refuse a method that its module refuses before it is run.

    Raises:
        RewindError: naming the key.
    """
    maker(spec.method.model).check(spec.method, spec.backbone)


def build_retriever(data: DataFolder) -> Retriever:
    """The untrained retriever of a run; new parameters come from torch's global generator."""
    spec = data.spec
    return make_retriever(spec.method, spec.backbone, spec.text, data.train_captions())


def trained_retriever(data: DataFolder, model: str | Path) -> Retriever:
    """The retriever of a run with the weights of its checkpoint.

    Raises:
        RewindError: if the checkpoint is not of these keys.
    """
    retriever = build_retriever(data)
    load_model(model, retriever)
    return retriever


def _with_widths(spec: RunSpec, embeddings: Embeddings) -> RunSpec:
    """The keys with the widths of the data set's vectors.

    Raises:
        RewindError: if the study expects others.
    """
    found = {"text_width": embeddings.text_width, "item_width": embeddings.item_width}
    for name, width in found.items():
        wanted = getattr(spec.backbone, name)
        if wanted is not None and wanted != width:
            raise RewindError(
                f"backbone.{name}: {wanted}, but the vectors of {embeddings.index} have width {width}: correct the "
                "key, remove it, or name the intended dataset."
            )
    return spec.model_copy(update={"backbone": spec.backbone.model_copy(update=found)})


def _prepare_text(retriever: Retriever, captions: list[str]) -> Tensor:
    backbone = retriever.backbone
    if backbone is not None:
        return backbone.prepare_text(captions)
    if not retriever.reads_ids:
        raise RewindError(
            f"methods.*.model: {type(retriever).__name__} has no backbone that prepares captions: set reads_ids = True "
            "to find their ids and texts in batches, or write from_captions()."
        )
    return torch.zeros(len(captions), 1)


def device() -> torch.device:
    """The device that this job was granted."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
