"""A data set without clips, and vectors for it, as somebody brings them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

COUNT = 24


def item_ids(twins: bool = True) -> list[str]:
    return [f"v{n}{suffix}" for suffix in ("", "_rev")[: 1 + twins] for n in range(COUNT)]


def caption_ids(twins: bool = True) -> list[str]:
    return [f"{item}#0" for item in item_ids(twins)]


def write_captions(path: Path) -> None:
    """One caption of every clip, and one of its twin."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["item_id", "caption", "reverse_caption"])
        rows.writerows([f"v{n}", f"somebody opens door {n}", f"somebody closes door {n}"] for n in range(COUNT))


def made(seed: int = 0, order: float = 0.6, width: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (2n, width) of captions and items; with ``order`` 0 a clip and its twin have the same."""
    rng = np.random.default_rng(seed)
    content, turn = rng.normal(size=(2, COUNT, width))
    items = np.concatenate([content + order * turn, content - order * turn])
    return items + rng.normal(size=items.shape), items


def write_vectors(folder: Path, seed: int = 0, order: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """``captions.npz`` and ``items.npz``."""
    folder.mkdir(parents=True, exist_ok=True)
    text, items = made(seed, order)
    np.savez(folder / "captions.npz", ids=np.array(caption_ids()), vectors=text)
    np.savez(folder / "items.npz", ids=np.array(item_ids()), vectors=items)
    return text, items


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """``results/data/doors`` as the workflow prepares it."""
    folder = tmp_path / "results/data/doors"
    (folder / "captions").mkdir(parents=True)
    items = pd.DataFrame({"item_id": item_ids(), "split": "test", "status": "ok"})
    items["reversed"] = items["item_id"].str.endswith("_rev").astype(int)
    items["cluster_id"] = items["item_id"].str.removesuffix("_rev")
    items.assign(path="").to_csv(folder / "items.csv", index=False)
    captions = pd.DataFrame({"video_id": item_ids(), "caption": item_ids(), "caption_id": caption_ids()})
    for split, part in (("train", captions[:0]), ("valid", captions[:0]), ("test", captions)):
        part.to_csv(folder / f"captions/doors_{split}.csv", index=False)
    (folder / "captions/report.json").write_text("{}")
    return folder


def tables(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    return pd.read_csv(data / "items.csv"), pd.read_csv(data / "captions/doors_test.csv")
