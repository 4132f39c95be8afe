"""Exact partition: channels that sum to R - baseline on every trace, with luck as a channel of its own.

    c_e = V(G<=e) - V(G<e), in `seq` order, V(G<first) = baseline, and after the last event R itself.

The sum telescopes. What agents chose is credit, in the one unit each event has; what nobody chose (results of
tools, people, forced stops) is luck and stays out of gradients. A finer estimator (message replay, paired
forks, stop values) estimates c_e at its own events and stands there in its place; the difference is luck too,
so the total holds whatever is stacked. Two estimators on one event are an error. One trace tells nothing of its
own errors: telescoped credits have a standard error from the `telescope` estimator, which sees a group.
Source: the survey (arXiv 2605.02801) asks for such a partition; telescoping is ours [I].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from baton.credit.core.baseline import seen, std
from baton.credit.core.covering import Covering, check_disjoint
from baton.credit.core.tree import Tree, event_steps, tree_value
from baton.credit.estimator import (
    CreditError,
    Credits,
    Group,
    Prefix,
    RewardOf,
    Value,
    estimator,
    make_credit,
    returns,
)
from baton.trace.acts import unit_of
from baton.trace.outcome import team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit


class Partition(Struct, frozen=True, kw_only=True, dict=True):
    """Where the difference between a rollout and what was expected came from."""

    total: float
    """R."""
    baseline: float
    """E[R] before the first event."""
    credits: tuple[Credit, ...]
    """What agents earned; these go to the gradient."""
    luck: dict[str, float]
    """What they did not: `environment` (events nobody chose), `outcome` (the return against the value at the end),
    `estimation` (stacked estimates against the telescoped terms they stand for)."""

    @cached_property
    def channels(self) -> dict[str, float]:
        """Estimator and unit -> its sum; luck last."""
        found: dict[str, list[float]] = {}
        for credit in self.credits:
            found.setdefault(f"{credit.estimator}/{credit.unit}", []).append(credit.value)
        return {name: math.fsum(values) for name, values in found.items()} | {
            "luck": math.fsum(self.luck.values())
        }

    @property
    def residual(self) -> float:
        """R - baseline - sum of channels: rounding, and nothing else."""
        return math.fsum((self.total, -self.baseline, *(-value for value in self.channels.values())))


def partition(
    trace: Trace, *layers: Sequence[Credit], value: Value, reward: RewardOf = team_return
) -> Partition:
    """Split R - baseline over all events of a trace; `layers` of credits stand in for the events they cover."""
    stacked = [credit for layer in layers for credit in layer]
    check_disjoint(trace, stacked)
    covering = Covering(trace)
    covered = {place for credit in stacked for place in covering.of(credit)}
    for credit in stacked:
        if not covering.of(credit):
            raise CreditError(
                f"the credit of {credit.estimator} on {credit.unit} {credit.target} covers no event that an agent of "
                f"trace {trace.trace_id} chose, so it stands for no part of its return."
            )
    total = float(reward(trace))
    values = [float(value(Prefix(trace, count))) for count in range(len(trace.events) + 1)]
    rest, replaced, environment = [], [], []
    for place, event in enumerate(trace.events):
        share = values[place + 1] - values[place]
        unit = unit_of(event)
        if unit is None:
            environment.append(share)
        elif place in covered:
            replaced.append(share)
        else:
            notes = ("the values of prefixes given are right",)
            rest.append(make_credit("telescope", unit, event.id, share, assumes=notes))
    return Partition(
        total=total,
        baseline=values[0],
        credits=(*stacked, *rest),
        luck={
            "environment": math.fsum(environment),
            "outcome": total - values[-1],
            "estimation": math.fsum((*replaced, *(-credit.value for credit in stacked))),
        },
    )


@estimator(
    "telescope",
    "orchestrator",
    "message",
    "tool_call",
    needs=["values or shared_prefixes"],
    source="exact partition, ours; asked for in arXiv 2605.02801",
    evidence="I",
)
def telescope(
    group: Group,
    *,
    unit: CreditUnit = "orchestrator",
    value: Value | None = None,
    reward: RewardOf = team_return,
) -> Credits:
    """c_e = V(G<=e) - V(G<e): how far each event moved the expected return. All events sum to R - baseline.

    Without a critic, `value` is the mean return of the rollouts of this group that begin alike, which tells
    events apart only where rollouts part (forks, or small action spaces).
    Standard error, without a critic: with m of the n rollouts through the event, and s their spreads,
    (1 - m/n) sqrt(s_m^2/m + s_rest^2/(n-m)); None where no rollout did anything else. With a critic: what the
    group's returns cannot tell of it, sqrt(e_k^2 + e_{k+1}^2) with e_k^2 = mean (R - V)^2 / n over the n prefixes of
    k events; None where no other rollout got that far.
    Source: exact partition [I].
    """
    critic = _asked_once(tree_value(group, reward) if value is None else value)
    totals = returns(group, reward)
    split = [partition(trace, value=critic, reward=reward) for trace in group]
    if value is None:
        errors, meaning = _tree_errors(group, totals), "error: the spread of the rollouts on either side"
    else:
        errors, meaning = _critic_errors(group, totals, critic), "error: what the group's returns cannot tell"
    return [
        [
            replace(credit, stderr=known[trace.position[credit.target]], assumes=(*credit.assumes, meaning))
            for credit in found.credits
            if credit.unit == unit
        ]
        for trace, found, known in zip(group, split, errors, strict=True)
    ]


def _asked_once(value: Value) -> Value:
    """A critic may be a large model."""
    known: dict[tuple[int, int], float] = {}

    def asked(prefix: Prefix) -> float:
        key = (id(prefix.trace), prefix.num_events)
        if key not in known:
            known[key] = float(value(prefix))
        return known[key]

    return asked


def _tree_errors(group: Group, totals: Sequence[float]) -> list[list[float | None]]:
    """For each event of each trace, the error of the mean of those through it less that of all who came so far."""
    tree = Tree.of([event_steps(trace) for trace in group])
    known: dict[int, float | None] = {}
    for path in tree.paths:
        for before, after in pairwise(path):
            if after not in known:
                known[after] = _split_error(tree.members[after], tree.members[before], totals)
    return [[known[node] for node in path[1:]] for path in tree.paths]


def _split_error(through: Sequence[int], came: Sequence[int], totals: Sequence[float]) -> float | None:
    inside = set(through)
    here = [totals[rollout] for rollout in through]
    rest = [totals[rollout] for rollout in came if rollout not in inside]
    both = seen([*here, *rest])  # also stands in for the spread of one alone
    if both is None or not rest:
        return None
    s, t = (std(side) if len(side) > 1 else both for side in (here, rest))
    share = len(rest) / (len(here) + len(rest))
    return share * math.sqrt(s * s / len(here) + t * t / len(rest))


def _critic_errors(group: Group, totals: Sequence[float], value: Value) -> list[list[float | None]]:
    """For each event of each trace, the error of the critic before and after it."""
    squares: dict[int, list[float]] = {}
    for trace, total in zip(group, totals, strict=True):
        for count in range(len(trace.events) + 1):
            squares.setdefault(count, []).append((total - value(Prefix(trace, count))) ** 2)
    known = {
        count: math.fsum(pool) / len(pool) ** 2 if len(pool) > 1 else None for count, pool in squares.items()
    }
    return [
        [
            None
            if (before := known[k]) is None or (after := known[k + 1]) is None
            else math.sqrt(before + after)
            for k in range(len(trace.events))
        ]
        for trace in group
    ]
