"""Calls of runs that go side by side, put to an engine together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from baton.team.protocol import Answer, Engine, EngineError, Request

Answers = list[Answer | EngineError]


class _Waiting(Struct, eq=False):
    engine: Engine
    requests: Sequence[Request]
    answers: asyncio.Future[Answers]


class Together:
    """Holds calls back until every run of a group waits for one; then each engine is asked once."""

    def __init__(self, num_runs: int) -> None:
        self._num_runs = num_runs
        self._waiting: list[_Waiting] = []
        self._asking: set[asyncio.Task[None]] = set()

    async def answer(self, engine: Engine, requests: Sequence[Request]) -> Answers:
        """As the engine would, when the others have come as far."""
        mine = _Waiting(engine, requests, asyncio.get_running_loop().create_future())
        self._waiting.append(mine)
        self._ask_if_all()
        return await mine.answers

    def leave(self) -> None:
        """A run of the group has ended."""
        self._num_runs -= 1
        self._ask_if_all()

    def _ask_if_all(self) -> None:
        if not self._waiting or len(self._waiting) < self._num_runs:
            return
        waiting, self._waiting = self._waiting, []
        by_engine: dict[int, list[_Waiting]] = {}
        for each in waiting:
            by_engine.setdefault(id(each.engine), []).append(each)
        for group in by_engine.values():
            task = asyncio.get_running_loop().create_task(_ask(group))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)


async def _ask(group: Sequence[_Waiting]) -> None:
    engine = group[0].engine
    requests = [request for each in group for request in each.requests]
    try:
        answers = await engine.answer(requests)
        if len(answers) != len(requests):
            raise EngineError(
                f"engine {engine.name!r} gave {len(answers)} answers to {len(requests)} requests."
            )
    except Exception as error:  # as each would have met it alone
        for each in group:
            if not each.answers.done():
                each.answers.set_exception(error)
        return
    start = 0
    for each in group:
        if not each.answers.done():
            each.answers.set_result(answers[start : start + len(each.requests)])
        start += len(each.requests)
