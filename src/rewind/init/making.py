"""``rewind init``: look at the files, write both files of keys, check them as the workflow does."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.command import command
from rewind.datasets.annotations import SPLITS
from rewind.errors import RewindError
from rewind.evaluating import DATASETS, STUDIES, methods_of, name_of, other_than, put
from rewind.evaluating import Wishes as Models
from rewind.init import splitting
from rewind.init.brought_models import encoder_for, pairs
from rewind.init.dataset_text import dataset_text
from rewind.init.folder import read_folder
from rewind.init.items import Brought
from rewind.init.json_file import human_only, parts, read_json_file
from rewind.init.layout import Value
from rewind.init.looking import Looked, look
from rewind.init.report import describe, promise
from rewind.init.rows import read_csv, read_json_lines
from rewind.init.sizes import Machine, Sizes, choose, this_machine
from rewind.init.study_text import Subject, finished_text, training_text
from rewind.jobs.config import load_checked

SHOWN = 50  # faults
ALL = ("origin", "hard", "binary")
GENERIC = ("captions", "metadata", "annotations", "train", "valid", "test")  # names that say nothing


@dataclass(frozen=True)
class Wishes:
    """What the command line says.

    Attributes:
        source: a CSV, a JSON file or a folder.
        videos: folder of the clips.
        name: of the study; empty: that of the source.
        embeddings: files of vectors.
        model, encoder: a model by name, and what loads it.
        options: further ``key=value`` of ``model: vectors``.
        look: number of clips that are decoded.
    """

    source: Path
    videos: str = ""
    name: str = ""
    embeddings: list[str] = field(default_factory=list)
    model: str = ""
    encoder: str = ""
    options: list[str] = field(default_factory=list)
    look: int = 200

    @property
    def finished(self) -> bool:
        """Whether models are brought, so that nothing is trained."""
        return bool(self.embeddings or self.model)


def start(wishes: Wishes) -> int:
    """Write the files of a first study, and say what was found and what to do next.

    Raises:
        RewindError: everything that is wrong with the user's files at once; or other files with these names are there.
    """
    if not Path("Snakefile").is_file():
        raise RewindError(f"{Path.cwd()}: no Snakefile here; go to the folder in which you run snakemake.")
    _check(wishes)
    name = name_of(wishes.name or _own_name(wishes.source))
    machine, found = this_machine(), _read(wishes.source, trained=not wishes.finished)
    if not found.items:
        raise RewindError("\n".join(found.faults[:SHOWN]))
    looked = None
    if wishes.videos or not wishes.embeddings:
        looked = look(found, wishes.videos, wishes.look, machine.cores)
        splitting.join(found, looked.same)
    lost = {*looked.missing, *looked.broken} if looked else set()
    made = _splits(found, lost, wishes, name)
    if found.faults:
        raise RewindError("\n".join(found.faults[:SHOWN]))
    methods = _methods(wishes, found) if wishes.finished else None
    files = _texts(name, found, looked, machine, methods, made)
    settings = _settings(found, looked)
    clashes = [clash for path, text in files.items() if (clash := other_than(path, text, "--name NAME"))]
    if clashes:
        raise RewindError("\n".join(clashes))
    for line in (*describe(found, looked), *promise(found, lost, settings[0]), f"machine: {machine}"):
        print(line)
    _write(files, name)
    _next(name, wishes)
    return 0


def _check(wishes: Wishes) -> None:
    if wishes.embeddings and wishes.model:
        raise RewindError("--embeddings and --model: give one of the two; the other can be added to the study's file.")
    for option, value in (("--encoder", wishes.encoder), ("--option", wishes.options)):
        if value and not wishes.finished:
            raise RewindError(f"{option} is about a finished model: name it with --model NAME, or remove {option}.")
    if wishes.look < 0:
        raise RewindError(f"--look {wishes.look}: give a number of files, 0 or more.")


def _own_name(source: Path) -> str:
    path = source.absolute()
    return path.parent.name if path.stem in GENERIC and path.parent.name else path.stem


def _read(source: Path, trained: bool) -> Brought:
    if source.is_dir():
        return read_folder(source)
    if source.suffix.lower() == ".json":
        return read_json_file(source, trained)
    readers = {".csv": read_csv, ".jsonl": read_json_lines}
    if source.suffix.lower() not in readers:
        raise RewindError(f"{source}: name a .csv, .json or .jsonl file, or a folder with clips and their captions.")
    return readers[source.suffix.lower()](source)


def _splits(found: Brought, lost: set[str], wishes: Wishes, name: str) -> bool:
    """See to it that every item has a split; whether that changed what the user's files say."""
    if wishes.finished:
        if found.splits <= {"", "test"} or "test" not in found.splits:
            for item in found.items.values():
                item.split = "test"
        return False
    if splitting.needed(found):
        given = "test" in found.splits
        splitting.split(found, lost)
        if found.annotations:
            human_only(found)
        what = "all was of the test split" if given else "there was none"
        found.said.append(
            f"split: {what}, so one is made, copies together: {DATASETS}/{name}.*; {found.source} stays as it is"
        )
        return True
    if taken := splitting.add_validation(found):
        found.said.append(
            f"split: none was for validation, so {taken:,} of training are: {DATASETS}/{name}.*; {found.source} stays "
            "as it is"
        )
        return True
    splitting.faults(found)
    return False


def _settings(found: Brought, looked: Looked | None) -> tuple[str, ...]:
    images = looked is not None and looked.items == "images"
    twins = any(item.reverse and item.split == "test" for item in found.items.values())
    return ALL if twins and not images else ("test",)


def _methods(wishes: Wishes, found: Brought) -> dict[str, dict[str, Any]]:
    if wishes.embeddings:
        return methods_of(Models(data="", vectors=pairs(wishes.embeddings, found), options=wishes.options))
    encoder = wishes.encoder or encoder_for(wishes.model)
    return methods_of(Models(data="", encoder=encoder, model=wishes.model, options=wishes.options))


def _texts(
    name: str,
    found: Brought,
    looked: Looked | None,
    machine: Machine,
    methods: dict[str, dict[str, Any]] | None,
    made: bool,
) -> dict[Path, str]:
    """Every file that is to be written."""
    typed = " ".join(command().split())
    settings, empty = _settings(found, looked), Looked(Path())
    sizes: Sizes = choose(found, looked or empty, machine)
    images = looked is not None and looked.items == "images"
    twins = not images and any(item.reverse and item.split == "train" for item in found.items.values())
    subject = Subject(name, "images" if images else "videos", settings, twins, typed)
    source, files = _source(name, found, looked, made)
    files[DATASETS / f"{name}.yaml"] = dataset_text(name, found, looked, sizes, source, typed)
    text = finished_text(subject, methods, sizes) if methods else training_text(subject, sizes, machine)
    files[STUDIES / f"{name}.yaml"] = text
    return files


def _source(name: str, found: Brought, looked: Looked | None, made: bool) -> tuple[dict[str, Value], dict[Path, str]]:
    """Keys of ``source``, and files of annotations that have to be written beside the data set's."""
    files: dict[Path, str] = {}
    keys: dict[str, Value] = {}
    if found.annotations and made:
        texts = parts(found)
        files = {DATASETS / f"{name}.{split}.json": texts[split] for split in SPLITS}
        keys = {"format": "rtime", "annotations": {split: str(DATASETS / f"{name}.{split}.json") for split in SPLITS}}
    elif found.annotations:
        keys = {"format": "rtime", "annotations": {split or "test": path for split, path in found.annotations.items()}}
    else:
        own = not found.table or made or (looked is not None and looked.same)
        table = DATASETS / f"{name}.csv"
        if own:
            files[table] = _table(found)
        keys = {"format": "table", "table": str(table) if own else found.table}
    if looked is not None:
        keys["videos"] = str(looked.folder)
        if looked.items == "images":
            keys["items"] = "images"
    return keys, files


def _table(found: Brought) -> str:
    """The items as a CSV that ``format: table`` reads."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    grouped = any(group for item in found.items.values() for group in item.groups)
    head = ("item_id", "path", "split", "cluster_id", "caption", "reverse_caption")
    rows.writerow((*head, "group") if grouped else head)
    for item in found.items.values():
        lines = max(len(item.forward), len(item.reverse))
        for number in range(lines):
            # A clip with more reverse captions than captions says its last caption again: a row needs one.
            forward = item.forward[min(number, len(item.forward) - 1)]
            reverse = item.reverse[number] if number < len(item.reverse) else ""
            row = (item.item_id, item.path, item.split, item.cluster, forward, reverse)
            rows.writerow((*row, item.groups[min(number, len(item.groups) - 1)]) if grouped else row)
    return out.getvalue()


def _write(files: dict[Path, str], name: str) -> None:
    """Write the files, and check them as the workflow does before its first job; what it refuses is taken away."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            if put(path, text):
                written.append(path)
        load_checked({"studies": [name]})
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for path in files:
        print(f"{'wrote' if path in written else 'already there:'} {path}")


def _next(name: str, wishes: Wishes) -> None:
    print("the files were checked as the workflow checks them; next:")
    if not wishes.embeddings:
        print(f"  rewind rehearse {name}        # every stage on a few clips, and what the whole will cost")
    print(f"  snakemake --cores all --config 'studies=[{name}]'")
    print(f"  rewind power {name}        # what difference it can detect")
