"""Credit in layers: estimates on several levels at once, of which every event stands in one and which add up.

    token < tool call, message, decision < turn < agent < role < team

Where two layers speak of the same events, the finer one is taken as it is, and the coarser one is left with

    A_T - (what finer layers gave to the events of T),

which stands on the events of T that they left open, and on no others. So what all layers give to an agent sums to what
the coarsest of them says of it. Where finer layers left nothing open, the two estimates disagree by that much about the
same events: it is nobody's credit, and falls to luck (`baton.credit.estimators.partition`).

Invariant: layers that cover different events are left as they are, and so is a single one. Two layers on one level that
share an event are an error: neither is finer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import structs

from baton.credit.core.covering import Covering, check_disjoint
from baton.trace.records import Credit
from baton.trace.trace import Trace
from baton.trace.vocabulary import CreditUnit

LEVELS: Final[dict[CreditUnit, int]] = {
    "token": 0,
    "tool_call": 1,
    "message": 1,
    "orchestrator": 1,
    "turn": 2,
    "agent": 3,
    "role": 4,
    "team": 5,
}
"""How coarse each unit is: units of one level never share an event, but for two estimates of the same one."""
LEFT: Final = "finer layers' share taken off"


def by_level(credits: Iterable[Credit]) -> list[list[Credit]]:
    """The credits of each level that has any, from the finest on."""
    found: dict[int, list[Credit]] = {}
    for credit in credits:
        found.setdefault(LEVELS[credit.unit], []).append(credit)
    return [found[level] for level in sorted(found)]


def check_layers(trace: Trace, credits: Iterable[Credit]) -> None:
    """Raises where two estimates of one level share an event, naming both."""
    for level in by_level(credits):
        check_disjoint(trace, level)


def what_is_left(trace: Trace, layers: Sequence[Sequence[Credit]]) -> list[list[Credit]]:
    """What each layer is left with, in the order given. A credit that has no event left to stand on is left out."""
    every = [credit for layer in layers for credit in layer]
    levels = by_level(every)
    if len(levels) < 2:
        check_layers(trace, every)
        return [list(layer) for layer in layers]
    covering = Covering(trace)
    given: dict[int, list[float]] = {}  # first event of a finer credit -> what these gave
    covered: set[int] = set()
    left: dict[int, Credit] = {}  # by identity: two records may be equal
    for level in levels:
        check_disjoint(trace, level)
        kept = []
        for credit in level:
            places = covering.holding(credit)
            inner = [value for place in places for value in given.get(place, ())]
            if covered.issuperset(places) and places:
                continue
            mine = credit
            if not covered.isdisjoint(places):
                value = math.fsum((credit.value, *(-value for value in inner)))
                mine = structs.replace(credit, value=value, stderr=None, assumes=(*credit.assumes, LEFT))
            left[id(credit)] = mine
            kept.append((places, mine.value))
        for places, value in kept:
            if places:
                given.setdefault(places[0], []).append(value)
                covered.update(places)
    return [[left[id(credit)] for credit in layer if id(credit) in left] for layer in layers]
