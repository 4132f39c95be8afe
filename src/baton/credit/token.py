"""Credit on tokens: advantages from a critic that looks at every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from baton.credit.gae import advantages
from baton.trace.call import Call
from baton.trace.record import Credit
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
    Source: token-level MARFT, arXiv 2504.16129 [C].
    """
    return [
        _of_trace(trace, total, value, gamma, lambda_)
        for trace, total in zip(group, returns(group, reward), strict=True)
    ]


def _of_trace(
    trace: Trace,
    total: float,
    value: Callable[[Trace, Call], Sequence[float]],
    gamma: float,
    lambda_: float,
) -> list[Credit]:
    own = turn_rewards(trace)
    found = []
    for chain in of_turns(turns(trace), "agent").values():
        names: list[str] = []
        rewards: list[float] = []
        values: list[float] = []
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
        if not names:
            continue
        rewards[-1] += total
        for name, advantage in zip(names, advantages(rewards, values, gamma, lambda_), strict=True):
            found.append(
                make_credit("token-gae", "token", name, advantage, assumes=("the critic given is right",))
            )
    if not found:
        raise CreditError(
            f"trace {trace.trace_id} records no completion tokens. Use an engine that gives token ids."
        )
    return found
