"""Reference policies, the same six for every game, to stand beside whatever was trained.

random        every option alike
always-spawn  wherever options differ in agents added, the most; greedy otherwise
never-spawn   wherever options differ in agents added, the least; greedy otherwise
fixed-K       spawns until K agents were added, then no more; greedy otherwise (fixed-k is fixed-2)
greedy        each option tried once and then quit (one look ahead): the best of those
optimal       the solver's
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from baton.errors import UsageError, nearest
from baton.games.game import Game, Policy, State
from baton.games.solve import Solution, solve

REFERENCE = ("random", "always-spawn", "never-spawn", "fixed-k", "greedy", "optimal")
_TIE = 1e-12


class Greedy:
    """One look ahead over quitting: Q of each option if the game were quit right after it."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self._quit: dict[State, float] = {}

    def among(self, state: State, options: Sequence[str]) -> str:
        """The best of these options by one look ahead; the first listed, among equals."""
        best, top = options[0], float("-inf")
        for option in options if len(options) > 1 else ():
            value = sum(
                p * (r + self.game.quit_value(s, self._quit)) for p, s, r in self.game.step(state, option)
            )
            if value > top + _TIE:
                best, top = option, value
        return best

    def __call__(self, state: State) -> dict[str, float]:
        return {self.among(state, self.game.options(state)): 1.0}


def reference(name: str, game: Game, solution: Solution | None = None) -> Policy:
    """A reference policy by name."""
    if name == "optimal":
        return (solution or solve(game)).policy
    if name == "random":
        return lambda state: dict.fromkeys(options := game.options(state), 1 / len(options))
    greedy = Greedy(game)
    if name == "greedy":
        return greedy
    if name == "always-spawn":
        return lambda state: {greedy.among(state, by_spawns(game, state, 10**9)): 1.0}
    if name == "never-spawn":
        return lambda state: {greedy.among(state, by_spawns(game, state, 0)): 1.0}
    match = re.fullmatch(r"fixed-(k|\d+)", name)
    if match is None:
        raise UsageError(f"there is no reference policy {name!r}. {nearest(name, REFERENCE)}")
    k = 2 if match[1] == "k" else int(match[1])
    return lambda state: {greedy.among(state, by_spawns(game, state, max(0, k - game.spawned(state)))): 1.0}


def best_alone(game: Game) -> Policy:
    """The best policy of those that add as few agents as can be."""
    return solve(cast(Game, _Unspawned(game))).policy


class _Unspawned:
    """A game with no other options than those."""

    def __init__(self, game: Game) -> None:
        self._game = game

    def options(self, state: State) -> tuple[str, ...]:
        return by_spawns(self._game, state, 0) if self._game.options(state) else ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._game, name)


def by_spawns(game: Game, state: State, wanted: int) -> tuple[str, ...]:
    """The options that add as near as can be to `wanted` agents."""
    gap = {option: abs(wanted - game.spawns(state, option)) for option in game.options(state)}
    least = min(gap.values())
    return tuple(option for option, g in gap.items() if g == least)
