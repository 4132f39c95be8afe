"""Counterfactual stop credit trains the stop policy: regret falls, what is forced is open, caps are not trained."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_run import small

from baton.compose.training import make_trainer
from baton.games.game_trace import regret_of_trace
from baton.games.solve import solve
from baton.learn.trainer import Step
from baton.trace.trace import Trace

pytestmark = pytest.mark.usefixtures("first_weights")
STOP_VALUE = '[[credit]]\nestimator = "stop-value"\ngroup_by = "task"\n'


def trained(num_steps: int, **changes: Any) -> list[Step]:
    sizes = {"rollout__groups": 48, "rollout__group_size": 1, "train__steps": num_steps, "train__batches": 2}
    trainer = make_trainer(small(STOP_VALUE, **(sizes | changes)))
    return [trainer.step() for _ in range(num_steps)]


def test_regret_of_stops_falls() -> None:
    """Without what invalid answers are charged: stop credit says nothing of them, and so short a run has many."""
    steps = trained(8)
    solutions: dict[Any, Any] = {}

    def lost(trace: Trace) -> float:
        ledger = regret_of_trace(trace, lambda game: solutions.setdefault(game, solve(game)))
        return ledger.regret - ledger.charge

    regrets = [np.mean(list(map(lost, step.traces))) for step in steps]
    assert np.mean(regrets[-3:]) < 0.5 * regrets[0]
    assert all(step.metrics["credit"]["stop"]["num"] > 48 for step in steps)
    assert all(step.metrics["fork_tokens"] > 0 for step in steps)
    assert all(0 <= step.metrics["credit_grounds"]["zero"] < 1 for step in steps)


@pytest.mark.parametrize("game", ["sequential-test", "batch-search", "parallel-pandora"])
def test_stops_of_other_games_are_found_and_carried_out(game: str) -> None:
    """Several ways to stop, a stop that is a wait, and stops among other decisions."""
    changes = {"task__name": f"game:{game}", "task__settings": {}, "rollout__groups": 16}
    if game == "sequential-test":
        changes["task__settings"] = {"max_tests": 6}
    (step,) = trained(1, team__max_tokens=24, **changes)
    assert any(credit.estimator == "stop-value" for trace in step.traces for credit in trace.credits)


def test_a_stop_by_a_cap_is_not_trained() -> None:
    (step,) = trained(1, team__limits={"calls": 2})
    capped = [{event.id for event in trace.events if event.status == "forced"} for trace in step.traces]
    assert any(capped)
    for trace, forced in zip(step.traces, capped, strict=True):
        assert not forced & {credit.target for credit in trace.credits}


def test_rollouts_and_their_branches_are_run_on_apart() -> None:
    (step,) = trained(1, rollout__groups=8, rollout__group_size=2, rollout__fan_out=[2])
    names = {trace.trace_id for trace in step.traces}
    assert {name.removesuffix(".1-1") for name in names if name.endswith(".1-1")} < names
    credited = {trace.trace_id for trace in step.traces if trace.credits}
    assert any(name.endswith(".1-1") for name in credited)
