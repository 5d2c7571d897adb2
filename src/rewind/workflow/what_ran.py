"""What a study's results were computed with: recorded next to its tables, and compared before a command shows them.

Results are labelled by what ran, never by a configuration that was edited since: :func:`study_that_ran` gives the keys
as they are configured now only where they are those of the record.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from rewind.commands import STUDY_RECORD, snakemake_command
from rewind.config import Dataset, Study
from rewind.errors import RewindError
from rewind.hashing import sha256_of
from rewind.io.files import read_json, write_json
from rewind.job_values import Job
from rewind.provenance import typed_config, user_command
from rewind.workflow.checksums import how_to_remake, how_to_restore, lost_outputs, verify_files_below
from rewind.workflow.config import load_configured_dataset, load_configured_study, merge_overrides, parse_overrides

RECORD_FORMAT = 1
MAX_SHOWN_DIFFERENCES = 10
_COMPARED_FILES = ("metrics.csv", "statistics/*.csv", "runs/*/*/run.json")
_RUN_BLOCKS = ("backbone", "frames", "text", "method")  # of run.json
_DISPLAY_KEYS = ("label", "train", "seeds")  # keys of a method that change no number of a run

# ---- The record ----------------------------------------------------------------------------------------------------


def record_study(job: Job, study: Study, dataset: Dataset) -> None:
    """Record, in the folder of tables, the keys and files that they were computed with, and what the user typed."""
    folder = Path(job.output[0]).parent
    files = [Path(path) for path in job.input if Path(path).suffix in (".csv", ".json")]
    write_json(
        folder / STUDY_RECORD,
        {
            "format": RECORD_FORMAT,
            "command": user_command(),
            "overrides": overrides_of(parse_overrides(typed_config().get("overrides") or {}), study.name, dataset.name),
            "study": study.fingerprint(),
            "dataset": dataset.fingerprint(),
            # Of a bucket, jobs read local copies.
            "files": {
                path.as_posix().rpartition(f"results/{study.name}/")[2]: sha256_of(path)
                for path in files
                if f"results/{study.name}/" in path.as_posix()
            },
        },
    )


def overrides_of(overrides: Mapping[str, Mapping[str, Any]], study: str, dataset: str) -> dict[str, Any]:
    """Those of one study and its data set."""
    return {
        kind: {name: overrides[kind][name]}
        for kind, name in (("studies", study), ("datasets", dataset))
        if name in overrides[kind]
    }


def typed_overrides(studies: Iterable[str], results: Path = Path("results")) -> dict[str, Any]:
    """What was typed when studies were run (``--config``, ``--configfile``), by kind and name."""
    records = [record for name in studies if (record := _read_record(results / name))]
    merged = merge_overrides(*(record["overrides"] for record in records))
    return {kind: blocks for kind, blocks in merged.items() if blocks}


def _read_record(results: Path) -> dict[str, Any] | None:
    """The record of a study's results; None where an earlier version wrote them. One of a newer version is refused."""
    path = results / STUDY_RECORD
    if not path.is_file():
        return None
    content = read_json(path)
    kinds = {"overrides": dict, "study": dict, "dataset": dict, "files": dict}
    if not isinstance(content, dict) or any(not isinstance(content.get(name), kind) for name, kind in kinds.items()):
        raise RewindError(f"{path}: not as the workflow wrote it. {how_to_remake(results / 'tables')}")
    if content.get("format") != RECORD_FORMAT:
        raise RewindError(f"{path}: of a newer version (format {content.get('format')!r:.40}); update Rewind.")
    return content


# ---- The comparison ------------------------------------------------------------------------------------------------


def study_that_ran(
    results: Path, config: Path, except_for: Collection[str] = (), name: str = ""
) -> tuple[Study, Dataset]:
    """A study and its data set as they are configured, which is as they ran.

    Args:
        except_for: keys of the study that may differ, since the caller shows nothing that depends on them.
        name: of the study, where its results lie in a folder of another name.

    Raises:
        RewindError: if a key has another value than when the results were computed, naming it with both values; or if
            the files of numbers are not as their jobs left them, or not those that the study's tables show.
    """
    verify_files_below(results, *_COMPARED_FILES)
    name, record = name or results.name, _read_record(results)
    typed = parse_overrides(record["overrides"] if record else {})
    study = load_configured_study(name, config, typed)
    dataset = load_configured_dataset(study.dataset, config, typed)
    study_file = f"{config / 'studies' / name}.yaml"
    if record is None:
        differences = [f"{study_file}: {line}" for line in _run_differences(results, study)]
    else:
        keys = {key: value for key, value in record["study"].items() if key not in except_for}
        now = {key: value for key, value in study.fingerprint().items() if key not in except_for}
        differences = [f"{study_file}: {line}" for line in value_changes(keys, now)]
        dataset_file = f"{config / 'datasets' / dataset.name}.yaml"
        differences += [f"{dataset_file}: {line}" for line in value_changes(record["dataset"], dataset.fingerprint())]
    command = snakemake_command(results / "tables")
    if differences:
        shown = differences[:MAX_SHOWN_DIFFERENCES]
        more = [f"and {len(differences) - len(shown)} more"] if len(differences) > len(shown) else []
        lines = "\n".join(f"  {line}" for line in [*shown, *more])
        raise RewindError(
            f"{results}: computed with keys other than those configured now (then → now):\n{lines}\n`{command}` brings "
            "the results up to date; or restore these keys."
        )
    if record is None:
        print(
            f"note: {results}: an earlier version of Rewind wrote it and recorded no configuration: names and the "
            f"level of intervals are those configured now; `{command}` records them",
            file=sys.stderr,
        )
    elif changed := _changed_files(results, record["files"]):
        raise RewindError(
            f"{results / changed[0]}: not the file from which the study's tables were built; `{command}` makes what "
            "follows from it."
        )
    return study, dataset


def _changed_files(results: Path, recorded: Mapping[str, Any]) -> list[str]:
    """Files of numbers that differ from those that the tables were written from."""
    present = [path for pattern in _COMPARED_FILES for path in sorted(results.glob(pattern))]
    names = {path: path.relative_to(results).as_posix() for path in present}
    return [name for path, name in names.items() if name in recorded and recorded[name] != sha256_of(path)]


def _run_differences(results: Path, study: Study) -> list[str]:
    """What ``run.json`` of the study's runs states of their keys, where it differs from those configured now."""
    lines: dict[str, None] = {}
    for method, seed in study.runs():
        path = results / f"runs/{method}/seed{seed}/run.json"
        spec = content.get("spec") if path.is_file() and isinstance(content := read_json(path), dict) else None
        if not isinstance(spec, dict):
            continue
        now = study.run_spec(method, seed=seed).fingerprint()
        if study.pretraining:  # the weights are those of the pre-training
            now["backbone"].pop("weights", None)
        now["method"] = {key: value for key, value in now["method"].items() if key not in _DISPLAY_KEYS}
        for block in _RUN_BLOCKS:
            where = f"methods.{method}" if block == "method" else block
            lines |= dict.fromkeys(value_changes(spec.get(block), now[block], where, shared=True))
    return list(lines)


def value_changes(old: Any, new: Any, where: str = "", shared: bool = False) -> Iterator[str]:
    """A line for every value that differs, ``key: old → new``; blocks are compared key by key.

    Args:
        shared: leave out keys that one of two blocks does not have, as of another version.

    >>> list(value_changes({"training": {"epochs": 2, "lr": 0.1}}, {"training": {"epochs": 12}}, shared=True))
    ['training.epochs: 2 → 12']
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*old, *(name for name in new if name not in old)]:
            both = name in old and name in new
            if (both or not shared) and (not both or _plain(old[name]) != _plain(new[name])):
                path = f"{where}.{name}" if where else str(name)
                yield from value_changes(old.get(name), new.get(name), path, shared)
    elif _plain(old) != _plain(new) and not (shared and None in (old, new) and dict in (type(old), type(new))):
        yield f"{where or 'a key'}: {in_words(old)} → {in_words(new)}"


def _plain(value: Any) -> Any:
    """As JSON has it: tuples are lists there."""
    return json.loads(json.dumps(value))


def in_words(value: Any) -> str:
    """A value as configuration files have it, cut where it is long.

    >>> in_words(None), in_words(True), in_words(["origin", "hard"]), in_words({"epochs": 8})
    ('nothing', 'true', 'origin, hard', 'epochs: 8')
    """
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple) and not any(isinstance(part, list | tuple | dict) for part in value):
        text = ", ".join(map(in_words, value)) or "an empty list"
    elif isinstance(value, str):
        text = value or "an empty text"
    else:
        flow = yaml.safe_dump(_plain(value), default_flow_style=True, allow_unicode=True, width=10_000)
        text = flow.removesuffix("\n").removesuffix("\n...")
        text = text[1:-1] if text.startswith("{") else text
    return text if len(text) <= 60 else text[:57] + "…"


# ---- Where it lies -------------------------------------------------------------------------------------------------


class StudyFolders(NamedTuple):
    """Where a finished study lies: its name, the folder of its results and that of the configuration."""

    name: str
    results: Path
    config: Path


def find_study(text: str) -> StudyFolders:
    """The folders of a study, from its name or from the folder of its results (``<home>/results/<study>``).

    Raises:
        RewindError: if there are no results, or no ``config/studies/<study>.yaml`` for them.
    """
    path = Path(text)
    results = path if len(path.parts) > 1 else Path("results", text)
    name = results.name
    config = results.parent.parent / "config"
    file = config / "studies" / f"{name}.yaml"
    if not (results / "metrics.csv").is_file():
        if gone := lost_outputs(results):
            raise RewindError(f"{text}: {how_to_restore(gone)}")
        if not file.is_file():
            raise RewindError(
                f"{text}: no results in {results}, and no {file}; name a study, or the folder of its results."
            )
        raise RewindError(
            f"{text}: no results in {results}; run the study first (`{snakemake_command(results / 'tables')}`)."
        )
    if not file.is_file():
        raise RewindError(
            f"{text}: {file} is missing; a board needs the configuration that the study was run with. A file of "
            "`rewind share` contains what a board needs."
        )
    return StudyFolders(name, results, config)
