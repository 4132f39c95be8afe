"""Forest attention as parts: every node attends to itself causally, and all that is below it attends to it.

In pre-order the tokens below a node are one slice, and so are its own, so a shared stretch is read once for
all its descendants without any mask. Parts are merged by their log-sum-exp. Backward is as direct: the
gradient of softmax over a union of keys, given the merged output and log-sum-exp, is the sum of each part's
own flash-attention backward (as in ring attention, arXiv 2310.01889). Nothing of size N x N or of the
gathered prefixes is kept; only q, k, v, the output and one number per query and head.

On CUDA (`cuda`) all nodes' own attention is one call with variable lengths, and all that is below them another.
Chains (merged rows) need one call: plain padding-free attention.

On the CPU the kernels are torch's own flash attention and its backward. Nodes of like length attend to themselves in
one padded rectangle; a node's descendants are one slice, whose query heads fold onto their key head. A forest of many
short stretches would spend its time on calls rather than in them, so there blocks of neighbouring tokens attend to
their whole paths, all blocks in one masked call (`TokenBlocks`). N tokens, H heads, K key-value heads, G = H/K, D size.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.errors import UsageError, nearest
from baton.forest.attention.cuda import CudaPass
from baton.forest.attention.flex import FlexPass, bucket
from baton.forest.layout import Layout
from baton.forest.rows import Ids

Numbers = NDArray[np.integer[Any]]
Part = tuple[slice, Tensor, Tensor]
"""For some queries, their attention to some keys, and its log-sum-exp."""
Attention = Literal["auto", "parts", "flex"]
"""How a forest is attended: as parts, as one kernel with a block mask, or whichever is faster here: parts, in half
precision 1.1 to 1.6 times (H200, 135M, five kinds of forests)."""
_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
COPIED = 16
"""Copies of each key on average from which on a block mask costs less than making them."""
ALIKE = 0.8
"""Shortest over longest node of a rectangle."""
BLOCK = 32
"""Queries of a block."""
CALL = 600_000
"""What a call for one node costs, in products of a query's and a key's number (AMD EPYC, one thread)."""


def make_pass(
    layout: Layout, model_dtype: torch.dtype, device: torch.device, kind: Attention = "auto"
) -> PartsPass | CudaPass | FlexPass:
    """What computes attention for this layout; its own `layout` may be padded."""
    if kind not in ("auto", "parts", "flex"):
        raise UsageError(f"there is no attention {kind!r}. {nearest(kind, ('auto', 'parts', 'flex'))}")
    asked = kind
    slow = device.type == "cuda" and model_dtype not in (torch.bfloat16, torch.float16)
    if kind == "auto":
        kind = "flex" if slow else "parts"
    if kind == "flex":
        return FlexPass(layout.padded(bucket(layout.num_tokens)), device)
    if slow:
        raise UsageError(
            f"attention 'parts' on CUDA needs bfloat16 or float16, not {model_dtype}. Use 'flex'."
        )
    if device.type != "cuda":
        return PartsPass(layout)
    made = CudaPass(layout, device)
    if asked == "auto" and made.copied > COPIED * layout.num_tokens:
        return FlexPass(layout.padded(bucket(layout.num_tokens)), device)
    return made


def num_levels(layout: Layout) -> int:
    """Levels of nodes with something below them."""
    inner = layout.end[layout.node_start] > layout.node_stop
    return int(layout.node_level[inner].max()) + 1 if inner.any() else 0


class PartsPass:
    """The parts, or the blocks, of one layout on the CPU, by what costs less there."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._every: TokenBlocks | None = None

    @cached_property
    def own(self) -> CpuOwn:
        """What every node is to itself."""
        return CpuOwn(self.layout.node_start, self.layout.node_stop)

    @cached_property
    def levels(self) -> list[CpuLevel]:
        """What nodes are to those below them, from the roots down."""
        start, stop, level = self.layout.node_start, self.layout.node_stop, self.layout.node_level
        below = self.layout.end[start]
        inner = below > stop
        return [
            CpuLevel(start[at], stop[at], below[at])
            for at in (np.flatnonzero(inner & (level == depth)) for depth in range(num_levels(self.layout)))
        ]

    def attend(
        self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float, at: Tensor | None = None
    ) -> Tensor:
        """N x H x D; `at` (rising): of these tokens alone."""
        out: Tensor
        if self._as_blocks(q_NHD.shape[1] * q_NHD.shape[2]):
            if at is None:
                self._every = blocks = self._every or TokenBlocks(self.layout)
            else:
                q_NHD, blocks = q_NHD.index_select(0, at), TokenBlocks(self.layout, at.numpy())
            out = _Blocks.apply(q_NHD, k_NKD, v_NKD, blocks, scale)  # type: ignore[no-untyped-call]  # torch's
            return out
        out = _Parts.apply(q_NHD, k_NKD, v_NKD, self, scale)  # type: ignore[no-untyped-call]  # torch's
        return out if at is None else out.index_select(0, at)

    def _as_blocks(self, width: int) -> bool:
        depth = self.layout.depth
        first = depth[::BLOCK]
        blocks = len(first) * BLOCK * (int(first.max()) + BLOCK)
        calls = np.count_nonzero(self.layout.end[self.layout.node_start] > self.layout.node_stop)
        return blocks * width < (int(depth.sum()) + len(depth)) * width + int(calls) * CALL


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, parts: PartsPass, scale: float) -> Tensor:
        out: Tensor
        out, lse = parts.own.forward(q, k, v, scale)
        if parts.levels and out.dtype in (torch.bfloat16, torch.float16):
            out = out.float()
        for level in parts.levels:
            for part in level.forward(q, k, v, scale):
                _join(out, lse, *part)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.parts, ctx.scale = parts, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        parts: PartsPass = ctx.parts
        dq, dk, dv = parts.own.backward(grad, q, k, v, out, lse, ctx.scale)
        if parts.levels and dq.dtype in (torch.bfloat16, torch.float16):
            dq, dk, dv = dq.float(), dk.float(), dv.float()
        for level in parts.levels:
            level.backward(grad, q, k, v, out, lse, ctx.scale, dq, dk, dv)
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype), None, None


def _join(out: Tensor, lse: Tensor, where: slice, more: Tensor, more_lse: Tensor) -> None:
    """Add a part at `where`, in the precision of `out` (the engine's own join lowers float64)."""
    before, before_lse = out[where], lse[where]  # views
    share = torch.sigmoid(more_lse - before_lse).unsqueeze(-1).to(out.dtype)
    before.lerp_(more.to(out.dtype), share)
    torch.logaddexp(before_lse, more_lse, out=before_lse)


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

    def __init__(self, start: Ids, stop: Ids, below: Ids) -> None:
        self._spans = list(zip(start.tolist(), stop.tolist(), below.tolist(), strict=True))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Iterator[Part]:
        q, k, v = _heads_first(q, k), _heads_first(k, k), _heads_first(v, k)
        group = q.shape[2] // k.shape[2]
        for a, b, c in self._spans:
            below = q.narrow(2, b * group, (c - b) * group)
            o, s = _flash(below, k.narrow(2, a, b - a), v.narrow(2, a, b - a), 0.0, False, scale=scale)
            yield slice(b, c), _spread_out(o, c - b), _spread_out(s, c - b)

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float,
        dq: Tensor, dk: Tensor, dv: Tensor,
    ) -> None:  # fmt: skip
        grad, q, out, lse = (_heads_first(x, k) for x in (grad, q, out, lse))
        k, v = _heads_first(k, k), _heads_first(v, k)
        group = q.shape[2] // k.shape[2]
        for a, b, c in self._spans:
            g, x, o, s = (each.narrow(2, b * group, (c - b) * group) for each in (grad, q, out, lse))
            y, z = k.narrow(2, a, b - a), v.narrow(2, a, b - a)
            x, y, z = _flash_backward(g, x, y, z, o, s, 0.0, False, scale=scale)
            dq.narrow(0, b, c - b).add_(_spread_out(x, c - b))
            dk.narrow(0, a, b - a).add_(y[0].transpose(0, 1))
            dv.narrow(0, a, b - a).add_(z[0].transpose(0, 1))


class TokenBlocks:
    """Blocks of neighbouring tokens, each with the keys that any of them sees, in one rectangle.

    In pre-order everything that a block's tokens see is on the path to the first of them or between it and the last.
    """

    def __init__(self, layout: Layout, at: NDArray[np.int64] | None = None) -> None:
        at = np.arange(layout.num_tokens) if at is None else at
        count = -(-len(at) // BLOCK)
        self._padded = count * BLOCK
        token = at[np.minimum(np.arange(self._padded), len(at) - 1)].reshape(count, BLOCK)
        runs = self._runs(layout, token[:, 0], token[:, -1])
        sizes = np.stack([stop - start for start, stop in runs], 1)
        total = sizes.sum(1)
        keys = np.zeros((count, int(total.max())), np.int64)
        real = np.arange(keys.shape[1]) < total[:, None]
        flat = sizes.ravel()
        starts = np.stack([start for start, _ in runs], 1).ravel()
        keys[real] = np.arange(flat.sum()) + np.repeat(starts - (np.cumsum(flat) - flat), flat)
        seen = (keys[:, None] <= token[..., None]) & (token[..., None] < layout.end[keys][:, None])
        seen &= real[:, None]
        self._shape = keys.shape
        self._keys = torch.from_numpy(keys.ravel())
        self._unseen = torch.from_numpy(~seen)
        self._bias: Tensor | None = None

    @staticmethod
    def _runs(layout: Layout, first: Numbers, last: Numbers) -> list[tuple[Numbers, Numbers]]:
        """Stretches of keys that blocks see: their own tokens, then node by node up to the roots, and nothing there."""
        runs = [(first, last + 1)]
        above: Numbers = layout.parent[first]
        while (above >= 0).any():
            node = np.searchsorted(layout.node_start, above, side="right") - 1
            start = np.where(above >= 0, layout.node_start[node], 0)
            runs.append((start, above + 1))
            above = np.where(above >= 0, layout.parent[start], -1)
        return runs

    def queries(self, x: Tensor) -> Tensor:
        """Queries or what is of them, Q x H x D -> blocks x H x tokens x D; the last block may end with zeros."""
        if self._padded > len(x):
            x = torch.cat((x, x.new_zeros(self._padded - len(x), *x.shape[1:])))
        return x.reshape(-1, BLOCK, *x.shape[1:]).transpose(1, 2)

    def read(self, q: Tensor, *from_: Tensor) -> Iterator[Tensor]:
        """Keys or values, N x K x D -> blocks x H x keys x D: those of a block, once for every query head."""
        for x in from_:
            group = q.shape[1] // x.shape[1]
            taken = x.index_select(0, self._keys).view(*self._shape, *x.shape[1:]).transpose(1, 2)
            yield taken if group == 1 else taken.repeat_interleave(group, 1)

    def put(self, x: Tensor, like: Tensor) -> Tensor:
        """The other way, added up: blocks x H x keys x D -> N x K x D."""
        tokens, kv_heads, size = like.shape
        x = x.transpose(1, 2).reshape(-1, kv_heads, x.shape[1] // kv_heads, size)
        wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
        into = torch.zeros(tokens, kv_heads, size, dtype=wide)
        return into.index_add_(0, self._keys, (x[:, :, 0] if x.shape[2] == 1 else x.sum(2)).to(wide)).to(
            like.dtype
        )

    def mask(self, like: Tensor) -> Tensor:
        """What is added to the scores, for all heads."""
        if self._bias is None or self._bias.dtype != like.dtype:
            bias = torch.zeros(self._unseen.shape, dtype=like.dtype)
            self._bias = bias.masked_fill_(self._unseen, -torch.inf)
        return self._bias[:, None].expand(-1, like.shape[1], -1, -1)


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, blocks: TokenBlocks, scale: float) -> Tensor:
        given = blocks.queries(q), *blocks.read(q, k, v)
        out, lse = _flash(*given, 0.0, False, attn_mask=blocks.mask(given[0]), scale=scale)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.blocks, ctx.scale = blocks, scale
        found: Tensor = out.transpose(1, 2).flatten(0, 1)[: len(q)]
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        blocks: TokenBlocks = ctx.blocks
        given = blocks.queries(q), *blocks.read(q, k, v)
        mask = blocks.mask(given[0])
        dq, *both = _flash_backward(
            blocks.queries(grad), *given, out, lse, 0.0, False, attn_mask=mask, scale=ctx.scale
        )
        return dq.transpose(1, 2).flatten(0, 1)[: len(q)], *(blocks.put(x, k) for x in both), None, None


def _heads(q: Tensor, k: Tensor, v: Tensor, rectangle: _Rectangle) -> tuple[Tensor, Tensor, Tensor]:
    """A rectangle of tokens, heads first, with each key head once for every query head."""
    group = q.shape[1] // k.shape[1]
    k, v = rectangle.take(k), rectangle.take(v)
    if group > 1:
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    return rectangle.take(q), k, v


def _heads_first(x: Tensor, k: Tensor) -> Tensor:
    """Heads behind the key head that they read, N x H ... -> 1 x K x (N G) ...: a node's tokens are one slice of it."""
    tokens, kv_heads = k.shape[:2]
    if x.shape[1] == kv_heads:
        return x.transpose(0, 1).unsqueeze(0)
    return x.reshape(tokens, kv_heads, -1, *x.shape[2:]).transpose(0, 1).flatten(1, 2).unsqueeze(0)


def _spread_out(x: Tensor, tokens: int) -> Tensor:
    """The other way: 1 x K x (N G) ... -> N x H ..."""
    if x.shape[2] == tokens:
        return x[0].transpose(0, 1)
    return x[0].view(x.shape[1], tokens, -1, *x.shape[3:]).transpose(0, 1).flatten(1, 2)
