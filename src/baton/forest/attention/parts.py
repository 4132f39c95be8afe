"""Forest attention as parts: every node attends to itself causally, and all that is below it attends to it.

In pre-order the tokens below a node are one slice, and so are its own, so a shared stretch is read once for
all its descendants without any mask. Parts are merged by their log-sum-exp. Backward is as direct: the
gradient of softmax over a union of keys, given the merged output and log-sum-exp, is the sum of each part's
own flash-attention backward (as in ring attention, arXiv 2310.01889). Nothing of size N x N or of the
gathered prefixes is kept; only q, k, v, the output and one number per query and head.

Nodes of one level have disjoint slices, so a level is one call with variable lengths on CUDA and a few
calls on the CPU. Chains (merged rows) have one level and need one call: plain padding-free attention.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from baton.errors import UsageError, nearest
from baton.forest.attention.cpu import CpuLevel, CpuOwn
from baton.forest.attention.cuda import CudaLevel, CudaOwn
from baton.forest.attention.flex import FlexPass, bucket
from baton.forest.layout import Layout


def num_levels(layout: Layout) -> int:
    """Levels of nodes with something below them."""
    inner = layout.end[layout.node_start] > layout.node_stop
    return int(layout.node_level[inner].max()) + 1 if inner.any() else 0


class PartsPass:
    """The parts of one layout, on one device."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        start, stop, level = layout.node_start, layout.node_stop, layout.node_level
        below = layout.end[start]
        cuda = device.type == "cuda"
        self.own: Any = CudaOwn(start, stop, device) if cuda else CpuOwn(start, stop)
        kind: Any = CudaLevel if cuda else CpuLevel
        inner = below > stop
        self.levels: list[Any] = [
            kind(start[at], stop[at], below[at], device)
            for at in (np.flatnonzero(inner & (level == depth)) for depth in range(num_levels(layout)))
        ]

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        out: Tensor = _Parts.apply(q_NHD, k_NKD, v_NKD, self, scale)  # type: ignore[no-untyped-call]  # torch's
        return out


class _Parts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, parts: PartsPass, scale: float) -> Tensor:
        out: Tensor
        out, lse = parts.own.forward(q, k, v, scale)
        if parts.levels and out.dtype in (torch.bfloat16, torch.float16):
            out = out.float()
        for level in parts.levels:
            level.forward(q, k, v, scale, out, lse)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.parts, ctx.scale = parts, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        parts: PartsPass = ctx.parts
        grads = parts.own.backward(grad, q, k, v, out, lse, ctx.scale)
        if parts.levels and grads[0].dtype in (torch.bfloat16, torch.float16):
            grads = tuple(each.float() for each in grads)
        dq, dk, dv = grads
        for level in parts.levels:
            level.backward(grad, q, k, v, out, lse, ctx.scale, dq, dk, dv)
        return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype), None, None


# -- __init__ --
# Attention over a prefix forest: as parts (any device), or as a block mask (FlexAttention, CUDA).

Kind = Literal["auto", "parts", "flex"]
DEEP = 1
"""Levels above which one kernel with a block mask is used on CUDA: measured, even at 1, and 1.3x at 8."""


def make_pass(
    layout: Layout, model_dtype: torch.dtype, device: torch.device, kind: Kind = "auto"
) -> PartsPass | FlexPass:
    """What computes attention for this layout; its own `layout` may be padded."""
    if kind not in ("auto", "parts", "flex"):
        raise UsageError(f"there is no attention {kind!r}. {nearest(kind, ('auto', 'parts', 'flex'))}")
    slow = device.type == "cuda" and model_dtype not in (torch.bfloat16, torch.float16)
    if kind == "auto":
        deep = device.type == "cuda" and num_levels(layout) > DEEP
        kind = "flex" if slow or deep else "parts"
    if kind == "flex":
        return FlexPass(layout.padded(bucket(layout.num_tokens)), device)
    if slow:
        raise UsageError(
            f"attention 'parts' on CUDA needs bfloat16 or float16, not {model_dtype}. Use 'flex'."
        )
    return PartsPass(layout, device)
