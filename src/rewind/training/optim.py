"""Optimisers with CLIP4Clip's four parameter groups, and their warm-up and cosine schedules."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from rewind.errors import RewindError
from rewind.models.retriever import Retriever
from rewind.study import Training
from rewind.training.bert_adam import BertAdam, bert_lr_factor, decayed


def parameter_groups(retriever: Retriever, keys: Training) -> list[dict[str, Any]]:
    """{pretrained towers, new parameters} × {decayed, not decayed}.

    Pretrained towers learn at ``lr · backbone_lr_multiplier``, new parameters at ``lr``. Under ``adamw`` matrices are
    decayed; biases, norms and the logit scale are not. Under ``bert_adam`` the names decide, as upstream's do: all
    but biases is decayed, the weights of norms and the logit scale too (upstream means to spare them, but CLIP's names
    do not match its rule).
    """
    backbone = retriever.backbone
    pretrained: set[int] = set()
    if backbone is not None:
        pretrained = {id(p) for p in [*backbone.visual_parameters(), *backbone.text_parameters(), backbone.logit_scale]}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in retriever.named_parameters():
        if parameter.requires_grad:
            decay = decayed(name) if keys.optimiser == "bert_adam" else parameter.ndim > 1
            groups.setdefault((id(parameter) in pretrained, decay), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": keys.lr * (keys.backbone_lr_multiplier if old else 1.0),
            "weight_decay": keys.weight_decay if decay else 0.0,
        }
        for (old, decay), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]


def freeze_layers(retriever: Retriever, count: int | None) -> None:
    """Stop gradients into the embeddings and first ``count`` blocks of both towers; None leaves all as it is.

    Raises:
        RewindError: if the backbone has no such blocks, or fewer of them.
    """
    if count is None:
        return
    if retriever.backbone is None:
        raise RewindError(
            f"training.freeze_layers: {type(retriever).__name__} has no towers with transformer blocks to freeze; "
            "remove the key."
        )
    retriever.backbone.freeze_layers(count)


def make_optimiser(
    retriever: Retriever, keys: Training, steps: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Optimiser and schedule for a run of ``steps`` steps; what ``freeze_layers`` names is frozen first.

    A retriever's own ``parameter_groups(keys)`` takes the place of :func:`parameter_groups`. AdamW is fused into one
    kernel where all parameters are on a GPU, so move the retriever there before.
    """
    freeze_layers(retriever, keys.freeze_layers)
    groups = retriever.parameter_groups(keys) or parameter_groups(retriever, keys)
    bert = keys.optimiser == "bert_adam"
    # On the CPU the plain kernel stays: the fused one rounds otherwise.
    fused = {} if bert or not all(p.is_cuda for group in groups for p in group["params"]) else {"fused": True}
    optimiser = (BertAdam if bert else torch.optim.AdamW)(groups, betas=keys.betas, eps=keys.eps, **fused)

    def factor(step: int) -> float:
        if bert:
            return bert_lr_factor(step, steps, keys.warmup)
        return lr_factor(step, steps, keys.warmup, keys.lr_floor, keys.warmup_from == "zero")

    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, factor)


def lr_factor(step: int, steps: int, warmup: float, floor: float = 0.0, from_zero: bool = False) -> float:
    """Linear to 1 over the first ``warmup`` share of the steps, then half a cosine down to ``floor``.

    The first step has a rate near 0, or with ``from_zero`` exactly 0.
    """
    rising = warmup * steps
    if step < rising:
        return step / rising if from_zero else (step + 1) / (rising + 1)
    falling = 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))
    return floor + (1 - floor) * falling
