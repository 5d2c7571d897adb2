"""ViCLIP's two towers under upstream's parameter names (OpenGVLab/InternVideo, Apache-2.0; Wang et al., 2023).

The vision tower attends jointly over one class token and the patches of all frames; the text tower is CLIP's.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rewind.study.keys import Keys, key, required


class TowerSize(Keys):
    """Size of a transformer."""

    width: int = required("Width.", ge=1)
    heads: int = required("Attention heads.", ge=1)
    layers: int = required("Blocks.", ge=1)


class VisionSize(TowerSize):
    """Size of the vision tower."""

    patch: int = required("Side of a patch in pixels.", ge=1)
    image: int = key(224, "Side of a frame in pixels.", ge=1)
    frames: int = key(8, "Temporal positions; other numbers of frames interpolate them.", ge=1)
    drop_path: float = key(0.1, "Share of residual branches dropped in training, rising over the blocks.", ge=0, lt=1)


class TextSize(TowerSize):
    """Size of the text tower."""

    context: int = key(32, "Tokens per caption.", ge=1)
    vocabulary: int = key(49408, "Token ids.", ge=1)


class Architecture(Keys):
    """Sizes of both towers and of what they share."""

    embed_dim: int = required("Width of the shared space.", ge=1)
    vision: VisionSize
    text: TextSize


SIZES = {
    "viclip-b": Architecture(
        embed_dim=512,
        vision=VisionSize(width=768, heads=12, layers=12, patch=16),
        text=TextSize(width=512, heads=8, layers=12),
    ),
    "viclip-l": Architecture(
        embed_dim=768,
        vision=VisionSize(width=1024, heads=16, layers=24, patch=14),
        text=TextSize(width=768, heads=12, layers=12),
    ),
}


class Attention(nn.Module):
    """Self-attention with the parameter names of ``nn.MultiheadAttention``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.randn(3 * width, width) * width**-0.5)
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        """(n, L, W) → (n, L, W)."""
        n, length, width = x.shape
        joint = F.linear(x, self.in_proj_weight, self.in_proj_bias).view(n, length, 3, self.heads, width // self.heads)
        query, keys, values = joint.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, keys, values, is_causal=causal)
        return self.out_proj(mixed.transpose(1, 2).reshape(n, length, width))


class Mlp(nn.Module):
    """Two layers with QuickGELU between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.c_fc(x)
        return self.c_proj(inner * torch.sigmoid(1.702 * inner))


class Block(nn.Module):
    """A pre-norm block; in training each branch of a sample is dropped with probability ``drop``."""

    def __init__(self, width: int, heads: int, drop: float) -> None:
        super().__init__()
        self.attn, self.ln_1 = Attention(width, heads), nn.LayerNorm(width)
        self.mlp, self.ln_2 = Mlp(width), nn.LayerNorm(width)
        self.drop = drop

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        x = x + self.kept(self.attn(self.ln_1(x), causal))
        return x + self.kept(self.mlp(self.ln_2(x)))

    def kept(self, branch: Tensor) -> Tensor:
        if not self.training or self.drop == 0:
            return branch
        keep = torch.rand(len(branch), 1, 1, device=branch.device) >= self.drop
        return branch * keep / (1 - self.drop)


class Transformer(nn.Module):
    """A stack of blocks."""

    def __init__(self, width: int, heads: int, layers: int, drop: float = 0.0) -> None:
        super().__init__()
        rates = torch.linspace(0, drop, layers, device="cpu").tolist()
        self.resblocks = nn.ModuleList(Block(width, heads, rate) for rate in rates)
        self.recompute = False

    def forward(self, x: Tensor, causal: bool = False) -> Tensor:
        """(n, L, W) → (n, L, W)."""
        for block in self.resblocks:
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, x, causal, use_reentrant=False)
            else:
                x = block(x, causal)
        return x


class VisionTower(nn.Module):
    """Joint attention over space and time.

    Temporal positions are added to patches alone; a single frame takes their mean.
    """

    def __init__(self, size: VisionSize, embed_dim: int) -> None:
        super().__init__()
        width, grid = size.width, size.image // size.patch
        scale = width**-0.5
        self.image = size.image
        kernel = (1, size.patch, size.patch)
        self.conv1 = nn.Conv3d(3, width, kernel, kernel, bias=False)
        self.class_embedding = nn.Parameter(scale * torch.randn(width))
        self.positional_embedding = nn.Parameter(scale * torch.randn(grid**2 + 1, width))
        self.temporal_positional_embedding = nn.Parameter(torch.zeros(1, size.frames, width))
        self.ln_pre, self.ln_post = nn.LayerNorm(width), nn.LayerNorm(width)
        self.transformer = Transformer(width, size.heads, size.layers, size.drop_path)
        self.proj = nn.Parameter(scale * torch.randn(width, embed_dim))

    def forward(self, frames: Tensor, mask_share: float = 0.0) -> Tensor:
        """Normalised frames (n, T, 3, S, S) → (n, embed_dim), not normalised.

        Args:
            frames: clips of one length.
            mask_share: share of the patches, drawn at random for every clip, that are left out.
        """
        n, length = frames.shape[:2]
        patches = self.conv1(frames.transpose(1, 2)).flatten(3).permute(0, 2, 3, 1)  # (n, T, patches, width)
        patches = patches + self.positional_embedding[1:] + self.times(length)
        patches = _without(patches.flatten(1, 2), mask_share)
        first = (self.class_embedding + self.positional_embedding[0]).expand(n, 1, -1)
        x = self.transformer(self.ln_pre(torch.cat([first, patches], dim=1)))
        return self.ln_post(x[:, 0]) @ self.proj

    def times(self, length: int) -> Tensor:
        """Temporal positions of so many frames, (T, 1, width)."""
        return resized(self.temporal_positional_embedding, length)[0].unsqueeze(1)


class TextTower(nn.Module):
    """CLIP's text tower: causal, pooled at the largest token id, which is the end token."""

    def __init__(self, size: TextSize, embed_dim: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(size.vocabulary, size.width)
        nn.init.normal_(self.token_embedding.weight, std=0.02)
        self.positional_embedding = nn.Parameter(torch.randn(size.context, size.width) * 0.01)
        self.transformer = Transformer(size.width, size.heads, size.layers)
        self.ln_final = nn.LayerNorm(size.width)
        self.text_projection = nn.Parameter(torch.randn(size.width, embed_dim) * size.width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Token ids (n, L) → (n, embed_dim), not normalised."""
        x = self.token_embedding(tokens) + self.positional_embedding[: tokens.shape[1]]
        x = self.ln_final(self.transformer(x, causal=True))
        end = x[torch.arange(len(x), device=x.device), tokens.argmax(dim=1)]
        return end @ self.text_projection


def resized(positions: Tensor, length: int) -> Tensor:
    """Temporal positions (1, F, W) → (1, length, W): the mean for one frame, else linear interpolation."""
    if length == positions.shape[1]:
        return positions
    if length == 1:
        return positions.mean(dim=1, keepdim=True)
    return F.interpolate(positions.transpose(1, 2), length, mode="linear").transpose(1, 2)


def _without(patches: Tensor, share: float) -> Tensor:
    """(n, L, W) without ``int(share · L)`` random rows of every clip, the others in order."""
    n, length, width = patches.shape
    lost = int(share * length)
    if not lost:
        return patches
    order = torch.rand(n, length, device=patches.device).argsort(dim=1)
    kept = order[:, lost:].sort(dim=1).values
    return patches.gather(1, kept.unsqueeze(-1).expand(-1, -1, width))
