"""Groups of test captions, and what each method does in each of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rewind.datasets.annotations import read_annotations
from rewind.datasets.captions import load_split
from rewind.datasets.groups import groups_of
from rewind.files import read_csv, write_csv
from rewind.jobs.given import Given
from rewind.jobs.metrics import Run, folder_of, read_ranks, read_reasons
from rewind.jobs.places import given_sources, sources_folder
from rewind.jobs.unpack import runs_of
from rewind.statistics.groups import by_group
from rewind.statistics.pairs import Random
from rewind.study import Dataset


def groups(given: Given) -> None:
    """Rule ``groups``."""
    dataset = Dataset(**given.params.dataset)
    make_groups(dataset, given.output[0], given_sources(dataset, given.input))


def group_results(given: Given) -> None:
    """Rule ``group_results``."""
    params = given.params
    compute_group_results(
        runs_of(given),
        folder_of(given.input.ranks),
        Path(given.input.item_table).parent,
        params.dataset,
        given.input.groups,
        dict(params.deciding),
        params.confidence,
        Random.of(params.random),
        list(params.compared),
        given.output[0],
    )


def make_groups(dataset: Dataset, path: str, sources: Path | None = None) -> None:
    """Write ``caption_id, group`` of test captions."""
    annotations = read_annotations(dataset, str(sources or sources_folder(dataset.name)))
    table = groups_of(dataset, annotations)
    print(f"{dataset.name}: {len(table):,} test captions in {table['group'].nunique():,} groups")
    write_csv(path, table)


def compute_group_results(
    runs: list[Run],
    ranks: str,
    folder: Path,
    dataset: str,
    groups: str,
    deciding: dict[str, str],
    confidence: float,
    random: Random,
    compared: list[str],
    result: str,
) -> None:
    """Write ``statistics/groups.csv``: a row per method, setting, direction and group."""
    named = of_queries(read_csv(groups, text=("caption_id", "group")), load_split(folder, dataset, "test").captions)
    tables, left = read_ranks(runs, ranks), read_reasons(runs, ranks)
    write_csv(result, by_group(tables, named, deciding, confidence, random, compared, left))


def of_queries(groups: pd.DataFrame, captions: pd.DataFrame) -> dict[str, str]:
    """Query → group: of captions their own, of items that of all their captions, where these have one alone."""
    found = dict(zip(groups["caption_id"], groups["group"], strict=True))
    of_items = captions.assign(group=captions["caption_id"].map(found)).groupby("video_id", sort=False)["group"]
    whole = of_items.agg(lambda own: own.iloc[0] if own.notna().all() and own.nunique() == 1 else "")
    return found | {item: group for item, group in whole.items() if group}
