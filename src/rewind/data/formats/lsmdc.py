"""LSMDC 2016 (Rohrbach et al., IJCV 2017) in its own files, with the 1,000 test clips of its retrieval task.

``LSMDC16_annos_training.csv``, ``LSMDC16_annos_val.csv`` and ``LSMDC16_challenge_1000_publictect.csv`` (misspelt by
those who publish it) have no header; a row is clip, four times and sentence, with tabs between them. A clip's file is
``<clip>.*`` in ``source.videos``, or in a folder there that is named after its film.
"""

from __future__ import annotations

import re
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
)
from rewind.errors import RewindError
from rewind.io.files import write_text
from rewind.io.strict import read_user_text, split_lines
from rewind.registry import DUMMY_DATA, FORMATS

FIELDS = 6
# Rows, which are captions: the training file has some clips twice. Clips are known only for the test file.
PUBLISHED_ROWS = {"train": Published(None, 101_079), "valid": Published(None, 7408), "test": Published(1000, 1000)}
_TIME = re.compile(r"[\d.:,\s]*")
_CLIP_NAME = re.compile(r"(?P<film>.+)_\d\d\.\d\d\.\d\d\.\d{3}-\d\d\.\d\d\.\d\d\.\d{3}")


@FORMATS.register("lsmdc")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read the files in ``source.folder``; ``sources`` is not used.

    Clips come in the order of their first row; a clip with several rows has several captions. With
    ``source.cluster: film`` the clips of a film are one cluster.

    Raises:
        RewindError: naming file and row for a row of other cells, without a clip or without times, as in a
            header, or numbers that differ from the published ones.
    """
    splits: dict[str, list[ListedClip]] = {}
    notes: dict[str, dict[str, Any]] = {}
    for split, name in zip(PUBLISHED_ROWS, dataset.source.file_names(), strict=True):
        path = file_of(dataset.source, name)
        splits[split] = _read_rows(dataset, path)
        counts = check_counts(dataset, path, splits[split], PUBLISHED_ROWS[split], f"LSMDC's {split} split")
        films = {film_of(clip.name) for clip in splits[split]}
        notes[split] = {"file": str(path), "films": len(films)} | counts
    return annotate_clips(dataset, splits, notes)


def film_of(clip: str) -> str:
    """The film that a clip is cut from, which its name begins with; the name itself where it has no times.

    >>> film_of("1004_Juno_00.00.32.122-00.00.32.565"), film_of("clip7")
    ('1004_Juno', 'clip7')
    """
    match = _CLIP_NAME.fullmatch(clip)
    return match["film"] if match else clip


def _read_rows(dataset: Dataset, path: Path) -> list[ListedClip]:
    videos = Path(dataset.source.videos)
    folders: dict[str, bool] = {}  # film → whether it has a folder of its own
    clips: dict[str, ListedClip] = {}
    for number, line in enumerate(split_lines(read_user_text(path, how_to_get(dataset))), start=1):
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split("\t")
        where = f"{path}: row {number}"
        if len(cells) != FIELDS or not cells[0].strip():
            raise RewindError(
                f"{where}: {len(cells)} cells; a row is clip, four times and sentence, {FIELDS} cells with tabs "
                "between them."
            )
        if odd := [cell for cell in cells[1:-1] if not _TIME.fullmatch(cell)]:
            said = "; if this row names the columns, delete it: these files have no header" if number == 1 else ""
            raise RewindError(f"{where}: {odd[0]!r} is not a time such as 00.00.32.122{said}.")
        name, sentence = cells[0].strip(), cells[-1]
        if name not in clips:
            film = film_of(name)
            if film not in folders:
                folders[film] = dataset.clips and (videos / film).is_dir()
            cluster = film if dataset.source.cluster == "film" else ""
            clips[name] = ListedClip(name, f"{film}/{name}" if folders[film] else name, [], where, cluster)
        clips[name].captions.append(sentence)
    return list(clips.values())


# ---- Dummy data ------------------------------------------------------------------------------------------------------

PUBLISHED = PublishedSizes(
    (101_046, 101_079), (7408, 7408), (1000, 1000), 109_454, "LSMDC 2016 with its 1,000 test clips"
)


@DUMMY_DATA.register("lsmdc", published=PUBLISHED)
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """One sentence of each clip, and a second one of the first training clip."""
    clips = draw_dummy_clips(folder, sizes, 2)
    for split, name in zip(PUBLISHED_ROWS, dataset.source.file_names(), strict=True):
        rows: list[str] = []
        for clip in (clip for clip in clips if clip.split == split):
            sentences = clip.entry.captions(False)
            for sentence in sentences[: 2 if split == "train" and not rows else 1]:
                rows.append("\t".join([clip.name, "00.00.01.000", "00.00.09.000", "", "", sentence]))
        write_text(folder / name, "\n".join(rows) + "\n")
    return dummy_keys(folder)
