"""``submission.csv`` of Mamiglia's challenge: unit vectors of a trained translator for the captions of a test npz.

The file is read back and compared before it gets its name.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import torch

from rewind.data.formats.embeddings import TEXT_MATRIX, check_embedding_matrix, check_embedding_values, read_caption_ids
from rewind.data.readers import NpzArchive
from rewind.errors import RewindError
from rewind.io.files import atomic_write
from rewind.io.strict import allow_long_cells
from rewind.loading.run_data import RunData, build_untrained_model, job_device
from rewind.models.checkpoint import load_model
from rewind.models.retriever import Retriever, is_overridden

SUBMISSION_HEADER = ["id", "embedding"]
LENGTH_TOLERANCE = 1e-5  # deviation of a vector's length from 1


def write_submission(data: RunData, model: str, npz: str, result: str) -> None:
    """Map the captions of ``npz`` and write ``id,embedding`` in its order, of unit length; then read it back."""
    retriever = build_untrained_model(data)
    if not is_overridden(retriever.translate):
        raise RewindError(
            f"a submission needs a method that maps captions to image vectors, which {type(retriever).__name__} does "
            "not: name a method with model: translator."
        )
    load_model(model, retriever)
    archive = NpzArchive(npz)
    ids = read_caption_ids(archive)
    vectors = translate_captions(retriever.eval().to(job_device()), archive, data.spec.backbone.text_width, len(ids))
    with atomic_write(result) as temporary:
        write_submission_rows(temporary, ids, vectors)
        check_submission_rows(temporary, ids, vectors)
    print(f"{result}: {len(ids):,} vectors ({vectors.shape[1]}-d) of unit length, written and verified")


@torch.inference_mode()
def translate_captions(retriever: Retriever, archive: NpzArchive, width: int | None, count: int) -> np.ndarray:
    """Unit vectors float32 (n, D) of the captions of an npz file of ``count`` rows, read in blocks."""
    member = check_embedding_matrix(archive, TEXT_MATRIX)
    if member.shape != (count, width):
        raise RewindError(
            f"{archive.path}: {TEXT_MATRIX!r} has shape {member.shape}; {count:,} rows of width {width} are needed, "
            "the width that the model was trained on."
        )
    parts = []
    for start, block in archive.blocks(TEXT_MATRIX):
        check_embedding_values(block, start, f"{archive.path}: {TEXT_MATRIX!r}")
        text = torch.from_numpy(np.array(block, dtype=np.float32)).to(job_device())
        parts.append(retriever.translate(text).cpu().numpy())
    return np.concatenate(parts)


def write_submission_rows(path: Path, ids: list[str], vectors: np.ndarray) -> None:
    """The challenge's format: ``7,"[0.1, -0.2, ...]"``; every float32 is written exactly, as the double it equals."""
    with Path(path).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(SUBMISSION_HEADER)
        for name, vector in zip(ids, vectors, strict=True):
            writer.writerow([name, json.dumps(vector.tolist())])


def check_submission_rows(path: Path, ids: list[str], vectors: np.ndarray) -> None:
    """Read a submission as the challenge does, and compare it with the vectors that were written."""
    with allow_long_cells(), Path(path).open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        if next(rows, None) != SUBMISSION_HEADER:
            raise RewindError(f"{path}: the header must be {','.join(SUBMISSION_HEADER)}.")
        count = 0
        for number, row in enumerate(rows, start=2):
            fault = _row_fault(row, ids, vectors, count)
            if fault:
                raise RewindError(f"{path}: row {number}: {fault}.")
            count += 1
    if count != len(ids):
        raise RewindError(f"{path}: {count:,} rows, but {len(ids):,} are needed.")


def _row_fault(row: list[str], ids: list[str], vectors: np.ndarray, position: int) -> str:
    if position >= len(ids) or len(row) != 2:
        return "more rows or fields than there should be"
    if row[0] != ids[position]:
        return f"id {row[0]!r}, expected {ids[position]!r}"
    try:
        vector = np.array(json.loads(row[1]), dtype=np.float32)
    except (json.JSONDecodeError, ValueError, TypeError) as error:
        return f"the embedding is no list of numbers ({error})"
    if vector.shape != vectors[position].shape or not np.array_equal(vector, vectors[position]):
        return "the embedding is not the one that was written"
    length = float(np.linalg.norm(vector.astype(np.float64)))  # in double precision, so that rounding is not a fault
    return "" if abs(length - 1) <= LENGTH_TOLERANCE else f"the embedding has length {length:.6f} and not 1"
