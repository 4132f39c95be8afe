"""torch's variable-length flash attention and its backward written out for the CPU, and forests to try it on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from exact_model import make_row
from torch import Tensor

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
