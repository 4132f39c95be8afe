"""Log-probabilities of targets from hidden states, without logits in float32 and without what autograd keeps of them.

Logits are computed in the model's precision, a chunk of edges at a time; a kernel reads each once and gives the
target's log-probability and the log-sum-exp, in float32. Backward turns logits into their gradient in place. The logits
of one chunk are kept for it; those of several are computed again there, so no more than one chunk exists at a time.
(Kernel libraries' fused cross-entropies give a mean loss; ratios, clipping and what else losses do need every token's.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from baton.forest.fused import ops_for
from baton.forest.fused.memory import SHARE, free_bytes

CHUNK = {"cpu": 1 << 23, "cuda": 1 << 27}
"""Logits at a time, where there are several chunks."""


def chosen_logprobs(weight: Tensor, hidden: Tensor, target: Tensor, temperature: Tensor | None) -> Tensor:
    """E log-probabilities of E targets under the softmax of `hidden` (E x W) times `weight`, over E temperatures."""
    chunk = CHUNK.get(hidden.device.type, 1 << 23)
    free = free_bytes(hidden.device)
    # Where there is room, all of them are one chunk, which is not computed twice.
    room = chunk if free is None else max(chunk, free // SHARE // hidden.element_size())
    size = len(target) if len(target) * len(weight) <= room else chunk // len(weight)
    found: Tensor = _Chosen.apply(hidden, weight, target, temperature, max(1, size))  # type: ignore[no-untyped-call]  # torch's
    return found


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, temperature: Tensor | None, size: int
    ) -> Tensor:
        ops = ops_for(hidden.device)
        found, totals = [], []
        ctx.logits = None
        for at in range(0, len(target), size):
            part = slice(at, at + size)
            logits = torch.mm(hidden[part], weight.t())
            given = None if temperature is None else temperature[part]
            one, total = ops.chosen(logits, target[part], given)
            found.append(one)
            totals.append(total)
            if len(target) <= size:
                ctx.logits = logits
        ctx.save_for_backward(hidden, weight, target, temperature, torch.cat(totals))
        ctx.size, ctx.ops = size, ops
        return torch.cat(found)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        hidden, weight, target, temperature, totals = ctx.saved_tensors
        dh = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        dw: Tensor | None = None
        for at in range(0, len(target), ctx.size):
            part = slice(at, at + ctx.size)
            kept, ctx.logits = ctx.logits, None  # they are overwritten
            logits = torch.mm(hidden[part], weight.t()) if kept is None else kept
            given = None if temperature is None else temperature[part]
            found = ctx.ops.chosen_backward(grad[part], logits, totals[part], target[part], given)
            if dh is not None:
                torch.mm(found, weight, out=dh[part])
            if not ctx.needs_input_grad[1]:
                continue
            dw = torch.mm(found.t(), hidden[part]) if dw is None else dw.addmm_(found.t(), hidden[part])
        return dh, dw, None, None, None
