"""Credit of spawning and of not spawning: all branches, so that those not taken count too.

On-policy data cannot tell what the other branches would have given (Observation 2 of the survey). At one decision of a
trace, chosen with logged probability, the prefix is run on with every option under the same random numbers:

    A(o) = Q(o) - sum pi(o') Q(o'),   Q = R - l cost;   with two options (1-p) tau for a spawn and -p tau for none

- Where there are more options than the budget lets run, so many are drawn by their chances, and what they show counts
  by the inverse of the chance to be drawn, so the mean is right (Hansen and Hurwitz 1943).
- Off the forks, and both together: `baton.credit.estimators.spawn_log`.
What the options are: `baton.credit.estimators.spawn_options`. Forks of all branches over a team's trace [I].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from statistics import fmean
from typing import Literal

from msgspec import Struct

from baton.credit.core.baseline import BY_SPREAD, one_draw, std
from baton.credit.estimator import CreditError, Credits, Group, RewardOf, estimator, make_credit, widened
from baton.credit.estimators.spawn_effect import effect_of
from baton.credit.estimators.spawn_options import (
    BY_OPTION,
    Choice,
    check_decided,
    choice_of,
    decisions_of,
    spawns,
)
from baton.settings import Chance, Count
from baton.team.clock import uniform
from baton.team.forks import Cost, Forks
from baton.team.intervene import BarAgent, Drop, Force, Intervention
from baton.team.surface import Parsed
from baton.trace.outcome import team_return
from baton.trace.records import ROUNDING, Event
from baton.trace.trace import Trace

Without = Literal["drop", "bar"]
OVER_REPLICATES = "error: over replicates; luck that no replicate draws anew is not in it"
BOTH = "error: over replicates, or the spread of like decisions over the group where that is more"
Gains = Mapping[str, float]
"""Option -> its value less that of the option taken, unbiased. An option that is not named gained nothing."""


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


def other_branches(
    runner: Forks, choice: Choice, without: Without = "drop"
) -> tuple[Choice, dict[str, Intervention]]:
    """The branches not taken, by option, and the choice as they have it.

    Options that are no actions of this team (a log from elsewhere names them by their verbs) cannot be made to happen;
    then a spawn is compared with no spawn at all.
    """
    event, others = choice.event, [option for option in choice.chances if option != choice.taken]
    found: dict[str, Intervention] = {}
    for option in others if event.options is not None else ():
        harness = runner.team.harness
        item = harness.surface.parse(option, frozenset().union(*harness.verbs.values()))[0]
        if isinstance(item, Parsed):
            found[option] = Force(event.id, item.action)
    if len(found) == len(others) and others:
        return choice, found
    if not choice.spawned:
        lacking = next((option for option in others if option not in found), None)
        raise CreditError(
            f"{event.id} did not spawn, and "
            + (
                "its options name no spawn with a chance"
                if lacking is None
                else f"{lacking!r} is no action here"
            )
            + ", so there is no other branch."
        )
    kinds = choice.by_kind()
    return kinds, {option: no_spawn(event, without) for option in kinds.chances if not spawns(option)}


def drawn_options(choice: Choice, num_options: int, key: str) -> dict[str, float]:
    """Which of the other options to run, and what each counts for: the inverse of its chance to be drawn.

    All of them, for one each, where the budget allows; else as many draws by their chances, with replacement.
    """
    others = {option: p for option, p in choice.chances.items() if option != choice.taken}
    if len(others) <= num_options:
        return dict.fromkeys(others, 1.0)
    rest = math.fsum(others.values())
    counted: dict[str, float] = {}
    for number in range(num_options):
        point, chosen = uniform(f"{key}/{number}") * rest, next(iter(others))
        for option, p in others.items():
            chosen, point = option, point - p
            if point < 0:
                break
        counted[chosen] = counted.get(chosen, 0.0) + rest / others[chosen] / num_options
    return counted


class Forked(Struct, frozen=True, kw_only=True):
    """A decision that was run with its other options."""

    choice: Choice
    like: Hashable
    """Task and place among its trace's decisions: what it may be compared with."""
    q: float
    """Probability with which it was forked."""
    gains: tuple[Gains, ...]
    """One of each replicate."""
    complete: bool
    """Whether every option was run."""
    cost: Cost

    def contrasted(self, weights: Mapping[str, float]) -> list[float]:
        """For each replicate, the sum of the options' values by these weights, which add up to zero."""
        return [
            math.fsum(weight * gain.get(option, 0.0) for option, weight in weights.items())
            for gain in self.gains
        ]


async def fork_one(
    runner: Forks,
    trace: Trace,
    *,
    rate: float = 1.0,
    num_options: int = 4,
    num_replicates: int = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    seed: int = 0,
    reward: RewardOf = team_return,
) -> Forked | None:
    """At most one decision of a trace, with its other options. None: none was chosen."""
    chosen = choose_fork(trace, rate, seed=seed)
    if chosen is None:
        return None
    event, q = chosen
    before = runner.cost
    choice, ways = other_branches(runner, choice_of(event), without)

    def net(made: Trace) -> float:
        return reward(made) - token_price * made.costs.get("tokens", 0.0)

    gains = []
    for replicate in range(num_replicates):
        redraw = event.id if replicate else None
        taken = (await runner.fork(trace, replicate=replicate, redraw=redraw)).trace if replicate else trace
        key = f"option/{seed}/{trace.trace_id}/{event.id}/{replicate}"
        gains.append(
            {
                option: weight * (net(made.trace) - net(taken))
                for option, weight in drawn_options(choice, num_options, key).items()
                for made in [await runner.fork(trace, (ways[option],), replicate=replicate, redraw=redraw)]
            }
        )
    place = [other.id for other in decisions_of(trace)].index(event.id)
    return Forked(
        choice=choice,
        like=(trace.header.task_id, place),
        q=q,
        gains=tuple(gains),
        complete=len(ways) <= num_options,
        cost=Cost(runner.cost.tokens - before.tokens, runner.cost.calls - before.calls),
    )


@estimator(
    "spawn-fork",
    "orchestrator",
    needs=("runtime", "propensities"),
    decisions=("spawn",),
    source="every branch at a decision under common random numbers",
    evidence="I",
)
async def spawn_fork(
    group: Group,
    *,
    runner: Forks,
    reward: RewardOf = team_return,
    rate: Chance = 1.0,
    num_options: Count = 4,
    num_replicates: Count = 1,
    token_price: float = 0.0,
    without: Without = "drop",
    seed: int = 0,
) -> Credits:
    """A(o) = (Q(o) - sum pi(o') Q(o')) / q, Q = R - l cost, by forks; with two options (1-p) tau / q and -p tau / q.

    At most one spawn decision of a trace is forked, with probability q; the others have credit zero, so that the
    mean is right. Up to `num_options` other options are run there; of more, as many are drawn by their chances and
    weighed by the inverse. All branches share their luck. Standard error: the spread of A over the group's decisions at
    the same place of the same task, which holds what their effects differ by as well, and with replicates how far those
    differ; of a decision without two like it, over its replicates alone, so without the luck that no replicate draws
    anew. The chance q is in it. None: one fork alone, or forks that all came out alike.
    Source: all branches at a decision under common random numbers [I]; drawing options, Hansen and Hurwitz 1943 [M].
    """
    check_decided(group)
    forked = [
        await fork_one(
            runner,
            trace,
            rate=rate,
            num_options=num_options,
            num_replicates=num_replicates,
            token_price=token_price,
            without=without,
            seed=seed,
            reward=reward,
        )
        for trace in group
    ]
    out: Credits = []
    for made in forked:
        if made is None:
            out.append([])
            continue
        value, error, meaning = _worth(made, [other for other in forked if other is not None])
        if error is not None:  # unbiased for the variance, the choice of what to fork included
            error = math.sqrt((value**2 * (1 - made.q) / made.q + error**2) / made.q)
        some = f"{num_options} of {len(made.choice.chances) - 1} other options drawn by their chances and weighed"
        notes = (
            "tools in the cone are pure",
            BY_OPTION,
            "every option was run" if made.complete else some,
            f"forked with probability {made.q:g}, and weighed by its inverse",
            "a decision that was not forked has credit zero",
            meaning,
        )
        out.append(
            [
                make_credit(
                    "spawn-fork",
                    "orchestrator",
                    made.choice.event.id,
                    value / made.q,
                    stderr=error,
                    cost=made.cost,
                    assumes=notes,
                )
            ]
        )
    return out


def _worth(made: Forked, forked: list[Forked]) -> tuple[float, float | None, str]:
    """The advantage of the option taken, its error, and what that is of.

    Replicates draw anew what the team does and not what only a rollout has (its instance, the luck of its verifier).
    So like decisions tell: their means over replicates differ by both, unless they share their luck. Of the two the
    larger is taken.
    """
    weights = made.choice.contrast()
    own = made.contrasted(weights)
    value, options = fmean(own), frozenset(made.choice.chances)
    others = [
        other.contrasted(weights)
        for other in forked
        if other is not made and other.like == made.like and frozenset(other.choice.chances) == options
    ]
    if len(own) == 1:
        return value, one_draw([fmean(other) for other in others]), BY_SPREAD
    if len(others) < 2:
        return value, widened(effect_of(own).stderr, len(own) - 1), OVER_REPLICATES
    within, between = std(own) / math.sqrt(len(own)), std([fmean(other) for other in others])
    error, df = max((within, len(own) - 1), (between, len(others) - 1))
    known = error > ROUNDING * max(1.0, *map(abs, own))
    return value, widened(error, df) if known else None, BOTH
