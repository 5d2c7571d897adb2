"""The data stages: source files, inventory, normalised clips or images, captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from rewind.config.dataset import Dataset, Image, Video
from rewind.data import splits
from rewind.data.annotations import TWIN_SUFFIX, dataset_format, read_annotations, reading_sentences
from rewind.data.captions import (
    SAME_ITEM_COLUMN,
    SAME_TWIN_COLUMN,
    USABLE_STATUS,
    clips_digest,
    embeddings_digest,
    write_captions,
)
from rewind.data.formats.embeddings import INDEX_FILE
from rewind.io.files import read_csv, read_json, write_csv, write_json
from rewind.video.prepare import REPORT_COLUMNS, check_coverage, file_suffix, remove_outdated_shards
from rewind.video.prepare import make_shard as make_packed_shard
from rewind.video.repair import count_sources
from rewind.video.shards import ShardMember, read_members, write_clip_index, write_members
from rewind.video.sources import (
    build_inventory,
    pack_sources,
    refuse_name_clashes,
    sources_folder,
    videos_folder,
)


def make_sources(dataset: Dataset, code: str, ready: str) -> None:
    """Make or fetch source files; each format resumes an interrupted call and removes files of other settings."""
    dataset_format(dataset).make_sources(dataset, Path(ready).parent)
    if not dataset.vectors:
        pack_sources(Path(ready).parent)
    write_json(ready, {"dataset": dataset.name, "source": dataset.source.fingerprint(), "code": code})


def make_inventory(dataset: Dataset, path: str, source_folder: Path | None = None) -> None:
    """Write the inventory: the items of the annotations and the source file of each.

    Raises:
        RewindError: for ids that clash on this file system, or clips that are in several splits.
    """
    annotations = read_annotations(dataset, str(source_folder or sources_folder(dataset.name)))
    refuse_name_clashes(annotations.items["item_id"], Path(path).parent, f"config/datasets/{dataset.name}.yaml")
    clusters = splits.shared_clusters(annotations.items)
    if not dataset.allow_overlap:
        splits.check_split_overlap(dataset, clusters)  # only from annotations, before any file is read
    rows = build_inventory(dataset, annotations, videos_folder(dataset, source_folder))
    duplicates = splits.shared_sources(rows)
    splits.check_split_overlap(dataset, [*clusters, *duplicates.values()])
    if dataset.allow_overlap:
        rows = rows.assign(**{splits.SAME_AS_COLUMN: rows["item_id"].map(duplicates).fillna("")})
    count = int((rows["source"] != "").sum())
    print(f"{dataset.name}: {count:,} of {len(rows):,} source {_items_noun(dataset.items)} found")
    write_csv(path, rows)


def make_shard(path: str, shard: int, settings: Video | Image, code: str, workers: int, result: str) -> None:
    """Normalise the items of one shard and pack them; those already made by the same code from the same source stay.

    Next to the report ``<n>-of-<N>.csv`` are the shard, ``.tar``, and its index, ``.index.csv``.
    """
    rows = read_csv(path)
    rows = rows[rows["shard"] == shard].reset_index(drop=True)
    report, members = make_packed_shard(rows, Path(result).with_suffix(".tar"), settings, code, workers)
    write_members(_index_path(result), members)
    write_csv(result, report)


def join_reports(shards: list[str], max_missing: float, how_to_get: str, items: str, result: str) -> None:
    """Write one report and one index over all shards, in the order of ``shards``.

    Raises:
        RewindError: if a larger share of items than ``max_missing`` is unusable. ``report.all.csv`` and the index are
            written before that is checked, so that they can be read even then.
    """
    reports = [read_csv(path) for path in shards]
    # Columns of an empty table have no types of their own, and would change those of the others.
    reports = [part for part in reports if len(part)] or reports[:1]
    report = pd.concat(reports, ignore_index=True).sort_values("item_id", kind="stable")
    folder = Path(result).parent
    packed = [(f"shards/{Path(path).stem}.tar", read_members(_index_path(path))) for path in shards]
    report = mark_same_items(report, [member for _, shard in packed for member in shard.members])
    write_csv(folder / "report.all.csv", report)
    write_clip_index(folder, packed)
    remove_outdated_shards(folder, len(shards))
    name = folder.parent.name
    usable = int((report["status"] == "ok").sum())
    print(f"{name}: {usable:,} of {len(report):,} {_items_noun(items)} usable")
    check_coverage(report, max_missing, name, how_to_get, _items_noun(items))
    (folder / "report.all.csv").replace(result)


def mark_same_items(report: pd.DataFrame, members: list[ShardMember]) -> pd.DataFrame:
    """The report with the first item of the split whose file is the same, byte by byte; empty where there is none.

    Frames are coded one by one and all alike, so that clips of the same frames are the same file: a clip that is its
    own reverse (one frame, a still, a motion there and back) and its twin; or two clips from one source.
    """
    content = {member.name.rpartition(".")[0]: member.sha256 for member in members}
    first: dict[tuple[str, str], str] = {}
    same: dict[str, str] = {}
    for suffix in ("", TWIN_SUFFIX):  # all originals first: a twin may be another original
        for item, split in zip(report["item_id"].astype(str) + suffix, report["split"], strict=True):
            if item in content and (other := first.setdefault((split, content[item]), item)) != item:
                same[item] = other
    originals = report["item_id"].astype(str)
    columns = {SAME_ITEM_COLUMN: originals, SAME_TWIN_COLUMN: originals + TWIN_SUFFIX}
    return report.assign(**{name: ids.map(same).fillna("") for name, ids in columns.items()})


def _index_path(report: str) -> Path:
    return Path(report).with_suffix(".index.csv")


def report_vectors(dataset: Dataset, result: str, source_folder: Path | None = None) -> None:
    """Write the report of a data set of vectors, or without clips: nothing is normalised, every item is usable."""
    items = read_annotations(dataset, str(source_folder or sources_folder(dataset.name))).items
    splits.check_split_overlap(dataset, [*splits.shared_clusters(items), *splits.shared_paths(items)])
    items = items[items["reversed"] == 0].reset_index(drop=True)
    table = pd.DataFrame("", index=range(len(items)), columns=list(REPORT_COLUMNS))
    write_csv(result, table.assign(item_id=items["item_id"], split=items["split"], status=USABLE_STATUS))


def make_captions(
    dataset: Dataset, report: str, items: str, source_folder: Path | None = None, listing: str | None = None
) -> None:
    """Write ``items.csv`` and the captions of every split; ``listing``: the inventory, where splits may overlap."""
    source_folder = source_folder or sources_folder(dataset.name)
    annotations = read_annotations(dataset, str(source_folder))
    rows, suffix = read_csv(report), file_suffix(dataset.media)
    if not dataset.clips:
        annotations = replace(annotations, items=annotations.items.assign(path=""))
    if dataset.allow_overlap:
        overlap_notes = splits.overlap_notes(
            annotations.items, read_csv(listing, text=(splits.SAME_AS_COLUMN,)) if listing else None
        )
        annotations = replace(annotations, notes=annotations.notes | overlap_notes)
    digest = _content_digest(dataset, rows, source_folder)
    content = write_captions(annotations, rows, Path(items).parent, dataset.name, suffix, digest, count_sources(rows))
    for split, counts in content["splits"].items():
        print(f"{dataset.name} {split}: " + ", ".join(f"{v:,} {k}" for k, v in counts.items() if isinstance(v, int)))
    for sentence in reading_sentences(annotations.notes):
        print(f"{dataset.name}: {sentence}")


def _content_digest(dataset: Dataset, report: pd.DataFrame, source_folder: Path) -> str | None:
    if dataset.vectors:
        hashes = read_json(source_folder / INDEX_FILE).get("hashes")
        return embeddings_digest(hashes) if hashes else None
    return clips_digest(report) if dataset.clips else None


def _items_noun(items: str) -> str:
    return "images" if items == "images" else "clips"
