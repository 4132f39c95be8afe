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
    t = first * block + tl.arange(0, block)
    there = (t < seen)[:, None] & real_d[None, :]
    places = t[:, None].to(tl.int64) * size + d[None, :]
    k = tl.load(keys + places, mask=there, other=0.0)
    v = tl.load(values + places, mask=there, other=0.0)
    for begin in range(first * block, seen, step * block):
        t = begin + tl.arange(0, block)
        # The next block is on its way while this one is looked at: a step waits for memory more than for anything.
        after = t + step * block
        there = (after < seen)[:, None] & real_d[None, :]
        places = after[:, None].to(tl.int64) * size + d[None, :]
        next_k = tl.load(keys + places, mask=there, other=0.0)
        next_v = tl.load(values + places, mask=there, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee" if exact else "tf32") * scale
        scores = tl.where((t < seen)[None, :] & (t[None, :] <= last_seen[:, None]), scores, -float("inf"))
        new = tl.maximum(m, tl.max(scores, 1))
        # A query that sees nothing yet keeps its zeros.
        safe = tl.where(new == -float("inf"), 0.0, new)
        p = tl.exp(scores - safe[:, None])
        kept = tl.exp(m - safe)
        total = total * kept + tl.sum(p, 1)
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee" if exact else "tf32")
        m = new
        k, v = next_k, next_v
    return m, total, acc


@triton.jit
def _turned(there, at, swapped, c, s, sign, real):
    """What is at `at`, turned; `swapped` is where the other half of a head is."""
    kind = there.dtype.element_ty
    x = tl.load(there + at, mask=real, other=0.0).to(tl.float32)
    y = tl.load(there + swapped, mask=real, other=0.0).to(tl.float32)
    return ((x * c).to(kind).to(tl.float32) + sign * (y * s).to(kind).to(tl.float32)).to(kind)


@triton.jit(do_not_specialize=["layer", "columns"], do_not_specialize_on_alignment=TABLES)
def _attend_beside(
    qkv, cos, sin, positions, out, part_out, part_max, part_sum, ended, anchor, places, caps, lens, counts, index,
    layer, scale, heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr, group: tl.constexpr,
    beside: tl.constexpr, rows: tl.constexpr, wide: tl.constexpr, block: tl.constexpr,
    splits: tl.constexpr, columns, exact: tl.constexpr, aligned: tl.constexpr,
):  # fmt: skip
    """One query of each of `beside` rows. A stretch that all of them read is read once; others are read for each."""
    half: tl.constexpr = size // 2
    first = tl.program_id(0).to(tl.int64) * beside
    kv_head = tl.program_id(1).to(tl.int64)
    split = tl.program_id(2)
    r = tl.arange(0, rows)
    nth = r // group
    token = first + nth
    real_r = nth < beside
    d = tl.arange(0, wide)
    real_d = d < size
    both = real_r[:, None] & real_d[None, :]
    turn = tl.load(positions + token, mask=real_r, other=0)[:, None] * half + (d % half)[None, :]
    c = tl.load(cos + turn, mask=both, other=0.0).to(tl.float32)
    s = tl.load(sin + turn, mask=both, other=0.0).to(tl.float32)
    sign = tl.where(d < half, -1.0, 1.0)
    swap = (d + half) % size
    row_size: tl.constexpr = (heads + 2 * kv_heads) * size
    asked_at = (token * row_size + (kv_head * group + r % group) * size)[:, None]
    asked = _turned(qkv, asked_at + d[None, :], asked_at + swap[None, :], c, s, sign[None, :], both)
    m = tl.full((rows,), -float("inf"), tl.float32)
    total = tl.zeros((rows,), tl.float32)
    acc = tl.zeros((rows, wide), tl.float32)
    every = first + tl.arange(0, beside)
    number = tl.load(counts + every)
    # Blocks are dealt out among the splits one after the other, whichever stretch they are of.
    mine = split
    for column in range(tl.max(number, 0)):
        here = tl.load(places + every * columns + column)
        shared = (tl.min(number, 0) > column) & (tl.min(here, 0) == tl.max(here, 0))
        if shared:
            cap = tl.load(caps + first * columns + column).to(tl.int64)
            base = anchor + tl.multiple_of(tl.load(places + first * columns + column), aligned)
            keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
            seen = tl.load(lens + first * columns + column)
            m, total, acc = _look(
                asked, keys, keys + kv_heads * cap * size, seen, tl.full((rows,), 2147483647, tl.int32),
                m, total, acc, scale, size, wide, block, mine, splits, exact,
            )  # fmt: skip
            mine = (mine + splits - tl.cdiv(seen, block) % splits) % splits
        else:
            for n in range(beside):
                row = first + n
                cap = tl.load(caps + row * columns + column).to(tl.int64)
                base = anchor + tl.multiple_of(tl.load(places + row * columns + column), aligned)
                keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
                seen = tl.where(tl.load(counts + row) > column, tl.load(lens + row * columns + column), 0)
                m, total, acc = _look(
                    asked, keys, keys + kv_heads * cap * size, seen, tl.where(nth == n, 2147483647, -1),
                    m, total, acc, scale, size, wide, block, mine, splits, exact,
                )  # fmt: skip
                mine = (mine + splits - tl.cdiv(seen, block) % splits) % splits
    for n in range(beside):
        row = first + n
        own = row * columns + columns - 1
        cap = tl.load(caps + own).to(tl.int64)
        base = anchor + tl.multiple_of(tl.load(places + own), aligned)
        keys = base + (layer * 2 * kv_heads + kv_head) * cap * size
        values = keys + kv_heads * cap * size
        last = tl.load(index + row)
        m, total, acc = _look(
            asked, keys, values, last, tl.where(nth == n, last, -1), m, total, acc, scale, size, wide, block,
            mine, splits, exact,
        )  # fmt: skip
        mine = (mine + splits - tl.cdiv(last, block) % splits) % splits
        if split == n % splits:
            # The row's newest token is not read from memory: this is where it gets there.
            turn_at = tl.load(positions + row) * half + d % half
            new_c = tl.load(cos + turn_at, mask=real_d, other=0.0).to(tl.float32)
            new_s = tl.load(sin + turn_at, mask=real_d, other=0.0).to(tl.float32)
            key_at = row * row_size + (heads + kv_head) * size
            k = _turned(qkv, key_at + d, key_at + swap, new_c, new_s, sign, real_d)
            v = tl.load(qkv + key_at + kv_heads * size + d, mask=real_d, other=0.0)
            tl.store(keys + last * size + d, k, mask=real_d)
            tl.store(values + last * size + d, v, mask=real_d)
            score = tl.sum(asked.to(tl.float32) * k.to(tl.float32)[None, :], 1) * scale
            score = tl.where(nth == n, score, -float("inf"))
            new = tl.maximum(m, score)
            safe = tl.where(new == -float("inf"), 0.0, new)
            p, kept = tl.exp(score - safe), tl.exp(m - safe)
            total = total * kept + p
            acc = acc * kept[:, None] + p[:, None] * v.to(tl.float32)[None, :]
            m = new
    at = (token * heads + kv_head * group + r % group)[:, None] * size + d[None, :]
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


BESIDE = 4
"""Rows of a step that one program takes where there are many: what they share is read once for them."""
MANY = 64
FEW_SPLITS, MANY_SPLITS = 8, 4
"""Programs among which a row's blocks are dealt out: they wait for memory most of the time. The best of those tried on
an H200 with 16 and 256 rows; each more would be another kernel to compile in a run."""
DECODE = {"block": 32, "num_warps": 1, "num_stages": 1}
PREFILL = {"block": 32, "num_warps": 4, "num_stages": 1}
"""Tokens of a block, and Triton's own settings; the best of those tried on an H200 with heads of 64."""


def attend(q: Tensor, reads: Reads, layer: int, scale: float) -> Tensor:
    """Every query's attention to its row's stretches and to its own up to itself, N x (H D)."""
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


def turn_and_attend(
    qkv: Tensor, rotation: tuple[Tensor, Tensor], positions: Tensor, reads: Reads, layer: int, scale: float
) -> Tensor:
    """A step's `turn_and_keep` and `attend`: rows have a query each."""
    heads, kv_heads, size = reads.heads
    group, tokens = heads // kv_heads, len(qkv)
    many = tokens >= MANY and tokens % BESIDE == 0
    beside, splits = (BESIDE, MANY_SPLITS) if many else (1, FEW_SPLITS)
    blocks = tokens // beside
    out = qkv.new_empty(tokens, heads * size)
    parts = (out, out, out)
    if splits > 1:
        made = torch.empty(tokens * heads * splits, size + 2, dtype=torch.float32, device=qkv.device)
        flat, lanes = made.view(-1), tokens * heads * splits
        parts = flat[2 * lanes :], flat[:lanes], flat[lanes : 2 * lanes]
    rows = max(16, triton.next_power_of_2(beside * group))
    wide = max(16, triton.next_power_of_2(size))
    settings = dict(DECODE)
    block = max(16, settings.pop("block") * 64 // max(64, wide))  # a product's least
    _attend_beside[(blocks, kv_heads, splits)](
        qkv, *rotation, positions, out, *parts, reads.ended, reads.anchor, reads.places, reads.caps, reads.lens,
        reads.counts, reads.index, layer, scale, heads, kv_heads, size, group, beside, rows, wide, block, splits,
        reads.places.shape[1], qkv.dtype == torch.float32, aligned_to(qkv, size), **settings,
    )  # fmt: skip
    return out


def aligned_to(like: Tensor, size: int) -> int:
    """Elements of which every place is a multiple, up to sixteen bytes."""
    bytes_of_head = size * like.element_size()
    return 16 // like.element_size() if bytes_of_head % 16 == 0 else 1
