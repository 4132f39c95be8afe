"""Recordings altered before they are fed back into a run: what was forgotten, or said otherwise.

A fork feeds the answers of a recording back wherever the same thing is asked. So a recording that lacks some of them,
or holds others, makes a run in which just these come about anew.
"""

from __future__ import annotations

from collections.abc import Callable, Set

from msgspec import Struct, structs

from baton.errors import TraceError
from baton.team.protocol import Answer
from baton.team.recording import Altered, first_events
from baton.trace.graph.arrays import Graph
from baton.trace.records import Call, Event, Payload
from baton.trace.trace import Trace


class ForkError(TraceError):
    """A trace cannot be run again in the way that was asked for."""


class OtherAnswer(Struct, frozen=True):
    """Another answer to a recorded call."""

    call: str
    answer: Answer


def graph_of(trace: Trace) -> Graph:
    """The graph of a trace, made once: forks of many events of one trace look at it again and again."""
    found = vars(trace).get("graph")
    if found is None:
        found = vars(trace)["graph"] = Graph.of(trace)
    return found


def cone(trace: Trace, event_id: str) -> frozenset[str]:
    """What followed from an event, without the event itself."""
    graph = graph_of(trace)
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
            now, before = branch.events[where], trace.events[trace.position[event_id]]
            same += (
                now is before
                or structs.replace(before, seq=now.seq, t=now.t, duration_s=now.duration_s) == now
            )
    return same / len(cone_ids)


def find_call(trace: Trace, call_id: str) -> Call:
    """A call of a trace, or an error that names it."""
    try:
        return trace.call_by_id[call_id]
    except KeyError:
        raise ForkError(f"trace {trace.trace_id} has no record of call {call_id!r}.") from None


def forgetting(
    trace: Trace, events: frozenset[str], named: Set[str] = frozenset(), also: Altered | None = None
) -> Altered:
    """A recording that does not know how these came about: their calls are asked again, their luck is drawn again.

    Those `named` are kept, for changes to be made there, but not what chance made of them. So are results of
    pure tools, which are no luck. `also`: what else is altered, before that.
    """
    also = also or Altered()
    first = first_events(trace)
    calls: dict[str, Call | None] = {call: None for call, event in first.items() if event.id in events}
    changed: dict[str, Event | None] = {}
    pure = {e.id for e in trace.events if e.type == "tool_call" and e.pure}
    for event in trace.events:
        now = also.events.get(event.id, event)
        if now is None:
            continue
        if event.id in named:
            changed[event.id] = structs.replace(now, extra={})
        elif event.id in events and not (
            event.id.removesuffix("r") in pure or event.type == "human_intervention"
        ):
            changed[event.id] = None
    return Altered(calls={**also.calls, **calls}, events={**also.events, **changed}, payloads=also.payloads)


def _impure(trace: Trace, events: Callable[[], frozenset[str]]) -> set[str]:
    """Pure tools may be fed back anywhere; others not into a context that is no longer the same."""
    known: frozenset[str] | None = vars(trace).get("impure")
    if known is None:  # kept where a trace keeps its other indexes
        known = frozenset(e.id for e in trace.events if e.type == "tool_call" and not e.pure)
        vars(trace)["impure"] = known
    impure = set(known & events()) if known else set()
    return impure | {f"{event_id}r" for event_id in impure}


def saying(trace: Trace, said: OtherAnswer) -> Altered:
    """A recording in which a call was answered otherwise.

    Later calls of the same context are forgotten: their questions name their parent, not its words.
    """
    call, answer = find_call(trace, said.call), said.answer
    first = first_events(trace)[call.id]
    payload = Payload.of(answer.text)
    calls: dict[str, Call | None] = dict.fromkeys(_grown_from(trace, call))
    calls[call.id] = structs.replace(
        call,
        completion_ids=answer.completion_ids,
        completion_ref=payload.ref,
        completion_tokens=answer.completion_tokens,
        logprobs=answer.logprobs,
        versions=answer.versions,
        token_ends=answer.token_ends,
        finish_reason=answer.finish_reason,
    )
    events: dict[str, Event | None] = dict.fromkeys(
        _impure(trace, lambda: cone(trace, first.id) | {first.id})
    )
    events[first.id] = structs.replace(
        first, choice=answer.choice, option_propensities=answer.option_propensities
    )
    return Altered(calls=calls, events=events, payloads=(payload,))


def _grown_from(trace: Trace, call: Call) -> set[str]:
    """Calls whose context holds this one's answer."""
    grown: dict[str | None, list[str]] | None = vars(trace).get("grown")
    if grown is None:  # kept where a trace keeps its other indexes
        grown = vars(trace)["grown"] = {}
        for other in trace.calls:
            grown.setdefault(other.parent, []).append(other.id)
    found: set[str] = set()
    coming = [call.id]
    while coming:
        coming = [other for name in coming for other in grown.get(name, ()) if other not in found]
        found.update(coming)
    return found - {call.id}
