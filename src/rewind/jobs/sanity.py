"""The over-fitting check: a tiny subset must be learnt by heart before real runs start."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.captions import load_split
from rewind.distributed import World, joined
from rewind.errors import RewindError
from rewind.feeding.folder import Prepared, build_retriever, device
from rewind.files import digest, write_json
from rewind.jobs.given import Given
from rewind.jobs.launch import on_all_gpus
from rewind.jobs.splits import check_splits
from rewind.jobs.training_job import Job, training_job
from rewind.jobs.validation import validator
from rewind.models.retriever import Retriever
from rewind.study.model import Sanity
from rewind.training.loop import seed_everything, train
from rewind.training.state import StateFile


def sanity(given: Given) -> None:
    """Rule ``sanity``."""
    job, keys = training_job(given), Sanity(**given.params.settings)
    on_all_gpus(sanity_check, job, keys, Path(given.output[0]), log=given.log)


def sanity_check(job: Job, keys: Sanity, result: Path) -> None:
    """Over-fit a tiny subset of the training split; nothing else starts unless this succeeds.

    Raises:
        RewindError: with advice, if training R@1 stays below ``keys.min_r1``.
    """
    with joined() as world:
        _sanity_check(job, keys, result, world)


def _sanity_check(job: Job, keys: Sanity, result: Path, world: World) -> None:
    seed_everything(job.seed, job.spec.method.training.deterministic)
    folder = job.folder()
    check_splits(folder.folder, job.spec, job.name)
    retriever = build_retriever(folder)
    folder.check_tower(retriever)
    items, captions, _ = load_split(folder.folder, job.dataset, "train")
    originals = items[items["reversed"] == 0]
    chosen = originals.sample(min(keys.clips, len(originals)), random_state=job.seed).sort_index()
    described = captions[captions["video_id"].isin(chosen["item_id"])].drop_duplicates("video_id")
    described = described.drop_duplicates("caption")  # two clips under one caption cannot both come first
    chosen = chosen[chosen["item_id"].isin(described["video_id"])].reset_index(drop=True)
    split = folder.prepare(chosen, described.reset_index(drop=True), retriever)
    state = StateFile(job.state, digest(job.state_file().fingerprint, keys.signature()))
    rows = _train_on_itself(retriever, split, job, state, world)
    best = max(row.get("valid_R@1", 0.0) for row in rows) / 100
    print(f"sanity: training R@1 {best:.3f} on {len(chosen)} clips (at least {keys.min_r1} needed)")
    if best < keys.min_r1:
        raise RewindError(
            f"sanity: {job.name} reaches a training R@1 of only {best:.2f} on {len(chosen)} clips, {keys.min_r1} is "
            "needed before real runs start. Look at videos/report.csv and a few captions: do they belong together? "
            "Then try a larger sanity.training.lr or backbone_lr_multiplier, more sanity.training.epochs, or "
            "pretrained backbone.weights."
        )
    if world.rank == 0:
        found = {"method": job.name, "clips": len(chosen), "train_R@1": round(best, 4), "needed": keys.min_r1}
        write_json(result, found)
        state.remove()


def _train_on_itself(
    retriever: Retriever, split: Prepared, job: Job, state: StateFile, world: World
) -> list[dict[str, float]]:
    workers = job.spec.frames.workers
    return train(
        retriever,
        split.training_data(),
        job.spec.method.training,
        job.seed,
        device(),
        validator(split, "test", job.spec.evaluation, device(), world, workers),
        state,
        job.name,
        workers,
        world,
    )
