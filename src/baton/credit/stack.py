"""Which credits can be stacked, told before anything is computed: layers of one exact partition.

Credits for different roles, decisions or kinds of event have nothing to do with each other. Those that speak of the
same events must be on different levels (decision or message, turn, agent, role, team), and in units of the return: then
what the finer one gave is taken off the coarser one (`baton.credit.core.layers`), and the sum is the coarsest's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

from msgspec import Struct

from baton.credit.core.layers import LEVELS
from baton.credit.estimator import Estimator
from baton.errors import UsageError
from baton.trace.vocabulary import CreditUnit


class StackedCredit(Struct, frozen=True, kw_only=True):
    """One estimator among several, as it was asked for."""

    place: str
    """What its settings go by where it was written, such as `credit.0`."""
    estimator: Estimator
    unit: str | None = None
    decisions: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    @property
    def units(self) -> tuple[CreditUnit, ...]:
        return self.estimator.lands_on(self.unit)

    @property
    def name(self) -> str:
        return f"{self.place} ({self.estimator.name})"


def check_stack(asked: Iterable[StackedCredit]) -> None:
    """Raises where two credits speak of the same events and are no layers of one partition."""
    for one, other in combinations(asked, 2):
        if "team" not in (*one.units, *other.units) and _apart(
            one.roles, other.roles
        ):  # a team has all roles
            continue
        both = [unit for unit in one.units if unit in other.units]
        if both and not _apart(*(each.decisions or each.estimator.decisions for each in (one, other))):
            raise UsageError(
                f"{one.name} and {other.name} both give credit to {' and '.join(both)}, so events would be credited "
                "twice and neither is finer. Tell them apart by unit, decisions or roles, or leave one out."
            )
        levels = [{LEVELS[unit] for unit in each.units} for each in (one, other)]
        scaled = [each.estimator.name for each in (one, other) if each.estimator.own_scale]
        if levels[0] != levels[1] and scaled:
            raise UsageError(
                f"{one.name} and {other.name} give credit to {', '.join(one.units)} and {', '.join(other.units)}, one "
                f"within the other, and {scaled[0]} has a scale of its own, so that what one gave cannot be taken off "
                "the other. Take an estimator in units of the return there (mean, difference, shapley, telescope, "
                "gae), or tell them apart by roles."
            )


def _apart(some: Collection[str], others: Collection[str]) -> bool:
    """Whether two choices have nothing in common; an empty one is everything."""
    return bool(some) and bool(others) and not set(some) & set(others)
