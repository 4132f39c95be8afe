"""Exact solution of a game by backward induction over its reachable states, and of any policy on it.

Invariant: values are those of the game as stated, to floating-point rounding; a game too large to
enumerate is refused with the limit, never solved approximately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import fsum

from baton.errors import UsageError
from baton.games.game import Branch, Game, Policy, State, chances

MAX_STATES = 500_000
_BRANCHES_PER_STATE = 30
_TIE = 1e-12
Steps = tuple[tuple[str, tuple[Branch, ...]], ...]


class Solution:
    """The optimum: V* of every reachable state, Q* of every option."""

    def __init__(self, game: Game, values: dict[State, float]) -> None:
        self.game = game
        self.values = values
        self.value = fsum(b.probability * values[b.state] for b in game.start())

    def q(self, state: State) -> dict[str, float]:
        """Q* of the state's options."""
        values = self.values
        if state not in values:
            raise UsageError(f"{self.game.name}: state {state} cannot be reached with these parameters.")
        return {
            option: fsum(b.probability * (b.reward + values[b.state]) for b in self.game.step(state, option))
            for option in self.game.options(state)
        }

    def best(self, state: State) -> str:
        """An optimal option: the first one listed, among equals."""
        q = self.q(state)
        top = max(q.values())
        return next(option for option, value in q.items() if value >= top - _TIE)

    @cached_property
    def answer_price(self) -> float:
        """What an answer that is no choice is charged: what a choice of random play costs on average in this game,
        (V* - V of random play) / choices of random play."""
        game = self.game
        random = evaluate(game, lambda state: dict.fromkeys(options := game.options(state), 1 / len(options)))
        choices = fsum(mass for state, mass in random.visits.items() if game.options(state))
        return (self.value - random.value) / choices if choices else 0.0

    def policy(self, state: State) -> dict[str, float]:
        """The optimal policy."""
        return {self.best(state): 1.0}


class Evaluation:
    """A policy's exact value and how often it visits each state."""

    def __init__(self, values: dict[State, float], value: float, visits: dict[State, float]) -> None:
        self.values = values
        self.value = value
        self.visits = visits
        """Expected number of visits per episode; a state is seen at most once in these games."""


def solve(game: Game, max_states: int = MAX_STATES) -> Solution:
    """V* and Q* by backward induction."""
    game.check_exact()
    values: dict[State, float] = {}

    def expand(state: State) -> Steps:
        return tuple((option, tuple(game.step(state, option))) for option in game.options(state))

    for state, steps in _backward(game, expand, max_states):
        values[state] = max(
            (sum(p * (r + values[s]) for p, s, r in branches) for _, branches in steps),
            default=0.0,
        )
    return Solution(game, values)


def evaluate(game: Game, policy: Policy, max_states: int = MAX_STATES) -> Evaluation:
    """V_pi, exactly, and the policy's expected visits to each state."""
    values: dict[State, float] = {}
    arrows: dict[State, list[tuple[float, State]]] = {}
    chosen: dict[State, dict[str, float]] = {}

    def expand(state: State) -> Steps:
        chosen[state] = chances(game, state, policy) if game.options(state) else {}
        return tuple((option, tuple(game.step(state, option))) for option in chosen[state])

    for state, steps in _backward(game, expand, max_states):
        open_ = chosen.pop(state)
        values[state] = sum(
            open_[option] * sum(p * (r + values[s]) for p, s, r in branches) for option, branches in steps
        )
        arrows[state] = [(open_[option] * p, after) for option, branches in steps for p, after, _ in branches]
    visits = dict.fromkeys(arrows, 0.0)
    start = game.start()
    for b in start:
        visits[b.state] += b.probability
    # Post-order reversed is a topological order: a state's visits are complete before it passes them on.
    for state in reversed(arrows):
        for probability, after in arrows[state]:
            visits[after] += visits[state] * probability
    return Evaluation(values, fsum(b.probability * values[b.state] for b in start), visits)


def reachable(game: Game, max_states: int = MAX_STATES) -> Iterator[State]:
    """Every state that play can come to, each after all that may follow it."""

    def expand(state: State) -> Steps:
        return tuple((option, tuple(game.step(state, option))) for option in game.options(state))

    for state, _ in _backward(game, expand, max_states):
        yield state


def _backward(game: Game, expand: Callable[[State], Steps], max_states: int) -> Iterator[tuple[State, Steps]]:
    """Reachable states, each after all that may follow it. Without recursion: traces may be long."""
    finished: dict[State, bool] = {}
    num_branches = 0
    stack: list[tuple[State, Steps | None]] = [(b.state, None) for b in reversed(game.start())]
    while stack:
        state, steps = stack.pop()
        if steps is not None:
            finished[state] = True
            yield state, steps
            continue
        if state in finished:
            continue
        steps = expand(state)
        finished[state] = False
        num_branches += sum(len(branches) for _, branches in steps)
        if len(finished) > max_states or num_branches > _BRANCHES_PER_STATE * max_states:
            raise UsageError(
                f"{game.name}: more than {max_states:,} states (or {_BRANCHES_PER_STATE} times as many branches) "
                "are reachable, which is past exact solution. Make the game smaller with --set, or play it "
                "without solving it."
            )
        stack.append((state, steps))
        for _, branches in steps:
            for b in branches:
                known = finished.get(b.state)
                if known is None:
                    stack.append((b.state, None))
                elif not known:
                    raise UsageError(f"{game.name}: state {b.state} can come back, so play need not end.")
