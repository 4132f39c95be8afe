"""Triton kernels of attention to stretches of keys where they are: a step's, and prefill's.

Every stretch is read up to its length: nothing is copied beside anything or masked over a whole cache. In a step of
many rows one program takes several of them, and reads what they share once (cascade attention, as in Hydragen, arXiv
2402.05099, with rows' own stretches in the same pass). `plain` has the same in torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from baton.engine.torch.cuda.reads import Reads

# Tables of a pass begin wherever its number of rows puts them: a kernel for each alignment would be compiled anew, for
# half a second, in the middle of a run.
TABLES = ["positions", "who", "index", "places", "caps", "lens", "counts", "which", "starts", "ends"]


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


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=TABLES)
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


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=TABLES)
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
        q.dtype == torch.float32, aligned_to(q, size), **settings,
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
        q.dtype == torch.float32, aligned_to(q, size), **settings,
    )  # fmt: skip
    return out


def aligned_to(like: Tensor, size: int) -> int:
    """Elements of which every place is a multiple, up to sixteen bytes."""
    bytes_of_head = size * like.element_size()
    return 16 // like.element_size() if bytes_of_head % 16 == 0 else 1
