"""Spawn credit: both branches right where the naive marginal flips, doubly robust from logs, widths."""

from __future__ import annotations

import asyncio
from statistics import fmean

import numpy as np
import pytest
from fork_teams import BASE, LIFT, LOGGED, helper_or_alone, traces, voters
from game_teams import play

from baton.credit.estimator import ESTIMATORS, CreditError
from baton.credit.estimators.spawn_effect import (
    centred,
    combined,
    doubly_robust,
    group_means,
    inverse_propensity,
)
from baton.credit.estimators.spawn_fork import choose_fork, fork_one, other_branches, spawn_fork
from baton.credit.estimators.spawn_log import spawn_doubly_robust
from baton.credit.estimators.spawn_options import choice_of, decisions_of, propensity_of
from baton.team.action import Spawn
from baton.team.forks import Forks
from baton.team.intervene import Force
from baton.trace import Event

TRUE_EFFECT = 0.16


def log(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Difficulty, propensity, choice, return, and both potential outcomes under shared luck."""
    draw = np.random.default_rng(seed)
    z = draw.integers(0, 2, n)
    p = np.array(LOGGED)[z]
    d = draw.random(n) < p
    luck = draw.random(n)
    r0 = (luck < np.array(BASE)[z]).astype(float)
    r1 = (luck < np.array(BASE)[z] + np.array(LIFT)[z]).astype(float)
    return z, p, d, np.where(d, r1, r0), r1, r0


def test_naive_flips_the_sign_and_the_others_do_not() -> None:
    z, p, d, r, r1, r0 = log(20_000, 0)
    naive = r[d].mean() - r[~d].mean()
    assert naive < -0.2
    m1, m0 = group_means(z.tolist(), d, r)
    robust = doubly_robust(r, d, p, m1, m0)
    weighted = inverse_propensity(r, d, p)
    for found in (robust, weighted):
        assert found.stderr is not None
        assert abs(found.value - TRUE_EFFECT) < 3.5 * found.stderr
    pairs = r1 - r0
    assert pairs.var() * 25 < np.var(weighted.terms)
    assert np.var(robust.terms) < np.var(weighted.terms)


def test_doubly_robust_survives_wrong_predictions() -> None:
    _, p, d, r, _, _ = log(40_000, 1)
    found = doubly_robust(r, d, p, 5.0, -3.0)
    assert found.stderr is not None
    assert abs(found.value - TRUE_EFFECT) < 3.5 * found.stderr
    with pytest.raises(CreditError, match=r"not inside \(0, 1\)"):
        doubly_robust(r, d, np.ones_like(p), 0.0, 0.0)


def test_group_means_do_not_look_at_their_own_fold() -> None:
    r = np.array([0.0, 1.0, 0.0, 1.0])
    m1, m0 = group_means(["a"] * 4, [True] * 4, r)
    assert m1.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert m0.tolist() == [1.0, 0.0, 1.0, 0.0]  # nobody did not spawn: the other fold's mean


def test_combination_beats_its_parts_and_stays_unbiased() -> None:
    draw = np.random.default_rng(2)
    values, inside = [], 0
    for _ in range(1500):
        found = combined((0.16 + draw.normal(0, 0.15, 20)).tolist(), (0.16 + draw.normal(0, 3, 200)).tolist())
        values.append(found.value)
        assert found.stderr is not None
        inside += abs(found.value - 0.16) < 2 * found.stderr
    assert abs(np.mean(values) - 0.16) < 4 * np.std(values) / 1500**0.5
    assert np.std(values) < min(0.15 / 20**0.5, 3 / 200**0.5) * 1.1
    assert inside / 1500 > 0.9
    with pytest.raises(CreditError, match="at least 4"):
        combined([0.1], [0.2])


def test_centred_credit_has_mean_zero_under_the_policy() -> None:
    for tau in (-0.5, 0.0, 0.7):
        for p in (0.1, 0.5, 0.9):
            mean = p * centred(tau, p, True) + (1 - p) * centred(tau, p, False)
            assert mean == pytest.approx(0.0)
    assert centred(-0.5, 0.2, False) > 0  # not spawning was right


def test_paired_forks_are_exact_on_the_team() -> None:
    taus = []
    for seed, trace in enumerate(traces(helper_or_alone, 120)):
        forks = Forks(*helper_or_alone(seed))
        event = decisions_of(trace)[0]
        hard = int(trace.header.task_id[-1])
        assert propensity_of(event) == pytest.approx(LOGGED[hard])
        found = asyncio.run(fork_one(forks, trace))
        assert found is not None
        [tau] = found.contrasted({"spawn worker: help": 1.0, "stop alone": -1.0})
        assert tau in (0.0, 1.0)  # shared luck: a helper never hurts here
        taus.append(tau)
    assert abs(fmean(taus) - TRUE_EFFECT) < 0.12


def test_at_most_one_fork_a_trace_with_its_probability() -> None:
    group = traces(voters, 200)
    chosen = [choose_fork(trace, 0.5) for trace in group]
    made = [found for found in chosen if found is not None]
    assert 70 < len(made) < 130
    assert {q for _, q in made} == {0.5 / 3}
    assert {event.id for event, _ in made} == {"orchestrator#1", "orchestrator#2", "orchestrator#3"}
    assert chosen == [choose_fork(trace, 0.5) for trace in group]


def test_estimators_write_centred_records() -> None:
    group = traces(helper_or_alone, 40)
    spawned = next(trace for trace in group if decisions_of(trace)[0].type == "spawn")
    forks = Forks(*helper_or_alone(int(spawned.trace_id[1:])))
    [[credit]] = asyncio.run(spawn_fork([spawned], runner=forks, token_price=0.001))
    assert credit.unit == "orchestrator"
    assert credit.target == "orchestrator#1"
    p = propensity_of(decisions_of(spawned)[0])
    # Tokens of the helper are charged, so a helper that changed nothing has negative credit.
    reward = credit.value / (1 - p)
    assert reward < 1.0
    hard = [trace for trace in group if trace.header.task_id == "z1"]
    credits = spawn_doubly_robust(hard)
    assert all(len(found) == 1 for found in credits)
    for trace, [found] in zip(hard, credits, strict=True):
        event = decisions_of(trace)[0]
        # One effect for all, less the outcome of its own: spawns stand on one side, the others opposite.
        assert found.value * (1 if event.type == "spawn" else -1) > -0.05
    with pytest.raises(CreditError, match="needs at least 2"):
        spawn_doubly_robust(hard[:1])
    assert ESTIMATORS["spawn-doubly-robust"].needs == {"group", "propensities"}


def test_spawn_with_no_chance_of_another_branch_is_a_clear_error() -> None:
    trace = traces(voters, 1)[0]
    with pytest.raises(CreditError, match="not inside"):
        spawn_doubly_robust([trace, traces(voters, 2)[1]])


def test_spawns_are_read_from_both_surfaces() -> None:
    """The same game by the same draws: only how an action is written differs, so nothing of its credit may."""
    seen, earned = [], []
    for surface in ("lines", "tools"):
        group, forks = play("best-of-n", 8, surface=surface)
        events = [event for trace in group for event in decisions_of(trace)]
        assert {event.type == "spawn" for event in events} == {True, False}
        seen.append([(event.id, event.type, propensity_of(event)) for event in events])
        assert {p for _, _, p in seen[-1]} == {0.5}  # one of two, at random
        for event in events:
            _, others = other_branches(forks, choice_of(event))
            [other] = others.values()
            assert isinstance(other, Force)
            assert isinstance(other.action, Spawn) == (event.type != "spawn")
        credits = asyncio.run(spawn_fork(group, runner=forks))
        earned.append([(credit.target, credit.value) for mine in credits for credit in mine])
        assert any(value for _, value in earned[-1])
    assert seen[0] == seen[1]
    assert earned[0] == earned[1]


def test_an_option_of_a_foreign_log_may_be_named_by_its_verb_alone() -> None:
    event = Event(
        id="e", type="spawn", agent="lead", seq=1, t=0.0, to="w", call="c", options=("no spawn", "spawn"), choice=1,
        propensity=0.25, option_propensities=(0.75, 0.25),
    )  # fmt: skip
    assert propensity_of(event) == 0.25
