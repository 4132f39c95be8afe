"""Play a game without a team: the tabular fast path.

Transitions and policy rows are computed once per state and kept, so repeated play is table look-ups.
The same (seed, index) gives the same episode, in any process and any order.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from random import Random

from msgspec import Struct

from baton.games.game import Branch, Game, Policy, State, chances, cumulative, lottery

_Lottery = tuple[list[float], Sequence[Branch]]
_Row = tuple[list[float], tuple[str, ...], list[_Lottery | None]]


class GameEpisode(Struct, frozen=True, kw_only=True):
    """One play of a game."""

    states: list[State]
    options: list[str]
    rewards: list[float]
    end: State

    @property
    def value(self) -> float:
        return sum(self.rewards)


class PolicyTable:
    """A game and a policy, ready to play many times."""

    def __init__(self, game: Game, policy: Policy) -> None:
        self.game = game
        self.policy = policy
        self._rows: dict[State, _Row] = {}
        self._start = lottery(game.start())

    def play(self, seed: int, index: int = 0) -> GameEpisode:
        """One episode."""
        random = Random(f"{seed}/{index}").random
        rows = self._rows
        states: list[State] = []
        options: list[str] = []
        rewards: list[float] = []
        cumulative, branches = self._start
        state = branches[bisect(cumulative, random())].state
        while True:
            row = rows.get(state)
            if row is None:
                row = rows[state] = self._row(state)
            if not row[1]:
                return GameEpisode(states=states, options=options, rewards=rewards, end=state)
            chosen = bisect(row[0], random()) if len(row[1]) > 1 else 0
            drawn = row[2][chosen]
            if drawn is None:
                drawn = row[2][chosen] = lottery(self.game.step(state, row[1][chosen]))
            states.append(state)
            options.append(row[1][chosen])
            _, state, reward = drawn[1][bisect(drawn[0], random())]
            rewards.append(reward)

    def _row(self, state: State) -> _Row:
        if not self.game.options(state):
            return [], (), []
        open_ = chances(self.game, state, self.policy)
        return cumulative(open_.values()), tuple(open_), [None] * len(open_)
