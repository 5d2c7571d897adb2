"""Whether what a study names can be made: models, heads, losses, samplers, on tensors that have shapes alone.

Every part is made by the code that makes it in a job, so a rule stands where it is used and nowhere else. Tensors of
torch's ``meta`` device hold no numbers: a ViT-L takes a tenth of a second and no memory, and no weights are read.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.errors import RewindError
from rewind.jobs.places import annotation_files
from rewind.study import Dataset, RunSpec, Study, pretraining
from rewind.study.brought import BROUGHT, of_seed
from rewind.study.together import Block, blocks
from rewind.trouble import is_machine_fault

WIDTH = 64  # of vectors whose width their file tells
WORDS = ["a word", "another word"]  # a vocabulary has at least these


@dataclass(frozen=True)
class Unit:
    """One thing that the study makes a model for.

    Attributes:
        where: path of its block, for example ``methods.meanP``.
        spec: its keys.
        block: how it is trained; None where nothing is.
        dataset: the data set.
    """

    where: str
    spec: RunSpec
    block: Block | None
    dataset: Dataset


def units(study: Study, dataset: Dataset) -> list[Unit]:
    """Every model that a study will make."""
    trained = {block.where: block for block in blocks(study)}
    backbone = study.backbone
    if dataset.vectors:
        widths = {name: getattr(backbone, name) or WIDTH for name in ("text_width", "item_width")}
        backbone = backbone.model_copy(update=widths)
    # No weights are read here: those of the first seed stand for all.
    start = {"weights": pretraining.weights(study), "pretrained": None} if study.pretraining else {}
    found = []
    for name, method in study.methods.items():
        own = start if pretraining.starts(method) else {}
        spec = study.run_spec(name).model_copy(update={"backbone": backbone.model_copy(update=own)})
        found.append(Unit(f"methods.{name}", spec, trained.get(f"methods.{name}"), dataset))
    first = study.run_spec(next(iter(study.methods))).model_copy(update={"backbone": backbone})
    for where in ("sanity", "sweep", "pretraining"):
        if block := trained.get(where):
            method = block.method.model_copy(update={"training": block.training})
            found.append(Unit(where, first.model_copy(update={"method": method}), block, dataset))
    return found


def faults(study: Study, unit: Unit) -> list[str]:
    """What cannot be made of a unit, each with its key."""
    found: list[str] = []
    retriever = None
    if unit.spec.method.model in BROUGHT:
        return [_placed(line, study, unit) for line in _files(unit)]
    with _quiet():
        with _caught(found, unit.spec):
            retriever = _retriever(unit.spec)
        with _caught(found, unit.spec):
            _head(unit.spec)  # the towers' own faults are none of the head's
        if unit.block is not None:
            for check in _checks(unit, retriever):
                with _caught(found, unit.spec):
                    check()
        if unit.where.startswith("methods.") and study.evaluation.zero_shot:
            with _caught(found, unit.spec):
                _zero_shot(study, unit, retriever)
    return [_placed(line, study, unit) for line in found]


def _files(unit: Unit) -> list[str]:
    """What is wrong with the files that a method brings, of all its seeds."""
    from rewind.feeding.brought import check_files

    found: list[str] = []
    expected, name = _expected(unit.dataset), unit.dataset.name
    for seed in unit.spec.method.seeds or [0]:
        with _caught(found, unit.spec, f"{unit.where}.options"):
            check_files(of_seed(unit.spec.method, seed), Path("results/data") / name, name, expected)
    return list(dict.fromkeys(found))


def _expected(dataset: Dataset) -> Any:
    """The ids that files of a method may have, where annotations tell before they are prepared."""
    from rewind.feeding.brought import Expected
    from rewind.jobs.annotated import annotations_of

    try:
        found = annotations_of(dataset)
    except RewindError:
        return None  # told under the data set's own file
    where = ", ".join(annotation_files(dataset)) or f"config/datasets/{dataset.name}.yaml"
    return Expected(found, where, whole=dataset.vectors or not dataset.clips) if found else None


def _retriever(spec: RunSpec) -> Any:
    """The retriever on meta tensors; None for a module of the user's own, which is only looked for."""
    from rewind.models.making import make_retriever, maker, towers_module
    from rewind.models.weights import form_alone

    method = spec.method
    made_by = maker(method.model)
    towers_module(spec.backbone.kind)
    made_by.check(method, spec.backbone)
    own = pretraining.own_backbone(method)
    kinds = (method.model, spec.backbone.kind, str(own.get("kind", "")) if isinstance(own, dict) else "")
    if any("." in name for name in kinds):
        return None
    with form_alone():
        return make_retriever(method, spec.backbone, spec.text, WORDS).eval()


def _head(spec: RunSpec) -> None:
    from rewind.models.heads import head_class

    if spec.method.model == "clip4clip":
        head_class(spec.method.head)


def _checks(unit: Unit, retriever: Any) -> Iterator[Callable[[], None]]:
    """What training does before its first step, as far as it needs no data."""
    from rewind.objectives.interface import make_objective
    from rewind.training.loop import freeze
    from rewind.training.optim import freeze_layers
    from rewind.training.samplers.interface import make_sampler
    from rewind.training.speed import check_speed

    keys = unit.block.training

    def objective() -> None:
        made = make_objective(keys)
        if retriever is not None:
            made.check(retriever, keys)

    def sampler() -> None:
        make_sampler(keys.batch).check(keys.batch)

    yield objective
    yield sampler
    if retriever is not None:
        yield lambda: freeze(retriever, keys.freeze)
        yield lambda: freeze_layers(retriever, keys.freeze_layers)
        yield lambda: check_speed(retriever, keys)


def _zero_shot(study: Study, unit: Unit, retriever: Any) -> None:
    from rewind.evaluation.zero_shot import towers_of

    if retriever is not None and unit.where.partition(".")[2] in study.encoding():
        towers_of(retriever)


@contextlib.contextmanager
def _caught(found: list[str], spec: RunSpec, where: str = "") -> Iterator[None]:
    """Keep what the block refuses; what else it throws is blamed on the key ``where``, or on the architecture."""
    try:
        yield
    except RewindError as error:
        found.append(str(error))
    except Exception as error:
        if is_machine_fault(error):
            raise  # no key is to blame
        if where:
            found.append(f"{where}: {type(error).__name__}: {error}")
            return
        # Code of the user's own may want numbers, which a meta tensor has not: a rehearsal tries it for real.
        if not any("." in name for name in (spec.method.head, spec.method.training.objective)):
            found.append(f"backbone.architecture: {spec.backbone.architecture}: {type(error).__name__}: {error}")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What parts say in a job, they need not say here."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _placed(line: str, study: Study, unit: Unit) -> str:
    """A message of a job, with the path of its key in the study's file."""
    where = unit.where if unit.where.startswith("methods.") else _owner(study, unit)
    line = re.sub(r"^methods(\.\*\.|: (?=options\.))", f"{where}.", line).rstrip(".")
    line = re.sub(r"^methods: ", f"{where}: ", line)
    path = re.match(r"training\.([a-z_]+(?:\.[a-z_]+)*)", line)
    if path and unit.block:
        known = _known(unit.block.training, path[1])
        return unit.block.path(study, known) + line[len(f"training.{known}") :]
    return line


def _known(keys: Any, path: str) -> str:
    """The part of a path that is a key: behind it are options of a part."""
    names: list[str] = []
    for name in path.split("."):
        if not hasattr(keys, name):
            break
        keys = getattr(keys, name)
        names.append(name)
    return ".".join(names)


def _owner(study: Study, unit: Unit) -> str:
    """The method of the over-fitting check and the sweep, which stands under ``methods``."""
    if unit.where == "pretraining":
        return "pretraining.method"
    return next(f"methods.{name}" for name, method in study.methods.items() if method is unit.block.method)
