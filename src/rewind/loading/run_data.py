"""The data of a run: ``RunData`` finds them, ``PreparedSplit`` and ``TrainingData`` hold a split as a model needs it.

``RunData.split`` gives the usable items and captions of a split, their frame source and the prepared text;
``build_untrained_model`` and ``load_trained_model`` build the run's model. Ids of precomputed embeddings and scores
are checked against the data set by ``check_precomputed_files``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.config import Method, RunSpec
from rewind.config.checks import NOISE_FAULT
from rewind.config.training import opposites_file
from rewind.data.annotations import SPLITS, Annotations
from rewind.data.captions import load_split
from rewind.data.opposites import read_opposites
from rewind.data.readers import describe_ids, read_score_file, spelling
from rewind.errors import RewindError
from rewind.io.files import read_csv, read_json, reading_user_file
from rewind.loading.frame_source import ClipFrames, FrameSource, NoiseFrames, StoredFrames, cached_frames, cached_text
from rewind.loading.hard_negatives import HardNegatives, negatives_of_texts, negatives_of_twins
from rewind.loading.text import IdentifiedText, PreparedText, encode_names, take_text
from rewind.models.checkpoint import load_model, visual_hash
from rewind.models.precomputed import (
    Precomputed,
    PrecomputedEmbeddings,
    PrecomputedScores,
    UnscoredPairs,
    load_precomputed,
)
from rewind.models.registry import build_model, model_hooks
from rewind.models.retriever import Features, Retriever
from rewind.video.traces import read_traces

EMBEDDINGS_INDEX = "embeddings.json"  # next to the vectors of a data set
RESULTS_FOLDER = "results"

# ---- The data of a run ---------------------------------------------------------------------------------------------


@dataclass
class RunData:
    """Where a run's data are, and what was computed from them once for all runs."""

    folder: Path  # `results/data/<dataset>`
    dataset: str
    spec: RunSpec
    max_frames: int
    # Features of frozen towers (.npz), the index.json of a frame store, the embeddings.json of a data set of vectors,
    # or the traces of clips (.csv); None to read clips.
    cache: Path | None = None

    def __post_init__(self) -> None:
        self._features = self._embeddings = None
        if self.cache is not None and self.cache.name == EMBEDDINGS_INDEX:
            self._embeddings = EmbeddingFiles(self.cache)
            self.spec = _with_widths(self.spec, self._embeddings)
        elif self.cache is not None and self.cache.suffix == ".csv":
            ids, traces, _ = read_traces(self.cache, "seen")
            self._features = {
                "item_ids": np.array(ids, dtype=str),
                "frames": traces[:, None],
                "mask": np.ones((len(ids), 1), np.float32),
            }
        elif self.cache is not None and self.cache.suffix == ".npz":
            with reading_user_file(self.cache, "npz", "remake it"), np.load(self.cache, allow_pickle=False) as archive:
                self._features = {name: archive[name] for name in archive.files}

    def train_captions(self) -> list[str]:
        """Captions of the training split, from which a word vocabulary is built."""
        return load_split(self.folder, self.dataset, "train").captions["caption"].tolist()

    def split(self, name: str, retriever: Retriever) -> PreparedSplit:
        """A split's usable items and captions, prepared for ``retriever``; with hard negatives for ``train``."""
        items, captions, _ = load_split(self.folder, self.dataset, name)
        split = self.prepare(items, captions, retriever)
        keys = self.spec.method.training
        if keys.hard_negatives is None or name != "train":
            return split
        path = opposites_file(keys)
        if path is None:
            return replace(split, hard_negatives=negatives_of_twins(split.items, split.captions, split.text))
        if self._embeddings is not None or retriever.reads_ids:
            raise RewindError(
                "training.hard_negatives: a file of captions needs a method that reads captions; this one has vectors, "
                "or looks captions up by their ids."
            )
        ids = split.captions["caption_id"].tolist()
        opposites = read_opposites(path, dict(zip(ids, split.captions["caption"], strict=True)))
        owners = [(row, text) for row, name in enumerate(ids) for text in opposites.get(name, [])]
        rows, texts = zip(*owners, strict=True)
        prepared = _prepare_text(retriever, list(texts))
        return replace(split, hard_negatives=negatives_of_texts(split.items, split.captions, prepared, texts, rows))

    def prepare(
        self, items: pd.DataFrame, captions: pd.DataFrame, retriever: Retriever, cached: bool = True
    ) -> PreparedSplit:
        """Inputs and text of any items (item_id, path, reversed) and captions, as far as the model covers them.

        Text that a frozen tower has encoded is read from the cache if ``cached``; other captions are not in it.
        """
        items, captions = retriever.covers(items, captions)
        own_inputs = retriever.from_captions(items, captions)
        if own_inputs is not None:  # it looks at no pictures: no file of the split is read
            return PreparedSplit(items, captions, *own_inputs)
        inputs = self.inputs_for(retriever, items)
        text: PreparedText
        if self._embeddings is not None:
            text = self._embeddings.text(captions)
        elif cached and self._has_cached_text(retriever):
            assert self._features is not None
            text = cached_text(self._features, captions, str(self.cache))
        else:
            text = _prepare_text(retriever, captions["caption"].tolist())
        if retriever.reads_ids:
            text = IdentifiedText(text, captions)
        return PreparedSplit(items, captions, inputs, text, self.spec.frames.workers)

    def _has_cached_text(self, retriever: Retriever) -> bool:
        """Whether captions were encoded with the features, by a text tower that stays as it was."""
        if self._features is None or "text" not in self._features:
            return False
        towers = retriever.backbone
        return towers is None or not towers.text_parameters() or "text" in self.spec.method.training.freeze

    def check_tower(self, retriever: Retriever) -> None:
        """Refuse cached features of another visual tower than the retriever's: its scores would mean nothing.

        Features of earlier versions do not name their tower, and pass.
        """
        if retriever.backbone is None or not self._features or "tower" not in self._features:
            return
        hash_here, hash_cached = visual_hash(retriever.backbone), str(self._features["tower"])
        if hash_here and hash_cached and hash_here != hash_cached:
            raise RewindError(
                f"{self.cache}: features of another visual tower than this run's. A frozen tower must be the same in "
                "every job: name its weights (backbone.weights, backbone.pretrained), train it first (pretraining), or "
                "remove visual from the method's training.freeze. If only its weights changed, delete this file and "
                "run again."
            )

    def inputs_for(self, retriever: Retriever, items: pd.DataFrame) -> FrameSource:
        """:meth:`inputs`, with ids and paths if the retriever reads them."""
        inputs = self.inputs(items)
        return IdentifiedFrames(inputs, items, self.folder) if retriever.reads_ids else inputs

    def inputs(self, items: pd.DataFrame) -> FrameSource:
        """What a model sees of ``items``: noise, a data set's vectors, cached features, stored frames or clips."""
        if self.spec.frames.noise:
            if self._features is not None or self._embeddings is not None:
                raise RewindError(f"noise: {NOISE_FAULT}.")
            return NoiseFrames(items, self.spec.frames, self.max_frames)
        if self._embeddings is not None:
            return self._embeddings.items(items)
        if self._features is not None:
            return cached_frames(self._features, items, str(self.cache))
        if self.cache is not None:
            return StoredFrames(items, self.cache, self.spec.frames, self.max_frames)
        return ClipFrames(items, self.folder, self.spec.frames, self.max_frames)


def _with_widths(spec: RunSpec, embeddings: EmbeddingFiles) -> RunSpec:
    """The keys with the widths of the data set's vectors, which the model is built for."""
    widths = {"text_width": embeddings.text_width, "item_width": embeddings.item_width}
    for name, width in widths.items():
        expected = getattr(spec.backbone, name)
        if expected is not None and expected != width:
            raise RewindError(
                f"backbone.{name}: {expected}, but the vectors of {embeddings.index} have width {width}: correct the "
                "key, remove it, or name the intended dataset."
            )
    return spec.model_copy(update={"backbone": spec.backbone.model_copy(update=widths)})


def _prepare_text(retriever: Retriever, captions: list[str]) -> Tensor:
    backbone = retriever.backbone
    if backbone is not None:
        return backbone.prepare_text(captions)
    if not retriever.reads_ids:
        raise RewindError(
            f"methods.*.model: {type(retriever).__name__} has no backbone that prepares captions: set reads_ids = True "
            "to find their ids and texts in batches, or write from_captions()."
        )
    return torch.zeros(len(captions), 1)  # it reads texts by their ids: only the number of rows counts


@dataclass
class PreparedSplit:
    """One split as a model needs it; ``workers`` processes may decode it."""

    items: pd.DataFrame
    captions: pd.DataFrame
    inputs: FrameSource
    text: PreparedText
    workers: int = 0
    hard_negatives: HardNegatives | None = None

    def training_data(self) -> TrainingData:
        row = pd.Series(np.arange(len(self.items)), index=self.items["item_id"])
        clusters = pd.factorize(self.items["cluster_id"])[0]
        return TrainingData(
            inputs=self.inputs,
            text=self.text,
            item_of_caption=row[self.captions["video_id"]].to_numpy(),
            cluster_of_item=clusters,
            caption_ids=self.captions["caption_id"].tolist(),
            hard_negatives=self.hard_negatives,
            reversed_items=(self.items["reversed"] == 1).to_numpy() if "reversed" in self.items else None,
            captions=self.captions["caption"].tolist(),
            workers=self.workers,
        )


@dataclass
class TrainingData:
    """The training split, in the form that the training loop, samplers and losses use: n captions and m items."""

    inputs: FrameSource
    text: PreparedText  # one row each
    item_of_caption: np.ndarray  # (n,) item row of each caption
    cluster_of_item: np.ndarray  # (m,)
    caption_ids: list[str]  # for messages
    captions: list[str] = field(default_factory=list)  # for samplers and losses that read them
    workers: int = 0  # processes that may decode items when all are encoded
    hard_negatives: HardNegatives | None = None  # for losses that read them
    reversed_items: np.ndarray | None = None  # bool (m,), which items are time-reversed twins; None: not known

    def batch(self, rows: np.ndarray) -> Features:
        """What a training step needs for some captions: ``rows``, ``text``, ``items`` and the items' input.

        ``rows`` are (B,); with hard negatives (2, B), theirs below the captions'.
        """
        if rows.ndim == 2:
            assert self.hard_negatives is not None  # BatchOrder asks for them where there are some
            return self.batch(np.ascontiguousarray(rows[0])) | self.hard_negatives.batch(rows[1])
        items = self.item_of_caption[rows]
        index = torch.from_numpy(rows)
        of_items = {"items": torch.from_numpy(items)} | self.inputs.batch(items)
        return {"rows": index} | take_text(self.text, index) | of_items


def check_method(spec: RunSpec) -> None:
    """Refuse a method that its model's own ``check`` refuses."""
    model_hooks(spec.method.model).check(spec.method, spec.backbone)


def build_untrained_model(data: RunData) -> Retriever:
    """The untrained retriever of a run; new parameters are drawn from torch's global generator."""
    spec = data.spec
    return build_model(spec.method, spec.backbone, spec.text, data.train_captions())


def load_trained_model(data: RunData, model: str | Path) -> Retriever:
    """The retriever of a run with the weights of its checkpoint."""
    retriever = build_untrained_model(data)
    load_model(model, retriever)
    return retriever


def job_device() -> torch.device:
    """The device that this job was granted."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


# ---- Ids and paths of items, ids and texts of captions in batches, for retrievers that look something up -----------


class IdentifiedFrames:
    """Inputs whose batches also hold ``item_ids`` and ``item_paths``, uint8 (n, bytes): UTF-8, padded with zeros.

    :func:`rewind.models.retriever.decode_names` turns them into text. They are tensors because batches pass through
    worker processes, are cut into parts and moved to devices. Paths of ``items`` are relative to ``folder``.

    >>> items = pd.DataFrame({"item_id": ["a", "bc"], "path": ["videos/a.mp4", "videos/bc.mp4"]})
    >>> IdentifiedFrames(EmbeddingFrames(torch.zeros(2, 8)), items, "data").batch(np.array([1]))["item_ids"]
    tensor([[98, 99]], dtype=torch.uint8)
    """

    def __init__(self, inputs: FrameSource, items: pd.DataFrame, folder: str | Path) -> None:
        self.inputs, self.copies, self.twins = inputs, inputs.copies, getattr(inputs, "twins", None)
        self.ids = encode_names(items["item_id"])
        self.paths = encode_names(str((Path(folder) / path).absolute()) for path in items["path"])

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: np.ndarray) -> Features:
        at = torch.as_tensor(rows)
        return self.inputs.batch(rows) | {"item_ids": self.ids[at], "item_paths": self.paths[at]}


# ---- Data sets of embeddings, mapped into memory -------------------------------------------------------------------
# They take the place of the features of frozen towers.


class EmbeddingFiles:
    """The vectors that :func:`rewind.data.formats.embeddings.make_sources` laid out.

    ``index`` is ``embeddings.json``; ``text.npy``, ``images.npy`` and their tables are next to it.
    """

    def __init__(self, index: str | Path) -> None:
        self.index, folder = Path(index), Path(index).parent
        self.keys = read_json(index)
        self._text, self._items = (_memory_map(folder / f"{name}.npy") for name in ("text", "images"))
        captions = read_csv(folder / "captions.csv")
        # Ids of captions are formed as in the data set: the item's id and the caption's number among the item's.
        turn = captions.groupby("item_id", sort=False).cumcount()
        self._caption_rows = _row_numbers(captions["item_id"] + "#" + turn.astype(str))
        self._item_rows = _row_numbers(read_csv(folder / "items.csv")["item_id"])
        for matrix, rows, width in (
            (self._text, self._caption_rows, self.text_width),
            (self._items, self._item_rows, self.item_width),
        ):
            if matrix.shape != (len(rows), width):
                raise RewindError(
                    f"{index}: vectors {tuple(matrix.shape)} for {len(rows)} rows of width {width}; prepare the data "
                    "again."
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return EmbeddingFiles, (self.index,)  # another process maps the files itself

    @property
    def text_width(self) -> int:
        return int(self.keys["text_width"])

    @property
    def item_width(self) -> int:
        return int(self.keys["item_width"])

    def text(self, captions: pd.DataFrame) -> torch.Tensor:
        """Caption vectors (n, text_width) in the order of ``captions``, as they are stored."""
        return _take_rows(self._text, self._numbers(self._caption_rows, captions["caption_id"], "captions"))

    def items(self, items: pd.DataFrame) -> EmbeddingFrames:
        """The vectors of ``items``, in their order."""
        return EmbeddingFrames(_take_rows(self._items, self._numbers(self._item_rows, items["item_id"], "items")))

    def _numbers(self, rows: pd.Series, ids: pd.Series, what: str) -> np.ndarray:
        numbers = rows.reindex(ids)
        if numbers.isna().any():
            missing = numbers.index[numbers.isna()]
            raise RewindError(
                f"{self.index}: no vectors of {len(missing)} {what}, first {missing[0]!r}; prepare the data again."
            )
        return np.array(numbers, dtype=np.int64)


class EmbeddingFrames:
    """One vector per item, as a clip of one frame: ``frames`` float32 (n, 1, D) and ``mask`` (n, 1).

    >>> EmbeddingFrames(torch.zeros(5, 8)).batch(np.array([3, 1]))["frames"].shape
    torch.Size([2, 1, 8])
    """

    copies = True

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, rows: np.ndarray) -> Features:
        frames = self.values[torch.as_tensor(rows)].float()[:, None]
        return {"frames": frames, "mask": torch.ones(len(frames), 1, dtype=torch.uint8)}


def _memory_map(path: Path) -> torch.Tensor:
    # "c", copy on write, and not "r": nothing is written, but torch warns about arrays that are read-only.
    with reading_user_file(path, "npy file", "prepare the data again"):
        return torch.from_numpy(np.load(path, mmap_mode="c", allow_pickle=False))


def _row_numbers(ids: pd.Series) -> pd.Series:
    return pd.Series(np.arange(len(ids)), index=ids.to_numpy())


def _take_rows(matrix: torch.Tensor, rows: np.ndarray) -> torch.Tensor:
    """Rows of a mapped matrix: a view if they are consecutive, as those of a split are, else a copy."""
    if len(rows) and (np.diff(rows) == 1).all():
        return matrix[int(rows[0]) : int(rows[-1]) + 1]
    return matrix[torch.from_numpy(rows)]


# ---- Whether precomputed embeddings and scores belong to a data set, by their ids ----------------------------------


def is_prepared(folder: Path, dataset: str) -> bool:
    """Whether the ids of a data set are known yet."""
    return (folder / "items.csv").is_file() and (folder / "captions" / f"{dataset}_test.csv").is_file()


@dataclass(frozen=True)
class ExpectedIds:
    """Which ids a data set has, by its annotations, before it is prepared."""

    annotations: Annotations
    where: str  # the files that annotations are from, for messages
    # Whether every test item will be usable for certain: clips that cannot be decoded are left out, and which ones
    # these are is only known once they are prepared.
    whole: bool
    foils: pd.DataFrame | None = None  # foil_id and caption_id of captions that are not true; None: there are none
    asks_foils: bool = False  # whether the study asks about foils, so that their vectors are needed too


def check_precomputed_files(method: Method, folder: Path, dataset: str, expected: ExpectedIds | None = None) -> None:
    """Refuse the files of one run if they are broken, or by their ids as far as those of the data set are known.

    ``method`` has the files of one seed. Tables in ``folder`` are used if they were computed from the same annotations;
    ``expected`` is None if annotations cannot be read yet.
    """
    options = method.precomputed_options()
    if any(Path(path).parts[0] == RESULTS_FOLDER and not Path(path).is_file() for path in method.precomputed_files()):
        return  # a rule of the workflow writes it, and this run's own job checks it
    if method.model == "scores":
        retriever: Precomputed = PrecomputedScores(read_score_file(options.file, options.higher_is_better))
    else:
        retriever = load_precomputed(options)
    if expected is not None:
        # Vectors that the workflow computed before the data set had foils are computed again.
        made = any(Path(path).parts[0] == RESULTS_FOLDER for path in method.precomputed_files())
        _check_expected(retriever, replace(expected, asks_foils=expected.asks_foils and not made), dataset)
    if is_prepared(folder, dataset) and (expected is None or _same_ids(folder, dataset, expected.annotations)):
        check_precomputed_ids(retriever, folder, dataset)


def _check_expected(retriever: Precomputed, expected: ExpectedIds, dataset: str) -> None:
    """As :func:`check_precomputed_ids`, by the annotations; missing ids are refused if all items will be usable."""
    items, captions = expected.annotations.items, expected.annotations.captions
    foils = expected.foils if expected.foils is not None else pd.DataFrame(columns=["foil_id", "caption_id"], dtype=str)
    valid_ids = {"caption": pd.concat([captions["caption_id"], foils["foil_id"]]), "item": items["item_id"]}
    # With `only`, this data set is a part of a larger one, whose other ids may be in the files.
    for what, ids, where in _id_lists(retriever) if "only" not in expected.annotations.notes else ():
        if strangers := np.setdiff1d(ids, valid_ids[what].to_numpy(dtype=str)).tolist():
            raise RewindError(
                f"{where}: unknown {what}s, not in data set {dataset}: {describe_ids(strangers)}"
                f"{spelling(strangers, valid_ids[what])}; its {what}s are those of {expected.where}, for example "
                f"{valid_ids[what].iloc[0]!r}."
            )
    if expected.whole:
        of_test = [table[table["split"] == "test"].reset_index(drop=True) for table in (items, captions)]
        retriever.from_captions(*retriever.covers(*of_test))
    if expected.asks_foils and isinstance(retriever, PrecomputedEmbeddings):
        text = retriever.all_text
        # A caption without a vector is refused above, or is that of a twin: its foils are not evaluated either.
        absent = foils["foil_id"][foils["caption_id"].isin(text.ids) & ~foils["foil_id"].isin(text.ids)].tolist()
        if absent:
            raise RewindError(
                f"{text.where}: foils without a vector: {describe_ids(absent)}; foil n of a caption, counted from 0, "
                "has the id <caption_id>~<n>: add their vectors, or remove foils from evaluation.probes."
            )


def _same_ids(folder: Path, dataset: str, annotations: Annotations) -> bool:
    """Whether a data set was prepared from these annotations, and not from an earlier version of them."""
    items = read_csv(folder / "items.csv")["item_id"]
    same = set(items) == set(annotations.items["item_id"])
    return same and set(_dataset_caption_ids(folder, dataset)) == set(annotations.captions["caption_id"])


def check_precomputed_ids(retriever: Retriever, folder: Path, dataset: str) -> None:
    """Refuse ids that the data set does not have, and test ids without a vector or score.

    Ids of other splits are allowed, and ids of foils (``<caption_id>~<n>``). If no twin of the test split has a vector,
    captions of twins need none.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    valid_ids = {"item": read_csv(folder / "items.csv")["item_id"], "caption": _dataset_caption_ids(folder, dataset)}
    if not isinstance(retriever, Precomputed):
        return
    is_part = "only" in read_json(folder / "captions" / "report.json").get("annotations", {})  # of a larger data set
    for what, ids, where in _id_lists(retriever) if not is_part else ():
        known = valid_ids[what].to_numpy(dtype=str)
        if strangers := _without_foils(np.setdiff1d(ids, known).tolist(), set(known.tolist())):
            file = folder / "items.csv" if what == "item" else folder / "captions"
            raise RewindError(
                f"{where}: unknown {what}s, not in data set {dataset}: {describe_ids(strangers)}"
                f"{spelling(strangers, known.tolist())}; the ids are in {file}."
            )
    retriever.from_captions(*retriever.covers(items, captions))


def _without_foils(ids: list[str], captions: set[str]) -> list[str]:
    """Ids that are not of the form of a foil's, ``<caption_id>~<n>``. Which foils there are, other jobs know."""
    parts = {name: name.rpartition("~") for name in ids}
    return [name for name, (caption, _, n) in parts.items() if not (caption in captions and n.isdecimal())]


def _dataset_caption_ids(folder: Path, dataset: str) -> pd.Series:
    files = [folder / "captions" / f"{dataset}_{split}.csv" for split in SPLITS]
    return pd.concat([read_csv(path)["caption_id"] for path in files if path.is_file()], ignore_index=True)


def _id_lists(retriever: Precomputed) -> list[tuple[str, np.ndarray, str]]:
    """What the ids in a model's files are of (caption or item), the ids, and the file, for messages."""
    if isinstance(retriever, PrecomputedScores):
        scores = retriever.scores
        return [("caption", scores.queries, scores.where), ("item", scores.items, scores.where)]
    if isinstance(retriever, UnscoredPairs):
        return [("caption", retriever.queries, retriever.where), ("item", retriever.items, retriever.where)]
    text, clips = retriever.all_text, retriever.all_items
    return [("caption", text.ids, text.where), ("item", clips.ids, clips.where)]
