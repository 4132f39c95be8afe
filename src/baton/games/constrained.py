"""Games with a cost beside the reward: the best that can be had while the mean cost stays within a limit, exactly.

A constrained game says what each step costs (`ConstrainedGame.cost`); costs are no part of its rewards. What policies
can reach is a convex set of pairs (mean cost, mean return); its upper hull, from the least cost to the best return, is
worked out backwards: an option's hull is the sum of its branches' hulls by weight (segments by falling slope), a
state's is the upper hull over its options. So the optimum under any limit is read off one hull, and the slope there
is the price of the constraint: what a little more of the limit would be worth (the dual variable).

Invariant: a hull holds every vertex that some deterministic policy reaches and none that is below another two. Between
two vertices one of two policies is drawn before play; nothing deterministic does as well there.
Source: constrained Markov decision problems, Altman 1999 [M]; the hull by Minkowski sums is textbook geometry.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, cast

from msgspec import Struct

from baton.errors import UsageError
from baton.games.game import Branch, Game, Policy, State
from baton.games.solve import Solution, evaluate, reachable, solve

MAX_VERTICES = 4_096
"""On one state's hull; more is past exact solution."""
_ROUNDING = 1e-12


class ConstrainedGame(Game, frozen=True, kw_only=True):
    """A game whose steps may also cost something that is not to be traded for reward."""

    channel: ClassVar[str]
    """What its cost is called on traces."""

    def cost(self, state: State, option: str, after: State) -> float:
        """What it cost to get from one state to another by this option; zero or more."""
        raise NotImplementedError


class Vertex(NamedTuple):
    """A mean cost, and the best mean return at it."""

    cost: float
    value: float


Hull = tuple[Vertex, ...]
"""By rising cost and return, with falling slope."""


class ConstrainedOptimum(Struct, frozen=True, kw_only=True):
    """The best mean return within a limit on the mean cost."""

    limit: float
    value: float
    cost: float
    """What it takes of the limit."""
    price: float
    """What a little more of the limit is worth: the dual variable; 0 where the limit does not bind."""
    share: float
    """How often the dearer of the two policies that are mixed is played; 1 where one is enough."""


class Frontier:
    """What can be reached in a constrained game."""

    def __init__(self, game: ConstrainedGame) -> None:
        self.game = game
        game.check_exact()
        hulls: dict[State, Hull] = {}
        for state in reachable(game):
            hulls[state] = _reached(game, state, hulls)
        starts = [(b.probability, hulls[b.state]) for b in game.start()]
        self.vertices: Hull = _sum(starts)

    @property
    def unconstrained(self) -> Vertex:
        """The best return, at the least cost that it takes."""
        return self.vertices[-1]

    def optimum(self, limit: float) -> ConstrainedOptimum:
        """The best within a limit; a limit that nobody can keep is refused with the least that can be."""
        first, *rest = self.vertices
        if limit < first.cost - _ROUNDING:
            raise UsageError(
                f"{self.game.name}: no policy keeps a mean cost of {limit:g}; the least is {first.cost:g}. "
                "Allow that much, or change the game."
            )
        below = first
        for above in rest:
            if limit < above.cost:
                price = (above.value - below.value) / (above.cost - below.cost)
                share = (limit - below.cost) / (above.cost - below.cost)
                return ConstrainedOptimum(
                    limit=limit,
                    value=below.value + price * (limit - below.cost),
                    cost=limit,
                    price=price,
                    share=share,
                )
            below = above
        return ConstrainedOptimum(limit=limit, value=below.value, cost=below.cost, price=0.0, share=1.0)

    def price(self, limit: float) -> float:
        """The dual variable at a limit."""
        return self.optimum(limit).price


def mean_cost(game: ConstrainedGame, policy: Policy) -> float:
    """What a policy costs on average, exactly."""
    return evaluate(cast(Game, _Instead(game, lambda reward, cost: cost)), policy).value  # noqa: ARG005


def solve_priced(game: ConstrainedGame, price: float) -> Solution:
    """The optimum where a cost may be paid for, at a price in units of reward."""
    return solve(cast(Game, _Instead(game, lambda reward, cost: reward - price * cost)))


class _Instead:
    """A constrained game with other rewards."""

    def __init__(self, game: ConstrainedGame, made: Any) -> None:
        self._game = game
        self._made = made

    def step(self, state: State, option: str) -> Sequence[Branch]:
        return [
            Branch(p, after, self._made(reward, self._game.cost(state, option, after)))
            for p, after, reward in self._game.step(state, option)
        ]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)

    @cached_property
    def name(self) -> str:
        return self._game.name


def _reached(game: ConstrainedGame, state: State, hulls: dict[State, Hull]) -> Hull:
    options = game.options(state)
    if not options:
        return (Vertex(0.0, 0.0),)
    every: list[Vertex] = []
    for option in options:
        parts = []
        for p, after, reward in game.step(state, option):
            cost = game.cost(state, option, after)
            if cost < 0:
                raise UsageError(f"{game.name}: a step from {state} costs {cost:g}; costs are zero or more.")
            parts.append((p, tuple(Vertex(c + cost, v + reward) for c, v in hulls[after])))
        every += _sum(parts)
    found = _hull(every)
    if len(found) > MAX_VERTICES:
        raise UsageError(
            f"{game.name}: what can be reached has more than {MAX_VERTICES:,} corners, which is past exact "
            "solution. Make the game smaller with --set."
        )
    return found


def _sum(parts: Sequence[tuple[float, Hull]]) -> Hull:
    """The weighted sum of hulls: their starts, and then all their segments, the steepest first."""
    cost = sum(p * hull[0].cost for p, hull in parts)
    value = sum(p * hull[0].value for p, hull in parts)
    segments = [
        (p * (b.cost - a.cost), p * (b.value - a.value)) for p, hull in parts for a, b in pairwise(hull)
    ]
    segments.sort(key=lambda segment: segment[1] / segment[0], reverse=True)
    found = [Vertex(cost, value)]
    for across, up in segments:
        cost, value = cost + across, value + up
        found.append(Vertex(cost, value))
    return tuple(found)


def _hull(points: Sequence[Vertex]) -> Hull:
    """The upper hull, from the least cost (the best return there) to the best return."""
    found: list[Vertex] = []
    for point in sorted(points, key=lambda v: (v.cost, -v.value)):
        if found and (point.value <= found[-1].value + _ROUNDING or point.cost <= found[-1].cost + _ROUNDING):
            continue  # dearer and no better
        while len(found) > 1 and _below(found[-2], found[-1], point):
            found.pop()
        found.append(point)
    return tuple(found)


def _below(a: Vertex, b: Vertex, c: Vertex) -> bool:
    """Whether b is on or below the line from a to c."""
    return (b.value - a.value) * (c.cost - a.cost) <= (c.value - a.value) * (b.cost - a.cost) + _ROUNDING
