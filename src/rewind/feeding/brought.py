"""Whether vectors and scores that somebody brings are those of a data set: by their ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from rewind.datasets.annotations import Annotations
from rewind.datasets.captions import SPLITS, load_split
from rewind.datasets.score_files import read_scores
from rewind.datasets.vector_files import some
from rewind.errors import RewindError
from rewind.files import read_csv, read_json
from rewind.models import vectors
from rewind.models.retriever import Retriever
from rewind.models.scores import GivenScores
from rewind.models.vectors import GivenVectors
from rewind.study import Method
from rewind.study.brought import files, options

RESULTS = "results"


def prepared(folder: Path, dataset: str) -> bool:
    """Whether the ids of a data set are known yet."""
    return (folder / "items.csv").is_file() and (folder / "captions" / f"{dataset}_test.csv").is_file()


@dataclass(frozen=True)
class Expected:
    """Which ids a data set has, by its annotations, before it is prepared.

    Attributes:
        annotations: its items and captions.
        where: files that they are from, for messages.
        whole: whether every test item can be used for certain. Clips that cannot be decoded are left out, and which
            these are is known once they are prepared.
    """

    annotations: Annotations
    where: str
    whole: bool


def check_files(method: Method, folder: Path, dataset: str, expected: Expected | None = None) -> None:
    """Refuse the files of one run: as they are, and by their ids, as far as those of the data set are known.

    Args:
        method: with the files of one seed.
        folder: ``results/data/<dataset>``, whose tables are believed where they are of the same annotations.
        expected: what annotations say; None: they cannot be read yet.

    Raises:
        RewindError: for the first fault.
    """
    keys = options(method)
    if any(Path(path).parts[0] == RESULTS and not Path(path).is_file() for path in files(method)):
        return  # a stage of the workflow makes it, and this run's own job looks at it
    if method.model == "scores":
        retriever: GivenScores | GivenVectors = GivenScores(read_scores(keys.file))
    else:
        retriever = vectors.read(keys)
    if expected is not None:
        _check_expected(retriever, expected, dataset)
    if prepared(folder, dataset) and (expected is None or _same_ids(folder, dataset, expected.annotations)):
        check_ids(retriever, folder, dataset)


def _check_expected(retriever: GivenScores | GivenVectors, expected: Expected, dataset: str) -> None:
    """As :func:`check_ids`, by the annotations; ids that are missing are told only where all items can be used."""
    items, captions = expected.annotations.items, expected.annotations.captions
    if isinstance(retriever, GivenScores):
        found = retriever.scores
        sides = [("caption", found.queries, found.where), ("item", found.items, found.where)]
    else:
        text, clips = retriever.all_text, retriever.all_items
        sides = [("caption", text.ids, text.where), ("item", clips.ids, clips.where)]
    known = {"caption": captions["caption_id"], "item": items["item_id"]}
    for what, ids, where in sides if "only" not in expected.annotations.notes else ():  # which is part of a larger set
        if strangers := np.setdiff1d(ids, known[what].to_numpy(dtype=str)).tolist():
            raise RewindError(
                f"{where}: no {what} of data set {dataset} is called so: {some(strangers)}; its {what}s are those of "
                f"{expected.where}, for example {known[what].iloc[0]!r}."
            )
    if expected.whole:
        of_test = [table[table["split"] == "test"].reset_index(drop=True) for table in (items, captions)]
        retriever.from_captions(*retriever.covers(*of_test))


def _same_ids(folder: Path, dataset: str, annotations: Annotations) -> bool:
    """Whether a data set was prepared from these annotations, and not from what they said before."""
    items = read_csv(folder / "items.csv")["item_id"]
    same = set(items) == set(annotations.items["item_id"])
    return same and set(_captions(folder, dataset)) == set(annotations.captions["caption_id"])


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
