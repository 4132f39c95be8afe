"""Who did what in a trace: its agents, the turns they took, what they said, and which acts somebody chose.

Invariant: an event stands in at most one credit unit. Nobody's choice (a tool's result, a person's word, a stop that
a budget forced, an event that an intervention put there) stands in none: it is luck to the policy, and is never
trained as if it had been chosen. What was invalid, failed or was cancelled later was still said by the policy and
keeps its unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from baton.errors import TraceError
from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import NO_EFFECT, Lineage, in_seq_order
from baton.trace.outcome import final_event
from baton.trace.records import Event
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

EVENT_UNITS: Final[frozenset[CreditUnit]] = frozenset({"orchestrator", "message", "tool_call"})
"""The credit units that are one event each."""
_NOBODYS = frozenset({"tool_result", "human_intervention"})


def chosen(event: Event) -> bool:
    """Whether an agent's policy chose this event."""
    return "intervention" not in event.extra and _is_act(event)


def _is_act(event: Event) -> bool:
    if event.type in _NOBODYS or event.status == "forced":
        return False
    if event.type in ("despawn", "safety_event", "orchestrator_decision"):
        return event.decision != "none" or event.call is not None
    return True


def unit_of(event: Event) -> CreditUnit | None:
    """The one unit below the turn that an event is: orchestrator, message or tool_call. None: nobody's choice."""
    return kind_of(event) if chosen(event) else None


def kind_of(event: Event) -> CreditUnit | None:
    """The same, also where an intervention put the event there: what the alternatives to an act are."""
    if not _is_act(event):
        return None
    if event.type == "tool_call":
        return "tool_call"
    if event.type == "return" or (event.type == "message" and event.decision != "delegate"):
        return "message"
    return "orchestrator"


def acts(trace: Trace, unit: CreditUnit) -> Iterator[tuple[int, Event]]:
    """The events of one unit, each with its place in `trace.events`."""
    return ((index, event) for index, event in enumerate(trace.events) if unit_of(event) == unit)


def agents(trace: Trace, lineage: Lineage | None = None) -> dict[str, str | None]:
    """Agent -> role, in order of birth. Where no event tells a role, the agent's calls do."""
    lineage = Lineage.of(trace) if lineage is None else lineage
    by_call = {call.agent: call.role for call in reversed(trace.calls) if call.role is not None}
    return {life.agent: life.role or by_call.get(life.agent) for life in lineage.lives.values()}


class Turn(Struct, frozen=True, kw_only=True):
    """One call and what it led to."""

    call: str
    agent: str
    role: str | None
    index: int
    """Which turn of its agent, from 0."""
    start: int
    """Place of its first event in `trace.events`."""
    events: tuple[int, ...]
    """Places of all events its completion said."""


def turns(trace: Trace) -> list[Turn]:
    """In the order of their first events by `seq`. A call that led to nothing (cancelled, lost) is no turn."""
    said: dict[str, list[int]] = {}
    for place in sorted(range(len(trace.events)), key=lambda place: trace.events[place].seq):
        call_id = trace.events[place].call
        if call_id is not None:
            said.setdefault(call_id, []).append(place)
    taken: dict[str, int] = {}
    found = []
    for call_id, places in said.items():
        call = trace.call_by_id.get(call_id)
        first = trace.events[places[0]]
        agent = first.agent if call is None else call.agent
        index = taken.get(agent, 0)
        taken[agent] = index + 1
        # A spawn's role is the child's, so the call is asked first.
        own = (trace.events[place] for place in places)
        role = call.role if call is not None else next((e.role for e in own if e.type != "spawn"), None)
        found.append(
            Turn(call=call_id, agent=agent, role=role, index=index, start=places[0], events=tuple(places))
        )
    return found


def said_in(trace: Trace, event: Event) -> str:
    """What an event says. Text that was withheld is an error, never an empty text."""
    text = trace.text(event.content_ref)
    if text is None:
        why = "says nothing" if event.content_ref is None else "has its text withheld"
        raise TraceError(
            f"trace {trace.trace_id}: {event.type} {event.id} {why}, and this has to be read. "
            "Use a trace saved with payloads."
        )
    return text


def last_said(trace: Trace, lineage: Lineage | None = None) -> dict[str, Event]:
    """Agent -> its answer: its last return; of whoever gave the team's answer, that; else its last message."""
    lineage = Lineage.of(trace) if lineage is None else lineage
    found: dict[str, Event] = {}
    for kind in ("message", "return"):
        found |= {
            event.agent: event for event in in_seq_order(trace)
            if event.type == kind and event.decision != "delegate" and event.status not in NO_EFFECT
        }  # fmt: skip
    final = final_event(trace)
    if final is not None:
        found[final.agent] = final
    return {agent: found[agent] for agent in lineage.agents if agent in found}


def ancestors_of(trace: Trace, graph: Graph, event: Event) -> frozenset[str]:
    """Ids of everything an event depends on, itself included."""
    before = (trace.events[int(i)].id for i in graph.ancestors(trace.position[event.id]))
    return frozenset(before) | {event.id}


def used(trace: Trace, what: str) -> frozenset[str]:
    """Ids of the events that the team's answer depends on."""
    final = final_event(trace)
    if final is None:
        raise TraceError(
            f"trace {trace.trace_id}: {what} counts what reached the answer, and there is none: "
            "no stop decision and no aggregate of the leading agent."
        )
    return ancestors_of(trace, Graph.of(trace), final)


def results_of(trace: Trace) -> dict[str, Event]:
    """Tool call -> its result."""
    found: dict[str, Event] = {}
    for edge in trace.edges:
        if edge.type == "tool_dependency":
            result = trace.event(edge.dst)
            if result.type == "tool_result" and trace.event(edge.src).type == "tool_call":
                first = found.setdefault(edge.src, result)
                found[edge.src] = min(first, result, key=lambda event: event.seq)
    return found
