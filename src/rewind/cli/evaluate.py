"""``rewind evaluate``: evaluate embeddings, scores or a model by name; the study file is written for the user."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import textwrap
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.cli.probes import ProbeChoice, choose_probes
from rewind.cli.scaffold import (
    DATASETS_FOLDER,
    STUDIES_FOLDER,
    Backups,
    dump_yaml,
    first_files,
    refuse_overwriting,
    restore_files,
    safe_file_name,
    write_files,
)
from rewind.commands import snakemake_command
from rewind.config import Dataset, Method
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.config.load import parse_yaml, read_yaml
from rewind.config.methods import ScoreOptions
from rewind.data.annotations import read_annotations
from rewind.data.formats.table import read_table_rows
from rewind.data.questions import QUESTION_TABLES, SAME_TEXT
from rewind.errors import RewindError
from rewind.processes import run_snakemake
from rewind.registry import MODELS
from rewind.workflow.config import MAIN_CONFIG, load_checked_config, load_configured_dataset
from rewind.workflow.job import PRINT_TABLES
from rewind.workflow.plan.rules import WorkflowPlan
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.preflight.annotations import cached_annotations, count_split
from rewind.workflow.preflight.checks import CACHE_FILE
from rewind.working_folder import find_snakefile

FILE_HEADER = "# Written by `rewind evaluate`; edit it as you like, and run it with:\n"


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of ``rewind evaluate``.

    Attributes:
        data: a CSV of captions, or the name of a file in ``config/datasets``.
        study: name of the study; empty: that of the data.
        videos: folder of the clips, if they are here.
        vectors: (captions, items) files of embeddings, a pair for each model.
        scores: files of similarity scores, one for each model.
        encoder, model: an encoder and the model that it loads.
        options: further ``key=value`` of ``model: vectors`` and ``model: scores``.
        settings: settings to evaluate; empty: all that the data allow.
        labels: names of the methods in tables, in the order of ``vectors``, ``scores`` and the encoder; empty: named
            after their files.
        probes: ask all probes that the data and the methods allow, and print what the others need.
        answers: a CSV of right answers, for captions with several right clips; with it, ``probes`` is meant.
        foils: a CSV of captions that are not true of a clip; likewise.
        dry: only write the files and show what would run.
    """

    data: str
    study: str = ""
    videos: str = ""
    vectors: list[tuple[str, str]] = field(default_factory=list)
    scores: list[str] = field(default_factory=list)
    encoder: str = ""
    model: str = ""
    options: list[str] = field(default_factory=list)
    settings: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    probes: bool = False
    answers: str = ""
    foils: str = ""
    add: bool = False
    cores: str = "all"
    dry: bool = False

    @property
    def questions(self) -> dict[str, str]:
        """Keys of a data set for the files that ask more than its captions do."""
        return {key: file for key in QUESTION_TABLES if (file := getattr(self, key))}


def evaluate_models(options: EvaluateOptions) -> int:
    """Write the study, run it, print its tables, and return Snakemake's exit code."""
    plan, code = run_evaluation(options)
    if code or options.dry:
        return code
    print(Path(plan.summary_file).read_text(encoding="utf-8"))
    study_file = STUDIES_FOLDER / f"{plan.name}.yaml"
    print(f"Study: {study_file}   Tables: {Path(plan.summary_file).parent}   Every query: {plan.page_file}")
    return 0


def run_evaluation(options: EvaluateOptions) -> tuple[StudyPlan, int]:
    """Write the study and run it; returns its plan and Snakemake's exit code.

    Files are kept only if the workflow's checks accept them, and are taken back where a job fails before the study has
    any numbers, so that they do not block the corrected command.

    Raises:
        RewindError: if the files cannot be written, or other files have their names.
    """
    methods = build_methods(options)
    dataset, dataset_keys = _load_or_describe_dataset(options)
    probes, left_out = _choose_probes(options, dataset, methods)
    dataset_file = DATASETS_FOLDER / f"{dataset.name}.yaml"
    name = safe_file_name(options.study or (f"{dataset.name}_models" if not dataset_keys else dataset.name))
    study_file = STUDIES_FOLDER / f"{name}.yaml"
    command = ["--cores", options.cores, "--config", f"studies=[{name}]"]
    texts = first_files(name) if find_snakefile(Path.cwd()) is None else {}
    replaced = [study_file] if options.add else []
    if dataset_file.is_file() and (not dataset_keys or _differ_in_questions_alone(dataset_file, dataset_keys)):
        texts[dataset_file] = _add_questions(dataset_file, options.questions)
        replaced.append(dataset_file)
    elif dataset_keys:
        command_of_data = snakemake_command(f"results/data/{dataset.name}/items.csv", study=name)
        texts[dataset_file] = _file_text(dataset_keys, command_of_data)
    if options.add:
        texts[study_file] = _add_methods(study_file, options, dataset.name, methods, probes)
    else:
        settings = options.settings or _allowed_settings(dataset)
        study = {
            "title": f"{dataset.title or dataset.name}: models",
            "dataset": dataset.name,
            "methods": methods,
            "evaluation": {"settings": settings} | ({"probes": probes} if probes else {}),
            "figures": {"method": next(iter(methods))},
        }
        texts[study_file] = _file_text(study, snakemake_command(study=name))
    plan, backups = _write_checked(texts, name, replaced)
    if left_out:
        print(f"Probes: {', '.join(probes) or 'none'}. Left out:", *left_out, sep="\n  ", flush=True)
    quiet = ["-n"] if options.dry else ["--quiet", "host", "reason", "rules"]
    environment = os.environ | {PRINT_TABLES: "no"}  # they are printed below, last
    code = 1
    try:
        code = run_snakemake([*command, *quiet], env=environment)
    finally:
        if code and backups and (options.add or not Path(plan.metrics_file).is_file()):
            restore_files(backups)
            files = ", ".join(map(str, backups))
            with contextlib.suppress(OSError):  # the terminal may be gone
                print(
                    f"{files}: restored to before this command, which can be corrected; finished jobs are kept",
                    flush=True,
                )
    return plan, code


def build_methods(options: EvaluateOptions) -> dict[str, Any]:
    """The block ``methods`` of a study in which nothing is trained, chance last.

    Raises:
        RewindError: if no model is named, or an option is not ``key=value``.

    >>> build_methods(EvaluateOptions("captions.csv", scores=["mine.npz"]))
    {'mine': {'model': 'scores', 'options': {'file': 'mine.npz'}}, 'chance': {'model': 'chance'}}
    """
    methods: dict[str, Any] = {}
    models = len(options.vectors) + len(options.scores) + bool(options.encoder)
    if options.labels and len(options.labels) != models:
        raise RewindError(f"--label: {len(options.labels)} for {models} models; give one for each, in their order.")
    labels = iter(options.labels)

    def add(stem: str, keys: dict[str, Any]) -> None:
        label = " ".join(next(labels, stem).split())
        name = _free_name(safe_file_name(label), methods)
        methods[name] = keys | ({"label": label} if label != name else {})

    extra_options = dict(_parse_option(option) for option in options.options)
    keys_of_scores = extra_options.keys() & ScoreOptions.model_fields.keys() if options.scores else set[str]()
    of_scores = {key: extra_options.pop(key) for key in sorted(keys_of_scores)}
    for captions, items in options.vectors:
        files = {"captions": captions, "items": items}
        add(_name_from_path(items), {"model": "vectors", "options": files | extra_options})
    for file in options.scores:
        add(_name_from_path(file), {"model": "scores", "options": {"file": file} | of_scores})
    if bool(options.encoder) != bool(options.model):
        raise RewindError("--encoder and --name belong together: how the model is loaded, and which it is.")
    if options.encoder:
        encoder = {"encoder": options.encoder, "name": options.model}
        add(Path(options.model).name, {"model": "vectors", "options": encoder | extra_options})
    if not methods:
        raise RewindError("name what to evaluate: --vectors CAPTIONS ITEMS, --scores FILE, or --encoder … --name ….")
    return methods | {"chance": {"model": "chance"}}


def _load_or_describe_dataset(options: EvaluateOptions) -> tuple[Dataset, dict[str, Any]]:
    """The dataset, and the keys of its file; no keys where the file exists already."""
    for key, file in options.questions.items():
        suffixes = (".csv", ".json") if key == "answers" else (".csv",)
        if key == "answers" and file == SAME_TEXT:
            continue
        if not file.endswith(suffixes) or not Path(file).is_file():
            kinds = " or ".join(suffix[1:].upper() for suffix in suffixes)
            raise RewindError(f"--{key}: {file}: there is no such {kinds} file; correct the path.")
    if not options.data.endswith(".csv"):
        if options.videos:
            raise RewindError(f"--videos: config/datasets/{options.data}.yaml states where its clips are; remove it.")
        return load_configured_dataset(options.data).model_copy(update=options.questions), {}
    twins = _has_twins(Path(options.data))
    if not options.videos and options.encoder:
        raise RewindError("--encoder looks at clips: say where they are with --videos FOLDER.")
    source = {"format": "table", "table": options.data}
    if options.videos:
        source["videos"] = options.videos
    keys: dict[str, Any] = {"source": source, "reverse": twins} | ({} if options.videos else {"clips": False})
    path = DATASETS_FOLDER / f"{safe_file_name(Path(options.data).stem)}.yaml"
    if path.is_file() and _differ_in_questions_alone(path, keys):  # of an earlier command
        keys = read_yaml(path)
    keys |= options.questions
    dataset = Dataset(name=safe_file_name(Path(options.data).stem), **keys)
    try:
        annotations = read_annotations(dataset, "")  # a fault in its rows is reported before any file is written
    except RewindError as error:
        raise RewindError(f"--data: {error}") from error
    for key, table in QUESTION_TABLES.items():
        try:
            if key in options.questions:
                table(dataset, annotations)
        except RewindError as error:
            raise RewindError(f"--{key}: {error}") from error
    return dataset, keys


def _allowed_settings(dataset: Dataset) -> list[str]:
    """Settings that the data allow: without twins only ``test``, and Binary only if a caption is a question of it."""
    if dataset.why_no_twins:
        return ["test"]
    try:
        annotations = cached_annotations(dataset)
    except RewindError:
        annotations = None  # the workflow's checks explain why
    if annotations is None or count_split(annotations, "test")[2]:
        return [*TWIN_SETTINGS]
    print("binary is not evaluated: no test caption has other words than those of the reversed clip")
    return [setting for setting in TWIN_SETTINGS if setting != "binary"]


def _choose_probes(options: EvaluateOptions, dataset: Dataset, methods: dict[str, Any]) -> ProbeChoice:
    """What is asked, and lines on what is not; both are empty without ``--probes``."""
    if not (options.probes or options.questions):
        return ProbeChoice([], [])
    try:
        annotations = cached_annotations(dataset)
    except RewindError:
        annotations = None  # the workflow's checks explain why
    files = {
        name: Method(model=keys["model"], options=keys["options"])
        for name, keys in methods.items()
        if keys["model"] in MODELS.tagged("files")
    }
    return choose_probes(dataset, annotations, files)


def _differ_in_questions_alone(path: Path, keys: dict[str, Any]) -> bool:
    """Whether a data set's file has these keys, but for the files that ask more than its captions do."""
    with contextlib.suppress(RewindError):
        others = [
            {key: value for key, value in each.items() if key not in QUESTION_TABLES}
            for each in (read_yaml(path), keys)
        ]
        return others[0] == others[1]
    return False


def _add_questions(path: Path, questions: dict[str, str]) -> str:
    """The text of a data set's file with further keys at its end, so that the user's comments and layout stay.

    Raises:
        RewindError: if it names other files, or its keys do not stand below one another.
    """
    keys, text = read_yaml(path), path.read_text(encoding="utf-8")
    new = {key: file for key, file in questions.items() if keys.get(key) != file}
    for key in new:
        if keys.get(key) is not None:
            raise RewindError(f"--{key}: {path} names {keys[key]}; change it there, or leave --{key} out.")
    if not new:
        return text
    new_text = text.rstrip("\n") + "\n" + dump_yaml(new)
    with contextlib.suppress(RewindError):
        if parse_yaml(new_text, str(path)) == keys | new:
            return new_text
    raise RewindError(f"{path}: its keys are not on lines of their own, so add by hand:\n{dump_yaml(new)}")


def _has_twins(path: Path) -> bool:
    """Whether a CSV has any reverse caption."""
    try:
        return any(row.cells.get("reverse_caption") for row in read_table_rows(path))
    except RewindError as error:
        raise RewindError(f"--data: {error}") from error


def _free_name(name: str, taken: Collection[str]) -> str:
    """The name, with a number added where it is taken."""
    return next(free for n in itertools.count(1) if (free := f"{name}_{n}" if n > 1 else name) not in taken)


def _file_text(keys: dict[str, Any], command: str) -> str:
    return FILE_HEADER + f"#   {command}\n" + dump_yaml(keys)


def _add_methods(
    path: Path, options: EvaluateOptions, dataset: str, methods: dict[str, Any], probes: Collection[str]
) -> str:
    """A study's text with further methods, inserted before ``chance`` where that is the last one.

    Lines are inserted into the text instead of writing the YAML again, so that the user's comments and layout stay.

    Raises:
        RewindError: if there is no such study, it is on other data, or its methods are not one below the other.
    """
    if not path.is_file():
        raise RewindError(f"--add: {path} does not exist yet; leave --add out, or name the study with --study NAME.")
    keys, text = read_yaml(path), path.read_text(encoding="utf-8")
    present = keys.get("methods")
    if keys.get("dataset") != dataset:
        raise RewindError(f"--add: {path} is about the data set {keys.get('dataset')!r}, and --data about {dataset!r}.")
    if options.settings and options.settings != (keys.get("evaluation") or {}).get("settings"):
        raise RewindError(f"--settings: all methods of a study have the same; change evaluation.settings in {path}.")
    if more := [probe for probe in probes if probe not in ((keys.get("evaluation") or {}).get("probes") or [])]:
        raise RewindError(
            f"--probes: all methods of a study have the same probes: add {', '.join(more)} to evaluation.probes in "
            f"{path}, or leave --probes out."
        )
    if not isinstance(present, dict):
        raise RewindError(f"{path}: methods: a block of keys is expected here.")
    new: dict[str, Any] = {}
    for name, block in methods.items():
        if name != "chance" and block not in present.values():
            new_name = _free_name(name, {*present, *new})
            if new_name != name:  # rows of one name could not be told apart
                block = block | {"label": f"{block.get('label', name)} ({new_name.rpartition('_')[2]})"}
            new[new_name] = block
    if not new:
        return text
    lines = text.splitlines(keepends=True)
    start = next((at for at, line in enumerate(lines) if re.match(r"methods:\s*(#.*)?$", line)), len(lines)) + 1
    end = next((at for at in range(start, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
    while end > start and not re.match(r"\s+[^\s#]", lines[end - 1]):
        end -= 1  # comments and empty lines at the end of the block belong to the key that follows
    indent = next((match[1] for line in lines[start:end] if (match := re.match(r"(\s+)[^\s#]", line))), "  ")
    insert_at = next((at for at in range(start, end) if re.match(rf"{indent}chance:", lines[at])), end)
    if insert_at < end and any(re.match(rf"{indent}\S", line) for line in lines[insert_at + 1 : end]):
        insert_at = end  # other methods follow chance, so the new ones go to the end
    lines[insert_at:insert_at] = textwrap.indent(dump_yaml(new), indent).splitlines(keepends=True)
    new_text = "".join(lines)
    expected = keys | {"methods": present | new}
    # A study may be written in ways that lines cannot be inserted into, such as {…} on one line: check by reading it.
    with contextlib.suppress(RewindError):
        if parse_yaml(new_text, str(path)) == expected:
            return new_text
    raise RewindError(f"{path}: its methods are not on lines of their own, so add them by hand:\n{dump_yaml(new)}")


def _write_checked(texts: dict[Path, str], name: str, replaced: Collection[Path]) -> tuple[StudyPlan, Backups]:
    """Write configuration files, and keep them only if the workflow's checks accept them.

    Returns the plan of the study and what the files held before. Only files in ``replaced`` may be changed.

    Raises:
        RewindError: if another file has one of the names, or the study is faulty; nothing is left behind.
    """
    refuse_overwriting(
        {path: text for path, text in texts.items() if path not in replaced},
        "--study NAME",
        "To put further models into the study of an earlier command: --add.",
    )
    with write_files(texts, replaced) as backups:
        loaded = load_checked_config(_snakemake_config(name), CACHE_FILE, typed={"studies": [name]})
    for path, old_text in backups.items():
        print(f"{'wrote' if old_text is None else 'changed'} {path}")
    return WorkflowPlan(*loaded).studies[name], backups


def _snakemake_config(name: str) -> dict[str, Any]:
    """The configuration that Snakemake will be started with."""
    config = read_yaml(Path(MAIN_CONFIG)) if Path(MAIN_CONFIG).is_file() else {}
    return config | {"studies": [name]}


def _name_from_path(path: str) -> str:
    """A method's name from that of its file, or of the file's folder where the file is just called ``items.npz``."""
    stem = Path(path).stem
    parent = Path(os.path.abspath(path)).parent  # without "..", which is not a name
    sides = ("items", "vectors", "scores", "similarity", "videos")
    return parent.name if stem in sides and parent != Path.cwd() and parent.name else stem


def _parse_option(option: str) -> tuple[str, Any]:
    key, equals, value = option.partition("=")
    if not equals or not key:
        raise RewindError(f"--option {option!r}: write key=value, for example score=dot.")
    return key, parse_yaml(value, f"--option {key}")
