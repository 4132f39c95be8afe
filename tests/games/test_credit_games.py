"""Exact credit: closed forms against enumeration of all orders, axioms over random games."""

from __future__ import annotations

from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.games.coalition import closed_part, interaction, leave_one_out, permission, precedence, shapley
from baton.games.library.airport import Airport
from baton.games.library.gloves import Gloves
from baton.games.library.induced_subgraph import InducedSubgraph
from baton.games.library.length_ladder import LengthLadder
from baton.games.library.recruit import Recruit
from baton.games.library.signalling_chain import SignallingChain
from baton.games.library.spawn_bandit import SpawnBandit
from baton.games.library.spawn_forest import SpawnForest
from baton.games.library.weighted_voting import WeightedVoting
from baton.games.play import PolicyTable
from baton.games.solve import evaluate, solve


def over_orders(n: int, worth, orders) -> list[float]:
    """Marginals averaged over the orders given."""
    credit, count = [0.0] * n, 0
    for order in orders:
        count += 1
        mask = 0
        for i in order:
            credit[i] += worth(mask | 1 << i) - worth(mask)
            mask |= 1 << i
    return [c / count for c in credit]


def test_gloves() -> None:
    assert Gloves().credit() == pytest.approx([1 / 6, 1 / 6, 2 / 3])
    assert leave_one_out(3, Gloves().worth) == [0, 0, 1]


positive = st.floats(0, 5)
closed_forms = st.one_of(
    st.builds(Airport, lengths=st.lists(positive, min_size=1, max_size=5).map(tuple)),
    st.builds(Gloves, left=st.integers(1, 3), right=st.integers(0, 3)),
    st.lists(st.integers(0, 5), min_size=1, max_size=5)
    .filter(any)
    .flatmap(lambda w: st.builds(WeightedVoting, weights=st.just(tuple(w)), quota=st.integers(1, sum(w)))),
    st.lists(st.floats(-1, 1), min_size=16, max_size=16).map(
        lambda x: InducedSubgraph(
            weights=tuple(map(tuple, (np.array(x).reshape(4, 4) + np.array(x).reshape(4, 4).T).tolist()))
        )
    ),
)


@settings(max_examples=60)
@given(closed_forms)
def test_closed_forms_are_shapley(game: Recruit) -> None:
    n = game.players()
    credit = game.credit()
    assert credit == pytest.approx(shapley(n, game.worth), abs=1e-9)
    assert credit == pytest.approx(over_orders(n, game.worth, permutations(range(n))), abs=1e-9)
    assert sum(credit) == pytest.approx(game.worth((1 << n) - 1), abs=1e-9)


@settings(max_examples=30)
@given(closed_forms)
def test_recruiting_finds_the_best_coalition(game: Recruit) -> None:
    n = game.players()
    best = max(
        game.worth(mask) + sum(game.brings(i) for i in range(n) if mask >> i & 1) for mask in range(1 << n)
    )
    assert solve(game).value == pytest.approx(best)


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[int], dict[int, float]]:
    n = draw(st.integers(1, 5))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    values = draw(st.lists(st.floats(-1, 1), min_size=1 << n, max_size=1 << n))
    return parents, {mask: 0.0 if mask == 0 else v for mask, v in enumerate(values)}


@settings(max_examples=50)
@given(forests())
def test_values_on_forests(forest: tuple[list[int], dict[int, float]]) -> None:
    parents, table = forest
    n = len(parents)
    linear = [
        order
        for order in permutations(range(n))
        if all(p < 0 or order.index(p) < order.index(i) for i, p in enumerate(parents))
    ]
    before = precedence(parents, table.__getitem__)
    assert before == pytest.approx(over_orders(n, table.__getitem__, linear), abs=1e-9)
    allowed = permission(parents, table.__getitem__)
    closed = over_orders(n, lambda mask: table[closed_part(parents, mask)], permutations(range(n)))
    assert allowed == pytest.approx(closed, abs=1e-9)
    for credit in (before, allowed):
        assert sum(credit) == pytest.approx(table[(1 << n) - 1], abs=1e-9)
    if all(p < 0 for p in parents):
        assert before == pytest.approx(allowed, abs=1e-9)


def test_an_enabling_orchestrator() -> None:
    game = SpawnForest()
    root_alone = game.worth(1)
    assert game.precedence_credit()[0] == pytest.approx(root_alone) == pytest.approx(-0.02)
    assert game.credit()[0] > 0.2  # by permission it shares in what it made possible
    everyone = game.worth((1 << game.players()) - 1)
    assert sum(game.credit()) == pytest.approx(everyone) == pytest.approx(sum(game.precedence_credit()))


@settings(max_examples=30)
@given(st.integers(2, 4), st.data())
def test_axioms(n: int, data: st.DataObject) -> None:
    table = [0.0, *data.draw(st.lists(st.floats(-1, 1), min_size=(1 << n) - 1, max_size=(1 << n) - 1))]

    def worth_of_others(mask: int) -> float:  # player 0 is a null player
        return table[mask & ~1]

    def symmetric(mask: int) -> float:  # all are alike
        return table[(1 << mask.bit_count()) - 1]

    assert shapley(n, worth_of_others)[0] == pytest.approx(0, abs=1e-9)
    assert shapley(n, symmetric) == pytest.approx([symmetric((1 << n) - 1) / n] * n)


def test_planted_redundancy() -> None:
    game = SignallingChain(hops=(0, 0, 2), flip=0.1)
    n = game.players()
    assert leave_one_out(n, game.worth)[:2] == pytest.approx([0, 0])  # either suffices
    credit = game.credit()
    assert credit[0] == pytest.approx(credit[1])
    assert credit[0] > credit[2] > 0
    assert sum(credit) == pytest.approx(0.5)
    assert interaction(n, game.worth, 0, 1) < 0
    assert interaction(2, lambda mask: float(mask == 3), 0, 1) == 1  # complements


def test_too_many_players_are_refused() -> None:
    with pytest.raises(UsageError, match="at most 16 players"):
        shapley(40, float)


def test_confounded_spawn() -> None:
    game = SpawnBandit()
    assert game.effect() == pytest.approx(0.16)
    assert game.naive_effect() == pytest.approx(-0.248)
    solution = solve(game)
    assert solution.best((0,)) == "stop alone"
    assert solution.best((1,)) == "spawn helper: task"


def test_the_log_shows_the_wrong_sign() -> None:
    """The naive figure is what sampled play gives, not only what the formula says."""
    game = SpawnBandit(cost=0.0)
    table = PolicyTable(game, game.logging_policy)
    rewards: dict[bool, list[float]] = {True: [], False: []}
    for index in range(6000):
        episode = table.play(0, index)
        rewards[episode.options[0].startswith("spawn")].append(episode.value)
    means = {spawned: sum(r) / len(r) for spawned, r in rewards.items()}
    assert means[True] - means[False] == pytest.approx(game.naive_effect(), abs=0.05)


@pytest.mark.parametrize("length", [10, 100, 1000])
def test_length_ladder(length: int) -> None:
    game = LengthLadder(length=length, pivot=length // 2)
    solution = solve(game)
    assert solution.value == pytest.approx(1)
    blind = evaluate(game, lambda state: {"send worker: left": 0.5, "send worker: right": 0.5})
    assert blind.value == pytest.approx(0.5)
    for t in (0, game.pivot, length - 1):
        for sign in (0, 1):
            q = solution.q((t, sign, int(t > game.pivot)))
            right, wrong = (q["send worker: left"], q["send worker: right"])[:: 1 if sign == 0 else -1]
            assert right - wrong == pytest.approx(float(t == game.pivot))
            # Credit telescopes: what the right choice earns over the blind average.
            expected = 0.5 if t == game.pivot else 0.0
            said = "left" if sign == 0 else "right"
            assert game.credit((t, sign, 0), f"send worker: {said}") == expected


def test_signal_drowns_with_length() -> None:
    ratios = [LengthLadder(length=n).signal_to_noise() for n in (10, 100, 1000)]
    assert ratios[0] / ratios[1] == pytest.approx(sqrt(10))
    game = LengthLadder(length=100, noise=0.1)
    table = PolicyTable(game, lambda state: {"send worker: left": 0.5, "send worker: right": 0.5})
    right = []
    for index in range(1500):
        episode = table.play(0, index)
        if game.credit(episode.states[game.pivot], episode.options[game.pivot]) > 0:
            right.append(episode.value - 0.5)
    mean = sum(right) / len(right)
    spread = sqrt(sum((x - mean) ** 2 for x in right) / len(right))
    assert mean / spread == pytest.approx(game.signal_to_noise(), rel=0.1)
