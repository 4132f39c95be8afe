"""Llamas on a GPU: rows read keys and values where they are, steps are recorded once for each number of rows.

Prefixes are never copied to rows: a row has pointers to the prefix cache's stretches and a slot for what it adds, so a
prompt that many rows share is read from the chip's cache, and calls join and leave without moving anything. What
depends on lengths is read from tables on the device, so a recorded step serves any rows of its number. Several steps
run before the host looks at their tokens: a row that ended in between has drawn a few that nobody takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from baton.engine.torch.batch import CallRow, Drawn, room_for
from baton.engine.torch.cache import KVShape, Node
from baton.engine.torch.cuda.llama import FusedLlama, fused_of
from baton.engine.torch.cuda.prefills import Prefills
from baton.engine.torch.cuda.reads import Reads, Row, Stretch
from baton.engine.torch.cuda.slots import Slots
from baton.engine.torch.cuda.steps import GraphMaker, Steps, Underway
from baton.engine.torch.forward import close
from baton.engine.torch.passes import Drawer

_MOST_STEPS = 8
"""Steps between two looks at their tokens."""
_WASTE = 4
"""At least as many times fewer steps than answers have been long, so that ends are not overrun by much."""
_COLUMNS = 8
"""Stretches that a row of a recorded step reads, with its own."""
_TOGETHER = 512
"""Tokens whose memory is asked for, and so given back, together."""
_PREFILL_ROWS = 64
"""Queries times heads of a group that one program takes in prefill."""


class PointedCompute:
    """`Compute` over a fused Llama."""

    def __init__(self, model: FusedLlama, shape: KVShape) -> None:
        self.rows: list[CallRow] = []
        self.prefill_tokens = 16_384
        self.waits = True
        self._model = model
        self._shape = shape
        self._slots = Slots(shape)
        recorder = GraphMaker(shape.device)
        self._recorder = recorder
        self._steps = Steps(model, shape, _COLUMNS, recorder)
        group = model.heads[0] // model.heads[1]
        self._queries = 1 if model.steady else max(1, _PREFILL_ROWS // group)
        self._prefills = Prefills(model, self._steps.nobody, _COLUMNS, self._queries, recorder)
        self._drawer: Drawer | None = None
        self._planned = False
        """The device has the rows as they are."""
        self._flying: list[tuple[list[CallRow], Underway, int]] = []
        """Steps that nobody has looked at, of which rows, how many; two at most."""
        self._usual = 4.0 * _WASTE
        """How long answers have been, a running mean."""

    def prefill(self, nodes: Sequence[Node]) -> None:
        self._prefilled(nodes)

    def probe(self, chain: Sequence[Node]) -> Tensor:
        """Logits after the last id of a chain of cold nodes; a step is tried as well, whose kernels are others."""
        found = self._model.logits(self._prefilled(chain))[-1]
        whole = [Stretch(node.kv, len(node.ids)) for node in chain if node.kv is not None]
        own = self._slots.take(1)
        # One row and many have kernels of their own, which are compiled here and not in the middle of a run.
        made = [self._stepped(whole, own, chain[-1].start + len(chain[-1].ids), count) for count in (1, 64)]
        self._slots.give(own)
        if not all(torch.isfinite(logits).all() for logits in made) or not close(made[0][0], made[1][-1]):
            raise FloatingPointError("steps after the prompt gave logits that are none, or are not the same")
        return found

    def _stepped(self, whole: Sequence[Stretch], own: Tensor, position: int, count: int) -> Tensor:
        """Logits of a step of so many rows that are all the same."""
        rows = [(whole, Stretch(own, 0), 1)] * count
        reads = Reads(self._model.heads, rows, self._shape.device, steady=self._model.steady)
        positions = torch.full((count,), position, device=self._shape.device)
        return self._model(torch.zeros_like(positions), positions, reads)

    def _prefilled(self, nodes: Sequence[Node]) -> Tensor:
        """Compute nodes; what the last pass gave for each of its tokens."""
        ordered = sorted(nodes, key=lambda node: node.start)
        if not self._model.steady:
            return self._pass(ordered)
        while True:
            # A node's ancestors first: what it reads is copied into one stretch, from position 0 on.
            ready = [node for node in ordered if all(each.kv is not None for each in node.chain()[:-1])]
            found = self._pass(ready)
            ordered = [node for node in ordered if node.kv is None]
            if not ordered:
                return found

    def _pass(self, nodes: Sequence[Node]) -> Tensor:
        device = self._shape.device
        made: dict[int, Tensor] = {}
        rows: list[Row] = []
        empty = self._empty([len(node.ids) + (node.start if self._model.steady else 0) for node in nodes])
        for node, kv in zip(nodes, empty, strict=True):
            above = [made[each.number] if each.kv is None else each.kv for each in node.chain()[:-1]]
            before = node.start if self._model.steady else 0
            if before:
                torch.cat(above, 3, out=kv[..., :before, :])
                above = []
            made[node.number] = kv
            whole = [Stretch(each, each.shape[3]) for each in above]
            rows.append((whole, Stretch(kv, before), len(node.ids)))
        ids = np.concatenate([node.ids for node in nodes]).astype(np.int64)
        sizes, starts = np.array([(len(node.ids), node.start) for node in nodes]).T
        positions = np.arange(len(ids)) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
        given = np.stack((ids, positions))
        if not self._model.steady and self._prefills.fits(len(ids), rows):
            found = self._prefills.run(given, rows)
        else:
            reads = Reads(self._model.heads, rows, device, queries=self._queries, steady=self._model.steady)
            ids_there, positions_there = torch.from_numpy(given).to(device)
            found = self._model.hidden(ids_there, positions_there, reads)
        for node in nodes:
            kv = made[node.number]
            node.kv = kv[..., node.start :, :].clone() if self._model.steady else kv
        return found

    def _empty(self, lengths: Sequence[int]) -> list[Tensor]:
        """Room for stretches of these lengths; a few of one length are asked for together: fewer calls."""
        layers, heads, size, dtype, device = self._shape
        free: dict[int, list[Tensor]] = {}
        left = Counter(lengths)
        found = []
        for length in lengths:
            some = free.setdefault(length, [])
            if not some:
                count = max(1, min(left[length], _TOGETHER // length))
                left[length] -= count
                made = torch.empty(count, layers, 2, heads, length, size, dtype=dtype, device=device)
                some += made.unbind()
            found.append(some.pop())
        return found

    def join(self, rows: Sequence[CallRow]) -> None:
        for row in rows:
            stretches = [node.kv for node in row.node.chain() if node.kv is not None]
            kept = 0 if self._model.steady else _COLUMNS - 1
            if kept and len(stretches) > kept:
                stretches.sort(key=lambda kv: -kv.shape[3])
            row.whole, copied = stretches[:kept], stretches[kept:]
            row.loaded = row.length = sum(kv.shape[3] for kv in copied)
            row.own = self._slots.take(row.length + 1 + min(row.limit, 256))
            if copied:
                torch.cat(copied, 3, out=row.own[..., : row.length, :])
        self.rows += rows
        self._planned = False

    def step(self) -> Drawn:
        if not self._flying:
            self._plan()
            self._launch()
        if self._planned:
            # The next steps begin before anybody has looked at these.
            self._launch()
        rows, underway, _ = self._flying.pop(0)
        tokens, logprobs = underway.landed()
        number = {id(row): n for n, row in enumerate(rows)}
        which = [number.get(id(row)) for row in self.rows]
        # Rows that joined meanwhile have none yet.
        return Drawn(
            [[] if n is None else tokens[n] for n in which], [[] if n is None else logprobs[n] for n in which]
        )

    def _launch(self) -> None:
        count, ahead = self._count(), self._ahead
        if count > 0:
            uniforms = np.array([row.uniforms(count, ahead) for row in self.rows])
            self._flying.append((list(self.rows), self._steps.run(uniforms.T, self._drawer), count))

    @property
    def _ahead(self) -> int:
        """Tokens that are under way."""
        return sum(count for _, _, count in self._flying)

    def _plan(self) -> None:
        for row in self.rows:
            if row.length == row.own.shape[3]:
                self._make_room(row)
        samplings = [row.sampling for row in self.rows]
        cut = any(each.top_k is not None or each.top_p < 1 for each in samplings)
        self._drawer = Drawer(samplings, self._shape.device) if cut else None
        self._steps.plan(
            [
                ([Stretch(kv, kv.shape[3]) for kv in row.whole], Stretch(row.own, row.length))
                for row in self.rows
            ],
            [row.ids[-1] if row.ids else int(row.prompt[-1]) for row in self.rows],
            [len(row.prompt) - 1 + len(row.ids) for row in self.rows],
            [each.temperature for each in samplings],
        )
        self._planned = True

    def _count(self) -> int:
        """How many steps before anybody looks: no row outgrows its slot or its limit in them."""
        room = min(min(row.own.shape[3] - row.length, row.limit - len(row.ids)) for row in self.rows)
        return min(_MOST_STEPS, room - self._ahead, max(1, int(self._usual / _WASTE)))

    def _make_room(self, row: CallRow) -> None:
        larger = self._slots.take(row.length + 1)
        larger[..., : row.length, :] = row.own[..., : row.length, :]
        self._slots.give(row.own)
        row.own = larger

    def computed(self, row: CallRow) -> Tensor:
        return row.own[..., row.loaded : row.length, :]

    def leave(self, row: CallRow) -> None:
        self._usual += (len(row.ids) - self._usual) / 64
        self._slots.give(row.own)
        row.whole = []
        self.rows.remove(row)
        self._planned = False
        if not self.rows:
            self._flying = []  # of nobody's any more

    def clear(self, *, damaged: bool) -> None:
        self.rows, self._flying, self._planned = [], [], False
        if damaged or not room_for(self._slots.nbytes, self._shape.device):
            self._slots.forget()
        if self._model.refresh():
            self._steps.forget()
            self._prefills.forget()
            self._recorder.forget()


def pointed_of(
    model: Any, shape: KVShape, context: int, *, steady: bool = False, ops: ModuleType | None = None
) -> PointedCompute | None:
    """None where Triton is not installed, or the model is not plainly a Llama."""
    if ops is None:
        try:
            ops = import_module("baton.engine.torch.cuda.kernels")
        except ImportError:
            return None
    fused = fused_of(model, ops, context, steady=steady)
    return None if fused is None else PointedCompute(fused, shape)
