"""A critic that counts: values of situations that come up again and again, under the policy as it is now.

Every trace tells what followed a choice and what it earned. From all traces so far, whatever policy made them (what
follows a choice does not depend on who chose it), the counts give Q, backwards, with the chances of options that the
policy has now (a step's traces have those of the weights that played them; for situations that may follow but did not
come up, it is asked):

    Q(s, a) = mean of [r + V(s')] over everything that followed,   V(s) = sum_a pi(a | s) Q(s, a)

(certainty equivalence; fitted Q evaluation with a table). With `backup = "best"`, V(s) = max_a Q'(s, a) instead: a
choice is judged as if all later ones were made as well as is known by now. That is what the regret ledger charges a
decision with, and an early choice is not blamed for late ones that are still bad, which is how a team unlearns to
spawn before it has learned what to do with those it spawned. The best of several noisy values is too high, more so
where visits are few: `backup = "best-first"` begins so and ends with the policy's own. With `backup = "return"`, Q is
the mean of all that was earned from the choice on (Monte Carlo), which needs no more than the choice's own situation
to repeat: right where what follows does not show what was chosen. Options with few visits are drawn towards the
average over the options seen: Q' = (n Q + prior V) / (n + prior). It needs situations that repeat: games, or teams
whose roles remember only the latest they were told.

`temperature` keeps all options tried: q gives Q' - t log pi, whose policy gradient is that of the return plus t
times the entropy over options (soft policy iteration, Haarnoja et al. 2018 [M]). Entropy over tokens would loosen
the grammar as well. `optimism` adds b / sqrt(n) to an option seen n times, so that choices whose options differ by
little are not made for good on early luck (MBIE-EB, Strehl and Littman 2008 [M]). Both fall to zero over the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal, Self, TypeVar

from msgspec import Struct, structs

from baton.credit.estimator import CreditError, Prefix, RewardOf
from baton.games.on_team import TracedStep, steps_of
from baton.learn.options import Asked, chances_of
from baton.learn.policy import samplers
from baton.learn.recipe import CriticPart, Recipe
from baton.trace.outcome import team_return
from baton.trace.records import Event
from baton.trace.trace import Trace


class ChoicePoint(Struct, frozen=True, kw_only=True):
    """Where an agent chose among named options: what it saw, and what it earned on the way.

    What the chooser saw is its prompt, so two prefixes that look alike to it are one situation. Rewards that a task
    writes onto its steps come when they came; what is left of the return comes with the last choice.
    """

    place: int
    """The number of its event in `trace.events`."""
    situation: bytes
    options: tuple[str, ...]
    choice: int
    chances: tuple[float, ...]
    asked: Asked
    reward: float
    """Earned between this choice and the next."""
    drawn: int
    """The number of the event that tells what followed: nature's draw, or the choice itself."""


def situation(trace: Trace, place: int) -> bytes:
    """What the chooser of an event saw, as a key."""
    event = trace.events[place]
    return _key(Asked.at(trace, event) or _unseen(event))


def _key(asked: Asked) -> bytes:
    return blake2b(asked.prompt + "\n".join(asked.options).encode(), digest_size=16).digest()


def _unseen(event: Event) -> Asked:
    return Asked(None, b"", event.options or (), 1.0)


def choice_points(
    trace: Trace, reward: RewardOf = team_return, earned: Mapping[str, float] | None = None
) -> list[ChoicePoint]:
    """The choices of a trace, in its order. Answers that could not be carried out are no choices.

    `earned` says what each event earned, where that is not what the task wrote onto its steps.
    """
    found: list[ChoicePoint] = []
    steps = {step.event: step for step in steps_of(trace.events)}
    for place, event in enumerate(trace.events):
        if event.call is None or event.options is None or event.choice is None or event.status != "ok":
            continue
        chances = event.option_propensities
        if chances is None:
            chances = tuple(float(k == event.choice) for k in range(len(event.options)))
        asked = Asked.at(trace, event) or _unseen(event)
        found.append(
            ChoicePoint(
                place=place,
                situation=_key(asked),
                options=event.options,
                choice=event.choice,
                chances=chances,
                asked=asked,
                reward=_earned(event, step := steps.get(place), earned),
                drawn=place if step is None else step.drawn,
            )
        )
    if found:
        rest = reward(trace) - math.fsum(point.reward for point in found)
        found[-1] = structs.replace(found[-1], reward=found[-1].reward + rest)
    return found


def _earned(event: Event, step: TracedStep | None, earned: Mapping[str, float] | None) -> float:
    if earned is not None:
        return earned.get(event.id, 0.0)
    return 0.0 if step is None else float(step.reward)


T = TypeVar("T")
Ask = Callable[[Sequence[Asked]], Mapping[Asked, tuple[float, ...]]]
"""The chances of options as the policy is now; what it does not answer for is left out."""
_END = b""
_MAX_SWEEPS = 200
_STILL = 1e-9
_LEAST = 1e-6
"""Below this chance an option's bonus does not grow."""


class _Cell(Struct):
    """What followed one option of one situation."""

    count: float = 0
    reward: float = 0.0
    after: dict[bytes, float] = {}


class TableCritic:
    """Counts of (situation, option) -> next situation."""

    def __init__(
        self,
        *,
        prior: float = 3.0,
        backup: Literal["policy", "best", "best-first", "return"] = "policy",
        temperature: float = 0.0,
        optimism: float = 0.0,
        num_steps: int = 1,
        reward: RewardOf = team_return,
        ask: Ask | None = None,
        earned: Callable[[Trace], Mapping[str, float]] | None = None,
        fade: float = 0.0,
    ) -> None:
        self.prior = prior
        self.backup = backup
        self.temperature = temperature
        self.optimism = optimism
        self.num_steps = num_steps
        self._num_observed = 0
        self.reward = reward
        self.ask = ask
        self.earned = earned
        """Event -> what it earned, where that is not what the task wrote onto its steps."""
        self.fade = fade
        self._cells: dict[bytes, list[_Cell]] = {}
        self._chances: dict[bytes, tuple[float, ...]] = {}
        self._asked: dict[bytes, Asked] = {}
        self._depth: dict[bytes, int] = {}
        """The farthest from the end a situation was seen: sweeps go from the end backwards."""
        self._values: dict[bytes, float] = {}
        self._levels: dict[bytes, float] = {}
        """The policy's average over the options seen."""
        self._points: dict[str, list[ChoicePoint]] = {}
        self._last: tuple[Trace | None, int, bytes] = (None, 0, _END)
        """The choice that was asked about last, and its situation."""

    @classmethod
    def from_recipe(cls, recipe: Recipe, policies: Mapping[str, Any], reward: RewardOf) -> Self:
        """As the recipe's [critic] has it; the policies are asked what they would do now."""

        def ask(asked: Sequence[Asked]) -> dict[Asked, tuple[float, ...]]:
            return chances_of(asked, samplers(policies, now=True), max_tokens=recipe.pack.max_tokens)

        part = recipe.critic or CriticPart()
        return cls(
            prior=part.prior,
            backup=part.backup,
            temperature=part.entropy_bonus,
            optimism=part.optimism,
            num_steps=recipe.train.steps,
            reward=reward,
            ask=ask,
            fade=part.fade,
        )

    def observe(self, traces: Iterable[Trace]) -> None:
        """Count a step's traces and solve anew."""
        self._num_observed += 1
        self._points = {}
        if self.fade:
            self._forget()
        fresh: set[bytes] = set()
        for trace in traces:
            points = self._points[trace.trace_id] = self._choice_points(trace)
            ahead = math.fsum(point.reward for point in points)
            for number, point in enumerate(points):
                cells = self._cells.setdefault(point.situation, [])
                while len(cells) < len(point.options):
                    cells.append(_Cell())
                last = self.backup == "return" or number + 1 == len(points)
                after = _END if last else points[number + 1].situation
                cell = cells[point.choice]
                cell.count += 1
                cell.reward += ahead if self.backup == "return" else point.reward
                ahead -= point.reward
                cell.after[after] = cell.after.get(after, 0) + 1
                self._chances[point.situation] = point.chances
                self._asked[point.situation] = point.asked
                fresh.add(point.situation)
                depth = len(points) - number
                self._depth[point.situation] = max(self._depth.get(point.situation, 0), depth)
        self._ask_again(fresh)
        self._solve()

    def _forget(self) -> None:
        """What was counted counts less."""
        left = 1 - self.fade
        for cells in self._cells.values():
            for cell in cells:
                cell.count, cell.reward = cell.count * left, cell.reward * left
                cell.after = {key: count * left for key, count in cell.after.items()}

    def _choice_points(self, trace: Trace) -> list[ChoicePoint]:
        return choice_points(trace, self.reward, None if self.earned is None else self.earned(trace))

    def _ask_again(self, fresh: set[bytes]) -> None:
        """The chances of situations that may follow these but did not come up: theirs are of an earlier policy."""
        if self.ask is None:
            return
        reached, edge = set(fresh), list(fresh)
        while edge:
            follow = {key for cell in self._cells[edge.pop()] for key in cell.after if key != _END}
            edge += follow - reached
            reached |= follow
        stale = {key: self._asked[key] for key in sorted(reached - fresh) if key in self._asked}
        found = self.ask(list(stale.values()))
        self._chances |= {key: found[asked] for key, asked in stale.items() if asked in found}

    def _solve(self) -> None:
        order = sorted(self._cells, key=lambda key: self._depth[key])
        values = self._values = {_END: 0.0} | {key: self._values.get(key, 0.0) for key in order}
        for _ in range(_MAX_SWEEPS):
            moved = 0.0
            for key in order:
                new = self._value_of(key)
                moved = max(moved, abs(new - values[key]))
                values[key] = new
            if moved < _STILL:
                return

    def _value_of(self, key: bytes) -> float:
        """The value of a situation, over the options seen: by the policy's chances, or of the best."""
        level = self._levels[key] = self._average(key)
        if self.backup in ("policy", "return"):
            return level
        best = max(self._drawn(cell, level) for cell in self._cells[key] if cell.count)
        share = self._left if self.backup == "best-first" else 1.0
        return share * best + (1 - share) * level

    @property
    def _left(self) -> float:
        """The share of the run that is still to come, from 1 down to 0."""
        return max(0.0, 1 - (self._num_observed - 1) / self.num_steps)

    def _average(self, key: bytes) -> float:
        total, weight = 0.0, 0.0
        for cell, chance in zip(self._cells[key], self._chances[key], strict=True):
            if cell.count:
                share = max(chance, 1e-9)
                total += share * self._mean(cell)
                weight += share
        return total / weight

    def _drawn(self, cell: _Cell, level: float) -> float:
        """Q, drawn towards the average by as much as it is not known."""
        if not cell.count:
            return level
        return (cell.count * self._mean(cell) + self.prior * level) / (cell.count + self.prior)

    def _mean(self, cell: _Cell) -> float:
        ahead = sum(count * self._values[after] for after, count in cell.after.items())
        return (cell.reward + ahead) / cell.count

    def q(self, prefix: Prefix, option: str) -> float:
        """The value of an option at the choice that follows a prefix, less what was earned before."""
        event = prefix.trace.events[prefix.num_events]
        key = self._situation(prefix.trace, prefix.num_events)
        if key not in self._cells or event.options is None:
            raise CreditError(
                f"trace {prefix.trace.trace_id}, event {event.id}: the critic has not seen this choice. "
                "Observe the trace first."
            )
        place = event.options.index(option)
        cell = self._cells[key][place]
        left = self._left
        value = self._drawn(cell, self._levels[key]) + left * self.optimism / math.sqrt(max(1, cell.count))
        if event.option_propensities is None:
            return value
        chance = max(event.option_propensities[place], _LEAST)
        return value - left**2 * self.temperature * math.log(chance)

    def _situation(self, trace: Trace, place: int) -> bytes:
        """`situation`, remembered for the next option of the same choice."""
        known, where, key = self._last
        if known is not trace or where != place:
            key = situation(trace, place)
            self._last = trace, place, key
        return key

    def value(self, prefix: Prefix) -> float:
        """What was earned so far and what is expected from here on; between a choice and nature's draw, by Q."""
        points = self._points.get(prefix.trace.trace_id)
        if points is None:
            points = self._choice_points(prefix.trace)
        earned = 0.0
        for point in points:
            if point.place >= prefix.num_events:
                return earned + self._values.get(point.situation, 0.0)
            if point.drawn >= prefix.num_events:
                cells = self._cells.get(point.situation)
                seen = cells is not None and cells[point.choice].count
                return earned + (self._mean(cells[point.choice]) if cells and seen else 0.0)
            earned += point.reward
        return earned

    def given(self) -> dict[str, Any]:
        """Values of prefixes, and of options at them."""
        return {"value": self.value, "q": self.q}

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "num_observed": self._num_observed,
            "cells": {
                key.hex(): [
                    [cell.count, cell.reward, {after.hex(): n for after, n in cell.after.items()}]
                    for cell in cells
                ]
                for key, cells in self._cells.items()
            },
            "chances": {key.hex(): list(chances) for key, chances in self._chances.items()},
            "asked": {key.hex(): asked.plain() for key, asked in self._asked.items()},
            "depth": {key.hex(): depth for key, depth in self._depth.items()},
            "values": {key.hex(): value for key, value in self._values.items()},
            "levels": {key.hex(): level for key, level in self._levels.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""
        self._num_observed = state["num_observed"]
        self._cells = {
            key: [_Cell(count, reward, _by_key(after)) for count, reward, after in cells]
            for key, cells in _by_key(state["cells"]).items()
        }
        self._chances = {key: tuple(value) for key, value in _by_key(state["chances"]).items()}
        asked = state.get("asked", {})  # of a checkpoint from before it was kept: none
        self._asked = {key: Asked.of(value) for key, value in _by_key(asked).items()}
        self._depth, self._values = _by_key(state["depth"]), _by_key(state["values"])
        levels = state.get("levels")
        if levels is None:  # of a checkpoint from before they were kept
            self._solve()
        else:  # solved again, values of situations that come round to themselves would move on by a digit
            self._levels = _by_key(levels)


def _by_key(written: Mapping[str, T]) -> dict[bytes, T]:
    """What a checkpoint keeps under the text of a key."""
    return {bytes.fromhex(key): value for key, value in written.items()}
