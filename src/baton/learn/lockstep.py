"""Many runs, one batch at a time: calls are gathered until every run waits, then answered together.

The runs of a step live on one event loop under a virtual clock and wait for nothing but answers, so once the loop
has gone round without a new call, all of them wait. What is in a batch then depends on the runs alone and not on
how fast threads were: the same seed gives the same batches, hence the same bits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from baton.team.policy import Answer, Engine, EngineError, Entry, Request
from baton.trace.numbers import Ints

__all__ = ["Lockstep"]

_QUIET_ROUNDS = 8
"""Rounds of the loop without a new call after which all runs wait; a run needs two or three between calls."""


class Lockstep:
    """An engine that asks another one, with everything that was asked meanwhile."""

    def __init__(self, engine: Engine) -> None:
        self.name = engine.name
        self._engine = engine
        self._waiting: list[tuple[Request, asyncio.Future[Answer | EngineError]]] = []
        self._quiet = 0
        self._gathering = False
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def version(self) -> str:
        return str(getattr(self._engine, "version", "0"))

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        loop = asyncio.get_running_loop()
        mine: list[asyncio.Future[Answer | EngineError]] = [loop.create_future() for _ in requests]
        self._waiting += zip(requests, mine, strict=True)
        self._quiet = 0
        if not self._gathering:
            self._gathering = True
            loop.call_soon(self._look, loop)
        return [await each for each in mine]

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet += 1
        if self._quiet < _QUIET_ROUNDS:
            loop.call_soon(self._look, loop)
            return
        self._gathering = False
        batch, self._waiting = self._waiting, []
        task = loop.create_task(self._ask(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, batch: list[tuple[Request, asyncio.Future[Answer | EngineError]]]) -> None:
        asked = [(request, future) for request, future in batch if not future.done()]
        try:
            answers = await self._engine.answer([request for request, _ in asked])
        except Exception as error:  # whatever the engine raised belongs to those who asked
            for _, future in asked:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answer in zip(asked, answers, strict=True):
            if not future.done():
                future.set_result(answer)
