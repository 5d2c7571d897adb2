"""What is trained: the over-fitting check, pre-training, the sweep, trials, and runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rewind.config import RunSpec
from rewind.config.encoders import Encoding
from rewind.config.study import RunKey, with_method_keys
from rewind.config.training import Training, opposites_file
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.workflow.config import zero_shot_file
from rewind.workflow.plan.files import Files, Unwatched, user_files
from rewind.workflow.plan.items import (
    best_of_run,
    cached_items,
    feature_caches,
    pixel_files,
    pretraining_frames,
    record_of_run,
    shared_spec,
    vector_index,
)
from rewind.workflow.plan.study import StudyPlan

TRIAL_DIGITS = 8  # of the hash by which a trial is named


def weights_files(plan: StudyPlan) -> list[str]:
    """The backbone's weights file, or the files of its model, if the study names one."""
    return user_files([plan.keys.backbone.weights, *encoder_files(plan.keys.backbone.encoding())])


def encoder_files(encoding: Encoding | None) -> list[str]:
    return encoding.files() if encoding else []


def sanity_method(plan: StudyPlan) -> str:
    """The method that is over-fitted."""
    assert plan.keys.sanity  # the rule exists only for studies that have the check
    return plan.keys.sanity.method or plan.keys.trained()[0]


def sanity_items(plan: StudyPlan) -> Files:
    """What the check reads of items: as a run, but a study may pre-train towers that are frozen later."""
    if vectors := vector_index(plan):
        return {"vectors": vectors}
    most = plan.keys.frames.max_frames
    if not plan.keys.pretraining and (features := feature_caches(plan, sanity_method(plan), frames=most, trial=0)):
        return {"features": features}
    return pixel_files(plan, most)


def sanity_spec(plan: StudyPlan) -> RunSpec:
    assert plan.keys.sanity
    keys = plan.keys.sanity.training
    if plan.keys.pretraining:
        keys = keys.model_copy(update={"freeze": []})
    if keys.hard_negatives:  # the question is whether clips and captions belong together, with any loss
        keys = keys.model_copy(update={"hard_negatives": None, "objective": "infonce", "objective_options": {}})
    return plan.keys.run_spec(sanity_method(plan), keys)


def sanity_file(plan: StudyPlan) -> str | list[str]:
    """What says that the over-fitting check was passed, of studies that have it: it is waited for, and no more."""
    return Unwatched(f"{plan.folder}/sanity.json") if plan.keys.sanity else []


def pretraining_items(plan: StudyPlan) -> Files:
    """What it reads of items, and opposites of captions."""
    assert plan.keys.pretraining
    opposites = _opposites(plan, plan.keys.pretraining.training)
    return pixel_files(plan, pretraining_frames(plan)) | ({"opposites": opposites} if opposites else {})


def pretraining_spec(plan: StudyPlan) -> RunSpec:
    keys = plan.keys.pretraining
    assert keys
    evaluation = plan.keys.evaluation.model_copy(update={"zero_shot": None})
    return shared_spec(plan, keys.method.model_copy(update={"training": keys.training}), evaluation)


def pretraining_seed(plan: StudyPlan, part: str) -> int:
    part = plan.checked_part(part, plan.keys.pretrains_per_seed)
    return int(part.removeprefix("/seed")) if part else plan.keys.pretraining_seeds()[0]


def pretraining_threads(plan: StudyPlan) -> int:
    assert plan.keys.pretraining
    return plan.keys.pretraining.threads or plan.keys.resources.threads


def sweep_trial_inputs(plan: StudyPlan, frames: int) -> Files:
    assert plan.keys.frames_sweep
    return learning_inputs(plan, plan.keys.frames_sweep.method, frames=frames)


def sweep_trial_spec(plan: StudyPlan) -> RunSpec:
    assert plan.keys.frames_sweep
    return plan.keys.run_spec(plan.keys.frames_sweep.method, plan.keys.frames_sweep.training)


def sweep_trials(plan: StudyPlan) -> list[str]:
    """``run.json`` of every trial."""
    numbers = plan.keys.frames_sweep.max_frames if plan.keys.frames_sweep else []
    return [f"{plan.folder}/sweep/frames{n}.json" for n in numbers]


def trials_of(plan: StudyPlan, method: str) -> dict[str, dict[str, Any]]:
    """The keys of a method's trials by their names, which are hashes: a trial that is there is not run again."""
    return {stable_hash(keys)[:TRIAL_DIGITS]: keys for keys in plan.keys.trials_of(method)}


def trial_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a trial learns from: what a run does."""
    return learning_inputs(plan, method, seed) | {"best": plan.best_file}


def trial_spec(plan: StudyPlan, method: str, trial: str) -> RunSpec:
    trials = trials_of(plan, method)
    if trial not in trials:
        raise RewindError(f"{plan.name}/{method} has no trial {trial}; it has {', '.join(trials) or 'none'}.")
    tried = with_method_keys(plan.method(method), trials[trial])
    return plan.keys.model_copy(update={"methods": {method: tried}}).run_spec(method, tried.training)


def trial_records(plan: StudyPlan, method: str, seed: int) -> list[str]:
    """``run.json`` of every trial, in the order of :func:`trials_of`."""
    return [f"{plan.folder}/sweep/{method}/seed{seed}/trial.{name}.json" for name in trials_of(plan, method)]


def select_metric(plan: StudyPlan, method: str) -> str:
    return plan.method(method).training.select_metric


def choice_file(plan: StudyPlan, method: str, seed: int) -> str | list[str]:
    """The file with the keys that a run's trials chose, of methods that have any."""
    return plan.choice_of(method, plan.keys.trial_seed(seed)) if plan.keys.trials_of(method) else []


def choice_files(plan: StudyPlan, runs: Iterable[RunKey]) -> list[str]:
    """:func:`choice_file` of each of some runs that has any."""
    return [path for run in runs if isinstance(path := choice_file(plan, *run), str)]


def _choice_of_run(plan: StudyPlan, method: str, seed: int) -> str | list[str]:
    """:func:`choice_file`; a finished run is stale only where other keys were chosen than its own."""
    path = choice_file(plan, method, seed)
    if not isinstance(path, str):
        return path
    made = record_of_run(plan, method, seed).get("tuned")
    if made is None:
        return path
    return Unwatched(path) if made == plan.chosen_keys(method, plan.keys.trial_seed(seed)) else path


def train_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a run learns from; for precomputed vectors and scores, what is checked of them."""
    if not plan.method(method).precomputed:
        return learning_inputs(plan, method, seed) | {"tuned": _choice_of_run(plan, method, seed)}
    # Ids of all splits are known ids; the record of vectors holds notes for the tables.
    files = precomputed_inputs(plan, method, seed) | plan.captions("valid")
    return files | {"encoded": _encoding_records(plan, files["brought"])}


def learning_inputs(plan: StudyPlan, method: str, seed: int | None = None, frames: int | None = None) -> Files:
    """Without a number of frames it reads the sweep's choice; without a seed, the study's first pre-training."""
    files: Files = {
        "item_table": plan.item_table(),
        **plan.captions("train", "valid"),
        "described": plan.described(),
        **cached_items(plan, method, seed, frames),
    }
    if not frames:
        files["best"] = best_of_run(plan, method, seed)
        if _validates_zero_shot(plan, method):
            files["zero_shot"] = zero_shot_images(plan)
    files["weights"] = weights_files(plan)
    files["opposites"] = _opposites(
        plan, plan.keys.frames_sweep.training if frames and plan.keys.frames_sweep else plan.method(method).training
    )
    if plan.keys.sanity:
        files["sanity"] = sanity_file(plan)
    if plan.keys.pretraining:
        starts_there = plan.method(method).uses_study_backbone
        part = plan.keys.pretraining_suffix(method, seed)
        files["pretrained"] = plan.pretrained_weights(part) if starts_there else []
    return files


def _opposites(plan: StudyPlan, *trained: Training) -> list[str]:
    """The files of hard negatives that are trained with."""
    named = dict.fromkeys(opposites_file(training) for training in trained)
    return user_files([path for path in named if path])


def precomputed_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What such a run is made of: no sweep, no pre-training, no over-fitting check comes before it."""
    return {
        "item_table": plan.item_table(),
        **plan.captions("train", "test"),
        "described": plan.described(),
        "brought": user_files(plan.method(method).precomputed_files(seed)),
    }


def _encoding_records(plan: StudyPlan, paths: Iterable[str]) -> list[str]:
    """The records next to vectors that rules make by name."""
    made = f"{plan.dataset.folder}/vectors/"
    folders = dict.fromkeys(path.rpartition("/")[0] for path in paths if path.startswith(made))
    return [f"{folder}/record.json" for folder in folders]


def known_choice(plan: StudyPlan, method: str, seed: int) -> str | list[str]:
    """:func:`choice_file` as part of a run that is there: where it changes, so does the run's file."""
    path = choice_file(plan, method, seed)
    return Unwatched(path) if isinstance(path, str) else path


def zero_shot_images(plan: StudyPlan) -> list[str]:
    """The file of labelled images, if the study names one."""
    return user_files(zero_shot_file(plan.keys))


def _validates_zero_shot(plan: StudyPlan, method: str) -> bool:
    """Whether every validation of a method also classifies labelled images."""
    return zero_shot_in_training(plan) and method in plan.keys.trained()


def zero_shot_in_training(plan: StudyPlan) -> bool:
    keys = plan.keys.evaluation.zero_shot
    return keys is not None and keys.validation_images != 0


def step_time_inputs(plan: StudyPlan) -> Files:
    timed = [plan.method(name).training for name in plan.timed_methods()]
    return learning_inputs(plan, plan.timed_methods()[0]) | {
        "opposites": _opposites(plan, *timed),
        "tuned": choice_files(plan, [(name, plan.keys.seeds[0]) for name in plan.timed_methods()]),
    }


def timed_specs(plan: StudyPlan) -> dict[str, Any]:
    return {name: plan.keys.run_spec(name, plan.method(name).training).fingerprint() for name in plan.timed_methods()}
