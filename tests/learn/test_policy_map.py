"""The policies map: shared, one adapter per role, frozen, remote. Regimes A, B and C are settings of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_run import GROUP, TINY, team

from baton.compose.training import make_trainer
from baton.engine.torch import TorchEngine
from baton.errors import UsageError
from baton.learn import lora
from baton.learn.models.tiny import make_tiny
from baton.learn.policy import make_policies
from baton.learn.trainer import Trainer

pytestmark = pytest.mark.usefixtures("first_weights")
CRITIC = (
    '[[credit]]\nestimator = "gae"\nsettings = {gamma = 1.0}\n'
    '[critic]\nkind = "network"\nsteps = 2\nlearning_rate = 0.003\n'
)
A = f'[policies.lead]\n{TINY}roles = ["orchestrator"]\n[policies.hands]\n{TINY}roles = ["worker"]\ntrain = "frozen"\n'
B = f"[policies.main]\n{TINY}"
B_LORA = (
    f'[policies.lead]\n{TINY}roles = ["orchestrator"]\ntrain = "lora"\nrank = 4\n'
    f'[policies.hands]\n{TINY}roles = ["worker"]\ntrain = "lora"\nrank = 4\n'
)
C = f'[policies.lead]\n{TINY}roles = ["orchestrator"]\n[policies.hands]\n{TINY}roles = ["worker"]\n'
REMOTE = (
    f'[policies.lead]\n{TINY}roles = ["orchestrator"]\n'
    '[policies.hands]\nmodel = "scripted:echo"\nroles = ["worker"]\ntrain = "frozen"\n'
)


def weights(trainer: Trainer) -> dict[str, dict[str, torch.Tensor]]:
    return {
        name: {key: value.clone() for key, value in policy.model.state_dict().items()}
        for name, policy in trainer.policies.items()
        if policy.model is not None
    }


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> bool:
    return any(not torch.equal(before[key], after[key]) for key in before)


def two_steps(policies: str, more: str = CRITIC, **changes: Any) -> tuple[Trainer, dict[str, bool]]:
    """The trainer afterwards, and which policies' weights changed."""
    trainer = make_trainer(team(policies, more, **changes))
    before = weights(trainer)
    calls = [call for _ in range(2) for trace in trainer.step().traces for call in trace.calls]
    roles = {role: name for name, policy in trainer.policies.items() for role in policy.roles}
    for call in calls:
        assert call.policy == trainer.policies[roles[call.role or ""]].engine.name
    after = weights(trainer)
    return trainer, {name: moved(before[name], after[name]) for name in before}


def test_regime_a_trains_the_orchestrator_and_leaves_frozen_weights_alone() -> None:
    trainer, changed = two_steps(A)
    assert changed == {"lead": True, "hands": False}
    assert [policy.version for policy in trainer.policies.values()] == [2, 0]
    assert trainer.policies["hands"].optimizer is None


def test_regime_b_one_shared_policy() -> None:
    trainer, changed = two_steps(B)
    assert changed == {"main": True}
    assert trainer.policies["main"].roles == ("orchestrator", "worker")


def test_regime_b_an_adapter_for_each_role_over_one_base() -> None:
    trainer = make_trainer(team(B_LORA, CRITIC, warm__steps=60))
    lead, hands = trainer.policies["lead"], trainer.policies["hands"]
    assert lead.model is hands.model
    before = weights(trainer)["lead"]
    for _ in range(2):
        trainer.step()
    changed = {key for key, value in lead.model.state_dict().items() if not torch.equal(value, before[key])}
    assert {key for key in changed if "lora_" not in key} == set(), "the base never learns"
    assert any(key.endswith(".lead.weight") for key in changed)
    assert any(key.endswith(".hands.weight") for key in changed)


def test_regime_c_decoupled_policies_with_a_central_critic() -> None:
    trainer, changed = two_steps(C)
    assert changed == {"lead": True, "hands": True}
    assert trainer.policies["lead"].model is not trainer.policies["hands"].model


def test_freezing_by_turns() -> None:
    trainer = make_trainer(team(C, CRITIC, train__freeze_by_turns=1))
    trainer.step()
    assert [policy.version for policy in trainer.policies.values()] == [1, 0]
    trainer.step()
    assert [policy.version for policy in trainer.policies.values()] == [1, 1]


def test_a_remote_policy_answers_and_is_not_trained() -> None:
    trainer, changed = two_steps(REMOTE, GROUP.replace("\n", '\ngroup_by = "task"\n', 1))
    assert set(changed) == {"lead"}
    assert trainer.policies["hands"].model is None
    assert trainer.policies["hands"].sampler is None


def test_chances_of_options_are_those_of_the_adapter() -> None:
    """A sampler with an adapter is asked through it, not through its base."""
    trainer = make_trainer(team(B_LORA, warm__steps=60))
    policy = trainer.policies["lead"]
    assert isinstance(policy.sampler, lora.Adapted)
    assert policy.sampler.adapter == "lead"


@pytest.mark.parametrize(
    ("policies", "says"),
    [
        (
            A.replace('roles = ["orchestrator"]', 'roles = ["orchestrator"]\ntrain = "frozen"'),
            "nothing can learn",
        ),
        (REMOTE.replace('\ntrain = "frozen"', ""), "weights are elsewhere"),
        (C.replace('roles = ["worker"]', 'roles = ["orchestrator"]'), "given to both"),
        (C.replace('roles = ["worker"]', 'roles = ["wroker"]'), "Did you mean 'worker'"),
        (REMOTE.replace("[policies.lead]", "[policies.echo]"), "another policy's. Rename"),
    ],
)
def test_maps_that_cannot_work_are_refused(policies: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        make_trainer(team(policies))


def test_adapters_of_two_ranks_do_not_share_a_base() -> None:
    trainer = make_trainer(team(B_LORA.replace("rank = 4", "rank = 2", 1), warm__steps=60))
    assert trainer.policies["lead"].model is not trainer.policies["hands"].model
    shapes = {p.shape[0] for p in trainer.policies["lead"].parameters()} & {2}
    assert shapes == {2}


def test_engines_take_up_what_a_start_taught_their_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine on a GPU has a copy of the adapters' weights, made before their start."""
    told: list[tuple[str, str]] = []
    forget = TorchEngine.forget

    def forgot(engine: TorchEngine) -> None:
        told.append(("forgot", engine.name))
        forget(engine)

    def adapt(name: str, *_: Any) -> dict[str, Any]:
        told.append(("taught", name))
        return {"loss": 0.0}

    monkeypatch.setattr(TorchEngine, "forget", forgot)
    made = make_policies(
        team(B_LORA), ("orchestrator", "worker"), lambda part: make_tiny((), part.tiny, seed=0), adapt
    )
    assert [what for what, _ in told] == ["taught", "forgot"] * 2
    assert {name for what, name in told if what == "forgot"} == {
        policy.engine.name for policy in made.values()
    }
