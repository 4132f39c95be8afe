"""The four questions of `baton advise`, answered from traces.

Invariant: an answer comes with what it was read off; what the traces cannot tell is None with the reason, never
a guess.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from baton.trace.graph.arrays import Graph
from baton.trace.graph.lineage import Lineage, who_acts
from baton.trace.records import Event
from baton.trace.trace import Trace

MANY_TURNS = 25
"""Above this, uniform credit's signal to noise on the length ladder, 5/sqrt(turns), is below 1 (docs/problems.md)."""

_HALF = 0.5
_DEBATED = 1 / 3


class Reading(Struct, frozen=True, kw_only=True):
    """An answer, None where the traces cannot tell, and what it was read off."""

    answer: str | None
    why: str


def read_answers(traces: Sequence[Trace]) -> dict[str, Reading]:
    """Question -> its answer, from traces of one team."""
    return {
        "dynamic": _dynamic(traces),
        "bottleneck": _bottleneck(traces),
        "long": _long(traces),
        "roles": _roles(traces),
    }


def _dynamic(traces: Sequence[Trace]) -> Reading:
    chosen = [trace for trace in traces if any(_is_choice(event, trace) for event in trace.events)]
    if chosen:
        by = "a policy spawns agents" if any(trace.calls for trace in chosen) else "agents are spawned"
        return Reading(answer="yes", why=f"in {len(chosen)} of {_count(traces)} {by}")
    sizes: dict[str, set[int]] = {}
    for trace in traces:
        sizes.setdefault(trace.header.task_id, set()).add(len(who_acts(trace)))
    if any(len(size) > 1 for size in sizes.values()):
        return Reading(answer="yes", why="the number of agents differs between traces of one task")
    return Reading(answer="no", why="no policy spawns anybody; who is there was set up before")


def _count(traces: Sequence[Trace]) -> str:
    return f"{len(traces):,} trace" + ("" if len(traces) == 1 else "s")


def _is_choice(event: Event, trace: Trace) -> bool:
    """A spawn that a policy said. A trace without calls does not tell, and then any spawn counts."""
    return event.type == "spawn" and (event.call is not None or not trace.calls)


def _bottleneck(traces: Sequence[Trace]) -> Reading:
    leading = total = 0.0
    for trace in traces:
        leads = _leads(trace)
        graph = Graph.of(trace)
        for index in graph.critical_path().path:
            event = trace.events[int(index)]
            total += event.duration_s or 0.0
            leading += (event.duration_s or 0.0) if event.agent in leads else 0.0
    of = "seconds on the critical path"
    if not total:
        of = "tokens"
        for trace in traces:
            leads = _leads(trace)
            total += sum(event.tokens or 0 for event in trace.events)
            leading += sum(event.tokens or 0 for event in trace.events if event.agent in leads)
    if not total:
        return Reading(answer=None, why="the traces record neither durations nor tokens")
    share = leading / total
    return Reading(
        answer="yes" if share > _HALF else "no",
        why=f"agents that lead others take {share:.0%} of the {of}; above {_HALF:.0%} it is they who hold it up",
    )


def _leads(trace: Trace) -> set[str]:
    """Agents that have others under them."""
    lineage = Lineage.of(trace)
    return {agent for agent in lineage.agents if lineage[agent].children}


def _long(traces: Sequence[Trace]) -> Reading:
    with_calls = [trace for trace in traces if trace.calls]
    if with_calls:
        turns, unit = median(len(trace.calls) for trace in with_calls), "turns"
    else:
        turns, unit = median(len(trace.events) for trace in traces), "events (no turns are recorded)"
    return Reading(
        answer="yes" if turns > MANY_TURNS else "no",
        why=f"the median trace has {turns:,.0f} {unit}; one reward for all drowns above about {MANY_TURNS}",
    )


def _roles(traces: Sequence[Trace]) -> Reading:
    if (debates := sum(trace.header.topology == "debate" for trace in traces)) * 2 > len(traces):
        return Reading(answer="debate", why=f"the topology is debate in {debates} of {_count(traces)}")
    answered, words = 0, 0
    roles: set[str] = set()
    leading = {_role_of(trace).get(agent) for trace in traces for agent in _leads(trace)}
    for trace in traces:
        role_of = _role_of(trace)
        leads = _leads(trace)
        sent = Counter((e.agent, e.to) for e in trace.events if e.type == "message" and e.to is not None)
        words += sum(sent.values()) + sum(e.type == "return" for e in trace.events)
        answered += sum(
            n
            for (a, b), n in sent.items()
            if (b, a) in sent and role_of.get(a) == role_of.get(b or "") is not None
        )
        # One that leads elsewhere, and worked alone here, is below nobody.
        roots = Lineage.of(trace).roots
        alone = {agent for agent in roots if role_of.get(agent) in leading}
        roles |= {role for agent, role in role_of.items() if agent not in leads | alone}
    if words and answered / words >= _DEBATED:
        return Reading(
            answer="debate",
            why=f"{answered / words:.0%} of messages and returns go to and fro between agents of one role",
        )
    if not roles:
        return Reading(answer=None, why="the traces record no roles below those who lead")
    named = ", ".join(sorted(roles))
    if len(roles) > 1:
        return Reading(answer="heterogeneous", why=f"{len(roles)} roles below those who lead: {named}")
    return Reading(answer="alike", why=f"one role below those who lead: {named}")


def _role_of(trace: Trace) -> dict[str, str]:
    lineage = Lineage.of(trace)
    return {agent: role for agent in lineage.agents if (role := lineage[agent].role) is not None}
