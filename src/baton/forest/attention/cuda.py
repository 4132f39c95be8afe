"""The parts of forest attention on CUDA, with torch's variable-length flash attention and its backward.

One call for all nodes' own attention, one for each level above, without padding. Half precision only; the
kernels want it. T query tokens, H heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baton.forest.rows import Ids

Places = Tensor | slice
"""Which tokens: their numbers, or a slice where they are one stretch."""
Part = tuple[Places, Tensor, Tensor]
"""For some queries, their attention to some keys, and its log-sum-exp."""

_flash: Any = torch.ops.aten._flash_attention_forward
_flash_backward: Any = torch.ops.aten._flash_attention_backward


class _Segments:
    """Several stretches of queries, each over its own stretch of keys."""

    def __init__(self, query_sizes: Ids, key_sizes: Ids, causal: bool, device: torch.device) -> None:
        self._query_bounds = _bounds(query_sizes, device)
        self._key_bounds = _bounds(key_sizes, device)
        self._longest = int(query_sizes.max()), int(key_sizes.max())
        self._causal = causal
        # Dropout's random state, which the kernel asks for and does not read.
        self._unused = torch.zeros(2, dtype=torch.uint64, device=device), torch.empty(0, device=device)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = _flash(
            q,
            k,
            v,
            self._query_bounds,
            self._key_bounds,
            *self._longest,
            0.0,
            self._causal,
            False,
            scale=scale,
        )[:2]
        return out, lse.transpose(0, 1)

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        found: tuple[Tensor, Tensor, Tensor] = _flash_backward(
            grad.contiguous(), q, k, v, out, lse.transpose(0, 1).contiguous(), self._query_bounds,
            self._key_bounds, *self._longest, 0.0, self._causal, *self._unused, scale=scale,
        )  # fmt: skip
        return found


class CudaOwn(_Segments):
    """Every node's causal attention to itself."""

    def __init__(self, start: Ids, stop: Ids, device: torch.device) -> None:
        super().__init__(stop - start, stop - start, True, device)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        out, lse = super().forward(q.contiguous(), k.contiguous(), v.contiguous(), scale)
        return out, lse.contiguous()

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        return super().backward(grad, q.contiguous(), k.contiguous(), v.contiguous(), out, lse, scale)


class CudaLevel:
    """What is below each node of one level attends to that node."""

    def __init__(self, start: Ids, stop: Ids, below: Ids, device: torch.device) -> None:
        self._segments = _Segments(below - stop, stop - start, False, device)
        self._queries = _places(stop, below, device)
        self._keys = _places(start, stop, device)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Iterator[Part]:
        yield self._queries, *self._segments.forward(*self._take(q, k, v), scale)

    def backward(
        self, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, scale: float,
        dq: Tensor, dk: Tensor, dv: Tensor,
    ) -> None:  # fmt: skip
        below = self._queries
        x, y, z = self._segments.backward(
            grad[below], *self._take(q, k, v), out[below].contiguous(), lse[below], scale
        )
        # A level's slices do not overlap, so each place is added to once.
        dq[below] += x
        dk[self._keys] += y
        dv[self._keys] += z

    def _take(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q[self._queries].contiguous(), k[self._keys].contiguous(), v[self._keys].contiguous()


def _bounds(sizes: Ids, device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)).to(device)


def _places(start: Ids, stop: Ids, device: torch.device) -> Places:
    """The tokens of several stretches: a slice where they are one, which costs no copy."""
    if len(start) == 1 or (start[1:] == stop[:-1]).all():
        return slice(int(start[0]), int(stop[-1]))
    every = [np.arange(a, b) for a, b in zip(start, stop, strict=True)]
    return torch.from_numpy(np.concatenate(every)).to(device)
