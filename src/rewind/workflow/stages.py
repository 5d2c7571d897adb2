"""The stages of the workflow: the order of rules, what their time grows with, and the code that counts as theirs.

All code that a rule's script reaches by name is part of its hash (:mod:`rewind.workflow.staleness.code_hash`). Values
of keys are not code: they are parameters of rules. What a study chooses by a string (a head, a loss, a data format) is
named by its plan (:class:`CodeDependencies`). A test runs the stages and fails where code ran that no hash covers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rewind.analyses import analysis_rules

# ---- The table of rules --------------------------------------------------------------------------------------------

ZERO_SHOT_VALIDATION = ("rewind.evaluation.zero_shot:validation_task", "rewind.evaluation.zero_shot:validation_file")
TRANSCODE_CLIP, NORMALISE_IMAGE = "rewind.video.transcode:transcode_clip", "rewind.video.images:normalise_image"
# Called around a job that computes with torch, by code that is not part of a hash.
_TORCH_SETUP = "rewind.torch_setup:set_deterministic"
# Methods come as attributes of a study, so no function names their class.
_METHOD_CLASS = "rewind.config.methods:Method"


@dataclass(frozen=True)
class Stage:
    """A rule, besides its files and parameters.

    Attributes:
        grows: the quantity that the time inside its jobs is proportional to, see ``rewind rehearse``; empty: none.
        script: the script in ``workflow/scripts`` whose code it is, if it is not named like the rule.
        function: of an analysis, ``module:function``, whose code it is: its script finds it by the rule's name.
        shows: whether it only shows numbers: it is always made again, and no table mentions its edits.

    >>> RULES["ranks"].grows, RULES["ranks"].per_run, RULES["pretrain"].script
    ('pairs', True, 'train')
    """

    level: int  # rules of a lower level finish first; rules of one level run side by side
    grows: str = ""
    script: str = ""
    function: str = ""
    roots: tuple[str, ...] = ()  # code that its script reaches by no name
    per_run: bool = False  # whether there is a job for every run
    trains: bool = False  # whether its jobs consist of training steps
    per_pretraining: bool = False  # whether there are jobs for every pre-training of a study that has any
    shows: bool = False
    on_request: bool = False  # whether it is built only on request
    metrics: bool = False  # whether its code depends on the metrics that a study provides itself


_TORCH = (_TORCH_SETUP,)

_STAGES: Mapping[str, Stage] = {
    # Data
    "sources": Stage(0, "originals"),
    "inventory": Stage(1),
    "video_shard": Stage(2, "originals"),
    "videos": Stage(3),
    "traces": Stage(4, "originals"),
    # `clip` is found by its name.
    "encode_dataset": Stage(5, "items", roots=("rewind.models.clip", *_TORCH)),
    "vectors": Stage(6, "items", script="sources"),
    "vector_report": Stage(7),
    "captions": Stage(8),
    "groups": Stage(20),
    "answers": Stage(18),
    "foils": Stage(18),
    # Features
    "frames": Stage(9, "frames"),
    "encode_vectors": Stage(9, "test", roots=_TORCH),
    "encode_foil_texts": Stage(19, "test", roots=_TORCH),
    "features": Stage(12, "frames", roots=_TORCH, per_pretraining=True),
    # Training
    "sanity": Stage(10, roots=_TORCH, trains=True),
    "pretrain": Stage(11, script="train", roots=_TORCH, trains=True, per_pretraining=True),
    "sweep_trial": Stage(13, script="train", roots=_TORCH, trains=True),
    "sweep": Stage(14),
    "trial": Stage(15, script="train", roots=_TORCH, trains=True),
    "tune": Stage(16),
    "train": Stage(17, roots=_TORCH, per_run=True, trains=True),
    # Evaluation
    "similarity": Stage(19, "test", roots=_TORCH, per_run=True),
    "rerank": Stage(20, "test", roots=_TORCH, per_run=True, metrics=True),
    "order_controls": Stage(19, "test", roots=_TORCH, per_run=True),
    "probes": Stage(20, "valid_test", roots=_TORCH, per_run=True),
    "cosines": Stage(19, "valid_test", roots=_TORCH, per_run=True),
    "zero_shot": Stage(19, "labelled", roots=_TORCH, per_run=True),
    "ranks": Stage(20, "pairs", per_run=True, metrics=True),
    "untrained_run": Stage(20, "pairs", roots=_TORCH, per_run=True, metrics=True),
    "blind_run": Stage(20, "items", roots=_TORCH, per_run=True, metrics=True),
    "metrics": Stage(20, metrics=True),
    # Statistics
    "statistics": Stage(21, "test", metrics=True),
    "step_time": Stage(18, "rounds", roots=_TORCH),
    # Report; words count here: they are the output
    "tables": Stage(22, roots=(_METHOD_CLASS,), shows=True, metrics=True),  # its templates are a parameter
    "figures": Stage(22, roots=(_METHOD_CLASS,), shows=True, metrics=True),
    "export_vectors": Stage(19, "test", roots=_TORCH),
    "examples": Stage(22, shows=True),
    "examples_of_method": Stage(22, script="examples", shows=True),
    "twin_figure": Stage(22, shows=True),
    "page": Stage(23, "test", roots=(_METHOD_CLASS,), shows=True, metrics=True),  # its assets are a parameter
    # On request
    "trec": Stage(20, "pairs", on_request=True),
    "submission": Stage(19, roots=_TORCH, on_request=True),
    "efficiency": Stage(20, roots=_TORCH, on_request=True),
}


class _Rules(Mapping[str, Stage]):
    """The stages above, and the rules of analyses, of which a study may bring its own."""

    def __getitem__(self, name: str) -> Stage:
        if name in _STAGES:
            return _STAGES[name]
        rule = analysis_rules()[name]
        return Stage(rule.level, rule.grows, "analysis", rule.function, shows=rule.shows, metrics=rule.own_metrics)

    def __iter__(self) -> Iterator[str]:
        return iter((*_STAGES, *analysis_rules()))

    def __len__(self) -> int:
        return len(_STAGES) + len(analysis_rules())


RULES: Mapping[str, Stage] = _Rules()
"""Name of a rule → its stage."""

SUB_STAGES: Mapping[str, tuple[str, ...]] = {
    "clip": (TRANSCODE_CLIP,),  # what makes a clip: other edits of the stage keep existing clips
    "image": (NORMALISE_IMAGE,),  # what makes an image, likewise
    "frame": ("rewind.video.frames",),  # what decides the pixels of a stored frame
    # What computes the features of a search index.
    "gallery": ("rewind.search.searcher:encode_items", "rewind.loading.run_data:RunData"),
}
"""Parts of stages with a hash of their own, which decides what is resumed or kept after other edits of the stage."""

LAST_LEVEL = max(stage.level for stage in _STAGES.values())


def is_display(rule: str) -> bool:
    """Whether a rule only shows numbers."""
    return rule in RULES and RULES[rule].shows


SCRIPTS = "rewind.scripts"
"""Scripts as modules: ``rewind.scripts.train`` is ``workflow/scripts/train.py``."""


def code_roots(stage: str) -> tuple[str, ...]:
    """The roots of the code of a rule or of a part of one: all of its script, and what that reaches by no name.

    >>> code_roots("pretrain")
    ('rewind.scripts.train', 'rewind.torch_setup:set_deterministic')
    """
    if stage in SUB_STAGES:
        return SUB_STAGES[stage]
    return (RULES[stage].function or f"{SCRIPTS}.{RULES[stage].script or stage}", *RULES[stage].roots)


def strip_rule_prefix(rule: str) -> str:
    """Name in :data:`RULES` of a rule, whose name may have the prefix of a Snakemake module; empty if there is none.

    >>> strip_rule_prefix("rewind_cosine_gap_figure"), strip_rule_prefix("mine")
    ('cosine_gap_figure', '')
    """
    while rule and rule not in RULES:
        rule = rule.partition("_")[2]
    return rule


@dataclass(frozen=True)
class CodeDependencies:
    """What the code of a stage depends on besides what its script names.

    >>> CodeDependencies(zero_shot=True, items="images").dynamic()
    {'rewind.video.transcode:transcode_clip': ()}
    """

    modules: Sequence[str] = ()  # found by name at run time, of the library or of the user's own
    zero_shot: bool = False  # whether validation also classifies images
    items: str = ""  # ``videos`` or ``images`` where only one of them is made
    files: Sequence[str] = ()  # their content counts as code where another took their place

    def with_files(self, files: Sequence[str]) -> CodeDependencies:
        return replace(self, files=files)

    def dynamic(self) -> dict[str, tuple[str, ...]]:
        """Name of code that depends on a string or a key → the roots that stand for it in a code hash."""
        replacements: dict[str, tuple[str, ...]] = {}
        if not self.zero_shot:
            replacements |= dict.fromkeys(ZERO_SHOT_VALIDATION, ())
        if self.items:
            replacements[TRANSCODE_CLIP if self.items == "images" else NORMALISE_IMAGE] = ()
        return replacements
