"""A dataset made small: the first items of the user's own files, or dummy files in the same format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rewind.cli.rehearse.dummy_data import SplitSizes, rehearsal_format
from rewind.cli.rehearse.shrink import RANDOM_ENCODER, REHEARSAL_TITLE, absolute_paths
from rewind.cli.rehearse.weights import ConfigValues, RehearsedTowers
from rewind.config.dataset import Dataset
from rewind.config.evaluation import ZeroShot
from rewind.data.annotations import SPLITS, read_annotations
from rewind.data.formats.cifar10 import CIFAR10_CLASSES, IMAGE_SIDE, TEST_BATCH_FILE, read_cifar10
from rewind.data.formats.photos import IMAGE_SUFFIXES
from rewind.data.groups import AUTO_GROUPS, group_file
from rewind.errors import RewindError
from rewind.io.files import write_csv, write_text
from rewind.video.sources import VIDEO_SUFFIXES, SourceFinder, sources_folder, videos_folder
from rewind.workflow.config import check_sources
from rewind.workflow.preflight.files import dataset_faults

MAX_REHEARSED_SHARDS = 2


@dataclass
class DatasetCounts:
    """Numbers of items and captions of a dataset, counted or assumed.

    Attributes:
        items: by split, reversed twins included.
        captions: by split.
        originals: source files that are normalised.
        said: where the numbers are from, for the report.
        known: whether they were counted in this dataset, and not assumed.

    >>> counts = DatasetCounts({"train": 16, "test": 20}, {"train": 80, "test": 20}, 18, "your annotations", True)
    >>> counts.items["test"]
    20
    """

    items: dict[str, int]
    captions: dict[str, int]
    originals: int
    said: str
    known: bool = False


def shrink_dataset(
    dataset: Dataset, cwd: Path, folder: Path, sizes: SplitSizes, towers: RehearsedTowers
) -> tuple[ConfigValues, str]:
    """The configuration of a dataset for its rehearsal, and a sentence about what it reads.

    Args:
        dataset: the real one, validated.
        cwd: folder of its relative paths; it must be the process's working folder.
        folder: where dummy files and lists of items are written.
        sizes: originals of each split.
        towers: replaces encoders' weights that are not there.

    Raises:
        RewindError: where files are missing and the format offers no dummy files.
    """
    keys = dataset.model_dump(mode="json")
    keys.pop("name")
    keys["title"] = f"{REHEARSAL_TITLE} ({dataset.title or dataset.name})"
    if made_from := keys["source"].get("made_from"):
        for side in ("text", "image"):
            encoder = made_from[side]
            # None for a built-in network.
            encoding = dataset.source.made_from.encoding(side) if encoder["encoder"] else None
            if encoding is not None and encoding.local() is None:
                made_from[side] = {"encoder": RANDOM_ENCODER, "name": encoder["name"]}
            elif encoder["name"] == "clip" and not encoder["encoder"]:
                made_from[side] = towers.rehearsed(encoder, f"source.made_from.{side}", made_from["size"])
        return absolute_paths(keys, cwd), f"{dataset.name}: vectors made here from the items of {made_from['dataset']}"
    media_keys = keys["image" if dataset.items == "images" else "video"]
    if not dataset.vectors:
        media_keys |= {
            "shards": min(media_keys["shards"], MAX_REHEARSED_SHARDS),
            "workers": min(media_keys["workers"], 2),
        }
    if sources_present(dataset):
        changes, note = _take_first_items(dataset, folder, sizes)
        keys["max_missing"] = 1.0
    else:
        changes, note = _make_dummy_data(dataset, folder, sizes)
        keys["clips"] = True  # dummy items have drawn clips, also where the real dataset has captions alone
    for name, value in changes.items():
        (keys if name == "only" else keys["source"])[name] = value
    if group_file(dataset) and not keys["only"]:
        keys["groups"] = _make_dummy_groups(dataset.name, keys, folder)
    return absolute_paths(keys, cwd), note


def sources_present(dataset: Dataset) -> bool:
    """Whether the files that the user has to provide are there."""
    if dataset.made_here and not dataset.vectors:
        return False
    return not dataset_faults(dataset)


def _take_first_items(dataset: Dataset, folder: Path, sizes: SplitSizes) -> tuple[ConfigValues, str]:
    keys = None if dataset.only else rehearsal_format(dataset.source.format).part(dataset, folder, sizes)
    if keys is not None:
        return keys, f"{dataset.name}: the first of your own vectors"
    annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
    finder = SourceFinder(videos_folder(dataset), IMAGE_SUFFIXES if dataset.items == "images" else VIDEO_SUFFIXES)
    originals = annotations.items[annotations.items["reversed"] == 0]
    item_ids: list[str] = []
    counts = {}
    for split in SPLITS:
        rows = originals[originals["split"] == split]
        names = zip(rows["item_id"], rows["source"], strict=True)
        existing = (item for item, source in names if not dataset.clips or finder.find(source) is not None)
        first = [item for item, _ in zip(existing, range(sizes.counts()[split]), strict=False)]
        item_ids += first
        counts[split] = len(first)
    if empty := [split for split, count in counts.items() if not count and (originals["split"] == split).any()]:
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: not one {dataset.items[:-1]} of the {empty[0]} split is in "
            f"{finder.root}, so the study could not run either. Put some there, or move the folder away to rehearse "
            "with stand-ins."
        )
    path = folder / "only.txt"
    write_text(path, "\n".join(item_ids) + "\n")
    summary = ", ".join(f"{count} {split}" for split, count in counts.items())
    return {"only": str(path)}, f"{dataset.name}: the first of your own {dataset.items} ({summary})"


def _make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> tuple[ConfigValues, str]:
    keys = rehearsal_format(dataset.source.format).stand_in(dataset.source.model_dump(mode="json"), folder, sizes)
    if keys is None:
        check_sources(dataset)  # says what is missing, if that is it
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.format: {dataset.source.format} has no stand-ins, and the "
            "files that it names are not here; add a function stand_in(source, folder, sizes) to its module."
        )
    if dataset.source.format == "shapes":
        return keys, f"{dataset.name}: fewer clips, drawn as in the study"
    return keys | {"only": None}, f"{dataset.name}: stand-ins, in files of the format {dataset.source.format}"


def _make_dummy_groups(name: str, keys: ConfigValues, folder: Path) -> str:
    """A file of groups for dummy items, in place of the user's, which knows only the user's own captions."""
    dummy = Dataset.model_validate({"name": name} | keys)
    if dummy.made_here and not dummy.vectors:
        return AUTO_GROUPS
    captions = read_annotations(dummy, "").captions
    ids = captions.loc[captions["split"] == "test", "caption_id"]
    table = pd.DataFrame({"caption_id": ids, "group": [f"group {n % 2 + 1}" for n in range(len(ids))]})
    write_csv(folder / "groups.csv", table)
    return str(folder / "groups.csv")


def count_dataset(dataset: Dataset, origin: Dataset | None = None) -> DatasetCounts | None:
    """Sizes of the whole dataset: counted in the user's annotations, else as published; None where unknown.

    Args:
        dataset: the real one.
        origin: the dataset that its embeddings are made from; then the sizes are those of this one.
    """
    if origin is not None:
        return count_dataset(origin)
    source = dataset.source
    if source.format == "shapes":
        items = {split: (1 + dataset.reverse) * count for split, count in source.clips.items()}
        captions = {split: count * (source.paraphrases if split == "train" else 1) for split, count in items.items()}
        return DatasetCounts(items, captions, sum(source.clips.values()), "the data set's file", True)
    is_prepared = sources_present(dataset) or (sources_folder(dataset.name) / "ready.json").is_file()
    if is_prepared and not dataset.vectors:
        annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
        items, captions = (
            table["split"].value_counts().to_dict() for table in (annotations.items, annotations.captions)
        )
        originals = int((annotations.items["reversed"] == 0).sum())
        return DatasetCounts(items, captions, originals, "your annotations", True)
    published = rehearsal_format(source.format).PUBLISHED
    if published is None:
        return None
    pairs = dict(zip(SPLITS, published[:3], strict=True))
    return DatasetCounts(
        {split: pair[0] for split, pair in pairs.items()},
        {split: pair[1] for split, pair in pairs.items()},
        published.originals,
        published.source,
    )


def shrink_labelled_images(keys: ZeroShot, folder: Path) -> tuple[ConfigValues, str]:
    """Keys of zero-shot classification on a few labelled images of the real file, or on noise in its format.

    CIFAR-10's binary format has 1 + 3072 bytes for an image: the label, then the red, green and blue planes.

    Args:
        keys: the block ``evaluation.zero_shot`` of the real study.
        folder: where the file is written.

    Returns:
        The block for the rehearsal, and a sentence about the images.
    """
    try:
        images = read_cifar10(keys.folder, keys.sha256).first(2 * len(CIFAR10_CLASSES))
        note = f"zero-shot: the first {len(images.labels)} images of {keys.folder}"
        labels, pixels = images.labels, images.images
    except RewindError:
        labels = np.arange(2 * len(CIFAR10_CLASSES)) % len(CIFAR10_CLASSES)
        pixels = np.random.default_rng(0).integers(0, 256, (len(labels), IMAGE_SIDE, IMAGE_SIDE, 3))
        note = f"zero-shot: {keys.folder} has no {TEST_BATCH_FILE}: noise is used instead of its images"
    records = np.concatenate([labels[:, None], pixels.transpose(0, 3, 1, 2).reshape(len(labels), -1)], axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TEST_BATCH_FILE).write_bytes(records.astype(np.uint8).tobytes())
    return keys.model_dump(mode="json") | {"folder": str(folder), "sha256": None}, note
