"""Which groups a step takes when it does not wait for all of them, and how much each counts.

A step has `pending` groups and closes when `need` of them are finished. A group that would finish at `d` is taken if
fewer than `need` of the others finish before d, so what is taken is short. With F(d) the share of groups that finish
before d, a group of length d is taken with the chance

    pi(d) = P[Binomial(pending - 1, F(d)) < need]

`cut` throws the others away. Weights 1 / pi(d) (Horvitz and Thompson 1952 [M]) undo that: the sum over what is taken of
f / pi then has the mean of the sum of f over all, whatever f is, as long as pi(d) > 0. F is not known, because what was
cut is known only to be longer than the moment it was cut at; it is estimated from the last steps by Kaplan and Meier's
product (1958 [M]). Lengths beyond all that were ever taken are not identified: no weight brings them back, and `tail`
in the metrics says how much of the mass they are.

`carry` throws nothing away: what is not finished goes on in the next step, so every group begun is taken once, and over
a run short ones are not taken more often. They are taken sooner: the first steps have short ones only. So that these do
not count for more, a step counts by how many groups it takes beside how many a step begins.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

STEPS = 16
"""Steps whose lengths are remembered: the policy changes, and lengths with it."""
MOST = 10.0
"""A group counts at most this many times as much as one that is always taken."""


def num_needed(pending: int, share: float) -> int:
    """How many groups a step waits for: this share of them, rounded up, and at least one."""
    return max(1, math.ceil(share * pending - 1e-9))


def closing_time(ends: Sequence[float], need: int, due: Sequence[float | None] = ()) -> float | None:
    """When a step closes, given when groups that are finished did: with the `need`th of them, and not before those that
    are `due`. None: not yet."""
    if len(ends) < need or any(end is None for end in due):
        return None
    return max([sorted(ends)[need - 1], *(end for end in due if end is not None)])


def taken_chance(before: float, pending: int, need: int) -> float:
    """The chance that a group is taken before whose end each other one ends with the chance `before`."""
    others = pending - 1
    return math.fsum(
        math.comb(others, k) * before**k * (1.0 - before) ** (others - k)
        for k in range(min(need, others + 1))
    )


class Closed(Struct, frozen=True, kw_only=True):
    """The lengths of one step's groups, as far as they are known."""

    ends: tuple[float, ...]
    """Of those that were taken."""
    left: tuple[float, ...] = ()
    """Of each that was cut, a moment that it went on beyond."""


class Lengths:
    """How long groups are, by what the last steps saw of it."""

    def __init__(self) -> None:
        self._steps: deque[Closed] = deque(maxlen=STEPS)

    def weigh(self, step: Closed, pending: int, need: int) -> list[float]:
        """How much each group that a step took counts: 1 / pi, times the share of groups that were taken, so that it
        is 1 on average. Then the step is remembered.

        Lengths are those of the steps before, but for the first: a long one that was just taken would make itself look
        usual. None counts more than `MOST` times as much as one that is always taken.
        """
        first = not self._steps
        if first:
            self._steps.append(step)
        curve, tail = self.curve()
        if not first:
            self._steps.append(step)
        lengths, before = [length for length, _ in curve], [*(share for _, share in curve), 1.0 - tail]
        chances = [taken_chance(before[bisect_left(lengths, end)], pending, need) for end in step.ends]
        share = (
            len(step.ends) / pending
        )  # the loss divides by how many there are, the sum of f / pi is by all
        return [share * min(MOST, 1.0 / max(1e-12, chance)) for chance in chances]

    def curve(self) -> tuple[list[tuple[float, float]], float]:
        """Lengths at which groups ended, ascending, each with the share that ends before it (Kaplan and Meier); and the
        share that is longer than all of them, which no weight can stand for."""
        ends = sorted(end for step in self._steps for end in step.ends)
        left = sorted(at for step in self._steps for at in step.left)
        found: list[tuple[float, float]] = []
        at_risk, longer, gone, place = len(ends) + len(left), 1.0, 0, 0
        while place < len(ends):
            length = ends[place]
            while (
                gone < len(left) and left[gone] < length
            ):  # who was cut at this very moment lived through it
                gone += 1
                at_risk -= 1
            found.append((length, 1.0 - longer))
            many = bisect_right(ends, length) - place
            longer *= 1.0 - many / at_risk
            at_risk -= many
            place += many
        return found, longer

    def state_dict(self) -> list[list[list[float]]]:
        """Everything, as plain values."""
        return [[list(step.ends), list(step.left)] for step in self._steps]

    def load_state_dict(self, state: Sequence[Sequence[Sequence[float]]]) -> None:
        """What `state_dict` gave."""
        self._steps = deque((Closed(ends=tuple(e), left=tuple(c)) for e, c in state), maxlen=STEPS)


def straggler_figures(
    taken: int, left: int, weights: Sequence[float], lengths: Lengths | None
) -> Mapping[str, Any]:
    """What is told of a step: groups taken and left, what its groups count, and what no weight can stand for."""
    found: dict[str, Any] = {"taken": taken, "left": left, "most_weight": max(weights, default=1.0)}
    return found if lengths is None else found | {"tail": lengths.curve()[1]}
