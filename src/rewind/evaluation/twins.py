"""Clips and their time-reversed twins in a similarity matrix, and the two candidates of each query of Binary."""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import pandas as pd

from rewind.data.annotations import is_among, twin_of, twin_rows
from rewind.data.captions import SAME_ITEM_COLUMN


def binary_candidates(
    captions: pd.DataFrame, items: pd.DataFrame, queries: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (q, 2) and columns (q, 2) of the two candidates of each query of Binary: the truth, then its rival.

    From text to item a caption searches its clip and that clip's twin. From item to text its clip searches two
    captions: the caption and that of the twin. As in RTime-Binary, an original's k-th caption is paired with its
    twin's k-th caption, or with the twin's last one if it has fewer. Queries are rows as
    :func:`rewind.evaluation.ranking.setting_selection` selects them.

    >>> captions = pd.DataFrame({"video_id": ["a", "a", "a_rev"]})
    >>> items = pd.DataFrame({"item_id": ["a", "a_rev"]})
    >>> rows, columns = binary_candidates(captions, items, np.array([0, 1]), "item_to_text")
    >>> rows.tolist(), columns.tolist()
    ([[0, 2], [1, 2]], [[0, 0], [0, 0]])
    """
    item_ids, videos = items["item_id"].tolist(), captions["video_id"].tolist()
    column_of_item = {item: column for column, item in enumerate(item_ids)}
    own = np.array([column_of_item[videos[row]] for row in queries], dtype=int)
    if direction == "text_to_item":
        return np.stack([queries, queries], axis=1), np.stack([own, twin_rows(item_ids)[own]], axis=1)
    return np.stack([queries, _twin_captions(videos, queries)], axis=1), np.stack([own, own], axis=1)


def _twin_captions(videos: Sequence[str], queries: np.ndarray) -> np.ndarray:
    """(q,) row of the twin's caption that each query, a caption of an original, is paired with."""
    rows_of_video: dict[str, list[int]] = {}
    place = np.zeros(len(videos), dtype=int)  # among the captions of its video
    for row, video in enumerate(videos):
        rows = rows_of_video.setdefault(video, [])
        place[row] = len(rows)
        rows.append(row)
    rivals = []
    for query in queries:
        rows = rows_of_video[twin_of(videos[query])]
        rivals.append(rows[min(place[query], len(rows) - 1)])
    return np.array(rivals, dtype=int)


# ---- What no model can tell apart: a clip that is another one, a caption that is another one's -----------------------

UNDESCRIBED, SAME_CLIP, SAME_WORDS = (
    "of clips whose time-reversed twin has no caption",
    "of clips that are their own reverse, frame by frame",
    "of words that a caption of the other direction has too",
)
"""Why captions of originals with a twin are not queries of Binary, in the order in which the reasons are looked for."""


def caption_words(text: object) -> str:
    """A caption without what nobody reads as a difference: case, blanks, a full stop at its end.

    >>> caption_words("A door  opens."), caption_words("a door opens")
    ('a door opens', 'a door opens')
    """
    return " ".join(unicodedata.normalize("NFKC", str(text)).casefold().split()).rstrip(" .")


def item_contents(items: pd.DataFrame) -> pd.Series:
    """The content of each item, by its id: the same for items that are known to be the same frame by frame."""
    ids = items["item_id"].astype(str)
    if SAME_ITEM_COLUMN in items:
        same = items[SAME_ITEM_COLUMN].fillna("").astype(str)
        ids = same.where(same != "", ids)
    return pd.Series(ids.to_numpy(), index=items["item_id"].to_numpy())


def why_not_in_binary(captions: pd.DataFrame, items: pd.DataFrame) -> pd.Series:
    """Why captions of originals with a twin are not queries of Binary, by their row from 0; empty for queries.

    Captions are compared if there is a column ``caption``, clips if there is ``same_item_id``.

    >>> captions = pd.DataFrame({"video_id": ["a", "b", "a_rev"], "caption": ["it opens", "a door", "It opens."]})
    >>> items = pd.DataFrame({"item_id": ["a", "a_rev", "b", "b_rev"], "reversed": [0, 1, 0, 1]})
    >>> why_not_in_binary(captions, items).tolist() == [SAME_WORDS, UNDESCRIBED]
    True
    """
    ids, twins = set(items["item_id"]), set(items["item_id"][items["reversed"] == 1])
    videos = captions["video_id"]
    rows = np.flatnonzero(~is_among(videos, twins) & is_among(videos.map(twin_of), ids))
    twin_ids = videos.iloc[rows].map(twin_of)
    reasons = pd.Series("", index=rows, dtype=object)
    described = is_among(twin_ids, set(videos))
    contents = item_contents(items)
    same_clip = contents[videos.iloc[rows]].to_numpy() == contents[twin_ids].to_numpy()
    same_words = np.zeros(len(rows), dtype=bool)
    if "caption" in captions and described.any():
        words = captions["caption"].map(caption_words)
        words_of = words.groupby(videos.to_numpy()).agg(set)
        rivals = _twin_captions(videos.tolist(), rows[described])
        same_words[described] = [
            words[row] in words_of[twin] or words[rival] in words_of[video]
            for row, rival, video, twin in zip(
                rows[described], rivals, videos.iloc[rows[described]], twin_ids[described], strict=True
            )
        ]
    # A later reason replaces an earlier one, so that the one that is looked for first comes last.
    for mask, reason in ((same_words, SAME_WORDS), (same_clip, SAME_CLIP), (~described, UNDESCRIBED)):
        reasons[mask] = reason
    return reasons


def count_binary_left_out(captions: pd.DataFrame, items: pd.DataFrame) -> dict[str, int]:
    """Reason → number of captions of originals with a twin that Binary leaves out for it."""
    reasons = why_not_in_binary(captions.reset_index(drop=True), items)
    return {why: int((reasons == why).sum()) for why in (UNDESCRIBED, SAME_CLIP, SAME_WORDS) if (reasons == why).any()}


def recall_ceiling(captions: pd.DataFrame, items: pd.DataFrame, direction: str) -> float:
    """The greatest R@1, in percent, that scores of words and frames can reach if all captions search all items.

    Captions of the same words score every item alike, and the same items score every caption alike. So among captions
    of the same words at most those of one clip can be right, and if that clip is listed several times, they are right
    as often as it is first among these.

    >>> captions = pd.DataFrame({"video_id": ["a", "b", "b"], "caption": ["a door", "a door", "two doors"]})
    >>> items = pd.DataFrame({"item_id": ["a", "b"], "reversed": 0})
    >>> [round(recall_ceiling(captions, items, way), 1) for way in ("text_to_item", "item_to_text")]
    [66.7, 75.0]
    """
    contents = item_contents(items)
    words = captions["caption"].map(caption_words) if "caption" in captions else captions["caption_id"]
    pairs = list(zip(words.tolist(), contents[captions["video_id"]].tolist(), captions["video_id"], strict=True))
    if direction == "text_to_item":
        copies = Counter(contents.tolist())
        found = _most_found((text, content, 1 / copies[content]) for text, content, _ in pairs)
        return 100 * found / len(pairs)
    copies, own = Counter(text for text, *_ in pairs), Counter((text, video) for text, _, video in pairs)
    # An item's captions of the same words are all right: they tie only with those of other items.
    asked = (
        (content, text, 1 / (copies[text] - own[text, video] + 1)) for text, content, video in dict.fromkeys(pairs)
    )
    return 100 * _most_found(asked) / captions["video_id"].nunique()


def _most_found(answers: Iterable[tuple[Hashable, Hashable, float]]) -> float:
    """Sum over queries that look the same of the greatest worth that one answer has for all of them together."""
    worth: dict[Hashable, dict[Hashable, float]] = defaultdict(lambda: defaultdict(float))
    for query, answer, value in answers:
        worth[query][answer] += value
    return sum(max(of_answer.values()) for of_answer in worth.values())
