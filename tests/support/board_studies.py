"""Made-up results of finished studies, as ``rewind board`` reads them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from checkout import ROOT
from rewind.report.board.studies import BASELINE, TRAINED, BoardStudy, MethodCard, StudyCard, read_board_study
from rewind.statistics.inference import mean_inference
from rewind.statistics.variance import variance_components

DIGEST = "8b" * 32
DIRECTIONS = ("text_to_item", "item_to_text")
STUDY = """
dataset: shapes
backbone: {architecture: config/models/tiny.json}
methods: {%s, chance: {model: chance, seeds: [0]}}
"""


def write_results(
    folder: Path,
    values: Mapping[str, float],
    *,
    seeds: int = 3,
    settings: Sequence[str] = ("origin", "hard"),
    digest: str | None = DIGEST,
    frames: int = 12,
    epochs: int = 5,
    clusters: int = 200,
    tests: bool = False,
) -> None:
    """The files of a finished study.

    Args:
        folder: of its results.
        values: method → R@1 in percent; every query succeeds with this probability.
        seeds: of every method.
        settings: that were evaluated.
        digest, frames, epochs: of every run.
        clusters: of queries, each with one.
        tests: whether the study tested its methods in pairs and ranked them.
    """
    rng = np.random.default_rng(len(values))
    metrics, intervals = [], []
    for method, value in values.items():
        for setting in settings:
            for direction in DIRECTIONS:
                key = {"method": method, "setting": setting, "direction": direction}
                hits = rng.binomial(1, value / 100, (1, seeds, clusters)) * 100.0
                parts = variance_components(hits, np.ones(clusters, dtype=int))
                result = mean_inference(parts, 0.95, least=np.array([0.0]), most=np.array([100.0]))
                sizes = {"seeds": seeds, "queries": clusters, "clusters": clusters}
                ends = {name: float(getattr(result, name)[0]) for name in ("estimate", "low", "high", "df")}
                intervals.append(key | {"metric": "R@1"} | sizes | ends)
                metrics += [
                    key | {"seed": seed, "queries": clusters, "gallery": clusters, "R@1": hits[0, seed].mean()}
                    for seed in range(seeds)
                ]
        for seed in range(seeds):
            path = folder / "runs" / method / f"seed{seed}" / "run.json"
            path.parent.mkdir(parents=True)
            training = {"epochs": epochs, "epoch_steps": None, "batch": {"size": 128}}
            record = {"seed": seed, "max_frames": frames, "data_digest": digest, "best": {}, "code": "", "packages": {}}
            path.write_text(json.dumps(record | {"spec": {"method": {"training": training}}}))
    (folder / "statistics").mkdir(parents=True)
    pd.DataFrame(metrics).to_csv(folder / "metrics.csv", index=False)
    table = pd.DataFrame(intervals)
    table.to_csv(folder / "statistics/intervals.csv", index=False)
    if tests:
        _ranks(table, list(values)).to_csv(folder / "statistics/ranks.csv", index=False)


def _ranks(table: pd.DataFrame, methods: Sequence[str]) -> pd.DataFrame:
    """Ranks that say nothing, so that a test sees where they come from: every method may be anywhere."""
    rows = table[["method", "setting", "direction", "metric"]]
    return rows.assign(rank=1, low=1, high=len(methods), compared=len(methods), confidence=0.95)


def card(name: str, kinds: Mapping[str, str], **changes: object) -> StudyCard:
    """A card of a study on made-up data; ``kinds``: method → kind."""
    values = {
        "name": name,
        "dataset": "clips",
        "title": "Clips",
        "items": "videos",
        "confidence": 0.95,
        "item_to_text": "all_captions",
        "pretraining": "",
        "metrics": {"origin": "R@1", "hard": "R@1", "binary": "R@1"},
        "methods": {method: MethodCard(method, kind) for method, kind in kinds.items()},
    }
    return StudyCard(**values | changes)  # type: ignore[arg-type]


def finished(folder: Path, name: str, values: Mapping[str, float], number: int = 0, **options: object) -> BoardStudy:
    """A study that was run, read again; a method called chance is a baseline."""
    changes = {key: options.pop(key) for key in list(options) if key in StudyCard.__dataclass_fields__}
    write_results(folder / "results" / name, values, **options)  # type: ignore[arg-type]
    kinds = {method: BASELINE if method == "chance" else TRAINED for method in values}
    return read_board_study(folder / "results" / name, card(name, kinds, **changes), number, f"results/{name}")


def add_study(home: Path, name: str, values: dict[str, float], **options: object) -> None:
    """A finished study in a working folder; its page says its name."""
    for folder in ("datasets", "studies", "models"):
        (home / "config" / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "config/datasets/shapes.yaml", home / "config/datasets")
    shutil.copy(ROOT / "config/models/tiny.json", home / "config/models")
    methods = ", ".join(f"{method}: {{head: meanP}}" for method in values if method != "chance")
    (home / "config/studies" / f"{name}.yaml").write_text(STUDY % methods)
    write_results(home / "results" / name, values, **options)
    (home / "results" / name / "report.html").write_text(f"<p>{name}</p>")
