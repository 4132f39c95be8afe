"""Spawn credit from a log alone: right over all logs there could have been, and blind to its own outcome."""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

import pytest
from spawn_traces import every_log, log_of, tau_of

from baton.credit.estimator import CreditError
from baton.credit.estimators.spawn_effect import group_means
from baton.credit.estimators.spawn_log import Cell, spawn_doubly_robust


def everything(_trace: object, _event: object) -> str:
    return "one cell for all"


def mean_effects(
    total: Callable[[int, int], float], *, n: int, p: float, cell: Cell | None = None
) -> dict[tuple[int, int], float]:
    """(place, own choice) -> the mean effect that credit was given by, over all logs of n rollouts."""
    sums: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for chance, chosen, group in every_log(n, 2, p, total):
        for choices, mine in zip(chosen, spawn_doubly_robust(group, cell=cell), strict=True):
            for place, (d, credit) in enumerate(zip(choices, mine, strict=True)):
                sums.setdefault((place, d), []).append((chance, tau_of(credit.value, p, d)))
    return {key: fsum(w * tau for w, tau in seen) / fsum(w for w, _ in seen) for key, seen in sums.items()}


@pytest.mark.parametrize("p", [0.5, 0.2])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_mean_over_all_logs_is_the_effect_with_two_decisions_a_rollout(n: int, p: float) -> None:
    found = mean_effects(lambda first, _second: float(first), n=n, p=p)
    assert found == pytest.approx({(0, 0): 1.0, (0, 1): 1.0, (1, 0): 0.0, (1, 1): 0.0})


def test_mean_over_all_logs_is_the_effect_with_both_decisions_in_one_cell() -> None:
    found = mean_effects(lambda first, second: float(first + second), n=3, p=0.5, cell=everything)
    assert found == pytest.approx(dict.fromkeys([(0, 0), (0, 1), (1, 0), (1, 1)], 1.0))


@pytest.mark.parametrize("cell", [None, everything])
def test_no_decision_looks_at_its_own_outcome(cell: Cell | None) -> None:
    chosen = ((1, 0), (0, 0), (1, 1), (0, 1), (1, 0))
    for own in range(len(chosen)):
        seen = [
            spawn_doubly_robust(
                [log_of(f"t{i}", c, 0.4, luck if i == own else float(i)) for i, c in enumerate(chosen)],
                cell=cell,
            )[own]
            for luck in (0.0, 1000.0)
        ]
        assert seen[0] == seen[1]


def test_predictions_are_from_other_rollouts() -> None:
    groups, rollouts = ["a", "b"] * 4, [0, 0, 1, 1, 2, 2, 3, 3]
    for spawned in ([True] * 8, [True, False] * 4, [False] * 7 + [True]):
        plain, changed = (
            group_means(groups, spawned, [0.0, 0.0, 10.0, 10.0, 20.0, 20.0, own, own], rollouts=rollouts)
            for own in (30.0, 1000.0)
        )
        assert [m[6:].tolist() for m in plain] == [m[6:].tolist() for m in changed]
        assert plain[0][6] == 10.0  # of rollouts 0 and 2


def test_a_decision_logged_twice_tells_nothing_more() -> None:
    """Decisions of one rollout share its return, so they are no independent draws of their cell's effect."""
    chosen, totals = (1, 0, 0, 1, 1, 0, 1), (0.3, 0.1, 0.8, 1.0, 0.2, 0.5, 0.9)
    once, twice = (
        spawn_doubly_robust(
            [
                log_of(f"t{i}", (d,) * num, 0.4, r)
                for i, (d, r) in enumerate(zip(chosen, totals, strict=True))
            ],
            cell=everything,
        )
        for num in (1, 2)
    )
    for (one,), both in zip(once, twice, strict=True):
        assert one.stderr is not None
        for credit in both:
            assert (credit.value, credit.stderr) == pytest.approx((one.value, one.stderr))


def test_a_decision_without_like_is_a_clear_error() -> None:
    group = [log_of("a", (1, 1), 0.5, 1.0), log_of("b", (1,), 0.5, 0.0)]
    with pytest.raises(CreditError, match="no like in this group"):
        spawn_doubly_robust(group)
