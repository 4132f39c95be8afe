"""Several stretches of keys and values side by side, each read by queries of its own, in one call.

Stretches are padded to the longest with a mask, and so are their readers by repeating the last one, so those of like
size belong together. Prefill reads earlier turns of conversations this way, decoding the prompts that groups share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.attention import attend

__all__ = ["Beside", "Readers", "near"]

T = TypeVar("T")


class Beside:
    """Each entry is one or more stretches (layers x 2 x heads x ids x size), one after the other."""

    def __init__(self, entries: Sequence[Sequence[Tensor]]) -> None:
        self.stretches = [kv for stretches in entries for kv in stretches]
        like = entries[0][0]
        lengths = [sum(kv.shape[3] for kv in stretches) for stretches in entries]
        layers, _, heads, _, size = like.shape
        longest = -(-max(lengths) // 8) * 8  # the GPU's kernels want masks of whole eights
        self.kv = like.new_zeros(layers, 2, len(entries), heads, longest, size)
        for i, stretches in enumerate(entries):
            at = 0
            for kv in stretches:
                self.kv[:, :, i, :, at : at + kv.shape[3]] = kv
                at += kv.shape[3]
        unseen = torch.arange(longest)[None] >= torch.tensor(lengths)[:, None]
        bias = torch.zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        self.bias = bias.to(like.device, like.dtype)[:, None, None]

    def attend(
        self, layer: int, q_NKGD: Tensor, readers: Readers, scale: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Which queries, and their attention to their entry."""
        num, longest = readers.index.shape
        _, kv_heads, group, size = q_NKGD.shape
        q = q_NKGD.view(num, longest, kv_heads, group, size) if readers.all else q_NKGD[readers.index]
        q = q.transpose(1, 2).reshape(num, kv_heads, longest * group, size)
        o, s = attend(q, self.kv[layer, 0], self.kv[layer, 1], scale, self.bias)
        o = o.view(num, kv_heads, longest, group, size).transpose(1, 2).flatten(0, 1)
        s = s.view(num, kv_heads, longest, group).transpose(1, 2).flatten(0, 1)
        return (
            (readers.where, o, s)
            if readers.real is None
            else (readers.where, o[readers.real], s[readers.real])
        )


class Readers:
    """Which of `num` queries read each entry."""

    def __init__(self, numbers: Sequence[Sequence[int] | range], num: int, device: torch.device) -> None:
        longest = max(map(len, numbers))
        steps = np.arange(longest)
        padded = np.stack([np.asarray(own)[np.minimum(steps, len(own) - 1)] for own in numbers])
        self.index = torch.from_numpy(padded).to(device)
        self.real: Tensor | None = None
        """Places of the index that are not padding; None: all."""
        self.where = self.index.flatten()
        self.all = np.array_equal(padded.ravel(), np.arange(num))
        """They are all the queries there are, in order."""
        if min(map(len, numbers)) < longest:
            seen = np.concatenate([i * longest + np.arange(len(own)) for i, own in enumerate(numbers)])
            self.real = torch.from_numpy(seen).to(device)
            self.where = self.where[self.real]


def near(items: Sequence[T], size: Callable[[T], int]) -> list[list[T]]:
    """As few groups as may be in which sizes differ by at most a factor of two."""
    groups: list[list[T]] = []
    for item in sorted(items, key=size):
        if groups and size(item) <= 2 * size(groups[-1][0]):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
