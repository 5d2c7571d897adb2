"""The data stages: source clips or images, inventory, normalised ones, captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from rewind.datasets.annotations import format_module, read_annotations
from rewind.datasets.captions import USABLE, write_captions
from rewind.datasets.digest import clips_digest, vectors_digest
from rewind.datasets.embedding_files import INDEX
from rewind.files import read_csv, read_json, write_csv, write_json
from rewind.jobs.given import Given
from rewind.jobs.places import sources_folder, videos_folder
from rewind.study.dataset import Dataset, Image, Video
from rewind.video.inventory import inventory as listed
from rewind.video.packed import read_members, write_index, write_members
from rewind.video.prepare import REPORT_COLUMNS, check_coverage, file_suffix
from rewind.video.shard import forget_others
from rewind.video.shard import make_shard as packed_shard


def sources(given: Given) -> None:
    """Rule ``sources``, and ``vectors`` of data sets that hold these."""
    workers = {"workers": given.params.workers}
    dataset = Dataset(**given.params.dataset, video=workers, image=workers)
    make_sources(dataset, given.params.code, given.output.ready)


def inventory(given: Given) -> None:
    """Rule ``inventory``."""
    make_inventory(Dataset(**given.params.dataset), given.output[0])


def video_shard(given: Given) -> None:
    """Rule ``video_shard``."""
    params, shard = given.params, int(given.wildcards["shard"])
    settings = (Image if params.kind == "images" else Video)(**params.media)
    make_shard(given.input[0], shard, settings, params.clip_code, given.threads, given.output.report)


def videos(given: Given) -> None:
    """Rule ``videos``."""
    params = given.params
    join_reports(list(given.input.reports), params.max_missing, params.how_to_get, params.kind, given.output.report)


def vector_report(given: Given) -> None:
    """Rule ``vector_report``."""
    report_vectors(Dataset(**given.params.dataset), given.output[0])


def captions(given: Given) -> None:
    """Rule ``captions``."""
    make_captions(Dataset(**given.params.dataset), given.input.report, given.output.item_table)


def make_sources(dataset: Dataset, code: str, ready: str) -> None:
    """Make or fetch source files; each format resumes what it left, and removes what other settings made."""
    format_module(dataset).make_sources(dataset, Path(ready).parent)
    write_json(ready, {"dataset": dataset.name, "source": dataset.source.signature(), "code": code})


def make_inventory(dataset: Dataset, path: str) -> None:
    """List the items that the annotations name and where each source is."""
    annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
    rows = listed(dataset, annotations, videos_folder(dataset))
    found = int((rows["source"] != "").sum())
    print(f"{dataset.name}: {found:,} of {len(rows):,} source {_noun(dataset.items)} found")
    write_csv(path, rows)


def make_shard(path: str, shard: int, settings: Video | Image, code: str, workers: int, result: str) -> None:
    """Normalise the items of one shard and pack them; those that ``code`` made from the same source stay.

    Beside the report ``<n>-of-<N>.csv`` lie the shard, ``.tar``, and its index, ``.index.csv``.
    """
    rows = read_csv(path)
    rows = rows[rows["shard"] == shard].reset_index(drop=True)
    report, packed = packed_shard(rows, Path(result).with_suffix(".tar"), settings, code, workers)
    write_members(_index(result), packed)
    write_csv(result, report)


def join_reports(shards: list[str], max_missing: float, how_to_get: str, items: str, result: str) -> None:
    """One report and one index over all shards, in the order of ``shards``.

    They are written before coverage is judged, so that they can be read either way.
    """
    parts = [read_csv(path) for path in shards]
    parts = [part for part in parts if len(part)] or parts[:1]
    report = pd.concat(parts, ignore_index=True).sort_values("item_id", kind="stable")
    folder = Path(result).parent
    write_csv(folder / "report.all.csv", report)
    write_index(folder, [(f"shards/{Path(path).stem}.tar", read_members(_index(path))) for path in shards])
    forget_others(folder, len(shards))
    name = folder.parent.name
    good = int((report["status"] == "ok").sum())
    print(f"{name}: {good:,} of {len(report):,} {_noun(items)} usable")
    check_coverage(report, max_missing, name, how_to_get, _noun(items))
    (folder / "report.all.csv").replace(result)


def _index(report: str) -> Path:
    return Path(report).with_suffix(".index.csv")


def report_vectors(dataset: Dataset, result: str) -> None:
    """The report of a data set of vectors, or without clips: nothing is normalised, every item is there."""
    items = read_annotations(dataset, str(sources_folder(dataset.name))).items
    items = items[items["reversed"] == 0].reset_index(drop=True)
    table = pd.DataFrame("", index=range(len(items)), columns=list(REPORT_COLUMNS))
    write_csv(result, table.assign(item_id=items["item_id"], split=items["split"], status=USABLE))


def make_captions(dataset: Dataset, report: str, items: str) -> None:
    """Write items.csv and the captions of every split."""
    annotations = read_annotations(dataset, str(sources_folder(dataset.name)))
    rows, suffix = read_csv(report), file_suffix(dataset.media)
    if not dataset.clips:
        annotations = replace(annotations, items=annotations.items.assign(path=""))
    content = write_captions(annotations, rows, Path(items).parent, dataset.name, suffix, _digest(dataset, rows))
    for split, counts in content["splits"].items():
        print(f"{dataset.name} {split}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items() if isinstance(v, int)))


def _digest(dataset: Dataset, report: pd.DataFrame) -> str | None:
    if dataset.vectors:
        hashes = read_json(sources_folder(dataset.name) / INDEX).get("hashes")
        return vectors_digest(hashes) if hashes else None
    return clips_digest(report) if dataset.clips else None


def _noun(items: str) -> str:
    return "images" if items == "images" else "clips"
