"""What Snakemake would run again, and why: for ``rewind why`` and ``rewind accept``.

:func:`planned_jobs` reads a dry run (``snakemake -n``) and Snakemake's own records, :func:`find_changes` says which
keys, code and files changed, and :func:`inputs_only_moved` recognises inputs that were only moved.
"""

from __future__ import annotations

import ast
import base64
import functools
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rewind.commands import override_words, selected_by_default, study_of_file
from rewind.config import Dataset, Study
from rewind.config.base import ANY_VALUE, uncounted
from rewind.config.encoders import Encoding
from rewind.errors import RewindError
from rewind.hashing import sha256_of
from rewind.io.files import read_cached_json, read_json, write_text
from rewind.processes import run_snakemake
from rewind.workflow.config import ONLY_KEYS
from rewind.workflow.job import job_record_path
from rewind.workflow.staleness.accepted import AcceptedEditStore
from rewind.workflow.staleness.code_hash import DefinitionHashes, load_code_hash
from rewind.workflow.staleness.user_inputs import FILE_CONTENT
from rewind.workflow.what_ran import in_words, typed_overrides, value_changes
from rewind.working_folder import require_snakefile

# ---- Jobs of a dry run, and Snakemake's records of outputs ---------------------------------------------------------

_JOB_LINE = re.compile(r"^((?:    )?)(?:local)?(?:rule|checkpoint) (\w+):$")  # those of a group are indented
_FIELD_LINE = re.compile(r"^    (\w[\w ]*): (.*)$")
_CHANGED_PARAMS = re.compile(
    r"Params have changed since last execution: .*?before: (?P<before>.*) now: (?P<now>.*?) *(?:; |$)"
)
_ROUTINE_LINES = re.compile(
    r"Using (workflow specific )?profiles? |Config file .* is extended by |Building DAG of jobs|host: "
    r"|WorkflowError in file .*, line \d+:$|\s+File \".*\", line \d+, in <module>$"
    r"|Assuming (un)?restricted shared filesystem|SNAKEMAKE$|=+$"
    r"|  (Date|Workflow ID|Platform|Host|User|Snakemake version|Python version|Command|Snakefile|(Base|Run|Working) "
    r"directory|Config file\(s\)|Config MD5): "
)
_SNAKEMAKE_METADATA = Path(".snakemake/metadata")
_MAX_FILE_NAME = 255  # characters


@dataclass(frozen=True)
class PlannedJob:
    """A job that would run.

    >>> dry_run = "rule train:\\n    output: a.csv\\n    jobid: 1\\n    reason: Missing output files: a.csv\\n"
    >>> [job] = parse_dry_run(dry_run)
    >>> job.rule, job.outputs, find_changes(job).words()
    ('train', ['a.csv'], ['a.csv is missing'])
    """

    rule: str
    wildcards: dict[str, str] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reason: str = ""  # as Snakemake prints it
    old: list[str] = field(default_factory=list)  # recorded parameters that differ; Python literals
    new: list[str] = field(default_factory=list)  # the present parameters that differ


def studies_of_targets(targets: Sequence[str]) -> list[str]:
    """Studies that targets name, by themselves or by a file; else those that ``config/config.yaml`` selects."""
    if not all(name.strip() for name in targets):
        raise RewindError("an empty target: name studies, result files or rules, or none for all studies.")
    named = [name if Path(f"config/studies/{name}.yaml").is_file() else study_of_file(name) for name in targets]
    return list(dict.fromkeys(filter(None, named))) or selected_by_default()


def planned_jobs(targets: Sequence[str]) -> list[PlannedJob]:
    """Jobs that ``snakemake TARGET…`` would run here, in its order; a study's name stands for all of that study."""
    return parse_dry_run(dry_run(targets))


def dry_run(targets: Sequence[str]) -> str:
    """What ``snakemake -n TARGET…`` prints; where it refuses, the error has its message."""
    require_snakefile()
    studies = studies_of_targets(targets)
    files = [name for name in targets if name not in studies]
    command = ["-n", "--cores", "1", "--nolock"]
    command += override_words({"studies": studies, "overrides": typed_overrides(studies)})
    command += ["--", *files] if files else []
    code, *said = _run_dry(command, os.environ | {ONLY_KEYS: "yes"})
    if code:  # the checks that were left out may know why
        code, *said = _run_dry(command, dict(os.environ))
    if code:
        raise RewindError(f"snakemake -n refuses:\n{refusal_reason(*said)}")
    return "\n".join(said)


def _run_dry(arguments: Sequence[str], env: Mapping[str, str]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out, tempfile.TemporaryFile("w+", encoding="utf-8") as err:
        code = run_snakemake(arguments, stdout=out, stderr=err, env=env)
        for stream in (out, err):
            stream.seek(0)
        return code, out.read(), err.read()


def refusal_reason(stdout: str, stderr: str) -> str:
    """Why Snakemake refuses: its lines on either stream, without those that it prints in every run.

    The reason is on standard output where the workflow itself refuses, otherwise on standard error, together with a
    line about the profile.
    """
    lines = [line for line in f"{stdout}\n{stderr}".splitlines() if line.strip()]
    reasons = [line for line in lines if not _ROUTINE_LINES.match(line)]
    return "\n".join(reasons or lines) or "it gave no reason"


def parse_dry_run(output: str) -> list[PlannedJob]:
    """Jobs among the lines of a dry run, without those that have no outputs (``all`` and the like)."""
    jobs: list[tuple[str, dict[str, str]]] = []
    margin: str | None = None
    for line in output.splitlines():
        if job_line := _JOB_LINE.match(line):
            margin = job_line[1]
            jobs.append((job_line[2], {}))
        elif not line.startswith(" "):
            margin = None
        elif margin is not None and (field_line := _FIELD_LINE.match(line.removeprefix(margin))):
            jobs[-1][1][field_line[1]] = field_line[2]
    return [_planned_job(rule, values) for rule, values in jobs if "jobid" in values and "output" in values]


def _planned_job(rule: str, values: dict[str, str]) -> PlannedJob:
    wildcards = dict(pair.split("=", 1) for pair in _split_files(values.get("wildcards", "")))
    inputs, outputs = (_split_files(values.get(name, "")) for name in ("input", "output"))
    reason = values.get("reason", "")
    changed = _CHANGED_PARAMS.search(reason)
    old, new = (_split_values(changed[1]), _split_values(changed[2])) if changed else ([], [])
    return PlannedJob(rule, wildcards, inputs, outputs, reason, old, new)


def _split_files(text: str) -> list[str]:
    """Files listed on a line, without what Snakemake adds in brackets."""
    return [re.sub(r" \(.*\)$", "", part) for part in text.split(", ") if part]


def _split_values(text: str) -> list[str]:
    """Python literals that Snakemake joined by commas; commas inside of a literal do not separate."""
    values, value = [], ""
    for part in text.split(","):
        value = f"{value},{part}" if value else part
        try:
            ast.literal_eval(value)
        except (ValueError, SyntaxError):
            continue
        values.append(value)
        value = ""
    return values


def snakemake_record(output: str) -> dict[str, Any]:
    """Snakemake's record of how it made a file; empty where there is none."""
    return read_cached_json(snakemake_record_path(output)) or {}


def recorded_time(output: str) -> float | None:
    """The time that an output had when Snakemake recorded its job; None where it recorded none."""
    time = snakemake_record(output).get("endtime")
    return time if isinstance(time, float) else None


def snakemake_record_path(output: str) -> Path:
    """Path of Snakemake's record of how it made a file: the file's path in base64, in pieces that fit a file name."""
    name = base64.urlsafe_b64encode(output.encode()).decode()
    parts = [name[at : at + _MAX_FILE_NAME - 1] for at in range(0, len(name), _MAX_FILE_NAME - 1)]
    return _SNAKEMAKE_METADATA.joinpath(*(f"@{part}" for part in parts[:-1]), parts[-1])


# ---- Inputs that were only moved -----------------------------------------------------------------------------------
# A version of Rewind that stores clips in another way must not cost a user a training run, but Snakemake compares
# lists of files. Where a job's list differs only in files that state where clips and frames are, and the data set has
# the same content as when the study's runs were trained, ``rewind accept`` writes the new list into Snakemake's record.

_STORAGE_FILES = re.compile(
    r"results/data/[^/]+/(videos/(report\.csv|shards\.csv|clips\.csv|shards/[^/]+\.tar)|captions/report\.json|source\.tar)"
    r"|results/[^/]+/frames/frames\d+/(index\.json|items\.csv|shards)"
    r"|results/[^/]+/sanity\.json"
)
"""Files that hold clips or frames, or state where they are: the data set's digest covers the content of both. And
the result of the over-fitting check, on which no run depends."""


def inputs_only_moved(job: PlannedJob) -> bool:
    """Whether a job's files differ only in where clips and frames are stored, and their content is the same."""
    moved = False
    for line in job.reason.split("; "):
        head, _, rest = line.partition(": ")
        if head == "Set of input files has changed since last execution":
            recorded = set(_recorded_job(job).get("input", ()))
            if not all(_STORAGE_FILES.fullmatch(path) for path in recorded ^ set(job.inputs)):
                return False
            moved = True
        elif head == "Updated input files":
            if not all(_STORAGE_FILES.fullmatch(path) for path in rest.split(", ")):
                return False
            moved = True
        elif head in ("Missing output files", "Incomplete output files", "Forced execution"):
            return False
    return moved and same_data_content(job)


def same_data_content(job: PlannedJob) -> bool:
    """Whether every run of the job's study was trained on the present content of its data set, by their digests."""
    study = job.wildcards.get("study")
    runs = [_read_object(path) for path in sorted(Path("results").glob(f"{study}/runs/*/*/run.json"))] if study else []
    trained_on = {run.get("data_digest") for run in runs}
    reports = {path for path in job.inputs if path.endswith("/captions/report.json")} or {
        f"{Path(path).parent}/captions/report.json" for path in job.inputs if path.endswith("/items.csv")
    }
    digests = {_read_object(Path(path)).get("digest") for path in reports if "/frames/" not in path}
    return len(trained_on) == 1 and trained_on == digests and None not in digests


def update_recorded_params(job: PlannedJob, change: JobChange) -> None:
    """Write the parameters that count now into Snakemake's records of a job's outputs; its code stays as recorded."""
    code = {repr(value) for one in change.code for value in (one.old, one.new)}  # parameters are recorded as their repr
    for output in job.outputs:
        if record := snakemake_record(output):
            kept = [value for value in record["params"] if value not in job.old or value in code]
            record["params"] = sorted([*kept, *(value for value in job.new if value not in code)])
            write_text(snakemake_record_path(output), json.dumps(record))


def update_recorded_inputs(job: PlannedJob) -> None:
    """Write the present list of input files into Snakemake's records of a job's outputs."""
    for output in job.outputs:
        if not (record := snakemake_record(output)):
            continue
        record["input"] = sorted(job.inputs)
        checksums = record.get("input_checksums") or {}
        unchanged = {path: value for path, value in checksums.items() if path in job.inputs}
        record["input_checksums"] = unchanged | {path: f"sha256:{sha256_of(path)}" for path in _index_files(job.inputs)}
        write_text(snakemake_record_path(output), json.dumps(record))


def _index_files(paths: Iterable[str]) -> list[str]:
    """Files that say where clips and frames are; they are small, and Snakemake compares them by checksum."""
    return [path for path in paths if _STORAGE_FILES.fullmatch(path) and Path(path).suffix in (".csv", ".json")]


def _recorded_job(job: PlannedJob) -> dict[str, Any]:
    """Snakemake's record of the first output that has one with inputs; empty if none has."""
    return next((record for output in job.outputs if (record := snakemake_record(output)).get("input")), {})


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path)
    except RewindError:
        return {}
    return content if isinstance(content, dict) else {}


# ---- What changed since an output was made: keys, code, files ------------------------------------------------------

_MAX_SHOWN_NAMES = 6  # changed names that are listed of one module


@dataclass(frozen=True)
class CodeChange:
    """A stage's code differs from the code that a job's outputs were computed with, by their code hashes."""

    stage: str
    old: str
    new: str
    changed: list[str] | None  # modules, each with the names that differ; None: the old definitions were not stored

    def words(self) -> list[str]:
        if self.changed is None:
            return ["code of another version, whose parts were not recorded"]
        return self.changed or ["code"]


@dataclass(frozen=True)
class JobChange:
    """Why a job would run, in words for the console.

    ``recounted``: a parameter differs only by keys that an earlier version counted although no result of the job
    depends on them.
    """

    code: list[CodeChange]
    keys: list[str]  # with both values
    files: list[str]  # missing, incomplete or changed
    recounted: bool = False

    def words(self) -> list[str]:
        code = [word for code in self.code for word in code.words()]
        recounted = ["keys that do not count any more"] if self.recounted and not self.keys else []
        return list(dict.fromkeys([*self.keys, *code, *recounted, *self.files]))


def find_changes(job: PlannedJob, accepted: AcceptedEditStore | None = None) -> JobChange:
    """Why a job would run, apart from inputs that other jobs make again before it.

    Code is compared with the code that was last accepted for the job's outputs (``rewind accept``).
    """
    old, new = ([ast.literal_eval(value) for value in values] for values in (job.old, job.new))
    code_hashes = [value for value in old if _is_code_hash(value)]
    accepted_hashes = {
        code_hash: (accepted or AcceptedEditStore()).counted(job.wildcards, code_hash) for code_hash in code_hashes
    }
    code = list(_code_changes(accepted_hashes, [value for value in new if _is_code_hash(value)]))
    explained = {code_hash for change in code for code_hash in (change.old, change.new)}
    old, new = ([one for one in values if not (_is_code_hash(one) and one in explained)] for values in (old, new))
    keys = list(_key_changes(old, new, _recorded_names(job)))
    return JobChange(code, keys, list(_file_changes(job)), recounted=bool(old or new) and not keys)


@functools.cache
def uncounted_keys() -> dict[str, Any]:
    """Keys that parameters may lack: those on which only later stages depend or none, and others at one value."""
    return uncounted(Study) | uncounted(Dataset) | uncounted(Encoding)


def _is_code_hash(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 16 and not set(value) - set("0123456789abcdef")


def _code_changes(old: Mapping[str, str], new: list[str]) -> Iterator[CodeChange]:
    """Pair old and new code hashes by stage; ``old``: hash that outputs were made with → hash last accepted for it."""
    stored = {
        entry[0]: (code_hash, entry[1])
        for code_hash, accepted_hash in old.items()
        if (entry := load_code_hash(accepted_hash))
    }
    unknown = [code_hash for code_hash in old if code_hash not in {code_hash for code_hash, _ in stored.values()}]
    for code_hash in new:
        if not (entry := load_code_hash(code_hash)):
            continue  # a hash of something else, such as a data set's content
        stage, definitions = entry
        if stage in stored:
            old_hash, old_definitions = stored[stage]
            yield CodeChange(stage, old_hash, code_hash, changed_modules(old_definitions, definitions))
        elif unknown:
            yield CodeChange(stage, unknown.pop(0), code_hash, None)


def changed_modules(old: DefinitionHashes, new: DefinitionHashes) -> list[str]:
    """Modules that differ, each with what in it changed.

    >>> before = {"rewind.ranking_metrics:hits": "a", "rewind.ranking_metrics:old": "c"}
    >>> changed_modules(before, {"rewind.ranking_metrics:hits": "b"})
    ['ranking_metrics.py changed (hits); is no longer used (old)']
    """
    modules: dict[str, dict[str, list[str]]] = {}
    for part in sorted(old.keys() | new.keys()):
        if old.get(part) != new.get(part):
            change = "changed" if part in old and part in new else "came" if part in new else "went"
            module, _, name = part.partition(":")
            modules.setdefault(module, {}).setdefault(change, []).append(name)
    return [_describe_module(module, names) for module, names in modules.items()]


def _describe_module(module: str, names_by_change: Mapping[str, list[str]]) -> str:
    if {name for names in names_by_change.values() for name in names} == {FILE_CONTENT}:
        return f"{module}: another file took its place"
    clauses = []
    for change, names in names_by_change.items():
        names = [name for name in names if name]
        rest = f" and {len(names) - _MAX_SHOWN_NAMES} more" if len(names) > _MAX_SHOWN_NAMES else ""
        listed = f" ({', '.join(names[:_MAX_SHOWN_NAMES])}{rest})" if names else ""
        verb = {"changed": "changed", "came": "is used now", "went": "is no longer used"}[change]
        clauses.append(f"{verb}{listed}")
    return f"{_module_path(module)} {'; '.join(clauses)}"


def _module_path(module: str) -> str:
    if "/" in module:
        return module
    return module.removeprefix("rewind.").replace(".", "/") + ".py"


def _recorded_names(job: PlannedJob) -> list[tuple[str, Any]]:
    """Name and value of every parameter that the outputs were made with, as far as the job was recorded here."""
    record = read_cached_json(job_record_path(job.rule, job.outputs))
    try:
        return list(record["params"]["names"].items()) if record else []
    except (KeyError, TypeError, AttributeError):
        return []


def _key_changes(old: list[Any], new: list[Any], names: list[tuple[str, Any]]) -> Iterator[str]:
    """Differences of parameters. Snakemake prints values without names, so each is paired with the most similar one.

    ``names`` are :func:`_recorded_names`; a block of keys needs none.
    """
    remaining = list(new)
    for old_value in old:
        as_recorded = json.loads(json.dumps(old_value))  # tuples became lists
        name = next((name for name, value in names if value == as_recorded), "")
        new_value = max(remaining, key=lambda value: _match_score(old_value, value), default=None)
        if new_value is None or not _match_score(old_value, new_value):
            if name in uncounted_keys():
                continue
            yield f"{name or 'a key'} was {in_words(old_value)} and is no longer given"
            continue
        remaining.remove(new_value)
        old_value = _without_uncounted(old_value, new_value)
        yield from value_changes(old_value, new_value, "" if isinstance(old_value, dict) else name)
    yield from (f"a key is given now: {in_words(value)}" for value in remaining)


def _without_uncounted(old: Any, new: Any) -> Any:
    """An old parameter without the keys that the new one leaves out since nothing depends on them, or on that value."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return old
    known = uncounted_keys()
    return {
        name: _without_uncounted(value, new.get(name))
        for name, value in old.items()
        if name in new or not (name in known and (known[name] is ANY_VALUE or known[name] == value))
    }


def _match_score(first: Any, second: Any) -> int:
    """How likely two values are of the same parameter: the more keys two blocks share, the more likely; 0: never."""
    if type(first) is not type(second):
        return int(isinstance(first, int | float | None) and isinstance(second, int | float | None))
    if isinstance(first, dict):
        return 1 + len(first.keys() & second.keys())
    return 1


def _file_changes(job: PlannedJob) -> Iterator[str]:
    for line in job.reason.split("; "):
        head, _, rest = line.partition(": ")
        if head == "Missing output files":
            yield f"{rest} {'are' if ', ' in rest else 'is'} missing"
        elif head == "Incomplete output files":
            yield f"{rest}: the job that made it was interrupted"
        elif head == "Updated input files":
            yield f"{rest} changed"
        elif head == "Set of input files has changed since last execution":
            yield from _input_changes(job)
        elif head == "Forced execution":
            yield "you forced it"


def _input_changes(job: PlannedJob) -> Iterator[str]:
    recorded = _recorded_job(job).get("input", [])
    added, removed = (sorted(set(a) - set(b)) for a, b in ((job.inputs, recorded), (recorded, job.inputs)))
    yield (
        "other input files"
        + (f": now {', '.join(added)}" if added else "")
        + (f"{';' if added else ':'} no longer {', '.join(removed)}" if removed else "")
    )
