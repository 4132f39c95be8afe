"""Combinations that cannot work: one message, before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton.cli import main
from baton.compose.training import make_trainer
from baton.errors import BatonError
from baton.learn.recipe import load
from baton.learn.recipe_checks import check_idle

SKILL = ("task.name=game:skill-bandit", "task.settings={}")
CASES = {
    "two credits of one level on the same events": (
        "layers", ["credit.1.estimator=siblings", "credit.1.settings={}", "credit.1.unit=orchestrator"],
        "credit.0 (telescope) and credit.1 (siblings) both give credit to orchestrator, so events would be credited",
    ),
    "layers of which one has a scale of its own": (
        "layers", ["credit.2.estimator=agent-group"], "agent-group has a scale of its own",
    ),
    "a team's own scale over decisions, whatever roles": (
        "layers", ["credit.2.estimator=group", 'credit.2.roles=["worker"]'], "group has a scale of its own",
    ),
    "telescoping a rollout against nobody": (
        "layers", ["rollout.group_size=1"], "telescope compares rollouts of one instance, at least 2, and there",
    ),
    "an unknown key": ("dr-mas", ["rollout.group_sise=4"], "Did you mean 'group_size'"),
    "an unknown key in a list": ("dr-mas", ["credit.0.estimater=group"], "Did you mean 'estimator'"),
    "a value of the wrong kind": ("dr-mas", ["train.steps=many"], "steps is 'many'; expected a whole number"),
    "a rate that is none": ("dr-mas", ["train.learning_rate=nan"], "learning_rate is 'nan'; expected a number"),
    "an unknown critic": ("flagship", ["critic.kind=tabel"], "there is no critic 'tabel'. Did you mean 'table'"),
    "an unknown tool": ("dr-mas", ['team.tools=["pyton"]'], "there is no tool 'pyton'. Did you mean 'python'"),
    "an unknown monitor": ("grpo", ['train.monitors=["x"]'], "there is no monitor 'x'"),
    "an unknown word": ("flagship", ["critic.backup=bset"], "backup is 'bset'. Did you mean 'best'"),
    "an unknown word for a policy": ("dr-mas", ["policies.main.train=lorra"], "train is 'lorra'. Did you mean 'lora'"),
    "too few steps": ("dr-mas", ["train.steps=0"], "train.steps is 0; expected 1 or more"),
    "an unknown estimator": ("dr-mas", ["credit.0.estimator=agent-grup"], "Did you mean 'agent-group'"),
    "an estimator's unknown setting": ("dr-mas", ["credit.0.settings.epss=1"], "Did you mean 'eps'"),
    "stop credit without a stop": ("marsrl", ["credit.0.estimator=stop-value"], "the decision to stop"),
    "stop credit where a program stops": (
        "softrankpo", ["credit.0.estimator=coma", 'credit.0.decisions=["stop"]', "critic.kind=table"],
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
        "softrankpo", ['train.decisions=["spawn"]'], "nobody's policy in a debate team of shard-sum",
    ),
    "spawn credit where a program spawns": ("mappo", ["credit.0.estimator=spawn-fork"], "the decision to spawn"),
    "decisions of a whole agent": ("dr-mas", ['credit.0.decisions=["stop"]'], "no single decision"),
    "agent-wise groups of one": ("dr-mas", ["rollout.group_size=1"], "Set rollout.group_size to 2 or more"),
    "stop credit from too few instances": (
        "stop-value", ["rollout.groups=5", "rollout.group_size=2"], "so there are 5.",
    ),
    "stop credit from one instance": (
        "stop-value", ["credit.0.group_by=instance", "rollout.group_size=8"],
        'so there is 1. Set group_by = "task" and rollout.groups to 6 or more',
    ),
    "one rollout over all instances": (
        "grpo", ["credit.0.group_by=task", "rollout.groups=1", "rollout.group_size=1"],
        "at least 2, and there is 1. Set rollout.group_size to 2 or more.",
    ),
    "nothing learns": ("softrankpo", ["policies.main.train=frozen"], "every policy is frozen"),
    "a frozen policy's credit": (
        "shapley",
        ["policies.other.roles=[\"worker\"]", "policies.other.train=frozen"],
        "frozen and cannot learn",
    ),
    "a frozen policy's learning rate": ("parl", ["policies.workers.learning_rate=0.1"], "is frozen and has"),
    "a remote policy's training": ("softrankpo", ["policies.main.model=openai:x@http://host"], "weights are elsewhere"),
    "a model that is none": ("softrankpo", ["policies.main.model=EMPTY"], "EMPTY"),
    "an unknown role": ("m-grpo", ['policies.sub.roles=["wroker"]'], "Did you mean 'worker'"),
    "a credit's unknown role": ("shapley", ['credit.0.roles=["wroker"]'], "Did you mean 'worker'"),
    "a role twice": ("m-grpo", ['policies.sub.roles=["orchestrator"]'], "given to both policies"),
    "a role left over": ("m-grpo", ['policies.sub.roles=[]', 'policies.main.roles=[]'], "exactly one policy"),
    "no critic": ("softrankpo", ["credit.0.estimator=gae"], 'kind = "network"'),
    "no critic of agents": ("softrankpo", ["credit.0.estimator=vdn"], 'kind = "agents"'),
    "the wrong critic": ("mappo", ["critic.kind=agents"], "and the recipe has 'agents'"),
    "an unknown task": ("softrankpo", ["task.name=shard-sun"], "Did you mean 'shard-sum'"),
    "an unknown topology": ("softrankpo", ["team.topology=debat"], "Did you mean 'debate'"),
    "an unknown reward": ("softrankpo", ["reward.recipe=sharedd"], "Did you mean 'shared'"),
    "a reward's unknown setting": ("marsrl", ['reward.settings.solvrs=["executor"]'], "Did you mean 'solvers'"),
    "settings of no reward": ("softrankpo", ["reward.settings.x=1"], "no recipe to change"),
    "an unknown loss": ("softrankpo", ["loss.kind=pppo"], "Did you mean 'ppo'"),
    "a seed whose multiples are no seeds": ("grpo", ["train.seed=9223372036854775807"], "expected 0 to 9,000,000"),
    "groups where nothing is compared": ("flagship", ["credit.0.group_by=task"], "credit.0.group_by = task would do"),
    "a negative seed": ("grpo", ["train.seed=-1"], "train.seed is -1; expected 0 to 9,000,000"),
    "no threads": ("grpo", ["train.threads=0"], "train.threads is 0; expected 1 or more"),
    "a limit that is no number": ("grpo", ["team.limits.tokens=abc"], "team.limits.tokens is 'abc'; expected a whole"),
    "a limit below zero": ("grpo", ["team.limits.tokens=-1"], "expected zero or more"),
    "an unknown limit": ("grpo", ["team.limits.token=9"], "team.limits has no setting 'token'. Did you mean 'tokens'"),
    "no turns": ("dr-mas", ["team.settings.max_turns=0"], "team.settings.max_turns is 0; expected 1 or more"),
    "turns that are no number": ("dr-mas", ["team.settings.max_turns=abc"], "team.settings.max_turns is 'abc'"),
    "a task's setting of the wrong kind": ("dr-mas", ["task.settings.num_shards=x"], "task.settings.num_shards is 'x'"),
    "a template's unknown place": ("dr-mas", ["team.template={foo}"], "It may name {agent}, {role}"),
    "a template's open brace": ("dr-mas", ["team.template={role"], "written twice, {{ or }}"),
    "an estimator's setting of the wrong kind": ("grpo", ["credit.0.settings.eps=abc"], "eps is 'abc'; expected a num"),
    "a discount that is no number": ("puppeteer", ["credit.0.settings.gamma=abc"], "gamma is 'abc'; expected a number"),
    "an estimator's function": ("coma", ["credit.0.settings.q=abc"], "q is 'abc'; expected a function"),
    "settings of a game's own team": ("grpo", ["team.settings.max_turns=3"], "which has no setting 'max_turns'"),
    "no credit": ("grpo", ["credit=[]"], "the recipe has no credit"),
    "credit that counts nothing": ("grpo", ["credit.0.weight=0"], "credit.0.weight is 0"),
    "no decisions": ("grpo", ["train.decisions=[]"], "train.decisions is empty"),
    "credit for what is not learned": (
        "coma", ['credit.0.decisions=["stop"]', 'train.decisions=["spawn"]'], "credit.0 is for stop, and train",
    ),
    "no branches": ("flagship", ["rollout.fan_out=[0]"], "rollout.fan_out.0 is 0; expected 1 or more"),
    "the best of no branches": ("grpo", ["rollout.grow=best"], "rollout.fan_out has none"),
    "branches below none": ("grpo", ["rollout.fan_out=[-1,2]"], "rollout.fan_out.0 is -1"),
    "a KL that drives away": ("grpo", ["loss.kl=-1"], "loss.kl is -1; expected 0 or more"),
    "a price on entropy": ("grpo", ["loss.entropy=-5"], "loss.entropy is -5; expected 0 or more"),
    "forgetting more than all": ("flagship", ["train.forget=2"], "train.forget is 2; expected 0 to 1"),
    "pessimism": ("flagship", ["critic.optimism=-3"], "critic.optimism is -3; expected 0 or more"),
    "a negative eps": ("grpo", ["credit.0.settings.eps=-1"], "eps is -1; expected 0 or more"),
    "a discount that grows": ("mappo", ["credit.0.settings.gamma=7"], "gamma is 7; expected 0 to 1"),
    "a schedule into the past": (
        "parl", ['reward.settings={"terms.1.weight.steps": -5}'], "cannot change over -5 steps; expected 0 or more",
    ),
    "a critic nobody asks": ("dr-mas", ["critic.kind=network"], "[critic] would do nothing: agent-group asks none"),
    "LoRA's rank without LoRA": ("dr-mas", ["policies.worker.rank=3"], "policies.worker.rank is LoRA's"),
    "a correction beside a ratio": ("dr-mas", ["loss.correction=mask"], "loss.correction is for losses without"),
    "a correction's bound beside a ratio": ("dr-mas", ["loss.correction_high=3"], "Leave it and its bounds out"),
    "a mask's bound without a mask": ("spiral", ["loss.correction_low=0.1"], 'Write correction = "mask"'),
    "a bound of no correction": (
        "spiral", ["loss.correction=off", "loss.correction_high=3"], "loss.correction is off, so loss.correction_high",
    ),
    "bounds of a loss without any": ("spiral", ["loss.low=0.1"], "loss.kind is reinforce, which has no ratio"),
    "sequences whose parts are trained once": (
        "grpo", ["loss.kind=gspo", "rollout.fan_out=[2]"], 'Set pack.duplicates = "row_exact"',
    ),
    "an unknown word in a list": ("grpo", ['loss.scale=["agents"]'], "scale.0 is 'agents'. Did you mean 'agent'"),
    "an unknown decision": ("grpo", ['train.decisions=["foo"]'], "Expected one of: aggregate, communicate"),
    "a model without a type": ("softrankpo", ["policies.main.model=UNTYPED"], "its config.json names no model_type"),
    "a model with a broken file": ("softrankpo", ["policies.main.model=BROKEN"], "its config.json is not JSON. Give"),
    "a credit's weight where all options are trained": (
        "flagship", ["credit.0.weight=2"], "credit.0.weight = 2.0 would do nothing",
    ),
    "a credit's mean there": ("flagship", ["credit.0.centre=true"], "credit.0.centre = True would do nothing"),
    "an engine without an address": ("grpo", ["policies.main.engine=vllm"], "policies.main.engine is 'vllm'; expected"),
    "an engine that cannot be given weights": (
        "grpo", ["policies.main.engine=openai:gpt@http://127.0.0.1:9"], 'model = "openai:gpt@http://127.0.0.1:9"',
    ),
    "a credit's unit there": ("flagship", ["credit.0.unit=message"], "credit.0.unit = message would do nothing"),
    "another estimator there": ("flagship", ["credit.0.estimator=group"], "estimator group would train nothing"),
    "a price of invalid answers there": ("flagship", ["train.invalid=50"], "train.invalid = 50.0 would do nothing"),
    "reasoning left alone there": (
        "flagship", ["train.decision_only=true"], "train.decision_only = True would do nothing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_message(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for folder, config in {"EMPTY": None, "UNTYPED": "{}", "BROKEN": "{"}.items():
        (tmp_path / folder).mkdir()
        if config is not None:
            (tmp_path / folder / "config.json").write_text(config)
    monkeypatch.chdir(tmp_path)
    name, changes, said = CASES[case]
    quick = ["warm.steps=0", "warm.episodes=4"]
    with pytest.raises(BatonError) as caught:
        make_trainer(load(name, [*quick, *changes]))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_goes_on_with_what_it_began_with() -> None:
    """Also where that would be refused of a new one, or was written by an older version."""
    make_trainer(load("flagship", ["warm.steps=0", "warm.episodes=4", "train.invalid=2"]), restored=True)
    check_idle(load("flagship", ["loss.scale=[]"]))


def test_one_branch_shares_nothing() -> None:
    check_idle(load("grpo", ["loss.kind=gspo", "rollout.fan_out=[1]"]))


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["train", "dr-mas", "--set", "rollout.group_size=1", "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()
