"""Message credit by causal replay: unbiased on enumerable teams, exact null test, honest errors and costs."""

from __future__ import annotations

import asyncio
from statistics import fmean, stdev

import numpy as np
import pytest
from fork_teams import P_FIRST, P_SECOND, relay, traces, voters
from hypothesis import given
from hypothesis import strategies as st

from baton.credit.estimator import ESTIMATORS, CreditError
from baton.credit.estimators.message_replay import (
    message_replay,
    messages_of,
    total_effect,
    total_effect_of,
)
from baton.team.forks import Forks
from baton.team.intervene import Replace
from baton.trace.trace import Trace


def truth(trace: Trace, event_id: str) -> float:
    """Exact total effect in the relay."""
    said = trace.text(trace.event(event_id).content_ref) or ""
    if event_id == "worker1#1":
        return P_SECOND[said] - (P_FIRST * P_SECOND["1"] + (1 - P_FIRST) * P_SECOND["0"])
    first = trace.text(trace.event("worker1#1").content_ref) or ""
    return float(said) - P_SECOND[first]


@pytest.mark.parametrize(("level", "rows"), [("message", 1), ("message", 3), ("edge", 2)])
def test_unbiased_on_the_relay(level: str, rows: int) -> None:
    errors: dict[str, list[float]] = {"worker1#1": [], "worker2#1": []}
    inside: list[bool] = []
    for seed, trace in enumerate(traces(relay, 250)):
        forks = Forks(*relay(seed))
        for message in errors:
            found = asyncio.run(
                total_effect(forks, trace, message, level=level, num_alternatives=3, num_continuations=rows)  # type: ignore[arg-type]  # a level
            )
            errors[message].append(found.value - truth(trace, message))
            if rows > 1 and found.stderr:
                inside.append(abs(errors[message][-1]) <= 2.6 * found.stderr)
    for found_errors in errors.values():
        assert abs(fmean(found_errors)) < 3.5 * stdev(found_errors) / len(found_errors) ** 0.5
    if rows == 3:
        assert fmean(inside) > 0.8


def test_null_replay_repeats_every_message() -> None:
    for seed, trace in enumerate(traces(voters, 5)):
        forks = Forks(*voters(seed))
        for message in messages_of(trace):
            assert asyncio.run(forks.fork(trace, redraw=message.id)).trace.events == trace.events


def test_common_random_numbers_lower_the_variance() -> None:
    """The j-th continuations share luck; pairing them with each other's luck instead is worse."""
    paired, crossed = [], []
    for seed, trace in enumerate(traces(relay, 200)):
        forks = Forks(*relay(seed))
        rewards: dict[tuple[str, int], float] = {}
        for text in ("1", "0"):
            for row in (1, 2):
                made = asyncio.run(
                    forks.fork(trace, [Replace("worker1#1", text)], replicate=row, redraw="worker1#1")
                )
                rewards[text, row] = made.trace.rewards[0].value
        paired.append(rewards["1", 1] - rewards["0", 1])
        crossed.append(rewards["1", 1] - rewards["0", 2])
    assert stdev(paired) < 0.85 * stdev(crossed)
    assert abs(fmean(paired) - 0.5) < 0.12


def test_given_alternatives_go_on_the_edge() -> None:
    trace = traces(relay, 1)[0]
    forks = Forks(*relay(0))
    said = trace.text(trace.event("worker2#1").content_ref)
    other = "0" if said == "1" else "1"
    found = asyncio.run(total_effect(forks, trace, "worker2#1", level="edge", alternatives=[other]))
    assert found.value == float(said or 0) - float(other)
    with pytest.raises(CreditError, match="level="):
        asyncio.run(total_effect(forks, trace, "worker2#1", alternatives=[other]))


def test_estimator_writes_records_with_cost_and_assumptions() -> None:
    group = traces(relay, 1)
    forks = Forks(*relay(0))
    [credits] = asyncio.run(message_replay(group, runner=forks, num_alternatives=2))
    assert [credit.target for credit in credits] == ["worker1#1", "worker2#1"]
    assert sum(credit.cost_tokens or 0 for credit in credits) == forks.cost.tokens > 0
    assert all("tools in the cone are pure" in credit.assumes for credit in credits)
    [edges] = asyncio.run(message_replay(group, runner=forks, level="edge"))
    assert edges[0].target == "worker1#1>orchestrator"
    assert ESTIMATORS["message-replay"].needs == {"runtime"}
    with pytest.raises(CreditError, match="replay_probability"):
        asyncio.run(message_replay(group, runner=forks, replay_probability=0.0))


def test_selective_estimator_agrees_on_average() -> None:
    whole, part = [], []
    for seed, trace in enumerate(traces(relay, 150)):
        forks = Forks(*relay(seed))
        whole.append(asyncio.run(message_replay([trace], runner=forks, num_alternatives=2))[0][0].value)
        part.append(
            asyncio.run(message_replay([trace], runner=forks, num_alternatives=2, replay_probability=0.5))[0][
                0
            ].value
        )
    gaps = [a - b for a, b in zip(whole, part, strict=True)]
    assert any(gaps)
    assert abs(fmean(gaps)) < 3.5 * stdev(gaps) / len(gaps) ** 0.5


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(st.floats(-5, 5), min_size=k, max_size=k), min_size=1, max_size=4)
    )
)
def test_siblings_sum_to_zero(rows: list[list[float]]) -> None:
    found = total_effect_of(rows)
    assert abs(sum(found.siblings)) < 1e-9
    table = np.array(rows)
    assert found.value == pytest.approx(table[:, 0].mean() - table[:, 1:].mean(), abs=1e-9)


def test_standard_error_covers() -> None:
    """Two-way noise: candidates, continuations, and what is left; 95 % intervals hold 95 %, give or take."""
    draw = np.random.default_rng(1)
    alternatives, rows, inside = 6, 5, 0
    for _ in range(2000):
        messages = np.concatenate([[0.3], draw.normal(0, 0.5, alternatives)])
        table = messages + draw.normal(0, 1.0, (rows, 1)) + draw.normal(0, 0.4, (rows, alternatives + 1))
        found = total_effect_of(table)
        assert found.stderr is not None
        inside += abs(found.value - 0.3) <= 2.2 * found.stderr
    assert 0.9 < inside / 2000 < 0.985


@pytest.mark.parametrize("rows", [1, 4])
def test_one_alternative_does_not_tell_how_far_alternatives_differ(rows: int) -> None:
    """Worth 0.5 against 0 or 1 at even odds is an effect of 0, and one draw of the two says 0.5 or -0.5 for sure."""
    luck = np.random.default_rng(0).normal(0, 0.02, (rows, 2))
    found = total_effect_of(np.array([0.5, 1.0]) + luck)
    assert found.value == pytest.approx(-0.5, abs=0.05)
    assert (found.stderr, found.message_variance, found.luck_variance) == (None, None, None)


def test_no_alternative_is_no_effect() -> None:
    with pytest.raises(CreditError, match="at least 1 alternative"):
        total_effect_of([[1.0]])
