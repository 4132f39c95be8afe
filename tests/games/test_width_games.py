"""How many: closed forms against the solver and against trying every width."""

from __future__ import annotations

from math import floor, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.games.library.alone import Alone
from baton.games.library.batch_search import BatchSearch
from baton.games.library.best_of_n import BestOfN
from baton.games.library.divisible_work import DivisibleWork
from baton.games.library.usl import Usl
from baton.games.library.width import Width
from baton.games.solve import solve


def by_trying(game: Width) -> float:
    return max(game.worth(n) for n in range(game.least, game.max_agents + 1))


unit = st.floats(0, 1)
cost = st.floats(0.001, 1)


@given(unit, st.floats(0, 5), cost)
def test_best_of_n(p: float, value: float, cost: float) -> None:
    game = BestOfN(p=p, value=value, cost=cost, max_agents=30)
    n = game.num_agents()
    assert solve(game).value == pytest.approx(by_trying(game), abs=1e-9)
    assert game.worth(n) == pytest.approx(by_trying(game), abs=1e-9)
    if 0 < n < 30:
        assert value * p * (1 - p) ** (n - 1) >= cost > value * p * (1 - p) ** n


@given(st.floats(0, 100), cost)
def test_divisible_work(work: float, cost: float) -> None:
    game = DivisibleWork(work=work, cost=cost, max_agents=400)
    assert game.worth(game.num_agents()) == pytest.approx(by_trying(game), abs=1e-9)
    assert abs(game.num_agents() - max(1.0, sqrt(work / cost))) <= 1 or game.num_agents() == 400


def test_divisible_work_by_dynamic_programming() -> None:
    game = DivisibleWork(work=50.0, cost=0.7)
    assert solve(game).value == pytest.approx(by_trying(game))


@given(st.floats(0, 0.99), st.floats(0.0005, 0.5))
def test_usl(contention: float, coherence: float) -> None:
    game = Usl(contention=contention, coherence=coherence, max_agents=60)
    peak = sqrt((1 - contention) / coherence)
    assert game.peak() == pytest.approx(peak)
    # The law rises to its peak and falls after it.
    assert game.speed_up(peak) >= max(game.speed_up(peak * 0.9), game.speed_up(peak * 1.1)) - 1e-12
    assert game.facts()["value"] == pytest.approx(by_trying(game))
    if peak < 60:
        assert game.facts()["num_agents"] in (max(1, floor(peak)), max(1, floor(peak)) + 1)
    assert solve(game).value == pytest.approx(by_trying(game), abs=1e-9)


def test_usl_without_coherence_is_amdahl() -> None:
    game = Usl(contention=0.1, coherence=0.0, max_agents=40)
    assert game.facts()["num_agents"] == 40
    assert game.speed_up(10**9) == pytest.approx(10, rel=1e-6)


@given(st.floats(0, 1))
def test_batch_search(cost: float) -> None:
    game = BatchSearch(cost=cost, max_agents=40)
    assert game.worth(game.num_agents()) == pytest.approx(by_trying(game), abs=1e-9)
    assert solve(game).value == pytest.approx(by_trying(game), abs=1e-9)


@given(st.integers(1, 50), st.floats(0.01, 5))
def test_alone_is_always_best_alone(steps: int, cost: float) -> None:
    game = Alone(steps=steps, cost=cost)
    solution = solve(game)
    assert solution.value == -steps
    assert solution.best((0,)) == "wait"
