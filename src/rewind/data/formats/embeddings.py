"""Embeddings of captions and images: the files of Mamiglia's challenge, or files written here in its format.

``train.npz`` holds ``captions/{ids,text,embeddings}`` and ``images/{names,embeddings}``; ``captions.txt`` states
which image each caption belongs to. The matrix ``captions/label`` states it too, in captions × images bytes (3 GB at
full size): it is never unpacked. :func:`make_sources` checks the files and lays the vectors out split by split.
"""

from __future__ import annotations

import csv
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import psutil

from rewind.config.dataset import Dataset, EmbeddingsSource
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes
from rewind.data.formats.photos import item_id_from_file
from rewind.data.readers import NpzArchive, NpzMember
from rewind.errors import RewindError, first_lines
from rewind.hashing import Sha256
from rewind.io.files import atomic_write, read_csv, read_json, write_csv, write_json, write_npz, write_text
from rewind.io.schema import ID, OPTIONAL, Column, RowChecks, Schema, similar_name
from rewind.io.strict import explain_csv_error, read_user_csv, read_user_text, split_lines
from rewind.progress import Progress
from rewind.registry import DUMMY_DATA, FORMATS

# ---- Paths of the raw files ----------------------------------------------------------------------------------------
# Rules of other datasets use them too.

MADE_FOLDER = "results/data/{dataset}/made"
INDEX_FILE = "embeddings.json"  # among the sources, written last


class EmbeddingFiles(NamedTuple):
    """Paths of the npz, of captions.txt, and of the table of splits, if there is one."""

    train: str
    captions: str
    splits: str | None


def raw_embedding_files(dataset: Dataset) -> EmbeddingFiles:
    """The files that a dataset's vectors are read from: the user's, or those of rule ``encode_dataset``."""
    source = dataset.source
    if source.made_from is None:
        return EmbeddingFiles(source.train, source.captions, source.splits)
    made = MADE_FOLDER.format(dataset=dataset.name)
    return EmbeddingFiles(f"{made}/train.npz", f"{made}/captions.txt", f"{made}/splits.csv")


# ---- The challenge's `captions.txt`: which image each line's caption belongs to ------------------------------------

CAPTION_SEPARATORS = ("|", "\t", ",", "  ", " ")  # between image and caption, the likeliest first


class CaptionLine(NamedTuple):
    """A caption of ``captions.txt``."""

    number: int  # its line in the file, from 1
    image: int  # the row of its image
    caption: str


class ImageNames:
    """Finds images by their full name, else by base name, else by stem; rows are positions in ``names``.

    >>> names = ImageNames(["photos/a.jpg", "photos/b.jpg"], "train.npz")
    >>> names.find("b.jpg", "captions.txt: line 1"), names.find("a", "captions.txt: line 2")
    (1, 0)
    """

    def __init__(self, names: list[str], where: str) -> None:
        self.names, self.where = names, where
        self.exact: dict[str, int] = {}
        self.base: dict[str, list[int]] = {}
        self.stem: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            if name in self.exact:
                raise RewindError(f"{where}: image {name!r} is in rows {self.exact[name]} and {row}; keep one.")
            self.exact[name] = row
            path = PurePosixPath(name.replace("\\", "/"))
            self.base.setdefault(path.name, []).append(row)
            self.stem.setdefault(path.stem, []).append(row)

    def find(self, token: str, where: str) -> int | None:
        """Row of the image that ``token`` names, None for none; several that fit equally well are refused."""
        if token in self.exact:
            return self.exact[token]
        path = PurePosixPath(token.replace("\\", "/"))
        for index, key in ((self.base, path.name), (self.stem, path.stem if path.suffix else path.name)):
            rows = index.get(key, [])
            if len(rows) > 1:
                matches = ", ".join(repr(self.names[row]) for row in rows[:3])
                raise RewindError(
                    f"{where}: {token!r} matches several images of {self.where}: {matches}; write full names."
                )
            if rows:
                return rows[0]
        return None


def read_caption_lines(path: str | Path, names: ImageNames) -> list[CaptionLine]:
    """Read ``captions.txt``: ``image,caption`` as CSV, or image and caption separated by ``|``, a tab or blanks.

    A first line without a known image is a header; if it is a CSV header with a column ``image`` (some releases have
    ``id`` before it), that column names the image. Empty lines are skipped.

    Raises:
        RewindError: naming lines whose image is unknown or ambiguous, or whose quotes are not closed.
    """
    lines = [line.rstrip("\r\n") for line in split_lines(read_user_text(path))]
    column = _image_column(lines[0])
    captions: list[CaptionLine] = []
    faults: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and column is not None):
            continue
        where = f"{path}: line {number}"
        # Every way to read the line; the first whose image is known counts.
        readings = ([_split_at_column(line, column, where)] if column is not None else []) + _split_at_separators(line)
        rows = ((names.find(token, where), text) for token, text in readings)
        match = next(((row, text) for row, text in rows if row is not None), None)
        if match is None and number == 1 and "." not in readings[0][0]:
            continue  # a header of another form
        if match is None:
            hint = "" if faults else similar_name(readings[0][0], names.names)  # only of the first: it takes a while
            faults.append(f"  line {number}: {readings[0][0]!r}{f', but {hint}' if hint else ''}")
        else:
            captions.append(CaptionLine(number, match[0], " ".join(match[1].split())))
    if faults:
        raise RewindError(
            f"{path}: {len(faults)} captions name images that {names.where} does not have:\n{first_lines(faults)}\n"
            "Correct these names, or use the npz that belongs to this file."
        )
    return captions


def _image_column(line: str) -> int | None:
    """Position of the column ``image`` in a CSV header; None for any other line."""
    fields = [field.strip().lower() for field in line.split(",")]
    return fields.index("image") if "image" in fields and len(fields) > 1 else None


def _split_at_column(line: str, column: int, where: str) -> tuple[str, str]:
    try:
        fields = next(csv.reader([line], skipinitialspace=True, strict=True))
    except csv.Error as error:
        if "expected after" not in str(error):
            raise RewindError(f"{where}: {explain_csv_error(str(error), 0, 0)}.") from error
        fields = next(csv.reader([line], skipinitialspace=True))  # words after a closing quote belong to the text
    token = fields[column] if column < len(fields) else ""
    return token.strip(), ",".join(fields[column + 1 :])


def _split_at_separators(line: str) -> list[tuple[str, str]]:
    """(image, caption) by each separator that the line has, the likeliest first."""
    parts = [line.strip().partition(separator) for separator in CAPTION_SEPARATORS]
    readings = [(left.strip().strip("\"'"), right.strip().strip("\"'")) for left, middle, right in parts if middle]
    return readings or [(line.strip().strip("\"'"), "")]


# ---- Order of rows: which embedding belongs to which caption and image, and which split each is in -----------------

SPLIT_COLUMNS = Schema(
    {"image": ID, "split": Column(filled=True, choices=SPLITS), "path": OPTIONAL}, unique=(("image",),)
)
TEXT_MATRIX, IMAGE_MATRIX = "captions/embeddings", "images/embeddings"


class RowPlan(NamedTuple):
    """Rows of the npz in the order in which they are stored: by split, images by name, captions by image."""

    images: pd.DataFrame  # one row per image: name, item_id, split, path, row (in the npz)
    captions: pd.DataFrame  # one row per caption: item_id, id, caption, row (in the npz)


def plan_rows(archive: NpzArchive, files: EmbeddingFiles, keys: EmbeddingsSource, where: str) -> RowPlan:
    """Which caption belongs to which image, which split each is in, and the order in which rows are stored."""
    names = ImageNames(archive.strings("images/names"), str(archive.path))
    _check_count(archive, "images/names", len(names.names), IMAGE_MATRIX)
    lines = read_caption_lines(files.captions, names)
    total = archive.member(TEXT_MATRIX).shape[0]
    if len(lines) != total:
        raise RewindError(
            f"{files.captions}: {len(lines):,} captions, but {archive.path} has {total:,} caption vectors; there must "
            "be one line per vector, in the same order."
        )
    ids = _ids_or_numbers(archive, total)
    texts = _agreed_captions(archive, [line.caption for line in lines], files.captions, [line.number for line in lines])
    images = _split_table(names.names, files.splits, keys, where)
    images = images.sort_values(["order", "name"], kind="stable").drop(columns="order").reset_index(drop=True)
    position = np.empty(len(images), dtype=np.int64)  # row of an image in the npz → its position in the new order
    position[images["row"]] = np.arange(len(images))
    owner = np.array([line.image for line in lines])
    order = np.argsort(position[owner], kind="stable")  # captions of one image keep the order of the file
    captions = pd.DataFrame(
        {
            "item_id": images["item_id"].to_numpy()[position[owner[order]]],
            "id": [ids[row] for row in order],
            "caption": [texts[row] for row in order],
            "row": order,
        }
    )
    return RowPlan(images, captions)


def split_embedded_images(names: list[str], keys: EmbeddingsSource, where: str) -> dict[str, str]:
    """The split of every image, drawn as in the challenge's code, with a test split taken after its validation split.

    Names are sorted and shuffled by ``numpy.random.default_rng(seed)``; the first ``int(valid_share · n)`` are valid,
    the next ``int(test_share · n)`` test (at least one each).

    >>> keys = EmbeddingsSource(format="embeddings", train="train.npz", captions="captions.txt")
    >>> splits = split_embedded_images([f"{n}.jpg" for n in range(20)], keys, "config/datasets/demo.yaml")
    >>> [list(splits.values()).count(split) for split in SPLITS]
    [16, 2, 2]
    """
    shuffled = sorted(names)
    np.random.default_rng(keys.seed).shuffle(shuffled)
    valid, test = (max(1, int(len(names) * share)) for share in (keys.valid_share, keys.test_share))
    if valid + test >= len(names):
        raise RewindError(f"{where}: source: {len(names)} images leave nothing to train on; more images are needed.")
    kinds = ["valid"] * valid + ["test"] * test + ["train"] * (len(names) - valid - test)
    return dict(zip(shuffled, kinds, strict=True))


def _check_count(archive: NpzArchive, name: str, count: int, matrix: str) -> None:
    rows = archive.member(matrix).shape[0]
    if count != rows:
        raise RewindError(f"{archive.path}: {count:,} values in {name!r}, but {rows:,} rows in {matrix!r}.")


def read_caption_ids(archive: NpzArchive) -> list[str]:
    """Ids of the captions as text; an id that is listed twice is refused."""
    are_numbers = archive.member("captions/ids").dtype.kind in "iu"
    ids = list(map(str, archive.integers("captions/ids"))) if are_numbers else archive.strings("captions/ids")
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in first:
            raise RewindError(f"{archive.path}: caption id {name!r} is in rows {first[name]} and {row}; keep one.")
        first[name] = row
    return ids


def _ids_or_numbers(archive: NpzArchive, total: int) -> list[str]:
    if "captions/ids" not in archive:
        return list(map(str, range(total)))
    ids = read_caption_ids(archive)
    _check_count(archive, "captions/ids", len(ids), TEXT_MATRIX)
    return ids


def _agreed_captions(archive: NpzArchive, captions: list[str], where: str, lines: list[int]) -> list[str]:
    """The captions; those of the npz and of captions.txt must agree, or rows are not in the same order."""
    if "captions/text" not in archive:
        return captions
    texts = [" ".join(text.split()) for text in archive.strings("captions/text")]
    _check_count(archive, "captions/text", len(texts), TEXT_MATRIX)
    differ = [
        row
        for row, (text, caption) in enumerate(zip(texts, captions, strict=True))
        if caption and _letters_and_digits(text) != _letters_and_digits(caption)
    ]
    if differ:
        row = differ[0]
        raise RewindError(
            f"{where}: {len(differ):,} captions differ from those of {archive.path}, first in line {lines[row]}: "
            f"{captions[row]!r}, but row {row} of it is {texts[row]!r}; the lines must be in the order of the vectors."
        )
    return texts


def _letters_and_digits(caption: str) -> str:
    """What must agree: quotes, punctuation and case differ between releases of the same captions."""
    return "".join(letter for letter in caption.casefold() if letter.isalnum())


def _split_table(names: list[str], splits: str | None, keys: EmbeddingsSource, where: str) -> pd.DataFrame:
    """name, item_id, split, path, row and the position of the split in :data:`SPLITS` for every image."""
    table = pd.DataFrame(
        {"name": names, "item_id": [item_id_from_file(name) for name in names], "row": range(len(names))}
    )
    duplicates = table[table["item_id"].duplicated(keep=False)]
    if len(duplicates):
        item = duplicates["item_id"].iloc[0]
        first, second = duplicates["name"][duplicates["item_id"] == item].iloc[:2]
        raise RewindError(f"{where}: images {first!r} and {second!r} would both get the id {item!r}.")
    split_of: dict[str, str]
    path_of: dict[str, str]
    if splits is None:
        split_of, path_of = split_embedded_images(names, keys, where), {}
    else:
        split_of, path_of = _read_splits(splits, set(names))
    table = table.assign(split=table["name"].map(split_of), path=table["name"].map(path_of).fillna(""))
    return table.assign(order=table["split"].map(SPLITS.index))[["name", "item_id", "split", "path", "row", "order"]]


def _read_splits(path: str, names: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The split and the picture's path of every image, from the CSV ``source.splits``."""
    checks = RowChecks(SPLIT_COLUMNS, {"image": names}, "the npz of vectors")
    rows = {cells["image"]: cells for _, cells in read_user_csv(path, SPLIT_COLUMNS, checks=checks)}
    if absent := sorted(names - set(rows)):
        raise RewindError(f"{path}: image {absent[0]!r} has no split; one row per image is needed.")
    splits = {image: cells["split"] for image, cells in rows.items()}
    if empty := [split for split in SPLITS if split not in set(splits.values())]:
        raise RewindError(f"{path}: no image is in split {empty[0]!r}.")
    return splits, {image: cells.get("path", "") for image, cells in rows.items()}


# ---- The dataset format: checking embeddings and laying them out for memory-mapped reading -------------------------


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Check the vectors and lay them out for training: ``text.npy`` and ``images.npy``, which jobs map into memory.

    Rows are in the order of ``captions.csv`` and ``items.csv`` next to them, split after split, so that a split is one
    contiguous part of each file. ``embeddings.json``, written last, has their widths and hashes. Memory does not grow
    with the number of vectors, because they are read in blocks.

    Raises:
        RewindError: naming file and row, for shapes and widths that do not fit, NaN or infinity, rows of zeros, ids or
            names that are listed twice, captions whose image is missing, or more than ``source.max_gb``.
    """
    where, files = f"config/datasets/{dataset.name}.yaml", raw_embedding_files(dataset)
    archive = NpzArchive(files.train)
    text, images = (check_embedding_matrix(archive, name) for name in (TEXT_MATRIX, IMAGE_MATRIX))
    check_metadata(archive, text, images)
    check_free_space(archive, [text, images], folder, dataset.source.max_gb, where)
    plan = plan_rows(archive, files, dataset.source, where)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX_FILE).unlink(missing_ok=True)  # a killed job must not leave an old index next to new vectors
    hashes = {
        "text": write_embedding_rows(archive, text, plan.captions["row"].to_numpy(), folder / "text.npy"),
        "images": write_embedding_rows(archive, images, plan.images["row"].to_numpy(), folder / "images.npy"),
    }
    write_csv(folder / "items.csv", plan.images.drop(columns="row"))
    write_csv(folder / "captions.csv", plan.captions.drop(columns="row"))
    uncaptioned = set(plan.images["item_id"]) - set(plan.captions["item_id"])
    index = {"text_width": text.shape[1], "item_width": images.shape[1], "hashes": hashes}
    write_json(folder / INDEX_FILE, index | {"images_without_caption": sorted(uncaptioned)})
    print(
        f"{dataset.name}: {len(plan.captions):,} captions ({text.shape[1]}-d), {len(plan.images):,} images "
        f"({images.shape[1]}-d), {len(uncaptioned):,} of them without a caption"
    )


@FORMATS.register("embeddings", make_sources=make_sources)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote; an image is a cluster with all its captions.

    Images without a caption stay in the gallery, where they can be found by mistake; notes count them. Items have a
    ``path`` of their own: that of their picture, if one is known, or nothing.
    """
    folder = Path(sources)
    index = read_json(folder / INDEX_FILE)
    images, captions = read_csv(folder / "items.csv"), read_csv(folder / "captions.csv")
    described = captions.groupby("item_id", sort=False)["caption"].agg(list).to_dict()
    builder = AnnotationBuilder()
    for item, name, split in zip(images["item_id"], images["name"].astype(str), images["split"], strict=True):
        builder.original(item, name, split, item, f"{folder / 'items.csv'}: {name!r}")
        builder.describe(item, described.get(item, []), split)
    annotations = builder.annotations({split: {"file": raw_embedding_files(dataset).train} for split in SPLITS})
    uncaptioned = index["images_without_caption"]
    notes = {
        "images_without_caption": len(uncaptioned),
        "images_without_caption_shown": uncaptioned[:MAX_NOTE_EXAMPLES],
    }
    items = annotations.items.assign(path=images["path"])
    return Annotations(items, annotations.captions, annotations.notes | notes)


def check_embedding_matrix(archive: NpzArchive, name: str) -> NpzMember:
    """The header of a matrix of vectors: floating-point numbers, at least one row and column; others are refused."""
    member = archive.member(name)
    if len(member.shape) != 2 or member.dtype.kind != "f" or 0 in member.shape:
        raise RewindError(
            f"{archive.path}: {name!r} is {member.dtype} {member.shape}; it must have one row of floating-point "
            "numbers per vector."
        )
    return member


def check_metadata(archive: NpzArchive, text: NpzMember, images: NpzMember) -> None:
    """Refuse vectors that are not what the file's own metadata states."""
    expected = {
        "num_captions": text.shape[0],
        "embedding_dim_text": text.shape[1],
        "num_images": images.shape[0],
        "embedding_dim_image": images.shape[1],
    }
    for name, size in expected.items():
        if f"metadata/{name}" in archive and (stated := archive.integers(f"metadata/{name}")) != [size]:
            raise RewindError(
                f"{archive.path}: metadata/{name} states {stated}, but there are {size}; the file has been changed."
            )


def check_free_space(
    archive: NpzArchive, matrices: list[NpzMember], folder: Path, max_gb: float | None, where: str
) -> None:
    """Refuse what would not fit, by the sizes in the headers, before anything is unpacked.

    Vectors and texts together may take ``max_gb``, or else the free memory; the copies of the vectors the free disk.
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
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    free = psutil.disk_usage(str(existing)).free
    if (need := sum(member.bytes for member in matrices)) > free:
        raise RewindError(f"{folder}: the vectors need {need / 1e9:.1f} GB of disk, but {free / 1e9:.1f} GB are free.")


def write_embedding_rows(archive: NpzArchive, member: NpzMember, rows: np.ndarray, path: Path) -> str:
    """Write a matrix to a .npy file with its rows in another order, and check them on the way.

    float16 stays float16, other types become float32. Row i of the file is row ``rows[i]`` of the archive. The result
    is the first 16 hex digits of the SHA-256 of the values, in the order of the archive.
    """
    dtype = np.float16 if member.dtype == np.float16 else np.float32
    position = np.empty(len(rows), dtype=np.int64)  # row of the archive → row of the file
    position[rows] = np.arange(len(rows))
    progress, digest = Progress(path.stem, len(rows), "vectors"), Sha256()
    with atomic_write(path) as temporary:
        target = np.lib.format.open_memmap(temporary, "w+", dtype, member.shape)
        for start, block in archive.blocks(member.name):
            check_embedding_values(block, start, f"{archive.path}: {member.name!r}")
            values = block.astype(dtype)
            target[position[start : start + len(block)]] = values
            digest.update(np.ascontiguousarray(values).data)
            progress.advance(len(block))
        target.flush()
        del target  # closes the map before the file is renamed
    return digest.short()


def check_embedding_values(block: np.ndarray, start: int, where: str) -> None:
    """Refuse vectors without a direction: NaN, infinity or only zeros; the block begins with row ``start``."""
    finite = np.isfinite(block).all(axis=1)
    for good, what in ((finite, "holds NaN or infinity"), (block.any(axis=1), "is zero throughout")):
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise RewindError(
                f"{where}, row {start + row} (rows count from 0) {what}: an item without a vector cannot be searched. "
                "Encode it again, or remove it together with its captions."
            )


# ---- Writing the challenge's files ---------------------------------------------------------------------------------

MAX_LABEL_BYTES = 2 * 10**8  # bytes of the label matrix; a larger one is left out, since captions.txt contains the same


def write_challenge_files(
    folder: Path, text: np.ndarray, images: np.ndarray, items: pd.DataFrame, captions: pd.DataFrame
) -> None:
    """Write vectors of captions (n, dt) and items (m, di) as the challenge's files, and the split of every item.

    ``items`` has item_id, path and split, in the order of ``images``; ``captions`` video_id and caption, in the order
    of ``text``.
    """
    names = (items["item_id"] + items["path"].map(lambda path: Path(path).suffix)).to_numpy(dtype=str)
    rows = pd.Series(np.arange(len(items)), index=items["item_id"])[captions["video_id"]].to_numpy()
    # Any: to a type checker one of the names could be an option of savez, which is not an array.
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


def _csv_field(caption: str) -> str:
    """A caption as a CSV field, quoted only where it must be.

    >>> print(_csv_field('a dog'), _csv_field('a "big" dog, running'))
    a dog "a ""big"" dog, running"
    """
    return '"' + caption.replace('"', '""') + '"' if any(sign in caption for sign in ',"\n') else caption


# ---- Dummy data ----------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((20_000, 100_000), (2500, 12_500), (2500, 12_500), 25_000, "the challenge as published")
_DUMMY_WIDTHS = 1024, 1536  # of text and image embeddings, as in the challenge
_DUMMY_HIDDEN_WIDTH = 32
_DUMMY_CAPTIONS = 5  # of an image


def copy_first_items(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, str]:
    """Write the first images of each split of the user's own files, with all their captions, into ``folder``.

    A list of ids would not do: all vectors would be laid out all the same.
    """
    files = raw_embedding_files(dataset)
    archive = NpzArchive(files.train)
    plan = plan_rows(archive, files, dataset.source, f"config/datasets/{dataset.name}.yaml")
    images = pd.concat([plan.images[plan.images["split"] == split].head(sizes.counts()[split]) for split in SPLITS])
    captions = plan.captions[plan.captions["item_id"].isin(images["item_id"])]
    items = images[["item_id", "split"]].assign(path="").reset_index(drop=True)
    sentences = captions.rename(columns={"item_id": "video_id"})[["video_id", "caption"]].reset_index(drop=True)
    text, pictures = (
        _read_rows(archive, name, table["row"]) for name, table in ((TEXT_MATRIX, captions), (IMAGE_MATRIX, images))
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_challenge_files(folder, text, pictures, items, sentences)
    return _file_keys(folder)


@DUMMY_DATA.register("embeddings", published=PUBLISHED, first_items=copy_first_items)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Random unit vectors in which captions and their image share a direction; a test npz where one is named.

    Images have a hidden vector z, captions z plus noise, and each side is a random linear map of its own of these, so
    that methods have something to learn.
    """
    rng = np.random.default_rng(0)
    names = [(f"standin{split}{n:04}", split) for split, count in sizes.counts().items() for n in range(count)]
    items = pd.DataFrame(names, columns=["item_id", "split"]).assign(path="")
    owner = np.repeat(np.arange(len(items)), _DUMMY_CAPTIONS)  # row of the image of each caption
    sentences = [f"Stand-in {image}, told in way {n % _DUMMY_CAPTIONS}." for n, image in enumerate(owner)]
    captions = pd.DataFrame({"video_id": items["item_id"].to_numpy()[owner], "caption": sentences})
    image_hidden = rng.normal(size=(len(items), _DUMMY_HIDDEN_WIDTH))
    text_hidden = image_hidden[owner] + 0.3 * rng.normal(size=(len(owner), _DUMMY_HIDDEN_WIDTH))
    text, images = (
        _unit_rows(hidden @ rng.normal(size=(_DUMMY_HIDDEN_WIDTH, width)))
        for hidden, width in zip((text_hidden, image_hidden), _DUMMY_WIDTHS, strict=True)
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_challenge_files(folder, text, images, items, captions)
    keys = _file_keys(folder)
    if dataset.source.test:
        keys["test"] = str(folder / "test.npz")
        write_npz(folder / "test.npz", **{"captions/ids": np.arange(sizes.test), TEXT_MATRIX: text[-sizes.test :]})
    return keys


def _unit_rows(vectors: np.ndarray) -> np.ndarray:
    """The rows divided by their lengths, as float32.

    >>> _unit_rows(np.array([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _file_keys(folder: Path) -> dict[str, str]:
    files = {"train": "train.npz", "captions": "captions.txt", "splits": "splits.csv"}
    return {key: str(folder / name) for key, name in files.items()}


def _read_rows(archive: NpzArchive, name: str, rows: pd.Series) -> np.ndarray:
    """Some rows of a matrix, in the order of ``rows``; the matrix is read block by block, never as a whole."""
    numbers = rows.to_numpy()
    vectors: dict[int, np.ndarray] = {}
    for start, block in archive.blocks(name):
        for row in numbers[(numbers >= start) & (numbers < start + len(block))].tolist():
            vectors[row] = block[row - start]
    return np.stack([vectors[row] for row in numbers.tolist()])
