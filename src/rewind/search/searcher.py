"""A finished run that answers queries.

:func:`load_searcher` loads the model and the features of a gallery; :meth:`Searcher.search` ranks the gallery for a
query. Features can be kept in an index file, written again when the model, data, configuration or code changes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional as F

from rewind.commands import snakemake_command
from rewind.config.dataset import EmbeddingsSource, MadeFrom
from rewind.data.annotations import SPLITS, twin_of
from rewind.data.captions import load_split
from rewind.data.tokenizers import ClipTokenizer, count_truncated, split_words
from rewind.encoders.builtin import text_encoder
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import atomic_write, read_json, reading_user_file
from rewind.loading.encode import encode_all_items, tower_features
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, build_untrained_model, job_device
from rewind.models.backbone import Backbone
from rewind.models.baselines import PooledBaseline
from rewind.models.checkpoint import load_model
from rewind.models.embeddings import NO_ENCODER_MESSAGE
from rewind.models.registry import build_backbone
from rewind.models.retriever import Features, Retriever, is_overridden
from rewind.progress import Progress
from rewind.provenance import file_hash
from rewind.registry import BACKBONES, ENCODERS, MODELS, head_modules
from rewind.search.run import RECORD_FILE, FinishedRun
from rewind.search.trust import refuse_code, refuse_encoders
from rewind.video.shards import clip_identity
from rewind.workflow.checksums import how_to_remake, verify_files_below
from rewind.workflow.stages import CodeDependencies
from rewind.workflow.staleness.code_hash import StageCode, compute_code_hash

# ---- Checking a query: words that are unknown or cut off -----------------------------------------------------------

UNKNOWN_WORD_ID = 1  # id of every word outside a word vocabulary


def word_vocabulary(backbone: Any) -> Any | None:
    """The backbone's tokenizer where it is a vocabulary of the training captions' words; else None.

    CLIP's byte pairs and packaged sentence encoders take any text.
    """
    tokenizer = backbone.tokenizer
    return None if tokenizer is None or isinstance(tokenizer, ClipTokenizer) else tokenizer


def check_query(query: str, backbone: Any) -> list[str]:
    """Notes for the user about a query: words that the model does not know, and words that it does not read.

    Raises:
        RewindError: if it is empty, or the model knows none of its words: any ranking would be arbitrary.
    """
    refuse_empty_query(query)
    return _unknown_words(query, word_vocabulary(backbone)) + _cut_words(query, backbone)


def refuse_empty_query(query: str) -> None:
    """Refuse a query that is empty or blank, or was not UTF-8, which is seen without a model."""
    if not query.strip():
        raise RewindError("the query is empty; describe in a few words what to look for.")
    try:
        query.encode("utf-8")
    except UnicodeEncodeError as error:  # a lone surrogate, which Python substitutes for a byte that it cannot decode
        raise RewindError(
            f"the query {query!a} is not UTF-8 text at its character {error.start + 1}; set the terminal, or the "
            "file that it comes from, to UTF-8."
        ) from None


def _unknown_words(query: str, vocabulary: Any | None) -> list[str]:
    if vocabulary is None:
        return []
    words = list(dict.fromkeys(getattr(vocabulary, "words", split_words)(query)))
    if not words:
        raise RewindError(f"{query!r} contains no word that this model can read, so nothing was ranked.")
    unknown = [word for word in words if UNKNOWN_WORD_ID in vocabulary.encode([word], 4)[0]]
    if len(unknown) == len(words):
        raise RewindError(
            f"this model knows none of the words of {query!r}, so nothing was ranked; its vocabulary is that of its "
            "training captions."
        )
    return [f"not in the model's vocabulary: {', '.join(map(repr, unknown))}"] if unknown else []


def _cut_words(query: str, backbone: Any) -> list[str]:
    limit = backbone.max_words
    counts = backbone.token_counts([query]) if limit else None
    if not counts or not count_truncated(counts, limit):
        return []
    return [f"cut: the query has {counts[0]} tokens, but the model reads only {limit}"]


# ---- Encoding queries of a run on embeddings -----------------------------------------------------------------------
# Queries pass through the network that computed the dataset's caption embeddings.

READY_FILE = "source/ready.json"  # states how the embeddings were computed


class QueryEncoder:
    """Takes the place of the backbone of other runs; it only prepares text, as for the dataset's embeddings."""

    tokenizer = max_words = None  # the network takes any text

    def __init__(self, keys: MadeFrom, device: torch.device) -> None:
        self.encode, self.unit = text_encoder(keys, device), keys.unit

    @torch.inference_mode()
    def prepare_text(self, captions: list[str]) -> Tensor:
        """Embeddings [n, dt], computed like those of the dataset's captions."""
        vectors = self.encode(captions).float()
        return F.normalize(vectors, dim=1) if self.unit else vectors


QueryPreparer = Backbone | QueryEncoder
"""What prepares the queries of a run: its towers, or the network that computed the dataset's vectors."""


def load_query_encoder(data: Path, device: torch.device, trust: bool = False) -> QueryEncoder:
    """The encoder that computed the embeddings of the dataset in ``data`` (``results/data/<dataset>``).

    Raises:
        RewindError: if its embeddings were not computed by Rewind, or by code that is not Rewind's without ``trust``.
    """
    content = read_json(data / READY_FILE)
    try:
        source = EmbeddingsSource.model_validate(content["source"])
    except (KeyError, TypeError, ValidationError):
        raise RewindError(
            f"{data / READY_FILE}: does not state how the vectors were computed. {how_to_remake(data / READY_FILE)}"
        ) from None
    if source.made_from is None:
        raise RewindError(f"{data}: {NO_ENCODER_MESSAGE} A data set with source.made_from can be searched.")
    if not trust:
        refuse_encoders(source.made_from, data / READY_FILE)
    return QueryEncoder(source.made_from, device)


# ---- Features of the gallery, and the index file that keeps them ---------------------------------------------------

FEATURE_PREFIX = "feature:"  # what names of feature arrays begin with in an index
IndexFingerprint = dict[str, str]


@torch.inference_mode()
def encode_items(
    retriever: Retriever,
    inputs: FrameSource,
    size: int,
    device: torch.device,
    workers: int,
    towers: Backbone | None = None,
) -> Features:
    """Features of all items, in batches of ``size``, on ``device``.

    A baseline that reads only features needs the ``towers`` that make them.
    """

    def encode(batch: Features) -> Features:
        return retriever.encode_items(tower_features(towers, batch) if towers is not None else batch)

    progress = Progress("gallery", len(inputs), "items")
    copied = getattr(inputs, "copies", False)  # stored features are only copied, too quickly for a progress bar
    return encode_all_items(encode, inputs, size, device, workers=workers, done=None if copied else progress.advance)


def index_fingerprint(run: FinishedRun, items: pd.DataFrame, cache: Path | None) -> IndexFingerprint:
    """Hashes of everything that determines the features of ``items``: the model, data, configuration and code."""
    method = run.spec.method
    modules = [
        MODELS.full_name(method.model),
        BACKBONES.full_name(run.spec.backbone.kind),
        *([ENCODERS.full_name(run.spec.backbone.encoder)] if run.spec.backbone.encoder else []),
        *head_modules(method.model, method.head),
    ]
    dependencies = CodeDependencies(modules)
    rows = items[["item_id", "path", "reversed"]].to_numpy().tolist()
    return {
        "model": file_hash(run.model),
        "data": stable_hash(rows, file_hash(cache) if cache else _clip_identities(run.data, items)),
        "keys": _config_digest(run),
        "code": compute_code_hash("gallery", StageCode().parts("gallery", dependencies)),
    }


def load_or_make_features(
    path: Path,
    items: pd.DataFrame,
    fingerprint: IndexFingerprint,
    make: Callable[[], Features],
    say: Callable[..., Any],
) -> Features:
    """The features in an index file; where it is stale, broken or absent they are computed and written there.

    Rows are in the order of ``items``; ``say`` takes a sentence about what was done.
    """
    stored, reason = _read_index(path, fingerprint, len(items))
    if stored is not None:
        say(f"index {path}: {len(items):,} items")
        return stored
    features = make()
    _write_index(path, fingerprint, items["item_id"].tolist(), features)
    say(f"index {path}: {reason}{len(items):,} items written")
    return features


def _config_digest(run: FinishedRun) -> str:
    spec = run.spec.fingerprint()
    keys = {key: spec[key] for key in ("frames", "text")}
    keys |= {key: spec["method"][key] for key in ("model", "head", "head_layers", "head_start", "options")}
    # Weights of frozen towers, which no checkpoint holds. They count by content and the architecture by its file's
    # name, so that an index stays valid where the files were moved.
    weights = [run.spec.backbone.weights, run.spec.method.options.get("weights")]
    by_name = {"architecture": Path(run.spec.backbone.architecture).name, "weights": None}
    if encoding := run.spec.backbone.encoding():
        by_name |= {"name": Path(encoding.name).name}
        weights += encoding.files()
    hashes = [file_hash(path) for path in weights if path and Path(path).is_file()]
    return stable_hash(keys, spec["backbone"] | by_name, hashes, run.max_frames)


def _read_index(path: Path, fingerprint: IndexFingerprint, count: int) -> tuple[Features | None, str]:
    """(features, ""), or (None, why they cannot be used)."""
    if not path.exists():
        return None, ""
    try:
        with reading_user_file(path, "index"), np.load(path, allow_pickle=False) as archive:
            stored = json.loads(str(archive["mark"]))
            stale = [name for name in fingerprint if stored.get(name) != fingerprint[name]]
            if stale:
                return None, f"was stale (changed: {', '.join(stale)}); computed again, "
            names = [name for name in archive.files if name.startswith(FEATURE_PREFIX)]
            features = {name.removeprefix(FEATURE_PREFIX): torch.from_numpy(archive[name]) for name in names}
    except RewindError:
        return None, "could not be read; computed again, "
    is_complete = bool(features) and all(len(value) == count for value in features.values())
    return (features, "") if is_complete else (None, "could not be read; computed again, ")


def _write_index(path: Path, fingerprint: IndexFingerprint, item_ids: list[str], features: Features) -> None:
    arrays: dict[str, Any] = {FEATURE_PREFIX + name: value.cpu().numpy() for name, value in features.items()}
    with atomic_write(path) as temporary:
        np.savez(
            temporary, mark=np.array(json.dumps(fingerprint, sort_keys=True)), item_ids=np.array(item_ids), **arrays
        )


def _clip_identities(data: Path, items: pd.DataFrame) -> list[tuple[Any, ...]]:
    """What shows whether clips are still the same without reading them, which would take as long as encoding them."""
    identities: list[tuple[Any, ...]] = []
    for path in items["path"]:
        try:
            identities.append(clip_identity(data / path))
        except OSError:
            identities.append(())
    return identities


# ---- Loading a run and ranking its gallery -------------------------------------------------------------------------

ALL_SPLITS = "all"
MessageCallback = Callable[[str], None]


@dataclass(frozen=True)
class Hit:
    """An item that was found."""

    place: int  # from 1
    row: int  # of the item in the gallery
    item: str
    score: float
    captions: list[str]
    truth: bool = False  # whether the query describes this item
    twin: bool = False  # whether the query describes the time-reversed twin of this item


@dataclass(frozen=True)
class Answer:
    """The answer to a query."""

    query: str  # without blanks around it
    hits: list[Hit]  # best first; equal scores in the order of the gallery
    gallery: int  # number of items that were ranked
    notes: list[str] = field(default_factory=list)  # sentences about the query, such as its unknown words
    truth: str | None = None  # id of the item that the query describes; None where that is not known
    rank: float | None = None  # of the truth, its expectation under ties as in the tables
    encode: float = 0.0  # seconds for encoding the query
    rank_all: float = 0.0  # seconds for comparing it with all items


class Searcher:
    """The model of a run and the features of one gallery, both in memory.

    Args:
        retriever: the model, in evaluation mode on ``on``.
        backbone: prepares text for it.
        items: the gallery: item_id, path, reversed.
        captions: of the gallery: video_id, caption, caption_id.
        features: of the items, row by row.
        pairs: largest number of pairs scored at once.
    """

    def __init__(
        self,
        retriever: Retriever,
        backbone: QueryPreparer,
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

        ``truth`` is the id of the item that the query describes, if known; it is marked and its rank is computed.

        Raises:
            RewindError: for an empty query or one of unknown words only, and if a score is not finite.
        """
        query = query.strip()
        notes = check_query(query, self.backbone)
        start = time.perf_counter()
        text = self._encode(query)
        encoded = time.perf_counter()
        scores = self._scores(text)
        best = np.argsort(-scores, kind="stable")[:top]  # stable: equal scores in the order of the gallery
        ranked = time.perf_counter()
        return Answer(
            query=query,
            hits=[self._hit(place, int(row), scores, truth) for place, row in enumerate(best, 1)],
            gallery=len(self.ids),
            notes=notes,
            truth=truth,
            rank=_expected_rank(scores, self.place[truth]) if truth is not None else None,
            encode=encoded - start,
            rank_all=ranked - encoded,
        )

    def random_captions(self, count: int, seed: int) -> pd.DataFrame:
        """Draw ``count`` captions of the gallery (all, if it has fewer): caption_id, caption, video_id."""
        count = min(count, len(self.captions))
        rows = np.random.default_rng(seed).choice(len(self.captions), count, replace=False)
        return self.captions.iloc[rows].reset_index(drop=True)

    def warm_up(self) -> None:
        """Encode and rank once: torch sets some things up at first use, and the first query should not be slower."""
        self._scores(self._encode("a"))

    @torch.inference_mode()
    def _encode(self, query: str) -> Features:
        text = self.retriever.encode_text({"text": self.backbone.prepare_text([query]).to(self.on)})
        if self.on.type == "cuda":
            torch.cuda.synchronize(self.on)  # kernels run asynchronously; without this, timing would miss them
        return text

    @torch.inference_mode()
    def _scores(self, text: Features) -> np.ndarray:
        parts = []
        for start in range(0, len(self.ids), self.pairs):  # one query, so as many pairs as items
            items = {name: value[start : start + self.pairs] for name, value in self.features.items()}
            parts.append(self.retriever.similarity(text, items)[0].float())
        scores = torch.cat(parts).cpu().numpy()
        if not np.isfinite(scores).all():
            raise RewindError("the model's scores are not numbers; train this run again.")
        return scores

    def _hit(self, place: int, row: int, scores: np.ndarray, truth: str | None) -> Hit:
        item = self.ids[row]
        twin = truth is not None and (item == twin_of(truth) or truth == twin_of(item))
        return Hit(place, row, item, float(scores[row]), self.described.get(item, []), item == truth, twin)


def load_trained(
    run: FinishedRun, say: MessageCallback = print, trust: bool = False
) -> tuple[Retriever, QueryPreparer, RunData]:
    """The model of a finished run in evaluation mode on its device, what prepares its queries, and its data.

    With ``trust`` also code is run that is not Rewind's, which the run or its dataset names.

    Raises:
        RewindError: if the run's method cannot search, its data or vocabulary have changed, or it names code that was
            not trusted.
    """
    if not trust:
        refuse_code(run.spec, run.folder / RECORD_FILE)
    if run.spec.method.model == "chance":
        raise RewindError(f"{run.folder}: chance scores all items the same, so it cannot search; name another run.")
    if run.spec.method.precomputed:
        raise RewindError(
            f"{run.folder}: a run of {run.spec.method.model} from files has nothing that reads a new query, so it "
            "cannot search; name a run of a model that is trained."
        )
    reads_embeddings = run.spec.backbone.kind == "embeddings"
    if reads_embeddings and not (run.cache and run.same(run.cache)):
        raise RewindError(f"{run.cache}: no longer the vectors that this run was trained on; train it again.")
    if reads_embeddings and run.cache:
        verify_files_below(run.cache.parent, run.cache.name)  # the matrices next to it too, which nothing else checks
    data = RunData(run.data, run.dataset, run.spec, run.max_frames, run.cache if reads_embeddings else None)
    retriever = build_untrained_model(data)
    backbone = (
        load_query_encoder(run.data, job_device(), trust) if reads_embeddings else _query_backbone(retriever, data)
    )
    _check_vocabulary(run, word_vocabulary(backbone) is not None and not is_overridden(retriever.check_state), say)
    load_model(run.model, retriever)
    retriever.eval().to(job_device())
    return retriever, backbone, data


def load_searcher(
    run: FinishedRun, split: str = "test", index: Path | None = None, say: MessageCallback = print, trust: bool = False
) -> Searcher:
    """The model of a finished run with the features of a gallery.

    ``split`` may be ``all``. The file ``index`` keeps the gallery's features; without it they are computed each time.

    Raises:
        RewindError: as :func:`load_trained`, and if the split has no usable item.
    """
    retriever, backbone, data = load_trained(run, say, trust)
    items, captions = _load_gallery(run, split)
    cache = _unchanged_cache(run, say)
    device = job_device()

    def make() -> Features:
        inputs = replace(data, cache=cache).inputs_for(retriever, items)
        reads_features = isinstance(retriever, PooledBaseline)
        towers = backbone if reads_features and not isinstance(backbone, QueryEncoder) else None
        spec = run.spec
        return encode_items(retriever, inputs, spec.evaluation.batch_size, device, spec.frames.workers, towers)

    features = load_or_make_features(index, items, index_fingerprint(run, items, cache), make, say) if index else make()
    searcher = Searcher(retriever, backbone, items, captions, features, run.spec.evaluation.pair_batch_size, device)
    searcher.warm_up()
    return searcher


def _load_gallery(run: FinishedRun, split: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    parts = [load_split(run.data, run.dataset, name) for name in (SPLITS if split == ALL_SPLITS else (split,))]
    items = pd.concat([part.items for part in parts], ignore_index=True)
    captions = pd.concat([part.captions for part in parts], ignore_index=True)
    if items.empty:
        raise RewindError(f"{run.data / 'items.csv'}: the split {split!r} has no usable item to search.")
    return items, captions


def _query_backbone(retriever: Retriever, data: RunData) -> Backbone:
    if retriever.backbone is not None:
        return retriever.backbone
    keys = data.spec.backbone
    if not isinstance(retriever, PooledBaseline):
        raise RewindError(
            f"methods.*.model: {data.spec.method.model!r} cannot search: it has no `backbone` whose prepare_text "
            "reads new queries."
        )
    # A closed-form baseline reads features of towers that it does not hold.
    return build_backbone(keys, data.spec.text, data.train_captions()).to(job_device()).eval().requires_grad_(False)


def _check_vocabulary(run: FinishedRun, strict: bool, say: MessageCallback) -> None:
    """Check that the training captions are those of the run's training.

    A vocabulary of words is built from the captions of usable training items; with other captions every word id could
    mean another word. Where it is the model's and not in the checkpoint, the check is ``strict`` and refuses other
    captions; elsewhere they do no harm, and ``say`` takes a sentence about them.
    """
    changed = [path for path in (run.data / "items.csv", run.train_captions) if not run.same(path)]
    if not changed:
        return
    files = " and ".join(map(str, changed))
    if strict:
        raise RewindError(
            f"{run.model}: its vocabulary was built from other training captions: {files} changed since. Restore the "
            f"files that the run was trained on, or train it again with `{snakemake_command(run.model)}`."
        )
    say(f"{files}: changed since this run was trained; the present files are searched")


def _unchanged_cache(run: FinishedRun, say: MessageCallback) -> Path | None:
    """The features or frames that the run read instead of clips, if they are still the same."""
    if run.cache is None or run.same(run.cache):
        return run.cache
    say(f"{run.cache}: no longer what this run was trained on; clips are read instead")
    return None


def _expected_rank(scores: np.ndarray, row: int) -> float:
    """Mean rank over all orders of equal scores: 1 + higher + ties / 2."""
    higher, ties = (scores > scores[row]).sum(), (scores == scores[row]).sum() - 1
    return float(1 + higher + ties / 2)
