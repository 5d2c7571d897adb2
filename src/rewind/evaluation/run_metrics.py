"""From similarity matrices to the ranks and metrics of runs, and the table of all runs' metrics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.study import RunKey
from rewind.data.annotations import is_among
from rewind.data.captions import load_split
from rewind.data.score_matrix import CaptionsCut, open_scores, read_captions_cut
from rewind.errors import RewindError
from rewind.evaluation import ranking
from rewind.evaluation.ranking import setting_without_twins, unscored_reason, unscored_settings
from rewind.evaluation.twins import count_binary_left_out
from rewind.io.files import read_json, write_csv, write_json, write_parquet

NO_TWINS_REASON = "its vectors have no time-reversed twins"
SETTINGS_NEEDING_TWINS = ("hard", "binary", "test")
"""Settings in which a run without twins is not evaluated: they are about twins, or search all items."""


def compute_ranks(
    folder: Path,
    dataset: str,
    settings: list[str],
    directions: list[str],
    similarity: str,
    ranks_file: str,
    run_metrics: str,
    item_to_text: str = ranking.ALL_CAPTIONS,
) -> None:
    """Write the ranks of one run, its metrics, and the settings in which it is not evaluated with the reasons.

    The JSON file ``run_metrics`` has ``metrics`` (a row per setting and direction), and where they apply
    ``not_evaluated`` (setting, or setting and direction → reason), ``near_ties`` and ``captions_cut``.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    for why, count in count_binary_left_out(captions, items).items() if "binary" in settings else ():
        print(f"binary: {count:,} captions {why} are not used as queries")
    scores, queries, gallery = open_scores(similarity)
    reasons = not_evaluated(queries, gallery, captions, items, settings, similarity)
    run_captions = captions.set_index("caption_id", drop=False).loc[queries]
    run_items = items.set_index("item_id", drop=False).loc[gallery]
    if reasons:
        table = _rank_originals(scores, run_captions, run_items, directions, similarity, item_to_text)
    else:
        table = ranking.rank_table(scores, run_captions, run_items, settings, directions, similarity, item_to_text)
    evaluated = [setting for setting in settings if setting not in reasons]
    reasons |= unscored_settings(scores, run_captions, run_items, evaluated, directions)
    near_ties = None
    if "binary" in settings and not unscored_reason(reasons, "binary", "text_to_item"):
        near_ties = ranking.near_tie_share(scores, run_captions, run_items)
    facts = cut_facts(read_captions_cut(similarity))
    write_ranks(table, reasons, near_ties, similarity, ranks_file, run_metrics, facts)


def cut_facts(captions_cut: CaptionsCut | None) -> dict[str, Any]:
    """The entry on cut captions in the JSON file of :func:`write_ranks`, if they were counted."""
    return {} if captions_cut is None else {"captions_cut": captions_cut._asdict()}


def write_ranks(
    table: pd.DataFrame,
    reasons: dict[str, str],
    near_ties: float | None,
    where: str,
    ranks_file: str,
    run_metrics: str,
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write the rank table of a run and its JSON file, see :func:`compute_ranks`; ``facts`` are further entries.

    ``near_ties`` is the share of Binary's queries that rounding may decide, None where Binary is not evaluated. At
    least one setting must be left.
    """
    table = _evaluated_ranks(table, reasons, where)
    write_parquet(ranks_file, table)
    content: dict[str, Any] = {"not_evaluated": reasons} if reasons else {}
    content |= {"near_ties": near_ties} if near_ties is not None and near_ties >= ranking.MIN_NEAR_TIE_SHARE else {}
    content |= facts or {}
    content["metrics"] = [
        {"setting": setting, "direction": direction} | {name: _plain_number(value) for name, value in row.items()}
        for (setting, direction), rows in table.groupby(["setting", "direction"], sort=False)
        for row in [ranking.compute_metrics(rows)]
    ]
    write_json(run_metrics, content)


def leave_out_settings(run_metrics: str, reasons: Mapping[str, str]) -> None:
    """Add settings (→ reason) that a run was not asked for to its JSON file of :func:`compute_ranks`."""
    if reasons:
        content = read_json(run_metrics)
        write_json(run_metrics, content | {"not_evaluated": content.get("not_evaluated", {}) | dict(reasons)})


def join_metrics(run_metrics: dict[RunKey, str], settings: list[str], table: str) -> None:
    """Write one table of all runs' metrics; a setting that no run was evaluated in is refused."""
    contents = {run: read_json(path) for run, path in run_metrics.items()}
    _check_settings(settings, contents)
    rows = [
        {"method": method, "seed": seed} | row
        for (method, seed), content in contents.items()
        for row in content["metrics"]
    ]
    write_csv(table, pd.DataFrame(rows))


def _plain_number(value: Any) -> int | float:
    """A NumPy number as a Python number, without loss of precision."""
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def _check_settings(settings: list[str], contents: dict[RunKey, dict[str, Any]]) -> None:
    reasons_by_run = [content.get("not_evaluated", {}) for content in contents.values()]
    directions = dict.fromkeys(row["direction"] for content in contents.values() for row in content["metrics"])
    directions |= dict.fromkeys(key.partition(" ")[2] for reasons in reasons_by_run for key in reasons if " " in key)
    for setting in settings:
        for direction in directions:
            if all(unscored_reason(reasons, setting, direction) for reasons in reasons_by_run):
                direction_note = "" if setting in reasons_by_run[0] else f", {direction}"
                raise RewindError(
                    f"evaluation.settings: no run of the study can be evaluated in {setting!r}{direction_note} "
                    f"({unscored_reason(reasons_by_run[0], setting, direction)}); remove it."
                )


def _evaluated_ranks(table: pd.DataFrame, reasons: dict[str, str], where: str) -> pd.DataFrame:
    """Ranks of those settings and directions that can be evaluated with the scores; none is an error."""
    views = zip(table["setting"], table["direction"], strict=True)
    evaluated = table[[not unscored_reason(reasons, setting, direction) for setting, direction in views]]
    if evaluated.empty:
        listed = "; ".join(f"{view}: {reason}" for view, reason in reasons.items())
        raise RewindError(f"{where}: no setting of the study can be evaluated with these scores ({listed}).")
    return evaluated.reset_index(drop=True)


def _rank_originals(
    scores: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    directions: list[str],
    where: str,
    item_to_text: str,
) -> pd.DataFrame:
    """Ranks in Origin of a run without twins: its gallery has only originals, so all of it is searched."""
    table = ranking.rank_table(
        scores, captions, items, [setting_without_twins("origin")], directions, where, item_to_text
    )
    return table.assign(setting="origin")


def not_evaluated(
    queries: np.ndarray,
    gallery: np.ndarray,
    captions: pd.DataFrame,
    items: pd.DataFrame,
    settings: list[str],
    where: str = "similarity",
) -> dict[str, str]:
    """Settings in which a run cannot be evaluated → the reason; empty for a matrix of all captions and items.

    ``queries`` and ``gallery`` are ids of the matrix, ``captions`` and ``items`` those of the test split. A matrix is
    refused that lacks other items than all twins, lacks captions of the items that it has, or is left without a
    setting.
    """
    if len(set(gallery)) < len(gallery) or len(set(queries)) < len(queries):
        return {}  # duplicates are refused by name where they are ranked
    missing_items = items[~is_among(items["item_id"], gallery)]
    missing_captions = captions[is_among(captions["video_id"], gallery) & ~is_among(captions["caption_id"], queries)]
    if len(missing_captions):
        raise RewindError(
            f"{where}: the caption {missing_captions['caption_id'].iloc[0]!r} of the test split is missing; score all "
            "captions of its items."
        )
    if missing_items.empty:
        return {}
    unexpected = set(missing_items["item_id"]) ^ set(items.loc[items["reversed"] == 1, "item_id"])
    if unexpected:
        first_missing = missing_items["item_id"].iloc[0]
        raise RewindError(
            f"{where}: the item {first_missing!r} of the test split is missing; only all time-reversed twins together "
            "may be, so score every original and all twins or none."
        )
    reasons = {setting: NO_TWINS_REASON for setting in settings if setting in SETTINGS_NEEDING_TWINS}
    if len(reasons) == len(settings):
        raise RewindError(
            f"{where}: there are no time-reversed twins, which {', '.join(settings)} need; add origin to "
            "evaluation.settings, or score the twins too."
        )
    return reasons
