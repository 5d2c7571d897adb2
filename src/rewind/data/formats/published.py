"""What data sets of the field share: clips in the order of their files, counts that were published, ids, twins.

The files are those that are passed round with CLIP4Clip (ArrowLuo/CLIP4Clip, arXiv 2104.08860) and, for VATEX and
YouCook2, with HGR and MIL-NCE. The order of items and captions is that of CLIP4Clip's loaders, so that a matrix of
similarities has the same rows and columns; docs/data-sets.md states where these readers differ from them, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rewind.config.dataset import Dataset, FieldSource
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import DummyItem, SplitSizes, draw_clip, make_dummy_items
from rewind.data.formats.photos import item_id_from_file
from rewind.errors import RewindError
from rewind.hashing import sha256_hex
from rewind.io.strict import read_user_text, split_lines


class ListedClip(NamedTuple):
    """A clip as the files of a data set list it."""

    name: str  # its id there
    source: str  # its file, relative to `source.videos`; a suffix may be missing
    captions: list[str]  # as they are in the file, also empty ones
    where: str  # file and row, for messages
    cluster: str = ""  # what statistics resample together, if it is more than the clip


class Published(NamedTuple):
    """Published numbers of a split; None: not published, or not known here."""

    clips: int | None
    captions: int | None = None


def file_of(source: FieldSource, name: str) -> Path:
    """The path of an annotation file."""
    return Path(source.folder) / name


def how_to_get(dataset: Dataset) -> str:
    """What a message for a missing annotation file adds."""
    return f"(`source.folder`). {dataset.how_to_get}"


def check_counts(
    dataset: Dataset, path: Path, clips: Sequence[ListedClip], published: Published, label: str
) -> dict[str, Any]:
    """Compare the numbers of clips and captions with the published ones, which ``source.counts: published`` requires.

    ``label`` is what they are, for messages, such as ``MSR-VTT's test clips 1k-A``. Returns notes: ``listed``
    and ``published``, each ``{"clips": …, "captions": …}``, and ``as_published``.
    """
    if not clips:
        raise RewindError(f"{path}: not one of {label} is in it and has a caption; get the complete file.")
    listed = Published(len(clips), sum(len(clip.captions) for clip in clips))
    known = {name: count for name, count in published._asdict().items() if count is not None}
    other = [name for name, count in known.items() if getattr(listed, name) != count]
    if other and dataset.source.counts == "published":
        numbers = " and ".join(f"{getattr(listed, name):,} {name} instead of {known[name]:,}" for name in other)
        raise RewindError(
            f"{path}: {numbers}, the published numbers of {label}; get the complete file. To use it as it is, set "
            "source.counts: any, and tables say so. For a part of the clips, use the key `only` with the complete file."
        )
    return {"listed": listed._asdict(), "published": known, "as_published": not other}


def counts_sentence(notes: Mapping[str, Any]) -> str:
    """The sentence of tables about numbers that differ from the published ones (:func:`check_counts`), or nothing.

    >>> counts = {"listed": {"clips": 40}, "published": {"clips": 1200}, "as_published": False}
    >>> counts_sentence({"splits": {"train": counts, "test": {"as_published": True}}})
    'Files differ from the published ones, which source.counts: any permits: train 40 clips instead of 1,200'
    """
    parts = []
    for split, note in notes.get("splits", {}).items():
        if note.get("as_published", True):
            continue
        other = [name for name, count in note["published"].items() if note["listed"][name] != count]
        numbers = (f"{note['listed'][name]:,} {name} instead of {note['published'][name]:,}" for name in other)
        parts.append(f"{split} {' and '.join(numbers)}")
    said = "Files differ from the published ones, which source.counts: any permits: "
    return said + "; ".join(parts) if parts else ""


def hold_out(clips: Sequence[ListedClip], count: int, where: str) -> tuple[list[ListedClip], list[ListedClip]]:
    """Split training clips into those to train on and those to validate on, always in the same way.

    Whole clusters are held out in the order of their names' SHA-256, until there are ``count`` clips or a few more.
    Which they are thus depends neither on the order of the file nor on a seed, and hardly on which clips are missing.
    Both parts keep the order of the file.

    >>> clips = [ListedClip(f"v{n}", "", [], "") for n in range(5)]
    >>> [[clip.name for clip in part] for part in hold_out(clips, 2, "train.json")]
    [['v2', 'v3', 'v4'], ['v0', 'v1']]
    """
    sizes: dict[str, int] = {}
    for clip in clips:
        sizes[clip.cluster or clip.name] = sizes.get(clip.cluster or clip.name, 0) + 1
    held_out: set[str] = set()
    number = 0
    for cluster in sorted(sizes, key=lambda name: sha256_hex(name.encode())):
        if number >= count:
            break
        held_out.add(cluster)
        number += sizes[cluster]
    train = [clip for clip in clips if (clip.cluster or clip.name) not in held_out]
    if not train:
        raise RewindError(
            f"{where}: source.valid_clips: {count:,} would hold out all {len(clips):,} training clips; use fewer."
        )
    return train, [clip for clip in clips if (clip.cluster or clip.name) in held_out]


def annotate_clips(
    dataset: Dataset, splits: Mapping[str, Sequence[ListedClip]], notes: Mapping[str, Mapping[str, Any]]
) -> Annotations:
    """Items and captions of a data set of the field.

    A clip without a usable caption is in the gallery, but there is no query for it. White space inside a caption
    becomes one blank; empty captions are left out and counted. An id that cannot be a file's name, such as one that
    begins with ``-`` or has an ``@``, gets a part of its hash; without clips (``clips: false``) all ids stay as they
    are. With ``reverse: true`` every clip of validation and test gets a twin, which has no caption.

    Raises:
        RewindError: naming file and row for an id that is listed twice, or a path that leaves the folder of clips.
    """
    builder = AnnotationBuilder(files=dataset.clips)
    counted: dict[str, dict[str, Any]] = {}
    changed: list[str] = []
    for split in SPLITS:
        empty = 0
        for clip in splits.get(split, ()):
            item_id = safe_id(clip.name) if dataset.clips else clip.name
            changed += [clip.name] * (item_id != clip.name)
            if dataset.clips and (Path(clip.source).is_absolute() or ".." in Path(clip.source).parts):
                raise RewindError(f"{clip.where}: {clip.source!r} must name a file inside `source.videos`.")
            name = builder.original(item_id, clip.source, split, clip.cluster or item_id, clip.where)
            texts = [" ".join(text.split()) for text in clip.captions]
            empty += texts.count("")
            builder.describe(name, [text for text in texts if text], split)
            if dataset.reverse and split != "train":
                builder.twin(name, clip.source, split, clip.cluster or item_id)
        counted[split] = {**notes.get(split, {}), "empty_captions": empty}
    annotations = builder.annotations(counted)
    ids = {
        "ids_changed": len(changed),
        "ids_changed_shown": {name: safe_id(name) for name in changed[:MAX_NOTE_EXAMPLES]},
    }
    return Annotations(annotations.items, annotations.captions, annotations.notes | ids)


def safe_id(name: str) -> str:
    """An id that can be a file's name: the data set's own, or one with a part of its hash.

    >>> safe_id("video7010"), safe_id("-4wsuPCjDBc_5_15")
    ('video7010', '4wsuPCjDBc_5_15-685c8d1f')
    """
    return item_id_from_file(f"{name}.mp4")  # whose suffix is cut off, and not a part of the name


def read_names(path: Path, missing: str) -> tuple[list[str], int]:
    """Names in a text file, one per line, and how many lines only repeat another one."""
    lines = [line.strip() for line in split_lines(read_user_text(path, missing))]
    return unique_names(filter(None, lines))


def unique_names(names: Iterable[str]) -> tuple[list[str], int]:
    """Names in order, each once, and how many were repeated.

    >>> unique_names(["a", "b", "a"])
    (['a', 'b'], 1)
    """
    listed = list(names)
    once = list(dict.fromkeys(listed))
    return once, len(listed) - len(once)


# ---- Dummy data ------------------------------------------------------------------------------------------------------


def draw_dummy_clips(folder: Path, sizes: SplitSizes, captions: int, suffix: str = ".mp4") -> list[DummyItem]:
    """Draw clips into ``folder/videos``, as the dummy data of a data set of the field."""
    folder.mkdir(parents=True, exist_ok=True)
    items = make_dummy_items(sizes, captions)
    for item in items:
        draw_clip(item, folder / "videos" / f"{item.name}{suffix}")
    return items


def dummy_keys(folder: Path) -> dict[str, Any]:
    """Keys of ``source`` with which dummy data are read."""
    return {"folder": str(folder), "videos": str(folder / "videos"), "counts": "any"}
