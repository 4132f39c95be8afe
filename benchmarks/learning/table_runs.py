"""Runs of a table, for results 10 and 12: an arm says what is learned and how, a job is an arm and a seed.

Settings are chosen on seeds below `FIRST` alone. Arms that were thought of after others had been seen have seeds of
their own, from `FRESH` on, on which nothing was tried before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct
from runs import Job
from table_policy import FORGET, Table

from baton.games.game import Game
from baton.learn.constraint.dual import Dual
from baton.learn.recipe import ConstraintPart

EPISODES = 64
"""Played for an update."""
FIRST, FRESH = 100, 200


class TableArm(Struct, frozen=True, kw_only=True):
    """What is learned, and how."""

    game: Game
    updates: int
    backup: Literal["return", "policy"] = "return"
    forget: float = FORGET
    price: ConstraintPart | None = None
    """None: reward alone."""
    first: int = FIRST
    """The first of its seeds."""


def table_jobs(arms: Mapping[str, TableArm], quick: int) -> Callable[[int, bool], list[Job]]:
    """Makes the jobs; `quick` updates where it is only to be shown that they run."""

    def jobs(num_seeds: int, is_quick: bool) -> list[Job]:
        return [
            {"arm": name, "seed": arm.first + number, "updates": quick if is_quick else arm.updates}
            for number in range(num_seeds)
            for name, arm in arms.items()
        ]

    return jobs


def learned(
    arm: TableArm, seed: int, updates: int, look: Callable[[Table, float], Any], every: int
) -> list[tuple[int, Any]]:
    """One run: (update, what `look` makes of the table and the price), every so many updates and at the end."""
    table = Table(arm.game, seed, arm.backup, arm.forget)
    dual = None if arm.price is None else Dual(arm.price)
    found = []
    for update in range(updates + 1):
        price = 0.0 if dual is None else dual.price
        if update % every == 0 or update == updates:
            found.append((update, look(table, price)))
        episodes = [table.play() for _ in range(EPISODES)]
        table.learn(episodes, price)
        if dual is not None:
            dual.observe([sum(step[3] for step in steps) for steps in episodes])
    return found
