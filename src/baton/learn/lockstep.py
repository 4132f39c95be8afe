"""Many runs, one batch at a time: calls are gathered until every run waits, then answered together.

The runs of a step live on one event loop under a virtual clock and wait for nothing but answers, so once the loop
has gone round without a new call and no engine is being asked, all of them wait. Then every engine is asked at once,
and nobody is told before all have answered. What is in a batch then depends on the runs alone and not on how fast
threads were, also with several engines: the same seed gives the same batches, hence the same bits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.trace.numbers import Ints

_QUIET_ROUNDS = 8
"""Rounds of the loop without a new call after which all runs wait; a run needs two or three between calls."""

_PATIENCE_SECONDS = 5.0
_PATIENCE_ROUNDS = 3
"""An engine that failed all calls of so many rounds, and for so long, is not asked again in this play: its tries would
add up to minutes, call after call."""
NOT_ASKED = "not asked: all calls before failed"

Outcome = asyncio.Future["Answer | EngineError"]


def lockstep(engines: Mapping[str, Engine], *, patient: bool = False) -> dict[str, Lockstep]:
    """These engines, asked together. `patient`: however often they fail."""
    rounds = _Rounds()
    return {name: Lockstep(engine, rounds, policy=name, patient=patient) for name, engine in engines.items()}


class _Rounds:
    """What waits, for all engines of a play."""

    def __init__(self) -> None:
        self._waiting: dict[Lockstep, list[tuple[Request, Outcome]]] = {}
        self._quiet = 0
        self._gathering = False
        self._task: asyncio.Task[None] | None = None

    def add(self, engine: Lockstep, requests: Sequence[Request]) -> list[Outcome]:
        loop = asyncio.get_running_loop()
        mine: list[Outcome] = [loop.create_future() for _ in requests]
        self._waiting.setdefault(engine, []).extend(zip(requests, mine, strict=True))
        self._quiet = 0
        self._gather(loop)
        return mine

    def _gather(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._waiting and not self._gathering and self._task is None:
            self._gathering = True
            loop.call_soon(self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet += 1
        if self._quiet < _QUIET_ROUNDS:
            loop.call_soon(self._look, loop)
            return
        self._gathering = False
        waiting, self._waiting = self._waiting, {}
        self._task = loop.create_task(self._ask(loop, waiting))

    async def _ask(
        self, loop: asyncio.AbstractEventLoop, waiting: Mapping[Lockstep, list[tuple[Request, Outcome]]]
    ) -> None:
        asked = {
            engine: [(request, future) for request, future in each if not future.done()]
            for engine, each in waiting.items()
        }
        found = await asyncio.gather(
            *(engine.ask([request for request, _ in each]) for engine, each in asked.items()),
            return_exceptions=True,  # whatever an engine raised belongs to those who asked it
        )
        for each, answers in zip(asked.values(), found, strict=True):
            for number, (_, future) in enumerate(each):
                if future.done():
                    continue
                if isinstance(answers, BaseException):
                    future.set_exception(answers)
                else:
                    future.set_result(answers[number])
        self._task = None
        self._quiet = 0
        self._gather(loop)


class Lockstep:
    """An engine that asks another one, with everything that was asked meanwhile."""

    def __init__(
        self,
        engine: Engine,
        rounds: _Rounds | None = None,
        *,
        policy: str | None = None,
        patient: bool = False,
    ) -> None:
        self.name = engine.name
        self.engine = engine
        self.policy = policy
        """The policy that it answers for, by the recipe's name."""
        self._rounds = rounds or _Rounds()
        self._patient = patient
        self._failed_rounds = 0
        self._failing_seconds = 0.0

    @property
    def version(self) -> str:
        return str(getattr(self.engine, "version", "0"))

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self.engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        return [await each for each in self._rounds.add(self, requests)]

    async def ask(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        """Ask the engine itself, unless there is no hope."""
        long = self._failed_rounds >= _PATIENCE_ROUNDS and self._failing_seconds > _PATIENCE_SECONDS
        if long and not self._patient:
            return [EngineError(NOT_ASKED) for _ in requests]
        began = time.monotonic()
        answers = await self.engine.answer(requests)
        if any(isinstance(each, Answer) for each in answers):
            self._patient = True
        else:
            self._failed_rounds += 1
            self._failing_seconds += time.monotonic() - began
        return answers
