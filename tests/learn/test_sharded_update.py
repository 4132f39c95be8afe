"""Updates in two processes are those of one: gradients, steps, figures, weights."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from exact_model import exact_model, plain_logprobs
from msgspec import structs
from sharded_policies import (
    PACKED,
    apart,
    here_computes,
    local_learner,
    pair_of,
    policy_of,
    rows_of_odd_sizes,
)
from tiny_model import tiny_model

from baton.forest.rows import Row
from baton.learn import lora
from baton.learn.loss import LOSSES, Loss
from baton.learn.preference import backward_of_pairs, labelled
from baton.learn.scale.sharded import hand_over
from baton.learn.scale.sharded_ranks import Ranks

KINDS = [name for name, kind in LOSSES.items() if kind.labels != "pairs"]


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    made = Ranks(2, "cpu", patience_seconds=120, threads=1)
    yield made
    made.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_loss(ranks: Ranks, kind: str) -> None:
    model = exact_model()
    here, there = pair_of(model, ranks)
    loss = Loss(kind=kind, entropy=0.03 if kind == "ppo" else 0.0)
    rows = rows_of_odd_sizes(model)
    one, many = local_learner(here, loss), there.learning(loss, PACKED, None)  # type: ignore[misc]
    said, found = one.backward(rows, version="1"), many.backward(rows, version="1")
    assert apart(here, ranks) < 1e-12
    assert found.loss == pytest.approx(said.loss, rel=1e-10)
    assert found.means == pytest.approx(said.means, rel=1e-9)
    assert (found.num_tokens, found.num_row_tokens) == (said.num_tokens, said.num_row_tokens)
    assert many.moved(rows) == pytest.approx(one.moved(rows), rel=1e-9)


@pytest.mark.parametrize("train", ["full", "lora"])
@pytest.mark.parametrize(("exact", "slack"), [(True, 1e-12), (False, 5e-6)])
def test_the_gradient_by_plain_forwards(ranks: Ranks, train: str, exact: bool, slack: float) -> None:
    """PPO's formula over the model's own forward, row by row, none of it Baton's."""
    model = exact_model() if exact else tiny_model()
    here, there = pair_of(model, ranks, train=train)
    rows = rows_of_odd_sizes(model, num=5)
    there.learning(Loss(kind="ppo"), PACKED, None).backward(rows, version="0")  # type: ignore[misc]
    count = sum(len(row.places) for row in rows)
    with here_computes(here):
        for row in rows:
            ratio = torch.exp(plain_logprobs(here.model, row) - torch.from_numpy(row.sampler))
            advantage, weight = torch.from_numpy(row.advantages), torch.from_numpy(row.weights)
            least = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
            (-(weight * least).sum() / count).backward()
    assert apart(here, ranks) < slack


@pytest.mark.parametrize(
    ("train", "dtype", "masters", "slack"),
    [
        ("full", torch.float64, False, 1e-9),
        ("full", torch.float32, False, 1e-3),
        ("lora", torch.float32, False, 1e-3),
        ("full", torch.bfloat16, True, 0.1),
    ],
)
def test_weights_after_several_steps(
    ranks: Ranks, train: str, dtype: torch.dtype, masters: bool, slack: float
) -> None:
    """As after three steps of one process; a reference and a step with another rate on the way."""
    model = exact_model() if dtype == torch.float64 else tiny_model()
    here, there = pair_of(model.to(dtype), ranks, train=train, masters=masters)
    start = here.state_dict()
    loss = Loss(kind="grpo", kl=0.1)
    base = lora.Adapted(here.model, None) if train == "lora" else copy.deepcopy(here.model)
    one = local_learner(here, loss, base)
    many = there.learning(loss, PACKED, there.shards.reference(base=train == "lora"))  # type: ignore[misc, union-attr]
    for step in range(1 if masters else 3):  # in half precision one clipped token more soon leads elsewhere
        rows = rows_of_odd_sizes(model, num=3 + step, seed=step)
        norms = []
        for learner, policy in ((one, here), (many, there)):
            for group in policy.optimizer.param_groups:  # type: ignore[union-attr]
                group["lr"] = 1e-2 / (step + 1)
            learner.drop()
            with here_computes(policy) if learner is one else torch.enable_grad():
                report = learner.backward(rows, version=str(step))
                norms.append((report.loss, learner.advance(0.5)))
            assert learner.sound()
        assert norms[1] == pytest.approx(
            norms[0], rel=0.02 if masters else 1e-3, abs=0.02 if masters else 1e-6
        )
    state, expected = there.state_dict(), here.state_dict()
    assert state.keys() == expected.keys()
    moved = sum(float((tensor - start[name]).abs().sum()) for name, tensor in expected.items())
    off = sum(float((tensor - state[name]).abs().sum()) for name, tensor in expected.items())
    assert off < slack * moved


def test_a_frozen_base_is_left_as_it_is(ranks: Ranks) -> None:
    """Two adapters over one base: the one that is trained moves, and nothing else."""
    model = lora.attach(tiny_model(), ["one", "other"], 2, 4)
    policies = []
    for name in ("one", "other"):
        made = policy_of(tiny_model(), name, train="lora")
        made.model = model
        policies.append(made)
    hand_over(ranks, policies)
    base = ranks.run("num_bytes")
    before = policies[1].state_dict()
    learner = policies[0].learning(Loss(kind="reinforce"), PACKED, None)  # type: ignore[misc]
    learner.backward(rows_of_odd_sizes(tiny_model()), version="0")
    assert learner.advance(1.0) > 0
    assert all(torch.equal(before[key], value) for key, value in policies[1].state_dict().items())
    moved = policies[0].state_dict()
    assert any(not torch.equal(before[key], moved[key]) for key in moved)
    assert len(base) == ranks.world


def test_preferences(ranks: Ranks) -> None:
    """DPO: margins to a reference, then REINFORCE on pairs, in processes as in one."""
    model = exact_model()
    here, there = pair_of(model, ranks)
    rows = rows_of_odd_sizes(model, num=6)
    rng = np.random.default_rng(4)
    paired: list[Row] = []
    for number in range(0, 6, 2):
        for label, row in zip((1.0, -1.0), rows[number : number + 2], strict=True):
            ids = np.concatenate((rows[number].ids[:5], rng.integers(0, 256, 3 + number).astype(np.int32)))
            places = np.arange(5, len(ids), dtype=np.int32)
            flat = {
                "advantages": np.full(len(places), label),
                "sampler": -np.ones(len(places)),
                "weights": np.ones(len(places)),
            }
            paired.append(structs.replace(row, ids=ids, places=places, temperature=1.0, **flat))
    loss = Loss(kind="dpo", beta=0.3)
    paired = labelled(paired, loss.rule)
    reference = copy.deepcopy(here.model)
    with torch.no_grad():
        for each in reference.parameters():
            each.mul_(0.9)
    handle = there.shards.reference(base=False)  # type: ignore[union-attr]
    handle.load_state_dict(reference.state_dict())
    one = local_learner(here, loss, reference)
    many = there.learning(loss, PACKED, handle)  # type: ignore[misc]
    said = backward_of_pairs(one.gradients, paired)
    found = backward_of_pairs(many.gradients, paired)  # type: ignore[attr-defined]
    assert apart(here, ranks) < 1e-12
    assert (found.loss, found.means["preferred"]) == pytest.approx((said.loss, said.means["preferred"]))
    kept = handle.state_dict()
    assert all(torch.equal(kept[key], value) for key, value in reference.state_dict().items())


def test_weights_come_and_go_whole(ranks: Ranks) -> None:
    model = tiny_model(seed=3)
    _, there = pair_of(tiny_model(), ranks)
    there.load_state_dict(model.state_dict(), 4)
    state = there.state_dict()
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert all(
        torch.equal(value, there.sampler.state_dict()[key]) for key, value in model.state_dict().items()
    )
    there.version = 5
    there.publish()
    assert there.engine.version == "5"  # type: ignore[attr-defined]


class Serving:
    """Stands for an engine on a server: what a push is compared with is asked of the model that it was made with."""

    name, version = "main", ""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.pushed: list[tuple[Any, ...]] = []

    def expect(self) -> torch.Tensor:
        with torch.no_grad():
            return self.model(input_ids=torch.tensor([[3, 1, 4]])).logits.clone()  # type: ignore[no-any-return]

    def publish(self, *given: Any) -> None:
        self.version = given[0]
        self.pushed.append(given)


@pytest.mark.parametrize("train", ["full", "lora"])
def test_what_is_pushed_to_a_server_comes_from_the_shards(ranks: Ranks, train: str) -> None:
    model = tiny_model()
    here, there = policy_of(model, train=train), policy_of(model, train=train)
    asked = lora.Adapted(there.model, "main") if train == "lora" else there.model
    there.engine, there.apart = Serving(asked), True  # type: ignore[assignment]
    hand_over(ranks, [there])
    rows = rows_of_odd_sizes(model)
    learner = there.learning(Loss(), PACKED, None)  # type: ignore[misc]
    learner.backward(rows, version="0")
    learner.advance(1.0)
    there.version = 1
    there.publish()
    version, weights, expected = there.engine.pushed[0]  # type: ignore[attr-defined]
    assert version == "1"
    state = there.state_dict()
    assert all(torch.equal(state[key], value) for key, value in weights.items())
    here.load_state_dict(state, 1)
    with torch.no_grad(), here_computes(here):
        said = here.model(input_ids=torch.tensor([[3, 1, 4]])).logits
    torch.testing.assert_close(expected, said)
