"""Low-rank adapters of towers (LoRA, arXiv 2106.09685), the key ``training.lora``.

The package peft puts them into linear layers. Its adapters of ``nn.MultiheadAttention`` add their product to the
weights in each forward pass and subtract it again, which leaves rounding errors in weights that should stay as they
are: a run that is killed and resumed would end elsewhere. Those are parametrizations of torch here, with the same two
matrices.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from torch import Tensor, nn
from torch.nn.utils import parametrize

from rewind import optional_packages
from rewind.config.training import Lora
from rewind.errors import RewindError

ATTENTION_LAYERS = re.compile(
    r"(?:^|[._])(?:(?:q|k|v|o|out)_(?:proj|lin)|qkv|query|key|value)$|attn\.proj(?:ection)?$|attention\.output\.dense$"
)
"""Ends of names that linear layers of attention have in transformers (CLIP, SigLIP, VideoPrism, BERT) and in timm."""
ADAPTER = "lora_"  # in the names of all parameters that peft adds


def add_adapters(backbone: nn.Module, keys: Lora, towers: Iterable[str]) -> None:
    """Put adapters into the towers ``text`` or ``visual``; their weights train no more, all else trains as before.

    A fresh adapter changes nothing: its second matrix is zero. The first comes from torch's global generator.

    Raises:
        RewindError: if peft is not installed, if no layer is among the targets, or for dropout where it has no effect.

    >>> from rewind.models.embeddings import EmbeddingTowers
    >>> add_adapters(EmbeddingTowers(text_width=8, item_width=8, width=4), Lora(), ["text"])
    Traceback (most recent call last):
    ...
    rewind.errors.RewindError: training.lora: the text tower has no layers that could have adapters.
    """
    layers: dict[str, nn.Module] = {}
    adapted: set[int] = set()  # parameters of these towers
    for tower in towers:
        own = {id(parameter) for parameter in getattr(backbone, f"{tower}_parameters")()}
        layers |= _targets(backbone, keys, own, tower)
        adapted |= own
    attention = {name: part for name, part in layers.items() if isinstance(part, nn.MultiheadAttention)}
    if keys.dropout and attention:
        raise RewindError(
            f"training.lora.dropout: {keys.dropout:g} has no effect on {next(iter(attention))}, whose adapters are "
            "part of its weights; set dropout: 0, or name other targets."
        )
    # What trains outside of the adapted towers: the first loop below turns it off, and the second on again.
    kept = [value for value in backbone.parameters() if value.requires_grad and id(value) not in adapted]
    for part in attention.values():
        _adapt_attention(part, keys)
    if linear := [name for name in layers if name not in attention]:
        _adapt_linear(backbone, linear, keys)
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(is_adapter(name))
    for parameter in kept:
        parameter.requires_grad_(True)


class LowRank(nn.Module):
    """A weight W (m, n) as W + (alpha / rank) · B A, with A (rank, n) and B (m, rank).

    >>> layer = nn.Linear(4, 3)
    >>> parametrize.register_parametrization(layer, "weight", LowRank(layer.weight, Lora(rank=2)))
    ... # doctest: +ELLIPSIS
    ParametrizedLinear(...
    >>> [name for name, _ in layer.named_parameters() if is_adapter(name)]
    ['parametrizations.weight.0.lora_A', 'parametrizations.weight.0.lora_B']
    """

    def __init__(self, weight: Tensor, keys: Lora) -> None:
        super().__init__()
        self.scale = keys.alpha / keys.rank
        self.lora_A = nn.Parameter(weight.new_empty(keys.rank, weight.shape[1]))
        self.lora_B = nn.Parameter(weight.new_zeros(weight.shape[0], keys.rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))  # as a linear layer of torch, and peft, draw it

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.scale * self.lora_B @ self.lora_A


def _adapt_attention(part: nn.MultiheadAttention, keys: Lora) -> None:
    """Adapters of all projections: of query, key and value together where the layer has one matrix of them."""
    for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
        if getattr(part, name) is not None:
            parametrize.register_parametrization(part, name, LowRank(getattr(part, name), keys))
    parametrize.register_parametrization(part.out_proj, "weight", LowRank(part.out_proj.weight, keys))


def _adapt_linear(backbone: nn.Module, names: list[str], keys: Lora) -> None:
    if not optional_packages.is_installed("peft"):
        raise RewindError(
            "training.lora: the package peft is not installed: `pip install 'rewind-bench[lora]'`, or remove the key."
        )
    peft = optional_packages.peft()
    config = peft.LoraConfig(
        r=keys.rank, lora_alpha=keys.alpha, lora_dropout=keys.dropout, target_modules=names, bias="none"
    )
    peft.inject_adapter_in_model(config, backbone)


def is_adapter(name: str) -> bool:
    return ADAPTER in name


def _targets(backbone: nn.Module, keys: Lora, own: set[int], tower: str) -> dict[str, nn.Module]:
    """The layers of a tower that get adapters, by their names in the backbone."""
    layers: dict[str, nn.Module] = {}
    inside: list[str] = []
    for name, part in backbone.named_modules():
        parameters = list(part.parameters())
        if not parameters or not all(id(parameter) in own for parameter in parameters):
            continue
        if isinstance(part, nn.MultiheadAttention):
            layers[name] = part
            inside.append(f"{name}.")  # its own projection gets an adapter together with it
        elif isinstance(part, nn.Linear) and not name.startswith(tuple(inside)):
            layers[name] = part
    if not layers:
        raise RewindError(f"training.lora: the {tower} tower has no layers that could have adapters.")
    chosen = {name: part for name, part in layers.items() if _is_target(name, part, keys)}
    if not chosen:
        ends = sorted({name.rpartition(".")[2] for name in layers})
        wanted = keys.targets if isinstance(keys.targets, str) else " or ".join(keys.targets)
        raise RewindError(
            f"training.lora.targets: no layer of the {tower} tower is {wanted}; name some by the ends of their names: "
            f"{', '.join(ends)}."
        )
    return chosen


def _is_target(name: str, part: nn.Module, keys: Lora) -> bool:
    if keys.targets == "linear":
        return True
    if keys.targets == "attention":
        return isinstance(part, nn.MultiheadAttention) or ATTENTION_LAYERS.search(name) is not None
    return any(name == end or name.endswith(f".{end}") for end in keys.targets)
