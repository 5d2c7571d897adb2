"""A prepared data set as a Python module of MTEB tasks (``rewind export mteb``)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation.trec import Task, escape, task
from rewind.files import atomic, digest, write_json
from rewind.study import load_dataset, load_study
from rewind.study.dataset import Dataset
from rewind.targets import output_folder
from rewind.video.clip_checks import refuse_outside
from rewind.video.frames import IMAGE_SUFFIXES
from rewind.video.packed import EXTRACTED, extract

TASKS = Path(__file__).parent / "templates/mteb_tasks.py"
"""What is copied beside the data and reads it: it needs MTEB, but not Rewind, and is no module of Rewind."""
ENDS = {"text_to_item": "T2V", "item_to_text": "V2T"}
WORDS = {
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
    """Write MTEB tasks over the test split of a data set, of all settings and directions that it has.

    Args:
        name: a study (its data set, settings and directions) or a data set: its name, or the path of its YAML file.
        out: folder to write; its name is what Python imports.
        copy: copy the clips into it; otherwise they are taken out of their shards beside the data set's other files.
        config: folder of ``studies`` and ``datasets``.

    Returns:
        The names of the tasks.

    Raises:
        RewindError: if there is no such study or data set, its data are not prepared, its items are no clips, or
            ``out`` cannot be imported or holds something else.
    """
    dataset, settings, directions = _asked(name, config)
    _check_folder(out)
    folder = Path("results/data") / dataset.name
    if not (folder / "items.csv").is_file():
        raise RewindError(
            f"{folder / 'items.csv'}: missing; prepare the data first (`snakemake --cores all prepared`)."
        )
    items, captions, _ = load_split(folder, dataset.name, "test")
    clips = _clips(folder, items, out if copy else None)
    settings = settings or _settings(items, captions)
    revision = digest(captions.to_numpy().tolist(), items[["item_id", "reversed"]].to_numpy().tolist())
    described = []
    for setting in settings:
        for direction in directions:
            entry = _described(dataset, setting, ENDS[direction]) | {"revision": revision}
            write_json(out / f"{entry['name']}.json", _lists(items, captions, setting, direction))
            described.append(entry)
    write_json(out / "clips.json", clips)
    with atomic(out / "__init__.py") as draft:
        shutil.copyfile(TASKS, draft)
    write_json(out / "tasks.json", described)
    return [entry["name"] for entry in described]


def _asked(name: str, config: Path) -> tuple[Dataset, list[str], list[str]]:
    """The data set, settings (none: as the data have them) and directions of a study, or of a data set alone."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else None
    if path is not None:
        config, kind = path.parent.parent, path.parent.name
    else:
        kind = "studies" if (config / "studies" / f"{name}.yaml").is_file() else "datasets"
    stem = path.stem if path is not None else name
    if kind not in ("studies", "datasets") or not (config / kind / f"{stem}.yaml").is_file():
        raise RewindError(f"{name}: neither a study in config/studies nor a data set in config/datasets.")
    if kind == "datasets":
        return load_dataset(stem, config / "datasets"), [], list(ENDS)
    study = load_study(stem, config / "studies")
    keys = study.evaluation
    return load_dataset(study.dataset, config / "datasets"), list(keys.settings), list(keys.directions)


def _settings(items: pd.DataFrame, captions: pd.DataFrame) -> list[str]:
    """What the data can be asked."""
    twins = items["item_id"][items["reversed"] == 1]
    if twins.empty:
        return ["test"]
    return ["origin", "hard"] + ["binary"] * bool(captions["video_id"].isin(twins).any())


def _check_folder(out: Path) -> None:
    if not out.name.isidentifier():
        raise RewindError(f"{out}: Python cannot import a folder of this name; use letters, digits and '_'.")
    if out.is_dir() and any(out.iterdir()) and not (out / "tasks.json").is_file():
        raise RewindError(f"{out}: holds something else; name a new folder.")
    output_folder(out, "OUT")


def _clips(folder: Path, items: pd.DataFrame, target: Path | None) -> dict[str, dict[str, Any]]:
    """Where each item's clip is as a file, and whether it is a reversed twin; in ``target``, if given."""
    found = {}
    for item, path, twin in zip(items["item_id"], items["path"], items["reversed"], strict=True):
        source = folder / path
        if not path or source.suffix in IMAGE_SUFFIXES:
            raise RewindError(f"{folder / 'items.csv'}: {item!r} is no clip; MTEB's tasks of clips need video files.")
        refuse_outside(path, folder.parent, folder / "items.csv")
        if target is not None:
            where = extract(source, target / "clips" / source.name).relative_to(target)
        else:
            where = extract(source, folder / EXTRACTED / source.name).resolve()
        found[item] = {"path": str(where), "reversed": bool(twin)}
    return found


def _described(dataset: Dataset, setting: str, end: str) -> dict[str, Any]:
    """The fields of MTEB's metadata that depend on the data."""
    parts = [part for word in (dataset.name, setting) for part in re.split(r"[^A-Za-z0-9]+", word)]
    return {
        "name": "Rewind" + "".join(part[:1].upper() + part[1:] for part in parts) + end,
        "description": f"{dataset.title or dataset.name}: {WORDS[setting, end]}",
        "type": "Any2AnyReranking" if setting == "binary" else "Any2AnyRetrieval",
        "category": end.lower(),
        "eval_langs": ["eng-Latn"],
    }


def _lists(items: pd.DataFrame, captions: pd.DataFrame, setting: str, direction: str) -> dict[str, Any]:
    """Queries, documents, judgements and (Binary) candidates of a task, as Rewind's own evaluation asks them."""
    asked = task(np.zeros((len(captions), len(items)), np.float32), captions, items, setting, direction)
    plain = {escape(name): name for name in [*captions["caption_id"], *items["item_id"]]}
    text = dict(zip(captions["caption_id"], captions["caption"], strict=True))
    # Binary's queries from item to text are called <item>/<caption>.
    queries = [plain.get(name, name) for name in asked.queries.tolist()]
    documents, candidates = _documents(asked, queries, plain)
    relevant = {
        query: [documents[at] if asked.documents.ndim == 1 else candidates[query][at] for at in np.flatnonzero(right)]
        for query, right in zip(queries, asked.relevant, strict=True)
    }
    if direction == "text_to_item":
        left = {"id": queries, "text": [text[query] for query in queries]}
        right = {"id": documents, "item": documents}
    else:
        left = {"id": queries, "item": [query.split("/", 1)[0] for query in queries]}
        right = {"id": documents, "text": [text[document] for document in documents]}
    gallery = len(documents) if candidates is None else 2
    return {
        "queries": left,
        "documents": right,
        "relevant": relevant,
        "candidates": candidates,
        "gallery": gallery,
    }


def _documents(asked: Task, queries: list[str], plain: dict[str, str]) -> tuple[list[str], dict[str, list[str]] | None]:
    """All documents, and those of each query where queries have galleries of their own."""
    if asked.documents.ndim == 1:
        return [plain[name] for name in asked.documents.tolist()], None
    candidates = {
        query: [plain[name] for name in names] for query, names in zip(queries, asked.documents.tolist(), strict=True)
    }
    return list(dict.fromkeys(name for names in candidates.values() for name in names)), candidates
