"""Regime C as shipped (policies apart, one central critic), and A then B in one run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_recipes import small

from baton.compose.training import make_trainer
from baton.learn.critics.network import NetworkCritic
from baton.learn.recipe import load

pytestmark = pytest.mark.usefixtures("first_weights")


def test_policies_apart_and_a_critic_that_sees_everything() -> None:
    trainer = make_trainer(small("decoupled"))
    policies = trainer.policies
    assert {name: policy.roles for name, policy in policies.items()} == {
        "orchestrator": ("orchestrator",),
        "workers": ("worker",),
    }
    weights = [{id(value) for value in policy.parameters()} for policy in policies.values()]
    assert weights[0].isdisjoint(weights[1])
    critic = trainer.critic
    assert isinstance(critic, NetworkCritic)
    assert critic.part.view == "central"
    assert not {id(value) for value in critic.net.parameters()} & (weights[0] | weights[1])
    trained: dict[str, set[str]] = {}
    for name, gradients in trainer.gradients.items():
        backward = gradients.backward

        def watched(rows: Any, name: str = name, backward: Any = backward, **more: Any) -> Any:
            trained.setdefault(name, set()).update(row.agent.rstrip("0123456789") for row in rows)
            return backward(rows, **more)

        gradients.backward = watched  # type: ignore[method-assign]
    made = trainer.step()
    assert trained == {"orchestrator": {"orchestrator"}, "workers": {"worker"}}
    # One critic for all: it reads what everybody said, so a worker's value changes with another's words.
    trace = max(made.traces, key=lambda each: len(each.calls))
    [page] = critic.reader.pages(trace)[:1]
    read = critic.reader.tokenizer.decode(page.ids)
    assert {call.agent for call in trace.calls if call.agent in read} == {call.agent for call in trace.calls}


def test_frozen_then_joint_in_one_run() -> None:
    recipe = small("parl-staged")
    trainer = make_trainer(recipe)

    def now() -> dict[str, torch.Tensor]:
        return {
            name: torch.cat([value.detach().flatten().clone() for value in policy.parameters()])
            for name, policy in trainer.policies.items()
        }

    before = now()
    first = trainer.step().metrics
    middle = now()
    assert first["phase"] == "orchestrator"
    assert first["weights"]
    assert torch.equal(before["workers"], middle["workers"])
    assert trainer.recipe.credit[0].estimator == "critical-steps"
    moved = False
    for _ in range(4):
        last = trainer.step().metrics
        moved |= not torch.equal(middle["workers"], now()["workers"])
    assert last["phase"] == "joint"
    assert last["weights"] == {}
    assert moved


def test_the_stages_of_the_shipped_recipe() -> None:
    recipe = load("parl-staged")
    assert [phase.name for phase in recipe.phases] == ["orchestrator", "joint"]
    assert recipe.policies["workers"].train == "full"
    assert load("parl").policies["workers"].train == "frozen"


def test_a_tree_is_the_same_whoever_is_played_beside_it() -> None:
    """Groups branch while others still play; what is drawn depends on the step alone."""
    first, second = (make_trainer(small("marsrl")).rollouts.take(1) for _ in range(2))
    assert [group.traces for group in first] == [group.traces for group in second]
    for group in first:
        grown = [trace.trace_id for trace in group.traces]
        assert len(set(grown)) == len(grown) > 2
        solved = {str(trace.calls[0].completion_ids) for trace in group.traces}
        assert len(solved) <= 2  # two answers; what was drawn again comes after them
