"""Scores that are normalised over all captions of the test split, as some papers do: dual softmax and QB-Norm.

Both make clips that are near to many captions rarer among the results. They see the whole test set: the score of one
caption depends on all others, which a search engine does not have. Only captions search clips here. With z the score
times an inverse temperature:

- ``dual_softmax`` (Cheng et al. 2021, CAMoE): s′(q, v) = (z(q, v) − min z) · softmax over all captions q of z(q, v).
  CAMoE's own factor is z(q, v): it depends on where the scale has its zero, of which logits and log-likelihoods have
  none, and below zero it sorts backwards, since a larger share makes a negative score lower. Counted from the lowest
  score the order is the same wherever zero is, and nearly CAMoE's where all scores are positive.
- ``qb_norm`` (Bogolin et al. 2022, Querybank Normalisation) with the test captions as its bank:
  s′(q, v) = exp z(q, v) / Σ over all captions b of exp z(b, v). Every first result of a caption is then in the set of
  clips that activate the normalisation, so that its dynamic and its static form are one.

The inverse temperature is 1 for logits, which have a temperature of their own, and 100, the largest of CLIP, for
cosines. Of other scores nobody knows it: a study has to name it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.methods import CLIP_MAX_LOGIT_SCALE
from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import open_scores
from rewind.evaluation.ranking import rank_table, row_blocks


class NormalisedScores:
    """Logarithms of normalised scores, which do not underflow; rows are normalised when they are read.

    Args:
        scores: float (n, m), an array or a file.
        how: ``dual_softmax`` or ``qb_norm``.
        scale: inverse temperature.

    >>> np.exp(NormalisedScores(np.array([[1.0, 2.0], [1.0, 0.0]]), "dual_softmax", 1.0)[:]).round(2).tolist()
    [[0.5, 1.76], [0.5, 0.0]]
    """

    def __init__(self, scores: Any, how: str, scale: float) -> None:
        self.scores, self.how, self.scale = scores, how, scale
        self.shape, self.size, self.dtype, self.ndim = scores.shape, scores.size, np.dtype(np.float64), 2
        self.lowest, self.largest, self.log_sum = np.inf, *np.empty((2, scores.shape[1]))
        for columns in row_blocks(*scores.shape[::-1]):
            # Sorted, so that the last digit, and with it a tie, does not depend on the order of captions.
            block = np.sort(self._scaled(scores[:, columns]), axis=0)
            self.lowest = min(self.lowest, block[block > -np.inf].min(initial=np.inf))
            self.largest[columns] = np.maximum(block[-1], np.finfo(np.float64).min)  # a clip may have no score at all
            with np.errstate(divide="ignore"):
                self.log_sum[columns] = np.log(np.exp(block - self.largest[columns]).sum(axis=0))

    def __getitem__(self, rows: slice) -> np.ndarray:
        z = self._scaled(self.scores[rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            normalised = z - self.largest - self.log_sum  # in this order, so that the size of scores rounds nothing
            if self.how == "dual_softmax":
                normalised += np.log(z - self.lowest)
        # Finite, as all scores are: the lowest score of all is 0 once it is normalised, and a missing one is below it.
        least = np.finfo(np.float64).min
        return np.where(z == -np.inf, least, np.maximum(normalised, least / 2))

    def _scaled(self, scores: np.ndarray) -> np.ndarray:
        """z, with −∞ where there is no score."""
        return np.where(scores == MISSING_SCORE, -np.inf, self.scale * np.asarray(scores, np.float64))


def transductive_ranks(
    folder: Path,
    dataset: str,
    similarity: Mapping[RunKey, str],
    scales: Mapping[str, float | None],
    hows: Sequence[str],
    setting: str,
) -> dict[str, dict[str, dict[int, pd.DataFrame]]]:
    """Normalisation → method → seed → rank table of captions that search clips by normalised scores.

    Args:
        folder: the data set's results folder.
        dataset: its name.
        similarity: method and seed → npz file of the matrix.
        scales: method → inverse temperature; None: that of cosines, or of logits where a score is beyond 1.
        hows: normalisations.
        setting: ``hard`` or ``test``, in which all captions search all clips.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    captions, items = captions.set_index("caption_id", drop=False), items.set_index("item_id", drop=False)
    found: dict[str, dict[str, dict[int, pd.DataFrame]]] = {how: {} for how in hows}
    for (method, seed), path in similarity.items():
        scores, queries, gallery = open_scores(path)
        rows, columns = captions.loc[queries], items.loc[gallery]
        scale = scales[method] or (CLIP_MAX_LOGIT_SCALE if _may_be_cosines(scores) else 1.0)
        for how in hows:
            normalised: Any = NormalisedScores(scores, how, scale)
            ranks = rank_table(normalised, rows, columns, [setting], ["text_to_item"], path)
            found[how].setdefault(method, {})[seed] = ranks
    return found


def _may_be_cosines(scores: Any) -> bool:
    """Whether no score is beyond 1, but for rounding."""
    blocks = (scores[rows] for rows in row_blocks(*scores.shape))
    return all((np.abs(block[block != MISSING_SCORE]) <= 1 + 1e-3).all() for block in blocks)
