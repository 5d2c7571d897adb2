"""Features of frozen towers, computed once and shared by every run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from rewind.datasets.annotations import SPLITS
from rewind.datasets.captions import load_split
from rewind.feeding.encode import encode_all, in_memory, tower_features
from rewind.feeding.folder import DataFolder, build_retriever, device
from rewind.files import atomic
from rewind.jobs.given import Given
from rewind.jobs.model_data import data_folder
from rewind.models.checkpoint import visual_hash
from rewind.progress import Progress
from rewind.training.loop import seed_everything


def features(given: Given) -> None:
    """Rule ``features``; a path with ``seed<k>`` is of towers of that seed."""
    seed = given.wildcards.get("part", "").removeprefix("/seed")
    compute_features(data_folder(given), given.output[0], int(seed or 0))


@torch.inference_mode()
def compute_features(data: DataFolder, path: str, seed: int = 0) -> None:
    """Write the frame features of all usable items, and prepared captions where the text tower is frozen too.

    The npz holds ``item_ids``, ``frames`` float32 (n, T, F), ``mask`` (n, T), ``tower``, the hash of what encoded them,
    and with a frozen sentence encoder ``caption_ids`` and ``text``.

    Args:
        data: where items and captions are, and the keys of the backbone.
        path: the npz.
        seed: what a tower without weights is drawn from, as by a run with that seed.
    """
    seed_everything(seed)
    retriever = build_retriever(data)
    backbone = retriever.backbone.eval().to(device())
    splits = [load_split(data.folder, data.dataset, split) for split in SPLITS]
    items = pd.concat([split.items for split in splits], ignore_index=True)
    progress = Progress("features", len(items), "clips")
    found = encode_all(
        lambda batch: in_memory(tower_features(backbone, batch)),
        data.inputs(items),
        data.spec.evaluation.batch_size,
        device(),
        workers=data.spec.frames.workers,
        done=progress.advance,
    )
    arrays = {
        "tower": np.array(visual_hash(backbone)),
        "item_ids": items["item_id"].to_numpy(dtype=str),
        "frames": found["frames"].numpy(),
        "mask": found["mask"].numpy(),
    }
    if backbone.caches_text:
        captions = pd.concat([split.captions for split in splits], ignore_index=True)
        arrays["caption_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays["text"] = backbone.prepare_text(captions["caption"].tolist()).cpu().numpy()
    with atomic(path) as draft:
        np.savez(draft, **arrays)
