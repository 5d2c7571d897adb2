"""A model that is two files: vectors of captions and vectors of items, compared as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.datasets.npz_files import npz
from rewind.datasets.score_files import ARRAYS, read_scores
from rewind.datasets.trec_lines import LARGEST_SCORE
from rewind.datasets.vector_files import Vectors, read_vectors, some
from rewind.errors import RewindError
from rewind.files import read_json
from rewind.models.bow import CaptionedItems
from rewind.models.brought import RowNumbers, check
from rewind.models.retriever import Features
from rewind.models.scores import GivenScores
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method
from rewind.study import Text as TextKeys
from rewind.study.brought import VectorOptions, files, options

__all__ = ["build", "check", "notes"]

RECORD = "record.json"  # beside vectors that were made here


class GivenVectors(RowNumbers):
    """Scores captions and items by vectors that were made elsewhere.

    Products are computed in double precision and rounded to single, so that equal vectors get equal scores wherever in
    a matrix they stand: a model that cannot see the order of frames ties a clip with its twin.

    Args:
        text, items: the vectors.
        score: ``cosine``, ``dot`` or ``maxsim``.
    """

    def __init__(self, text: Vectors, items: Vectors, score: str) -> None:
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
        """Whether the score is a cosine."""
        return self.score == "cosine"

    def known_items(self) -> np.ndarray:
        """Ids of items, (n,)."""
        return self.all_items.ids

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[CaptionedItems, Tensor]:
        """Take the vectors of a split; return its inputs and its prepared text, row numbers both.

        Raises:
            RewindError: naming ids without a vector.
        """
        self.text, self.item = self.all_text.of(captions["caption_id"]), self.all_items.of(items["item_id"])
        self.sides = [_double(side.values, self.score == "cosine") for side in (self.text, self.item)]
        return CaptionedItems(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, 1), row numbers → their vectors (n, D) in double precision; of late interaction as they are."""
        return {"captions": self._of(0, batch["text"])}

    def encode_items(self, batch: Features) -> Features:
        """``rows`` (n, 1), row numbers → their vectors (n, D) in double precision; of late interaction as they are."""
        return {"items": self._of(1, batch["rows"])}

    def _of(self, side: int, rows: Tensor) -> Tensor:
        return rows if self.score == "maxsim" else self.sides[side][rows[:, 0].cpu()].to(rows.device)

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors (n, D) of captions and (m, D) of items; only of a cosine."""
        return text["captions"].float(), items["items"].float()

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Scores of all pairs, float32 (n_text, n_items)."""
        queries, gallery = text["captions"], items["items"]
        if self.score != "maxsim":
            return (queries @ gallery.T).float()
        return self._late(queries[:, 0].cpu().numpy(), gallery[:, 0].cpu().numpy()).to(queries.device)

    def _late(self, queries: np.ndarray, gallery: np.ndarray) -> Tensor:
        """Σ over a caption's vectors of the largest product with one of the item's."""
        (mine, ends), (theirs, starts) = _rows(self.text, queries), _rows(self.item, gallery)
        found = np.zeros((len(queries), len(gallery)))
        for row, (start, end) in enumerate(ends):  # a caption at a time: memory is its vectors × all of the items
            products = self.sides[0][mine[start:end]] @ self.sides[1][theirs].T
            found[row] = np.maximum.reduceat(products.numpy(), starts[:, 0], axis=1).sum(axis=0)
        return torch.from_numpy(found).float()


def _rows(side: Vectors, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows (N,) of the vectors of some ids, and where in them each one's begin and end (n, 2)."""
    counts = np.ones(len(side.ids), np.int64) if side.counts is None else side.counts
    first = np.concatenate([[0], np.cumsum(counts)])
    taken = [np.arange(first[row], first[row + 1]) for row in wanted]
    ends = np.cumsum(counts[wanted])
    return np.concatenate(taken), np.stack([ends - counts[wanted], ends], axis=1)


def _double(values: np.ndarray, unit: bool) -> Tensor:
    wide = torch.from_numpy(values.astype(np.float64))
    return wide / wide.norm(dim=1, keepdim=True) if unit else wide


def _refuse_zero(side: Vectors) -> None:
    zero = ~side.values.any(axis=1)
    if zero.any():
        raise RewindError(
            f"{side.where}: only zeros in {some(side.ids[zero].tolist())}: without a direction there is no cosine."
        )


def given_vectors(keys: VectorOptions) -> GivenVectors:
    """The vectors of a run, from its files.

    Raises:
        RewindError: for files that are missing, broken or do not fit together, and vectors whose scores would be no
            numbers.
    """
    text, items = read_vectors(str(keys.captions), "captions"), read_vectors(str(keys.items), "items")
    found = GivenVectors(text, items, keys.score)
    if keys.score == "cosine":
        for side in (text, items):
            _refuse_unmeasurable(side)
    else:
        _refuse_overflow(text, items)
    return found


def _lengths(side: Vectors) -> np.ndarray:
    """(N,) Euclidean lengths, in double precision as scores are."""
    with np.errstate(over="ignore", under="ignore"):
        return np.sqrt(np.einsum("nd,nd->n", side.values, side.values, dtype=np.float64))


def _refuse_unmeasurable(side: Vectors) -> None:
    """The squares of 1e200 and of 1e-200 are none in double precision: divided by such a length, nothing is left."""
    length = _lengths(side)
    other = (length == 0) | ~np.isfinite(length)
    if other.any():
        raise RewindError(
            f"{side.where}: numbers too small or too large for a length in {some(side.ids[other].tolist())}; divide "
            "each vector by its largest number, which changes no cosine."
        )


def _refuse_overflow(text: Vectors, items: Vectors) -> None:
    """No score is larger than the product of two lengths, times the vectors of a caption."""
    captions, clips = _lengths(text), _lengths(items)
    several = 1 if text.counts is None else int(text.counts.max())
    with np.errstate(over="ignore"):
        largest = captions.max() * clips.max() * several
    if not largest <= LARGEST_SCORE:
        raise RewindError(
            f"{text.where} and {items.where}: vectors are as long as {captions.max():.3g} and {clips.max():.3g}, so "
            f"that scores may pass {LARGEST_SCORE:g}, the largest in single precision; divide all vectors of one file "
            "by one number, which changes no rank."
        )


def notes(method: Method, retriever: GivenVectors | GivenScores) -> list[str]:
    """What readers of a table must know of the row."""
    made = Path(files(method)[0]).parent / RECORD
    return read_json(made).get("notes", []) if made.is_file() else []


def build(
    method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]
) -> GivenVectors | GivenScores:
    """The vectors of a run, or the scores of a model that scores pairs; the study's towers are not looked at.

    Raises:
        RewindError: for files that are missing, broken or do not fit together.
    """
    return read(options(method))


def read(keys: VectorOptions) -> GivenVectors | GivenScores:
    """What the files of ``model: vectors`` hold.

    Raises:
        RewindError: for files that are missing, broken or do not fit together.
    """
    captions, items = str(keys.captions), str(keys.items)
    if not _hold_scores(captions, items):
        return given_vectors(keys)
    if keys.score != "cosine":
        raise RewindError(
            f"methods.*.options.score: {keys.score} compares vectors, but this model scores pairs: remove the key."
        )
    return GivenScores(read_scores(captions))


def _hold_scores(captions: str, items: str) -> bool:
    """Whether rule ``encode_vectors`` wrote scores of pairs there, for a model that has no vectors."""
    if not all(path.endswith(".npz") and Path(path).is_file() for path in (captions, items)):
        return False
    with npz(Path(captions)) as scores, npz(Path(items)) as ids:
        return set(scores.files) == set(ARRAYS) and ids.files == ["ids"]
