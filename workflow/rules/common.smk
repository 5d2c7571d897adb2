"""Configuration of the selected studies, and the few functions that rules share."""

from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.errors import RewindError
from rewind.jobs.config import check_sources, check_weights, listing, load_all, zero_shot_file
from rewind.jobs.places import annotation_files
from rewind.provenance import fingerprint, fingerprint_of

try:
    STUDIES, DATASETS = load_all(config)
    for checked in DATASETS.values():
        check_sources(checked)
except RewindError as error:
    raise WorkflowError(str(error)) from None

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
