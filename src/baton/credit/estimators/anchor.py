"""Credit on turns by the states that rollouts come back to (GiGPO).

Rollouts of one task often stand in the very same state, early and late. Turns taken there are compared with each other
on what followed, whichever rollout they are of, and that is added to how the whole rollout did.

Invariant: a turn in a state that nobody else stood in has the credit of its rollout, and no other.
"""

from __future__ import annotations

from typing import Literal

from baton.credit.core.acts import turn_rewards, turns
from baton.credit.core.baseline import OF_BASELINE, Advantage, centred, joint_error, normalised, parts, std
from baton.credit.core.tree import context_key
from baton.credit.estimator import Credits, Group, RewardOf, estimator, returns, write_credits
from baton.settings import NotNegative, Share
from baton.trace.outcome import team_return

_EPS = 1e-6
"""Added to the spread, as in the authors' code."""


@estimator(
    "anchor-group",
    "turn",
    needs=["group"],
    source="GiGPO, arXiv 2505.10978",
    evidence="C",
    own_scale=True,
)
def anchor_group(
    group: Group,
    *,
    reward: RewardOf = team_return,
    gamma: Share = 0.95,
    step_weight: NotNegative = 1.0,
    scale: Literal["std", "none"] = "std",
    eps: NotNegative = _EPS,
) -> Credits:
    """A_it = A_E(i) + w A_S(i,t): the rollout's advantage, and the turn's among all turns in the same state.

    A_E = (R - mean R) / (std R + eps) over the rollouts, R all that a rollout earned. A_S is the same of the discounted
    return to go, r_t + gamma G_{t+1}, over the turns of all rollouts whose whole prompt is the same; it is 0 where
    nobody else stood there. `scale="none"` does not divide. A turn's own rewards count when they happen, the team's
    return at the last turn.
    Standard error: of both baselines together, which share their rollouts: by jackknife over the others. None: fewer
    than two others, or others that are all alike, in the group or in the same state.
    Source: GiGPO, arXiv 2505.10978 [C]: gamma 0.95, w = 1, the spread with n - 1 and 1e-6.
    """
    totals = returns(group, reward, at_least=2, what="anchor-group")
    own = [turn_rewards(trace) for trace in group]
    earned = [total + sum(mine.values()) for total, mine in zip(totals, own, strict=True)]
    episode = _compared(earned, scale, eps)
    pools: dict[tuple[str, bytes], list[tuple[int, str, float]]] = {}
    for place, (trace, total) in enumerate(zip(group, totals, strict=True)):
        ahead = total
        for number, turn in enumerate(reversed(turns(trace))):
            ahead = own[place].get(turn.call, 0.0) + (gamma if number else 1.0) * ahead
            key = (turn.role or "", context_key(trace, turn.call))
            pools.setdefault(key, []).append((place, turn.call, ahead))
    whole = (parts(enumerate(earned)), _per(earned, scale, eps))
    step: dict[tuple[int, str], Advantage] = {}
    for pool in pools.values():
        values = [value for _, _, value in pool]
        shown = (parts((place, value) for place, _, value in pool), step_weight * _per(values, scale, eps))
        alike = (
            len(pool) > 1 and std(values) == 0
        )  # which shows no spread, and does not mean that there is none
        errors = {
            place: None if alike else joint_error((whole, shown), place)
            for place in {each[0] for each in pool}
        }
        for (place, call, _), each in zip(pool, _compared(values, scale, eps), strict=True):
            step[place, call] = Advantage(each.value, errors[place])
    rows = (
        [
            (turn.call, episode[place].value + step_weight * mine.value, mine.stderr)
            for turn in turns(trace)
            for mine in [step[place, turn.call]]
        ]
        for place, trace in enumerate(group)
    )
    notes = ("the same prompt is the same state", "later turns are as good wherever they follow", OF_BASELINE)
    return write_credits("anchor-group", "turn", rows, *notes)


def _compared(values: list[float], scale: str, eps: float) -> list[Advantage]:
    return normalised(values, eps) if scale == "std" else centred(values)


def _per(values: list[float], scale: str, eps: float) -> float:
    """What one unit of a value counts for."""
    return 1 / (std(values) + eps) if scale == "std" and len(values) > 1 and std(values) > 0 else 1.0
