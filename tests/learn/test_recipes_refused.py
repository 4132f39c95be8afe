"""Combinations that cannot work: one message, before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton.cli import main
from baton.errors import BatonError
from baton.learn.recipe import load
from baton.learn.trainer import Trainer

SKILL = ("task.name=game:skill-bandit", "task.settings={}")
CASES = {
    "an unknown key": ("dr-mas", ["rollout.group_sise=4"], "Did you mean 'group_size'"),
    "an unknown key in a list": ("dr-mas", ["credit.0.estimater=group"], "Did you mean 'estimator'"),
    "a value of the wrong kind": ("dr-mas", ["train.steps=many"], "steps is 'many'; expected a number"),
    "a rate that is none": ("dr-mas", ["train.learning_rate=nan"], "learning_rate is 'nan'; expected a number"),
    "an unknown word": ("flagship", ["critic.backup=bset"], "backup is 'bset'. Did you mean 'best'"),
    "an unknown word for a policy": ("dr-mas", ["policies.main.train=lorra"], "train is 'lorra'. Did you mean 'lora'"),
    "too few steps": ("dr-mas", ["train.steps=0"], "train.steps is 0; expected 1 or more"),
    "an unknown estimator": ("dr-mas", ["credit.0.estimator=agent-grup"], "Did you mean 'agent-group'"),
    "an estimator's unknown setting": ("dr-mas", ["credit.0.settings.epss=1"], "Did you mean 'eps'"),
    "stop credit without a stop": ("marsrl", ["credit.0.estimator=stop-value"], "the decision to stop"),
    "stop credit where a program stops": (
        "magrpo", ["credit.0.estimator=coma", 'credit.0.decisions=["stop"]', "critic.kind=table"],
        "nobody's policy in a debate team",
    ),
    "stop credit on a game without a stop": (
        "grpo", [*SKILL, "credit.0.estimator=stop-value"], "game:skill-bandit has no decision to stop (only delegate)",
    ),
    "credit for the stops of such a game": (
        "coma", [*SKILL, 'credit.0.decisions=["stop"]'], "Take a game that has it, such as game:parallel-pandora",
    ),
    "stop credit on a task without options": (
        "dr-mas", ["credit.0.estimator=stop-value"], "shard-sum names no options",
    ),
    "credit of options on such a task": (
        "dr-mas", ["credit.0.estimator=coma", "critic.kind=table"], "shard-sum names no options",
    ),
    "learning decisions nobody makes": (
        "grpo", [*SKILL, 'train.decisions=["stop", "spawn"]'], "train.decisions names stop, spawn",
    ),
    "learning decisions that a program makes": (
        "magrpo", ['train.decisions=["spawn"]'], "nobody's policy in a debate team of shard-sum",
    ),
    "spawn credit where a program spawns": ("mappo", ["credit.0.estimator=spawn-fork"], "the decision to spawn"),
    "decisions of a whole agent": ("dr-mas", ['credit.0.decisions=["stop"]'], "no single decision"),
    "agent-wise groups of one": ("dr-mas", ["rollout.group_size=1"], "Set rollout.group_size to 2 or more"),
    "stop credit from too few instances": (
        "stop", ["credit.0.estimator=stop-value", "rollout.groups=5", "rollout.group_size=2"], "so there are 5.",
    ),
    "stop credit from one instance": (
        "stop", ["credit.0.estimator=stop-value", "credit.0.group_by=instance", "rollout.group_size=8"],
        'so there is 1. Set group_by = "task" and rollout.groups to 6 or more',
    ),
    "one rollout over all instances": (
        "grpo", ["credit.0.group_by=task", "rollout.groups=1", "rollout.group_size=1"],
        "at least 2, and there is 1. Set rollout.group_size to 2 or more.",
    ),
    "nothing learns": ("magrpo", ["policies.main.train=frozen"], "every policy is frozen"),
    "a frozen policy's credit": (
        "shapley",
        ["policies.other.roles=[\"worker\"]", "policies.other.train=frozen"],
        "frozen and cannot learn",
    ),
    "a frozen policy's learning rate": ("parl", ["policies.workers.learning_rate=0.1"], "is frozen and has"),
    "a remote policy's training": ("magrpo", ["policies.main.model=openai:x@http://host"], "weights are elsewhere"),
    "a model that is none": ("magrpo", ["policies.main.model=EMPTY"], "EMPTY"),
    "an unknown role": ("m-grpo", ['policies.sub.roles=["wroker"]'], "Did you mean 'worker'"),
    "a credit's unknown role": ("shapley", ['credit.0.roles=["wroker"]'], "Did you mean 'worker'"),
    "a role twice": ("m-grpo", ['policies.sub.roles=["orchestrator"]'], "given to both policies"),
    "a role left over": ("m-grpo", ['policies.sub.roles=[]', 'policies.main.roles=[]'], "exactly one policy"),
    "no critic": ("magrpo", ["credit.0.estimator=gae"], 'kind = "network"'),
    "no critic of agents": ("magrpo", ["credit.0.estimator=vdn"], 'kind = "agents"'),
    "the wrong critic": ("mappo", ["critic.kind=agents"], "and the recipe has 'agents'"),
    "an unknown task": ("magrpo", ["task.name=shard-sun"], "Did you mean 'shard-sum'"),
    "an unknown topology": ("magrpo", ["team.topology=debat"], "Did you mean 'debate'"),
    "an unknown reward": ("magrpo", ["reward.recipe=sharedd"], "Did you mean 'shared'"),
    "a reward's unknown setting": ("marsrl", ['reward.settings.solvrs=["executor"]'], "Did you mean 'solvers'"),
    "settings of no reward": ("magrpo", ["reward.settings.x=1"], "no recipe to change"),
    "an unknown loss": ("magrpo", ["loss.kind=pppo"], "Did you mean 'ppo'"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_message(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "EMPTY").mkdir()
    monkeypatch.chdir(tmp_path)
    name, changes, said = CASES[case]
    quick = ["warm.steps=0", "warm.episodes=4"]
    with pytest.raises(BatonError) as caught:
        Trainer(load(name, [*quick, *changes]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "dr-mas", "--set", "rollout.group_size=1", "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()
