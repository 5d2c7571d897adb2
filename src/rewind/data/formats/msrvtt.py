"""MSR-VTT (Xu et al., CVPR 2016) in the files that CLIP4Clip passes on.

``MSRVTT_data.json`` has all clips (``videos``: ``video_id``, ``url``, ``split``) and captions (``sentences``:
``video_id``, ``caption``). ``MSRVTT_train.9k.csv`` and ``MSRVTT_train.7k.csv`` list training clips, of which only the
column ``video_id`` is read, and ``MSRVTT_JSFUSION_test.csv`` the test clips 1k-A with one caption each.

CLIP4Clip validates on the test clips. Here the 497 official validation clips, which are in both training lists, are
taken out of them, so that no checkpoint is chosen on the test split: 8,503 or 6,513 clips are trained on.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

from rewind.config.dataset import Dataset
from rewind.data.annotations import Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes
from rewind.data.formats.published import (
    ListedClip,
    Published,
    annotate_clips,
    check_counts,
    draw_dummy_clips,
    dummy_keys,
    file_of,
    how_to_get,
    unique_names,
)
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import CAPTION, FILLED, ID, Column, RowChecks, Schema, checked_objects, object_of, unknown_name
from rewind.io.strict import read_user_csv, read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

DATA_FILE, TEST_FILE = "MSRVTT_data.json", "MSRVTT_JSFUSION_test.csv"
TRAIN_COLUMNS = Schema({"video_id": ID}, others=True)
TEST_COLUMNS = Schema({"video_id": ID, "sentence": CAPTION}, others=True, unique=(("video_id", "sentence"),))
OFFICIAL_SPLITS = {"train": "train", "validate": "valid", "test": "test"}
"""Names of splits in ``MSRVTT_data.json`` → ours."""
VIDEOS = Schema(
    {"video_id": FILLED, "split": Column(filled=True, choices=tuple(OFFICIAL_SPLITS))}, unique=(("video_id",),)
)
SENTENCES = Schema({"video_id": FILLED, "caption": CAPTION})
PUBLISHED_TRAIN = {"9k": Published(9000, 180_000), "7k": Published(7010, 140_200), "full": Published(6513, 130_260)}
PUBLISHED_VALID = Published(497, 9940)
PUBLISHED_TEST = {"1k-A": Published(1000, 1000), "full": Published(2990, 59_800)}


@FORMATS.register("msrvtt")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used.

    Training clips come in the order of their first sentence, as CLIP4Clip's pairs do, and test clips in that of the
    test file. The notes count test clips that are cut from a video of which training clips are cut too.

    Raises:
        RewindError: naming file and entry for another structure, a split of another name, a listed clip that
            ``MSRVTT_data.json`` lacks, or numbers that differ from the published ones.
    """
    source = dataset.source
    data = _read_data(dataset)
    valid = [clip for clip in data.clips if data.splits[clip.name] == "valid"]
    listed, train_path, repeated = _training_list(dataset, data)
    if source.test == "full":
        test_path, test = data.path, [clip for clip in data.clips if data.splits[clip.name] == "test"]
    else:
        test_path, test = file_of(source, TEST_FILE), _read_test_list(dataset, data)
    held_out = {clip.name for clip in valid}
    training_urls = {data.urls[clip.name] for clip in listed if clip.name not in held_out}
    counts = {
        "train": check_counts(dataset, train_path, listed, PUBLISHED_TRAIN[source.train], "MSR-VTT's training clips"),
        "valid": check_counts(dataset, data.path, valid, PUBLISHED_VALID, "MSR-VTT's validation clips"),
        "test": check_counts(
            dataset, test_path, test, PUBLISHED_TEST[source.test], f"MSR-VTT's test clips {source.test}"
        ),
    }
    notes: dict[str, dict[str, Any]] = {
        "train": {
            "file": str(train_path),
            "list": source.train,
            "listed_twice": repeated,
            "held_out_for_validation": sum(clip.name in held_out for clip in listed),
        },
        "valid": {"file": str(data.path), "rule": "the official validation split"},
        "test": {
            "file": str(test_path),
            "list": source.test,
            "clips_of_videos_with_training_clips": sum(data.urls.get(clip.name) in training_urls for clip in test),
        },
    }
    splits = {"train": [clip for clip in listed if clip.name not in held_out], "valid": valid, "test": test}
    return annotate_clips(dataset, splits, {split: notes[split] | counts[split] for split in splits})


class _Data(NamedTuple):
    """``MSRVTT_data.json``: clips in the order of their first sentence, and what ``videos`` says about them."""

    path: Path
    clips: list[ListedClip]
    splits: dict[str, str]
    urls: dict[str, str]


def _read_data(dataset: Dataset) -> _Data:
    path = file_of(dataset.source, DATA_FILE)
    content = object_of(read_user_json(path, how_to_get(dataset)), str(path))
    splits: dict[str, str] = {}
    urls: dict[str, str] = {}
    for _, video in checked_objects(content.get("videos"), f"{path}: videos", VIDEOS):
        name = video["video_id"]
        # Clips are cut from one video by its url; without a url a clip is a video of its own.
        splits[name], urls[name] = OFFICIAL_SPLITS[video["split"]], str(video.get("url") or name)
    captions: dict[str, list[str]] = {}
    for _, sentence in checked_objects(
        content.get("sentences"), f"{path}: sentences", SENTENCES, {"video_id": splits}, "videos"
    ):
        captions.setdefault(sentence["video_id"], []).append(sentence["caption"])
    clips = [ListedClip(name, name, texts, f"{path}: {name!r}") for name, texts in captions.items()]
    return _Data(path, clips, splits, urls)


def _training_list(dataset: Dataset, data: _Data) -> tuple[list[ListedClip], Path, int]:
    """Clips of the training list with those that are validated on, the file that lists them, and repeated rows."""
    if dataset.source.train == "full":
        return [clip for clip in data.clips if data.splits[clip.name] == "train"], data.path, 0
    path = file_of(dataset.source, f"MSRVTT_train.{dataset.source.train}.csv")
    rows = {row.cells["video_id"]: row.number for row in read_user_csv(path, TRAIN_COLUMNS, how_to_get(dataset))}
    names, repeated = unique_names(row.cells["video_id"] for row in read_user_csv(path, TRAIN_COLUMNS))
    described = {clip.name for clip in data.clips}
    if lost := [name for name in names if name not in described]:
        of = f"the sentences of {data.path}"
        raise RewindError(f"{path}: row {rows[lost[0]]}: {unknown_name('the video_id', lost[0], described, of)}.")
    return [clip for clip in data.clips if clip.name in rows], path, repeated


def _read_test_list(dataset: Dataset, data: _Data) -> list[ListedClip]:
    path = file_of(dataset.source, TEST_FILE)
    clips: dict[str, ListedClip] = {}
    checks = RowChecks(TEST_COLUMNS, {"video_id": data.splits}, f"the videos of {data.path}")
    for number, cells in read_user_csv(path, TEST_COLUMNS, how_to_get(dataset), checks):
        name = cells["video_id"]
        clip = clips.setdefault(name, ListedClip(name, name, [], f"{path}: row {number}"))
        clip.captions.append(cells["sentence"])
    return list(clips.values())


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes(
    (8503, 170_060), (497, 9940), (1000, 1000), 10_000, "MSR-VTT, training list 9k and test 1k-A"
)


@DUMMY_DATA.register("msrvtt", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Three captions of each clip in the JSON file; training lists with the validation clips; one caption in 1k-A."""
    clips = draw_dummy_clips(folder, sizes, 3)
    official = {split: name for name, split in OFFICIAL_SPLITS.items()}
    videos = [{"video_id": clip.name, "url": clip.name, "split": official[clip.split]} for clip in clips]
    sentences = [
        {"video_id": clip.name, "caption": caption, "sen_id": 3 * n + m}
        for n, clip in enumerate(clips)
        for m, caption in enumerate(clip.entry.captions(False))
    ]
    write_json(folder / DATA_FILE, {"videos": videos, "sentences": sentences})
    for name in ("9k", "7k"):
        with (folder / f"MSRVTT_train.{name}.csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([["video_id"], *([clip.name] for clip in clips if clip.split != "test")])
    with (folder / TEST_FILE).open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["key", "vid_key", "video_id", "sentence"])
        for n, clip in enumerate(clip for clip in clips if clip.split == "test"):
            writer.writerow([f"ret{n}", f"msr{n}", clip.name, clip.entry.captions(False)[0]])
    return dummy_keys(folder)
