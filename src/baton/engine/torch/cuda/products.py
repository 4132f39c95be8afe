"""A decoding step's gated product as one Triton kernel.

A step of a few hundred rows through a small model is as long as its launches, so the gate is computed where the product
is. (Norms, rotation and sums in the products that stand beside them were tried as well: no faster on an H200 than
torch's products with a kernel between them, because what a product reads then takes a detour through registers.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """How much of a product a program computes: rows and columns, how deep a step goes; Triton's own settings."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int


FEW = 16
"""Rows up to which a step has few of them."""
GATED = Tile(16, 32, 64, 4, 6), Tile(64, 32, 64, 4, 4)
"""For few rows and for more; the best of those tried on an H200. More of them would be more to compile in a run."""


@triton.jit
def _dot(a, b, acc, exact: tl.constexpr):
    return tl.dot(a, b, acc, input_precision="ieee" if exact else "tf32")


@triton.jit(do_not_specialize=["num"])
def _gated(
    x, weight, out, num, width: tl.constexpr, inner: tl.constexpr,
    rows: tl.constexpr, part: tl.constexpr, depth: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    real = token < num
    at = tl.program_id(1) * part + tl.arange(0, part)
    real_at = at < inner
    kind = x.dtype.element_ty
    first = weight + at[None, :] * width
    second = first + inner * width
    gate = tl.zeros((rows, part), tl.float32)
    up = tl.zeros((rows, part), tl.float32)
    for begin in range(0, width, depth):
        k = begin + tl.arange(0, depth)
        real_k = k < width
        both = real_k[:, None] & real_at[None, :]
        read = tl.load(
            x + token[:, None] * width + k[None, :], mask=real[:, None] & real_k[None, :], other=0.0
        )
        gate = _dot(read, tl.load(first + k[:, None], mask=both, other=0.0), gate, exact)
        up = _dot(read, tl.load(second + k[:, None], mask=both, other=0.0), up, exact)
    gate = gate.to(kind).to(tl.float32)
    up = up.to(kind).to(tl.float32)
    gated = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    to = out + token[:, None] * inner + at[None, :]
    tl.store(to, (gated * up).to(kind), mask=real[:, None] & real_at[None, :])


def project_gate(x: Tensor, weight: Tensor) -> Tensor:
    """silu of the first half of a product times its second half."""
    (num, width), inner = x.shape, len(weight) // 2
    out = x.new_empty(num, inner)
    tile = GATED[num > FEW]
    _gated[(triton.cdiv(num, tile.rows), triton.cdiv(inner, tile.columns))](
        x, weight, out, num, width, inner, tile.rows, tile.columns, tile.depth,
        x.dtype == torch.float32, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out
