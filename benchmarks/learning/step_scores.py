"""Scores of steps, right and wrong, and four ways to train on them.

A scorer says how good a situation is. Here the truth is the optimum's value, and a scorer differs from it by so much of
the spread between the optimum and random play:

exact         not at all
off           by a number of each situation's own, normal, half the spread; the same whenever it is read
noisy         as much as the spread, drawn anew at each reading
likes length  by a tenth of the spread more for each step taken

outcome       the return, less the mean of the group's others: no scores
to go         what came after the choice, less the score of where it was made: scores as a potential, which add up, so
              that any scorer leaves the optimum what it is (Ng, Harada and Russell 1999)
alone         what the choice changed in the score, and what it earned at once: the scorer's own verdict on the choice
added         the return and half the sum of all scores of the rollout, less the mean of the others: scores as a reward
"""

from __future__ import annotations

import math
import random
from typing import Literal

from table_team import Rollout, Table

from baton.games.solve import evaluate, solve

Form = Literal["outcome", "to go", "alone", "added"]
SCORERS = ("exact", "off", "noisy", "likes length")
FORMS: tuple[Form, ...] = ("to go", "alone", "added")
ADDED = 0.5


class Scorer:
    """What it says of a situation."""

    def __init__(self, table: Table, kind: str) -> None:
        game = table.board.game
        solution = solve(game)
        by_chance = evaluate(game, lambda state: dict.fromkeys(o := game.options(state), 1 / len(o))).value
        self._values = solution.values
        self._table = table
        self._spread = solution.value - by_chance
        self._kind = kind
        self._draw = random.Random(f"{table.seed}/scorer")
        self._known: dict[int, float] = {}

    def of(self, state: int, step: int) -> float:
        true = self._values[self._table.board.states[state]]
        if self._kind == "exact":
            return true
        if self._kind == "noisy":
            return true + self._draw.gauss(0.0, self._spread)
        if self._kind == "likes length":
            return true + 0.1 * step * self._spread
        if state not in self._known:
            self._known[state] = true + self._draw.gauss(0.0, 0.5 * self._spread)
        return self._known[state]


def credit(scorer: Scorer | None, groups: list[list[Rollout]], form: Form) -> list[list[float]]:
    """What each choice of each rollout is said to have earned; a play that is over is worth nothing more."""
    made = []
    for group in groups:
        if form in ("outcome", "added"):
            totals = [
                one.value + (ADDED * math.fsum(_scores(scorer, one)) if scorer else 0.0) for one in group
            ]
            whole = math.fsum(totals)
            for one, total in zip(group, totals, strict=True):
                made.append([total - (whole - total) / (len(group) - 1)] * len(one.states))
            continue
        assert scorer is not None
        for one in group:
            scores = [*_scores(scorer, one), 0.0]
            later, mine = 0.0, []
            for place in reversed(range(len(one.states))):
                gained = one.rewards[place] + scores[place + 1] - scores[place]
                later += gained
                mine.append(later if form == "to go" else gained)
            made.append(mine[::-1])
    return made


def _scores(scorer: Scorer, one: Rollout) -> list[float]:
    return [scorer.of(state, step) for step, state in enumerate(one.states)]
