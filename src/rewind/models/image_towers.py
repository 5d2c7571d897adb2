"""Image networks in two parts: a lower part that stays as it was pretrained, and an upper part that learns.

As in MiniCLIP, the last third of the tensors learns, which is four fifths of the parameters: of ResNet-18 the last 20
of 60, of EfficientNet-Lite0 the 48 of 147 that come after the last halving of the picture.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from rewind.compat import torchvision
from rewind.errors import RewindError
from rewind.models.weights import FORM_ALONE, read_state

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, for torchvision's networks


class ImageTower(nn.Module):
    """A convolutional network cut in two.

    Attributes:
        width: of the pooled result.
        channels: of the maps between the two parts.
    """

    width: int
    channels: int

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network.to(
            memory_format=torch.channels_last
        )  # a third faster on CPUs than one map after another

    def lower(self, pixels: Tensor) -> Tensor:
        """uint8 RGB (n, 3, S, S) → maps (n, channels, s, s)."""
        raise NotImplementedError

    def upper(self, maps: Tensor) -> Tensor:
        """(n, channels, s, s) → (n, width), averaged over places."""
        raise NotImplementedError

    def lower_modules(self) -> list[nn.Module]:
        """Modules that ``lower`` runs."""
        raise NotImplementedError

    def frozen_parameters(self) -> list[nn.Parameter]:
        """Parameters that never learn in MiniCLIP; all that ``lower`` uses are among them."""
        return [parameter for module in self.lower_modules() for parameter in module.parameters()]


class ResNet18(ImageTower):
    """torchvision's ResNet-18, with its names. Upper part: ``layer3.1`` without its first convolution, ``layer4``."""

    width, channels = 512, 256

    def __init__(self, network: nn.Module) -> None:
        super().__init__(network)
        self.register_buffer("mean", torch.tensor(MEAN).view(3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(STD).view(3, 1, 1) * 255, persistent=False)

    def lower(self, pixels: Tensor) -> Tensor:
        net = self.network
        x = (_last(pixels.to(self.mean.dtype)) - self.mean) / self.std
        x = net.maxpool(net.relu(net.bn1(net.conv1(x))))
        return net.layer3[0](net.layer2(net.layer1(x)))

    def upper(self, maps: Tensor) -> Tensor:
        return self.network.layer4(self.network.layer3[1](_last(maps))).mean((2, 3))

    def lower_modules(self) -> list[nn.Module]:
        net = self.network
        return [net.conv1, net.bn1, net.layer1, net.layer2, net.layer3[0]]

    def frozen_parameters(self) -> list[nn.Parameter]:
        return [*super().frozen_parameters(), self.network.layer3[1].conv1.weight]


class EfficientNetLite0(ImageTower):
    """EfficientNet-Lite0, with its package's names. Upper part: from the last halving on, blocks 11 to 15 and head."""

    width, channels, first = 1280, 112, 11

    def lower(self, pixels: Tensor) -> Tensor:
        net = self.network
        x = (_last(pixels.to(net._conv_stem.weight.dtype)) - 127) / 128
        x = net._swish(net._bn0(net._conv_stem(x)))
        for block in net._blocks[: self.first]:
            x = block(x)
        return x

    def upper(self, maps: Tensor) -> Tensor:
        net, x = self.network, _last(maps)
        for block in net._blocks[self.first :]:
            x = block(x)
        return net._swish(net._bn1(net._conv_head(x))).mean((2, 3))

    def lower_modules(self) -> list[nn.Module]:
        return [self.network._conv_stem, self.network._bn0, *self.network._blocks[: self.first]]


def _last(maps: Tensor) -> Tensor:
    return maps.contiguous(memory_format=torch.channels_last)


def load_tower(architecture: str, weights: str | None = None) -> ImageTower:
    """An image tower by the name that ``backbone.architecture`` gives.

    Args:
        architecture: ``resnet18`` or ``efficientnet_lite0``.
        weights: a state dict of torchvision's ResNet-18; without one it is random. Its lower part is then the same in
            every run, because its features are shared by all runs; the upper part comes from torch's generator.

    Raises:
        RewindError: for another name, weights that do not fit, or a package that is not installed.
    """
    if architecture == "resnet18":
        return ResNet18(_resnet18(weights) if weights else _random_resnet18())
    if architecture != "efficientnet_lite0":
        raise RewindError(
            f"backbone.architecture: {architecture!r} is not an image network; choose resnet18 or efficientnet_lite0."
        )
    if weights:
        raise RewindError("backbone.weights: efficientnet_lite0 has its own; remove this key or choose resnet18.")
    from rewind.models.towers import load_efficientnet

    return EfficientNetLite0(load_efficientnet(image_size=None))


def _plain_resnet18() -> nn.Module:
    network = torchvision("models").resnet18(weights=None)
    network.fc = nn.Identity()  # the classifier is not used
    return network


def _random_resnet18() -> nn.Module:
    network = _plain_resnet18()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        fixed = ResNet18(_plain_resnet18())
    for own, same in zip(ResNet18(network).frozen_parameters(), fixed.frozen_parameters(), strict=True):
        own.data.copy_(same.data)
    return network


def _resnet18(path: str) -> nn.Module:
    network = _plain_resnet18()
    if FORM_ALONE.get():
        return network
    own = network.state_dict()
    state = {name: value for name, value in read_state(path).items() if not name.startswith("fc.")}
    if wrong := list(_differences(own, state)):
        raise RewindError(
            f"backbone.weights: {path} is not torchvision's resnet18: {len(wrong)} tensors differ, first {wrong[0]}."
        )
    network.load_state_dict(state)
    return network


def _differences(own: dict[str, Tensor], state: dict[str, Tensor]) -> Iterator[str]:
    for name in [*own, *(name for name in state if name not in own)]:
        shapes = [tuple(part[name].shape) if name in part else "absent" for part in (own, state)]
        if shapes[0] != shapes[1]:
            yield f"{name!r} (model {shapes[0]}, file {shapes[1]})"
