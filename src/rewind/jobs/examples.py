"""Retrieval examples: what a few test captions found, as pictures of the clips themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rewind.datasets.captions import load_split
from rewind.evaluation.ranking import rank_table
from rewind.reporting import style
from rewind.reporting.examples import retrieval_examples
from rewind.video.frames import sample_clip

STRIP = 3  # frames shown of a clip
TOP = 5


def make_examples(
    folder: Path, dataset: str, similarity: str, setting: str, count: int, size: int, result: str
) -> None:
    """Draw the first five clips of ``count`` test captions, spread evenly over the test split.

    The captions are chosen by their place in the file, not by how well they do.

    Args:
        folder: the data set's results folder.
        dataset: its name.
        similarity: npz of one run.
        setting: gallery in which the truth's rank is counted.
        count: number of captions.
        size: side of a thumbnail frame in pixels.
        result: path of the picture without suffix.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    with np.load(similarity, allow_pickle=False) as archive:
        scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
    captions = captions.set_index("caption_id", drop=False).loc[queries]
    items = items.set_index("item_id", drop=False).loc[gallery]
    ranks = rank_table(scores, captions, items, [setting], ["text_to_item"], similarity).set_index("query_id")
    rows = np.unique(np.linspace(0, len(captions) - 1, count).round().astype(int)) if count else []
    drawn = [_query(row, scores[row], captions, items, ranks, folder, size) for row in rows]
    style.save(retrieval_examples(drawn, TOP), result)


def _query(row: int, scores: np.ndarray, captions, items, ranks, folder: Path, size: int) -> dict[str, Any]:
    caption = captions.iloc[row]
    best = np.argsort(-scores, kind="stable")[:TOP]
    return {
        "caption": caption["caption"],
        "rank": float(ranks.loc[caption["caption_id"], "rank"]),
        "hits": [
            {
                "image": _strip(folder / items.iloc[place]["path"], bool(items.iloc[place]["reversed"] == 1), size),
                "score": float(scores[place]),
                "truth": items.iloc[place]["item_id"] == caption["video_id"],
            }
            for place in best
        ],
    }


def _strip(path: Path, reversed_clip: bool, size: int) -> np.ndarray:
    pixels, mask = sample_clip(path, STRIP, size, "uniform", None, reversed=reversed_clip)
    return np.ascontiguousarray(pixels[mask.astype(bool)].transpose(0, 2, 3, 1))
