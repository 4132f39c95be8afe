"""Credit on tokens: advantages from a critic that looks at every one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from baton.credit.acts import of_turns, turns
from baton.credit.contract import (
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    returns,
    team_return,
)
from baton.credit.earned import turn_rewards
from baton.credit.gae import BY_RESIDUALS, Chain, with_errors
from baton.trace.call import Call
from baton.trace.trace import Trace

__all__ = ["token_gae"]


@estimator("token-gae", "token", needs=["values"], source="MARFT, arXiv 2504.16129", evidence="C")
def token_gae(
    group: Group,
    *,
    value: Callable[[Trace, Call], Sequence[float]],
    reward: RewardOf = team_return,
    gamma: float = 1.0,
    lambda_: float = 0.95,
) -> Credits:
    """A_k = sum_l (gamma lambda)^l delta_{k+l} along an agent's tokens, delta_k = r_k + gamma V_{k+1} - V_k.

    `value(trace, call)` gives the critic's value before each completion token of a call. An agent's turns form
    one chain; a turn's rewards come at its last token, the team's return at the agent's last.
    Standard error: sqrt(sum_l (gamma lambda)^2l mean delta_{k+l}^2), the mean over all tokens of the same turn of
    the same agent in the group. None: the whole group is one token.
    Source: token-level MARFT, arXiv 2504.16129 [C]; the error [I].
    """
    chains = [
        _chains(trace, total, value) for trace, total in zip(group, returns(group, reward), strict=True)
    ]
    judged = iter(with_errors([chain for mine in chains for chain in mine], gamma, lambda_))
    assumes = ("the critic given is right", BY_RESIDUALS)
    return [
        [
            make_credit("token-gae", "token", name, step.value, stderr=step.stderr, assumes=assumes)
            for _ in mine
            for name, step in next(judged).items()
        ]
        for mine in chains
    ]


def _chains(trace: Trace, total: float, value: Callable[[Trace, Call], Sequence[float]]) -> list[Chain]:
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
            places.extend([(turn.agent, turn.index)] * size)
        if not names:
            continue
        rewards[-1] += total
        found.append(Chain(names, places, rewards, values))
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} records no completion tokens. Use an engine that gives token ids."
        )
    return found
