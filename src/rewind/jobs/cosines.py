"""From a checkpoint to cosines of validation and test: what the cosine gap is computed from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.evaluation.cosine_gap import cosine_matrices
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_npz

SPLITS = ("valid", "test")


def compute_cosines(data: DataFolder, model: str, result: str) -> None:
    """Write ``<split>_<scoring>`` float32 (captions, items), ``<split>_query_ids`` and ``<split>_item_ids``.

    Items without a caption take no part. A method that compares no vectors has ids alone.
    """
    retriever = trained_retriever(data, model)
    arrays = {}
    for name in SPLITS:
        items, captions, _ = load_split(data.folder, data.dataset, name)
        items = items[items["item_id"].isin(captions["video_id"])].reset_index(drop=True)
        split = data.prepare(items, captions, retriever)
        place = pd.Series(np.arange(len(items)), index=items["item_id"])
        own = place[captions["video_id"]].to_numpy()
        keys = data.spec.evaluation
        found = cosine_matrices(retriever, split.text, split.inputs, own, keys, device(), split.workers)
        arrays |= {f"{name}_{scoring}": matrix for scoring, matrix in found.items()}
        arrays[f"{name}_query_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays[f"{name}_item_ids"] = items["item_id"].to_numpy(dtype=str)
    write_npz(result, **arrays)
