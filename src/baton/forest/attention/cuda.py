"""Forest attention on CUDA, with torch's variable-length flash attention and its backward: two calls for any forest.

In pre-order a token's first child follows it, so tokens are chains, each one stretch: every chain attends to itself
causally (the first call), and what leaves a chain at a token, which is one stretch too, attends to the chain up to
there, and so on upwards (the second, for all chains together). Where chains leave others that leave others, queries are
gathered once for each chain above them; a table says where a token's parts are, and one kernel joins them. Few long
stretches of keys would leave most of the chip idle in backward, which deals keys out among its multiprocessors; so
queries are cut into pieces, each with a copy of its keys, whose gradients are added up. Half precision only; the
kernels want it. N query tokens, H heads.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.forest.fused import ops_for
from baton.forest.layout import Layout

Longs = NDArray[np.int64]
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

    def __init__(
        self,
        query_sizes: Longs,
        key_sizes: Longs,
        causal: bool,
        device: torch.device,
        longest: tuple[int, int] | None = None,
    ) -> None:
        """`longest`: of the stretches that there may ever be; None: of these."""
        self.sizes = query_sizes, key_sizes
        self.longest = longest or (int(query_sizes.max()), int(key_sizes.max()))
        self._query_bounds = _bounds(query_sizes, device)
        self._key_bounds = _bounds(key_sizes, device)
        self._causal = causal
        # Dropout's random state, which the kernel asks for and does not read.
        self._unused = torch.zeros(2, dtype=torch.uint64, device=device), torch.empty(0, device=device)

    def fill(self, query_sizes: Longs, key_sizes: Longs) -> None:
        """Set the bounds of as many stretches in place."""
        for bounds, sizes in ((self._query_bounds, query_sizes), (self._key_bounds, key_sizes)):
            bounds.copy_(_bounds(sizes, bounds.device), non_blocking=True)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        bounds = self._query_bounds, self._key_bounds, *self.longest
        out, lse = _flash(q, k, v, *bounds, 0.0, self._causal, False, scale=scale)[:2]
        return out, lse

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = _flash_backward(
            grad.contiguous(), q, k, v, out.contiguous(), lse.contiguous(), self._query_bounds,
            self._key_bounds, *self.longest, 0.0, self._causal, *self._unused, scale=scale,
        )  # fmt: skip
        return found


class Leaving(NamedTuple):
    """Stretches that leave a chain at one token, in the order of their queries: which they are, and what they see."""

    first: Longs
    """First of the queries; and one past the last."""
    last: Longs
    start: Longs
    """First of the keys: of the chain that is left; and one past the last."""
    stop: Longs
    level: Longs
    """How many chains that one has above it."""


def chains_of(layout: Layout) -> tuple[Longs, Leaving]:
    """First tokens of the chains, and what leaves them."""
    parent, end = layout.parent.astype(np.int64), layout.end.astype(np.int64)
    starts = np.flatnonzero((parent != np.arange(len(parent)) - 1) | (parent < 0))
    chain = np.searchsorted(starts, np.arange(len(parent)), side="right") - 1
    above = np.where(parent[starts] < 0, -1, chain[parent[starts]])
    level = np.zeros(len(starts), np.int64)
    for number, other in enumerate(above.tolist()):
        level[number] = level[other] + 1 if other >= 0 else 0
    left = np.unique(parent[starts][above >= 0])  # tokens at which a chain is left
    left = left[np.argsort(end[left + 1], kind="stable")] if len(left) else left
    last = chain[left]
    return starts, Leaving(end[left + 1], end[left], starts[last], left + 1, level[last])


class Below:
    """What leaves chains attends to them.

    Where no chain that is left leaves another, queries stay where they are: what leaves no chain has no keys there.
    Otherwise they are gathered, once for each chain above them.
    """

    def __init__(self, num: int, leaving: Leaving, heads: int, device: torch.device) -> None:
        first, last, start, stop, level = leaving
        sizes, keys = last - first, stop - start
        wanted = -(-BUSY // max(1, int((-(-keys // _BLOCK)).sum()) * heads))
        pieces = np.clip(sizes // _PIECE, 1, wanted)
        cut = np.concatenate(
            [
                np.diff(np.linspace(0, size, n + 1).astype(np.int64))
                for size, n in zip(sizes, pieces, strict=True)
            ]
        )
        every = np.repeat(keys, pieces)
        there = _numbers(first, last)
        if int(level.max()) == 0:
            self.queries: Places = slice(0, num)
            self.query_table = _table(num, there, np.zeros(len(there), np.int64), there, device)
            begun = np.cumsum(pieces) - pieces
            gaps = first - np.concatenate(([0], last[:-1]))
            cut, every = np.insert(cut, begun, gaps), np.insert(every, begun, 0)
            cut, every = np.append(cut, num - last[-1]), np.append(every, 0)
        else:
            self.queries = _sent(there, device)
            # Every token has at most one chain of each level above it.
            self.query_table = _table(num, there, np.repeat(level, sizes), np.arange(len(there)), device)
        self.segments = Segments(cut, every, False, device)
        copied = _numbers(np.repeat(start, pieces), np.repeat(stop, pieces))
        self.keys: Places = _sent(copied, device)
        if len(pieces) == 1 == pieces[0]:
            self.keys = slice(int(start[0]), int(stop[0]))
        # Of a chain, longer parts come first: so a token's places fill its line of the table from the left.
        nth = np.zeros(len(pieces), np.int64)
        begun_of: dict[int, int] = {}
        for number, (chain, count) in enumerate(zip(start.tolist(), pieces.tolist(), strict=True)):
            nth[number] = begun_of.get(chain, 0)
            begun_of[chain] = int(nth[number]) + count
        column = (
            np.repeat(nth, pieces)
            + np.arange(int(pieces.sum()))
            - np.repeat(np.cumsum(pieces) - pieces, pieces)
        )
        self.key_table = _table(
            num, copied, np.repeat(column, np.repeat(keys, pieces)), np.arange(len(copied)), device
        )


class CudaPass:
    """One layout's attention on CUDA."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        self._device = device
        starts, self._leaving = chains_of(layout)
        sizes = np.diff(np.append(starts, layout.num_tokens))
        self.own = Segments(sizes, sizes, True, device)
        self.copied = int((self._leaving.stop - self._leaving.start).sum())
        """Keys that are copied for what leaves chains, at least."""
        self.below: Under | None = None

    def under(self, heads: int) -> Under | None:
        """What leaves chains, cut for so many heads; None: nothing does."""
        if self.copied and self.below is None:
            self.below = Below(self.layout.num_tokens, self._leaving, heads, self._device)
        return self.below

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        return attend(self, q_NHD, k_NKD, v_NKD, scale)


class Under(Protocol):
    """What `Below` is to attention: queries and keys of what leaves chains, and where they are a token's."""

    queries: Places
    keys: Places
    segments: Segments
    query_table: Tensor
    key_table: Tensor


class TwoCalls(Protocol):
    """The two calls of a forest."""

    own: Segments

    def under(self, heads: int) -> Under | None:
        """None where no chain leaves another."""
        ...


def attend(run: TwoCalls, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
    """Attention of these parts, N x H x D."""
    out: Tensor = _Attention.apply(q_NHD, k_NKD, v_NKD, run, scale)  # type: ignore[no-untyped-call]  # torch's
    return out


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, run: TwoCalls, scale: float) -> Tensor:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
        out, lse = run.own.forward(q, k, v, scale)
        below = run.under(q.shape[1])  # made while a GPU is at the first layer's
        if below is not None:
            keys, values = _both(k, v, below.keys)
            more = below.segments.forward(q[below.queries], keys, values, scale)
            out, lse = ops_for(q.device).join(out, lse, *more, below.query_table)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.own, ctx.below, ctx.scale = run.own, below, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        own: Segments = ctx.own
        below: Under | None = ctx.below
        grad = grad.contiguous()
        dq, dk, dv = own.backward(grad, q, k, v, out, lse, ctx.scale)
        if below is not None:
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


def _bounds(sizes: Longs, device: torch.device) -> Tensor:
    return _sent(np.concatenate(([0], np.cumsum(sizes))).astype(np.int32), device)


def _numbers(start: Longs, stop: Longs) -> Longs:
    """The tokens of several stretches, one after the other."""
    sizes = stop - start
    ends = np.cumsum(sizes)
    found: Longs = np.arange(int(ends[-1])) + np.repeat(start - (ends - sizes), sizes)
    return found


def _table(num: int, token: Longs, column: Longs, place: Longs, device: torch.device) -> Tensor:
    """num x columns: the place of a token in each column; -1: none."""
    table = np.full((num, int(column.max()) + 1), -1, np.int32)
    table[token, column] = place
    return _sent(table, device)


def _sent(values: NDArray[Any], device: torch.device) -> Tensor:
    """Without waiting for what the device is at."""
    found = torch.from_numpy(values)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found
