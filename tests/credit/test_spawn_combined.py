"""Forks and log together: unbiased, better than either, and honest about what they rest on."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from fork_teams import LIFT, LOGGED, helper_or_alone, traces

from baton.credit import ESTIMATORS, CreditError
from baton.credit.contract import Credits
from baton.credit.forking import Forks
from baton.credit.spawn_effect import combined, controlled
from baton.credit.spawn_fork import decisions_of
from baton.trace.trace import Trace


def hard_ones(num: int) -> tuple[list[Trace], Forks]:
    group = [trace for trace in traces(helper_or_alone, num) if trace.header.task_id == "z1"]
    return group, Forks(helper_or_alone(0)[0], lambda trace: helper_or_alone(int(trace.trace_id[1:]))[1])


def asked(name: str, group: list[Trace], forks: Forks, **settings: object) -> Credits:
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
