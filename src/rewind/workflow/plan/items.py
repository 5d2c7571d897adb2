"""What jobs read of items: vectors, features of a frozen tower, stores of frames, or clips."""

from __future__ import annotations

from typing import Any

from rewind.config import Method, RunSpec
from rewind.config.evaluation import Evaluation
from rewind.errors import RewindError
from rewind.io.files import read_json
from rewind.workflow.plan.files import Files, Unwatched
from rewind.workflow.plan.study import StudyPlan


def uses_features(plan: StudyPlan, method: str) -> bool:
    """Whether a method's visual tower is frozen, so that its features are computed once."""
    return "visual" in plan.method(method).training.freeze


def cached_items(plan: StudyPlan, method: str, seed: int | None = None, frames: int | None = None) -> Files:
    """What a run reads of items: vectors, traces, features of a frozen tower, a frame store, or else clips."""
    if vectors := vector_index(plan):
        return {"vectors": vectors}
    if plan.method(method).reads_traces:
        return {"traces": plan.dataset.traces}
    if uses_features(plan, method):
        trial = plan.keys.frames_sweep.seed if frames and plan.keys.frames_sweep else None
        return {"features": feature_caches(plan, method, seed, frames, trial)}
    return pixel_files(plan, *([frames] if frames else frame_candidates(plan, method, seed)))


def vector_index(plan: StudyPlan) -> list[str]:
    """The index of a data set of vectors; of other data sets nothing."""
    return [f"{plan.dataset.folder}/source/embeddings.json"] if plan.dataset.keys.vectors else []


def feature_caches(
    plan: StudyPlan, method: str, seed: int | None = None, frames: int | None = None, trial: int | None = None
) -> list[str]:
    """Caches for a frozen visual tower: of one number of frames, or of all that the sweep may choose."""
    if not uses_features(plan, method):
        return []
    folder = f"{plan.folder}/features{plan.keys.features_suffix(method, seed, trial)}"
    numbers = [frames] if frames else frame_candidates(plan, method, seed)
    return [f"{folder}/frames{n}.npz" for n in numbers]


def pixel_files(plan: StudyPlan, *numbers: int) -> Files:
    """Where frames are read from: the stores for these numbers of them, or clips."""
    # Other jobs read too few clips to be worth a store, but read an existing one.
    wanted = _stored_numbers(plan) if plan.keys.frames.store else []
    stores = [f"{plan.folder}/frames/frames{n}" for n in numbers if n in wanted]
    if not stores:
        return plan.clip_files()
    # As with clips: the index alone decides what is stale.
    parts = [Unwatched(f"{store}/{part}") for store in stores for part in ("items.csv", "shards")]
    return {"store": [f"{store}/index.json" for store in stores], "frames": parts}


def _stored_numbers(plan: StudyPlan) -> list[int]:
    """Numbers of frames at which something learns from pixels, or features of them are computed more than once."""
    study = plan.keys
    learning = [method for method in study.trained() if not uses_features(plan, method)]
    again = len(study.pretraining_suffixes()) > 1
    numbers = list(frame_candidates(plan)) if learning or (again and study.trained()) else []
    return numbers + ([pretraining_frames(plan)] if study.pretraining else [])


def frame_candidates(plan: StudyPlan, method: str = "", seed: int | None = None) -> list[int]:
    """Values of max_frames that it may end up with; of a run that keeps its own, those that were tried for it."""
    if not plan.keys.frames_sweep:
        return [plan.keys.frames.max_frames]
    made = _made_with(plan, method, seed)
    if made and made["max_frames"] == plan.chosen_frames():
        return list(made["max_frames_tried"])
    return list(plan.keys.frames_sweep.max_frames)


def _made_with(plan: StudyPlan, method: str, seed: int | None) -> dict[str, Any] | None:
    """``run.json`` of a finished run of a study with a sweep, if it says what was tried; else nothing."""
    if seed is None or not plan.keys.frames_sweep:
        return None
    made = record_of_run(plan, method, seed)
    return made if {"max_frames", "max_frames_tried"} <= made.keys() else None


def record_of_run(plan: StudyPlan, method: str, seed: int) -> dict[str, Any]:
    """``run.json`` of a finished run; empty for one that is not trained yet, or kept in a bucket."""
    try:
        made = read_json(f"{plan.folder}/runs/{method}/seed{seed}/run.json")
    except (RewindError, OSError):
        return {}
    return made if isinstance(made, dict) else {}


def best_of_run(plan: StudyPlan, method: str, seed: int | None) -> str:
    """The file with the sweep's choice: a finished run is stale only where that is another than its own."""
    made = _made_with(plan, method, seed)
    return Unwatched(plan.best_file) if made and made["max_frames"] == plan.chosen_frames() else plan.best_file


def frame_view(plan: StudyPlan, frames: int) -> dict[str, Any]:
    """Which frames a store holds."""
    keys = plan.keys.frames.fingerprint("run", include={"size", "sampling", "rate", "fit"})
    return {"max_frames": frames, **keys}


def decoding_workers(plan: StudyPlan) -> int:
    return max(1, plan.keys.frames.workers)


def pretraining_frames(plan: StudyPlan) -> int:
    assert plan.keys.pretraining
    return plan.keys.pretraining.max_frames or plan.keys.frames.max_frames


def shared_spec(plan: StudyPlan, method: Method, evaluation: Evaluation) -> RunSpec:
    """Keys of what several methods share, without keys of single methods, such as noise in the place of clips."""
    keys = plan.keys
    return RunSpec(backbone=keys.backbone, frames=keys.frames, text=keys.text, evaluation=evaluation, method=method)


def feature_items(plan: StudyPlan, frames: int) -> Files:
    return pixel_files(plan, frames)


def features_weights(plan: StudyPlan, part: str) -> str | list[str]:
    """Weights of the pre-training that features of a path are of, if the study has any."""
    part = plan.checked_part(part, plan.keys.pretrains_per_seed or plan.keys.has_random_features)
    return plan.pretrained_weights(part) if plan.keys.pretraining else []


def features_spec(plan: StudyPlan) -> dict[str, Any]:
    """What the features of a frozen tower depend on: no method, no training key."""
    spec = features_run(plan).fingerprint()
    return {key: spec[key] for key in ("backbone", "frames", "text")}


def features_run(plan: StudyPlan) -> RunSpec:
    return shared_spec(plan, Method(), Evaluation())


def feature_threads(plan: StudyPlan) -> int:
    return plan.keys.resources.feature_threads or plan.keys.resources.threads
