"""The loop's state: calls waiting, calls in flight, and one step of work for all of them.

A step admits waiting calls, prefills some of the cold prefixes they need, and decodes every row in flight by a token
(or by a few, where asking the device for each would cost more); rows join and leave between steps. Prefill covers a
prompt up to its last token, which is the row's first decode input: so every logit comes from the same kind of pass,
and a prompt that is already known costs nothing. How rows are computed is a `Compute`'s: `PooledCompute` here, for any
model and device, `cuda.pointed` for Llamas on a GPU. Not thread-safe; `engine` owns it from one thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from msgspec import Struct

from baton.engine.template import ByteReader, Decoder, TokenReader
from baton.engine.torch.cache import Ids, KVShape, Node, Pools, PrefixCache, Seat
from baton.engine.torch.flat import FlatPass
from baton.engine.torch.forward import Forward, near
from baton.engine.torch.passes import Drawer, PrefillPass, Stepper, drawer_of
from baton.team.clock import UNIFORMS, uniforms
from baton.team.protocol import Answer, EngineError, TokenWatch
from baton.trace.records import Floats, Ints, Sampling

_PREFILL_EVERY = 8
"""Steps that a call waits at most on a GPU for others to be prefilled with."""
_GROUPED = 32
"""Ids of a stretch that few rows share, from which reading it once for them may be worth a call of its own."""


class EngineLimits(Struct, frozen=True, kw_only=True):
    """How much the engine takes on at once."""

    max_rows: int = 256
    """Calls decoded together; the rest wait."""
    cache_tokens: int | None = None
    """Tokens of computed prefixes kept for later calls; 0 keeps nothing after a call ends. None: 131,072, or as many as
    a sixteenth of a GPU's memory holds."""
    prefill_tokens: int | None = None
    """Tokens of prefill between two decode steps; None: 4,096, on a GPU 16,384, where a pass costs its launches."""
    shared_reads: int | None = None
    """Read a prefix once for all rows from this many saved token reads on; None: by device."""
    steady: bool = False
    """On a GPU: the same bits for a call whatever else is in flight, at a multiple of the time."""


class CallRow(Seat):
    """One call, from its prompt to its answer."""

    def __init__(
        self, prompt: Ids, sampling: Sampling, handle: Any = None, watch: TokenWatch | None = None
    ) -> None:
        self.prompt, self.sampling, self.watch = prompt, sampling, watch
        self.handle = handle
        """The caller's own; the batch does not look at it."""
        self.cancelled = False
        self.node: Node
        self.loaded = 0
        """How many of the slot's tokens were copied from the prefix cache."""
        self.own: torch.Tensor
        """Its slot, where rows have theirs without a pool."""
        self.whole: list[torch.Tensor] = []
        """Stretches that are read where they are; held, because the prefix cache may cut them up meanwhile."""
        self.shared: list[torch.Tensor] = []
        self.grouped: list[torch.Tensor] = []
        """Stretches that are read side by side with others."""
        self.lead: CallRow | None = None
        """The row that computes for this one, as long as both have the same ids; None: itself."""
        self.twins: list[CallRow] = []
        """The rows that it computes for."""
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.limit = 0
        self.reader: TokenReader | ByteReader | None = None
        self.stopped_at: int | None = None
        """Offset in the text of the stop string reached."""
        self.result: Answer | EngineError | None = None
        self._key = token_hex(16) if sampling.key is None else sampling.key
        self._uniforms: list[float] = []

    @property
    def said(self) -> tuple[int, int, tuple[int, ...]]:
        """What it read and said, as a key among the rows in flight."""
        return self.node.number, int(self.prompt[-1]), tuple(self.ids)

    def uniforms(self, count: int, ahead: int = 0) -> list[float]:
        """The numbers that draw tokens to come, from `ahead` on: the n-th of the key's stream for the n-th token."""
        first = len(self.ids) + ahead
        while len(self._uniforms) < first + count:
            # Not when the call comes: a GPU works meanwhile.
            self._uniforms += uniforms(self._key, len(self._uniforms) // UNIFORMS)
        return self._uniforms[first : first + count]


class Drawn(NamedTuple):
    """What a step drew: for each row in flight, in order, some tokens (or none yet) with their log-probabilities."""

    tokens: list[list[int]]
    logprobs: list[list[float]]


class Compute(Protocol):
    """How prefixes and rows are computed, and where rows keep their keys and values."""

    rows: list[CallRow]
    """In flight, in the order of the last `step`."""
    prefill_tokens: int
    """Prompt tokens that a pass takes, unless told otherwise."""
    waits: bool
    """A pass costs as much as several steps, so calls that trickle in had better wait for others."""

    def prefill(self, nodes: Sequence[Node]) -> None:
        """Compute these cold nodes, whose ancestors are warm or among them."""
        ...

    def join(self, rows: Sequence[CallRow]) -> None:
        """Rows whose prompts are warm up to their last tokens are in flight from now on."""
        ...

    def step(self) -> Drawn:
        """Decode all rows. The caller adds what it takes of it to their ids, and counts `length` up by as much."""
        ...

    def computed(self, row: CallRow) -> torch.Tensor:
        """Keys and values of the row's tokens past the prefix, where they are."""
        ...

    def leave(self, row: CallRow) -> None:
        """The row is in flight no longer."""
        ...

    def clear(self, *, damaged: bool) -> None:
        """Forget everything computed: new weights, or (damaged) numbers that are none. Only with no rows in flight."""
        ...


class PooledCompute:
    """Rows of like length in pools, through any forward; on a GPU in recorded layouts."""

    def __init__(
        self,
        model: Any,
        shape: KVShape,
        forward: Forward,
        prefill: Callable[..., PrefillPass | FlatPass] = PrefillPass,
        *,
        shared_reads: int | None = None,
    ) -> None:
        self.rows: list[CallRow] = []
        """In order of pools and slots while `_drawer` is set."""
        cpu = shape.device.type == "cpu"
        self.prefill_tokens = 4096 if cpu else 16_384
        self.waits = not cpu
        self._model = model
        self._shape = shape
        self._forward = forward
        self._prefill_pass = prefill
        self._shared_reads = (2048 if cpu else 65_536) if shared_reads is None else shared_reads
        self._pools = Pools(shape)
        self._stepper = Stepper(forward, shape.device)
        self._weights = self._addresses()
        """Where they were when they last changed."""
        self._cpu = cpu
        self._drawer: Drawer | None = None
        """None: the rows have changed since the last plan."""
        self._of: torch.Tensor | None = None
        """For each row, which of those that compute has its logits; None: every row computes for itself."""
        self._leads: torch.Tensor | None = None
        """Where those that compute are among the rows."""

    def prefill(self, nodes: Sequence[Node]) -> None:
        run = self._prefill_pass(nodes, self._shape)
        self._forward.prefill(run, *run.inputs())
        run.keep()

    def clear(self, *, damaged: bool) -> None:
        self.rows, self._drawer = [], None
        # No mask hides what is not a number. Else slots are kept, because touching new pages takes long; on a GPU, if
        # there is as much for training.
        if damaged or not room_for(sum(kv.nbytes for kv in self._pools.slots), self._shape.device):
            self._pools = Pools(self._shape)
        tidied = self._pools.tidy()
        # Recorded steps read the weights where they were.
        before, self._weights = self._weights, self._addresses()
        self._stepper.forget(self._pools.slots if before == self._weights else ())
        if tidied:
            torch.cuda.empty_cache()  # others may share the GPU

    def _addresses(self) -> list[int]:
        return [each.data_ptr() for each in self._model.parameters()]

    def join(self, rows: Sequence[CallRow]) -> None:
        leads = self._leads_of(rows) if self._cpu else rows
        grouped = self._grouped(leads)
        seats = []
        for row in leads:
            own = []
            for node in row.node.chain():
                assert node.kv is not None
                if self._by_many(node):
                    row.shared.append(node.kv)
                elif node.number in grouped:
                    row.grouped.append(node.kv)
                else:
                    own.append(node.kv)
            seats.append((row, own, 1 + min(row.limit, 256)))
        self._pools.seat(seats)
        for row in leads:
            row.loaded = row.length
            for twin in row.twins:
                twin.length = twin.loaded = row.length
        self.rows += rows
        self._drawer = None

    def _leads_of(self, rows: Sequence[CallRow]) -> list[CallRow]:
        """Of rows that read the same, the first one computes for all, until they say different things.

        Rollouts of one instance begin alike, and so do those of a game that are in the same situation.
        """
        leads: dict[tuple[int, int], CallRow] = {}
        for row in rows:
            lead = leads.setdefault((row.node.number, int(row.prompt[-1])), row)
            if lead is not row:
                row.lead = lead
                lead.twins.append(row)
        return list(leads.values())

    def _part(self) -> None:
        """Rows that have said something else than the one that computes for them get slots of their own."""
        for lead in [row for row in self.rows if row.twins]:
            last = lead.ids[-1] if lead.ids else -1
            apart: dict[int, CallRow] = {}
            for twin in [twin for twin in lead.twins if twin.ids and twin.ids[-1] != last]:
                lead.twins.remove(twin)
                twin.lead = apart.setdefault(twin.ids[-1], twin)
                if twin.lead is not twin:
                    twin.lead.twins.append(twin)
                    continue
                twin.lead, twin.shared, twin.grouped = None, lead.shared, lead.grouped
                lead.pool.add(twin)
                kv = lead.pool.kv
                kv[:, :, twin.slot, :, : lead.length] = kv[:, :, lead.slot, :, : lead.length]
                self._drawer = None

    def _grouped(self, rows: Sequence[CallRow]) -> set[int]:
        """Nodes that groups of rows share: all of them together are worth reading side by side, or none is."""
        if self._shape.device.type != "cpu":
            return set()
        nodes = {node.number: node for row in rows for node in row.node.chain() if self._by_few(node)}
        saved = sum((node.users - 1) * len(node.ids) for node in nodes.values())
        return set(nodes) if saved >= self._shared_reads else set()

    def _by_few(self, node: Node) -> bool:
        return node.users > 1 and len(node.ids) >= _GROUPED and not self._by_many(node)

    def _by_many(self, node: Node) -> bool:
        return (node.users - 1) * len(node.ids) >= self._shared_reads

    def _plan(self) -> Drawer:
        for row in self.rows:
            if row.lead is None and row.length == row.pool.capacity:
                self._pools.make_room(row)
        pools = self._pools.taken()
        leads = [seat for pool in pools for seat in pool.seats if isinstance(seat, CallRow)]
        self._with_twins(leads)
        shared: dict[int, tuple[torch.Tensor, list[int]]] = {}
        for number, row in enumerate(leads):
            for kv in row.shared:
                shared.setdefault(id(kv), (kv, []))[1].append(number)
        ids = [row.ids[-1] if row.ids else int(row.prompt[-1]) for row in leads]
        positions = [len(row.prompt) - 1 + len(row.ids) for row in leads]
        self._stepper.plan(pools, ids, positions, list(shared.values()), self._groups(leads))
        return drawer_of(self.rows, self._shape.device)

    def _with_twins(self, leads: list[CallRow]) -> None:
        """All rows in the order of those that compute, and which of them has whose logits."""
        self.rows, self._of, self._leads = leads, None, None
        if any(row.twins for row in leads):
            sizes = [1 + len(row.twins) for row in leads]
            self.rows = [each for row in leads for each in (row, *row.twins)]
            self._of = torch.from_numpy(np.repeat(np.arange(len(leads)), sizes))
            self._leads = torch.from_numpy(np.cumsum(sizes) - sizes)

    def _groups(self, rows: Sequence[CallRow]) -> list[list[tuple[torch.Tensor, list[int]]]]:
        """What is read side by side, with the rows that read it: no row twice in a group."""
        readers: dict[int, tuple[torch.Tensor, list[int]]] = {}
        for number, row in enumerate(rows):
            for kv in row.grouped:
                readers.setdefault(id(kv), (kv, []))[1].append(number)
        apart: list[tuple[set[int], list[tuple[torch.Tensor, list[int]]]]] = []
        for each in readers.values():
            taken, some = next((a for a in apart if a[0].isdisjoint(each[1])), (set[int](), []))
            if not some:
                apart.append((taken, some))
            taken.update(each[1])
            some.append(each)
        groups = [group for _, some in apart for group in near(some, lambda each: each[0].shape[3])]
        return [sorted(group, key=lambda each: each[1]) for group in groups]

    def step(self) -> Drawn:
        self._part()
        if self._drawer is None:
            self._drawer = self._plan()
        numbers = [row.uniforms(1)[0] for row in self.rows]
        uniforms = torch.tensor(numbers, dtype=torch.float64).to(self._shape.device)
        logits = (
            self._stepper.logits() if self._of is None else self._stepper.logits().index_select(0, self._of)
        )
        tokens, logprobs = self._drawer.draw(logits, uniforms)
        both = torch.stack((tokens.double(), logprobs.double())).tolist()
        if not self._stepper.advance(tokens if self._leads is None else tokens[self._leads]):
            self._drawer = None
        return Drawn([[int(token)] for token in both[0]], [[logprob] for logprob in both[1]])

    def computed(self, row: CallRow) -> torch.Tensor:
        seat = row.lead or row
        return seat.pool.kv[:, :, seat.slot, :, row.loaded : row.length]

    def leave(self, row: CallRow) -> None:
        self.rows.remove(row)
        self._drawer = None
        if row.lead is not None:
            row.lead.twins.remove(row)
            return
        pool = row.pool
        if row.twins:  # the next of them takes the slot over
            heir, *others = row.twins
            heir.lead, heir.twins, heir.shared, heir.grouped = None, others, row.shared, row.grouped
            heir.pool, heir.slot, pool.seats[row.slot] = pool, row.slot, heir
            for twin in others:
                twin.lead = heir
            return
        pool.remove(row)
        if not len(pool.kv[0, 0]):  # it was too large to be kept empty
            self._stepper.forget(self._pools.slots)


def room_for(nbytes: int, device: torch.device) -> bool:
    """Whether a GPU has as much free as these bytes, so that they may stay taken."""
    if device.type != "cuda":
        return True
    free, _ = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return nbytes <= free


class CallBatch:
    """Every call in the engine, waiting or in flight."""

    def __init__(
        self,
        compute: Compute,
        decoder: Decoder,
        shape: KVShape,
        *,
        vocabulary: int,
        ends: frozenset[int],
        context: int,
        limits: EngineLimits,
    ) -> None:
        self._compute = compute
        self._decoder = decoder
        self._vocabulary = vocabulary
        self._ends = ends
        self._context = context
        self._limits = limits
        self._cache_tokens = shape.kept_tokens if limits.cache_tokens is None else limits.cache_tokens
        given = limits.prefill_tokens
        self._prefill_tokens = compute.prefill_tokens if given is None else given
        self._joins_turns = shape.device.type == "cuda"
        self._prefixes = self._no_prefixes()
        self._damaged = False
        """Slots may hold what is not a number."""
        self._waiting: list[CallRow] = []
        self._filling: list[CallRow] = []
        self._steps_waited = 0
        """How many steps the first of those has waited."""
        self._answers: dict[Any, Answer] = {}  # of this step
        self._grown: set[Any] = set()  # what is in the prefix cache already of what was said in it
        self._ended: list[CallRow] = []
        """Answered, with their slots still taken: whoever asked need not wait until they are put away."""
        self.policy = ""
        self.version = "0"
        self.prefilled_tokens = 0
        self.reused_tokens = 0

    @property
    def idle(self) -> bool:
        """Nothing in flight (calls may be waiting)."""
        return not self._compute.rows and not self._filling and not self._ended

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def add(self, row: CallRow) -> CallRow | None:
        """Queue a call; returned with its error if it can never run."""
        room = self._context - len(row.prompt)
        asked = row.sampling.max_tokens
        row.limit = room if asked is None else asked
        if not len(row.prompt):
            row.result = EngineError("the prompt is empty; a model needs at least one token to continue.")
        elif row.limit < 1:
            row.result = EngineError(
                f"the prompt has {len(row.prompt)} tokens; the context, {self._context}, has no room."
                if asked is None
                else f"max_tokens is {asked}; expected at least 1."
            )
        elif row.limit > room:
            row.result = EngineError(
                f"the prompt has {len(row.prompt)} tokens and max_tokens is {asked}, but the context is "
                f"{self._context}. Shorten the prompt or lower max_tokens."
            )
        elif row.prompt.min() < 0 or row.prompt.max() >= self._vocabulary:
            row.result = EngineError(
                f"the prompt has ids from {row.prompt.min()} to {row.prompt.max()}; "
                f"this model's are 0 to {self._vocabulary - 1}."
            )
        else:
            if row.sampling.stop:
                row.reader = self._decoder.reader()
            self._waiting.append(row)
            return None
        return row

    def step(self, *, admit: bool = True) -> list[CallRow]:
        """One step; returns the rows that ended, each with its result. Cancelled rows just go."""
        for row in self._ended:
            self._leave(row)
        self._ended, self._grown, self._answers = [], set(), {}
        self._drop_cancelled()
        if admit:
            self._admit()
        if self._filling and self._prefill_due():
            self._prefill()
        return self._decode_step() if self._compute.rows else []

    def clear(self) -> None:
        """Forget everything computed, for new weights. Only when idle."""
        self._prefixes = self._no_prefixes()
        self._compute.clear(damaged=self._damaged)
        self._damaged = False

    def _no_prefixes(self) -> PrefixCache:
        return PrefixCache(self._cache_tokens, self._prefill_tokens, joins_turns=self._joins_turns)

    def fail(self, error: EngineError) -> list[CallRow]:
        """After a pass broke: end every row with this error and forget everything computed."""
        rows = [row for row in self._compute.rows if row.result is None]
        ended = [*rows, *self._filling, *self._waiting]
        for row in ended:
            row.result = error
        self._filling, self._waiting, self._ended = [], [], []
        self._damaged = True
        self.clear()
        return ended

    def _drop_cancelled(self) -> None:
        self._waiting = [row for row in self._waiting if not row.cancelled]
        for row in [row for row in self._filling if row.cancelled]:
            self._filling.remove(row)
            self._prefixes.release(row.node)
        for row in [row for row in self._compute.rows if row.cancelled]:
            self._leave(row)

    def _admit(self) -> None:
        free = self._limits.max_rows - len(self._compute.rows) - len(self._filling)
        for row in self._waiting[:free]:
            row.node, warm = self._prefixes.plant(row.prompt[:-1])
            self.reused_tokens += warm
            self._filling.append(row)
        del self._waiting[:free]

    def _prefill_due(self) -> bool:
        """Calls that trickle in wait for others where a pass is dear."""
        self._steps_waited += 1
        few = 4 * len(self._filling) < len(self._compute.rows)
        # Some need no pass.
        known = any(row.node.parent is None or row.node.kv is not None for row in self._filling)
        waits = few and not known and self._steps_waited < _PREFILL_EVERY
        return not (waits and self._compute.waits)

    def _prefill(self) -> None:
        """Compute cold nodes for the first rows in line, then let rows whose prompt is complete join."""
        cold: dict[int, Node] = {}
        tokens = 0
        for row in self._filling:
            if row.node.warm():
                continue
            for node in row.node.chain():
                if node.kv is None and node.number not in cold and tokens < self._prefill_tokens:
                    cold[node.number] = node
                    tokens += len(node.ids)
        if cold:
            self._compute.prefill(list(cold.values()))
            self.prefilled_tokens += tokens
        ready = [row for row in self._filling if row.node.warm()]
        if ready:
            self._compute.join(ready)
        taken = set(map(id, ready))
        self._filling = [row for row in self._filling if id(row) not in taken]
        # What is left has waited: a long prompt takes several passes, one after the other.
        self._steps_waited = _PREFILL_EVERY if self._filling else 0

    def _leave(self, row: CallRow) -> None:
        """Free the row's slot; what it computed goes to the prefix cache, unless another that said the same gave it."""
        sound = not isinstance(row.result, EngineError) and self._cache_tokens
        kv = self._compute.computed(row) if sound and (said := row.said) not in self._grown else None
        self._prefixes.release(row.node)
        if kv is not None and kv.shape[3]:
            computed = np.array([row.prompt[-1], *row.ids[:-1]], np.int32)
            self._prefixes.grow(row.node, computed[: kv.shape[3]], kv)
            self._grown.add(said)
        self._prefixes.trim()
        self._compute.leave(row)

    def _decode_step(self) -> list[CallRow]:
        drawn = self._compute.step()
        for row, tokens, logprobs in zip(self._compute.rows, *drawn, strict=True):
            if self._plain(row, tokens, logprobs):
                row.ids += tokens
                row.logprobs += logprobs
                row.length += len(tokens)
                if len(row.ids) == row.limit:
                    row.result = self._answer(row, "length")
            else:
                self._take_one_by_one(row, tokens, logprobs)
            if row.result is not None:
                self._ended.append(row)
        return self._ended

    def _plain(self, row: CallRow, tokens: list[int], logprobs: list[float]) -> bool:
        """Nothing but its limit can end the row in these."""
        return (
            row.reader is None
            and len(row.ids) + len(tokens) <= row.limit
            and self._ends.isdisjoint(tokens)
            and math.isfinite(sum(logprobs))
        )

    def _take_one_by_one(self, row: CallRow, tokens: list[int], logprobs: list[float]) -> None:
        for token, logprob in zip(tokens, logprobs, strict=True):
            row.length += 1
            if self._take(row, token, logprob):
                return  # what was drawn past its end is nobody's

    def _take(self, row: CallRow, token: int, logprob: float) -> bool:
        """Add a drawn token to a row; True when that ends it."""
        if not math.isfinite(logprob):
            row.result = EngineError(
                f"the model's logits are not finite at token {len(row.ids)} of the answer: damaged weights?"
            )
            row.ids.append(token)
            self._damaged = True
            return True
        row.ids.append(token)
        row.logprobs.append(logprob)
        if token in self._ends or (row.reader is not None and self._stop_reached(row, token)):
            row.result = self._answer(row, "stop")
        elif len(row.ids) >= row.limit:
            row.result = self._answer(row, "length")
        return row.result is not None

    def _stop_reached(self, row: CallRow, token: int) -> bool:
        assert row.reader is not None
        seen = len(row.reader.text)
        text = row.reader.push(token)
        longest = max(map(len, row.sampling.stop))
        found = [at for stop in row.sampling.stop if (at := text.find(stop, max(0, seen - longest))) >= 0]
        row.stopped_at = min(found, default=None)
        return bool(found)

    def _answer(self, row: CallRow, finish_reason: str) -> Answer:
        """One for all rows that read and said the same at once."""
        key = row.said, tuple(row.logprobs), row.stopped_at, finish_reason
        return self._answers.get(key) or self._answers.setdefault(key, self._made(row, finish_reason))

    def _made(self, row: CallRow, finish_reason: str) -> Answer:
        spoken: Sequence[int] = row.ids[:-1] if row.ids[-1] in self._ends else row.ids
        text, ends = self._decoder.text_and_ends(spoken)
        if row.stopped_at is not None:
            text = text[: row.stopped_at]
            ends = [min(end, len(text)) for end in ends]
        ends += [len(text)] * (len(row.ids) - len(spoken))
        return Answer(
            text=text,
            policy=self.policy,
            policy_version=self.version,
            completion_ids=Ints(row.ids),
            logprobs=Floats(row.logprobs),
            token_ends=Ints(ends),
            prompt_tokens=len(row.prompt),
            completion_tokens=len(row.ids),
            finish_reason=finish_reason,
        )
