"""Asking a recorded call again: what else its policy says at the frozen prefix, without anything following from it.

A call's question is in the trace, so it is put together from there. Where a task keys policies by the state of a
running agent, which no trace has, the run is repeated up to the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import structs

from baton.errors import TraceError
from baton.team.budget import charging_of
from baton.team.protocol import Answer, Engine, EngineError, Entry, Request
from baton.team.recording import replicates_of
from baton.team.team import Team
from baton.trace.records import Call, Event, Ints
from baton.trace.trace import Trace

_read_entries = msgspec.json.Decoder(list[Entry]).decode


def request_at(trace: Trace, team: Team, call: Call, first: Event) -> Request:
    """A recorded call as it would be asked now. `first`: what its answer led to first."""
    role = team.harness.role(call.role or "")
    key = "/".join((f"{team.seed}/{call.id}", *map(str, replicates_of(trace.header))))
    max_tokens = call.sampling.max_tokens if call.sampling is not None else None
    return Request(
        call=call.id,
        agent=call.agent,
        role=role.name,
        entries=_context(trace, call),
        prompt_ids=trace.prompt_ids(call),
        sampling=structs.replace(role.sampling, max_tokens=max_tokens, key=key),
        options=first.options,
        tools=team.harness.schemas[role.name],
    )


def _context(trace: Trace, call: Call) -> list[Entry]:
    """All that the policy had read and said before it was asked."""
    parts: list[list[Entry]] = [_read_entries(_text(trace, call.prompt_ref, call))]
    before = call.parent
    while before is not None:
        parent = trace.call_by_id[before]
        said = Entry("assistant", _text(trace, parent.completion_ref, parent))
        parts.append([*_read_entries(_text(trace, parent.prompt_ref, parent)), said])
        before = parent.parent
    return [entry for part in reversed(parts) for entry in part]


def _text(trace: Trace, ref: str | None, call: Call) -> str:
    text = trace.text(ref)
    if text is None:
        raise TraceError(
            f"{call.id}: its text was withheld from the trace, so it cannot be asked again. "
            "Use a trace saved with payloads."
        )
    return text


def with_replicate(request: Request, replicate: int) -> Request:
    """The same question, drawn by another replicate's key."""
    sampling = request.sampling
    key = f"{sampling.key}/{replicate}" if replicate else sampling.key
    return structs.replace(request, sampling=structs.replace(sampling, key=key))


class Overheard(BaseException):
    """Not an error: it carries what was asked for out of the run."""

    def __init__(self, answers: list[Answer | EngineError]) -> None:
        super().__init__("overheard")
        self.answers = answers


class _Listener:
    """An engine that, at one call, asks the real one several times and ends the run."""

    def __init__(self, engine: Engine, call_id: str, replicates: Sequence[int]) -> None:
        self.name = engine.name
        self.charging = charging_of(engine)
        self._engine = engine
        self._call = call_id
        self._replicates = replicates

    def encode(self, entries: Sequence[Entry], after: Answer | None) -> Ints | None:
        return self._engine.encode(entries, after)

    async def answer(self, requests: Sequence[Request]) -> list[Answer | EngineError]:
        for request in requests:
            if request.call == self._call:
                again = [with_replicate(request, replicate) for replicate in self._replicates]
                raise Overheard(await self._engine.answer(again))
        return await self._engine.answer(requests)


def listening(team: Team, call_id: str, replicates: Sequence[int]) -> Team:
    """The same team, whose engines end the run at one call with what is said there (`Overheard`)."""
    wrapped: dict[int, _Listener] = {}
    engines: Mapping[str, Engine] = {
        name: wrapped.setdefault(id(engine), _Listener(engine, call_id, replicates))
        for name, engine in team.engines.items()
    }
    return structs.replace(team, engines=engines)
