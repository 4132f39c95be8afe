"""What a policy of `wide_job` is worth, exactly: every outcome of every wave, weighed by its chance.

A worker of a share s who does an item at a step with chance p has finished after T steps, the s-th success of a row of
draws; it stops at min(T, patience). How many of the workers of a wave finish is binomial, so how much is left is known
as a distribution, and what follows as well. Nothing is played.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from wide_job import LEFT, RIGHT, STOP, Job, amount

Numbers = NDArray[np.float64]
NAMES = ("success", "steps", "agents", "finished", "critical")
"""What is expected of a run; `finished` counts agents that did a share that was not empty."""
Chances = Mapping[str, Mapping[str, float]]
"""What the lead reads -> option -> chance."""


class Values:
    """Of one job with workers who do an item at a step with chance p."""

    def __init__(self, job: Job, p: float) -> None:
        self.job = job
        self.p = p

    @cached_property
    def _ends(self) -> Numbers:
        """Share, steps -> the chance that a worker of this share has stopped after so many."""
        most, shares = self.job.patience, max(self.job.shares)
        found = np.zeros((shares + 1, most + 1))
        done = np.zeros(most + 1)  # how many items so many steps have done
        done[0] = 1.0
        for step in range(most + 1):
            tail = np.concatenate([np.cumsum(done[::-1])[::-1], np.zeros(max(0, shares - most))])
            found[:, step] = tail[: shares + 1]
            done = done * (1 - self.p) + np.concatenate([[0.0], done[:-1]]) * self.p
        return found

    def finishes(self, share: int) -> float:
        """The chance that a worker does its share in time; of nothing, 1."""
        return float(self._ends[share, -1])

    def _stopped(self, share: int) -> Numbers:
        """Steps -> the chance to have stopped by then. Who has nothing to do takes one step to see it."""
        found = self._ends[share].copy()
        found[-1] = 1.0
        if share == 0:
            found[0] = 0.0
        return found

    @cached_property
    def _binomials(self) -> dict[int, Numbers]:
        """Share -> (workers, how many finish) -> chance."""
        most = max(self.job.widths)
        found = {}
        for share in self.job.shares:
            p = self.finishes(share)
            rows = np.zeros((most + 1, most + 1))
            rows[0, 0] = 1.0
            for n in range(1, most + 1):
                rows[n, : n + 1] = rows[n - 1, : n + 1] * (1 - p)
                rows[n, 1 : n + 1] += rows[n - 1, :n] * p
            found[share] = rows
        return found

    def wave(self, left: int, width: int, share: int) -> tuple[dict[int, float], Numbers]:
        """What may be left afterwards with its chance, and what the wave itself adds to `NAMES` (success apart)."""
        full = min(width, left // share)
        rest = min(left - full * share, share) if full < width else 0
        idle = width - full - (rest > 0)
        groups = [(share, full), (rest, int(rest > 0)), (0, idle)]
        steps = finished = 0.0
        slowest = np.ones(self.job.patience + 1)
        for size, number in groups:
            if number:
                stopped = self._stopped(size)
                steps += number * float(np.sum(1 - stopped))
                slowest = slowest * stopped**number
                finished += number * self.finishes(size) * (size > 0)
        critical = (
            3 + float(np.sum(1 - slowest)) + 1
        )  # two choices, the wait; the slowest worker and its return
        after: dict[int, float] = {}
        last = self.finishes(rest) if rest else 0.0
        for number, chance in enumerate(self._binomials[share][full, : full + 1].tolist()):
            for did, also in ((0, 1 - last), (rest, last)):
                if chance * also > 1e-15:
                    now = left - number * share - did
                    after[now] = after.get(now, 0.0) + chance * also
        return after, np.array([0.0, steps, width, finished, critical])

    def returns(self, expected: Numbers) -> float:
        """The return, from what is expected of a run."""
        job = self.job
        success, steps, agents, _, critical = expected.tolist()
        return float(success - job.price * (steps + job.overhead * agents) - job.latency * critical)

    # -- plans: what is chosen in a wave, for all that may be left ------------------------------------

    def _last(self, left: int) -> dict[tuple[int, int], Numbers]:
        """The last wave: (width, share) -> what is expected from here on; (0, 0) is to stop."""
        if left not in self._kept:
            job = self.job
            found = {(0, 0): np.array([0.0, 0.0, 0.0, 0.0, 1.0])}
            for width in job.widths:
                for share in job.shares:
                    found[width, share] = self._ended(left, width, share)
            self._kept[left] = found
        return self._kept[left]

    @cached_property
    def _kept(self) -> dict[int, dict[tuple[int, int], Numbers]]:
        return {}

    def _ended(self, left: int, width: int, share: int) -> Numbers:
        after, found = self.wave(left, width, share)
        found[0] = math.fsum(p for now, p in after.items() if self.job.is_done(self.job.items - now))
        return found

    @cached_property
    def _first(self) -> dict[tuple[int, int], tuple[dict[int, float], Numbers]]:
        return {(w, c): self.wave(self.job.items, w, c) for w in self.job.widths for c in self.job.shares}

    def of(self, chances: Chances) -> Numbers:
        """What is expected of a run under a policy: what it reads -> its chances."""
        job, total = self.job, np.array([0.0, 0.0, 0.0, 0.0, 1.0])  # the stop itself
        reads = job.wave(1, job.items)
        ahead: dict[int, Numbers] = {}
        for (width, share), (after, found) in self._first.items():
            chance = chances[reads][f"spawn {width}"] * chances[f"{reads}, {width} workers"][f"share {share}"]
            if chance < 1e-9:
                continue
            total += chance * found
            for left, p in after.items():
                if job.is_done(job.items - left):
                    total[0] += chance * p
                elif p * chance > 1e-9:
                    if left not in ahead:
                        ahead[left] = self._second(left, chances)
                    total += chance * p * ahead[left]
        return total

    def _second(self, left: int, chances: Chances) -> Numbers:
        reads = self.job.wave(2, left)
        plans = self._last(left)
        total = chances[reads][STOP] * plans[0, 0]
        for (width, share), found in plans.items():
            if width:
                hands = chances[f"{reads}, {width} workers"]
                total = total + chances[reads][f"spawn {width}"] * hands[f"share {share}"] * found
        return total

    def by_width(self) -> dict[int, float]:
        """The best return of one wave of each width, whatever is handed out, and then a stop."""
        found = {}
        for width in self.job.widths:
            each = []
            for share in self.job.shares:
                expected = self._ended(self.job.items, width, share)
                stops = 1 - expected[0]  # where it is not done, the lead is asked and stops
                each.append(self.returns(expected + np.array([0.0, 0.0, 0.0, 0.0, 1.0 + stops])))
            found[width] = max(each)
        return found

    def best(self) -> tuple[float, tuple[int, int]]:
        """V*, and the first wave's width and share: the best second wave by what the lead then reads."""
        job, best = self.job, (-math.inf, (0, 0))
        for plan, (after, found) in self._first.items():
            value = self.returns(found + np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
            value += math.fsum(p for left, p in after.items() if job.is_done(job.items - left))
            for _, word in LEFT:
                here = [
                    (left, p) for left, p in after.items()
                    if not job.is_done(job.items - left) and amount(left / job.items) == word and p > 1e-9
                ]  # fmt: skip
                if here:
                    value += self._best_second(here)
            best = max(best, (value, plan))
        return best

    def _best_second(self, here: Sequence[tuple[int, float]]) -> float:
        plans = self._last(here[0][0])
        return max(math.fsum(p * self.returns(self._last(left)[plan]) for left, p in here) for plan in plans)


def skill(job: Job, chances: Mapping[str, float]) -> float:
    """The chance that a step does an item."""
    return job.chance * chances[RIGHT]
