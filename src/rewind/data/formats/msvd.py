"""MSVD (Chen and Dolan, ACL 2011) in the files of Collaborative Experts, which CLIP4Clip passes on.

``raw-captions.pkl`` is a pickle: id → list of captions, each a list of words. It is read without running what a pickle
can run. ``train_list.txt``, ``val_list.txt`` and ``test_list.txt`` have an id per line; a clip's file is ``<id>.*``.

Every caption is a query, some 40 for each clip. In the other direction CLIP4Clip lets a clip search the best caption of
each clip (``evaluation.item_to_text: best_caption``).
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

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
    read_names,
)
from rewind.data.readers import read_plain_pickle
from rewind.errors import RewindError
from rewind.io.files import write_text
from rewind.io.schema import unknown_name
from rewind.registry import DUMMY_DATA, FORMATS

CAPTIONS_FILE = "raw-captions.pkl"
FILE_SPLITS = {"train": "train", "valid": "val", "test": "test"}
"""Our splits → their names in files."""
PUBLISHED_CLIPS = {"train": Published(1200), "valid": Published(100), "test": Published(670)}
MAX_CAPTIONS = 10_000
"""Captions of a clip, and words of a caption, that a file may have: a small pickle can stand for endless lists."""


@FORMATS.register("msvd")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used. Clips come in the order of the lists.

    The numbers of clips are compared with the published ones, those of captions are in the notes.

    Raises:
        RewindError: naming file and id for a pickle of something else, a listed clip without an entry in it, or numbers
            that differ from the published ones.
    """
    path = file_of(dataset.source, CAPTIONS_FILE)
    captions = read_plain_pickle(path, how_to_get(dataset))
    if not isinstance(captions, dict):
        raise RewindError(f"{path}: a dict of captions by clip is needed, not {type(captions).__name__}.")
    splits: dict[str, list[ListedClip]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for split, name in FILE_SPLITS.items():
        lines = file_of(dataset.source, f"{name}_list.txt")
        names, repeated = read_names(lines, how_to_get(dataset))
        splits[split] = []
        for clip in names:
            if clip not in captions:
                raise RewindError(f"{lines}: {unknown_name('the clip', clip, captions, str(path), 'line')}.")
            where = f"{path}: {clip!r}"
            splits[split].append(ListedClip(clip, clip, _join_words(captions[clip], where), where))
        counts = check_counts(dataset, lines, splits[split], PUBLISHED_CLIPS[split], f"MSVD's {split} split")
        notes[split] = {"file": str(lines), "listed_twice": repeated} | counts
    return annotate_clips(dataset, splits, notes)


def _join_words(value: object, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(words, list) for words in value):
        raise RewindError(f"{where}: a list of captions is needed, each a list of words.")
    if max([len(value), *map(len, value)]) > MAX_CAPTIONS:
        raise RewindError(f"{where}: more than {MAX_CAPTIONS:,} captions, or words in one of them.")
    if not all(isinstance(word, str) for words in value for word in words):
        raise RewindError(f"{where}: captions must be lists of words, and one holds something else.")
    return [" ".join(words) for words in value]


# ---- Dummy data ------------------------------------------------------------------------------------------------------

# The numbers of captions are rounded: some 41 for each clip.
PUBLISHED = PublishedSizes((1200, 49_000), (100, 4100), (670, 27_500), 1970, "MSVD, with 41 captions for each clip")


@DUMMY_DATA.register("msvd", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Three captions of each clip."""
    clips = draw_dummy_clips(folder, sizes, 3)
    captions = {clip.name: [caption.split() for caption in clip.entry.captions(False)] for clip in clips}
    (folder / CAPTIONS_FILE).write_bytes(pickle.dumps(captions, protocol=2))
    for split, name in FILE_SPLITS.items():
        names = [clip.name for clip in clips if clip.split == split]
        write_text(folder / f"{name}_list.txt", "\n".join(names) + "\n")
    return dummy_keys(folder)
