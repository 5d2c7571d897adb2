"""What counts as the code of each stage: one line per script of the workflow.

Roots are the functions that make a stage's output; all that they reach by name counts with them
(:mod:`rewind.identity.follow`). Keys are no code: their values are parameters of rules. What a study chooses by a
string (a head, a loss, a data format) is named by the rule, see ``workflow/rules/identity.smk``. A test runs the stages
and fails where code ran that no line covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NEVER = frozenset(
    {
        "rewind.errors",  # messages for people
        "rewind.progress",  # lines on the console
        "rewind.provenance",  # what ran, and where: recorded beside results, never in them
        "rewind.command",  # what the user typed
        "rewind.machine",  # names of processors
        "rewind.devices",  # which GPU is free
        "rewind.programs",  # where a program is installed
        "rewind.compat",  # how packages are imported
        "rewind.study.keys",  # how keys are declared and refused
        "rewind.study.load",  # how files of keys are read
        "rewind.study.rules",  # which keys are refused together
        "rewind.study.together",  # refuses a study, or lets it go on as it is
        "rewind.jobs.splits",  # refuses a run, or lets it go on as it is
        "rewind.jobs.launch",  # starts processes; what they do together is rewind.distributed
        "rewind.jobs.runs:_record",  # run.json, around the scores
        "rewind.jobs.session",  # logs, leases and messages of a job
        "rewind.jobs.numerics:keep_memory",  # speed alone
        "rewind.identity.marks",  # this
    }
)
"""Modules, and functions of modules, that compute nothing: no result depends on them."""

HEADS = "rewind.models.temporal:HEADS"
VALIDATION = ("rewind.jobs.zero_shot:validation_task", "rewind.jobs.zero_shot:validation_file")
CLIP, IMAGE = "rewind.video.transcode:transcode", "rewind.video.images:normalise_image"
_TRAINING = ("rewind.jobs.script:training_job", "rewind.jobs.numerics:settle")
_DATA = ("rewind.jobs.script:data_folder", "rewind.jobs.numerics:settle")
# Scripts hand these on as objects: of classes that read keys their methods count alone.
_DATASET, _STUDY, _METHOD = "rewind.study.dataset:Dataset", "rewind.study.model:Study", "rewind.study.model:Method"
_REPORT = ("rewind.jobs.report:report_files", "rewind.jobs.report:runs_of", _STUDY, _METHOD, _DATASET)


@dataclass(frozen=True)
class Stage:
    """Roots of a stage's code, and why it is these."""

    roots: tuple[str, ...]
    why: str


STAGES: Mapping[str, Stage] = {
    # Data
    "sources": Stage(
        ("rewind.jobs.videos:make_sources", _DATASET), "calls the data format, which makes or fetches the files"
    ),
    "inventory": Stage(("rewind.jobs.videos:make_inventory", _DATASET), "reads annotations and pairs them with files"),
    "video_shard": Stage(("rewind.jobs.videos:make_shard",), "makes clips or images, whichever the data set holds"),
    "videos": Stage(("rewind.jobs.videos:join_reports",), "joins the shards' reports"),
    "vector_report": Stage(("rewind.jobs.videos:report_vectors", _DATASET), "reports vectors as usable items"),
    "captions": Stage(
        ("rewind.jobs.videos:make_captions", _DATASET), "writes items.csv and the captions of every split"
    ),
    "embed": Stage(("rewind.jobs.embed:make_vectors", "rewind.models.clip"), "encodes; `clip` is found by its name"),
    "frames": Stage(("rewind.jobs.frames:make_store",), "decodes clips and lays frames out in shards"),
    # Models
    "sanity": Stage(("rewind.jobs.sanity:sanity_check", *_TRAINING), "trains on a handful, as a run is trained"),
    "train": Stage(("rewind.jobs.runs:train_run", *_TRAINING), "feeds, steps, validates, and keeps the best weights"),
    "sweep": Stage(("rewind.jobs.sweep:choose_frames",), "chooses by validation scores"),
    "features": Stage(("rewind.jobs.features:compute_features", *_DATA), "runs frozen towers over all items"),
    "similarity": Stage(("rewind.jobs.similarity:compute_similarity", *_DATA), "scores all pairs with a run's model"),
    "cosines": Stage(("rewind.jobs.cosines:compute_cosines", *_DATA), "cosines of pairs with a run's model"),
    "zero_shot": Stage(("rewind.jobs.zero_shot:compute_zero_shot", *_DATA), "classifies images with a run's model"),
    "embedding": Stage(("rewind.jobs.embedding:compute_embedding", *_DATA), "vectors of a run's model"),
    "submission": Stage(("rewind.jobs.submission:write_submission", *_DATA), "vectors of a run's model, as a file"),
    "efficiency": Stage(("rewind.jobs.efficiency:measure_runs", *_DATA), "what it times is what it runs"),
    "step_time": Stage(
        ("rewind.jobs.step_time:measure_steps", "rewind.jobs.script:timed_jobs", "rewind.jobs.numerics:settle"),
        "what it times is a training step",
    ),
    # Numbers
    "metrics": Stage(("rewind.jobs.metrics:compute_metrics",), "ranks and metrics from similarities"),
    "trec": Stage(("rewind.jobs.trec:export",), "the same as files for other tools"),
    "statistics": Stage(("rewind.jobs.statistics:compute_statistics",), "intervals, tests and gaps from ranks"),
    "control": Stage(("rewind.jobs.control:compute_control",), "gaps between methods from ranks"),
    "cosine_gap": Stage(("rewind.jobs.cosine_gap:compute_cosine_gap",), "gaps of cosines, their intervals and tests"),
    "zero_shot_table": Stage(("rewind.jobs.zero_shot_table:join_zero_shot",), "accuracies and their intervals"),
    "batches": Stage(("rewind.jobs.batches:report_batches", _STUDY), "what batches were, drawn"),
    # What people read
    "tables": Stage(("rewind.jobs.tables:make_tables", *_REPORT), "words count here: they are the output"),
    "figures": Stage(("rewind.jobs.figures:make_figures", *_REPORT), "draws what tables say"),
    "gap_figure": Stage(
        ("rewind.jobs.gap_figure:make_gap_figure", "rewind.jobs.report:gap_files", _STUDY),
        "draws cosines",
    ),
    "examples": Stage(("rewind.jobs.examples:make_pictures",), "draws what one run found"),
    "page": Stage(("rewind.jobs.page:make_page", *_REPORT), "writes the page; its assets are a parameter"),
    # Parts of stages that mark what can be resumed or kept
    "clip": Stage((CLIP,), "what makes a clip: other edits of the stage keep clips that are there"),
    "image": Stage((IMAGE,), "what makes an image, likewise"),
    "frame": Stage(("rewind.video.frames",), "what decides the pixels of a stored frame"),
    "gallery": Stage(
        ("rewind.search.gallery:encode_items", "rewind.feeding.folder:DataFolder"),
        "what makes the features of a search index",
    ),
}


def instead(heads: Iterable[str] | None = None, zero_shot: bool = False, items: str = "") -> dict[str, tuple[str, ...]]:
    """What stands for code that a string or a key chooses at run time.

    Args:
        heads: the temporal heads that are looked up in ``HEADS``; None: any may be.
        zero_shot: whether validation also classifies images.
        items: ``videos`` or ``images`` where only one of them is made.
    """
    found: dict[str, tuple[str, ...]] = {}
    if heads is not None:
        found[HEADS] = tuple(f"{HEADS}[{head}]" for head in heads)
    if not zero_shot:
        found |= dict.fromkeys(VALIDATION, ())
    if items:
        found[CLIP if items == "images" else IMAGE] = ()
    return found
