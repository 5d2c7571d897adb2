"""Judgements of FIRE (arXiv 2210.05038): which clips of MSR-VTT or MSVD people found relevant to a caption.

Pools of three models' first results were judged, so that most pairs have no judgement, and some captions lose their own
clip. The files (``fire_msrvtt_dataset.json``, CC BY-NC) are the authors'; captions are known by their texts.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rewind.data.annotations import Annotations
from rewind.data.tokenizers import plain_text
from rewind.errors import RewindError
from rewind.io.schema import ID, Column, Schema, checked_objects, object_of, tell_left_out
from rewind.io.strict import read_user_json

LABELS = {"relevant": 1, "irrelevant": 0}
_ENTRY = Schema(
    {"query": Column(filled=True), "video_id": ID, "label": Column(filled=True, choices=tuple(LABELS))}, others=True
)


def read_fire(path: Path, annotations: Annotations) -> pd.DataFrame:
    """Judged pairs of test captions: ``caption_id``, ``item_id``, ``right``.

    A caption's own clip is right unless it was judged otherwise. What is left out is said: judgements of other texts or
    clips, of pairs that were judged both ways, and captions without a right clip.

    Raises:
        RewindError: naming the entry that is no judgement; if no text is that of a test caption.
    """
    captions = annotations.captions[annotations.captions["split"] == "test"]
    items = set(annotations.items.loc[annotations.items["split"] == "test", "item_id"])
    known = pd.DataFrame({"query": captions["caption"].map(plain_text), "caption_id": captions["caption_id"]})
    entries = object_of(read_user_json(path), str(path)).get("annotations")
    judged = pd.DataFrame(
        [
            (plain_text(entry["query"]), entry["video_id"], LABELS[entry["label"]])
            for _, entry in checked_objects(entries, f"{path}: annotations", _ENTRY)
        ],
        columns=["query", "item_id", "right"],
    ).drop_duplicates()
    here = judged["query"].isin(known["query"]) & judged["item_id"].isin(items)
    both = judged.duplicated(["query", "item_id"], keep=False)
    rows = judged[here & ~both].merge(known, on="query")[["caption_id", "item_id", "right"]]
    if rows.empty:
        raise RewindError(f"{path}: no judgement is of a test caption and a test clip; is it of another data set?")
    own = captions.rename(columns={"video_id": "item_id"})[["caption_id", "item_id"]].assign(right=1)
    judged_captions = rows["caption_id"].unique()
    own = own[own["caption_id"].isin(judged_captions) & own["item_id"].isin(items)]
    rows = pd.concat([rows, own]).drop_duplicates(["caption_id", "item_id"], ignore_index=True)  # judgements come first
    answered = rows.loc[rows["right"] > 0, "caption_id"].unique()
    tell_left_out(
        path,
        {
            "judgements of texts and clips that are not of the test split": int((~here).sum()),
            "pairs that were judged both ways": int((here & both).sum()) // 2,
            "captions without a right clip": len(set(judged_captions) - set(answered)),
        },
    )
    return rows[rows["caption_id"].isin(answered)].reset_index(drop=True)
