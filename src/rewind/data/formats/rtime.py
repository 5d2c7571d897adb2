"""RTime's annotation files (Du et al., *Reversed in Time*, arXiv 2412.19178) and anything in the same format.

One JSON object per split, keyed by id. Entries that deviate are handled as follows; every case is counted in the
notes, with the first ids:

- train uses human captions, then rewrites; valid and test use human captions only, however many there are;
- a caption that is not text, or only white space, is left out; white space inside a caption becomes one blank;
- a bare string instead of a list is a list of one; a missing or null list is an empty one;
- an entry that is not an object, or has no usable forward caption, is left out with its twin;
- ``reverse: false`` means no twin, a missing ``reverse`` means true; a twin needs a usable reverse caption;
- ``temporal`` has no effect; its absence or ``false`` is counted;
- ``group``, or else ``category`` or ``verb``, if it is text, is the group of all captions of an entry (RTime's own
  files have none of them);
- the same text for two items, or in both directions of one, is kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rewind.config.dataset import Dataset
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import PublishedSizes, SplitSizes, draw_clip, make_dummy_items
from rewind.data.scenes import CaptionedScene
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import json_type_name
from rewind.io.strict import check_json_escapes, parse_json, read_user_text, strict_json_decoder
from rewind.registry import DUMMY_DATA, FORMATS

GROUP_KEYS = ("group", "category", "verb")  # the first that is text counts
# JSON between the values of one object, so that the values can be decoded one by one.
_WHITE_SPACE = re.compile(r"[ \t\n\r]*")
_KEY_START = re.compile(r'[ \t\n\r]*"')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_ENTRY_END = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")


def has_groups(dataset: Dataset) -> bool:
    """Whether the test split's file names a group anywhere."""
    text = read_user_text(dict(dataset.source.annotations).get("test", ""))
    return any(re.search(rf'"{key}"\s*:\s*"\s*[^"\s]', text) for key in GROUP_KEYS)


@FORMATS.register("rtime", has_groups=has_groups)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files named in ``source.annotations``; ``sources`` is not used.

    Raises:
        RewindError: naming file and id, if a file is missing, is not JSON of this shape, or an id is unsafe,
            given twice, or in two splits.
    """
    return read_rtime_files(dict(dataset.source.annotations), dataset.reverse)


def read_rtime_files(paths: dict[str, str], reverse: bool) -> Annotations:
    """Read a file per split, in the order of ``paths``; ``reverse``: originals with a reverse caption get a twin."""
    builder = AnnotationBuilder()
    splits: dict[str, dict[str, Any]] = {}
    for split, path in paths.items():
        oddities = _OddityCounter()
        count = 0
        for item_id, entry in _iterate_entries(path):
            _add_entry(builder, item_id, entry, split, reverse, f"{path}: id {item_id!r}", oddities)
            count += 1
        splits[split] = {"file": str(path), "entries": count, **oddities.notes()}
    return builder.annotations(splits)


class _OddityCounter:
    """Counts oddities by kind, with the first ids of each."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.ids: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, item_id: str) -> None:
        self.counts[kind] += 1
        if len(self.ids[kind]) < MAX_NOTE_EXAMPLES and item_id not in self.ids[kind]:
            self.ids[kind].append(item_id)

    def notes(self) -> dict[str, Any]:
        return {"odd": dict(sorted(self.counts.items())), "odd_ids": dict(sorted(self.ids.items()))}


def _iterate_entries(path: str) -> Iterator[tuple[str, Any]]:
    """Ids and entries of a file, one after the other: decoded all at once they take several times the file's size."""
    text = read_user_text(path, "(`source.annotations`); put it there or correct the key")
    check_json_escapes(text, path)
    decoder = strict_json_decoder()
    seen: set[str] = set()

    def decode_from(start: int) -> tuple[Any, int]:
        return parse_json(text, path, lambda: decoder.raw_decode(text, start))

    def decode_all() -> Any:
        return parse_json(text, path, lambda: decoder.decode(text))

    white_space = _WHITE_SPACE.match(text)
    position = white_space.end() if white_space else 0  # the pattern matches every text
    if not text.startswith("{", position):
        raise RewindError(f"{path}: a JSON object keyed by id is needed, not {json_type_name(decode_all())}.")
    position += 1
    while key_start := _KEY_START.match(text, position):
        key, position = decode_from(key_start.end() - 1)
        colon = _COLON.match(text, position)
        if not colon or key in seen:
            break
        value, position = decode_from(colon.end())
        seen.add(key)
        yield key, value
        end = _ENTRY_END.match(text, position)
        if not end:
            break
        position = end.end()
        if end[1] == "}":
            if position == len(text):
                return
            break
    # Something is wrong, or the file is `{}`: decoding the whole text raises the error for it, if any.
    decode_all()


def _add_entry(
    builder: AnnotationBuilder,
    item_id: str,
    entry: object,
    split: str,
    reverse: bool,
    where: str,
    oddities: _OddityCounter,
) -> None:
    """Add an entry and its twin, and count what is odd about it; the module's docstring says how it is handled."""
    if not isinstance(entry, dict):
        return oddities.add("left_out_not_an_object", item_id)
    notes = _entry_notes(entry, where)
    forward = _captions_of_direction(entry, "forward", split, where, notes)
    backward = _captions_of_direction(entry, "reverse", split, where, notes)
    if not forward:
        notes.append("left_out_no_forward_caption")
    elif not backward and entry.get("reverse") is not False:
        notes.append("no_twin_without_reverse_caption")
    elif backward and set(forward) & set(backward):
        notes.append("same_caption_both_ways")
    for kind in notes:
        oddities.add(kind, item_id)
    if forward:
        name = builder.original(item_id, item_id, split, item_id, where)
        group = next((text for key in GROUP_KEYS if isinstance(text := entry.get(key), str) and text.strip()), "")
        group = " ".join(group.split())
        builder.describe(name, forward, split, [group] * len(forward))
        if reverse and backward and entry.get("reverse") is not False:
            builder.describe(builder.twin(name, name, split, name), backward, split, [group] * len(backward))


def _entry_notes(entry: dict[str, Any], where: str) -> list[str]:
    """What is odd about the flags of an entry."""
    notes = []
    for name in ("temporal", "reverse"):
        value = entry.get(name)
        if value is None:
            notes.append(f"{name}_missing")
        elif not isinstance(value, bool):
            raise RewindError(f"{where}: {name!r} must be true or false, not {json_type_name(value)}.")
        elif not value:
            notes.append(f"{name}_false")
    return notes


def _captions_of_direction(
    entry: dict[str, Any], direction: str, split: str, where: str, notes: list[str]
) -> list[str]:
    """Usable captions of one direction: human ones, and for training then their rewrites."""
    human = _caption_texts(entry, f"{direction}_captions", where, notes)
    if len(human) != 1:
        notes.append(f"{direction}_human_captions_not_one")
    return human + _caption_texts(entry, f"{direction}_rewrites", where, notes) if split == "train" else human


def _caption_texts(entry: dict[str, Any], name: str, where: str, notes: list[str]) -> list[str]:
    value = entry.get(name)
    if value is None:
        notes.append(f"{name}_missing")
        return []
    if isinstance(value, str):
        notes.append(f"{name}_bare_string")
        value = [value]
    if not isinstance(value, list):
        raise RewindError(f"{where}: {name!r} must be a list of captions, not {json_type_name(value)}.")
    texts = [" ".join(text.split()) for text in value if isinstance(text, str)]
    notes += [f"{name}_not_text"] * (len(value) - len(texts)) + [f"{name}_empty_text"] * texts.count("")
    return [text for text in texts if text]


# ---- Writing entries ------------------------------------------------------------------------------------------------


def rtime_entry(entry: CaptionedScene) -> dict[str, object]:
    """A scene as an entry of RTime's JSON files, the human caption apart from the rewrites."""
    forward, reverse = entry.captions(False), entry.captions(True)
    return {
        "temporal": True,
        "reverse": True,
        "forward_captions": forward[:1],
        "reverse_captions": reverse[:1],
        "forward_rewrites": forward[1:],
        "reverse_rewrites": reverse[1:],
        "group": entry.scene.event,
        "url": "",
    }


# ---- Dummy data ----------------------------------------------------------------------------------------------------

# 21,537 videos, originals and reversed ones, with 210,000 captions; 500 and 1,000 originals of valid and test have
# one human caption in each direction.
PUBLISHED = PublishedSizes((18_537, 180_000), (1000, 1000), (2000, 2000), 21_537, "RTime as published")


@DUMMY_DATA.register("rtime", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Ten captions in each direction, as in RTime; one training entry has no reverse, as with some there."""
    clips = make_dummy_items(sizes, 10)
    for clip in clips:
        draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
    for split in SPLITS:
        entries = {clip.name: rtime_entry(clip.entry) for clip in clips if clip.split == split}
        if split == "train":
            next(iter(entries.values()))["reverse"] = False
        write_json(folder / f"{split}.json", entries)
    annotations = {split: str(folder / f"{split}.json") for split in SPLITS}
    return {"annotations": annotations, "videos": str(folder / "videos"), "reversed_videos": None}
