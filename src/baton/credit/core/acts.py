"""What the reward records of a trace say about one unit of it.

A team's return is everybody's. An agent or a turn may have rewards of its own (R2 to R6): `counts` says which of the
two an estimator looks at: "team", "own", or "both" added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from baton.credit.estimator import CreditError, RewardOf
from baton.errors import UsageError, nearest
from baton.trace import acts
from baton.trace.acts import Turn
from baton.trace.outcome import total
from baton.trace.records import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit


def turns(trace: Trace) -> list[Turn]:
    """The turns of a trace, of which credit on turns needs some."""
    found = acts.turns(trace)
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


Counts = Literal["team", "own", "both"]


def own_rewards(trace: Trace, units: Iterable[CreditUnit]) -> dict[str, float]:
    """Target -> the sum of its rewards, over the units named. As on the team, a hybrid stands for its parts."""
    wanted = set(units)
    found: dict[str, list[Reward]] = {}
    for reward in trace.rewards:
        if reward.unit in wanted and reward.name != "verdict":  # a judge's word, from which rewards are made
            found.setdefault(reward.target, []).append(reward)
    return {target: total(rewards) for target, rewards in found.items()}


def agent_returns(trace: Trace, reward: RewardOf, counts: Counts) -> dict[str, float]:
    """What each agent earned: the team's return, its own (and its role's), or both.

    With "own", an agent without any reward of its own is left out.
    """
    if counts not in get_args(Counts):
        raise UsageError(f"counts is {counts!r}. {nearest(counts, get_args(Counts))}")
    shared = 0.0 if counts == "own" else reward(trace)
    there = acts.agents(trace)
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
