"""What a job asks of the machine: GPUs only where it computes on them, a long time only where it trains; what shares a
job of a cluster.
"""

from copy import copy

from rewind.config.study import MODELS_WITHOUT_TOWERS
from rewind.workflow import memory
from rewind.workflow.memory import batch_memory

# Minutes, for schedulers; `--set-resources train:runtime=2880` overrules them.
TRAINING, ENCODING, SHORT = 1440, 720, 60
PACKAGED = ("minilm", "efficientnet_lite0")  # small networks, made for a CPU

# Groups: on a cluster, what is short is submitted together with its neighbours, since a submission costs more than such a
# job (there Snakemake starts three times for it). One study's rules behind the scores are one group. Never in a group:
# what trains or encodes, for a group that fails is done again as a whole, and holds its GPUs to its end.


def preparing(name):
    """The group of rules that begin a data set."""
    return f"prepare_{name}"


def together(name):
    """The same for its clips, where they are so few that one job makes them; else their jobs run side by side."""
    return preparing(name) if DATASETS[name].vectors or DATASETS[name].media.shards == 1 else None


def closing(name):
    """That of the rules behind its clips."""
    return together(name) or f"captions_{name}"


def training_gpus(name, method):
    """GPUs that share the batches of a run; what learns nothing by gradient descent needs none."""
    chosen = STUDIES[name]
    return 0 if chosen.methods[method].baseline else chosen.resources.gpus


def training_minutes(name, method):
    return SHORT if STUDIES[name].methods[method].baseline else TRAINING


def closed(name, method):
    """Whether a run has nothing to encode: chance, word counts and closed forms on vectors."""
    keys = STUDIES[name].methods[method]
    return keys.model in MODELS_WITHOUT_TOWERS or (keys.model == "translator" and keys.baseline)


def sharing_gpus(name, method):
    """GPUs of a job that encodes test data in as many processes."""
    return 0 if closed(name, method) else STUDIES[name].resources.gpus


def encoding_gpus(name, method):
    """The same of a job that is one process, which uses one GPU."""
    return min(1, sharing_gpus(name, method))


def encoding_minutes(name, method):
    return SHORT if closed(name, method) else ENCODING


def making_gpus(name):
    """GPUs of the job that makes a data set of vectors: one, if a study on it uses GPUs and its networks are large."""
    keys = DATASETS[name].source.made_from
    large = any(encoder.name not in PACKAGED for encoder in (keys.text, keys.image))
    wanted = max((chosen.resources.gpus for chosen in STUDIES.values() if chosen.dataset == name), default=0)
    return min(1, wanted) if large else 0


def mirror_gpus():
    """Give every rule with `gpu` the same as `_gpus`, where the plugin for AWS Batch looks; called after the last rule.

    A rule that says `_gpus` itself keeps it. `use rule … with` and `--set-resources` have had their say by then.
    """
    for known in workflow.rules:
        if "gpu" in known.resources and "_gpus" not in known.resources:
            mirrored = copy(known.resources["gpu"])
            mirrored.name = "_gpus"
            known.resources["_gpus"] = mirrored


def fit_memory():
    """Round memory up to sizes of AWS Batch, where a profile asks for it by `batch_memory=1`; after the last rule."""
    for known in workflow.rules:
        if "batch_memory" in known.resources and "mem_mb" in known.resources:
            wanted = known.resources["mem_mb"]
            known.resources["mem_mb"] = type(wanted)("mem_mb", fitted(wanted))


def fitted(wanted):
    """A function of a job in the place of what it wants, which may be one itself."""

    def found(wildcards, input, attempt, threads, rulename):
        size = wanted.evaluate(
            wildcards, input=input, attempt=attempt, threads=threads, rulename=rulename
        ).value
        try:
            return batch_memory(threads, size) if isinstance(size, int) else size
        except RewindError as error:
            raise WorkflowError(f"{rulename}: {error}") from None

    return found


# Memory in MB; an attempt after the first asks for as much again. It limits nothing where no `--resources mem_mb=…` is
# given: schedulers read it.
RESULTS = Path("results")


def used_dataset(wildcards):
    """The data set that a job is about, or that its study uses."""
    return DATASETS[wildcards.dataset if hasattr(wildcards, "dataset") else study(wildcards).dataset]


def least_mb(wildcards, attempt):
    """Of jobs that read small files."""
    return attempt * memory.BASE_MB


def study_mb(wildcards, attempt):
    """Of jobs that run a model: what the study says."""
    return attempt * study(wildcards).resources.mem_mb


def clips_mb(wildcards, attempt):
    """Of jobs that decode: a clip's frames are held while it is reversed, by each worker."""
    return attempt * (2000 + 1000 * dataset(wildcards).media.workers)


def frames_mb(wildcards, attempt):
    """The same of a study's decoding processes."""
    return attempt * (2000 + 500 * study(wildcards).frames.workers)


def annotations_mb(wildcards, attempt):
    return attempt * memory.annotation_job_mb(used_dataset(wildcards))


def making_mb(wildcards, attempt):
    """Of the job that makes a data set of vectors: annotations, and the networks that encode."""
    return annotations_mb(wildcards, attempt) + attempt * 4000


def matrix_mb(wildcards, attempt):
    return attempt * memory.matrix_job_mb(used_dataset(wildcards), RESULTS)


def scoring_mb(wildcards, attempt):
    return attempt * memory.scoring_job_mb(used_dataset(wildcards), study(wildcards), RESULTS)


def ranks_mb(wildcards, attempt):
    return attempt * memory.ranks_job_mb(used_dataset(wildcards), study(wildcards), RESULTS)


def page_mb(wildcards, attempt):
    """Of jobs that read all ranks and every matrix, one after the other."""
    both = memory.ranks_job_mb(used_dataset(wildcards), study(wildcards), RESULTS) - memory.BASE_MB
    return matrix_mb(wildcards, attempt) + attempt * both


def vectors_mb(wildcards, attempt):
    """Of jobs that encode for several studies: the most that one of them says."""
    return attempt * encoding_resource(wildcards, "mem_mb")
