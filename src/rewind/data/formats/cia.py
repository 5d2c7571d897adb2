"""Chiral actions (CiA; Bagad and Zisserman, *TARA*, arXiv 2512.13511): pairs of actions that undo one another.

A CSV ``id,value,nuance,source,modality`` and a JSON object of matching ids, as the authors publish them for validation
and test. Only rows of ``nuance`` ``time`` whose ``source`` is of :data:`CIA_SOURCES` are read. A text's id is
``<triplet>_<0.0 or 1.0>``, and the other suffix is the opposite action; its ``value`` is the class's template, brackets
kept. The ``value`` of a clip is its file, without a suffix and relative to the folder of its source. A text has many
right clips, a clip has one text.

Everything is of the test split. A text is a caption of its first right clip; the other clips are in the gallery without
a caption of their own, so that R@k over pairs says little: :func:`read_answers` gives all right answers.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.config.dataset import CIA_SOURCES, CiaSource, ComposedSource, Dataset, NegationSource
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, make_dummy_items
from rewind.data.formats.photos import item_id_from_file
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.io.schema import FILLED, TEXT, Column, Schema, cell_fault, json_type_name, one_of, unknown_name
from rewind.io.strict import read_user_csv, read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

CIA_COLUMNS = Schema(dict.fromkeys(("id", "value", "nuance", "source", "modality"), TEXT), others=True)
CIA_SETTINGS = ("chiral", "static", "all")
_TEXT_ID = re.compile(r"(?P<triplet>.+)_(?P<suffix>0\.0|1\.0)")


# ---- Annotations, and the right answers in every setting -------------------------------------------------------------


def read_answers(source: CiaSource, sources: str = "") -> pd.DataFrame:
    """Right answers and distractors (:data:`rewind.data.questions.ANSWER_COLUMNS`).

    Settings are those of the authors' evals/compute_metrics.py (bpiyush/TARA@5c6f2b3):

    - ``chiral``: a text's clips, and those of the opposite text. A text whose opposite is missing is left out.
    - ``static``: a text's clips, and those of all texts of other triplets with the same suffix.
    - ``all``: a text's clips, and those of every other text.

    Distractors are of the text's own source (Something-Something, EPIC-Kitchens or Charades), as there. With one source
    every clip is a candidate in ``all``, which only its right answers then define.

    Texts of several triplets may have the same words, such as "Opening [something]". For each of them the authors count
    the clips of the others as wrong, and so does this table; from clips to texts they tie. The authors' code lists the
    right text first, so that its sort may decide such ties for it; expectations over ties do not.

    Raises:
        RewindError: naming file and row or id, for an empty cell, an unknown modality, an id that two rows use for
            different things, a text's id of another form, a path that leaves the folder; for a text without clips,
            labels with an unknown id, a clip of another source or with two texts, or lists that disagree; if there is
            no row of a source.
    """
    texts, _ = _read_texts(source)
    tables = []
    for setting in CIA_SETTINGS:
        for text in texts:
            wrong = [clip.item_id for other in _distractors(text, texts, setting) for clip in other.clips]
            if not wrong:
                continue  # nothing to tell it from
            judged = setting != "all" or len({text.source for text in texts}) > 1
            wrong = wrong if judged else []  # with one source every clip is a candidate
            items = [clip.item_id for clip in text.clips]
            right = [1] * len(items) + [0] * len(wrong)
            rows = {"setting": setting, "caption_id": text.caption_id, "item_id": items + wrong, "right": right}
            tables.append(pd.DataFrame(rows).assign(gallery="judged" if judged else "all"))
    columns = ["setting", "caption_id", "item_id", "right", "gallery"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


@FORMATS.register("cia")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.inputs`` and ``source.labels``; ``sources`` is not used.

    An item's ``cluster_id`` is its triplet, so that opposite actions are one cluster. Items follow the order of the
    texts: the first clip of each, by id, then the second of each, and so on.
    """
    texts, notes = _read_texts(dataset.source, dataset.how_to_get)
    builder = AnnotationBuilder()
    # One clip of every text in turn: the first items then have captions, which a part of the data set (`only`,
    # rehearsals) needs.
    for text, clip in _in_turns(texts):
        builder.original(clip.item_id, clip.path, "test", text.triplet, clip.where)
    for text in texts:
        builder.describe(text.clips[0].item_id, [text.words], "test")
    files = {"file": str(dataset.source.inputs), "labels": str(dataset.source.labels)}
    annotations = builder.annotations({split: files | (notes if split == "test" else {}) for split in SPLITS})
    # The builder names captions after their clips; here a clip has one text, which has a name of its own.
    names = {text.clips[0].item_id: text.caption_id for text in texts}
    captions = annotations.captions.assign(caption_id=annotations.captions["video_id"].map(names))
    return Annotations(annotations.items, captions, annotations.notes)


class _Clip(NamedTuple):
    item_id: str
    path: str
    where: str  # file and row


class _Text(NamedTuple):
    name: str  # its id in the files
    caption_id: str
    words: str
    source: str
    triplet: str
    suffix: str
    clips: list[_Clip]  # by id


def _distractors(text: _Text, texts: Sequence[_Text], setting: str) -> list[_Text]:
    """The texts of the same source whose clips a text is to be told from."""
    others = [other for other in texts if other.source == text.source and other is not text]
    if setting == "chiral":
        return [other for other in others if other.triplet == text.triplet]
    if setting == "static":
        return [other for other in others if other.triplet != text.triplet and other.suffix == text.suffix]
    return others


def _in_turns(texts: Sequence[_Text]) -> Iterator[tuple[_Text, _Clip]]:
    """The first clip of every text, then the second of every text that has one, and so on."""
    pairs = ([(text, clip) for clip in text.clips] for text in texts)
    return (pair for turn in itertools.zip_longest(*pairs) for pair in turn if pair is not None)


# ---- The two files ---------------------------------------------------------------------------------------------------


def _read_texts(source: CiaSource, how_to_get: str = "") -> tuple[list[_Text], dict[str, Any]]:
    rows, repeated = _read_rows(source, how_to_get)
    labels = read_labels(source.labels, how_to_get)
    texts = []
    for name, clips in _match_clips(rows, labels, source).items():
        row, parts = rows[name], _TEXT_ID.fullmatch(name)
        assert parts is not None  # _read_rows has checked it
        own = sorted(_Clip(safe_id(clip), rows[clip].value, rows[clip].where) for clip in clips)
        texts.append(_Text(name, safe_id(name), row.value, row.source, parts["triplet"], parts["suffix"], own))
    alone = [text.name for text in texts if not _distractors(text, texts, "chiral")]
    counts = {kind: [len(text.clips) for text in texts if text.source == kind] for kind in _named(source)}
    return texts, {
        "sources": {kind: {"texts": len(own), "clips": sum(own)} for kind, own in counts.items() if own},
        "rows_repeated": repeated,
        "texts_without_opposite": len(alone),
        "texts_without_opposite_shown": alone[:MAX_NOTE_EXAMPLES],
    }


def _named(source: CiaSource) -> Sequence[str]:
    return source.sources or CIA_SOURCES


def _read_rows(source: CiaSource, how_to_get: str) -> tuple[dict[str, Row], int]:
    """Rows of the sources by id, and the number of rows that only repeat another one."""
    kinds = {"text": FILLED, "video": CLIP}
    rows, repeated = read_rows(source.inputs, _named(source), kinds, how_to_get, nuance="time")
    for name, row in rows.items():
        if row.modality == "text" and not _TEXT_ID.fullmatch(name):
            raise RewindError(
                f"{row.where}: the text's id {name!r} must be <triplet>_0.0 or <triplet>_1.0; correct it."
            )
    found = {row.source for row in rows.values()}
    if missing := [kind for kind in source.sources or () if kind not in found]:
        raise RewindError(f"{source.inputs}: no row has the source {missing[0]!r}; remove it from `source.sources`.")
    return rows, repeated


def _match_clips(rows: Mapping[str, Row], labels: Mapping[str, Any], source: CiaSource) -> dict[str, list[str]]:
    """Text → its clips, each once. That every clip names the text that lists it is checked."""
    matches: dict[str, list[str]] = {}
    texts: dict[str, str] = {}  # clip → its text
    for name in (name for name, row in rows.items() if row.modality == "text"):
        matches[name] = label_ids(labels, name, source.labels)
        if not matches[name]:
            raise RewindError(f"{rows[name].where}: the text {name!r} has no clip in {source.labels}; delete the row.")
        for clip in matches[name]:
            where = f"{source.labels}: entry {name!r}"
            if clip not in rows or rows[clip].modality != "video":
                clips = [name for name, row in rows.items() if row.modality == "video"]
                raise RewindError(f"{where}: {unknown_name('the clip', clip, clips, str(source.inputs), 'id')}.")
            if rows[clip].source != rows[name].source:
                raise RewindError(
                    f"{where}: the clip {clip!r} is of the source {rows[clip].source}, and the text of "
                    f"{rows[name].source}; delete the id."
                )
            if clip in texts:
                raise RewindError(f"{where}: the clip {clip!r} has the text {texts[clip]!r} too; a clip has one text.")
            texts[clip] = name
    for name in (name for name, row in rows.items() if row.modality == "video"):
        own = label_ids(labels, name, source.labels)
        if len(own) > 1:
            raise RewindError(f"{source.labels}: entry {name!r}: {len(own)} texts are listed; a clip has one text.")
        if own != [texts.get(name)]:
            said = f"the clip names the text {own[0]!r}" if own else "the clip names no text"
            listed = f"is listed by {texts[name]!r}" if name in texts else "no text lists it"
            raise RewindError(f"{source.labels}: entry {name!r}: {said}, and {listed}; let both directions agree.")
    return matches


# ---- What all parts of the two files share ---------------------------------------------------------------------------


def safe_id(name: str) -> str:
    """The id of an item or a text for file names, of the one in the authors' files."""
    # A suffix is appended because one would be cut off: names may end with a time in seconds, as in `AB12_3.5_7.2`.
    return item_id_from_file(f"{name}.mp4")


def read_labels(path: str, how_to_get: str) -> dict[str, Any]:
    """The authors' file of labels (``source.labels``): id → matching ids, which :func:`label_ids` checks."""
    labels = read_user_json(path, f"(`source.labels`). {how_to_get}")
    if not isinstance(labels, dict):
        raise RewindError(f"{path}: a JSON object is needed, id → list of matching ids, not {json_type_name(labels)}.")
    return labels


def label_ids(labels: Mapping[str, Any], name: str, path: str) -> list[str]:
    """The ids that match an id, each once; the files have numbers where an id consists of digits."""
    value = labels.get(name, [])
    ids = value if isinstance(value, list) else [value]
    for match in ids:
        if isinstance(match, bool) or not isinstance(match, str | int):
            raise RewindError(f"{path}: entry {name!r}: a list of ids is needed, and it holds {json_type_name(match)}.")
    return list(dict.fromkeys(str(match) for match in ids))


class Row(NamedTuple):
    """A row of the file of inputs."""

    where: str  # file and row
    value: str
    source: str
    modality: str


CLIP = Column(filled=True, within="`source.videos`")  # the value of an item: its file


def read_rows(
    path: str, sources: Sequence[str], modalities: Mapping[str, Column], how_to_get: str, nuance: str = ""
) -> tuple[dict[str, Row], int]:
    """Rows of some ``source``, and of a ``nuance`` if given, by id, and how many rows only repeat another one.

    ``modalities`` says what the ``value`` of each is. White space at the ends of ids and values, and how much there is,
    does not count: some ids are captions, with a blank at an end in one file and not in the other.

    Raises:
        RewindError: naming file and row, for an empty cell, an unknown modality, a path that leaves the folder, or an
            id that two rows use for different things; where a modality has no row.
    """
    rows: dict[str, Row] = {}
    repeated, kinds = 0, Column(filled=True, choices=tuple(modalities))
    for number, cells in read_user_csv(path, CIA_COLUMNS, f"(`source.inputs`). {how_to_get}"):
        if cells["source"] not in sources or (nuance and cells["nuance"] != nuance):
            continue
        name, value = plain_text(cells["id"]), plain_text(cells["value"])
        row = Row(f"{path}: row {number}", value, cells["source"], cells["modality"])
        filled = modalities.get(row.modality, FILLED)
        checked = (("id", name, FILLED), ("modality", row.modality, kinds), ("value", value, filled))
        if fault := next(filter(None, (cell_fault(*cell) for cell in checked)), ""):
            raise RewindError(f"{row.where}: {fault}.")
        first = rows.setdefault(name, row)
        if first[1:] != row[1:]:
            raise RewindError(f"{row.where}: the id {name!r} means something else in {first.where}; rename one.")
        repeated += first is not row
    if missing := sorted(set(modalities) - {row.modality for row in rows.values()}):
        raise RewindError(
            f"{path}: no row has the modality {missing[0]!r} and the source {one_of(sources)}; name the authors' file "
            "nuanced_retrieval_inputs, or another source."
        )
    return rows, repeated


def read_part_labels(
    source: NegationSource | ComposedSource, rows: Mapping[str, Row], modality: str, how_to_get: str
) -> dict[str, list[str]]:
    """The items that are right for each query of a part, each once; ``modality`` is that of items.

    Raises:
        RewindError: for an item that has no row, or a query without an item.
    """
    labels = {plain_text(name): value for name, value in read_labels(source.labels, how_to_get).items()}
    items = [name for name, row in rows.items() if row.modality == modality]
    known, right = set(items), {}
    for name in (name for name, row in rows.items() if row.modality != modality):
        own = list(dict.fromkeys(map(plain_text, label_ids(labels, name, source.labels))))
        if unknown := [item for item in own if item not in known]:
            said = unknown_name("the item", unknown[0], items, str(source.inputs), "id")
            raise RewindError(f"{source.labels}: entry {name!r}: {said}.")
        if not own:
            raise RewindError(f"{rows[name].where}: the text {name!r} has no item in {source.labels}; delete the row.")
        right[name] = own
    return right


def plain_text(text: str) -> str:
    """A text without white space at its ends, and with single blanks inside."""
    return " ".join(text.split())


# ---- Dummy data ------------------------------------------------------------------------------------------------------

DUMMY_CLIPS = 2  # of a text


@DUMMY_DATA.register("cia")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """Texts of opposite actions with two clips each; a clip of the second text shows a scene of its own too.

    All are of the test split, as in the authors' files. There are two triplets at least, so that every setting has
    distractors.
    """
    triplets = max(2, sizes.test // (2 * DUMMY_CLIPS))
    clips = make_dummy_items(SplitSizes(0, 0, triplets * 2 * DUMMY_CLIPS), 1)
    rows: list[tuple[str, str, str]] = []
    labels: dict[str, list[str]] = {}
    kind = _named(dataset.source)[0]
    for number, start in enumerate(range(0, len(clips), 2 * DUMMY_CLIPS)):
        scene = clips[start].entry
        for at, reverse in enumerate((False, True)):
            text, own = f"standin{number:03}_{at}.0", clips[start + at * DUMMY_CLIPS :][:DUMMY_CLIPS]
            rows.append((text, scene.captions(reverse)[0], "text"))
            labels[text] = [clip.name for clip in own]
            for clip in own:
                draw_clip(clip, folder / "videos" / f"{clip.name}.mp4")
                rows.append((clip.name, clip.name, "video"))
                labels[clip.name] = [text]
    files = write_files(folder, [(name, value, "time", kind, modality) for name, value, modality in rows], labels)
    return files | {"videos": str(folder / "videos"), "sources": [kind]}


def write_files(folder: Path, rows: Iterable[tuple[str, ...]], labels: Mapping[str, list[str]]) -> dict[str, Any]:
    """Write the two files, of rows in the order of :data:`CIA_COLUMNS`; returns the keys that name them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "inputs.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([tuple(CIA_COLUMNS.needed), *rows])
    write_json(folder / "labels.json", labels)
    return {"inputs": str(folder / "inputs.csv"), "labels": str(folder / "labels.json")}
