"""Values of agents and what the state has to do with their mixing; its formula is in methods/test_marks_teams.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs
from test_recipes_parts import play, stage_of

from baton.credit.estimators.mixing import check_monotone, slopes
from baton.learn.critics.agents import AgentsCritic, Mixer
from baton.learn.recipe import load
from baton.learn.scoring import outcome_of
from baton.trace.trace import Trace


def told(traces: list[Trace], values: list[float]) -> list[Trace]:
    return [
        structs.replace(trace, rewards=tuple(structs.replace(r, value=value) for r in trace.rewards))
        for trace, value in zip(traces, values, strict=True)
    ]


def test_slopes_depend_on_the_state() -> None:
    """One agent's value counts for nothing in one state and for a lot in another: no fixed mixing can say so."""
    torch.manual_seed(1)
    mixer = Mixer(2, 1)
    optimizer = torch.optim.Adam(mixer.parameters(), lr=0.02)
    q = torch.rand(256, 2) * 2 - 1
    state = torch.tensor([[1.0], [-1.0]]).repeat(128, 1)
    want = torch.where(state[:, 0] > 0, q[:, 0], q[:, 1])
    for _ in range(300):
        optimizer.zero_grad()
        ((mixer(q, state) - want) ** 2).mean().backward()
        optimizer.step()
    exact = mixer.double()
    found = {}
    for s in (1.0, -1.0):

        def mix(values: Any, s: float = s) -> float:
            with torch.no_grad():
                return float(exact(torch.tensor([values]).double(), torch.tensor([[s]]).double()))

        found[s] = slopes(mix, [0.3, 0.1])
        check_monotone(found[s], ["a", "b"])
    assert found[1.0][0] > 0.6 > 0.4 > found[1.0][1]
    assert found[-1.0][1] > 0.6 > 0.4 > found[-1.0][0]


@pytest.mark.parametrize("mixing", [False, True])
def test_fitted_by_its_own_mixing(mixing: bool) -> None:
    stage = stage_of("qmix")
    traces = told(play(stage, 6), [0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    critic = AgentsCritic(stage.roles, steps=60, learning_rate=0.01, reward=outcome_of, mixing=mixing)
    critic.observe(traces)
    names = ("hub", "peer1", "peer2")
    values = [critic.q(traces[0], agent) for agent in names]
    total = critic.mix(traces[0])(values)
    assert total == pytest.approx(0.5, abs=0.1)  # all did the same, and half of them earned 1
    if not mixing:
        assert total == pytest.approx(sum(values))
        assert slopes(critic.mix(traces[0]), values) == pytest.approx([1.0, 1.0, 1.0])
    again = AgentsCritic(stage.roles, steps=1, learning_rate=0.01, reward=outcome_of, mixing=mixing, seed=5)
    again.load_state_dict(critic.state_dict())
    assert [again.q(traces[1], agent) for agent in names] == [critic.q(traces[1], agent) for agent in names]
    critic.observe(traces[:1])
    again.steps = 60
    again.observe(traces[:1])
    assert again.q(traces[0], "peer1") == critic.q(traces[0], "peer1")


def test_the_order_of_turns_counts() -> None:
    """A recurrent network reads turns in order; sums over them would not tell these apart."""
    critic = AgentsCritic(["worker"], steps=1, learning_rate=0.1, reward=outcome_of)
    one, two = [1.0, 1, 0, 0, 0, 0, 0.2], [1.0, 0, 1, 0, 0, 0, 0.1]
    found = [
        float(critic.net.values(torch.tensor([0]), [torch.tensor(each)]).detach())
        for each in ([one, two], [two, one])
    ]
    assert abs(found[0] - found[1]) > 1e-5


def test_which_mixing_a_recipe_gets() -> None:
    for name, mixing in (("vdn", False), ("qmix", True), ("agent-q-mix", True)):
        policies = {"main": SimpleNamespace(roles=("peer", "hub"))}
        critic = AgentsCritic.from_recipe(load(name), policies, outcome_of)
        assert (critic.net.mixer is not None) == mixing


def test_a_checkpoint_of_before_is_fitted_anew() -> None:
    critic = AgentsCritic(["worker"], steps=1, learning_rate=0.1, reward=outcome_of)
    critic.load_state_dict({"weights": {"w": [[0.0] * 7]}, "seen": []})
    assert critic.state_dict()["kept"] == []
