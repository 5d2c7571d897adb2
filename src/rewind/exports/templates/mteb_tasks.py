"""MTEB tasks over the test split of one dataset: does a model know which way time runs?

    import mteb
    from FOLDER import tasks          # the folder of this file, on the path
    mteb.evaluate(model, tasks)

Needs mteb, datasets, torch and decord; Rewind, which wrote this folder with `rewind export mteb`, is not needed.

The scores ``expected_*`` are means over all orders of documents with equal scores. MTEB's own scores put the larger id
first, and a reversed clip has the id of its original with ``_rev`` appended: a model that cannot tell the two apart
always finds the reversed one, so its ``accuracy`` on a Binary task from forward captions is 0 instead of one half.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

FOLDER = Path(__file__).resolve().parent
MAX_KEPT_DOCUMENTS = 4000
"""Largest number of documents of a query that are kept with their scores."""
RECALL_CUTS = (1, 5, 10)


class Clip:
    """A video file with the methods of torchcodec's ``VideoDecoder`` that MTEB uses; opened at first use.

    A reversed clip shows exactly the frames that its original shows, in opposite order: asked for frames I of n, it
    reads frames n − 1 − I of its file, last to first. For a choice of frames that is symmetric in time this changes
    nothing. MTEB's own choice is not symmetric where it takes an odd number of an even number of frames, or more
    frames than there are.
    """

    def __init__(self, path: str, reversed: bool) -> None:
        self.path, self.reversed = path, reversed

    @functools.cached_property
    def _video(self) -> Any:
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        return decord.VideoReader(self.path, ctx=decord.cpu(0), num_threads=1)

    @functools.cached_property
    def metadata(self) -> SimpleNamespace:
        """Length and frame rate, by torchcodec's names."""
        frames, rate = len(self._video), float(self._video.get_avg_fps())
        return SimpleNamespace(
            num_frames=frames,
            average_fps=rate,
            begin_stream_seconds=0.0,
            end_stream_seconds=frames / rate,
            duration_seconds=frames / rate,
            rotation=None,
            pixel_aspect_ratio=None,
        )

    def __len__(self) -> int:
        return len(self._video)

    def __getitem__(self, index: int) -> torch.Tensor:
        """One frame, uint8 [3, height, width]."""
        return self.get_frames_at([range(len(self))[index]]).data[0]

    def get_frames_at(self, indices: Sequence[int]) -> SimpleNamespace:
        """The frames at ``indices``: ``data``, uint8 RGB [n, 3, height, width], and their times in seconds."""
        positions = [int(index) for index in indices]
        frames_read = positions
        if self.reversed and len(positions) > 1:
            frames_read = [len(self) - 1 - index for index in reversed(positions)]
        frames = torch.stack([torch.from_numpy(self._frame(index)) for index in frames_read])
        rate = self.metadata.average_fps
        return SimpleNamespace(
            data=frames.permute(0, 3, 1, 2).contiguous(),
            pts_seconds=torch.tensor(positions) / rate,
            duration_seconds=torch.full((len(positions),), 1 / rate),
        )

    def _frame(self, index: int) -> Any:
        frame = self._video[index].asnumpy()
        height, width, channels = frame.shape
        if channels == 3:
            return frame
        # decord gives padded rows whose length is a multiple of the width as pixels of more than three channels.
        return frame.reshape(height, -1)[:, : 3 * width].reshape(height, width, 3)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "reversed": self.reversed}


class Retrieval(AbsTaskRetrieval):  # type: ignore[misc]  # mteb is not always installed
    """One setting and direction; its queries, documents and relevance are in ``<name>.json`` next to this file."""

    data_loaded: bool  # of the base class, as is the next
    _top_k: int

    def load_data(self, num_proc: int | None = None, **kwargs: Any) -> None:
        """Read the lists; no clip is opened."""
        if self.data_loaded:
            return
        lists = _read(f"{self.metadata.name}.json")
        self.gallery = lists["gallery"]
        # All scores are kept, not only the best 1000: without them it is unknown how many are equal to the truth's.
        self._top_k = max(self._top_k, min(len(lists["documents"]), MAX_KEPT_DOCUMENTS))
        self.dataset = {
            "default": {
                "test": RetrievalSplitData(
                    queries=_table(lists["queries"]),
                    corpus=_table(lists["documents"]),
                    relevant_docs={
                        query: dict.fromkeys(documents, 1) for query, documents in lists["relevant"].items()
                    },
                    top_ranked=lists["candidates"],
                )
            }
        }
        self.data_loaded = True

    def task_specific_scores(
        self,
        scores: Mapping[str, Any],
        qrels: Mapping[str, Mapping[str, int]],
        results: Mapping[str, Mapping[str, float]],
        hf_split: str,
        hf_subset: str,
    ) -> dict[str, float]:
        """The expected scores if documents with equal scores are in random order.

        A query has ``higher`` documents above its best relevant one and ``ties`` others equal to it: recall at k is
        clip((k − higher) / (ties + 1), 0, 1), and its rank 1 + higher + ties / 2. Other relevant documents do
        not count.
        """
        counts = [_higher_and_ties(results[query], qrels[query], self.gallery) for query in results]
        recalls = {
            f"expected_recall_at_{cut}": sum(_expected_recall(cut, *count) for count in counts) / len(counts)
            for cut in RECALL_CUTS
        }
        ranks = [1 + higher + ties / 2 for higher, ties in counts]
        tied = sum(ties > 0 for _, ties in counts)
        return recalls | {"expected_mean_rank": sum(ranks) / len(ranks), "tied_queries": tied / len(counts)}


def _higher_and_ties(scores: Mapping[str, float], relevant: Mapping[str, int], gallery: int) -> tuple[int, int]:
    """Documents above the best relevant one, and others equal to it."""
    relevant_scores = [score for document, score in scores.items() if document in relevant]
    if not relevant_scores:  # it is somewhere among the documents that are not listed, each place equally likely
        return len(scores), max(0, gallery - len(scores) - len(relevant))
    best = max(relevant_scores)
    others = [score for document, score in scores.items() if document not in relevant]
    return sum(score > best for score in others), sum(score == best for score in others)


def _expected_recall(cut: int, higher: int, ties: int) -> float:
    return min(1.0, max(0.0, (cut - higher) / (ties + 1)))


def _read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def _table(rows: dict[str, list[str]]) -> Dataset:
    """A table of ids and texts, or of ids and clips, which are opened only when frames are asked for."""
    if "text" in rows:
        return Dataset.from_dict({"id": rows["id"], "text": rows["text"]})
    clips = _read("clips.json")
    files = [{"path": str(FOLDER / clips[item]["path"]), "reversed": clips[item]["reversed"]} for item in rows["item"]]
    return Dataset.from_dict({"id": rows["id"], "video": files}).with_transform(_with_clips)


def _with_clips(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Clips in place of the names of their files; a column of ids stays as it is, whatever else the table has."""
    return rows | {"video": [Clip(**clip) for clip in rows["video"]]} if "video" in rows else rows


def _make_task(entry: dict[str, Any]) -> Retrieval:
    metadata = TaskMetadata(
        dataset={"path": str(FOLDER), "revision": entry.pop("revision")},
        modalities=["text", "video"],
        eval_splits=["test"],
        main_score="expected_recall_at_1",
        **entry,
    )
    return type(metadata.name, (Retrieval,), {"metadata": metadata})()


tasks = [_make_task(entry) for entry in _read("tasks.json")] if (FOLDER / "tasks.json").exists() else []
