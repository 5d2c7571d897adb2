"""Vectors of a prepared data set, encoded by frozen networks and written in the file format of Mamiglia's challenge."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from rewind.config import Frames
from rewind.config.dataset import MadeFrom
from rewind.data.annotations import SPLITS
from rewind.data.captions import load_split
from rewind.encoders.builtin import ImageEncoder, builtin_image_encoder, encode_images, text_encoder
from rewind.errors import RewindError
from rewind.io.files import atomic_write, write_csv, write_text
from rewind.loading.encode import encode_all_items
from rewind.loading.frame_source import ClipFrames
from rewind.loading.run_data import job_device
from rewind.models.retriever import Features
from rewind.progress import Progress
from rewind.video.frame_store import ClipToStore

BATCH_SIZE = 16  # clips or images
MAX_LABEL_BYTES = 2 * 10**8  # bytes of the label matrix; a larger one is left out, since captions.txt says the same


@torch.inference_mode()
def make_dataset_vectors(keys: MadeFrom, data: Path, folder: Path, workers: int = 0) -> None:
    """Encode every usable original of a data set and its captions.

    Writes ``train.npz`` and ``captions.txt`` in the challenge's format, and ``splits.csv`` with the split of every
    image and the place of its picture.

    Args:
        keys: the data set and its encoders.
        data: its results folder.
        folder: where the files go; its parent is the results folder of the new data set.
        workers: decoding processes.

    Raises:
        RewindError: for an encoder that is missing, or a vector that is zero or not finite.
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


def write_challenge_files(
    folder: Path, text: np.ndarray, images: np.ndarray, items: pd.DataFrame, captions: pd.DataFrame
) -> None:
    """Write vectors of captions (n, dt) and items (m, di) as the challenge's files, and the split of every item.

    Args:
        folder: folder of ``train.npz``, ``captions.txt`` and ``splits.csv``.
        text, images: vectors.
        items: item_id, path, split, in the order of ``images``.
        captions: video_id, caption, in the order of ``text``.
    """
    names = (items["item_id"] + items["path"].map(lambda path: Path(path).suffix)).to_numpy(dtype=str)
    rows = pd.Series(np.arange(len(items)), index=items["item_id"])[captions["video_id"]].to_numpy()
    # Any: to a type checker one of the names could be an option of savez, which is no array.
    arrays: dict[str, Any] = challenge_arrays(text, images, names, captions["caption"], rows)
    with atomic_write(folder / "train.npz") as temporary:
        np.savez(temporary, **arrays)
    lines = [f"{names[row]},{_csv_field(caption)}" for row, caption in zip(rows, captions["caption"], strict=True)]
    write_text(folder / "captions.txt", "\n".join(["image,caption", *lines]) + "\n")
    write_csv(folder / "splits.csv", pd.DataFrame({"image": names, "split": items["split"], "path": items["path"]}))


def challenge_arrays(
    text: np.ndarray, images: np.ndarray, names: np.ndarray, captions: pd.Series, image_of_caption: np.ndarray
) -> dict[str, np.ndarray]:
    """The members of the challenge's ``train.npz``; the label matrix (captions, images) up to ``MAX_LABEL_BYTES``."""
    arrays = {
        "metadata/num_captions": np.array([len(text)]),
        "metadata/num_images": np.array([len(images)]),
        "metadata/embedding_dim_text": np.array([text.shape[1]]),
        "metadata/embedding_dim_image": np.array([images.shape[1]]),
        "captions/ids": np.arange(len(text)),
        "captions/text": captions.to_numpy(dtype=str),
        "captions/embeddings": text,
        "images/names": names,
        "images/embeddings": images,
    }
    if len(text) * len(images) <= MAX_LABEL_BYTES:
        arrays["captions/label"] = image_of_caption[:, None] == np.arange(len(images))
    return arrays


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


def _csv_field(caption: str) -> str:
    """A caption as a CSV field, quoted only where it must be.

    >>> print(_csv_field('a dog'), _csv_field('a "big" dog, running'))
    a dog "a ""big"" dog, running"
    """
    return '"' + caption.replace('"', '""') + '"' if any(sign in caption for sign in ',"\n') else caption
