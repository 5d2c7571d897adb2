"""From similarities to ranks and metrics, and the rank tables of a study's runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.evaluation.settings import among_originals, left_out
from rewind.files import read_json, write_csv, write_json, write_parquet
from rewind.jobs.given import Given
from rewind.statistics.blocks import Runs, check_ranks

Run = tuple[str, int]
"""Method and seed."""
NEAR_TIES_FROM = 0.01  # of queries
WITHOUT_TWINS = "its vectors have no time-reversed twins"
NEEDS_TWINS = ("hard", "binary", "test")
"""Settings that a run without the twins is not evaluated in: they ask about twins, or search all items."""


def metrics(given: Given) -> None:
    """Rule ``metrics``."""
    params = given.params
    runs = [(method, seed) for method, seed in params.runs]
    similarity = dict(zip(runs, given.input.similarity, strict=True))
    folder, output = Path(given.input.item_table).parent, given.output
    compute_metrics(folder, params.dataset, params.settings, params.directions, similarity, output.ranks, output.table)


def compute_metrics(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: dict[Run, str],
    ranks: str,
    table: str,
) -> None:
    """Ranks of every run (``<ranks>/<method>/seed<k>.parquet``) and one table of all metrics.

    Where a run lacks settings, ``<ranks>/<method>/seed<k>.json`` says which and why.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    if "binary" in settings and (count := left_out(captions, items)):
        print(f"binary: {count:,} captions are not used as queries: the twin of their clip has no caption")
    rows, lacking = [], []
    for (method, seed), path in similarity.items():
        with np.load(path, allow_pickle=False) as archive:
            scores, queries, gallery = archive["similarity"], archive["query_ids"], archive["item_ids"]
        reasons = not_evaluated(queries, gallery, captions, items, settings, path)
        run_captions = captions.set_index("caption_id", drop=False).loc[queries]
        run_items = items.set_index("item_id", drop=False).loc[gallery]
        lacking.append(reasons)
        if reasons:
            found = _of_originals(scores, run_captions, run_items, directions, path)
        else:
            found = ranking.rank_table(scores, run_captions, run_items, settings, directions, path)
        write_parquet(ranks_path(ranks, method, seed), found)
        said: dict[str, Any] = {"not_evaluated": reasons} if reasons else {}
        if "binary" in settings and "binary" not in reasons:
            share = ranking.near_ties(scores, run_captions, run_items)
            said |= {"near_ties": share} if share >= NEAR_TIES_FROM else {}
        _write_said(ranks_path(ranks, method, seed).with_suffix(".json"), said)
        for (setting, direction), part in found.groupby(["setting", "direction"], sort=False):
            place = {"method": method, "seed": seed, "setting": setting, "direction": direction}
            rows.append(place | ranking.metrics(part))
        del scores  # before the next one is read
    _check_settings(settings, lacking)
    write_csv(table, pd.DataFrame(rows))


def _check_settings(settings: list[str], lacking: list[dict[str, str]]) -> None:
    for setting in settings:
        if all(setting in reasons for reasons in lacking):
            raise RewindError(
                f"evaluation.settings: no run of the study can be evaluated in {setting!r} ({lacking[0][setting]}); "
                "take it out."
            )


def _of_originals(
    scores: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, directions: list[str], where: str
) -> pd.DataFrame:
    """Ranks in Origin of a run without twins, whose whole gallery is Origin's."""
    found = ranking.rank_table(scores, captions, items, [among_originals("origin")], directions, where)
    return found.assign(setting="origin")


def not_evaluated(
    queries: np.ndarray,
    gallery: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    settings: list[str],
    where: str = "similarity",
) -> dict[str, str]:
    """Settings that a run cannot be evaluated in, with the reason; of a matrix of all captions and items, none.

    Args:
        queries, gallery: ids of the matrix's captions and items.
        captions, items: of the test split.
        settings: of the study.
        where: names the matrix in messages.

    Raises:
        RewindError: for a matrix that lacks other items than all twins, lacks captions of the items that it has, or
            that no setting of the study is left for.
    """
    if len(set(gallery)) < len(gallery) or len(set(queries)) < len(queries):
        return {}  # refused by name where it is ranked
    lacking = items[~items["item_id"].isin(gallery)]
    asked = captions[captions["video_id"].isin(gallery) & ~captions["caption_id"].isin(queries)]
    if len(asked):
        raise RewindError(
            f"{where}: the caption {asked['caption_id'].iloc[0]!r} of the test split is missing; score all captions of "
            "its items."
        )
    if lacking.empty:
        return {}
    odd = set(lacking["item_id"]) ^ set(items.loc[items["reversed"] == 1, "item_id"])
    if odd:
        missing = lacking["item_id"].iloc[0]
        raise RewindError(
            f"{where}: the item {missing!r} of the test split is missing; only all time-reversed twins together may "
            "be, so score every original and all twins or none."
        )
    reasons = {setting: WITHOUT_TWINS for setting in settings if setting in NEEDS_TWINS}
    if len(reasons) == len(settings):
        raise RewindError(
            f"{where}: there are no time-reversed twins, which {', '.join(settings)} need; add origin to "
            "evaluation.settings, or score the twins too."
        )
    return reasons


def _write_said(path: Path, said: dict[str, Any]) -> None:
    if said:
        write_json(path, said)
    else:
        path.unlink(missing_ok=True)


def ranks_path(folder: str, method: str, seed: int) -> Path:
    """The rank table of a run."""
    return Path(folder) / method / f"seed{seed}.parquet"


def read_ranks(runs: list[Run], folder: str) -> Runs:
    """Rank tables of all runs, by method and seed.

    Raises:
        RewindError: naming the file and row of a run that is missing or broken.
    """
    tables: Runs = {}
    for method, seed in runs:
        path = ranks_path(folder, method, seed)
        if not path.is_file():
            raise RewindError(f"{path}: the ranks of method {method!r}, seed {seed} are missing; evaluate it first.")
        table = pd.read_parquet(path)
        check_ranks(table, str(path))
        tables.setdefault(method, {})[seed] = table
    return tables


def read_reasons(runs: Iterable[Run], folder: str) -> dict[str, dict[str, str]]:
    """Method → setting that it was not evaluated in → the reason, from ``<ranks>/<method>/seed<k>.json``."""
    found: dict[str, dict[str, str]] = {}
    for (method, _), said in _said(runs, folder).items():
        if "not_evaluated" in said:
            found.setdefault(method, {}).update(said["not_evaluated"])
    return found


def read_near_ties(runs: Iterable[Run], folder: str) -> dict[Run, float]:
    """Run → share of Binary's queries that rounding may decide, of runs where it is worth a note."""
    return {run: said["near_ties"] for run, said in _said(runs, folder).items() if "near_ties" in said}


def _said(runs: Iterable[Run], folder: str) -> dict[Run, dict[str, Any]]:
    paths = {run: ranks_path(folder, *run).with_suffix(".json") for run in runs}
    return {run: read_json(path) for run, path in paths.items() if path.is_file()}
