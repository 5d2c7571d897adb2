"""Tables and figures of a study, with footnotes made from provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.datasets.captions import load_split
from rewind.datasets.rtime import truncated_share
from rewind.files import read_csv, read_json, write_text
from rewind.jobs.results import read_ranks
from rewind.reporting import figures, style
from rewind.reporting.footnotes import Footnotes, coverage
from rewind.reporting.results import Results
from rewind.reporting.tables import render, summary
from rewind.study import Dataset, Study
from rewind.study.model import BASELINES
from rewind.text import make_tokenizer


@dataclass(frozen=True)
class Files:
    """What a report is made from.

    Attributes:
        metrics, intervals, pairs: the study's CSV files.
        records: ``run.json`` of every run, by method and seed.
        best: the sweep's choice.
        videos: the data set's video report.
        pretrained: ``run.json`` of the pre-training, if there was one.
    """

    metrics: str
    intervals: str
    pairs: str
    records: Mapping[tuple[str, int], str]
    best: str
    videos: str
    pretrained: str | None = None


def make_tables(study: Study, dataset: Dataset, files: Files, folder: str, overview: str) -> None:
    """Write a table per setting, and all of them as plain text, which is also printed."""
    results = load_results(study, dataset, files)
    facts = footnotes(study, dataset, files, results)
    for setting in study.evaluation.settings:
        render(folder, setting, results, facts, dataset.title or dataset.name)
    text = summary(results, study.evaluation.settings, dataset=dataset.title or dataset.name)
    write_text(overview, text)
    print(text)


def load_results(study: Study, dataset: Dataset, files: Files) -> Results:
    """The study's numbers with the names that tables give them."""
    methods = study.methods
    return Results(
        metrics=read_csv(files.metrics),
        intervals=read_csv(files.intervals),
        pairs=read_csv(files.pairs, text=("first", "second")),
        labels={name: method.label or name for name, method in methods.items()},
        train={name: _train_text(method, dataset) for name, method in methods.items()},
        baselines=[name for name, method in methods.items() if method.model in BASELINES],
        confidence=study.statistics.confidence,
    )


def footnotes(study: Study, dataset: Dataset, files: Files, results: Results) -> Footnotes:
    """What a reader must know to trust the tables, from what was recorded when things ran."""
    records = {run: read_json(path) for run, path in files.records.items()}
    best = read_json(files.best)
    trained = [record for (method, _), record in records.items() if method in results.trained()] or list(
        records.values()
    )
    tried = best.get("tried")
    procedure = results.intervals["procedure"].iloc[0]
    return Footnotes(
        settings=_sizes(results.metrics),
        backbone=_backbone(study),
        pretraining=_pretraining(study, files),
        max_frames=best["max_frames"],
        frames_chosen=f"{best['chosen']} from {', '.join(map(str, tried))}" if tried else "",
        decoding={
            "fps": dataset.video.fps,
            "short_side": dataset.video.short_side,
            "sampling": study.frames.sampling,
            "decoders": {n: v for n, v in trained[0]["packages"].items() if n.startswith("decord")},
        },
        hardware=_hardware(trained),
        seeds={results.labels[name]: study.methods[name].seeds or study.seeds for name in results.trained()},
        interval=procedure,
        comparison=f"paired {procedure}",
        family=len(study.pairs()),
        coverage=_coverage(read_csv(files.videos)),
        notes=_notes(study, dataset, Path(files.videos).parents[1]),
    )


def make_figures(
    study: Study, dataset: Dataset, files: Files, histories: Mapping[tuple[str, int], str], ranks: str, folder: Path
) -> None:
    """Intervals per method, training curves, cumulative rank curve: each as PNG and PDF."""
    results = load_results(study, dataset, files)
    named = {"labels": results.labels, "baselines": results.baselines}
    stacked = [
        pd.read_csv(path).assign(method=method, seed=seed)
        for (method, seed), path in histories.items()
        if Path(path).read_text().strip()  # closed-form methods have no epochs
    ]
    gallery = (
        results.metrics[results.metrics["direction"] == "text_to_item"].groupby("setting")["gallery"].max().to_dict()
    )
    found = read_ranks(study.runs(), ranks)
    every = pd.concat(
        t.assign(method=method, seed=seed) for method, seeds in found.items() for seed, t in seeds.items()
    )
    style.save(figures.intervals(results.intervals, confidence=results.confidence, **named), folder / "intervals")
    style.save(
        figures.training_curves(pd.concat(stacked) if stacked else pd.DataFrame(), **named), folder / "training_curves"
    )
    style.save(figures.rank_curve(every, gallery, **named), folder / "rank_curve")


def _train_text(method, dataset: Dataset) -> str:
    return method.train or ("–" if method.model == "chance" else dataset.title or dataset.name)


def _sizes(metrics: pd.DataFrame) -> dict[str, dict[str, int]]:
    sizes = {}
    for setting, rows in metrics[metrics["direction"] == "text_to_item"].groupby("setting"):
        queries = int(rows["queries"].iloc[0])
        sizes[setting] = {
            "queries": queries,
            "items": 2 * queries if setting == "binary" else int(rows["gallery"].iloc[0]),
        }
    return sizes


def _backbone(study: Study) -> str:
    keys = study.backbone
    if keys.kind == "towers":
        return (
            f"frozen EfficientNet-Lite0 (ImageNet) and all-MiniLM-L6-v2 under trained projections of width {keys.width}"
        )
    weights = (
        f"weights {keys.weights or keys.pretrained}" if keys.weights or keys.pretrained else "random initial weights"
    )
    frozen = study.training.freeze
    tail = f"; frozen while heads train: {' and '.join(frozen)} tower" if frozen else ""
    return f"{keys.kind} {keys.architecture}, {weights}{tail}"


def _pretraining(study: Study, files: Files) -> str:
    keys = study.pretraining
    if keys is None or files.pretrained is None:
        return ""
    record = read_json(files.pretrained)
    return (
        f"backbone trained with {keys.method.head} for {keys.training.epochs} epochs on the training split (seed "
        f"{keys.seed}, best epoch {record['best']['epoch']}), shared by all runs: the spread over seeds leaves it out"
    )


def _hardware(records: list[dict[str, Any]]) -> dict[str, int]:
    sets = Counter(tuple(sorted(Counter(record["hardware"]["devices"]).items())) for record in records)
    return {name: count for devices in sets for name, count in devices}


def _coverage(report: pd.DataFrame) -> str:
    bad = report[report["status"] != "ok"]
    reasons = Counter(
        "not found" if row.status == "missing" else str(row.reason).split(":")[0] for row in bad.itertuples()
    )
    return coverage(len(report), reasons, "source clips")


def _notes(study: Study, dataset: Dataset, folder: Path) -> list[str]:
    captions = load_split(folder, dataset.name, "test").captions["caption"].tolist()
    words = load_split(folder, dataset.name, "train").captions["caption"].tolist()
    if study.backbone.kind != "clip":
        return []
    share, number = truncated_share(captions, make_tokenizer(study.text.tokenizer, words).count, study.text.max_words)
    if not number:
        return [f"No test caption is longer than the {study.text.max_words} tokens that the text tower reads"]
    return [
        f"{number:,} of {len(captions):,} test captions ({100 * share:.1f}%) are cut at {study.text.max_words} tokens"
    ]


def runs_of(given: Any, name: str) -> dict[tuple[str, int], str]:
    """Input files of all runs, by method and seed, in the order of the study."""
    study = Study.model_validate(given.params.study)
    return dict(zip(study.runs(), given.input.get(name), strict=True))


def report_files(given: Any) -> Files:
    """The inputs of tables and figures."""
    inputs = given.input
    return Files(
        metrics=inputs.metrics,
        intervals=inputs.intervals,
        pairs=inputs.pairs,
        records=runs_of(given, "records"),
        best=inputs.best,
        videos=inputs.videos,
        pretrained=inputs.get("pretraining"),
    )
