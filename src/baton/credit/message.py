"""Credit on messages: what was said against what was said instead, in the same context."""

from __future__ import annotations

from collections.abc import Hashable
from statistics import fmean
from typing import Literal

from baton.credit.acts import kind_of, unit_of
from baton.credit.baseline import std
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
from baton.credit.tree import Tree, context_key, event_steps
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

__all__ = ["siblings"]

Place = tuple[Hashable, Hashable]
"""The context an event stands in, and which alternative of it this is."""


@estimator(
    "siblings",
    "message",
    "tool_call",
    "orchestrator",
    needs=["group", "shared_prefixes"],
    source="C3, arXiv 2603.06859",
    evidence="C",
)
def siblings(
    group: Group,
    *,
    unit: CreditUnit = "message",
    reward: RewardOf = team_return,
    context: Literal["prefix", "observation"] = "prefix",
) -> Credits:
    """A_j = signal_j - mean of its siblings' signals; signal = mean return of the rollouts below message j.

    Siblings are all that the same agent did instead in the same context: the whole trace before it
    (`context="prefix"`), or all that the agent itself was shown (`"observation"`). Events without siblings get no
    credit; what an intervention put there is a sibling and gets none itself. Standard error: the continuations
    of j, and the spread of its siblings (of one sibling, its continuations). None: either side was run once.
    Source: C3, arXiv 2603.06859 [C], [P].
    """
    totals = returns(group, reward, at_least=2, what="siblings")
    tree = Tree.of([event_steps(trace) for trace in group]) if context == "prefix" else None
    places = [
        _by_prefix(trace, tree.paths[rollout]) if tree is not None else _by_observation(trace)
        for rollout, trace in enumerate(group)
    ]
    below: dict[Hashable, dict[Hashable, dict[int, float]]] = {}  # context -> alternative -> rollout -> R
    for rollout, found in enumerate(places):
        for where, which in found.values():
            below.setdefault(where, {}).setdefault(which, {})[rollout] = totals[rollout]
    credits: Credits = []
    for trace, found in zip(group, places, strict=True):
        mine = []
        for event_id, (where, which) in found.items():
            if unit_of(trace.event(event_id)) != unit:
                continue
            others = [list(seen.values()) for key, seen in below[where].items() if key != which]
            if others:
                value, error = _against(list(below[where][which].values()), others)
                mine.append(
                    make_credit(
                        "siblings",
                        unit,
                        event_id,
                        value,
                        stderr=error,
                        assumes=(f"same {context}, same state",),
                    )
                )
        credits.append(mine)
    if not any(credits):
        raise CreditError(
            f"no two of these {len(group)} rollouts part at a {unit} event in the same context, so there are no "
            "siblings to compare. Fork a trace at such an event (`baton fork TRACE --at EVENT --replace TEXT`) and "
            "give the forks too, or use context='observation'."
        )
    return credits


def _against(mine: list[float], others: list[list[float]]) -> tuple[float, float | None]:
    signals = [fmean(values) for values in others]
    value = fmean(mine) - fmean(signals)
    against = signals if len(signals) > 1 else others[0]
    if len(mine) < 2 or len(against) < 2:
        return value, None
    return value, (std(mine) ** 2 / len(mine) + std(against) ** 2 / len(against)) ** 0.5


def _by_prefix(trace: Trace, path: list[int]) -> dict[str, Place]:
    return {
        event.id: ((path[place], event.agent), path[place + 1])
        for place, event in enumerate(trace.events)
        if kind_of(event) is not None
    }


def _by_observation(trace: Trace) -> dict[str, Place]:
    steps = event_steps(trace)
    earlier: dict[str, tuple[Hashable, ...]] = {}  # call -> what it has said so far
    found: dict[str, Place] = {}
    for event, step in zip(trace.events, steps, strict=True):
        if event.call is None:
            continue
        before = earlier.get(event.call, ())
        earlier[event.call] = (*before, step)
        if kind_of(event) is not None:
            found[event.id] = ((event.agent, context_key(trace, event.call), before), step)
    return found
