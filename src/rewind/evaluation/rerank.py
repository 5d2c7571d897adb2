"""Two stages: a method scores only the first results of another one, which has scored all pairs.

The first results of a query, in the gallery of its setting, are scored again and sorted by the new scores; all other
candidates stay behind them. So a query whose truth is among them has a rank by the new scores, and any other query
keeps its rank of the first stage. Candidates that tie with the last of the first results are among them too: none is
left out by the order of a file. Binary has two candidates, which are both scored again.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import open_scores
from rewind.distributed import World, join_process_group
from rewind.encoders.score_candidates import PairScorer, score_candidates
from rewind.errors import RewindError
from rewind.evaluation.ranking import (
    BEST_CAPTION,
    Search,
    own_columns,
    rank_searches,
    row_blocks,
    searches_table,
    share_of_near_ties,
    unscored_settings,
)
from rewind.evaluation.run_metrics import cut_facts, write_ranks
from rewind.evaluation.similarity import count_cut, encode_captions, encode_pairs, explain_pairs
from rewind.evaluation.twins import binary_candidates
from rewind.loading.run_data import PreparedSplit, RunData, job_device, load_trained_model
from rewind.models.precomputed import UnscoredPairs

BINARY_ONLY_REASON = "only Binary's pairs are scored"
MAX_TIED_SHARE = 4
"""Largest mean number of candidates of a query, in multiples of ``top``: more tie in the first stage."""


@dataclass(frozen=True)
class Candidates:
    """The pairs of a search that are scored again, (p,) each."""

    query: np.ndarray  # number of the pair's query, ascending
    captions: np.ndarray  # row of the matrix
    items: np.ndarray  # column of the matrix


def find_candidates(search: Search, similarity: np.ndarray, top: int, pairs: np.ndarray | None = None) -> Candidates:
    """The first ``top`` candidates of every query, and those that tie with the last of them; none without a score.

    In Binary these are ``pairs``: captions (q, 2) and items (q, 2), stacked.

    >>> captions = pd.DataFrame({"caption_id": ["a#0", "b#0"], "video_id": ["a", "b"]})
    >>> items = pd.DataFrame({"item_id": ["a", "b"], "cluster_id": [0, 1], "reversed": [0, 0]})
    >>> scores = np.array([[0.9, 0.1], [0.5, 0.5]])
    >>> searches = rank_searches(scores, captions, items, ["test"], ["text_to_item"], "scores", "all_captions")
    >>> find_candidates(searches[0], scores, top=1).items.tolist()
    [0, 0, 1]
    """
    if pairs is not None:
        return Candidates(np.repeat(np.arange(len(search.queries)), 2), pairs[0].ravel(), pairs[1].ravel())
    to_items = search.direction == "text_to_item"
    gallery = search.selection.items if to_items else search.selection.captions
    found: list[tuple[np.ndarray, np.ndarray]] = []
    for rows in row_blocks(len(search.queries), len(gallery)):
        places = np.ix_(search.queries[rows], gallery) if to_items else np.ix_(gallery, search.queries[rows])
        scores = similarity[places] if to_items else np.ascontiguousarray(similarity[places].T)
        last = max(0, scores.shape[1] - top)  # all candidates where there are no more than `top`
        least = np.partition(scores, last, axis=1)[:, last, None]
        query, candidate = np.nonzero((scores >= least) & (scores != MISSING_SCORE))
        found.append((query + rows.start, gallery[candidate]))
    query, candidate = (np.concatenate(parts) for parts in zip(*found, strict=True))
    asking = search.queries[query]
    return Candidates(query, *((asking, candidate) if to_items else (candidate, asking)))


def rank_again(
    search: Search, candidates: Candidates, scores: np.ndarray, own: np.ndarray, best_caption: bool
) -> np.ndarray:
    """Replace the counts of those queries of a search whose truth is among their candidates, and say which they are.

    ``scores`` (p,) are the new ones of the candidates, ``own`` (n,) the column of each caption's item. With
    ``best_caption`` a query item searches the best caption of each item. The result is bool (q,).
    """
    count = len(search.queries)
    query, correct = candidates.query, own[candidates.captions] == candidates.items
    if best_caption and search.direction == "item_to_text" and not search.selection.binary:
        # An item's captions among the candidates are one candidate, with the best of their scores.
        group, place = np.unique(np.stack([query, own[candidates.captions]]), axis=1, return_inverse=True)
        best = np.full(group.shape[1], -np.inf, scores.dtype)
        np.maximum.at(best, place.ravel(), scores)
        query, correct, scores = group[0], group[1] == search.queries[group[0]], best
    truth = np.full(count, -np.inf, scores.dtype)
    np.maximum.at(truth, query[correct], scores[correct])
    inside = np.isfinite(truth)  # −∞ where no right candidate was scored again
    # An item may have several captions among its candidates: none of them competes with the best of them.
    higher = np.bincount(query[(scores > truth[query]) & ~correct], minlength=count)
    ties = np.bincount(query[(scores == truth[query]) & ~correct], minlength=count)
    search.higher = np.where(inside, higher, search.higher)
    search.ties = np.where(inside, ties, search.ties)
    return inside


def compute_reranked(
    data: RunData,
    model: str,
    first: str,
    keys: dict[str, Any],
    settings: list[str],
    directions: list[str],
    item_to_text: str,
    ranks_file: str,
    run_metrics: str,
    scorer: PairScorer | None = None,
) -> None:
    """Score the first results of another run again; write the ranks of a run, its metrics, and how much was scored.

    Args:
        keys: ``rerank`` of the method: ``first``, the method whose matrix it is, ``top`` and ``binary_only``.
        run_metrics: JSON file that is written, as :func:`rewind.evaluation.run_metrics.compute_ranks` does, with
            ``reranked``: ``first``, ``top``, ``pairs`` scored, their ``share`` of all pairs in percent, and ``inside``,
            setting and direction → percentage of queries whose truth was among the first results; for a model by
            name perhaps ``notes``, see :func:`rewind.encoders.score_candidates.score_candidates`, and
            ``binary_by_prompt``, accuracy from text to item by each of several prompts alone; and ``captions_cut``.
        scorer: a model by name, which is asked if it scores pairs.

    Raises:
        RewindError: if the first stage has scored other clips or captions, or ties nearly all of them.
    """
    with join_process_group() as world:
        what = keys, settings, directions, item_to_text
        table, reasons, near_ties, facts = _rerank(data, model, first, *what, scorer, world)
        if world.rank == 0:
            write_ranks(table, reasons, near_ties, first, ranks_file, run_metrics, facts)
            if scorer is not None:
                shutil.rmtree(scorer.state, ignore_errors=True)


@torch.inference_mode()
def _rerank(
    data: RunData,
    model: str,
    first: str,
    keys: dict[str, Any],
    settings: list[str],
    directions: list[str],
    item_to_text: str,
    scorer: PairScorer | None,
    world: World,
) -> tuple[pd.DataFrame, dict[str, str], float | None, dict[str, Any]]:
    retriever, device = load_trained_model(data, model), job_device()
    data.check_tower(retriever)
    split, evaluation = data.split("test", retriever), data.spec.evaluation
    captions, items = split.captions, split.items
    similarity = _first_scores(first, split, keys["first"])
    left_out = [setting for setting in settings if setting != "binary"] if keys.get("binary_only") else []
    settings = [setting for setting in settings if setting not in left_out]
    reasons = unscored_settings(similarity, captions, items, settings, directions)
    reasons |= dict.fromkeys(left_out, BINARY_ONLY_REASON)
    searches = rank_searches(similarity, captions, items, settings, directions, first, item_to_text)
    candidates = [
        find_candidates(search, similarity, keys["top"], _binary_pairs(search, captions, items)) for search in searches
    ]
    for search, found in zip(searches, candidates, strict=True):
        if len(found.query) > MAX_TIED_SHARE * keys["top"] * len(search.queries):
            raise RewindError(
                f"{first}: {len(found.query):,} pairs are among the first {keys['top']} of {len(search.queries):,} "
                f"queries ({search.selection.setting}, {search.direction}), because most scores tie; name another "
                "method in rerank.first."
            )
    # One number for each pair: what several searches have among their first results is scored once.
    pairs = np.unique(np.concatenate([found.captions * len(items) + found.items for found in candidates]))
    places = np.divmod(pairs, len(items))
    notes: list[str] = []
    if isinstance(retriever, UnscoredPairs):
        assert scorer is not None  # such files are written only for methods with one
        each, notes = score_candidates(scorer, data.folder, items, captions["caption"].tolist(), *places, world)
        scores = each.mean(axis=1)
    else:
        text = encode_captions(retriever, split.text, evaluation, device, world)
        features = encode_pairs(retriever, text, split.inputs, evaluation, device, world, split.workers)
        with explain_pairs(evaluation):
            scores = features.at(*places, world)
        each = scores[:, None]
    own = own_columns(captions["video_id"], items)
    inside: dict[str, float] = {}
    near_ties, by_prompt = None, list[float]()
    for search, found in zip(searches, candidates, strict=True):
        where = np.searchsorted(pairs, found.captions * len(items) + found.items)
        here = scores[where]
        among = rank_again(search, found, here, own, item_to_text == BEST_CAPTION)
        inside[f"{search.selection.setting} {search.direction}"] = 100 * float(among.mean())
        if search.selection.binary and search.direction == "text_to_item":
            near_ties = share_of_near_ties(*here.reshape(-1, 2).T)  # candidates of Binary come in twos, the truth first
            if each.shape[1] > 1:
                truth, twin = each[where].reshape(-1, 2, each.shape[1]).transpose(1, 0, 2)
                by_prompt = (100 * np.mean((truth > twin) + (truth == twin) / 2, axis=0)).tolist()
    reranked = {
        "first": keys["first"],
        "top": keys["top"],
        **({"binary_only": True} if keys.get("binary_only") else {}),
        "pairs": len(pairs),
        "share": 100 * len(pairs) / (len(captions) * len(items)),
        "inside": inside,
        **({"binary_by_prompt": by_prompt} if by_prompt else {}),
        **({"notes": notes} if notes else {}),
    }
    facts = {"reranked": reranked, **cut_facts(count_cut(retriever, captions["caption"].tolist()))}
    return searches_table(searches, captions, items), reasons, near_ties, facts


def _binary_pairs(search: Search, captions: pd.DataFrame, items: pd.DataFrame) -> np.ndarray | None:
    if not search.selection.binary:
        return None
    return np.stack(binary_candidates(captions, items, search.queries, search.direction))


def _first_scores(path: str, split: PreparedSplit, method: str) -> np.ndarray:
    """The first stage's matrix, whose captions and items are those of the split, in its order."""
    scores, queries, gallery = open_scores(path)
    for ids, column, kind in (
        (queries, split.captions["caption_id"], "captions"),
        (gallery, split.items["item_id"], "clips"),
    ):
        if ids.tolist() != column.tolist():
            raise RewindError(
                f"{path}: {method} has scored {len(ids):,} {kind} and this method would score {len(column):,}, or in "
                "another order; name a method in rerank.first that scores the same."
            )
    return scores
