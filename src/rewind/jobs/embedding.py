"""From a checkpoint to vectors of captions and items."""

from __future__ import annotations

from rewind.evaluation.embedding import vectors
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_npz


def compute_embedding(data: DataFolder, model: str, result: str) -> None:
    """Write ``text``, ``items``, ``space``, ``query_ids`` and ``item_ids`` of the test split."""
    retriever = trained_retriever(data, model)
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
