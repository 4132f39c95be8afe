"""PCGrad inside a training step, against PCGrad written out in plain PyTorch over plain forwards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from exact_model import exact_model
from paper_batch import Rollout, Turn, clipped, logprobs, make_batch, old, trace_of
from small_run import GROUP, TINY, small, team
from torch import Tensor

from baton.compose.training import check_trainable, make_trainer
from baton.errors import UsageError
from baton.forest.rows import Row, rows_of
from baton.learn.conflict import Objectives, backward_apart
from baton.learn.loss import Loss
from baton.learn.update import Gradients, Packed
from baton.trace import Floats

ROLES = {"lead": "chief-of-staff", "w1": "reader 1", "w2": "checker", "w3": "checker"}
WORTH = {"chief-of-staff": 1.0, "reader 1": -0.7, "checker": 0.4}


def batch() -> list[Rollout]:
    """Seven rollouts of unequal length, three roles."""
    found = [rollout for group in make_batch((3, 4), seed=5) for rollout in group]
    for rollout in found:
        for turn in rollout.turns:
            turn.role = ROLES[turn.agent]
    return found


def advantage(rollout: Rollout, turn: Turn) -> float:
    return rollout.total * WORTH[turn.role]


def rows_by(rollouts: list[Rollout], worth: dict[tuple[str, str], float]) -> list[Row]:
    found: list[Row] = []
    for rollout in rollouts:
        values = {t.call: Floats([worth[rollout.name, t.call]] * len(t.said)) for t in rollout.turns}
        found += rows_of(trace_of(rollout), values, group=rollout.group)
    return found


def pcgrad(gradients: list[Tensor], orders: list[list[int]]) -> Tensor:
    """Algorithm 1 of arXiv 2001.06782, with the orders given."""
    surgery = []
    for i, mine in enumerate(gradients):
        g = mine.clone()
        for j in orders[i]:
            if j != i and torch.dot(g, gradients[j]) < 0:
                g = g - torch.dot(g, gradients[j]) / gradients[j].norm() ** 2 * gradients[j]
        surgery.append(g)
    return torch.stack(surgery).sum(0)


def grpo(
    model: object, rollouts: list[Rollout], worth: dict[tuple[str, str], float], role: str | None
) -> Tensor:
    """-(1/N) sum over rollouts of (1/tokens) sum over tokens (of one role) of the clipped ratio."""
    each = []
    for rollout in rollouts:
        terms = [
            clipped(torch.exp(logprobs(model, turn) - old(turn)), worth[rollout.name, turn.call]).sum()
            for turn in rollout.turns
            if role is None or turn.role == role
        ]
        each.append(sum(terms) / rollout.num_tokens if terms else torch.zeros(()))
    return -sum(each) / len(each)


def flat(model: object, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(model.parameters()))  # type: ignore[attr-defined]
    return torch.cat([g.reshape(-1) for g in found])


def stepped(objectives: Objectives, rows: list[Row], seed: int) -> tuple[Tensor, float, float | None]:
    model = exact_model(seed=1)
    gradients = Gradients(model, Loss(kind="grpo"), Packed(check=False))
    parameters = list(model.parameters())
    report, conflict = backward_apart(
        gradients, rows, objectives, parameters, np.random.default_rng(seed), version="0"
    )
    assert report.num_tokens == sum(len(row.places) for row in rows)
    return torch.cat([p.grad.reshape(-1) for p in parameters]), report.loss, conflict.kept


def orders_of(count: int, seed: int) -> list[list[int]]:
    draw = np.random.default_rng(seed)
    return [draw.permutation(count).tolist() for _ in range(count)]


@pytest.mark.parametrize("seed", [0, 3])
def test_between_three_roles(seed: int) -> None:
    rollouts = batch()
    worth = {(r.name, t.call): advantage(r, t) for r in rollouts for t in r.turns}
    rows = rows_by(rollouts, worth)
    got, loss, kept = stepped(Objectives.of_roles(map(trace_of, rollouts)), rows, seed)
    model = exact_model(seed=1)
    names = list(dict.fromkeys(t.role for r in rollouts for t in r.turns))
    losses = [grpo(model, rollouts, worth, role) for role in names]
    alone = [flat(model, each) for each in losses]
    wanted = pcgrad(alone, orders_of(len(names), seed))
    assert torch.allclose(got, wanted, rtol=1e-6, atol=1e-9)
    assert loss == pytest.approx(float(sum(losses).detach()), rel=1e-6)
    whole = torch.stack(alone).sum(0)
    assert torch.allclose(whole, flat(model, grpo(model, rollouts, worth, None)), rtol=1e-6, atol=1e-9)
    assert not torch.allclose(got, whole, rtol=1e-3), "these roles pull apart"
    assert kept == pytest.approx(float(got.norm() / whole.norm()), rel=1e-5)


def test_between_four_terms_of_a_reward() -> None:
    """Terms of unlike weights and signs, of which one says nothing."""
    rollouts = batch()
    draw = np.random.default_rng(7)
    weights = {"success": 1.0, "cost per token": -0.3, "parallel": 0.05, "silent": 2.0}
    alone = {
        term: {
            (r.name, t.call): float(draw.normal()) if term != "silent" else 0.0
            for r in rollouts
            for t in r.turns
        }
        for term in weights
    }
    objectives = Objectives.of_terms({term: rows_by(rollouts, mine) for term, mine in alone.items()}, weights)
    whole = {key: sum(weights[term] * alone[term][key] for term in weights) for key in alone["success"]}
    got, _, _ = stepped(objectives, rows_by(rollouts, whole), 11)
    model = exact_model(seed=1)
    each = [
        flat(
            model,
            grpo(model, rollouts, {key: weights[term] * value for key, value in alone[term].items()}, None),
        )
        for term in weights
    ]
    wanted = pcgrad([g + 0.0 for g in each], orders_of(len(weights), 11))
    assert torch.allclose(got, wanted, rtol=1e-6, atol=1e-9)


def test_objectives_that_agree_are_added_up() -> None:
    rollouts = batch()
    worth = {(r.name, t.call): advantage(r, t) for r in rollouts for t in r.turns}
    rows = rows_by(rollouts, worth)
    terms = Objectives.of_terms({"a": rows, "b": rows}, {"a": 0.25, "b": 0.75})
    got, _, kept = stepped(terms, rows, 2)
    model = exact_model(seed=1)
    assert torch.allclose(got, flat(model, grpo(model, rollouts, worth, None)), rtol=1e-6, atol=1e-9)
    assert kept == pytest.approx(1.0)


REWARD = """
[[reward.rules]]
rule = "hybrid"
[[reward.rules.terms]]
of = {rule = "success"}
[[reward.rules.terms]]
of = {rule = "cost", per_token = 0.2}
weight = -1.0
"""


@pytest.mark.usefixtures("first_weights")
def test_a_run_tells_how_far_its_objectives_pull_apart() -> None:
    first = make_trainer(small(REWARD + GROUP, train__conflict="rewards"))
    again = make_trainer(small(REWARD + GROUP, train__conflict="rewards"))
    for _ in range(2):
        metrics = first.step().metrics
        assert metrics["conflict"]["apart"] is not None
        assert metrics["conflict"]["kept"] > 0
        assert metrics["conflict"] == again.step().metrics["conflict"], "a seed is a run"
    assert "conflict" not in make_trainer(small(REWARD + GROUP)).step().metrics


@pytest.mark.parametrize(
    ("more", "changes", "said"),
    [
        (GROUP, {"train__conflict": "rewards"}, "there is one: the task's own score"),
        (GROUP, {"train__conflict": "roles"}, "answers for one role"),
        (REWARD + GROUP, {"train__conflict": "rewards", "loss__kl": 0.1}, "loss.kl would count in each"),
        (REWARD + GROUP, {"train__conflict": "rewards", "rollout__replay": 1}, "rollout.replay"),
        (
            REWARD.replace("weight = -1.0", "gate = true") + GROUP,
            {"train__conflict": "rewards"},
            "gate = true acts on all",
        ),
        (
            REWARD + '[[credit]]\nestimator = "spawn-fork"\n',
            {"train__conflict": "rewards", "task__name": "game:parallel-pandora", "task__settings": {}},
            "such as group",
        ),
    ],
)
def test_what_has_nothing_to_project_is_refused(more: str, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_trainable(small(more, **changes))


def test_roles_of_one_policy_can_be_told_apart() -> None:
    check_trainable(team(f"[policies.main]\n{TINY}", train__conflict="roles"))
    with pytest.raises(UsageError, match="answers for one role"):
        check_trainable(
            team(
                f'[policies.a]\nroles = ["orchestrator"]\n{TINY}[policies.b]\nroles = ["worker"]\n{TINY}',
                train__conflict="roles",
            )
        )
