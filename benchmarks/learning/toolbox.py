"""A worker with tools, of which some calls change nothing; and what a call is worth by leaving it out.

The answer is one of `num_answers`. `look` finds it with a chance: a second look sees what the first one saw. `study`
finds it for certain and costs more. `tidy` does nothing. Then it answers: rightly if it found out, else by chance.
A call that cannot change what is known is idle: a second look, anything once the answer is known, and every tidying.

What is trained on, for each choice of a rollout of value R (the true reward less all costs):

outcome           R less the mean of its group's others: no tool reward at all
a call            R + b for each call that is well formed, whatever came of it (the tool reward of many recipes)
a call if right   R + b for each call, in rollouts that were answered rightly (conditioned on the outcome)
once if right     R + b once, where any tool was called and the answer was right
overpriced        R - b for each call: the bill twice
left out          to a call, its effect: R - R', R' of the same rollout with that call left out, the same luck (a fork,
                  charged as it runs); to everything else R less the mean of the others
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import chain
from typing import ClassVar

from table_team import Rollout, Table

from baton.games.game import OVER, Branch, Choice, Game, State

CALLS = ("call look", "call study", "call tidy")
ANSWER = "stop answer"
PAID = ("outcome", "a call", "a call if right", "once if right", "overpriced", "left out")


class Toolbox(Game, frozen=True, kw_only=True):
    """State: (known, looked, calls so far); what is known once looked is what the look saw."""

    name: ClassVar[str] = "toolbox"
    decisions: ClassVar[tuple[Choice, ...]] = ("stop",)

    num_answers: int = 4
    sight: float = 0.7
    """Chance that a look finds the answer."""
    look_cost: float = 0.03
    study_cost: float = 0.15
    tidy_cost: float = 0.02
    most_calls: int = 6

    def start(self) -> Sequence[Branch]:
        return (Branch(1.0, (0, 0, 0)),)

    def options(self, state: State) -> tuple[str, ...]:
        if not state:
            return ()
        return (*CALLS, ANSWER) if state[2] < self.most_calls else (ANSWER,)

    def step(self, state: State, option: str) -> Sequence[Branch]:
        known, looked, calls = state
        if option == ANSWER:
            return (Branch(1.0, OVER, 1.0 if known else 1 / self.num_answers),)
        if option == "call tidy":
            return (Branch(1.0, (known, looked, calls + 1), -self.tidy_cost),)
        if option == "call study":
            return (Branch(1.0, (1, looked, calls + 1), -self.study_cost),)
        if known or looked:
            return (Branch(1.0, (known, 1, calls + 1), -self.look_cost),)
        return (
            Branch(self.sight, (1, 1, calls + 1), -self.look_cost),
            Branch(1 - self.sight, (0, 1, calls + 1), -self.look_cost),
        )

    def text(self, state: State) -> str:
        return f"known: {state[0]}\nlooked: {state[1]}\ncalls: {state[2]}" if state else "over"


def idle(state: State, option: str) -> bool:
    """A call that cannot change what is known."""
    return option in CALLS and (
        option == "call tidy" or bool(state[0]) or (option == "call look" and state[1])
    )


def idle_calls(table: Table) -> float:
    """Idle calls a rollout, exactly, under the policy as it is."""
    game = table.board.game
    visits: dict[State, float] = {}
    frontier = {b.state: b.probability for b in game.start()}
    total = 0.0
    while frontier:
        after: dict[State, float] = {}
        for state, p in frontier.items():
            visits[state] = visits.get(state, 0.0) + p
            for option, chance in table.policy(state).items() if game.options(state) else ():
                total += p * chance * idle(state, option)
                for branch in game.step(state, option):
                    after[branch.state] = after.get(branch.state, 0.0) + p * chance * branch.probability
        frontier = after
    return total


def credit(table: Table, groups: list[list[Rollout]], paid: str, bonus: float) -> list[list[float]]:
    """What each choice of each rollout is said to have earned."""
    made = []
    for group in groups:
        totals = [one.value + _bonus(table, one, paid, bonus) for one in group]
        whole = math.fsum(totals)
        for one, total in zip(group, totals, strict=True):
            mine = [total - (whole - total) / (len(group) - 1)] * len(one.states)
            if paid == "left out":
                for place, (state, choice) in enumerate(zip(one.states, one.choices, strict=True)):
                    if table.board.options[state][choice] in CALLS:
                        mine[place] = one.value - without(table, one, place)
            made.append(mine)
    return made


def _bonus(table: Table, one: Rollout, paid: str, bonus: float) -> float:
    options = [table.board.options[s][c] for s, c in zip(one.states, one.choices, strict=True)]
    calls = sum(option in CALLS for option in options)
    right = one.rewards[-1] >= 1.0
    if paid == "a call if right":
        return bonus * calls * right
    if paid == "once if right":
        return bonus * (calls > 0) * right
    return {"a call": bonus, "overpriced": -bonus}.get(paid, 0.0) * calls


def without(table: Table, one: Rollout, place: int) -> float:
    """What the rollout would have earned without the call at a place: a fork, whose choices are charged.

    Later choices are drawn with the rollout's own numbers, a look sees what the rollout's look saw.
    """
    board, luck = table.board, random.Random(f"{table.seed}/without/{one.instance}/{place}")
    state, value, saw = one.states[place], math.fsum(one.rewards[:place]), _saw(table, one, luck)
    numbers = chain(one.own[place + 1 :], iter(luck.random, None))
    while options := board.options[state]:
        table.spent += len(options) > 1
        _, branches = board.after(state, table.chosen(state, next(numbers)))
        state, reward = branches[-1] if len(branches) > 1 and not saw else branches[0]
        value += reward
    return value


def _saw(table: Table, one: Rollout, luck: random.Random) -> bool:
    """What the rollout's first look saw; where there was none, what one would have."""
    board = table.board
    for state, choice, after in zip(one.states, one.choices, one.states[1:], strict=False):
        known, looked, _ = board.states[state]
        if board.options[state][choice] == "call look" and not known and not looked:
            return bool(board.states[after][0])
    return luck.random() < board.game.sight  # type: ignore[attr-defined]
