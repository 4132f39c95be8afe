"""Forest attention on CUDA, with torch's variable-length flash attention and its backward: two calls for any forest.

One call is for all nodes' own attention, one for everything below every node, of all levels together: queries are
gathered once for each node above them, and a table says where a token's parts are, so that one kernel joins them. Few
long stretches of keys would leave most of the chip idle in backward, which deals keys out among its multiprocessors;
so what is below a node is cut into pieces, each with a copy of the node's keys, whose gradients are added up. Half
precision only; the kernels want it. N query tokens, H heads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from baton.forest.fused import ops_for
from baton.forest.layout import Layout
from baton.forest.rows import Ids

Places = Tensor | slice
"""Which tokens: their numbers, or a slice where they are one stretch."""
BUSY = 1056
"""Blocks of keys that keep 132 multiprocessors busy to the end."""
_BLOCK = 128
_PIECE = 256
"""Queries of a piece, at least."""

_flash: Any = torch.ops.aten._flash_attention_forward
_flash_backward: Any = torch.ops.aten._flash_attention_backward


class Segments:
    """Several stretches of queries, each over its own stretch of keys. Log-sum-exps are H x N."""

    def __init__(self, query_sizes: Ids, key_sizes: Ids, causal: bool, device: torch.device) -> None:
        self._query_bounds = _bounds(query_sizes, device)
        self._key_bounds = _bounds(key_sizes, device)
        self._longest = int(query_sizes.max()), int(key_sizes.max())
        self._causal = causal
        # Dropout's random state, which the kernel asks for and does not read.
        self._unused = torch.zeros(2, dtype=torch.uint64, device=device), torch.empty(0, device=device)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        bounds = self._query_bounds, self._key_bounds, *self._longest
        out, lse = _flash(q, k, v, *bounds, 0.0, self._causal, False, scale=scale)[:2]
        return out, lse

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = _flash_backward(
            grad.contiguous(), q, k, v, out.contiguous(), lse.contiguous(), self._query_bounds,
            self._key_bounds, *self._longest, 0.0, self._causal, *self._unused, scale=scale,
        )  # fmt: skip
        return found


class Below:
    """What is below each node attends to that node.

    Where no node is below another that has some, queries stay where they are: what is below nobody has no keys.
    Otherwise they are gathered, once for each node above them.
    """

    def __init__(self, layout: Layout, heads: int, device: torch.device) -> None:
        start, stop, level = layout.node_start, layout.node_stop, layout.node_level
        below = layout.end[start]
        inner = np.flatnonzero(below > stop)
        start, stop, below, level = start[inner], stop[inner], below[inner], level[inner]
        sizes, keys = (below - stop).astype(np.int64), (stop - start).astype(np.int64)
        wanted = -(-BUSY // max(1, int((-(-keys // _BLOCK)).sum()) * heads))
        pieces = np.clip(sizes // _PIECE, 1, wanted)
        edges = np.concatenate(
            [np.linspace(0, size, n + 1).astype(np.int64) for size, n in zip(sizes, pieces, strict=True)]
        )
        cut = np.diff(edges)[np.diff(np.repeat(np.arange(len(sizes)), pieces + 1)) == 0]
        every = np.repeat(keys, pieces)
        num = layout.num_tokens
        if int(level.max()) == 0:
            self.queries: Places = slice(0, num)
            self.query_table = _table(num, stop, below, level, device, at=_numbers(stop, below))
            first = (
                np.cumsum(pieces) - pieces
            )  # a node's first piece, before which its own tokens have no keys
            before = np.diff(np.concatenate(([0], below)))[: len(start)] - sizes
            cut, every = np.insert(cut, first, before), np.insert(every, first, 0)
            if below[-1] < num:
                cut, every = np.append(cut, num - below[-1]), np.append(every, 0)
        else:
            self.queries = _places(stop, below, device)
            # Every token has at most one node of each level above it.
            self.query_table = _table(num, stop, below, level, device)
        self.segments = Segments(cut, every, False, device)
        copied = np.repeat(start, pieces), np.repeat(stop, pieces)
        self.keys = _places(*copied, device)
        nth = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        self.key_table = _table(num, *copied, nth, device)


class CudaPass:
    """One layout's attention on CUDA."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        self._device = device
        sizes = layout.node_stop - layout.node_start
        self.own = Segments(sizes, sizes, True, device)
        self.shared = bool((layout.end[layout.node_start] > layout.node_stop).any())
        self.below: Below | None = None

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        if self.shared and self.below is None:
            self.below = Below(self.layout, q_NHD.shape[1], self._device)
        out: Tensor = _Attention.apply(q_NHD, k_NKD, v_NKD, self, scale)  # type: ignore[no-untyped-call]  # torch's
        return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, run: CudaPass, scale: float) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        out, lse = run.own.forward(q, k, v, scale)
        if (below := run.below) is not None:
            keys, values = _both(k, v, below.keys)
            more = below.segments.forward(q[below.queries], keys, values, scale)
            out, lse = ops_for(q.device).join(out, lse, *more, below.query_table)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.run, ctx.scale = run, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        run: CudaPass = ctx.run
        grad = grad.contiguous()
        dq, dk, dv = run.own.backward(grad, q, k, v, out, lse, ctx.scale)
        if (below := run.below) is not None:
            at, ops = below.queries, ops_for(q.device)
            keys, values = _both(k, v, below.keys)
            found = below.segments.backward(grad[at], q[at], keys, values, out[at], lse[:, at], ctx.scale)
            ops.add_parts((dq, dk, dv), found, below.query_table, below.key_table)
        return dq, dk, dv, None, None


def _both(k: Tensor, v: Tensor, places: Places) -> tuple[Tensor, Tensor]:
    """Keys and values of these places: one copy where they are neighbours in memory."""
    heads, size = k.shape[1:]
    apart = v.data_ptr() - k.data_ptr()
    if isinstance(places, slice) or apart != heads * size * k.element_size() or k.stride() != v.stride():
        return k[places], v[places]
    both = k.as_strided((len(k), 2 * heads, size), k.stride())[places]
    return both[:, :heads], both[:, heads:]


def _bounds(sizes: Ids, device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)).to(device)


def _places(start: Ids, stop: Ids, device: torch.device) -> Places:
    """The tokens of several stretches: a slice where they are one, which costs no copy."""
    if len(start) == 1 or (start[1:] == stop[:-1]).all():
        return slice(int(start[0]), int(stop[-1]))
    return torch.from_numpy(_numbers(start, stop)).to(device)


def _numbers(start: Ids, stop: Ids) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = (stop - start).astype(np.int64)
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1])) + np.repeat(start - (ends - sizes), sizes)


def _table(
    num: int, start: Ids, stop: Ids, column: Ids, device: torch.device, *, at: Ids | None = None
) -> Tensor:
    """num x columns: where each token stands in the stretches one after the other, or `at`; -1: not in that column."""
    table = np.full((num, int(column.max()) + 1), -1, np.int32)
    who = _numbers(start, stop)
    table[who, np.repeat(column, stop - start)] = np.arange(len(who)) if at is None else at
    return torch.from_numpy(table).to(device)
