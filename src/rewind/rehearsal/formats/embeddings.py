"""Vectors of captions and images in the files of Mamiglia's challenge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.annotations import SPLITS
from rewind.datasets.archive import Archive
from rewind.datasets.embedding_files import raw_files
from rewind.datasets.embedding_rows import IMAGES, TEXT, make_plan
from rewind.files import write_npz
from rewind.jobs.encode_dataset import write_challenge
from rewind.rehearsal.formats import Published
from rewind.rehearsal.pictures import Sizes
from rewind.study.dataset import Dataset

PUBLISHED = Published((20_000, 100_000), (2500, 12_500), (2500, 12_500), 25_000, "the challenge as published")
WIDTHS = 1024, 1536  # of the challenge
CAPTIONS = 5
HIDDEN = 32


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes, widths: tuple[int, int] = WIDTHS) -> dict[str, Any]:
    """Random unit vectors in which captions and their image share a direction; a test npz where one is named."""
    rng = np.random.default_rng(0)
    names = [(f"standin{split}{n:04}", split) for split, count in sizes.counts().items() for n in range(count)]
    items = pd.DataFrame(names, columns=["item_id", "split"]).assign(path="")
    owner = np.repeat(np.arange(len(items)), CAPTIONS)
    told = [f"Stand-in {image}, told in way {n % CAPTIONS}." for n, image in enumerate(owner)]
    captions = pd.DataFrame({"video_id": items["item_id"].to_numpy()[owner], "caption": told})
    hidden = rng.normal(size=(len(items), HIDDEN))
    said = hidden[owner] + 0.3 * rng.normal(size=(len(owner), HIDDEN))
    text, images = (unit(part @ rng.normal(size=(HIDDEN, n))) for part, n in zip((said, hidden), widths, strict=True))
    folder.mkdir(parents=True, exist_ok=True)
    write_challenge(folder, text, images, items, captions)
    keys = _keys(folder)
    if source.get("test"):
        keys["test"] = str(folder / "test.npz")
        write_npz(folder / "test.npz", **{"captions/ids": np.arange(sizes.test), TEXT: text[-sizes.test :]})
    return keys


def part(dataset: Dataset, folder: Path, sizes: Sizes) -> dict[str, Any]:
    """The first images of each split of the user's own files, with all their captions."""
    files = raw_files(dataset)
    archive = Archive(files.train)
    plan = make_plan(archive, files, dataset.source, f"config/datasets/{dataset.name}.yaml")
    images = pd.concat([plan.images[plan.images["split"] == split].head(sizes.counts()[split]) for split in SPLITS])
    captions = plan.captions[plan.captions["item_id"].isin(images["item_id"])]
    vectors = [_rows(archive, name, kept["row"]) for name, kept in ((TEXT, captions), (IMAGES, images))]
    folder.mkdir(parents=True, exist_ok=True)
    items = images[["item_id", "split"]].assign(path="").reset_index(drop=True)
    described = captions.rename(columns={"item_id": "video_id"})[["video_id", "caption"]].reset_index(drop=True)
    write_challenge(folder, *vectors, items, described)
    return _keys(folder)


def unit(vectors: np.ndarray) -> np.ndarray:
    """float32 rows of length 1."""
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _keys(folder: Path) -> dict[str, Any]:
    return {name: str(folder / file) for name, file in FILES.items()}


FILES = {"train": "train.npz", "captions": "captions.txt", "splits": "splits.csv"}


def _rows(archive: Archive, name: str, rows: pd.Series) -> np.ndarray:
    """Some rows of a matrix, in the order of ``rows``."""
    wanted, found = rows.to_numpy(), {}
    for start, block in archive.blocks(name):
        for row in wanted[(wanted >= start) & (wanted < start + len(block))].tolist():
            found[row] = block[row - start]
    return np.stack([found[row] for row in wanted.tolist()])
