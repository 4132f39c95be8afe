"""Generalised advantages over prefixes of the trace, with a central or a local critic.

delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}, V = 0 after the end. With a central
critic the chain runs through all agents' turns in causal order and V looks at the whole prefix (MAPPO,
MARFT); with a local one it runs along each agent's own turns and V looks at what that agent saw (IPPO).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from baton.credit.acts import Turn, of_turns, turns
from baton.credit.contract import (
    Credits,
    Group,
    Prefix,
    RewardOf,
    Value,
    estimator,
    make_credit,
    returns,
    team_return,
)
from baton.credit.earned import own_rewards, turn_rewards
from baton.trace.record import Credit
from baton.trace.trace import Trace

__all__ = ["advantages", "gae"]


def advantages(
    rewards: Sequence[float], values: Sequence[float], gamma: float = 0.99, lambda_: float = 0.95
) -> list[float]:
    """Of one chain of steps, whose value after the last is zero."""
    found = [0.0] * len(rewards)
    ahead, value_ahead = 0.0, 0.0
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * value_ahead - values[step]
        ahead = delta + gamma * lambda_ * ahead
        found[step], value_ahead = ahead, values[step]
    return found


@estimator(
    "gae",
    "turn",
    needs=["values"],
    source="MAPPO, arXiv 2103.01955; IPPO, arXiv 2011.09533; MARFT, arXiv 2504.16129",
    evidence="C/M",
)
def gae(
    group: Group,
    *,
    value: Value,
    critic: Literal["central", "local"] = "central",
    reward: RewardOf = team_return,
    gamma: float = 0.99,
    lambda_: float = 0.95,
) -> Credits:
    """A_t = sum_l (gamma lambda)^l delta_{t+l}, delta_t = r_t + gamma V(G<=t+1) - V(G<=t), over turns.

    `value(prefix)` is the critic, asked about the events before each turn; a local one is also told the agent.
    Rewards on turns and their events count when they happen, the team's return at the last turn (with a
    local critic at each agent's last, with the agent's own rewards).
    Source: MARFT, arXiv 2504.16129 [C]; MAPPO, arXiv 2103.01955, and IPPO, arXiv 2011.09533 [M].
    """
    return [
        _of_trace(trace, total, value, critic, gamma, lambda_)
        for trace, total in zip(group, returns(group, reward), strict=True)
    ]


def _of_trace(
    trace: Trace, total: float, value: Value, critic: str, gamma: float, lambda_: float
) -> list[Credit]:
    every = turns(trace)
    own = turn_rewards(trace)
    on_agent = own_rewards(trace, ("agent",)) if critic == "local" else {}
    chains = list(of_turns(every, "agent").values()) if critic == "local" else [every]
    found: dict[str, float] = {}
    for chain in chains:
        rewards = [own.get(turn.call, 0.0) for turn in chain]
        rewards[-1] += total + on_agent.get(chain[-1].agent, 0.0)
        values = [value(_before(trace, turn, critic)) for turn in chain]
        for turn, advantage in zip(chain, advantages(rewards, values, gamma, lambda_), strict=True):
            found[turn.call] = advantage
    note = ("the critic given is right up to lambda", f"{critic} critic")
    return [make_credit("gae", "turn", turn.call, found[turn.call], assumes=note) for turn in every]


def _before(trace: Trace, turn: Turn, critic: str) -> Prefix:
    return Prefix(trace, turn.start, turn.agent if critic == "local" else None)
