"""Forest attention as one kernel with a block mask: FlexAttention, for deep forests and float32 on CUDA.

Which 128 x 128 blocks are empty, full or mixed follows from the smallest and largest e(k) in each block of
keys: a block of keys before a block of queries is seen at all iff max e > first query, and whole iff
min e > last query. So the mask costs O(N) and (N/128)^2 bits, never N x N. Sizes are padded to buckets and
the kernel is compiled with dynamic shapes, so that it is compiled once.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from baton.forest.layout import Layout

BLOCK = 128


def bucket(num_tokens: int) -> int:
    """The padded size: a multiple of the block, and one of 16 sizes per doubling."""
    step = max(BLOCK, 1 << max(0, num_tokens.bit_length() - 5))
    return -(-num_tokens // step) * step


def forest_mask(layout: Layout, device: torch.device) -> BlockMask:
    """k <= q < e(k), for a layout of whole blocks."""
    end = torch.from_numpy(layout.end).to(device)
    blocks = end.view(-1, BLOCK)
    first = torch.arange(0, len(end), BLOCK, device=device)[:, None]  # the first query of each block
    earlier = torch.ones(len(blocks), len(blocks), dtype=torch.bool, device=device).tril(-1)
    seen = earlier & (blocks.amax(1)[None] > first)
    full = seen & (blocks.amin(1)[None] >= first + BLOCK)
    mixed = (seen & ~full) | torch.eye(len(blocks), dtype=torch.bool, device=device)

    def mask(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:  # noqa: ARG001  # flex_attention's
        return (k <= q) & (q < end[k])

    return BlockMask.from_kv_blocks(*_listed(mixed), *_listed(full), BLOCK_SIZE=BLOCK, mask_mod=mask)


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and which, those first."""
    order = torch.argsort(blocks.int(), dim=1, descending=True, stable=True)
    return blocks.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None].contiguous()


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)


class FlexPass:
    """One layout of whole blocks under its mask."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self.layout = layout
        self._mask = forest_mask(layout, device)
        # On the CPU the kernel has no backward; there it is run as plain torch, and only in tests.
        self._kernel: Any = _compiled() if device.type == "cuda" else flex_attention

    def attend(self, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q_NHD, k_NKD, v_NKD))
        out: Tensor = self._kernel(
            q, k, v, block_mask=self._mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        return out[0].transpose(0, 1)
