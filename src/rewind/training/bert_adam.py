"""CLIP4Clip's optimiser: Adam without bias correction, and its unshifted warm-up and cosine schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

_NOT_DECAYED = ("bias", "LayerNorm.bias", "LayerNorm.weight")


class BertAdam(torch.optim.Optimizer):
    """Adam as BERT was trained with it, after ArrowLuo/CLIP4Clip @508ffa3.

    It differs from AdamW in three ways: moments are not corrected for their start at zero, the gradient of every
    tensor is clipped to ``max_grad_norm`` on its own (besides any clipping of the global norm before), and epsilon is
    added to the root as it is. Weight decay is added to the update, so it too is scaled by the learning rate alone.

    Args:
        params: parameters, or groups of them with their own ``lr`` and ``weight_decay``.
        lr: learning rate of groups without their own; a scheduler scales it.
        betas: decay of the first and the second moment.
        eps: added to the root of the second moment.
        weight_decay: of groups without their own.
        max_grad_norm: largest norm of one tensor's gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-6,
        weight_decay: float = 0.2,
        max_grad_norm: float = 1.0,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "max_grad_norm": max_grad_norm}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient; gradients themselves are left as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[nn.Parameter], group: dict[str, Any]) -> None:
        first, second = self._moments(parameters)
        beta1, beta2 = group["betas"]
        gradients = _clipped([p.grad for p in parameters], group["max_grad_norm"])
        torch._foreach_mul_(first, beta1)
        torch._foreach_add_(first, gradients, alpha=1 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, value=1 - beta2)
        root = torch._foreach_sqrt(second)
        torch._foreach_add_(root, group["eps"])
        update = torch._foreach_div(first, root)
        if group["weight_decay"]:
            torch._foreach_add_(update, parameters, alpha=group["weight_decay"])
        torch._foreach_add_(parameters, update, alpha=-float(group["lr"]))

    def _moments(self, parameters: list[nn.Parameter]) -> tuple[list[Tensor], list[Tensor]]:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        return [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]


def _clipped(gradients: list[Tensor], max_norm: float) -> list[Tensor]:
    """Each gradient scaled to a norm of at most ``max_norm`` on its own, as ``clip_grad_norm_`` would scale it."""
    norms = torch.stack(torch._foreach_norm(gradients))
    factors = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    return [gradient * factor for gradient, factor in zip(gradients, factors.unbind(), strict=True)]


def decayed(name: str) -> bool:
    """Whether upstream decays the parameter of this name.

    Its rule spares what is called ``bias`` or ``LayerNorm``. CLIP's norms are called ``ln_1``, ``ln_final`` and so on,
    so their weights are decayed, and so is ``logit_scale``.
    """
    return not any(part in name for part in _NOT_DECAYED)


def bert_lr_factor(step: int, steps: int, warmup: float) -> float:
    """Factor of step ``step`` of ``steps``: ``x / warmup`` below the warm-up share, then ``(1 + cos πx) / 2``.

    The cosine is not shifted to begin where the warm-up ends, and the first step has factor 0, as upstream.
    """
    share = step / max(1, steps)
    return share / warmup if share < warmup else 0.5 * (1 + math.cos(math.pi * share))
