"""Time and chance: when things outside complete, and random numbers by name.

There is one queue for answers, tool results, timers and people. Virtual clock: answers are asked for at once, and
complete after a modelled latency; time jumps from one completion to the next, and the order is a function of the seed.
Real clock: completions arrive when they arrive. Recorded completions come first, at their recorded moments, on either
clock; that is all replay and resume are.

The same key gives the same draw, in any process, in any order. Forks draw with the keys of the trace they came from
(common random numbers), so what an intervention does not touch does not change.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct


def uniform(key: str) -> float:
    """One uniform draw in [0, 1)."""
    return (int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "little") >> 11) * 2.0**-53


def generator(key: str) -> np.random.Generator:
    """A stream for draws by the thousand."""
    return np.random.Generator(
        np.random.Philox(key=int.from_bytes(blake2b(key.encode(), digest_size=16).digest(), "little"))
    )


UNIFORMS = 64
_own = threading.local()


def uniforms(key: str, block: int = 0) -> list[float]:
    """`UNIFORMS` numbers of `generator(key).random()`, from as many times `block` on; a third of the time.

    Making a generator asks the system for entropy that a key does not need, so one is set to the key instead.
    """
    source = getattr(_own, "source", None)
    if source is None:
        source = _own.source = np.random.Philox(0)
        _own.state = source.state
    state = _own.state
    state["state"]["key"] = np.frombuffer(blake2b(key.encode(), digest_size=16).digest(), "<u8")
    # Four numbers for each count; the buffer is empty.
    state["state"]["counter"] = np.array([block * UNIFORMS // 4, 0, 0, 0], np.uint64)
    state["buffer_pos"] = 4
    source.state = state
    found: list[float] = ((source.random_raw(UNIFORMS) >> np.uint64(11)) * 2.0**-53).tolist()
    return found


Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class Latency(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long things take under a virtual clock."""

    call_s: Seconds = 0.2
    token_s: Seconds = 0.01
    tool_s: Seconds = 0.1
    jitter: Annotated[float, Meta(ge=0, le=1000)] = 0.2
    """Each duration is stretched by a keyed draw in [1, 1 + jitter)."""

    def call(self, key: str, completion_tokens: int) -> float:
        """Seconds that a call takes which says this many tokens."""
        return (self.call_s + self.token_s * completion_tokens) * (
            1.0 + self.jitter * uniform(f"{key}/latency")
        )

    def tool(self, key: str) -> float:
        """Seconds that a tool takes."""
        return self.tool_s * (1.0 + self.jitter * uniform(f"{key}/latency"))


class Op(Struct, eq=False):
    """Something outside that an agent waits for. Awaiting it gives its result."""

    kind: Literal["call", "tool", "timer", "person", "bystander", "resumed", "lapse"]
    id: str
    agent: Any
    work: Any
    start: float = 0.0
    result: Any = None
    cancelled: bool = False
    deferred: bool = False
    done: bool = False
    in_doubt: bool = False
    known: bool = False
    """An earlier process was told how it ended, and kept that."""
    spent: bool = False
    """An earlier process asked it, and all that was set aside for it counts as spent."""
    task: asyncio.Task[None] | None = None

    def __await__(self) -> Generator[Op, Any, Any]:
        return (yield self)

    def cancel(self) -> None:
        """Nobody waits for it any more; what was begun of it is given up."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()


class Resting:
    """What an agent yields while it waits for others in the team, not for something outside."""

    def __await__(self) -> Generator[Resting, Any, Any]:
        return (yield self)


TICK = 2.0**-20
_PART_SECONDS = 0.1


def quantised(seconds: float) -> float:
    """Times are whole multiples of 2^-20 s: sums and differences of them are exact, so start + duration is the end."""
    return round(seconds / TICK) * TICK


_Entry = tuple[float, int, int, int, Op]  # time, rank (0 recorded, 1 modelled, 2 deferred), order, push, op


class Driver:
    """The queue of everything a run waits for: it hands out completions in order."""

    def __init__(self, *, virtual: bool, now: float = 0.0) -> None:
        self.virtual = virtual
        self.now = now
        """Start of the current block, in seconds since the run began."""
        self.passed = 0.0
        """Seconds that had passed when the run was cut off (real clock)."""
        self._heap: list[_Entry] = []
        self._order = 0
        self._fresh: list[Op] = []
        self._arrived: deque[Op] = deque()
        self._bell: asyncio.Event | None = None
        self._zero: float | None = None
        self._timers: list[tuple[Op, float]] = []
        self._handles: list[asyncio.TimerHandle] = []
        self.in_flight = 0
        self.steered = False
        """Whether people may act on the run while it goes on: then it hears them also while it waits for answers."""
        self.paused = False
        self._paused_at = 0.0
        self._acts: deque[Op] = deque()
        self._doing: set[asyncio.Task[None]] = set()
        """Operations under way (virtual clock, steered)."""
        self._num_recorded = 0

    def recorded(self, op: Op, t: float, seq: int) -> None:
        """This completes at a recorded moment."""
        self._push(t, 0, seq, op)

    def schedule(self, op: Op, t: float) -> None:
        """This completes at a modelled moment (virtual clock)."""
        self._push(quantised(t), 1, 0, op)

    def _push(self, t: float, rank: int, seq: int, op: Op) -> None:
        self._order += 1
        self._num_recorded += rank == 0
        heapq.heappush(self._heap, (t, rank, seq, self._order, op))

    def defer(self, op: Op, t: float) -> None:
        """This was cancelled at a recorded moment, before it ended. If it is not again, it is done for real then."""
        op.deferred = True
        self._push(t, 2, 0, op)

    def last(self, op: Op, t: float) -> None:
        """This comes at a moment after everything else that happens then."""
        self._push(t, 2, 0, op)

    def idle_until(self) -> float | None:
        """Up to when nothing else begins or completes (virtual clock); None: for good."""
        if self._fresh:
            return self.now
        return self._heap[0][0] if self._heap else None

    def fresh(self, op: Op) -> None:
        """This has to be done for real."""
        self._fresh.append(op)

    def timer(self, op: Op, seconds: float) -> None:
        """This fires after a time, counted from now."""
        if self.virtual:
            self.schedule(op, self.now + seconds)
        elif self._zero is None:  # still in the recorded part; the real clock starts where that ends
            self._timers.append((op, self.now + seconds))
        else:
            self._start_timer(op, self.now + seconds)

    def wait_for_person(self, op: Op, seconds: float) -> None:
        """This fires after a time, counted from now, unless a person comes before: for so long, where people steer, a
        virtual clock stands still."""
        if not (self.virtual and self.steered):
            self.timer(op, seconds)
            return

        async def wait() -> None:
            with suppress(asyncio.CancelledError):
                left = seconds
                while left > 0:  # a pause is no time to come in
                    await asyncio.sleep(part := min(_PART_SECONDS, left))
                    left -= 0.0 if self.paused else part
                self.schedule(op, self.now + seconds)

        op.task = asyncio.ensure_future(wait())
        self._doing.add(op.task)

    def _start_timer(self, op: Op, at: float) -> None:
        self._timers.append((op, at))  # a pause stops it, and what follows sets it again
        if not self.paused:
            late = max(0.0, at - self.now)
            self._handles.append(asyncio.get_running_loop().call_later(late, self.arrive, op))

    async def close(self) -> None:
        """Let no timer fire after the run has ended, and nothing go on."""
        for handle in self._handles:
            handle.cancel()
        for task in self._doing:
            task.cancel()
        await asyncio.gather(*self._doing, return_exceptions=True)

    def arrive(self, op: Op) -> None:
        """A result is in (real clock)."""
        self._arrived.append(op)
        self._ring()

    def act(self, op: Op) -> None:
        """A person does something: it comes next, also while the run is paused, but after all that is recorded."""
        self._acts.append(op)
        self._ring()

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.set()

    def complete(self, op: Op) -> None:
        """This completes now, after what completes now already."""
        if self.virtual:
            self.schedule(op, self.now)
        else:
            self.arrive(op)

    @property
    def elapsed(self) -> float:
        """Seconds of a real clock since the run began, also between two completions."""
        if self._zero is None or self.paused:
            return self.now
        return max(self.now, time.monotonic() - self._zero)

    @property
    def acts(self) -> bool:
        """Whether what comes next touches the world: anything on a real clock, impure tools on a virtual one."""
        return not self.virtual or any(op.kind == "tool" and not op.work[0].pure for op in self._fresh)

    async def next(self, do: Callable[[list[Op]], Coroutine[Any, Any, None]]) -> list[Op]:
        """The next completions, oldest first; empty when nothing is left to wait for.

        `do` performs fresh operations: under a virtual clock it returns when all have a result and
        are scheduled; under a real one it starts them, and they arrive.
        """
        while True:
            if not self.virtual and self._heap:
                return self._pop()
            if not self._num_recorded:
                if self._acts:
                    self._tick()
                    return [self._acts.popleft()]
                if self.paused:
                    await self._heard(())
                    continue
            if self._fresh:
                todo, self._fresh = self._fresh, []
                work = do([op for op in todo if not op.cancelled])
                if self.virtual and self.steered:
                    self._doing.add(asyncio.ensure_future(work))
                else:
                    await work
            if not self.virtual:
                arrived = await self._wait()
                if arrived is None:
                    continue
                return arrived
            if self._doing and not await self._done():
                continue
            batch = self._pop()
            if batch or not self._fresh:
                return batch

    @property
    def _called(self) -> bool:
        """Whether people want the run's attention, and get it."""
        return not self._num_recorded and (self.paused or bool(self._acts))

    async def _done(self) -> bool:
        """Everything under way has ended (virtual clock); False: a person comes first."""
        while self._doing:
            ended = {task for task in self._doing if task.done()}
            self._doing -= ended
            for task in ended:
                task.result()
            if self._called:
                return False
            if self._doing:
                await self._heard(self._doing)
        return not self._called

    async def _heard(self, tasks: Iterable[asyncio.Task[None]]) -> None:
        """Until somebody rings, or one of the tasks ends."""
        if self._bell is None:
            self._bell = asyncio.Event()
        self._bell.clear()
        ringing = asyncio.ensure_future(self._bell.wait())
        try:
            await asyncio.wait([ringing, *tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()

    def _pop(self) -> list[Op]:
        """Everything that completes at the next moment; empty also when that makes something start."""
        while self._heap:
            at = self._heap[0][0]
            batch: list[Op] = []
            while self._heap and self._heap[0][0] == at:
                _, rank, _, _, op = heapq.heappop(self._heap)
                self._num_recorded -= rank == 0
                if op.deferred and not op.cancelled and not batch:
                    self.now, op.deferred = at, False
                    self._fresh.append(op)
                elif op.deferred:  # what completes at this moment may cancel it yet
                    if not op.cancelled:
                        self._push(at, 2, 0, op)
                    break
                elif not op.cancelled:
                    batch.append(op)
            if batch or self._fresh:
                self.now = at
                return batch
        return []

    def _tick(self) -> None:
        """It is as late as it is (real clock)."""
        if self.virtual or self.paused:
            return
        self.now = max(self.now, quantised(time.monotonic() - self._begun()))

    def _begun(self) -> float:
        """When the real clock began; it does when it is first asked."""
        if self._zero is None:  # the real clock goes on from where the recorded part, or the process, ended
            self.now = max(self.now, quantised(self.passed))
            self._zero = time.monotonic() - self.now
            timers, self._timers = self._timers, []
            for op, at in timers:
                self._start_timer(op, at)
        return self._zero

    async def _wait(self) -> list[Op] | None:
        """What has arrived (real clock); None: a person comes first."""
        if self._bell is None:
            self._bell = asyncio.Event()
        self._begun()
        while not self._arrived:
            if self.in_flight == 0:
                return []
            self._bell.clear()
            await self._bell.wait()
            if self._called:
                return None
        batch = [op for op in self._arrived if not op.cancelled]
        self._arrived.clear()
        self._tick()
        return batch or await self._wait()

    def pause(self) -> None:
        """Begin nothing and hand nothing out but what people do, and let no time pass; what is in flight goes on."""
        if self.paused:
            return
        self._tick()
        self.paused, self._paused_at = True, time.monotonic()
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()

    def go_on(self) -> None:
        """Hand out again what was held back."""
        if not self.paused:
            return
        self.paused = False
        if self._zero is not None:
            self._zero += time.monotonic() - self._paused_at
            timers, self._timers = self._timers, []
            for op, at in timers:
                if not (op.cancelled or op.done or op in self._arrived):
                    self._start_timer(op, at)
        self._ring()

    def held(self) -> list[Op]:
        """What has ended outside and was not handed out yet, in the order in which it will be."""
        return [*self._arrived, *(entry[4] for entry in sorted(self._heap, key=lambda entry: entry[:4]))]
