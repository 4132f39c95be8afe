"""The flagship: its lattice, its value against simulated worlds, and special cases by hand."""

from __future__ import annotations

from math import exp, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.games.library.inspectors import agreement, chance_good, report
from baton.games.library.parallel_pandora import ParallelPandora
from baton.games.reference import reference
from baton.games.solve import evaluate, solve

units = st.floats(0.1, 2)
beliefs = st.integers(-5, 5)


@given(beliefs, st.integers(1, 3), st.booleans(), units)
def test_beliefs_are_a_martingale(k: int, skill: int, full: bool, unit: float) -> None:
    lottery = report(k, skill, full, unit)
    assert sum(p for p, _ in lottery) == pytest.approx(1)
    after = sum(p * chance_good(k + shift, unit) for p, shift in lottery)
    assert after == pytest.approx(chance_good(k, unit))


@given(beliefs, st.integers(1, 3), units)
def test_the_sign_of_a_full_report_is_the_brief_one(k: int, skill: int, unit: float) -> None:
    """Dropping the strength of a full report leaves exactly a brief one."""
    full = {shift: p for p, shift in report(k, skill, True, unit)}
    brief = {shift: p for p, shift in report(k, skill, False, unit)}
    zero = full.get(0, 0.0)
    up = sum(p for shift, p in full.items() if shift > 0)
    # At log-odds 0 a signal of weight 0 is equally likely either way; its sign still counts.
    assert up + zero / 2 == pytest.approx(brief[skill])


@given(beliefs, st.integers(1, 2), st.integers(1, 2), units)
def test_a_vote_of_two_keeps_beliefs_honest(k: int, first: int, second: int, unit: float) -> None:
    lottery = agreement(k, (first, second), unit)
    assert sum(p for p, _ in lottery) == pytest.approx(1)
    after = sum(p * chance_good(k + shift, unit) for p, shift in lottery)
    assert after == pytest.approx(chance_good(k, unit))


def test_one_look_at_one_box_by_hand() -> None:
    game = ParallelPandora(num_boxes=1, num_rounds=1, num_slots=1, outside=0.5, prior=0, unit=0.7)
    right = 1 / (1 + exp(-1.4))  # a senior's brief report
    senior = 0.5 * right + 0.5 * 0.5 - game.senior_cost - game.round_cost
    assert solve(game).value == pytest.approx(max(0.5, senior))


def test_more_of_anything_is_never_worse() -> None:
    def value(**settings: int) -> float:
        return solve(ParallelPandora(**{"num_boxes": 2, "num_rounds": 2, "num_slots": 1, **settings})).value

    base = value()
    assert value(num_boxes=3) >= base
    assert value(num_slots=2) >= base
    assert value(num_rounds=3) >= base


def play_world(game: ParallelPandora, policy, random: Random) -> float:
    """One episode in a world with real boxes and real signals, beliefs kept by Bayes on the side.

    Nothing of the game's transition is used: signals are drawn given what is in the boxes.
    """
    unit, skills = game.unit, {"junior": 1, "senior": 2}
    good = [random.random() < chance_good(game.prior, unit) for _ in range(game.num_boxes)]
    beliefs = [game.prior] * game.num_boxes
    total, round_ = 0.0, 0
    while True:
        order = sorted(range(game.num_boxes), key=lambda i: -beliefs[i])
        state = (0, round_, tuple(beliefs[i] for i in order), ())
        option = next(iter(policy(state)))
        if option.startswith("stop"):
            if option == "stop none":
                return total + game.outside
            return total + game.prize * good[order[int(option.split()[-1]) - 1]]
        total -= game.round_cost
        pending, phase = (), 1
        method = "all"
        while True:
            state = (phase, round_, state[2], pending)
            if phase == 1:
                who, box = next(iter(policy(state))).removeprefix("delegate ").split(": box ")
                total -= game.senior_cost if who == "senior" else game.junior_cost
                pending = (*pending, (int(box) - 1, ("junior", "senior").index(who), -1))
                phase = 2
            elif phase == 2:
                full = next(iter(policy(state))).endswith("full")
                total -= game.full_cost if full else 0
                pending = tuple(sorted((*pending[:-1], (*pending[-1][:2], int(full)))))
                phase = 3
                if len(pending) == game.num_slots:
                    break
            else:
                if next(iter(policy(state))) == "wait":
                    break
                phase = 1
        places = [entry[0] for entry in pending]
        if len(set(places)) < len(places):
            method = next(iter(policy((4, round_, state[2], pending)))).split()[1]
            total -= game.read_cost * (2 if method == "all" else 1)
        for place in set(places):
            box = order[place]
            signals = []
            for _, who, full in sorted((e for e in pending if e[0] == place), reverse=True):
                skill = skills[("junior", "senior")[who]]
                sign = 1 if random.random() < 1 / (1 + exp(-skill * unit)) else -1
                sign = sign if good[box] else -sign
                # Strong and weak signals are as e^u : 1 when right; when wrong, each e^(-its weight) of that.
                right = (sign > 0) == good[box]
                strong = exp(unit) if right else exp(unit - (skill + 1) * unit)
                weak = 1.0 if right else exp(-(skill - 1) * unit)
                size = skill + 1 if random.random() < strong / (strong + weak) else skill - 1
                signals.append((skill, sign, sign * size if full else sign * skill))
            if len(signals) == 2 and method == "majority":
                agree = signals[0][1] == signals[1][1]
                beliefs[box] += signals[0][1] * (signals[0][0] + signals[1][0]) if agree else 0
            elif len(signals) == 2 and method == "best":
                beliefs[box] += signals[0][2]
            else:
                beliefs[box] += sum(signal[2] for signal in signals)
        round_ += 1


@pytest.mark.parametrize("name", ["optimal", "always-spawn", "greedy"])
def test_value_is_what_real_boxes_pay(name: str) -> None:
    """The exact value of a policy against its mean over worlds drawn without the game's own transitions."""
    game = ParallelPandora(num_boxes=2, prior=1)
    policy = reference(name, game)
    random = Random(7)
    returns = [play_world(game, policy, random) for _ in range(6000)]
    mean = sum(returns) / len(returns)
    error = sqrt(sum((x - mean) ** 2 for x in returns)) / len(returns)
    assert abs(mean - evaluate(game, policy).value) <= 4 * error


def test_all_five_decisions_matter() -> None:
    """Random play loses something to each decision."""
    from baton.games.ledger import expected_regret

    solution = solve(ParallelPandora())
    parts = expected_regret(solution, reference("random", solution.game)).parts
    assert all(part > 1e-4 for part in parts.values())


def test_the_optimum_uses_every_verb() -> None:
    game = ParallelPandora(num_boxes=4, num_slots=3, prior=-1, outside=0.5, read_cost=0.003)
    solution = solve(game)
    visits = evaluate(game, solution.policy).visits
    used = {
        solution.best(state).split(":")[0]
        for state, mass in visits.items()
        if mass > 0.01 and game.options(state)
    }
    assert {
        "spawn inspector", "wait", "delegate junior", "delegate senior", "send junior", "send senior",
        "aggregate all", "aggregate majority", "stop box 1", "stop none",
    } <= used  # fmt: skip
