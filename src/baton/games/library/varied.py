"""Any other game with parameters that are drawn anew for each instance, such as the size of the team.

    [task]
    name = "game:varied"
    [task.settings]
    game = "stopping-chain"
    values = { num_workers = [2, 3, 4, 5, 6] }   # drawn evenly, each parameter by itself
    settings = { gain = 0.4 }                     # the same in all

A team that was trained at one size meets others in use; drawn sizes are the plain answer to that. The draw is where
play begins, so the optimum is the mean of the optima, and what the orchestrator reads is what the drawn game says.
A state is (which of them, its own state).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from math import fsum
from typing import Any, ClassVar

import msgspec
from msgspec import field

from baton.errors import UsageError, nearest
from baton.games.constrained import ConstrainedGame
from baton.games.game import CHOICES, Branch, Choice, Game, State
from baton.settings import decode

_MOST = 1000


class Varied(Game, frozen=True, kw_only=True):
    """A game of sizes that are drawn."""

    name: ClassVar[str] = "varied"
    decisions: ClassVar[tuple[Choice, ...]] = CHOICES
    """Of one that is made: those of its game."""

    game: str = "stopping-chain"
    values: Mapping[str, list[Any]] = field(default_factory=lambda: {"num_workers": [2, 3, 4, 5, 6]})
    """Parameter -> what it may be."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters that are the same in all."""

    def __post_init__(self) -> None:
        self.require(
            bool(self.values) and all(self.values.values()), "values", "give each at least one value"
        )
        many = 1
        for each in self.values.values():
            many *= len(each)
        self.require(many <= _MOST, "values", f"that is {many:,} games, and the most is {_MOST:,}")
        both = self.values.keys() & self.settings.keys()
        self.require(not both, "settings", f"{', '.join(sorted(both))} is drawn already")
        first = self.drawn[0]
        self.require(
            not isinstance(first, ConstrainedGame), "game", "one whose steps cost something cannot be drawn"
        )
        shown: dict[str, Any] = {"decisions": first.decisions, "roles": first.roles}
        self.__dict__.update(shown)

    def __hash__(self) -> int:
        return hash(msgspec.json.encode(self, order="deterministic"))

    @cached_property
    def drawn(self) -> tuple[Game, ...]:
        """The games that may come, in the order of their values."""
        from baton.games.library import GAMES  # they import this one

        # Only those that ship: traces name their games, and what a trace names is not imported from here.
        kind = GAMES.get(self.game)
        if kind is None or kind is Varied:
            raise UsageError(
                f"varied: game = {self.game!r}. {nearest(self.game, GAMES.keys() - {self.name})}"
            )
        return tuple(
            decode(
                kind, {**self.settings, **dict(zip(self.values, each, strict=True))}, f"varied {self.game}"
            )
            for each in product(*self.values.values())
        )

    def start(self) -> Sequence[Branch]:
        share = 1 / len(self.drawn)
        return [
            Branch(share * branch.probability, (which, branch.state))
            for which, game in enumerate(self.drawn)
            for branch in game.start()
        ]

    def _of(self, state: State) -> tuple[Game, State]:
        return self.drawn[state[0]], state[1]

    def options(self, state: State) -> tuple[str, ...]:
        game, own = self._of(state)
        return game.options(own)

    def decision(self, state: State) -> Choice:
        game, own = self._of(state)
        return game.decision(own)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        game, own = self._of(state)
        return [Branch(p, (state[0], after), reward) for p, after, reward in game.step(own, option)]

    def text(self, state: State) -> str:
        game, own = self._of(state)
        return game.text(own)

    def quit(self, state: State) -> str:
        game, own = self._of(state)
        return game.quit(own)

    def spawns(self, state: State, option: str) -> int:
        game, own = self._of(state)
        return game.spawns(own, option)

    def spawned(self, state: State) -> int:
        game, own = self._of(state)
        return game.spawned(own)

    def reports(self, state: State) -> tuple[str, ...]:
        game, own = self._of(state)
        return game.reports(own)

    def word(self, state: State, after: State) -> str | None:
        game, own = self._of(state)
        return game.word(own, after[1])

    def check_exact(self) -> None:
        for game in self.drawn:
            game.check_exact()

    def facts(self) -> dict[str, float]:
        every = [game.facts().get("value") for game in self.drawn]
        known = [each for each in every if each is not None]
        return {"value": fsum(known) / len(known)} if len(known) == len(every) else {}
