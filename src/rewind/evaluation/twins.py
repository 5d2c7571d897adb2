"""Clips and their time-reversed twins in a similarity matrix, and the two candidates of each query of Binary."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rewind.data.annotations import twin_of, twin_rows


def binary_candidates(
    captions: pd.DataFrame, items: pd.DataFrame, queries: np.ndarray, direction: str
) -> tuple[np.ndarray, np.ndarray]:
    """The two candidates of each query of Binary as entries of the similarity matrix: the truth, then its rival.

    From text to item a caption searches its clip and that clip's twin. From item to text its clip searches two
    captions: the caption and that of the twin. As in RTime-Binary, an original's k-th caption is paired with its
    twin's k-th caption, or with the twin's last one if it has fewer.

    Args:
        captions: (n,) rows of the matrix: video_id.
        items: (m,) its columns: item_id.
        queries: (q,) row numbers of captions of originals whose twin is an item and has a caption, as
            :func:`rewind.evaluation.ranking.setting_selection` selects them.
        direction: ``text_to_item`` or ``item_to_text``.

    Returns:
        Rows (q, 2) and columns (q, 2): ``similarity[rows, columns]`` are the scores of truths and rivals.

    >>> captions = pd.DataFrame({"video_id": ["a", "a", "a_rev"]})
    >>> items = pd.DataFrame({"item_id": ["a", "a_rev"]})
    >>> rows, columns = binary_candidates(captions, items, np.array([0, 1]), "text_to_item")
    >>> rows.tolist(), columns.tolist()
    ([[0, 0], [1, 1]], [[0, 1], [0, 1]])
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
