"""Credit of spawning and of not spawning from a log alone, doubly robust, by recorded propensities.

The arithmetic and its sources: `baton.credit.spawn_effect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

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
from baton.trace.record import Credit
from baton.trace.trace import Trace

__all__ = ["Cell", "Logged", "Terms", "logged", "spawn_doubly_robust", "terms_of"]

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

    `cell` says which decisions are alike (default: the same task and place among its trace's decisions); m are cell
    means over other rollouts. A decision's effect is the mean of tau_k over the decisions of its cell in the other
    rollouts, whose m leave its own rollout out as well, so it does not look at its own outcome. Of two rollouts nobody
    is left to predict from: m is zero, which is no bias but a wide error. Standard error: of that mean, over rollouts;
    None where the cell has but one other, or all came out alike.
    Source: Robins, Rotnitzky and Zhao 1994; cross-fitting, Chernozhukov et al. 2018 [M].
    """
    check_decided(group)
    rows = logged(group, reward, cell)
    out: Credits = []
    for index, trace in enumerate(group):
        others = terms_of([row for row in rows if row.rollout != index])
        mine = [row for row in rows if row.rollout == index]
        out.append([_credit(row, others.get(row.like), trace) for row in mine])
    return out


def _credit(row: Logged, others: Terms | None, trace: Trace) -> Credit:
    if others is None:
        raise CreditError(
            f"the decision at {row.event.id} of trace {trace.trace_id} has no like in this group (the "
            "same instance and place), so its effect cannot be estimated from a log. Run more rollouts of the "
            "instance, say what is alike (cell=...), or use spawn-fork."
        )
    tau = effect_of(*others)
    share = 1 - row.p if row.spawned else row.p
    return make_credit(
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


class Logged(Struct, frozen=True, kw_only=True):
    """A decision as logged."""

    rollout: int
    event: Event
    like: Hashable
    p: float
    spawned: bool
    total: float
    """The return of its rollout."""


Terms = tuple[list[float], list[int]]
"""One of each rollout, the mean over its like decisions, and how many these are."""


def logged(group: Group, reward: RewardOf, cell: Cell | None = None) -> list[Logged]:
    """Every spawn decision of a group. Rollouts are taken by name: the order they are given in does not matter."""
    totals = returns(group, reward, at_least=2, what="spawn-doubly-robust")
    return [
        Logged(
            rollout=index,
            event=event,
            like=(trace.header.task_id, place) if cell is None else cell(trace, event),
            p=propensity_of(event),
            spawned=event.type == "spawn",
            total=totals[index],
        )
        for index, trace in sorted(enumerate(group), key=lambda pair: pair[1].trace_id)
        for place, event in enumerate(decisions_of(trace))
    ]


def terms_of(rows: Sequence[Logged]) -> dict[Hashable, Terms]:
    """By kind of decision, what each rollout says of its effect: doubly robust, predicted from the other rollouts."""
    if not rows:
        return {}
    spawned, r = [row.spawned for row in rows], [row.total for row in rows]
    m1, m0 = group_means([row.like for row in rows], spawned, r, rollouts=[row.rollout for row in rows])
    each = doubly_robust(r, spawned, [row.p for row in rows], m1, m0).terms
    found: dict[Hashable, dict[int, list[float]]] = {}
    for row, term in zip(rows, each, strict=True):
        found.setdefault(row.like, {}).setdefault(row.rollout, []).append(term)
    return {
        like: ([math.fsum(own) / len(own) for own in by.values()], [len(own) for own in by.values()])
        for like, by in found.items()
    }
