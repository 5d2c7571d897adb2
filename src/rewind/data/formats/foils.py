"""Benchmarks of caption matching: clips with true captions and foils, captions that are nearly the same and not true.

A *question* is a clip, its true caption and its foils of one kind. Annotations hold clips and true captions as in every
format; foils are read by themselves (:func:`read_foils`), because no clip is right for them. The key
``source.benchmark`` states what the file holds:

- ``negbench`` (Alhamoud et al., arXiv 2501.09425): a CSV ``caption_0,caption_1,…,correct_answer,
  correct_answer_template`` and the clip as ``image_path``, ``video_path`` or ``filepath``: a path on its authors'
  machine, of which the file's name counts. The kind is that of the true caption: positive, negative or hybrid.
- ``velociti`` (Saravanan et al., arXiv 2406.10889): rows ``test_name,video_id,pos,neg``, as CSV, as a JSON list of
  objects or as Parquet. The kind is the test's name.
- ``vinoground`` (Zhang et al., arXiv 2410.02763): a CSV ``pos_cap,neg_cap`` and optionally ``index`` and ``major``. The
  row with index i, or the i-th from 0, has the clips ``<i>_pos`` and ``<i>_neg``, each with the other one's caption as
  its foil. The kind is ``major``; further categories are not read.
- ``vilma`` (Kesen et al., arXiv 2311.07022): a JSON object by id, each entry with ``caption``, ``foils`` and a question
  ``proficiency`` of its own. Entries are parts of videos; each is a clip named by its id, as in the cache of ViLMA's
  own loader. Kinds are ``main`` and ``proficiency``.
- ``table``: a CSV ``video,caption,foil,kind[,cluster_id]``, one row per foil.

Equal captions of a clip are one caption, unless two questions of one kind have it: the later then has a caption of its
own with the same text, so that the foils of two questions are never mixed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from rewind.config.dataset import Dataset, FoilsSource
from rewind.data.annotations import MAX_NOTE_EXAMPLES, SPLITS, AnnotationBuilder, Annotations
from rewind.data.dummy import SplitSizes, draw_clip, make_dummy_items
from rewind.data.formats.photos import item_id_from_file
from rewind.data.questions import foil_fault
from rewind.data.tokenizers import plain_text
from rewind.errors import RewindError
from rewind.io.files import reading_user_file, write_json
from rewind.io.schema import (
    FILLED,
    OPTIONAL,
    TEXT,
    TEXTS,
    Column,
    RowChecks,
    Schema,
    checked_objects,
    json_type_name,
    object_of,
)
from rewind.io.strict import read_user_csv, read_user_json
from rewind.registry import DUMMY_DATA, FORMATS

MAIN, PROFICIENCY = "main", "proficiency"
"""Kinds of ViLMA's questions: the question itself, and what a model must know before its answer means anything."""
SPLIT = "test"
"""The split of all clips: none of these benchmarks is for training, and VELOCITI's terms forbid it."""
DEFAULT_KIND = "foil"
"""Kind of foils for which a table or Vinoground's file names none."""
MIN_VOTES = 2
"""Annotators, of three, who must have chosen ViLMA's true caption; entries with fewer are left out, as upstream."""
NEGBENCH_COLUMNS = Schema(
    {"caption_0": TEXT, "caption_1": TEXT, "correct_answer": FILLED, "correct_answer_template": TEXT}, others=True
)
NEGBENCH_CLIP_COLUMNS = ("image_path", "video_path", "filepath")  # of published files, of its loader, of other files
VELOCITI_COLUMNS = Schema(dict.fromkeys(("test_name", "video_id", "pos", "neg"), FILLED), others=True)
VINOGROUND_COLUMNS = Schema(
    {"pos_cap": FILLED, "neg_cap": FILLED, "index": Column(optional=True, filled=True), "major": OPTIONAL}, others=True
)
VILMA_QUESTION = Schema({"caption": FILLED, "foils": TEXTS})
TABLE_COLUMNS = Schema(
    {
        "video": Column(is_id=True, filled=True, within="`source.videos`"),
        "caption": FILLED,
        "foil": FILLED,
        "kind": OPTIONAL,
        "cluster_id": Column(optional=True, is_id=True),
    }
)
_NUMBERED_CAPTION = re.compile(r"caption_\d+")
_MISSING = "(`source.file`); put it there or correct the key"


@dataclass(frozen=True)
class _Question:
    """A clip, its true caption and its foils of one kind."""

    where: str  # file, and row or entry
    video: str  # file of the clip, relative to the folder of clips; its suffix may be missing
    cluster: str
    kind: str
    caption: str
    foils: tuple[str, ...]
    entry: str  # what the file puts together: both questions of a pair, or a question and that on proficiency


@dataclass(frozen=True)
class _Placed:
    """Questions with the ids of their clips and captions, and entries of the file that are no question."""

    questions: list[_Question]
    items: list[str]  # of each question
    captions: list[str]
    left_out: list[str]


def read_foils(source: FoilsSource, sources: str = "") -> pd.DataFrame:
    """Foils of all questions, in the order of the file (:data:`rewind.data.questions.FOIL_COLUMNS`).

    A ``caption_id`` is that of the true caption, a ``foil_id`` is ``<caption_id>~<n>``, which no caption or clip has as
    its id. A question is a ``caption_id`` with a ``kind``. With ``only`` in the dataset file, foils of captions
    that are left out are here too.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "foils.csv"
    ...     _ = path.write_text("video,caption,foil,kind\\nk1.mp4,A door opens.,A door closes.,verb\\n")
    ...     foils = read_foils(FoilsSource(format="foils", benchmark="table", file=str(path), videos=folder))
    >>> foils.to_dict("records")
    [{'foil_id': 'k1#0~0', 'caption_id': 'k1#0', 'caption': 'A door closes.', 'kind': 'verb'}]
    """
    placed = _placed_questions(source)
    rows, counts = [], dict.fromkeys(placed.captions, 0)
    for question, caption_id in zip(placed.questions, placed.captions, strict=True):
        for foil in question.foils:
            rows.append((f"{caption_id}~{counts[caption_id]}", caption_id, foil, question.kind))
            counts[caption_id] += 1
    return pd.DataFrame(rows, columns=["foil_id", "caption_id", "caption", "kind"])


def read_pairs(source: FoilsSource, sources: str = "") -> pd.DataFrame:
    """Pairs of two clips with a caption each; only Vinoground has some.

    ``pair_id`` is the number in the names of the clips; ``first`` and ``second`` are ids of captions.
    """
    rows = []
    if source.benchmark == "vinoground":
        placed = _placed_questions(source)
        both = list(zip(placed.questions, placed.captions, strict=True))
        rows = [
            (question.entry, first, second, question.kind)
            # Both clips of a pair follow each other, see _read_vinoground.
            for (question, first), (_, second) in zip(both[::2], both[1::2], strict=True)
        ]
    return pd.DataFrame(rows, columns=["pair_id", "first", "second", "kind"])


def read_proficiency(source: FoilsSource, sources: str = "") -> pd.DataFrame:
    """The question on proficiency of every question that has one; only ViLMA has some.

    ``caption_id`` is the true caption of a question and ``proficiency_id`` that of its question on proficiency, which
    is the same one where both have the same text (see :func:`rewind.evaluation.foils.combined_accuracy`).
    """
    rows = []
    if source.benchmark == "vilma":
        placed = _placed_questions(source)
        both = list(zip(placed.questions, placed.captions, strict=True))
        main = {question.entry: caption for question, caption in both if question.kind == MAIN}
        rows = [(main[question.entry], caption) for question, caption in both if question.kind == PROFICIENCY]
    return pd.DataFrame(rows, columns=["caption_id", "proficiency_id"])


@FORMATS.register("foils")
def read(dataset: Dataset, sources: str) -> Annotations:
    """Read ``source.file``: clips and true captions, all of the test split; ``sources`` is not used.

    Notes count what is odd and kept in files of others: foils that are equal to their caption (no model can have more
    than half of such a question) or given twice in one question, which a ``table`` may not have, and foils that are a
    true caption of the same clip in another question.

    Raises:
        RewindError: naming file, row or entry, for another structure than the benchmark's, a caption or foil without
            text, a clip outside of the folder, or two clips that would have one id.
    """
    placed = _placed_questions(dataset.source)
    builder = AnnotationBuilder(files=dataset.clips)
    texts: dict[str, dict[str, str]] = {}  # clip → caption id → text, in the order of the ids
    for question, item, caption in zip(placed.questions, placed.items, placed.captions, strict=True):
        if item not in texts:
            builder.original(item, question.video, SPLIT, question.cluster, question.where)
        texts.setdefault(item, {})[caption] = question.caption
    for item, captions in texts.items():
        builder.describe(item, list(captions.values()), SPLIT)
    annotations = builder.annotations({split: {"file": str(dataset.source.file)} for split in SPLITS})
    return Annotations(annotations.items, annotations.captions, annotations.notes | _foil_notes(placed))


# ---- Ids of clips and captions -------------------------------------------------------------------------------------


def _placed_questions(source: FoilsSource) -> _Placed:
    path = Path(source.file)
    placed = _Placed([], [], [], [])
    first: dict[str, _Question] = {}  # of each clip
    texts: dict[str, list[str]] = {}  # captions of each clip
    asked: set[tuple[str, str]] = set()
    for question in _READERS[source.benchmark](path):
        if isinstance(question, str):
            placed.left_out.append(question)
            continue
        _check_question(question)
        item = _item_id(question.video)
        if (known := first.setdefault(item, question)).video != question.video:
            raise RewindError(
                f"{question.where}: {question.video!r} would get the id {item!r}, as {known.video!r} in {known.where}; "
                "rename one of the files."
            )
        captions = texts.setdefault(item, [])
        same_text = (f"{item}#{n}" for n, text in enumerate(captions) if text == question.caption)
        # A question is a caption and a kind: the same text with the same kind again is another question, of a caption
        # of its own.
        name = next((name for name in same_text if (name, question.kind) not in asked), "")
        if not name:
            name = f"{item}#{len(captions)}"  # as AnnotationBuilder.describe counts them
            captions.append(question.caption)
        asked.add((name, question.kind))
        placed.questions.append(question)
        placed.items.append(item)
        placed.captions.append(name)
    if not placed.questions:
        why = "annotators rejected all of its entries" if placed.left_out else "it contains no questions"
        raise RewindError(f"{path}: {why}; name the benchmark's own file.")
    return placed


def _check_question(question: _Question) -> None:
    path = PurePosixPath(question.video)
    if not path.name or path.is_absolute() or ".." in path.parts:
        raise RewindError(
            f"{question.where}: the clip {question.video!r} must name a file inside `source.videos`, relative to it."
        )
    if not question.caption:
        raise RewindError(f"{question.where}: the true caption of {question.video!r} is empty; write it.")
    if not all(question.foils) or not question.foils:
        what = "a foil is empty" if question.foils else "there is no foil"
        raise RewindError(f"{question.where}: {what} for {question.caption!r}; write one, or delete the question.")


def _item_id(video: str) -> str:
    """Id of a clip; only a suffix that begins with a letter is one, as in ``clip.2.mp4``, and not in ``clip.2``."""
    return item_id_from_file(video if PurePosixPath(video).suffix[1:2].isalpha() else f"{video}.mp4")


def _foil_notes(placed: _Placed) -> dict[str, Any]:
    described = {(item, question.caption) for item, question in zip(placed.items, placed.questions, strict=True)}
    foils = [
        (item, question.caption, foil)
        for item, question in zip(placed.items, placed.questions, strict=True)
        for foil in question.foils
    ]
    return {
        "questions": len(placed.questions),
        "foils": len(foils),
        "foils_equal_to_their_caption": sum(caption == foil for _, caption, foil in foils),
        "foils_given_twice": sum(len(question.foils) - len(set(question.foils)) for question in placed.questions),
        "foils_true_in_another_question": sum(
            (item, foil) in described for item, caption, foil in foils if caption != foil
        ),
        "entries_left_out": len(placed.left_out),
        "entries_left_out_shown": placed.left_out[:MAX_NOTE_EXAMPLES],
    }


def _plain(text: str) -> str:
    return " ".join(text.split())


# ---- The files of each benchmark -----------------------------------------------------------------------------------


def _read_negbench(path: Path) -> Iterator[_Question]:
    paths: dict[str, str] = {}  # name of a clip's file → its path
    for number, row in enumerate(read_user_csv(path, NEGBENCH_COLUMNS, _MISSING)):
        where, cells = f"{path}: row {row.number}", row.cells
        column = next((name for name in NEGBENCH_CLIP_COLUMNS if name in cells), None)
        if column is None:
            names = ", ".join(NEGBENCH_CLIP_COLUMNS)
            raise RewindError(f"{path}: row 1: no column names the clips' files; call one of them {names}.")
        video = PurePosixPath(cells[column].replace("\\", "/")).name
        if paths.setdefault(video, cells[column]) != cells[column]:
            raise RewindError(
                f"{where}: {cells[column]!r} and {paths[video]!r} have the same file name, by which clips are found "
                "in `source.videos`; rename one of the files."
            )
        captions = {name: _plain(text) for name, text in cells.items() if _NUMBERED_CAPTION.fullmatch(name)}
        # Published files have the right answer at 0, and upstream's argmax takes the first of equal scores, so that a
        # tie is right there. Here the place of the right answer has no effect.
        if (truth := f"caption_{cells['correct_answer']}") not in captions:
            raise RewindError(f"{where}: correct_answer {cells['correct_answer']!r}: there is no column {truth!r}.")
        foils = tuple(text for name, text in captions.items() if name != truth)
        kind = cells["correct_answer_template"] or DEFAULT_KIND
        yield _Question(where, video, _item_id(video), kind, captions[truth], foils, str(number))


def _read_velociti(path: Path) -> Iterator[_Question]:
    for number, (where, cells) in enumerate(_velociti_rows(path)):
        video = cells["video_id"].removesuffix(".mp4")
        caption, foil = _plain(cells["pos"]), _plain(cells["neg"])
        yield _Question(where, video, _item_id(video), cells["test_name"], caption, (foil,), str(number))


def _velociti_rows(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Rows of a CSV, a JSON list of objects or a Parquet file, with their places."""
    if path.suffix == ".json":
        records = read_user_json(path, _MISSING)
    elif path.suffix == ".parquet":
        with reading_user_file(path, "Parquet file", missing=_MISSING):
            records = pd.read_parquet(path).to_dict("records")
    else:
        for row in read_user_csv(path, VELOCITI_COLUMNS, _MISSING):
            yield f"{path}: row {row.number}", row.cells
        return
    yield from checked_objects(records, str(path), VELOCITI_COLUMNS)


def _read_vinoground(path: Path) -> Iterator[_Question]:
    seen: dict[int, tuple[str, str]] = {}
    for number, row in enumerate(read_user_csv(path, VINOGROUND_COLUMNS, _MISSING)):
        where, cells = f"{path}: row {row.number}", row.cells
        pair = cells.get("index", str(number))
        if not (pair.isdecimal() and pair.isascii()):
            raise RewindError(f"{where}: index {pair!r} must be the number in the names of both clips.")
        first, place = seen.setdefault(int(pair), (pair, where))
        if place != where:
            raise RewindError(f"{where}: the index {pair!r} is the number {first!r} of {place}; keep one.")
        kind = cells.get("major") or DEFAULT_KIND
        first, second = _plain(cells["pos_cap"]), _plain(cells["neg_cap"])
        yield _Question(where, f"{pair}_pos", pair, kind, first, (second,), pair)
        yield _Question(where, f"{pair}_neg", pair, kind, second, (first,), pair)


def _read_vilma(path: Path) -> Iterator[_Question | str]:
    entries = read_user_json(path, _MISSING)
    if not isinstance(entries, dict):
        raise RewindError(f"{path}: a JSON object of entries by id is needed, not {json_type_name(entries)}.")
    checks = RowChecks(VILMA_QUESTION, noun="entry")
    for name, entry in entries.items():
        where = f"{path}: entry {name!r}"
        if not _is_valid(object_of(entry, where), where):
            yield name
            continue
        videos = [str(entry[key]) for key in ("youtube_id", "video_file", "dataset_idx") if entry.get(key)]
        cluster = f"{entry.get('dataset')}/{videos[0]}" if videos else name  # parts of one video are not independent
        for kind, question in ((MAIN, entry), (PROFICIENCY, entry.get("proficiency"))):
            if question is not None:
                place = where if kind == MAIN else f"{where}: {PROFICIENCY}"
                checks.take(place, object_of(question, place))
                caption, foils = _plain(question["caption"]), tuple(map(_plain, question["foils"]))
                yield _Question(place, name, cluster, kind, caption, foils, name)


def _is_valid(entry: Mapping[str, Any], where: str) -> bool:
    """Whether annotators chose the true captions, of the question and of that on proficiency; true without votes.

    Source: ``bin/eval.py`` of ViLMA: ``mturk.caption`` ≥ 2 and ``proficiency.human.caption`` = 1.
    """
    proficiency = entry.get("proficiency") or {}
    if not isinstance(proficiency, dict):
        raise RewindError(f"{where}: `proficiency` must be an object, not {json_type_name(proficiency)}.")
    for key, holder, needed in (("mturk", entry, MIN_VOTES), ("human", proficiency, 1)):
        votes = holder.get(key)
        if votes is None:
            continue
        count = votes.get("caption") if isinstance(votes, dict) else None
        if not isinstance(count, int):
            raise RewindError(f"{where}: `{key}` must be an object with the number of votes for `caption`.")
        if count < needed:
            return False
    return True


def _read_table(path: Path) -> Iterator[_Question]:
    first: dict[tuple[str, str, str], str] = {}  # question → where it begins
    foils: dict[tuple[str, str, str], list[str]] = {}
    given: dict[tuple[str, str, str, str], int] = {}  # question and foil → row
    clusters: dict[str, tuple[str, str]] = {}  # clip → cluster, and where it is named first
    for row in read_user_csv(path, TABLE_COLUMNS, _MISSING):
        where, cells = f"{path}: row {row.number}", row.cells
        video, cluster = cells["video"], cells.get("cluster_id") or _item_id(cells["video"])
        known, place = clusters.setdefault(video, (cluster, where))
        if known != cluster:
            raise RewindError(
                f"{where}: {video!r} has the cluster_id {cluster!r} here but {known!r} in {place}; all rows of a clip "
                "must agree."
            )
        caption, foil, kind = _plain(cells["caption"]), _plain(cells["foil"]), cells.get("kind") or DEFAULT_KIND
        question = video, caption, kind
        listed = given.setdefault((*question, plain_text(foil)), row.number)
        if fault := foil_fault(foil, caption, listed if listed != row.number else None):
            raise RewindError(f"{where}: {fault}.")
        first.setdefault(question, where)
        foils.setdefault(question, []).append(foil)
    for number, ((video, caption, kind), texts) in enumerate(foils.items()):
        where = first[video, caption, kind]
        yield _Question(where, video, clusters[video][0], kind, caption, tuple(texts), str(number))


_READERS: dict[str, Callable[[Path], Iterator[_Question] | Iterator[_Question | str]]] = {
    "negbench": _read_negbench,
    "velociti": _read_velociti,
    "vinoground": _read_vinoground,
    "vilma": _read_vilma,
    "table": _read_table,
}


# ---- Dummy data ----------------------------------------------------------------------------------------------------


@DUMMY_DATA.register("foils")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """As many clips as the test split is to have, with the caption of their reverse as the foil."""
    items = make_dummy_items(SplitSizes(0, 0, sizes.test + sizes.test % 2), 1)
    benchmark, videos = dataset.source.benchmark, folder / "videos"
    captions = [(item.entry.captions(False)[0], item.entry.captions(True)[0]) for item in items]
    names = [item.name for item in items]
    if benchmark == "vinoground":
        names = [f"{number // 2}_{'neg' if number % 2 else 'pos'}" for number in range(len(items))]
    for name, item in zip(names, items, strict=True):
        draw_clip(item, videos / f"{name}.mp4")
    if benchmark == "vilma":
        entries = {
            name: {"caption": true, "foils": [foil], "proficiency": {"caption": true, "foils": ["Nothing moves."]}}
            for name, (true, foil) in zip(names, captions, strict=True)
        }
        write_json(folder / "foils.json", entries)
        return {"file": str(folder / "foils.json"), "videos": str(videos)}
    rows: dict[str, list[Sequence[object]]] = {
        "negbench": [
            ["correct_answer", "caption_0", "caption_1", "correct_answer_template", "image_path"],
            *([0, *texts, "positive", f"{name}.mp4"] for name, texts in zip(names, captions, strict=True)),
        ],
        "velociti": [
            ["test_name", "video_id", "event", "pos", "neg"],
            *(["chrono", name, "Ev1", *texts] for name, texts in zip(names, captions, strict=True)),
        ],
        "vinoground": [
            ["index", "major", "pos_cap", "neg_cap"],
            *([n, "action", captions[2 * n][0], captions[2 * n + 1][0]] for n in range(len(items) // 2)),
        ],
        "table": [
            ["video", "caption", "foil", "kind"],
            *([f"{name}.mp4", *texts, "reverse"] for name, texts in zip(names, captions, strict=True)),
        ],
    }
    with (folder / "foils.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows[benchmark])
    return {"file": str(folder / "foils.csv"), "videos": str(videos)}
