"""A team's decisions as a softmax table over a game's states, played with named luck, and charged by the choice.

Nature's draw at step t of instance i is a number of its own, the same for every rollout of the instance and for every
fork of a rollout (common luck); what the policy draws is each rollout's own. A choice among one option is none and
costs nothing; every other one costs one, whether it was played for the record or in a fork.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Mapping
from typing import NamedTuple

from baton.games.game import Game, State, lottery
from baton.games.solve import evaluate, solve

Branches = tuple[list[float], list[tuple[int, float]]]


class Rollout(NamedTuple):
    """One episode: places, choices and what followed each, and the numbers it was drawn with."""

    instance: int
    states: list[int]
    choices: list[int]
    rewards: list[float]
    """Earned between a choice and the next; what is earned without a choice belongs to the one before."""
    own: list[float]

    @property
    def value(self) -> float:
        return math.fsum(self.rewards)


class Board:
    """A game with its states numbered, worked out as they are met."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.states: list[State] = []
        self.options: list[tuple[str, ...]] = []
        self._numbers: dict[State, int] = {}
        self._after: list[list[Branches | None]] = []
        self.begin = self._numbered(lottery(game.start()))

    def number(self, state: State) -> int:
        if state not in self._numbers:
            self._numbers[state] = len(self.states)
            self.states.append(state)
            self.options.append(tuple(self.game.options(state)))
            self._after.append([None] * len(self.options[-1]))
        return self._numbers[state]

    def after(self, state: int, choice: int) -> Branches:
        """What may follow a choice."""
        found = self._after[state][choice]
        if found is None:
            drawn = lottery(self.game.step(self.states[state], self.options[state][choice]))
            found = self._after[state][choice] = self._numbered(drawn)
        return found

    def _numbered(self, drawn: tuple[list[float], object]) -> Branches:
        ends, branches = drawn
        return ends, [(self.number(b.state), b.reward) for b in branches]  # type: ignore[attr-defined]


class Table:
    """A softmax policy by state."""

    def __init__(self, game: Game, seed: int) -> None:
        self.board = Board(game)
        self.seed = seed
        self.spent = 0
        """Choices played so far, forks' among them."""
        self._logits: dict[int, list[float]] = {}
        self._chances: dict[int, list[float]] = {}
        self._random = random.Random(f"{seed}/own")

    def chances(self, state: int) -> list[float]:
        """As they are until the next move."""
        found = self._chances.get(state)
        if found is None:
            logits = self._logits.setdefault(state, [0.0] * len(self.board.options[state]))
            top = max(logits)
            weights = [math.exp(each - top) for each in logits]
            total = sum(weights)
            found = self._chances[state] = [each / total for each in weights]
        return found

    def policy(self, state: State) -> Mapping[str, float]:
        number = self.board.number(state)
        return dict(zip(self.board.options[number], self.chances(number), strict=True))

    def chosen(self, state: int, number: float) -> int:
        """The choice that a number from 0 to 1 draws."""
        return min(bisect(_ends(self.chances(state)), number), len(self.board.options[state]) - 1)

    def move(self, gradient: Mapping[int, list[float]], rate: float) -> None:
        for state, step in gradient.items():
            logits = self._logits[state]
            for option, each in enumerate(step):
                logits[option] += rate * each
        self._chances = {}

    def play(self, instance: int) -> Rollout:
        """A rollout of an instance."""
        return self._on(instance, [], [], [], [])

    def fork(self, of: Rollout, place: int, choice: int) -> float:
        """What the rollout would have earned with another choice at a place: its own numbers, the instance's luck."""
        made = self._on(
            of.instance, of.states[: place + 1], of.choices[:place], of.rewards[:place], of.own, choice
        )
        return made.value

    def _on(
        self,
        instance: int,
        states: list[int],
        choices: list[int],
        rewards: list[float],
        own: list[float],
        forced: int | None = None,
    ) -> Rollout:
        board, drawn = self.board, list(own)
        luck = random.Random(f"{self.seed}/luck/{instance}").random
        draws = [luck() for _ in range(len(choices) + 1)]  # those up to here were used
        choices, rewards = list(choices), list(rewards)
        if states:
            states = list(states)
            state = states.pop()
        else:
            state = board.begin[1][bisect(board.begin[0], draws[0])][0]
        while options := board.options[state]:
            step = len(choices)
            if step >= len(drawn):
                drawn.append(self._random.random())
            if forced is not None:
                choice, forced = forced, None
            else:
                choice = self.chosen(state, drawn[step])
            self.spent += len(options) > 1
            states.append(state)
            choices.append(choice)
            ends, branches = board.after(state, choice)
            state, reward = branches[bisect(ends, luck())]
            rewards.append(reward)
        return Rollout(instance, states, choices, rewards, drawn)


def _ends(chances: list[float]) -> list[float]:
    made, total = [], 0.0
    for each in chances:
        total += each
        made.append(total)
    return made


def left(table: Table) -> float:
    """What is left of the regret of random play, exactly: 0 the optimum, 1 random play."""
    game = table.board.game
    best = solve(game).value
    chance = evaluate(game, lambda state: dict.fromkeys(o := game.options(state), 1 / len(o))).value
    return (best - evaluate(game, table.policy).value) / (best - chance)
