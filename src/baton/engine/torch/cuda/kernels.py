"""Triton kernels of a decoding step and of prefill: what is left of a Llama layer beside its matrix products.

A small model's step is bound by launches and by reading keys, so a layer is seven launches here (`products`), and
attention reads keys where they are (`attending`). `plain` has the same functions in torch, which is what these are
tested against.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from baton.engine.torch.cuda.attending import TABLES, aligned_to
from baton.engine.torch.cuda.attending import attend as attend
from baton.engine.torch.cuda.attending import turn_and_attend as turn_and_attend
from baton.engine.torch.cuda.products import project_gate as project_gate
from baton.engine.torch.cuda.reads import Reads


@triton.jit
def _add_norm(x, h, weight, out, eps, size: tl.constexpr, block: tl.constexpr, added: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    real = at < size
    kind = x.dtype.element_ty
    wide = tl.load(x + row * size + at, mask=real, other=0.0).to(tl.float32)
    if added:
        # Rounded wherever the model's own operations round.
        value = (wide + tl.load(h + row * size + at, mask=real, other=0.0).to(tl.float32)).to(kind)
        tl.store(x + row * size + at, value, mask=real)
        wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / size + eps)
    normed = (wide * scale).to(kind).to(tl.float32)
    normed *= tl.load(weight + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, normed.to(kind), mask=real)


def add_norm(x: Tensor, h: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `h` to `x` in place, and the norm of the sum."""
    rows, size = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(size)
    _add_norm[(rows,)](
        x, x if h is None else h, weight, out, eps, size, block, h is not None, num_warps=_warps(block)
    )
    return out


@triton.jit
def _silu_mul(both, out, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    real = at < size
    kind = both.dtype.element_ty
    gate = tl.load(both + row * 2 * size + at, mask=real, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * size + size + at, mask=real, other=0.0).to(tl.float32)
    gated = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32)
    tl.store(out + row * size + at, (gated * up).to(kind), mask=real)


def silu_mul(both: Tensor) -> Tensor:
    """silu of the first half of each row times its second half."""
    rows, size = both.shape[0], both.shape[1] // 2
    out = both.new_empty(rows, size)
    block = min(2048, triton.next_power_of_2(size))
    _silu_mul[(rows, triton.cdiv(size, block))](both, out, size, block, num_warps=_warps(block))
    return out


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=TABLES)
def _turn_and_keep(
    qkv, q_out, cos, sin, positions, who, index, anchor, places, caps, layer,
    heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr, half: tl.constexpr, block: tl.constexpr,
    aligned: tl.constexpr, columns,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    at = tl.arange(0, block)
    real = at < half
    row = qkv + token * (heads + 2 * kv_heads) * size
    position = tl.load(positions + token)
    kind = qkv.dtype.element_ty
    c = tl.load(cos + position * half + at, mask=real, other=0.0).to(tl.float32)
    s = tl.load(sin + position * half + at, mask=real, other=0.0).to(tl.float32)
    a = tl.load(row + head * size + at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(row + head * size + half + at, mask=real, other=0.0).to(tl.float32)
    turned_a = ((a * c).to(kind).to(tl.float32) - (b * s).to(kind).to(tl.float32)).to(kind)
    turned_b = ((b * c).to(kind).to(tl.float32) + (a * s).to(kind).to(tl.float32)).to(kind)
    if head < heads:
        to = q_out + (token * heads + head) * size
        tl.store(to + at, turned_a, mask=real)
        tl.store(to + half + at, turned_b, mask=real)
    else:
        own = tl.load(who + token).to(tl.int64) * columns + columns - 1
        cap = tl.load(caps + own).to(tl.int64)
        kv_head = (head - heads).to(tl.int64)
        place = tl.load(index + token).to(tl.int64)
        start = anchor + tl.multiple_of(tl.load(places + own), aligned)
        keys = start + ((layer * 2 * kv_heads + kv_head) * cap + place) * size
        values = keys + kv_heads * cap * size
        tl.store(keys + at, turned_a, mask=real)
        tl.store(keys + half + at, turned_b, mask=real)
        source = row + (head + kv_heads) * size
        tl.store(values + at, tl.load(source + at, mask=real, other=0.0), mask=real)
        tl.store(values + half + at, tl.load(source + half + at, mask=real, other=0.0), mask=real)


def turn_and_keep(
    qkv: Tensor, rotation: tuple[Tensor, Tensor], positions: Tensor, reads: Reads, layer: int
) -> Tensor:
    """Turn queries and keys by their positions; keys and values go to their rows' own stretches, queries come back."""
    heads, kv_heads, size = reads.heads
    tokens, half = len(qkv), size // 2
    out = qkv.new_empty(tokens, heads, size)
    _turn_and_keep[(tokens, heads + kv_heads)](
        qkv, out, *rotation, positions, reads.who, reads.index, reads.anchor, reads.places, reads.caps, layer,
        heads, kv_heads, size, half, triton.next_power_of_2(half), aligned_to(qkv, size),
        reads.places.shape[1], num_warps=1,
    )  # fmt: skip
    return out


@triton.jit(do_not_specialize=["vocab"])
def _chunk(logits, temperatures, tops, tops_at, sums, vocab, block: tl.constexpr):
    """The largest of a chunk of a row's logits, where it is, and the sum of their exponentials against it."""
    row = tl.program_id(0).to(tl.int64)
    begin = tl.program_id(1) * block
    at = begin + tl.arange(0, block)
    temperature = tl.load(temperatures + row)
    divide = tl.where(temperature == 0.0, 1.0, temperature)
    x = tl.load(logits + row * vocab + at, mask=at < vocab, other=-float("inf")).to(tl.float32) / divide
    top, top_at = tl.max(x, 0, return_indices=True)
    safe = tl.where(top == -float("inf"), 0.0, top)
    to = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(tops + to, top)
    tl.store(tops_at + to, begin + top_at)
    tl.store(sums + to, tl.sum(tl.exp(x - safe), 0))


@triton.jit(
    do_not_specialize=["vocab", "chunks"],
    # Lines of tables that hold several steps.
    do_not_specialize_on_alignment=["uniforms", "tokens", "logprobs"],
)
def _draw(
    logits, temperatures, tops, tops_at, sums, uniforms, tokens, logprobs, ids, positions, index, moves, vocab,
    chunks, block: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    temperature = tl.load(temperatures + row)
    greedy = temperature == 0.0
    divide = tl.where(greedy, 1.0, temperature)
    start = logits + row * vocab
    c = tl.arange(0, wide)
    top = tl.load(tops + row * chunks + c, mask=c < chunks, other=-float("inf"))
    total = tl.load(sums + row * chunks + c, mask=c < chunks, other=0.0)
    best, best_chunk = tl.max(top, 0, return_indices=True)
    safe = tl.where(best == -float("inf"), 0.0, best)
    lse = best + tl.log(tl.sum(total * tl.exp(top - safe), 0))
    # Which chunk the number falls into, then which token of it.
    mass = tl.where(total > 0, total * tl.exp(top - lse), 0.0).to(tl.float64)
    edges = tl.cumsum(mass, 0)
    point = tl.load(uniforms + row) * tl.sum(mass, 0)
    passed = tl.sum((edges <= point).to(tl.int32), 0)
    # Sums and running sums round apart; what has no probability is never drawn.
    chunk = tl.minimum(passed, tl.max(tl.where(mass > 0, c, 0), 0))
    before = tl.sum(tl.where(c < chunk, mass, 0.0), 0)
    at = tl.arange(0, block)
    real = chunk * block + at < vocab
    x = tl.load(start + chunk * block + at, mask=real, other=-float("inf")).to(tl.float32) / divide
    chance = tl.exp(x - lse).to(tl.float64)
    inside = before + tl.cumsum(chance, 0)
    last = tl.max(tl.where(chance > 0, at, 0), 0)
    drawn = chunk * block + tl.minimum(tl.sum((inside <= point).to(tl.int32), 0), last)
    token = tl.where(greedy, tl.load(tops_at + row * chunks + best_chunk), drawn)
    x = tl.load(start + token).to(tl.float32) / divide
    # NaN where the logits make no distribution.
    sound = (lse - lse) == 0.0
    logprob = tl.where(sound, tl.where(greedy, 0.0, x - lse), float("nan"))
    tl.store(tokens + row, token)
    tl.store(logprobs + row, logprob)
    moved = tl.load(moves + row)
    tl.store(ids + row, token.to(tl.int64))
    tl.store(positions + row, tl.load(positions + row) + moved)
    tl.store(index + row, tl.load(index + row) + moved)


def draw(
    logits: Tensor, temperatures: Tensor, uniforms: Tensor, tokens: Tensor, logprobs: Tensor, step: Any
) -> None:
    """Draw each row's next token by its own number, and move the step's inputs on to it.

    The inverse of the row's own cumulative distribution, as in `passes.Drawer`; temperature 0 takes the best.
    """
    rows, vocab = logits.shape
    block = min(4096, triton.next_power_of_2(vocab))
    chunks = triton.cdiv(vocab, block)
    tops, sums = torch.empty(2, rows, chunks, dtype=torch.float32, device=logits.device)
    tops_at = torch.empty(rows, chunks, dtype=torch.int32, device=logits.device)
    _chunk[(rows, chunks)](logits, temperatures, tops, tops_at, sums, vocab, block, num_warps=4)
    _draw[(rows,)](
        logits, temperatures, tops, tops_at, sums, uniforms, tokens, logprobs, step.ids, step.positions,
        step.reads.index, step.moves, vocab, chunks, block, triton.next_power_of_2(chunks), num_warps=8,
    )  # fmt: skip


def _warps(block: int) -> int:
    return 1 if block <= 256 else 4 if block <= 2048 else 8
