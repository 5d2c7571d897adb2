"""From similarities to ranks and metrics, and the rank tables of a study's runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.evaluation.matrix import open_scored
from rewind.evaluation.scored_pairs import not_scored, reason
from rewind.evaluation.settings import among_originals, left_out
from rewind.files import read_json, reading_user_file, require_regular_file, write_csv, write_json, write_parquet
from rewind.jobs.given import Given
from rewind.statistics.blocks import Runs, check_ranks

Run = tuple[str, int]
"""Method and seed."""
NEAR_TIES_FROM = 0.01  # of queries
WITHOUT_TWINS = "its vectors have no time-reversed twins"
NEEDS_TWINS = ("hard", "binary", "test")
"""Settings that a run without the twins is not evaluated in: they ask about twins, or search all items."""


def ranks(given: Given) -> None:
    """Rule ``ranks``."""
    params, inputs = given.params, given.input
    folder, output = Path(inputs.item_table).parent, given.output
    files = inputs.similarity, output.ranks, output.said
    compute_ranks(folder, params.dataset, params.settings, params.directions, *files, params.item_to_text)


def metrics(given: Given) -> None:
    """Rule ``metrics``."""
    runs = [(method, seed) for method, seed in given.params.runs]
    join_metrics(dict(zip(runs, given.input.said, strict=True)), given.params.settings, given.output.table)


def compute_ranks(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: str,
    ranks: str,
    said: str,
    item_to_text: str = ranking.ALL_CAPTIONS,
) -> None:
    """Ranks of one run, and what is said of it: its metrics, and settings that it lacks with the reason.

    Args:
        folder: the data set's results folder.
        dataset: its name.
        settings, directions: of the study.
        similarity: the run's matrix.
        ranks: Parquet file of the rank table.
        item_to_text: ``evaluation.item_to_text``.
        said: JSON file with ``metrics`` (a row per setting and direction), and where they apply ``not_evaluated``
            (setting, or setting and direction → reason) and ``near_ties``.

    Raises:
        RewindError: for a matrix that no setting can be evaluated with.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    if "binary" in settings and (count := left_out(captions, items)):
        print(f"binary: {count:,} captions are not used as queries: the twin of their clip has no caption")
    scores, queries, gallery = open_scored(similarity)
    reasons = not_evaluated(queries, gallery, captions, items, settings, similarity)
    run_captions = captions.set_index("caption_id", drop=False).loc[queries]
    run_items = items.set_index("item_id", drop=False).loc[gallery]
    if reasons:
        found = _of_originals(scores, run_captions, run_items, directions, similarity, item_to_text)
    else:
        found = ranking.rank_table(scores, run_captions, run_items, settings, directions, similarity, item_to_text)
    asked = [setting for setting in settings if setting not in reasons]
    reasons |= not_scored(scores, run_captions, run_items, asked, directions)
    found = _evaluated(found, reasons, similarity)
    write_parquet(ranks, found)
    content: dict[str, Any] = {"not_evaluated": reasons} if reasons else {}
    if "binary" in settings and not reason(reasons, "binary", "text_to_item"):
        share = ranking.near_ties(scores, run_captions, run_items)
        content |= {"near_ties": share} if share >= NEAR_TIES_FROM else {}
    content["metrics"] = [
        {"setting": setting, "direction": direction} | {name: _plain(value) for name, value in row.items()}
        for (setting, direction), part in found.groupby(["setting", "direction"], sort=False)
        for row in [ranking.metrics(part)]
    ]
    write_json(said, content)


def join_metrics(said: dict[Run, str], settings: list[str], table: str) -> None:
    """One table of all runs' metrics.

    Raises:
        RewindError: for a setting that no run was evaluated in.
    """
    contents = {run: read_json(path) for run, path in said.items()}
    _check_settings(settings, contents)
    rows = [
        {"method": method, "seed": seed} | row
        for (method, seed), content in contents.items()
        for row in content["metrics"]
    ]
    write_csv(table, pd.DataFrame(rows))


def _plain(value: Any) -> int | float:
    """A number as JSON has it, to the last bit."""
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def _check_settings(settings: list[str], contents: dict[Run, dict[str, Any]]) -> None:
    lacking = [content.get("not_evaluated", {}) for content in contents.values()]
    directions = dict.fromkeys(row["direction"] for content in contents.values() for row in content["metrics"])
    directions |= dict.fromkeys(place.partition(" ")[2] for why in lacking for place in why if " " in place)
    for setting in settings:
        for direction in directions:
            if all(reason(why, setting, direction) for why in lacking):
                way = "" if setting in lacking[0] else f", {direction}"
                raise RewindError(
                    f"evaluation.settings: no run of the study can be evaluated in {setting!r}{way} "
                    f"({reason(lacking[0], setting, direction)}); take it out."
                )


def _evaluated(found: pd.DataFrame, reasons: dict[str, str], where: str) -> pd.DataFrame:
    """Ranks of those settings and directions that the scores answer.

    Raises:
        RewindError: if there are none.
    """
    places = zip(found["setting"], found["direction"], strict=True)
    kept = found[[not reason(reasons, setting, direction) for setting, direction in places]]
    if kept.empty:
        said = "; ".join(f"{place}: {why}" for place, why in reasons.items())
        raise RewindError(f"{where}: no setting of the study can be evaluated with these scores ({said}).")
    return kept.reset_index(drop=True)


def _of_originals(
    scores: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, directions: list[str], where: str, texts: str
) -> pd.DataFrame:
    """Ranks in Origin of a run without twins, whose whole gallery is Origin's."""
    found = ranking.rank_table(scores, captions, items, [among_originals("origin")], directions, where, texts)
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


def ranks_path(folder: str, method: str, seed: int) -> Path:
    """The rank table of a run."""
    return Path(folder) / method / f"seed{seed}.parquet"


def folder_of(files: Sequence[str]) -> str:
    """The folder of a study's rank tables, of which these are some."""
    return str(Path(files[0]).parents[1])


def read_ranks(runs: list[Run], folder: str) -> Runs:
    """Rank tables of all runs, by method and seed.

    Raises:
        RewindError: naming the file and row of a run that is missing or broken.
    """
    tables: Runs = {}
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
