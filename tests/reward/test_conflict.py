"""PCGrad against its formula for two gradients, and what must hold of any; the shipped recipe that balances itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from reward_traces import Clock, recorded

from baton.errors import UsageError
from baton.reward import load_reward_recipe
from baton.reward.conflict import without_conflict
from baton.reward.hybrid import Hybrid
from baton.trace.recorded_agent import RecordedAgent
from baton.trace.recorder import Recorder

FEW = st.floats(-3, 3, allow_subnormal=False)


def test_two_that_pull_apart_lose_what_they_would_undo() -> None:
    one, two = np.array([1.0, 0.0, 2.0]), np.array([-1.0, 3.0, 0.0])
    found = without_conflict([one, two], np.random.default_rng(0))
    dot = -1.0
    expected = [
        (a - dot / 10 * b) + (b - dot / 5 * a) for a, b in zip(one.tolist(), two.tolist(), strict=True)
    ]  # |two|^2 = 10, |one|^2 = 5
    assert found.tolist() == pytest.approx(expected)


@given(arrays(float, 4, elements=FEW), arrays(float, 4, elements=FEW))
def test_of_two_the_sum_goes_against_neither(one: np.ndarray, two: np.ndarray) -> None:
    found = without_conflict([one, two], np.random.default_rng(1))
    for each in (one, two):
        assert float(found @ each) >= -1e-9
    if float(one @ two) >= 0:
        assert found.tolist() == pytest.approx((one + two).tolist())


def test_what_cannot_be_projected_is_refused() -> None:
    with pytest.raises(UsageError, match="one shape"):
        without_conflict([np.zeros(2), np.zeros(3)], np.random.default_rng(0))
    with pytest.raises(UsageError, match="no gradient"):
        without_conflict([], np.random.default_rng(0))


def spread(values: list[float]) -> float:
    middle = sum(values) / len(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / (len(values) - 1))


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_the_shipped_recipe_pulls_as_its_weights_say_whatever_the_unit(unit: float) -> None:
    """|w_k| std_k is in the proportion 1 : 0.1 : 0.1, by hand, from what each trace got of each term."""

    (rule,) = load_reward_recipe("balanced").rules
    assert isinstance(rule, Hybrid)
    totals = []
    for k, (won, workers, tokens) in enumerate(
        [(1.0, 2, 50), (0.0, 0, 10), (1.0, 3, 90), (1.0, 8, 400), (0.0, 5, 77)]
    ):

        def team(
            _: Recorder, lead: RecordedAgent, clock: Clock, *, workers: int = workers, tokens: int = tokens
        ) -> None:
            lead.call(completion_ids=list(range(tokens)), duration_s=1.0)
            crew = [lead.spawn(f"w{n}", role="worker", task="x") for n in range(workers)]
            clock.seconds += 1
            for worker in crew:
                worker.returns("y")
            lead.stop("z")

        trace = recorded(team, outcome=won, trace_id=f"t{k}")
        found = rule.totals(trace)
        totals.append({**found, "cost": unit * found["cost"]})
    rule = rule.observe(totals)
    weights = rule.weights()
    pull = {name: abs(weights[name]) * spread([each[name] for each in totals]) for name in weights}
    assert pull["parallel"] / pull["success"] == pytest.approx(0.1)
    assert pull["cost"] / pull["success"] == pytest.approx(0.1)
