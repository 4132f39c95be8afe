"""Credit by telescoping: how far each event moved the expected return, by a critic or by the group alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from baton.credit.core.baseline import seen, std
from baton.credit.core.tree import Tree, event_steps, tree_value
from baton.credit.estimator import Credits, Group, Prefix, RewardOf, Value, estimator, returns
from baton.credit.estimators.partition import partition
from baton.trace.outcome import team_return
from baton.trace.vocabulary import CreditUnit


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
