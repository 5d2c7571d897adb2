"""A study made small: every method and stage is kept, steps and seeds are few."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rewind.rehearsal import brought, work
from rewind.rehearsal.pictures import Sizes
from rewind.rehearsal.weights import Towers
from rewind.study import Study

Keys = dict[str, Any]
TITLE = "REHEARSAL"
PREFIX = "rehearsal_"
SEEDS = 2
STEP_WORK = 0.1e12  # FLOPs of a step, forward and backward, that a rehearsal takes on
LIGHT, HEAVY = Sizes(64, 12, 12), Sizes(8, 4, 4)
LARGEST_BATCH = 128
LIGHT_BATCH = 64  # a study whose steps of so many items are affordable makes more of them
LIGHT_STEPS = 3, 2  # epochs, and steps in each
HEAVY_STEPS = 1, 2


def small(study: Study, cwd: Path, towers: Towers, cores: int, gpus: int, real: bool = False) -> Keys:
    """The keys of a study for its rehearsal, as plain values.

    Args:
        study: the real one, validated.
        cwd: where its relative paths begin.
        towers: decides what stands in for weights.
        cores: of this machine; a job that asks for more threads gets one, so that others run beside it.
        gpus: of this machine; a job that asks for more gets these.
        real: whether items of the user's own data set are taken.
    """
    keys = absolute(study.model_dump(mode="json"), cwd)
    keys.pop("name")
    keys["title"] = f"{TITLE} of {study.title or study.name}: no result"
    keys["seeds"] = keys["seeds"][:SEEDS]
    keys["backbone"] = towers.rehearsed(keys["backbone"], "backbone", study.frames.size)
    cap = batch_cap(study, towers)
    for name, method in keys["methods"].items():
        if method["seeds"]:
            method["seeds"] = method["seeds"][:SEEDS]
        method["options"] = brought.rehearsed(keys, name, study.name, real, towers.notes)
        method["options"] = _options(method, towers, f"methods.{name}.options", study.frames.size)
    for block in _training_blocks(keys):
        _few_steps(block, cap, *(LIGHT_STEPS if cap >= LIGHT_BATCH else HEAVY_STEPS))
    if not gpus and halves_are_slow() and _in_single(keys):
        towers.notes.append(
            "training.precision: fp32 is rehearsed, because this machine has no GPU and its CPU is slow at bf16"
        )
    if keys["sanity"]:
        keys["sanity"] |= {"clips": min(keys["sanity"]["clips"], 8), "min_r1": 0.0}
    if keys["tables"]["verdict"]:
        keys["tables"]["verdict"]["rounds"] = 5
    keys["tables"]["prefix"] = PREFIX
    keys["frames"]["workers"] = min(keys["frames"]["workers"], 1)
    asked = keys["resources"]["gpus"]
    keys["resources"] |= {"require_gpu": False, "gpus": min(asked, gpus) if gpus else asked, "state_folder": None}
    for holder, name in (
        (keys["resources"], "threads"),
        (keys["resources"], "feature_threads"),
        (keys["pretraining"], "threads"),
    ):
        if holder and (holder[name] or 0) > cores:
            holder[name] = 1
    return keys


def _training_blocks(keys: Keys) -> list[Keys]:
    holders = [keys, *keys["methods"].values(), *(keys[part] for part in ("sanity", "sweep", "pretraining"))]
    return [holder["training"] for holder in holders if holder]


def halves_are_slow() -> bool:
    """Whether this CPU has to emulate bf16, which takes several times as long as fp32."""
    return not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _in_single(keys: Keys) -> bool:
    """Set every block's precision to fp32; whether any was another."""
    blocks = [block for block in _training_blocks(keys) if block["precision"] != "fp32"]
    for block in blocks:
        block["precision"] = "fp32"
    return bool(blocks)


def _few_steps(training: Keys, cap: int, epochs: int, steps: int) -> None:
    training["epoch_steps"] = min(training["epoch_steps"] or steps, steps)
    training["epochs"] = min(training["epochs"], epochs)
    training["evaluate_every"] = min(training["evaluate_every"], 2)
    batch = training["batch"]
    if batch["size"] > cap:
        # What comes in groups (captions of one item, clip and twin) still divides the batch.
        group = batch["sampler_options"].get("captions", 2)
        batch["size"] = max(group, cap // group * group)


def _options(method: Keys, towers: Towers, where: str, size: int) -> Keys:
    """Options that name towers of their own: a block ``backbone``, or the keys of one."""
    options = method["options"]
    if isinstance(options.get("backbone"), dict):
        return options | {"backbone": towers.rehearsed(options["backbone"], f"{where}.backbone", size)}
    named = options.get("weights") or options.get("pretrained")
    return towers.rehearsed(options, where, size) if named else options


def fewest_layers(study: Study) -> tuple[int, int]:
    """Layers that a study's visual and text towers must keep: some are frozen, and heads start from text blocks."""
    trained = [study.methods[name] for name in study.trained()]
    frozen = max([1, *(method.training.freeze_layers or 0 for method in trained)])
    heads = [method.head_layers for method in trained if method.model == "clip4clip" and method.head_start == "clip"]
    return frozen, max([frozen, *(heads if study.backbone.kind == "clip" else [])])


def pixels_per_step(study: Study) -> bool:
    """Whether any method learns through its visual tower."""
    return any("visual" not in study.methods[name].training.freeze for name in study.trained())


def batch_cap(study: Study, towers: Towers) -> int:
    """Largest batch whose step a rehearsal takes on; the study's own batches may be smaller."""
    most = max(study.sweep.max_frames if study.sweep else [study.frames.max_frames])
    flops = work.per_item(study.backbone.model_dump(), most, study.frames.size)
    if not flops or not pixels_per_step(study):
        return LARGEST_BATCH
    share = min(towers.shares.values(), default=1.0)
    return max(4, min(LARGEST_BATCH, int(STEP_WORK / (3 * flops * share))))


def sizes(study: Study, towers: Towers) -> Sizes:
    """How many items of each split a rehearsal sees."""
    cap = batch_cap(study, towers)
    if cap < LIGHT_BATCH:
        return HEAVY
    wanted = max(study.methods[name].training.batch.size for name in study.trained()) if study.trained() else 0
    return Sizes(min(cap, max(LIGHT.train, wanted)), LIGHT.valid, LIGHT.test)


def absolute(value: Any, cwd: Path) -> Any:
    """A value in which every text that names an existing file or folder, seen from ``cwd``, is an absolute path."""
    if isinstance(value, Mapping):
        return {name: absolute(part, cwd) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [absolute(part, cwd) for part in value]
    if isinstance(value, str) and ("/" in value or "." in value) and _is_path(cwd / value):
        return str((cwd / value).absolute())
    return value


def _is_path(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a zero in it
        return False
