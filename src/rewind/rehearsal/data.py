"""A data set made small: the first items of the user's own files, or stand-ins in the same format."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.annotations import SPLITS, read_annotations
from rewind.datasets.cifar10 import CLASSES, FILE, SIDE, read_cifar10
from rewind.datasets.groups import NAMED, group_file
from rewind.datasets.photos import IMAGE_SUFFIXES
from rewind.errors import RewindError
from rewind.files import write_csv, write_text
from rewind.jobs.config import check_sources
from rewind.jobs.places import sources_folder, videos_folder
from rewind.jobs.presence import dataset_faults
from rewind.rehearsal.brought import STAND_IN
from rewind.rehearsal.formats import format_of
from rewind.rehearsal.pictures import Sizes
from rewind.rehearsal.shrink import TITLE, absolute
from rewind.rehearsal.weights import Towers
from rewind.study.dataset import Dataset
from rewind.study.encoding import encoding_of_side
from rewind.study.zero_shot import ZeroShot
from rewind.video.inventory import VIDEO_SUFFIXES, Folders

Keys = dict[str, Any]
SHARDS = 2


@dataclass
class Counts:
    """Items and captions of each split of a data set, as they are or as they are guessed.

    Attributes:
        items: by split, reversed twins included.
        captions: by split.
        originals: source files that are normalised.
        said: where the numbers are from.
        known: whether they are the data set's own, and not guessed.
    """

    items: dict[str, int]
    captions: dict[str, int]
    originals: int
    said: str
    known: bool = field(default=False)


def small(dataset: Dataset, cwd: Path, folder: Path, sizes: Sizes, towers: Towers) -> tuple[Keys, str]:
    """The keys of a data set for its rehearsal, and a sentence on what they read.

    Args:
        dataset: the real one, validated.
        cwd: where its relative paths begin; the process must be there.
        folder: where stand-ins and lists of items are written.
        sizes: originals of each split.
        towers: decides what stands in for encoders' weights.

    Raises:
        RewindError: where files are missing and the format has no stand-ins.
    """
    keys = dataset.model_dump(mode="json")
    keys.pop("name")
    keys["title"] = f"{TITLE} ({dataset.title or dataset.name})"
    if made_from := keys["source"].get("made_from"):
        for side in ("text", "image"):
            encoder = made_from[side]
            if encoder["encoder"] and encoding_of_side(dataset.source.made_from, side).local() is None:
                made_from[side] = {"encoder": STAND_IN, "name": encoder["name"]}
            elif encoder["name"] == "clip" and not encoder["encoder"]:
                made_from[side] = towers.rehearsed(encoder, f"source.made_from.{side}", made_from["size"])
        return absolute(keys, cwd), f"{dataset.name}: vectors made here from the items of {made_from['dataset']}"
    media = keys["image" if dataset.items == "images" else "video"]
    if not dataset.vectors:
        media |= {"shards": min(media["shards"], SHARDS), "workers": min(media["workers"], 2)}
    if there(dataset):
        changed, said = _part(dataset, folder, sizes)
        keys["max_missing"] = 1.0
    else:
        changed, said = _stand_in(dataset, folder, sizes)
        keys["clips"] = True  # those of a stand-in are drawn
    for name, value in changed.items():
        (keys if name == "only" else keys["source"])[name] = value
    if group_file(dataset) and not keys["only"]:
        keys["groups"] = _groups(dataset.name, keys, folder)
    return absolute(keys, cwd), said


def there(dataset: Dataset) -> bool:
    """Whether the files that a user brings are there."""
    if dataset.made_here and not dataset.vectors:
        return False
    return not dataset_faults(dataset)


def _part(dataset: Dataset, folder: Path, sizes: Sizes) -> tuple[Keys, str]:
    keys = None if dataset.only else format_of(dataset.source.format).part(dataset, folder, sizes)
    if keys is not None:
        return keys, f"{dataset.name}: the first of your own vectors"
    annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
    found = Folders(videos_folder(dataset), IMAGE_SUFFIXES if dataset.items == "images" else VIDEO_SUFFIXES)
    originals = annotations.items[annotations.items["reversed"] == 0]
    chosen: list[str] = []
    counts = {}
    for split in SPLITS:
        rows = originals[originals["split"] == split]
        names = zip(rows["item_id"], rows["source"], strict=True)
        present = (item for item, source in names if not dataset.clips or found.find(source) is not None)
        taken = [item for item, _ in zip(present, range(sizes.counts()[split]), strict=False)]
        chosen += taken
        counts[split] = len(taken)
    if empty := [split for split, count in counts.items() if not count and (originals["split"] == split).any()]:
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: not one {dataset.items[:-1]} of the {empty[0]} split is in "
            f"{found.root}, so the study could not run either. Put some there, or move the folder away to rehearse "
            "with stand-ins."
        )
    path = folder / "only.txt"
    write_text(path, "\n".join(chosen) + "\n")
    shown = ", ".join(f"{count} {split}" for split, count in counts.items())
    return {"only": str(path)}, f"{dataset.name}: the first of your own {dataset.items} ({shown})"


def _stand_in(dataset: Dataset, folder: Path, sizes: Sizes) -> tuple[Keys, str]:
    keys = format_of(dataset.source.format).stand_in(dataset.source.model_dump(mode="json"), folder, sizes)
    if keys is None:
        check_sources(dataset)  # says what is missing, if that is it
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.format: {dataset.source.format} has no stand-ins, and the "
            "files that it names are not here; add a function stand_in(source, folder, sizes) to its module."
        )
    if dataset.source.format == "shapes":
        return keys, f"{dataset.name}: fewer clips, drawn as in the study"
    return keys | {"only": None}, f"{dataset.name}: stand-ins, in files of the format {dataset.source.format}"


def _groups(name: str, keys: Keys, folder: Path) -> str:
    """In the place of a file of groups, which knows only the user's own items, one for those that stand in for them."""
    few = Dataset.model_validate({"name": name} | keys)
    if few.made_here and not few.vectors:
        return NAMED
    captions = read_annotations(few, "").captions
    ids = captions.loc[captions["split"] == "test", "caption_id"]
    table = pd.DataFrame({"caption_id": ids, "group": [f"group {n % 2 + 1}" for n in range(len(ids))]})
    write_csv(folder / "groups.csv", table)
    return str(folder / "groups.csv")


def counts_of(dataset: Dataset, origin: Dataset | None = None) -> Counts | None:
    """Sizes of the whole data set: counted in the user's annotations, else as published; None where nobody knows."""
    if origin is not None:  # vectors are made of originals alone
        return counts_of(origin)
    source = dataset.source
    if source.format == "shapes":
        items = {split: (1 + dataset.reverse) * count for split, count in source.clips.items()}
        captions = {split: count * (source.paraphrases if split == "train" else 1) for split, count in items.items()}
        return Counts(items, captions, sum(source.clips.values()), "the data set's file", True)
    ready = there(dataset) or (sources_folder(dataset.name) / "ready.json").is_file()
    if ready and not dataset.vectors:
        found = read_annotations(dataset, str(sources_folder(dataset.name)))
        items, captions = (table["split"].value_counts().to_dict() for table in (found.items, found.captions))
        originals = int((found.items["reversed"] == 0).sum())
        return Counts(items, captions, originals, "your annotations", True)
    published = format_of(source.format).PUBLISHED
    if published is None:
        return None
    pairs = dict(zip(SPLITS, published[:3], strict=True))
    return Counts(
        {split: pair[0] for split, pair in pairs.items()},
        {split: pair[1] for split, pair in pairs.items()},
        published.originals,
        published.said,
    )


def small_labelled(keys: ZeroShot, folder: Path) -> tuple[Keys, str]:
    """Keys of zero-shot classification on a few labelled images of the real file, or on noise in its format."""
    try:
        found = read_cifar10(keys.folder, keys.sha256).first(2 * len(CLASSES))
        said = f"zero-shot: the first {len(found.labels)} images of {keys.folder}"
        labels, planes = found.labels, found.images
    except RewindError:
        labels = np.arange(2 * len(CLASSES)) % len(CLASSES)
        planes = np.random.default_rng(0).integers(0, 256, (len(labels), SIDE, SIDE, 3))
        said = f"zero-shot: {keys.folder} has no {FILE}: noise is used instead of its images"
    records = np.concatenate([labels[:, None], planes.transpose(0, 3, 1, 2).reshape(len(labels), -1)], axis=1)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_bytes(records.astype(np.uint8).tobytes())
    return keys.model_dump(mode="json") | {"folder": str(folder), "sha256": None}, said
