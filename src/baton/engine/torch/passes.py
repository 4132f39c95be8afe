"""The engine's passes: prefill computes keys and values of cold prefixes, decode one token of every row in flight.

Prefill takes any number of cold nodes at once, in depth-first order, packed without padding, so each distinct token is
computed once however many calls share it. `PrefillPass` reads each stretch where it is, once for all queries below it,
which are one slice; it pads where nodes of like length attend to themselves together, and where nodes continue their
own conversations. (`flat` has the other way, for a GPU.)

Decode steps are run by a `Stepper`. On the CPU a step is exactly as large as its rows. On a GPU launching thousands of
small kernels costs more than the arithmetic, so rows and widths are rounded up to fixed layouts, and a layout that
comes again is recorded as a CUDA graph and replayed. Rows that only fill up a layout compute in free slots, unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.cache import KVShape, Node, Pool
from baton.engine.torch.forward import Beside, Forward, Readers, attend, heads_last, join, near, spread
from baton.team.protocol import TokenWatch
from baton.trace.records import Sampling

_WIDTH_STEP = 128
_MAX_LAYOUTS = 64


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

    def store(self, layer: int, k_NKD: Tensor, v_NKD: Tensor) -> None:
        """A layer's keys and values."""
        self.kv[layer, 0] = k_NKD.transpose(0, 1)
        self.kv[layer, 1] = v_NKD.transpose(0, 1)

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
        self.store(layer, k_NKD, v_NKD)
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


class _Part(NamedTuple):
    """The first `rows` slots of a pool."""

    kv: Tensor
    rows: int
    width: int
    """How many of the slots' columns are read."""


class DecodePass:
    """A layout of rows: which slots of which pools, and which shared stretches."""

    def __init__(self, parts: Sequence[_Part], shared: Sequence[Tensor], device: torch.device) -> None:
        self.parts = list(parts)
        self.shared = list(shared)
        rows = sum(part.rows for part in parts)
        self.ids, self.positions, self.lengths = torch.zeros(3, rows, dtype=torch.long, device=device)
        self.members: list[Tensor | None] = [None] * len(shared)
        """Which rows read each shared stretch: numbers of rows, or a mask of all rows; None: all of them."""
        self.groups: list[tuple[Beside, Readers]] = []
        """Stretches that some rows each share, side by side."""
        self._firsts = [_first_cells(part) for part in parts]
        self._bias: list[Tensor] = []
        self._cells: list[Tensor] = []

    def begin(self) -> None:
        """Set the masks of the coming step, and where its keys and values go; part of the step."""
        self._bias, self._cells = [], []
        lengths = self.lengths.split([part.rows for part in self.parts])
        for part, first, at in zip(self.parts, self._firsts, lengths, strict=True):
            self._cells.append((first + at[:, None]).flatten())
            unseen = torch.arange(part.width, device=at.device)[None] > at[:, None]
            bias = torch.zeros(unseen.shape, dtype=part.kv.dtype, device=at.device)
            self._bias.append(bias.masked_fill_(unseen, -torch.inf)[:, None, None])

    def attend(self, layer: int, q_NHD: Tensor, k_NKD: Tensor, v_NKD: Tensor, scale: float) -> Tensor:
        rows, heads, size = q_NHD.shape
        kv_heads = k_NKD.shape[1]
        q_NKGD = q_NHD.reshape(rows, kv_heads, heads // kv_heads, size)
        outs, lses = [], []
        start = 0
        for part, cells, bias in zip(self.parts, self._cells, self._bias, strict=True):
            end = start + part.rows
            keys, values = part.kv[layer]
            keys.view(-1, size).index_copy_(0, cells, k_NKD[start:end].reshape(-1, size))
            values.view(-1, size).index_copy_(0, cells, v_NKD[start:end].reshape(-1, size))
            keys, values = keys[: part.rows, :, : part.width], values[: part.rows, :, : part.width]
            o, s = attend(q_NKGD[start:end], keys, values, scale, bias)
            outs.append(o)
            lses.append(s)
            start = end
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        lse = lses[0] if len(lses) == 1 else torch.cat(lses)
        for kv, who in zip(self.shared, self.members, strict=True):
            some = who if who is not None and who.dtype != torch.bool else None
            q = q_NKGD if some is None else q_NKGD[some]
            o, s = heads_last(*attend(spread(q), kv[layer, 0, None], kv[layer, 1, None], scale), len(q))
            if some is not None:
                joined, joined_lse = join(out[some], lse[some], o, s)
                out, lse = out.float().index_copy(0, some, joined), lse.index_copy(0, some, joined_lse)
            else:
                if who is not None:
                    s = s.masked_fill(~who[:, None, None], -torch.inf)
                out, lse = join(out, lse, o, s)
        for beside, readers in self.groups:
            where, o, s = beside.attend(layer, q_NKGD, readers, scale)
            if readers.all:
                out, lse = join(out, lse, o, s)
                continue
            joined, joined_lse = join(out[where], lse[where], o, s)
            out, lse = out.float().index_copy(0, where, joined), lse.index_copy(0, where, joined_lse)
        return out.reshape(rows, heads, size)


def _first_cells(part: _Part) -> Tensor:
    """The places of each row's and head's first column, with all columns of a layer's keys in one line."""
    heads, capacity = part.kv.shape[3:5]
    return torch.arange(part.rows * heads, device=part.kv.device).view(-1, heads) * capacity


class Drawer:
    """Draws tokens from logits for a fixed set of rows, one uniform number per row.

    Each row's draw is the inverse of its own cumulative distribution at its own number, so it depends on nothing but
    that row's logits and key; rounding in the logits can change a token only if the number lies within that rounding of
    an edge. The log-probability is of the distribution actually drawn from: after temperature, then top-k, then top-p,
    normalised again. Temperature 0 takes the best token, with log-probability 0, because that distribution has one
    outcome.
    """

    def __init__(self, samplings: Sequence[Sampling], device: torch.device) -> None:
        self._greedy = torch.tensor([s.temperature == 0 for s in samplings], device=device)
        self._any_greedy = any(s.temperature == 0 for s in samplings)
        self._all_greedy = all(s.temperature == 0 for s in samplings)
        self._flat = all(s.temperature in (0, 1) for s in samplings)
        self._temperature = torch.tensor([s.temperature or 1.0 for s in samplings], device=device)[:, None]
        cut = [i for i, s in enumerate(samplings) if s.top_k is not None or s.top_p < 1]
        self._cut = torch.tensor(cut, device=device) if cut else None
        self._top_k = torch.tensor([samplings[i].top_k or 2**30 for i in cut], device=device)[:, None]
        self._top_p = torch.tensor([samplings[i].top_p for i in cut], device=device)[:, None]

    def draw(self, logits_NV: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and their log-probabilities; NaN where the logits make no distribution."""
        logits = logits_NV.float()
        if self._any_greedy:
            best = logits.argmax(-1)
            # Zero where the row is sound, NaN where it is not.
            sound = torch.where(torch.isfinite(logits.logsumexp(-1)), 0.0, torch.nan)
            if self._all_greedy:
                return best, sound
        logprobs = self.distributions(logits)
        edges = logprobs.exp().cumsum(-1, dtype=torch.float64)
        total = edges[:, -1]
        # Strictly below the last edge, so a token of probability zero is never drawn.
        point = torch.minimum(uniforms * total, torch.nextafter(total, torch.zeros_like(total)))
        tokens = torch.searchsorted(edges, point[:, None], right=True).clamp_(max=edges.shape[1] - 1)
        chosen = logprobs.gather(1, tokens)[:, 0]
        tokens = tokens[:, 0]
        if self._any_greedy:
            tokens = torch.where(self._greedy, best, tokens)
            chosen = torch.where(self._greedy, sound, chosen)
        return tokens, chosen

    def distributions(self, logits: Tensor) -> Tensor:
        """The log-probabilities of all tokens, as they are drawn from where the temperature is not 0."""
        if not self._flat:
            logits = logits / self._temperature
        if self._cut is not None:
            logits = logits.index_copy(0, self._cut, self._truncated(logits[self._cut]))
        return logits.log_softmax(-1)

    def _truncated(self, logits: Tensor) -> Tensor:
        ordered, order = logits.sort(-1, descending=True)
        rank = torch.arange(logits.shape[1], device=logits.device)[None]
        ordered = ordered.masked_fill(rank >= self._top_k, -torch.inf)
        chance = ordered.softmax(-1)
        before = chance.cumsum(-1) - chance
        drop = (before >= self._top_p) & (rank > 0)
        ordered = ordered.masked_fill(drop, -torch.inf)
        return torch.empty_like(ordered).scatter_(1, order, ordered)


class DrawnRow(Protocol):
    """What drawing knows of a row."""

    sampling: Sampling
    watch: TokenWatch | None
    ids: list[int]


class WatchedDrawer(Drawer):
    """Draws beside those who say which tokens may come, and tells them what else could have.

    The distribution drawn from is the model's with what may not come taken away, normalised again; so are the
    log-probabilities.
    """

    def __init__(self, rows: Sequence[DrawnRow], device: torch.device) -> None:
        super().__init__([row.sampling for row in rows], device)
        self._rows = list(rows)

    def draw(self, logits_NV: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits_NV.float().clone()
        for number, row in enumerate(self._rows):
            mask = None if row.watch is None else row.watch.mask(row.ids)
            if mask is not None:
                bits = np.unpackbits(np.frombuffer(mask, np.uint8), count=logits.shape[1], bitorder="little")
                logits[number].masked_fill_(
                    ~torch.from_numpy(bits.astype(bool)).to(logits.device), -torch.inf
                )
        tokens, logprobs = super().draw(logits, uniforms)
        self._tell(logits, tokens)
        return tokens, logprobs

    def _tell(self, logits: Tensor, tokens: Tensor) -> None:
        listening = [(n, row.watch) for n, row in enumerate(self._rows) if row.watch and row.watch.top]
        every = self.distributions(logits) if listening else logits
        for number, watch in listening:
            if self._rows[number].sampling.temperature == 0:  # a distribution of one outcome
                watch.hear([int(tokens[number])], [0.0])
                continue
            best = every[number].topk(min(watch.top, every.shape[1]))
            known = [
                each for each in zip(*(part.tolist() for part in best), strict=True) if each[0] > -torch.inf
            ]
            watch.hear([token for _, token in known], [logprob for logprob, _ in known])


def drawer_of(rows: Sequence[DrawnRow], device: torch.device) -> Drawer:
    """Who draws for these rows."""
    if any(row.watch is not None for row in rows):
        return WatchedDrawer(rows, device)
    return Drawer([row.sampling for row in rows], device)


class _Lane:
    """A layout on the GPU: run once as it is, recorded the second time, replayed from then on."""

    def __init__(self, run: DecodePass) -> None:
        self.run = run
        self.runs = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits: Tensor | None = None


class Stepper:
    """Runs decode steps for whatever rows are in flight."""

    def __init__(self, forward: Forward, device: torch.device) -> None:
        self._forward = forward
        self._device = device
        self._fixed = device.type == "cuda"
        self._records = self._fixed
        self._lanes: dict[tuple[object, ...], _Lane] = {}
        self._lane: _Lane | None = None
        self._index: Tensor | None = None
        """Where the real rows are in the layout; None: it has no others."""
        self._beside: dict[tuple[int, ...], Beside] = {}
        """What the last plan reads side by side."""
        self._steps_left = 0
        self._memory: Any = None
        """That all recorded steps share."""
        self._stream: Any = None

    def forget(self, slots: Sequence[Tensor] = ()) -> None:
        """Drop everything that was computed, and every layout that reads anything but these slots."""
        kept = {id(kv) for kv in slots}
        self._lanes = {
            key: lane
            for key, lane in self._lanes.items()
            if not lane.run.shared and all(id(part.kv) in kept for part in lane.run.parts)
        }
        self._lane = None
        self._beside.clear()

    def plan(
        self,
        pools: Sequence[Pool],
        ids: list[int],
        positions: list[int],
        shared: Sequence[tuple[Tensor, list[int]]],
        grouped: Sequence[Sequence[tuple[Tensor, list[int]]]] = (),
    ) -> None:
        """Lay out the rows: those of the pools, by slot; `shared` names rows by their place in that order.

        So does `grouped`: stretches that are read side by side. Not on a GPU, whose layouts are fixed.
        """
        parts: list[_Part] = []
        where: list[int] = []
        lengths: list[int] = []
        start = 0
        for pool in pools:
            own = [seat.length for seat in pool.seats]
            rows, width = len(own), max(own) + 1
            if self._fixed:
                rows = min(pool.kv.shape[2], 1 << (rows - 1).bit_length())
                width = min(pool.capacity, -(-width // _WIDTH_STEP) * _WIDTH_STEP)
            parts.append(_Part(pool.kv, rows, width))
            where += range(start, start + len(own))
            lengths += own
            start += rows
        stretches = [kv for kv, _ in shared]
        self._lane = self._find(parts, stretches)
        self._steps_left = min(
            (part.width if self._fixed else pool.capacity) - max(seat.length for seat in pool.seats)
            for part, pool in zip(parts, pools, strict=True)
        )
        self._index = None if len(where) == start else torch.tensor(where, device=self._device)
        self._fill(self._lane.run, where, (ids, positions, lengths))
        for i, (_, who) in enumerate(shared):
            self._lane.run.members[i] = self._members(
                self._lane.run.members[i], [where[j] for j in who], start
            )
        self._lane.run.groups = [
            (
                self._side_by_side([kv for kv, _ in group]),
                Readers([who for _, who in group], start, self._device),
            )
            for group in grouped
        ]
        self._beside = {tuple(map(id, beside.stretches)): beside for beside, _ in self._lane.run.groups}

    def _side_by_side(self, stretches: list[Tensor]) -> Beside:
        # Those of the last plan hold what they name, so an id here is never of something else.
        return self._beside.get(tuple(map(id, stretches))) or Beside([[kv] for kv in stretches])

    def _find(self, parts: list[_Part], shared: list[Tensor]) -> _Lane:
        if not self._fixed:
            return _Lane(DecodePass(parts, shared, self._device))
        # Lanes hold the tensors they name, so an id here is never of something else.
        key = (*((id(part.kv), part.rows, part.width) for part in parts), *map(id, shared))
        lane = self._lanes.pop(key, None)
        if lane is None:
            lane = _Lane(DecodePass(parts, shared, self._device))
            now = {part.kv.shape[4]: part.kv for part in parts}
            read = set(map(id, shared))
            for old, kept in list(self._lanes.items()):
                # A pool that has grown is another tensor; what reads the old one will not come again. Nor, mostly, will
                # what reads other shared stretches, and it would keep them.
                other = kept.run.shared and read.isdisjoint(map(id, kept.run.shared))
                if other or any(part.kv is not now.get(part.kv.shape[4], part.kv) for part in kept.run.parts):
                    del self._lanes[old]
            while len(self._lanes) >= _MAX_LAYOUTS:
                del self._lanes[next(iter(self._lanes))]
        self._lanes[key] = lane
        return lane

    def _fill(self, run: DecodePass, where: list[int], columns: tuple[list[int], ...]) -> None:
        values = torch.tensor(columns)
        if self._index is not None:
            spread_out = torch.zeros(len(columns), len(run.ids), dtype=torch.long)
            spread_out[:, where] = values
            values = spread_out
        values = values.to(self._device)
        # In place: a recorded graph reads these very tensors.
        run.ids.copy_(values[0])
        run.positions.copy_(values[1])
        run.lengths.copy_(values[2])

    def _members(self, before: Tensor | None, who: list[int], rows: int) -> Tensor | None:
        if not self._fixed:
            return None if len(who) == rows else torch.tensor(who, device=self._device)
        mask = torch.zeros(rows, dtype=torch.bool)
        mask[who] = True
        if before is None:
            return mask.to(self._device)
        return before.copy_(mask)

    def logits(self) -> Tensor:
        """One step: the next token's logits of every row."""
        lane = self._lane
        assert lane is not None
        lane.runs += 1
        if self._records and lane.runs == 2:
            self._record(lane)
        if lane.graph is not None:
            assert lane.logits is not None
            lane.graph.replay()
            logits = lane.logits
        else:
            logits = self._run(lane.run)
        return logits if self._index is None else logits[self._index]

    def _run(self, run: DecodePass) -> Tensor:
        run.begin()
        return self._forward(run, run.ids, run.positions)

    def _record(self, lane: _Lane) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            logits = self._captured(graph, lane.run)
        except torch.OutOfMemoryError:
            # Memory that nobody uses is given back only outside a recording; this layout is tried again later.
            lane.runs = 0
            torch.cuda.empty_cache()
            return
        except RuntimeError:
            # Some models cannot be recorded (their shapes depend on values); they run as they are.
            self._records = False
            torch.cuda.synchronize()
            return
        lane.graph, lane.logits = graph, logits

    def _captured(self, graph: torch.cuda.CUDAGraph, run: DecodePass) -> Tensor:
        """As `torch.cuda.graph` does it, but without emptying the allocator's cache each time, which takes long."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]  # torch's
        if all(lane.graph is None for lane in self._lanes.values()):
            # Memory goes with the last graph that uses it.
            self._memory = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            # Other threads may use the GPU meanwhile. Steps are replayed one at a time, so they may share memory.
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                logits = self._run(run)
            finally:
                graph.capture_end()
        return logits

    def advance(self, tokens: Tensor) -> bool:
        """After a step, with the tokens drawn; False: the layout is used up, plan anew."""
        self._steps_left -= 1
        if not self._steps_left:
            return False
        assert self._lane is not None
        run = self._lane.run
        if self._index is None:
            run.ids.copy_(tokens)
        else:
            run.ids.index_copy_(0, self._index, tokens)
        run.positions += 1
        run.lengths += 1
        if not self._fixed:
            run.parts = [part._replace(width=part.width + 1) for part in run.parts]
        return True
