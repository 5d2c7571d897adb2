"""YouCook2 (Zhou et al., AAAI 2018): segments of cooking videos with one sentence each.

``youcookii_annotations_trainval.json`` is ``database`` → video → ``subset`` and ``annotations`` (``id``, ``segment``,
``sentence``). Results are published on the 3,350 segments of the subset ``validation`` that ``validation_youcook.csv``
of MIL-NCE lists (``video_id``, ``start``, ``end``, ``text``; antoine77340/MIL-NCE_HowTo100M).

A clip is a segment. Rewind does not cut videos: segments must be cut before, into files ``<video>_<id>.*``, where
``id`` is that of the annotation. A row of the CSV whose times no annotation has is called ``<video>_<start>-<end>``.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rewind.config.dataset import Dataset
from rewind.data.annotations import MAX_NOTE_EXAMPLES, Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes
from rewind.data.formats.published import (
    ListedClip,
    Published,
    annotate_clips,
    check_counts,
    draw_dummy_clips,
    dummy_keys,
    file_of,
    hold_out,
    how_to_get,
)
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import CAPTION, ID, Column, RowChecks, Schema, checked_objects, number_of, object_of
from rewind.io.strict import read_user_csv, read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

DATA_FILE, TEST_FILE = "youcookii_annotations_trainval.json", "validation_youcook.csv"
_SECONDS = Column(kind="number", least=0)
TEST_COLUMNS = Schema({"video_id": ID, "start": _SECONDS, "end": _SECONDS, "text": CAPTION}, others=True)
VIDEO = Schema({"subset": Column(filled=True, choices=("training", "validation", "testing"))})
SEGMENT = Schema({"id": Column(kind="id", filled=True), "sentence": CAPTION}, unique=(("id",),))
PUBLISHED_TRAIN = Published(10_337, 10_337)
PUBLISHED_TEST = {"mil-nce": Published(3350, 3350), "all": Published(3492, 3492)}
HELD_OUT_RULE = "held out of training: whole videos, the first by the SHA-256 of their names"


@FORMATS.register("youcook2")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used.

    Training segments come in the order of the JSON file, test segments in that of the CSV, with its text. The segments
    of a video are one cluster.

    Raises:
        RewindError: naming file and entry for another structure, a segment that is listed twice, times that are not
            numbers, or numbers that differ from the published ones.
    """
    source = dataset.source
    path = file_of(source, DATA_FILE)
    content = object_of(read_user_json(path, how_to_get(dataset)), str(path))
    segments = list(_segments(object_of(content.get("database"), f"{path}: database"), str(path)))
    listed = [segment.clip for segment in segments if segment.subset == "training"]
    notes: dict[str, dict[str, Any]] = {
        "train": {"file": str(path)},
        "valid": {"file": str(path), "rule": HELD_OUT_RULE},
    }
    if source.test == "all":
        test_path, test = path, [segment.clip for segment in segments if segment.subset == "validation"]
        notes["test"] = {"file": str(path)}
    else:
        test_path = file_of(source, TEST_FILE)
        test, unknown = _read_test_list(dataset, test_path, segments)
        notes["test"] = {
            "file": str(test_path),
            "segments_not_annotated": len(unknown),
            "segments_not_annotated_shown": unknown[:MAX_NOTE_EXAMPLES],
        }
    notes["train"] |= check_counts(dataset, path, listed, PUBLISHED_TRAIN, "YouCook2's training segments")
    test_label = f"YouCook2's test segments ({source.test})"
    notes["test"] |= check_counts(dataset, test_path, test, PUBLISHED_TEST[source.test], test_label)
    train, valid = hold_out(listed, source.valid_clips, str(path))
    notes["train"]["held_out_for_validation"] = len(valid)
    return annotate_clips(dataset, {"train": train, "valid": valid, "test": test}, notes)


class _Segment(NamedTuple):
    subset: str
    times: tuple[str, float, float]  # video, start and end in seconds
    clip: ListedClip


def _segments(database: dict[str, Any], path: str) -> Iterator[_Segment]:
    checks = RowChecks(VIDEO, noun="entry")
    for video, entry in database.items():
        where = f"{path}: {video!r}"
        checks.take(where, object_of(entry, where))
        for place, segment in checked_objects(entry.get("annotations"), f"{where}: annotations", SEGMENT):
            times, name = segment.get("segment"), f"{video}_{segment['id']}"
            if not isinstance(times, list) or len(times) != 2:
                raise RewindError(f"{place}: 'segment' must be two numbers, start and end in seconds.")
            clip = ListedClip(name, name, [segment["sentence"]], place, video)
            yield _Segment(entry["subset"], (video, *_times(times[0], times[1], f"{place}: 'segment'")), clip)


def _times(start: Any, end: Any, where: str) -> tuple[float, float]:
    first, last = number_of(start), number_of(end)
    if not 0 <= first < last:
        raise RewindError(f"{where}: {start!r} to {end!r} are not a start and an end in seconds; correct them.")
    return first, last


def _read_test_list(dataset: Dataset, path: Path, segments: list[_Segment]) -> tuple[list[ListedClip], list[str]]:
    """Clips of the CSV, and the names of those whose times no annotation has."""
    annotated: dict[tuple[str, float, float], list[ListedClip]] = {}  # a few segments are annotated twice
    for segment in segments:
        annotated.setdefault(segment.times, []).append(segment.clip)
    clips: list[ListedClip] = []
    unknown = []

    def name_of(cells: dict[str, str]) -> str:
        return f"{cells['video_id']}_{cells['start']}-{cells['end']}"

    for number, cells in read_user_csv(path, TEST_COLUMNS, how_to_get(dataset)):
        where, video, text = f"{path}: row {number}", cells["video_id"], cells["text"]
        times = (video, *_times(cells["start"], cells["end"], where))
        candidates = annotated.get(times, [])
        if times in annotated and not candidates:
            raise RewindError(f"{where}: the segment {name_of(cells)} is in an earlier row already; keep one.")
        if candidates:
            # Of two annotations with one time, the one with this sentence; the first, if MIL-NCE reworded it.
            clip = next((clip for clip in candidates if clip.captions == [text]), candidates[0])
            candidates.remove(clip)
            name = clip.name
        else:
            name = name_of(cells)
            unknown.append(name)
            annotated[times] = []  # another row with these times is refused above
        clips.append(ListedClip(name, name, [text], where, video))
    return clips, unknown


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((9837, 9837), (500, 500), (3350, 3350), 13_687, "YouCook2, tested on MIL-NCE's segments")


@DUMMY_DATA.register("youcook2", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """A video for every segment, since videos are held out and resampled as a whole; ids are those of its files."""
    clips = draw_dummy_clips(folder, sizes, 1)
    database: dict[str, Any] = {}
    rows = []
    for clip in clips:
        sentence = clip.entry.captions(False)[0]
        (folder / "videos" / f"{clip.name}.mp4").rename(folder / "videos" / f"{clip.name}_0.mp4")
        database[clip.name] = {
            "subset": "validation" if clip.split == "test" else "training",
            "duration": 9.0,
            "annotations": [{"id": 0, "segment": [0, 9], "sentence": sentence}],
        }
        rows += [(9, 0, 101, sentence, clip.name)] if clip.split == "test" else []
    write_json(folder / DATA_FILE, {"database": database})
    with (folder / TEST_FILE).open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("end", "start", "task", "text", "video_id"), *rows])
    return dummy_keys(folder) | {"valid_clips": sizes.valid}
