"""Features of frozen towers, computed once and shared by every run."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from rewind.data.annotations import SPLITS
from rewind.data.captions import load_split
from rewind.io.files import atomic_write
from rewind.loading.encode import encode_all_items, to_main_memory, tower_features
from rewind.loading.run_data import RunData, build_untrained_model, job_device
from rewind.models.checkpoint import visual_hash
from rewind.progress import Progress
from rewind.torch_setup import seed_everything


@torch.inference_mode()
def compute_features(data: RunData, path: str, seed: int = 0) -> None:
    """Write the frame features of all usable items, and prepared captions where the text tower is frozen too.

    The npz holds ``item_ids``, ``frames`` float32 (n, T, F), ``mask`` (n, T), ``tower``, the hash of the tower that
    encoded them, and with a frozen sentence encoder ``caption_ids`` and ``text``. A tower without
    weights is drawn with ``seed``, as in a run with that seed.
    """
    seed_everything(seed)
    retriever = build_untrained_model(data)
    assert retriever.backbone is not None  # the rule names no method, so it is the default one with the study's towers
    backbone = retriever.backbone.eval().to(job_device())
    splits = [load_split(data.folder, data.dataset, split) for split in SPLITS]
    items = pd.concat([split.items for split in splits], ignore_index=True)
    progress = Progress("features", len(items), "clips")
    encoded = encode_all_items(
        lambda batch: to_main_memory(tower_features(backbone, batch)),
        data.inputs(items),
        data.spec.evaluation.batch_size,
        job_device(),
        workers=data.spec.frames.workers,
        done=progress.advance,
    )
    arrays = {
        "tower": np.array(visual_hash(backbone)),
        "item_ids": items["item_id"].to_numpy(dtype=str),
        "frames": encoded["frames"].numpy(),
        "mask": encoded["mask"].numpy(),
    }
    if backbone.caches_text:
        captions = pd.concat([split.captions for split in splits], ignore_index=True)
        arrays["caption_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays["text"] = backbone.cached_text(captions["caption"].tolist()).cpu().numpy()
    with atomic_write(path) as temporary:
        np.savez(temporary, **arrays)
