"""Credit of a batch of rollouts, eight ways: a number for every choice, what it is said to have earned.

Each is written here from its formula alone, on the table's rollouts; `tests/learning_results/test_credit_arms.py`
holds them to Baton's own estimators on traces of the same play. Groups are rollouts of one instance.

uniform             (R - mean of the group) / its spread, to every choice (GRPO)
leave-one-out       R - mean of the others, to every choice
return-to-go        what was earned from the choice on, less the mean of the others' at their choice of that number
gae                 sums of r + V(s') - V(s), each worth 0.95 of the one before; V by counts
coma                Q(s, a) - sum of pi Q, on policy; Q by counts
telescope           V(after the choice, before nature) - V(before it), both mean returns of all rollouts that were there
forks               at one choice of each rollout, another option drawn from the policy is played under the same luck:
                    (1 - pi(a)) (R - R'), times the number of choices, so that it has no bias
layered             the same forks, not weighed; what they leave of R - mean of the others goes to the rollout's other
                    choices in equal parts, so that all add up to it
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from table_team import Rollout, Table

Credit = list[list[float]]
ARMS = ("uniform", "leave-one-out", "return-to-go", "gae", "coma", "telescope", "forks", "layered")
LAMBDA = 0.95
PRIOR = 3.0
"""Visits' worth of the state's own average in the value of an option."""


class Counts:
    """What followed each choice so far, and what is worth how much by it under the policy as it is."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.best = 0.0
        """Share of the best option's value in a state's, the rest by the policy's chances."""
        self._cells: dict[int, list[list[float]]] = {}
        self._after: dict[int, list[dict[int, int]]] = {}
        self.values: dict[int, float] = {}
        self.rows: dict[int, list[float]] = {}

    def observe(self, rollouts: list[Rollout]) -> None:
        for one in rollouts:
            ends = [*one.states[1:], -1]
            for state, choice, reward, end in zip(one.states, one.choices, one.rewards, ends, strict=True):
                if state not in self._cells:
                    num = len(self.table.board.options[state])
                    self._cells[state] = [[0.0, 0.0] for _ in range(num)]
                    self._after[state] = [{} for _ in range(num)]
                cell, after = self._cells[state][choice], self._after[state][choice]
                cell[0] += 1
                cell[1] += reward
                after[end] = after.get(end, 0) + 1

    def back_up(self) -> None:
        """Values of all states seen, those after before those before: games do not come back to a state."""
        self.values, self.rows = {-1: 0.0}, {}
        for first in self._cells:
            stack = [first]
            while stack:
                state = stack[-1]
                if state in self.values:
                    stack.pop()
                    continue
                missing = [s for after in self._after[state] for s in after if s not in self.values]
                if missing:
                    stack += missing
                    continue
                stack.pop()
                self._value(state)

    def _value(self, state: int) -> None:
        chances = self.table.chances(state)
        means: list[float | None] = []
        for (count, total), after in zip(self._cells[state], self._after[state], strict=True):
            known = sum(n * self.values[s] for s, n in after.items())
            means.append((total + known) / count if count else None)
        seen = sum(p for p, q in zip(chances, means, strict=True) if q is not None)
        middle = (
            sum(p * q for p, q in zip(chances, means, strict=True) if q is not None) / seen if seen else 0.0
        )
        row = [
            middle if q is None else (cell[0] * q + PRIOR * middle) / (cell[0] + PRIOR)
            for cell, q in zip(self._cells[state], means, strict=True)
        ]
        usual = sum(p * q for p, q in zip(chances, row, strict=True))
        self.rows[state] = row
        self.values[state] = self.best * max(row) + (1 - self.best) * usual


class Crediting:
    """What an arm keeps from step to step."""

    def __init__(self, arm: str, table: Table) -> None:
        self.arm = arm
        self.table = table
        self.counts = Counts(table)
        self.random = random.Random(f"{table.seed}/forks")
        self._before: dict[int, list[float]] = {}
        self._with: dict[tuple[int, int], list[float]] = {}
        self._arm: Callable[[list[list[Rollout]]], Credit] = {
            "uniform": uniform,
            "leave-one-out": leave_one_out,
            "return-to-go": return_to_go,
            "gae": self._gae,
            "coma": self._coma,
            "telescope": self._telescope,
            "forks": self._forks,
            "layered": self._layered,
        }[arm]

    def of(self, groups: list[list[Rollout]]) -> Credit:
        """Credit of every choice, rollout by rollout."""
        if self.arm in ("gae", "coma"):
            self.counts.observe([one for group in groups for one in group])
            self.counts.back_up()
        return self._arm(groups)

    def _gae(self, groups: list[list[Rollout]]) -> Credit:
        made = []
        for one in (one for group in groups for one in group):
            credit, later, after = [0.0] * len(one.states), 0.0, 0.0
            for place in reversed(range(len(one.states))):
                value = self.counts.values[one.states[place]]
                later = one.rewards[place] + after - value + LAMBDA * later
                credit[place], after = later, value
            made.append(credit)
        return made

    def _coma(self, groups: list[list[Rollout]]) -> Credit:
        made = []
        for one in (one for group in groups for one in group):
            credit = []
            for state, choice in zip(one.states, one.choices, strict=True):
                row, chances = self.counts.rows[state], self.table.chances(state)
                credit.append(row[choice] - sum(p * q for p, q in zip(chances, row, strict=True)))
            made.append(credit)
        return made

    def _telescope(self, groups: list[list[Rollout]]) -> Credit:
        rollouts = [one for group in groups for one in group]
        for one in rollouts:
            for state, choice, to_go in zip(one.states, one.choices, to_come(one), strict=True):
                for known in (
                    self._before.setdefault(state, [0.0, 0.0]),
                    self._with.setdefault((state, choice), [0.0, 0.0]),
                ):
                    known[0] = known[0] * FORGET + 1
                    known[1] = known[1] * FORGET + to_go
        return [
            [
                _mean(self._with[s, a]) - _mean(self._before[s])
                for s, a in zip(one.states, one.choices, strict=True)
            ]
            for one in rollouts
        ]

    def _forked(self, one: Rollout) -> tuple[int, float, int] | None:
        """A place, what its choice is said to have earned, and how many choices there were."""
        places = [k for k, state in enumerate(one.states) if len(self.table.board.options[state]) > 1]
        if not places:
            return None
        place = self.random.choice(places)
        chances = self.table.chances(one.states[place])
        others = [0.0 if k == one.choices[place] else p for k, p in enumerate(chances)]
        rest = sum(others)
        if rest <= 0:
            return place, 0.0, len(places)
        other = self.random.choices(range(len(others)), others)[0]
        return place, rest * (one.value - self.table.fork(one, place, other)), len(places)

    def _forks(self, groups: list[list[Rollout]]) -> Credit:
        made = []
        for one in (one for group in groups for one in group):
            credit = [0.0] * len(one.states)
            if found := self._forked(one):
                place, worth, num = found
                credit[place] = worth * num
            made.append(credit)
        return made

    def _layered(self, groups: list[list[Rollout]]) -> Credit:
        made = []
        for one, (whole, *_) in zip((o for g in groups for o in g), leave_one_out(groups), strict=True):
            found = self._forked(one)
            if found is None or found[2] == 1:
                made.append([whole] * len(one.states))
                continue
            place, worth, num = found
            open_ = [len(self.table.board.options[state]) > 1 for state in one.states]
            credit = [(whole - worth) / (num - 1) if each else 0.0 for each in open_]
            credit[place] = worth
            made.append(credit)
        return made


FORGET = 0.998
"""What a visit still counts after another one, for means of returns under a policy that moves."""


def to_come(one: Rollout) -> list[float]:
    """What was earned from each choice on."""
    made, total = [], 0.0
    for reward in reversed(one.rewards):
        total += reward
        made.append(total)
    return made[::-1]


def uniform(groups: list[list[Rollout]]) -> Credit:
    made: Credit = []
    for group in groups:
        totals = [one.value for one in group]
        mean = math.fsum(totals) / len(totals)
        spread = math.sqrt(math.fsum((each - mean) ** 2 for each in totals) / (len(totals) - 1))
        made += [[(t - mean) / (spread + 1e-4)] * len(o.states) for o, t in zip(group, totals, strict=True)]
    return made


def leave_one_out(groups: list[list[Rollout]]) -> Credit:
    made: Credit = []
    for group in groups:
        totals = [one.value for one in group]
        whole = math.fsum(totals)
        made += [
            [t - (whole - t) / (len(group) - 1)] * len(one.states)
            for one, t in zip(group, totals, strict=True)
        ]
    return made


def return_to_go(groups: list[list[Rollout]]) -> Credit:
    made: Credit = []
    for group in groups:
        rest = [to_come(one) for one in group]
        for mine in rest:
            credit = []
            for step, each in enumerate(mine):
                others = [theirs[step] for theirs in rest if theirs is not mine and step < len(theirs)]
                credit.append(each - math.fsum(others) / len(others) if others else 0.0)
            made.append(credit)
    return made


def _mean(known: list[float]) -> float:
    return known[1] / known[0]
