"""From a checkpoint to vectors of captions and items."""

from __future__ import annotations

from rewind.evaluation.embedding import vectors
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_npz
from rewind.jobs.given import Given
from rewind.jobs.model_data import data_folder


def export_vectors(given: Given) -> None:
    """Rule ``export_vectors``."""
    write_run_vectors(data_folder(given), given.input.model, given.output[0])


def write_run_vectors(data: DataFolder, model: str, result: str) -> None:
    """Write ``text``, ``items``, ``space``, ``query_ids`` and ``item_ids`` of the test split."""
    retriever = trained_retriever(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    found = vectors(retriever, split.text, split.inputs, data.spec.evaluation, device(), split.workers)
    write_npz(
        result,
        text=found.text,
        items=found.items,
        space=found.space,
        query_ids=split.captions["caption_id"].to_numpy(dtype=str),
        item_ids=split.items["item_id"].to_numpy(dtype=str),
    )
