"""Which vector belongs to which caption and image, who is in which split, and in which order rows are kept."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.datasets.annotations import SPLITS
from rewind.datasets.archive import Archive
from rewind.datasets.caption_lines import Names, read_caption_lines
from rewind.datasets.embedding_files import Files
from rewind.datasets.photos import item_id
from rewind.errors import RewindError
from rewind.reading.tables import Columns, Row, read_table
from rewind.study.embeddings import EmbeddingsSource

COLUMNS = Columns(("image", "split"), ("path",), ids=("image",))
TEXT, IMAGES = "captions/embeddings", "images/embeddings"


class Plan(NamedTuple):
    """Rows of the npz in the order in which they are kept: by split, images by name, captions by image.

    ``images`` has a row per image: name, item_id, split, path, row. ``captions`` has a row per caption: item_id, id,
    caption, row.
    """

    images: pd.DataFrame
    captions: pd.DataFrame


def make_plan(archive: Archive, files: Files, keys: EmbeddingsSource, where: str) -> Plan:
    """Who belongs to whom, who is in which split, and in which order rows are kept.

    Raises:
        RewindError: for names, ids and lines that do not fit together.
    """
    names = Names(archive.strings("images/names"), str(archive.path))
    _count(archive, "images/names", len(names.names), IMAGES)
    lines = read_caption_lines(files.captions, names)
    total = archive.member(TEXT).shape[0]
    if len(lines) != total:
        raise RewindError(
            f"{files.captions}: {len(lines):,} captions, but {archive.path} has {total:,} caption vectors; there must "
            "be one line per vector, in the same order."
        )
    ids = _ids(archive, total)
    texts = _texts(archive, [line.caption for line in lines], files.captions, [line.number for line in lines])
    images = _split_table(names.names, files.splits, keys, where)
    images = images.sort_values(["order", "name"], kind="stable").drop(columns="order").reset_index(drop=True)
    place = np.empty(len(images), dtype=np.int64)
    place[images["row"]] = np.arange(len(images))
    owner = np.array([line.image for line in lines])
    order = np.argsort(place[owner], kind="stable")
    captions = pd.DataFrame(
        {
            "item_id": images["item_id"].to_numpy()[place[owner[order]]],
            "id": [ids[row] for row in order],
            "caption": [texts[row] for row in order],
            "row": order,
        }
    )
    return Plan(images, captions)


def split_images(names: list[str], keys: EmbeddingsSource, where: str) -> dict[str, str]:
    """The split of every image, as the original draws it, with a test split cut off after its validation split.

    Names are sorted and shuffled by ``numpy.random.default_rng(seed)``; the first ``int(valid_share · n)`` are valid,
    the next ``int(test_share · n)`` test (at least one each).

    Raises:
        RewindError: if nothing is left to train on.
    """
    shuffled = sorted(names)
    np.random.default_rng(keys.seed).shuffle(shuffled)
    valid, test = (max(1, int(len(names) * share)) for share in (keys.valid_share, keys.test_share))
    if valid + test >= len(names):
        raise RewindError(f"{where}: source: {len(names)} images leave nothing to train on; more images are needed.")
    kinds = ["valid"] * valid + ["test"] * test + ["train"] * (len(names) - valid - test)
    return dict(zip(shuffled, kinds, strict=True))


def _count(archive: Archive, name: str, count: int, matrix: str) -> None:
    rows = archive.member(matrix).shape[0]
    if count != rows:
        raise RewindError(f"{archive.path}: {count:,} values in {name!r}, but {rows:,} rows in {matrix!r}.")


def caption_ids(archive: Archive) -> list[str]:
    """Ids of the captions as text.

    Raises:
        RewindError: if one is there twice.
    """
    numbers = archive.member("captions/ids").dtype.kind in "iu"
    ids = list(map(str, archive.integers("captions/ids"))) if numbers else archive.strings("captions/ids")
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        if name in first:
            raise RewindError(f"{archive.path}: caption id {name!r} is in rows {first[name]} and {row}; keep one.")
        first[name] = row
    return ids


def _ids(archive: Archive, total: int) -> list[str]:
    if "captions/ids" not in archive:
        return list(map(str, range(total)))
    ids = caption_ids(archive)
    _count(archive, "captions/ids", len(ids), TEXT)
    return ids


def _texts(archive: Archive, said: list[str], where: str, lines: list[int]) -> list[str]:
    """The captions; those of the npz and of captions.txt must agree, or rows are not in the same order."""
    if "captions/text" not in archive:
        return said
    texts = [" ".join(text.split()) for text in archive.strings("captions/text")]
    _count(archive, "captions/text", len(texts), TEXT)
    differ = [row for row, (one, two) in enumerate(zip(texts, said, strict=True)) if two and _bare(one) != _bare(two)]
    if differ:
        row = differ[0]
        raise RewindError(
            f"{where}: {len(differ):,} captions differ from those of {archive.path}, first in line {lines[row]}: "
            f"{said[row]!r}, but row {row} of it is {texts[row]!r}; the lines must be in the order of the vectors."
        )
    return texts


def _bare(caption: str) -> str:
    return "".join(letter for letter in caption.casefold() if letter.isalnum())


def _split_table(names: list[str], splits: str | None, keys: EmbeddingsSource, where: str) -> pd.DataFrame:
    """name, item_id, split, path, row and the split's place for every image."""
    table = pd.DataFrame({"name": names, "item_id": [item_id(name) for name in names], "row": range(len(names))})
    twice = table[table["item_id"].duplicated(keep=False)]
    if len(twice):
        one, two = twice["name"].iloc[0], twice["name"][twice["item_id"] == twice["item_id"].iloc[0]].iloc[1]
        raise RewindError(f"{where}: images {one!r} and {two!r} would both get the id {twice['item_id'].iloc[0]!r}.")
    if splits is None:
        split, path = split_images(names, keys, where), {}
    else:
        split, path = _given_splits(splits, set(names))
    table = table.assign(split=table["name"].map(split), path=table["name"].map(path).fillna(""))
    return table.assign(order=table["split"].map(SPLITS.index))[["name", "item_id", "split", "path", "row", "order"]]


def _given_splits(path: str, names: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    given: dict[str, Row] = {}
    for row in read_table(path, COLUMNS):
        image, split = row.cells["image"], row.cells["split"]
        if split not in SPLITS:
            raise RewindError(f"{path}: row {row.number}: split {split!r} is not one of {', '.join(SPLITS)}.")
        if image not in names:
            raise RewindError(f"{path}: row {row.number}: image {image!r} has no vector.")
        if first := given.get(image):
            where = "there already" if first.cells["split"] == split else f"in {first.cells['split']!r} already"
            raise RewindError(
                f"{path}: row {row.number}: image {image!r} (split {split!r}) is {where}, in row {first.number}; one "
                "row per image is needed."
            )
        given[image] = row
    if absent := sorted(names - set(given)):
        raise RewindError(f"{path}: image {absent[0]!r} has no split; one row per image is needed.")
    splits = {image: row.cells["split"] for image, row in given.items()}
    if empty := [split for split in SPLITS if split not in set(splits.values())]:
        raise RewindError(f"{path}: no image is in split {empty[0]!r}.")
    return splits, {image: row.cells.get("path", "") for image, row in given.items()}
