"""How much of a later event's worth was its own choice, and not made by what came before it.

What a later event l was worth is noise in the credit of an earlier one, unless the earlier one made l what it was. The
recorded chances tell the two apart. For any numbers g that know nothing of the rollout itself,

    z_l = g(what l was) - sum_b pi(b) g(b)

has mean 0 given everything before l, so taking z_l out of the return changes no credit of an earlier event in the mean,
whoever made l what it was: where l was as good as certain, z_l is nothing. pi is on record for events that name their
options. Of a completion only its own chance is, by its log-probabilities, so z is taken where the group said two things
at that place, as if nothing else could have been said; where it said more, pi is not known and z is 0.
Here g(b) is how much better than the mean the other rollouts did that were b at the same place, shrunk by one rollout,
and z is taken times how far it went along with the returns of the other rollouts: where worth hangs on the context, so
that g says nothing, it is left alone.
Source: control variates; with options, the action-dependent baseline of COMA (arXiv 1705.08926) [M]; over traces [I].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from baton.credit.core.likeness import Array, Place, places
from baton.credit.core.tree import said
from baton.credit.estimator import Group
from baton.trace.acts import chosen
from baton.trace.trace import Trace


class _Choice(NamedTuple):
    """What an event was, and the chances that are on record of what it might have been."""

    was: Hashable
    chances: Mapping[Hashable, float] | None
    """Of all options; None: only its own is known."""
    own: float


def free_parts(group: Group, totals: Sequence[float]) -> list[Array]:
    """z of every event of every rollout; 0 where no chances are on record."""
    paths = [places(trace) for trace in group]
    choices = [_choices(trace) for trace in group]
    did: dict[Place, dict[Hashable, list[int]]] = {}  # place -> what was done -> by which rollouts
    for rollout, (path, mine) in enumerate(zip(paths, choices, strict=True)):
        for place, choice in zip(path, mine, strict=True):
            if choice is not None:
                did.setdefault(place, {}).setdefault(choice.was, []).append(rollout)
    total = math.fsum(totals)
    found = []
    for rollout, (path, mine) in enumerate(zip(paths, choices, strict=True)):
        mean = (total - totals[rollout]) / (len(totals) - 1)
        parts = np.zeros(len(path))
        for number, (place, choice) in enumerate(zip(path, mine, strict=True)):
            if choice is not None:
                parts[number] = _free_part(choice, did[place], rollout, totals, mean)
        found.append(parts)
    return _by_fit(found, totals)


def _by_fit(parts: Sequence[Array], totals: Sequence[float]) -> list[Array]:
    """Each rollout's times the slope, from 0 to 1, of the other rollouts' returns on theirs."""
    sums, y = np.array([part.sum() for part in parts]), np.asarray(totals, dtype=float)
    found = []
    for rollout, part in enumerate(parts):
        others = np.arange(len(y)) != rollout
        z, about = sums[others], y[others] - y[others].mean()
        square = float(z @ z)
        found.append(part * min(1.0, max(0.0, float(z @ about) / square)) if square > 0 else part * 0.0)
    return found


def _choices(trace: Trace) -> list[_Choice | None]:
    heard: set[str] = set()
    found: list[_Choice | None] = []
    for event in trace.events:
        choice = None
        first = event.call is not None and event.call not in heard
        if event.call is not None:
            heard.add(event.call)
        if chosen(event) and first and event.status != "invalid":
            if event.options and event.option_propensities is not None and event.choice is not None:
                chances: dict[Hashable, float] = dict(
                    zip(event.options, event.option_propensities, strict=True)
                )
                option = event.options[event.choice]
                choice = _Choice(option, chances, chances[option])
            else:
                call = trace.call_by_id.get(event.call or "")
                if call is not None and call.logprobs is not None and call.completion_ids is not None:
                    choice = _Choice(said(trace, call.id), None, math.exp(min(0.0, math.fsum(call.logprobs))))
        found.append(choice)
    return found


def _free_part(
    choice: _Choice, did: Mapping[Hashable, list[int]], rollout: int, totals: Sequence[float], mean: float
) -> float:
    def ahead(what: Hashable) -> tuple[float, int]:
        others = [totals[j] - mean for j in did.get(what, ()) if j != rollout]
        return math.fsum(others) / (len(others) + 1), len(others)

    worth, num_same = ahead(choice.was)
    if choice.chances is not None:
        return worth - math.fsum(p * ahead(option)[0] for option, p in choice.chances.items())
    others = [what for what in did if what != choice.was]
    if not num_same or len(others) != 1:
        return 0.0
    return (1 - choice.own) * (worth - ahead(others[0])[0])
