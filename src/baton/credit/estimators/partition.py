"""Exact partition: channels that sum to R - baseline on every trace, with luck as a channel of its own.

    c_e = V(G<=e) - V(G<e), in `seq` order, V(G<first) = baseline, and after the last event R itself.

The sum telescopes. What agents chose is credit, in the one unit each event has; what nobody chose (results of
tools, people, forced stops) is luck and stays out of gradients. A finer estimator (message replay, paired
forks, stop values) estimates c_e at its own events and stands there in its place; the difference is luck too,
so the total holds whatever is stacked. Layers on several levels (decisions, messages, agents, the team) may be stacked:
a coarser one is left with what the finer ones did not give (`baton.credit.core.layers`). Two estimators of one level on
one event are an error. One trace tells nothing of its own errors: telescoped credits have a standard error from the
`telescope` estimator, which sees a group.
Source: the survey (arXiv 2605.02801) asks for such a partition; telescoping is ours [I].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from baton.credit.core.covering import Covering
from baton.credit.core.layers import what_is_left
from baton.credit.estimator import CreditError, Prefix, RewardOf, Value, make_credit
from baton.trace.acts import unit_of
from baton.trace.outcome import team_return
from baton.trace.records import Credit
from baton.trace.trace import Trace


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
    `estimation` (stacked estimates against the telescoped terms they stand for, and against each other)."""

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
    covering = Covering(trace)
    covered = {place for layer in layers for credit in layer for place in covering.holding(credit)}
    for credit in (credit for layer in layers for credit in layer):
        if not covering.holding(credit):
            raise CreditError(
                f"the credit of {credit.estimator} on {credit.unit} {credit.target} covers no event that an agent of "
                f"trace {trace.trace_id} chose, so it stands for no part of its return."
            )
    stacked = [credit for layer in what_is_left(trace, layers) for credit in layer]
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
