"""Which agent each event is shown under, and which agents under which.

Works on any trace, valid or not: an agent hangs under the event that first spawned it, and what no
root leads to (agents that spawn each other in a circle) becomes a root itself.
"""

from __future__ import annotations

from msgspec import Struct

from baton.trace.graph.lineage import NO_EFFECT, NOT_BY_AGENTS
from baton.trace.records import Event
from baton.trace.trace import Trace


class Lane(Struct, eq=False):
    """One agent's line of events."""

    agent: str
    is_agent: bool = False
    """Whether it is one: who was spawned, and who acts. A person who only steers is none."""
    role: str | None = None
    parent: str | None = None
    start: float = 0.0
    end: float = 0.0
    tokens: int | None = None
    """None where it was not measured."""
    ending: str | None = None
    """returned, cancelled, despawned or unfinished; None for one that lived to the end."""
    events: list[Event] = []
    total_events: int = 0
    """Its own and of all agents below it."""
    total_agents: int = 0
    """It, where it is one, and all below it."""


class Lanes:
    """All agents of a trace."""

    def __init__(self, trace: Trace) -> None:
        self.lanes: dict[str, Lane] = {}
        """In order of first appearance."""
        self._born: dict[int, Lane] = {}  # by the spawn itself: in a broken trace, ids may repeat
        callers = _callers(trace)
        spawns: dict[str, Event] = {}
        for event in trace.events:
            done = event.t + (event.duration_s or 0.0)
            lane = self._lane(callers.get(event.id, event.agent), event.t)
            lane.events.append(event)
            lane.is_agent = lane.is_agent or event.type not in NOT_BY_AGENTS
            lane.end = max(lane.end, done)
            if event.tokens is not None:
                lane.tokens = (lane.tokens or 0) + event.tokens
            if event.type == "spawn" and event.to is not None and event.status not in NO_EFFECT:
                spawns.setdefault(event.to, event)
                child = self._lane(event.to, done)
                child.role = child.role or event.role
                child.is_agent = True
            elif event.role is not None and lane.role is None:
                lane.role = event.role
            elif event.type == "return":
                lane.ending = "returned"
            if event.type == "despawn" and event.to in self.lanes:
                gone = self.lanes[event.to]
                gone.end = max(gone.end, event.t)
                gone.ending = "cancelled" if event.status == "cancelled" else gone.ending or "despawned"
        self._link(spawns)
        if not trace.finished:
            for lane in self.lanes.values():
                lane.ending = lane.ending or ("unfinished" if lane.is_agent else None)

    def born(self, event: Event) -> Lane | None:
        """The agent that this event spawned."""
        return self._born.get(id(event))

    def _lane(self, agent: str, t: float) -> Lane:
        lane = self.lanes.get(agent)
        if lane is None:
            lane = self.lanes[agent] = Lane(agent=agent, start=t, end=t, events=[])
        return lane

    def _link(self, spawns: dict[str, Event]) -> None:
        """Hang every agent under its spawner, breaking circles, and add up from below."""
        children: dict[str, list[Lane]] = {}
        for name, event in spawns.items():
            children.setdefault(event.agent, []).append(self.lanes[name])
        self.roots: list[Lane] = []
        placed: set[str] = set()
        order: list[Lane] = []
        loose = [lane for lane in self.lanes.values() if lane.agent not in spawns]
        for root in (*loose, *self.lanes.values()):
            if root.agent in placed:
                continue
            self.roots.append(root)
            placed.add(root.agent)
            stack = [root]
            while stack:
                lane = stack.pop()
                order.append(lane)
                for child in children.get(lane.agent, ()):
                    if child.agent not in placed:
                        placed.add(child.agent)
                        child.parent = lane.agent
                        self._born[id(spawns[child.agent])] = child
                        stack.append(child)
        for lane in order:
            lane.total_events = len(lane.events)
            lane.total_agents = int(lane.is_agent)
        for lane in reversed(order):
            if lane.parent is not None:
                above = self.lanes[lane.parent]
                above.total_events += lane.total_events
                above.total_agents += lane.total_agents


def _callers(trace: Trace) -> dict[str, str]:
    """For results that a tool gives in its own name: the agent that called it."""
    acting = {event.agent for event in trace.events if event.type != "tool_result"}
    own_name = {
        event.id for event in trace.events if event.type == "tool_result" and event.agent not in acting
    }
    if not own_name:
        return {}
    return {
        edge.dst: source.agent
        for edge in trace.edges
        if edge.dst in own_name
        and edge.src in trace.position
        and ((source := trace.event(edge.src)).type == "tool_call" or "draw" in trace.event(edge.dst).extra)
    }
