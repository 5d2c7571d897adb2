"""The data stages: source clips or images, inventory, normalised ones, captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from rewind.datasets import leaks
from rewind.datasets.annotations import format_module, read_annotations
from rewind.datasets.captions import USABLE, write_captions
from rewind.datasets.digest import clips_digest, vectors_digest
from rewind.datasets.embedding_files import INDEX
from rewind.files import read_csv, read_json, write_csv, write_json
from rewind.jobs.given import Given
from rewind.jobs.places import given_sources, pack, sources_folder, unpack, videos_folder
from rewind.study.dataset import Dataset, Image, Video
from rewind.video.folding import refuse_one_name
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
    dataset = Dataset(**given.params.dataset)
    make_inventory(dataset, given.output[0], given_sources(dataset, given.input))


def video_shard(given: Given) -> None:
    """Rule ``video_shard``."""
    params, shard = given.params, int(given.wildcards["shard"])
    settings = (Image if params.kind == "images" else Video)(**params.media)
    for packed in given.input.get("sources"):
        unpack(Path(packed), Path(packed).with_suffix(""))
    make_shard(given.input.inventory, shard, settings, params.clip_code, given.threads, given.output.report)


def videos(given: Given) -> None:
    """Rule ``videos``."""
    params = given.params
    join_reports(list(given.input.reports), params.max_missing, params.how_to_get, params.kind, given.output.report)


def vector_report(given: Given) -> None:
    """Rule ``vector_report``."""
    dataset = Dataset(**given.params.dataset)
    report_vectors(dataset, given.output[0], given_sources(dataset, given.input))


def captions(given: Given) -> None:
    """Rule ``captions``."""
    dataset = Dataset(**given.params.dataset)
    listing = next(iter(given.input.get("inventory") or []), None)
    sources = given_sources(dataset, given.input)
    make_captions(dataset, given.input.report, given.output.item_table, sources, listing)


def make_sources(dataset: Dataset, code: str, ready: str) -> None:
    """Make or fetch source files; each format resumes what it left, and removes what other settings made."""
    format_module(dataset).make_sources(dataset, Path(ready).parent)
    if not dataset.vectors:
        pack(Path(ready).parent)
    write_json(ready, {"dataset": dataset.name, "source": dataset.source.signature(), "code": code})


def make_inventory(dataset: Dataset, path: str, sources: Path | None = None) -> None:
    """List the items that the annotations name and where each source is; ``sources``: those that are made here."""
    annotations = read_annotations(dataset, str(sources or sources_folder(dataset.name)))
    refuse_one_name(annotations.items["item_id"], Path(path).parent, f"config/datasets/{dataset.name}.yaml")
    clusters = leaks.shared_clusters(annotations.items)
    if not dataset.allow_overlap:
        leaks.settle(dataset, clusters)  # before any file is looked at
    rows = listed(dataset, annotations, videos_folder(dataset, sources))
    same = leaks.shared_sources(rows)
    leaks.settle(dataset, [*clusters, *same.values()])
    if dataset.allow_overlap:
        rows = rows.assign(**{leaks.SAME: rows["item_id"].map(same).fillna("")})
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


def report_vectors(dataset: Dataset, result: str, sources: Path | None = None) -> None:
    """The report of a data set of vectors, or without clips: nothing is normalised, every item is there."""
    items = read_annotations(dataset, str(sources or sources_folder(dataset.name))).items
    leaks.settle(dataset, [*leaks.shared_clusters(items), *leaks.shared_paths(items)])
    items = items[items["reversed"] == 0].reset_index(drop=True)
    table = pd.DataFrame("", index=range(len(items)), columns=list(REPORT_COLUMNS))
    write_csv(result, table.assign(item_id=items["item_id"], split=items["split"], status=USABLE))


def make_captions(
    dataset: Dataset, report: str, items: str, sources: Path | None = None, listing: str | None = None
) -> None:
    """Write items.csv and the captions of every split; ``listing`` is the inventory where splits may overlap."""
    sources = sources or sources_folder(dataset.name)
    annotations = read_annotations(dataset, str(sources))
    rows, suffix = read_csv(report), file_suffix(dataset.media)
    if not dataset.clips:
        annotations = replace(annotations, items=annotations.items.assign(path=""))
    if dataset.allow_overlap:
        said = leaks.notes(annotations.items, read_csv(listing, text=(leaks.SAME,)) if listing else None)
        annotations = replace(annotations, notes=annotations.notes | said)
    digest = _digest(dataset, rows, sources)
    content = write_captions(annotations, rows, Path(items).parent, dataset.name, suffix, digest)
    for split, counts in content["splits"].items():
        print(f"{dataset.name} {split}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items() if isinstance(v, int)))


def _digest(dataset: Dataset, report: pd.DataFrame, sources: Path) -> str | None:
    if dataset.vectors:
        hashes = read_json(sources / INDEX).get("hashes")
        return vectors_digest(hashes) if hashes else None
    return clips_digest(report) if dataset.clips else None


def _noun(items: str) -> str:
    return "images" if items == "images" else "clips"
