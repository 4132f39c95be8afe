"""Triton kernels of a decoding step and of prefill: what is left of a Llama layer beside its matrix products.

A small model's step is bound by launches and by reading keys, so a layer is nine launches here, and attention reads
every stretch of keys where it is, up to its length: nothing is copied beside anything or masked over a whole cache.
`plain` has the same functions in torch, which is what these are tested against.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from baton.engine.torch.cuda.products import project_add as project_add
from baton.engine.torch.cuda.products import project_gate as project_gate
from baton.engine.torch.cuda.products import project_turn_keep as project_turn_keep
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


# Tables of a pass begin wherever its number of rows puts them: a kernel for each alignment would be compiled anew, for
# half a second, in the middle of a run.
_TABLES = ["positions", "who", "index", "places", "caps", "lens", "counts", "which", "starts", "ends"]


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=_TABLES)
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
        heads, kv_heads, size, half, triton.next_power_of_2(half), _aligned(qkv, size),
        reads.places.shape[1], num_warps=1,
    )  # fmt: skip
    return out


@triton.jit
def _look(
    q, keys, values, seen, last_seen, m, total, acc, scale,
    size: tl.constexpr, wide: tl.constexpr, block: tl.constexpr, first, step: tl.constexpr,
    exact: tl.constexpr,
):  # fmt: skip
    """Attention to one stretch, block by block: `seen` tokens of it, of which query i sees up to `last_seen[i]`."""
    d = tl.arange(0, wide)
    real_d = d < size
    for begin in range(first * block, seen, step * block):
        t = begin + tl.arange(0, block)
        real_t = t < seen
        places = t[:, None].to(tl.int64) * size + d[None, :]
        both = real_t[:, None] & real_d[None, :]
        k = tl.load(keys + places, mask=both, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee" if exact else "tf32") * scale
        scores = tl.where(real_t[None, :] & (t[None, :] <= last_seen[:, None]), scores, -float("inf"))
        new = tl.maximum(m, tl.max(scores, 1))
        # A query that sees nothing yet keeps its zeros.
        safe = tl.where(new == -float("inf"), 0.0, new)
        p = tl.exp(scores - safe[:, None])
        kept = tl.exp(m - safe)
        total = total * kept + tl.sum(p, 1)
        v = tl.load(values + places, mask=both, other=0.0)
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee" if exact else "tf32")
        m = new
    return m, total, acc


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=_TABLES)
def _attend_beside(
    q, out, part_out, part_max, part_sum, ended, anchor, places, caps, lens, counts, index, layer, scale,
    heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr, group: tl.constexpr,
    beside: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr, block: tl.constexpr,
    splits: tl.constexpr, columns, exact: tl.constexpr, aligned: tl.constexpr,
):  # fmt: skip
    """One query of each of `beside` rows. A stretch that all of them read is read once; others are read for each."""
    first = tl.program_id(0).to(tl.int64) * beside
    kv_head = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    r = tl.arange(0, rows)
    nth = r // group
    token = first + nth
    real_r = nth < beside
    d = tl.arange(0, wide)
    both = real_r[:, None] & (d < size)[None, :]
    at = (token * heads + kv_head * group + r % group)[:, None] * size + d[None, :]
    asked = tl.load(q + at, mask=both, other=0.0)
    m = tl.full((rows,), -float("inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    acc = tl.zeros((rows, wide), tl.float32)
    every = first + tl.arange(0, beside)
    number = tl.load(counts + every)
    for column in range(tl.max(number, 0)):
        here = tl.load(places + every * columns + column)
        shared = (tl.min(number, 0) > column) & (tl.min(here, 0) == tl.max(here, 0))
        if shared:
            cap = tl.load(caps + first * columns + column).to(tl.int64)
            base = anchor + tl.multiple_of(tl.load(places + first * columns + column), aligned)
            keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
            m, total, acc = _look(
                asked, keys, keys + kv_heads * cap * size, tl.load(lens + first * columns + column),
                tl.full((rows,), 2147483647, tl.int32), m, total, acc, scale,
                size, wide, block, split, splits, exact,
            )  # fmt: skip
        else:
            for n in range(beside):
                row = first + n
                cap = tl.load(caps + row * columns + column).to(tl.int64)
                base = anchor + tl.multiple_of(tl.load(places + row * columns + column), aligned)
                keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
                seen = tl.where(tl.load(counts + row) > column, tl.load(lens + row * columns + column), 0)
                # Short stretches are dealt out among the splits.
                m, total, acc = _look(
                    asked, keys, keys + kv_heads * cap * size, seen, tl.where(nth == n, 2147483647, -1),
                    m, total, acc, scale, size, wide, block, (split + n) % splits, splits, exact,
                )  # fmt: skip
    for n in range(beside):
        row = first + n
        own = row * columns + columns - 1
        cap = tl.load(caps + own).to(tl.int64)
        base = anchor + tl.multiple_of(tl.load(places + own), aligned)
        keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
        last = tl.load(index + row)
        m, total, acc = _look(
            asked, keys, keys + kv_heads * cap * size, last + 1, tl.where(nth == n, last, -1),
            m, total, acc, scale, size, wide, block, (split + n + 1) % splits, splits, exact,
        )  # fmt: skip
    if splits > 1:
        lane = (token * heads + kv_head * group + r % group) * splits
        tl.store(part_max + lane + split, m, mask=real_r)
        tl.store(part_sum + lane + split, total, mask=real_r)
        tl.store(part_out + (lane + split)[:, None] * size + d[None, :], acc, mask=both)
        tl.debug_barrier()
        counter = ended + tl.program_id(0) * kv_heads + tl.program_id(1)
        # Whoever comes last puts the splits together, in their order; what others wrote is not in its own cache.
        if tl.atomic_add(counter, 1) == splits - 1:
            tl.store(counter, 0)
            m = tl.full((rows,), -float("inf"), tl.float32)
            total = tl.zeros((rows,), tl.float32)
            acc = tl.zeros((rows, wide), tl.float32)
            for n in range(splits):
                more = tl.load(part_max + lane + n, mask=real_r, other=-float("inf"), cache_modifier=".cg")
                new = tl.maximum(m, more)
                safe = tl.where(new == -float("inf"), 0.0, new)
                kept, added = tl.exp(m - safe), tl.exp(more - safe)
                sums = tl.load(part_sum + lane + n, mask=real_r, other=0.0, cache_modifier=".cg")
                total = total * kept + sums * added
                parts = part_out + (lane + n)[:, None] * size + d[None, :]
                found = tl.load(parts, mask=both, other=0.0, cache_modifier=".cg")
                acc = acc * kept[:, None] + found * added[:, None]
                m = new
            tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=both)
    else:
        tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=both)


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=_TABLES)
def _attend(
    q, out, anchor, places, caps, lens, counts, which, starts, ends, index, layer, scale,
    heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr, group: tl.constexpr,
    queries: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr, block: tl.constexpr,
    columns, exact: tl.constexpr, aligned: tl.constexpr,
):  # fmt: skip
    """Up to `queries` queries of one row."""
    number = tl.program_id(0)
    kv_head = tl.program_id(1).to(tl.int64)
    who = tl.load(which + number).to(tl.int64)
    start, end = tl.load(starts + number).to(tl.int64), tl.load(ends + number).to(tl.int64)
    r = tl.arange(0, rows)
    token = start + r // group
    real_r = (r < queries * group) & (token < end)
    d = tl.arange(0, wide)
    both = real_r[:, None] & (d < size)[None, :]
    at = (token * heads + kv_head * group + r % group)[:, None] * size + d[None, :]
    asked = tl.load(q + at, mask=both, other=0.0)
    m = tl.full((rows,), -float("inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    acc = tl.zeros((rows, wide), tl.float32)
    everything = tl.full((rows,), 2147483647, tl.int32)
    for column in range(tl.load(counts + who)):
        seen = tl.load(lens + who * columns + column)
        cap = tl.load(caps + who * columns + column).to(tl.int64)
        base = anchor + tl.multiple_of(tl.load(places + who * columns + column), aligned)
        keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
        m, total, acc = _look(
            asked, keys, keys + kv_heads * cap * size, seen, everything, m, total, acc, scale,
            size, wide, block, 0, 1, exact,
        )  # fmt: skip
    own = who * columns + columns - 1
    cap = tl.load(caps + own).to(tl.int64)
    base = anchor + tl.multiple_of(tl.load(places + own), aligned)
    keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
    last = tl.load(index + token, mask=real_r, other=0)
    seen = tl.max(last, 0) + 1
    m, total, acc = _look(
        asked, keys, keys + kv_heads * cap * size, seen, last, m, total, acc, scale,
        size, wide, block, 0, 1, exact,
    )  # fmt: skip
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=both)


_FULL = 264
"""Programs that keep a chip of 132 multiprocessors busy."""
_MOST_SPLITS = 8
BESIDE = 4
"""Rows of a step that one program takes where there are many: what they share is read once for them."""
MANY = 64
DECODE = {"block": 32, "num_warps": 1, "num_stages": 2}
PREFILL = {"block": 32, "num_warps": 4, "num_stages": 2}
"""Tokens of a block, and Triton's own settings; the best of those tried on an H200 with heads of 64."""


def attend(q: Tensor, reads: Reads, layer: int, scale: float) -> Tensor:
    """Every query's attention to its row's stretches and to its own up to itself, N x (H D)."""
    if reads.single and not reads.steady:
        return _attend_step(q, reads, layer, scale)
    heads, kv_heads, size = reads.heads
    group, queries = heads // kv_heads, reads.queries
    out = q.new_empty(len(q), heads * size)
    rows = max(16, triton.next_power_of_2(queries * group))
    wide = max(16, triton.next_power_of_2(size))
    settings = dict(DECODE if queries == 1 else PREFILL)
    block = max(16, settings.pop("block") * 64 // max(64, wide))  # a product's least
    _attend[(len(reads.which), kv_heads)](
        q, out, reads.anchor, reads.places, reads.caps, reads.lens, reads.counts,
        reads.which, reads.starts, reads.ends, reads.index,
        layer, scale, heads, kv_heads, size, group, queries, rows, wide, block, reads.places.shape[1],
        q.dtype == torch.float32, _aligned(q, size), **settings,
    )  # fmt: skip
    return out


def _attend_step(q: Tensor, reads: Reads, layer: int, scale: float) -> Tensor:
    """One query for each row."""
    heads, kv_heads, size = reads.heads
    group, tokens = heads // kv_heads, len(q)
    beside = BESIDE if tokens >= MANY and tokens % BESIDE == 0 else 1
    blocks = tokens // beside
    splits = 1
    while splits < _MOST_SPLITS and blocks * kv_heads * splits < _FULL:
        splits *= 2
    out = q.new_empty(tokens, heads * size)
    parts = (out, out, out)
    if splits > 1:
        made = torch.empty(tokens * heads * splits, size + 2, dtype=torch.float32, device=q.device)
        flat, lanes = made.view(-1), tokens * heads * splits
        parts = flat[2 * lanes :], flat[:lanes], flat[lanes : 2 * lanes]
    rows = max(16, triton.next_power_of_2(beside * group))
    wide = max(16, triton.next_power_of_2(size))
    settings = dict(DECODE)
    block = max(16, settings.pop("block") * 64 // max(64, wide))
    _attend_beside[(blocks, kv_heads, splits)](
        q, out, *parts, reads.ended, reads.anchor, reads.places, reads.caps, reads.lens, reads.counts, reads.index,
        layer, scale, heads, kv_heads, size, group, beside, rows, wide, block, splits, reads.places.shape[1],
        q.dtype == torch.float32, _aligned(q, size), **settings,
    )  # fmt: skip
    return out


@triton.jit(
    do_not_specialize=["vocab"],
    # Lines of tables that hold several steps.
    do_not_specialize_on_alignment=["uniforms", "tokens", "logprobs"],
)
def _draw(
    logits, temperatures, uniforms, tokens, logprobs, ids, positions, index, moves, vocab,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, block)
    temperature = tl.load(temperatures + row)
    greedy = temperature == 0.0
    divide = tl.where(greedy, 1.0, temperature)
    start = logits + row * vocab
    best = tl.full((), -float("inf"), tl.float32)
    best_at = tl.zeros((), tl.int32)
    total = tl.zeros((), tl.float32)
    for begin in range(0, vocab, block):
        real = begin + at < vocab
        x = tl.load(start + begin + at, mask=real, other=-float("inf")).to(tl.float32) / divide
        top, top_at = tl.max(x, 0, return_indices=True)
        new = tl.maximum(best, top)
        best_at = tl.where(top > best, begin + top_at, best_at)
        safe = tl.where(new == -float("inf"), 0.0, new)
        total = total * tl.exp(best - safe) + tl.sum(tl.exp(x - safe), 0)
        best = new
    lse = best + tl.log(total)
    mass = tl.zeros((), tl.float64)
    for begin in range(0, vocab, block):
        real = begin + at < vocab
        x = tl.load(start + begin + at, mask=real, other=-float("inf")).to(tl.float32) / divide
        mass += tl.sum(tl.exp(x - lse).to(tl.float64), 0)
    point = tl.load(uniforms + row) * mass
    before = tl.zeros((), tl.float64)
    token = best_at
    found = greedy
    for begin in range(0, vocab, block):
        real = begin + at < vocab
        x = tl.load(start + begin + at, mask=real, other=-float("inf")).to(tl.float32) / divide
        chance = tl.exp(x - lse).to(tl.float64)
        here = tl.sum(chance, 0)
        if (not found) & (point < before + here):
            edges = before + tl.cumsum(chance, 0)
            passed = tl.sum((edges <= point).to(tl.int32), 0)
            # Sums and running sums round apart; a token of probability zero is never drawn.
            last = tl.max(tl.where(chance > 0, at, 0), 0)
            token = begin + tl.minimum(passed, last)
            found = token >= 0
        before += here
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
    _draw[(rows,)](
        logits, temperatures, uniforms, tokens, logprobs, step.ids, step.positions, step.reads.index, step.moves,
        vocab, min(4096, triton.next_power_of_2(vocab)), num_warps=8,
    )  # fmt: skip


def _aligned(like: Tensor, size: int) -> int:
    """Elements of which every place is a multiple, up to sixteen bytes."""
    bytes_of_head = size * like.element_size()
    return 16 // like.element_size() if bytes_of_head % 16 == 0 else 1


def _warps(block: int) -> int:
    return 1 if block <= 256 else 4 if block <= 2048 else 8
