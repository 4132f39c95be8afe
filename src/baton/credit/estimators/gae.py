"""Generalised advantages over prefixes of the trace, with a central or a local critic.

delta_t = r_t + gamma V_{t+1} - V_t, A_t = delta_t + gamma lambda A_{t+1}, V = 0 after the end. With a central
critic the chain runs through all agents' turns in causal order and V looks at the whole prefix (MAPPO,
MARFT); with a local one it runs along each agent's own turns and V looks at what that agent saw (IPPO).

Under a right critic the delta_t are uncorrelated with mean zero, so Var A_t = sum_l (gamma lambda)^2l E[delta_{t+l}^2],
with the mean square taken over the same step of the group's rollouts. That is how far A_t would move were the
rollout drawn again from t on; the choice at t is drawn again with it, so it is an upper bound for the luck alone.
Sources: MAPPO, arXiv 2103.01955; IPPO, arXiv 2011.09533; MARFT, arXiv 2504.16129; the error [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Literal, NamedTuple

from baton.credit.core.acts import of_turns, own_rewards, turn_rewards, turns
from baton.credit.core.baseline import Advantage
from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    Prefix,
    RewardOf,
    Value,
    estimator,
    returns,
    widened,
    write_credits,
)
from baton.settings import Share
from baton.trace.acts import Turn
from baton.trace.outcome import team_return
from baton.trace.records import Call
from baton.trace.trace import Trace

BY_RESIDUALS = "error: the critic's residuals over the group"


def advantages(
    rewards: Sequence[float], values: Sequence[float], gamma: float = 0.99, lambda_: float = 0.95
) -> list[float]:
    """The advantages of one chain of steps, whose value after the last is zero."""
    found = [0.0] * len(rewards)
    ahead, value_ahead = 0.0, 0.0
    for step in reversed(range(len(rewards))):
        delta = rewards[step] + gamma * value_ahead - values[step]
        ahead = delta + gamma * lambda_ * ahead
        found[step], value_ahead = ahead, values[step]
    return found


class Chain(NamedTuple):
    """Steps of one rollout whose advantages follow from each other."""

    names: Sequence[str]
    places: Sequence[Hashable]
    """Which step of its rollout each is; steps at one place of several rollouts are alike."""
    rewards: Sequence[float]
    values: Sequence[float]


def with_errors(chains: Sequence[Chain], gamma: float, lambda_: float) -> list[dict[str, Advantage]]:
    """For each chain, its steps' advantages with their errors.

    Mean squares are those of the other chains. A place that one chain alone stands at takes the mean square over all
    steps; None: there is but one step.
    """
    deltas = [
        [
            reward + gamma * ahead - value
            for reward, value, ahead in zip(c.rewards, c.values, [*c.values[1:], 0.0], strict=True)
        ]
        for c in chains
    ]
    squares: dict[Hashable, dict[int, list[float]]] = {}  # place -> chain -> its steps there
    for number, (chain, mine) in enumerate(zip(chains, deltas, strict=True)):
        for place, delta in zip(chain.places, mine, strict=True):
            squares.setdefault(place, {}).setdefault(number, []).append(delta * delta)
    every = [square for pool in squares.values() for own in pool.values() for square in own]
    overall = math.fsum(every) / len(every) if every else 0.0
    sums = {place: _sum_of(pool.values()) for place, pool in squares.items()}
    found = []
    for number, chain in enumerate(chains):
        steps = advantages(chain.rewards, chain.values, gamma, lambda_)
        variance, doubt, errors = 0.0, 0.0, []
        for place in reversed(chain.places):
            (total, num), own = sums[place], squares[place][number]
            others = num - len(own)
            here = max(0.0, total - math.fsum(own)) / others if others else overall
            variance = here + (gamma * lambda_) ** 2 * variance
            doubt = here**2 / max(1, len(squares[place]) - 1) + (gamma * lambda_) ** 4 * doubt
            df = variance**2 / doubt if doubt > 0 else math.inf  # by Satterthwaite
            errors.append(widened(math.sqrt(variance), df) if len(every) > 1 else None)
        found.append(
            {
                name: Advantage(value, error)
                for name, value, error in zip(chain.names, steps, reversed(errors), strict=True)
            }
        )
    return found


def _sum_of(pool: Iterable[Sequence[float]]) -> tuple[float, int]:
    every = [square for own in pool for square in own]
    return math.fsum(every), len(every)


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
    gamma: Share = 0.99,
    lambda_: Share = 0.95,
) -> Credits:
    """A_t = sum_l (gamma lambda)^l delta_{t+l}, delta_t = r_t + gamma V(G<=t+1) - V(G<=t), over turns.

    `value(prefix)` is the critic, asked about the events before each turn; a local one is also told the agent.
    Rewards on turns and their events count when they happen, the team's return at the last turn (with a
    local critic at each agent's last, with the agent's own rewards).
    Standard error: sqrt(sum_l (gamma lambda)^2l mean delta_{t+l}^2), the mean over the same turn of the same
    agent in the group. None: the whole group is one turn.
    Source: MARFT, arXiv 2504.16129 [C]; MAPPO, arXiv 2103.01955, and IPPO, arXiv 2011.09533 [M].
    """
    chains = [
        _chains(trace, total, value, critic)
        for trace, total in zip(group, returns(group, reward), strict=True)
    ]
    judged = iter(with_errors([chain for mine in chains for chain in mine], gamma, lambda_))
    found = [{name: step for _ in mine for name, step in next(judged).items()} for mine in chains]
    rows = (
        [(turn.call, *mine[turn.call]) for turn in turns(trace)]
        for trace, mine in zip(group, found, strict=True)
    )
    notes = ("the critic given is right up to lambda", f"{critic} critic", BY_RESIDUALS)
    return write_credits("gae", "turn", rows, *notes)


def _chains(trace: Trace, total: float, value: Value, critic: str) -> list[Chain]:
    every = turns(trace)
    own = turn_rewards(trace)
    on_agent = own_rewards(trace, ("agent",)) if critic == "local" else {}
    found = []
    for steps in of_turns(every, "agent").values() if critic == "local" else [every]:
        rewards = [own.get(turn.call, 0.0) for turn in steps]
        rewards[-1] += total + on_agent.get(steps[-1].agent, 0.0)
        found.append(
            Chain(
                names=[turn.call for turn in steps],
                places=[(turn.agent, turn.index) for turn in steps],
                rewards=rewards,
                values=[value(_before(trace, turn, critic)) for turn in steps],
            )
        )
    return found


def _before(trace: Trace, turn: Turn, critic: str) -> Prefix:
    return Prefix(trace, turn.start, turn.agent if critic == "local" else None)


# Credit on tokens: advantages from a critic that looks at every one.


@estimator(
    "token-gae",
    "token",
    needs=["values"],
    critics=["network"],
    source="MARFT, arXiv 2504.16129",
    evidence="C",
)
def token_gae(
    group: Group,
    *,
    value: Callable[[Trace, Call], Sequence[float]],
    reward: RewardOf = team_return,
    gamma: Share = 1.0,
    lambda_: Share = 0.95,
) -> Credits:
    """A_k = sum_l (gamma lambda)^l delta_{k+l} along an agent's tokens, delta_k = r_k + gamma V_{k+1} - V_k.

    `value(trace, call)` gives the critic's value before each completion token of a call. An agent's turns form
    one chain; a turn's rewards come at its last token, the team's return at the agent's last.
    Standard error: sqrt(sum_l (gamma lambda)^2l mean delta_{k+l}^2), the mean over the last, or the other, tokens of
    the same turn of the same agent, counted from its last one, in the other rollouts. None: the whole group is one
    token.
    Source: token-level MARFT, arXiv 2504.16129 [C]; the error [I].
    """
    chains = [
        _chains_token(trace, total, value) for trace, total in zip(group, returns(group, reward), strict=True)
    ]
    judged = iter(with_errors([chain for mine in chains for chain in mine], gamma, lambda_))
    rows = ([(name, *step) for _ in mine for name, step in next(judged).items()] for mine in chains)
    return write_credits("token-gae", "token", rows, "the critic given is right", BY_RESIDUALS)


def _chains_token(trace: Trace, total: float, value: Callable[[Trace, Call], Sequence[float]]) -> list[Chain]:
    own = turn_rewards(trace)
    found = []
    for chain in of_turns(turns(trace), "agent").values():
        names: list[str] = []
        rewards: list[float] = []
        values: list[float] = []
        places: list[Hashable] = []
        for turn in chain:
            call = trace.call_by_id.get(turn.call)
            if call is None or not call.completion_ids:
                continue
            size = len(call.completion_ids)
            guessed = value(trace, call)
            if len(guessed) != size:
                raise CreditError(
                    f"the critic gave {len(guessed)} values for call {call.id}, which has {size} completion tokens; "
                    "expected one before each."
                )
            names.extend(f"{call.id}:{index}" for index in range(size))
            rewards.extend([0.0] * (size - 1) + [own.get(turn.call, 0.0)])
            values.extend(guessed)
            # Rewards come at the last token of a turn and the return at the last turn, so those are unlike the others.
            left = len(chain) - turn.index
            places.extend((turn.agent, left, index == size - 1) for index in range(size))
        if not names:
            continue
        rewards[-1] += total
        found.append(Chain(names, places, rewards, values))
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} records no completion tokens. Use an engine that gives token ids."
        )
    return found
