"""`plain` as Triton kernels: one launch and one pass over memory for each of its functions.

Numbers are rounded where the model's own operations round; sums are in float32. What changes from pass to pass (tokens,
levels, pieces) is an argument that nothing is compiled for.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_PROGRAMS = 528
"""Programs among which rows are dealt out where each also adds something up."""


@triton.jit
def _norm(
    x, h, weight, x_out, out, scales, eps, size: tl.constexpr, block: tl.constexpr, added: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    real = at < size
    kind = x.dtype.element_ty
    wide = tl.load(x + row * size + at, mask=real, other=0.0).to(tl.float32)
    if added:
        value = (wide + tl.load(h + row * size + at, mask=real, other=0.0).to(tl.float32)).to(kind)
        tl.store(x_out + row * size + at, value, mask=real)
        wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / size + eps)
    tl.store(scales + row, scale)
    normed = (wide * scale).to(kind).to(tl.float32)
    normed *= tl.load(weight + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + row * size + at, normed.to(kind), mask=real)


def norm(x: Tensor, h: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + h; its norm times the weight; and one over its root mean square (N)."""
    x = x.contiguous()
    rows, size = x.shape
    out = torch.empty_like(x)
    total = x if h is None else torch.empty_like(x)
    scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(size)
    _norm[(rows,)](
        x, x if h is None else h.contiguous(), weight, total, out, scales, eps, size, block, h is not None,
        num_warps=_warps(block),
    )  # fmt: skip
    return total, out, scales


@triton.jit(do_not_specialize=["rows"])
def _norm_backward(
    grad, more, x, weight, scales, out, sums, rows,
    size: tl.constexpr, block: tl.constexpr, added: tl.constexpr, weighed: tl.constexpr,
):  # fmt: skip
    at = tl.arange(0, block)
    real = at < size
    kind = x.dtype.element_ty
    w = tl.load(weight + at, mask=real, other=0.0).to(tl.float32)
    summed = tl.zeros((block,), tl.float32)
    number = tl.program_id(0)
    row = number.to(tl.int64) * size
    for _ in range(tl.cdiv(rows - number, tl.num_programs(0))):
        scale = tl.load(scales + row // size)
        g = tl.load(grad + row + at, mask=real, other=0.0).to(tl.float32)
        normed = tl.load(x + row + at, mask=real, other=0.0).to(tl.float32) * scale
        if weighed:
            summed += g * normed
        g *= w
        inner = tl.sum(g * normed, 0) / size
        found = (g - normed * inner) * scale
        if added:
            found += tl.load(more + row + at, mask=real, other=0.0).to(tl.float32)
        tl.store(out + row + at, found.to(kind), mask=real)
        row += tl.num_programs(0) * size
    if weighed:
        tl.store(sums + tl.program_id(0) * size + at, summed, mask=real)


def norm_backward(
    grad: Tensor, more: Tensor | None, x: Tensor, weight: Tensor, scale: Tensor, *, weighed: bool
) -> tuple[Tensor, Tensor | None]:
    """From the gradient of the norm: that of x, to which `more` is added, and, if asked, that of the weight."""
    rows, size = x.shape
    out = torch.empty_like(x)
    programs = min(rows, _PROGRAMS)
    sums = torch.empty(programs, size, dtype=torch.float32, device=x.device) if weighed else out
    block = triton.next_power_of_2(size)
    grad = grad.contiguous()
    _norm_backward[(programs,)](
        grad, grad if more is None else more.contiguous(), x, weight, scale, out, sums, rows, size, block,
        more is not None, weighed, num_warps=_warps(block),
    )  # fmt: skip
    return out, sums.sum(0).to(weight.dtype) if weighed else None


@triton.jit
def _turned(a, b, c, s, kind: tl.constexpr):
    x = (a * c).to(kind).to(tl.float32) - (b * s).to(kind).to(tl.float32)
    y = (b * c).to(kind).to(tl.float32) + (a * s).to(kind).to(tl.float32)
    return x.to(kind), y.to(kind)


@triton.jit
def _turn(
    qkv, cos, sin, heads, stride, half: tl.constexpr, block: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * block + tl.arange(0, block)
    d = tl.arange(0, wide)
    real = (head < heads)[:, None] & (d < half)[None, :]
    c = tl.load(cos + token * half + d, mask=d < half, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + token * half + d, mask=d < half, other=0.0).to(tl.float32)[None, :]
    at = qkv + token * stride + head[:, None] * (2 * half) + d[None, :]
    a = tl.load(at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(at + half, mask=real, other=0.0).to(tl.float32)
    x, y = _turned(a, b, c, s, qkv.dtype.element_ty)
    tl.store(at, x, mask=real)
    tl.store(at + half, y, mask=real)


def turn(qkv: Tensor, cos: Tensor, sin: Tensor, heads: int) -> None:
    """Turn the first `heads` of N x heads x D in place, by cosines and sines of half a head's size."""
    half = cos.shape[1]
    block = min(16, triton.next_power_of_2(heads))
    wide = triton.next_power_of_2(half)
    _turn[(len(qkv), triton.cdiv(heads, block))](
        qkv, cos, sin, heads, qkv.stride(0), half, block, wide, num_warps=_warps(block * wide)
    )


@triton.jit
def _turn_backward(
    dq, dk, dv, cos, sin, out, heads, kv_heads, half: tl.constexpr, block: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * block + tl.arange(0, block)
    d = tl.arange(0, wide)
    real_d = (d < half)[None, :]
    size = 2 * half
    kind = out.dtype.element_ty
    c = tl.load(cos + token * half + d, mask=d < half, other=0.0).to(tl.float32)[None, :]
    s = tl.load(sin + token * half + d, mask=d < half, other=0.0).to(tl.float32)[None, :]
    is_q = head < heads
    is_k = (head >= heads) & (head < heads + kv_heads)
    is_v = (head >= heads + kv_heads) & (head < heads + 2 * kv_heads)
    q_at = dq + (token * heads + head)[:, None] * size + d[None, :]
    k_at = dk + (token * kv_heads + head - heads)[:, None] * size + d[None, :]
    v_at = dv + (token * kv_heads + head - heads - kv_heads)[:, None] * size + d[None, :]
    mq, mk, mv = is_q[:, None] & real_d, is_k[:, None] & real_d, is_v[:, None] & real_d
    a = tl.load(q_at, mask=mq, other=0.0).to(tl.float32) + tl.load(k_at, mask=mk, other=0.0).to(tl.float32)
    b = tl.load(q_at + half, mask=mq, other=0.0).to(tl.float32) + tl.load(k_at + half, mask=mk, other=0.0).to(
        tl.float32
    )
    x, y = _turned(a, b, c, -s, kind)
    to = out + (token * (heads + 2 * kv_heads) + head)[:, None] * size + d[None, :]
    tl.store(to, x, mask=mq | mk)
    tl.store(to + half, y, mask=mq | mk)
    tl.store(to, tl.load(v_at, mask=mv, other=0.0), mask=mv)
    tl.store(to + half, tl.load(v_at + half, mask=mv, other=0.0), mask=mv)


def turn_backward(dq: Tensor, dk: Tensor, dv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The gradients before turning, side by side: N x (H + 2 K) x D."""
    (tokens, heads, size), kv_heads, half = dq.shape, dk.shape[1], cos.shape[1]
    every = heads + 2 * kv_heads
    out = dq.new_empty(tokens, every, size)
    block = min(16, triton.next_power_of_2(every))
    wide = triton.next_power_of_2(half)
    _turn_backward[(tokens, triton.cdiv(every, block))](
        dq.contiguous(), dk.contiguous(), dv.contiguous(), cos, sin, out, heads, kv_heads, half, block, wide,
        num_warps=_warps(block * wide),
    )  # fmt: skip
    return out


@triton.jit
def _gate(both, out, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    real = at < size
    kind = both.dtype.element_ty
    a = tl.load(both + row * 2 * size + at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(both + row * 2 * size + size + at, mask=real, other=0.0).to(tl.float32)
    gated = (a / (1.0 + tl.exp(-a))).to(kind).to(tl.float32)
    tl.store(out + row * size + at, (gated * b).to(kind), mask=real)


def gate(both: Tensor) -> Tensor:
    """silu of the first half of each row times its second half."""
    rows, size = both.shape[0], both.shape[1] // 2
    out = both.new_empty(rows, size)
    block = min(2048, triton.next_power_of_2(size))
    _gate[(rows, triton.cdiv(size, block))](both, out, size, block, num_warps=_warps(block))
    return out


@triton.jit
def _gate_backward(grad, both, found, out, size: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    real = at < size
    kind = both.dtype.element_ty
    g = tl.load(grad + row * size + at, mask=real, other=0.0).to(tl.float32)
    a = tl.load(both + row * 2 * size + at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(both + row * 2 * size + size + at, mask=real, other=0.0).to(tl.float32)
    sure = 1.0 / (1.0 + tl.exp(-a))
    silu = a * sure
    tl.store(found + row * 2 * size + at, (g * b * (sure + silu * (1.0 - sure))).to(kind), mask=real)
    tl.store(found + row * 2 * size + size + at, (g * silu).to(kind), mask=real)
    tl.store(out + row * size + at, (silu.to(kind).to(tl.float32) * b).to(kind), mask=real)


def gate_backward(grad: Tensor, both: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of both halves, and what `gate` gave."""
    rows, size = grad.shape
    found, out = torch.empty_like(both), torch.empty_like(grad)
    block = min(2048, triton.next_power_of_2(size))
    _gate_backward[(rows, triton.cdiv(size, block))](
        grad, both, found, out, size, block, num_warps=_warps(block)
    )
    return found, out


@triton.jit
def _chosen(logits, target, temperature, found, totals, vocab, block: tl.constexpr, tempered: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    divide = 1.0
    if tempered:
        divide = tl.load(temperature + row).to(tl.float32)
    start = logits + row * vocab
    best = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for begin in range(0, vocab, block):
        real = begin + at < vocab
        x = tl.load(start + begin + at, mask=real, other=-float("inf")).to(tl.float32) / divide
        new = tl.maximum(best, tl.max(x, 0))
        safe = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(best - safe) + tl.sum(tl.exp(x - safe), 0)
        best = new
    lse = best + tl.log(total)
    x = tl.load(start + tl.load(target + row)).to(tl.float32) / divide
    tl.store(found + row, x - lse)
    tl.store(totals + row, lse)


def chosen(logits: Tensor, target: Tensor, temperature: Tensor | None) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's target, and its log-sum-exp."""
    rows, vocab = logits.shape
    found, totals = torch.empty(2, rows, dtype=torch.float32, device=logits.device)
    block = min(4096, triton.next_power_of_2(vocab))
    given: Any = target if temperature is None else temperature
    _chosen[(rows,)](
        logits, target, given, found, totals, vocab, block, temperature is not None, num_warps=_warps(block)
    )
    return found, totals


@triton.jit
def _chosen_backward(
    grad, logits, totals, target, temperature, vocab, block: tl.constexpr, tempered: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    real = at < vocab
    divide = 1.0
    if tempered:
        divide = tl.load(temperature + row).to(tl.float32)
    place = logits + row * vocab + at
    g = tl.load(grad + row).to(tl.float32) / divide
    x = tl.load(place, mask=real, other=0.0).to(tl.float32) / divide
    chance = tl.exp(x - tl.load(totals + row))
    hit = tl.where(at == tl.load(target + row), 1.0, 0.0)
    tl.store(place, (g * (hit - chance)).to(logits.dtype.element_ty), mask=real)


def chosen_backward(
    grad: Tensor, logits: Tensor, total: Tensor, target: Tensor, temperature: Tensor | None
) -> Tensor:
    """The gradient of the logits, in their place in memory."""
    rows, vocab = logits.shape
    block = min(4096, triton.next_power_of_2(vocab))
    given: Any = target if temperature is None else temperature
    _chosen_backward[(rows, triton.cdiv(vocab, block))](
        grad.contiguous(), logits, total, target, given, vocab, block, temperature is not None,
        num_warps=_warps(block),
    )  # fmt: skip
    return logits


@triton.jit(do_not_specialize=["tokens", "others", "columns"])
def _join(
    out, lse, more, more_lse, table, joined, totals, tokens, others, columns,
    heads: tl.constexpr, size: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, rows)
    d = tl.arange(0, wide)
    real_h = h < heads
    both = real_h[:, None] & (d < size)[None, :]
    inner = h[:, None] * size + d[None, :]
    m = tl.load(lse + h * tokens + token, mask=real_h, other=0.0)
    acc = tl.load(out + token * heads * size + inner, mask=both, other=0.0).to(tl.float32)
    total = tl.full((rows,), 1.0, tl.float32)
    for column in range(columns):
        place = tl.load(table + token * columns + column).to(tl.int64)
        if place >= 0:
            s = tl.load(more_lse + h * others + place, mask=real_h, other=0.0)
            new = tl.maximum(m, s)
            kept, part = tl.exp(m - new), tl.exp(s - new)
            values = tl.load(more + place * heads * size + inner, mask=both, other=0.0).to(tl.float32)
            acc = acc * kept[:, None] + values * part[:, None]
            total = total * kept + part
            m = new
    tl.store(
        joined + token * heads * size + inner, (acc / total[:, None]).to(joined.dtype.element_ty), mask=both
    )
    tl.store(totals + h * tokens + token, m + tl.log(total), mask=real_h)


def join(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over several stretches, of which each has its output and log-sum-exp (heads first).

    `table` (N x L) says where in `more` the other parts of a token are; -1: nowhere.
    """
    tokens, heads, size = out.shape
    joined, totals = torch.empty_like(out), torch.empty_like(lse)
    rows, wide = triton.next_power_of_2(heads), triton.next_power_of_2(size)
    _join[(tokens,)](
        out, lse, more, more_lse, table, joined, totals, tokens, len(more), table.shape[1], heads, size,
        rows, wide, num_warps=_warps(rows * wide),
    )  # fmt: skip
    return joined, totals


@triton.jit
def _add_row(out, more, table, token, size, columns, block: tl.constexpr):
    at = tl.arange(0, block)
    real = at < size
    first = tl.load(table + token * columns)
    if first >= 0:
        wide = tl.load(out + token * size + at, mask=real, other=0.0).to(tl.float32)
        for column in range(columns):
            place = tl.load(table + token * columns + column).to(tl.int64)
            if place >= 0:
                wide += tl.load(more + place * size + at, mask=real, other=0.0).to(tl.float32)
        tl.store(out + token * size + at, wide.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["columns_q", "columns_k"])
def _add_parts(
    dq, dk, dv, more_q, more_k, more_v, queries, keys, size_q, size_k, columns_q, columns_k,
    block_q: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    which = tl.program_id(1)
    if which == 0:
        _add_row(dq, more_q, queries, token, size_q, columns_q, block_q)
    if which == 1:
        _add_row(dk, more_k, keys, token, size_k, columns_k, block_k)
    if which == 2:
        _add_row(dv, more_v, keys, token, size_k, columns_k, block_k)


Three = tuple[Tensor, Tensor, Tensor]


def add_parts(into: Three, more: Three, queries: Tensor, keys: Tensor) -> None:
    """Add to the gradients of queries, keys and values what tables (N x L, what is there first) name of others."""
    sizes = [each.shape[1] * each.shape[2] for each in into[:2]]
    blocks = [triton.next_power_of_2(size) for size in sizes]
    _add_parts[(len(into[0]), 3)](
        *into,
        *more,
        queries,
        keys,
        *sizes,
        queries.shape[1],
        keys.shape[1],
        *blocks,
        num_warps=_warps(blocks[0]),
    )


def _warps(block: int) -> int:
    return 1 if block <= 256 else 4 if block <= 2048 else 8
