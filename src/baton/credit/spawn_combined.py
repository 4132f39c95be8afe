"""Credit of spawning and of not spawning from forks and from the log, each weighed by what it tells.

Some rollouts are forked and give pairs; the others, another fold, give doubly robust terms. Both are unbiased for
the effect of like decisions, and independent, so they are combined by inverse variance. The arithmetic and its
sources: `baton.credit.spawn_effect`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from baton.credit.contract import (
    Cost,
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    team_return,
)
from baton.credit.forking import Forks
from baton.credit.spawn_effect import Effect, centred, combined, effect_of
from baton.credit.spawn_fork import Forked, Without, check_decided, decisions_of, fork_one, propensity_of
from baton.credit.spawn_log import Cell, logged
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = ["spawn_combined"]

_ENOUGH = 4
"""Of a kind, to tell its variance from: two in each fold."""


@estimator(
    "spawn-combined",
    "orchestrator",
    needs=("runtime", "group", "propensities"),
    source="inverse-variance combination of paired forks and doubly robust terms of a separate fold",
    evidence="I",
)
async def spawn_combined(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    rate: float = 0.5,
    num_replicates: int = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    cell: Cell | None = None,
    seed: int = 0,
) -> Credits:
    """tau = (tau_f / v_f + tau_d / v_d) / (1/v_f + 1/v_d), A_spawn = (1-p) tau, A_noop = -p tau.

    tau_f is the mean of paired forks, one in each rollout that is forked (a share `rate` of them), tau_d that of
    doubly robust terms of the others; v are their variances, each half weighed by those of the other half. Both
    are over like decisions (`cell`; by default the same task and place). A logged decision does not look at its
    own outcome. With fewer than 4 of a kind the other stands alone, and the credit says so.
    Standard error: of tau; None where the one sample there is, or all of them alike, does not tell.
    Source: inverse-variance weighting, Cochran 1954 [M]; of forks and log, from separate folds [I].
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
    pairs, terms = _samples(group, forked, net, cell)
    out: Credits = []
    for index, (trace, made) in enumerate(zip(group, forked, strict=True)):
        cost, mine = Cost() if made is None else made.pair.cost, []
        for place, event in enumerate(decisions_of(trace)):
            like = (trace.header.task_id, place) if cell is None else cell(trace, event)
            others = [term for key, term in terms.get(like, {}).items() if key != (index, event.id)]
            tau, how = _effect(pairs.get(like, []), others, trace, event)
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


def _samples(
    group: Group, forked: Sequence[Forked | None], net: RewardOf, cell: Cell | None
) -> tuple[dict[Hashable, list[float]], dict[Hashable, dict[tuple[int, str], float]]]:
    """By kind of decision: the effects that forks showed, and the terms of rollouts that were not forked."""
    pairs: dict[Hashable, list[float]] = {}
    for trace, made in sorted(zip(group, forked, strict=True), key=lambda pair: pair[0].trace_id):
        if made is not None:
            like = made.like if cell is None else cell(trace, made.event)
            pairs.setdefault(like, []).append(made.pair.tau)
    apart = [place for place, made in enumerate(forked) if made is None]
    terms: dict[Hashable, dict[tuple[int, str], float]] = {}
    for row in logged([group[place] for place in apart], net, cell) if len(apart) > 1 else []:
        terms.setdefault(row.like, {})[apart[row.rollout], row.event.id] = row.term
    return pairs, terms


def _effect(pairs: Sequence[float], terms: Sequence[float], trace: Trace, event: Event) -> tuple[Effect, str]:
    """Of one decision, and what it rests on."""
    if min(len(pairs), len(terms)) >= _ENOUGH:
        return combined(pairs, terms), f"{len(pairs)} forks and {len(terms)} logged, by inverse variance"
    if len(pairs) >= min(len(terms), _ENOUGH) and pairs:
        return effect_of(np.array(pairs)), f"forks alone, {len(pairs)}: too few logged to weigh"
    if not terms:
        raise CreditError(
            f"the decision at {event.id} of trace {trace.trace_id} has no like in this group (the same instance and "
            "place), forked or logged. Run more rollouts, say what is alike (cell=...), or fork each: rate=1."
        )
    return effect_of(np.array(terms)), f"logged alone, {len(terms)}: too few forks to weigh"
