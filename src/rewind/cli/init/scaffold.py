"""``rewind init``: read the user's files, write a dataset and a study file, check them as the workflow does."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.cli.evaluate import (
    DATASETS_FOLDER,
    STUDIES_FOLDER,
    TWIN_SETTINGS,
    EvaluateOptions,
    build_methods,
    check_working_folder,
    overwrite_conflict,
    safe_file_name,
    write_if_absent,
)
from rewind.cli.init import split
from rewind.cli.init.look import MediaReport, inspect_media
from rewind.cli.init.models import guess_encoder, pair_embedding_files
from rewind.cli.init.read import (
    UserData,
    json_by_split,
    keep_human_captions,
    read_caption_csv,
    read_caption_folder,
    read_caption_json,
    read_caption_jsonl,
)
from rewind.cli.init.report import describe_data, describe_test_power
from rewind.cli.init.sizes import Machine, StudySizes, choose_sizes, this_machine
from rewind.cli.init.yaml_text import StudySubject, YamlValue, dataset_yaml, finished_models_yaml, training_study_yaml
from rewind.data.annotations import SPLITS
from rewind.errors import RewindError
from rewind.provenance import user_command
from rewind.workflow.config import load_checked_config

MAX_FAULTS_SHOWN = 50
# File names that say nothing about their content: the study is then named after the folder.
GENERIC_NAMES = ("captions", "metadata", "annotations", "train", "valid", "test")


@dataclass(frozen=True)
class InitOptions:
    """The options of ``rewind init``.

    Attributes:
        source: a CSV, a JSON file or a folder.
        videos: folder of the clips; empty: beside the source.
        name: of the study; empty: that of the source.
        embeddings: files of precomputed embeddings.
        model, encoder: a model by name, and the encoder that loads it.
        options: further ``key=value`` of ``model: vectors``.
        look: largest number of clips that are decoded.

    >>> InitOptions(Path("captions.csv"), model="ViT-B-32").finished
    True
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
        """Whether the models are finished ones, so that nothing is trained."""
        return bool(self.embeddings or self.model)


def write_first_study(options: InitOptions) -> int:
    """Write the files of a first study, and print what was found and what to do next.

    Raises:
        RewindError: naming everything that is wrong with the user's files at once, or other files with the same names.
    """
    check_working_folder()
    _check_options(options)
    name = safe_file_name(options.name or _name_from_source(options.source))
    machine, data = this_machine(), _read_source(options.source, trained=not options.finished)
    if not data.items:
        raise RewindError("\n".join(data.faults[:MAX_FAULTS_SHOWN]))
    media = None
    if options.videos or not options.embeddings:
        media = inspect_media(data, options.videos, options.look, machine.cores)
        split.join_clusters(data, media.same)
    unusable = {*media.missing, *media.broken} if media else set()
    split_changed = _ensure_splits(data, unusable, options, name)
    if data.faults:
        raise RewindError("\n".join(data.faults[:MAX_FAULTS_SHOWN]))
    methods = _finished_methods(options, data) if options.finished else None
    files = _files_to_write(name, data, media, machine, methods, split_changed)
    settings = _evaluation_settings(data, media)
    conflicts = [
        conflict for path, text in files.items() if (conflict := overwrite_conflict(path, text, "--name NAME"))
    ]
    if conflicts:
        raise RewindError("\n".join(conflicts))
    for line in (*describe_data(data, media), *describe_test_power(data, unusable, settings[0]), f"machine: {machine}"):
        print(line)
    _write_checked(files, name)
    _print_next_steps(name, options)
    return 0


def _check_options(options: InitOptions) -> None:
    if options.embeddings and options.model:
        raise RewindError("--embeddings and --model: give one of the two; the other can be added to the study's file.")
    for flag, value in (("--encoder", options.encoder), ("--option", options.options)):
        if value and not options.finished:
            raise RewindError(f"{flag} is about a finished model: name it with --model NAME, or remove {flag}.")
    if options.look < 0:
        raise RewindError(f"--look {options.look}: give a number of files, 0 or more.")


def _name_from_source(source: Path) -> str:
    path = source.absolute()
    return path.parent.name if path.stem in GENERIC_NAMES and path.parent.name else path.stem


def _read_source(source: Path, trained: bool) -> UserData:
    if source.is_dir():
        return read_caption_folder(source)
    if source.suffix.lower() == ".json":
        return read_caption_json(source, trained)
    readers = {".csv": read_caption_csv, ".jsonl": read_caption_jsonl}
    if source.suffix.lower() not in readers:
        raise RewindError(f"{source}: name a .csv, .json or .jsonl file, or a folder with clips and their captions.")
    return readers[source.suffix.lower()](source)


def _ensure_splits(data: UserData, unusable: set[str], options: InitOptions, name: str) -> bool:
    """Give every item a split; True if that differs from what the user's files say."""
    if options.finished:
        if data.splits <= {"", "test"} or "test" not in data.splits:
            for item in data.items.values():
                item.split = "test"
        return False
    if split.needs_split(data):
        had_test = "test" in data.splits
        split.assign_splits(data, unusable)
        if data.annotations:
            keep_human_captions(data)
        reason = "all was of the test split" if had_test else "there was none"
        data.notes.append(
            f"split: {reason}, so one is made, copies together: {DATASETS_FOLDER}/{name}.*; {data.source} stays as it "
            "is"
        )
        return True
    if moved := split.add_validation_split(data):
        data.notes.append(
            f"split: none was for validation, so {moved:,} of training are: {DATASETS_FOLDER}/{name}.*; {data.source} "
            "stays as it is"
        )
        return True
    split.add_split_faults(data)
    return False


def _evaluation_settings(data: UserData, media: MediaReport | None) -> tuple[str, ...]:
    images = media is not None and media.items == "images"
    twins = any(item.reverse and item.split == "test" for item in data.items.values())
    return TWIN_SETTINGS if twins and not images else ("test",)


def _finished_methods(options: InitOptions, data: UserData) -> dict[str, dict[str, Any]]:
    if options.embeddings:
        return build_methods(
            EvaluateOptions(data="", vectors=pair_embedding_files(options.embeddings, data), options=options.options)
        )
    encoder = options.encoder or guess_encoder(options.model)
    return build_methods(EvaluateOptions(data="", encoder=encoder, model=options.model, options=options.options))


def _files_to_write(
    name: str,
    data: UserData,
    media: MediaReport | None,
    machine: Machine,
    methods: dict[str, dict[str, Any]] | None,
    split_changed: bool,
) -> dict[Path, str]:
    """Path → text of every file to write."""
    command = " ".join(user_command().split())
    settings, no_media = _evaluation_settings(data, media), MediaReport(Path())
    sizes: StudySizes = choose_sizes(data, media or no_media, machine)
    images = media is not None and media.items == "images"
    twins = not images and any(item.reverse and item.split == "train" for item in data.items.values())
    subject = StudySubject(name, "images" if images else "videos", settings, twins, command)
    source, files = _source_keys(name, data, media, split_changed)
    files[DATASETS_FOLDER / f"{name}.yaml"] = dataset_yaml(name, data, media, sizes, source, command)
    text = finished_models_yaml(subject, methods, sizes) if methods else training_study_yaml(subject, sizes, machine)
    files[STUDIES_FOLDER / f"{name}.yaml"] = text
    return files


def _source_keys(
    name: str, data: UserData, media: MediaReport | None, split_changed: bool
) -> tuple[dict[str, YamlValue], dict[Path, str]]:
    """The block ``source`` of the dataset file, and the annotation files that have to be written beside it.

    The user's own annotations are named as they are, unless they lack a split or their rows have to be changed.
    """
    files: dict[Path, str] = {}
    keys: dict[str, YamlValue] = {}
    if data.annotations and split_changed:
        texts = json_by_split(data)
        files = {DATASETS_FOLDER / f"{name}.{split}.json": texts[split] for split in SPLITS}
        keys = {
            "format": "rtime",
            "annotations": {split: str(DATASETS_FOLDER / f"{name}.{split}.json") for split in SPLITS},
        }
    elif data.annotations:
        keys = {"format": "rtime", "annotations": {split or "test": path for split, path in data.annotations.items()}}
    else:
        needs_copy = not data.table or split_changed or (media is not None and media.same)
        table = DATASETS_FOLDER / f"{name}.csv"
        if needs_copy:
            files[table] = _table_csv(data)
        keys = {"format": "table", "table": str(table) if needs_copy else data.table}
    if media is not None:
        keys["videos"] = str(media.folder)
        if media.items == "images":
            keys["items"] = "images"
    return keys, files


def _table_csv(data: UserData) -> str:
    """The items as a CSV that ``format: table`` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    grouped = any(group for item in data.items.values() for group in item.groups)
    head = ("item_id", "path", "split", "cluster_id", "caption", "reverse_caption")
    writer.writerow((*head, "group") if grouped else head)
    for item in data.items.values():
        lines = max(len(item.forward), len(item.reverse))
        for number in range(lines):
            # A clip with more reverse captions than captions says its last caption again: a row needs one.
            forward = item.forward[min(number, len(item.forward) - 1)]
            reverse = item.reverse[number] if number < len(item.reverse) else ""
            row = (item.item_id, item.path, item.split, item.cluster, forward, reverse)
            writer.writerow((*row, item.groups[min(number, len(item.groups) - 1)]) if grouped else row)
    return out.getvalue()


def _write_checked(files: dict[Path, str], name: str) -> None:
    """Write the files, and remove them again if the workflow's checks before its first job refuse them."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            if write_if_absent(path, text):
                written.append(path)
        load_checked_config({"studies": [name]})
    except BaseException:
        for path in written:
            path.unlink(missing_ok=True)
        raise
    for path in files:
        print(f"{'wrote' if path in written else 'already there:'} {path}")


def _print_next_steps(name: str, options: InitOptions) -> None:
    print("the files were checked as the workflow checks them; next:")
    if not options.embeddings:
        print(f"  rewind rehearse {name}        # every stage on a few clips, and what the whole will cost")
    print(f"  snakemake --cores all --config 'studies=[{name}]'")
    print(f"  rewind power {name}        # what difference it can detect")
