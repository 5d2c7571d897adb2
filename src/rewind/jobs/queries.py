"""Which queries a study asks and what succeeds or fails together, from its data set alone: no run is needed."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.datasets import shapes
from rewind.datasets.annotations import Annotations, part, read_annotations
from rewind.datasets.archive import Archive
from rewind.datasets.captions import load_split
from rewind.datasets.embedding_files import raw_files
from rewind.datasets.embedding_rows import make_plan
from rewind.errors import RewindError
from rewind.evaluation.settings import pool
from rewind.jobs.places import annotation_files, sources_folder
from rewind.study import Dataset, load_dataset

READY = "ready.json"  # written when a source that the workflow makes is whole


class Asked(NamedTuple):
    """The queries of a setting.

    Attributes:
        sizes: (C,) queries of each cluster; None where the data set is not here.
        source: where this is from, or why it is not known.
    """

    sizes: np.ndarray | None
    source: str


def asked(dataset: str, setting: str, direction: str, datasets: Path, results: Path) -> Asked:
    """Count the test queries of a setting and their clusters.

    From the prepared data set; else from its annotations, when no clip has been looked at yet, so that clips which
    turn out to be broken are still counted.

    Args:
        dataset: name of the data set.
        setting, direction: as in ``evaluation``.
        datasets: folder of data set files.
        results: folder of all results.

    Raises:
        RewindError: for a faulty data set file or annotations, or a setting that the data cannot have.
    """
    folder = results / "data" / dataset
    table = folder / "captions" / f"{dataset}_test.csv"
    if (folder / "items.csv").is_file() and table.is_file():
        found = load_split(folder, dataset, "test")
        return _count(found.items, found.captions, setting, direction, f"usable in {table}")
    path = datasets / f"{dataset}.yaml"
    if not path.is_file():
        return Asked(None, f"{path} is missing")
    chosen = load_dataset(dataset, datasets)
    try:
        annotations = known_annotations(chosen, results)
    except RewindError as error:
        if "." not in chosen.source.format:
            raise
        return Asked(None, str(error).rstrip("."))  # which files a format of one's own needs only it can say
    if annotations is None:
        return Asked(None, f"the dataset {dataset} is not here yet")
    items, captions = (rows[rows["split"] == "test"] for rows in (annotations.items, annotations.captions))
    if captions.empty:
        raise RewindError(f"{path}: the annotations have no caption in the split 'test'; add some.")
    return _count(items, captions, setting, direction, f"counted in the annotations of {path}, before reading clips")


def known_annotations(dataset: Dataset, results: Path) -> Annotations | None:
    """Items and captions as far as they can be known without making or fetching anything."""
    made = results.parent / sources_folder(dataset.name)
    if dataset.source.format == "shapes":
        with TemporaryDirectory() as folder:
            shapes.write_annotations(dataset.source, Path(folder))
            return read_annotations(dataset, folder)
    if dataset.made_here and (made / READY).is_file():
        return read_annotations(dataset, str(made))
    fetched = dataset.made_here and not dataset.vectors
    if fetched or not all(Path(path).is_file() for path in annotation_files(dataset)):
        return None
    return _of_vectors(dataset) if dataset.vectors else read_annotations(dataset, str(made))


def _of_vectors(dataset: Dataset) -> Annotations:
    """Items and captions of vectors that are not laid out for training yet."""
    files = raw_files(dataset)
    plan = make_plan(Archive(files.train), files, dataset.source, f"config/datasets/{dataset.name}.yaml")
    items = plan.images.assign(cluster_id=plan.images["item_id"], reversed=0)
    captions = plan.captions.rename(columns={"item_id": "video_id", "id": "caption_id"})
    captions = captions.assign(split=captions["video_id"].map(items.set_index("item_id")["split"]))
    found = Annotations(items, captions)
    return found if dataset.only is None else part(found, dataset.only)


def _count(items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str, source: str) -> Asked:
    return Asked(cluster_sizes(items, captions, setting, direction), source)


def cluster_sizes(items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str) -> np.ndarray:
    """(C,) queries of each cluster, of the queries that ``rank_table`` ranks in this setting and direction.

    Raises:
        RewindError: for a setting that needs twins where there are none.
    """
    items, captions = items.reset_index(drop=True), captions.reset_index(drop=True)
    chosen = pool(setting, captions, items)
    owners = captions["video_id"].iloc[chosen.captions]
    if direction == "item_to_text" and not chosen.binary:
        owners = owners.drop_duplicates()  # items ask, each once
    clusters = items.set_index("item_id")["cluster_id"].loc[owners]
    return clusters.value_counts(sort=False).to_numpy()
