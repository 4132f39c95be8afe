"""Checks of sanitisers and costs: what ships passes, and each way to break the contract is caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from baton.errors import UsageError
from baton.learn.constraint.costs import COSTS, CostChannel, make_cost
from baton.registry import register
from baton.team.guard.sanitisers import SANITISERS
from baton.testing import CheckFailed, check_cost, check_sanitiser
from baton.trace.records import Charge
from baton.trace.trace import Trace

TURNS = count()


@pytest.mark.parametrize("name", SANITISERS)
def test_sanitisers_that_ship_conform(name: str) -> None:
    check_sanitiser(name)


@pytest.mark.parametrize(
    ("clean", "said"),
    [
        (lambda text: text, "a stranger's order"),
        (lambda text: text.upper().lower(), "a stranger's order"),
        (lambda text: str(next(TURNS)), "different things"),
        (lambda text: int(text), "raised ValueError"),
        (lambda text: None, "expected text"),
        (lambda text: "", "expected 'x'"),
    ],
)
def test_sanitisers_that_break_the_contract_are_caught(clean: Any, said: str) -> None:
    examples = [("x", "x")] if "'x'" in said else []
    with pytest.raises(CheckFailed, match=said):
        check_sanitiser(clean, *examples)


def test_who_keeps_text_says_so() -> None:
    check_sanitiser(lambda text: text, keeps_text=True)


@pytest.mark.parametrize("name", COSTS)
def test_costs_that_ship_conform(name: str) -> None:
    check_cost(name, at_least=name == "spending")


def charge(**changes: Any) -> Callable[[Trace], list[Charge]]:
    def counts(trace: Trace) -> list[Charge]:
        """Something."""
        told = {"channel": "c", "unit": "team", "target": trace.trace_id, "value": 1.0, "by": "me"} | changes
        return [Charge(**told)]

    return counts


def by_order(trace: Trace) -> list[Charge]:
    """By the order in the file."""
    return [Charge(channel="c", unit="team", target=trace.trace_id, value=trace.events[0].seq, by="me")]


def undocumented(trace: Trace) -> list[Charge]:
    return []


def failing(trace: Trace) -> list[Charge]:
    """It cannot."""
    raise KeyError("x")


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (charge(value=math.nan), "finite"),
        (charge(value=-1.0), "below 0"),
        (charge(target="nobody"), "no such team"),
        (charge(unit="world"), "no such unit"),
        (charge(channel=" "), "no channel"),
        (charge(by=None), "`by`"),
        (by_order, "another order"),
        (undocumented, "no docstring"),
        (failing, "raised KeyError"),
        ("refusals", "charged 0 of the traces"),
    ],
)
def test_costs_that_break_the_contract_are_caught(cost: Any, said: str) -> None:
    with pytest.raises(CheckFailed, match=said):
        check_cost(cost)


def test_a_cost_of_ones_own_by_name() -> None:
    register("cost", "one-each")(charge())
    check_cost("one-each")
    assert make_cost("one-each", {}, "here")
    with pytest.raises(UsageError, match="has no settings"):
        make_cost("one-each", {"of": 1}, "constraints.0")
    with pytest.raises(
        UsageError, match=r"constraints\.0: there is no cost 'one-eac'. Did you mean 'one-each'"
    ):
        make_cost("one-eac", {}, "constraints.0")
    register("cost", "no-cost")(5)
    with pytest.raises(UsageError, match="expected a CostChannel"):
        make_cost("no-cost", {}, "constraints.0")


def test_a_cost_says_what_it_does_not_do() -> None:
    with pytest.raises(NotImplementedError):
        CostChannel().count(None)  # type: ignore[arg-type]  # nothing is counted
