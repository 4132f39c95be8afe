"""The parts of forest attention on the CPU, with torch's own flash kernel and its backward.

Nodes of like length attend to themselves in one padded rectangle; a node's descendants are one slice, whose
query heads fold onto their key head. N tokens, H heads, K key-value heads, G = H/K, D size.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch.forward import heads_last, spread
from baton.forest.attention.attach import join
from baton.forest.rows import Ids

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
ALIKE = 0.8
"""Shortest over longest node of a rectangle."""


class _Rectangle:
    """Tokens of several nodes, padded to the longest by repeating a node's last one."""

    def __init__(self, start: Ids, sizes: NDArray[np.int64]) -> None:
        steps = np.arange(sizes.max())[None]
        index = (start[:, None] + np.minimum(steps, sizes[:, None] - 1)).astype(np.int64)
        real = steps < sizes[:, None]
        self._shape = index.shape
        self._index = torch.from_numpy(index.ravel())
        self._where = torch.from_numpy(index[real])
        self._real = None if real.all() else torch.from_numpy(np.flatnonzero(real))
        self._mask = None if real.all() else torch.from_numpy(real)[..., None, None]

    def take(self, x: Tensor, *, masked: bool = False) -> Tensor:
        """N x H ... -> nodes x H x tokens ...; `masked`: zero at the padding."""
        taken = x.index_select(0, self._index).view(*self._shape, *x.shape[1:])
        if masked and self._mask is not None:
            taken = taken * self._mask
        return taken.transpose(1, 2)

    def put(self, x: Tensor, into: Tensor) -> None:
        """The other way; what is computed at the padding is left out."""
        flat = x.transpose(1, 2).flatten(0, 1)
        into.index_copy_(0, self._where, flat if self._real is None else flat.index_select(0, self._real))


class CpuOwn:
    """Every node's causal attention to itself."""

    def __init__(self, start: Ids, stop: Ids) -> None:
        sizes = (stop - start).astype(np.int64)
        order = np.argsort(-sizes, kind="stable")
        self._rectangles: list[_Rectangle] = []
        at = 0
        while at < len(order):
            enough = np.searchsorted(-sizes[order], -ALIKE * sizes[order[at]], side="right")
            nodes = order[at : max(int(enough), at + 1)]
            self._rectangles.append(_Rectangle(start[nodes], sizes[nodes]))
            at += len(nodes)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        tokens, heads, _ = q.shape
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse = q.new_empty(tokens, heads, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
        for rectangle in self._rectangles:
            o, s = _flash(*_heads(q, k, v, rectangle), 0.0, True, scale=scale)
            rectangle.put(o, out)
            rectangle.put(s, lse)
        return out, lse

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        kv_heads = k.shape[1]
        for rectangle in self._rectangles:
            g = rectangle.take(grad, masked=True)
            o, s = rectangle.take(out), rectangle.take(lse)
            found = _flash_backward(g, *_heads(q, k, v, rectangle), o, s, 0.0, True, scale=scale)
            rectangle.put(found[0], dq)
            for total, x in ((dk, found[1]), (dv, found[2])):
                batch, heads, length, size = x.shape
                if heads > kv_heads:
                    x = x.view(batch, kv_heads, heads // kv_heads, length, size).sum(2)
                rectangle.put(x, total)
        return dq, dk, dv


class CpuLevel:
    """What is below each node of one level attends to that node."""

    def __init__(self, start: Ids, stop: Ids, below: Ids, device: torch.device) -> None:  # noqa: ARG002  # as on CUDA
        self._spans = list(zip(start.tolist(), stop.tolist(), below.tolist(), strict=True))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float, out: Tensor, lse: Tensor) -> None:
        for a, b, c in self._spans:
            o, s = _flash(*_fold(q, k, v, a, b, c), 0.0, False, scale=scale)
            o, s = heads_last(o, s, c - b)
            join(out, lse, slice(b, c), o.flatten(1, 2), s.flatten(1))

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float,
        dq: Tensor, dk: Tensor, dv: Tensor,
    ) -> None:  # fmt: skip
        kv_heads = k.shape[1]
        for a, b, c in self._spans:
            g, o = (spread(_grouped(x[b:c], kv_heads)) for x in (grad, out))
            s = _grouped(lse[b:c], kv_heads).transpose(0, 1).flatten(1)[None]
            x, y, z = _flash_backward(g, *_fold(q, k, v, a, b, c), o, s, 0.0, False, scale=scale)
            dq[b:c] += heads_last(x, s, c - b)[0].flatten(1, 2)
            dk[a:b] += y[0].transpose(0, 1)
            dv[a:b] += z[0].transpose(0, 1)


def _heads(q: Tensor, k: Tensor, v: Tensor, rectangle: _Rectangle) -> tuple[Tensor, Tensor, Tensor]:
    """A rectangle of tokens, heads first, with each key head once for every query head."""
    group = q.shape[1] // k.shape[1]
    k, v = rectangle.take(k), rectangle.take(v)
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return rectangle.take(q), k, v


def _fold(q: Tensor, k: Tensor, v: Tensor, a: int, b: int, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries b..c over keys a..b: 1 x K x (tokens G) x D, and 1 x K x tokens x D twice."""
    return spread(_grouped(q[b:c], k.shape[1])), k[a:b].transpose(0, 1)[None], v[a:b].transpose(0, 1)[None]


def _grouped(x: Tensor, kv_heads: int) -> Tensor:
    """Query heads by the key head they read: N x H ... -> N x K x G ..."""
    return x.reshape(x.shape[0], kv_heads, -1, *x.shape[2:])
