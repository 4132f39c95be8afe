"""The functions of `kernels` in plain torch: what they are tested against, and how their callers run without a GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from baton.engine.torch.cuda.reads import Reads


def add_norm(x: Tensor, h: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `h` to `x` in place, and the norm of the sum."""
    if h is not None:
        x.add_(h)
    wide = x.float()
    return weight * (wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def silu_mul(both: Tensor) -> Tensor:
    """silu of the first half of each row times its second half."""
    gate, up = both.chunk(2, -1)
    return silu(gate) * up


def turn_and_keep(
    qkv: Tensor, rotation: tuple[Tensor, Tensor], positions: Tensor, reads: Reads, layer: int
) -> Tensor:
    """Turn queries and keys by their positions; keys and values go to their rows' own stretches, queries come back."""
    heads, kv_heads, size = reads.heads
    every = qkv.view(len(qkv), -1, size)
    cos, sin = (part[positions][:, None] for part in rotation)
    a, b = every[:, : heads + kv_heads].chunk(2, -1)
    turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    for token, (row, place) in enumerate(zip(reads.who.tolist(), reads.index.tolist(), strict=True)):
        own = reads.stretches[row][1]
        own.kv[layer, 0, :, own.offset + place] = turned[token, heads:]
        own.kv[layer, 1, :, own.offset + place] = every[token, heads + kv_heads :]
    return turned[:, :heads]


def attend(q: Tensor, reads: Reads, layer: int, scale: float) -> Tensor:
    """Every query's attention to its row's stretches and to its own up to itself, N x (H D)."""
    heads, kv_heads, _ = reads.heads
    out = torch.empty_like(q)
    for token, (row, place) in enumerate(zip(reads.who.tolist(), reads.index.tolist(), strict=True)):
        whole, own = reads.stretches[row]
        seen = [(each.kv, each.offset, each.length) for each in whole] + [(own.kv, own.offset, place + 1)]
        keys, values = (
            torch.cat([kv[layer, part, :, at : at + length] for kv, at, length in seen], 1).float()
            for part in (0, 1)
        )
        asked = q[token].float().view(kv_heads, heads // kv_heads, -1)
        chances = (asked @ keys.transpose(1, 2) * scale).softmax(-1)
        out[token] = (chances @ values).reshape(heads, -1).to(q.dtype)
    return out.flatten(1)


def draw(
    logits: Tensor, temperatures: Tensor, uniforms: Tensor, tokens: Tensor, logprobs: Tensor, step: Any
) -> None:
    """Draw each row's next token by its own number, and move the step's inputs on to it."""
    wide = logits.float()
    greedy = temperatures == 0
    wide = wide / torch.where(greedy, 1.0, temperatures)[:, None]
    every = wide.log_softmax(-1)
    edges = every.exp().cumsum(-1, dtype=torch.float64)
    total = edges[:, -1]
    point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
    drawn = torch.searchsorted(edges, point[:, None], right=True).clamp_(max=edges.shape[1] - 1)
    chosen = every.gather(1, drawn)[:, 0]
    sound = torch.where(torch.isfinite(wide.logsumexp(-1)), 0.0, torch.nan)
    tokens.copy_(torch.where(greedy, wide.argmax(-1), drawn[:, 0]))
    logprobs.copy_(torch.where(greedy, sound, chosen))
    step.ids.copy_(tokens)
    step.positions += step.moves
    step.reads.index += step.moves


def turn_and_attend(
    qkv: Tensor, rotation: tuple[Tensor, Tensor], positions: Tensor, reads: Reads, layer: int, scale: float
) -> Tensor:
    """A step's `turn_and_keep` and `attend`: rows have a query each."""
    return attend(turn_and_keep(qkv, rotation, positions, reads, layer), reads, layer, scale)


def project_gate(x: Tensor, weight: Tensor) -> Tensor:
    """silu of the first half of a product times its second half."""
    return silu_mul(x @ weight.t())
