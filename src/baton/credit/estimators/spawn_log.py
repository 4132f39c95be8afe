"""Credit of spawning and of not spawning from a log, doubly robust by recorded propensities, alone or with forks.

The arithmetic and its sources: `baton.credit.estimators.spawn_effect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

from msgspec import Struct, structs

from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator, make_credit, returns
from baton.credit.estimators.spawn_effect import (
    Effect,
    centred,
    combined,
    doubly_robust,
    effect_of,
    group_means,
)
from baton.credit.estimators.spawn_fork import (
    Forked,
    Without,
    check_decided,
    decisions_of,
    fork_one,
    propensity_of,
)
from baton.settings import Chance, Count
from baton.team.forks import Cost, Forks
from baton.trace.outcome import team_return
from baton.trace.records import Credit, Event
from baton.trace.trace import Trace

Cell = Callable[[Trace, Event], Hashable]
"""Says which decisions are alike."""


@estimator(
    "spawn-doubly-robust",
    "orchestrator",
    needs=("group", "propensities"),
    decisions=("spawn",),
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


# Credit of spawning and of not spawning from forks and from the log, each weighed by what it tells.
#
# Some rollouts are forked and give pairs; the others, another fold, give doubly robust terms. Both are samples of the
# effect of like decisions, and independent, so they are combined by inverse variance. The terms are unbiased. One
# decision of a rollout is forked, so one among few was likelier to be: pairs count by 1/q, whose ratio has a bias that
# falls with their number (none where like decisions stand in rollouts of as many). The arithmetic and its sources:
# `baton.credit.estimators.spawn_effect`.

_ENOUGH = 4
"""How many of a kind it takes to tell their variance: two in each fold."""


@estimator(
    "spawn-combined",
    "orchestrator",
    needs=("runtime", "group", "propensities"),
    decisions=("spawn",),
    source="inverse-variance combination of paired forks and doubly robust terms of a separate fold",
    evidence="I",
)
async def spawn_combined(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    rate: Chance = 0.5,
    num_replicates: Count = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    cell: Cell | None = None,
    seed: int = 0,
) -> Credits:
    """tau = (tau_f / v_f + tau_d / v_d) / (1/v_f + 1/v_d), A_spawn = (1-p) tau, A_noop = -p tau.

    tau_f is the mean of paired forks, one in each rollout that is forked (a share `rate` of them), each weighed by 1/q,
    q the probability with which its decision was chosen; tau_d is that of doubly robust terms of the others; v are
    their variances, each half weighed by those of the other half. Both are over like decisions (`cell`; by default the
    same task and place). A logged decision does not look at its own outcome; a forked one counts with its own pair,
    both branches of it. With fewer than 4 of a kind the other stands alone, and the credit says so.
    Standard error: of tau, over rollouts; None where the one sample there is, or all of them alike, does not tell.
    Source: inverse-variance weighting, Cochran 1954; weighing by 1/q, Hajek 1971 [M]; of forks and log, from separate
    folds [I].
    """

    def net(trace: Trace) -> float:
        return reward(trace) - token_price * trace.costs.get("tokens", 0.0)

    check_decided(group)
    forked: list[Forked | None] = [
        await fork_one(
            runner,
            trace,
            rate=rate,
            num_replicates=num_replicates,
            without=without,
            seed=seed,
            reward=net,
        )
        for trace in group
    ]
    pairs = _pairs(group, forked, cell)
    rows = _not_forked(group, forked, net, cell)
    out: Credits = []
    for index, (trace, made) in enumerate(zip(group, forked, strict=True)):
        cost, mine = Cost() if made is None else made.pair.cost, []
        terms = terms_of([row for row in rows if row.rollout != index])
        for place, event in enumerate(decisions_of(trace)):
            like = (trace.header.task_id, place) if cell is None else cell(trace, event)
            tau, how = _effect(pairs.get(like, ([], [])), terms.get(like, ([], [])), trace, event)
            p, spawned = propensity_of(event), event.type == "spawn"
            mine.append(
                make_credit(
                    "spawn-combined",
                    "orchestrator",
                    event.id,
                    float(centred(tau.value, p, spawned)),
                    stderr=tau.stderr * (1 - p if spawned else p) if tau.stderr else None,
                    cost=cost if place == 0 else Cost(),
                    assumes=("tools in the cone are pure", "decisions of one cell have one effect", how),
                )
            )
        out.append(mine)
    return out


Pairs = tuple[list[float], list[float]]
"""What forks showed, and how much each counts."""


def _pairs(group: Group, forked: Sequence[Forked | None], cell: Cell | None) -> dict[Hashable, Pairs]:
    """By kind of decision: the effects that forks showed, each with the inverse of its chance to be forked."""
    found: dict[Hashable, Pairs] = {}
    for trace, made in sorted(zip(group, forked, strict=True), key=lambda pair: pair[0].trace_id):
        if made is not None:
            like = made.like if cell is None else cell(trace, made.event)
            taus, weights = found.setdefault(like, ([], []))
            taus.append(made.pair.tau)
            weights.append(1 / made.q)
    return found


def _not_forked(
    group: Group, forked: Sequence[Forked | None], net: RewardOf, cell: Cell | None
) -> list[Logged]:
    """The decisions of rollouts that were not forked, by the places of these in the group."""
    apart = [place for place, made in enumerate(forked) if made is None]
    if len(apart) < 2:  # nothing to compare with
        return []
    rows = logged([group[place] for place in apart], net, cell)
    return [structs.replace(row, rollout=apart[row.rollout]) for row in rows]


def _effect(pairs: Pairs, terms: Terms, trace: Trace, event: Event) -> tuple[Effect, str]:
    """The effect of one decision, and what it rests on."""
    num_pairs, num_terms = len(pairs[0]), len(terms[0])
    if min(num_pairs, num_terms) >= _ENOUGH:
        both = combined(pairs[0], terms[0], (pairs[1], terms[1]))
        return both, f"{num_pairs} forks and {num_terms} logged, by inverse variance"
    if num_pairs >= min(num_terms, _ENOUGH) and num_pairs:
        return effect_of(*pairs), f"forks alone, {num_pairs}: too few logged to weigh"
    if not num_terms:
        raise CreditError(
            f"the decision at {event.id} of trace {trace.trace_id} has no like in this group (the same instance and "
            "place) that was forked or logged: of a rollout one decision is forked, or all are logged. Run more "
            "rollouts, say what is alike (cell=...), or use spawn-fork, where each decision stands for itself."
        )
    return effect_of(*terms), f"logged alone, {num_terms}: too few forks to weigh"
