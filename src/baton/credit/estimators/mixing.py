"""Credit through a mixing of values: VDN and QMIX.

Q_tot = f(Q_1, ..., Q_n) with df/dQ_i >= 0, so that each agent's best choice is the team's. What agent
i is told is the team's error through its own slope: (R - Q_tot) df/dQ_i. The error of that is the spread of
R - Q_tot over the other rollouts through the same slope: what it would move were the rollout drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from baton.credit.core.baseline import BY_SPREAD, pooled
from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator, returns, write_credits
from baton.trace.acts import agents
from baton.trace.outcome import team_return
from baton.trace.trace import Trace

Mix = Callable[[Sequence[float]], float]
_STEP = 1e-4


class MonotoneMix:
    """QMIX's mixing for one state: |w2| . elu(|w1| q + b1) + b2. The absolute values make it monotone."""

    def __init__(self, w1: ArrayLike, b1: ArrayLike, w2: ArrayLike, b2: float) -> None:
        self.w1_HN: NDArray[np.float64] = np.abs(np.asarray(w1, float))
        self.b1_H: NDArray[np.float64] = np.asarray(b1, float)
        self.w2_H: NDArray[np.float64] = np.abs(np.asarray(w2, float))
        self.b2 = b2

    def __call__(self, values: Sequence[float]) -> float:
        hidden_H = self.w1_HN @ np.asarray(values, float) + self.b1_H
        return float(
            self.w2_H @ np.where(hidden_H > 0, hidden_H, np.expm1(np.minimum(hidden_H, 0))) + self.b2
        )


def slopes(mix: Mix, values: Sequence[float]) -> list[float]:
    """df/dQ_i by central differences."""
    found = []
    for place in range(len(values)):
        up, down = list(values), list(values)
        step = _STEP * max(1.0, abs(values[place]))
        up[place] += step
        down[place] -= step
        found.append((mix(up) - mix(down)) / (2 * step))
    return found


def check_monotone(found: Sequence[float], names: Sequence[str]) -> None:
    """Raises where a slope is negative: an agent that did better would lower the team's value."""
    for slope, name in zip(found, names, strict=True):
        if slope < -1e-8 * max(1.0, max(map(abs, found))):
            raise CreditError(
                f"the mixing is not monotone: its slope in the value of {name} is {slope:.3g}. "
                "Use non-negative weights (MonotoneMix takes their absolute values)."
            )


@estimator("vdn", "agent", needs=["values"], critics=["agents"], source="VDN, arXiv 1706.05296", evidence="M")
def vdn(group: Group, *, q: Callable[[Trace, str], float], reward: RewardOf = team_return) -> Credits:
    """(R - sum_i Q_i) to every agent: Q_tot = sum of Q_i, so each agent's slope is 1.

    `q(trace, agent)` is an agent's own value of what it did. Standard error: the spread of R - sum_i Q_i over
    the other rollouts; None for fewer than two.
    Source: VDN, arXiv 1706.05296 [M].
    """
    return _mixed("vdn", group, q, lambda _: math.fsum, returns(group, reward))


@estimator(
    "qmix",
    "agent",
    needs=["values"],
    critics=["agents"],
    source="QMIX, arXiv 1803.11485; Agent Q-Mix, arXiv 2604.00344",
    evidence="M/C",
)
def qmix(
    group: Group,
    *,
    q: Callable[[Trace, str], float],
    mix: Callable[[Trace], Mix],
    reward: RewardOf = team_return,
) -> Credits:
    """(R - Q_tot) dQ_tot/dQ_i, with Q_tot = f(Q_1, ..., Q_n) monotone in every Q_i.

    `q(trace, agent)` is an agent's own value; `mix(trace)` gives the mixing function of that trace's
    state, over agents in order of birth. A mixing with a negative slope is an error. Standard error: the
    spread of R - Q_tot over the other rollouts, through the slope; None for fewer than two.
    Source: QMIX, arXiv 1803.11485 [M]; over communication in Agent Q-Mix, arXiv 2604.00344 [C].
    """
    return _mixed("qmix", group, q, mix, returns(group, reward))


def _mixed(
    name: str,
    group: Group,
    q: Callable[[Trace, str], float],
    mix: Callable[[Trace], Mix],
    totals: Sequence[float],
) -> Credits:
    rows: list[tuple[list[str], list[float], float]] = []  # agents, slopes, the team's error
    for trace, total in zip(group, totals, strict=True):
        names, mixing = list(agents(trace)), mix(trace)
        values = [q(trace, agent) for agent in names]
        through = slopes(mixing, values)
        check_monotone(through, names)
        rows.append((names, through, total - mixing(values)))
    errors = pooled(("team", off) for _, _, off in rows)
    told = (
        [
            (agent, off * slope, None if error is None else error * abs(slope))
            for agent, slope in zip(names, through, strict=True)
        ]
        for (names, through, off), error in zip(rows, errors, strict=True)
    )
    return write_credits(name, "agent", told, "the agents' values given are right", BY_SPREAD)
