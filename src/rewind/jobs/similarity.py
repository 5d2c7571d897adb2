"""From a checkpoint to its similarity matrix."""

from __future__ import annotations

from rewind.distributed import World, joined
from rewind.evaluation.similarity import similarity_matrix
from rewind.feeding.folder import DataFolder, device, trained_retriever
from rewind.files import write_npz
from rewind.jobs.given import Given
from rewind.jobs.launch import on_all_gpus
from rewind.jobs.model_data import data_folder


def similarity(given: Given) -> None:
    """Rule ``similarity``."""
    on_all_gpus(compute_similarity, data_folder(given), given.input.model, given.output[0], log=given.log)


def compute_similarity(data: DataFolder, model: str, result: str) -> None:
    """Score every test caption against every test item: one matrix serves Origin, Hard and Binary.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with joined() as world:
        _compute(data, model, result, world)


def _compute(data: DataFolder, model: str, result: str, world: World) -> None:
    retriever = trained_retriever(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    keys = data.spec.evaluation
    scores = similarity_matrix(retriever, split.text, split.inputs, keys, device(), world, split.workers)
    if world.rank == 0:
        write_npz(
            result,
            similarity=scores,
            query_ids=split.captions["caption_id"].to_numpy(dtype=str),
            item_ids=split.items["item_id"].to_numpy(dtype=str),
        )
