"""Temporal patches over a frame and both its neighbours: CLIP4Clip's ``linear_patch 3d`` (ArrowLuo/CLIP4Clip @508ffa3).

The vision transformer gets ``conv2``, a convolution over time, in front of everything else; ``conv1`` stays in the
state dict, as in upstream's files, and is neither computed nor trained. Upstream pads clips with frames that are zero
after normalisation, and the convolution pads with zeros before the first and after the last frame. So real frames
cannot tell whether there is padding, and padding itself need not be encoded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rewind.errors import RewindError
from rewind.optional_packages import open_clip

TEMPORAL_KERNEL = "visual.conv2.weight"
_FLAT = "visual.conv1.weight"
_FRAMES = 3  # of one patch; odd, so that there is a middle one


class _PatchPassthrough(nn.Module):
    """In place of conv1: patches come ready from conv2 and pass through; the weight is kept for the file."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)

    def forward(self, patches: Tensor) -> Tensor:
        return patches


def add_temporal_patches(towers: nn.Module, architecture: str) -> None:
    """Give open_clip's towers patches over time; at first they compute the same as before."""
    visual = towers.visual
    if not isinstance(visual, open_clip("transformer").VisionTransformer):
        raise RewindError(
            f"backbone.patch: 3d is for vision transformers, and the visual tower of {architecture} is a "
            f"{type(visual).__name__}: remove the key, or choose another architecture."
        )
    flat = visual.conv1
    # A stride of 1 over time: each frame keeps patches of its own.
    size, stride = (_FRAMES, *flat.kernel_size), (1, *flat.stride)
    # skip_init draws no random number, so all weights that are drawn later are those of a 2d run.
    visual.conv2 = nn.utils.skip_init(
        nn.Conv3d, 3, flat.out_channels, size, stride, padding=(_FRAMES // 2, 0, 0), bias=False
    ).to(flat.weight.device)
    with torch.no_grad():
        visual.conv2.weight.copy_(inflate_kernel(flat.weight))
    visual.conv1 = _PatchPassthrough(flat.weight)


def has_temporal_patches(towers: nn.Module) -> bool:
    return isinstance(getattr(towers.visual, "conv2", None), nn.Conv3d)  # ResNets have a conv2 of another kind


def inflate_kernel(flat: Tensor) -> Tensor:
    """Patch weight (D, 3, p, p) → (D, 3, 3, p, p): at first only the middle frame counts, as upstream.

    >>> inflate_kernel(torch.ones(8, 3, 4, 4)).sum(dim=(0, 1, 3, 4))
    tensor([  0., 384.,   0.])
    """
    kernel = flat.new_zeros(*flat.shape[:2], _FRAMES, *flat.shape[2:])
    kernel[:, :, _FRAMES // 2] = flat
    return kernel


def encode_real_frames(visual: Any, frames: Tensor, real: Tensor) -> Tensor:
    """Features (r, D) of the r real frames in order, from normalised pixels (n, T, 3, S, S) and bool ``real`` (n, T).

    Real frames come first; padding may have any values.
    """
    # The last real frame sees the one behind it, which must be as upstream pads: zero after normalisation.
    frames = torch.where(real[..., None, None, None], frames, 0)
    patches = visual.conv2(frames.transpose(1, 2)).transpose(1, 2)  # (n, T, D, S/p, S/p)
    return visual(patches[real])


def adapt_patch_weights(state: dict[str, Tensor], own: set[str], source: str) -> dict[str, Tensor]:
    """Weights of flat patches inflated for towers with patches over time; all other weights as they are.

    ``own`` are the names in the towers' state dict. Patches over time for towers without them are refused.
    """
    over_time = TEMPORAL_KERNEL in state and state[TEMPORAL_KERNEL].ndim == 5
    if over_time and TEMPORAL_KERNEL not in own:
        raise RewindError(f"{source} has patches over time ({TEMPORAL_KERNEL}): set backbone.patch: 3d.")
    if TEMPORAL_KERNEL in own and TEMPORAL_KERNEL not in state and _FLAT in state and state[_FLAT].ndim == 4:
        return state | {TEMPORAL_KERNEL: inflate_kernel(state[_FLAT])}
    return state
