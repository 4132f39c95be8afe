"""Prefill in few calls, for a GPU: what each node reads is copied beside the others', and attended to at once.

That takes more memory and arithmetic than reading each stretch where it is (`passes.PrefillPass`), and far fewer calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch.cache import KVShape, Node
from baton.engine.torch.forward import attend
from baton.engine.torch.passes import Prefill, PrefillPass

_MOST_CELLS = 1 << 18
"""Tokens that all nodes read together, padded: memory of one layer."""
_MOST_WARM_BYTES = 4 << 30
"""Memory of what is computed already among them, in all layers."""
_MOST_SCORES = 1 << 26
"""Pairs of a query and what it may read, padded."""


def prefill_pass(nodes: Iterable[Node], shape: KVShape) -> PrefillPass | FlatPass:
    """A pass of few calls, unless it is too much to copy."""
    some = list(nodes)
    return FlatPass(some, shape) if _fit(some, shape) else PrefillPass(some, shape)


def _fit(nodes: Sequence[Node], shape: KVShape) -> bool:
    read = max(node.start + len(node.ids) for node in nodes)
    asked = max(len(node.ids) for node in nodes)
    warm = {each.number: len(each.ids) for node in nodes for each in node.chain() if each.kv is not None}
    cells = len(nodes) * read
    copied = sum(warm.values()) * shape.token_bytes
    return cells <= _MOST_CELLS and cells * asked <= _MOST_SCORES and copied <= _MOST_WARM_BYTES


class FlatPass(Prefill):
    """Copies what each node reads beside the others', and attends at once: a few calls however many stretches.

    Copies are padded to the longest, so contexts that are many and long go to `PrefillPass` instead.
    """

    def __init__(self, nodes: Iterable[Node], shape: KVShape) -> None:
        super().__init__(nodes, shape)
        device = shape.device
        warm = {node.number: node for chain in self.chains for node in chain if node.kv is not None}
        kept = [node.kv for node in warm.values() if node.kv is not None]
        self._warm = torch.cat(kept, 3) if kept else None
        starts = np.cumsum([0, *(len(node.ids) for node in warm.values())])
        where = {number: int(start) for number, start in zip(warm, starts[:-1], strict=True)}
        where |= {number: int(starts[-1]) + at for number, at in self.at.items()}
        self._asked = np.array([len(node.ids) for node in self.nodes])
        self._read = np.array([node.start + len(node.ids) for node in self.nodes])
        # The GPU's kernels want masks of whole eights.
        cells = np.zeros((len(self.nodes), -(-int(self._read.max()) // 8) * 8), np.int64)
        for row, chain in zip(cells, self.chains, strict=True):
            for node in chain:
                row[node.start : node.start + len(node.ids)] = where[node.number] + np.arange(len(node.ids))
        self._cells = torch.from_numpy(cells.ravel()).to(device)
        firsts = np.array([self.at[node.number] for node in self.nodes])
        own, real = self._queries()
        self._own = torch.from_numpy((firsts[:, None] + own).ravel()).to(device)
        self._real = torch.from_numpy(np.flatnonzero(real)).to(device)
        seen = torch.from_numpy((self._read - self._asked)[:, None] + own).to(device)
        unseen = torch.arange(cells.shape[1], device=device) > seen[:, :, None]
        bias = torch.zeros(unseen.shape, dtype=shape.dtype, device=device)
        self._bias = bias.masked_fill_(unseen, -torch.inf)[:, None, :, None]

    def _queries(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Tokens of each node by number, the last one again up to the longest; which of them are real."""
        steps = np.arange(int(self._asked.max()))[None]
        return np.minimum(steps, self._asked[:, None] - 1), steps < self._asked[:, None]

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        _, heads, size = q_NHD.shape
        kv_heads, num = k_NKD.shape[1], len(self.nodes)
        group, asked = heads // kv_heads, len(self._own) // num
        self.store(layer, k_NKD, v_NKD)
        keys, values = (self._copied(layer, part) for part in (0, 1))
        q = q_NHD.index_select(0, self._own).view(num, asked, kv_heads, group, size)
        q = q.transpose(1, 2).reshape(num, kv_heads, asked * group, size)
        bias = self._bias.expand(-1, -1, -1, group, -1).reshape(num, 1, asked * group, -1)
        out, _ = attend(q, keys, values, scale, bias)
        out = out.view(num, kv_heads, asked, group, size).transpose(1, 2).reshape(-1, heads, size)
        return out.index_select(0, self._real)

    def _copied(self, layer: int, part: int) -> Tensor:
        """Keys or values that each node reads: nodes x heads x tokens x size."""
        here = self.kv[layer, part]
        every = here if self._warm is None else torch.cat((self._warm[layer, part], here), 1)
        heads, _, size = every.shape
        return every.index_select(1, self._cells).view(heads, len(self.nodes), -1, size).transpose(0, 1)
