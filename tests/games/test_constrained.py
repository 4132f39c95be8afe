"""Constrained games: the frontier against a linear program, every deterministic policy, and weak duality."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from baton.errors import UsageError
from baton.games.constrained import ConstrainedGame, Frontier, mean_cost, solve_priced
from baton.games.game import Branch, State
from baton.games.library.gatekeeper import Gatekeeper
from baton.games.solve import evaluate, reachable, solve


def linear_program(game: ConstrainedGame, limit: float) -> float:
    """The constrained optimum by occupancy measures, which has nothing in common with the hull."""
    optimize: Any = pytest.importorskip("scipy.optimize")
    states = [state for state in reachable(game) if game.options(state)]
    pairs = [(state, option) for state in states for option in game.options(state)]
    row = {state: number for number, state in enumerate(states)}
    flow = np.zeros((len(states), len(pairs)))
    begin = np.zeros(len(states))
    for branch in game.start():
        begin[row[branch.state]] += branch.probability
    earned, paid = np.zeros(len(pairs)), np.zeros(len(pairs))
    for number, (state, option) in enumerate(pairs):
        flow[row[state], number] += 1
        for p, after, reward in game.step(state, option):
            earned[number] += p * reward
            paid[number] += p * game.cost(state, option, after)
            if after in row:
                flow[row[after], number] -= p
    found = optimize.linprog(-earned, A_ub=[paid], b_ub=[limit], A_eq=flow, b_eq=begin)
    assert found.success
    return float(-found.fun)


@pytest.mark.parametrize("limit", [0.0, 0.003, 0.045, 0.1, 0.3, 0.9, 2.0])
@pytest.mark.parametrize("shield", [False, True])
def test_the_optimum_is_the_linear_programs(limit: float, shield: bool) -> None:
    game = Gatekeeper(shield=shield, num_requests=2)
    found = Frontier(game).optimum(limit)
    assert found.value == pytest.approx(linear_program(game, limit), abs=1e-7)
    assert found.cost <= limit + 1e-12
    assert 0 <= found.share <= 1


def test_no_deterministic_policy_is_above_the_hull_and_each_corner_is_one() -> None:
    game = Gatekeeper(num_requests=1, planted=0.4)
    states = [state for state in reachable(game) if game.options(state)]
    corners = Frontier(game).vertices
    reached = []
    for choices in itertools.product(*(game.options(state) for state in states)):
        table = dict(zip(states, choices, strict=True))

        def policy(state: State, table: dict[State, str] = table) -> dict[str, float]:
            return {table[state]: 1.0}

        cost, value = mean_cost(game, policy), evaluate(game, policy).value
        reached.append((cost, value))
        if cost >= corners[0].cost:
            assert value <= Frontier(game).optimum(cost).value + 1e-9
    for corner in corners:
        assert any(np.allclose(corner, each) for each in reached)


def test_the_price_is_the_dual_variable() -> None:
    game, limit = Gatekeeper(), 0.1
    found = Frontier(game).optimum(limit)
    bounds = {price: solve_priced(game, price).value + price * limit for price in (0.0, 1.0, 2.0, 5.0)}
    assert all(bound >= found.value - 1e-9 for bound in bounds.values())
    tight = solve_priced(game, found.price).value + found.price * limit
    assert tight == pytest.approx(found.value)


def test_without_a_limit_it_is_the_solvers_optimum() -> None:
    game = Gatekeeper()
    best = Frontier(game).unconstrained
    assert best.value == pytest.approx(solve(game).value)
    assert best.cost == pytest.approx(game.facts()["attacks_unconstrained"])
    idle = Frontier(game).optimum(5.0)
    assert (idle.price, idle.value) == (0.0, pytest.approx(best.value))


class _Sure(Gatekeeper, frozen=True, kw_only=True):
    """Every play costs something, whatever is chosen."""

    def cost(self, state: State, option: str, after: State) -> float:
        return super().cost(state, option, after) + 0.25


def test_a_limit_that_nobody_keeps_says_the_least() -> None:
    with pytest.raises(UsageError, match=r"no policy keeps a mean cost of 0.1; the least is 0.25"):
        Frontier(_Sure(num_requests=1)).optimum(0.1)


class _Paid(Gatekeeper, frozen=True, kw_only=True):
    def cost(self, state: State, option: str, after: State) -> float:
        return -1.0


def test_costs_are_not_paid_out() -> None:
    with pytest.raises(UsageError, match="costs are zero or more"):
        Frontier(_Paid())


def test_no_game_at_all() -> None:
    """One state, one option, nothing to choose."""

    class Nothing(Gatekeeper, frozen=True, kw_only=True):
        def start(self) -> list[Branch]:
            return [Branch(1.0, (self.num_requests, 0, 0, 0))]

    assert Frontier(Nothing()).optimum(0.0).value == 0.0


def test_the_shield_leaves_nothing_unchecked_to_the_clerk() -> None:
    game = Gatekeeper(shield=True)
    for state in reachable(game):
        assert ("delegate clerk: act" in game.options(state)) == (bool(game.options(state)) and state[2] == 1)


@pytest.mark.parametrize(
    ("field", "value"), [("num_requests", 0), ("planted", 1.2), ("check_cost", -1.0), ("limit", -0.1)]
)
def test_impossible_parameters(field: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"gatekeeper: {field} = .* is not possible"):
        Gatekeeper(**{field: value})
