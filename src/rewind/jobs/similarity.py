"""What a model computes over a data set: features of frozen towers, similarity matrices, exported vectors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch

from rewind.data.annotations import SPLITS
from rewind.data.captions import load_split
from rewind.distributed import World, join_process_group
from rewind.evaluation.embedding import compute_embeddings
from rewind.evaluation.similarity import similarity_matrix
from rewind.io.files import atomic_write, write_npz
from rewind.jobs.inputs import build_run_data
from rewind.loading.encode import encode_all_items, to_main_memory, tower_features
from rewind.loading.run_data import RunData, build_untrained_model, job_device, load_trained_model
from rewind.models.checkpoint import visual_hash
from rewind.progress import Progress
from rewind.training.loop import seed_everything
from rewind.workflow.job import Job
from rewind.workflow.launch import run_on_all_gpus

# ---- Features of frozen towers, computed once and shared by every run ----------------------------------------------


def features(job: Job) -> None:
    """Rule ``features``; a wildcard ``/seed<k>`` means towers drawn with that seed."""
    seed = job.wildcards.get("part", "").removeprefix("/seed")
    compute_features(build_run_data(job), job.output[0], int(seed or 0))


@torch.inference_mode()
def compute_features(data: RunData, path: str, seed: int = 0) -> None:
    """Write the frame features of all usable items, and prepared captions where the text tower is frozen too.

    The npz holds ``item_ids``, ``frames`` float32 (n, T, F), ``mask`` (n, T), ``tower``, the hash of the tower that
    encoded them, and with a frozen sentence encoder ``caption_ids`` and ``text``.

    Args:
        data: where items and captions are, and the keys of the backbone.
        path: the npz file.
        seed: a tower without weights is drawn with it, as in a run with that seed.
    """
    seed_everything(seed)
    retriever = build_untrained_model(data)
    assert retriever.backbone is not None  # the rule names no method, so it is the default one with the study's towers
    backbone = retriever.backbone.eval().to(job_device())
    splits = [load_split(data.folder, data.dataset, split) for split in SPLITS]
    items = pd.concat([split.items for split in splits], ignore_index=True)
    progress = Progress("features", len(items), "clips")
    encoded = encode_all_items(
        lambda batch: to_main_memory(tower_features(backbone, batch)),
        data.inputs(items),
        data.spec.evaluation.batch_size,
        job_device(),
        workers=data.spec.frames.workers,
        done=progress.advance,
    )
    arrays = {
        "tower": np.array(visual_hash(backbone)),
        "item_ids": items["item_id"].to_numpy(dtype=str),
        "frames": encoded["frames"].numpy(),
        "mask": encoded["mask"].numpy(),
    }
    if backbone.caches_text:
        captions = pd.concat([split.captions for split in splits], ignore_index=True)
        arrays["caption_ids"] = captions["caption_id"].to_numpy(dtype=str)
        arrays["text"] = backbone.prepare_text(captions["caption"].tolist()).cpu().numpy()
    with atomic_write(path) as temporary:
        np.savez(temporary, **arrays)


# ---- Similarity matrix of a trained model --------------------------------------------------------------------------


def similarity(job: Job) -> None:
    """Rule ``similarity``."""
    run_on_all_gpus(compute_similarity, build_run_data(job), job.input.model, job.output[0], log=job.log)


def compute_similarity(data: RunData, model: str, result: str) -> None:
    """Score every test caption against every test item: one matrix serves Origin, Hard and Binary.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with join_process_group() as world:
        _compute_similarity(data, model, result, world)


def _compute_similarity(data: RunData, model: str, result: str, world: World) -> None:
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    keys = data.spec.evaluation
    scores = similarity_matrix(retriever, split.text, split.inputs, keys, job_device(), world, split.workers)
    if world.rank == 0:
        write_npz(
            result,
            similarity=scores,
            query_ids=split.captions["caption_id"].to_numpy(dtype=str),
            item_ids=split.items["item_id"].to_numpy(dtype=str),
        )


# ---- Vectors of captions and items of a trained model --------------------------------------------------------------


def export_vectors(job: Job) -> None:
    """Rule ``export_vectors``."""
    write_run_vectors(build_run_data(job), job.input.model, job.output[0])


def write_run_vectors(data: RunData, model: str, result: str) -> None:
    """Write vectors of the test split as npz: ``text``, ``items``, ``space``, ``query_ids`` and ``item_ids``."""
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    embeddings = compute_embeddings(
        retriever, split.text, split.inputs, data.spec.evaluation, job_device(), split.workers
    )
    write_npz(
        result,
        text=embeddings.text,
        items=embeddings.items,
        space=embeddings.space,
        query_ids=split.captions["caption_id"].to_numpy(dtype=str),
        item_ids=split.items["item_id"].to_numpy(dtype=str),
    )
