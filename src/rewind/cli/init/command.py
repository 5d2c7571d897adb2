"""``rewind init``: read the user's files, write a dataset and a study file, check them as the workflow does."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.cli.evaluate import EvaluateOptions, build_methods
from rewind.cli.init import split
from rewind.cli.init.look import inspect_media
from rewind.cli.init.read import (
    UserData,
    keep_human_captions,
    read_caption_csv,
    read_caption_folder,
    read_caption_json,
    read_caption_jsonl,
)
from rewind.cli.init.report import describe_data, describe_network, describe_test_power
from rewind.cli.init.sizes import INSTALL_TOWERS, Machine, choose_network, this_machine
from rewind.cli.init.study_files import StudySubject, evaluation_settings, files_to_write
from rewind.cli.scaffold import (
    DATASETS_FOLDER,
    refuse_overwriting,
    safe_file_name,
    write_files,
)
from rewind.commands import snakemake_command
from rewind.data.annotations import twin_of
from rewind.data.readers import EXPORTED_ARRAYS, open_npz, read_embedding_file
from rewind.errors import RewindError, printable_name
from rewind.io.files import read_json
from rewind.workflow.config import load_checked_config
from rewind.working_folder import require_snakefile

MAX_FAULTS_SHOWN = 50
# File names that say nothing about their content: the study is then named after the folder.
GENERIC_NAMES = ("captions", "metadata", "annotations", "train", "valid", "test")


@dataclass(frozen=True)
class InitOptions:
    """The options of ``rewind init``."""

    source: Path  # a CSV, a JSON file or a folder
    videos: str = ""  # folder of the clips; empty: next to the source
    name: str = ""  # of the study; empty: that of the source
    embeddings: list[str] = field(default_factory=list)  # files of precomputed embeddings
    model: str = ""
    encoder: str = ""  # which loads the model
    options: list[str] = field(default_factory=list)  # further `key=value` of `model: vectors`
    look: int = 200  # largest number of clips that are decoded
    network: str = ""  # `clip`, `towers` or `tiny`; empty: the best one that the machine has
    test_share: float | None = None  # of the clips, where a split is written; None: enough for letters of significance

    @property
    def finished(self) -> bool:
        """Whether the models are finished ones, so that nothing is trained."""
        return bool(self.embeddings or self.model)


def write_first_study(options: InitOptions) -> int:
    """Write the files of a first study, and print what was found and what to do next.

    Raises:
        RewindError: naming everything that is wrong with the user's files at once, or other files with the same names.
    """
    require_snakefile()
    machine = this_machine()
    _check_options(options, machine)
    title = options.name or _name_from_source(options.source)
    name = safe_file_name(title)
    data = _read_source(options.source, trained=not options.finished)
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
    network = options.network or choose_network(machine)
    subject = StudySubject(name, " ".join(title.replace("_", " ").split()), data, media, split_changed)
    files = files_to_write(subject, machine, network, methods)
    settings = evaluation_settings(data, media)
    refuse_overwriting(files, "--name NAME")
    trained = [] if methods else [describe_network(network, machine, chosen=bool(options.network))]
    power = describe_test_power(data, unusable, settings)
    for line in (*describe_data(data, media), *power, f"machine: {machine}", *trained):
        print(line)
    with write_files(files) as written:
        load_checked_config({"studies": [name]})  # as the workflow does before its first job
    for path in files:
        print(f"{'wrote' if path in written else 'already exists:'} {path}")
    _print_next_steps(name, options)
    return 0


def _check_options(options: InitOptions, machine: Machine) -> None:
    if options.embeddings and options.model:
        raise RewindError("--embeddings and --model: give one of the two; the other can be added to the study's file.")
    for flag, is_given in (("--encoder", options.encoder != ""), ("--option", options.options != [])):
        if is_given and not options.finished:
            raise RewindError(f"{flag} is about a finished model: name it with --model NAME, or remove {flag}.")
    for flag, is_given in (("--network", options.network != ""), ("--test-share", options.test_share is not None)):
        if is_given and options.finished:
            raise RewindError(f"{flag} is about training, and a finished model is not trained: remove {flag}.")
    if options.network == "towers" and not machine.towers:
        raise RewindError(f"--network towers: its packages are missing; install them with\n  {INSTALL_TOWERS}")
    if options.test_share is not None and not 0 < options.test_share <= split.MAX_GIVEN_TEST_SHARE:
        raise RewindError(
            f"--test-share {options.test_share:g}: give a share of the clips above 0, up to "
            f"{split.MAX_GIVEN_TEST_SHARE:g}; the others train and validate."
        )
    if options.look < 0:
        raise RewindError(f"--look {options.look}: give a number of files, 0 or more.")


def _name_from_source(source: Path) -> str:
    path = Path(os.path.abspath(source))  # not resolve(): a link is named as the user named it; no ".." is left
    return path.parent.name if path.stem in GENERIC_NAMES and path.parent.name else path.stem


def _read_source(source: Path, trained: bool) -> UserData:
    if source.is_dir():
        return read_caption_folder(source)
    if source.suffix.lower() == ".json":
        return read_caption_json(source, trained)
    readers = {".csv": read_caption_csv, ".jsonl": read_caption_jsonl}
    if source.suffix.lower() not in readers:
        raise RewindError(
            f"{printable_name(source)}: name a .csv, .json or .jsonl file, or a folder with clips and their captions."
        )
    return readers[source.suffix.lower()](source)


def _ensure_splits(data: UserData, unusable: set[str], options: InitOptions, name: str) -> bool:
    """Give every item a split; True if that differs from the splits in the user's files."""
    if options.finished:
        if data.splits <= {"", "test"} or "test" not in data.splits:
            for item in data.items.values():
                item.split = "test"
        return False
    if split.needs_split(data):
        had_test = "test" in data.splits
        split.assign_splits(data, unusable, options.test_share)
        if data.annotations:
            keep_human_captions(data)
        reason = "all items were in the test split" if had_test else "there was none"
        data.notes.append(
            f"split: {reason}, so one is written, with copies together: {DATASETS_FOLDER}/{name}.*; {data.source} "
            "stays as it is"
        )
        return True
    if options.test_share is not None:
        raise RewindError(f"{data.source}: its clips have a split already; remove it, or --test-share.")
    if moved := split.add_validation_split(data):
        data.notes.append(
            f"split: none was for validation, so {moved:,} of training are now: {DATASETS_FOLDER}/{name}.*; "
            f"{data.source} stays as it is"
        )
        return True
    split.add_split_faults(data)
    return False


def _print_next_steps(name: str, options: InitOptions) -> None:
    print("the files were checked as the workflow checks them; next:")
    if not options.embeddings:
        print(f"  rewind rehearse {name}        # every stage on a few clips, and what the whole will cost")
    print(f"  {snakemake_command(study=name)}")
    print(f"  rewind power {name}        # what difference it can detect")


# ---- Finished models -----------------------------------------------------------------------------------------------


def _finished_methods(options: InitOptions, data: UserData) -> dict[str, dict[str, Any]]:
    if options.embeddings:
        return build_methods(
            EvaluateOptions(data="", vectors=pair_embedding_files(options.embeddings, data), options=options.options)
        )
    encoder = options.encoder or guess_encoder(options.model)
    methods = build_methods(EvaluateOptions(data="", encoder=encoder, model=options.model, options=options.options))
    if encoder == "video_llm" and any(item.reverse for item in data.items.values()):
        return _with_blind_rows(methods)
    return methods


def _with_blind_rows(methods: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A language model as judge of Binary, and what it answers by one frame and by the caption alone."""
    name, keys = next(iter(methods.items()))
    keys = {**keys, "rerank": {"first": "chance", "binary_only": True}}
    label, further = keys.get("label", name), keys["options"].get("encoder_options", {})
    blind = {
        f"{name}_{sees}": keys
        | {"label": f"{label}, {title}", "options": keys["options"] | {"encoder_options": further | {"sees": sees}}}
        for sees, title in (("frame", "one frame"), ("nothing", "no clip"))
    }
    return {name: keys, **blind, "chance": methods["chance"]}


def pair_embedding_files(paths: list[str], data: UserData) -> list[tuple[str, str]]:
    """Sort files of embeddings into pairs (captions, items), one for each model.

    Files of captions and of items may be mixed in any order; the n-th of one kind belongs to the n-th of the other. A
    file that a run of Rewind exported holds both sides.

    Raises:
        RewindError: for a file whose ids belong neither to captions nor to items, one without its partner, or one
            that lacks an id of the test split.
    """
    item_ids = {name for item in data.items.values() for name in (item.item_id, twin_of(item.item_id))}
    sides: dict[str, list[str]] = {"captions": [], "items": []}
    for path in paths:
        is_exported = _is_exported_run(path)
        for side in ("captions", "items") if is_exported else (_side_of_file(path, item_ids),):
            sides[side].append(path)
    if len(sides["captions"]) != len(sides["items"]):
        missing_side = "items" if len(sides["captions"]) > len(sides["items"]) else "captions"
        raise RewindError(
            f"--embeddings: {len(sides['captions'])} files of captions and {len(sides['items'])} of items: name the "
            f"file of {missing_side} too (ids of captions are <item_id>#<n>, docs/bring-your-model.md)."
        )
    test_items = [item for item in data.items.values() if item.split == "test"]
    # Reading fails where an id of the test split is missing; embeddings of reversed twins may be left out.
    for path in sides["items"]:
        read_embedding_file(path, "items").of([item.item_id for item in test_items])
    for path in sides["captions"]:
        read_embedding_file(path, "captions").of(
            [f"{item.item_id}#{n}" for item in test_items for n in range(len(item.forward))]
        )
    return list(zip(sides["captions"], sides["items"], strict=True))


def _is_exported_run(path: str) -> bool:
    """Whether a file was exported from a run of Rewind, with captions and items in it."""
    if Path(path).suffix != ".npz" or not Path(path).exists():
        return False  # a missing file is reported when it is read
    with open_npz(Path(path)) as archive:
        return set(archive.files) >= EXPORTED_ARRAYS


def _side_of_file(path: str, item_ids: set[str]) -> str:
    ids = read_embedding_file(path, "items").ids.tolist()
    if any(name in item_ids for name in ids):
        return "items"
    if any(name.rpartition("#")[0] in item_ids for name in ids):
        return "captions"
    raise RewindError(
        f"{path}: its ids ({', '.join(map(repr, ids[:3]))}, …) are ids neither of items nor of captions "
        "(<item_id>#<n>, counted from 0); docs/bring-your-model.md shows both."
    )


def guess_encoder(model: str) -> str:
    """The encoder that loads a model, judged by its name or by the files of its folder.

    >>> guess_encoder("ViT-B-32"), guess_encoder("google/siglip-base-patch16-224")
    ('open_clip', 'transformers')
    """
    folder = Path(model)
    if folder.is_dir():
        marker_files = {"open_clip_config.json": "open_clip", "modules.json": "sentence_transformers"}
        found = next((encoder for file, encoder in marker_files.items() if (folder / file).is_file()), "transformers")
        return "video_llm" if found == "transformers" and _answers(folder / "config.json") else found
    if model.startswith("hf-hub:"):
        return "open_clip"
    if model.startswith("sentence-transformers/"):
        return "sentence_transformers"
    return "transformers" if "/" in model else "open_clip"


def _answers(config: Path) -> bool:
    """Whether a folder's model writes text about what it is shown, by its classes."""
    with contextlib.suppress(RewindError):
        content = read_json(config) if config.is_file() else {}
        names = content.get("architectures") if isinstance(content, dict) else None
        return any(str(name).endswith("ForConditionalGeneration") for name in names or ())
    return False
