"""The budget: never overspent, whatever the order of reserving, settling, releasing and nesting."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from baton.errors import UsageError
from baton.team.budget import RESOURCES, Budget, BudgetError, Limits, Refusal, Reservation, Spent

COUNTERS = ("agents", "tokens", "calls", "tool_calls", "seconds")
small = st.none() | st.integers(0, 12)
limits = st.builds(
    Limits,
    agents=small,
    concurrent=small,
    tokens=small,
    calls=small,
    tool_calls=small,
    seconds=st.none() | st.integers(0, 12).map(lambda tenths: tenths / 10),
)


def state(budget: Budget) -> list[tuple[float, float]]:
    return [(budget.used(name), budget.reserved(name)) for name in RESOURCES]


def amount(name: str) -> st.SearchStrategy[float]:
    return st.integers(0, 5).map(lambda n: n / 10) if name == "seconds" else st.integers(0, 5)


amounts = st.dictionaries(st.sampled_from([*COUNTERS, "concurrent"]), st.none(), max_size=4).flatmap(
    lambda names: st.fixed_dictionaries({name: amount(name) for name in names})
)


def reserved(budget: Budget, **asked: float) -> Reservation:
    made = budget.reserve(**asked)
    assert isinstance(made, Reservation)
    return made


class Nested(RuleBasedStateMachine):
    """Against a plain account: for each budget, what was spent in it and what is open in it, by addition."""

    budgets = Bundle("budgets")
    open_ones = Bundle("open_ones")

    def __init__(self) -> None:
        super().__init__()
        self.parents: dict[Budget, Budget | None] = {}
        self.spent: dict[Budget, dict[str, float]] = {}
        self.open: dict[Reservation, tuple[Budget, dict[str, float]]] = {}
        self.calls: set[Reservation] = set()
        self.excess: dict[Budget, int] = {}
        """Tokens that were billed above what was reserved for them, or without."""

    def add(self, budget: Budget, parent: Budget | None) -> Budget:
        self.parents[budget] = parent
        self.spent[budget] = dict.fromkeys(RESOURCES, 0.0)
        self.excess[budget] = 0
        return budget

    def upwards(self, budget: Budget | None) -> list[Budget]:
        return [] if budget is None else [budget, *self.upwards(self.parents[budget])]

    @initialize(target=budgets, given_limits=limits)
    def root(self, given_limits: Limits) -> Budget:
        return self.add(Budget(given_limits), None)

    @rule(target=budgets, parent=budgets, given_limits=limits)
    def child(self, parent: Budget, given_limits: Limits) -> Budget:
        return self.add(parent.child(given_limits), parent)

    @rule(target=open_ones, budget=budgets, asked=amounts)
    def reserve(self, budget: Budget, asked: dict[str, float]) -> Any:
        before = {each: state(each) for each in self.parents}
        fits = all(
            (limit := getattr(each.limits, name)) is None
            or each.used(name) + each.reserved(name) + wanted <= limit + 1e-9
            for each in self.upwards(budget)
            for name, wanted in asked.items()
        )
        made = budget.reserve(**asked)
        assert isinstance(made, Reservation) == fits
        if isinstance(made, Refusal):
            assert made.used + made.reserved + made.asked > made.limit
            assert before == {each: state(each) for each in self.parents}
            return multiple()
        self.open[made] = (budget, asked)
        return made

    @rule(target=open_ones, budget=budgets, tokens=st.integers(0, 6))
    def reserve_call(self, budget: Budget, tokens: int) -> Any:
        made = budget.reserve_call(tokens)
        if isinstance(made, Refusal):
            assert made.used + made.reserved + made.asked > made.limit
            return multiple()
        self.open[made] = (budget, {"tokens": tokens, "calls": 1})
        self.calls.add(made)
        return made

    @rule(billed=st.integers(0, 40))
    def bill_all_calls(self, billed: int) -> None:
        """Whatever a server says that a call cost is counted; the ledger is over then, and nothing more is reserved."""
        for reservation in [one for one in self.open if one in self.calls]:
            budget, asked = self.open.pop(reservation)
            reservation.settle_call(billed)
            for each in self.upwards(budget):
                self.spent[each]["tokens"] += billed
                self.spent[each]["calls"] += 1
                self.excess[each] += max(0, billed - int(asked["tokens"]))
                limit = each.limits.tokens
                if limit is not None and each.used("tokens") > limit:
                    assert isinstance(budget.reserve_call(0), Refusal)

    @rule(budget=budgets, tokens=st.integers(0, 3), later=st.booleans())
    def charge(self, budget: Budget, tokens: int, later: bool) -> None:
        """A late bill, and a ledger that is restored: sums only ever grow."""
        before = budget.spent
        if later:
            budget.restore(Spent())
            assert budget.spent == before
            return
        budget.charge(tokens=tokens)
        for each in self.upwards(budget):
            self.spent[each]["tokens"] += tokens
            self.excess[each] += tokens

    @rule(reservation=consumes(open_ones), share=st.fractions(0, 1), named=st.booleans())
    def settle(self, reservation: Reservation, share: Any, named: bool) -> None:
        if reservation not in self.open:
            return  # billed meanwhile
        budget, asked = self.open.pop(reservation)
        actual = {
            name: round(float(a * share), 1) if name == "seconds" else int(a * share)
            for name, a in asked.items()
        }
        reservation.settle(**(actual if named else {}))
        for each in self.upwards(budget):
            for name, value in (actual if named else asked).items():
                self.spent[each][name] += value if name != "concurrent" else 0

    @rule(reservation=consumes(open_ones))
    def release(self, reservation: Reservation) -> None:
        self.open.pop(reservation, None)
        reservation.release()
        reservation.release()
        with pytest.raises(BudgetError, match="settled or released before"):
            reservation.settle()

    @rule(reservation=open_ones, name=st.sampled_from(COUNTERS))
    def overspend(self, reservation: Reservation, name: str) -> None:
        if reservation not in self.open:
            return  # billed meanwhile
        _, asked = self.open[reservation]
        before = {each: state(each) for each in self.parents}
        with pytest.raises(BudgetError):
            reservation.settle(**{name: asked.get(name, 0) + 1})
        assert reservation._budget is not None
        assert before == {each: state(each) for each in self.parents}

    @invariant()
    def nothing_is_overspent_and_sums_agree(self) -> None:
        held = {budget: dict.fromkeys(RESOURCES, 0.0) for budget in self.parents}
        for budget, asked in self.open.values():
            for each in self.upwards(budget):
                for name, value in asked.items():
                    held[each][name] += value
        for budget in self.parents:
            for name in (*COUNTERS, "concurrent"):
                limit = getattr(budget.limits, name)
                over = self.excess[budget] if name == "tokens" else 0
                assert limit is None or budget.used(name) + budget.reserved(name) <= limit + over + 1e-12
                assert budget.used(name) == pytest.approx(self.spent[budget][name])
                assert budget.reserved(name) == pytest.approx(held[budget][name])


Nested.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestNested = Nested.TestCase


def test_a_refusal_says_what_was_in_the_way() -> None:
    budget = Budget(Limits(tokens=100))
    reserved(budget, tokens=60).settle(tokens=50)
    reserved(budget, tokens=30)
    refusal = budget.reserve(tokens=21, calls=1)
    assert refusal == Refusal("tokens", 100, 50, 30, 21)
    assert "limited to 100, 50 used and 30 reserved, and this needs 21 more" in refusal.message
    assert budget.remaining("tokens") == 20
    assert budget.remaining("calls") is None


def test_the_parent_can_refuse_and_then_nothing_is_held_anywhere() -> None:
    parent = Budget(Limits(calls=1))
    child = parent.child(Limits(calls=10))
    reserved(child, calls=1)
    refusal = child.reserve_call(5)
    assert isinstance(refusal, Refusal)
    assert (refusal.resource, refusal.limit) == ("calls", 1)
    assert (child.reserved("tokens"), parent.reserved("tokens")) == (0, 0)
    assert child.remaining("calls") == 0


def test_concurrency_comes_back_and_agents_do_not() -> None:
    budget = Budget(Limits(agents=3, concurrent=1))
    for _ in range(3):
        slot = reserved(budget, agents=1, concurrent=1)
        assert isinstance(budget.reserve(agents=1, concurrent=1), Refusal)
        slot.settle()
    refusal = budget.reserve(agents=1, concurrent=1)
    assert isinstance(refusal, Refusal)
    assert refusal.resource == "agents"
    assert (budget.used("agents"), budget.used("concurrent")) == (3, 0)


def test_depth_counts_through_nested_teams() -> None:
    """A nested team's own limit does not let it go deeper than the team above allows."""
    outer = Budget(Limits(depth=3))
    inner = outer.child(Limits(depth=5), depth=2)
    assert inner.remaining("depth") == 1
    reserved(inner, depth=1, agents=1)
    refusal = inner.reserve(depth=2, agents=1)
    assert refusal == Refusal("depth", 3, 3, 0, 4)
    assert "this would be 4" in refusal.message
    assert (inner.used("depth"), outer.used("depth")) == (1, 3)
    assert inner.used("agents") == 0
    assert inner.reserved("agents") == 1


def test_a_refused_reservation_does_not_mark_depth() -> None:
    budget = Budget(Limits(depth=3, agents=0))
    assert isinstance(budget.reserve(depth=2, agents=1), Refusal)
    assert budget.used("depth") == 0


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_seconds_do_not_drift(parts: list[float]) -> None:
    budget = Budget(Limits(seconds=1000))
    for part in parts:
        reserved(budget, seconds=part).release()
    assert (budget.used("seconds"), budget.reserved("seconds")) == (0, 0)
    for part in parts:
        reserved(budget, seconds=part).settle(seconds=part)
    rounded_up = budget.used("seconds") - sum(parts)
    assert -1e-8 <= rounded_up <= 1e-6 * len(parts) + 1e-8


def test_a_call_is_settled_as_a_call() -> None:
    budget = Budget(Limits(tokens=10))
    call = budget.reserve_call(8)
    assert isinstance(call, Reservation)
    with pytest.raises(BudgetError, match="zero or more"):
        call.settle_call(-1)
    call.settle_call(5)
    with pytest.raises(BudgetError, match="before"):
        call.settle_call(5)
    assert (budget.used("tokens"), budget.used("calls"), budget.remaining("tokens")) == (5, 1, 5)
    with pytest.raises(BudgetError, match="settle_call"):
        reserved(budget, tokens=1).settle_call(1)


def test_a_bill_above_the_reservation_is_counted_and_ends_the_spending() -> None:
    parent = Budget(Limits(tokens=5_000))
    budget = parent.child(Limits(calls=7))
    call = budget.reserve_call(300)
    assert isinstance(call, Reservation)
    call.settle_call(100_000)
    assert (budget.used("tokens"), parent.used("tokens"), parent.remaining("tokens")) == (100_000, 100_000, 0)
    refusal = budget.reserve_call(1)
    assert refusal == Refusal("tokens", 5_000, 100_000, 0, 1)


def test_a_ledger_is_kept_and_restored_and_never_lowered() -> None:
    budget = Budget(Limits(seconds=9.0, depth=4))
    reserved(budget, agents=2, depth=3).settle()
    reserved(budget, tool_calls=1, seconds=1.25).settle()
    budget.charge(calls=10, tokens=77, seconds=0.5)
    spent = budget.spent
    assert spent == Spent(agents=2, depth=3, tokens=77, calls=10, tool_calls=1, seconds=1.75)
    kept = msgspec.json.decode(msgspec.json.encode(spent), type=Spent)
    again = Budget(budget.limits)
    again.restore(kept)
    assert again.spent == spent
    assert again.remaining("seconds") == 7.25
    again.restore(Spent(calls=3, tokens=80))
    assert again.spent == Spent(agents=2, depth=3, tokens=80, calls=10, tool_calls=1, seconds=1.75)
    with pytest.raises(UsageError, match="held by reservations"):
        again.charge(concurrent=1)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"tokenz": 1}, "Did you mean 'tokens'"),
        ({"tokens": -1}, "expected a whole number"),
        ({"tokens": 1.5}, "expected a whole number"),
        ({"tokens": float("nan")}, "expected a whole number"),
        ({"seconds": float("inf")}, "expected a number of seconds"),
        ({"depth": -1}, "expected a whole number"),
    ],
)
def test_amounts_that_make_no_sense(asked: dict[str, float], reason: str) -> None:
    budget = Budget(Limits())
    with pytest.raises(UsageError, match=reason):
        budget.reserve(calls=1, **asked)
    assert budget.reserved("calls") == 0


def test_limits_that_make_no_sense() -> None:
    for value in (-1, float("nan")):
        with pytest.raises(UsageError, match="expected zero or more"):
            Budget(Limits(seconds=value))
    with pytest.raises(UsageError, match="zero or more"):
        Budget(Limits()).reserve_call(-1)
    with pytest.raises(UsageError, match="Did you mean 'seconds'"):
        Budget(Limits()).remaining("second")


def test_settling_what_was_not_reserved() -> None:
    with pytest.raises(BudgetError, match=r"Cannot settle calls: it was not reserved\. Reserved: 3 tokens"):
        reserved(Budget(Limits()), tokens=3).settle(calls=0)
