"""Configuration of the selected studies, and the few functions that rules share."""

import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from rewind.config import comparing
from rewind.errors import RewindError
from rewind.system_errors import user_message
from rewind.video.shards import how_to_restore_shards, missing_shards
from rewind.workflow.config import (
    custom_rules,
    load_checked_config,
    load_config,
    source_digest,
    weights_file,
    zero_shot_file,
)
from rewind.workflow.layout import annotation_files
from rewind.workflow.preflight.cluster import cluster_faults
from rewind.workflow.preflight.files import gpu_faults
from rewind.workflow.temporary_files import remove_old_temporary_files

# Where this workflow is a module of another one, files of keys that are not there are its own.
HOME = Path(str(workflow.current_basedir)).parents[1]

# What the command line gave, as opposed to config/config.yaml.
TYPED = workflow.config_settings.overwrite_config

# Here and not in input functions, whose exceptions Snakemake swallows where the file that they are for is there. Jobs
# that read the workflow anew on another machine need only the keys.
try:
    if workflow.is_main_process:
        remove_old_temporary_files(Path(".snakemake/rewind"))
        STUDIES, DATASETS = load_checked_config(
            config, Path(".snakemake/rewind/sound.json"), sys.argv[1:], HOME, TYPED
        )
    else:
        STUDIES, DATASETS = load_config(config, HOME, TYPED)
    CUSTOM_RULES = custom_rules(config)
except Exception as error:
    if sentence := user_message(error):
        raise WorkflowError(sentence) from None
    raise


LOST = [path for name in DATASETS for path in missing_shards(Path(f"results/data/{name}/videos"))]
if LOST and workflow.is_main_process:
    print(f"note: {how_to_restore_shards(LOST)}", file=sys.stderr)


onstart:
    # Only now is it known that jobs run on this machine, and not on nodes that may have more GPUs.
    if workflow.local_exec and (faults := gpu_faults(STUDIES)):
        raise WorkflowError(faults)
    planned = list(workflow.dag.needrun_jobs())
    outputs = {str(path) for job in planned for path in job.output}
    if outputs.intersection(LOST) and not all(job.rule.name.endswith("video_shard") for job in planned):
        raise WorkflowError(how_to_restore_shards(LOST))
    if getattr(workflow.executor_plugin, "name", "") == "slurm":
        settings = workflow.executor_settings
        if faults := cluster_faults(
            STUDIES, settings.status_command, settings.init_seconds_before_status_checks
        ):
            raise WorkflowError(faults)
        # Jobs of a group run one after another: side by side they would ask for a node each, and for all their memory.
        workflow.global_resources["nodes"] = 1


# The process that a submission starts adds up its group's jobs anew.
if not workflow.is_main_process:
    workflow.global_resources["nodes"] = 1


# A limit for each submission, not for all of them at once.
resource_scopes:
    nodes="local",


wildcard_constraints:
    study="|".join(STUDIES),
    dataset="|".join(DATASETS),
    seed=r"\d+",
    frames=r"\d+",
    shard=r"\d+",
    # Of a pre-training, and of what rests on it: nothing where there is one for all seeds, or none.
    part=r"(?:/seed\d+)?",


def of_kind(vectors):
    """Names of the data sets that hold vectors, or of those that hold clips and images, as a pattern."""
    return one_of(name for name, chosen in DATASETS.items() if chosen.vectors == vectors)


def with_clips(here):
    """Names of the data sets whose clips or images are normalised, or of those that have none here, as a pattern."""
    return one_of(name for name, chosen in DATASETS.items() if (chosen.clips and not chosen.vectors) == here)


def one_of(names):
    return "|".join(names) or "(?!)"


def filled(path, **wildcards):
    """A path with its wildcards, where it may be a rule's output that is kept in a bucket: that has no ``format``."""
    if hasattr(path, "apply_wildcards"):
        return path.apply_wildcards({name: str(value) for name, value in wildcards.items()})
    return path.format(**wildcards)


def shard_files(name, suffix):
    """Files of the shards of a data set's clips, by their suffix."""
    parts = DATASETS[name].media.shards
    return [f"results/data/{name}/videos/shards/{n}-of-{parts}.{suffix}" for n in range(parts)]


def clip_files(name):
    """What a job reads that opens clips of a data set; of one that has none, nothing.

    Only the small table of what shards hold decides whether outputs are stale. The shards are there to be read: one
    that was lost and made again, with the same bytes, is newer, but changes nothing.
    """
    chosen = DATASETS[name]
    if chosen.vectors:
        made = chosen.source.made_from
        return clip_files(made.dataset) if made else {}
    if not chosen.clips:
        return {}
    folder = f"results/data/{name}/videos"
    return {
        "shards": f"{folder}/shards.csv",
        "clips": [ancient(path) for path in (f"{folder}/clips.csv", *shard_files(name, "tar"))],
    }


OWN = set()


def own(paths):
    """Files that the user brings: at the same path on every machine, also where those of rules are in a bucket.

    Some of what a key names is made by rules: vectors of a model by name, or of one data set from another.
    """
    paths = list(paths)
    OWN.update(str(path) for path in paths if not str(path).startswith("results/"))
    return [local(path) if str(path) in OWN else path for path in paths]


def study(wildcards):
    return STUDIES[wildcards.study]


def dataset(wildcards):
    return DATASETS[wildcards.dataset]


def data_folder(name):
    """Folder of the data set that a study uses."""
    return f"results/data/{STUDIES[name].dataset}"
