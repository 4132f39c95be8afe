"""Which credits of a recipe can stand together, told before anything is computed: layers of one exact partition.

Credits for different roles, decisions or kinds of event have nothing to do with each other. Those that speak of the
same events must be on different levels (decision or message, turn, agent, role, team), and in units of the return: then
what the finer one gave is taken off the coarser one (`baton.credit.core.layers`), and the sum is the coarsest's.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations

from baton.credit import find
from baton.credit.core.layers import LEVELS
from baton.errors import UsageError
from baton.learn.recipe import CreditPart, Recipe


def check_layers(recipe: Recipe) -> None:
    """Whether credits that speak of the same events are layers of one partition: on different levels, and in units of
    the return, so that what a finer one gave can be taken off a coarser one."""
    for (number, one), (other_number, other) in combinations(enumerate(recipe.credit), 2):
        mine, others = find(one.estimator).lands_on(one.unit), find(other.estimator).lands_on(other.unit)
        if "team" not in (*mine, *others) and _apart(one.roles, other.roles):  # a team has all roles
            continue
        places = f"credit.{number} ({one.estimator}) and credit.{other_number} ({other.estimator})"
        both = [unit for unit in mine if unit in others]
        if both and not _apart(_decisions_of(one), _decisions_of(other)):
            raise UsageError(
                f"{places} both give credit to {' and '.join(both)}, so events would be credited twice and neither is "
                "finer. Tell them apart by `unit`, `decisions` or `roles`, or leave one out."
            )
        levels = {LEVELS[unit] for unit in mine}, {LEVELS[unit] for unit in others}
        scaled = [part.estimator for part in (one, other) if find(part.estimator).own_scale]
        if levels[0] != levels[1] and scaled:
            raise UsageError(
                f"{places} give credit to {', '.join(mine)} and {', '.join(others)}, one within the other, and "
                f"{scaled[0]} divides by a spread, so that what one gave cannot be taken off the other. Take an "
                "estimator in units of the return there (mean, difference, shapley, telescope, gae), or tell "
                "them apart by `roles`."
            )


def _apart(some: Collection[str], others: Collection[str]) -> bool:
    """Whether two choices have nothing in common; an empty one is everything."""
    return bool(some) and bool(others) and not set(some) & set(others)


def _decisions_of(part: CreditPart) -> tuple[str, ...]:
    return part.decisions or find(part.estimator).decisions
