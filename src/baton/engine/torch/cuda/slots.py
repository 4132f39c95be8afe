"""Slots in which rows in flight keep their own keys and values, by capacity; nothing moves when others leave."""

from __future__ import annotations

import torch
from torch import Tensor

from baton.engine.torch.cache import KVShape

_SMALLEST = 32
_SLAB_TOKENS = 4096
"""Tokens that are asked for at once, at least."""


class Slots:
    """Memory is asked for in slabs of several slots, each twice the one before, and kept until `forget`."""

    def __init__(self, shape: KVShape) -> None:
        self.shape = shape
        self._free: dict[int, list[Tensor]] = {}
        self._made: dict[int, int] = {}
        self.nbytes = 0

    def take(self, tokens: int) -> Tensor:
        """A slot for as many tokens: layers x 2 x heads x capacity x size."""
        capacity = max(_SMALLEST, 1 << (tokens - 1).bit_length())
        free = self._free.setdefault(capacity, [])
        if not free:
            made = self._made.get(capacity, 0)
            count = max(made, _SLAB_TOKENS // capacity, 1)
            layers, heads, size, dtype, device = self.shape
            slab = torch.empty(count, layers, 2, heads, capacity, size, dtype=dtype, device=device)
            self.nbytes += slab.nbytes
            self._made[capacity] = made + count
            free += reversed(slab.unbind())
        return free.pop()

    def give(self, slot: Tensor) -> None:
        self._free[slot.shape[-2]].append(slot)

    def forget(self) -> None:
        """Give the memory back. Only when all slots are free."""
        self._free, self._made, self.nbytes = {}, {}, 0
