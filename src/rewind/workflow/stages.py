"""The stages of the workflow: which function runs each, and from which roots its code hash is computed.

A rule runs the function that bears its name (:mod:`rewind.workflow.runner`), the first root of its line here. All code
that the roots reach by name is part of the hash (:mod:`rewind.workflow.code_hash`). Configuration values are no code:
they are parameters of rules. What a study chooses by a string (a head, a loss, a data format) is named by the rule, see
``workflow/rules/identity.smk``. A test runs the stages and fails where code ran that no line covers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rewind.workflow.normalise import CHECKS_OF_CLIPS, CHECKS_OF_ROWS

NON_SEMANTIC = (
    frozenset(
        {
            "rewind.errors",  # messages for people, as a terminal may show them
            "rewind.system_errors",  # messages about faults of the machine, and checks that a file is whole
            "rewind.io.files:atomic_write",  # where a file is put, not what is in it
            "rewind.progress",  # lines on the console
            "rewind.provenance",  # what ran, where, and what was typed: recorded beside results, never in them
            "rewind.platform",  # names of processors, where a program is installed
            "rewind.gpu",  # which GPU is free
            "rewind.packaged",  # where the workflow is installed
            "rewind.optional_packages",  # how packages are imported
            "rewind.registry",  # where code is that a study names; the rule names that code
            "rewind.config.base",  # how keys are declared and refused
            "rewind.config.load",  # how configuration files are read
            "rewind.config.checks",  # refuses a study, or lets it pass unchanged
            "rewind.workflow.preflight.splits",  # refuses a run, or lets it pass unchanged
            "rewind.data.formats.rtime:has_groups",  # which jobs there are, not what they compute
            "rewind.data.formats.shapes:has_groups",  # likewise
            "rewind.data.formats.table:has_groups",  # likewise
            "rewind.workflow.launch",  # starts processes; what they do together is rewind.distributed
            "rewind.training.checkpoint_store",  # where a training state is stored, not what is in it
            "rewind.jobs.train:_run_record",  # run.json, around the scores
            "rewind.workflow.job",  # files and parameters of a job as plain values; its log, leases and messages
            "rewind.workflow.runner",  # finds the function of a rule
            "rewind.workflow.checksums",  # refuses inputs, or lets a job go on unchanged
            "rewind.workflow.temporary_files",  # removes what killed processes left behind
            "rewind.workflow.torch_setup:keep_freed_memory",  # speed alone
            "rewind.workflow.code_hash",  # computes these hashes
        }
    )
    | CHECKS_OF_CLIPS
    | CHECKS_OF_ROWS
    | {  # which keys are refused together
        f"rewind.config.study:{name}"
        for name in (
            "study_faults",
            "_named_method_faults",
            "_pair_faults",
            "_unknown_method",
            "_training_faults",
            "_fixed_model_faults",
            "_precomputed_faults",
            "_column_faults",
            "_text_faults",
        )
    }
    | {  # a data set is refused, or goes on as it is
        f"rewind.video.sources:{name}"
        for name in ("ignores_case", "ignores_unicode_form", "refuse_name_clashes", "_are_one_file")
    }
)
"""Modules, and functions of modules, that compute nothing: no result depends on them."""

HEADS_TABLE = "rewind.models.heads:HEADS"
ZERO_SHOT_VALIDATION = ("rewind.jobs.zero_shot:validation_task", "rewind.jobs.zero_shot:validation_file")
TRANSCODE_CLIP, NORMALISE_IMAGE = "rewind.video.transcode:transcode_clip", "rewind.video.images:normalise_image"
# Called by the session around a job that computes with torch.
_TORCH_SETUP = "rewind.workflow.torch_setup:set_deterministic"
# Methods come as attributes of a study, so no function names their class.
_METHOD_CLASS = "rewind.config.study:Method"


@dataclass(frozen=True)
class Stage:
    """The roots of a stage's code, and why these.

    >>> RULES["train"].roots[0]
    'rewind.jobs.train:train'
    """

    roots: tuple[str, ...]
    why: str


RULES: Mapping[str, Stage] = {
    # Data
    "sources": Stage(("rewind.jobs.data:sources",), "calls the data format, which makes or fetches the files"),
    "inventory": Stage(("rewind.jobs.data:inventory",), "reads annotations and pairs them with files"),
    "video_shard": Stage(("rewind.jobs.data:video_shard",), "makes clips or images, whichever the data set holds"),
    "videos": Stage(("rewind.jobs.data:videos",), "joins the shards' reports"),
    "vector_report": Stage(("rewind.jobs.data:vector_report",), "reports vectors as usable items"),
    "captions": Stage(("rewind.jobs.data:captions",), "writes items.csv and the captions of every split"),
    "encode_dataset": Stage(
        ("rewind.jobs.encode_dataset:encode_dataset", "rewind.models.clip", _TORCH_SETUP),
        "encodes; `clip` is found by its name",
    ),
    "frames": Stage(("rewind.jobs.frames:frames",), "decodes clips and lays frames out in shards"),
    "encode_vectors": Stage(
        ("rewind.jobs.encode_vectors:encode_vectors", _TORCH_SETUP),
        "encodes with a model by name, which the rule names",
    ),
    # Models
    "sanity": Stage(("rewind.jobs.train:sanity", _TORCH_SETUP), "trains on a handful, as a run is trained"),
    "train": Stage(("rewind.jobs.train:train", _TORCH_SETUP), "feeds, steps, validates, and keeps the best weights"),
    "sweep": Stage(("rewind.jobs.sweep:sweep",), "chooses by validation scores"),
    "features": Stage(("rewind.jobs.similarity:features", _TORCH_SETUP), "runs frozen towers over all items"),
    "similarity": Stage(("rewind.jobs.similarity:similarity", _TORCH_SETUP), "scores all pairs with a run's model"),
    "cosines": Stage(("rewind.jobs.cosine_gap:cosines", _TORCH_SETUP), "cosines of pairs with a run's model"),
    "zero_shot": Stage(("rewind.jobs.zero_shot:zero_shot", _TORCH_SETUP), "classifies images with a run's model"),
    "export_vectors": Stage(("rewind.jobs.similarity:export_vectors", _TORCH_SETUP), "vectors of a run's model"),
    "submission": Stage(("rewind.jobs.submission:submission", _TORCH_SETUP), "vectors of a run's model, as a file"),
    "efficiency": Stage(("rewind.jobs.efficiency:efficiency", _TORCH_SETUP), "what it times is what it runs"),
    "step_time": Stage(("rewind.jobs.efficiency:step_time", _TORCH_SETUP), "what it times is a training step"),
    # Numbers
    "ranks": Stage(("rewind.jobs.metrics:ranks",), "ranks and metrics from a run's similarities"),
    "metrics": Stage(("rewind.jobs.metrics:metrics",), "joins the runs' metrics"),
    "trec": Stage(("rewind.jobs.trec:trec",), "the same as files for other tools"),
    "statistics": Stage(("rewind.jobs.statistics:statistics",), "intervals, tests and gaps from ranks"),
    "groups": Stage(("rewind.jobs.statistics:groups",), "writes which group each test caption is in"),
    "group_results": Stage(("rewind.jobs.statistics:group_results",), "computes intervals and tests of every group"),
    "group_figure": Stage(("rewind.jobs.report:group_figure",), "draws results by group"),
    "control": Stage(("rewind.jobs.statistics:control",), "gaps between methods from ranks"),
    "cosine_gap": Stage(("rewind.jobs.cosine_gap:cosine_gap",), "gaps of cosines, their intervals and tests"),
    "zero_shot_table": Stage(("rewind.jobs.zero_shot:zero_shot_table",), "accuracies and their intervals"),
    "batches": Stage(("rewind.jobs.batches:batches",), "what batches were, drawn"),
    # What people read
    "tables": Stage(("rewind.jobs.report:tables", _METHOD_CLASS), "words count here: they are the output"),
    "figures": Stage(("rewind.jobs.report:figures", _METHOD_CLASS), "draws what tables say"),
    "cosine_gap_figure": Stage(("rewind.jobs.report:cosine_gap_figure",), "draws cosines"),
    "examples": Stage(("rewind.jobs.examples:examples",), "draws what one run found"),
    "page": Stage(("rewind.jobs.page:page", _METHOD_CLASS), "writes the page; its assets are a parameter"),
}
"""Name of a rule → its stage; the first root is the function that is run."""

SUB_STAGES: Mapping[str, Stage] = {
    "clip": Stage((TRANSCODE_CLIP,), "what makes a clip: other edits of the stage keep clips that are there"),
    "image": Stage((NORMALISE_IMAGE,), "what makes an image, likewise"),
    "frame": Stage(("rewind.video.frames",), "what decides the pixels of a stored frame"),
    "gallery": Stage(
        ("rewind.search.searcher:encode_items", "rewind.loading.run_data:RunData"),
        "what makes the features of a search index",
    ),
}
"""Parts of stages with a hash of their own, which says what can be resumed or kept after other edits of the stage."""

STAGES: Mapping[str, Stage] = {**RULES, **SUB_STAGES}


def strip_rule_prefix(rule: str) -> str:
    """Name in :data:`RULES` of a rule, whose name may have the prefix of a Snakemake module; empty if there is none.

    >>> strip_rule_prefix("rewind_cosine_gap_figure"), strip_rule_prefix("mine")
    ('cosine_gap_figure', '')
    """
    while rule and rule not in RULES:
        rule = rule.partition("_")[2]
    return rule


def dynamic_dependencies(
    heads: Iterable[str] | None = None, zero_shot: bool = False, items: str = ""
) -> dict[str, tuple[str, ...]]:
    """Name of code that depends on a string or a key → the roots that stand for it in a code hash.

    Args:
        heads: the temporal heads that are looked up in ``HEADS``; None: any may be.
        zero_shot: whether validation also classifies images.
        items: ``videos`` or ``images`` where only one of them is made.

    >>> dynamic_dependencies(["meanP"], zero_shot=True)
    {'rewind.models.heads:HEADS': ('rewind.models.heads:HEADS[meanP]',)}
    """
    replacements: dict[str, tuple[str, ...]] = {}
    if heads is not None:
        replacements[HEADS_TABLE] = tuple(f"{HEADS_TABLE}[{head}]" for head in heads)
    if not zero_shot:
        replacements |= dict.fromkeys(ZERO_SHOT_VALIDATION, ())
    if items:
        replacements[TRANSCODE_CLIP if items == "images" else NORMALISE_IMAGE] = ()
    return replacements
