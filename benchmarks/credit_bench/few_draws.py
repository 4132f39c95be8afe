"""Intervals that rest on few draws, which are to hold the truth at least 93 times in a hundred.

Of four draws of a bit with a chance of .6, those that are not all alike are 1, 2 or 3 of it, with chances of .18, .41
and .41: whatever interval is stated then, it holds the truth 0, 18, 41, 59, 82 or 100 times in a hundred and never 93
to 97. So it is with few coalitions of skewed worths and few scores of 0 or 1: what can be asked of them is that they
hold it often enough. Truths are arithmetic or enumeration; nothing here looks at an estimator.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Struct

from baton.credit.estimators.shapley_scarce import scarce
from baton.credit.estimators.shapley_values import Coalitions
from baton.credit.estimators.stop_value import backward, bootstrap_errors
from baton.credit.estimators.telescope import telescope
from baton.games.library.stopping_chain import StoppingChain
from baton.games.solve import solve
from baton.trace.records import Event, Reward
from baton.trace.trace import Header, Trace
from credit_bench.coverage import Held, count_error, matched
from credit_bench.coverage_teams import World, alone, bits, held
from credit_bench.figures import NORMAL_95, Array
from credit_bench.stopping import _features, _rollouts
from credit_bench.two_choices import Case

__all__ = ["GAMES", "Few", "by_orders", "few_draws"]

_WAIT, _STOP = "wait any", "stop draft"


class Few(Struct, frozen=True, kw_only=True):
    """One estimator from so few draws."""

    estimator: str
    world: str
    held: Held

    @property
    def met(self) -> bool | None:
        """At least 93 %, give or take two errors of the count; None: too few intervals to tell."""
        return self.held.holds(at_most=1.0)


def few_draws(num_groups: int) -> list[Few]:
    """Every row."""
    found = [
        Few(
            estimator="spawn-fork",
            world=f"one rollout alone, 4 replicates{said}",
            held=asyncio.run(held(_ALONE, Case(num_texts=8, group_size=1, coin=coin), 8 * num_groups)),
        )
        for coin, said in ((False, ""), (True, ", returns 0/1"))
    ]
    found.append(
        Few(
            estimator="message-replay",
            world="a bit, 4 x 4",
            held=asyncio.run(held(_BITS, Case(num_texts=8, group_size=8), max(1, num_groups // 2))),
        )
    )
    found += [
        Few(
            estimator="shapley",
            world=f"{value}, {draws} draws, five games",
            held=_shared(value, draws, num_groups),
        )
        for value in ("permission", "precedence")
        for draws in (4, 8, 16)
    ]
    found += [
        Few(
            estimator="stop-value",
            world=f"{size} rollouts{', scores of 0/1' if coin else ''}",
            held=_stopped(size, max(2, num_groups // 2), coin=coin),
        )
        for size, coin in ((16, False), (40, False), (40, True))
    ]
    found += [
        Few(
            estimator="telescope",
            world=f"a later event whose context nobody shares, n = {size}{', returns 0/1' if coin else ''}",
            held=_later(size, num_groups * 8 // size, coin=coin),
        )
        for size, coin in ((8, False), (32, False), (8, True))
    ]
    return found


_ALONE = World(estimator="spawn-fork", holds="", group=alone, settings={"num_replicates": 4})
_BITS = World(
    estimator="message-replay", holds="", group=bits, settings={"num_alternatives": 4, "num_continuations": 4}
)


def _told(groups: Iterable[Sequence[tuple[float, float, float | None]]]) -> Held:
    """From (value, truth, error) of each credit of each group."""
    every = [list(group) for group in groups]
    inside = [
        [
            abs(value - truth) <= NORMAL_95 * error + 1e-12
            for value, truth, error in group
            if error is not None
        ]
        for group in every
    ]
    num, all_of_them = sum(map(len, inside)), sum(map(len, every))
    return Held(
        share=sum(map(sum, inside)) / num if num else None,
        num=num,
        error=count_error(inside),
        stated=num / all_of_them,
    )


# Shapley values of games whose worths are skewed.


def _gloves(mask: int) -> float:
    return float(min((mask & 0b11).bit_count(), (mask & 0b11100).bit_count()))


def _three_of_six(mask: int) -> float:
    return float(mask & 0b111 == 0b111)


def _majority(mask: int) -> float:
    return float(mask.bit_count() >= 4)


def _runway(mask: int) -> float:
    return float(mask.bit_length())


def _saturating(mask: int) -> float:
    return math.tanh(sum(0.15 * (i + 1) for i in range(6) if mask >> i & 1))


GAMES: tuple[Callable[[int], float], ...] = (_gloves, _three_of_six, _majority, _runway, _saturating)
"""Of six players: worth by coalition."""


def by_orders(worth: Callable[[int], float], n: int) -> list[float]:
    """Mean marginals over all orders, by the book."""
    values, orders = [0.0] * n, list(itertools.permutations(range(n)))
    for order in orders:
        mask = 0
        for player in order:
            values[player] += (worth(mask | 1 << player) - worth(mask)) / len(orders)
            mask |= 1 << player
    return values


def _shared(value: str, draws: int, num_seeds: int) -> Held:
    groups = []
    for worth in GAMES:
        truth = by_orders(worth, 6)
        for seed in range(num_seeds):
            found = scarce(
                Coalitions(worth, (-1,) * 6), value=value, max_evaluations=2 * draws + 2, seed=seed
            )
            groups.append(list(zip(found.values, truth, found.stderr or (None,) * 6, strict=True)))
    return _told(groups)


# The stopping chain, by arithmetic alone; scores of 0 or 1 are coins with the chance that the draft is right.


def _stopped(size: int, num_groups: int, *, coin: bool) -> Held:
    game = StoppingChain()
    solution = solve(game)
    groups = []
    for number in range(num_groups):
        scores, known = _rollouts(game, size, 5000 + number)
        x = _features(known)
        if coin:
            right = 1 - (1 - game.gain) ** known[..., 0]
            luck = np.random.default_rng([number, size]).random((size, 1))  # one verdict a rollout
            scores = scores - right + (luck < right)
        difference = backward(scores, x, score_known=not coin).difference
        errors = bootstrap_errors(scores, x, score_known=not coin)
        groups.append(
            [
                (float(difference[at]), _gap(solution.q((at[1], *map(int, known[at])))), _known(errors[at]))
                for at in map(tuple, np.argwhere(np.isfinite(difference)).tolist())
            ]
        )
    return _told(groups)


def _gap(q: dict[str, float]) -> float:
    return q[_WAIT] - q[_STOP]


def _known(error: float) -> float | None:
    return float(error) if error > 1e-12 else None


# A plan in words that come once, and an answer that the plan makes likelier; both are worth something.

_WORTH = (0.8, 0.2, -0.3)
_LIKELY = ((0.1, 0.4, 0.5), (0.7, 0.2, 0.1))


def _later(size: int, num_groups: int, *, coin: bool) -> Held:
    draw = np.random.default_rng([7, size, coin])
    groups = []
    for _ in range(max(2, num_groups)):
        rollouts = [_planned(draw, f"r{place:02}", coin) for place in range(size)]
        credits = telescope([trace for trace, _ in rollouts], unit="message")
        pairs = matched(credits, [{"answer": worth} for _, worth in rollouts])
        groups.append([(credit.value, truth, credit.stderr) for credit, truth in pairs])
    return _told(groups)


def _planned(draw: np.random.Generator, name: str, coin: bool) -> tuple[Trace, float]:
    """A rollout, and what its answer was worth over what such a plan leads to on average."""
    good = int(draw.integers(2))
    means: Array = np.array(_LIKELY) @ np.array(_WORTH)
    answer = int(draw.choice(3, p=_LIKELY[good]))
    level = 0.1 + 0.6 * _WORTH[answer] + 0.2 * good
    total = float(draw.random() < level) if coin else level + 0.2 * float(draw.normal())
    if coin:
        level, means = min(max(level, 0.0), 1.0), np.array([_chance(row, k) for k, row in enumerate(_LIKELY)])
        worth = level - float(means[good])
    else:
        worth = 0.6 * (_WORTH[answer] - float(means[good]))
    said = [
        ("planner", "plan", f"text:plan {draw.integers(10**9)}"),
        ("lead", "answer", f"text:answer {answer}"),
    ]
    events = tuple(
        Event(
            id=kind, type="message", agent=agent, to="lead" if agent == "planner" else "planner", seq=place,
            t=float(place), decision="communicate", content_ref=text,
        )
        for place, (agent, kind, text) in enumerate(said, 1)
    )  # fmt: skip
    trace = Trace(
        header=Header(trace_id=name, task_id="planned"),
        events=events,
        edges=(),
        calls=(),
        rewards=(Reward(family="shared", unit="team", target=name, value=total),),
    )
    return trace, worth


def _chance(row: Sequence[float], good: int) -> float:
    """How likely a return of 1 is after such a plan."""
    return math.fsum(
        p * min(max(0.1 + 0.6 * worth + 0.2 * good, 0.0), 1.0) for p, worth in zip(row, _WORTH, strict=True)
    )
