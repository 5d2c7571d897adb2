"""Tables of a study, with footnotes made from provenance."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.datasets.captions import load_split
from rewind.datasets.rtime import truncated_share
from rewind.files import read_csv, read_json, write_text
from rewind.jobs.report import Files, load_results
from rewind.reporting.footnotes import Footnotes, coverage
from rewind.reporting.results import Results
from rewind.reporting.tables import render, summary
from rewind.study import Dataset, Study
from rewind.text import make_tokenizer


def make_tables(study: Study, dataset: Dataset, files: Files, folder: str, overview: str) -> None:
    """Write a table per setting, and all of them as plain text, which is also printed."""
    results = load_results(study, dataset, files)
    facts = footnotes(study, dataset, files, results)
    for setting in study.evaluation.settings:
        render(folder, setting, results, facts, dataset.title or dataset.name)
    text = summary(results, study.evaluation.settings, dataset=dataset.title or dataset.name)
    write_text(overview, text)
    print(text)


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
