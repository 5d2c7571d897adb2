"""Vectors of a prepared data set, encoded by frozen networks and written as the files of Mamiglia's challenge."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from rewind.datasets.annotations import SPLITS
from rewind.datasets.captions import load_split
from rewind.encoders.sides import image_vectors, text_encoder
from rewind.errors import RewindError
from rewind.feeding.encode import encode_all
from rewind.feeding.folder import device
from rewind.feeding.inputs import Clips
from rewind.files import atomic, write_csv, write_text
from rewind.jobs.given import Given
from rewind.models.encoders import ImageEncoder, image_encoder
from rewind.models.retriever import Features
from rewind.progress import Progress
from rewind.study import Frames
from rewind.study.embeddings import MadeFrom
from rewind.study.encoding import encoding_of_side
from rewind.video.store import Clip

AT_ONCE = 16  # clips or images
MOST_LABELS = 2 * 10**8  # bytes of the label matrix; a larger one is left out, since captions.txt says the same


def encode_dataset(given: Given) -> None:
    """Rule ``encode_dataset``."""
    folder = Path(given.output.vectors).parent
    data, workers = Path(given.input.item_table).parent, given.threads - 1  # the job itself encodes
    make_vectors(MadeFrom(**given.params.made_from), data, folder, workers)


@torch.inference_mode()
def make_vectors(keys: MadeFrom, data: Path, folder: Path, workers: int = 0) -> None:
    """Encode every usable original of a data set and its captions.

    Writes ``train.npz`` and ``captions.txt`` in the challenge's format, and ``splits.csv`` with the split of every
    image and the place of its picture.

    Args:
        keys: the data set and its encoders.
        data: its results folder.
        folder: where the files go; the results folder of the new data set is above it.
        workers: decoding processes.

    Raises:
        RewindError: for an encoder that is not there, or a vector that is not finite.
    """
    items, captions = _originals(data, keys.dataset)
    on = device()
    text = text_encoder(keys, on)(captions["caption"].tolist()).cpu().numpy()
    by_name = encoding_of_side(keys, "image")
    if by_name is None:
        images = _images(image_encoder(keys.image, on), items, data, keys, workers)
    else:
        clips = (Clip(row.item_id, str(data / row.path), False) for row in items.itertuples())
        images = image_vectors(by_name, clips, len(items), workers + 1)
    text = _checked(text, captions["caption_id"], keys.text.name, keys.unit)
    images = _checked(images, items["item_id"], keys.image.name, keys.unit)
    items = items.assign(path=[os.path.relpath(data / path, folder.parent) for path in items["path"]])
    write_challenge(folder, text.astype(keys.dtype), images.astype(keys.dtype), items, captions)
    print(f"{len(captions):,} captions ({text.shape[1]}-d), {len(items):,} images ({images.shape[1]}-d)")


def write_challenge(
    folder: Path, text: np.ndarray, images: np.ndarray, items: pd.DataFrame, captions: pd.DataFrame
) -> None:
    """Write vectors of captions (n, dt) and items (m, di) as the challenge's files, and the split of every item.

    Args:
        folder: of ``train.npz``, ``captions.txt`` and ``splits.csv``.
        text, images: vectors.
        items: item_id, path, split, in the order of ``images``.
        captions: video_id, caption, in the order of ``text``.
    """
    names = (items["item_id"] + items["path"].map(lambda path: Path(path).suffix)).to_numpy(dtype=str)
    rows = pd.Series(np.arange(len(items)), index=items["item_id"])[captions["video_id"]].to_numpy()
    with atomic(folder / "train.npz") as draft:
        np.savez(draft, **challenge_arrays(text, images, names, captions["caption"], rows))
    lines = [f"{names[row]},{_field(caption)}" for row, caption in zip(rows, captions["caption"], strict=True)]
    write_text(folder / "captions.txt", "\n".join(["image,caption", *lines]) + "\n")
    write_csv(folder / "splits.csv", pd.DataFrame({"image": names, "split": items["split"], "path": items["path"]}))


def challenge_arrays(
    text: np.ndarray, images: np.ndarray, names: np.ndarray, captions: pd.Series, image_of_caption: np.ndarray
) -> dict[str, np.ndarray]:
    """The members of the challenge's ``train.npz``; the label matrix only up to ``MOST_LABELS``."""
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
    if len(text) * len(images) <= MOST_LABELS:
        arrays["captions/label"] = image_of_caption[:, None] == np.arange(len(images))
    return arrays


def _originals(data: Path, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Usable items that are not reversed, and their captions, of all splits."""
    splits = [load_split(data, name, split) for split in SPLITS]
    items = pd.concat([split.items for split in splits], ignore_index=True)
    items = items[items["reversed"] == 0].reset_index(drop=True)
    captions = pd.concat([split.captions for split in splits], ignore_index=True)
    return items, captions[captions["video_id"].isin(items["item_id"])].reset_index(drop=True)


def _images(encode: ImageEncoder, items: pd.DataFrame, data: Path, keys: MadeFrom, workers: int) -> np.ndarray:
    def vectors(batch: Features) -> Features:
        most = int(batch["mask"].sum(1).max())  # frames of an image: 1, whatever keys.frames is
        return {"vectors": encode(batch["pixels"][:, :most], batch["mask"][:, :most]).cpu()}

    clips = Clips(items, data, Frames(sampling="uniform", rate=None, fit="crop", size=keys.size), keys.frames)
    progress = Progress("vectors", len(items), "images")
    here = torch.device("cpu")  # an encoder moves what it is given
    found = encode_all(vectors, clips, AT_ONCE, here, workers=workers, done=progress.advance)
    return found["vectors"].numpy()


def _checked(vectors: np.ndarray, ids: pd.Series, encoder: str, unit: bool) -> np.ndarray:
    """The vectors, of length 1 where that is wanted."""
    lengths = np.linalg.norm(vectors, axis=1)
    bad = ~(np.isfinite(lengths) & (lengths > 0))
    if bad.any():
        raise RewindError(
            f"{encoder}: the vector of {ids[bad.argmax()]!r} is zero or not finite; look for broken weights."
        )
    return vectors / lengths[:, None] if unit else vectors


def _field(caption: str) -> str:
    """A CSV field."""
    return '"' + caption.replace('"', '""') + '"' if any(sign in caption for sign in ',"\n') else caption
