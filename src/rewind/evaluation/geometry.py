"""Geometry of a run's vectors, and a score below which its answer is "no such clip".

Rank metrics say in which order items come. They do not say how the two kinds of vectors lie on the unit sphere (two
cones apart from each other, a few items that are near every caption), nor whether a score means the same for every
caption, without which no one can tell a query that has an answer from one that has none.

Everything is computed in float64 and in blocks of rows, with no matrix of all pairs; ties are exact, as in
:mod:`rewind.evaluation.ranking`. ``text`` (n, d) and ``items`` (m, d) are unit vectors, ``item_of_caption`` (n,) is the
row of each caption's item.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import stats

from rewind.data.readers import MISSING_SCORE
from rewind.errors import RewindError
from rewind.evaluation.ranking import row_blocks
from rewind.ranking_metrics import ROUNDING_TOLERANCE

_NORM_TOLERANCE = 1e-3  # float32 keeps lengths to 1e-6; what is further off was not normalised

# ---- Vectors on the unit sphere --------------------------------------------------------------------------------------


def measure_geometry(
    text: np.ndarray, items: np.ndarray, item_of_caption: np.ndarray, k: int = 10, where: str = "vectors"
) -> dict[str, float]:
    """All measures of one run's vectors: those defined below, and ``antihubs``, the share of items whose N_k is 0.

    Vectors that are not of unit length and a ``k`` that is not below the number of items are refused.
    """
    _check_vectors(text, items, item_of_caption, where)
    if not 1 <= k < len(items):
        raise RewindError(
            f"{where}: k: {k} nearest of {len(items)} items say nothing; choose k from 1 to {len(items) - 1}."
        )
    text, items = text.astype(np.float64), items.astype(np.float64)
    occurrences = item_occurrences(text, items, k)
    return {
        "modality_gap": modality_gap(text, items),
        "hubness": hubness(occurrences),
        "antihubs": float((occurrences == 0).mean()),
        "alignment": alignment(text, items, item_of_caption),
        "uniformity_text": uniformity(text),
        "uniformity_items": uniformity(items),
    }


def _check_vectors(text: np.ndarray, items: np.ndarray, item_of_caption: np.ndarray, where: str) -> None:
    for name, vectors in (("caption", text), ("item", items)):
        if vectors.ndim != 2 or len(vectors) < 2:
            raise RewindError(f"{where}: {name}s: vectors of at least two are needed, not an array {vectors.shape}.")
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        wrong = ~(np.abs(lengths - 1) <= _NORM_TOLERANCE)  # NaN too, for which every comparison is false
        if wrong.any():
            row = int(wrong.argmax())
            raise RewindError(
                f"{where}: {name} {row}: the vector's length is {lengths[row]:.4g}, not 1; divide vectors by their "
                "length, and look for NaN in the model."
            )
    if text.shape[1] != items.shape[1]:
        raise RewindError(
            f"{where}: vectors of captions have width {text.shape[1]}, those of items {items.shape[1]}: they are not "
            "of one space, and have no geometry together."
        )
    if item_of_caption.shape != (len(text),) or not ((item_of_caption >= 0) & (item_of_caption < len(items))).all():
        raise RewindError(f"{where}: every caption needs the row of its item, from 0 to {len(items) - 1}.")


def modality_gap(text: np.ndarray, items: np.ndarray) -> float:
    """Length of the difference of the captions' mean vector and the items', from 0 to 2.

    Liang et al., "Mind the gap" (2022, arXiv 2203.02053).

    >>> modality_gap(np.array([[1.0, 0], [0, 1]]), np.array([[0.0, -1], [1, 0]]))
    1.0
    """
    return float(np.linalg.norm(text.mean(axis=0, dtype=np.float64) - items.mean(axis=0, dtype=np.float64)))


def item_occurrences(text: np.ndarray, items: np.ndarray, k: int) -> np.ndarray:
    """N_k of every item, float64 (m,): of how many captions it is one of the k nearest items, k from 1 to m.

    Items that tie for the last of the k places share the places that are left equally: N_k is its expectation over the
    order of tied items. It sums to n·k.

    >>> items = np.array([[1.0, 0], [0, 1], [0, 1]])
    >>> item_occurrences(np.array([[1.0, 0], [0, 1]]), items, k=1).tolist()
    [1.0, 0.5, 0.5]
    """
    # A product of matrices may round equal columns differently (BLAS has other kernels for the last few of them), which
    # would break the ties of equal items: each vector is multiplied once.
    distinct, position = np.unique(items.astype(np.float64), axis=0, return_inverse=True)
    occurrences = np.zeros(len(items))
    for rows in row_blocks(len(text), len(items)):
        scores = (text[rows].astype(np.float64) @ distinct.T)[:, position]
        last = np.partition(scores, len(items) - k, axis=1)[:, -k, None]  # the k-th best score
        above, tied = scores > last, scores == last
        share = (k - above.sum(axis=1, keepdims=True)) / tied.sum(axis=1, keepdims=True)
        # Added row by row and not by a product with `share`: equal items get equal sums, for the reason above.
        occurrences += above.sum(axis=0) + np.where(tied, share, 0).sum(axis=0)
    return occurrences


def hubness(occurrences: np.ndarray) -> float:
    """Skewness of N_k: large where a few items, hubs, are near to captions of all kinds, and most to hardly any.

    Radovanović, Nanopoulos and Ivanović, "Hubs in space" (JMLR 2010), equation 1: E(N_k − μ)³ / σ³. Where all items
    occur equally often, which leaves that undefined, it is 0.

    >>> round(hubness(np.array([0, 0, 0, 4.0])), 4)  # (3·(−1)³ + 3³) / 4 / √3³
    1.1547
    """
    # skew divides by the number of items, as the equation does: its correction of bias is off by default.
    return float(stats.skew(occurrences)) if np.ptp(occurrences) > ROUNDING_TOLERANCE else 0.0


def alignment(text: np.ndarray, items: np.ndarray, item_of_caption: np.ndarray) -> float:
    """Mean squared distance of a caption and its item, from 0 to 4; smaller is closer.

    Wang and Isola (2020, arXiv 2005.10242), with α = 2.

    >>> alignment(np.array([[1.0, 0], [0, 1]]), np.array([[1.0, 0]]), np.array([0, 0]))
    1.0
    """
    own = items[item_of_caption].astype(np.float64)
    return float(((text.astype(np.float64) - own) ** 2).sum(axis=1).mean())


def uniformity(vectors: np.ndarray) -> float:
    """Logarithm of the mean of exp(−2·‖x − y‖²) over pairs of different rows, from −8 to 0; smaller is more uniform.

    Wang and Isola (2020, arXiv 2005.10242), with t = 2. It is exact: all pairs, none drawn. The rows are of one side,
    as captions and items are distributed differently.

    >>> uniformity(np.array([[1.0, 0], [-1, 0]]))
    -8.0
    """
    from sklearn.metrics.pairwise import rbf_kernel

    vectors = vectors.astype(np.float64)
    count, total = len(vectors), 0.0
    for rows in row_blocks(count, count):  # each row with the rows behind it
        total += np.triu(rbf_kernel(vectors[rows], vectors[rows.start :], gamma=2.0), 1).sum()  # gamma is t
    return float(np.log(total / (count * (count - 1) / 2)))


# ---- No such clip ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnswerScores:
    """The best score of every caption in two galleries, (n,) each."""

    present: np.ndarray  # in the whole gallery, which has an answer
    absent: np.ndarray  # without the items of the caption's own cluster: no answer is left


@dataclass(frozen=True)
class AnswerThreshold:
    """A threshold chosen on validation, and what it does on test. All rates are percentages."""

    threshold: float  # a best score below it means "no such clip"
    valid_missed: float
    valid_false: float
    missed: np.ndarray  # (n,) 100 if an answer exists but the best score is below the threshold, else 0
    false: np.ndarray  # (n,) 100 if no answer exists but the best score is not below it, else 0
    present_placement: np.ndarray  # (n,) percent of all `absent` scores below this caption's `present` one; ties ½
    absent_placement: np.ndarray  # (n,) percent of all `present` scores above this caption's `absent` one; ties ½

    @property
    def auroc(self) -> float:
        """Percentage of pairs of captions where the score with an answer is above the other's without; ties ½.

        Both placements have this mean. They are DeLong's structural components (DeLong et al., 1988): caption i moves
        the value by (present_placement − auroc + absent_placement − auroc) / n to first order, and the squares of these
        sums over clusters add up to its variance.
        """
        return float(self.present_placement.mean())


def answer_scores(
    similarity: np.ndarray, item_of_caption: np.ndarray, cluster_of_item: np.ndarray, where: str = "scores"
) -> AnswerScores:
    """The best score of every caption (NaN is refused) with an answer in the gallery and without one.

    ``similarity`` (n, m) has cosines or logits of any scale, ``MISSING_SCORE`` or −∞ where a pair has no score. A
    cluster is a clip, its time-reversed twin and whatever else would be an answer too.

    >>> similarity = np.array([[0.9, 0.8, 0.1], [0.7, 0.2, 0.3]])
    >>> scores = answer_scores(similarity, np.array([0, 2]), np.array([0, 0, 1]))
    >>> scores.present.tolist(), scores.absent.tolist()
    ([0.9, 0.7], [0.1, 0.7])
    """
    present, absent = np.zeros((2, len(similarity)))
    own = cluster_of_item[item_of_caption]
    for rows in row_blocks(*similarity.shape):
        scores = similarity[rows]
        present[rows] = scores.max(axis=1)  # NaN if one is
        absent[rows] = np.where(own[rows, None] == cluster_of_item, -np.inf, scores).max(axis=1)
    if not (present < np.inf).all():
        row = int((~(present < np.inf)).argmax())
        raise RewindError(f"{where}: caption {row}: its scores are not numbers; train this run again.")
    unanswered = absent <= MISSING_SCORE  # −∞ too
    if unanswered.any():
        raise RewindError(
            f"{where}: caption {int(unanswered.argmax())}: it has no score for any item of another cluster, so there "
            "is no gallery without an answer; score captions with all items."
        )
    return AnswerScores(present, absent)


def answer_threshold(valid: AnswerScores, test: AnswerScores) -> AnswerThreshold:
    """Choose the threshold of "no such clip" on validation and measure it on test.

    The mean of both error rates is a step function of the threshold t: it changes only where t passes a score, and is
    the same everywhere in (a, b], with a and b two neighbouring scores. Neighbouring intervals with one and the same
    error are one run. Of the runs with the least error the widest is taken (the lowest of equally wide ones), and the
    threshold is its middle. A run that goes beyond all scores ends at the lowest or the highest one, and of a run of
    one point the threshold is that point. So it moves with scores that are multiplied by, or added to, a number.

    >>> valid = AnswerScores(present=np.array([2.0, 4.0]), absent=np.array([1.0, 3.0]))
    >>> result = answer_threshold(valid, AnswerScores(np.array([1.0, 5.0]), np.array([0.0, 1.5])))
    >>> result.threshold  # (1, 2] and (3, 4] have the least error: equally wide, so the lower one
    1.5
    >>> result.valid_missed, result.valid_false, result.missed.tolist(), result.false.tolist(), result.auroc
    (0.0, 50.0, [100.0, 0.0], [0.0, 100.0], 75.0)
    """
    for name, scores in (("validation", valid), ("test", test)):
        if not len(scores.present):
            raise RewindError(f"{name}: there is no caption, so no threshold can be chosen or measured.")
    threshold = _least_error(valid)
    missed, false = _errors(valid, threshold)
    count = len(test.present)
    both = stats.rankdata(np.concatenate([test.present, test.absent]))  # of ties, the mean rank
    below = both[:count] - stats.rankdata(test.present)  # ranks among all, less those among one's own kind
    above = count - (both[count:] - stats.rankdata(test.absent))
    return AnswerThreshold(
        threshold,
        float(missed.mean()),
        float(false.mean()),
        *_errors(test, threshold),
        present_placement=100 * below / count,
        absent_placement=100 * above / count,
    )


def _least_error(scores: AnswerScores) -> float:
    """The threshold with the least mean of both error rates, see :func:`answer_threshold`."""
    present, absent = np.sort(scores.present), np.sort(scores.absent)
    values = np.unique(np.concatenate([present, absent]))
    # Of thresholds in (values[i − 1], values[i]]: counts and not rates, so that equal errors are exactly equal. The
    # last entry is that of thresholds above all scores.
    missed = np.append(np.searchsorted(present, values), len(present))
    false = len(absent) - np.append(np.searchsorted(absent, values), len(absent))
    least = np.flatnonzero(missed + false == (missed + false).min())
    runs = np.split(least, np.flatnonzero(np.diff(least) > 1) + 1)
    low = np.array([values[max(run[0] - 1, 0)] for run in runs])
    high = np.array([values[min(run[-1], len(values) - 1)] for run in runs])
    widest = int((high - low).argmax())
    middle = low[widest] + (high[widest] - low[widest]) / 2
    # Between two neighbouring numbers there is no middle, and `low` is not in the run.
    return float(middle if middle > low[widest] else high[widest])


def _errors(scores: AnswerScores, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """(n,) missed and false, 100 or 0 of each caption."""
    return 100.0 * (scores.present < threshold), 100.0 * (scores.absent >= threshold)
