"""AdamW with CLIP4Clip's four parameter groups, and its warm-up and cosine schedule."""

from __future__ import annotations

import math

import torch
from torch import nn

from rewind.models.retriever import Retriever
from rewind.study import Training


def parameter_groups(retriever: Retriever, keys: Training) -> list[dict]:
    """{pretrained towers, new parameters} × {decayed, not decayed}.

    Pretrained towers learn at ``lr · backbone_lr_multiplier``, new parameters at ``lr``. Matrices are decayed; biases,
    norms and the logit scale are not (upstream means to spare them too, but its names do not match its rule).
    """
    backbone = getattr(retriever, "backbone", None)
    pretrained: set[int] = set()
    if backbone is not None:
        pretrained = {id(p) for p in [*backbone.visual_parameters(), *backbone.text_parameters(), backbone.logit_scale]}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for parameter in retriever.parameters():
        if parameter.requires_grad:
            groups.setdefault((id(parameter) in pretrained, parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": keys.lr * (keys.backbone_lr_multiplier if old else 1.0),
            "weight_decay": keys.weight_decay if decayed else 0.0,
        }
        for (old, decayed), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]


def make_optimiser(
    retriever: Retriever, keys: Training, steps: int
) -> tuple[torch.optim.AdamW, torch.optim.lr_scheduler.LambdaLR]:
    """Optimiser and schedule for a run of ``steps`` steps."""
    optimiser = torch.optim.AdamW(parameter_groups(retriever, keys), betas=keys.betas, eps=keys.eps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: lr_factor(step, steps, keys.warmup))
    return optimiser, schedule


def lr_factor(step: int, steps: int, warmup: float) -> float:
    """Linear from near 0 to 1 over the first ``warmup`` share of the steps, then half a cosine down to 0."""
    rising = warmup * steps
    if step < rising:
        return (step + 1) / (rising + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))
