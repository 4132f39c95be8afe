"""A fault simulator: the same team under crashes, hangs, delays, drops, duplicates, reordering and a full disk.

Every fault is a keyed draw, so a schedule is a function of its seed and a failing one can be run
again: `simulate(team, assignment, seed)`. Virtual time makes a schedule cost milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from baton.errors import BatonError
from baton.team.budget import charging_of
from baton.team.clock import Driver, Op, uniform
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.recording import Recording
from baton.team.running import Run, header_of, num_records
from baton.team.team import Assignment, Team
from baton.trace.records import Call, Edge, Event, Ints, Payload, Reward
from baton.trace.trace import End, Header, Record, Trace


class Crash(Exception):
    """The process dies."""


class DiskFull(BatonError):
    """The journal cannot write."""


class Faults(Struct, frozen=True, kw_only=True):
    """How often things go wrong."""

    crash: float = 0.05
    """At a commit: the process dies, before or after it took hold."""
    disk_full: float = 0.03
    """At a commit: nothing is written; the run ends, and is resumed when there is room."""
    fail: float = 0.05
    """A call comes back as an error."""
    hang: float = 0.03
    """A call is answered far too late: a dropped packet, a stuck server."""
    delay: float = 0.2
    """A completion is late, so that others overtake it."""
    duplicate: float = 0.1
    """A completion comes twice."""
    garble: float = 0.05
    """An answer is cut off in the middle."""


class Outcome(Struct, frozen=True, kw_only=True):
    """What came of one schedule."""

    trace: Trace
    crashes: int
    full_disks: int


class _Engine:
    def __init__(self, inner: Engine, faults: Faults, seed: int) -> None:
        self.name = inner.name
        self.charging = charging_of(inner)
        self._inner = inner
        self._faults = faults
        self._seed = seed
        now = getattr(inner, "answer_now", None)
        self.answer_now = None if now is None else lambda request: self._spoil(request, now(request))

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._inner.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        answers = await self._inner.answer(requests)
        return [self._spoil(request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _spoil(self, request: Request, answer: Answer | EngineError) -> Answer | EngineError:
        if isinstance(answer, EngineError):
            return answer
        key = f"{self._seed}/{request.call}"
        if uniform(f"{key}/fail") < self._faults.fail:
            return EngineError("injected: the server failed")
        if uniform(f"{key}/garble") < self._faults.garble and answer.completion_ids and answer.token_ends:
            keep = max(1, len(answer.completion_ids) // 2)
            answer = structs.replace(
                answer,
                text=answer.text[: answer.token_ends[keep - 1]],
                completion_ids=answer.completion_ids[:keep],
                logprobs=None if answer.logprobs is None else answer.logprobs[:keep],
                token_ends=answer.token_ends[:keep],
                versions=None,
                completion_tokens=None if answer.completion_tokens is None else keep,
                finish_reason="length",
            )
        if uniform(f"{key}/hang") < self._faults.hang:
            return structs.replace(answer, duration_s=10_000.0)
        return answer


class _Driver(Driver):
    """Completions late and twice."""

    def __init__(self, faults: Faults, seed: int) -> None:
        super().__init__(virtual=True)
        self._faults = faults
        self._seed = seed

    def schedule(self, op: Op, t: float) -> None:
        key = f"{self._seed}/{op.kind}/{op.id}"
        if op.kind in ("call", "tool"):
            if uniform(f"{key}/delay") < self._faults.delay:
                t += 3.0 * uniform(f"{key}/late")
            if uniform(f"{key}/duplicate") < self._faults.duplicate:
                super().schedule(op, t + uniform(f"{key}/again"))
        super().schedule(op, t)


class _Journal:
    """A disk in memory: what is committed survives a crash, what is not does not."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._seed = seed
        self._commits = 0
        self.durable: list[Record] = []
        self.ended: End | None = None
        self._pending: list[Record] = []
        self._ending: End | None = None
        self._kept: list[bytes] = []
        self._keeping: list[bytes] = []

    def reopen(self) -> None:
        self._pending.clear()
        self._keeping.clear()
        self._ending = None

    def extend(self, records: Iterable[Record]) -> None:
        self._pending.extend(records)

    def end(self, end: End) -> None:
        self._ending = end

    def keep(self, body: bytes) -> None:
        self._keeping.append(body)

    def kept(self) -> list[bytes]:
        return list(self._kept)

    def commit(self) -> None:
        self._commits += 1
        key = f"{self._seed}/commit/{self._commits}"
        if uniform(f"{key}/full") < self._faults.disk_full:
            raise DiskFull("injected: the disk is full")
        crash = uniform(f"{key}/crash")
        if crash < self._faults.crash / 2:
            raise Crash
        self.durable += self._pending
        self._pending.clear()
        self._kept += self._keeping
        self._keeping.clear()
        self.ended = self._ending
        if crash < self._faults.crash:
            raise Crash

    def trace(self, header: Header) -> Trace:
        """What a reader would find."""
        records = self.durable
        return Trace(
            header=header,
            events=tuple(r for r in records if isinstance(r, Event)),
            edges=tuple(r for r in records if isinstance(r, Edge)),
            calls=tuple(r for r in records if isinstance(r, Call)),
            payloads={r.ref: r for r in records if isinstance(r, Payload)},
            rewards=tuple(r for r in records if isinstance(r, Reward)),
            costs=self.ended.costs if self.ended else {},
            finished=self.ended is not None,
        )


async def simulate(team: Team, assignment: Assignment, seed: int, faults: Faults | None = None) -> Outcome:
    """Run a team under one schedule of faults, resuming after every crash, to the end."""
    faults = faults or Faults()
    spoiled = structs.replace(
        team,
        clock="virtual",
        engines={name: _Engine(engine, faults, seed) for name, engine in team.engines.items()},
    )
    header = header_of(spoiled, assignment)
    journal = _Journal(faults, seed)
    crashes = full_disks = 0
    while journal.ended is None:
        journal.reopen()
        before = journal.trace(header)
        attempt = Run(
            spoiled,
            assignment,
            header,
            journal=journal,
            recording=Recording(before) if before.events else None,
            strict=True,
            skip=num_records(before),
            driver=_Driver(faults, seed),
        )
        try:
            await attempt.go()
        except Crash:
            crashes += 1
        except DiskFull:
            full_disks += 1
    return Outcome(trace=journal.trace(header), crashes=crashes, full_disks=full_disks)
