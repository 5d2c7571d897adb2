"""Models that are files: embeddings (``model: vectors``) or scores (``model: scores``) that were computed elsewhere.

Nothing is encoded here: a model's inputs are row numbers of a split, and its files may lack all twins.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.config.methods import VectorOptions
from rewind.data.annotations import is_among, twin_of
from rewind.data.readers import (
    MAX_SCORE,
    MISSING_SCORE,
    SCORE_ARRAYS,
    UNSCORED_ARRAYS,
    EmbeddingTable,
    ScoreMatrix,
    describe_ids,
    open_npz,
    read_embedding_file,
    read_score_file,
    text_ids,
)
from rewind.errors import RewindError
from rewind.hashing import content_key
from rewind.io.files import read_json
from rewind.models.baselines import PooledBaseline, RowNumberSource
from rewind.models.embeddings import embedding_widths
from rewind.models.retriever import Features, Retriever
from rewind.registry import MODELS

# ---- What both have in common --------------------------------------------------------------------------------------


class PrecomputedRetriever(Retriever):
    """A retriever whose inputs are row numbers of the split that ``from_captions`` saw last.

    Its features are row numbers too, unless a subclass looks vectors up.
    """

    def known_items(self) -> np.ndarray:
        """Ids of the items that are in the files, (n,)."""
        raise NotImplementedError

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All items, or only the originals if the files have no twin, with their captions."""
        twins = items["reversed"] == 1
        if not twins.any() or is_among(items["item_id"][twins], self.known_items()).any():
            return items, captions
        originals = items[~twins].reset_index(drop=True)
        return originals, captions[is_among(captions["video_id"], originals["item_id"])].reset_index(drop=True)

    def encode_text(self, batch: Features) -> Features:
        return {"captions": batch["text"]}

    def encode_items(self, batch: Features) -> Features:
        return {"items": batch["rows"]}


def check_precomputed(method: Method, backbone: BackboneKeys) -> None:
    method.precomputed_options()


# ---- model: vectors – embeddings of captions and of items, compared as they are ------------------------------------

_ROWS_AT_ONCE = 2**13  # vectors that are in double precision at a time
VECTORS_RECORD = "record.json"  # next to vectors that the workflow's own rule encode_vectors wrote


class PrecomputedEmbeddings(PrecomputedRetriever):
    """Scores captions and items by vectors that were computed elsewhere, by ``cosine``, ``dot`` or ``maxsim``.

    Products are computed in double precision and rounded to single, so that equal vectors get equal scores wherever
    they are in a matrix (a matrix product sums in different orders in different places): a model that cannot see the
    order of frames ties a clip with its twin.

    >>> text = EmbeddingTable(np.array(["c1", "c2"]), np.eye(2, dtype=np.float32), None, "text.npz")
    >>> items = EmbeddingTable(np.array(["a", "b", "c"]), np.ones((3, 2), np.float32), None, "items.npz")
    >>> model = PrecomputedEmbeddings(text, items, "cosine")
    >>> captions = pd.DataFrame({"caption_id": ["c1", "c2"]})
    >>> source, rows = model.from_captions(pd.DataFrame({"item_id": ["c", "a"]}), captions)
    >>> model.similarity(model.encode_text({"text": rows}), model.encode_items(source.batch(np.arange(2)))).shape
    torch.Size([2, 2])
    """

    def __init__(self, text: EmbeddingTable, items: EmbeddingTable, score: str) -> None:
        super().__init__()
        self.all_text, self.all_items, self.score = text, items, score
        for name, side in (("captions", text), ("items", items)):
            if side.counts is not None and score != "maxsim":
                raise RewindError(
                    f"methods.*.options.score: {score} compares two vectors, but {side.where} has several for each of "
                    f"its {name}: use score: maxsim."
                )
            if score == "cosine":
                _refuse_zero(side)
        if text.width != items.width:
            raise RewindError(
                f"methods.*.options: vectors of captions have {text.width} numbers ({text.where}) and of items "
                f"{items.width} ({items.where}): they share no space; give both from one model."
            )

    @property
    def compares_vectors(self) -> bool:
        return self.score == "cosine"

    def known_items(self) -> np.ndarray:
        return self.all_items.ids

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        """Find the vectors of a split; return its inputs and its prepared text, row numbers both."""
        self.places = self.all_text.places(captions["caption_id"]), self.all_items.places(items["item_id"])
        self.split = items, captions
        self.equal_items: np.ndarray | None = None
        if self.score == "maxsim":
            self.text, self.item = self.all_text.of(captions["caption_id"]), self.all_items.of(items["item_id"])
            self.sides = [_double(side.values[:], unit=False) for side in (self.text, self.item)]
        return RowNumberSource(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, 1): row numbers of captions, as they are; with dot their vectors (n, D) in double precision."""
        rows = batch["text"]
        return {"captions": self._double_vectors(0, rows) if self.score == "dot" else rows}

    def encode_items(self, batch: Features) -> Features:
        """``rows`` (n, 1) → with cosine, row numbers (n, 1) of the first items with the same vectors.

        They become vectors when they are compared, because a large gallery need not fit into memory in double
        precision. With dot they are vectors (n, D), with maxsim ``rows``.
        """
        rows = batch["rows"]
        if self.score == "cosine":
            if self.equal_items is None:
                self.equal_items = self._find_equal_items()
            return {"items": torch.from_numpy(self.equal_items)[rows.cpu()].to(rows.device)}
        return {"items": self._double_vectors(1, rows) if self.score == "dot" else rows}

    def _double_vectors(self, side: int, rows: Tensor) -> Tensor:
        """Vectors (n, D) of captions (side 0) or items (1) by row numbers (n, 1), of unit length for cosines."""
        table = (self.all_text, self.all_items)[side]
        places = self.places[side][rows[:, 0].cpu().numpy()]
        return _double(table.values[places], self.score == "cosine").to(rows.device)

    def _find_equal_items(self) -> np.ndarray:
        """(m,) for each item the first one whose unit vector is the same."""
        first_with: dict[bytes, int] = {}
        rows = torch.arange(len(self.places[1]))[:, None]
        contents = (
            row.tobytes() for part in rows.split(_ROWS_AT_ONCE) for row in self._double_vectors(1, part).numpy()
        )
        return np.array([first_with.setdefault(content_key(content), row) for row, content in enumerate(contents)])

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and (m, D) of items; only with ``score: cosine``."""
        return self._double_vectors(0, text["captions"]).float(), self._double_vectors(1, items["items"]).float()

    def similarity(self, text: Features, items: Features) -> Tensor:
        queries, gallery = text["captions"], items["items"]
        if self.score == "maxsim":
            return self._late(queries[:, 0].cpu().numpy(), gallery[:, 0].cpu().numpy()).float().to(queries.device)
        if self.score == "cosine":
            queries, gallery = self._double_vectors(0, queries), self._double_vectors(1, gallery)
        return (queries @ gallery.T).float()

    def rounded_ties(self) -> int:
        """Captions of the last split that score their clip and its twin alike only in single precision."""
        ids, videos = self.split[0]["item_id"].to_numpy(), self.split[1]["video_id"]
        of_twins = np.stack([_matrix_rows(ids, videos), _matrix_rows(ids, videos.map(twin_of))])
        captions = np.flatnonzero(of_twins[1] >= 0)
        if self.score == "maxsim":
            return sum(_count_rounded(self._late(np.array([row]), of_twins[:, row])) for row in captions.tolist())
        count = 0
        for part in np.array_split(captions, -(-len(captions) // _ROWS_AT_ONCE) or 1):
            text, *clips = (
                self._double_vectors(side, torch.from_numpy(rows)[:, None])
                for side, rows in ((0, part), (1, of_twins[0, part]), (1, of_twins[1, part]))
            )
            count += _count_rounded(torch.stack([(text * clip).sum(dim=1) for clip in clips], dim=1))
        return count

    def _late(self, queries: np.ndarray, gallery: np.ndarray) -> Tensor:
        """Late interaction (ColBERT's MaxSim): ``Σᵢ maxⱼ tᵢ·vⱼ``, vectors t of a caption and v of an item, float64."""
        (caption_rows, ends), (item_rows, starts) = _vector_rows(self.text, queries), _vector_rows(self.item, gallery)
        scores = np.zeros((len(queries), len(gallery)))
        for row, (start, end) in enumerate(ends):  # a caption at a time: memory is its vectors × all of the items
            products = self.sides[0][caption_rows[start:end]] @ self.sides[1][item_rows].T
            # maxⱼ over the run of columns of each item, then Σᵢ over the caption's own vectors.
            scores[row] = np.maximum.reduceat(products.numpy(), starts[:, 0], axis=1).sum(axis=0)
        return torch.from_numpy(scores)


def _count_rounded(scores: Tensor) -> int:
    """Rows of two scores, float64 (n, 2), that are equal in single precision and in double not even nearly."""
    first, second = scores.T
    differ = (first - second).abs() > 1e-13 * first.abs()  # a product of matrices sums in different orders
    return int((differ & (first.float() == second.float())).sum())


def _vector_rows(side: EmbeddingTable, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (N,) of all vectors of some ids, by row number, and where in them each id's begin and end, (n, 2)."""
    counts = np.ones(len(side.ids), np.int64) if side.counts is None else side.counts
    first = np.concatenate([[0], np.cumsum(counts)])
    rows = [np.arange(first[row], first[row + 1]) for row in numbers]
    ends = np.cumsum(counts[numbers])
    return np.concatenate(rows), np.stack([ends - counts[numbers], ends], axis=1)


def _double(values: np.ndarray, unit: bool) -> Tensor:
    wide = torch.from_numpy(values.astype(np.float64))
    return wide / wide.norm(dim=1, keepdim=True) if unit else wide


def _refuse_zero(side: EmbeddingTable) -> None:
    zero = np.concatenate([~block.any(axis=1) for block in side.blocks()])
    if zero.any():
        raise RewindError(
            f"{side.where}: only zeros in {describe_ids(side.ids[zero].tolist())}: without a direction there is no "
            "cosine."
        )


def load_precomputed_embeddings(keys: VectorOptions) -> PrecomputedEmbeddings:
    """The vectors of a run; those whose scores would be NaN or infinite are refused."""
    text, items = read_embedding_file(str(keys.captions), "captions"), read_embedding_file(str(keys.items), "items")
    retriever = PrecomputedEmbeddings(text, items, keys.score)
    if keys.score == "cosine":
        for side in (text, items):
            _refuse_unmeasurable(side)
    else:
        _refuse_overflow(text, items)
    return retriever


def _lengths(side: EmbeddingTable) -> np.ndarray:
    """(N,) Euclidean lengths, in double precision as scores are."""
    blocks = (block.astype(np.float64) for block in side.blocks())
    with np.errstate(over="ignore", under="ignore"):
        return np.concatenate([np.sqrt(np.einsum("nd,nd->n", block, block)) for block in blocks])


def _refuse_unmeasurable(side: EmbeddingTable) -> None:
    """Refuse vectors whose length is 0 or infinite in double precision, as of numbers about 1e-200 or 1e200."""
    length = _lengths(side)
    bad = (length == 0) | ~np.isfinite(length)
    if bad.any():
        raise RewindError(
            f"{side.where}: numbers too small or too large for a length in {describe_ids(side.ids[bad].tolist())}; "
            "divide each vector by its largest number, which changes no cosine."
        )


def _refuse_overflow(text: EmbeddingTable, items: EmbeddingTable) -> None:
    """Refuse vectors whose scores may pass single precision: |t·v| ≤ ‖t‖ ‖v‖, times the vectors of a caption."""
    captions, clips = _lengths(text), _lengths(items)
    several = 1 if text.counts is None else int(text.counts.max())
    with np.errstate(over="ignore"):
        largest = captions.max() * clips.max() * several
    if not largest <= MAX_SCORE:
        raise RewindError(
            f"{text.where} and {items.where}: vectors are as long as {captions.max():.3g} and {clips.max():.3g}, so "
            f"that scores may pass {MAX_SCORE:g}, the largest in single precision; divide all vectors of one file "
            "by one number, which changes no rank."
        )


def notes_vectors(method: Method, retriever: PrecomputedRetriever) -> list[str]:
    record = Path(method.precomputed_files()[0]).parent / VECTORS_RECORD
    notes = read_json(record).get("notes", []) if record.is_file() else []
    if isinstance(retriever, PrecomputedEmbeddings) and (count := retriever.rounded_ties()):
        notes = [
            *notes,
            f"{count:,} captions score their clip and its twin alike only after rounding to single precision: they tie",
        ]
    return notes


@MODELS.register(
    "vectors", tags=("files", "no backbone", "no towers", "cosines"), check=check_precomputed, notes=notes_vectors
)
def build_vectors(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Precomputed:
    """The vectors of a run, or the scores of a model that scores pairs; the study's towers are not used."""
    return load_precomputed(method.precomputed_options())


def load_precomputed(keys: VectorOptions) -> Precomputed:
    """What the files of ``model: vectors`` hold."""
    captions, items = str(keys.captions), str(keys.items)
    arrays = _pair_arrays(captions, items)
    if arrays not in (set(SCORE_ARRAYS), set(UNSCORED_ARRAYS)):
        return load_precomputed_embeddings(keys)
    if keys.score != "cosine":
        raise RewindError(
            f"methods.*.options.score: {keys.score} compares vectors, but this model scores pairs: remove the key."
        )
    if arrays == set(SCORE_ARRAYS):
        return PrecomputedScores(read_score_file(captions))
    with open_npz(Path(captions)) as ids:
        queries, gallery = (text_ids(ids[name], "ids", captions) for name in UNSCORED_ARRAYS)
    return UnscoredPairs(queries, gallery, captions)


def _pair_arrays(captions: str, items: str) -> set[str]:
    """Names of the arrays that rule ``encode_vectors`` wrote for a model without vectors; none for any other files."""
    if not all(path.endswith(".npz") and Path(path).is_file() for path in (captions, items)):
        return set()
    with open_npz(Path(captions)) as scores, open_npz(Path(items)) as ids:
        return set(scores.files) if ids.files == ["ids"] else set()


# ---- model: scores – a matrix of scores ----------------------------------------------------------------------------


class PrecomputedScores(PrecomputedRetriever):
    """Looks scores up. A pair without a score ranks below all others, tied with all such pairs, and is counted."""

    def __init__(self, scores: ScoreMatrix) -> None:
        super().__init__()
        # Of the last split: pairs without a score, all of its pairs, and captions without any score.
        self.scores, self.missing, self.pairs, self.silent = scores, 0, 0, 0
        self.score_dtype = torch.from_numpy(scores.similarity[:0]).dtype

    def known_items(self) -> np.ndarray:
        return self.scores.items

    def covers(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """All if the file has a twin or a twin's caption: in the binary setting that is set against the original's."""
        twins = items["item_id"][items["reversed"] == 1]
        if is_among(captions["caption_id"][is_among(captions["video_id"], twins)], self.scores.queries).any():
            return items, captions
        return super().covers(items, captions)

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        """Find a split's rows and columns in the matrix; return its inputs and its prepared text, row numbers both."""
        matrix = self.scores.similarity
        self.rows = _matrix_rows(self.scores.queries, captions["caption_id"])
        self.columns = _matrix_rows(self.scores.items, items["item_id"])
        columns = self.columns[self.columns >= 0]
        counts = np.zeros(len(captions), np.int64)
        for number, row in enumerate(self.rows):  # a row at a time: a matrix may take gigabytes
            counts[number] = np.count_nonzero(matrix[row, columns] > -np.inf) if row >= 0 else 0
        self.pairs = len(captions) * len(items)
        self.missing, self.silent = self.pairs - int(counts.sum()), int((counts == 0).sum())
        return RowNumberSource(len(items)), torch.arange(len(captions))[:, None]

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Scores of all pairs (n_text, n_items), as the file has them; ``MISSING_SCORE`` where there is none."""
        rows = self.rows[text["captions"][:, 0].cpu().numpy()]
        columns = self.columns[items["items"][:, 0].cpu().numpy()]
        # Row -1, an id that is not in the file, is read as row 0 and then overwritten.
        scores = self.scores.similarity[np.ix_(np.maximum(rows, 0), np.maximum(columns, 0))]
        scores[rows < 0] = MISSING_SCORE
        scores[:, columns < 0] = MISSING_SCORE
        np.maximum(scores, MISSING_SCORE, out=scores)  # the file's own -inf
        return torch.from_numpy(scores).to(text["captions"].device)


def _matrix_rows(ids: np.ndarray, selected: pd.Series) -> np.ndarray:
    """Positions of ids in the matrix, -1 of ids that are not in it."""
    return pd.Series(np.arange(len(ids)), index=ids).reindex(selected).fillna(-1).to_numpy(dtype=np.int64)


def notes_scores(method: Method, retriever: PrecomputedScores) -> list[str]:
    if not retriever.missing:
        return []
    none = f", {retriever.silent:,} captions have none at all" if retriever.silent else ""
    return [f"{retriever.missing:,} of {retriever.pairs:,} pairs have no score{none}; they rank below all others, tied"]


@MODELS.register("scores", tags=("files", "no backbone", "no towers"), check=check_precomputed, notes=notes_scores)
def build_scores(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> PrecomputedScores:
    """The scores of a run; the study's towers are not used."""
    options = method.precomputed_options()
    return PrecomputedScores(read_score_file(str(options.file), options.higher_is_better))


# ---- model: vectors – a model by name that scores pairs, before re-ranking states which ----------------------------


class UnscoredPairs(PrecomputedRetriever):
    """A model that scores a caption and a clip together, and has scored none yet: ``rerank`` states which pairs."""

    def __init__(self, queries: np.ndarray, items: np.ndarray, where: str) -> None:
        super().__init__()
        self.queries, self.items, self.where = queries, items, where

    def known_items(self) -> np.ndarray:
        return self.items

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        """Row numbers of a split's items and captions; ids that are not in the file are refused."""
        for asked, known in ((items["item_id"], self.items), (captions["caption_id"], self.queries)):
            unknown = asked[~is_among(asked, known)].tolist()
            if unknown:
                raise RewindError(f"{self.where}: lacks {describe_ids(unknown)}; delete the file and run again.")
        return RowNumberSource(len(items)), torch.arange(len(captions))[:, None]

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Refused: its pairs are scored by :mod:`rewind.encoders.score_candidates`."""
        raise RewindError(f"{self.where}: this model scores pairs, and a method with rerank scores no others.")


Precomputed = PrecomputedEmbeddings | PrecomputedScores | UnscoredPairs
"""What the files of a method may hold."""


# ---- Embeddings of a data set compared as they are: the zero-shot result of the networks that made them ------------


class EmbeddingCosine(PooledBaseline):
    """Cosine of a caption's vector and an item's (the mean over its frames), without any map."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Saved with the run: a model file needs at least one tensor, and vectors of another width are other vectors.
        self.register_buffer("width", torch.tensor(width))

    @classmethod
    def of(cls, keys: BackboneKeys) -> EmbeddingCosine:
        """For the vectors of a study's data set; those of different widths are refused."""
        text, items = embedding_widths(keys)
        if text != items:
            raise RewindError(
                f"methods.*.model: zero_shot compares vectors as they are, but captions have {text} numbers and items "
                f"{items}: without training they share no space. Use ridge, or a translator."
            )
        return cls(text)

    def map_text(self, text: Tensor) -> Tensor:
        return text

    def map_items(self, items: Tensor) -> Tensor:
        return items
