"""A study made small, in a folder of its own: every method and stage is kept, with few items, steps and seeds.

What is missing here has a substitute: dummy files in the dataset's format (:mod:`rewind.data.dummy`), random weights in
the layout of published ones (:mod:`rewind.cli.rehearse.weights`), random vectors for a model that is known by its name.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml

from rewind.cli.rehearse import weights
from rewind.cli.rehearse.counts import REHEARSED_IMAGES, REHEARSED_ROUNDS, sources_present
from rewind.cli.rehearse.weights import ConfigValues, RehearsedTowers
from rewind.config import Dataset, Frames, Study
from rewind.config.encoders import SCORING_OPTIONS, Encoding
from rewind.config.evaluation import ZeroShot
from rewind.config.methods import FILE_OPTIONS
from rewind.config.training import TWINS
from rewind.data.annotations import read_annotations
from rewind.data.dummy import SplitSizes, find_dummy_data
from rewind.data.formats.cifar10 import TEST_BATCH_FILE, make_dummy_cifar10, read_cifar10, write_cifar10
from rewind.data.formats.photos import IMAGE_SUFFIXES
from rewind.data.groups import AUTO_GROUPS, group_file
from rewind.errors import RewindError
from rewind.io.files import write_csv, write_text
from rewind.packaged import docs_page, workflow_home
from rewind.registry import MODELS
from rewind.video.sources import VIDEO_SUFFIXES, SourceFinder, sources_folder, videos_folder
from rewind.workflow.config import check_sources

# ---- The working folder: configuration, raw files, weights, results ------------------------------------------------

REHEARSAL_FOLDER = Path("results/rehearsal")
MARKER_FILE = ".rehearsal"  # a folder without it is not a rehearsal's, and is never cleared
REHEARSAL_TITLE = "REHEARSAL"
TABLE_PREFIX = "rehearsal_"
RANDOM_ENCODER = "rewind.cli.rehearse.random_encoder"
DUMMY_OPPOSITES = "config/opposites/shapes.csv"  # of words in captions of dummy items, which are drawn as shapes are
MAX_REHEARSED_SHARDS = 2
REHEARSED_SEEDS = 2
REHEARSED_TRIALS = 2  # of a method
MAX_STEP_FLOPS = 0.1e12  # FLOPs of a training step, forward and backward, that a rehearsal can afford
MAX_BATCH = 128
MIN_LIGHT_BATCH = 64  # a study is light if it can afford steps of this many items, and heavy otherwise
LIGHT_SIZES, HEAVY_SIZES = SplitSizes(64, 12, 12), SplitSizes(8, 4, 4)
LIGHT_STEPS = 3, 2  # epochs, and steps in each
HEAVY_STEPS = 1, 2


@dataclass
class PreparedRehearsal:
    """A rehearsal that is ready to run."""

    folder: Path  # results are in `results/<study>` below it, data sets in `results/data`
    study: ConfigValues  # the configuration as rehearsed
    notes: list[str]  # a sentence for each dummy file or model and each tower made shallow
    share: float = 1.0  # smallest share of its visual layers that is left of a tower
    missing: int = 0  # largest number of parameters that a tower lacks


def prepare_rehearsal(
    study: Study, datasets: Mapping[str, Dataset], cwd: Path, full: bool, cores: int, gpus: int
) -> PreparedRehearsal:
    """Create the working folder of a rehearsal from scratch.

    Args:
        datasets: by name: the study's dataset first, then the one from which its embeddings are computed, if any.
        cwd: the folder in which the workflow is run; it must be the process's working folder.
        full: keep the depth of towers whose weights are not there.
    """
    folder = cwd / REHEARSAL_FOLDER / study.name
    if folder.exists() and not (folder / MARKER_FILE).exists():
        raise RewindError(f"{folder}: this is not a rehearsal's folder; move it away, and rehearse again.")
    shutil.rmtree(folder, ignore_errors=True)
    write_text(folder / MARKER_FILE, "A rehearsal on a handful of items: nothing in this folder is a result.\n")
    towers = RehearsedTowers(folder / "weights", full, min_layers(study))
    keys = shrink_study(study, cwd, towers, cores, gpus, sources_present(datasets[study.dataset]))
    sizes, notes = rehearsal_sizes(study, towers), []
    for name, dataset in datasets.items():
        values, note = shrink_dataset(dataset, cwd, folder / "raw" / name, sizes, towers)
        _write_yaml(folder / "config/datasets" / f"{name}.yaml", values)
        notes.append(note)
    if zero_shot := study.evaluation.zero_shot:
        keys["evaluation"]["zero_shot"], note = shrink_labelled_images(zero_shot, folder / "raw/zero_shot")
        notes.append(note)
    _write_yaml(folder / "config/studies" / f"{study.name}.yaml", keys)
    _write_yaml(folder / "config/config.yaml", {"studies": [study.name]})
    return PreparedRehearsal(folder, keys, [*notes, *towers.notes], towers.share, towers.missing)


def _write_yaml(path: Path, values: Mapping[str, Any]) -> None:
    write_text(path, yaml.safe_dump(dict(values), sort_keys=False, allow_unicode=True))


# ---- The study -----------------------------------------------------------------------------------------------------


def shrink_study(
    study: Study, cwd: Path, towers: RehearsedTowers, cores: int, gpus: int, uses_own_data: bool = False
) -> ConfigValues:
    """The configuration of a study for its rehearsal, as plain values.

    Args:
        cwd: folder of the study's relative paths.
        towers: replaces weights that are not there.
        cores: of this machine; a job that asks for more threads gets one, so that others run at the same time.
        gpus: of this machine; a job that asks for more gets these.
        uses_own_data: whether items are taken from the user's own dataset.
    """
    keys = absolute_paths(study.model_dump(mode="json"), cwd)
    keys.pop("name")
    keys["title"] = f"{REHEARSAL_TITLE} of {study.title or study.name}: no result"
    keys["seeds"] = keys["seeds"][:REHEARSED_SEEDS]
    keys["backbone"] = towers.rehearsed(keys["backbone"], "backbone", study.frames.size, study.frames.fit)
    cap, named = batch_cap(study, towers), study.backbone.encoding()
    for name, method in keys["methods"].items():
        if method["seeds"]:
            method["seeds"] = method["seeds"][:REHEARSED_SEEDS]
        method["options"] = rehearsal_options(keys, name, study.name, uses_own_data, towers.notes)
        method["options"] = _tower_options(method, towers, f"methods.{name}.options", study.frames)
    for block in _training_blocks(keys):
        if block["lora"] and named is not None and named.local() is None:
            # Layers of what stands in for the model have other names.
            block["lora"] |= {"targets": "attention", "dropout": 0.0}
        _limit_steps(block, cap, *(LIGHT_STEPS if cap >= MIN_LIGHT_BATCH else HEAVY_STEPS))
        if block["hard_negatives"] not in (None, TWINS) and not uses_own_data:
            block["hard_negatives"] = str(workflow_home() / DUMMY_OPPOSITES)
    other_precision = [block for block in _training_blocks(keys) if block["precision"] != "fp32"]
    if other_precision and not gpus and bf16_is_slow():
        for block in other_precision:
            block["precision"] = "fp32"
        towers.notes.append(
            "training.precision: fp32 is rehearsed, because this machine has no GPU and its CPU is slow at bf16"
        )
    if study.sweep and study.sweep.tunes:
        fewest = min(len(study.trials_of(name)) for name in study.trained())
        keys["sweep"] |= {"search": "random", "trials": min(REHEARSED_TRIALS, fewest)}
    if keys["sanity"]:
        keys["sanity"] |= {"clips": min(keys["sanity"]["clips"], 8), "min_r1": 0.0}
    if keys["tables"]["verdict"]:
        keys["tables"]["verdict"]["rounds"] = REHEARSED_ROUNDS
    keys["tables"]["prefix"] = TABLE_PREFIX
    keys["frames"]["workers"] = min(keys["frames"]["workers"], 1)
    resources = keys["resources"]
    resources |= {"require_gpu": False, "state_folder": None}
    resources["gpus"] = min(resources["gpus"], gpus or resources["gpus"])
    for holder, name in ((resources, "threads"), (resources, "feature_threads"), (keys["pretraining"], "threads")):
        if holder and (holder[name] or 0) > cores:
            holder[name] = 1
    return keys


def _training_blocks(keys: ConfigValues) -> list[ConfigValues]:
    holders = [keys, *keys["methods"].values(), *(keys[part] for part in ("sanity", "sweep", "pretraining"))]
    return [holder["training"] for holder in holders if holder]


def bf16_is_slow() -> bool:
    """Whether this CPU has to emulate bf16, which then takes several times as long as fp32."""
    return not torch.backends.cpu.get_cpu_capability().startswith("AVX512")


def _limit_steps(training: ConfigValues, cap: int, epochs: int, steps: int) -> None:
    training["epoch_steps"] = min(training["epoch_steps"] or steps, steps)
    training["epochs"] = min(training["epochs"], epochs)
    training["evaluate_every"] = min(training["evaluate_every"], 2)
    batch = training["batch"]
    if batch["size"] > cap:
        # Samplers that put groups into a batch (captions of an item, a clip and its twin) need a multiple of a group.
        group = batch["sampler_options"].get("captions", 2)
        batch["size"] = max(group, cap // group * group)


def _tower_options(method: ConfigValues, towers: RehearsedTowers, where: str, frames: Frames) -> ConfigValues:
    """Options of a method that has towers of its own: in a block ``backbone``, or as keys among the others."""
    options = method["options"]
    if isinstance(options.get("backbone"), dict):
        return options | {
            "backbone": towers.rehearsed(options["backbone"], f"{where}.backbone", frames.size, frames.fit)
        }
    has_weights = options.get("weights") or options.get("pretrained")
    return towers.rehearsed(options, where, frames.size) if has_weights else options


def min_layers(study: Study) -> tuple[int, int]:
    """Layers that a study's visual and text towers must keep.

    The first ones may be frozen, and heads with ``head_start: clip`` copy blocks of the text tower.
    """
    trained = [study.methods[name] for name in study.trained()]
    frozen = max([1, *(method.training.freeze_layers or 0 for method in trained)])
    heads = [method.head_layers for method in trained if method.model == "clip4clip" and method.head_start == "clip"]
    return frozen, max([frozen, *(heads if study.backbone.kind == "clip" else [])])


def batch_cap(study: Study, towers: RehearsedTowers) -> int:
    """Largest batch of which a rehearsal can afford a step; the study's own batches may be smaller."""
    frames = max(study.frames_sweep.max_frames if study.frames_sweep else [study.frames.max_frames])
    flops = weights.visual_tower_flops(study.backbone.model_dump(), frames, study.frames.size)
    if not flops or all("visual" in study.methods[name].training.freeze for name in study.trained()):
        return MAX_BATCH
    # A step costs three forward passes, since a backward pass costs two.
    return max(4, min(MAX_BATCH, int(MAX_STEP_FLOPS / (3 * flops * towers.share))))


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


# ---- Options of methods whose model is files, or an encoder found by name ------------------------------------------


def rehearsal_options(keys: ConfigValues, name: str, study: str, uses_own_data: bool, notes: list[str]) -> ConfigValues:
    """Options of a method as rehearsed: the user's own where they can be used, else those of a substitute.

    Args:
        keys: the configuration of the study, its methods included, with paths of existing files made absolute.
        uses_own_data: whether items are taken from the user's own dataset: precomputed embeddings then fit them.
        notes: a sentence for each substitute is added.
    """
    method = keys["methods"][name]
    options = method["options"]
    if method["model"] not in MODELS.tagged("files"):
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


def _encoder_options(options: ConfigValues, name: str, notes: list[str]) -> ConfigValues:
    encoder_options = {key: value for key, value in options.items() if key not in SCORING_OPTIONS}
    if Encoding(**encoder_options).local() is not None or options["encoder"] == RANDOM_ENCODER:
        return {key: value for key, value in options.items() if key not in ("captions", "items")}
    notes.append(f"methods.{name}: random vectors stand in for {options['encoder']} {options['name']}")
    frames = {key: options[key] for key in ("max_frames", "sampling", "rate", "query", "score") if key in options}
    return {"encoder": RANDOM_ENCODER, "name": options["name"]} | frames


def _options_of_seeds(options: ConfigValues, seeds: list[int]) -> ConfigValues:
    """Options that have a file for each seed, with only those of the rehearsed seeds."""
    rehearsed = {str(seed) for seed in seeds or []}
    return {
        key: {seed: path for seed, path in value.items() if str(seed) in rehearsed}
        if isinstance(value, Mapping)
        else value
        for key, value in options.items()
    }


def _path_list(value: Any) -> list[str]:
    return [str(path) for path in value.values()] if isinstance(value, Mapping) else [str(value)]


# ---- The dataset: the first of the user's own items, or dummy data ---------------------------------------------------


def shrink_dataset(
    dataset: Dataset, cwd: Path, folder: Path, sizes: SplitSizes, towers: RehearsedTowers
) -> tuple[ConfigValues, str]:
    """The configuration of a dataset for its rehearsal, and a sentence about what it reads.

    Args:
        cwd: folder of the dataset's relative paths; it must be the process's working folder.
        folder: where dummy files and lists of items are written.
        towers: replaces encoders' weights that are not there.

    Raises:
        RewindError: where files are missing and the format offers no dummy files.
    """
    keys = dataset.model_dump(mode="json")
    keys.pop("name")
    keys["title"] = f"{REHEARSAL_TITLE} ({dataset.title or dataset.name})"
    if made_from := keys["source"].get("made_from"):
        for side in ("text", "image"):
            encoder = made_from[side]
            # None for a built-in network.
            encoding = dataset.source.made_from.encoding(side) if encoder["encoder"] else None
            if encoding is not None and encoding.local() is None:
                made_from[side] = {"encoder": RANDOM_ENCODER, "name": encoder["name"]}
            elif encoder["name"] == "clip" and not encoder["encoder"]:
                made_from[side] = towers.rehearsed(encoder, f"source.made_from.{side}", made_from["size"])
        note = f"{dataset.name}: vectors computed here from the items of {made_from['dataset']}"
        return absolute_paths(keys, cwd), note
    media_keys = keys["image" if dataset.items == "images" else "video"]
    if not dataset.vectors:
        media_keys |= {
            "shards": min(media_keys["shards"], MAX_REHEARSED_SHARDS),
            "workers": min(media_keys["workers"], 2),
        }
    if sources_present(dataset):
        changes, note = _take_first_items(dataset, folder, sizes)
        keys["max_missing"] = 1.0
    else:
        changes, note = _make_dummy_data(dataset, folder, sizes)
        keys["clips"] = True  # dummy items have drawn clips, also where the real dataset has only captions
    for name, value in changes.items():
        (keys if name == "only" else keys["source"])[name] = value
    if group_file(dataset) and not keys["only"]:
        keys["groups"] = _make_dummy_groups(dataset.name, keys, folder)
    return absolute_paths(keys, cwd), note


def _take_first_items(dataset: Dataset, folder: Path, sizes: SplitSizes) -> tuple[ConfigValues, str]:
    first_items = getattr(find_dummy_data(dataset.source.format), "first_items", None)
    if first_items and not dataset.only:
        return first_items(dataset, folder, sizes), f"{dataset.name}: the first of your own vectors"
    annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
    finder = SourceFinder(videos_folder(dataset), IMAGE_SUFFIXES if dataset.items == "images" else VIDEO_SUFFIXES)
    originals = annotations.items[annotations.items["reversed"] == 0]
    chosen: dict[str, list[str]] = {}
    for split, size in sizes.counts().items():
        rows = originals[originals["split"] == split]
        names = zip(rows["item_id"], rows["source"], strict=True)
        existing = (item for item, source in names if not dataset.clips or finder.find(source) is not None)
        chosen[split] = list(islice(existing, size))
        if len(rows) and not chosen[split]:
            raise RewindError(
                f"config/datasets/{dataset.name}.yaml: not one {dataset.items[:-1]} of the {split} split is in "
                f"{finder.root}, so the study could not run either. Put some there, or move the folder away to "
                "rehearse with dummy data."
            )
    path = folder / "only.txt"
    write_text(path, "\n".join(item for items in chosen.values() for item in items) + "\n")
    summary = ", ".join(f"{len(items)} {split}" for split, items in chosen.items())
    return {"only": str(path)}, f"{dataset.name}: the first of your own {dataset.items} ({summary})"


def _make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> tuple[ConfigValues, str]:
    name = dataset.source.format
    make_dummy_data = find_dummy_data(name)
    keys = make_dummy_data(dataset, folder, sizes) if make_dummy_data else None
    if keys is None:
        check_sources(dataset)  # reports what is missing, if that is the cause
        raise RewindError(
            f"config/datasets/{dataset.name}.yaml: source.format: {name} has no dummy data, and the files it names "
            "are missing; add a function make_dummy_data(dataset, folder, sizes) to its module "
            f"({docs_page('add-a-dataset.md')})."
        )
    if name == "shapes":
        return keys, f"{dataset.name}: fewer clips, drawn as in the study"
    return keys | {"only": None}, f"{dataset.name}: dummy data in the format {name}"


def _make_dummy_groups(name: str, keys: ConfigValues, folder: Path) -> str:
    """A file of groups for dummy items, in place of the user's, which knows only the user's own captions."""
    dummy = Dataset.model_validate({"name": name} | keys)
    if dummy.made_here and not dummy.vectors:
        return AUTO_GROUPS
    captions = read_annotations(dummy, "").captions
    ids = captions.loc[captions["split"] == "test", "caption_id"]
    table = pd.DataFrame({"caption_id": ids, "group": [f"group {n % 2 + 1}" for n in range(len(ids))]})
    write_csv(folder / "groups.csv", table)
    return str(folder / "groups.csv")


def shrink_labelled_images(keys: ZeroShot, folder: Path) -> tuple[ConfigValues, str]:
    """Keys of zero-shot classification on a few labelled images of the real file, or on noise in its format.

    Returns the block ``evaluation.zero_shot`` for the rehearsal, and a sentence about the images, which are written
    into ``folder``.
    """
    try:
        few = read_cifar10(keys.folder, keys.sha256).first(REHEARSED_IMAGES)
        note = f"zero-shot: the first {len(few.labels)} images of {keys.folder}"
        write_cifar10(folder, few.labels, few.images)
    except RewindError:
        note = f"zero-shot: {keys.folder} has no {TEST_BATCH_FILE}: noise is used instead of its images"
        make_dummy_cifar10(folder, REHEARSED_IMAGES)
    return keys.model_dump(mode="json") | {"folder": str(folder), "sha256": None}, note
