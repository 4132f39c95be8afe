"""Triton kernels of a decoding step's products with what stands before and after them.

A step of a few hundred rows through a small model is as long as its launches: products of some microseconds, and as
many kernels again between them. Here a layer's products norm what they read and do with the outcome what comes next (turn it
and keep it, gate it, add it to the residual stream), so that with attention a layer is five launches. The norm's scale
is of a whole row and is put on after the product, which reads the row anyway. `plain` has the same functions in torch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from baton.engine.torch.cuda.attending import TABLES, aligned_to
from baton.engine.torch.cuda.reads import Reads


class Tile(NamedTuple):
    """How much of a product a program computes: rows and columns, how deep a step goes; Triton's own settings."""

    rows: int
    columns: int
    depth: int
    num_warps: int
    num_stages: int


FEW, MANY = 32, 128
"""Rows up to which a step has few of them; up to which not many."""
TURNED = Tile(16, 16, 64, 4, 4), Tile(32, 32, 64, 4, 3), Tile(64, 32, 64, 4, 3)
"""Columns of half a head. For few rows, for more, for many; the best of those tried on an H200."""
GATED = Tile(16, 32, 64, 4, 4), Tile(32, 64, 64, 4, 3), Tile(64, 64, 64, 4, 3)
ADDED = Tile(16, 16, 128, 4, 4), Tile(32, 32, 64, 4, 4), Tile(64, 32, 64, 4, 4)


def _tile(tiles: tuple[Tile, Tile, Tile], rows: int) -> Tile:
    return tiles[0] if rows <= FEW else tiles[1] if rows <= MANY else tiles[2]


@triton.jit
def _dot(a, b, acc, exact: tl.constexpr):
    return tl.dot(a, b, acc, input_precision="ieee" if exact else "tf32")


@triton.jit(do_not_specialize=["num", "layer", "columns"], do_not_specialize_on_alignment=TABLES)
def _turned(
    x, norm, weight, q_out, cos, sin, positions, who, index, anchor, places, caps, layer, num, eps, columns,
    width: tl.constexpr, heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr, half: tl.constexpr,
    rows: tl.constexpr, part: tl.constexpr, depth: tl.constexpr, aligned: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    real = token < num
    head = tl.program_id(1) // (half // part)
    at = tl.program_id(1) % (half // part) * part + tl.arange(0, part)
    kind = x.dtype.element_ty
    first = weight + (head * size + at)[None, :] * width
    second = first + half * width
    a = tl.zeros((rows, part), tl.float32)
    b = tl.zeros((rows, part), tl.float32)
    square = tl.zeros((rows,), tl.float32)
    for begin in range(0, width, depth):
        k = begin + tl.arange(0, depth)
        real_k = k < width
        read = tl.load(
            x + token[:, None] * width + k[None, :], mask=real[:, None] & real_k[None, :], other=0.0
        )
        wide = read.to(tl.float32)
        square += tl.sum(wide * wide, 1)
        given = (wide * tl.load(norm + k, mask=real_k, other=0.0).to(tl.float32)[None, :]).to(kind)
        a = _dot(given, tl.load(first + k[:, None], mask=real_k[:, None], other=0.0), a, exact)
        b = _dot(given, tl.load(second + k[:, None], mask=real_k[:, None], other=0.0), b, exact)
    scale = (1.0 / tl.sqrt(square / width + eps))[:, None]
    a = (a * scale).to(kind)
    b = (b * scale).to(kind)
    real_at = real[:, None]
    if head < heads + kv_heads:
        position = tl.load(positions + token, mask=real, other=0)[:, None] * half + at[None, :]
        c = tl.load(cos + position, mask=real_at, other=0.0).to(tl.float32)
        s = tl.load(sin + position, mask=real_at, other=0.0).to(tl.float32)
        wide_a, wide_b = a.to(tl.float32), b.to(tl.float32)
        a = ((wide_a * c).to(kind).to(tl.float32) - (wide_b * s).to(kind).to(tl.float32)).to(kind)
        b = ((wide_b * c).to(kind).to(tl.float32) + (wide_a * s).to(kind).to(tl.float32)).to(kind)
    if head < heads:
        to = q_out + ((token * heads + head) * size)[:, None] + at[None, :]
        tl.store(to, a, mask=real_at)
        tl.store(to + half, b, mask=real_at)
    else:
        own = tl.load(who + token, mask=real, other=0).to(tl.int64) * columns + columns - 1
        cap = tl.load(caps + own, mask=real, other=0).to(tl.int64)
        place = tl.load(index + token, mask=real, other=0).to(tl.int64)
        # Keys' heads, then values'.
        line = (layer * 2 * kv_heads + head - heads).to(tl.int64)
        start = tl.multiple_of(tl.load(places + own, mask=real, other=0), aligned)
        to = anchor + (start + (line * cap + place) * size)[:, None] + at[None, :]
        tl.store(to, a, mask=real_at)
        tl.store(to + half, b, mask=real_at)


def project_turn_keep(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, rotation: tuple[Tensor, Tensor], positions: Tensor,
    reads: Reads, layer: int,
) -> Tensor:  # fmt: skip
    """Queries, keys and values of a norm of `x`, as `add_norm`, a product and `turn_and_keep` would."""
    heads, kv_heads, size = reads.heads
    (num, width), half = x.shape, size // 2
    out = x.new_empty(num, heads, size)
    tile = _tile(TURNED, num)
    part = min(tile.columns, half)
    _turned[(triton.cdiv(num, tile.rows), (heads + 2 * kv_heads) * (half // part))](
        x, norm, weight, out, *rotation, positions, reads.who, reads.index, reads.anchor, reads.places, reads.caps,
        layer, num, eps, reads.places.shape[1],
        width, heads, kv_heads, size, half, tile.rows, part, tile.depth,
        aligned_to(x, size), x.dtype == torch.float32,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num"])
def _gated(
    x, norm, weight, out, num, eps, width: tl.constexpr, inner: tl.constexpr,
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
    square = tl.zeros((rows,), tl.float32)
    for begin in range(0, width, depth):
        k = begin + tl.arange(0, depth)
        real_k = k < width
        both = real_k[:, None] & real_at[None, :]
        read = tl.load(
            x + token[:, None] * width + k[None, :], mask=real[:, None] & real_k[None, :], other=0.0
        )
        wide = read.to(tl.float32)
        square += tl.sum(wide * wide, 1)
        given = (wide * tl.load(norm + k, mask=real_k, other=0.0).to(tl.float32)[None, :]).to(kind)
        gate = _dot(given, tl.load(first + k[:, None], mask=both, other=0.0), gate, exact)
        up = _dot(given, tl.load(second + k[:, None], mask=both, other=0.0), up, exact)
    scale = (1.0 / tl.sqrt(square / width + eps))[:, None]
    gate = (gate * scale).to(kind).to(tl.float32)
    up = (up * scale).to(kind).to(tl.float32)
    gated = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    to = out + token[:, None] * inner + at[None, :]
    tl.store(to, (gated * up).to(kind), mask=real[:, None] & real_at[None, :])


def project_gate(x: Tensor, norm: Tensor, eps: float, weight: Tensor) -> Tensor:
    """silu of the first half of a product of a norm of `x`, times its second half."""
    (num, width), inner = x.shape, len(weight) // 2
    out = x.new_empty(num, inner)
    tile = _tile(GATED, num)
    _gated[(triton.cdiv(num, tile.rows), triton.cdiv(inner, tile.columns))](
        x, norm, weight, out, num, eps, width, inner, tile.rows, tile.columns, tile.depth,
        x.dtype == torch.float32, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["num"])
def _added(
    x, given, weight, num, width: tl.constexpr, deep: tl.constexpr,
    rows: tl.constexpr, part: tl.constexpr, depth: tl.constexpr, exact: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    real = token < num
    at = tl.program_id(1) * part + tl.arange(0, part)
    real_at = at < width
    kind = x.dtype.element_ty
    acc = tl.zeros((rows, part), tl.float32)
    for begin in range(0, deep, depth):
        k = begin + tl.arange(0, depth)
        real_k = k < deep
        read = tl.load(
            given + token[:, None] * deep + k[None, :], mask=real[:, None] & real_k[None, :], other=0.0
        )
        some = tl.load(
            weight + at[None, :] * deep + k[:, None], mask=real_k[:, None] & real_at[None, :], other=0.0
        )
        acc = _dot(read, some, acc, exact)
    place = x + token[:, None] * width + at[None, :]
    both = real[:, None] & real_at[None, :]
    before = tl.load(place, mask=both, other=0.0).to(tl.float32)
    tl.store(place, (before + acc.to(kind).to(tl.float32)).to(kind), mask=both)


def project_add(x: Tensor, given: Tensor, weight: Tensor) -> None:
    """Add a product to `x` in place."""
    (num, width), deep = x.shape, given.shape[1]
    tile = _tile(ADDED, num)
    _added[(triton.cdiv(num, tile.rows), triton.cdiv(width, tile.columns))](
        x, given, weight, num, width, deep, tile.rows, tile.columns, tile.depth,
        x.dtype == torch.float32, num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip
