"""Only on request: a submission, and the costs of a search."""

from __future__ import annotations

from typing import Any

from rewind.config.dataset import EmbeddingsSource
from rewind.config.study import RunKey
from rewind.workflow.plan.files import Files, Unwatched
from rewind.workflow.plan.items import cached_items
from rewind.workflow.plan.scoring import model_inputs
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import choice_files


def submission_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    return model_inputs(plan, method, seed, "train")


def submission_captions(plan: StudyPlan) -> str | list[str]:
    """The npz of captions of a submission; where there is none, it was refused when it was asked for."""
    source = plan.dataset.keys.source
    return (source.test or []) if isinstance(source, EmbeddingsSource) else []


def measured_runs(plan: StudyPlan) -> list[RunKey]:
    """The first run of those methods that read what the first method reads."""
    first = next(iter(plan.keys.methods))
    seeds = dict(reversed(plan.runs()))  # reversed: of each method the first seed wins
    # What is read of another pre-training has the same shape, and shapes are all that is timed.
    wanted = cached_items(plan, first)
    return [(name, seeds[name]) for name in plan.keys.methods if cached_items(plan, name) == wanted]


def efficiency_inputs(plan: StudyPlan) -> Files:
    measured = measured_runs(plan)
    return {
        **plan.captions("train", "test"),
        **cached_items(plan, *measured[0]),
        "item_table": plan.item_table(),
        "best": plan.best_file,
        "models": plan.per_run("runs/{method}/seed{seed}/model.safetensors", measured),
        "tuned": [Unwatched(path) for path in choice_files(plan, measured)],
    }


def measured_spec(plan: StudyPlan) -> dict[str, Any]:
    return plan.evaluation_spec(measured_runs(plan)[0][0])


def measured_methods(plan: StudyPlan) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, name in tables and keys of each."""
    return [(name, plan.label(name), plan.evaluation_spec(name)) for name, _ in measured_runs(plan)]


def data_title(plan: StudyPlan) -> str:
    """The title of its data, with what all its runs were given."""
    return ", ".join(filter(None, [plan.dataset.keys.title, plan.keys.condition]))
