"""What the reward records of a trace say about one unit of it.

A team's return is everybody's. An agent or a turn may have rewards of its own (R2 to R6): `counts`
says which of the two an estimator looks at: "team", "own", or "both" added.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, get_args

from baton.credit.acts import agents, turns
from baton.credit.contract import CreditError, RewardOf, whole
from baton.errors import UsageError, nearest
from baton.trace.record import Reward
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

__all__ = ["Counts", "agent_returns", "own_rewards", "turn_rewards"]

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
