"""Annotation files of the field's data sets, with invented ids and captions in the structure of the real ones.

Numbers of clips are chosen; the same numbers give the same files on every Python, so that what CLIP4Clip's loaders made
of them can be kept (``tests/golden/clip4clip/loaders.json``).
"""

from __future__ import annotations

import csv
import json
import pickle
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = ["a", "the", "red", "door", "cup", "ball", "dog", "opens", "closes", "runs", "falls", "turns", "slowly", "up"]
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
SIZES = {"train": 40, "valid": 6, "test": 9}


class Draw:
    """Draws from one generator by ``random()`` alone, whose numbers are the same in every version of Python."""

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``."""
        return low + int(self.generator.random() * (high - low + 1))

    def one_of(self, values: Sequence[Any]) -> Any:
        return values[self.number(0, len(values) - 1)]

    def shuffled(self, values: Iterable[Any]) -> list[Any]:
        return [value for _, value in sorted(((self.generator.random(), n), value) for n, value in enumerate(values))]

    def caption(self) -> str:
        return " ".join(self.one_of(WORDS) for _ in range(self.number(4, 12)))

    def video(self, first: str = "") -> str:
        """An id as YouTube's are: 11 characters, of which the first may be a dash."""
        return first + "".join(self.one_of(ALPHABET) for _ in range(11 - len(first)))


def write_field_files(name: str, folder: Path, sizes: dict[str, int] | None = None) -> list[str]:
    """Write a data set's annotation files, and return the file names of its clips, below the folder of clips."""
    folder.mkdir(parents=True, exist_ok=True)
    return _WRITERS[name](folder, sizes or SIZES, Draw(sum(map(ord, name))))


def _csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")


def _msrvtt(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    """``train`` clips train, ``valid`` clips validate, and twice ``test`` clips test, half of them in 1k-A."""
    splits = ["train"] * sizes["train"] + ["validate"] * sizes["valid"] + ["test"] * 2 * sizes["test"]
    clips = [f"video{n}" for n in range(len(splits))]
    videos = [
        {"category": 9, "url": f"watch?v={draw.number(0, len(clips))}", "video_id": clip, "split": split, "id": n}
        for n, (clip, split) in enumerate(zip(clips, splits, strict=True))
    ]
    pairs = [(clip, draw.caption()) for clip in draw.shuffled(clips) for _ in range(20)]
    sentences = [{"caption": text, "video_id": clip, "sen_id": n} for n, (clip, text) in enumerate(pairs)]
    _json(folder / "MSRVTT_data.json", {"info": {}, "videos": videos, "sentences": sentences})
    test = draw.shuffled(clips[-2 * sizes["test"] :])[: sizes["test"]]
    for kind, own in (("9k", [c for c in clips if c not in test]), ("7k", clips[: -2 * sizes["test"]])):
        _csv(folder / f"MSRVTT_train.{kind}.csv", [["video_id"], *([clip] for clip in draw.shuffled(own))])
    rows = [[f"ret{n}", f"msr{n}", clip, draw.caption() + ", too" * (n % 2)] for n, clip in enumerate(test)]
    _csv(folder / "MSRVTT_JSFUSION_test.csv", [["key", "vid_key", "video_id", "sentence"], *rows])
    return [f"{clip}.mp4" for clip in clips]


def _msvd(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    captions: dict[str, list[list[str]]] = {}
    for split, count in sizes.items():
        clips = [f"{draw.video('-' * (n == 0))}_{draw.number(0, 90)}_{draw.number(91, 190)}" for n in range(count)]
        captions |= {clip: [draw.caption().split() for _ in range(draw.number(2, 9))] for clip in clips}
        # No line end at the end of the file, as in two of the real lists.
        (folder / f"{split.replace('valid', 'val')}_list.txt").write_text("\n".join(clips))
    (folder / "raw-captions.pkl").write_bytes(pickle.dumps(captions, protocol=2))
    return [f"{clip}.avi" for clip in captions]


def _didemo(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    """Some clips are described and not listed, as in the real files."""
    listed = []
    for split, count in sizes.items():
        clips = [
            f"{draw.number(10**7, 10**8)}@N0{draw.number(0, 9)}_{draw.number(10**9, 10**10)}_{n:010x}."
            + draw.one_of(["mov", "mp4", "3gp"])
            for n in range(count + 2)
        ]
        entries = [
            {"video": clip, "description": draw.caption(), "times": [[0, 1]] * 4, "annotation_id": n}
            for n, clip in enumerate(draw.shuffled(clips * 3))
        ]
        _json(folder / f"{split.replace('valid', 'val')}_data.json", entries)
        own = draw.shuffled(clips[:count])
        (folder / f"{split.replace('valid', 'val')}_list.txt").write_text("\n".join(own) + "\n")
        listed += own
    return listed


def _activitynet(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    """``train`` and ``valid`` clips in the training files, from which validation is held out."""
    every = []
    for kind, ids, count in (
        ("train.json", "train_ids.json", sizes["train"] + sizes["valid"]),
        ("val_1.json", "val_ids.json", sizes["test"]),
    ):
        videos = [f"v_{draw.video('-' * (n == 0))}" for n in range(count)]
        entries = {
            video: {
                "duration": 90.5,
                "timestamps": [[0, 3.5], [3, 9]],
                "sentences": [f"{draw.caption().capitalize()}.", f" {draw.caption()}. "],
            }
            for video in draw.shuffled(videos)
        }
        _json(folder / kind, entries)
        _json(folder / ids, videos)
        every += videos
    return [f"{video.removeprefix('v_')}.mp4" for video in every]


def _lsmdc(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    names = ["LSMDC16_annos_training.csv", "LSMDC16_annos_val.csv", "LSMDC16_challenge_1000_publictect.csv"]
    clips = []
    for film, (name, count) in enumerate(zip(names, sizes.values(), strict=True)):
        rows = []
        for n in range(count):
            title = f"{1000 + 10 * film + n % 3}_Made_Film"
            clip = f"{title}_00.{n // 60:02}.{n % 60:02}.122-00.{n // 60:02}.{n % 60:02}.965"
            clips.append(f"{title}/{clip}.avi")
            for _ in range(1 + (film == 0 and n % 20 == 0)):
                rows.append("\t".join([clip, "00.00.01.000", "00.00.03.000", "", "", f"SOMEONE {draw.caption()}."]))
        (folder / name).write_text("\n".join(rows) + "\n")
    return clips


def _vatex(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    captions: dict[str, list[str]] = {}
    for (_, count), name in zip(sizes.items(), ("trn", "val", "tst"), strict=True):
        clips = [f"{draw.video('-' * (n == 0))}_{n:06}_{n + 10:06}" for n in range(count)]
        captions |= {clip: [draw.caption() for _ in range(10)] for clip in clips}
        np.save(folder / f"{name}_names.npy", np.array(clips))
    _json(folder / "ref_captions.json", captions)
    return [f"{clip}.mp4" for clip in captions]


def _youcook2(folder: Path, sizes: dict[str, int], draw: Draw) -> list[str]:
    """Videos of three segments; one segment of the test split is annotated twice, as one of the real ones is."""
    database: dict[str, Any] = {}
    rows, segments = [], []
    for subset, count in (("training", sizes["train"] + sizes["valid"]), ("validation", sizes["test"])):
        for start in range(0, count, 3):
            video = draw.video("-" * (start == 0))
            own = [
                {"id": n, "segment": [20 * n, 20 * n + 15], "sentence": draw.caption()}
                for n in range(min(3, count - start))
            ]
            if subset == "validation" and start == 0:
                own[1]["segment"] = own[0]["segment"]
            database[video] = {"subset": subset, "recipe_type": "101", "duration": 99.5, "annotations": own}
            segments += [f"{video}_{entry['id']}.mp4" for entry in own]
            if subset == "validation":
                rows += [[*reversed(entry["segment"]), 101, entry["sentence"], video] for entry in own]
    _json(folder / "youcookii_annotations_trainval.json", {"database": database})
    _csv(folder / "validation_youcook.csv", [["end", "start", "task", "text", "video_id"], *rows])
    return segments


_WRITERS = {
    "msrvtt": _msrvtt,
    "msvd": _msvd,
    "didemo": _didemo,
    "activitynet": _activitynet,
    "lsmdc": _lsmdc,
    "vatex": _vatex,
    "youcook2": _youcook2,
}
