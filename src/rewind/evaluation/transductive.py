"""Scores that are normalised over all captions of the test split, as some papers report: dual softmax and QB-Norm.

Both make clips that are near to many captions rarer among the results. They see the whole test set: the score of one
caption depends on all others, which a search engine does not have. Only captions search clips here.

- ``dual_softmax`` (Cheng et al. 2021, CAMoE): s′(q, v) = s(q, v) · softmax over all captions q of z(q, v).
- ``qb_norm`` (Bogolin et al. 2022, Querybank Normalisation) with the test captions as its bank:
  s′(q, v) = exp z(q, v) / Σ over all captions b of exp z(b, v). Every first result of a caption is then in the set of
  clips that activate the normalisation, so that its dynamic and its static form are one.

z is the score times an inverse temperature: 1 for a trained model, whose logits have a temperature of their own, and
100, the largest of CLIP, for cosines of vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import open_scores
from rewind.evaluation.ranking import rank_table, row_blocks


class NormalisedScores:
    """A matrix whose rows are normalised when they are read, so that a large one stays in its file.

    Args:
        scores: float (n, m), an array or a file.
        how: ``dual_softmax`` or ``qb_norm``.
        scale: inverse temperature.

    >>> NormalisedScores(np.array([[1.0, 2.0], [1.0, 0.0]]), "dual_softmax", 1.0)[:].round(2).tolist()
    [[0.5, 1.76], [0.5, 0.0]]
    """

    def __init__(self, scores: Any, how: str, scale: float) -> None:
        self.scores, self.how, self.scale = scores, how, scale
        self.shape, self.size, self.dtype, self.ndim = scores.shape, scores.size, np.dtype(np.float64), 2
        self.log_sum = _log_sum_exp(scores, scale)

    def __getitem__(self, rows: slice) -> np.ndarray:
        block = np.asarray(self.scores[rows], np.float64)
        log_share = self.scale * block - self.log_sum
        # QB-Norm's scores as logarithms, which have the same order and do not underflow.
        normalised = log_share if self.how == "qb_norm" else block * np.exp(log_share)
        return np.where(block == MISSING_SCORE, MISSING_SCORE, normalised)


def _log_sum_exp(scores: Any, scale: float) -> np.ndarray:
    """Logarithm of the sum of exp(scale · score) over all rows, float64 (m,), in one pass."""
    largest, total = np.full(scores.shape[1], -np.inf), np.zeros(scores.shape[1])
    for rows in row_blocks(*scores.shape):
        block = scale * np.asarray(scores[rows], np.float64)
        new = np.maximum(largest, block.max(axis=0))
        total = total * np.exp(largest - new) + np.exp(block - new).sum(axis=0)
        largest = new
    return largest + np.log(total)


def transductive_ranks(
    folder: Path,
    dataset: str,
    similarity: Mapping[RunKey, str],
    scales: Mapping[str, float],
    hows: Sequence[str],
    setting: str,
) -> dict[str, dict[str, dict[int, pd.DataFrame]]]:
    """Normalisation → method → seed → rank table of captions that search clips by normalised scores.

    Args:
        folder: the data set's results folder.
        dataset: its name.
        similarity: method and seed → npz file of the matrix.
        scales: method → inverse temperature.
        hows: normalisations.
        setting: ``hard`` or ``test``, in which all captions search all clips.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    captions, items = captions.set_index("caption_id", drop=False), items.set_index("item_id", drop=False)
    found: dict[str, dict[str, dict[int, pd.DataFrame]]] = {how: {} for how in hows}
    for (method, seed), path in similarity.items():
        scores, queries, gallery = open_scores(path)
        rows, columns = captions.loc[queries], items.loc[gallery]
        for how in hows:
            normalised: Any = NormalisedScores(scores, how, scales[method])
            ranks = rank_table(normalised, rows, columns, [setting], ["text_to_item"], path)
            found[how].setdefault(method, {})[seed] = ranks
    return found
