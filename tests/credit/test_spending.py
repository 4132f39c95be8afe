"""Credit within a budget: what is picked is weighed by its chance, few coalitions say what all would on average."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from fork_teams import relay, voters
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.credit.core.spending import Cones, chances, own_tokens, picked
from baton.credit.estimator import CreditError
from baton.credit.estimators.message_replay import message_replay, messages_of
from baton.credit.estimators.shapley_forks import players_of, shapley, shapley_of
from baton.credit.estimators.shapley_scarce import OF_FEW, scarce
from baton.credit.estimators.shapley_values import Coalitions, closed_part, num_closed
from baton.team.altered import cone
from baton.team.forks import Forks
from baton.team.recording import first_events
from baton.team.running import run

Worth = Callable[[int], float]


def gloves(mask: int) -> float:
    """Players 0 and 1 have a left glove, 2 to 4 a right one; 5 has none."""
    return float(min((mask & 0b11).bit_count(), (mask & 0b11100).bit_count()))


def signalling(mask: int) -> float:
    """A chain of which all must hold, beside two who say the same."""
    return 0.7 * (mask & 0b111 == 0b111) + 0.3 * bool(mask & 0b11000)


def orders_of(parents: Sequence[int]) -> list[tuple[int, ...]]:
    """All orders in which spawners come first."""
    found = itertools.permutations(range(len(parents)))
    return [
        order
        for order in found
        if all(parents[p] < 0 or order.index(parents[p]) < order.index(p) for p in order)
    ]


def by_orders(worth: Worth, orders: Sequence[Sequence[int]], n: int) -> list[float]:
    """Mean marginals over orders, by the book."""
    values = [0.0] * n
    for order in orders:
        mask = 0
        for player in order:
            values[player] += (worth(mask | 1 << player) - worth(mask)) / len(orders)
            mask |= 1 << player
    return values


FOREST = (-1, 0, 0, -1, 3, 4)


def in_forest(mask: int) -> float:
    """Unequal pairs: 1 with 5 adds 2, 2 alone .5, 0 nothing, 4 without 5 takes .25."""
    both = 2.0 * (mask >> 1 & 1 and mask >> 5 & 1)
    return both + 0.5 * (mask >> 2 & 1) - 0.25 * (mask >> 4 & 1 and not mask >> 5 & 1)


GAMES = [
    (gloves, (-1,) * 6, "permission"),
    (signalling, (-1,) * 5, "permission"),
    (in_forest, FOREST, "permission"),
    (in_forest, FOREST, "precedence"),
    (gloves, (-1,) * 6, "precedence"),
]


@pytest.mark.parametrize(("worth", "parents", "value"), GAMES)
def test_few_coalitions_are_right_on_average_and_say_how_far_off(
    worth: Worth, parents: tuple[int, ...], value: str
) -> None:
    n = len(parents)
    orders = orders_of(parents) if value == "precedence" else list(itertools.permutations(range(n)))
    truth = np.array(by_orders(lambda mask: worth(closed_part(parents, mask)), orders, n))
    assert math.isclose(truth.sum(), worth((1 << n) - 1) - worth(0))
    found = [scarce(Coalitions(worth, parents), value=value, max_evaluations=18, seed=s) for s in range(500)]
    values = np.array([each.values for each in found])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(values.mean(axis=0) - truth) < 4.5 * error + 1e-9).all()
    assert max(abs(each.residual) for each in found) < 1e-9  # efficient, always
    assert all(each.num_evaluations <= 18 for each in found)
    inside = [
        abs(value - true) <= 1.96 * error
        for each in found
        for value, true, error in zip(each.values, truth, each.stderr or (), strict=bool(each.stderr))
        if error is not None
    ]
    assert np.mean(inside) > 0.92  # it held .83 to .98 from eight draws: single steps of orders are skewed


def test_a_null_player_gets_nothing_on_average() -> None:
    values = [scarce(Coalitions(gloves, (-1,) * 6), max_evaluations=10, seed=s).values[5] for s in range(600)]
    assert abs(np.mean(values)) < 4 * np.std(values) / math.sqrt(len(values))


def test_a_budget_leaves_no_bias_though_costs_go_with_worth() -> None:
    """What costs most is worth most: dropping the draws that cost too much would be seen."""
    parents = (-1,) * 6

    def together(masks: Sequence[int]) -> list[tuple[float, float]]:
        return [(gloves(mask), 1.0 + 20.0 * gloves(mask) ** 2) for mask in masks]

    truth = np.array(by_orders(gloves, list(itertools.permutations(range(6))), 6))
    found = [
        scarce(Coalitions(gloves, parents, together), max_evaluations=60, budget=180.0, seed=s)
        for s in range(1500)
    ]
    values = np.array([each.values for each in found])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(found))
    assert (np.abs(values.mean(axis=0) - truth) < 4.5 * error).all()
    assert len({each.num_evaluations for each in found}) > 3


def test_closed_coalitions_are_counted() -> None:
    for parents in (FOREST, (-1,) * 4, (-1, 0, 1, 2), (-1, 0, 0, 0, -1)):
        listed = {closed_part(parents, mask) for mask in range(1 << len(parents))}
        assert num_closed(parents) == len(listed)


def test_max_evaluations_is_heeded_in_small_teams() -> None:
    team, assignment = voters(1)
    trace = asyncio.run(run(team, assignment))
    players = players_of(trace)[0]
    assert len(players) >= 3
    every = asyncio.run(shapley_of(Forks(team, assignment), trace))[1]
    assert every.num_evaluations == 2 ** len(players)
    forks = Forks(team, assignment)
    few = asyncio.run(shapley_of(forks, trace, max_evaluations=4))[1]
    assert few.num_evaluations <= 4
    assert forks.num_run <= 3
    with pytest.raises(CreditError, match=r"max_evaluations is 2; .* at least 4"):
        asyncio.run(shapley_of(Forks(team, assignment), trace, max_evaluations=2))


def test_spend_bounds_shapley_and_is_said() -> None:
    team, assignment = voters(2)
    trace = asyncio.run(run(team, assignment))
    whole, forks = Forks(team, assignment), Forks(team, assignment)
    [free] = asyncio.run(shapley([trace], runner=whole))
    [bound] = asyncio.run(shapley([trace], runner=forks, spend=0.2))
    assert forks.cost.tokens < whole.cost.tokens
    assert not any("spend" in note for note in free[0].assumes)
    assert any("bound by spend 0.2" in note for note in bound[0].assumes)
    assert OF_FEW in bound[0].assumes
    assert OF_FEW not in free[0].assumes
    times = forks.cost.tokens / own_tokens(trace)
    assert any(f"{times:.3g} times the trace's own tokens were run" in note for note in bound[0].assumes)
    assert sum(credit.cost_tokens or 0 for credit in bound) == forks.cost.tokens
    assert math.isclose(sum(c.value for c in bound), sum(c.value for c in free), abs_tol=1e-9)


@given(st.lists(st.floats(0.01, 50), min_size=1, max_size=40), st.floats(0.1, 100), st.floats(0.05, 1))
@settings(max_examples=60, deadline=None)
def test_chances_spend_the_budget_and_dear_ones_are_rarer(
    costs: list[float], budget: float, most: float
) -> None:
    q = chances(costs, budget, most)
    spent = math.fsum(x * c for x, c in zip(q, costs, strict=True))
    assert all(0 < x <= most + 1e-12 for x in q)
    assert spent <= budget * (1 + 1e-9)
    if spent < budget * (1 - 1e-6):
        assert q == [most] * len(q)
    ranked = sorted(zip(costs, q, strict=True))
    assert all(a[1] >= b[1] - 1e-12 for a, b in itertools.pairwise(ranked))


@given(st.lists(st.floats(0.001, 1), min_size=1, max_size=12))
@settings(max_examples=15, deadline=None)
def test_everyone_is_picked_with_its_chance(q: list[float]) -> None:
    grid = 500
    count = np.zeros(len(q))
    for k in range(grid):
        count += picked(q, (k + 0.5) / grid)
    assert np.abs(count / grid - q).max() < 2 / grid * len(q)


def test_what_follows_is_counted_as_the_graph_has_it() -> None:
    team, assignment = relay(3)
    trace = asyncio.run(run(team, assignment))
    cones, first = Cones(trace), first_events(trace)
    for event in trace.events:
        follows = cone(trace, event.id)
        said = [trace.call_by_id[call] for call, e in first.items() if e.id in follows]
        tokens = sum((call.completion_tokens or 0) + (call.prompt_tokens or 0) for call in said)
        assert cones.tokens(event.id) == tokens


def test_message_credit_within_a_budget_is_right_on_average() -> None:
    """Over seeds of the choice, on one trace: the mean is the credit of replaying every message."""
    team, assignment = relay(0)
    trace = asyncio.run(run(team, assignment))
    forks = Forks(team, assignment)  # forks are made once, so this costs little
    [every] = asyncio.run(message_replay([trace], runner=forks, num_alternatives=3))
    assert forks.cost.tokens > 1.5 * own_tokens(trace)
    found = [
        asyncio.run(message_replay([trace], runner=forks, num_alternatives=3, spend=1.0, seed=seed))[0]
        for seed in range(400)
    ]
    values = np.array([[credit.value for credit in each] for each in found])
    error = values.std(axis=0, ddof=1) / math.sqrt(len(found))
    truth = np.array([credit.value for credit in every])
    assert np.abs(truth).max() > 0
    assert (np.abs(values.mean(axis=0) - truth) < 4 * error + 1e-9).all()
    notes = [note for credit in found[0] for note in credit.assumes]
    assert any("bound by spend 1" in note for note in notes)
    assert not any("spend" in note for credit in every for note in credit.assumes)


def test_a_budget_holds_in_expectation() -> None:
    spent = []
    for seed in range(30):
        team, assignment = relay(seed)
        trace = asyncio.run(run(team, assignment))
        forks = Forks(team, assignment)
        asyncio.run(message_replay([trace], runner=forks, spend=0.5))
        spent.append(forks.cost.tokens / own_tokens(trace))
        assert len(messages_of(trace)) > 1
    assert 0 < np.mean(spent) <= 0.5 + 3 * np.std(spent) / math.sqrt(len(spent))
