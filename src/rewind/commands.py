"""Commands that messages print for people to type: with study, configuration files and overrides, quoted for a shell.

In a workflow they repeat what the user's own command selected. Elsewhere they repeat the command that computed the
study's results, or name the study where ``config/config.yaml`` does not select it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from rewind.provenance import COMMAND_VARIABLE, user_command

STUDY_RECORD = "tables/study.json"
"""What a study's results were made with, below the folder of its results (:mod:`rewind.workflow.what_ran`)."""
_ONE_VALUE = (
    ("--snakefile", "-s"),
    ("--directory", "-d"),
    ("--profile",),
    ("--workflow-profile",),
    ("--default-storage-provider",),
    ("--default-storage-prefix",),
)
_SEVERAL_VALUES = (("--configfile", "--configfiles"), ("--config", "-C"))


def snakemake_command(*targets: str | Path, force: bool = False, study: str = "", dry: bool = False) -> str:
    """The command that makes files below ``results/``; without targets all of a study.

    The targets are in one working folder, which may be another one. ``study`` is the one to which they belong, where
    their paths do not name it. ``dry`` only shows what would run.

    >>> snakemake_command("results/mine/metrics.csv", force=True)
    "snakemake --cores all --force results/mine/metrics.csv --config 'studies=[mine]'"
    """
    places = [working_folder_of(target) for target in targets]
    home = places[0][0] if places else Path()
    files = [str(file) for _, file in places]
    words = ["snakemake", *(["-n"] if dry else ["--cores", "all"]), *["--force"] * force, *files]
    text = shlex.join([*words, *_selecting_words(home, study or _study_of(home, files))])
    return text if home == Path() else f"cd {shlex.quote(str(home))} && {text}"


def prepare_command(path: str | Path) -> str:
    """The command that prepares the data set to which a file belongs.

    >>> prepare_command("results/data/no_study_uses_it/videos/a.mp4")
    'snakemake --cores all results/data/no_study_uses_it/items.csv'
    """
    parts = Path(path).parts
    at = next((n for n in range(len(parts) - 2) if parts[n : n + 2] == ("results", "data")), None)
    return snakemake_command("prepared" if at is None else Path(*parts[: at + 3], "items.csv"))


def rewind_command(*words: str | Path) -> str:
    """A command of Rewind, quoted for a shell.

    >>> rewind_command("board", "my study.zip")
    "rewind board 'my study.zip'"
    """
    return shlex.join(["rewind", *map(str, words)])


def override_words(config: dict[str, Any]) -> list[str]:
    """``--config`` with values as Snakemake reads them.

    >>> override_words({"studies": ["mine"], "overrides": {"studies": {"mine": {"seeds": [0]}}}})
    ['--config', 'studies=[mine]', 'overrides={studies: {mine: {seeds: [0]}}}']
    """
    values = [f"{name}={_flow(value)}" for name, value in config.items() if value]
    return ["--config", *values] if values else []


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, allow_unicode=True, width=10**9).strip()


def working_folder_of(path: str | Path) -> tuple[Path, Path]:
    """The working folder of a result, and the file relative to it; the one we are in is ``Path()``."""
    path = Path(os.path.normpath(path))
    path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    at = len(path.parts) - 1 - path.parts[::-1].index("results") if "results" in path.parts else 0
    return Path(*path.parts[:at]), Path(*path.parts[at:])


def _study_of(home: Path, files: list[str]) -> str:
    """The study to which a file belongs; for a data set one that uses it, preferably one that is selected."""
    parts = Path(files[0]).parts if files else ()
    if parts[:1] != ("results",) or len(parts) < 3:
        return ""
    if parts[1] != "data":
        return parts[1]
    users = [name for name, dataset in _datasets_of_studies(home) if parts[2] in (dataset, _origin(home, dataset))]
    selected = selected_by_default(home)
    return next((name for name in users if name in selected), users[0] if users else "")


def _datasets_of_studies(home: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted((home / "config/studies").glob("*.yaml")):
        yield path.stem, _block(path).get("dataset")


def _origin(home: Path, dataset: Any) -> Any:
    """The data set from which a data set of vectors is computed."""
    source = _block(home / f"config/datasets/{dataset}.yaml").get("source")
    made = source.get("made_from") if isinstance(source, dict) else None
    return made.get("dataset") if isinstance(made, dict) else None


def study_of_file(path: str) -> str:
    """The study to which a file below ``results/`` of the working folder belongs; empty for other files."""
    home, file = working_folder_of(path)
    return _study_of(home, [str(file)]) if home == Path() else ""


def selected_by_default(home: Path = Path()) -> list[str]:
    """Studies that ``config/config.yaml`` selects; none where it cannot be read."""
    names = _block(home / "config/config.yaml").get("studies") or []
    return [names] if isinstance(names, str) else list(map(str, names)) if isinstance(names, list) else []


def _block(path: Path) -> dict[str, Any]:
    """The keys of a YAML or JSON file; none where it cannot be read: a message is about something else."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _selecting_words(home: Path, study: str) -> list[str]:
    """The options of a command that decide which workflow, configuration and studies are meant."""
    here = COMMAND_VARIABLE in os.environ
    command = user_command() if here else _recorded_command(home, study)
    given = _parsed(command)
    words = [word for (name, *_) in _ONE_VALUE if (value := given[name]) for word in (name, value)]
    files, config = (given[name] or [] for name, *_ in _SEVERAL_VALUES)
    selects = any(word.startswith("studies=") for word in config)
    if study and not selects and not (here and command) and study not in selected_by_default(home):
        config = [f"studies=[{study}]", *config]
    return [*words, *(["--configfile", *files] if files else []), *(["--config", *config] if config else [])]


def _parsed(command: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for names in _ONE_VALUE:
        parser.add_argument(*names, dest=names[0])
    for names in _SEVERAL_VALUES:
        parser.add_argument(*names, dest=names[0], nargs="*")
    words = shlex.split(command) if command.startswith("snakemake ") else []
    try:
        return vars(parser.parse_known_args(words)[0])
    except argparse.ArgumentError:
        return vars(parser.parse_args([]))


def _recorded_command(home: Path, study: str) -> str:
    """The command that computed a study's results, as far as it is recorded."""
    folder = home / "results" / study
    records = [folder / STUDY_RECORD, *sorted(folder.glob("runs/*/*/run.json"))[:1]] if study else []
    for path in records:
        try:
            command = json.loads(path.read_text(encoding="utf-8")).get("command")
        except (OSError, ValueError, AttributeError, RecursionError):
            continue
        if isinstance(command, str) and command.startswith("snakemake "):
            return command
    return ""
