"""The generic solver against brute force over all deterministic policies, on random small games."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import fsum
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.games.game import CHOICES, OVER, Branch, Choice, Game, State
from baton.games.ledger import expected_regret, sampled_regret, trace_regret
from baton.games.library import make_game
from baton.games.play import PolicyTable
from baton.games.reference import REFERENCE, reference
from baton.games.solve import evaluate, solve


class RandomGame(Game, frozen=True, kw_only=True):
    """Layers of states, options and branches drawn from a seed."""

    name: ClassVar[str] = "random-game"
    decisions: ClassVar[tuple[Choice, ...]] = CHOICES
    seed: int = 0
    layers: int = 3
    width: int = 2
    num_options: int = 2

    def start(self) -> Sequence[Branch]:
        return [Branch(1 / self.width, (0, i)) for i in range(self.width)]

    def options(self, state: State) -> tuple[str, ...]:
        return tuple(f"stop {i}" for i in range(self.num_options)) if state else ()

    def decision(self, state: State) -> Choice:
        return CHOICES[sum(state) % 5]

    def step(self, state: State, option: str) -> Sequence[Branch]:
        random = Random(f"{self.seed}{state}{option}")
        layer = state[0] + 1
        after = [(layer, i) for i in range(self.width)] if layer < self.layers else [OVER]
        weights = [random.random() + 0.1 for _ in after]
        return [
            Branch(w / sum(weights), s, random.uniform(-1, 1)) for w, s in zip(weights, after, strict=True)
        ]

    def quit(self, state: State) -> str:
        return self.options(state)[0]

    def text(self, state: State) -> str:
        return str(state)


GAMES = st.builds(RandomGame, seed=st.integers(0, 10**6), layers=st.integers(1, 3), width=st.integers(1, 2))


def all_states(game: RandomGame) -> list[State]:
    return [(layer, i) for layer in range(game.layers) for i in range(game.width)]


@settings(max_examples=30)
@given(GAMES)
def test_optimum_is_the_best_of_all_deterministic_policies(game: RandomGame) -> None:
    states = all_states(game)
    values = []
    for choices in product(game.options((0, 0)), repeat=len(states)):
        table = dict(zip(states, choices, strict=True))
        values.append(evaluate(game, lambda state, table=table: {table[state]: 1.0}).value)
    assert solve(game).value == pytest.approx(max(values), abs=1e-12)


def mixed(game: Game, seed: int):
    """A random stochastic policy."""

    def policy(state: State) -> dict[str, float]:
        random = Random(f"{seed}{state}")
        weights = {option: random.random() + 0.01 for option in game.options(state)}
        return {option: w / fsum(weights.values()) for option, w in weights.items()}

    return policy


@settings(max_examples=50)
@given(GAMES, st.integers(0, 1000))
def test_ledger_adds_up_for_any_policy(game: RandomGame, seed: int) -> None:
    solution = solve(game)
    ledger = expected_regret(solution, mixed(game, seed))
    assert abs(ledger.residual) <= 1e-9
    assert ledger.regret == pytest.approx(solution.value - ledger.value, abs=1e-9)
    assert all(part >= -1e-12 for part in ledger.parts.values())
    assert fsum(ledger.visits.values()) == pytest.approx(game.layers)


@settings(max_examples=20)
@given(GAMES, st.integers(0, 1000))
def test_visits_and_values_agree(game: RandomGame, seed: int) -> None:
    """V_pi computed backward equals expected rewards computed forward."""
    policy = mixed(game, seed)
    evaluation = evaluate(game, policy)
    forward = fsum(
        mass * p * b.probability * b.reward
        for state, mass in evaluation.visits.items()
        if game.options(state)
        for option, p in policy(state).items()
        for b in game.step(state, option)
    )
    assert forward == pytest.approx(evaluation.value, abs=1e-12)


def test_sampled_ledger_covers_the_exact_one() -> None:
    game = make_game("parallel-pandora", {"num_boxes": 2})
    solution = solve(game)
    policy = reference("random", game)
    exact = expected_regret(solution, policy)
    sampled = sampled_regret(solution, policy, 4000, seed=1)
    for mean, half, true in [
        (*sampled.value, exact.value),
        (*sampled.regret, exact.regret),
        *((*sampled.parts[c], exact.parts[c]) for c in CHOICES),
    ]:
        assert abs(mean - true) <= 2 * half + 1e-12  # four standard errors
    with pytest.raises(UsageError, match="at least 2"):
        sampled_regret(solution, policy, 1)


def test_intervals_cover_as_often_as_they_say() -> None:
    game = RandomGame(seed=3)
    solution = solve(game)
    policy = mixed(game, 0)
    exact = expected_regret(solution, policy).regret
    hits = 0
    for seed in range(100):
        mean, half = sampled_regret(solution, policy, 60, seed=seed).regret
        hits += abs(mean - exact) <= half
    assert 85 <= hits <= 100


def test_trace_ledger_adds_up_with_luck() -> None:
    game = make_game("parallel-pandora")
    solution = solve(game)
    table = PolicyTable(game, reference("random", game))
    lucks = []
    for index in range(300):
        episode = table.play(0, index)
        ledger = trace_regret(solution, zip(episode.states, episode.options, episode.rewards, strict=True))
        assert abs(ledger.residual) <= 1e-9
        assert ledger.value == pytest.approx(episode.value)
        lucks.append(ledger.luck)
    assert abs(sum(lucks) / 300) < 0.1  # luck has mean zero
    with pytest.raises(UsageError, match="cannot be reached"):
        trace_regret(solution, [((0, 0, (9, 9, 9), ()), "stop none", 0.0)])
    with pytest.raises(UsageError, match="no option"):
        trace_regret(solution, [(game.start()[0].state, "stop everything", 0.0)])


def test_same_seed_same_episode() -> None:
    game = make_game("parallel-pandora")
    policy = reference("random", game)
    first, second = PolicyTable(game, policy), PolicyTable(game, policy)
    second.play(9, 9)  # what was played before does not matter
    assert [first.play(0, i) for i in range(5)] == [second.play(0, i) for i in range(5)]
    assert first.play(0, 0) != first.play(1, 0)


def test_too_many_states_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 50 states"):
        solve(RandomGame(layers=100), max_states=50)
    with pytest.raises(UsageError, match="30 times as many branches"):
        solve(RandomGame(layers=3, width=40), max_states=100)


def test_unknown_policy_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="Did you mean 'greedy'"):
        reference("greedi", RandomGame())


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_policies_choose_options(name: str) -> None:
    game = make_game("scouts")
    policy = reference(name, game)
    for state in solve(game).values:
        if options := game.options(state):
            chosen = policy(state)
            assert set(chosen) <= set(options)
            assert fsum(chosen.values()) == pytest.approx(1)
