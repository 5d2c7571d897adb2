"""Where a run's scores answer a question at all: which pairs a setting needs, and which of them have no score.

A pair without a score ranks below all others. That is what a retrieval run means by the items that it does not list,
but not what a file means that never looked at them: scores of a clip and its twin alone (as Binary's candidates) make
every caption find its clip in Origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.annotations import twin_of
from rewind.datasets.score_files import NO_SCORE
from rewind.evaluation.ranking import row_blocks, twin_captions
from rewind.evaluation.settings import pool

FORWARD, REVERSE = "an original", "a twin"  # whose caption
ORIGINALS, TWINS = "originals", "twins"  # that it is scored with
_OTHER_ITEM = "no caption has a score for any item but its own and that item's twin"
_GALLERY = {
    (FORWARD, ORIGINALS): _OTHER_ITEM,
    (FORWARD, TWINS): "no caption of an original has a score for a twin",
    (REVERSE, TWINS): "no caption of a twin has a score for another twin",
    (REVERSE, ORIGINALS): "no caption of a twin has a score for an original",
}
"""Kinds of pairs that a gallery of originals and twins consists of, with what is said where none has a score."""


def not_scored(
    similarity: Any, captions: pd.DataFrame, items: pd.DataFrame, settings: list[str], directions: list[str]
) -> dict[str, str]:
    """Where a matrix has none of the scores that a kind of pair needs, with the reason.

    ``origin`` needs scores of captions of originals with other originals; ``hard`` and ``test`` need them for captions
    of originals and of twins, each with other originals and with other twins; either way in both directions.
    ``binary`` needs captions with their own clip, and from text to item with its twin, from item to text those of the
    twin with the original. Of each kind of pair that the data have, one score is enough: a retrieval run lists a few
    items for each caption.

    Args:
        similarity: (n_captions, n_items), ``NO_SCORE`` where a pair has no score.
        captions: rows of the matrix: caption_id, video_id.
        items: its columns: item_id, reversed.
        settings, directions: of the study, those of ``settings`` that the items allow.

    Returns:
        ``setting`` → reason, or ``setting direction`` where the other direction has what it needs.
    """
    captions, items = captions.reset_index(drop=True), items.reset_index(drop=True)
    if not _any_missing(similarity):
        return {}
    scored, there = _kinds(similarity, captions, items)
    found: dict[str, str] = {}
    for setting in settings:
        reasons = {
            direction: _binary(similarity, captions, items, direction)
            if setting == "binary"
            else _gallery(setting, scored, there)
            for direction in directions
        }
        if len(set(reasons.values())) == 1:
            reasons = {"": next(iter(reasons.values()))}
        found |= {f"{setting} {direction}".rstrip(): why for direction, why in reasons.items() if why}
    return found


def reason(reasons: Mapping[str, str], setting: str, direction: str) -> str:
    """Why there are no numbers of a setting in a direction, of what :func:`not_scored` gives; empty where there are."""
    return reasons.get(setting) or reasons.get(f"{setting} {direction}", "")


def _any_missing(similarity: Any) -> bool:
    return any((similarity[rows] == NO_SCORE).any() for rows in row_blocks(*similarity.shape))


def _gallery(setting: str, scored: set[tuple[str, str]], there: set[tuple[str, str]]) -> str:
    for kind, reason in _GALLERY.items():
        wanted = setting != "origin" or kind == (FORWARD, ORIGINALS)
        if wanted and kind in there and kind not in scored:
            return reason if there != {(FORWARD, ORIGINALS)} else _OTHER_ITEM.partition(" and ")[0]
    return ""


def _kinds(
    similarity: Any, captions: pd.DataFrame, items: pd.DataFrame
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Kinds of pairs that have a score, and kinds that there are."""
    place = pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())
    own = place[captions["video_id"]].to_numpy()
    is_twin = items["reversed"].to_numpy() == 1
    scored: set[tuple[str, str]] = set()
    for rows in row_blocks(*similarity.shape):
        known = similarity[rows] != NO_SCORE
        known[np.arange(len(known)), own[rows]] = False  # the truth alone is no gallery
        for whose, mine in ((FORWARD, ~is_twin[own[rows]]), (REVERSE, is_twin[own[rows]])):
            columns = known[mine].any(axis=0)
            scored |= {(whose, name) for name, of in ((ORIGINALS, ~is_twin), (TWINS, is_twin)) if columns[of].any()}
    originals, twins = int((~is_twin).sum()), int(is_twin.sum())
    forward, reverse = (is_twin[own] == value for value in (False, True))
    counts = {
        (FORWARD, ORIGINALS): forward.any() and originals > 1,
        (FORWARD, TWINS): forward.any() and twins > 0,
        (REVERSE, TWINS): reverse.any() and twins > 1,
        (REVERSE, ORIGINALS): reverse.any() and originals > 0,
    }
    return scored, {kind for kind, some in counts.items() if some}


def _binary(similarity: Any, captions: pd.DataFrame, items: pd.DataFrame, direction: str) -> str:
    queries = captions.iloc[pool("binary", captions, items).captions]
    column = pd.Series(np.arange(len(items)), index=items["item_id"].to_numpy())
    own = column[queries["video_id"]].to_numpy()
    rows = queries.index.to_numpy()
    if not (similarity[rows, own] != NO_SCORE).any():
        return "no caption of an original has a score for its own clip"
    if direction == "text_to_item":
        twin = column[[twin_of(name) for name in queries["video_id"]]].to_numpy()
        return "" if (similarity[rows, twin] != NO_SCORE).any() else "no caption has a score for its clip's twin"
    rival = similarity[twin_captions(captions, queries), own]
    return "" if (rival != NO_SCORE).any() else "no caption of a twin has a score for the original"
