"""Prefill: the keys and values of cold nodes, any number of them in one forward pass.

Nodes come in depth-first order, packed without padding, so the queries below any node are one slice, and
each distinct token is computed once however many calls share it. Only attention pads: nodes of like
length attend to themselves together, and so do nodes that continue their own conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.attention import attend, heads_last, join, spread
from baton.engine.torch.forest import Node
from baton.engine.torch.pool import KVShape

__all__ = ["PrefillPass"]


class PrefillPass:
    """Computes keys and values of cold nodes whose ancestors are warm or in the same pass."""

    def __init__(self, nodes: Iterable[Node], shape: KVShape) -> None:
        chains = sorted(
            ((node.chain(), node) for node in nodes), key=lambda pair: [n.number for n in pair[0]]
        )
        self.nodes = [node for _, node in chains]
        starts = np.concatenate(([0], np.cumsum([len(node.ids) for node in self.nodes])))
        self._at = {node.number: int(start) for node, start in zip(self.nodes, starts, strict=False)}
        self.ids = np.concatenate([node.ids for node in self.nodes])
        self.positions = np.concatenate([node.start + np.arange(len(node.ids)) for node in self.nodes])
        self.kv = torch.empty(
            shape.layers, 2, shape.heads, len(self.ids), shape.size, dtype=shape.dtype, device=shape.device
        )
        spans = self._spans([chain for chain, _ in chains])
        self._own = [self._rectangle(nodes) for nodes in _alike(self.nodes, lambda n: len(n.ids))]
        self._continued = self._continuations(spans)
        grouped = {above.number for part in self._continued for above in part.stretches}
        self._above = [span for span in spans if span[0].number not in grouped]

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Ids and positions for the forward pass."""
        device = self.kv.device
        return torch.from_numpy(self.ids).to(device, torch.long), torch.from_numpy(self.positions).to(device)

    def _spans(self, chains: Sequence[list[Node]]) -> list[tuple[Node, int, int]]:
        """For each node with queries below it in this pass, their slice."""
        spans: dict[int, tuple[Node, int, int]] = {}
        for chain in chains:
            start = self._at[chain[-1].number]
            for node in chain[:-1]:
                first = spans[node.number][1] if node.number in spans else start
                spans[node.number] = node, first, start + len(chain[-1].ids)
        return list(spans.values())

    def _rectangle(self, nodes: Sequence[Node]) -> tuple[Tensor, Tensor | None]:
        """Token indices of several nodes, padded to a rectangle, and which of them are real (None: all)."""
        lengths = np.array([len(node.ids) for node in nodes])[:, None]
        starts = np.array([self._at[node.number] for node in nodes])[:, None]
        steps = np.arange(lengths.max())[None]
        index = starts + np.minimum(steps, lengths - 1)
        real = None
        if lengths.min() < lengths.max():
            real = torch.from_numpy(np.flatnonzero(steps < lengths)).to(self.kv.device)
        return torch.from_numpy(index).to(self.kv.device), real

    def _continuations(self, spans: Sequence[tuple[Node, int, int]]) -> list[_Continued]:
        """Warm ancestors that a single node reads, like sizes together: one call instead of one for each."""
        by_start = {self._at[node.number]: node for node in self.nodes}
        below: dict[int, Node] = {}
        above: dict[int, list[Node]] = {}
        for node, a, b in spans:
            reader = by_start[a]
            if node.kv is not None and b - a == len(reader.ids):
                below[reader.number] = reader
                above.setdefault(reader.number, []).append(node)

        def size(reader: Node) -> int:
            return sum(len(node.ids) for node in above[reader.number])

        parts = []
        for alike in _alike(list(below.values()), size):
            if len(alike) > 1:
                index, real = self._rectangle(alike)
                parts.append(_Continued(index, real, [above[reader.number] for reader in alike], self.kv))
        return parts

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        tokens, heads, size = q_NHD.shape
        kv_heads = k_NKD.shape[1]
        group = heads // kv_heads
        here = self.kv[layer]
        here[0] = k_NKD.transpose(0, 1)
        here[1] = v_NKD.transpose(0, 1)
        out = q_NHD.new_empty(tokens, heads, size, dtype=torch.float32)
        lse = q_NHD.new_empty(tokens, heads, dtype=torch.float32)
        for index, real in self._own:
            q, k, v = (x[index].transpose(1, 2) for x in (q_NHD, k_NKD, v_NKD))
            if group > 1:
                k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            o, s = attend(q, k, v, scale, causal=True)
            o, s = o.transpose(1, 2).reshape(-1, heads, size), s.transpose(1, 2).reshape(-1, heads)
            where = index.flatten()
            if real is not None:
                where, o, s = where[real], o[real], s[real]
            out[where], lse[where] = o.float(), s
        q_NKGD = q_NHD.reshape(tokens, kv_heads, group, size)
        out, lse = out.view(tokens, kv_heads, group, size), lse.view(tokens, kv_heads, group)
        for node, a, b in self._above:
            kv = self._keys(node, layer)
            o, s = heads_last(*attend(spread(q_NKGD[a:b]), kv[0, None], kv[1, None], scale), b - a)
            out[a:b], lse[a:b] = join(out[a:b], lse[a:b], o, s)
        for part in self._continued:
            where, o, s = part.attend(layer, q_NKGD, scale)
            out[where], lse[where] = join(out[where], lse[where], o, s)
        return out.reshape(tokens, heads, size)

    def _keys(self, node: Node, layer: int) -> Tensor:
        if node.kv is not None:
            return node.kv[layer]
        at = self._at[node.number]
        return self.kv[layer, :, :, at : at + len(node.ids)]

    def keep(self) -> None:
        """After the pass: the nodes are warm."""
        for node in self.nodes:
            at = self._at[node.number]
            # A copy, so that dropping one node frees its memory whatever the others do.
            node.kv = self.kv[:, :, :, at : at + len(node.ids)].clone()


class _Continued:
    """Several conversations' earlier keys and values side by side, each read by its own continuation."""

    def __init__(
        self, index: Tensor, real: Tensor | None, above: Sequence[Sequence[Node]], like: Tensor
    ) -> None:
        self.index = index
        self.real = real
        self.stretches = [node for nodes in above for node in nodes]
        lengths = [sum(len(node.ids) for node in nodes) for nodes in above]
        layers, _, heads, _, size = like.shape
        longest = -(-max(lengths) // 8) * 8  # the GPU's kernels want masks of whole eights
        self.kv = like.new_zeros(layers, 2, len(above), heads, longest, size)
        for i, nodes in enumerate(above):
            at = 0
            for node in nodes:
                assert node.kv is not None
                self.kv[:, :, i, :, at : at + len(node.ids)] = node.kv
                at += len(node.ids)
        unseen = torch.arange(self.kv.shape[4])[None] >= torch.tensor(lengths)[:, None]
        bias = torch.zeros(unseen.shape).masked_fill_(unseen, -torch.inf)
        self.bias = bias.to(like.device, like.dtype)[:, None, None]

    def attend(self, layer: int, q_NKGD: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        """Which tokens, and their attention to this part."""
        conversations, longest = self.index.shape
        _, kv_heads, group, size = q_NKGD.shape
        q = q_NKGD[self.index].permute(0, 2, 1, 3, 4).reshape(conversations, kv_heads, longest * group, size)
        o, s = attend(q, self.kv[layer, 0], self.kv[layer, 1], scale, self.bias)
        o = o.view(conversations, kv_heads, longest, group, size).transpose(1, 2).flatten(0, 1)
        s = s.view(conversations, kv_heads, longest, group).transpose(1, 2).flatten(0, 1)
        where = self.index.flatten()
        return (where, o, s) if self.real is None else (where[self.real], o[self.real], s[self.real])


def _alike(nodes: Sequence[Node], size: Callable[[Node], int]) -> list[list[Node]]:
    """Nodes grouped so that sizes within a group differ by at most a factor of two."""
    ordered = sorted(nodes, key=size)
    return [list(group) for _, group in groupby(ordered, key=lambda node: (size(node) - 1).bit_length())]
