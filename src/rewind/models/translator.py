"""The embedding translator (``model: translator``): a caption's embedding is mapped into the space of image embeddings.

Image embeddings are left as they are and compared by cosine; only the map is learnt. After emanueleiacca/AML_Hackaton.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method, Training
from rewind.config import Text as TextKeys
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.config.methods import CLOSED_FORM_HEADS
from rewind.errors import RewindError
from rewind.models import baselines
from rewind.models.closed_form import EIGENVALUE_EPS, ROWS_AT_ONCE, compute_moments, split_pairs, whitened_procrustes
from rewind.models.embeddings import NO_ENCODER_MESSAGE, embedding_widths
from rewind.models.retriever import Features, Retriever, at_least_float32, masked_mean
from rewind.registry import MODELS

TEMPERATURE = 0.07  # of logits; it changes no rank, and losses with a temperature of their own ignore it


class TranslatorOptions(ConfigModel):
    """``methods.*.options`` of ``model: translator``."""

    hidden: int = config_field(1024, "geometry_adapter: width of the adapter's hidden layer.", ge=1, le=65_536)
    dropout: float = config_field(0.1, "Dropout in hidden layers.", ge=0, lt=1)
    start: Literal["torch", "xavier"] = config_field(
        "torch",
        "linear, mlp1, mlp2: initial weights. `torch`: those of torch.nn.Linear; `xavier`: He's before a ReLU and "
        "Xavier's before the output, biases 0, as the original states.",
    )
    eps: float = config_field(
        EIGENVALUE_EPS, "geometry, geometry_adapter: added to the eigenvalues of the covariances.", gt=0
    )
    unfreeze_at: int | None = config_field(
        3, "geometry_adapter: epoch, counted from 1, from which the geometry map is trained too; none: never.", ge=1
    )
    geometry_lr: float = config_field(
        0.05, "geometry_adapter: learning rate of the geometry map as a multiple of `lr`.", gt=0, le=1
    )
    alpha: float | None = config_field(None, "ridge: strength of the regularisation; none: chosen on validation.", gt=0)

    @model_validator(mode="after")
    def _finite(self) -> TranslatorOptions:
        if not math.isfinite(self.eps):
            raise ValueError("eps must be a finite number")
        return self


class GeometryAdapter(nn.Module):
    """``y = A x + b + W₂ relu(W₁ x + b₁) + b₂`` with dropout before W₂, (n, dx) → (n, dy).

    ``A`` and ``b`` are fitted in closed form (:func:`fit_geometry`), and the adapter starts small (W₁ and W₂ at a tenth
    of PyTorch's initial weights, biases 0), so that the map starts close to the fit.

    >>> GeometryAdapter(text_width=8, item_width=6, hidden=4, dropout=0.1)(torch.rand(2, 8)).shape
    torch.Size([2, 6])
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
        return self.geometry(text) + self.outer(self.dropout(F.relu(self.inner(text))))


class Translator(Retriever):
    """``exp(logit_scale) · cos(map(text), image)``, where ``network`` maps (n, dx) to (n, dy).

    >>> model = Translator(nn.Linear(8, 6), TranslatorOptions())
    >>> text = model.encode_text({"text": torch.rand(3, 8)})
    >>> items = model.encode_items({"frames": torch.rand(2, 1, 6), "mask": torch.ones(2, 1)})
    >>> model.similarity(text, items).shape
    torch.Size([3, 2])
    """

    logit_scale: Tensor

    def __init__(self, network: nn.Module, keys: TranslatorOptions) -> None:
        super().__init__()
        self.network, self.keys = network, keys
        # A buffer and no parameter: it is saved with the model and never learnt.
        self.register_buffer("logit_scale", torch.tensor(math.log(1 / TEMPERATURE)))

    @property
    def geometry(self) -> nn.Linear | None:
        """The part that is fitted in closed form, if there is one."""
        return getattr(self.network, "geometry", None)

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, dx) → ``text`` (n, dy), not normalised, float32 under autocast too."""
        return {"text": at_least_float32(self.network(batch["text"].float()))}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, dy) and ``mask`` (n, T) → ``items`` (n, dy), not normalised."""
        if "frames" not in batch:
            raise RewindError(f"model: translator: {NO_ENCODER_MESSAGE}")
        return {"items": masked_mean(batch["frames"], batch["mask"])}

    def translate(self, text: Tensor) -> Tensor:
        return F.normalize(self.network(text.float()), dim=1)

    def outputs(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        return text["text"], items["items"]

    def vectors(self, text: Features, items: Features) -> tuple[Tensor, Tensor]:
        return F.normalize(text["text"], dim=1), F.normalize(items["items"], dim=1)

    def similarity(self, text: Features, items: Features) -> Tensor:
        left, right = self.vectors(text, items)
        # At a scale of 14 the rounding of half precision would be as large as differences between items.
        with torch.autocast(left.device.type, enabled=False):
            return self.logit_scale.exp() * left @ right.T

    def prepare(self, data: Any) -> None:
        """Fit geometry on the training pairs, before the first step; nothing for heads without it."""
        if self.geometry is not None:
            fit_geometry(self.geometry, _TrainingPairs(data), self.keys.eps)

    def start_epoch(self, epoch: int) -> None:
        """Freeze geometry up to its epoch (``epoch`` counts from 0), then train it."""
        if self.geometry is not None:
            at = self.keys.unfreeze_at
            self.geometry.requires_grad_(at is not None and epoch + 1 >= at)

    def parameter_groups(self, keys: Training) -> list[dict[str, Any]]:
        """Matrices with weight decay and vectors without; geometry at ``geometry_lr`` times the learning rate.

        Geometry is included from the start though it is frozen at first: the optimiser skips parameters without
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
            # Geometry comes first: the history shows the rate of the last group, which is that of all else.
            for (fast, decay), parameters in sorted(groups.items(), key=lambda group: group[0])
        ]


class GeometryTranslator(Translator):
    """Only geometry: fitted in closed form, nothing is trained."""

    network: nn.Linear

    def fit(self, text: Tensor, items: Tensor, *validation: Tensor) -> None:
        """Whitened Procrustes of the training pairs (n, dx) and (n, dy); validation pairs are not used."""
        fit_geometry(self.network, split_pairs(text, items), self.keys.eps)


@torch.no_grad()
def fit_geometry(layer: nn.Linear, pieces: Iterable[tuple[Tensor, Tensor]], eps: float) -> None:
    """Set a layer to the whitened Procrustes map of pairs, given some at a time.

    See :func:`~rewind.models.closed_form.whitened_procrustes` and :func:`~rewind.models.closed_form.compute_moments`.
    """
    weight, bias = whitened_procrustes(compute_moments(pieces), eps)
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


class _TrainingPairs:
    """Every training caption (n, dx) with the vector of its item (n, dy), some rows at a time."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in torch.arange(len(self.data.text)).split(ROWS_AT_ONCE):
            batch = self.data.inputs.batch(self.data.item_of_caption[rows.numpy()])
            yield self.data.text[rows], masked_mean(batch["frames"], batch["mask"])


def _initialised(network: nn.Module, keys: TranslatorOptions) -> nn.Module:
    """Weights as ``start`` states: He's (uniform) where a ReLU follows, Xavier's (uniform) in the last layer."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear)]
    for layer in layers if keys.start == "xavier" else []:
        if layer is layers[-1]:
            nn.init.xavier_uniform_(layer.weight)
        else:
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return network


def _linear(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return _initialised(nn.Linear(dx, dy), keys)


def _mlp1(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return _initialised(
        nn.Sequential(nn.Linear(dx, 512), nn.ReLU(), nn.Dropout(keys.dropout), nn.Linear(512, dy)), keys
    )


def _mlp2(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    layers = [nn.Linear(dx, 1024), nn.ReLU(), nn.Dropout(keys.dropout)]
    layers += [nn.Linear(1024, 512), nn.ReLU(), nn.Dropout(keys.dropout), nn.Linear(512, dy)]
    return _initialised(nn.Sequential(*layers), keys)


def _adapter(dx: int, dy: int, keys: TranslatorOptions) -> nn.Module:
    return GeometryAdapter(dx, dy, keys.hidden, keys.dropout)


TRAINED_HEADS: dict[str, Callable[[int, int, TranslatorOptions], nn.Module]] = {
    "linear": _linear,
    "mlp1": _mlp1,
    "mlp2": _mlp2,
    "geometry_adapter": _adapter,
}
"""Heads that learn by gradient descent; 1,574,400, 1,312,768, 2,362,368 and 4,198,400 parameters at 1024 → 1536."""


def make_translator(head: str, text_width: int, item_width: int, options: dict[str, Any] | None = None) -> Retriever:
    keys = read_options(TranslatorOptions, options or {}, "methods.*.options", "model: translator")
    if head == "ridge":
        return baselines.make_ridge(text_width, item_width, {} if keys.alpha is None else {"alpha": keys.alpha})
    if head == "geometry":
        return GeometryTranslator(nn.Linear(text_width, item_width), keys)
    if head not in TRAINED_HEADS:
        raise RewindError(
            f"methods.*.head: no head {head!r}; available: {', '.join([*TRAINED_HEADS, *CLOSED_FORM_HEADS])}."
        )
    return Translator(TRAINED_HEADS[head](text_width, item_width, keys), keys)


@MODELS.register("translator")
def build(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Retriever:
    return make_translator(method.head, *embedding_widths(backbone), method.options)
