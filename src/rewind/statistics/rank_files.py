"""Reads the rank tables of a study's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import read_json, reading_user_file, require_regular_file
from rewind.statistics.blocks import RunRanks, check_ranks


def ranks_path(folder: str, method: str, seed: int) -> Path:
    """The rank table of a run.

    >>> ranks_path("results/demo/ranks", "meanP", 0).as_posix()
    'results/demo/ranks/meanP/seed0.parquet'
    """
    return Path(folder) / method / f"seed{seed}.parquet"


def ranks_folder(files: Sequence[str]) -> str:
    """The folder of a study's rank tables, from the paths of some of them."""
    return str(Path(files[0]).parents[1])


def read_ranks(runs: list[RunKey], folder: str) -> RunRanks:
    """Rank tables of all runs, by method and seed.

    Raises:
        RewindError: naming the file and row of a run that is missing or broken.
    """
    tables: RunRanks = {}
    for method, seed in runs:
        path = ranks_path(folder, method, seed)
        require_regular_file(path, missing_ok=True)
        if not path.is_file():
            raise RewindError(f"{path}: the ranks of method {method!r}, seed {seed} are missing; evaluate it first.")
        with reading_user_file(path, "Parquet file", "evaluate this run again"):
            table = pd.read_parquet(path)
        check_ranks(table, str(path))
        tables.setdefault(method, {})[seed] = table
    return tables


def read_not_evaluated(runs: Iterable[RunKey], folder: str) -> dict[str, dict[str, str]]:
    """Method → setting in which it was not evaluated → the reason, from ``<ranks>/<method>/seed<k>.json``."""
    reasons: dict[str, dict[str, str]] = {}
    for (method, _), content in _read_run_metrics(runs, folder).items():
        if "not_evaluated" in content:
            reasons.setdefault(method, {}).update(content["not_evaluated"])
    return reasons


def read_near_ties(runs: Iterable[RunKey], folder: str) -> dict[RunKey, float]:
    """Run → share of Binary's queries that rounding may decide, for runs where it is worth a note."""
    return {
        run: content["near_ties"] for run, content in _read_run_metrics(runs, folder).items() if "near_ties" in content
    }


def read_reranked(runs: Iterable[RunKey], folder: str) -> dict[RunKey, dict[str, Any]]:
    """Run → what it scored again, for runs that scored only the first results of another method.

    See :func:`rewind.evaluation.rerank.compute_reranked`.
    """
    return {
        run: content["reranked"] for run, content in _read_run_metrics(runs, folder).items() if "reranked" in content
    }


def read_captions_cut(runs: Iterable[RunKey], folder: str) -> dict[RunKey, dict[str, int]]:
    """Run → how many captions its towers cut, for runs with a model by name as towers.

    See :class:`rewind.data.score_matrix.CaptionsCut`.
    """
    contents = _read_run_metrics(runs, folder)
    return {run: content["captions_cut"] for run, content in contents.items() if "captions_cut" in content}


def _read_run_metrics(runs: Iterable[RunKey], folder: str) -> dict[RunKey, dict[str, Any]]:
    paths = {run: ranks_path(folder, *run).with_suffix(".json") for run in runs}
    return {run: read_json(path) for run, path in paths.items() if path.is_file()}
