"""Credit by telescoping: how far each event moved the expected return, by a critic or by the group alone.

    c_e = V(G<=e) - V(G<e)

With a critic this is `baton.credit.estimators.partition`, on one unit. Without one the group is all there is. Rollouts
that began exactly alike are few where answers vary, and a mean that holds the rollout's own return credits the first
place where rollouts part, whatever it was worth. So the two values are made differently:

    V(G<e)    is V_{-i}, borrowed from the other rollouts by what they have in common with this one up to there
              (`baton.credit.core.borrow`): the same whatever R_i is, so it can be wrong without a bias
    V(G<=e)   is the mean return of the rollouts that are exactly the same up to e, this one among them

Where rollouts share their prefixes this is the mean below less the mean before; where nothing can be borrowed it is
leave-one-out. What later events are worth is noise in it for e. It is taken out without a bias where the chances of
those events are on record (`baton.credit.core.free_choice`). As far as V explains it, it can be taken out anyway
(`later` below 1), at a price: where e made the later event what it was, and no other rollout is like e, its worth goes
to the later one. Source: ours [I].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from msgspec.structs import replace

from baton.credit.core.baseline import seen, std
from baton.credit.core.borrow import Borrowed, borrowed
from baton.credit.core.covering import ALONE, BORROWED, EXACT, NO_CHOICE
from baton.credit.core.free_choice import free_parts
from baton.credit.core.likeness import Array
from baton.credit.core.tree import Tree, event_steps, tree_value
from baton.credit.estimator import (
    Credits,
    Group,
    Prefix,
    RewardOf,
    Value,
    estimator,
    make_credit,
    returns,
    widened,
)
from baton.credit.estimators.partition import partition
from baton.settings import Share
from baton.trace.acts import acts
from baton.trace.outcome import team_return
from baton.trace.records import ROUNDING, Credit
from baton.trace.vocabulary import CreditUnit


@estimator(
    "telescope",
    "orchestrator",
    "message",
    "tool_call",
    needs=["values or group"],
    source="exact partition, ours; asked for in arXiv 2605.02801",
    evidence="I",
)
def telescope(
    group: Group,
    *,
    unit: CreditUnit = "orchestrator",
    value: Value | None = None,
    reward: RewardOf = team_return,
    compare: Literal["likeness", "prefix"] = "likeness",
    later: Share = 1.0,
) -> Credits:
    """c_e = V(G<=e) - V(G<e): how far each event moved the expected return.

    With a critic `value`, all events and luck sum to R - V(empty). Without one, V(G<=e) is the mean return of the
    rollouts that are the same up to e, and V(G<e) is borrowed from the other rollouts that are alike. `later` says
    how much of what the values say later events were worth counts for e too: all of it (1) has no bias, none (0)
    has the least noise. `compare="prefix"` takes means of the rollouts that begin exactly alike, itself among them, as
    0.1 did: where answers vary it credits the first place where rollouts part.
    Standard error without a critic: with s^2 the spread of returns about V(G<=e) and m of the n - 1 others that did
    the same up to e, sqrt(s^2 (1 - 2m/(n-1)) / (m+1) + Var V(G<e)), widened for few rollouts; where nobody shares the
    context of e, s^2 is the spread about V(G<e), so that it holds what the context may have been worth. With "prefix",
    of means on either side, (1 - m/n) sqrt(s_m^2/m + s_rest^2/(n-m)). With a critic: what the group's returns cannot
    tell of it, sqrt(e_k^2 + e_{k+1}^2) with e_k^2 = mean (R - V)^2 / n over the n prefixes of k events. None: no
    rollout did anything else there, the others came out all alike, or no other got that far.
    Source: exact partition [I].
    """
    if value is None and compare == "likeness":
        # Taken by name, so that not even rounding depends on the order they are given in.
        order = sorted(range(len(group)), key=lambda place: group[place].trace_id)
        by_name = _by_likeness([group[place] for place in order], unit, reward, later)
        return [mine for _, mine in sorted(zip(order, by_name, strict=True), key=lambda each: each[0])]
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


def _by_likeness(group: Group, unit: CreditUnit, reward: RewardOf, later: float) -> Credits:
    totals = returns(group, reward, at_least=2, what="telescope without a critic")
    tree = Tree.of([event_steps(trace) for trace in group])
    found = borrowed(group, totals)
    to_come = _to_come(group, totals, found, later)
    rounding = ROUNDING * max(1.0, *map(abs, totals))
    out: Credits = []
    for rollout, trace in enumerate(group):
        mine: list[Credit] = []
        others = [total for j, total in enumerate(totals) if j != rollout]
        alike = (
            max(others) - min(others) <= rounding
        )  # which shows no spread, and does not mean that there is none
        spread = std(others) ** 2 if len(others) > 1 else 0.0  # one tells none, and states no error
        for place, event in acts(trace, unit):
            told = _told(tree, found, rollout, place)
            worth, error, unshared = 0.0, math.nan, False
            if told != NO_CHOICE:
                same = tree.members[tree.paths[rollout][place + 1]]
                worth = math.fsum(to_come[j][place + 1] for j in same) / len(same)
                worth -= found.values[rollout][place]
                left = _share_left(found, totals, to_come, rollout, place)
                unshared = len(tree.members[tree.paths[rollout][place]]) == 1
                error = _error(found, rollout, place, len(same) - 1, left, unshared, spread)
            notes = [told, _OF_DRAW]
            notes += [_CONTEXT] if unshared else []
            notes += ["e did not make later events what they were"] if later != 1.0 else []
            mine.append(
                make_credit(
                    "telescope",
                    unit,
                    event.id,
                    worth if abs(worth) > rounding else 0.0,
                    stderr=error if error > rounding and not alike else None,
                    assumes=tuple(notes),
                )
            )
        out.append(mine)
    return out


_MORE = 2
"""Rollouts of which likeness tells nothing, to tell spreads by."""
_OF_DRAW = "error: of one draw, and of the values borrowed"
_CONTEXT = "error: nobody shares its context, so what that may have been worth is in it"


def _to_come(group: Group, totals: Sequence[float], found: Borrowed, later: float) -> list[Array]:
    """After each prefix: the return, less what the events to come were worth as far as that is not to count."""
    out = []
    parts = free_parts(group, totals)
    for total, mine, own in zip(totals, found.values, parts, strict=True):
        ahead = np.append(np.cumsum(own[::-1])[::-1], 0.0)
        out.append(total - later * ahead - (1 - later) * (mine[-1] - mine))
    return out


def _share_left(
    found: Borrowed, totals: Sequence[float], to_come: Sequence[Array], rollout: int, place: int
) -> float:
    """How much of the spread of the other rollouts' returns is left by taking out what later events were worth."""
    left = whole = 0.0
    for j, (value, ahead) in enumerate(zip(found.values, to_come, strict=True)):
        if j != rollout:
            at = min(place + 1, len(value) - 1)
            left += (ahead[at] - value[at]) ** 2
            whole += (totals[j] - value[at]) ** 2
    return left / whole if whole > 0 else 1.0


def _error(
    found: Borrowed,
    rollout: int,
    place: int,
    num_same: int,
    share_left: float,
    unshared: bool,
    overall: float,
) -> float:
    """Of a mean over those that did the same, less a value that the same returns went into as others'.

    Likeness may happen to tell few returns, of 0 or 1 above all, better than they can be told. So spreads are those of
    the other rollouts and two more, of which it tells nothing.

    Of a context that nobody shares, what others say of it may be off by all that returns differ by before e, but for
    what luck after e is known to be: that e was worth it, or that its context was, looks the same.
    """
    num_others = len(found.values) - 1
    before, after = (
        ((num_others - 1) * found.spreads[rollout][at] + _MORE * overall) / (num_others - 1 + _MORE)
        for at in (place, place + 1)
    )
    spread = after * share_left
    if unshared:
        spread = max(spread, before - after * (1 - share_left))
    own = spread / (num_same + 1) * (1 - 2 * num_same / num_others)
    error = math.sqrt(max(0.0, own + found.variances[rollout][place]))
    return widened(error, num_others - 1) or math.nan


def _told(tree: Tree, found: Borrowed, rollout: int, place: int) -> str:
    """What the credit of an event rests on."""
    before, after = tree.paths[rollout][place : place + 2]
    if len(tree.members[after]) == len(tree.paths):
        return NO_CHOICE
    if len(tree.members[before]) > 1:
        return EXACT
    return BORROWED if found.known[rollout][place + 1] else ALONE


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
