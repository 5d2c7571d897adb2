"""Exchange with MTEB: a dataset as a Python module of tasks, and the scores that MTEB kept for such a task.

``rewind export mteb`` calls :func:`export_tasks`, ``rewind import mteb`` calls :func:`import_predictions`.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.commands import prepare_command
from rewind.config.dataset import Dataset
from rewind.data.captions import load_split
from rewind.data.readers import MAX_SCORE, id_fault, is_score
from rewind.errors import RewindError
from rewind.evaluation.trec import RetrievalTask, escape_id, make_retrieval_task
from rewind.hashing import stable_hash
from rewind.io.files import atomic_write, check_output_folder, write_json, write_npz, write_text
from rewind.io.strict import read_user_json
from rewind.video.frames import NORMALISED_IMAGE_SUFFIXES
from rewind.video.shards import EXTRACTED_FOLDER, extract_clip, refuse_outside
from rewind.workflow.checksums import verify_files_below
from rewind.workflow.config import load_configured_dataset, load_configured_study
from rewind.workflow.what_ran import study_that_ran

# ---- Writing a prepared dataset as MTEB tasks ----------------------------------------------------------------------

TASKS_TEMPLATE = Path(__file__).parent / "templates/mteb_tasks.py"
"""The file that is copied next to the exported data and reads it: it needs MTEB, but not Rewind."""
DIRECTION_ENDINGS = {"text_to_item": "T2V", "item_to_text": "V2T"}  # of the tasks' names
TASK_DESCRIPTIONS = {
    ("origin", "T2V"): "Find the clip that a caption describes, among clips that play forwards.",
    ("hard", "T2V"): "Find the clip that a caption describes, among clips and their time-reversed twins.",
    ("binary", "T2V"): "Which of a clip and its time-reversed twin does the forward caption describe?",
    ("test", "T2V"): "Find the clip that a caption describes.",
    ("origin", "V2T"): "Find the caption of a clip, among captions of clips that play forwards.",
    ("hard", "V2T"): "Find the caption of a clip, among captions of clips and of their time-reversed twins.",
    ("binary", "V2T"): "Which of a forward caption and its twin's caption describes the clip?",
    ("test", "V2T"): "Find the caption of a clip.",
}


def export_tasks(name: str, out: Path, copy: bool = False, config: Path = Path("config")) -> list[str]:
    """Write MTEB tasks over the test split of a dataset, one for each setting and direction; returns their names.

    Args:
        name: a study (its dataset, settings and directions) or a dataset (all that it can have): the name, or the path
            of the YAML file.
        out: folder to write; Python imports it by its name.
        copy: copy the clips into it; otherwise they are extracted from their shards next to the dataset's other files.
        config: folder of ``studies`` and ``datasets``.

    Raises:
        RewindError: if there is no such study or dataset, its data are not prepared, its items are not clips, or
            ``out`` cannot be imported or holds something else.
    """
    dataset, settings, directions = _requested(name, config)
    _check_folder(out)
    folder = Path("results/data") / dataset.name
    if not (folder / "items.csv").is_file():
        raise RewindError(f"{folder / 'items.csv'}: missing; prepare the data first (`{prepare_command(folder)}`).")
    verify_files_below(folder, "items.csv", "captions/*.csv")
    items, captions, _ = load_split(folder, dataset.name, "test")
    if dataset.composed:
        raise RewindError(f"{name}: its queries show a clip besides a text, for which MTEB's tasks here have no place.")
    clips = _clip_files(folder, items, out if copy else None)
    settings = settings or _possible_settings(items, captions)
    revision = stable_hash(captions.to_numpy().tolist(), items[["item_id", "reversed"]].to_numpy().tolist())
    metadata = []
    for setting in settings:
        for direction in directions:
            task = _task_metadata(dataset, setting, DIRECTION_ENDINGS[direction]) | {"revision": revision}
            write_json(out / f"{task['name']}.json", _task_lists(items, captions, setting, direction))
            metadata.append(task)
    write_json(out / "clips.json", clips)
    with atomic_write(out / "__init__.py") as temporary:
        shutil.copyfile(TASKS_TEMPLATE, temporary)
    write_json(out / "tasks.json", metadata)  # last, since it names the others: a folder without it has no tasks
    return [task["name"] for task in metadata]


def _requested(name: str, config: Path) -> tuple[Dataset, list[str], list[str]]:
    """The dataset, settings (empty: those that the data allow) and directions of a study, or of a dataset itself."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else None
    if path is not None:
        config, kind = path.parent.parent, path.parent.name
    else:
        kind = "studies" if (config / "studies" / f"{name}.yaml").is_file() else "datasets"
    stem = path.stem if path is not None else name
    if kind not in ("studies", "datasets") or not (config / kind / f"{stem}.yaml").is_file():
        raise RewindError(f"{name}: neither a study in config/studies nor a data set in config/datasets.")
    if kind == "datasets":
        return load_configured_dataset(stem, config), [], list(DIRECTION_ENDINGS)
    results = Path("results") / stem
    if (results / "metrics.csv").is_file():
        study, dataset = study_that_ran(results, config)
    else:
        study = load_configured_study(stem, config)
        dataset = load_configured_dataset(study.dataset, config)
    return dataset, list(study.evaluation.settings), list(study.evaluation.directions)


def _possible_settings(items: pd.DataFrame, captions: pd.DataFrame) -> list[str]:
    """The evaluation settings that the data allow."""
    twins = items["item_id"][items["reversed"] == 1]
    if twins.empty:
        return ["test"]
    return ["origin", "hard"] + ["binary"] * bool(captions["video_id"].isin(twins).any())


def _check_folder(out: Path) -> None:
    if not out.name.isidentifier():
        raise RewindError(f"{out}: Python cannot import a folder of this name; use letters, digits and '_'.")
    if out.is_dir() and any(out.iterdir()) and not (out / "tasks.json").is_file():
        raise RewindError(f"{out}: holds something else; name a new folder.")
    check_output_folder(out, "OUT")


def _clip_files(folder: Path, items: pd.DataFrame, target: Path | None) -> dict[str, dict[str, Any]]:
    """Extract each item's clip: item → its path as a file, and whether it is a reversed twin.

    The files are written to ``target``, with paths relative to it, or else next to the dataset, with absolute paths.
    """
    clips = {}
    for item, clip_path, twin in zip(items["item_id"], items["path"], items["reversed"], strict=True):
        source = folder / clip_path
        if not clip_path or source.suffix in NORMALISED_IMAGE_SUFFIXES:
            raise RewindError(f"{folder / 'items.csv'}: {item!r} is not a clip; MTEB's video tasks need clips.")
        refuse_outside(clip_path, folder.parent, folder / "items.csv")
        if target is not None:
            file = extract_clip(source, target / "clips" / source.name).relative_to(target)
        else:
            file = extract_clip(source, folder / EXTRACTED_FOLDER / source.name).resolve()
        clips[item] = {"path": str(file), "reversed": bool(twin)}
    return clips


def _task_metadata(dataset: Dataset, setting: str, ending: str) -> dict[str, Any]:
    """The fields of MTEB's metadata that depend on the data."""
    return {
        "name": _task_name(dataset.name, setting, ending),
        "description": f"{dataset.title or dataset.name}: {TASK_DESCRIPTIONS[setting, ending]}",
        "type": "Any2AnyReranking" if setting == "binary" else "Any2AnyRetrieval",
        "category": ending.lower(),
        "eval_langs": ["eng-Latn"],
    }


def task_name(dataset: str, setting: str, direction: str) -> str:
    """Name of the task over a data set, in a setting and a direction of searching.

    >>> task_name("shapes", "hard", "text_to_item")
    'RewindShapesHardT2V'
    """
    return _task_name(dataset, setting, DIRECTION_ENDINGS[direction])


def _task_name(dataset: str, setting: str, ending: str) -> str:
    parts = [part for word in (dataset, setting) for part in re.split(r"[^A-Za-z0-9]+", word)]
    return "Rewind" + "".join(part[:1].upper() + part[1:] for part in parts) + ending


def _task_lists(items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str) -> dict[str, Any]:
    """Queries, documents, relevance and (Binary) candidates of a task, as in Rewind's own evaluation."""
    # Only which pairs belong to the task is used, so that the scores may be zeros.
    task = make_retrieval_task(np.zeros((len(captions), len(items)), np.float32), captions, items, setting, direction)
    ids_by_escaped = {escape_id(name): name for name in [*captions["caption_id"], *items["item_id"]]}
    captions_by_id = dict(zip(captions["caption_id"], captions["caption"], strict=True))
    # Binary's queries from item to text are called <item>/<caption>.
    queries = [ids_by_escaped.get(name, name) for name in task.queries.tolist()]
    documents, candidates = _task_documents(task, queries, ids_by_escaped)  # candidates: None but for Binary
    relevant = {}
    for query, is_relevant in zip(queries, task.relevant, strict=True):
        gallery = documents if candidates is None else candidates[query]
        relevant[query] = [gallery[at] for at in np.flatnonzero(is_relevant)]
    if direction == "text_to_item":
        query_table = {"id": queries, "text": [captions_by_id[query] for query in queries]}
        document_table = {"id": documents, "item": documents}
    else:
        query_table = {"id": queries, "item": [query.split("/", 1)[0] for query in queries]}
        document_table = {"id": documents, "text": [captions_by_id[document] for document in documents]}
    return {
        "queries": query_table,
        "documents": document_table,
        "relevant": relevant,
        "candidates": candidates,
        "gallery": len(documents) if candidates is None else 2,
    }


def _task_documents(
    task: RetrievalTask, queries: list[str], ids_by_escaped: dict[str, str]
) -> tuple[list[str], dict[str, list[str]] | None]:
    """All documents, and those of each query where queries have galleries of their own."""
    if task.documents.ndim == 1:
        return [ids_by_escaped[name] for name in task.documents.tolist()], None
    galleries = zip(queries, task.documents.tolist(), strict=True)
    candidates = {query: [ids_by_escaped[name] for name in names] for query, names in galleries}
    return list(dict.fromkeys(name for names in candidates.values() for name in names)), candidates


# ---- Reading the scores that MTEB kept (`prediction_folder=`), as a matrix or a TREC run ---------------------------

PREDICTIONS_ENDING = "_predictions.json"
ITEM_TO_TEXT_ENDING = "V2T"  # in a task whose name ends so, items search captions
RUN_SUFFIXES = (".trec", ".txt", ".run")
MAX_SHOWN_CHARACTERS = 40  # characters of a score in a message

ScoresByQuery = Mapping[str, Mapping[str, float]]


def import_predictions(path: Path, out: Path) -> str:
    """Write the scores in ``<task>_predictions.json`` as a matrix (``.npz``) or a TREC run (:data:`RUN_SUFFIXES`).

    Rows are captions and columns are items, in whichever direction the task searches. A matrix needs the score of
    every pair. MTEB keeps the best 1000 documents of a query, and the best 4000 in tasks that Rewind exported; a task
    with candidates (Binary) never has all pairs. A TREC run may lack pairs. Returns a sentence about what was written.

    Raises:
        RewindError: for a file of another kind, several splits, a query without documents, an id that no dataset can
            have, scores that are not numbers of single precision, a matrix that would have holes, or an ``out`` of
            another kind.
    """
    if out.suffix not in (".npz", *RUN_SUFFIXES):
        raise RewindError(f"{out}: give it the ending .npz for a matrix, or {', '.join(RUN_SUFFIXES)} for a TREC run.")
    scores_by_query = _read_scores(path)
    if path.name.removesuffix(PREDICTIONS_ENDING).endswith(ITEM_TO_TEXT_ENDING):
        scores_by_query = _by_caption(scores_by_query)
    for name in dict.fromkeys([*scores_by_query, *(item for row in scores_by_query.values() for item in row)]):
        if fault := id_fault(name):
            raise RewindError(f"{path}: {fault}.")
    items = list(dict.fromkeys(item for row in scores_by_query.values() for item in row))
    pairs = sum(map(len, scores_by_query.values()))
    summary = f"{out}: {pairs:,} scores of {len(scores_by_query):,} captions and {len(items):,} items"
    if out.suffix != ".npz":
        write_text(out, _trec_run(scores_by_query, path.name.removesuffix(PREDICTIONS_ENDING)))
        return f"{summary}, as a TREC run"
    if pairs < len(scores_by_query) * len(items):
        raise RewindError(
            f"{path}: has {pairs:,} of {len(scores_by_query) * len(items):,} pairs, because MTEB kept only the best "
            f"documents of a query; write a TREC run instead: {out.with_suffix(RUN_SUFFIXES[0])}."
        )
    scores = np.array([[row[item] for item in items] for row in scores_by_query.values()], np.float64)
    write_npz(
        out,
        similarity=scores,
        query_ids=np.array(list(scores_by_query), dtype=str),
        item_ids=np.array(items, dtype=str),
    )
    return summary


def _read_scores(path: Path) -> ScoresByQuery:
    """Query → document → score. MTEB's file has these by subset and split; only one of each is read."""
    content: Any = read_user_json(path, infinite=True)
    subsets = (
        {name: part for name, part in content.items() if name != "mteb_model_meta"} if _is_mapping(content) else {}
    )
    splits = [split for part in subsets.values() if _is_mapping(part) for split in part.values()]
    if not splits or not all(_is_mapping(split) and all(map(_is_mapping, split.values())) for split in splits):
        raise RewindError(
            f"{path}: not the predictions of a retrieval task; `mteb.evaluate(…, prediction_folder=FOLDER)` writes "
            f"FOLDER/<task>{PREDICTIONS_ENDING}."
        )
    if not splits[0]:
        raise RewindError(f"{path}: there are no queries; evaluate the task again.")
    if len(splits) > 1:
        raise RewindError(f"{path}: holds {len(splits)} subsets or splits; give the predictions of one.")
    for query, row in splits[0].items():
        if not row:
            raise RewindError(f"{path}: the query {query!r} has no documents; evaluate the task again.")
        for document, score in row.items():
            if not is_score(score):
                text = (
                    str(score) if len(str(score)) <= MAX_SHOWN_CHARACTERS else f"{str(score)[:MAX_SHOWN_CHARACTERS]}…"
                )
                raise RewindError(
                    f"{path}: the score of {query!r} and {document!r} is {text}, not a number up to {MAX_SCORE:g}."
                )
    return splits[0]


def _is_mapping(value: Any) -> bool:
    return isinstance(value, dict)


def _by_caption(scores: ScoresByQuery) -> dict[str, dict[str, float]]:
    """Caption → item → score; Binary's queries are ``<item>/<caption>``, one for each caption of an item."""
    by_caption: dict[str, dict[str, float]] = {}
    for query, row in scores.items():
        for caption, score in row.items():
            by_caption.setdefault(caption, {})[query.split("/", 1)[0]] = score
    return by_caption


def _trec_run(scores: ScoresByQuery, tag: str) -> str:
    lines = []
    for query, row in scores.items():
        # trec_eval orders equal scores by id, descending.
        best = sorted(row.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)
        lines += [
            f"{escape_id(query)} Q0 {escape_id(item)} {rank} {float(score)!r} {tag}"
            for rank, (item, score) in enumerate(best, 1)
        ]
    return "\n".join(lines) + "\n"
