"""Scores on validation: what chooses checkpoints and the sweep's value. Test data are never looked at here."""

from __future__ import annotations

import torch

from rewind.distributed import ALONE, World
from rewind.evaluation.ranking import RECALLS, rank_table, scores
from rewind.evaluation.similarity import similarity_matrix
from rewind.evaluation.zero_shot import ZeroShotTask
from rewind.feeding.folder import Prepared
from rewind.models.retriever import Retriever
from rewind.study.model import Evaluation
from rewind.training.loop import Validate

FORWARD, BACKWARD = "text_to_item", "item_to_text"


def validator(
    split: Prepared,
    setting: str,
    keys: Evaluation,
    device: torch.device,
    world: World = ALONE,
    workers: int = 0,
    zero_shot: ZeroShotTask | None = None,
) -> Validate:
    """A function from model to scores of text→item search: ``valid_R@k``, ``valid_MdR``, …, ``valid_sum`` = R@1 + R@5 +
    R@10; of item→text search, ``valid_item_to_text R@k``; and of both, ``valid_mean R@1``.

    ``setting`` ``auto`` is hard where the split has twins, else test. With ``zero_shot`` also ``zs_cifar10``, percent,
    which chooses nothing. All processes of ``world`` call it together.
    """
    if setting == "auto":
        setting = "hard" if (split.items["reversed"] == 1).any() else "test"

    def validate(retriever: Retriever) -> dict[str, float]:
        similarity = similarity_matrix(retriever, split.text, split.inputs, keys, device, world, workers)
        ranks = rank_table(similarity, split.captions, split.items, [setting], [FORWARD, BACKWARD], "validation")
        row, back = (scores(ranks[ranks["direction"] == direction]) for direction in (FORWARD, BACKWARD))
        shown = {f"valid_{name}": score for name, score in row.items()}
        shown |= {f"valid_{BACKWARD} {name}": back[name] for name in RECALLS}
        shown["valid_mean R@1"] = (row["R@1"] + back["R@1"]) / 2
        if zero_shot is not None:
            shown["zs_cifar10"] = zero_shot.accuracy(retriever, device, world, workers)
        return {"valid_sum": sum(row[name] for name in RECALLS)} | shown

    return validate
