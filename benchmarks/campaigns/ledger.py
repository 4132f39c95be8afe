"""The budget against a plain account: nothing is overspent and sums agree, after every single operation.

A tree of budgets is reserved from, settled, released and overdrawn at random; beside it stands a list of what is open
and a dictionary of what was spent, added up anew each time.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from baton.errors import BatonError
from baton.team.budget import RESOURCES, Budget, Limits, Refusal, Reservation
from campaigns.campaign import Row, Tally

_COUNTED = tuple(name for name in RESOURCES if name not in ("depth", "concurrent"))
_HELD = (*_COUNTED, "concurrent")
_OPERATIONS_OF_A_TREE = 120


class _Account:
    """What a budget should say, kept by addition."""

    def __init__(self, budget: Budget, parent: _Account | None) -> None:
        self.budget = budget
        self.parent = parent
        self.spent = dict.fromkeys(_HELD, 0)
        self.open = dict.fromkeys(_HELD, 0)

    def upwards(self) -> list[_Account]:
        return [self, *(self.parent.upwards() if self.parent else ())]

    def problem(self) -> str | None:
        for name in _HELD:
            scale = 1_000_000 if name == "seconds" else 1  # kept in whole microseconds
            used, held = round(self.budget.used(name) * scale), round(self.budget.reserved(name) * scale)
            if (used, held) != (self.spent[name], self.open[name]):
                return f"{name}: {used} used, {held} held; the account says {self.spent[name]}, {self.open[name]}"
            limit = getattr(self.budget.limits, name)
            if limit is not None and used + held > limit * scale:
                return f"{name}: {used + held} of {limit * scale} is overspent"
        return None


def ledger(count: int, seed: int, folder: Path) -> Row:
    tally = Tally("ledger operations")
    draw = random.Random(seed)
    while tally.tries < count:
        _one_tree(tally, draw, min(_OPERATIONS_OF_A_TREE, count - tally.tries))
    return tally.row()


def _one_tree(tally: Tally, draw: random.Random, operations: int) -> None:
    accounts = [_Account(Budget(_limits(draw)), None)]
    open_ones: list[tuple[Reservation, _Account, dict[str, int]]] = []
    for step in range(operations):
        tally.tries += 1
        kind = draw.choices(("child", "reserve", "settle", "release", "overdraw"), (1, 8, 4, 2, 2))[0]
        account = draw.choice(accounts)
        if kind == "child" and len(accounts) < 6:
            accounts.append(_Account(account.budget.child(_limits(draw)), account))
        elif kind == "reserve":
            _reserve(tally, draw, account, open_ones)
        elif open_ones and kind != "child":
            _close(tally, draw, kind, open_ones)
        for each in accounts:
            if problem := each.problem():
                tally.wrong(f"operation {tally.tries} ({kind}, {step} in its tree): {problem}")
                return


def _limits(draw: random.Random) -> Limits:
    given: dict[str, Any] = {}
    for name in _HELD:
        if draw.random() < 0.6:
            given[name] = draw.randrange(40) / 10 if name == "seconds" else draw.randrange(40)
    return Limits(**given)


def _reserve(
    tally: Tally,
    draw: random.Random,
    account: _Account,
    open_ones: list[tuple[Reservation, _Account, dict[str, int]]],
) -> None:
    asked = {name: draw.randrange(1, 7) for name in draw.sample(_HELD, draw.randrange(1, 4))}
    ticks = {name: n * 100_000 if name == "seconds" else n for name, n in asked.items()}
    fits = all(
        (limit := getattr(each.budget.limits, name)) is None
        or each.spent[name] + each.open[name] + n <= round(limit * (1_000_000 if name == "seconds" else 1))
        for each in account.upwards()
        for name, n in ticks.items()
    )
    made = account.budget.reserve(**{n: a / 10 if n == "seconds" else a for n, a in asked.items()})
    if isinstance(made, Refusal) == fits:
        tally.wrong(f"operation {tally.tries}: {asked} was {'refused' if fits else 'allowed'}")
    if isinstance(made, Refusal):
        tally.faults += 1
        if made.resource not in made.message:
            tally.unclear(made.message)
        return
    for each in account.upwards():
        for name, n in ticks.items():
            each.open[name] += n
    open_ones.append((made, account, ticks))


def _close(
    tally: Tally,
    draw: random.Random,
    kind: str,
    open_ones: list[tuple[Reservation, _Account, dict[str, int]]],
) -> None:
    reservation, account, ticks = open_ones.pop(draw.randrange(len(open_ones)))
    if kind == "overdraw":
        tally.faults += 1
        name = draw.choice(list(ticks))
        more = ticks[name] + (100_000 if name == "seconds" else 1)
        try:
            reservation.settle(**{name: more / 1_000_000 if name == "seconds" else more})
        except BatonError as error:
            if name not in str(error):
                tally.unclear(str(error))
        else:
            tally.silent(f"operation {tally.tries}: {more} {name} were settled of {ticks[name]} reserved")
        open_ones.append((reservation, account, ticks))
        return
    spent = dict.fromkeys(ticks, 0)
    if kind == "release":
        reservation.release()
    else:
        spent = {name: draw.randrange(n + 1) for name, n in ticks.items()}
        reservation.settle(**{n: a / 1_000_000 if n == "seconds" else a for n, a in spent.items()})
    for each in account.upwards():
        for name, n in ticks.items():
            each.open[name] -= n
            each.spent[name] += spent[name] if name != "concurrent" else 0
