"""Dummy files in the format of a dataset: drawn clips and pictures, or random embeddings, with captions.

:class:`RehearsalFormat` lists what a source format may offer to a rehearsal. Each built-in format has a subclass here,
found by its name in :data:`REHEARSAL_FORMATS`; a format of the user's own has the functions in its own module, beside
those that read it.
"""

from __future__ import annotations

import csv
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from rewind.config import Dataset
from rewind.data.annotations import SPLITS
from rewind.data.clip_writer import write_clip
from rewind.data.formats.embeddings import IMAGE_MATRIX, TEXT_MATRIX, plan_rows, raw_embedding_files
from rewind.data.formats.emoji import CLIP_PACKAGE, EMOJIBASE_PACKAGE, npm_package_name
from rewind.data.formats.shapes import CaptionedScene, compose_splits, random_style, render_scene, rtime_entry
from rewind.data.formats.stamps import STAMPS_FOLDER
from rewind.data.readers import NpzArchive
from rewind.encoders.encode_dataset import write_challenge_files
from rewind.io.files import write_json, write_npz, write_text
from rewind.models.registry import with_default_hooks

# ---- Dummy items: drawn clips and pictures with captions that are true of them -------------------------------------

# yuv420p stores colour for blocks of 2 × 2 pixels, so that both sides must be even: pad rounds them up.
FFMPEG_OPTIONS = "-pix_fmt yuv420p -crf 23 -vf pad=ceil(iw/2)*2:ceil(ih/2)*2"


@dataclass(frozen=True)
class SplitSizes:
    """Number of originals (items without reversed twins) of each split in a rehearsal.

    >>> SplitSizes(64, 12, 12).counts()
    {'train': 64, 'valid': 12, 'test': 12}
    """

    train: int
    valid: int
    test: int

    def counts(self) -> dict[str, int]:
        """The numbers by split."""
        return {"train": self.train, "valid": self.valid, "test": self.test}


@dataclass(frozen=True)
class DummyItem:
    """An item that is drawn: its name, its split, and the scene with its captions.

    >>> item = make_dummy_items(SplitSizes(1, 0, 0), captions=2)[0]
    >>> item.name, item.split, len(item.entry.captions(False))
    ('standintrain000', 'train', 2)
    """

    name: str
    split: str
    entry: CaptionedScene


def make_dummy_items(sizes: SplitSizes, captions: int) -> list[DummyItem]:
    """Dummy items of every split, in order; scenes are those of the dataset ``shapes``.

    Args:
        sizes: number of items.
        captions: captions of each item, in each direction of time.
    """
    splits = compose_splits(sizes.counts(), captions, seed=0)
    return [
        DummyItem(f"standin{split}{n:03}", split, entry) for split in SPLITS for n, entry in enumerate(splits[split])
    ]


def draw_clip(item: DummyItem, path: Path, side: int = 96, seconds: float = 9.0) -> None:
    """Write an item as an H.264 clip, ``side`` pixels wide and high, and ``seconds`` long."""
    style = random_style(item.name, side)
    frames = render_scene(item.entry.scene, style)
    path.parent.mkdir(parents=True, exist_ok=True)
    rate = f"{len(frames) * 1000}/{round(seconds * 1000)}"  # frames per second, as a fraction
    write_clip(path, frames.tobytes(), (style.width, style.height), rate, FFMPEG_OPTIONS)


def draw_picture(item: DummyItem, path: Path, side: int = 128) -> None:
    """Write the middle frame of an item as a picture, in the format of the file's suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(_render_frames(item, side, 3)[1]).save(path)


def draw_animation(item: DummyItem, path: Path, side: int = 64, count: int = 12) -> None:
    """Write an item as an animated picture of ``count`` frames (WebP or GIF)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = (Image.fromarray(frame) for frame in _render_frames(item, side, count))
    first.save(path, save_all=True, append_images=rest, duration=100, loop=0)  # 100 ms a frame, endless


def _render_frames(item: DummyItem, side: int, count: int) -> np.ndarray:
    """uint8 RGB [count, height, width, 3]."""
    return render_scene(item.entry.scene, replace(random_style(item.name, side), frames=count))


# ---- What a format may offer ---------------------------------------------------------------------------------------


class PublishedSizes(NamedTuple):
    """Sizes of a published dataset.

    Attributes:
        train, valid, test: number of items (reversed twins included) and of captions.
        originals: source files in all.
        source: which publication the numbers are of, for the report.

    >>> PublishedSizes((6000, 30_000), (1000, 5000), (1000, 5000), 8000, "Flickr8k").train
    (6000, 30000)
    """

    train: tuple[int, int]
    valid: tuple[int, int]
    test: tuple[int, int]
    originals: int
    source: str


class RehearsalFormat:
    """What a format may offer to a rehearsal, with the default of each.

    Attributes:
        PUBLISHED: sizes of the dataset that the format is named after; None where there is no such dataset.
    """

    PUBLISHED: PublishedSizes | None = None

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any] | None:
        """Write a few dummy items into ``folder``, in the files and layout that the format reads.

        Called where the user's own files are not there.

        Args:
            source: the block ``source`` of the dataset file.
            folder: where to write.
            sizes: number of items of each split; about so many will do where the format makes the split itself.

        Returns:
            Keys of ``source`` that must change for the files to be read; None, the default: not offered.
        """
        return None

    def part(self, dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any] | None:
        """Write a part of the user's own files into ``folder``, where a list of items (``only``) would not be enough.

        Called where the files are there.

        Returns:
            Keys of ``source`` that must change for the part to be read; None, the default: a list of items is enough.
        """
        return None


# ---- Formats of videos ---------------------------------------------------------------------------------------------


class ShapesFormat(RehearsalFormat):
    """Moving shapes: drawn as in the study, but fewer."""

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """As many clips as asked for, but no more than the study draws."""
        return {"clips": {split: min(count, source["clips"].get(split, 0)) for split, count in sizes.counts().items()}}


class RTimeFormat(RehearsalFormat):
    """RTime: a JSON file per split and a folder of clips."""

    # 21,537 videos, originals and reversed ones, with 210,000 captions; 500 and 1,000 originals of valid and test have
    # one human caption in each direction.
    PUBLISHED = PublishedSizes((18_537, 180_000), (1000, 1000), (2000, 2000), 21_537, "RTime as published")

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Ten captions in each direction, as in RTime; one training entry has no reverse, as with some there."""
        clips = make_dummy_items(sizes, 10)
        for clip in clips:
            draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
        for split in SPLITS:
            entries = {clip.name: rtime_entry(clip.entry) for clip in clips if clip.split == split}
            if split == "train":
                next(iter(entries.values()))["reverse"] = False
            write_json(folder / f"{split}.json", entries)
        annotations = {split: str(folder / f"{split}.json") for split in SPLITS}
        return {"annotations": annotations, "videos": str(folder / "videos"), "reversed_videos": None}


class InternVidFormat(RehearsalFormat):
    """InternVid: a CSV of captions and a clip per YouTube id; the reader draws the split itself."""

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """As many rows as give the training split that is asked for: a tenth of them is validation, a tenth test."""
        rows = max(round(sizes.train / 0.8), 10 * max(sizes.valid, sizes.test))
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["YoutubeID", "Start_timestamp", "End_timestamp", "Caption"])
            for clip in make_dummy_items(SplitSizes(rows, 0, 0), 1):
                draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
                writer.writerow([clip.name, "00:00:01.000", "00:00:10.000", clip.entry.captions(False)[0]])
        return {"captions": str(folder / "captions.csv"), "videos": str(folder / "videos")}


class EmojiFormat(RehearsalFormat):
    """Animated emoji: npm's packages unpacked, animations named by code points, and emojibase's labels."""

    # 734 clips; about two captions more for each training clip that has tags. The split is by subject, so about by
    # shares.
    PUBLISHED = PublishedSizes((294, 850), (73, 73), (367, 367), 734, "the packages' versions that the study names")
    _FIRST_CODE_POINT = 0xF0000  # a private-use plane of Unicode: no real emoji is there

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Animations that are each a subject of their own, so that the split by subject follows the source's shares."""
        train_share = 1 - source["test_share"] - source["valid_share"]
        count = max(round(sizes.train / train_share), round(sizes.valid / source["valid_share"]))
        package = folder / npm_package_name(CLIP_PACKAGE.format(source["packages"][0]))
        labels = []
        for number, item in enumerate(make_dummy_items(SplitSizes(min(count, 4 * sizes.train), 0, 0), 1)):
            code = f"{self._FIRST_CODE_POINT + number:x}"
            draw_animation(item, package / "assets" / f"{code}.webp")
            entry = item.entry
            labels.append(
                {
                    "hexcode": code.upper(),
                    "label": f"{entry.captions(False)[0].rstrip('.').lower()} {number}",
                    "tags": [entry.scene.shape, entry.scene.colour],
                }
            )
        write_json(folder / npm_package_name(EMOJIBASE_PACKAGE) / "en" / "data.json", labels)
        return {"folder": str(folder), "packages": source["packages"][:1]}


class TableFormat(RehearsalFormat):
    """One CSV and a folder of clips or images."""

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Two captions in each direction; the column ``reverse_caption`` where items are videos."""
        has_images = source.get("items") == "images"
        columns = ["item_id", "path", "split", "caption", "cluster_id"] + ["reverse_caption"] * (not has_images)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "captions.csv").open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(columns)
            for item in make_dummy_items(sizes, 2):
                path = f"{item.name}.{'png' if has_images else 'mp4'}"
                (draw_picture if has_images else draw_clip)(item, folder / "files" / path)
                for forward, backward in zip(item.entry.captions(False), item.entry.captions(True), strict=True):
                    writer.writerow([item.name, path, item.split, forward, item.name] + [backward] * (not has_images))
        return {"table": str(folder / "captions.csv"), "videos": str(folder / "files")}


# ---- Formats of images ---------------------------------------------------------------------------------------------


def _count_images(source: dict[str, Any], sizes: SplitSizes) -> int:
    """Number of images from which the source's shares give each split about the asked number, and no split is empty."""
    valid = source["valid_share"]
    test = 1 - source["train_share"] - valid
    return math.ceil(max(sizes.valid / valid, sizes.test / test)) + 2


class PhotosFormat(RehearsalFormat):
    """Captioned images: a JSON list and a folder; the reader draws the split itself."""

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Two captions of each image."""
        entries = []
        for item in make_dummy_items(SplitSizes(_count_images(source, sizes), 0, 0), 2):
            draw_picture(item, folder / "images" / f"{item.name}.jpg")
            entries += [{"file_name": f"{item.name}.jpg", "caption": caption} for caption in item.entry.captions(False)]
        write_json(folder / "captions.json", entries)
        return {"captions": str(folder / "captions.json"), "images": str(folder / "images")}


class Flickr8kFormat(RehearsalFormat):
    """Flickr8k: rows of image and caption, a folder of images, and Karpathy's split."""

    PUBLISHED = PublishedSizes((6000, 30_000), (1000, 5000), (1000, 5000), 8000, "Flickr8k in Karpathy's split")
    _KARPATHY_SPLITS: Mapping[str, str] = {"train": "train", "valid": "val", "test": "test"}

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Five captions of each image; a split file where the dataset names one."""
        split_sizes = sizes if source.get("split_file") else SplitSizes(_count_images(source, sizes), 0, 0)
        items, rows = make_dummy_items(split_sizes, 5), []
        for item in items:
            draw_picture(item, folder / "Images" / f"{item.name}.jpg")
            rows += [f'{item.name}.jpg,"{caption}"' for caption in item.entry.captions(False)]
        write_text(folder / "captions.txt", "\n".join(["image,caption", *rows]) + "\n")
        keys: dict[str, Any] = {"captions": str(folder / "captions.txt"), "images": str(folder / "Images")}
        if source.get("split_file"):
            images = [{"filename": f"{item.name}.jpg", "split": self._KARPATHY_SPLITS[item.split]} for item in items]
            write_json(folder / "dataset_flickr8k.json", {"images": images, "dataset": "flickr8k"})
            keys["split_file"] = str(folder / "dataset_flickr8k.json")
        return keys


class StampsFormat(RehearsalFormat):
    """Stamps of Tux Paint: the unpacked tree of Debian's package, a text file beside each picture."""

    PUBLISHED = PublishedSizes((348, 348), (74, 74), (76, 76), 498, "the package as it is in Debian 12")

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """One caption, and a translation below it."""
        for item in make_dummy_items(SplitSizes(_count_images(source, sizes), 0, 0), 1):
            path = folder / STAMPS_FOLDER / "shapes" / f"{item.name}.png"
            draw_picture(item, path)
            write_text(path.with_suffix(".txt"), f"{item.entry.captions(False)[0]}\nde.utf8=Eine Form.\n")
        return {"folder": str(folder)}


# ---- Embeddings of captions and images, in the files of Mamiglia's challenge ---------------------------------------

CHALLENGE_FILES = {"train": "train.npz", "captions": "captions.txt", "splits": "splits.csv"}  # key of source → file
CHALLENGE_WIDTHS = 1024, 1536  # of text and image embeddings
CAPTIONS_PER_IMAGE = 5
HIDDEN_WIDTH = 32


class EmbeddingsFormat(RehearsalFormat):
    """Embeddings of captions and images: an npz file, its captions and its split."""

    PUBLISHED = PublishedSizes((20_000, 100_000), (2500, 12_500), (2500, 12_500), 25_000, "the challenge as published")

    def stand_in(self, source: dict[str, Any], folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """Random unit vectors in which captions and their image share a direction; a test npz where one is named.

        Images have a hidden vector z, captions z plus noise, and each side is a random linear map of its own of these,
        so that methods have something to learn.
        """
        rng = np.random.default_rng(0)
        names = [(f"standin{split}{n:04}", split) for split, count in sizes.counts().items() for n in range(count)]
        items = pd.DataFrame(names, columns=["item_id", "split"]).assign(path="")
        owner = np.repeat(np.arange(len(items)), CAPTIONS_PER_IMAGE)  # row of the image of each caption
        sentences = [f"Stand-in {image}, told in way {n % CAPTIONS_PER_IMAGE}." for n, image in enumerate(owner)]
        captions = pd.DataFrame({"video_id": items["item_id"].to_numpy()[owner], "caption": sentences})
        image_hidden = rng.normal(size=(len(items), HIDDEN_WIDTH))
        text_hidden = image_hidden[owner] + 0.3 * rng.normal(size=(len(owner), HIDDEN_WIDTH))
        text, images = (
            unit_rows(hidden @ rng.normal(size=(HIDDEN_WIDTH, width)))
            for hidden, width in zip((text_hidden, image_hidden), CHALLENGE_WIDTHS, strict=True)
        )
        folder.mkdir(parents=True, exist_ok=True)
        write_challenge_files(folder, text, images, items, captions)
        keys = _challenge_keys(folder)
        if source.get("test"):
            keys["test"] = str(folder / "test.npz")
            write_npz(folder / "test.npz", **{"captions/ids": np.arange(sizes.test), TEXT_MATRIX: text[-sizes.test :]})
        return keys

    def part(self, dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
        """The first images of each split of the user's own files, with all their captions."""
        files = raw_embedding_files(dataset)
        archive = NpzArchive(files.train)
        plan = plan_rows(archive, files, dataset.source, f"config/datasets/{dataset.name}.yaml")
        images = pd.concat([plan.images[plan.images["split"] == split].head(sizes.counts()[split]) for split in SPLITS])
        captions = plan.captions[plan.captions["item_id"].isin(images["item_id"])]
        text = _read_rows(archive, TEXT_MATRIX, captions["row"])
        pictures = _read_rows(archive, IMAGE_MATRIX, images["row"])
        folder.mkdir(parents=True, exist_ok=True)
        items = images[["item_id", "split"]].assign(path="").reset_index(drop=True)
        sentences = captions.rename(columns={"item_id": "video_id"})[["video_id", "caption"]].reset_index(drop=True)
        write_challenge_files(folder, text, pictures, items, sentences)
        return _challenge_keys(folder)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """The rows divided by their lengths, as float32.

    >>> unit_rows(np.array([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _challenge_keys(folder: Path) -> dict[str, Any]:
    return {name: str(folder / file) for name, file in CHALLENGE_FILES.items()}


def _read_rows(archive: NpzArchive, name: str, rows: pd.Series) -> np.ndarray:
    """Some rows of a matrix, in the order of ``rows``; the matrix is read block by block, never as a whole."""
    numbers = rows.to_numpy()
    vectors: dict[int, np.ndarray] = {}
    for start, block in archive.blocks(name):
        for row in numbers[(numbers >= start) & (numbers < start + len(block))].tolist():
            vectors[row] = block[row - start]
    return np.stack([vectors[row] for row in numbers.tolist()])


# ---- The format of a name ------------------------------------------------------------------------------------------

REHEARSAL_FORMATS: Mapping[str, type[RehearsalFormat]] = {
    "embeddings": EmbeddingsFormat,
    "emoji": EmojiFormat,
    "flickr8k": Flickr8kFormat,
    "internvid": InternVidFormat,
    "photos": PhotosFormat,
    "rtime": RTimeFormat,
    "shapes": ShapesFormat,
    "stamps": StampsFormat,
    "table": TableFormat,
}
"""``source.format`` → what the built-in format offers; one without an entry offers nothing."""


def rehearsal_format(name: str) -> RehearsalFormat:
    """What a format offers to a rehearsal.

    Args:
        name: of a built-in format, or the dotted path of a module of the user's own.

    >>> rehearsal_format("rtime").PUBLISHED.originals
    21537
    """
    if "." not in name:
        return REHEARSAL_FORMATS.get(name, RehearsalFormat)()
    try:
        return with_default_hooks(importlib.import_module(name), RehearsalFormat)
    except ModuleNotFoundError:
        return RehearsalFormat()
