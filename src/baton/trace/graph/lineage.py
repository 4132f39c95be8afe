"""The spawn lineage: who brought whom to life, how deep, and from when to when.

An agent is whoever is spawned, and whoever acts. A name that occurs only as the `agent` of
tool_results is a tool; one that occurs only on human_interventions is a person. A spawn that
failed, was invalid or was cancelled made nobody. An agent spawned more than once keeps its first
parent and birth. A return ends no life: in other systems an agent may be resumed after it.

Invariant: parents come before children in `agents`, and following `parent` ends at a root.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

from msgspec import Struct

from baton.errors import TraceError, nearest
from baton.trace.records import Event
from baton.trace.trace import Trace

NO_EFFECT = frozenset({"failed", "invalid", "cancelled"})
"""Statuses of what was tried and never came about, such as a spawn or a delegation."""
NOT_BY_AGENTS = frozenset({"tool_result", "human_intervention"})
"""Events that make nobody an agent: who has no others is a tool, or a person."""


class Life(Struct, frozen=True, kw_only=True):
    """One agent, from birth to death."""

    agent: str
    role: str | None
    parent: str | None
    """The agent that spawned it; None for a root."""
    depth: int
    """Spawns between it and its root."""
    children: tuple[str, ...]
    """In order of birth."""
    born_seq: int
    """Of its spawn; for a root, of its first event."""
    born_t: float
    died_seq: int
    """Of the despawn that names it; without one, of its last event."""
    died_t: float
    """When that event ended."""


class Lineage:
    """Every agent of a trace by name."""

    def __init__(self, lives: Sequence[Life]) -> None:
        self.lives = {life.agent: life for life in lives}
        """Breadth first from the roots; roots and siblings in order of birth."""

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """Raises `TraceError` when agents spawn each other in a circle."""
        events = in_seq_order(trace)
        spawns: dict[str, Event] = {}
        despawn: dict[str, Event] = {}
        first: dict[str, Event] = {}
        last: dict[str, Event] = {}
        role: dict[str, str] = {}
        for event in events:
            kind, agent = event.type, event.agent
            if kind in NOT_BY_AGENTS:
                if agent in first:
                    last[agent] = event
                continue
            if agent not in first:
                first[agent] = event
            last[agent] = event
            if kind == "spawn":
                if event.to is not None and event.status not in NO_EFFECT:
                    spawns.setdefault(event.to, event)
                continue  # its role is the child's
            if kind == "despawn":
                despawn[agent if event.to is None else event.to] = event
                continue
            if event.role is not None:
                role.setdefault(agent, event.role)
        lives = []
        for agent, depth, children in _breadth_first(spawns, first, trace.trace_id):
            spawn = spawns.get(agent)
            birth = first[agent] if spawn is None else spawn
            death = despawn.get(agent) or last.get(agent) or birth
            lives.append(
                Life(
                    agent=agent,
                    role=(spawn.role if spawn is not None else None) or role.get(agent),
                    parent=None if spawn is None else spawn.agent,
                    depth=depth,
                    children=children,
                    born_seq=birth.seq,
                    born_t=birth.t,
                    died_seq=death.seq,
                    died_t=death.t + (death.duration_s or 0.0),
                )
            )
        return cls(lives)

    @cached_property
    def agents(self) -> tuple[str, ...]:
        return tuple(self.lives)

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """Agents that nobody spawned, in order of birth."""
        return tuple(life.agent for life in self.lives.values() if life.parent is None)

    @cached_property
    def root(self) -> str | None:
        """The one that leads: the first root that spawned anybody, else the first root; None: no agents."""
        leading = (agent for agent in self.roots if self.lives[agent].children)
        return next(leading, self.roots[0] if self.roots else None)

    @property
    def max_depth(self) -> int:
        return max((life.depth for life in self.lives.values()), default=0)

    @cached_property
    def top(self) -> dict[str, str]:
        """Agent -> its ancestor just below a root, which may be itself; a root stands for itself."""
        tops: dict[str, str] = {}
        for life in self.lives.values():
            tops[life.agent] = life.agent if life.parent is None or life.depth == 1 else tops[life.parent]
        return tops

    def __contains__(self, agent: object) -> bool:
        return agent in self.lives

    def __len__(self) -> int:
        return len(self.lives)

    def __getitem__(self, agent: str) -> Life:
        try:
            return self.lives[agent]
        except KeyError:
            raise TraceError(f"no agent {agent!r} in this trace. {nearest(agent, self.lives)}") from None

    def under(self, agent: str) -> tuple[str, ...]:
        """Everyone below `agent`, breadth first."""
        found = list(self[agent].children)
        for child in found:
            found.extend(self.lives[child].children)
        return tuple(found)


def who_acts(trace: Trace) -> set[str]:
    """Who did something that makes an agent, also where the lineage cannot be told."""
    return {event.agent for event in trace.events if event.type not in NOT_BY_AGENTS}


def in_seq_order(trace: Trace) -> Sequence[Event]:
    """The events by `seq`, also where a trace does not store them so."""
    return sorted(trace.events, key=lambda event: event.seq)


def dominance(trace: Trace) -> float | None:
    """How far the busiest sub-agent's share of their tokens (else events) is from an equal one to all.

    0 even, 1 one does it all; None for fewer than two sub-agents, or where none did anything.
    """
    by_tokens = any(event.tokens for event in trace.events)
    work = {name: 0 for name, life in Lineage.of(trace).lives.items() if life.parent is not None}
    for event in trace.events:
        if event.agent in work:
            work[event.agent] += (event.tokens or 0) if by_tokens else 1
    total = sum(work.values())
    if len(work) < 2 or not total:
        return None
    equal = 1 / len(work)
    return (max(work.values()) / total - equal) / (1 - equal)


def _breadth_first(
    spawns: dict[str, Event], first: dict[str, Event], trace_id: str
) -> list[tuple[str, int, tuple[str, ...]]]:
    """Agent, depth, children."""
    children: dict[str, list[str]] = {}
    for child, spawn in spawns.items():  # in the order of their spawns
        children.setdefault(spawn.agent, []).append(child)
    found = [(agent, 0, tuple(children.get(agent, ()))) for agent in first if agent not in spawns]
    for _, depth, below in found:
        found.extend((child, depth + 1, tuple(children.get(child, ()))) for child in below)
    lost = spawns.keys() - {agent for agent, _, _ in found}
    if lost:
        raise TraceError(
            f"trace {trace_id}: agents spawn each other in a circle: {', '.join(sorted(lost)[:5])}. "
            "`baton validate` lists every problem."
        )
    return found
