"""The two kinds of forward pass: prefill of cold prefixes, and one decode step of every row in flight.

Prefill takes nodes of the forest in depth-first order, packed without padding, so the queries below any
node are one slice; each distinct token is computed once however many calls share it. Decode feeds one
token per row. Neither pads, so a row's result does not depend on its neighbours beyond rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.attention import attend, heads_last, join, spread
from baton.engine.torch.forest import Node
from baton.engine.torch.pool import KVShape, Pool

__all__ = ["DecodePass", "PrefillPass"]


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
        self._above = self._ranges([chain for chain, _ in chains])
        self._own = self._groups(shape.device)

    def _ranges(self, chains: Sequence[list[Node]]) -> list[tuple[Node, int, int]]:
        """For each node with queries below it in this pass, their slice."""
        spans: dict[int, tuple[Node, int, int]] = {}
        for chain in chains:
            start = self._at[chain[-1].number]
            for node in chain[:-1]:
                first = spans[node.number][1] if node.number in spans else start
                spans[node.number] = node, first, start + len(chain[-1].ids)
        return list(spans.values())

    def _groups(self, device: torch.device) -> list[tuple[Tensor, Tensor | None]]:
        """Nodes of like length together: token indices (padded to a rectangle) and which of them are real."""
        groups = []
        by_size = sorted(self.nodes, key=lambda node: len(node.ids))
        for _, members in groupby(by_size, key=lambda node: (len(node.ids) - 1).bit_length()):
            starts, lengths = zip(*((self._at[n.number], len(n.ids)) for n in members), strict=True)
            steps = np.arange(max(lengths))[None]
            ends = np.array(lengths)[:, None]
            index = np.array(starts)[:, None] + np.minimum(steps, ends - 1)
            real = None
            if min(lengths) < max(lengths):
                real = torch.from_numpy(np.flatnonzero(steps < ends)).to(device)
            groups.append((torch.from_numpy(index).to(device), real))
        return groups

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
        if self._above:
            q_NKGD = q_NHD.reshape(tokens, kv_heads, group, size)
            out, lse = out.view(tokens, kv_heads, group, size), lse.view(tokens, kv_heads, group)
            for node, a, b in self._above:
                kv = self._keys(node, layer)
                o, s = heads_last(*attend(spread(q_NKGD[a:b]), kv[0, None], kv[1, None], scale), b - a)
                out[a:b], lse[a:b] = join(out[a:b], lse[a:b], o, s)
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


class DecodePass:
    """One token of every row in flight, step after step, until the rows change."""

    def __init__(
        self, pools: Sequence[Pool], shared: Sequence[tuple[Tensor, Sequence[int]]], device: torch.device
    ) -> None:
        """`shared`: stretches read by several rows, each with the rows' numbers (by pool, then slot)."""
        self._pools = pools
        self._device = device
        self.lengths = [seat.length for pool in pools for seat in pool.seats]
        self._lengths = torch.tensor(self.lengths, device=device)
        self._slots = [torch.arange(len(pool.seats), device=device) for pool in pools]
        rows = len(self.lengths)
        self._shared = [
            (kv, None if len(who) == rows else torch.tensor(who, device=device)) for kv, who in shared
        ]
        self._now: list[tuple[Tensor, int, Tensor]] = []
        self.begin()

    def begin(self) -> None:
        """Set the masks of the coming step."""
        self._now = []
        start = 0
        for pool in self._pools:
            end = start + len(pool.seats)
            width = max(self.lengths[start:end]) + 1
            at = self._lengths[start:end]
            unseen = torch.arange(width, device=self._device)[None] > at[:, None]
            bias = torch.zeros(unseen.shape, device=self._device).masked_fill_(unseen, -torch.inf)
            self._now.append((at, width, bias[:, None, None]))
            start = end

    def advance(self) -> None:
        """After a step: every row is one token longer."""
        self.lengths = [length + 1 for length in self.lengths]
        self._lengths += 1
        self.begin()

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        rows, heads, size = q_NHD.shape
        kv_heads = k_NKD.shape[1]
        q_NKGD = q_NHD.reshape(rows, kv_heads, heads // kv_heads, size)
        outs, lses = [], []
        start = 0
        for pool, slots, (at, width, bias) in zip(self._pools, self._slots, self._now, strict=True):
            end = start + len(pool.seats)
            keys, values = pool.kv[layer]
            keys[slots, :, at] = k_NKD[start:end]
            values[slots, :, at] = v_NKD[start:end]
            taken = slice(0, end - start)
            o, s = attend(
                q_NKGD[start:end],
                keys[taken, :, :width],
                values[taken, :, :width],
                scale,
                bias.to(q_NHD.dtype),
            )
            outs.append(o)
            lses.append(s)
            start = end
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        lse = lses[0] if len(lses) == 1 else torch.cat(lses)
        for kv, who in self._shared:
            q = q_NKGD if who is None else q_NKGD[who]
            o, s = heads_last(*attend(spread(q), kv[layer, 0, None], kv[layer, 1, None], scale), len(q))
            if who is None:
                out, lse = join(out, lse, o, s)
            else:
                joined, joined_lse = join(out[who], lse[who], o, s)
                out, lse = out.float().index_copy(0, who, joined), lse.index_copy(0, who, joined_lse)
        return out.reshape(rows, heads, size)
