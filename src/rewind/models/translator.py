"""The embedding translator: a caption's vector is mapped into the space of image vectors and compared there.

After emanueleiacca/AML_Hackaton. Images stay where they are; only the map is learnt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from rewind.errors import RewindError
from rewind.models import ridge
from rewind.models.embeddings import NO_TOWER, widths
from rewind.models.moments import ROWS, moments, split
from rewind.models.procrustes import EPS, whitened_procrustes
from rewind.models.retriever import Features, Retriever, masked_mean, single
from rewind.study import Backbone as BackboneKeys
from rewind.study import Method, Training
from rewind.study import Text as TextKeys
from rewind.study.keys import Keys, key, read_options
from rewind.study.model import CLOSED_HEADS

TEMPERATURE = 0.07  # of logits; it changes no rank, and losses of their own temperature do not see it


class TranslatorOptions(Keys):
    """Options of ``model: translator``."""

    hidden: int = key(1024, "geometry_adapter: width of the adapter's hidden layer.", ge=1, le=65_536)
    dropout: float = key(0.1, "Dropout in hidden layers.", ge=0, lt=1)
    start: Literal["torch", "xavier"] = key(
        "torch",
        "linear, mlp1, mlp2: initial weights. `torch`: those of torch.nn.Linear; `xavier`: He's before a ReLU and "
        "Xavier's before the output, biases 0, as the original says.",
    )
    eps: float = key(EPS, "geometry, geometry_adapter: added to the eigenvalues of the covariances.", gt=0)
    unfreeze_at: int | None = key(
        3, "geometry_adapter: epoch, counted from 1, from which the geometry map is trained too; none: never.", ge=1
    )
    geometry_lr: float = key(
        0.05, "geometry_adapter: learning rate of the geometry map as a multiple of `lr`.", gt=0, le=1
    )
    alpha: float | None = key(None, "ridge: strength of the regularisation; none: chosen on validation.", gt=0)

    @model_validator(mode="after")
    def _finite(self) -> TranslatorOptions:
        if not math.isfinite(self.eps):
            raise ValueError("eps must be a finite number")
        return self


class GeometryAdapter(nn.Module):
    """``y = A x + b + W₂ relu(W₁ x + b₁) + b₂`` with dropout before W₂.

    The adapter starts small (W at a tenth of PyTorch's initial weights, biases 0), so that the map starts as geometry.

    Args:
        text_width, item_width: dx and dy.
        hidden: rows of W₁.
        dropout: of the hidden layer.
    """

    def __init__(self, text_width: int, item_width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.geometry = nn.Linear(text_width, item_width)
        self.inner, self.outer = nn.Linear(text_width, hidden), nn.Linear(hidden, item_width)
        self.dropout = nn.Dropout(dropout)
        with torch.no_grad():
            for layer in (self.inner, self.outer):
                layer.weight.mul_(0.1)
                layer.bias.zero_()

    def forward(self, text: Tensor) -> Tensor:
        """(n, dx) → (n, dy)."""
        return self.geometry(text) + self.outer(self.dropout(F.relu(self.inner(text))))


class Translator(Retriever):
    """``exp(logit_scale) · cos(map(text), image)``.

    Args:
        network: maps (n, dx) to (n, dy).
        keys: when and how fast its geometry is trained, if it has one.
    """

    def __init__(self, network: nn.Module, keys: TranslatorOptions) -> None:
        super().__init__()
        self.network, self.keys = network, keys
        self.register_buffer("logit_scale", torch.tensor(math.log(1 / TEMPERATURE)))

    @property
    def geometry(self) -> nn.Linear | None:
        """The part that is fitted in closed form, if there is one."""
        return getattr(self.network, "geometry", None)

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, dx) → ``text`` (n, dy), not normalised, float32 under autocast too."""
        return {"text": single(self.network(batch["text"].float()))}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, dy) and ``mask`` (n, T) → ``items`` (n, dy), not normalised."""
        if "frames" not in batch:
            raise RewindError(f"model: translator: {NO_TOWER}")
        return {"items": masked_mean(batch["frames"], batch["mask"])}

    def translate(self, text: Tensor) -> Tensor:
        """Vectors (n, dx) of captions → unit vectors (n, dy) in the space of images."""
        return F.normalize(self.network(text.float()), dim=1)

    def outputs(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Mapped captions (n, dy) and images (m, dy) as they are, for losses that look at lengths."""
        return text["text"], items["items"]

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        """Unit vectors of mapped captions (n, dy) and images (m, dy)."""
        return F.normalize(text["text"], dim=1), F.normalize(items["items"], dim=1)

    def similarity(self, text: Features, items: Features) -> Tensor:
        """(n_text, n_items) logits."""
        left, right = self.vectors(text, items)
        # At a scale of 14 the steps of half precision would be differences between items.
        with torch.autocast(left.device.type, enabled=False):
            return self.logit_scale.exp() * left @ right.T

    def prepare(self, data: Any) -> None:
        """Fit geometry on the training pairs, before the first step; nothing for heads without it.

        Args:
            data: a :class:`rewind.feeding.training_data.TrainingData`.
        """
        if self.geometry is not None:
            fit_geometry(self.geometry, _Pairs(data), self.keys.eps)

    def start_epoch(self, epoch: int) -> None:
        """Freeze geometry up to its epoch (``epoch`` counts from 0), then train it."""
        if self.geometry is not None:
            at = self.keys.unfreeze_at
            self.geometry.requires_grad_(at is not None and epoch + 1 >= at)

    def parameter_groups(self, keys: Training) -> list[dict[str, Any]]:
        """Matrices with weight decay and vectors without; geometry at ``geometry_lr`` times the learning rate.

        Geometry is here from the start though it is frozen at first: the optimiser passes over parameters without
        gradient and neither moves nor decays them.
        """
        slow = {id(p) for p in self.geometry.parameters()} if self.geometry is not None else set()
        groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
        for parameter in self.parameters():
            groups.setdefault((id(parameter) not in slow, parameter.ndim > 1), []).append(parameter)
        return [
            {
                "params": parameters,
                "lr": keys.lr * (1.0 if fast else self.keys.geometry_lr),
                "weight_decay": keys.weight_decay if decay else 0.0,
            }
            for (fast, decay), parameters in sorted(groups.items(), key=lambda group: group[0])
        ]


class Geometry(Translator):
    """Geometry alone: fitted in closed form, nothing is trained."""

    def fit(self, text: Tensor, items: Tensor, *validation: Tensor) -> None:
        """Whitened Procrustes of the training pairs (n, dx) and (n, dy); validation is not looked at."""
        fit_geometry(self.network, split(text, items), self.keys.eps)


@torch.no_grad()
def fit_geometry(layer: nn.Linear, pieces: Iterable[tuple[Tensor, Tensor]], eps: float) -> None:
    """Set a layer to the whitened Procrustes map of pairs, given some at a time (see :func:`moments`)."""
    weight, bias = whitened_procrustes(moments(pieces), eps)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


class _Pairs:
    """Every training caption (n, dx) with the vector of its item (n, dy), some rows at a time."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        rows = torch.arange(len(self.data.text)).split(ROWS)
        for part in rows:
            batch = self.data.inputs.batch(self.data.item_of_caption[part.numpy()])
            yield self.data.text[part], masked_mean(batch["frames"], batch["mask"])


def _started(network: nn.Module, keys: TranslatorOptions) -> nn.Module:
    """Weights as ``start`` says: He's (uniform) where a ReLU follows, Xavier's (uniform) in the last layer."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    for layer in layers if keys.start == "xavier" else []:
        if layer is layers[-1]:
            nn.init.xavier_uniform_(layer.weight)
        else:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return network


def _linear(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return _started(nn.Linear(dx, dy), keys)


def _mlp1(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return _started(nn.Sequential(nn.Linear(dx, 512), nn.ReLU(), nn.Dropout(keys.dropout), nn.Linear(512, dy)), keys)


def _mlp2(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    layers = [nn.Linear(dx, 1024), nn.ReLU(), nn.Dropout(keys.dropout)]
    layers += [nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(keys.dropout), nn.Linear(512, dy)]
    return _started(nn.Sequential(*layers), keys)


def _adapter(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return GeometryAdapter(dx, dy, keys.hidden, keys.dropout)


TRAINED: dict[str, Callable[[int, int, TranslatorOptions], nn.Module]] = {
    "linear": _linear,
    "mlp1": _mlp1,
    "mlp2": _mlp2,
    "geometry_adapter": _adapter,
}
"""Heads that learn by gradient descent; 1,574,400, 1,312,768, 2,362,368 and 4,198,400 parameters at 1024 → 1536."""


def make(head: str, text_width: int, item_width: int, options: dict[str, Any] | None = None) -> Retriever:
    """A translator, not yet fitted or trained.

    Raises:
        RewindError: for an unknown head or option.
    """
    keys = read_options(TranslatorOptions, options or {}, "methods.*.options", "model: translator")
    if head == "ridge":
        return ridge.make(text_width, item_width, {} if keys.alpha is None else {"alpha": keys.alpha})
    if head == "geometry":
        return Geometry(nn.Linear(text_width, item_width), keys)
    if head not in TRAINED:
        raise RewindError(f"methods.*.head: no head {head!r}; available: {', '.join([*TRAINED, *CLOSED_HEADS])}.")
    return Translator(TRAINED[head](text_width, item_width, keys), keys)


def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    """The translator of a method, for the widths of the study's data set."""
    return make(method.head, *widths(backbone), method.options)
