"""Patches over a frame and both its neighbours: CLIP4Clip's ``linear_patch 3d`` (ArrowLuo/CLIP4Clip @508ffa3).

The vision transformer gets ``conv2``, a convolution over time, in front of everything else; ``conv1`` stays in the
state dict, as in upstream's files, and is neither computed nor trained. Upstream fills clips up with frames that are
zero behind the normalisation, and zero is what lies before the first and behind the last frame too: so real frames
never see that there is padding, and padding itself need not be encoded.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rewind.compat import open_clip
from rewind.errors import RewindError

KERNEL = "visual.conv2.weight"
_FLAT = "visual.conv1.weight"
_FRAMES = 3  # of one patch; odd, so that a frame stands in the middle


class _Given(nn.Module):
    """Where conv1 was: patches come ready from conv2 and pass; the weight is kept for the file."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)

    def forward(self, patches: Tensor) -> Tensor:
        return patches


def see_neighbours(towers: nn.Module, architecture: str) -> None:
    """Give open_clip's towers patches over time, which begin as the same function as before.

    Raises:
        RewindError: if the visual tower is no vision transformer.
    """
    visual = towers.visual
    if not isinstance(visual, open_clip("transformer").VisionTransformer):
        raise RewindError(
            f"backbone.patch: 3d is for vision transformers, and the visual tower of {architecture} is a "
            f"{type(visual).__name__}: remove the key, or choose another architecture."
        )
    flat = visual.conv1
    size, stride = (_FRAMES, *flat.kernel_size), (1, *flat.stride)
    # Nothing random is drawn: weights that are made after these are those of a 2d run.
    visual.conv2 = nn.utils.skip_init(
        nn.Conv3d, 3, flat.out_channels, size, stride, padding=(_FRAMES // 2, 0, 0), bias=False
    ).to(flat.weight.device)
    with torch.no_grad():
        visual.conv2.weight.copy_(inflated(flat.weight))
    visual.conv1 = _Given(flat.weight)


def sees_neighbours(towers: nn.Module) -> bool:
    """Whether the towers have patches over time."""
    return isinstance(getattr(towers.visual, "conv2", None), nn.Conv3d)  # ResNets have a conv2 of another kind


def inflated(flat: Tensor) -> Tensor:
    """Patch weight (D, 3, p, p) → (D, 3, 3, p, p): the frame in the middle alone counts, as upstream begins."""
    kernel = flat.new_zeros(*flat.shape[:2], _FRAMES, *flat.shape[2:])
    kernel[:, :, _FRAMES // 2] = flat
    return kernel


def encode_clips(visual: nn.Module, frames: Tensor, real: Tensor) -> Tensor:
    """Features of the real frames.

    Args:
        visual: the tower.
        frames: normalised pixels (n, T, 3, S, S); of padding anything.
        real: bool (n, T), real frames first.

    Returns:
        (r, D), the r real frames in order.
    """
    frames = torch.where(real[..., None, None, None], frames, 0)
    patches = visual.conv2(frames.transpose(1, 2)).transpose(1, 2)  # (n, T, D, S/p, S/p)
    return visual(patches[real])


def fit_patches(state: dict[str, Tensor], own: set[str], source: str) -> dict[str, Tensor]:
    """Weights of flat patches, made to fit towers that see neighbours; other weights as they are.

    Args:
        state: the towers' tensors from a file.
        own: names in the towers' own state dict.
        source: for messages.

    Raises:
        RewindError: if the weights have patches over time and the towers have not.
    """
    over_time = KERNEL in state and state[KERNEL].ndim == 5
    if over_time and KERNEL not in own:
        raise RewindError(f"{source} has patches over time ({KERNEL}): set backbone.patch: 3d.")
    if KERNEL in own and KERNEL not in state and _FLAT in state and state[_FLAT].ndim == 4:
        return state | {KERNEL: inflated(state[_FLAT])}
    return state
