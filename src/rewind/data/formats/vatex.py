"""VATEX (Wang et al., ICCV 2019) with its English captions, in the split of HGR (Chen et al., CVPR 2020).

``trn_names.npy``, ``val_names.npy`` and ``tst_names.npy`` are HGR's arrays of names (cshizhe/hgr_v2t). Captions are in
HGR's ``ref_captions.json``, an object name → captions, or in VATEX's own files, lists of objects with ``videoID`` and
``enCap``. A clip's file is ``<name>.*``, where a name is a YouTube id with the times of the clip.

Every clip has ten captions, all of which are queries. HGR's own code searches each text once where clips share it; here
it is a query of each of them, and the notes count such texts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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
from rewind.data.readers import read_text_array
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import FILLED, TEXTS, Schema, checked_objects, texts_of, unknown_name
from rewind.io.strict import read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

FILE_SPLITS = {"train": "trn", "valid": "val", "test": "tst"}
"""Our splits → their names in files."""
ENTRY = Schema({"videoID": FILLED, "enCap": TEXTS}, unique=(("videoID",),))
# Only clips: VATEX has ten captions for each, but files circulate from which repeated ones are removed.
PUBLISHED_CLIPS = {"train": Published(25_991), "valid": Published(1500), "test": Published(1500)}


@FORMATS.register("vatex")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used. Clips come in the order of the arrays of names.

    Raises:
        RewindError: naming file and entry for another structure, a name without captions, captions of one clip in two
            files that differ, or numbers that differ from the published ones.
    """
    captions: dict[str, list[str]] = {}
    for name in dataset.source.captions:
        path = file_of(dataset.source, name)
        for clip, texts in _read_captions(path, how_to_get(dataset)).items():
            if captions.setdefault(clip, texts) != texts:
                raise RewindError(f"{path}: {clip!r} has other captions here than in an earlier file; remove one.")
    splits: dict[str, list[ListedClip]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for split, name in FILE_SPLITS.items():
        path = file_of(dataset.source, f"{name}_names.npy")
        names, repeated = unique_names(read_text_array(path, how_to_get(dataset)))
        if lost := [clip for clip in names if clip not in captions]:
            of = ", ".join(dataset.source.captions)
            raise RewindError(f"{path}: {unknown_name('the clip', lost[0], captions, of, 'name')}.")
        splits[split] = [ListedClip(clip, clip, captions[clip], f"{path}: {clip!r}") for clip in names]
        counts = check_counts(dataset, path, splits[split], PUBLISHED_CLIPS[split], f"VATEX's {split} split by HGR")
        notes[split] = {"file": str(path), "listed_twice": repeated} | counts
    return annotate_clips(dataset, splits, notes)


def _read_captions(path: Path, missing: str) -> dict[str, list[str]]:
    content = read_user_json(path, missing)
    if isinstance(content, dict):
        return {name: texts_of(texts, f"{path}: {name!r}") for name, texts in content.items()}
    return {entry["videoID"]: entry["enCap"] for _, entry in checked_objects(content, str(path), ENTRY)}


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes((25_991, 259_910), (1500, 15_000), (1500, 15_000), 28_991, "VATEX in HGR's split")


@DUMMY_DATA.register("vatex", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Three captions of each clip, in HGR's files."""
    clips = draw_dummy_clips(folder, sizes, 3)
    write_json(folder / "ref_captions.json", {clip.name: clip.entry.captions(False) for clip in clips})
    for split, name in FILE_SPLITS.items():
        np.save(folder / f"{name}_names.npy", np.array([clip.name for clip in clips if clip.split == split], dtype=str))
    return dummy_keys(folder) | {"captions": ["ref_captions.json"]}
