"""Which moments are worth a kill: of every stage several, of different kinds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

KINDS = {
    "unnamed": "an output is complete, but not yet under its name",
    "named": "the last output has just got its name",
    "between": "one output has its name, the next has not",
    "writing": "something else has just been written, a training state or a clip",
    "beginning": "the job is about to begin",
    "end": "the job is done, and Snakemake does not know yet",
}
"""Kind of a moment → what it is."""


class Moment(NamedTuple):
    """A moment of a job, as ``moments/sitecustomize.py`` says it."""

    stage: str
    job: str
    name: str


class Target(NamedTuple):
    """A moment that is to be hit, and its kind."""

    kind: str
    moment: Moment


def passed(folder: Path) -> list[Moment]:
    """Every moment that jobs passed, in order."""
    lines = (folder / "passed").read_text(encoding="utf-8").splitlines()
    return [Moment(*json.loads(line)) for line in lines]


def by_kind(moments: list[Moment]) -> dict[str, Moment]:
    """The moment of each kind in one job that passed these; not every job has all kinds."""
    names = {moment.name: moment for moment in moments}
    outputs = sum(name.startswith("before output") for name in names)
    others = sum(name.startswith("other") for name in names)
    wanted = {
        "unnamed": "before output 1",
        "named": f"after output {outputs}",
        "between": f"before output {outputs // 2 + 1}" if outputs > 1 else "",
        "writing": f"other {(others + 1) // 2}",
        "beginning": "beginning",
        "end": "end",
    }
    return {kind: names[name] for kind, name in wanted.items() if name in names}


def targets(moments: list[Moment], most: int) -> list[Target]:
    """At most so many moments, stage by stage in turn: in every round each stage gives one of another kind.

    A stage with several jobs gives another of them in every round. Of a round that is too many, stages are taken at
    equal distances, from the first to the last.
    """
    jobs: dict[str, dict[str, list[Moment]]] = {}
    for moment in moments:
        jobs.setdefault(moment.stage, {}).setdefault(moment.job, []).append(moment)
    chosen: list[Target] = []
    for turn in range(len(KINDS)):
        found = (_of_stage(list(runs.values()), turn, place, chosen) for place, runs in enumerate(jobs.values()))
        whole = [target for target in found if target]
        left = min(most - len(chosen), len(whole))
        chosen += [whole[n * (len(whole) - 1) // max(1, left - 1)] for n in range(left)]
    return chosen


def _of_stage(runs: list[list[Moment]], turn: int, place: int, chosen: list[Target]) -> Target | None:
    """A moment of one stage that is not chosen yet; stages begin with different kinds."""
    kinds = list(KINDS)
    for step in range(len(kinds)):
        kind = kinds[(turn + place + step) % len(kinds)]
        for other in range(len(runs)):
            found = by_kind(runs[(turn + other) % len(runs)]).get(kind)
            taken = {target.kind for target in chosen if found and target.moment.stage == found.stage}
            if found and kind not in taken:
                return Target(kind, found)
    return None


def plan(wanted: list[Target]) -> Mapping[str, list[str]]:
    """What ``plan.json`` holds: job → its moments."""
    jobs: dict[str, list[str]] = {}
    for target in wanted:
        jobs.setdefault(target.moment.job, []).append(target.moment.name)
    return jobs
