"""Credit of spawning and of not spawning from a log, doubly robust by recorded propensities, alone or with forks.

The arithmetic and its sources: `baton.credit.estimators.spawn_effect`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from statistics import fmean

from msgspec import Struct

from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    returns,
    widened,
)
from baton.credit.estimators.spawn_effect import (
    Decisions,
    Effect,
    Robust,
    combined,
    effect_of,
    option_means,
)
from baton.credit.estimators.spawn_fork import Forked, Without, fork_one
from baton.credit.estimators.spawn_options import (
    BY_KIND,
    BY_OPTION,
    NONE,
    SPAWN,
    Choice,
    alike,
    check_decided,
    choice_of,
    decisions_of,
    spawns,
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
    """A(o) = mean_k sum c(o') Q_k(o'), c = 1[o] - pi, Q_k(o') = m + 1[o' taken] (R - m)/pi(o'), from a log alone.

    Of two options it is (1-p) tau for a spawn and -p tau for none, tau = m1 - m0 + d (R - m1)/p - (1-d)(R - m0)/(1-p).
    `cell` says which decisions are alike (default: the same task and place among its trace's decisions); m are cell
    means over other rollouts. A decision's effect is the mean over the decisions of its cell in the other rollouts,
    whose m leave its own rollout out as well, so it does not look at its own outcome. Where decisions of a cell had
    different options, they are compared as spawns and none, and the credit says so. Of two rollouts nobody is left to
    predict from: m is zero, which is no bias but a wide error. Standard error: the design's, by the recorded chances
    and how far returns are from m, over rollouts; None where the cell has but one other, or m was never off.
    Source: Robins, Rotnitzky and Zhao 1994; cross-fitting, Chernozhukov et al. 2018 [M]; the error [I].
    """
    check_decided(group)
    totals = returns(group, reward, at_least=2, what="spawn credit from a log")
    rows = logged(group, totals, cell)
    out: Credits = []
    for index, trace in enumerate(group):
        others = by_cell([row for row in rows if row.rollout != index])
        mine = [row for row in rows if row.rollout == index]
        out.append([_credit(row, others.get(row.like), trace) for row in mine])
    return out


def _credit(row: Logged, others: Decisions | None, trace: Trace) -> Credit:
    if others is None:
        raise CreditError(
            f"the decision at {row.choice.event.id} of trace {trace.trace_id} has no like in this group (the "
            "same instance and place), so its effect cannot be estimated from a log. Run more rollouts of the "
            "instance, say what is alike (cell=...), or use spawn-fork."
        )
    found = others.robust(row.choice.contrast()).effect()
    return make_credit(
        "spawn-doubly-robust",
        "orchestrator",
        row.choice.event.id,
        found.value,
        stderr=widened(found.stderr, found.df),
        assumes=(
            "recorded propensities are those of the policy, after masks",
            "decisions of one cell have one effect",
            row.compared,
        ),
    )


class Logged(Struct, frozen=True, kw_only=True):
    """A decision as logged."""

    rollout: int
    like: Hashable
    choice: Choice
    """Among its options, or by kind where like decisions had other ones."""
    compared: str
    """Which of the two."""
    total: float
    """The return of its rollout."""


def logged(
    group: Group, totals: Sequence[float], cell: Cell | None, by_kind: Collection[Hashable] = ()
) -> list[Logged]:
    """Every decision of a group, by the names of its rollouts: no estimate depends on their order.

    `by_kind` names cells whose options cannot be told apart.
    """
    found = [
        (index, (trace.header.task_id, place) if cell is None else cell(trace, event), choice_of(event))
        for index, trace in sorted(enumerate(group), key=lambda pair: pair[1].trace_id)
        for place, event in enumerate(decisions_of(trace))
    ]
    cells: dict[Hashable, list[Choice]] = {}
    for _, like, choice in found:
        cells.setdefault(like, []).append(choice)
    same = {like: alike(choices) and like not in by_kind for like, choices in cells.items()}
    return [
        Logged(
            rollout=index,
            like=like,
            choice=choice if same[like] else choice.by_kind(),
            compared=BY_OPTION if same[like] else BY_KIND,
            total=totals[index],
        )
        for index, like, choice in found
    ]


def by_cell(rows: Sequence[Logged]) -> dict[Hashable, Decisions]:
    """Like decisions, each with what the other rollouts predict for its options."""
    options = dict.fromkeys(option for row in rows for option in row.choice.chances)
    predicted = option_means(
        [row.like for row in rows],
        [row.choice.taken for row in rows],
        [row.total for row in rows],
        options,
        rollouts=[row.rollout for row in rows],
    )
    cells: dict[Hashable, list[int]] = {}
    for place, row in enumerate(rows):
        cells.setdefault(row.like, []).append(place)
    return {
        like: Decisions(
            rollouts=[rows[k].rollout for k in places],
            taken=[rows[k].choice.taken for k in places],
            chances=[rows[k].choice.chances for k in places],
            returns=[rows[k].total for k in places],
            predicted={option: [float(m[k]) for k in places] for option, m in predicted.items()},
        )
        for like, places in cells.items()
    }


# Credit of spawning and of not spawning from forks and from the log, each weighed by what it tells.
#
# Some rollouts are forked and give pairs; the others, another fold, give doubly robust terms. Both are samples of the
# credit of like decisions, and independent, so they are combined by inverse variance. The terms are unbiased. One
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
    num_options: Count = 4,
    num_replicates: Count = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    cell: Cell | None = None,
    seed: int = 0,
) -> Credits:
    """A = (A_f / v_f + A_d / v_d) / (1/v_f + 1/v_d), A(o) = Q(o) - sum pi(o') Q(o'), from forks and from the log.

    A_f is the mean over forked decisions, one in each rollout that is forked (a share `rate` of them), each weighed by
    1/q, q the probability with which its decision was chosen; A_d is that of doubly robust terms of the others; v are
    their variances, each half weighed by those of the other half. Both are over like decisions (`cell`; by default the
    same task and place), by option, or as spawns and none where like decisions had different options. A logged
    decision does not look at its own outcome; a forked one counts with its own branches. With fewer than 4 of a kind
    the other stands alone, and the credit says so.
    Standard error: of A, over rollouts; None where the one sample there is, or all of them alike, does not tell.
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
            num_options=num_options,
            num_replicates=num_replicates,
            without=without,
            seed=seed,
            reward=net,
        )
        for trace in group
    ]
    pairs = _by_like(group, forked, cell)
    every = logged(group, [net(trace) for trace in group], cell, _by_kind(pairs))
    rows = _not_forked(every, forked)
    out: Credits = []
    for index, (trace, made) in enumerate(zip(group, forked, strict=True)):
        others = by_cell([row for row in rows if row.rollout != index])
        out.append([])
        for row in (row for row in every if row.rollout == index):
            found, how = _effect(row, pairs.get(row.like, []), others.get(row.like), trace)
            out[-1].append(
                make_credit(
                    "spawn-combined",
                    "orchestrator",
                    row.choice.event.id,
                    found.value,
                    stderr=widened(found.stderr, found.df),
                    cost=Cost() if made is None or len(out[-1]) else made.cost,
                    assumes=(
                        "tools in the cone are pure",
                        "decisions of one cell have one effect",
                        row.compared,
                        how,
                    ),
                )
            )
    return out


def _by_like(
    group: Group, forked: Sequence[Forked | None], cell: Cell | None
) -> dict[Hashable, list[Forked]]:
    """Forked decisions by kind, in the order of their rollouts' names."""
    found: dict[Hashable, list[Forked]] = {}
    for trace, made in sorted(zip(group, forked, strict=True), key=lambda pair: pair[0].trace_id):
        if made is not None:
            like = made.like if cell is None else cell(trace, made.choice.event)
            found.setdefault(like, []).append(made)
    return found


def _by_kind(pairs: Mapping[Hashable, Sequence[Forked]]) -> set[Hashable]:
    """Cells in which a forked decision's options could not be made to happen one by one."""
    return {
        like
        for like, forked in pairs.items()
        if any(made.choice.chances.keys() != choice_of(made.choice.event).chances.keys() for made in forked)
    }


def _not_forked(rows: Sequence[Logged], forked: Sequence[Forked | None]) -> list[Logged]:
    """The decisions of rollouts that were not forked; none where there is nothing to compare with."""
    apart = {place for place, made in enumerate(forked) if made is None}
    return [row for row in rows if row.rollout in apart] if len(apart) > 1 else []


def _forks_of(row: Logged, forked: Sequence[Forked]) -> tuple[list[float], list[float]]:
    """What forks showed of a decision's credit, and how much each counts: the inverse of its chance to be forked."""
    contrast = row.choice.contrast()
    shown = [
        fmean(made.contrasted(contrast if row.compared == BY_OPTION else _of_kinds(made, contrast)))
        for made in forked
    ]
    return shown, [1 / made.q for made in forked]


def _of_kinds(made: Forked, contrast: Mapping[str, float]) -> dict[str, float]:
    """A contrast of kinds over a forked decision's own options: those of a kind by the policy's chances."""
    kinds = {option: SPAWN if spawns(option) else NONE for option in made.choice.chances}
    totals = {
        kind: math.fsum(p for o, p in made.choice.chances.items() if kinds[o] == kind) for kind in contrast
    }
    return {
        option: contrast[kinds[option]] * chance / totals[kinds[option]]
        for option, chance in made.choice.chances.items()
        if totals[kinds[option]] > 0
    }


def _effect(
    row: Logged, forked: Sequence[Forked], others: Decisions | None, trace: Trace
) -> tuple[Effect, str]:
    """The credit of one decision, and what it rests on."""
    pairs, weights = _forks_of(row, forked)
    terms: Robust | None = None if others is None else others.robust(row.choice.contrast())
    num_terms = 0 if terms is None else len(terms.terms)
    if terms is not None and min(len(pairs), num_terms) >= _ENOUGH:
        both = combined(pairs, terms.terms, (weights, terms.weights), design=terms)
        return both, f"{len(pairs)} forks and {num_terms} logged, by inverse variance"
    if len(pairs) >= min(num_terms, _ENOUGH) and pairs:
        return effect_of(pairs, weights), f"forks alone, {len(pairs)}: too few logged to weigh"
    if terms is None:
        raise CreditError(
            f"the decision at {row.choice.event.id} of trace {trace.trace_id} has no like in this group (the same "
            "instance and place) that was forked or logged: of a rollout one decision is forked, or all are logged. "
            "Run more rollouts, say what is alike (cell=...), or use spawn-fork, where each decision stands for itself."
        )
    return terms.effect(), f"logged alone, {num_terms}: too few forks to weigh"
