"""Whether vectors and scores that somebody brings are those of a data set: by their ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from rewind.datasets.captions import SPLITS, load_split
from rewind.datasets.score_files import read_scores
from rewind.datasets.vector_files import some
from rewind.errors import RewindError
from rewind.files import read_csv, read_json
from rewind.models.retriever import Retriever
from rewind.models.scores import GivenScores
from rewind.models.vectors import GivenVectors, given_vectors
from rewind.study import Method
from rewind.study.brought import files, options

RESULTS = "results"


def prepared(folder: Path, dataset: str) -> bool:
    """Whether the ids of a data set are known yet."""
    return (folder / "items.csv").is_file() and (folder / "captions" / f"{dataset}_test.csv").is_file()


def check_files(method: Method, folder: Path, dataset: str) -> None:
    """Refuse the files of one run: as they are, and, where the data set is prepared, by their ids.

    Args:
        method: with the files of one seed.
        folder: ``results/data/<dataset>``.

    Raises:
        RewindError: for the first fault.
    """
    keys = options(method)
    if any(Path(path).parts[0] == RESULTS and not Path(path).is_file() for path in files(method)):
        return  # a stage of the workflow makes it, and this run's own job looks at it
    if method.model == "scores":
        retriever: Retriever = GivenScores(read_scores(keys.file))
    else:
        retriever = given_vectors(keys)
    if prepared(folder, dataset):
        check_ids(retriever, folder, dataset)


def check_ids(retriever: Retriever, folder: Path, dataset: str) -> None:
    """Refuse ids that the data set does not have, and test ids that have no vector.

    Ids of other splits may be there. Where no twin of the test split has a vector, captions of twins need none.

    Raises:
        RewindError: naming the ids.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    known = {"item": read_csv(folder / "items.csv")["item_id"], "caption": _captions(folder, dataset)}
    if isinstance(retriever, GivenScores):
        scores = retriever.scores
        given = [("caption", scores.queries, scores.where), ("item", scores.items, scores.where)]
    elif isinstance(retriever, GivenVectors):
        text, clips = retriever.all_text, retriever.all_items
        given = [("caption", text.ids, text.where), ("item", clips.ids, clips.where)]
    else:
        return
    part = "only" in read_json(folder / "captions" / "report.json").get("annotations", {})  # of a larger data set
    for what, ids, where in given if not part else ():
        if strangers := np.setdiff1d(ids, known[what].to_numpy(dtype=str)).tolist():
            file = folder / "items.csv" if what == "item" else folder / "captions"
            raise RewindError(
                f"{where}: no {what} of data set {dataset} is called so: {some(strangers)}; the ids are in {file}."
            )
    retriever.from_captions(*retriever.covers(items, captions))


def _captions(folder: Path, dataset: str) -> pd.Series:
    files = [folder / "captions" / f"{dataset}_{split}.csv" for split in SPLITS]
    return pd.concat([read_csv(path)["caption_id"] for path in files if path.is_file()], ignore_index=True)
