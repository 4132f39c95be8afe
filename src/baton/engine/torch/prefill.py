"""Prefill: the keys and values of cold nodes, any number of them in one forward pass.

Nodes come in depth-first order, packed without padding, so each distinct token is computed once however many calls
share it. Only attention differs. `PrefillPass` reads each stretch where it is, once for all queries below it, which are
one slice; it pads where nodes of like length attend to themselves together, and where nodes continue their own
conversations. `FlatPass` copies what each node reads and attends once: more memory and arithmetic, far fewer calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baton.engine.torch.cache import KVShape, Node
from baton.engine.torch.forward import Beside, Readers, attend, heads_last, join, near, spread


class Prefill:
    """Cold nodes whose ancestors are warm or in the same pass."""

    def __init__(self, nodes: Iterable[Node], shape: KVShape) -> None:
        chains = sorted(
            ((node.chain(), node) for node in nodes), key=lambda pair: [n.number for n in pair[0]]
        )
        self.chains = [chain for chain, _ in chains]
        self.nodes = [node for _, node in chains]
        starts = np.concatenate(([0], np.cumsum([len(node.ids) for node in self.nodes])))
        self.at = {node.number: int(start) for node, start in zip(self.nodes, starts, strict=False)}
        self.ids = np.concatenate([node.ids for node in self.nodes])
        self.positions = np.concatenate([node.start + np.arange(len(node.ids)) for node in self.nodes])
        self.kv = torch.empty(
            shape.layers, 2, shape.heads, len(self.ids), shape.size, dtype=shape.dtype, device=shape.device
        )

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Ids and positions for the forward pass."""
        device = self.kv.device
        return torch.from_numpy(self.ids).to(device, torch.long), torch.from_numpy(self.positions).to(device)

    def keep(self) -> None:
        """After the pass: the nodes are warm."""
        for node in self.nodes:
            at = self.at[node.number]
            # A copy, so that dropping one node frees its memory whatever the others do.
            node.kv = self.kv[:, :, :, at : at + len(node.ids)].clone()


class PrefillPass(Prefill):
    """Reads what is computed already where it is."""

    def __init__(self, nodes: Iterable[Node], shape: KVShape) -> None:
        super().__init__(nodes, shape)
        spans = self._spans(self.chains)
        self._own = [self._places(some) for some in near(self.nodes, lambda node: len(node.ids))]
        self._continued: list[tuple[Beside, Readers]] = []
        grouped = self._continue(spans)
        self._above = [span for span in spans if span[0].number not in grouped]

    def _spans(self, chains: Sequence[list[Node]]) -> list[tuple[Node, int, int]]:
        """For each node with queries below it in this pass, their slice."""
        spans: dict[int, tuple[Node, int, int]] = {}
        for chain in chains:
            start = self.at[chain[-1].number]
            for node in chain[:-1]:
                first = spans[node.number][1] if node.number in spans else start
                spans[node.number] = node, first, start + len(chain[-1].ids)
        return list(spans.values())

    def _places(self, nodes: Sequence[Node]) -> Readers:
        """The tokens of several nodes."""
        starts = [self.at[node.number] for node in nodes]
        stretches = [range(at, at + len(node.ids)) for at, node in zip(starts, nodes, strict=True)]
        return Readers(stretches, len(self.ids), self.kv.device)

    def _continue(self, spans: Sequence[tuple[Node, int, int]]) -> set[int]:
        """Warm ancestors that a single node reads, like sizes together: one call instead of one for each."""
        by_start = {self.at[node.number]: node for node in self.nodes}
        below: dict[int, Node] = {}
        above: dict[int, list[Node]] = {}
        for node, a, b in spans:
            reader = by_start[a]
            if node.kv is not None and b - a == len(reader.ids):
                below[reader.number] = reader
                above.setdefault(reader.number, []).append(node)

        def size(reader: Node) -> int:
            return sum(len(node.ids) for node in above[reader.number])

        grouped: set[int] = set()
        for some in near(list(below.values()), size):
            if len(some) > 1:
                kept = [[node.kv for node in above[reader.number] if node.kv is not None] for reader in some]
                self._continued.append((Beside(kept), self._places(some)))
                grouped |= {node.number for reader in some for node in above[reader.number]}
        return grouped

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        tokens, heads, size = q_NHD.shape
        kv_heads = k_NKD.shape[1]
        group = heads // kv_heads
        here = self.kv[layer]
        here[0] = k_NKD.transpose(0, 1)
        here[1] = v_NKD.transpose(0, 1)
        out = q_NHD.new_empty(tokens, heads, size, dtype=torch.float32)
        lse = q_NHD.new_empty(tokens, heads, dtype=torch.float32)
        for places in self._own:
            q, k, v = (x[places.index].transpose(1, 2) for x in (q_NHD, k_NKD, v_NKD))
            if group > 1:
                k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            o, s = attend(q, k, v, scale, causal=True)
            o, s = o.transpose(1, 2).reshape(-1, heads, size), s.transpose(1, 2).reshape(-1, heads)
            if places.real is not None:
                o, s = o[places.real], s[places.real]
            out[places.where], lse[places.where] = o.float(), s
        q_NKGD = q_NHD.reshape(tokens, kv_heads, group, size)
        out, lse = out.view(tokens, kv_heads, group, size), lse.view(tokens, kv_heads, group)
        for node, a, b in self._above:
            kv = self._keys(node, layer)
            o, s = heads_last(*attend(spread(q_NKGD[a:b]), kv[0, None], kv[1, None], scale), b - a)
            out[a:b], lse[a:b] = join(out[a:b], lse[a:b], o, s)
        for beside, readers in self._continued:
            where, o, s = beside.attend(layer, q_NKGD, readers, scale)
            out[where], lse[where] = join(out[where], lse[where], o, s)
        return out.reshape(tokens, heads, size)

    def _keys(self, node: Node, layer: int) -> Tensor:
        if node.kv is not None:
            return node.kv[layer]
        at = self.at[node.number]
        return self.kv[layer, :, :, at : at + len(node.ids)]


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
        here = self.kv[layer]
        here[0] = k_NKD.transpose(0, 1)
        here[1] = v_NKD.transpose(0, 1)
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
