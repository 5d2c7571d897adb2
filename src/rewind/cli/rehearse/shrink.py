"""A study made small: every method and stage is kept, with few steps and seeds, and dummy files where some lack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rewind.cli.rehearse import weights
from rewind.cli.rehearse.dummy_data import SplitSizes
from rewind.cli.rehearse.weights import ConfigValues, RehearsedTowers
from rewind.config import Study
from rewind.config.encoders import SCORING_OPTIONS, Encoding
from rewind.config.methods import FILE_OPTIONS, PRECOMPUTED_MODELS

# ---- Options of methods whose model is files, or an encoder found by name ------------------------------------------

OptionValues = dict[str, Any]
RANDOM_ENCODER = "rewind.cli.rehearse.random_encoder"


def rehearsal_options(keys: OptionValues, name: str, study: str, uses_own_data: bool, notes: list[str]) -> OptionValues:
    """Options of a method as rehearsed: the user's own where they can be used, else those of a substitute.

    Args:
        keys: the configuration of the study, its methods included, with paths of existing files made absolute.
        name: the method.
        study: the study's name.
        uses_own_data: whether items are taken from the user's own dataset: precomputed embeddings then fit them.
        notes: a sentence for each substitute is added.
    """
    method = keys["methods"][name]
    options = method["options"]
    if method["model"] not in PRECOMPUTED_MODELS:
        return options
    if "encoder" in options:
        return _encoder_options(options, name, notes)
    results = f"results/{study}/"
    files = [path for option in FILE_OPTIONS[method["model"]] for path in _path_list(options.get(option))]
    if all(path.startswith(results) or (uses_own_data and Path(path).is_file()) for path in files):
        return _options_of_seeds(options, method["seeds"])
    if method["model"] == "vectors":
        notes.append(f"methods.{name}: random vectors stand in for your files")
        return {"encoder": RANDOM_ENCODER, "name": "random"} | {k: v for k, v in options.items() if k == "score"}
    others = [other for other, block in keys["methods"].items() if block["model"] != "scores"]
    seed = (keys["methods"][others[0]]["seeds"] or keys["seeds"])[0] if others else 0
    notes.append(f"methods.{name}: scores of another method stand in for your file")
    return {"file": f"{results}similarity/{others[0]}/seed{seed}.npz"} if others else options


def _encoder_options(options: OptionValues, name: str, notes: list[str]) -> OptionValues:
    encoder_options = {key: value for key, value in options.items() if key not in SCORING_OPTIONS}
    if Encoding(**encoder_options).local() is not None or options["encoder"] == RANDOM_ENCODER:
        return {key: value for key, value in options.items() if key not in ("captions", "items")}
    notes.append(f"methods.{name}: random vectors stand in for {options['encoder']} {options['name']}")
    frames = {key: options[key] for key in ("max_frames", "sampling", "rate", "score") if key in options}
    return {"encoder": RANDOM_ENCODER, "name": options["name"]} | frames


def _options_of_seeds(options: OptionValues, seeds: list[int]) -> OptionValues:
    """Options that have a file for each seed, with those of the rehearsed seeds alone."""
    rehearsed = {str(seed) for seed in seeds or []}
    return {
        key: {seed: path for seed, path in value.items() if str(seed) in rehearsed}
        if isinstance(value, Mapping)
        else value
        for key, value in options.items()
    }


def _path_list(value: Any) -> list[str]:
    return [str(path) for path in value.values()] if isinstance(value, Mapping) else [str(value)]


# ---- The configuration of a whole study ----------------------------------------------------------------------------

REHEARSAL_TITLE = "REHEARSAL"
TABLE_PREFIX = "rehearsal_"
REHEARSED_SEEDS = 2
MAX_STEP_FLOPS = 0.1e12  # FLOPs of a training step, forward and backward, that a rehearsal can afford
MAX_BATCH = 128
MIN_LIGHT_BATCH = 64  # a study is light if it can afford steps of so many items, and heavy otherwise
LIGHT_SIZES, HEAVY_SIZES = SplitSizes(64, 12, 12), SplitSizes(8, 4, 4)
LIGHT_STEPS = 3, 2  # epochs, and steps in each
HEAVY_STEPS = 1, 2


def shrink_study(
    study: Study, cwd: Path, towers: RehearsedTowers, cores: int, gpus: int, uses_own_data: bool = False
) -> ConfigValues:
    """The configuration of a study for its rehearsal, as plain values.

    Args:
        study: the real one, validated.
        cwd: folder of its relative paths.
        towers: replaces weights that are not there.
        cores: of this machine; a job that asks for more threads gets one, so that others run beside it.
        gpus: of this machine; a job that asks for more gets these.
        uses_own_data: whether items are taken from the user's own dataset.
    """
    keys = absolute_paths(study.model_dump(mode="json"), cwd)
    keys.pop("name")
    keys["title"] = f"{REHEARSAL_TITLE} of {study.title or study.name}: no result"
    keys["seeds"] = keys["seeds"][:REHEARSED_SEEDS]
    keys["backbone"] = towers.rehearsed(keys["backbone"], "backbone", study.frames.size)
    cap = batch_cap(study, towers)
    for name, method in keys["methods"].items():
        if method["seeds"]:
            method["seeds"] = method["seeds"][:REHEARSED_SEEDS]
        method["options"] = rehearsal_options(keys, name, study.name, uses_own_data, towers.notes)
        method["options"] = _tower_options(method, towers, f"methods.{name}.options", study.frames.size)
    for block in _training_blocks(keys):
        _limit_steps(block, cap, *(LIGHT_STEPS if cap >= MIN_LIGHT_BATCH else HEAVY_STEPS))
    if not gpus and bf16_is_slow() and _use_fp32(keys):
        towers.notes.append(
            "training.precision: fp32 is rehearsed, because this machine has no GPU and its CPU is slow at bf16"
        )
    if keys["sanity"]:
        keys["sanity"] |= {"clips": min(keys["sanity"]["clips"], 8), "min_r1": 0.0}
    if keys["tables"]["verdict"]:
        keys["tables"]["verdict"]["rounds"] = 5
    keys["tables"]["prefix"] = TABLE_PREFIX
    keys["frames"]["workers"] = min(keys["frames"]["workers"], 1)
    gpus_per_job = keys["resources"]["gpus"]
    keys["resources"] |= {
        "require_gpu": False,
        "gpus": min(gpus_per_job, gpus) if gpus else gpus_per_job,
        "state_folder": None,
    }
    for holder, name in (
        (keys["resources"], "threads"),
        (keys["resources"], "feature_threads"),
        (keys["pretraining"], "threads"),
    ):
        if holder and (holder[name] or 0) > cores:
            holder[name] = 1
    return keys


def _training_blocks(keys: ConfigValues) -> list[ConfigValues]:
    holders = [keys, *keys["methods"].values(), *(keys[part] for part in ("sanity", "sweep", "pretraining"))]
    return [holder["training"] for holder in holders if holder]


def bf16_is_slow() -> bool:
    """Whether this CPU has to emulate bf16, which then takes several times as long as fp32."""
    return not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _use_fp32(keys: ConfigValues) -> bool:
    """Set the precision of every block ``training`` to fp32; True if any had another."""
    blocks = [block for block in _training_blocks(keys) if block["precision"] != "fp32"]
    for block in blocks:
        block["precision"] = "fp32"
    return bool(blocks)


def _limit_steps(training: ConfigValues, cap: int, epochs: int, steps: int) -> None:
    training["epoch_steps"] = min(training["epoch_steps"] or steps, steps)
    training["epochs"] = min(training["epochs"], epochs)
    training["evaluate_every"] = min(training["evaluate_every"], 2)
    batch = training["batch"]
    if batch["size"] > cap:
        # Samplers that put groups into a batch (captions of an item, a clip and its twin) need a multiple of a group.
        group = batch["sampler_options"].get("captions", 2)
        batch["size"] = max(group, cap // group * group)


def _tower_options(method: ConfigValues, towers: RehearsedTowers, where: str, size: int) -> ConfigValues:
    """Options of a method that has towers of its own: in a block ``backbone``, or as keys beside the others."""
    options = method["options"]
    if isinstance(options.get("backbone"), dict):
        return options | {"backbone": towers.rehearsed(options["backbone"], f"{where}.backbone", size)}
    has_weights = options.get("weights") or options.get("pretrained")
    return towers.rehearsed(options, where, size) if has_weights else options


def min_layers(study: Study) -> tuple[int, int]:
    """Layers that a study's visual and text towers must keep.

    The first ones may be frozen, and heads with ``head_start: clip`` copy blocks of the text tower.
    """
    trained = [study.methods[name] for name in study.trained()]
    frozen = max([1, *(method.training.freeze_layers or 0 for method in trained)])
    heads = [method.head_layers for method in trained if method.model == "clip4clip" and method.head_start == "clip"]
    return frozen, max([frozen, *(heads if study.backbone.kind == "clip" else [])])


def trains_on_pixels(study: Study) -> bool:
    """Whether any method learns through its visual tower."""
    return any("visual" not in study.methods[name].training.freeze for name in study.trained())


def batch_cap(study: Study, towers: RehearsedTowers) -> int:
    """Largest batch of which a rehearsal can afford a step; the study's own batches may be smaller."""
    frames = max(study.sweep.max_frames if study.sweep else [study.frames.max_frames])
    flops = weights.visual_tower_flops(study.backbone.model_dump(), frames, study.frames.size)
    if not flops or not trains_on_pixels(study):
        return MAX_BATCH
    share = min(towers.shares.values(), default=1.0)
    # A step costs three forward passes, since a backward pass costs two.
    return max(4, min(MAX_BATCH, int(MAX_STEP_FLOPS / (3 * flops * share))))


def rehearsal_sizes(study: Study, towers: RehearsedTowers) -> SplitSizes:
    """Number of originals of each split in a rehearsal."""
    cap = batch_cap(study, towers)
    if cap < MIN_LIGHT_BATCH:
        return HEAVY_SIZES
    batch_size = max(study.methods[name].training.batch.size for name in study.trained()) if study.trained() else 0
    return SplitSizes(min(cap, max(LIGHT_SIZES.train, batch_size)), LIGHT_SIZES.valid, LIGHT_SIZES.test)


def absolute_paths(value: Any, cwd: Path) -> Any:
    """A value in which every text that names an existing file or folder, relative to ``cwd``, is an absolute path.

    >>> absolute_paths({"fps": 3, "table": "no/such.csv"}, Path("/"))
    {'fps': 3, 'table': 'no/such.csv'}
    """
    if isinstance(value, Mapping):
        return {name: absolute_paths(part, cwd) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [absolute_paths(part, cwd) for part in value]
    if isinstance(value, str) and ("/" in value or "." in value) and _is_path(cwd / value):
        return str((cwd / value).absolute())
    return value


def _is_path(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long for a path, or with a null character
        return False
