"""Forks and log together: unbiased, better than either, and honest about what they rest on."""

from __future__ import annotations

import asyncio
from itertools import product
from math import fsum
from typing import Any

import numpy as np
import pytest
from fork_teams import LIFT, LOGGED, helper_or_alone, traces
from scipy import stats
from spawn_traces import Dropping, spawns_of

from baton.credit import ESTIMATORS, CreditError
from baton.credit.estimator import Credits
from baton.credit.estimators.spawn_effect import combined, controlled, effect_of
from baton.credit.estimators.spawn_options import decisions_of
from baton.team.forks import Forks
from baton.trace.trace import Trace


def hard_ones(num: int) -> tuple[list[Trace], Forks]:
    group = [trace for trace in traces(helper_or_alone, num) if trace.header.task_id == "z1"]
    return group, Forks(helper_or_alone(0)[0], lambda trace: helper_or_alone(int(trace.trace_id[1:]))[1])


def asked(name: str, group: list[Trace], forks: Any, **settings: object) -> Credits:
    found: Credits = asyncio.run(ESTIMATORS[name].function(group, runner=forks, **settings))
    return found


def test_effect_is_found_and_split_over_the_two_actions() -> None:
    group, forks = hard_ones(120)
    credits = asked("spawn-combined", group, forks)
    p = LOGGED[1]
    for trace, (credit,) in zip(group, credits, strict=True):
        (event,) = decisions_of(trace)
        tau = credit.value / ((1 - p) if event.type == "spawn" else -p)
        assert tau == pytest.approx(LIFT[1], abs=0.25)
        assert credit.stderr is not None
        assert any("by inverse variance" in note for note in credit.assumes)
    forked = sum(credit.cost_tokens or 0 for (credit,) in credits)
    assert forked == forks.cost.tokens > 0


def test_order_of_rollouts_does_not_matter() -> None:
    group, forks = hard_ones(60)
    assert asked("spawn-combined", group[::-1], forks)[::-1][0][0].value == pytest.approx(
        asked("spawn-combined", group, forks)[0][0].value
    )


def test_with_too_few_of_a_kind_the_other_stands_alone_and_it_says_so() -> None:
    group, forks = hard_ones(40)
    every = asked("spawn-combined", group, forks, rate=1.0)
    assert all("forks alone" in credit.assumes[-1] for (credit,) in every)
    few = asked("spawn-combined", group, forks, rate=0.01)
    assert all("logged alone" in credit.assumes[-1] for (credit,) in few)
    with pytest.raises(CreditError, match="no like in this group"):
        asked("spawn-combined", group[:1], forks, rate=1e-9)


def test_advice_where_nothing_is_alike_works() -> None:
    group = [
        spawns_of(f"t{i}", 3, 1.0) for i in range(2)
    ]  # six decisions at three places, two of them forked
    with pytest.raises(CreditError, match="has no like in this group") as told:
        asked("spawn-combined", group, Dropping(), rate=1.0)
    assert "rate=" not in str(told.value)
    assert all(asked("spawn-combined", group, Dropping(), rate=1.0, cell=lambda *_: "all"))
    assert "or use spawn-fork" in str(told.value)
    assert all(asked("spawn-fork", group, Dropping(), rate=1.0))


def test_forks_count_by_the_inverse_of_their_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all choices of what to fork: a rollout of two decisions stands for one whose other decision was forked."""
    short = [spawns_of(f"short{i}", 1, 1.0) for i in range(3)]
    long = [spawns_of(f"long{i}", 2, -1.0) for i in range(3)]
    logged = [spawns_of(f"logged{i}", 2, 0.0) for i in range(2)]
    found, expected = [], []
    for places in product((0, 1), repeat=3):
        points = {f"fork/0/long{i}": 0.25 * place for i, place in enumerate(places)}
        points |= {f"fork/0/logged{i}": 0.9 for i in range(2)}  # beyond the rate: not forked
        monkeypatch.setattr(
            "baton.credit.estimators.spawn_fork.uniform", lambda key, at=points: at.get(key, 0.0)
        )
        (credit,), *_ = asked("spawn-combined", [*short, *long, *logged], Dropping(), rate=0.5)
        found.append(credit.value / 0.5)
        num = places.count(0)
        expected.append((3 * 1 - num * 2) / (3 * 1 + num * 2))  # 1/q is 2 and 4
    assert found == pytest.approx(expected)
    assert (
        fsum(found) / 8 < 0.11
    )  # not .39, as if all had been as likely; what is left falls with their number


def test_short_rollouts_are_not_overrepresented() -> None:
    """Half have one decision, of effect 1, half have four, the first of effect -1: the mean effect is none."""
    means = []
    for seed in range(10):
        group = [spawns_of(f"s{seed}-{i}", (4, 1)[i % 2], (-1.0, 1.0)[i % 2]) for i in range(400)]
        credits = asked("spawn-combined", group, Dropping(), rate=1.0, seed=seed)
        means.append(np.mean([mine[0].value for mine in credits]))
    assert abs(np.mean(means)) < 3 * stats.sem(means)
    assert stats.sem(means) < 0.02


def lengths_and_effects(draw: np.random.Generator, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Of rollouts forked at their first decision: those of many decisions, which gain more, seldom are."""
    length = draw.integers(1, 7, num)
    first = draw.random(num) < 1 / length
    return draw.normal(0.2 * length, 1.0)[first], length[first].astype(float)


def test_errors_of_weighed_forks_are_those_that_are_made() -> None:
    draw = np.random.default_rng(3)
    values, stated, inside = [], [], 0
    for _ in range(3000):
        found = effect_of(*lengths_and_effects(draw, 60))
        assert found.stderr is not None
        values.append(found.value)
        stated.append(found.stderr**2)
        inside += abs(found.value - 0.7) < 1.96 * found.stderr
    assert np.mean(values) == pytest.approx(0.7, abs=0.02)
    assert np.mean(stated) == pytest.approx(np.var(values), rel=0.1)
    assert inside / 3000 > 0.9
    terms = draw.normal(size=9)
    assert effect_of(terms, [3.0] * 9).stderr == pytest.approx(stats.sem(terms))
    assert effect_of([0.1] * 3, [1.0, 2.0, 4.0]).stderr is None


def test_errors_of_weighed_forks_and_log_together_are_those_that_are_made() -> None:
    draw = np.random.default_rng(4)
    values, stated = [], []
    for _ in range(1500):
        pairs, lengths = lengths_and_effects(draw, 120)
        terms = draw.normal(0.7, 2.0, 60)
        found = combined(pairs.tolist(), terms.tolist(), (lengths, None))
        assert found.stderr is not None
        values.append(found.value)
        stated.append(found.stderr**2)
    assert np.mean(values) == pytest.approx(0.7, abs=0.03)
    assert np.mean(stated) == pytest.approx(np.var(values), rel=0.15)


def test_a_price_on_tokens_counts_in_forks_and_log() -> None:
    group, forks = hard_ones(60)
    free = asked("spawn-combined", group, forks)[0][0].value
    dear = asked("spawn-combined", group, forks, token_price=0.01)[0][0].value
    assert abs(dear) > abs(free) or np.sign(dear) != np.sign(free)


def test_a_sample_that_came_out_alike_is_not_taken_as_certain() -> None:
    draw = np.random.default_rng(0)
    terms = draw.normal(0.3, 1.0, 40)
    found = combined([0.0] * 20, terms.tolist())
    assert found.stderr is not None
    assert found.stderr > 0.01
    assert abs(found.value) < abs(terms.mean())
    both = combined([0.1] * 4, [0.1] * 6)
    assert (both.value, both.stderr) == (pytest.approx(0.1), None)


def test_control_variate_is_unbiased_and_states_its_error() -> None:
    draw = np.random.default_rng(1)
    values, stated, plain = [], [], []
    for _ in range(600):
        lift = np.where(draw.random(200) < 0.5, 0.02, 0.6)
        pairs = (draw.random(200) < lift).astype(float)
        guess = lift + 0.05  # a guess that is off is no bias
        found = controlled(pairs[:40], guess[:40], guess)
        assert found.stderr is not None
        values.append(found.value)
        stated.append(found.stderr**2)
        plain.append(pairs[:40].mean())
    assert np.mean(values) == pytest.approx(0.31, abs=0.01)
    assert np.sqrt(np.mean(stated)) == pytest.approx(np.std(values), rel=0.1)
    assert np.std(values) < 0.9 * np.std(plain)
    with pytest.raises(CreditError, match="a guess for each fork"):
        controlled([0.1], [0.1, 0.2], [0.1])
