"""The plan of a study as JSON: every job that empty results would need, with its files, parameters and resources.

    python tools/golden/plan.py SNAKEFILE DIRECTORY STUDY > plan.json

A dry run through Snakemake's own API, in a process of its own. The list of jobs is taken from its private
``_workflow``: a dry run prints neither parameters nor the names of inputs. This is a maintainer's tool; nothing of the
workflow uses it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

LEFT_OUT_PARAMS = {
    "code": "a hash of the code, which every move changes",
    "clip_code": "likewise, of what makes a clip or an image",
    "frame_code": "likewise, of what makes a stored frame",
}
LEFT_OUT_RESOURCES = {
    "_cores": "of this machine",
    "_nodes": "of this machine",
    "tmpdir": "of this machine",
    "mem_mib": "mem_mb in another unit",
    "disk_mib": "disk_mb in another unit",
}


def plan(snakefile: Path, directory: Path, study: str, cores: int = 2, gpus: int = 2) -> list[dict[str, Any]]:
    """Every job of a study, sorted by its rule and its outputs.

    Args:
        snakefile: of the checkout that is looked at.
        directory: where it is run: ``config/`` and the user's own files, without results.
        study: the one study that is asked for.
        cores, gpus: limits, the same whatever machine this is.

    Raises:
        snakemake.exceptions.WorkflowError: where the workflow refuses its configuration.
    """
    from snakemake.api import SnakemakeApi
    from snakemake.settings.types import ConfigSettings, DAGSettings, OutputSettings, Quietness, ResourceSettings

    with SnakemakeApi(OutputSettings(dryrun=True, quiet={Quietness.ALL})) as api:
        workflow = api.workflow(
            resource_settings=ResourceSettings(cores=cores, resources={"gpu": gpus}),
            config_settings=ConfigSettings(config={"studies": [study]}),
            snakefile=snakefile,
            workdir=directory,
        )
        workflow.dag(DAGSettings(forceall=True)).execute_workflow(executor="dryrun")
        return sorted(
            map(described, workflow._workflow.dag.jobs), key=lambda job: (job["rule"], json.dumps(job["output"]))
        )


def described(job: Any) -> dict[str, Any]:
    """What is compared of a job."""
    return {
        "rule": job.rule.name,
        "wildcards": plain(dict(job.wildcards_dict)),
        "input": named(job.input),
        "output": named(job.output),
        "log": sorted(map(str, job.log)),
        "benchmark": str(job.benchmark) if job.benchmark else None,
        "params": plain(without(job.params, LEFT_OUT_PARAMS)),
        "resources": plain(without(job.resources, LEFT_OUT_RESOURCES)),
        "threads": int(job.threads),
        "group": job.group,
    }


def without(named_list: Any, left_out: Mapping[str, str]) -> dict[str, Any]:
    """What a list of Snakemake's holds by name."""
    return {name: value for name, value in named_list.items() if name not in left_out}


def named(files: Any) -> dict[str, list[str]]:
    """Files by the name that the rule gives them; those without one under ``""``."""
    found = {name: listed(value) for name, value in files.items()}
    with_name = {path for paths in found.values() for path in paths}
    without = [path for path in listed(list(files)) if path not in with_name]
    return found | ({"": without} if without else {})


def listed(value: Any) -> list[str]:
    """Paths with the flags that decide whether a newer file makes a job stale."""
    paths = [value] if isinstance(value, str) else list(value)
    return [f"ancient({path})" if getattr(path, "flags", {}).get("ancient") else str(path) for path in paths]


def plain(value: Any) -> Any:
    """A value as JSON has it; what JSON lacks as Python writes it, without addresses of objects."""
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, (bool, int, float, type(None))):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(plain, value), key=repr)
    if isinstance(value, Iterable):
        return [plain(part) for part in value]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


if __name__ == "__main__":
    snakefile, directory, study = sys.argv[1:]
    sys.argv[1:] = ["-n", "--cores", "2"]  # the workflow looks at what was typed
    out = sys.stdout
    sys.stdout = sys.stderr  # what Snakemake and the workflow print is not part of the plan
    jobs = plan(Path(snakefile).resolve(), Path(directory).resolve(), study)
    json.dump(jobs, out, indent=1, sort_keys=True)
    out.write("\n")
