"""Caption matching: scores of clips with captions that are true of them and with foils, which are not.

Values are expectations over a uniformly random order of tied scores, as ranks are in :mod:`rewind.evaluation.ranking`.
The benchmarks' own code decides ties otherwise: Vinoground and VELOCITI compare strictly, so that a tie is wrong;
NegBench and ViLMA take the first of the highest scores, and their files have the true caption first, so that a tie is
right and a model with one score for everything gets 100%. Without ties all agree.

Captions (caption_id, video_id) are the rows of a similarity matrix, items (item_id, cluster_id, reversed) its columns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import comb

from rewind.data.formats.foils import PROFICIENCY
from rewind.errors import RewindError
from rewind.evaluation.ranking import setting_selection
from rewind.evaluation.twins import binary_candidates
from rewind.ranking_metrics import recall_at

QUESTION = ["caption_id", "kind"]
"""Columns that name a question: a true caption, and a kind of foils."""

# ---- Two clips with a caption each ---------------------------------------------------------------------------------


class PairScores(NamedTuple):
    """Scores of pairs of clips with a caption each, (n,) each, from 0 to 1; see :func:`pair_scores`."""

    text: np.ndarray  # each clip scores its own caption above the other one
    video: np.ndarray  # each caption scores its own clip above the other one
    group: np.ndarray  # both


def pair_scores(scores: np.ndarray) -> PairScores:
    """Text, video and group score of pairs of clips with a caption each, in expectation over the order of ties.

    With s[i, j] the score of clip i and caption j, ``scores`` being (n, 2, 2):

    - text: s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0];
    - video: s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1];
    - group: both, that is, s[0, 0] and s[1, 1] are above both others. With m the lower of the former and M the
      higher of the latter it is 1 for m > M and 0 for m < M. For m = M it is 1 / C(a + b, a), if a of the former and b
      of the latter have this score: the share of the orders of a + b tied scores that have the a in front.

    Chance, where all four tie, is ¼, ¼ and ⅙: that of independent scores too. What each score guards against:

    - A scorer that sees only captions ties every video comparison and reverses one text comparison: text 0, video ¼.
    - A scorer that sees only clips does the contrary: text ¼, video 0.
    - A tower that is blind to the order of frames scores a clip and its time-reversed twin the same: text 0, video ¼.
    - Each has group 0. So has any score a(clip) + b(caption): s[0, 0] + s[1, 1] = s[0, 1] + s[1, 0], and both terms on
      the left cannot be above both on the right.

    These hold where the two captions, or the two clips, differ in score. Not guarded against is a product
    a(clip) · b(caption) of two guesses of the direction of time, which is positive where they agree. Winoground and
    Vinoground compare strictly: there all ties are wrong, and the ¼ are 0.

    Source: Thrush et al., Winoground (arXiv 2204.03162); Zhang et al., Vinoground (arXiv 2410.02763).

    >>> aligned, tied = [[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]
    >>> text, video, group = pair_scores(np.array([aligned, tied]))
    >>> text.tolist(), video.tolist(), group.round(3).tolist()
    ([1.0, 0.25], [1.0, 0.25], [1.0, 0.167])
    """
    scores = np.asarray(scores)
    if scores.shape[1:] != (2, 2):
        raise ValueError(f"scores of pairs have shape (n, 2, 2), not {scores.shape}")
    if np.isnan(scores).any():
        number = int(np.isnan(scores).any(axis=(1, 2)).argmax())
        raise RewindError(f"pair {number} (from 0) has a score that is not a number; compute its scores again.")
    own, other = scores[:, [0, 1], [0, 1]], scores[:, [0, 1], [1, 0]]  # (n, 2): s00 and s11, s01 and s10
    # The two comparisons of a score share no entry. In a random order of ties they are therefore independent.
    text = (_share_above(own, other)).prod(axis=1)
    video = (_share_above(own, other[:, ::-1])).prod(axis=1)
    lowest, highest = own.min(axis=1), other.max(axis=1)
    a, b = (own == lowest[:, None]).sum(axis=1), (other == highest[:, None]).sum(axis=1)
    group = np.where(lowest == highest, 1 / comb(a + b, a), (lowest > highest).astype(float))
    return PairScores(text, video, group)


def _share_above(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Probability that ``first`` is above ``second``: 1, 0, or ½ for a tie."""
    return (first > second) + (first == second) / 2


def pair_values(
    similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, pairs: pd.DataFrame
) -> pd.DataFrame:
    """Text, video and group score of every pair of captions, in percent; the clips are those of the captions.

    Pairs are those of :func:`rewind.data.formats.foils.read_pairs`. Rows have a metric (a field of
    :class:`PairScores`), kind, query_id (that of the pair), cluster_id (that of the first clip) and value.
    """
    sides = ("first", "second")
    known = set(captions["caption_id"])
    absent = next((name for side in sides for name in pairs[side] if name not in known), None)
    if absent is not None:
        raise RewindError(
            f"caption {absent!r}: no scores, but it is one of a pair; compute those of all captions of pairs."
        )
    row_of_caption = pd.Series(np.arange(len(captions)), index=captions["caption_id"].to_numpy())
    column_of_item = pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())
    rows = np.stack([row_of_caption[pairs[side]].to_numpy() for side in sides], axis=1).reshape(-1, 2)
    columns = column_of_item[captions["video_id"].to_numpy()[rows.ravel()]].to_numpy().reshape(-1, 2)
    clusters = items["cluster_id"].to_numpy()[columns[:, 0]]
    table = _pair_table(similarity, rows, columns, pairs["pair_id"].to_numpy(), clusters)
    table.insert(1, "kind", np.tile(pairs["kind"].to_numpy(), 3))
    return table


def binary_pair_values(similarity: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame) -> pd.DataFrame:
    """Text, video and group score, in percent, of every pair of Binary: a clip and its time-reversed twin.

    An original's k-th caption is paired with its twin's k-th caption, as in
    :func:`rewind.evaluation.twins.binary_candidates`. Binary itself asks for only one of the two comparisons of a
    score, that of the original: from text to item, a method that prefers clips which run forward, whatever the caption
    says, is right in all of it, and so is one that prefers captions of originals from item to text.

    Columns are those of :func:`pair_values` without kind; query_id is that of the original's caption.

    >>> captions = pd.DataFrame({"caption_id": ["a#0", "a_rev#0"], "video_id": ["a", "a_rev"]})
    >>> items = pd.DataFrame({"item_id": ["a", "a_rev"], "cluster_id": ["a", "a"], "reversed": [0, 1]})
    >>> blind = np.array([[0.7, 0.7], [0.4, 0.4]])  # a clip and its twin have the same score
    >>> binary_pair_values(blind, captions, items)["value"].tolist()
    [0.0, 25.0, 0.0]
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    queries = setting_selection("binary", captions, items).captions
    rows, _ = binary_candidates(captions, items, queries, "item_to_text")  # the caption, then its twin's
    _, columns = binary_candidates(captions, items, queries, "text_to_item")  # the clip, then its twin
    clusters = items["cluster_id"].to_numpy()[columns[:, 0]]
    return _pair_table(similarity, rows, columns, captions["caption_id"].to_numpy()[queries], clusters)


def _pair_table(
    similarity: np.ndarray, rows: np.ndarray, columns: np.ndarray, ids: np.ndarray, clusters: np.ndarray
) -> pd.DataFrame:
    """Values of pairs whose captions are ``rows`` (n, 2) of the matrix and whose clips are its ``columns`` (n, 2)."""
    scores = pair_scores(similarity[rows[:, None, :], columns[:, :, None]])  # (n, clip, caption)
    tables = [
        pd.DataFrame({"metric": metric, "query_id": ids, "cluster_id": clusters, "value": 100 * values})
        for metric, values in scores._asdict().items()
    ]
    return pd.concat(tables, ignore_index=True)


# ---- One clip, its true caption and foils --------------------------------------------------------------------------


def foil_values(scores: pd.DataFrame) -> pd.DataFrame:
    """How every question is answered: one clip, its true caption and its foils of one kind; in percent.

    - ``accuracy``: probability that the true caption is first in a random order of ties, 1 / (number of captions with
      the highest score) if it has that score, else 0. It is NegBench's accuracy and ViLMA's acc_r but for ties, see the
      module; with one foil it is VELOCITI's classic accuracy. VELOCITI's strict accuracy needs probabilities
      of entailment (one above and one below ½), which similarities are not.
    - ``pairwise``: share of the foils that the true caption is above, a tie being ½. Its chance is 50% whatever the
      number of foils.

    ``scores`` has a row for each foil: caption_id (of the true caption), kind, cluster_id, truth and foil (the scores
    of the true caption and of the foil with the caption's clip). The result has a row for each question and metric;
    query_id is the true caption, chance the value if all scores tie.

    Source: Alhamoud et al., NegBench (arXiv 2501.09425); Kesen et al., ViLMA (arXiv 2311.07022); Saravanan et al.,
    VELOCITI (arXiv 2406.10889).

    >>> scores = pd.DataFrame(
    ...     {"caption_id": "a#0", "kind": "hybrid", "cluster_id": "a", "truth": 0.5, "foil": [0.5, 0.1, 0.2]}
    ... )
    >>> foil_values(scores)[["metric", "value", "chance"]].round(1).to_dict("split")["data"]
    [['accuracy', 50.0, 25.0], ['pairwise', 83.3, 50.0]]
    """
    counts = _count_foils(scores)
    accuracy = recall_at(1, counts["higher"].to_numpy(), counts["ties"].to_numpy())
    pairwise = 1 - (counts["higher"] + counts["ties"] / 2) / counts["foils"]
    named = counts.rename(columns={"caption_id": "query_id"})[["kind", "query_id", "cluster_id"]]
    tables = [
        named.assign(metric=metric, value=100 * np.asarray(value), chance=100 * np.asarray(chance))
        for metric, value, chance in (("accuracy", accuracy, 1 / (counts["foils"] + 1)), ("pairwise", pairwise, 0.5))
    ]
    columns = ["metric", "kind", "query_id", "cluster_id", "value", "chance"]
    return pd.concat(tables, ignore_index=True)[columns]


def combined_accuracy(scores: pd.DataFrame, proficiency: pd.DataFrame) -> pd.DataFrame:
    """ViLMA's combined accuracy: a question counts as right only where its proficiency question is right too.

    A proficiency question asks for what the question itself supposes, such as the object whose change of state is told.
    In a random order of ties, two questions on different captions are independent: the probability is the product of
    both. Often both have the *same* true caption (all of ViLMA's changes of state by action): then it has one score and
    must be above the foils of both questions, 1 / (1 + number of foils of both that tie with it).

    Scores are as in :func:`foil_values`, with the kind ``proficiency`` for the questions of proficiency, and so are the
    columns of the result, with the metric ``combined``; ``proficiency`` is as
    :func:`rewind.data.formats.foils.read_proficiency` has it.

    Source: Kesen et al., ViLMA (arXiv 2311.07022).
    """
    counts = _count_foils(scores)
    is_proficiency = counts["kind"] == PROFICIENCY
    asked = counts[~is_proficiency].merge(proficiency, on="caption_id")
    known = counts[is_proficiency].set_index("caption_id")[["higher", "ties", "foils"]]
    absent = asked.loc[~asked["proficiency_id"].isin(known.index), "proficiency_id"]
    if len(absent):
        raise RewindError(
            f"caption {absent.iloc[0]!r}: no scores with foils of the kind {PROFICIENCY!r}, which the question on "
            f"caption {asked.loc[absent.index[0], 'caption_id']!r} needs; compute them too."
        )
    other = known.loc[asked["proficiency_id"]].reset_index(drop=True)
    shared = (asked["caption_id"] == asked["proficiency_id"]).to_numpy()

    value = _both_right(asked[["higher", "ties"]], other[["higher", "ties"]], shared)
    tied, other_tied = (table[["foils"]].assign(higher=0, ties=table["foils"]) for table in (asked, other))
    chance = _both_right(tied, other_tied, shared)
    named = asked.rename(columns={"caption_id": "query_id"})[["kind", "query_id", "cluster_id"]]
    table = named.assign(metric="combined", value=100 * value, chance=100 * chance)
    return table[["metric", "kind", "query_id", "cluster_id", "value", "chance"]]


def _both_right(first: pd.DataFrame, second: pd.DataFrame, shared: np.ndarray) -> np.ndarray:
    """Probability that two questions are right, from their ``higher`` and ``ties``; ``shared``: on one true caption."""
    (higher, ties), (other_higher, other_ties) = (table[["higher", "ties"]].to_numpy().T for table in (first, second))
    independent = recall_at(1, higher, ties) * recall_at(1, other_higher, other_ties)
    return np.where(shared, recall_at(1, higher + other_higher, ties + other_ties), independent)


def _count_foils(scores: pd.DataFrame) -> pd.DataFrame:
    """Per question: number of foils, and how many are scored above (``higher``) and equal to (``ties``) the truth."""
    invalid = scores[["truth", "foil"]].isna().any(axis=1)
    if invalid.any():
        caption = scores.loc[invalid, "caption_id"].iloc[0]
        raise RewindError(f"caption {caption!r}: its score, or that of a foil, is not a number; compute it again.")
    questions = scores.groupby(QUESTION, sort=False)
    several = questions[["truth", "cluster_id"]].nunique(dropna=False).gt(1)
    if several.any(axis=None):
        question = several.index[several.any(axis=1)][0]
        what = "two scores" if several.loc[question, "truth"] else "two clusters"
        raise RewindError(
            f"caption {question[0]!r}: it has {what} next to foils of the kind {question[1]!r}; give it one."
        )
    compared = scores.assign(higher=scores["foil"] > scores["truth"], ties=scores["foil"] == scores["truth"])
    counts = compared.groupby(QUESTION, sort=False).agg(
        cluster_id=("cluster_id", "first"), higher=("higher", "sum"), ties=("ties", "sum"), foils=("foil", "size")
    )
    return counts.reset_index()
