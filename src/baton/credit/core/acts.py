"""Who did what: the events, turns and agents of a trace by credit unit.

Invariant: an event stands in at most one unit. Nobody's choice (a tool's result, a person's word, a
stop that a budget forced, an event that an intervention put there) stands in none: it is luck to the
policy, and is never trained as if it had been chosen. What was invalid, failed or was cancelled later
was still said by the policy and keeps its unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar, get_args

from msgspec import Struct

from baton.credit.estimator import CreditError, RewardOf, whole
from baton.errors import UsageError, nearest
from baton.trace.graph.lineage import Lineage
from baton.trace.records import Event, Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

T = TypeVar("T")
_NOBODYS = frozenset({"tool_result", "human_intervention"})


def chosen(event: Event) -> bool:
    """Whether an agent's policy chose this."""
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


def agents(trace: Trace) -> dict[str, str | None]:
    """Agent -> role, in order of birth. Where no event tells a role, the agent's calls do."""
    by_call = {call.agent: call.role for call in reversed(trace.calls) if call.role is not None}
    return {life.agent: life.role or by_call.get(life.agent) for life in Lineage.of(trace).lives.values()}


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
    """In the order of their first events. A call that led to nothing (cancelled, lost) is no turn."""
    said: dict[str, list[int]] = {}
    for place, event in enumerate(trace.events):
        if event.call is not None:
            said.setdefault(event.call, []).append(place)
    taken: dict[str, int] = {}
    found = []
    for call_id, places in said.items():
        call = trace.call_by_id.get(call_id)
        first = trace.events[places[0]]
        agent = first.agent if call is None else call.agent
        index = taken.get(agent, 0)
        taken[agent] = index + 1
        role = call.role if call is not None else None if first.type == "spawn" else first.role
        found.append(
            Turn(call=call_id, agent=agent, role=role, index=index, start=places[0], events=tuple(places))
        )
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} names no calls, so it has no turns. Record calls with its events "
            "(`baton run` does), or ask for credit on agents or events."
        )
    return found


def of_turns(found: list[Turn], by: str) -> dict[str, list[Turn]]:
    """Turns by agent or by role, in order."""
    groups: dict[str, list[Turn]] = {}
    for turn in found:
        groups.setdefault(turn.agent if by == "agent" else turn.role or "", []).append(turn)
    return groups


# -- earned --
# What the reward records of a trace say about one unit of it.
#
# A team's return is everybody's. An agent or a turn may have rewards of its own (R2 to R6): `counts`
# says which of the two an estimator looks at: "team", "own", or "both" added.

Counts = Literal["team", "own", "both"]


def own_rewards(trace: Trace, units: Iterable[CreditUnit]) -> dict[str, float]:
    """Target -> the sum of its rewards, over the units named. As on the team, a hybrid stands for its parts."""
    wanted = set(units)
    found: dict[str, list[Reward]] = {}
    for reward in trace.rewards:
        if reward.unit in wanted and reward.name != "verdict":  # a judge's word, from which rewards are made
            found.setdefault(reward.target, []).append(reward)
    return {target: math.fsum(reward.value for reward in whole(rewards)) for target, rewards in found.items()}


def agent_returns(trace: Trace, reward: RewardOf, counts: Counts) -> dict[str, float]:
    """What each agent earned: the team's return, its own (and its role's), or both.

    With "own", an agent without any reward of its own is left out.
    """
    if counts not in get_args(Counts):
        raise UsageError(f"counts is {counts!r}. {nearest(counts, get_args(Counts))}")
    shared = 0.0 if counts == "own" else reward(trace)
    there = agents(trace)
    if counts == "team":
        return dict.fromkeys(there, shared)
    on_agent, on_role = own_rewards(trace, ("agent",)), own_rewards(trace, ("role",))
    found = {
        agent: shared + on_agent.get(agent, 0.0) + on_role.get(role or "", 0.0)
        for agent, role in there.items()
        if counts == "both" or agent in on_agent or role in on_role
    }
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} has no rewards on agents or roles. Score them first (`baton reward` with an "
            "individual or role family), or use counts='team'."
        )
    return found


def turn_rewards(trace: Trace) -> dict[str, float]:
    """Call -> the rewards on the turn and on the events it said. Turns without any are left out."""
    own = own_rewards(trace, ("turn", "orchestrator", "message", "tool_call"))
    found: dict[str, float] = {}
    for turn in turns(trace):
        targets = [turn.call, *(trace.events[place].id for place in turn.events)]
        values = [own[target] for target in targets if target in own]
        if values:
            found[turn.call] = math.fsum(values)
    return found
