"""Retrieval tasks of MTEB and its video part MVEB: texts on one side, videos or images on the other.

MTEB's own code reads the task (``load_data``), so that queries, documents and right answers are MTEB's, whatever layout
its files have. They come from a copy of the data set's repository (``source.folder``), or from the cache of the package
``datasets``, which fetches what is not in it. Without ``source.task``, a folder in MTEB's layout for retrieval is read:
the configurations ``corpus``, ``queries`` and ``qrels`` (or ``default``).

The direction of the task plays no part: texts search items, and items texts. A text is a caption of its first right
item. Where texts have several, R@k over pairs counts the others as wrong, and :func:`read_answers` gives all of them.
What else a task has – audio, instructions of queries – is left out. Everything is of the test split.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd

from rewind import optional_packages
from rewind.config.dataset import Dataset, MtebSource
from rewind.data.annotations import Annotations
from rewind.data.dummy import SplitSizes, draw_clip, draw_picture, make_dummy_items
from rewind.data.formats.photos import IMAGE_SUFFIXES, open_image
from rewind.data.formats.published import ListedClip, annotate_clips, safe_id
from rewind.errors import RewindError
from rewind.io.files import atomic_write, read_json, reraise_system_error, write_json, write_text
from rewind.io.schema import Column, RowChecks, Schema, cell_fault
from rewind.progress import track
from rewind.registry import DUMMY_DATA, FORMATS, import_path
from rewind.working_folder import add_own_modules

TASK_FILE = "task.json"
MEDIA = {"videos": "video", "images": "image"}
"""``source.items`` → the column of MTEB that holds them."""
_QRELS = Schema(
    {"query-id": Column(kind="id"), "corpus-id": Column(kind="id"), "score": Column(kind="whole")}, others=True
)
_SIDES = ("queries", "corpus")
_SETTING = "all"
_CACHE = ".cache"  # of the package `datasets`, next to what is written from it; removed when all is written


@dataclass
class TaskContent:
    """A task as :func:`make_sources` writes it."""

    items: list[list[str]] = field(default_factory=list)  # id and file of every video or image, in the task's order
    texts: list[list[Any]] = field(default_factory=list)  # id, words and ids of the right items, best first
    notes: dict[str, Any] = field(default_factory=dict)  # where it is from, and what was left out


def find_faults(dataset: Dataset) -> list[str]:
    """What is known to fail before the first job, as lines under the data set's file."""
    if optional_packages.is_installed("mteb"):
        return []
    return ["source.format: the package mteb is not installed: `pip install 'rewind-bench[mteb]'`"]


def make_sources(dataset: Dataset, folder: Path) -> None:
    """Write the task's videos or images into ``folder/videos`` or ``folder/images`` and, last, ``folder/task.json``.

    Files that are there with the same bytes stay as they are.

    Raises:
        RewindError: for a task that MTEB does not know or cannot read, that does not match texts with videos or images,
            or has several splits or subsets of which the file names none; for an item without content.
    """
    source: MtebSource = dataset.source
    where = f"config/datasets/{dataset.name}.yaml: source"
    with _own_cache(source, folder), _undecoded(), _checked(source, where):
        data, facts = _load(source, where)
        visual, text, rights = _sides(data, source, where)
        content = TaskContent(notes=facts)
        media = folder / source.items
        media.mkdir(parents=True, exist_ok=True)
        for row in track(visual, "mteb", len(visual), source.items):
            content.items.append([row["id"], _write_item(row, source, media, f"{where}.task: item {row['id']!r}")])
    known = {name for name, _ in content.items}
    empty = unanswered = 0
    for name, words in text.items():
        right = [item for item in rights.get(name, {}) if item in known]
        empty += not words
        unanswered += bool(words) and not right
        if words and right:
            content.texts.append([name, words, right])
    if not content.texts:
        raise RewindError(f"{where}.task: not one text has a right item among {len(known):,}; is the copy complete?")
    content.notes |= {"empty_texts": empty, "texts_without_item": unanswered}
    written = {file for _, file in content.items}
    for path in media.iterdir():
        if path.name not in written:  # of another task or split
            path.unlink()
    write_json(folder / TASK_FILE, asdict(content))
    print(f"mteb: {len(content.items):,} {source.items}, {len(content.texts):,} texts", file=sys.stderr)


@FORMATS.register("mteb", make_sources=make_sources, find_faults=find_faults)
def read(dataset: Dataset, sources: str) -> Annotations:
    """Items and captions of what :func:`make_sources` wrote into ``sources``; with ``reverse`` clips have twins."""
    content = _read_task(sources)
    captions: dict[str, list[str]] = {name: [] for name, _ in content.items}
    for _, words, right in content.texts:
        captions[right[0]].append(words)
    task = content.notes.get("task") or content.notes["folder"]
    clips = [ListedClip(name, file, captions[name], f"{task}: {name!r}") for name, file in content.items]
    if dataset.items == "images":
        dataset = dataset.model_copy(update={"reverse": False})
    several = sum(len(right) > 1 for _, _, right in content.texts)
    return annotate_clips(dataset, {"test": clips}, {"test": content.notes | {"texts_with_several_items": several}})


def read_answers(source: MtebSource, sources: str = "") -> pd.DataFrame:
    """Right items of every text, as the task that :func:`make_sources` wrote has them; all others are wrong."""
    content, counts = _read_task(sources), dict[str, int]()
    rows = []
    for _, _, right in content.texts:
        owner = safe_id(right[0])
        caption = f"{owner}#{counts.setdefault(owner, 0)}"
        counts[owner] += 1
        rows += [(_SETTING, caption, safe_id(item), 1, "all") for item in right]
    return pd.DataFrame(rows, columns=["setting", "caption_id", "item_id", "right", "gallery"])


def _read_task(sources: str) -> TaskContent:
    return TaskContent(**read_json(Path(sources) / TASK_FILE))


# ---- The task, through MTEB ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _own_cache(source: MtebSource, folder: Path) -> Iterator[None]:
    """While a folder is read, what the package `datasets` makes of it lies below ``folder`` and is removed.

    It would otherwise fill the user's cache with a second copy of the videos.
    """
    if source.folder is None or not optional_packages.is_installed("datasets"):
        yield
        return
    import datasets

    usual = datasets.config.HF_DATASETS_CACHE
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=_CACHE, dir=folder) as cache:
        datasets.config.HF_DATASETS_CACHE = Path(cache)
        try:
            yield
        finally:
            datasets.config.HF_DATASETS_CACHE = usual


@contextlib.contextmanager
def _undecoded() -> Iterator[None]:
    """While rows are read, videos, images and sound stay as they are in their files.

    MTEB's loader looks at the first document for its log, and `datasets` decodes a video for that with torchcodec,
    which need not be installed. Nothing here looks at decoded ones.
    """
    if not optional_packages.is_installed("datasets"):
        yield
        return
    import datasets

    kinds = (datasets.Video, datasets.Image, datasets.Audio)
    usual = [kind.decode_example for kind in kinds]
    for kind in kinds:
        kind.decode_example = lambda self, value, *_, **__: value
    try:
        yield
    finally:
        for kind, decode in zip(kinds, usual, strict=True):
            kind.decode_example = decode


@contextlib.contextmanager
def _checked(source: MtebSource, where: str) -> Iterator[None]:
    """While MTEB's loader reads: a split that is named must be there, and judgements are read before it merges them.

    The loader takes the only split for one of another name, rounds relevance, and keeps the last of two judgements.
    """
    if not optional_packages.is_installed("mteb"):
        yield
        return
    loader = optional_packages.mteb("abstasks.retrieval_dataset_loaders").RetrievalDatasetLoader
    usual_split, usual_load = loader._get_split, loader._load_dataset_split

    def get_split(self: Any, config: str) -> str:
        found: str = usual_split(self, config)
        if source.split not in (None, found):
            raise RewindError(f"{where}.split: {config} has no {source.split!r}; available: {found}.")
        return found

    def load(self: Any, config: str, *options: Any) -> Any:
        rows = usual_load(self, config, *options)
        if _QRELS.columns.keys() <= set(rows.column_names):
            _check_judgements(rows, f"{where}.task: {config}")
        return rows

    loader._get_split, loader._load_dataset_split = get_split, load
    try:
        yield
    finally:
        loader._get_split, loader._load_dataset_split = usual_split, usual_load


def _check_judgements(rows: Any, where: str) -> None:
    checks, judged = RowChecks(_QRELS), dict[tuple[str, str], tuple[int, Any]]()
    for number, row in enumerate(rows.select_columns(list(_QRELS.columns)), start=1):
        checks.take(f"{where}: row {number}", row)
        first, score = judged.setdefault((str(row["query-id"]), str(row["corpus-id"])), (number, row["score"]))
        if score != row["score"]:
            raise RewindError(
                f"{where}: row {number}: the query-id {row['query-id']!r} with the corpus-id {row['corpus-id']!r} has "
                f"the score {row['score']} here but {score} in row {first}; keep one."
            )


def _load(source: MtebSource, where: str) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """MTEB's data of one split: corpus, queries, relevant_docs; and notes on where they are from."""
    if not optional_packages.is_installed("mteb"):
        raise RewindError(f"{where}.format: the package mteb is not installed: `pip install 'rewind-bench[mteb]'`.")
    facts: dict[str, Any] = {"task": source.task, "folder": source.folder, "mteb": metadata.version("mteb")}
    if source.task is None:
        assert source.folder is not None  # MtebSource has checked it
        split, subset = source.split or "test", source.subset or "default"
        with _explain(where, source):
            loaders = optional_packages.mteb("abstasks.retrieval_dataset_loaders")
            loader = loaders.RetrievalDatasetLoader(source.folder, None, split=split, config=subset)
            return loader.load(), facts | {"split": split, "subset": subset}
    task = _find_task(source, where)
    dataset = dict(task.metadata.dataset)
    if source.folder is not None:  # a copy: metadata belong to the class
        copied = dataset | {"path": str(Path(source.folder).absolute())}
        task.metadata = task.metadata.model_copy(update={"dataset": copied})
    with _explain(where, source):
        task.load_data()
    subset, splits = _choose(task.dataset, source.subset, f"{where}.subset")
    split, data = _choose(splits, source.split, f"{where}.split")
    category = task.metadata.category
    return data, facts | {"split": split, "subset": subset, "category": category, "dataset": dataset}


def _find_task(source: MtebSource, where: str) -> Any:
    retrieval = optional_packages.mteb("abstasks.retrieval").AbsTaskRetrieval
    assert source.task is not None
    narrow = {"eval_splits": [source.split]} if source.split else {}
    narrow |= {"hf_subsets": [source.subset]} if source.subset else {}
    try:
        task = optional_packages.mteb().get_task(source.task, **narrow)
    except (KeyError, ValueError) as error:
        package, dot, _ = source.task.partition(".")  # MTEB's own names may have a dot, as `DiDeMoT2VRetrieval.v2`
        add_own_modules()
        if not dot or importlib.util.find_spec(package) is None:
            reason = str(error).strip("\"'").removeprefix("KeyError: ").rstrip(".?")
            raise RewindError(f"{where}.task: {reason}; correct the name.") from error
        found = import_path(source.task, f"{where}.task")
        task = found() if isinstance(found, type) and issubclass(found, retrieval) else found
    if not isinstance(task, retrieval):
        raise RewindError(
            f"{where}.task: {source.task} is not a retrieval task ({type(task).__name__}); name one that matches texts "
            "with videos or images, such as MSRVTTT2V or Flickr30kT2IRetrieval."
        )
    return task


@contextlib.contextmanager
def _explain(where: str, source: MtebSource) -> Iterator[None]:
    """Around MTEB's reading, which raises whatever the packages below it raise."""
    try:
        yield
    except RewindError:
        raise
    except Exception as error:
        reraise_system_error(error, where)
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        copied = "is the copy in source.folder complete?" if source.folder else "set source.folder to a copy of it."
        raise RewindError(
            f"{where}.task: MTEB cannot read {source.task or source.folder} ({reason}); {copied}"
        ) from error


def _choose(parts: Mapping[str, Any], wanted: str | None, where: str) -> tuple[str, Any]:
    available = ", ".join(parts)
    if wanted is None and len(parts) != 1:
        raise RewindError(f"{where}: this key is missing; the task has {available}: name one.")
    name = next(iter(parts)) if wanted is None else wanted
    if name not in parts:
        raise RewindError(f"{where}: the task has no {name!r}; available: {available}.")
    return name, parts[name]


def _sides(
    data: Mapping[str, Any], source: MtebSource, where: str
) -> tuple[Any, dict[str, str], dict[str, dict[str, int]]]:
    """The rows with videos or images, undecoded; the texts by id; and text → right items with their relevance."""
    import datasets

    column = MEDIA[source.items]
    columns = {side: sorted({"text", *MEDIA.values()}.intersection(data[side].column_names)) for side in _SIDES}
    side_with = {" and ".join(kinds): side for side, kinds in columns.items()}
    if side_with.keys() != {"text", column}:
        listed = ", ".join(f"{side} with {' and '.join(kinds) or 'neither'}" for side, kinds in columns.items())
        others = [items for items, kind in MEDIA.items() if side_with.keys() == {"text", kind}]
        hint = f"set source.items: {others[0]}" if others else "take another task"
        raise RewindError(
            f"{where}.task: a task has texts on one side and {source.items} on the other here, but this one has "
            f"{listed}; {hint}."
        )
    visual, text = side_with[column], side_with["text"]
    feature = datasets.Video(decode=False) if column == "video" else datasets.Image(decode=False)
    rights: dict[str, dict[str, int]] = {}
    for query, documents in data["relevant_docs"].items():
        for document, score in documents.items():
            if fault := cell_fault("score", score, _QRELS.columns["score"]):
                raise RewindError(f"{where}.task: qrels of {query!r} and {document!r}: {fault}.")
            if score > 0:
                words, item = (query, document) if text == "queries" else (document, query)
                rights.setdefault(str(words), {})[str(item)] = int(score)
    # A stable sort: of equally relevant items the first judged stays first, and the text becomes the caption of that
    # one.
    ranked = {name: dict(sorted(items.items(), key=lambda entry: -entry[1])) for name, items in rights.items()}
    rows = data[visual].select_columns(["id", column]).cast_column(column, feature)
    return rows, _texts(data[text], text == "corpus", f"{where}.task: {text}"), ranked


def _texts(rows: Any, documents: bool, where: str) -> dict[str, str]:
    """Texts by id; a document's title stands before its text, as in MTEB; an id of two texts is refused."""
    columns = [name for name in ("id", "title", "text") if name in rows.column_names]
    texts: dict[str, str] = {}
    for row in rows.select_columns(columns):
        title = (row.get("title") or "") if documents else ""
        words = " ".join(f"{title} {row['text'] or ''}".split())
        if texts.setdefault(name := str(row["id"]), words) != words:
            raise RewindError(f"{where}: the id {name!r} has two texts, {texts[name]!r} and {words!r}; keep one.")
    return texts


def _write_item(row: Mapping[str, Any], source: MtebSource, folder: Path, where: str) -> str:
    """Write a row's video or image as it is; its file's name. A missing one or one outside the data set is refused."""
    value = row[MEDIA[source.items]]
    content, path = (value["bytes"], value["path"]) if value else (None, None)
    if content is None and path:
        content = _read_linked(Path(path), source, where)
    if not content:
        raise RewindError(f"{where} has no {MEDIA[source.items]}; is the copy complete?")
    name = safe_id(str(row["id"])) + _suffix(content, path, source)
    target = folder / name
    if not (target.is_file() and target.stat().st_size == len(content) and target.read_bytes() == content):
        with atomic_write(target) as draft:
            Path(draft).write_bytes(content)
    return name


def _read_linked(path: Path, source: MtebSource, where: str) -> bytes:
    """A file that a row names: of the data set's own folder, or of the cache of the package `datasets`."""
    import datasets

    root = Path(source.folder) if source.folder else Path(datasets.config.HF_CACHE_HOME)
    found = path if path.is_absolute() else root / path
    if not found.resolve().is_relative_to(root.resolve()):
        raise RewindError(f"{where}: {str(path)!r} is outside of {root}; only files of the data set itself are read.")
    if not found.is_file():
        raise RewindError(f"{where}: {found}: no such file; is the copy complete?")
    return found.read_bytes()


def _suffix(content: bytes, path: str | None, source: MtebSource) -> str:
    """The suffix of an item's file: of an image by its content, of a video by its name."""
    if source.items == "videos":
        suffix = PurePosixPath(path or "").suffix.lower()
        return suffix if suffix.isascii() and suffix[1:].isalnum() else ".mp4"
    suffix = ""
    # A file that is not an image is found when it is normalised, as in every data set.
    with contextlib.suppress(Exception), open_image(io.BytesIO(content)) as image:
        suffix = f".{(image.format or '').lower()}"
    return suffix if suffix in IMAGE_SUFFIXES else ".png"


# ---- Dummy data ------------------------------------------------------------------------------------------------------

_README = """---
configs:
- {config_name: corpus, data_files: [{split: test, path: corpus/*.parquet}]}
- {config_name: queries, data_files: [{split: test, path: queries/*.parquet}]}
- {config_name: qrels, data_files: [{split: test, path: qrels/*.parquet}]}
---
"""


@DUMMY_DATA.register("mteb")
def make_dummy_data(dataset: Dataset, folder: Path, sizes: SplitSizes) -> dict[str, Any]:
    """A folder in MTEB's layout: drawn clips or pictures with one caption each, all of the test split."""
    drawn = make_dummy_items(SplitSizes(0, 0, sizes.test), 1)
    column, rows = MEDIA[dataset.items], []
    with tempfile.TemporaryDirectory() as room:
        for item in drawn:
            path = Path(room) / f"{item.name}{'.mp4' if column == 'video' else '.png'}"
            (draw_clip if column == "video" else draw_picture)(item, path)
            rows.append({"id": item.name, column: {"bytes": path.read_bytes(), "path": path.name}})
    write_task_folder(
        folder,
        rows,
        [{"id": f"q{item.name}", "text": item.entry.captions(False)[0]} for item in drawn],
        [{"query-id": f"q{item.name}", "corpus-id": item.name, "score": 1} for item in drawn],
    )
    return {"folder": str(folder), "task": None, "split": None, "subset": None}


def write_task_folder(
    folder: Path, corpus: list[dict[str, Any]], queries: list[dict[str, Any]], qrels: list[dict[str, Any]]
) -> None:
    """Write tables as a folder in MTEB's layout for retrieval: one Parquet file each, and a ``README.md``.

    Rows of corpus and queries have ``id`` and ``text``, ``video`` or ``image``; these two are ``bytes`` and ``path``.
    Those of qrels have ``query-id``, ``corpus-id`` and ``score``.
    """
    import pyarrow
    import pyarrow.parquet

    for name, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        types = {column: {"dtype": "string", "_type": "Value"} for column in rows[0]}
        types |= {column: {"_type": column.title()} for column in ("video", "image") if column in rows[0]}
        types |= {"score": {"dtype": "int64", "_type": "Value"}} if "score" in rows[0] else {}
        info = json.dumps({"info": {"features": types}})
        table = pyarrow.Table.from_pylist(rows).replace_schema_metadata({"huggingface": info})
        pyarrow.parquet.write_table(table, folder / name / "test-00000-of-00001.parquet")
    write_text(folder / "README.md", _README)
