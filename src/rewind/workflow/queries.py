"""Which queries a study asks and which of them form a cluster (are not independent), only from its data set.

No run is needed: the counts come from the prepared data set, or else from its annotations.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import pandas as pd

from rewind.config import Dataset, load_dataset
from rewind.data.annotations import Annotations, read_annotations, select_originals
from rewind.data.captions import load_split
from rewind.data.formats import shapes
from rewind.data.formats.embeddings import plan_rows, raw_embedding_files
from rewind.data.readers import NpzArchive
from rewind.errors import RewindError
from rewind.evaluation.ranking import setting_selection
from rewind.video.sources import READY_FILE, annotation_files, sources_folder
from rewind.workflow.checksums import verify_files_below


class QueryClusters(NamedTuple):
    """The queries of a setting."""

    sizes: np.ndarray | None  # (C,) queries of each cluster; None where the data set is missing
    source: str  # where the counts are from, or why they are not known


def query_clusters(dataset: str, setting: str, direction: str, datasets: Path, results: Path) -> QueryClusters:
    """Count the test queries of a setting and their clusters.

    The counts are from the prepared data set, else from its annotations. In the latter case no clip has been read yet,
    so clips that turn out to be broken are still counted.

    Raises:
        RewindError: for a faulty data set file or annotations, or a setting that the data cannot have.
    """
    folder = results / "data" / dataset
    table = folder / "captions" / f"{dataset}_test.csv"
    if (folder / "items.csv").is_file() and table.is_file():
        verify_files_below(folder, "items.csv", "captions/*.csv")
        split = load_split(folder, dataset, "test")
        return _count_clusters(split.items, split.captions, setting, direction, f"usable in {table}")
    path = datasets / f"{dataset}.yaml"
    if not path.is_file():
        return QueryClusters(None, f"{path} is missing")
    data_set = load_dataset(dataset, datasets)
    try:
        annotations = known_annotations(data_set, results)
    except RewindError as error:
        if "." not in data_set.source.format:
            raise
        return QueryClusters(None, str(error).rstrip("."))  # only a format of the user's own knows which files it needs
    if annotations is None:
        return QueryClusters(None, f"the dataset {dataset} does not exist yet")
    items, captions = (rows[rows["split"] == "test"] for rows in (annotations.items, annotations.captions))
    if captions.empty:
        raise RewindError(f"{path}: the annotations have no caption in the split 'test'; add some.")
    return _count_clusters(
        items, captions, setting, direction, f"counted in the annotations of {path}, before reading clips"
    )


def known_annotations(dataset: Dataset, results: Path) -> Annotations | None:
    """Items and captions where they can be known without making or fetching anything; else None."""
    sources = results.parent / sources_folder(dataset.name)
    if dataset.source.format == "shapes":
        with TemporaryDirectory() as folder:
            shapes.write_annotations(dataset.source, Path(folder))
            return read_annotations(dataset, folder)
    if dataset.made_here and (sources / READY_FILE).is_file():
        return read_annotations(dataset, str(sources))
    fetched = dataset.made_here and not dataset.vectors
    if fetched or not all(Path(path).is_file() for path in annotation_files(dataset)):
        return None
    return _annotations_of_vectors(dataset) if dataset.vectors else read_annotations(dataset, str(sources))


def _annotations_of_vectors(dataset: Dataset) -> Annotations:
    """Items and captions of a data set of vectors whose files have not been rewritten for training yet."""
    files = raw_embedding_files(dataset)
    plan = plan_rows(NpzArchive(files.train), files, dataset.source, f"config/datasets/{dataset.name}.yaml")
    items = plan.images.assign(cluster_id=plan.images["item_id"], reversed=0)
    captions = plan.captions.rename(columns={"item_id": "video_id", "id": "caption_id"})
    captions = captions.assign(split=captions["video_id"].map(items.set_index("item_id")["split"]))
    annotations = Annotations(items, captions)
    return annotations if dataset.only is None else select_originals(annotations, dataset.only)


def _count_clusters(
    items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str, source: str
) -> QueryClusters:
    return QueryClusters(cluster_sizes(items, captions, setting, direction), source)


def cluster_sizes(items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str) -> np.ndarray:
    """(C,) queries of each cluster, of the queries that ``rank_table`` ranks in this setting and direction."""
    items, captions = items.reset_index(drop=True), captions.reset_index(drop=True)
    selection = setting_selection(setting, captions, items)
    owners = captions["video_id"].iloc[selection.captions]
    if direction == "item_to_text" and not selection.binary:
        owners = owners.drop_duplicates()  # items are the queries here, each once
    clusters = items.set_index("item_id")["cluster_id"].loc[owners]
    return clusters.value_counts(sort=False).to_numpy()
