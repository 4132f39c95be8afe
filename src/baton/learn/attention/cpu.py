"""The parts of forest attention on the CPU, with torch's own flash kernel and its backward.

Nodes of like length attend to themselves in one padded rectangle; a node's descendants are one slice, whose
query heads fold onto their key head. N tokens, H heads, K key-value heads, G = H/K, D size.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.attention import heads_last, spread
from baton.learn.attention.join import join
from baton.learn.rows import Ids

__all__ = ["CpuLevel", "CpuOwn"]

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
ALIKE = 0.8
"""Shortest over longest node of a rectangle."""


class CpuOwn:
    """Every node's causal attention to itself."""

    def __init__(self, start: Ids, stop: Ids) -> None:
        sizes = (stop - start).astype(np.int64)
        order = np.argsort(-sizes, kind="stable")
        self._rectangles: list[tuple[Tensor, Tensor]] = []
        at = 0
        while at < len(order):
            longest = sizes[order[at]]
            enough = np.searchsorted(-sizes[order], -ALIKE * longest, side="right")
            nodes = order[at : max(int(enough), at + 1)]
            steps = np.arange(longest)[None]
            index = start[nodes, None] + np.minimum(steps, sizes[nodes, None] - 1)
            real = steps < sizes[nodes, None]
            self._rectangles.append((torch.from_numpy(index.astype(np.int64)), torch.from_numpy(real)))
            at += len(nodes)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        tokens, heads, _ = q.shape
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        lse = q.new_empty(tokens, heads, dtype=torch.float64 if q.dtype == torch.float64 else torch.float32)
        for index, real in self._rectangles:
            o, s = _flash(*_heads(q, k, v, index), 0.0, True, scale=scale)
            where = index[real]
            out[where], lse[where] = o.transpose(1, 2)[real], s.transpose(1, 2)[real]
        return out, lse

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        dq, dk, dv = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in (q, k, v))
        kv_heads = k.shape[1]
        for index, real in self._rectangles:
            # Padding repeats a node's last token, with no gradient.
            g = (grad[index] * real[..., None, None]).transpose(1, 2)
            o, s = out[index].transpose(1, 2), lse[index].transpose(1, 2)
            found = _flash_backward(g, *_heads(q, k, v, index), o, s, 0.0, True, scale=scale)
            where = index[real]
            dq[where] = found[0].transpose(1, 2)[real]
            for total, x in ((dk, found[1]), (dv, found[2])):
                batch, heads, length, size = x.shape
                x = x.view(batch, kv_heads, heads // kv_heads, length, size).sum(2)
                total[where] = x.transpose(1, 2)[real]
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


def _heads(q: Tensor, k: Tensor, v: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A rectangle of tokens, heads first, with each key head once for every query head."""
    group = q.shape[1] // k.shape[1]
    k, v = k[index].transpose(1, 2), v[index].transpose(1, 2)
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return q[index].transpose(1, 2), k, v


def _fold(q: Tensor, k: Tensor, v: Tensor, a: int, b: int, c: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries b..c over keys a..b: 1 x K x (tokens G) x D, and 1 x K x tokens x D twice."""
    return spread(_grouped(q[b:c], k.shape[1])), k[a:b].transpose(0, 1)[None], v[a:b].transpose(0, 1)[None]


def _grouped(x: Tensor, kv_heads: int) -> Tensor:
    """Query heads by the key head they read: N x H ... -> N x K x G ..."""
    return x.reshape(x.shape[0], kv_heads, -1, *x.shape[2:])
