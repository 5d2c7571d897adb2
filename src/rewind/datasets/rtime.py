"""RTime's annotation files (Du et al., *Reversed in Time*, arXiv 2412.19178) and anything in the same format.

One JSON object per split, keyed by id. The rules for entries that differ from the rest; every use is counted
in the notes, with the first ids:

- train uses human captions, then rewrites; valid and test use human captions only, however many there are;
- a caption that is not text, or holds only white space, is left out; white space inside a caption becomes
  one blank;
- a bare string in place of a list is a list of one; a missing or null list is an empty one;
- an entry that is not an object, or has no usable forward caption, is left out whole, with its twin;
- ``reverse: false`` means no twin; a missing ``reverse`` means true; without a usable reverse caption there
  is no twin;
- ``temporal`` changes nothing, its absence or ``false`` is counted;
- ``group``, or else ``category`` or ``verb``, if it is text, is the group of all captions of an entry (RTime's own
  files have none of them);
- the same text on two items, or in both directions of one, is kept.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from rewind.datasets.annotations import Annotations
from rewind.datasets.rows import SHOWN, Rows
from rewind.errors import RewindError
from rewind.reading.objects import check_characters, decoder, kind, parsed
from rewind.reading.text import read_text
from rewind.study.dataset import Dataset

GROUPS = ("group", "category", "verb")
_BLANK = re.compile(r"[ \t\n\r]*")
_ENTRY = re.compile(r'[ \t\n\r]*"')
_COLON = re.compile(r"[ \t\n\r]*:[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*([,}])[ \t\n\r]*")


def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files named in ``source.annotations``; ``sources`` is not used.

    Raises:
        RewindError: naming file and id, if a file is missing, is not JSON of this shape, or an id is unsafe,
            given twice, or in two splits.
    """
    return read_files(dict(dataset.source.annotations), dataset.reverse)


def has_groups(dataset: Dataset) -> bool:
    """Whether the test split's file names a group anywhere."""
    text = read_text(dict(dataset.source.annotations).get("test", ""))
    return any(re.search(rf'"{key}"\s*:\s*"\s*[^"\s]', text) for key in GROUPS)


def read_files(paths: dict[str, str], reverse: bool) -> Annotations:
    """Read one file per split, in the order given; ``reverse`` says whether twins are wanted at all."""
    rows, splits = Rows(), {}
    for split, path in paths.items():
        found = _Findings()
        count = 0
        for item_id, entry in _entries(path):
            _add(rows, item_id, entry, split, reverse, f"{path}: id {item_id!r}", found)
            count += 1
        splits[split] = {"file": str(path), "entries": count, **found.notes()}
    return rows.annotations(splits)


def truncated_share(
    captions: Iterable[str], count_tokens: Callable[[list[str]], list[int]], max_words: int
) -> tuple[float, int]:
    """How many captions do not fit into ``max_words`` tokens.

    Args:
        captions: the texts.
        count_tokens: number of tokens of each text, start and end tokens included.
        max_words: the model's context length.

    Returns:
        (share from 0 to 1, number) of captions with more than ``max_words`` tokens; (0, 0) for no captions.
    """
    counts = count_tokens(list(captions))
    longer = sum(count > max_words for count in counts)
    return (longer / len(counts) if counts else 0.0), longer


class _Findings:
    """Counts oddities and remembers the first ids of each kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = defaultdict(int)
        self.ids: dict[str, list[str]] = defaultdict(list)

    def add(self, kind: str, item_id: str) -> None:
        self.counts[kind] += 1
        if len(self.ids[kind]) < SHOWN and item_id not in self.ids[kind]:
            self.ids[kind].append(item_id)

    def notes(self) -> dict[str, Any]:
        return {"odd": dict(sorted(self.counts.items())), "odd_ids": dict(sorted(self.ids.items()))}


def _entries(path: str) -> Iterator[tuple[str, Any]]:
    """Keys and values of a file, one after the other: all at once would take several times the file's size."""

    text = read_text(path, "(`source.annotations`); put it there or correct the key")
    check_characters(text, path)
    whole, seen = decoder(), set()

    def part(start: int) -> tuple[Any, int]:
        return parsed(text, path, lambda: whole.raw_decode(text, start))

    def all_of_it() -> Any:
        return parsed(text, path, lambda: whole.decode(text))

    place = _BLANK.match(text).end()
    if not text.startswith("{", place):
        raise RewindError(f"{path}: a JSON object keyed by id is needed, not {kind(all_of_it())}.")
    place += 1
    while sign := _ENTRY.match(text, place):
        key, place = part(sign.end() - 1)
        colon = _COLON.match(text, place)
        if not colon or key in seen:
            break
        value, place = part(colon.end())
        seen.add(key)
        yield key, value
        following = _NEXT.match(text, place)
        if not following:
            break
        place = following.end()
        if following[1] == "}":
            if place == len(text):
                return
            break
    all_of_it()  # something is not as it should be, or the file is `{}`: the whole parser says what


def _add(rows: Rows, item_id: str, entry: object, split: str, reverse: bool, where: str, found: _Findings) -> None:
    if not isinstance(entry, dict):
        return found.add("left_out_not_an_object", item_id)
    note = _entry_notes(entry, where)
    forward = _captions(entry, "forward", split, where, note)
    backward = _captions(entry, "reverse", split, where, note)
    if not forward:
        note.append("left_out_no_forward_caption")
    elif not backward and entry.get("reverse") is not False:
        note.append("no_twin_without_reverse_caption")
    elif backward and set(forward) & set(backward):
        note.append("same_caption_both_ways")
    for odd in note:
        found.add(odd, item_id)
    if forward:
        name = rows.original(item_id, item_id, split, item_id, where)
        group = next((text for key in GROUPS if isinstance(text := entry.get(key), str) and text.strip()), "")
        group = " ".join(group.split())
        rows.describe(name, forward, split, [group] * len(forward))
        if reverse and backward and entry.get("reverse") is not False:
            rows.describe(rows.twin(name, name, split, name), backward, split, [group] * len(backward))


def _entry_notes(entry: dict[str, Any], where: str) -> list[str]:
    """What is odd about the flags of an entry."""
    notes = []
    for name in ("temporal", "reverse"):
        value = entry.get(name)
        if value is None:
            notes.append(f"{name}_missing")
        elif not isinstance(value, bool):
            raise RewindError(f"{where}: {name!r} must be true or false, not {kind(value)}.")
        elif not value:
            notes.append(f"{name}_false")
    return notes


def _captions(entry: dict[str, Any], direction: str, split: str, where: str, notes: list[str]) -> list[str]:
    """Usable captions of one direction, human ones first."""
    human = _texts(entry, f"{direction}_captions", where, notes)
    if len(human) != 1:
        notes.append(f"{direction}_human_captions_not_one")
    return human + _texts(entry, f"{direction}_rewrites", where, notes) if split == "train" else human


def _texts(entry: dict[str, Any], name: str, where: str, notes: list[str]) -> list[str]:
    value = entry.get(name)
    if value is None:
        notes.append(f"{name}_missing")
        return []
    if isinstance(value, str):
        notes.append(f"{name}_bare_string")
        value = [value]
    if not isinstance(value, list):
        raise RewindError(f"{where}: {name!r} must be a list of captions, not {kind(value)}.")
    texts = [" ".join(text.split()) for text in value if isinstance(text, str)]
    notes += [f"{name}_not_text"] * (len(value) - len(texts)) + [f"{name}_empty_text"] * texts.count("")
    return [text for text in texts if text]
