"""What tables and figures are both made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from rewind.files import read_csv
from rewind.jobs.given import Given, Named
from rewind.jobs.metrics import folder_of, read_reasons
from rewind.reporting.results import Results
from rewind.study import Dataset, Method, Study, comparing
from rewind.study.pretraining import ELSEWHERE, by_seed, condition, seeds, starts


@dataclass(frozen=True)
class GapFiles:
    """CSV files of the rule ``cosine_gap``."""

    runs: str
    intervals: str
    pairs: str
    counts: str


def gap_files(inputs: Named) -> GapFiles | None:
    """The files among a rule's inputs, if the study asks for the gap."""
    names = ("gap_runs", "gap_intervals", "gap_pairs", "gap_counts")
    found = [inputs.get(name) for name in names]
    return GapFiles(*found) if all(found) else None


@dataclass(frozen=True)
class Files:
    """What a report is made from.

    Attributes:
        metrics, intervals, pairs, gaps: the study's CSV files.
        records: ``run.json`` of every run, by method and seed.
        best: the sweep's choice.
        videos: the data set's video report.
        pretrained: ``run.json`` of every pre-training, by seed; none where there was none.
        zero_shot, zero_shot_pairs, step_time, control: CSV files of studies that have them.
        places: CSV file of ranks; published results may lack it.
        groups: CSV file of results by group, where captions have groups.
        ranks: folder of the runs' ranks, which says where a method was not evaluated.
        gap: cosine gaps, where the study asks for them.
        accepted: sentences on edits of code that somebody declared to change no number.
    """

    metrics: str
    intervals: str
    pairs: str
    gaps: str
    records: Mapping[tuple[str, int], str]
    best: str
    videos: str
    pretrained: Mapping[int, str] = field(default_factory=dict)
    zero_shot: str | None = None
    zero_shot_pairs: str | None = None
    step_time: str | None = None
    control: str | None = None
    places: str | None = None
    groups: str | None = None
    ranks: str | None = None
    gap: GapFiles | None = None
    accepted: list[str] = field(default_factory=list)


def load_results(study: Study, dataset: Dataset, files: Files) -> Results:
    """The study's numbers with the names that tables give them."""
    methods = study.methods
    return Results(
        metrics=read_csv(files.metrics),
        intervals=read_csv(files.intervals),
        pairs=read_csv(files.pairs, text=("first", "second")),
        labels=labels(study),
        train={name: _train_text(method, dataset, bool(study.pretraining)) for name, method in methods.items()},
        baselines=[name for name in methods if name not in comparing.compared(study)],
        fixed=comparing.fixed(study),
        primary=comparing.primary(study),
        confidence=study.statistics.confidence,
        columns=study.tables.columns,
        gaps=read_csv(files.gaps),
        seeds={name: method.seeds or study.seeds for name, method in methods.items()},
        items=dataset.items,
        zero_shot=_optional(files.zero_shot),
        zero_shot_pairs=_optional(files.zero_shot_pairs, ("first", "second")),
        verdict=study.tables.verdict if files.step_time else None,
        step_time=_optional(files.step_time, ("baseline",)),
        control=_optional(files.control, ("baseline", "control", "control_baseline")),
        places=_optional(files.places),
        groups=_optional(files.groups, ("group",)),
        order=study.tables.order,
        not_evaluated=read_reasons(study.runs(), files.ranks) if files.ranks else {},
        given=condition(study),
    )


def _optional(path: str | None, text: tuple[str, ...] = ()) -> pd.DataFrame:
    return read_csv(path, text) if path else pd.DataFrame()


def labels(study: Study) -> dict[str, str]:
    """Method → its name in tables and pictures."""
    return {name: method.label or name for name, method in study.methods.items()}


UNLEARNT = tuple(model for model in (*ELSEWHERE, *comparing.MODELS) if model != "pixels")
"""Models to which a data set's training split shows nothing; those in closed form are fitted on it."""


def _train_text(method: Method, dataset: Dataset, pretrained: bool) -> str:
    if method.train:
        return method.train
    learnt = method.model not in UNLEARNT and not method.scored_as_it_is
    learnt = learnt or (pretrained and method.model in comparing.MODELS and starts(method))
    return dataset.title or dataset.name if learnt else "–"


def of_every_run(given: Given, name: str) -> dict[tuple[str, int], str]:
    """Input files of all runs, by method and seed, in the order of the study."""
    study = Study.model_validate(given.params.study)
    return dict(zip(study.runs(), given.input.get(name), strict=True))


def report_files(given: Given) -> Files:
    """The inputs of tables and figures."""
    inputs = given.input
    return Files(
        metrics=inputs.metrics,
        intervals=inputs.intervals,
        pairs=inputs.pairs,
        gaps=inputs.gaps,
        records=of_every_run(given, "records"),
        best=inputs.best,
        videos=inputs.videos,
        pretrained=dict(
            zip(seeds(Study.model_validate(given.params.study)), inputs.get("pretraining", ()), strict=True)
        ),
        zero_shot=inputs.get("zero_shot"),
        zero_shot_pairs=inputs.get("zero_shot_pairs"),
        step_time=inputs.get("step_time"),
        control=inputs.get("control"),
        places=inputs.places,
        groups=inputs.get("group_results"),
        ranks=folder_of(inputs.ranks),
        gap=gap_files(inputs),
        accepted=list(given.params.get("accepted") or ()),
    )


def seeded(study: Study) -> list[str]:
    """Methods whose rows are over training seeds: their own, or those of the towers that they start from."""
    towers = [name for name, method in study.methods.items() if by_seed(study) and starts(method)]
    return study.trained() or towers


def sizes(results: Results) -> dict[str, dict[str, int]]:
    """Of each setting as captions search items; where only items were asked, they are the queries of the files."""
    clusters = results.intervals.groupby("setting")["clusters"].first()
    found = {}
    for setting, rows in results.metrics.groupby("setting"):
        forward = rows[rows["direction"] == "text_to_item"]
        row = (forward if len(forward) else rows).iloc[0]
        captions, items = (row["queries"], row["gallery"]) if len(forward) else (row["gallery"], row["queries"])
        if setting == "binary":
            captions, items = row["queries"], 2 * row["queries"]
        found[setting] = {"queries": int(captions), "items": int(items), "clusters": int(clusters[setting])}
    return found
