"""Recordings altered before they are fed back into a run: what was forgotten, barred, or said otherwise.

A fork feeds the answers of a recording back wherever the same thing is asked. So a recording that lacks some of them,
or holds others, makes a run in which just these come about anew.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec
from msgspec import Struct, structs

from baton.errors import TraceError
from baton.team.intervene import BarAgent
from baton.team.protocol import Answer
from baton.team.recording import first_events
from baton.trace.graph.arrays import Graph
from baton.trace.records import Call, Event, Payload
from baton.trace.trace import Trace, meta_table


class ForkError(TraceError):
    """A trace cannot be run again in the way that was asked for."""


class OtherAnswer(Struct, frozen=True):
    """Another answer to a recorded call."""

    call: str
    answer: Answer


def cone(trace: Trace, event_id: str) -> frozenset[str]:
    """What followed from an event, without the event itself."""
    graph = Graph.of(trace)
    start = trace.position[trace.event(event_id).id]
    return frozenset(trace.events[int(i)].id for i in graph.descendants(start)) - {event_id}


def call_of(trace: Trace, event_id: str) -> Call:
    """The call that said an event."""
    event = trace.event(event_id)
    if event.call is None:
        raise ForkError(
            f"{event_id} was said by no call of a policy, so there is no other thing its policy might have said. "
            "Give the alternatives yourself."
        )
    return find_call(trace, event.call)


def coupling(trace: Trace, branch: Trace, cone_ids: frozenset[str]) -> float | None:
    """Share of a change's cone that came out the same all the same. None: nothing followed from it."""
    if not cone_ids:
        return None
    same = 0
    for event_id in cone_ids:
        where = branch.position.get(event_id)
        if where is not None:
            now, before = branch.events[where], trace.event(event_id)
            same += structs.replace(before, seq=now.seq, t=now.t, duration_s=now.duration_s) == now
    return same / len(cone_ids)


def find_call(trace: Trace, call_id: str) -> Call:
    """A call of a trace, or an error that names it."""
    try:
        return trace.call_by_id[call_id]
    except KeyError:
        raise ForkError(f"trace {trace.trace_id} has no record of call {call_id!r}.") from None


def forgetting(trace: Trace, events: frozenset[str], named: Set[str] = frozenset()) -> Trace:
    """A recording that does not know how these came about: their calls are asked again, their luck is drawn again.

    Those `named` are kept, for changes to be made there, but not what chance made of them. So are results of
    pure tools, which are no luck.
    """
    first = first_events(trace)
    gone = {call for call, event in first.items() if event.id in events}
    pure = {e.id for e in trace.events if e.type == "tool_call" and e.pure}
    kept = []
    for event in trace.events:
        if event.id in named:
            kept.append(structs.replace(event, extra={}))
        elif (
            event.id not in events or event.id.removesuffix("r") in pure or event.type == "human_intervention"
        ):
            kept.append(event)
    return structs.replace(
        trace, calls=tuple(call for call in trace.calls if call.id not in gone), events=tuple(kept)
    )


def barring(trace: Trace, agents: Sequence[str]) -> Trace:
    """As if these had been barred from it before."""
    run = dict(meta_table(trace.header, "run"))
    barred = msgspec.to_builtins([BarAgent(agent) for agent in agents])
    run["interventions"] = [*run.get("interventions", []), *barred]
    header = structs.replace(trace.header, meta={**trace.header.meta, "run": run})
    return structs.replace(trace, header=header)


def _without_impure(trace: Trace, events: frozenset[str]) -> tuple[Event, ...]:
    """Pure tools may be fed back anywhere; others not into a context that is no longer the same."""
    impure = {e.id for e in trace.events if e.type == "tool_call" and not e.pure and e.id in events}
    impure |= {f"{event_id}r" for event_id in impure}
    return tuple(event for event in trace.events if event.id not in impure) if impure else trace.events


def saying(trace: Trace, said: OtherAnswer) -> Trace:
    """A recording in which a call was answered otherwise.

    Later calls of the same context are forgotten: their questions name their parent, not its words.
    """
    call, answer = find_call(trace, said.call), said.answer
    first = first_events(trace)[call.id]
    payload = Payload.of(answer.text)
    replaced = structs.replace(
        call,
        completion_ids=answer.completion_ids,
        completion_ref=payload.ref,
        completion_tokens=answer.completion_tokens,
        logprobs=answer.logprobs,
        token_ends=answer.token_ends,
        finish_reason=answer.finish_reason,
    )
    grown = _grown_from(trace, call)
    after = cone(trace, first.id)
    changed = structs.replace(first, choice=answer.choice, option_propensities=answer.option_propensities)
    return structs.replace(
        trace,
        calls=tuple(replaced if c.id == call.id else c for c in trace.calls if c.id not in grown),
        events=tuple(changed if e.id == first.id else e for e in _without_impure(trace, after | {first.id})),
        payloads={**trace.payloads, payload.ref: payload},
    )


def _grown_from(trace: Trace, call: Call) -> set[str]:
    """Calls whose context holds this one's answer."""
    found = {call.id}
    for other in trace.calls:  # parents come before those that grow from them
        if other.parent in found:
            found.add(other.id)
    return found - {call.id}
