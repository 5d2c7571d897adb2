"""Reads the user's captions from CSV, JSON, JSON lines, or a folder of clips with captions next to them."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from rewind.data.annotations import SPLITS, TWIN_SUFFIX, Annotations
from rewind.data.formats.embeddings import ImageNames, read_caption_lines
from rewind.data.formats.photos import IMAGE_SUFFIXES, item_id_from_file
from rewind.data.formats.rtime import read_rtime_files
from rewind.data.formats.table import TABLE_COLUMNS
from rewind.errors import RewindError, count_noun, first_lines, printable_name
from rewind.evaluation.twins import caption_words
from rewind.io.files import check_id
from rewind.io.schema import Schema, caption_fault, json_type_name, one_of
from rewind.io.strict import (
    check_json_escapes,
    parse_json,
    read_user_csv,
    read_user_json,
    read_user_text,
    split_lines,
    strict_json_decoder,
)
from rewind.video.sources import VIDEO_SUFFIXES

# ---- Items with their captions, before their files are looked at ---------------------------------------------------


@dataclass
class UserItem:
    """One clip or image.

    Attributes:
        path: as its row names it, relative to the folder of clips; the suffix may be missing.
        split, cluster_id: empty where the files state none.
        forward, reverse: captions of the clip, and of the clip played backwards.
        groups: group of each caption of ``forward``, for results by group; empty text for none.
    """

    item_id: str  # safe as a file name
    path: str
    where: str  # file and row, for messages
    split: str = ""
    cluster_id: str = ""
    forward: list[str] = field(default_factory=list)
    reverse: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    @property
    def cluster(self) -> str:
        """What statistics treat as one independent unit: the item itself unless its row names a cluster."""
        return self.cluster_id or self.item_id


def has_same_words(item: UserItem) -> bool:
    """Whether a caption of an item is also one of its reverse, so that nothing tells the two apart."""
    return not set(map(caption_words, item.forward)).isdisjoint(map(caption_words, item.reverse))


@dataclass
class UserData:
    """Everything that was read from the user's captions.

    Attributes:
        source: the file or folder that was named.
        folder: of the clips, where the source states it.
        notes, faults: what was done with the files, and what is wrong, a sentence each.
        table: CSV that a dataset file can name as it is; empty: one must be written.
        annotations: JSON files by split, in RTime's format; a single file that is still to be split has the key ``""``.

    >>> data = UserData(Path("captions.csv"))
    >>> data.add("a", "a.mp4", "A door opens.", "row 2", reverse="A door closes.")
    True
    >>> data.items["a"].reverse
    ['A door closes.']
    """

    source: Path
    items: dict[str, UserItem] = field(default_factory=dict)
    folder: Path | None = None
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    table: str = ""
    annotations: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, path: str, caption: str, where: str, **fields: str) -> bool:
        """Add a row: a caption of an item. Returns whether the name can be the id unchanged.

        All rows of an item must agree on everything but captions and groups. What is wrong is added to ``faults``.

        Args:
            name: of the item; its id is derived from it (:func:`safe_id`).
            path: of its file, relative to the folder of clips.
            fields: ``split``, ``cluster_id``, ``reverse`` and ``group``, as far as the row has them.
        """
        if fault := file_name_fault(path):
            self.faults.append(f"{where}: the name '{printable_name(path)}' {fault}; rename the file.")
            return False
        group = fields.pop("group", "")
        caption, reverse = (" ".join(text.split()) for text in (caption, fields.pop("reverse", "")))
        if fault := caption_fault(caption) or caption_fault(reverse):
            self.faults.append(f"{where}: {fault}.")
            return False
        item_id = safe_id(name)
        split, cluster = fields.get("split", ""), fields.get("cluster_id", "")
        item = self.items.setdefault(item_id, UserItem(item_id, path, where, split=split, cluster_id=cluster))
        if not caption:
            self.faults.append(f"{where}: the caption of {name!r} is empty; write one or delete the row.")
            return item_id == name
        for key, value in {"path": path, **fields}.items():
            if value != getattr(item, key):
                first = getattr(item, key)
                self.faults.append(
                    f"{where}: {name!r} has the {key} {value!r} here but {first!r} in {item.where}; all rows of an "
                    "item must agree."
                )
        item.forward.append(caption)
        item.groups.append(group)
        if reverse:
            item.reverse.append(reverse)
        return item_id == name

    @property
    def splits(self) -> set[str]:
        """Splits that the files name; empty text for items of none."""
        return {item.split for item in self.items.values()}


def file_name_fault(path: str) -> str:
    """Why a file cannot be named in a table; empty where it can."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "is not UTF-8"
    if path != path.strip():
        return "begins or ends with a blank"
    return "" if printable_name(path) == path else "has a control character"


def safe_id(name: str) -> str:
    """An id that can be a file name: the name itself where possible, else a changed one with a part of its hash."""
    try:
        check_id(name, "")
    except RewindError:
        return item_id_from_file(f"{name}.x")
    # An id that ends in _rev would be taken for the reversed twin of another clip.
    return item_id_from_file(f"{name}.x") if name.endswith(TWIN_SUFFIX) else name


# ---- Rows of captions with any usual column names: CSV, JSON lines, JSON lists -------------------------------------

COLUMN_ALIASES: Mapping[str, tuple[str, ...]] = {
    "item_id": ("item_id", "video_id", "clip_id", "image_id", "id"),
    "path": (
        "path",
        "file_name",
        "filename",
        "file",
        *(f"{k}{e}" for e in ("_path", "") for k in ("video", "clip", "image")),
    ),
    "caption": ("caption", "text", "sentence", "description", "captions"),
    "reverse_caption": ("reverse_caption", "reversed_caption", "caption_reversed", "reverse_text"),
    "split": ("split", "subset", "partition"),
    "cluster_id": ("cluster_id", "cluster"),
    "group": ("group", "category", "verb"),
}
"""Meaning of a column → the names that it may have; the first that is present is used."""
SPLIT_ALIASES = {"train": "train", "training": "train", "test": "test", "testing": "test"} | dict.fromkeys(
    ("valid", "val", "validation", "dev"), "valid"
)
EXAMPLE_HEADER = "item_id,path,caption,reverse_caption"
_MEDIA_SUFFIXES = IMAGE_SUFFIXES | VIDEO_SUFFIXES


def read_caption_csv(path: Path) -> UserData:
    """Read a CSV with one row per caption.

    Raises:
        RewindError: for a file that is not a CSV, or has no captions or no names of clips.
    """
    data = UserData(path)
    rows = list(read_user_csv(path, Schema({}, others=True)))
    if not rows:
        raise RewindError(f"{path}: no rows below the header; write one row per caption, as in `{EXAMPLE_HEADER}`.")
    columns = match_columns(list(rows[0].cells), str(path), data)
    is_plain = _add_rows(data, ((f"{path}: row {row.number}", row.cells) for row in rows), columns)
    if is_plain and set(rows[0].cells) <= set(TABLE_COLUMNS.known) and {"item_id", "caption"} <= set(rows[0].cells):
        data.table = str(path)
    return data


def read_caption_jsonl(path: Path) -> UserData:
    """Read JSON lines with one object per caption.

    Raises:
        RewindError: for a line that is not a JSON object of texts.
    """
    objects = []
    for number, line in enumerate(split_lines(read_user_text(path)), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            check_json_escapes(line, where)
            objects.append((where, parse_json(line, where, partial(strict_json_decoder().decode, line))))
    return read_caption_objects(path, objects)


def read_caption_objects(path: Path, objects: Iterable[tuple[str, object]]) -> UserData:
    """Read objects, (place in the file, value) each, that have a caption or a list of captions.

    Raises:
        RewindError: for a value that is not an object, or a list of captions with anything but texts.
    """
    data, rows = UserData(path), []
    for where, value in objects:
        if not isinstance(value, dict):
            raise RewindError(f'{where}: an object such as {{"file_name": "a.mp4", "caption": "…"}} is needed.')
        rows += [(where, cells) for cells in _rows_of_object(value, where)]
    if not rows:
        raise RewindError(f"{path}: no captions in it; write one object per caption.")
    columns = match_columns(list(dict.fromkeys(name for _, cells in rows for name in cells)), str(path), data)
    _add_rows(data, rows, columns)
    return data


def _rows_of_object(value: dict[str, object], where: str) -> Iterator[dict[str, str]]:
    """The rows of an object: one for each caption of a list of captions, else one."""
    words = {name for meaning in ("caption", "reverse_caption") for name in COLUMN_ALIASES[meaning]}
    texts = {str(name): str(cell).strip() for name, cell in value.items() if isinstance(cell, str | int | float)}
    caption_lists = {
        name: cell for name, cell in value.items() if isinstance(cell, list) and name in COLUMN_ALIASES["caption"]
    }
    for name, cell in value.items():
        parts = (
            caption_lists[name]
            if name in caption_lists
            else [cell] * (name.strip().lower() in words and cell is not None)
        )
        if odd := [json_type_name(part) for part in parts if not isinstance(part, str)]:
            raise RewindError(f"{where}: {name!r} must be a text or a list of texts, and has {odd[0]}.")
    for name, cell in caption_lists.items():
        for text in cell:
            yield texts | {name: text}
    if not caption_lists:
        yield texts


def match_columns(header: list[str], where: str, data: UserData) -> dict[str, str]:
    """Meaning → the column of this file that has it.

    Columns that are not used, or that have another name than Rewind's, are noted in ``data.notes``.

    Raises:
        RewindError: for a table without captions or without names of clips, or a column that looks misspelt.
    """
    by_case = {name.strip().lower(): name for name in header}
    columns = {
        meaning: by_case[alias]
        for meaning, aliases in COLUMN_ALIASES.items()
        if (alias := next((name for name in aliases if name in by_case), None)) is not None
    }
    unused = [name for name in header if name not in columns.values()]
    missing = [] if "caption" in columns else ["caption"]
    if not columns.keys() & {"item_id", "path"}:
        missing.append("item_id")
    for name in unused:
        similar = difflib.get_close_matches(
            name.lower(), [meaning for meaning in COLUMN_ALIASES if meaning not in columns], n=1, cutoff=0.75
        )
        if similar:
            raise RewindError(
                f"{where}: the column {name!r} is unknown; did you mean {similar[0]!r}? Columns: "
                f"{', '.join(COLUMN_ALIASES)}."
            )
    if missing:
        alternatives = ", ".join(COLUMN_ALIASES[missing[0]][1:])
        raise RewindError(
            f"{where}: the column {missing[0]!r} is missing (it may also be called {alternatives}); the file has "
            f"{', '.join(header)}. Rename one, or write rows as in `{EXAMPLE_HEADER}`."
        )
    renamed = [f"{name!r} as {meaning}" for meaning, name in columns.items() if name != meaning]
    if renamed:
        data.notes.append(f"{where}: columns are read as: {', '.join(renamed)}")
    if unused:
        data.notes.append(f"{where}: columns that are not used: {', '.join(map(repr, unused))}")
    return columns


def _add_rows(data: UserData, rows: Iterable[tuple[str, Mapping[str, str]]], columns: Mapping[str, str]) -> bool:
    """Add rows to the items; True if every name can be an id, and every split is named in Rewind's words.

    The user's table can then be read as it is, and no copy of it has to be written.
    """
    is_plain = True
    for where, row in rows:
        cell = {meaning: row.get(column, "").strip() for meaning, column in columns.items()}
        item_id = cell.get("item_id") or ""
        path = cell.get("path") or item_id
        if not path:
            data.faults.append(f"{where}: names no clip; fill in {columns.get('item_id', columns.get('path'))!r}.")
            continue
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            data.faults.append(f"{where}: the path {path!r} must name a file inside the folder of clips.")
            continue
        if not item_id:
            item_id = item_id_from_file(path) if PurePosixPath(path).suffix.lower() in _MEDIA_SUFFIXES else path
        split_name = cell.get("split", "")
        split = SPLIT_ALIASES.get(split_name.lower(), "") if split_name else ""
        if split_name and not split:
            data.faults.append(f"{where}: 'split' is {split_name!r}; use {one_of(SPLITS)}.")
            continue
        is_plain &= split == split_name and bool(split or "split" not in columns)
        fields = {"split": split, "cluster_id": cell.get("cluster_id", ""), "reverse": cell.get("reverse_caption", "")}
        is_plain &= data.add(item_id, path, cell.get("caption", ""), where, group=cell.get("group", ""), **fields)
    return is_plain


# ---- JSON annotations: RTime's object keyed by clip, or a list of captioned files ----------------------------------


def read_caption_json(path: Path, trained: bool) -> UserData:
    """Read a JSON file; with RTime's ``train.json``, ``valid.json`` or ``test.json`` also the other two.

    A file without splits is read as training data, with rewrites among its captions, if something is trained, and
    otherwise as test data.

    Raises:
        RewindError: for a file that is not JSON, or in neither form.
    """
    content = read_user_json(path)
    if isinstance(content, list):
        return read_caption_objects(path, ((f"{path}: entry {n}", value) for n, value in enumerate(content, start=1)))
    entries = list(content.values()) if isinstance(content, dict) else []
    if not any(isinstance(entry, dict) and "forward_captions" in entry for entry in entries):
        raise RewindError(
            f'{path}: neither RTime\'s annotations ({{"<clip>": {{"forward_captions": ["…"], "reverse_captions": '
            '["…"]}}) nor a list of captioned files ([{"file_name": "a.mp4", "caption": "…"}]).'
        )
    split_files = {split: path.with_name(f"{split}.json") for split in SPLITS}
    is_complete = path in split_files.values() and all(file.is_file() for file in split_files.values())
    if is_complete:
        files = {split: str(file) for split, file in split_files.items()}
    else:
        files = {"train" if trained else "test": str(path)}
    data = UserData(path, annotations=files if is_complete else {"": str(path)})
    if is_complete:
        data.notes.append(f"splits are from {', '.join(files.values())}")
    elif path.stem in SPLITS:
        missing = [str(file) for file in split_files.values() if not file.is_file()]
        data.notes.append(f"only {path} is used, as one set of clips: {', '.join(missing)} not found next to it")
    annotations = _add_annotations(data, files)
    if not data.items:
        raise RewindError(f"{path}: no entry has a forward caption; add some.")
    for split, note in annotations.notes["splits"].items():
        odd = ", ".join(f"{name} ({count:,})" for name, count in note["odd"].items())
        if odd:
            data.notes.append(f"{files[split]}: odd entries: {odd}")
    return data


def _add_annotations(data: UserData, files: dict[str, str]) -> Annotations:
    """Add the items of JSON files by split; the items of a file that is still to be split get none."""
    annotations = read_rtime_files(files, True)
    texts = annotations.captions.groupby("video_id", sort=False)["caption"].apply(list)
    for row in annotations.items.itertuples():
        if not row.reversed:
            split = "" if "" in data.annotations else row.split
            data.items[row.item_id] = UserItem(row.item_id, row.source, files[row.split], split, "", texts[row.item_id])
        else:
            data.items[row.item_id.removesuffix(TWIN_SUFFIX)].reverse = texts[row.item_id]
    return annotations


def keep_human_captions(data: UserData) -> None:
    """Leave rewrites to training, as the format does: items of other splits keep only their human captions.

    A clip that has nothing but rewrites is moved to the training split.
    """
    human = UserData(data.source, annotations=data.annotations)
    _add_annotations(human, {"test": str(data.source)})
    for name, item in data.items.items():
        if name not in human.items:
            item.split = "train"
        elif item.split != "train":
            item.forward, item.reverse = human.items[name].forward, human.items[name].reverse


def json_by_split(data: UserData) -> dict[str, str]:
    """Split → text of a JSON file with the entries of its clips, as the user's file has them."""
    content = read_user_json(data.source)
    parts = {
        split: {name: content[name] for name, item in data.items.items() if item.split == split} for split in SPLITS
    }
    return {split: json.dumps(part, ensure_ascii=False, indent=1) + "\n" for split, part in parts.items()}


# ---- A folder of clips or images with captions next to them --------------------------------------------------------

CAPTION_FILES = ("captions.csv", "metadata.csv", "metadata.jsonl", "captions.jsonl", "captions.txt")
REVERSED_SUFFIX = "_rev"
EXPECTED_FILES = (
    "put the captions there as captions.csv (first row `path,caption`, then `a.mp4,A door opens.`), captions.txt "
    "(`a.mp4,A door opens.` on each line), metadata.csv or metadata.jsonl, or for each clip a text file of its name "
    "(a.mp4 and a.txt, one caption a line, or a.srt, whose subtitles are one caption)"
)


def read_caption_folder(folder: Path) -> UserData:
    """Read a folder of clips: the first of :data:`CAPTION_FILES` that is in it, else the text file of each clip.

    Raises:
        RewindError: for a folder without clips, or without captions.
    """
    files = list_media(folder)
    if not files:
        raise RewindError(f"{folder}: no clips and no images in this folder; name the folder that has them.")
    caption_files = [name for name in CAPTION_FILES if (folder / name).is_file()]
    text_files = _text_files(folder, files)
    if not caption_files and not text_files:
        raise RewindError(f"{folder}: {len(files):,} files, but no captions; {EXPECTED_FILES}.")
    data = (
        _read_caption_file(folder, caption_files[0], files)
        if caption_files
        else _read_text_files(folder, files, text_files)
    )
    data.folder, data.source = folder, folder
    unread = [*caption_files[1:], *(["text files next to the clips"] if caption_files and text_files else [])]
    if unread:
        data.notes.append(f"{folder}: captions are from {caption_files[0]}; not read: {', '.join(unread)}")
    return data


def list_media(folder: Path) -> list[str]:
    """Clips and images of a folder and of those below it, as paths relative to it, sorted."""
    files = (path for path in folder.rglob("*") if path.suffix.lower() in _MEDIA_SUFFIXES and path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in files)


def _text_files(folder: Path, files: list[str]) -> dict[str, Path]:
    """Clip → the text file with its name, or its subtitles."""
    candidates = ((name, (folder / name).with_suffix(suffix)) for suffix in (".srt", ".txt") for name in files)
    return {name: path for name, path in candidates if path.is_file() and path.name not in CAPTION_FILES}


def _read_caption_file(folder: Path, name: str, files: list[str]) -> UserData:
    path = folder / name
    if name.endswith(".jsonl"):
        return read_caption_jsonl(path)
    if name.endswith(".csv"):
        return read_caption_csv(path)
    data = UserData(path)
    for line in read_caption_lines(path, ImageNames(files, str(folder))):
        clip = files[line.image]
        data.add(item_id_from_file(clip), clip, line.caption, f"{path}: line {line.number}")
    return data


def _read_text_files(folder: Path, files: list[str], text_files: dict[str, Path]) -> UserData:
    """Read a text file for each clip; ``a_rev.txt`` has the captions of ``a`` played backwards."""
    data = UserData(folder)
    owner: dict[str, str] = {}
    for clip, path in text_files.items():
        item_id = item_id_from_file(clip)
        if item_id in owner:
            data.faults.append(f"{folder}: {owner[item_id]!r} and {clip!r} share their captions; rename one of them.")
            continue
        owner[item_id] = clip
        backward = path.with_name(f"{path.stem}{REVERSED_SUFFIX}{path.suffix}")
        reverse = _caption_lines(backward) if backward.is_file() else []
        forward = _caption_lines(path)
        for number, text in enumerate(forward):
            reverse_text = reverse[number] if number < len(reverse) else ""
            data.add(item_id, clip, text, printable_name(path), reverse=reverse_text)
        if len(reverse) > len(forward):
            data.items[item_id].reverse += reverse[len(forward) :]
    without_caption = [f"  {printable_name(clip)}" for clip in files if clip not in text_files]
    if without_caption:
        found = count_noun(len(without_caption), "clip")
        data.notes.append(f"{folder}: {found} without a caption, left out:\n{first_lines(without_caption)}")
    used = {path.name for path in text_files.values()}
    used |= {f"{path.stem}{REVERSED_SUFFIX}{path.suffix}" for path in text_files.values()}
    texts = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".srt"))
    unused = [f"  {printable_name(path.name)}" for path in texts if path.name not in used]
    if unused:
        found = count_noun(len(unused), "text file")
        data.notes.append(f"{folder}: {found} without a clip of the same name:\n{first_lines(unused)}")
    return data


def _caption_lines(path: Path) -> list[str]:
    """The captions of a clip: the lines of its text file that are not blank, or its subtitles as one caption."""
    lines = [line.strip() for line in split_lines(read_user_text(path))]
    if path.suffix == ".srt":
        lines = [_subtitle_text(lines, path)]
    return [line for line in lines if line]


_SUBTITLE_TIMES = re.compile(r"\d+:\d\d:\d\d[,.]\d+ *--> *\d+:\d\d:\d\d[,.]\d+.*")
_SUBTITLE_MARKUP = re.compile(r"</?[a-zA-Z][^>]*>|\{\\[^}]*\}")  # <i>, <font color=…>, {\an8}


def _subtitle_text(lines: Sequence[str], path: Path) -> str:
    """What subtitles say, without their numbers, times and markup.

    >>> _subtitle_text(["1", "00:00:00,000 --> 00:00:02,000", "A <i>door</i>", "opens.", ""], Path("a.srt"))
    'A door opens.'
    """
    times = [number for number, line in enumerate(lines) if _SUBTITLE_TIMES.fullmatch(line)]
    if not times:
        raise RewindError(f"{path}: no subtitles in it: a line such as `00:00:01,000 --> 00:00:04,000` begins one.")
    # A subtitle's number is the last line before its times.
    texts = [lines[start + 1 : end - 1] for start, end in zip(times, [*times[1:], len(lines) + 1], strict=True)]
    return " ".join(_SUBTITLE_MARKUP.sub("", " ".join(text)).strip() for text in texts)
