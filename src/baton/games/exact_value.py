"""The exact value of any prefix of a game's trace: earned so far, and what is to come, of a policy or of the optimum.

    before a choice                    earned + V(s)
    between a choice and its draw      earned + Q(s, a) = earned + sum over branches of p (r + V(s'))
    after the draw                     earned + r + V(s')

So a choice moves the value by its advantage Q - V, a draw by r + V(s') - Q, whose mean over nature is zero; and an
exact partition (`baton.credit`) with this value puts all that nobody chose into luck. Of the optimum, a choice moves
it by minus its regret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import fsum
from typing import Protocol

from baton.games.game import Game, Policy, State
from baton.games.game_trace import played
from baton.games.on_team import steps_of
from baton.games.solve import evaluate, solve
from baton.trace.outcome import cut_off
from baton.trace.trace import Trace


class AskedPrefix(Protocol):
    """The first `num_events` events of a trace (see `baton.credit.estimator.Prefix`)."""

    @property
    def trace(self) -> Trace: ...
    @property
    def num_events(self) -> int: ...


class ExactValue:
    """Values of prefixes of one game's traces. Called with a prefix, it is a critic."""

    def __init__(self, game: Game, policy: Policy | None = None) -> None:
        """Of `policy` from the prefix on; without one, of the best play from there on."""
        self.game = game
        found = solve(game) if policy is None else evaluate(game, policy)
        self.values: Mapping[State, float] = found.values
        self._outlines = lru_cache(64)(self._outline)

    def q(self, state: State, option: str) -> float:
        """The value of an option before nature draws."""
        return fsum(b.probability * (b.reward + self.values[b.state]) for b in self.game.step(state, option))

    def __call__(self, prefix: AskedPrefix) -> float:
        return self._outlines(_Whole(prefix.trace))[prefix.num_events]

    def _outline(self, whole: _Whole) -> list[float]:
        """The value before each event and at the end."""
        trace = whole.trace
        play, steps = played(trace, self.game), steps_of(trace.events)
        state = steps[0].state if steps else play.end
        found, earned, now = [], 0.0, self.values[state]
        chosen = {step.event: step for step in steps}
        drawn = {step.drawn: step for step in steps}
        found.append(now)
        forced = cut_off(trace)
        for place, event in enumerate(trace.events):
            if place in chosen:
                now = self.q(chosen[place].state, chosen[place].option)
            if place in drawn:
                earned = fsum((earned, drawn[place].reward))
                now = self.values[drawn[place].after]
            if forced and event.status == "forced" and event.decision == "stop" and play.cut_off:
                now = play.quit_value
            found.append(earned + now)
        return found


class _Whole:
    """A trace as a key: itself, not what it says."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    def __hash__(self) -> int:
        return id(self.trace.events)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Whole) and other.trace.events is self.trace.events


@lru_cache(8)
def _optimal(game: Game) -> Callable[[AskedPrefix], float]:
    return ExactValue(game)


def optimal_value(prefix: AskedPrefix) -> float:
    """The same of any game's trace, of the best play from the prefix on."""
    return _optimal(played(prefix.trace).game)(prefix)
