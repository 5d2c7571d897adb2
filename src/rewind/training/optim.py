"""Optimisers with CLIP4Clip's four parameter groups, and their warm-up and cosine schedules.

``adamw`` (shifted cosine after a linear warm-up) or ``bert_adam``, CLIP4Clip's own (ArrowLuo/CLIP4Clip @508ffa3).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from rewind.config import Training
from rewind.errors import RewindError
from rewind.models.lora import is_adapter
from rewind.models.retriever import Retriever

# ---- BertAdam: Adam without bias correction, with an unshifted warm-up and cosine schedule -------------------------

_NOT_DECAYED = ("bias", "LayerNorm.bias", "LayerNorm.weight")


class BertAdam(torch.optim.Optimizer):
    """Adam as BERT was trained with it, after ArrowLuo/CLIP4Clip @508ffa3.

    It differs from AdamW in three ways: moments are not corrected for their start at zero, the gradient of every
    tensor is clipped to ``max_grad_norm`` on its own (besides any clipping of the global norm before), and epsilon is
    added to the uncorrected root. With gradient g, moments m and v, learning rate η and weight decay λ:

        m ← β1·m + (1 − β1)·g,   v ← β2·v + (1 − β2)·g²,   θ ← θ − η·(m / (√v + ε) + λ·θ).

    >>> weight = nn.Parameter(torch.zeros(1))
    >>> weight.grad = torch.ones(1)
    >>> BertAdam([weight], lr=0.1, betas=(0.9, 0.99), weight_decay=0.0).step()
    >>> round(weight.item(), 3)  # −0.1 · 0.1 / √0.01: the first step is not corrected
    -0.1
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
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override] # two overloads
        """Update every parameter that has a gradient; gradients themselves stay as they are."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            parameters = [p for p in group["params"] if p.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        first, second = self._moments(parameters)
        beta1, beta2 = group["betas"]
        gradients = _clip_each([p.grad for p in parameters if p.grad is not None], group["max_grad_norm"])
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

    def _moments(self, parameters: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        return [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]


class AdamW(torch.optim.AdamW):
    """torch's AdamW, whose steps do not load torch's compiler.

    torch's own ``step`` imports ``torch._dynamo``, a second of CPU time in every job that trains, to tell the compiler
    where to break a graph; nothing is compiled here. This is the function inside of that wrapper, and the same numbers.

    >>> parameter = torch.nn.Parameter(torch.ones(2))
    >>> AdamW([parameter], lr=0.5).state_dict().keys() == torch.optim.AdamW([parameter]).state_dict().keys()
    True
    """

    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))


def _skip_compiler(kind: type) -> None:
    """Let the methods of an optimiser run without asking torch's compiler to leave them alone.

    torch marks them as not to be compiled when they are first called, for which it imports the compiler. The mark is
    torch's own: it stands for what the compiler would return. Without it, as in another version, the import is back.
    """
    for method in vars(kind).values():
        inner = getattr(method, "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            setattr(inner, "__dynamo_disable", inner)


def _clip_each(gradients: list[Tensor], max_norm: float) -> list[Tensor]:
    """Each gradient scaled to a norm of at most ``max_norm`` on its own, as ``clip_grad_norm_`` would scale it."""
    norms = torch.stack(torch._foreach_norm(gradients))
    factors = (max_norm / (norms + 1e-6)).clamp(max=1.0)
    return [gradient * factor for gradient, factor in zip(gradients, factors.unbind(), strict=True)]


def is_decayed(name: str) -> bool:
    """Whether CLIP4Clip decays the parameter of this name.

    Its rule exempts names with ``bias`` or ``LayerNorm``. CLIP's norms are called ``ln_1``, ``ln_final`` and so on, so
    their weights are decayed, and so is ``logit_scale``.

    >>> is_decayed("visual.ln_post.weight"), is_decayed("visual.ln_post.bias")
    (True, False)
    """
    return not any(part in name for part in _NOT_DECAYED)


def bert_lr_factor(step: int, steps: int, warmup: float) -> float:
    """Factor of the learning rate: ``x / warmup`` for x = step / steps below ``warmup``, then ``(1 + cos πx) / 2``.

    As in CLIP4Clip, the cosine is not shifted to begin where the warm-up ends, so that the factor drops there, and the
    first step has factor 0.

    >>> bert_lr_factor(0, 100, 0.1), bert_lr_factor(50, 100, 0.1)
    (0.0, 0.5)
    """
    share = step / max(1, steps)
    return share / warmup if share < warmup else 0.5 * (1 + math.cos(math.pi * share))


# ---- Parameter groups, frozen layers, optimiser and schedule -------------------------------------------------------


def parameter_groups(retriever: Retriever, keys: Training) -> list[dict[str, Any]]:
    """Groups of {new parameters, pretrained towers} × {not decayed, decayed}, in this order.

    Pretrained towers learn at ``lr · backbone_lr_multiplier``, new parameters, adapters among them, at ``lr``. Under
    ``adamw`` matrices are decayed; biases, norms and the logit scale are not. Under ``bert_adam`` names decide, as in
    CLIP4Clip: everything but biases is decayed, the weights of norms and the logit scale too (upstream means to exempt
    norms, but CLIP's names do not match its rule).
    """
    backbone = retriever.backbone
    pretrained: set[int] = set()
    if backbone is not None:
        pretrained = {id(p) for p in [*backbone.visual_parameters(), *backbone.text_parameters(), backbone.logit_scale]}
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    for name, parameter in retriever.named_parameters():
        if parameter.requires_grad:
            decay = is_decayed(name) if keys.optimiser == "bert_adam" else parameter.ndim > 1
            in_tower = id(parameter) in pretrained and not is_adapter(name)
            groups.setdefault((in_tower, decay), []).append(parameter)
    return [
        {
            "params": parameters,
            "lr": keys.lr * (keys.backbone_lr_multiplier if in_tower else 1.0),
            "weight_decay": keys.weight_decay if decay else 0.0,
        }
        # The history shows the rate of the last group: by this order the towers', if any of them trains.
        for (in_tower, decay), parameters in sorted(groups.items(), key=lambda group: group[0])
    ]


def freeze_layers(retriever: Retriever, count: int | None) -> None:
    """Stop gradients into the embeddings and the first ``count`` blocks of both towers; None freezes nothing."""
    if count is None:
        return
    if retriever.backbone is None:
        raise RewindError(
            f"training.freeze_layers: {type(retriever).__name__} has no towers with transformer blocks to freeze; "
            "remove the key."
        )
    retriever.backbone.freeze_layers(count)


def loss_parameter_groups(loss: nn.Module | None, retriever: Retriever, keys: Training) -> list[dict[str, Any]]:
    """A loss's own parameters at ``lr``: matrices are decayed, scalars and vectors (a bias, a temperature) are not.

    Parameters of the retriever that the loss refers to are left to :func:`parameter_groups`.
    """
    if loss is None:
        return []
    known = {id(parameter) for parameter in retriever.parameters()}
    own = [p for p in loss.parameters() if p.requires_grad and id(p) not in known]
    return [
        {"params": parameters, "lr": keys.lr, "weight_decay": keys.weight_decay if decay else 0.0}
        for decay in (False, True)
        if (parameters := [p for p in own if (p.ndim > 1) == decay])
    ]


def make_optimiser(
    retriever: Retriever, keys: Training, steps: int, loss: nn.Module | None = None
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
    """Optimiser and schedule for a run of ``steps`` steps; ``freeze_layers`` is applied first.

    A retriever's own ``parameter_groups(keys)`` replaces :func:`parameter_groups`. AdamW is fused into one kernel if
    all parameters are on a GPU, so move the retriever and the loss there before. ``loss`` is a loss with parameters of
    its own, see :func:`rewind.losses.base.loss_module`.
    """
    freeze_layers(retriever, keys.freeze_layers)
    groups = loss_parameter_groups(loss, retriever, keys)
    # The retriever's groups come last: the console and history.csv show the learning rate of the last group.
    groups += retriever.parameter_groups(keys) or parameter_groups(retriever, keys)
    bert = keys.optimiser == "bert_adam"
    # On the CPU the plain kernel stays: the fused one rounds differently.
    fused = {} if bert or not all(p.is_cuda for group in groups for p in group["params"]) else {"fused": True}
    _skip_compiler(torch.optim.Optimizer)
    optimiser = (BertAdam if bert else AdamW)(groups, betas=keys.betas, eps=keys.eps, **fused)

    def factor(step: int) -> float:
        if bert:
            return bert_lr_factor(step, steps, keys.warmup)
        return lr_factor(step, steps, keys.warmup, keys.lr_floor, keys.warmup_from == "zero")

    return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, factor)


def lr_factor(step: int, steps: int, warmup: float, floor: float = 0.0, from_zero: bool = False) -> float:
    """Factor of the learning rate: linear to 1 over the first ``warmup`` share, then half a cosine down to ``floor``.

    With ``from_zero`` step 0 has factor 0, as in SANW's original, and not 1 / (W + 1) with W steps of warm-up.

    >>> [round(lr_factor(step, 100, 0.1, floor=0.2), 6) for step in (10, 55, 100)]
    [1.0, 0.6, 0.2]
    """
    rising = warmup * steps
    if step < rising:
        return step / rising if from_zero else (step + 1) / (rising + 1)
    falling = 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))
    return floor + (1 - floor) * falling
