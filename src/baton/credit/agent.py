"""Credit on agents: each against its own kind, or against the team without it."""

from __future__ import annotations

from collections.abc import Callable

from baton.credit.acts import agents
from baton.credit.baseline import EPS, OF_BASELINE, normalised
from baton.credit.contract import (
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    returns,
    team_return,
)
from baton.credit.earned import Counts, agent_returns
from baton.credit.spread import BY_SPREAD, pooled
from baton.trace.trace import Trace

__all__ = ["agent_group", "difference"]


@estimator("agent-group", "agent", needs=["group"], source="Dr. MAS, arXiv 2602.08847", evidence="C")
def agent_group(
    group: Group, *, reward: RewardOf = team_return, counts: Counts = "both", eps: float = EPS
) -> Credits:
    """A_ik = (R_ik - mean_k) / (std_k + eps), over the rollouts in which agent k took part.

    Each rollout counts once, however often the agent was called in it; an agent that took part in one
    rollout alone gets 0. (The authors' code pools calls, so frequent callers dominate, and leaks the raw
    reward for singletons.)
    Source: Dr. MAS, arXiv 2602.08847 [C].
    """
    earned = [agent_returns(trace, reward, counts) for trace in group]
    pools: dict[str, list[tuple[int, float]]] = {}
    for place, found in enumerate(earned):
        for agent, value in found.items():
            pools.setdefault(agent, []).append((place, value))
    credits: Credits = [[] for _ in group]
    for agent, pool in pools.items():
        alone = ("in one rollout alone, nothing to compare with",) if len(pool) == 1 else ()
        advantages = normalised([value for _, value in pool], eps)
        for (place, _), (value, stderr) in zip(pool, advantages, strict=True):
            credits[place].append(
                make_credit(
                    "agent-group",
                    "agent",
                    agent,
                    value,
                    stderr=stderr,
                    assumes=("an agent's name means the same in every rollout", OF_BASELINE, *alone),
                )
            )
    return credits


@estimator("difference", "agent", needs=["counterfactuals"], source="Wolpert & Tumer 2002", evidence="M")
def difference(
    group: Group,
    *,
    without: Callable[[Trace, str], float],
    reward: RewardOf = team_return,
) -> Credits:
    """D_i = G(z) - G(z_-i, c): the return, less what it would have been with agent i replaced by a default.

    `without(trace, agent)` is that counterfactual return: from a model, a table, or forks made before.
    Standard error: the spread of the agent's differences over the group, each being one draw of its mean
    difference. None: the agent took part in one rollout, or its differences are all alike.
    Source: difference rewards, Wolpert & Tumer 2002 [M].
    """
    found = [
        {agent: whole - without(trace, agent) for agent in agents(trace)}
        for trace, whole in zip(group, returns(group, reward), strict=True)
    ]
    errors = pooled(pair for mine in found for pair in mine.items())
    assumes = ("the counterfactual returns given are right", BY_SPREAD)
    return [
        [
            make_credit("difference", "agent", agent, value, stderr=errors[agent], assumes=assumes)
            for agent, value in mine.items()
        ]
        for mine in found
    ]
