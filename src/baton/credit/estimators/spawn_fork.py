"""Credit of spawning and of not spawning: both branches, so that the one not taken counts too.

On-policy data cannot tell what the other branch would have given (Observation 2 of the survey).
- Paired forks: at one decision of a trace, chosen with logged probability, the prefix is run on both ways
  under the same random numbers: tau = R1 - R0 - l (cost1 - cost0).
- Off the forks, and both together: `baton.credit.estimators.spawn_log`.
The arithmetic and its sources: `baton.credit.estimators.spawn_effect`. Paired forks over a team's trace [I].
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Literal

import numpy as np
from msgspec import Struct

from baton.credit.core.baseline import BY_SPREAD, pooled
from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator, make_credit
from baton.credit.estimators.spawn_effect import centred, effect_of
from baton.credit.estimators.stop_value import action_of
from baton.settings import Chance, Count
from baton.team.action import Action, Spawn
from baton.team.clock import uniform
from baton.team.forks import Cost, Forks
from baton.team.intervene import BarAgent, Drop, Force, Intervention
from baton.team.surface import Parsed
from baton.trace.outcome import team_return
from baton.trace.records import Event
from baton.trace.trace import Trace

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
        and (event.type == "spawn" or any(map(_spawns, event.options or ())))
    ]


def _spawns(option: str) -> bool:
    action = action_of(option)
    if action is None:  # a log from elsewhere may name its options by their verbs alone
        return option.split(maxsplit=1)[:1] == ["spawn"]
    return isinstance(action, Spawn)


def check_decided(group: Group) -> None:
    """Raises where nobody in a group had a choice to spawn."""
    if not any(decisions_of(trace) for trace in group):
        raise CreditError(
            f"in none of these {len(group)} traces did a policy choose whether to spawn, so there is no such credit. A "
            "choice is a spawn, or an event with a spawn among its `options`."
        )


def propensity_of(event: Event) -> float:
    """The recorded chance of a spawn at a decision, over all options that spawn."""
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        return math.fsum(p for option, p in chances if _spawns(option))
    if event.type == "spawn" and event.propensity is not None:
        return event.propensity
    raise CreditError(
        f"event {event.id} has no propensity, so the chance of the branch not taken is not known. Record runs with "
        "an engine that gives log-probs, or with option_propensities."
    )


def choose_fork(trace: Trace, rate: float, *, seed: int = 0) -> tuple[Event, float] | None:
    """At most one decision of a trace to fork, and the probability with which this one is chosen."""
    if not 0 < rate <= 1:
        raise CreditError(f"rate is {rate}, the share of traces to fork; expected above 0 and up to 1.")
    found = decisions_of(trace)
    if not found:
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
        stderr=found.stderr,
        differences=found.terms,
        cost=Cost(runner.cost.tokens - before.tokens, runner.cost.calls - before.calls),
    )


def other_branch(runner: Forks, event: Event, without: Without = "drop") -> Intervention:
    """The branch not taken: the likeliest recorded option of the other kind, or just no spawn."""
    spawned = event.type == "spawn"
    if event.options is not None and event.option_propensities is not None:
        chances = zip(event.options, event.option_propensities, strict=True)
        others = [(p, option) for option, p in chances if _spawns(option) != spawned and p > 0]
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
    decisions=("spawn",),
    source="both branches at a decision under common random numbers",
    evidence="I",
)
async def spawn_fork(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    rate: Chance = 1.0,
    num_replicates: Count = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    seed: int = 0,
) -> Credits:
    """tau = R1 - R0 - l (cost1 - cost0), A_spawn = (1-p) tau / q, A_noop = -p tau / q; both branches share their luck.

    At most one spawn decision of a trace is forked, with probability q; the others have credit zero, so that the
    mean is right. Standard error: of tau over the replicates; from one replicate, the spread of tau over the
    group's decisions at the same place of the same task, which holds what their effects differ by as well. None:
    one fork alone, or forks that all came out alike.
    Source: both branches at a decision under common random numbers [I]; centring over two actions [M].
    """
    check_decided(group)
    forked = [
        await fork_one(
            runner,
            trace,
            rate=rate,
            num_replicates=num_replicates,
            token_price=token_price,
            without=without,
            seed=seed,
            reward=reward,
        )
        for trace in group
    ]
    alike = pooled((made.like, made.pair.tau) for made in forked if made is not None)
    out: Credits = []
    for made in forked:
        if made is None:
            out.append([])
            continue
        error = made.pair.stderr if num_replicates > 1 else alike[made.like]
        share = (1 - made.p if made.spawned else made.p) / made.q
        out.append(
            [
                make_credit(
                    "spawn-fork",
                    "orchestrator",
                    made.event.id,
                    float(centred(made.pair.tau, made.p, made.spawned)) / made.q,
                    stderr=None if error is None else error * share,
                    cost=made.pair.cost,
                    assumes=(
                        "tools in the cone are pure",
                        f"forked with probability {made.q:g}, and weighed by its inverse",
                        "a decision that was not forked has credit zero",
                        "error: over replicates" if num_replicates > 1 else BY_SPREAD,
                    ),
                )
            ]
        )
    return out


class Forked(Struct, frozen=True, kw_only=True):
    """A decision that was run both ways."""

    event: Event
    like: Hashable
    """Task and place among its trace's decisions: what it may be compared with."""
    p: float
    """Recorded chance of a spawn."""
    q: float
    """Probability with which it was forked."""
    spawned: bool
    pair: SpawnPair


async def fork_one(
    runner: Forks,
    trace: Trace,
    *,
    rate: float = 1.0,
    num_replicates: int = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    seed: int = 0,
    reward: RewardOf = team_return,
) -> Forked | None:
    """At most one decision of a trace, both ways. None: none was chosen."""
    chosen = choose_fork(trace, rate, seed=seed)
    if chosen is None:
        return None
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
    place = [other.id for other in decisions_of(trace)].index(event.id)
    like = (trace.header.task_id, place)
    return Forked(event=event, like=like, p=p, q=q, spawned=event.type == "spawn", pair=made)
