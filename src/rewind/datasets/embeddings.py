"""Vectors of captions and images: the files of Mamiglia's challenge, or files made here in the same format.

``train.npz`` holds ``captions/{ids,text,embeddings}`` and ``images/{names,embeddings}``; ``captions.txt`` says which
image each caption belongs to. The matrix ``captions/label`` says it too, in captions × images bytes (3 GB at full
size): it is never unpacked.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import psutil

from rewind.datasets.annotations import SPLITS, Annotations
from rewind.datasets.archive import Archive, Member
from rewind.datasets.embedding_files import INDEX, raw_files
from rewind.datasets.embedding_rows import IMAGES, TEXT, make_plan
from rewind.datasets.rows import SHOWN, Rows
from rewind.errors import RewindError
from rewind.files import atomic, read_csv, read_json, write_csv, write_json
from rewind.progress import Progress
from rewind.study.dataset import Dataset


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Check the vectors and lay them out for training: ``text.npy`` and ``images.npy``, which jobs map into memory.

    Rows are in the order of ``captions.csv`` and ``items.csv`` beside them, split after split, so that a split is one
    piece of each file. ``embeddings.json``, written last, has their widths and hashes. Memory does not grow with the
    number of vectors: they are read in pieces.

    Raises:
        RewindError: naming file and row, for shapes and widths that do not fit, NaN or infinity, rows of zeros, ids or
            names that are there twice, captions whose image is absent, or more than ``source.max_gb``.
    """
    where, files = f"config/datasets/{dataset.name}.yaml", raw_files(dataset)
    archive = Archive(files.train)
    text, images = (check_matrix(archive, name) for name in (TEXT, IMAGES))
    check_widths(archive, text, images)
    check_size(archive, [text, images], folder, dataset.source.max_gb, where)
    plan = make_plan(archive, files, dataset.source, where)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    hashes = {
        "text": write_rows(archive, text, plan.captions["row"].to_numpy(), folder / "text.npy"),
        "images": write_rows(archive, images, plan.images["row"].to_numpy(), folder / "images.npy"),
    }
    write_csv(folder / "items.csv", plan.images.drop(columns="row"))
    write_csv(folder / "captions.csv", plan.captions.drop(columns="row"))
    silent = set(plan.images["item_id"]) - set(plan.captions["item_id"])
    index = {"text_width": text.shape[1], "item_width": images.shape[1], "hashes": hashes}
    write_json(folder / INDEX, index | {"images_without_caption": sorted(silent)})
    print(f"{dataset.name}: {len(plan.captions):,} captions ({text.shape[1]}-d), {len(plan.images):,} images "
          f"({images.shape[1]}-d), {len(silent):,} of them without a caption")  # fmt: skip


def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote; an image is a cluster with all its captions.

    Images without a caption stay in the gallery, where they can be found by mistake; notes count them. Items have a
    ``path`` of their own: that of their picture, if one is known, or nothing.
    """
    folder = Path(sources)
    index = read_json(folder / INDEX)
    images, captions = read_csv(folder / "items.csv"), read_csv(folder / "captions.csv")
    described = captions.groupby("item_id", sort=False)["caption"].agg(list).to_dict()
    rows = Rows()
    for item, name, split in zip(images["item_id"], images["name"].astype(str), images["split"], strict=True):
        rows.original(item, name, split, item, f"{folder / 'items.csv'}: {name!r}")
        rows.describe(item, described.get(item, []), split)
    found = rows.annotations({split: {"file": raw_files(dataset).train} for split in SPLITS})
    silent = index["images_without_caption"]
    notes = {"images_without_caption": len(silent), "images_without_caption_shown": silent[:SHOWN]}
    return Annotations(found.items.assign(path=images["path"]), found.captions, found.notes | notes)


def check_matrix(archive: Archive, name: str) -> Member:
    """The header of a matrix of vectors.

    Raises:
        RewindError: if it is no matrix of floating-point numbers, or has no rows or columns.
    """
    member = archive.member(name)
    if len(member.shape) != 2 or member.dtype.kind != "f" or 0 in member.shape:
        raise RewindError(
            f"{archive.path}: {name!r} is {member.dtype} {member.shape}; it must have one row of floating-point "
            "numbers per vector."
        )
    return member


def check_widths(archive: Archive, text: Member, images: Member) -> None:
    """Refuse vectors that are not what the file's own metadata says.

    Raises:
        RewindError: naming the entry that differs.
    """
    said = {
        "num_captions": text.shape[0],
        "embedding_dim_text": text.shape[1],
        "num_images": images.shape[0],
        "embedding_dim_image": images.shape[1],
    }
    for name, size in said.items():
        if f"metadata/{name}" in archive and (given := archive.integers(f"metadata/{name}")) != [size]:
            raise RewindError(
                f"{archive.path}: metadata/{name} says {given}, but there are {size}; the file has been changed."
            )


def check_size(archive: Archive, matrices: list[Member], folder: Path, max_gb: float | None, where: str) -> None:
    """Refuse what would not fit, by the sizes in the headers, before anything is unpacked.

    Raises:
        RewindError: if vectors and texts together are larger than ``max_gb`` or the free memory, or the copies of the
            vectors than the free disk.
    """
    names = [name for name in ("captions/text", "captions/ids", "images/names") if name in archive]
    size = sum(member.bytes for member in matrices) + sum(archive.sizes[name] for name in names)
    limit = max_gb * 1e9 if max_gb is not None else psutil.virtual_memory().available
    if size > limit:
        raise RewindError(
            f"{where}: {archive.path} would unpack to {size / 1e9:.1f} GB of vectors and texts, and "
            + (f"source.max_gb is {max_gb:g}" if max_gb is not None else f"{limit / 1e9:.1f} GB of memory are free")
            + ". Store the vectors as float16, or, if the disk is fast, raise source.max_gb: they are memory-mapped, "
            "not loaded."
        )
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = psutil.disk_usage(str(there)).free
    if (need := sum(member.bytes for member in matrices)) > free:
        raise RewindError(f"{folder}: the vectors need {need / 1e9:.1f} GB of disk, but {free / 1e9:.1f} GB are free.")


def write_rows(archive: Archive, member: Member, rows: np.ndarray, path: Path) -> str:
    """Write rows ``rows`` of a matrix to a .npy file, float16 where they are float16, else float32; checked on the way.

    Returns:
        sha256 of the values in the order of the archive, 16 hex digits.

    Raises:
        RewindError: naming the first row with NaN, infinity or nothing but zeros.
    """
    kind = np.float16 if member.dtype == np.float16 else np.float32
    place = np.empty(len(rows), dtype=np.int64)
    place[rows] = np.arange(len(rows))
    progress, whole = Progress(path.stem, len(rows), "vectors"), hashlib.sha256()
    with atomic(path) as draft:
        target = np.lib.format.open_memmap(draft, "w+", kind, member.shape)
        for start, block in archive.blocks(member.name):
            check_vectors(block, start, f"{archive.path}: {member.name!r}")
            values = block.astype(kind)
            target[place[start : start + len(block)]] = values
            whole.update(np.ascontiguousarray(values))
            progress.advance(len(block))
        target.flush()
        del target
    return whole.hexdigest()[:16]


def check_vectors(block: np.ndarray, start: int, where: str) -> None:
    """Refuse vectors without a direction.

    Raises:
        RewindError: naming the first row, counted from ``start``, with NaN, infinity or nothing but zeros.
    """
    finite = np.isfinite(block).all(axis=1)
    for good, what in ((finite, "holds NaN or infinity"), (block.any(axis=1), "is zero throughout")):
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise RewindError(
                f"{where}, row {start + row} (rows count from 0) {what}: an item without a vector cannot be searched. "
                "Encode it again, or remove it together with its captions."
            )
