"""Credit of spawning and of not spawning: both branches, so that the one not taken counts too.

On-policy data cannot tell what the other branch would have given (Observation 2 of the survey).
- Paired forks: at one decision of a trace, chosen with logged probability, the prefix is run on both ways
  under the same random numbers: tau = R1 - R0 - l (cost1 - cost0).
- Off the forks, doubly robust over a group, from recorded propensities.
- Width: increments k -> k+1 of a fan-out, from forks without the last ones.
The arithmetic and its sources: `baton.credit.spawn_effect`. Paired forks over a team's trace [I].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec import Struct

from baton.credit.contract import (
    Cost,
    CreditError,
    Credits,
    Group,
    RewardOf,
    estimator,
    make_credit,
    returns,
    team_return,
)
from baton.credit.forking import Forks
from baton.credit.spawn_effect import centred, doubly_robust, effect_of, group_means
from baton.team.action import Action
from baton.team.intervene import BarAgent, Drop, Force, Intervention
from baton.team.randomness import uniform
from baton.team.surface import Parsed
from baton.trace.event import Event
from baton.trace.trace import Trace

__all__ = [
    "SpawnPair",
    "choose_fork",
    "decisions_of",
    "no_spawn",
    "other_branch",
    "pair",
    "propensity_of",
    "width_increments",
]

Without = Literal["drop", "bar"]


class SpawnPair(Struct, frozen=True, kw_only=True):
    """One decision, both ways."""

    tau: float
    """R1 - R0 - l (cost1 - cost0), averaged over replicates."""
    stderr: float | None
    """None: one replicate does not tell, nor do several that came out alike."""
    differences: tuple[float, ...]
    cost: Cost = Cost()


def decisions_of(trace: Trace) -> list[Event]:
    """Events at which a policy chose whether to spawn: spawns, and choices among options with a spawn."""
    return [
        event
        for event in trace.events
        if event.call is not None
        and event.status == "ok"
        and (event.type == "spawn" or any(option.startswith("spawn") for option in event.options or ()))
    ]


def propensity_of(event: Event) -> float:
    """The recorded chance of a spawn at a decision, over all options that spawn."""
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        return math.fsum(p for option, p in chances if option.startswith("spawn"))
    if event.type == "spawn" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no propensity, so the chance of the branch not taken is not known. Record runs with "
        "an engine that gives log-probs, or with option_propensities."
    )


def choose_fork(trace: Trace, rate: float, *, seed: int = 0) -> tuple[Event, float] | None:
    """At most one decision of a trace to fork, and the probability with which this one is chosen."""
    found = decisions_of(trace)
    if not found or not 0 < rate <= 1:
        return None
    point = uniform(f"fork/{seed}/{trace.trace_id}") / rate
    return (found[int(point * len(found))], rate / len(found)) if point < 1 else None


def no_spawn(event: Event, without: Without = "drop") -> Intervention:
    """The branch without a recorded spawn: it does not happen, or the agent is not to be had."""
    if event.type != "spawn" or event.to is None:
        raise CreditError(f"{event.id} spawned nobody; name the action to put in its place.")
    return Drop(event.id) if without == "drop" else BarAgent(event.to)


async def pair(
    runner: Forks,
    trace: Trace,
    event: Event,
    other: Intervention | Action,
    *,
    num_replicates: int = 1,
    token_price: float = 0.0,
    reward: RewardOf = team_return,
) -> SpawnPair:
    """Run a decision both ways. `other`: what happens in the branch not taken (an action is forced there)."""
    before = runner.cost
    change = other if isinstance(other, Drop | BarAgent | Force) else Force(event.id, other)  # type: ignore[arg-type]  # an action
    sign = 1.0 if event.type == "spawn" else -1.0
    differences = []
    for replicate in range(num_replicates):
        redraw = event.id if replicate else None
        taken = (await runner.fork(trace, replicate=replicate, redraw=redraw)).trace if replicate else trace
        not_taken = (await runner.fork(trace, (change,), replicate=replicate, redraw=redraw)).trace
        costs = (taken.costs.get("tokens", 0.0) - not_taken.costs.get("tokens", 0.0)) * token_price
        differences.append(sign * (reward(taken) - reward(not_taken) - costs))
    found = effect_of(np.array(differences))
    return SpawnPair(
        tau=found.value,
        stderr=found.stderr if found.stderr is not None and found.stderr > 1e-12 else None,
        differences=found.terms,
        cost=Cost(runner.cost.tokens - before.tokens, runner.cost.calls - before.calls),
    )


async def width_increments(
    runner: Forks,
    trace: Trace,
    spawns: Sequence[str],
    *,
    without: Without = "bar",
    token_price: float = 0.0,
    reward: RewardOf = team_return,
) -> list[float]:
    """What each further agent of a fan-out added: R(k+1) - R(k) less its cost, luck as recorded."""
    events = [trace.event(event_id) for event_id in spawns]
    net = []
    for width in range(len(events) + 1):
        changes = [no_spawn(event, without) for event in events[width:]]
        made = (await runner.fork(trace, changes)).trace if changes else trace
        net.append(reward(made) - token_price * made.costs.get("tokens", 0.0))
    return [above - below for below, above in pairwise(net)]


def other_branch(runner: Forks, event: Event, without: Without = "drop") -> Intervention:
    """The branch not taken: the likeliest recorded option of the other kind, or just no spawn."""
    spawned = event.type == "spawn"
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        others = [(p, option) for option, p in chances if option.startswith("spawn") != spawned and p > 0]
        if others:
            harness = runner.team.harness
            verbs = frozenset().union(*harness.verbs.values())
            item = harness.surface.parse(max(others)[1], verbs)[0]
            if isinstance(item, Parsed):
                return Force(event.id, item.action)
    if not spawned:
        raise CreditError(
            f"{event.id} did not spawn, and its options name no spawn with a chance, so there is no other branch."
        )
    return no_spawn(event, without)


@estimator(
    "spawn-fork",
    "orchestrator",
    needs=("runtime", "propensities"),
    source="both branches at a decision under common random numbers",
    evidence="I",
)
async def spawn_fork(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    rate: float = 1.0,
    num_replicates: int = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    seed: int = 0,
) -> Credits:
    """Both branches of at most one spawn decision a trace, run under the same random numbers."""
    out: Credits = []
    for trace in group:
        chosen = choose_fork(trace, rate, seed=seed)
        if chosen is None:
            out.append([])
            continue
        event, q = chosen
        p = propensity_of(event)
        made = await pair(
            runner,
            trace,
            event,
            other_branch(runner, event, without),
            num_replicates=num_replicates,
            token_price=token_price,
            reward=reward,
        )
        spawned = event.type == "spawn"
        share = (1 - p if spawned else p) / q
        out.append(
            [
                make_credit(
                    "spawn-fork",
                    "orchestrator",
                    event.id,
                    float(centred(made.tau, p, spawned)) / q,
                    stderr=None if made.stderr is None else made.stderr * share,
                    cost=made.cost,
                    assumes=(
                        "tools in the cone are pure",
                        f"forked with probability {q:g}, and weighed by its inverse",
                        "a decision that was not forked has credit zero",
                    ),
                )
            ]
        )
    return out


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
    cell: Callable[[Trace, Event], Hashable] | None = None,
) -> Credits:
    """Spawn credit from a log alone: cross-fitted cell means, corrected by recorded propensities.

    `cell` says which decisions are alike (default: the same task and place among its trace's decisions). A
    decision's effect is the mean over the others of its cell, so it does not look at its own outcome.
    """
    values = returns(group, reward, at_least=2, what="spawn-doubly-robust")
    rows: list[tuple[int, Event]] = []
    cells: list[Hashable] = []
    for index, trace in enumerate(group):
        for place, event in enumerate(decisions_of(trace)):
            rows.append((index, event))
            cells.append((trace.header.task_id, place) if cell is None else cell(trace, event))
    spawned = np.array([event.type == "spawn" for _, event in rows], dtype=bool)
    p = np.array([propensity_of(event) for _, event in rows])
    r = np.array([values[index] for index, _ in rows])
    out: Credits = [[] for _ in group]
    if not rows:
        return out
    m1, m0 = group_means(cells, spawned, r)
    terms = np.array(doubly_robust(r, spawned, p, m1, m0).terms)
    members: dict[Hashable, list[int]] = {}
    for k, name in enumerate(cells):
        members.setdefault(name, []).append(k)
    for k, (index, event) in enumerate(rows):
        alike = [j for j in members[cells[k]] if j != k]
        if not alike:
            raise CreditError(
                f"the decision at {event.id} of trace {group[index].trace_id} has no like in this group, so its effect "
                "cannot be estimated from a log. Run more rollouts of the task, or use spawn-fork."
            )
        tau = effect_of(terms[alike])
        share = 1 - p[k] if spawned[k] else p[k]
        out[index].append(
            make_credit(
                "spawn-doubly-robust",
                "orchestrator",
                event.id,
                float(centred(tau.value, p[k], spawned[k])),
                stderr=None if tau.stderr is None else tau.stderr * float(share),
                assumes=(
                    "recorded propensities are those of the policy, after masks",
                    "decisions of one cell have one effect",
                ),
            )
        )
    return out
