"""``submission.csv`` of the challenge: the vector that a trained translator gives every caption of a test npz."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import torch

from rewind.datasets.archive import Archive
from rewind.datasets.embedding_rows import TEXT, caption_ids
from rewind.datasets.embeddings import check_matrix, check_vectors
from rewind.errors import RewindError
from rewind.feeding.folder import DataFolder, build_retriever, device
from rewind.files import atomic
from rewind.jobs.given import Given
from rewind.jobs.model_data import data_folder
from rewind.models.checkpoint import load_model
from rewind.models.retriever import Retriever, offers
from rewind.reading.tables import long_cells

HEAD = ["id", "embedding"]
TOLERANCE = 1e-5  # of a vector's length


def submission(given: Given) -> None:
    """Rule ``submission``."""
    write_submission(data_folder(given), given.input.model, given.input.npz, given.output[0])


def write_submission(data: DataFolder, model: str, npz: str, result: str) -> None:
    """Map the captions of ``npz`` and write ``id,embedding``, rows in its order and of unit length; then read it back.

    Raises:
        RewindError: for a model that maps no captions into the space of images, vectors of another width, or a file
            that does not hold what was written.
    """
    retriever = build_retriever(data)
    if not offers(retriever.translate):
        raise RewindError(
            f"a submission needs a method that maps captions to image vectors, which {type(retriever).__name__} does "
            "not: name a method with model: translator."
        )
    load_model(model, retriever)
    archive = Archive(npz)
    ids = caption_ids(archive)
    vectors = translated(retriever.eval().to(device()), archive, data.spec.backbone.text_width, len(ids))
    with atomic(result) as draft:
        write_rows(draft, ids, vectors)
        check_rows(draft, ids, vectors)
    print(f"{result}: {len(ids):,} vectors ({vectors.shape[1]}-d) of unit length, written and verified")


@torch.inference_mode()
def translated(retriever: Retriever, archive: Archive, width: int | None, count: int) -> np.ndarray:
    """Unit vectors float32 (n, D) of an npz's captions.

    Raises:
        RewindError: if they are not as many as its ids, or not as wide as those that the model was trained on.
    """
    member = check_matrix(archive, TEXT)
    if member.shape != (count, width):
        raise RewindError(
            f"{archive.path}: {TEXT!r} has shape {member.shape}; {count:,} rows of width {width} are needed, the "
            "width that the model was trained on."
        )
    parts = []
    for start, block in archive.blocks(TEXT):
        check_vectors(block, start, f"{archive.path}: {TEXT!r}")
        text = torch.from_numpy(np.array(block, dtype=np.float32)).to(device())
        parts.append(retriever.translate(text).cpu().numpy())
    return np.concatenate(parts)


def write_rows(path: Path, ids: list[str], vectors: np.ndarray) -> None:
    """The challenge's format: ``7,"[0.1, -0.2, ...]"``, every number with all the digits of its float32 as a double."""
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(HEAD)
        for name, vector in zip(ids, vectors, strict=True):
            writer.writerow([name, json.dumps(vector.tolist())])


def check_rows(path: Path, ids: list[str], vectors: np.ndarray) -> None:
    """Read a submission as the challenge does, and compare it with what it should hold.

    Raises:
        RewindError: naming the first row that is missing, unreadable, not of unit length or not what was written.
    """
    with long_cells(), Path(path).open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        if next(rows, None) != HEAD:
            raise RewindError(f"{path}: the header must be {','.join(HEAD)}.")
        count = 0
        for number, row in enumerate(rows, start=2):
            fault = _fault(row, ids, vectors, count)
            if fault:
                raise RewindError(f"{path}: row {number}: {fault}.")
            count += 1
    if count != len(ids):
        raise RewindError(f"{path}: {count:,} rows, but {len(ids):,} are needed.")


def _fault(row: list[str], ids: list[str], vectors: np.ndarray, place: int) -> str:
    if place >= len(ids) or len(row) != 2:
        return "more rows or fields than there should be"
    if row[0] != ids[place]:
        return f"id {row[0]!r}, expected {ids[place]!r}"
    try:
        vector = np.array(json.loads(row[1]), dtype=np.float32)
    except (json.JSONDecodeError, ValueError, TypeError) as error:
        return f"the embedding is no list of numbers ({error})"
    if vector.shape != vectors[place].shape or not np.array_equal(vector, vectors[place]):
        return "the embedding is not the one that was written"
    length = float(np.linalg.norm(vector.astype(np.float64)))
    return "" if abs(length - 1) <= TOLERANCE else f"the embedding has length {length:.6f} and not 1"
