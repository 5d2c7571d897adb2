"""A finished run that answers queries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rewind.datasets.annotations import SPLITS, twin_of
from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.feeding.folder import DataFolder, build_retriever, device
from rewind.jobs.seals import check_below
from rewind.models.baselines import PooledBaseline
from rewind.models.checkpoint import load_model
from rewind.models.making import make_towers
from rewind.models.retriever import Backbone, Features, Retriever, offers
from rewind.search.encoder import query_encoder
from rewind.search.gallery import encode_items, indexed, mark_of
from rewind.search.query import check_query, word_vocabulary
from rewind.search.run import RECORD, FinishedRun
from rewind.search.trust import refuse_code
from rewind.study.brought import BROUGHT

ALL = "all"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Hit:
    """An item that was found: its place from 1, its row in the gallery, its score and captions."""

    place: int
    row: int
    item: str
    score: float
    captions: list[str]
    truth: bool = False
    twin: bool = False


@dataclass(frozen=True)
class Answer:
    """What a query found.

    Attributes:
        query: as it was asked, less blanks around it.
        hits: best first; equal scores in the order of the gallery.
        gallery: number of items that were ranked.
        notes: what is to be told about the query.
        truth: the item that the query describes, where that is known.
        rank: of the truth, expected under ties as in the tables.
        encode, rank_all: seconds that the query took to become features, and to be compared with all items.
    """

    query: str
    hits: list[Hit]
    gallery: int
    notes: list[str] = field(default_factory=list)
    truth: str | None = None
    rank: float | None = None
    encode: float = 0.0
    rank_all: float = 0.0


class Searcher:
    """The model of a run and the features of one gallery, both in memory.

    Args:
        retriever: the model, in evaluation mode on ``on``.
        backbone: what prepares text for it.
        items: the gallery: item_id, path, reversed.
        captions: of the gallery: video_id, caption, caption_id.
        features: of the items, row by row.
        pairs: most pairs scored at once.
        on: the device.
    """

    def __init__(
        self,
        retriever: Retriever,
        backbone: Backbone,
        items: pd.DataFrame,
        captions: pd.DataFrame,
        features: Features,
        pairs: int,
        on: torch.device,
    ) -> None:
        self.retriever, self.backbone, self.pairs, self.on = retriever, backbone, pairs, on
        self.items, self.captions = items, captions
        self.features = {name: value.to(on) for name, value in features.items()}
        self.ids: list[str] = items["item_id"].tolist()
        self.place = {item: row for row, item in enumerate(self.ids)}
        self.described: dict[str, list[str]] = captions.groupby("video_id", sort=False)["caption"].agg(list).to_dict()

    def search(self, query: str, top: int = 5, truth: str | None = None) -> Answer:
        """The best ``top`` items for a query.

        Args:
            query: any text.
            top: how many; fewer where the gallery is smaller.
            truth: id of the item that the query describes, to be marked.

        Raises:
            RewindError: for an empty query or one of unknown words only, and if a score is no number.
        """
        query = query.strip()
        notes = check_query(query, self.backbone)
        start = time.perf_counter()
        text = self._encode(query)
        encoded = time.perf_counter()
        scores = self._scores(text)
        best = np.argsort(-scores, kind="stable")[:top]
        ranked = time.perf_counter()
        return Answer(
            query=query,
            hits=[self._hit(place, int(row), scores, truth) for place, row in enumerate(best, 1)],
            gallery=len(self.ids),
            notes=notes,
            truth=truth,
            rank=_rank(scores, self.place[truth]) if truth is not None else None,
            encode=encoded - start,
            rank_all=ranked - encoded,
        )

    def random_captions(self, count: int, seed: int) -> pd.DataFrame:
        """``count`` captions of the gallery, or all, drawn by a seed: caption_id, caption, video_id."""
        count = min(count, len(self.captions))
        chosen = np.random.default_rng(seed).choice(len(self.captions), count, replace=False)
        return self.captions.iloc[chosen].reset_index(drop=True)

    def warm_up(self) -> None:
        """Let torch set up what it sets up only once, so that the first query takes no longer than others."""
        self._scores(self._encode("a"))

    @torch.inference_mode()
    def _encode(self, query: str) -> Features:
        text = self.retriever.encode_text({"text": self.backbone.prepare_text([query]).to(self.on)})
        if self.on.type == "cuda":
            torch.cuda.synchronize(self.on)
        return text

    @torch.inference_mode()
    def _scores(self, text: Features) -> np.ndarray:
        parts = []
        for left in range(0, len(self.ids), self.pairs):
            items = {name: value[left : left + self.pairs] for name, value in self.features.items()}
            parts.append(self.retriever.similarity(text, items)[0].float())
        scores = torch.cat(parts).cpu().numpy()
        if not np.isfinite(scores).all():
            raise RewindError("the model's scores are not numbers; train this run again.")
        return scores

    def _hit(self, place: int, row: int, scores: np.ndarray, truth: str | None) -> Hit:
        item = self.ids[row]
        twin = truth is not None and (item == twin_of(truth) or truth == twin_of(item))
        return Hit(place, row, item, float(scores[row]), self.described.get(item, []), item == truth, twin)


def load_trained(run: FinishedRun, say: Say = print, trust: bool = False) -> tuple[Retriever, Backbone, DataFolder]:
    """The model of a finished run in evaluation mode on its device, what prepares its queries, and its data.

    Args:
        run: from :func:`rewind.search.run.open_run`.
        say: takes sentences about what was found.
        trust: also run code that is not Rewind's, which the run or its data set names.

    Raises:
        RewindError: if the run's method cannot search, its model or its words are of other data, or it names code that
            was not trusted.
    """
    if not trust:
        refuse_code(run.spec, run.folder / RECORD)
    if run.spec.method.model == "chance":
        raise RewindError(f"{run.folder}: chance scores all items the same, so it cannot search; name another run.")
    if run.spec.method.model in BROUGHT:
        raise RewindError(
            f"{run.folder}: a run of {run.spec.method.model} from files has nothing that reads a new query, so it "
            "cannot search; name a run of a model that is trained."
        )
    vectors = run.spec.backbone.kind == "embeddings"
    if vectors and not (run.cache and run.same(run.cache)):
        raise RewindError(f"{run.cache}: no longer the vectors that this run was trained on; train it again.")
    if vectors and run.cache:
        check_below(run.cache.parent, run.cache.name)  # and the matrices beside it, which nothing else looks at
    folder = DataFolder(run.data, run.dataset, run.spec, run.max_frames, run.cache if vectors else None)
    retriever = build_retriever(folder)
    backbone = query_encoder(run.data, device(), trust) if vectors else _backbone(retriever, folder)
    _check_words(run, word_vocabulary(backbone) is not None and not offers(retriever.check_state), say)
    load_model(run.model, retriever)
    retriever.eval().to(device())
    return retriever, backbone, folder


def load_searcher(
    run: FinishedRun, split: str = "test", index: Path | None = None, say: Say = print, trust: bool = False
) -> Searcher:
    """The model of a finished run over a gallery.

    Args:
        run: from :func:`rewind.search.run.open_run`.
        split: ``test``, ``valid``, ``train``, or ``all`` of them.
        index: file that keeps the gallery's features; none: they are computed each time.
        say: takes sentences about what was found and done.
        trust: see :func:`load_trained`.

    Raises:
        RewindError: if the run's method cannot search, its model or its words are of other data, or the split has no
            usable item.
    """
    retriever, backbone, folder = load_trained(run, say, trust)
    items, captions = _gallery(run, split)
    cache = _cache(run, say)
    on = device()

    def make() -> Features:
        inputs = replace(folder, cache=cache).inputs_for(retriever, items)
        towers = backbone if isinstance(retriever, PooledBaseline) else None
        keys = run.spec
        return encode_items(retriever, inputs, keys.evaluation.batch_size, on, keys.frames.workers, towers)

    features = indexed(index, items, mark_of(run, items, cache), make, say) if index else make()
    searcher = Searcher(retriever, backbone, items, captions, features, run.spec.evaluation.pair_batch_size, on)
    searcher.warm_up()
    return searcher


def _gallery(run: FinishedRun, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    parts = [load_split(run.data, run.dataset, name) for name in (SPLITS if split == ALL else (split,))]
    items = pd.concat([part.items for part in parts], ignore_index=True)
    captions = pd.concat([part.captions for part in parts], ignore_index=True)
    if items.empty:
        raise RewindError(f"{run.data / 'items.csv'}: the split {split!r} has no usable item to search.")
    return items, captions


def _backbone(retriever: Retriever, folder: DataFolder) -> Backbone:
    if retriever.backbone is not None:
        return retriever.backbone
    keys = folder.spec.backbone
    if not isinstance(retriever, PooledBaseline):
        raise RewindError(
            f"methods.*.model: {folder.spec.method.model!r} cannot search: it has no `backbone` whose prepare_text "
            "reads new queries."
        )
    # A closed-form baseline reads features of towers that it does not hold.
    return make_towers(keys, folder.spec.text, folder.train_captions()).to(device()).eval().requires_grad_(False)


def _check_words(run: FinishedRun, strict: bool, say: Say) -> None:
    """Word ids follow from the training captions of usable items: with others, every id could mean another word.

    Args:
        strict: refuse such a run: its words are in a vocabulary that its checkpoint does not hold.
    """
    changed = [path for path in (run.data / "items.csv", run.train_captions) if not run.same(path)]
    if not changed:
        return
    files = " and ".join(map(str, changed))
    if strict:
        raise RewindError(
            f"{run.model}: its vocabulary was made from other training captions: {files} changed since. Restore the "
            "files that the run was trained on, or train it again with `snakemake --cores all`."
        )
    say(f"{files}: changed since this run was trained; the present files are searched")


def _cache(run: FinishedRun, say: Say) -> Path | None:
    """What the run read instead of clips, if that is still the same."""
    if run.cache is None or run.same(run.cache):
        return run.cache
    say(f"{run.cache}: no longer what this run was trained on; clips are read instead")
    return None


def _rank(scores: np.ndarray, row: int) -> float:
    higher, ties = (scores > scores[row]).sum(), (scores == scores[row]).sum() - 1
    return float(1 + higher + ties / 2)
