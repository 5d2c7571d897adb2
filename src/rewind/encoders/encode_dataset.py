"""Vectors of a prepared data set, encoded by frozen networks and written in the file format of Mamiglia's challenge."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rewind.config import Frames
from rewind.config.dataset import MadeFrom
from rewind.data.annotations import SPLITS
from rewind.data.captions import load_split
from rewind.data.formats.embeddings import write_challenge_files
from rewind.encoders.builtin import ImageEncoder, builtin_image_encoder, encode_images, text_encoder
from rewind.errors import RewindError
from rewind.loading.encode import encode_all_items
from rewind.loading.frame_source import ClipFrames
from rewind.loading.run_data import job_device
from rewind.models.retriever import Features
from rewind.progress import Progress
from rewind.video.frame_store import ClipToStore

BATCH_SIZE = 16  # clips or images


@torch.inference_mode()
def make_dataset_vectors(keys: MadeFrom, data: Path, folder: Path, workers: int = 0) -> None:
    """Encode every usable original of a data set and its captions.

    Writes ``train.npz`` and ``captions.txt`` in the challenge's format, and ``splits.csv`` with the split of every
    image and the place of its picture. The parent of ``folder`` is the results folder of the new data set.
    """
    items, captions = _load_originals(data, keys.dataset)
    device = job_device()
    text = text_encoder(keys, device)(captions["caption"].tolist()).cpu().numpy()
    encoding = keys.encoding("image")
    if encoding is None:
        images = _encode_images(builtin_image_encoder(keys.image, device), items, data, keys, workers)
    else:
        clips = (ClipToStore(row.item_id, str(data / row.path), False) for row in items.itertuples())
        images = encode_images(encoding, clips, len(items), workers + 1)
    text = _check_lengths(text, captions["caption_id"], keys.text.name, keys.unit)
    images = _check_lengths(images, items["item_id"], keys.image.name, keys.unit)
    items = items.assign(path=[os.path.relpath(data / path, folder.parent) for path in items["path"]])
    write_challenge_files(folder, text.astype(keys.dtype), images.astype(keys.dtype), items, captions)
    print(f"{len(captions):,} captions ({text.shape[1]}-d), {len(items):,} images ({images.shape[1]}-d)")


def _load_originals(data: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Usable items that are not reversed, and their captions, of all splits."""
    splits = [load_split(data, name, split) for split in SPLITS]
    items = pd.concat([split.items for split in splits], ignore_index=True)
    items = items[items["reversed"] == 0].reset_index(drop=True)
    captions = pd.concat([split.captions for split in splits], ignore_index=True)
    return items, captions[captions["video_id"].isin(items["item_id"])].reset_index(drop=True)


def _encode_images(encode: ImageEncoder, items: pd.DataFrame, data: Path, keys: MadeFrom, workers: int) -> np.ndarray:
    def vectors(batch: Features) -> Features:
        longest = int(batch["mask"].sum(1).max())  # frames of an image: 1, whatever keys.frames is
        return {"vectors": encode(batch["pixels"][:, :longest], batch["mask"][:, :longest]).cpu()}

    clips = ClipFrames(items, data, Frames(sampling="uniform", rate=None, fit="crop", size=keys.size), keys.frames)
    progress = Progress("vectors", len(items), "images")
    cpu = torch.device("cpu")  # the encoder itself moves pixels to its device
    encoded = encode_all_items(vectors, clips, BATCH_SIZE, cpu, workers=workers, done=progress.advance)
    return encoded["vectors"].numpy()


def _check_lengths(vectors: np.ndarray, ids: pd.Series, encoder: str, unit: bool) -> np.ndarray:
    """The vectors, divided by their lengths if ``unit``; zero and non-finite ones are refused by the item's id."""
    lengths = np.linalg.norm(vectors, axis=1)
    bad = ~(np.isfinite(lengths) & (lengths > 0))
    if bad.any():
        raise RewindError(
            f"{encoder}: the vector of {ids[bad.argmax()]!r} is zero or not finite; look for broken weights."
        )
    return vectors / lengths[:, None] if unit else vectors
