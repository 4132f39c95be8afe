"""A softmax policy in a table, for results on games small enough to have one: no team, no model, seconds a run.

Every option of what was read moves by what is known of it (mirror descent, as `train.options = "all"`); what followed
an option is averaged over recent play, for reward and for cost apart.
"""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate

import numpy as np

from baton.games.constrained import ConstrainedGame
from baton.games.game import Game, State, lottery

RATE, FORGET, KEEP = 0.5, 0.02, 0.9


class Table:
    """A softmax policy over what is read, and what is known of its options."""

    def __init__(self, game: Game, seed: int) -> None:
        self.game = game
        self.random = random.Random(seed)
        self.logits: dict[str, np.ndarray] = {}
        self.known: dict[tuple[str, int], tuple[float, ...]] = {}
        """What is read, and the option -> moving means of the reward and of the cost that followed."""

    def chances(self, state: State) -> np.ndarray:
        """Of the options, in their order."""
        logits = self.logits.setdefault(self.game.text(state), np.zeros(len(self.game.options(state))))
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def policy(self, state: State) -> dict[str, float]:
        return dict(zip(self.game.options(state), self.chances(state).tolist(), strict=True))

    def play(self) -> list[tuple[State, int, float, float]]:
        """One episode: state, choice, reward, cost."""
        state = self._drawn(self.game.start()).state
        steps = []
        while options := self.game.options(state):
            bounds = list(accumulate(self.chances(state).tolist()))[:-1]
            choice = bisect(bounds, self.random.random())
            after = self._drawn(self.game.step(state, options[choice]))
            steps.append((state, choice, after.reward, self._cost(state, options[choice], after.state)))
            state = after.state
        return steps

    def _cost(self, state: State, option: str, after: State) -> float:
        return self.game.cost(state, option, after) if isinstance(self.game, ConstrainedGame) else 0.0

    def _drawn(self, branches):  # type: ignore[no-untyped-def]
        bounds, each = lottery(branches)
        return each[bisect(bounds, self.random.random())]

    def learn(self, episodes: list[list[tuple[State, int, float, float]]], price: float) -> None:
        """One update: every option of what was read moves by what is known of it, for reward and cost apart."""
        sums: dict[tuple[str, int], list[float]] = {}
        for steps in episodes:
            reward, cost = sum(step[2] for step in steps), sum(step[3] for step in steps)
            for state, choice, now, paid in steps:
                mine = sums.setdefault((self.game.text(state), choice), [0, 0.0, 0.0])
                mine[0] += 1
                mine[1] += reward
                mine[2] += cost
                reward, cost = reward - now, cost - paid
        for at, (count, reward, cost) in sums.items():
            known = self.known.get(at, (reward / count, cost / count))
            self.known[at] = tuple(
                KEEP * old + (1 - KEEP) * new / count for old, new in zip(known, (reward, cost), strict=True)
            )
        for text in {text for text, _ in sums}:
            worth = np.array(
                [
                    self.known[text, option][0] - price * self.known[text, option][1]
                    if (text, option) in self.known
                    else np.nan
                    for option in range(len(self.logits[text]))
                ]
            )
            worth = np.where(np.isnan(worth), np.nanmean(worth), worth)
            self.logits[text] = (1 - FORGET) * self.logits[text] + RATE * (worth - worth.max())
