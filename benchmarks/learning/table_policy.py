"""A softmax policy in a table, for results on games small enough to have one: no team, no model, seconds a run.

Every option of what was read moves by what is known of it (mirror descent, as `train.options = "all"`), for reward and
for cost apart. `backup` says what that is, as `critic.backup` does:

return   all that was earned after the option, averaged over recent play. What was earned under later choices that
         have been unlearned since stays in the average of an option that is not tried any more
policy   what followed the option at once, counted over all play, and from there what the policy as it is now comes to
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal

import numpy as np

from baton.games.constrained import ConstrainedGame
from baton.games.game import Game, Policy, State, lottery

RATE, FORGET, KEEP = 0.5, 0.02, 0.9
Episode = list[tuple[State, int, float, float]]
"""State, choice, reward, cost."""


class Table:
    """A softmax policy over what is read, and what is known of its options."""

    def __init__(
        self, game: Game, seed: int, backup: Literal["return", "policy"] = "return", forget: float = FORGET
    ) -> None:
        self.game = game
        self.random = random.Random(seed)
        self.backup = backup
        self.forget = forget
        self.logits: dict[str, np.ndarray] = {}
        self.known: dict[tuple[str, int], tuple[float, ...]] = {}
        """What is read, and the option -> moving means of the reward and of the cost that followed."""
        self.seen: dict[tuple[str, int], _Seen] = {}

    def chances(self, state: State) -> np.ndarray:
        """Of the options, in their order."""
        logits = self.logits.setdefault(self.game.text(state), np.zeros(len(self.game.options(state))))
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def policy(self, state: State) -> dict[str, float]:
        return dict(zip(self.game.options(state), self.chances(state).tolist(), strict=True))

    def play(self) -> Episode:
        """One episode."""
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

    def learn(self, episodes: list[Episode], price: float) -> None:
        """One update: every option of what was read moves by what is known of it."""
        known = self._backed_up(episodes) if self.backup == "policy" else self._averaged(episodes)
        for text, pairs in known.items():
            worth = pairs[:, 0] - price * pairs[:, 1]
            self.logits[text] = (1 - self.forget) * self.logits[text] + RATE * (worth - worth.max())

    def _averaged(self, episodes: list[Episode]) -> dict[str, np.ndarray]:
        """What was read -> reward and cost after each option, averaged over recent play."""
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
        untried = (np.nan, np.nan)
        return {
            text: _filled(
                [self.known.get((text, option), untried) for option in range(len(self.logits[text]))]
            )
            for text in dict.fromkeys(text for text, _ in sums)
        }

    def _backed_up(self, episodes: list[Episode]) -> dict[str, np.ndarray]:
        """What was read -> reward and cost after each option, with later choices as they are now."""
        for steps in episodes:
            texts = [self.game.text(step[0]) for step in steps]
            for (_, choice, now, paid), text, after in zip(steps, texts, [*texts[1:], None], strict=True):
                self.seen.setdefault((text, choice), _Seen()).count(now, paid, after)
        found: dict[str, np.ndarray] = {}
        values: dict[str | None, np.ndarray] = {None: np.zeros(2)}

        def value(text: str | None) -> np.ndarray:
            if text in values:
                return values[text]
            assert text is not None
            logits = self.logits[text]
            pairs = []
            for option in range(len(logits)):
                seen = self.seen.get((text, option))
                pairs.append(np.full(2, np.nan) if seen is None else seen.worth(value))
            found[text] = _filled(pairs)
            weights = np.exp(logits - logits.max())
            values[text] = weights / weights.sum() @ found[text]
            return values[text]

        read = dict.fromkeys(self.game.text(step[0]) for steps in episodes for step in steps)
        for text in read:
            value(text)
        return {text: found[text] for text in read}


class _Seen:
    """What followed an option at once."""

    def __init__(self) -> None:
        self.number = 0
        self.earned = np.zeros(2)
        self.after: dict[str | None, int] = {}

    def count(self, reward: float, cost: float, after: str | None) -> None:
        self.number += 1
        self.earned += (reward, cost)
        self.after[after] = self.after.get(after, 0) + 1

    def worth(self, value: Callable[[str | None], np.ndarray]) -> np.ndarray:
        """Reward and cost, with what comes after at its value."""
        return (self.earned + sum(n * value(text) for text, n in self.after.items())) / self.number


def soft_policy(game: Game, temperature: float, price: float = 0.0) -> Policy:
    """The exact play at which such a table comes to rest: every option by exp(its worth / temperature), and later
    choices as soft. The temperature is `forget / RATE`."""
    found: dict[State, tuple[dict[str, float], float]] = {}

    def value(state: State) -> float:
        if state not in found:
            options = game.options(state)
            worth = np.array([after(state, option) for option in options])
            weights = np.exp((worth - worth.max(initial=-np.inf)) / temperature)
            chances = weights / weights.sum() if options else weights
            found[state] = dict(zip(options, chances.tolist(), strict=True)), float(chances @ worth)
        return found[state][1]

    def after(state: State, option: str) -> float:
        paid = game.cost if isinstance(game, ConstrainedGame) else lambda *_: 0.0
        return sum(
            b.probability * (b.reward - price * paid(state, option, b.state) + value(b.state))
            for b in game.step(state, option)
        )

    def policy(state: State) -> dict[str, float]:
        value(state)
        return found[state][0]

    return policy


def _filled(pairs: Sequence[Sequence[float] | np.ndarray]) -> np.ndarray:
    """Options that were never tried are taken for the mean of the others."""
    every = np.array(pairs)
    return np.where(np.isnan(every), np.nanmean(every, axis=0), every)
