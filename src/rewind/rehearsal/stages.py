"""The stages of a study in the order in which they run, and what the time of each grows with.

One line per rule of the workflow: a rule without a line is counted as one job of the size that it had.
"""

from __future__ import annotations

from typing import NamedTuple

from rewind.rehearsal.data import Counts
from rewind.study import Dataset

ZERO_SHOT_IMAGES = 10_000
REHEARSED_IMAGES = 20
REHEARSED_ROUNDS = 5


class Stage(NamedTuple):
    """A rule.

    Attributes:
        level: rules of a lower level have ended before; those of one level run side by side.
        grows: quantity (see :func:`quantities`) that the time inside its jobs follows; empty: it stays.
        per_run: whether there is a job for every run.
        per_pretraining: whether there are jobs for every pre-training of a study that has any.
        trains: whether its jobs step as training does.
    """

    level: int
    grows: str = ""
    per_run: bool = False
    trains: bool = False
    per_pretraining: bool = False


STAGES = {
    "sources": Stage(0, "originals"),
    "inventory": Stage(1),
    "video_shard": Stage(2, "originals"),
    "videos": Stage(3),
    "encode_dataset": Stage(5, "items"),
    "vectors": Stage(6, "items"),
    "vector_report": Stage(7),
    "captions": Stage(8),
    "frames": Stage(9, "frames"),
    "encode_vectors": Stage(9, "test"),
    "sanity": Stage(10, trains=True),
    "pretrain": Stage(11, trains=True, per_pretraining=True),
    "features": Stage(12, "frames", per_pretraining=True),
    "sweep_trial": Stage(13, trains=True),
    "sweep": Stage(14),
    "train": Stage(15, per_run=True, trains=True),
    "step_time": Stage(16, "rounds"),
    "similarity": Stage(17, "test", per_run=True),
    "cosines": Stage(17, "valid_test", per_run=True),
    "zero_shot": Stage(17, "labelled", per_run=True),
    "export_vectors": Stage(17, "test"),
    "submission": Stage(17),
    "ranks": Stage(18, "pairs", per_run=True),
    "metrics": Stage(18),
    "cosine_gap": Stage(18),
    "zero_shot_table": Stage(18),
    "trec": Stage(18, "pairs"),
    "efficiency": Stage(18),
    "groups": Stage(18),
    "statistics": Stage(19, "test"),
    "group_results": Stage(19, "test"),
    "control": Stage(19, "test"),
    "batches": Stage(19),
    "cosine_gap_figure": Stage(19),
    "figures": Stage(20),
    "group_figure": Stage(20),
    "examples": Stage(20),
    "tables": Stage(20),
    "page": Stage(21, "test"),
}
ON_REQUEST = ("trec", "submission", "efficiency")  # walked in a rehearsal, no part of a study otherwise
LAST = max(stage.level for stage in STAGES.values())


def stage_of(rule: str) -> Stage:
    """The line of a rule."""
    return STAGES.get(rule, Stage(LAST))


def quantities(counts: Counts, frames: int, labelled: int, rounds: int) -> dict[str, float]:
    """What stages grow with, of a data set of these sizes."""
    items = sum(counts.items.values())
    valid, test = counts.items.get("valid", 0), counts.items.get("test", 0)
    return {
        "originals": counts.originals,
        "items": items,
        "frames": items * frames,
        "test": test,
        "valid_test": valid + test,
        "pairs": test * counts.captions.get("test", 0),
        "labelled": labelled,
        "rounds": rounds,
    }


def jobs_of(rule: str, dataset: Dataset, rehearsed: int) -> int:
    """Jobs of a rule in the whole study, where they are not counted by runs."""
    if rule == "video_shard":
        return dataset.media.shards
    return rehearsed
