"""Configuration of the selected studies, and the few functions that rules share."""

import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.errors import RewindError
from rewind.jobs.config import listing, load_all, load_checked, weights_file, zero_shot_file
from rewind.jobs.places import annotation_files
from rewind.jobs.presence import gpu_faults
from rewind.provenance import fingerprint, fingerprint_of

# Here and not in input functions, whose exceptions Snakemake swallows where the file that they are for is there. Jobs
# that read the workflow anew on another machine need only the keys.
try:
    if workflow.is_main_process:
        STUDIES, DATASETS = load_checked(config, Path(".snakemake/rewind/sound.json"), sys.argv[1:])
    else:
        STUDIES, DATASETS = load_all(config)
except RewindError as error:
    raise WorkflowError(str(error)) from None


onstart:
    # Only now is it known that jobs run on this machine, and not on nodes that may have more GPUs.
    if workflow.local_exec and (faults := gpu_faults(STUDIES)):
        raise WorkflowError(faults)


SCRIPTS = Path(workflow.basedir) / "workflow" / "scripts"


wildcard_constraints:
    study="|".join(STUDIES),
    dataset="|".join(DATASETS),
    seed=r"\d+",
    frames=r"\d+",
    shard=r"\d+",


def of_kind(vectors):
    """Names of the data sets that hold vectors, or of those that hold clips and images, as a pattern."""
    return "|".join(name for name, chosen in DATASETS.items() if chosen.vectors == vectors) or "(?!)"


def study(wildcards):
    return STUDIES[wildcards.study]


def dataset(wildcards):
    return DATASETS[wildcards.dataset]


def data_folder(name):
    """Folder of the data set that a study uses."""
    return f"results/data/{STUDIES[name].dataset}"


def code(script, *modules):
    """Content hash of a script and of the library modules it reaches (Snakemake does not look into imports)."""
    return fingerprint(SCRIPTS / script, *modules)


def run_modules(name, method):
    """Modules that a run finds by name, which its script therefore does not import."""
    return modules_of(STUDIES[name], STUDIES[name].methods[method])


def modules_of(chosen, method):
    found = [
        named("rewind.models", method.model),
        named("rewind.models", chosen.backbone.kind),
        named("rewind.objectives", method.training.objective),
        named("rewind.training.samplers", method.training.batch.sampler),
    ]
    own = method.options.get("backbone")
    if isinstance(own, dict):
        found.append(named("rewind.models", own.get("kind", "clip")))
    return found + [method.head] * ("." in method.head)


def named(package, name):
    """Full name of a built-in module, or a dotted path as it is."""
    return name if "." in name else f"{package}.{name}"
