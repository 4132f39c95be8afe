"""The CUDA parts' bookkeeping, with torch's kernels written out for the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import make_row
from torch import Tensor

from baton.errors import UsageError
from baton.forest.attention import cuda
from baton.forest.attention.cuda import CudaPass
from baton.forest.attention.parts import make_pass, num_levels
from baton.forest.layout import plant
from baton.forest.rows import Row


def _pieces(
    q: Tensor, k: Tensor, v: Tensor, bounds_q: Tensor, bounds_k: Tensor, causal: bool, scale: float
) -> Any:
    group = q.shape[1] // k.shape[1]
    for i in range(len(bounds_q) - 1):
        a, b = slice(bounds_q[i], bounds_q[i + 1]), slice(bounds_k[i], bounds_k[i + 1])
        kk, vv = k[b].repeat_interleave(group, 1), v[b].repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q[a], kk) * scale
        if causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        yield a, b, kk, vv, scores


def flash(q: Tensor, k: Tensor, v: Tensor, bq: Tensor, bk: Tensor, mq: int, mk: int, drop: float, causal: bool, debug: bool, *, scale: float) -> Any:  # fmt: skip  # noqa: E501  # torch's
    assert q.stride(-1) == 1
    assert bq[-1] == len(q)
    assert bk[-1] == len(k)
    out, lse = torch.zeros_like(q), q.new_zeros(q.shape[1], len(q))
    for a, _, _, vv, scores in _pieces(q, k, v, bq, bk, causal, scale):
        lse[:, a] = torch.logsumexp(scores, -1) if len(vv) else torch.inf  # as the kernel does
        out[a] = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), vv)
    return out, lse


def flash_backward(g: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, bq: Tensor, bk: Tensor, mq: int, mk: int, drop: float, causal: bool, *unused: Tensor, scale: float) -> Any:  # fmt: skip  # noqa: E501  # torch's
    assert lse.shape == (q.shape[1], len(q))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for a, b, kk, vv, scores in _pieces(q, k, v, bq, bk, causal, scale):
        p = torch.exp(scores - lse[:, a, None])
        delta = (g[a] * out[a]).sum(-1).T[..., None]
        ds = p * (torch.einsum("qhd,khd->hqk", g[a], vv) - delta) * scale
        dq[a] = torch.einsum("hqk,khd->qhd", ds, kk)
        heads = k.shape[1]
        dk[b] = torch.einsum("hqk,qhd->khd", ds, q[a]).unflatten(1, (heads, -1)).sum(2)
        dv[b] = torch.einsum("hqk,qhd->khd", p, g[a]).unflatten(1, (heads, -1)).sum(2)
    return dq, dk, dv


def deep(rng: np.random.Generator) -> list[Row]:
    stems = [rng.integers(0, 9, 12).tolist() for _ in range(2)]
    return [
        make_row(stems[i % 2][: int(rng.integers(1, 13))] + rng.integers(0, 2, 5).tolist(), 1, rng=rng)
        for i in range(8)
    ]


def flat(rng: np.random.Generator) -> list[Row]:
    """Trees of one branching, and rows alone before, between and after them."""
    rows = [make_row([first, *rng.integers(0, 9, 6).tolist()], 1, rng=rng) for first in (0, 20, 40)]
    for first in (10, 30):
        stem = [first, *rng.integers(0, 9, first // 5).tolist()]
        rows += [make_row([*stem, 50 + n, *rng.integers(0, 9, 3 + n).tolist()], 1, rng=rng) for n in range(4)]
    return rows


@pytest.mark.parametrize("make", [deep, flat])
@pytest.mark.parametrize(("seed", "busy"), [(0, 1), (1, 1), (2, 10**6), (3, 10**6)])
def test_the_parts_make_the_forest(
    make: Callable[[np.random.Generator], list[Row]], seed: int, busy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one call for all that is below nodes, whole or in pieces that have copies of the keys."""
    monkeypatch.setattr(cuda, "_flash", flash)
    monkeypatch.setattr(cuda, "_flash_backward", flash_backward)
    monkeypatch.setattr(cuda, "BUSY", busy)
    monkeypatch.setattr(cuda, "_PIECE", 4)
    rows = make(np.random.default_rng(seed))
    layout, _ = plant(rows, least=seed % 2)
    assert (num_levels(layout) > 1) == (make is deep)
    count = layout.num_tokens
    q, k, v = (torch.randn(count, heads, 8, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2))
    index, end = torch.arange(count), torch.from_numpy(layout.end)
    sees = (index[None] <= index[:, None]) & (index[:, None] < end[None])
    plain = torch.nn.functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, k, v)), attn_mask=sees, scale=0.3, enable_gqa=True
    )[0].transpose(0, 1)
    current = CudaPass(layout, torch.device("cpu"))
    out = current.attend(q, k, v, 0.3)
    assert current.below is not None
    if make is flat or seed == 0:
        assert isinstance(current.below.queries, slice) == (make is flat)
    if make is flat:
        assert (current.below.key_table.shape[1] > 1) == (busy > 1)
    for table in (current.below.key_table, current.below.query_table):
        assert not (
            (table[:, :-1] < 0) & (table[:, 1:] >= 0)
        ).any()  # the kernels stop at the first that is not
    assert torch.allclose(out, plain, atol=1e-12)
    gradient = torch.randn_like(out)
    expected = torch.autograd.grad(plain, (q, k, v), gradient)
    for x, y in zip(torch.autograd.grad(out, (q, k, v), gradient), expected, strict=True):
        assert torch.allclose(x, y, atol=1e-12)


def test_float32_on_cuda_takes_the_block_mask() -> None:
    layout, _ = plant([make_row([1, 2, 3], 1, rng=np.random.default_rng(0))])
    with pytest.raises(UsageError, match="flex"):
        make_pass(layout, torch.float32, torch.device("cuda"), "parts")
