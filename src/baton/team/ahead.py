"""What is durable ahead of the trace: answers whose place in it has not come, calls that were begun, and time.

A block is written when its completion is handled. Under a virtual clock that is long after the answer came: the whole
round has to be there first, and then everything that completes before it. So each answer is kept by itself the moment
it comes, and a resumed run takes it from here instead of asking again.

Where a budget counts calls or tokens, calls are written down before they are asked. One that was begun and never
answered may have been paid for: a resumed run charges it in full before it asks again (`Run.charge_lost`). Seconds of
a real clock are written as they pass. So nothing that happens to the process resets a ledger.

Policies that answer inside the process (`answer_now`) cost nothing but time: what took none is not kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from baton.team.clock import Op
from baton.team.protocol import Answer, EngineError
from baton.team.recording import RESUMED, Journal
from baton.team.tools.tool import ToolOutcome
from baton.trace.formats.sqlite.store_rows import decoder, encode
from baton.trace.records import Event, Sampling

_DEAR_SECONDS = 0.02
"""What an answer that comes from inside the process may take without being kept by itself."""


class Begun(Struct, frozen=True, tag="begun"):
    """Calls that are asked now."""

    ids: tuple[str, ...]


class Came(Struct, frozen=True, kw_only=True, tag="came"):
    """How something outside ended."""

    id: str
    question: tuple[str, str | None, int, str] | None = None
    """What was asked, as far as it identifies a call: prompt, parent, how much of it is kept, harness."""
    sampling: Sampling | None = None
    answer: Answer | None = None
    error: str | None = None
    billed: tuple[int | None, int | None] = (None, None)
    """What an error cost all the same, prompt and completion."""
    outcome: ToolOutcome | None = None


class Passed(Struct, frozen=True, tag="passed"):
    """Seconds of the run's real clock that have passed."""

    seconds: float


_KEPT = decoder(Begun | Came | Passed)


class Ahead:
    """What one run keeps ahead of its trace, and what an earlier process kept for it."""

    def __init__(self, journal: Journal, *, counted: bool) -> None:
        """`counted`: calls are written down before they are asked, because a budget counts them."""
        self._journal = journal
        self._counted = counted
        self._begun: Counter[str] = Counter()
        self._came: dict[str, Came] = {}
        self.passed = 0.0
        """Seconds of the real clock that had passed when the run was cut off."""
        for body in journal.kept():
            kept: Begun | Came | Passed = _KEPT.decode(body)
            if isinstance(kept, Begun):
                self._begun.update(kept.ids)
            elif isinstance(kept, Came):
                self._came[kept.id] = kept
            else:
                self.passed = max(self.passed, kept.seconds)

    def lost(self, events: Sequence[Event]) -> list[str]:
        """Calls that an earlier process began and never heard of again, once for each time; charged ones left out."""
        lost = self._begun.copy()
        if not lost:
            return []
        for event in events:
            lost.subtract(event.extra.get(RESUMED, ()))
        answered = {event.call for event in events} | self._came.keys()
        lost.subtract(name for name in lost if name in answered)
        return sorted(lost.elements())

    def begin(self, ops: Iterable[Op]) -> bool:
        """Write down calls that are about to be asked; durable with the next commit. Whether there are any."""
        ids = tuple(op.id for op in ops if op.kind == "call" and not _quick(op)) if self._counted else ()
        if ids:
            self._journal.keep(encode(Begun(ids)))
        return bool(ids)

    def found(self, op: Op) -> Any:
        """How the very same thing ended before the run was cut off; None where that is not known."""
        came = self._came.get(op.id)
        if came is None:
            return None
        if op.kind == "tool":
            return came.outcome
        if came.question != _question(op) or came.sampling != op.work.request.sampling:
            return None
        if came.error is None:
            return came.answer
        error = EngineError(came.error)
        error.prompt_tokens, error.completion_tokens = came.billed
        return error

    def came(self, op: Op, took_seconds: float) -> None:
        """Something ended: that is durable when this returns, unless it was had for nothing."""
        if took_seconds >= _DEAR_SECONDS or not _quick(op):
            self._journal.keep(encode(_kept(op)))
            self._journal.commit()

    def commit(self) -> None:
        """Make durable what was begun."""
        self._journal.commit()

    def pass_time(self, seconds: float) -> None:
        """The real clock has come this far."""
        self._journal.keep(encode(Passed(seconds)))
        self._journal.commit()


def _quick(op: Op) -> bool:
    """Whether it costs nothing to do it again."""
    if op.kind == "tool":
        return bool(op.work[0].instant)
    return getattr(op.work.engine, "answer_now", None) is not None


def _question(op: Op) -> tuple[str, str | None, int, str]:
    asked = op.work
    return asked.prompt_ref, asked.parent, asked.keep, asked.harness


def _kept(op: Op) -> Came:
    result = op.result
    if op.kind == "tool":
        return Came(id=op.id, outcome=result)
    failed = isinstance(result, EngineError)
    return Came(
        id=op.id,
        question=_question(op),
        sampling=op.work.request.sampling,
        answer=None if failed else result,
        error=str(result) if failed else None,
        billed=(result.prompt_tokens, result.completion_tokens) if failed else (None, None),
    )
