"""O5: sequential test, Pandora, the stopping chain."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from baton.errors import UsageError
from baton.games.library.enough import Enough
from baton.games.library.inspectors import chance_good
from baton.games.library.pandora import Pandora, reservation, reservation_uniform
from baton.games.library.sequential_test import SequentialTest
from baton.games.library.stopping_chain import StoppingChain
from baton.games.solve import evaluate, solve


def test_reservation_of_the_uniform() -> None:
    assert reservation_uniform(0.02) == pytest.approx(0.8)
    assert Pandora(scales=(1.0,), costs=(0.02,)).reservations() == pytest.approx([0.8])


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), st.floats(0, 5))
def test_reservation_solves_its_equation(values: list[float], cost: float) -> None:
    sigma = reservation(values, cost)
    assert sum(max(0, x - sigma) for x in values) / len(values) == pytest.approx(cost, abs=1e-9)


@given(st.floats(0, 0.49))
def test_fine_levels_approach_the_uniform(cost: float) -> None:
    game = Pandora(scales=(1.0,), costs=(cost,), num_levels=1000)
    assert game.reservations()[0] == pytest.approx(reservation_uniform(cost), abs=2e-3)


boxes = st.lists(st.tuples(st.floats(0.1, 2), st.floats(0, 0.8)), min_size=1, max_size=3)


@settings(max_examples=40)
@given(boxes, st.floats(0, 1))
def test_weitzman_is_optimal(boxes: list[tuple[float, float]], in_hand: float) -> None:
    scales, costs = zip(*boxes, strict=True)
    game = Pandora(scales=scales, costs=costs, num_levels=4, in_hand=in_hand)
    solution = solve(game)
    assert solution.value == pytest.approx(game.facts()["value"])
    sigma = game.reservations()

    def rule(state: tuple[int, ...]) -> dict[str, float]:
        phase, opened, box, level = state
        closed = [i for i in range(len(boxes)) if not opened >> i & 1]
        best = game.values(box)[level] if box >= 0 else in_hand
        following = max(closed, key=lambda i: sigma[i], default=None)
        if phase:
            return {f"delegate opener: box {following + 1}": 1.0}
        go_on = following is not None and best < sigma[following]
        return {"spawn opener: next" if go_on else "stop best": 1.0}

    assert evaluate(game, rule).value == pytest.approx(solution.value)


def test_pandora_by_brute_force() -> None:
    """All orders and all thresholds per position, on two boxes."""
    game = Pandora(scales=(1.0, 1.5), costs=(0.1, 0.3), num_levels=3)
    best = 0.0
    for order in permutations(range(2)):
        for bars in product([-1, 0.2, 0.3, 0.6, 0.8, 0.9, 1.1, 2], repeat=2):
            total = 0.0
            for draw in product(*(game.values(i) for i in range(2))):
                held, paid = 0.0, 0.0
                for i, bar in zip(order, bars, strict=True):
                    if held >= bar:
                        break
                    paid += game.costs[i]
                    held = max(held, draw[i])
                total += held - paid
            best = max(best, total / 9)
    assert solve(game).value == pytest.approx(best)


def test_too_many_boxes_are_refused() -> None:
    with pytest.raises(UsageError, match="past exact solution, which takes at most 3,000,000"):
        solve(Pandora(scales=(1.0,) * 12, costs=(0.1,) * 12))


def test_enough_is_enough() -> None:
    game = Enough()
    assert max(game.reservations()) < game.in_hand
    assert solve(game).value == game.in_hand


@settings(max_examples=15)
@given(st.floats(0.2, 2), st.floats(0.005, 0.2))
def test_thresholds_of_the_sequential_test(unit: float, cost: float) -> None:
    game = SequentialTest(unit=unit, cost=cost, max_tests=100)
    bound = int(game.facts()["threshold"])
    assume(bound <= 4)  # so that the cap of 100 tests hides nothing
    solution = solve(game)
    assert solution.value <= -min(game.threshold_risk(b) for b in range(20)) + 1e-9
    assert solution.value == pytest.approx(game.facts()["value_without_cap"], abs=1e-4)


@given(st.floats(0.2, 2), st.integers(1, 6))
def test_wald(unit: float, bound: int) -> None:
    """Without overshoot the error is exactly 1/(1+e^(uB)): Wald's bounds hold with equality."""
    game = SequentialTest(unit=unit, cost=0.0, max_tests=0)
    assert game.threshold_risk(bound) == pytest.approx(1 - chance_good(bound, unit))


def test_unequal_losses_lean_to_the_safer_answer() -> None:
    game = SequentialTest(loss_yes=5.0, max_tests=20)
    solution = solve(game)
    yes = min(
        k for k in range(-20, 21) if (10, k) in solution.values and solution.best((10, k)) == "stop yes"
    )
    no = max(k for k in range(-20, 21) if (10, k) in solution.values and solution.best((10, k)) == "stop no")
    assert yes > -no


@pytest.mark.parametrize(
    ("evidence", "told"),
    [(0, "evidence: even\n"), (2, "evidence: 2 for yes\n"), (-3, "evidence: 3 for no\n")],
)
def test_the_sequential_test_says_which_answer_the_evidence_is_for(evidence: int, told: str) -> None:
    game = SequentialTest(max_tests=12)
    text = game.text((5, evidence))
    assert told in text
    assert "tests left: 7\n" in text
    assert game.quit((5, evidence)) == ("stop no" if evidence < 0 else "stop yes")


@settings(max_examples=25)
@given(
    st.integers(0, 3), st.integers(0, 3), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.3)
)
def test_stopping_chain_by_recursion(
    workers: int, steps: int, gain: float, back: float, good: float, c: float
) -> None:
    """The same problem written down worker by worker."""
    game = StoppingChain(
        num_workers=workers, num_steps=steps, gain=gain, back=back, good=good, step_cost=c, cancel_cost=c / 2
    )

    def value(t: int, quality: int, out: int) -> float:
        stop = 1 - (1 - gain) ** quality - c / 2 * out
        if t == steps or not out:
            return stop
        wait = -c
        for fates in product(("out", "good", "bad"), repeat=out):
            p = 1.0
            for fate in fates:
                p *= {"out": 1 - back, "good": back * good, "bad": back * (1 - good)}[fate]
            if p:
                wait += p * value(t + 1, quality + fates.count("good"), fates.count("out"))
        return max(stop, wait)

    assert solve(game).value == pytest.approx(value(0, 0, workers))


def test_waiting_pays_until_it_does_not() -> None:
    solution = solve(StoppingChain())
    assert solution.best((0, 0, 5)) == "wait any"
    assert solution.best((3, 4, 1)) == "stop draft"
