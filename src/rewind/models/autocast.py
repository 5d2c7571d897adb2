"""Transformer blocks under autocast: the same arithmetic in fewer kernels, each of which reads and writes less memory.

Beside its products a step in bf16 reads and writes activations, which is what memory is for on a GPU. Autocast and
``nn.MultiheadAttention`` do more of it than is needed (``benchmarks/step_kernels.py`` counts):

- a norm of bf16 rows is a cast to float32, the norm, and a cast back, where torch's kernel can read bf16 and sum in
  float32 itself;
- ``x · σ(1.702 x)`` (QuickGELU) is three kernels over four times the width. It is ``silu(1.702 x) / 1.702``, and the
  two constants belong to the weights before and after it: one kernel is left;
- attention copies query, key and value out of their product, and their gradients into three tensors of mostly zeros.

In float32 nothing here is used: blocks compute what their library computes, bit by bit.
"""

from __future__ import annotations

import types
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewind.optional_packages import open_clip

QUICK_GELU = 1.702


def is_half(x: Tensor) -> bool:
    """Whether products of ``x`` are computed in bf16 or fp16 here, because of autocast."""
    return torch.is_autocast_enabled(x.device.type)


def quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU, with which CLIP was trained: ``x · σ(1.702 x)``."""
    return x * torch.sigmoid(QUICK_GELU * x)


def quick_gelu_layers(x: Tensor, first: nn.Module, second: nn.Module) -> Tensor:
    """Two linear layers with :func:`quick_gelu` between them, as CLIP's blocks have them."""
    if is_half(x) and type(first) is nn.Linear and type(second) is nn.Linear:
        bias = first.bias if first.bias is None else QUICK_GELU * first.bias
        return F.linear(F.silu(F.linear(x, QUICK_GELU * first.weight, bias)), second.weight / QUICK_GELU, second.bias)
    return second(quick_gelu(first(x)))


def shorten_blocks(tower: nn.Module) -> None:
    """Let the blocks of an open_clip transformer compute as this module says wherever autocast is on.

    Parameters, their names and adapters on them stay. Blocks of another kind, or with dropout, are left as they are.
    """
    plain = open_clip("transformer").ResidualAttentionBlock
    block: Any
    for block in tower.modules():
        if type(block) is plain and block.attn.batch_first and not block.attn.dropout:
            block.forward = types.MethodType(_forward, block)


def _forward(
    block: Any, q_x: Tensor, k_x: Tensor | None = None, v_x: Tensor | None = None, attn_mask: Tensor | None = None
) -> Tensor:
    """As ``ResidualAttentionBlock.forward`` of open_clip, whose parameters have these names."""
    if k_x is not None or not is_half(q_x):
        return type(block).forward(block, q_x, k_x, v_x, attn_mask)
    x = q_x + block.ls_1(_attend(block.attn, _norm(block.ln_1, q_x), attn_mask))
    mlp, y = block.mlp, _norm(block.ln_2, x)
    # By its name: torch.compile follows this, and would not follow the library's import.
    quick = type(mlp.gelu).__name__ == "QuickGELU"
    return x + block.ls_2(quick_gelu_layers(y, mlp.c_fc, mlp.c_proj) if quick else mlp(y))


def _norm(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """A norm; of rows that are in half precision already, without a cast to float32 and back."""
    if x.dtype == torch.float32:
        return norm(x)
    with torch.autocast(x.device.type, enabled=False):
        weight, bias = (part.to(x.dtype) for part in (norm.weight, norm.bias))
        return F.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)


def _attend(attention: nn.MultiheadAttention, x: Tensor, mask: Tensor | None) -> Tensor:
    """Self-attention (n, L, W) → (n, L, W), by views of one product."""
    projected = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)
    query, key, value = projected.unflatten(-1, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
    mask = None if mask is None else mask.to(query.dtype)
    attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return attention.out_proj(attended.transpose(1, 2).flatten(2))
