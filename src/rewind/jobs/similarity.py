"""From a checkpoint to its similarity matrix."""

from __future__ import annotations

from rewind.evaluation.similarity import similarity_matrix
from rewind.files import write_npz
from rewind.jobs.data import DataFolder, build_retriever, device
from rewind.training.checkpoint import load_model


def compute_similarity(data: DataFolder, model: str, result: str) -> None:
    """Score every test caption against every test item: one matrix serves Origin, Hard and Binary."""
    retriever = build_retriever(data)
    load_model(model, retriever)
    split = data.split("test", retriever)
    scores = similarity_matrix(retriever, split.text, split.inputs, data.spec.evaluation, device())
    write_npz(
        result,
        similarity=scores,
        query_ids=split.captions["caption_id"].to_numpy(dtype=str),
        item_ids=split.items["item_id"].to_numpy(dtype=str),
    )
