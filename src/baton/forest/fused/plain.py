"""What is left of a Llama layer beside its products and attention, forward and backward, in plain torch.

For every device and precision, and where Triton is not installed; `kernels` has the same functions, which are tested
against these. Half precision is rounded wherever the model's own operations round; norms are taken in float32 at least.
N tokens, W wide, H heads of D, K of keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

_HALF = (torch.bfloat16, torch.float16)


def norm(x: Tensor, h: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + h; its norm times the weight; and one over its root mean square (N)."""
    x = x if h is None else x + h
    wide = _wide(x)
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True).add_(eps))
    return x, weight * (wide * scale).to(x.dtype), scale[:, 0]


def norm_backward(
    grad: Tensor, more: Tensor | None, x: Tensor, weight: Tensor, scale: Tensor, *, weighed: bool
) -> tuple[Tensor, Tensor | None]:
    """From the gradient of the norm: that of x, to which `more` is added, and, if asked, that of the weight."""
    wide, normed = _wide(grad), _wide(x) * scale[:, None]
    found = (wide * normed).sum(0).to(weight.dtype) if weighed else None
    wide = wide * weight
    inner = (wide * normed).mean(-1, keepdim=True)
    wide = (wide - normed.mul_(inner)).mul_(scale[:, None])
    return (wide if more is None else wide.add_(more)).to(x.dtype), found


def turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> None:
    """Turn the first `heads` of N x heads x D in place, by cosines and sines of half a head's size."""
    both, half = qkv[:, :heads], cos.shape[1]
    a, b = both[..., :half], both[..., half:]
    c, s = cos[:, None], sin[:, None]
    turned = a * c - b * s
    b.mul_(c).add_(a * s)
    a.copy_(turned)


def turn_backward(dq: Tensor, dk: Tensor, dv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradients before turning, side by side: N x (H + 2 K) x D."""
    found = torch.cat((dq, dk, dv), 1)
    turn(found, cos, -sin, dq.shape[1] + dk.shape[1])
    return found


def gate(both: Tensor) -> Tensor:
    """silu of the first half of each row times its second half."""
    a, b = both.chunk(2, -1)
    return torch.nn.functional.silu(a).mul_(b)


def gate_backward(grad: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of both halves, and what `gate` gave."""
    a, b = (_wide(each) for each in both.chunk(2, -1))
    wide = _wide(grad)
    sure = torch.sigmoid(a)
    silu = a * sure
    found = torch.empty_like(both)
    size = a.shape[-1]
    # d silu = sure + silu (1 - sure)
    found[:, :size] = torch.addcmul(sure, silu, 1 - sure).mul_(wide).mul_(b)
    found[:, size:] = wide * silu
    return found, silu.to(both.dtype).mul_(both[:, size:])


def chosen(logits: Tensor, target: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's target, and its log-sum-exp."""
    wide = _wide(logits)
    if temperature is not None:
        wide = wide / temperature[:, None].to(wide.dtype)
    total = torch.logsumexp(wide, -1)
    return wide.gather(-1, target[:, None])[:, 0] - total, total


def chosen_backward(
    grad: Tensor, logits: Tensor, total: Tensor, target: Tensor, temperature: Tensor | None
) -> Tensor:
    """The gradient of the logits, which may take their place in memory."""
    scale = grad if temperature is None else grad / temperature.to(grad.dtype)
    wide = _wide(logits)
    if temperature is not None:
        wide = wide / temperature[:, None].to(wide.dtype)
    chance = (wide - total[:, None]).exp_()
    chance.mul_(-scale[:, None])
    chance.scatter_add_(1, target[:, None], scale[:, None].to(chance.dtype))
    return chance.to(logits.dtype)


def join(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over several stretches, of which each has its output and log-sum-exp (heads first).

    `table` (N x L) says where in `more` the other parts of a token are; -1: nowhere.
    """
    there = (table >= 0)[None]
    parts = more_lse[:, table.clamp(min=0)].masked_fill(~there, -torch.inf)
    every = torch.cat((lse[..., None], parts), -1)
    total = torch.logsumexp(every, -1)
    share = torch.exp(every - total[..., None]).permute(1, 2, 0)[..., None]
    values = torch.cat((out[:, None], more[table.clamp(min=0)]), 1)
    return (share * _wide(values)).sum(1).to(out.dtype), total


Three = tuple[Tensor, Tensor, Tensor]


def add_parts(into: Three, more: Three, queries: Tensor, keys: Tensor) -> None:
    """Add to the gradients of queries, keys and values what tables (N x L) name of others; in place."""
    for out, parts, table in zip(into, more, (queries, keys, keys), strict=True):
        found = _wide(parts[table.clamp(min=0)]) * (table >= 0)[..., None, None]
        out.copy_(_wide(out) + found.sum(1))


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x
