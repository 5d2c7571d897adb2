"""Scores on validation: what chooses checkpoints and the sweep's value. Test data are never looked at here."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from rewind.distributed import ALONE, World
from rewind.evaluation.ranking import RECALLS, rank_table, scores
from rewind.evaluation.similarity import similarity_matrix
from rewind.evaluation.zero_shot import ZeroShotTask
from rewind.feeding.folder import Prepared
from rewind.models.retriever import Retriever
from rewind.objectives.interface import same_items
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
    batch_size: int = 128,
) -> Validate:
    """A function from model to scores.

    Of text→item search: ``valid_R@k``, ``valid_MdR``, ``valid_P75`` (the rank that three quarters of the captions
    reach), …, ``valid_sum`` = R@1 + R@5 + R@10; of item→text search, ``valid_item_to_text R@k``; of both, ``valid_mean
    R@1``; and ``valid_loss``, see :func:`own_loss`.

    ``setting`` ``auto`` is hard where the split has twins, else test. With ``zero_shot`` also ``zs_cifar10``, percent,
    which chooses nothing. All processes of ``world`` call it together.
    """
    if setting == "auto":
        setting = "hard" if (split.items["reversed"] == 1).any() else "test"

    place = {item: row for row, item in enumerate(split.items["item_id"])}
    item_of_caption = np.array([place[item] for item in split.captions["video_id"]])

    def validate(retriever: Retriever) -> dict[str, float]:
        similarity = similarity_matrix(retriever, split.text, split.inputs, keys, device, world, workers)
        ranks = rank_table(similarity, split.captions, split.items, [setting], [FORWARD, BACKWARD], "validation")
        row, back = (scores(ranks[ranks["direction"] == direction]) for direction in (FORWARD, BACKWARD))
        shown = {f"valid_{name}": score for name, score in row.items()}
        shown["valid_P75"] = float(np.percentile(ranks.loc[ranks["direction"] == FORWARD, "rank"], 75))
        shown |= {f"valid_{BACKWARD} {name}": back[name] for name in RECALLS}
        shown["valid_mean R@1"] = (row["R@1"] + back["R@1"]) / 2
        shown["valid_loss"] = own_loss(similarity, item_of_caption, batch_size)
        if zero_shot is not None:
            shown["zs_cifar10"] = zero_shot.accuracy(retriever, device, world, workers)
        return {"valid_sum": sum(row[name] for name in RECALLS)} | shown

    return validate


def own_loss(similarity: np.ndarray, item_of_caption: np.ndarray, size: int) -> float:
    """InfoNCE of a model's own scores: the same quantity whatever loss trains it.

    Captions are taken in their order, ``size`` at a time, each with its item; the mean over batches counts each by its
    captions. Another caption of the same item is no negative.

    Args:
        similarity: (n, m) logits.
        item_of_caption: (n,) column of each caption's item.
        size: captions of a batch; of fewer than two nothing can be said, and they are left out.
    """
    total = count = 0.0
    for top in range(0, len(similarity), size):
        rows = np.arange(top, min(top + size, len(similarity)))
        if len(rows) < 2:
            continue
        items = torch.from_numpy(item_of_caption[rows])
        logits = torch.from_numpy(similarity[np.ix_(rows, item_of_caption[rows])]).double()
        logits = logits.masked_fill(same_items(items), -torch.inf)
        truth = torch.arange(len(rows))
        total += len(rows) * float(F.cross_entropy(logits, truth) + F.cross_entropy(logits.T, truth)) / 2
        count += len(rows)
    return total / count if count else float("nan")
