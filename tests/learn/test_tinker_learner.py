"""A step through the Tinker protocol is the step that this process would take; the service is a mock, named so."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from tinker_mock import ALPHA, MockService

from baton.errors import TraceError
from baton.forest.rows import Row
from baton.learn import lora
from baton.learn.loss import Loss
from baton.learn.models.tiny import Tiny, make_tiny
from baton.learn.optimiser import AdamW
from baton.learn.scale.tinker_client import TinkerClient
from baton.learn.scale.tinker_learner import Sums, TinkerLearner, measured_sums, native_loss
from baton.learn.update import Gradients, LocalLearner, Packed
from baton.team.protocol import EngineError

RANK = 4


@pytest.fixture(scope="module")
def base() -> Any:
    return make_tiny(["naïve café", "stop 42"], Tiny(width=16, layers=1, heads=2), seed=3)[0]


def rows_of_three_calls(base: Any, *, versions: tuple[str, ...] = ("7", "7", "6")) -> list[Row]:
    """Unequal rows with gaps between trained tokens, odd weights, and a sampler that is a little off."""
    random = np.random.default_rng(5)
    rows = []
    for number, (size, places) in enumerate(((9, (3, 4, 8)), (5, (2,)), (12, (1, 5, 6, 7, 11)))):
        ids = random.integers(2, base.config.vocab_size, size).astype(np.int32)
        with torch.no_grad():
            logits = base(input_ids=torch.tensor(ids[None].astype(np.int64))).logits[0]
        exact = logits.log_softmax(-1)[torch.tensor(places) - 1, torch.tensor(ids[list(places)]).long()]
        rows.append(
            Row(
                ids=ids,
                places=np.array(places, np.int32),
                advantages=random.normal(size=len(places)),
                sampler=exact.double().numpy() + random.normal(scale=0.15, size=len(places)),
                weights=random.uniform(0.5, 2.0, len(places)),
                version=versions[number],
                group=f"g{number % 2}",
                trace=f"t{number}",
                agent=("léad", "worker 1")[number % 2],
                call=f"c{number}",
                sample=f"s{number}",
            )
        )
    return rows


def local(base: Any, loss: Loss) -> tuple[LocalLearner, Any]:
    model = copy.deepcopy(base)
    lora.attach(model, ["a"], RANK, ALPHA, seed=11)
    parameters = lora.parameters_of(model, "a")
    gradients = Gradients(model, loss, Packed(check=False))
    return LocalLearner(gradients, parameters, AdamW(parameters, lr=0.01)), model


LOSSES = [
    Loss(kind="ppo"),
    Loss(kind="dapo", low=0.05),
    Loss(kind="grpo"),
    Loss(kind="dr_grpo", length=33),
    Loss(kind="cispo", high=0.1, scale=("agent", "turn")),
    Loss(kind="reinforce", correction="off"),
    Loss(kind="reinforce"),
    Loss(kind="reinforce", correction="mask", correction_low=0.95, correction_high=1.05),
    Loss(kind="masked", low=-0.1, high=0.1),
    Loss(kind="gspo", low=0.05, high=0.05),
    Loss(kind="action", scale=("trace", "agent"), added=("agent",)),
    Loss(kind="ppo", against_now=True),
]


BOTH = [(loss, True) for loss in LOSSES] + [(loss, False) for loss in LOSSES[:1] + LOSSES[6:7]]


@pytest.mark.parametrize(
    ("loss", "means"), BOTH, ids=[f"{e.kind}-{e.correction}-{e.against_now}-{m}" for e, m in BOTH]
)
def test_two_steps_are_those_of_this_process(base: Any, loss: Loss, means: bool) -> None:
    rows = rows_of_three_calls(base)
    mine, model = local(base, loss)
    with MockService(base, "b", means=means) as service:
        client = TinkerClient(service.at)
        theirs = TinkerLearner(
            client.create_model("b", RANK, 11), loss, Packed(), Sums(mean_of_rows=means, mean_of_tokens=means)
        )
        theirs.rate = 0.01
        for version in ("7", "7+1"):
            told = []
            for learner in (mine, theirs):
                learner.drop()
                with lora.use(model, "a"):
                    report = learner.backward(rows, version=version)
                told.append((report, learner.advance(0.05)))
            (here, norm), (there, other) = told
            assert there.loss == pytest.approx(here.loss, abs=1e-5)
            assert other == pytest.approx(norm, rel=1e-4)
            assert there.means == pytest.approx(here.means, abs=1e-5)
            for name, weights in lora.adapter_state_dict(model, "a").items():
                torch.testing.assert_close(service.weights()[name], weights, atol=2e-5, rtol=1e-4)
        with lora.use(model, "a"):
            assert theirs.moved(rows) == pytest.approx(mine.moved(rows), rel=1e-4, abs=1e-6)
        client.close()


def test_the_gradient_is_the_formula_s(base: Any) -> None:
    """PPO at ratios within the bounds, by hand: the norm of -(1/T) sum w A rho grad log pi."""
    rows = rows_of_three_calls(base)
    model = copy.deepcopy(base)
    lora.attach(model, ["a"], RANK, ALPHA, seed=11)
    total = 0.0
    for row in rows:
        with lora.use(model, "a"):
            logits = model(input_ids=torch.tensor(row.ids[None].astype(np.int64)), use_cache=False).logits[0]
        new = logits.log_softmax(-1)[
            torch.tensor(row.places - 1).long(), torch.tensor(row.ids[row.places]).long()
        ]
        ratio = torch.exp(new - torch.tensor(row.sampler))
        total = total - (torch.tensor(row.weights * row.advantages) * ratio).sum()
    (total / 9).backward()  # type: ignore[attr-defined]  # nine trained tokens
    norm = math.sqrt(
        sum(float((p.grad**2).sum()) for p in lora.parameters_of(model, "a") if p.grad is not None)
    )
    with MockService(base, "b", means=True) as service:
        client = TinkerClient(service.at)
        learner = TinkerLearner(
            client.create_model("b", RANK, 11), Loss(kind="ppo", low=0.9, high=9.0), Packed(),
            measured_sums(client, "b", RANK),
        )  # fmt: skip
        learner.backward(rows, version="7")
        assert learner.advance(1e9) == pytest.approx(norm, rel=1e-4)
        client.close()


@pytest.mark.parametrize("means", [False, True])
def test_how_a_service_adds_up_is_found_out(base: Any, means: bool) -> None:
    with MockService(base, "b", means=means) as service:
        client = TinkerClient(service.at)
        assert measured_sums(client, "b", RANK) == Sums(mean_of_rows=means, mean_of_tokens=means)
        assert not service.models  # the one it was measured with is gone
        client.close()


def test_a_service_without_norms_is_taken_by_its_word(base: Any) -> None:
    with MockService(base, "b", tells_norm=False) as service:
        client = TinkerClient(service.at)
        assert measured_sums(client, "b", RANK) == Sums()
        learner = TinkerLearner(client.create_model("b", RANK, 0), Loss(), Packed(), Sums())
        learner.backward(rows_of_three_calls(base), version="7")
        assert learner.advance(1.0) is None  # not measured, which is not zero
        client.close()


def test_a_sampler_of_other_weights_is_noticed(base: Any) -> None:
    rows = rows_of_three_calls(base, versions=("7", "7", "7"))
    for row in rows:
        row.sampler[:] -= 0.9
    with MockService(base, "b") as service:
        client = TinkerClient(service.at)
        learner = TinkerLearner(client.create_model("b", RANK, 0), Loss(), Packed(), Sums())
        with pytest.raises(EngineError, match="nats apart"):
            learner.backward(rows, version="7")
        assert "optim_step" not in service.asked
        with pytest.raises(EngineError, match="--resume"):
            learner.drop()  # the protocol cannot take gradients back
        client.close()


def test_what_was_drawn_at_another_temperature_is_refused(base: Any) -> None:
    import msgspec

    rows = [msgspec.structs.replace(row, temperature=0.7) for row in rows_of_three_calls(base)]
    with MockService(base, "b") as service:
        client = TinkerClient(service.at)
        learner = TinkerLearner(client.create_model("b", RANK, 0), Loss(), Packed(), Sums())
        with pytest.raises(TraceError, match="temperature 1"):
            learner.backward(rows, version="7")
        client.close()


def test_which_losses_the_protocol_has() -> None:
    assert native_loss(Loss(kind="dapo")) == ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28})
    assert native_loss(Loss(kind="cispo")) == (
        "cispo",
        {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0},
    )
    for kind in ("gspo", "action", "masked", "reinforce", "sft"):
        assert native_loss(Loss(kind=kind)) is None
