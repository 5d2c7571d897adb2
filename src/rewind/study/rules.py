"""What the keys of one study decide together: every fault, with its key, before anything is made."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rewind.study import keys as kinds
from rewind.study.brought import BROUGHT, FILES, seeds
from rewind.study.report import split_column

if TYPE_CHECKING:
    from rewind.study.model import Study


def faults(study: Study) -> list[str]:
    """Every fault as ``key: what is wrong; what to do``, in the order of the keys; none for a sound study."""
    found = [
        *_methods_named(study),
        *_pairs(study),
        *_trained(study),
        *_fixed(study),
        *_brought(study),
        *_columns(study),
        *_text(study),
    ]
    if study.evaluation.zero_shot and not study.encoding():
        found.append("evaluation.zero_shot: no method here has towers that encode prompts and images; set it to null")
    if verdict := study.tables.verdict:
        seeds = {name: method.seeds or study.seeds for name, method in study.methods.items()}
        compute = {name: method.training.compute() for name, method in study.methods.items()}
        if "zero_shot" in verdict.requires and study.evaluation.zero_shot is None:
            found.append("tables.verdict.requires: zero_shot: evaluation.zero_shot names no labelled images")
        found += verdict.faults(study.trained(), seeds, study.pairs(), study.evaluation.settings, compute)
    return list(dict.fromkeys(found))


def _unknown(where: str, name: str, methods: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, methods, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{where}: no method {name!r}; available: {', '.join(methods)}{hint}"


def _methods_named(study: Study) -> Iterator[str]:
    for where, name in (
        ("sanity.method", study.sanity and study.sanity.method),
        ("sweep.method", study.sweep and study.sweep.method),
        ("figures.method", study.figures.method),
    ):
        if name and name not in study.methods:
            yield _unknown(where, name, study.methods)


def _pairs(study: Study) -> Iterator[str]:
    for pair in study.statistics.pairs or []:
        for name in pair:
            if name not in study.methods:
                yield _unknown("statistics.pairs", name, study.methods)


def _trained(study: Study) -> Iterator[str]:
    """What asks for a method that learns: the over-fitting check, the sweep, the pre-training."""
    trained = study.trained()
    for where, keys in (("sanity", study.sanity), ("sweep", study.sweep)):
        if keys is None:
            continue
        name = keys.method
        if name in study.methods and name not in trained:
            others = f"name a trained method ({', '.join(trained)})" if trained else "no method here is trained"
            yield (
                f"{where}.method: {name!r} is not trained, so there is nothing to {_WANTED[where]}: {others}, or set "
                f"{where}: null"
            )
        elif not name and not trained:
            yield f"{where}: no method here is trained, so there is nothing to {_WANTED[where]}; set {where}: null"
    if study.pretraining and study.pretraining.method.baseline:
        model = study.pretraining.method.model
        yield f"pretraining.method.model: {model} is not trained; name a model that is, for example clip4clip"
    if study.pretraining and study.pretraining.seed is not None and not study.pretraining.shared:
        yield (
            f"pretraining.seed: {study.pretraining.seed}, but each run starts from a pre-training with its own seed; "
            "remove the key, or share one pre-training with pretraining.shared: true"
        )


_WANTED = {"sanity": "over-fit", "sweep": "try numbers of frames with"}


def _fixed(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        seeds = method.seeds or study.seeds
        if method.fixed and len(seeds) > 1:
            yield (
                f"methods.{name}.fixed: a fixed model has one seed, but this has {len(seeds)}; set "
                f"methods.{name}.seeds: [{seeds[0]}], or remove fixed"
            )


def _brought(study: Study) -> Iterator[str]:
    for name, method in study.methods.items():
        if method.model not in BROUGHT:
            continue
        if study.evaluation.cosine_gap:
            yield (
                f"evaluation.cosine_gap: gaps are computed on validation too, but methods.{name} has files for the "
                "test split alone; set it to false, or take the method out"
            )
        if method.noise:
            yield f"methods.{name}.noise: {method.model} are files and look at no clip; remove the key"
        if any(isinstance(method.options.get(name), dict) for name in FILES[method.model]):
            there, wanted = seeds(method.model, method.options), sorted(method.seeds or [])
            if there != wanted:
                yield (
                    f"methods.{name}.seeds: {wanted}, but its options name files for {there}: name a file for each "
                    "seed, or remove seeds"
                )


def _columns(study: Study) -> Iterator[str]:
    for column in study.tables.columns:
        direction = split_column(column)[0]
        if direction and direction not in study.evaluation.directions:
            yield f"tables.columns: {column!r}: {direction} is not among evaluation.directions"
        first = study.evaluation.directions[0]
        plain = " ".join(word for word in column.split() if word != first)
        if plain != column and plain in study.tables.columns:
            yield f"tables.columns: {column!r} and {plain!r} are the same column; keep one"

    primary = study.statistics.primary
    if primary and primary not in {split_column(column)[1] for column in study.tables.columns}:
        yield (
            f"statistics.primary: {primary} is the only metric with letters, but no column of tables.columns shows it; "
            "add the column or name another metric"
        )


def _text(study: Study) -> Iterator[str]:
    if study.text.tokenizer != "miniclip" and study.text.max_vocabulary != kinds.VOCABULARY:
        yield f"text.max_vocabulary: tokenizer: {study.text.tokenizer} does not read it; remove the key"
    if study.text.tokenizer == "miniclip" and study.backbone.kind == "clip":
        yield "text.tokenizer: miniclip has no end token, which CLIP's text tower reads; use words"
