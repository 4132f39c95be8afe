"""Credit of spawning and of not spawning from a log alone, doubly robust, by recorded propensities.

The arithmetic and its sources: `baton.credit.spawn_effect`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from msgspec import Struct

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
from baton.credit.spawn_effect import centred, doubly_robust, effect_of, group_means
from baton.credit.spawn_fork import check_decided, decisions_of, propensity_of
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = ["Cell", "Logged", "logged", "spawn_doubly_robust"]

Cell = Callable[[Trace, Event], Hashable]
"""Says which decisions are alike."""


@estimator(
    "spawn-doubly-robust",
    "orchestrator",
    needs=("group", "propensities"),
    source="Robins, Rotnitzky and Zhao 1994; Chernozhukov et al. 2018",
    evidence="M",
)
def spawn_doubly_robust(
    group: Group,
    *,
    reward: RewardOf = team_return,
    cell: Cell | None = None,
) -> Credits:
    """tau_k = m1 - m0 + d (R - m1)/p - (1-d)(R - m0)/(1-p), from a log alone; A_spawn = (1-p) tau, A_noop = -p tau.

    `cell` says which decisions are alike (default: the same task and place among its trace's decisions); m are
    cell means over other rollouts. A decision's effect is the mean over the others of its cell, so it does not
    look at its own outcome. Standard error: of that mean; None where the cell has but one other.
    Source: Robins, Rotnitzky and Zhao 1994; cross-fitting, Chernozhukov et al. 2018 [M].
    """
    check_decided(group)
    rows = logged(group, reward, cell)
    out: Credits = [[] for _ in group]
    members: dict[Hashable, list[int]] = {}
    for k, row in enumerate(rows):
        members.setdefault(row.like, []).append(k)
    for k, row in enumerate(rows):
        alike = [rows[j].term for j in members[row.like] if j != k]
        if not alike:
            raise CreditError(
                f"the decision at {row.event.id} of trace {group[row.rollout].trace_id} has no like in this group (the "
                "same instance and place), so its effect cannot be estimated from a log. Run more rollouts of the "
                "instance, say what is alike (cell=...), or use spawn-fork."
            )
        tau = effect_of(np.array(alike))
        share = 1 - row.p if row.spawned else row.p
        out[row.rollout].append(
            make_credit(
                "spawn-doubly-robust",
                "orchestrator",
                row.event.id,
                float(centred(tau.value, row.p, row.spawned)),
                stderr=None if tau.stderr is None else tau.stderr * share,
                assumes=(
                    "recorded propensities are those of the policy, after masks",
                    "decisions of one cell have one effect",
                ),
            )
        )
    return out


class Logged(Struct, frozen=True, kw_only=True):
    """A decision as logged, and what it alone says of the effect."""

    rollout: int
    event: Event
    like: Hashable
    p: float
    spawned: bool
    term: float
    """Doubly robust; the mean over like decisions is their effect."""


def logged(group: Group, reward: RewardOf, cell: Cell | None = None) -> list[Logged]:
    """Every spawn decision of a group, with its doubly robust term."""
    values = returns(group, reward, at_least=2, what="spawn-doubly-robust")
    rows = [  # folds go by place, so rollouts are taken by name: the order they are given in does not matter
        (index, event, (trace.header.task_id, place) if cell is None else cell(trace, event))
        for index, trace in sorted(enumerate(group), key=lambda pair: pair[1].trace_id)
        for place, event in enumerate(decisions_of(trace))
    ]
    if not rows:
        return []
    spawned = np.array([event.type == "spawn" for _, event, _ in rows], dtype=bool)
    p = np.array([propensity_of(event) for _, event, _ in rows])
    r = np.array([values[index] for index, _, _ in rows])
    m1, m0 = group_means([like for _, _, like in rows], spawned, r)
    terms = doubly_robust(r, spawned, p, m1, m0).terms
    return [
        Logged(rollout=index, event=event, like=like, p=float(p[k]), spawned=bool(spawned[k]), term=terms[k])
        for k, (index, event, like) in enumerate(rows)
    ]
