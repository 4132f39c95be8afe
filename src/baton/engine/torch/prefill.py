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
from torch import Tensor

from baton.engine.torch.attention import attend, heads_last, join, spread
from baton.engine.torch.beside import Beside, Readers, near
from baton.engine.torch.forest import Node
from baton.engine.torch.pool import KVShape

__all__ = ["Prefill", "PrefillPass"]


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
