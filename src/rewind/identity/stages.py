"""The jobs of the workflow: which function does each, and what counts as its code.

A rule runs the function that bears its name (:mod:`rewind.jobs.runner`), the first root of its line here. All that
roots reach by name counts with them (:mod:`rewind.identity.follow`). Keys are no code: their values are parameters of
rules. What a study chooses by a string (a head, a loss, a data format) is named by the rule, see
``workflow/rules/identity.smk``. A test runs the stages and fails where code ran that no line covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

NEVER = frozenset(
    {
        "rewind.errors",  # messages for people
        "rewind.console",  # likewise, as a terminal may show them
        "rewind.trouble",  # likewise, of the machine; and that a file is whole
        "rewind.files:atomic",  # where a file is put, not what is in it
        "rewind.progress",  # lines on the console
        "rewind.provenance",  # what ran, and where: recorded beside results, never in them
        "rewind.command",  # what the user typed
        "rewind.machine",  # names of processors
        "rewind.devices",  # which GPU is free
        "rewind.packaged",  # where the workflow is installed
        "rewind.programs",  # where a program is installed
        "rewind.compat",  # how packages are imported
        "rewind.study.keys",  # how keys are declared and refused
        "rewind.study.load",  # how files of keys are read
        "rewind.study.yaml_file",  # likewise
        "rewind.study.rules",  # which keys are refused together
        "rewind.study.together",  # refuses a study, or lets it go on as it is
        "rewind.jobs.splits",  # refuses a run, or lets it go on as it is
        "rewind.datasets.rtime:has_groups",  # which jobs there are, not what they compute
        "rewind.datasets.shapes:has_groups",  # likewise
        "rewind.datasets.table:has_groups",  # likewise
        "rewind.video.folding",  # likewise, a data set
        "rewind.video.clip_checks",  # refuses a file, or lets it be read
        "rewind.video.row_checksums",  # refuses a row of a frame store, or gives it as it is
        "rewind.jobs.launch",  # starts processes; what they do together is rewind.distributed
        "rewind.training.places",  # where a state lies, not what is in it
        "rewind.jobs.training_job:state_path",  # likewise
        "rewind.jobs.given",  # what a job is given, as plain values
        "rewind.jobs.runner",  # finds the function of a rule
        "rewind.jobs.seals",  # refuses inputs, or lets a job go on as it is
        "rewind.jobs.structure",  # likewise
        "rewind.jobs.train:_record",  # run.json, around the scores
        "rewind.jobs.drafts",  # removes what killed processes left
        "rewind.jobs.session",  # logs, leases and messages of a job
        "rewind.jobs.numerics:keep_memory",  # speed alone
        "rewind.identity.marks",  # this
    }
)
"""Modules, and functions of modules, that compute nothing: no result depends on them."""

HEADS = "rewind.models.heads:HEADS"
VALIDATION = ("rewind.jobs.zero_shot:validation_task", "rewind.jobs.zero_shot:validation_file")
CLIP, IMAGE = "rewind.video.transcode:transcode", "rewind.video.images:normalise_image"
_SETTLED = "rewind.jobs.numerics:settle"  # called by the session around a job that computes with torch
_METHOD = "rewind.study.model:Method"  # a study hands its methods on: nobody names their class


@dataclass(frozen=True)
class Stage:
    """Roots of a stage's code, and why it is these."""

    roots: tuple[str, ...]
    why: str


RULES: Mapping[str, Stage] = {
    # Data
    "sources": Stage(("rewind.jobs.videos:sources",), "calls the data format, which makes or fetches the files"),
    "inventory": Stage(("rewind.jobs.videos:inventory",), "reads annotations and pairs them with files"),
    "video_shard": Stage(("rewind.jobs.videos:video_shard",), "makes clips or images, whichever the data set holds"),
    "videos": Stage(("rewind.jobs.videos:videos",), "joins the shards' reports"),
    "vector_report": Stage(("rewind.jobs.videos:vector_report",), "reports vectors as usable items"),
    "captions": Stage(("rewind.jobs.videos:captions",), "writes items.csv and the captions of every split"),
    "encode_dataset": Stage(
        ("rewind.jobs.encode_dataset:encode_dataset", "rewind.models.clip", _SETTLED),
        "encodes; `clip` is found by its name",
    ),
    "frames": Stage(("rewind.jobs.frames:frames",), "decodes clips and lays frames out in shards"),
    "encode_vectors": Stage(
        ("rewind.jobs.encode_vectors:encode_vectors", _SETTLED), "encodes with a model by name, which the rule names"
    ),
    # Models
    "sanity": Stage(("rewind.jobs.sanity:sanity", _SETTLED), "trains on a handful, as a run is trained"),
    "train": Stage(("rewind.jobs.train:train", _SETTLED), "feeds, steps, validates, and keeps the best weights"),
    "sweep": Stage(("rewind.jobs.sweep:sweep",), "chooses by validation scores"),
    "features": Stage(("rewind.jobs.features:features", _SETTLED), "runs frozen towers over all items"),
    "similarity": Stage(("rewind.jobs.similarity:similarity", _SETTLED), "scores all pairs with a run's model"),
    "cosines": Stage(("rewind.jobs.cosine_gap:cosines", _SETTLED), "cosines of pairs with a run's model"),
    "zero_shot": Stage(("rewind.jobs.zero_shot:zero_shot", _SETTLED), "classifies images with a run's model"),
    "export_vectors": Stage(("rewind.jobs.export_vectors:export_vectors", _SETTLED), "vectors of a run's model"),
    "submission": Stage(("rewind.jobs.submission:submission", _SETTLED), "vectors of a run's model, as a file"),
    "efficiency": Stage(("rewind.jobs.efficiency:efficiency", _SETTLED), "what it times is what it runs"),
    "step_time": Stage(("rewind.jobs.step_time:step_time", _SETTLED), "what it times is a training step"),
    # Numbers
    "ranks": Stage(("rewind.jobs.metrics:ranks",), "ranks and metrics from a run's similarities"),
    "metrics": Stage(("rewind.jobs.metrics:metrics",), "joins the runs' metrics"),
    "trec": Stage(("rewind.jobs.trec:trec",), "the same as files for other tools"),
    "statistics": Stage(("rewind.jobs.statistics:statistics",), "intervals, tests and gaps from ranks"),
    "groups": Stage(("rewind.jobs.groups:groups",), "writes which group each test caption is in"),
    "group_results": Stage(("rewind.jobs.groups:group_results",), "computes intervals and tests of every group"),
    "group_figure": Stage(("rewind.jobs.group_figure:group_figure",), "draws results by group"),
    "control": Stage(("rewind.jobs.statistics:control",), "gaps between methods from ranks"),
    "cosine_gap": Stage(("rewind.jobs.cosine_gap:cosine_gap",), "gaps of cosines, their intervals and tests"),
    "zero_shot_table": Stage(("rewind.jobs.zero_shot:zero_shot_table",), "accuracies and their intervals"),
    "batches": Stage(("rewind.jobs.batches:batches",), "what batches were, drawn"),
    # What people read
    "tables": Stage(("rewind.jobs.tables:tables", _METHOD), "words count here: they are the output"),
    "figures": Stage(("rewind.jobs.figures:figures", _METHOD), "draws what tables say"),
    "cosine_gap_figure": Stage(("rewind.jobs.cosine_gap_report:cosine_gap_figure",), "draws cosines"),
    "examples": Stage(("rewind.jobs.examples:examples",), "draws what one run found"),
    "page": Stage(("rewind.jobs.page:page", _METHOD), "writes the page; its assets are a parameter"),
}
"""Name of a rule → its code; the first root is the function that is run."""

PARTS: Mapping[str, Stage] = {
    "clip": Stage((CLIP,), "what makes a clip: other edits of the stage keep clips that are there"),
    "image": Stage((IMAGE,), "what makes an image, likewise"),
    "frame": Stage(("rewind.video.frames",), "what decides the pixels of a stored frame"),
    "gallery": Stage(
        ("rewind.search.gallery:encode_items", "rewind.feeding.folder:DataFolder"),
        "what makes the features of a search index",
    ),
}
"""Parts of stages that mark what can be resumed or kept."""

STAGES: Mapping[str, Stage] = {**RULES, **PARTS}


def job_named(rule: str) -> str:
    """The entry of ``RULES`` that a rule bears the name of, without a module's prefix; nothing if there is none."""
    while rule and rule not in RULES:
        rule = rule.partition("_")[2]
    return rule


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
